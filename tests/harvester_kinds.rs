//! The kinds of Harvester and of what it is made of: all are defined as their clients know them, and take objects.

use std::collections::HashMap;

use croft_testkit::{Answer, Client, Croft, Kubectl, StoreKind, eventually};
use serde_json::{Value, json};

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const STORED: &str = "but does not act on them";

/// A line of the table of what clients expect; it is not made from our own definitions.
struct Row {
    group: &'static str,
    versions: Vec<&'static str>,
    kind: &'static str,
    plural: &'static str,
    is_namespaced: bool,
    has_status: bool,
    short_names: Vec<&'static str>,
    columns: Vec<&'static str>,
}

impl Row {
    fn name(&self) -> String {
        format!("{}.{}", self.plural, self.group)
    }

    fn path(&self) -> String {
        let namespace = if self.is_namespaced { "namespaces/default/" } else { "" };
        format!("/apis/{}/{}/{namespace}{}", self.group, self.versions[0], self.plural)
    }
}

fn rows() -> Vec<Row> {
    let lines = include_str!("harvester/kinds.txt").lines().filter(|line| !line.starts_with('#'));
    lines.map(row).collect()
}

fn row(line: &'static str) -> Row {
    let (facts, columns) = line.split_once('|').expect("columns");
    let facts: Vec<&str> = facts.split_whitespace().collect();
    let [versions, kind, plural, scope, status, short_names] = facts.as_slice() else { panic!("{line}") };
    let (group, versions) = versions.split_once('/').expect("a version");
    let many = |text: &'static str| -> Vec<&'static str> {
        text.split(',').map(str::trim).filter(|part| !matches!(*part, "" | "-")).collect()
    };
    Row {
        group,
        versions: many(versions),
        kind,
        plural,
        is_namespaced: *scope == "namespaced",
        has_status: *status == "status",
        short_names: many(short_names),
        columns: many(columns),
    }
}

async fn server() -> (Croft, Client) {
    let server = Croft::start(StoreKind::Embedded).await.expect("the server starts");
    let client = server.client().expect("a client");
    (server, client)
}

/// What other samples name.
async fn write_prerequisites(client: &Client) {
    let mut machine = croft_e2e::machines::empty("vm");
    machine["spec"]["runStrategy"] = json!("Halted");
    for (path, object) in [
        (
            "/apis/harvesterhci.io/v1beta1/namespaces/default/versions",
            json!({
                "apiVersion": "harvesterhci.io/v1beta1", "kind": "Version", "metadata": {"name": "a"},
                "spec": {"isoURL": "https://example.com/a.iso"},
            }),
        ),
        (
            "/apis/network.harvesterhci.io/v1beta1/clusternetworks",
            json!({
                "apiVersion": "network.harvesterhci.io/v1beta1", "kind": "ClusterNetwork", "metadata": {"name": "c"},
            }),
        ),
        (croft_e2e::machines::MACHINES, machine),
        (
            "/apis/devices.harvesterhci.io/v1beta1/usbdevices",
            json!({"apiVersion": "devices.harvesterhci.io/v1beta1", "kind": "USBDevice", "metadata": {"name": "stick"}}),
        ),
        (
            PCI_DEVICES,
            json!({"apiVersion": "devices.harvesterhci.io/v1beta1", "kind": "PCIDevice", "metadata": {"name": "card"}}),
        ),
        (
            "/apis/harvesterhci.io/v1beta1/namespaces/default/virtualmachinebackups",
            json!({
                "apiVersion": "harvesterhci.io/v1beta1", "kind": "VirtualMachineBackup", "metadata": {"name": "made"},
                "spec": {"type": "snapshot", "source": {"kind": "VirtualMachine", "name": "vm"}},
                "status": {"readyToUse": true, "conditions": [{"type": "Ready", "status": "True"}]},
            }),
        ),
    ] {
        client.post(path, &object).await.expect("an answer").ok().expect(path);
    }
    let status = json!({"status": {"iommuGroup": "7"}});
    let told = client.patch(&format!("{PCI_DEVICES}/card/status"), "merge-patch", &status).await.expect("an answer");
    told.ok().expect("a group");
}

const PCI_DEVICES: &str = "/apis/devices.harvesterhci.io/v1beta1/pcidevices";

async fn definitions(client: &Client) -> HashMap<String, Value> {
    let list = client.get(CRDS).await.expect("an answer").ok().expect("definitions");
    let items = list["items"].as_array().expect("items").clone();
    items.into_iter().map(|item| (item["metadata"]["name"].as_str().expect("a name").to_owned(), item)).collect()
}

/// The least that the schema of a kind accepts.
fn least(schema: &Value) -> Value {
    if let Some(default) = schema.get("default") {
        return default.clone();
    }
    if let Some(first) = schema["enum"].get(0) {
        return first.clone();
    }
    if schema["x-kubernetes-int-or-string"] == true {
        return json!("1Gi");
    }
    match schema["type"].as_str() {
        Some("object") => {
            let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
            let fields = required.map(|field| (field.to_owned(), least(&schema["properties"][field])));
            Value::Object(fields.collect())
        }
        Some("array") => json!([]),
        Some("string") => json!(match schema["format"].as_str() {
            Some("date-time") => "2026-01-01T00:00:00Z",
            Some("ipv4") => "10.0.0.1",
            Some("duration") => "1h",
            Some("byte") => "AAAA",
            _ => "a",
        }),
        Some("boolean") => json!(true),
        Some("integer" | "number") => schema.get("minimum").cloned().unwrap_or(json!(1)),
        _ => json!({}),
    }
}

/// The least object, and what rules beyond the schema ask for.
fn object(row: &Row, schema: &Value) -> Value {
    let mut object = least(schema);
    object["apiVersion"] = json!(format!("{}/{}", row.group, row.versions[0]));
    object["kind"] = json!(row.kind);
    object["metadata"] = json!({"name": "a"});
    match (row.group, row.plural) {
        ("harvesterhci.io", "addons") => object["spec"]["valuesContent"] = json!("replicas: 1\n"),
        ("harvesterhci.io", "keypairs") => {
            let key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f a";
            object["spec"]["publicKey"] = json!(key);
        }
        ("harvesterhci.io", "resourcequotas") => object["metadata"]["name"] = json!("default-resource-quota"),
        ("harvesterhci.io", "virtualmachinebackups") => {
            object["spec"] = json!({"type": "snapshot", "source": {"kind": "VirtualMachine", "name": "vm"}});
        }
        ("harvesterhci.io", "virtualmachinerestores") => {
            object["spec"] = json!({"newVM": true, "target": {"kind": "VirtualMachine", "name": "new"},
                "virtualMachineBackupName": "made", "virtualMachineBackupNamespace": "default"});
        }
        ("harvesterhci.io", "schedulevmbackups") => {
            object["spec"]["cron"] = json!("0 */6 * * *");
            object["spec"]["vmbackup"] =
                json!({"type": "snapshot", "source": {"kind": "VirtualMachine", "name": "vm"}});
        }
        ("longhorn.io", "recurringjobs") => {
            object["spec"] = json!({"task": "snapshot", "cron": "0 * * * *", "retain": 1});
        }
        ("harvesterhci.io", "upgrades") => object["spec"] = json!({"version": "a"}),
        ("loadbalancer.harvesterhci.io", "loadbalancers") => {
            object["spec"] = json!({"workloadType": "cluster", "ipam": "dhcp"});
        }
        ("loadbalancer.harvesterhci.io", "ippools") => object["spec"]["ranges"] = json!([{"subnet": "10.9.0.0/24"}]),
        ("devices.harvesterhci.io", "pcideviceclaims") => object["metadata"]["name"] = json!("card"),
        ("devices.harvesterhci.io", "usbdeviceclaims") => object["metadata"]["name"] = json!("stick"),
        ("devices.harvesterhci.io", "vgpudevices") => object["spec"]["enabled"] = json!(false),
        ("network.harvesterhci.io", "hostnetworkconfigs") => {
            object["spec"] = json!({"clusterNetwork": "c", "vlanID": 5, "mode": "dhcp"});
        }
        ("network.harvesterhci.io", "vlanconfigs") => {
            object["spec"] = json!({"clusterNetwork": "c", "uplink": {"nics": ["eth1"]}});
        }
        ("snapshot.storage.k8s.io", "volumesnapshots") => {
            object["spec"]["source"] = json!({"persistentVolumeClaimName": "a"});
        }
        ("snapshot.storage.k8s.io", "volumesnapshotcontents") => {
            object["spec"]["source"] = json!({"volumeHandle": "a"});
            object["spec"]["volumeSnapshotRef"] = json!({"name": "a", "namespace": "default"});
        }
        _ => {}
    }
    object
}

/// A field below `spec`, or the first one, with a value of a type that it does not have.
fn with_a_wrong_type(object: &Value, schema: &Value) -> Option<Value> {
    let properties = schema["properties"].as_object()?;
    let is_own = |field: &&String| !matches!(field.as_str(), "apiVersion" | "kind" | "metadata" | "status");
    let field = properties.keys().find(|field| *field == "spec").or_else(|| properties.keys().find(is_own))?;
    let mut wrong = object.clone();
    wrong["metadata"] = json!({"name": "wrong"});
    let below = &properties[field]["properties"];
    match below.as_object().and_then(|below| below.iter().find(|(_, schema)| schema["type"].is_string())) {
        Some((inner, schema)) => {
            let value = if schema["type"] == "boolean" { json!("text") } else { json!(true) };
            wrong[field.as_str()][inner.as_str()] = value;
        }
        None => wrong[field.as_str()] = json!(true),
    }
    Some(wrong)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_kind_is_defined_as_clients_know_it() {
    let (server, client) = server().await;
    let definitions = definitions(&client).await;
    let mut short_names = Vec::new();
    for row in rows() {
        let name = row.name();
        let definition = definitions.get(&name).unwrap_or_else(|| panic!("no definition of {name}"));
        let (spec, names) = (&definition["spec"], &definition["spec"]["names"]);
        assert_eq!(names["kind"], row.kind, "{name}");
        assert_eq!(names["shortNames"].as_array().map_or(&[][..], Vec::as_slice), row.short_names, "{name}");
        assert_eq!(spec["scope"], if row.is_namespaced { "Namespaced" } else { "Cluster" }, "{name}");
        let versions = spec["versions"].as_array().expect("versions");
        assert_eq!(versions.iter().map(|v| &v["name"]).collect::<Vec<_>>(), row.versions, "{name}");
        assert_eq!(versions[0]["storage"], true, "{name}");
        assert_eq!(!versions[0]["subresources"]["status"].is_null(), row.has_status, "{name}");
        let columns = versions[0]["additionalPrinterColumns"].as_array().into_iter().flatten();
        assert_eq!(columns.map(|c| &c["name"]).collect::<Vec<_>>(), row.columns, "{name}");
        let conditions = definition["status"]["conditions"].as_array().expect("conditions");
        assert!(conditions.iter().any(|c| c["type"] == "Established" && c["status"] == "True"), "{name}");
        short_names.extend(row.short_names);
    }
    // Nothing is shipped that clients do not know.
    assert_eq!(definitions.len(), rows().len());
    let kubectl = Kubectl::new(&server.kubeconfig).expect("kubectl");
    kubectl.ok(&["get", &short_names.join(","), "-A", "--ignore-not-found"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kinds_that_are_only_stored_keep_what_clients_write() {
    let (_server, client) = server().await;
    let definitions = definitions(&client).await;
    let states = documented();
    write_prerequisites(&client).await;
    for row in rows().iter().filter(|row| states[&row.name()] == "stored only") {
        let schema = &definitions[&row.name()]["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        let created = create(&client, row, &object(row, schema)).await;
        write_status(&client, row, schema, created).await;
        if let Some(wrong) = with_a_wrong_type(&object(row, schema), schema) {
            let answer = client.post(&row.path(), &wrong).await.expect("an answer");
            assert_eq!(answer.status, 422, "{}: {}", row.name(), answer.text());
        }
    }
}

fn is_stored_only(answer: &Answer) -> bool {
    let mut warnings = answer.headers.get_all("warning").iter().filter_map(|warning| warning.to_str().ok());
    warnings.any(|warning| warning.contains(STORED))
}

/// Whatever is in the object, and whoever sends it.
fn is_refused(answer: &Answer) -> bool {
    matches!(answer.status, 403 | 405)
}

/// What is not known is left out, and the answer says that nobody acts on the rest.
async fn create(client: &Client, row: &Row, object: &Value) -> Value {
    let mut sent = object.clone();
    sent["nonsense"] = json!({"a": 1});
    let answer = client.post(&row.path(), &sent).await.expect("an answer");
    assert_eq!(answer.status, 201, "{}: {}", row.name(), answer.text());
    assert!(is_stored_only(&answer), "{}: {:?}", row.name(), answer.headers);
    let created = answer.json();
    assert!(created["nonsense"].is_null(), "{}", row.name());
    created
}

/// By the subresource if there is one, else with the object.
async fn write_status(client: &Client, row: &Row, schema: &Value, mut object: Value) {
    let schema = &schema["properties"]["status"];
    let Some((field, below)) = schema["properties"].as_object().and_then(|fields| fields.iter().next()) else { return };
    let before = object["status"][field].clone();
    object["status"] = least(schema);
    object["status"][field] = least(below);
    let name = object["metadata"]["name"].as_str().expect("a name");
    let path = format!("{}/{name}", row.path());
    let expected = object["status"][field].clone();
    let written = client.put(&path, &object).await.expect("an answer").ok().expect(&path);
    let kept = &written["status"][field];
    if row.has_status {
        assert_eq!(*kept, before, "{path}");
        object["metadata"] = written["metadata"].clone();
        let path = format!("{path}/status");
        let written = client.put(&path, &object).await.expect("an answer").ok().expect(&path);
        assert!(contains(&written["status"][field], &expected), "{path}: {written}");
    } else {
        assert!(contains(kept, &expected), "{path}: {written}");
    }
}

/// There may be more in it: defaults.
fn contains(whole: &Value, part: &Value) -> bool {
    let mut merged = whole.clone();
    croft_e2e::machines::merge(&mut merged, part);
    merged == *whole
}

/// The table of `docs/compatibility.md`: name of the definition, state.
fn documented() -> HashMap<String, &'static str> {
    let text = include_str!("../docs/compatibility.md");
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` | "));
    let states = rows.filter_map(|(name, rest)| Some((name.to_owned(), rest.split_once(" |")?.0)));
    states.filter(|(_, state)| matches!(*state, "works" | "stored only" | "refused")).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_documentation_tells_the_state_of_every_kind() {
    let (_server, client) = server().await;
    let definitions = definitions(&client).await;
    let states = documented();
    write_prerequisites(&client).await;
    for row in rows() {
        let name = row.name();
        let state = states.get(&name).unwrap_or_else(|| panic!("{name} is not documented"));
        let schema = &definitions[&name]["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        // Whether anything acts on a kind is said with every write.
        let path = format!("{}?dryRun=All", row.path());
        let answer = client.post(&path, &object(&row, schema)).await.expect("an answer");
        assert_eq!(is_stored_only(&answer), *state == "stored only", "{name} is {state}: {}", answer.text());
        assert_eq!(is_refused(&answer), *state == "refused", "{name} is {state}: {}", answer.text());
    }
    let documented = states.keys().filter(|name| definitions.contains_key(*name)).count();
    assert_eq!(documented, definitions.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_scripts_look_for_is_there_and_stays_as_users_left_it() {
    let (mut server, client) = server().await;
    let network = "/apis/network.harvesterhci.io/v1beta1/clusternetworks/mgmt";
    for path in [
        "/api/v1/namespaces/harvester-public",
        "/api/v1/namespaces/longhorn-system",
        "/api/v1/namespaces/fleet-local",
        network,
        "/apis/harvesterhci.io/v1beta1/settings/server-version",
        "/apis/kubevirt.io/v1/namespaces/harvester-system/kubevirts/kubevirt",
        "/apis/cdi.kubevirt.io/v1beta1/cdiconfigs/config",
        "/apis/storage.k8s.io/v1/storageclasses/harvester-longhorn",
        "/apis/snapshot.storage.k8s.io/v1/volumesnapshotclasses/longhorn",
        "/apis/snapshot.storage.k8s.io/v1/volumesnapshotclasses/longhorn-snapshot",
        "/apis/network.harvesterhci.io/v1beta1/linkmonitors/nic",
        "/apis/network.harvesterhci.io/v1beta1/linkmonitors/mgmt",
        "/apis/longhorn.io/v1beta2/namespaces/longhorn-system/settings/storage-over-provisioning-percentage",
        "/apis/apps/v1/namespaces/harvester-system/deployments/harvester",
        "/api/v1/namespaces/kube-system/services/ingress-expose",
        "/api/v1/namespaces/harvester-system/configmaps/vip",
        "/apis/rbac.authorization.k8s.io/v1/clusterroles/harvesterhci.io:cloudprovider",
        "/apis/rbac.authorization.k8s.io/v1/clusterroles/harvesterhci.io:csi-driver",
        "/apis/rbac.authorization.k8s.io/v1/clusterroles/harvesterhci.io:edit",
        "/apis/rbac.authorization.k8s.io/v1/clusterroles/harvesterhci.io:view",
        "/apis/rbac.authorization.k8s.io/v1/clusterroles/harvester-authenticated",
        "/api/v1/namespaces/harvester-public/secrets/iso-image-template-userdata",
        "/api/v1/namespaces/harvester-public/secrets/raw-image-template-userdata",
    ] {
        client.get(path).await.expect("an answer").ok().unwrap_or_else(|error| panic!("{path}: {error}"));
    }
    let ready = client.get(network).await.expect("an answer").json();
    assert_eq!(ready["status"]["conditions"][0]["type"], "ready");
    assert_eq!(ready["status"]["conditions"][0]["status"], "True");
    let harvester = client.get("/apis/apps/v1/namespaces/harvester-system/deployments/harvester").await;
    let harvester = harvester.expect("an answer").json();
    assert_eq!(harvester["status"]["conditions"][0]["type"], "Available");

    // Users' changes outlive a restart.
    let changes = [
        ("/apis/snapshot.storage.k8s.io/v1/volumesnapshotclasses/longhorn", json!({"deletionPolicy": "Retain"})),
        (
            "/apis/longhorn.io/v1beta2/namespaces/longhorn-system/settings/taint-toleration",
            json!({"value": "a=b:NoSchedule"}),
        ),
        (network, json!({"metadata": {"annotations": {"network.harvesterhci.io/uplink-mtu": "9000"}}})),
        ("/api/v1/namespaces/harvester-system/configmaps/vip", json!({"data": {"ip": "10.0.0.9"}})),
    ];
    for (path, change) in &changes {
        let answer = client.patch(path, "merge-patch", change).await.expect("an answer");
        answer.ok().unwrap_or_else(|error| panic!("{path}: {error}"));
    }
    server.restart().await.expect("the server starts again");
    let client = server.client().expect("a client");
    for (path, change) in &changes {
        let kept = client.get(path).await.expect("an answer").ok().expect(path);
        assert!(contains(&kept, change), "{path}: {kept}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_puts_changed_definitions_right_and_leaves_the_others_alone() {
    let (mut server, client) = server().await;
    let before = definitions(&client).await;
    let changed = format!("{CRDS}/loadbalancers.loadbalancer.harvesterhci.io");
    let patch = json!({"spec": {"names": {"shortNames": ["balancer"]}}});
    client.patch(&changed, "merge-patch", &patch).await.expect("an answer").ok().expect("a change");
    let deleted = format!("{CRDS}/ippools.loadbalancer.harvesterhci.io");
    client.delete(&deleted).await.expect("an answer").ok().expect("a deletion");
    eventually("the definition goes", async || match client.get(&deleted).await {
        Ok(answer) if answer.status == 404 => Ok(()),
        Ok(answer) => Err(answer.text()),
        Err(error) => Err(error.to_string()),
    })
    .await;
    for _ in 0..2 {
        server.restart().await.expect("the server starts again");
        let after = definitions(&server.client().expect("a client")).await;
        assert_eq!(after.len(), before.len());
        for (name, before) in &before {
            let after = &after[name];
            assert_eq!(after["spec"], before["spec"], "{name}");
            let is_touched = changed.ends_with(name) || deleted.ends_with(name);
            let revisions = [after, before].map(|definition| &definition["metadata"]["resourceVersion"]);
            assert_eq!(revisions[0] != revisions[1], is_touched, "{name}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn templates_to_begin_with_are_there_and_make_machines() {
    let (mut server, client) = server().await;
    let public = "/apis/harvesterhci.io/v1beta1/namespaces/harvester-public";
    let templates = format!("{public}/virtualmachinetemplates");
    for name in [
        "iso-image-base",
        "raw-image-base",
        "windows-raw-image-base",
        "windows-iso-image-base",
        "windows-iso-small",
        "windows-iso-medium",
        "windows-iso-large",
        "windows-w11-iso",
    ] {
        let path = format!("{templates}/{name}-template");
        eventually(&format!("{name} has a default version"), async || {
            let template = client.get(&path).await.map_err(|error| error.to_string())?.json();
            let default = format!("harvester-public/{name}-version");
            let is_set = template["spec"]["defaultVersionId"] == default && template["status"]["defaultVersion"] == 1;
            if is_set { Ok(()) } else { Err(template.to_string()) }
        })
        .await;
        let version = format!("{public}/virtualmachinetemplateversions/{name}-version");
        let version = client.get(&version).await.expect("an answer").ok().expect("a version");
        let mut machine = version["spec"]["vm"].clone();
        machine["apiVersion"] = json!("kubevirt.io/v1");
        machine["kind"] = json!("VirtualMachine");
        machine["metadata"]["name"] = json!(name);
        let machines =
            "/apis/kubevirt.io/v1/namespaces/harvester-public/virtualmachines?dryRun=All&fieldValidation=Strict";
        let answer = client.post(machines, &machine).await.expect("an answer");
        assert_eq!(answer.status, 201, "{name}: {}", answer.text());
    }
    let list = client.get(&templates).await.expect("an answer").json();
    assert_eq!(list["items"].as_array().map(Vec::len), Some(8));

    // What users make of them outlives a restart.
    let path = format!("{templates}/raw-image-base-template");
    let change = json!({"spec": {"description": "ours"}});
    client.patch(&path, "merge-patch", &change).await.expect("an answer").ok().expect("a change");
    server.restart().await.expect("the server starts again");
    let kept = server.client().expect("a client").get(&path).await.expect("an answer").json();
    assert_eq!(kept["spec"]["description"], "ours");
    assert_eq!(kept["status"]["latestVersion"], 1);
}
