//! Clusters inside machines: the node driver that makes the machines, the CSI driver that gives them volumes, and the
//! cloud provider that finds them and asks for load balancers. Each does what its service account may do and no more.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use croft_e2e::flows::{BALANCERS, HARVESTER, NADS, SETTINGS, applied, destroyed, go, read, refused, updated};
use croft_e2e::machines::{
    BOOT, CLAIMS, INSTANCES, MACHINES, becomes, create, events_of, is_gone, is_true, node, status_becomes, subresource,
};
use croft_e2e::storage::{CLASSES, SECRETS, bound, made};
use croft_testkit::{Call, Client, Croft, StoreKind, eventually};
use http::Method;
use serde_json::{Value, json};

const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHVcYlyuMnrtHVQnZ+JQab4xvu6q9kNcam9W/ZJ2MWJu me@there";
const SNAPSHOTS: &str = "/apis/snapshot.storage.k8s.io/v1/namespaces/default/volumesnapshots";

/// A machine as the node driver posts it: limits only, no board, cards in the order in which they were asked for.
fn driver_machine(name: &str) -> Value {
    let labels = json!({"harvesterhci.io/creator": "docker-machine-driver-harvester", "harvesterhci.io/vmName": name,
        "guestcluster.harvesterhci.io/name": "demo", "harvesterhci.io/machineSetName": "default-demo-pool1"});
    let card = |n: u32, way: &str| json!({"name": format!("nic-{n}"), "model": "virtio", way: {}});
    let secret = format!("{name}-cloudinit");
    go(json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
        "metadata": {"name": name, "labels": labels, "annotations": {}},
        "spec": {"runStrategy": "RerunOnFailure", "template": {
            "metadata": {"labels": labels, "annotations": {"harvesterhci.io/sshNames": "[\"default/mine\"]"}},
            "spec": {
                "evictionStrategy": "LiveMigrateIfPossible",
                "terminationGracePeriodSeconds": 1,
                "domain": {
                    "cpu": {"cores": 1, "sockets": 1, "threads": 1},
                    "resources": {"limits": {"cpu": "1", "memory": "128Mi"}},
                    "devices": {
                        "disks": [{"name": "cloudinitdisk", "disk": {"bus": "virtio"}}],
                        "interfaces": [card(0, "masquerade"), card(1, "bridge"), card(2, "bridge")],
                    },
                },
                "networks": [
                    {"name": "nic-0", "pod": {}},
                    {"name": "nic-1", "multus": {"networkName": "default/first"}},
                    {"name": "nic-2", "multus": {"networkName": "default/second"}},
                ],
                "volumes": [{"name": "cloudinitdisk", "cloudInitNoCloud": {"secretRef": {"name": secret}, "networkDataSecretRef": {"name": secret}}}],
            },
        }},
    }))
}

/// The same machine with one card that needs no bridge of the host.
fn simple_machine(name: &str) -> Value {
    let mut machine = driver_machine(name);
    let spec = &mut machine["spec"]["template"]["spec"];
    spec["domain"]["devices"]["interfaces"] =
        json!([{"name": "nic-0", "model": "virtio", "masquerade": {}, "bootOrder": 1}]);
    spec["networks"] = json!([{"name": "nic-0", "pod": {}}]);
    machine
}

fn cloud_init(name: &str, machine: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": format!("{name}-cloudinit"), "ownerReferences": [
            {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": name, "uid": machine["metadata"]["uid"]}]},
        "data": {"userdata": STANDARD.encode("#cloud-config\n"), "networkdata": ""}})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_node_driver_makes_a_machine_and_removes_it() {
    let (_server, client) = node().await;
    // What it looks for before it makes anything.
    let version = read(&client, &format!("{SETTINGS}/server-version")).await;
    assert!(version["value"].as_str().is_some_and(|version| version.starts_with("v1.")), "{version}");
    assert_eq!(client.get(&format!("{MACHINES}/pool1-a")).await.expect("an answer").status, 404);
    let keys = format!("{HARVESTER}/namespaces/default/keypairs");
    let key = json!({"apiVersion": "harvesterhci.io/v1beta1", "kind": "KeyPair", "metadata": {"name": "mine"},
        "spec": {"publicKey": KEY}});
    applied(&client, &keys, &key).await;
    becomes(&client, &format!("{keys}/mine"), "valid", BOOT, |key| is_true(key, "validated")).await;

    // The machine comes first; it waits for the Secret that belongs to it.
    let machine = create(&client, &simple_machine("pool1-a")).await;
    eventually("the machine says what it waits for", async || {
        let said = events_of(&client, "pool1-a").await.join("\n");
        if said.contains("pool1-a-cloudinit") { Ok(()) } else { Err(said) }
    })
    .await;
    made(&client, SECRETS, &go(cloud_init("pool1-a", &machine))).await;
    // The address of the first interface is read as soon as it runs.
    let path = format!("{INSTANCES}/pool1-a");
    let has_address = |instance: &Value| {
        let address = instance["status"]["interfaces"][0]["ipAddress"].as_str().unwrap_or_default();
        instance["status"]["phase"] == "Running" && address.parse::<std::net::Ipv4Addr>().is_ok()
    };
    let first = becomes(&client, &path, "at an address", BOOT, has_address).await;
    let got = read(&client, &format!("{MACHINES}/pool1-a")).await;
    assert_eq!(got["spec"]["template"]["spec"]["domain"]["machine"]["type"], "q35");
    assert_eq!(got["spec"]["template"]["spec"]["domain"]["memory"]["guest"], "128Mi");

    let act = |action: &str| Call::new(Method::PUT, &subresource("virtualmachines", "pool1-a", action));
    assert_eq!(client.send(act("restart")).await.expect("an answer").status, 202);
    let uid = first["metadata"]["uid"].clone();
    becomes(&client, &path, "another", BOOT, |other| other["metadata"]["uid"] != uid && has_address(other)).await;
    assert_eq!(client.send(act("stop")).await.expect("an answer").status, 202);
    is_gone(&client, &path).await;
    assert_eq!(client.send(act("start")).await.expect("an answer").status, 202);
    becomes(&client, &path, "running", BOOT, has_address).await;

    // Removal: claims of the cluster are listed, those of the machine are named, and it goes with its Secret.
    let claims = format!("{CLAIMS}?labelSelector=guestcluster.harvesterhci.io%2Fname%3Ddemo");
    assert_eq!(read(&client, &claims).await["items"], json!([]));
    let path = format!("{MACHINES}/pool1-a");
    updated(&client, &path, |machine| {
        machine["metadata"]["annotations"]["harvesterhci.io/removedPersistentVolumeClaims"] = json!("");
    })
    .await;
    destroyed(&client, &path, Some("Foreground")).await;
    is_gone(&client, &format!("{SECRETS}/pool1-a-cloudinit")).await;
}

/// Cards stay in the order of the specification, each with its own address; networks that are not there are refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cards_keep_their_order() {
    let (_server, client) = server().await;
    refused(&client.post(MACHINES, &driver_machine("m")).await.expect("an answer"), 404, "\"first\" not found");
    for name in ["first", "second"] {
        let config = json!({"cniVersion": "0.3.1", "name": name, "type": "bridge", "bridge": "mgmt-br", "promiscMode": true, "vlan": 40, "ipam": {}});
        let nad = json!({"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition", "metadata": {"name": name},
            "spec": {"config": config.to_string()}});
        made(&client, NADS, &nad).await;
    }
    let machine = create(&client, &driver_machine("m")).await;
    let devices = &machine["spec"]["template"]["spec"]["domain"]["devices"];
    let cards = devices["interfaces"].as_array().expect("cards");
    let names: Vec<&str> = cards.iter().map(|card| card["name"].as_str().expect("a name")).collect();
    assert_eq!(names, ["nic-0", "nic-1", "nic-2"]);
    let mut addresses: Vec<&str> = cards.iter().map(|card| card["macAddress"].as_str().expect("an address")).collect();
    addresses.sort_unstable();
    addresses.dedup();
    assert_eq!(addresses.len(), 3, "{machine}");
    // Another machine may not take one of them on the same cluster network.
    let mut other = driver_machine("other");
    other["spec"]["template"]["spec"]["domain"]["devices"]["interfaces"][1]["macAddress"] =
        cards[1]["macAddress"].clone();
    refused(&client.post(MACHINES, &other).await.expect("an answer"), 422, "duplicate mac address");
    // The refusal names the instance as soon as there is one.
    eventually("the instance is there", async || client.get(&format!("{INSTANCES}/m")).await?.ok()).await;
    refused(
        &client.delete(&format!("{NADS}/first")).await.expect("an answer"),
        422,
        "default/m which must be stopped at first",
    );
}

async fn server() -> (Croft, Client) {
    let server = Croft::start(StoreKind::Embedded).await.expect("the server starts");
    let client = server.client().expect("a client");
    (server, client)
}

/// What the scripts of the drivers set up: an account, its roles, and a Secret that is given its token.
async fn account(server: &Croft, client: &Client, name: &str, is_csi: bool) -> Client {
    let meta = json!({"name": name, "namespace": "default"});
    made(
        client,
        "/api/v1/namespaces/default/serviceaccounts",
        &json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta}),
    )
    .await;
    let subject = json!([{"kind": "ServiceAccount", "name": name, "namespace": "default"}]);
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let role = |role: &str| json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role});
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": meta,
        "subjects": subject, "roleRef": role("harvesterhci.io:cloudprovider")});
    made(client, &format!("{rbac}/namespaces/default/rolebindings"), &binding).await;
    if is_csi {
        let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": format!("default-{name}")},
            "subjects": subject, "roleRef": role("harvesterhci.io:csi-driver")});
        made(client, &format!("{rbac}/clusterrolebindings"), &binding).await;
    }
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
        "metadata": {"name": format!("{name}-token"), "annotations": {"kubernetes.io/service-account.name": name}}});
    made(client, SECRETS, &secret).await;
    let path = format!("{SECRETS}/{name}-token");
    let secret = becomes(client, &path, "filled", BOOT, |secret| secret["data"]["token"].is_string()).await;
    let token = STANDARD.decode(secret["data"]["token"].as_str().expect("a token")).expect("base64");
    server.bearer(&String::from_utf8(token).expect("text")).expect("a client")
}

fn host_claim(name: &str) -> Value {
    go(json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
        "spec": {"accessModes": ["ReadWriteMany"], "volumeMode": "Block", "storageClassName": "harvester-longhorn",
            "resources": {"requests": {"storage": "4Mi"}}}}))
}

/// The volume is in the instance, as one that came while it ran.
async fn plugged(client: &Client, machine: &str, volume: &str) -> Value {
    let is_there = |instance: &Value| {
        let volumes = instance["status"]["volumeStatus"].as_array().cloned().unwrap_or_default();
        volumes.iter().any(|status| {
            let target = status["target"].as_str().unwrap_or_default();
            status["name"] == volume
                && status["hotplugVolume"].is_object()
                && status["phase"] == "Ready"
                && !target.is_empty()
        })
    };
    becomes(client, &format!("{INSTANCES}/{machine}"), "with the volume", BOOT, is_there).await
}

async fn unplugged(client: &Client, machine: &str, volume: &str) {
    let is_gone = |instance: &Value| {
        let volumes = instance["status"]["volumeStatus"].as_array().cloned().unwrap_or_default();
        !volumes.iter().any(|status| status["name"] == volume)
    };
    becomes(client, &format!("{INSTANCES}/{machine}"), "without the volume", BOOT, is_gone).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_csi_driver_plugs_grows_and_unplugs_volumes() {
    let (server, admin) = node().await;
    let machine = create(&admin, &simple_machine("worker")).await;
    made(&admin, SECRETS, &go(cloud_init("worker", &machine))).await;
    status_becomes(&admin, "worker", "Running").await;
    let client = account(&server, &admin, "csi", true).await;

    // Startup. It may read these settings and no others, and finds its own machine by the address of a card.
    for name in ["server-version", "csi-driver-config", "csi-online-expand-validation"] {
        read(&client, &format!("{SETTINGS}/{name}")).await;
    }
    assert_eq!(client.get(&format!("{SETTINGS}/backup-target")).await.expect("an answer").status, 403);
    assert_eq!(read(&client, "/apis/longhorn.io/v1beta2/namespaces/longhorn-system/volumes").await["items"], json!([]));
    let shares = "/apis/harvesterhci.io/v1beta1/namespaces/harvester-system/networkfilesystems";
    assert_eq!(read(&client, shares).await["items"], json!([]));
    let instances = read(&client, INSTANCES).await;
    let card = &machine["spec"]["template"]["spec"]["domain"]["devices"]["interfaces"][0]["macAddress"];
    assert_eq!(&instances["items"][0]["status"]["interfaces"][0]["mac"], card);

    // A volume.
    assert_eq!(read(&client, &format!("{CLASSES}/harvester-longhorn")).await["provisioner"], "driver.longhorn.io");
    let claim = client.post(CLAIMS, &host_claim("pvc-1")).await.expect("an answer").ok().expect("a claim");
    assert_eq!(claim["metadata"]["name"], "pvc-1");
    bound(&client, "pvc-1").await;
    let attachments = read(&client, "/apis/storage.k8s.io/v1/volumeattachments").await;
    for attachment in attachments["items"].as_array().expect("items") {
        assert!(attachment["spec"]["source"]["persistentVolumeName"].is_string(), "{attachment}");
    }

    // Into the machine, by its own specification.
    let path = format!("{MACHINES}/worker");
    let version = read(&client, &path).await["metadata"]["resourceVersion"].clone();
    let patch = json!([
        {"op": "test", "path": "/metadata/resourceVersion", "value": version},
        {"op": "add", "path": "/spec/template/spec/volumes/-", "value": {"name": "pvc-1", "persistentVolumeClaim": {"claimName": "pvc-1", "hotpluggable": true}}},
        {"op": "add", "path": "/spec/template/spec/domain/devices/disks/-", "value": {"name": "pvc-1", "disk": {"bus": "scsi"}}},
    ]);
    client.patch(&path, "json-patch", &patch).await.expect("an answer").ok().expect("patched");
    plugged(&client, "worker", "pvc-1").await;
    // Somebody else was faster.
    let answer = client.patch(&path, "json-patch", &patch).await.expect("an answer");
    assert_eq!(answer.status, 422, "{}", answer.text());

    // Larger, under the guest.
    updated(&client, &format!("{CLAIMS}/pvc-1"), |claim| {
        claim["spec"]["resources"]["requests"]["storage"] = json!("8Mi");
    })
    .await;
    becomes(&client, &format!("{CLAIMS}/pvc-1"), "larger", BOOT, |claim| {
        claim["status"]["capacity"]["storage"] == "8Mi"
    })
    .await;
    assert_eq!(client.get("/api/v1/namespaces/default/pods").await.expect("an answer").status, 200);

    // A snapshot, which the guest's driver waits for.
    let snapshot = json!({"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot",
        "metadata": {"name": "snapshot-1", "labels": {"harvesterhci.io/snapHostSC": "harvester-longhorn", "harvesterhci.io/snapHostVolumeMode": "Block"}},
        "spec": {"volumeSnapshotClassName": "longhorn-snapshot", "source": {"persistentVolumeClaimName": "pvc-1"}}});
    client.post(SNAPSHOTS, &snapshot).await.expect("an answer").ok().expect("taken");
    let taken = format!("{SNAPSHOTS}/snapshot-1");
    let snapshot = becomes(&client, &taken, "ready", BOOT, |it| it["status"]["readyToUse"] == true).await;
    assert!(snapshot["status"]["boundVolumeSnapshotContentName"].is_string(), "{snapshot}");
    assert!(snapshot["status"]["restoreSize"].is_string(), "{snapshot}");
    destroyed(&client, &format!("{SNAPSHOTS}/snapshot-1"), None).await;

    // In use, it is not deleted; out of the machine, it is.
    refused(
        &client.delete(&format!("{CLAIMS}/pvc-1")).await.expect("an answer"),
        409,
        "currently attached to VM: default/worker",
    );
    let machine = read(&client, &path).await;
    let without = |field: &str| {
        let list = machine.pointer(field).and_then(Value::as_array).cloned().unwrap_or_default();
        json!(list.into_iter().filter(|entry| entry["name"] != "pvc-1").collect::<Vec<_>>())
    };
    let (volumes, disks) = ("/spec/template/spec/volumes", "/spec/template/spec/domain/devices/disks");
    let patch = json!([
        {"op": "test", "path": "/metadata/resourceVersion", "value": machine["metadata"]["resourceVersion"]},
        {"op": "replace", "path": volumes, "value": without(volumes)},
        {"op": "replace", "path": disks, "value": without(disks)},
    ]);
    client.patch(&path, "json-patch", &patch).await.expect("an answer").ok().expect("patched");
    unplugged(&client, "worker", "pvc-1").await;
    destroyed(&client, &format!("{CLAIMS}/pvc-1"), None).await;

    by_subresource(&client).await;
}

/// As for servers before 1.8.
async fn by_subresource(client: &Client) {
    client.post(CLAIMS, &host_claim("pvc-2")).await.expect("an answer").ok().expect("a claim");
    bound(client, "pvc-2").await;
    let add = json!({"name": "pvc-2", "disk": {"name": "pvc-2", "disk": {"bus": "scsi"}, "serial": "pvc-2"},
        "volumeSource": {"persistentVolumeClaim": {"claimName": "pvc-2", "hotpluggable": true}}});
    let path = |action: &str| subresource("virtualmachines", "worker", action);
    let answer = client.put(&path("addvolume"), &add).await.expect("an answer");
    assert_eq!(answer.status, 202, "{}", answer.text());
    plugged(client, "worker", "pvc-2").await;
    let answer = client.put(&path("removevolume"), &json!({"name": "pvc-2"})).await.expect("an answer");
    assert_eq!(answer.status, 202, "{}", answer.text());
    unplugged(client, "worker", "pvc-2").await;
    let machine = read(client, &format!("{MACHINES}/worker")).await;
    assert!(!machine["spec"].to_string().contains("pvc-2"), "{machine}");
    destroyed(client, &format!("{CLAIMS}/pvc-2"), None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_cloud_provider_finds_nodes_and_asks_for_addresses() {
    let (server, admin) = server().await;
    let client = account(&server, &admin, "cloud", false).await;
    let mut machine = simple_machine("demo-node");
    machine["spec"]["runStrategy"] = json!("Halted");
    let machine = create(&admin, &machine).await;
    // A node of the guest's is a machine: its uid is the provider's, and one that does not run is shut down.
    let found = read(&client, &format!("{MACHINES}/demo-node")).await;
    assert_eq!(found["metadata"]["uid"], machine["metadata"]["uid"]);
    let stopped = becomes(&client, &format!("{MACHINES}/demo-node"), "stopped", BOOT, |machine| {
        machine["status"]["ready"] == false || machine["status"]["printableStatus"] == "Stopped"
    })
    .await;
    assert_ne!(stopped["status"]["ready"], true);
    assert_eq!(client.get(&format!("{INSTANCES}/demo-node")).await.expect("an answer").status, 404);
    // What watches its instances sees them from the list on.
    let list = read(&client, INSTANCES).await;
    let version = list["metadata"]["resourceVersion"].as_str().expect("a version");
    let watch = format!("{INSTANCES}?watch=true&allowWatchBookmarks=true&resourceVersion={version}");
    assert_eq!(client.open(Call::new(Method::GET, &watch)).await.expect("a watch").status, 200);
    let other = client.get("/apis/kubevirt.io/v1/namespaces/kube-system/virtualmachineinstances").await;
    assert_eq!(other.expect("an answer").status, 403);

    // A Service of the guest's becomes a load balancer without listeners of its own name.
    let name = "demo-default-web-0a1b2c3d";
    let labels = json!({"cloudprovider.harvesterhci.io/cluster": "demo", "cloudprovider.harvesterhci.io/serviceNamespace": "default", "cloudprovider.harvesterhci.io/serviceName": "web"});
    let balancer = json!({"apiVersion": "loadbalancer.harvesterhci.io/v1beta1", "kind": "LoadBalancer",
        "metadata": {"name": name, "labels": labels, "annotations": {"loadbalancer.harvesterhci.io/network": "default/first", "loadbalancer.harvesterhci.io/cluster": "demo"}},
        "spec": {"workloadType": "cluster", "ipam": "dhcp"}});
    applied(&client, BALANCERS, &balancer).await;
    let path = format!("{BALANCERS}/{name}");
    // The status has no path of its own: it is written with the object.
    let written = updated(&client, &path, |balancer| balancer["status"]["address"] = json!("192.0.2.7")).await;
    assert_eq!(written["status"]["address"], "192.0.2.7");
    assert_eq!(read(&client, &path).await["status"]["address"], "192.0.2.7");
    let answer = client.patch(&path, "merge-patch", &json!({"spec": {"description": "x"}})).await.expect("an answer");
    assert_eq!(answer.status, 403, "the role does not let it patch: {}", answer.text());
    destroyed(&client, &path, None).await;
}
