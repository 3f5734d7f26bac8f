//! Harvester's rules on a real server: settings, keys, templates, and what is protected because it is in use.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use croft_e2e::kept::{Bucket, Relay};
use croft_e2e::machines::{BOOT, becomes, condition, is_gone, is_true};
use croft_e2e::ruled::{BAD_SETTINGS, refusals};
use croft_e2e::storage::{deleted, made, patched};
use croft_testkit::{Authority, Call, Client, Croft, Protocol, StoreKind, eventually, free_port};
use http::Method;
use serde_json::{Value, json};

const SETTINGS: &str = "/apis/harvesterhci.io/v1beta1/settings";
const KEYS: &str = "/apis/harvesterhci.io/v1beta1/namespaces/default/keypairs";
const TEMPLATES: &str = "/apis/harvesterhci.io/v1beta1/namespaces/default/virtualmachinetemplates";
const VERSIONS: &str = "/apis/harvesterhci.io/v1beta1/namespaces/default/virtualmachinetemplateversions";
const IMAGES: &str = "/apis/harvesterhci.io/v1beta1/namespaces/default/virtualmachineimages";
const BACKUP_SECRET: &str = "/api/v1/namespaces/longhorn-system/secrets/harvester-backup-target-secret";
const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHVcYlyuMnrtHVQnZ+JQab4xvu6q9kNcam9W/ZJ2MWJu me@there";

/// Harvester's settings and their defaults, from its documentation.
const DEFAULTS: &[(&str, &str)] = &[
    ("additional-ca", ""),
    ("additional-guest-memory-overhead-ratio", "1.5"),
    ("api-ui-version", "1.1.9"),
    ("auto-disk-provision-paths", ""),
    ("auto-rotate-rke2-certs", r#"{"enable":false,"expiringInHours":240}"#),
    ("backup-target", ""),
    (
        "cluster-pod-security-standard",
        r#"{"enabled":false,"whitelistedNamespacesList":"","privilegedNamespacesList":"","restrictedNamespacesList":""}"#,
    ),
    ("cluster-registration-url", r#"{"url":"","insecureSkipTLSVerify":false}"#),
    ("containerd-registry", ""),
    (
        "csi-driver-config",
        r#"{"driver.longhorn.io":{"volumeSnapshotClassName":"longhorn-snapshot","backupVolumeSnapshotClassName":"longhorn"}}"#,
    ),
    ("csi-online-expand-validation", r#"{"driver.longhorn.io":true}"#),
    ("default-storage-class", "longhorn"),
    ("default-vm-termination-grace-period-seconds", "120"),
    (
        "harvester-csi-ccm-versions",
        r#"{"harvester-cloud-provider":">=0.0.1 <0.3.0","harvester-csi-provider":">=0.0.1 <0.3.0"}"#,
    ),
    ("http-proxy", "{}"),
    ("instance-manager-resources", r#"{"cpu":{}}"#),
    ("kubeconfig-default-token-ttl-minutes", "0"),
    (
        "kubevirt-migration",
        r#"{"parallelOutboundMigrationsPerNode":2,"parallelMigrationsPerCluster":5,"allowAutoConverge":false,"bandwidthPerMigration":0,"completionTimeoutPerGiB":150,"progressTimeout":150,"unsafeMigrationOverride":false,"allowPostCopy":false,"allowWorkloadDisruption":false,"disableTLS":false,"matchSELinuxLevelOnMigration":false}"#,
    ),
    ("log-level", "info"),
    ("longhorn-v2-data-engine-enabled", "false"),
    ("longhorn-v2-data-engine-hugepage-enabled", "true"),
    ("longhorn-v2-data-engine-memory-size", "2048"),
    ("max-hotplug-ratio", "4"),
    ("ntp-servers", ""),
    ("overcommit-config", r#"{"cpu":1000,"memory":150,"storage":100}"#),
    ("rancher-cluster", "{}"),
    ("release-download-url", "https://releases.rancher.com/harvester"),
    ("rwx-network", r#"{"share-storage-network":false}"#),
    ("server-version", "v1.8.1"),
    ("ssl-certificates", "{}"),
    ("ssl-parameters", "{}"),
    ("storage-network", ""),
    ("support-bundle-expiration", "30"),
    ("support-bundle-file-name", ""),
    ("support-bundle-image", "{}"),
    ("support-bundle-namespaces", ""),
    ("support-bundle-node-collection-timeout", "30"),
    ("support-bundle-timeout", "50"),
    (
        "traefik-default-tls-options",
        r#"{"minVersion":"VersionTLS12","maxVersion":"VersionTLS13","sniStrict":false,"cipherSuites":[],"clientAuth":{"secretNames":[],"clientAuthType":""}}"#,
    ),
    ("ui-index", "https://releases.rancher.com/harvester-ui/dashboard/latest/index.html"),
    ("ui-path", "/usr/share/harvester/harvester"),
    ("ui-plugin-bundled-version", ""),
    (
        "ui-plugin-index",
        "https://releases.rancher.com/harvester-ui/plugin/harvester-latest/harvester-latest.umd.min.js",
    ),
    ("ui-source", "auto"),
    ("upgradable-versions", ""),
    ("upgrade-checker-enabled", "true"),
    ("upgrade-checker-url", "https://harvester-upgrade-responder.rancher.io/v1/checkupgrade"),
    (
        "upgrade-config",
        r#"{"imagePreloadOption":{"strategy":{"type":"sequential"}},"nodeUpgradeOption":{"strategy":{"mode":"auto"}},"restoreVM":false,"logReadyTimeout":"5"}"#,
    ),
    ("vip-pools", ""),
    ("vm-force-reset-policy", r#"{"enable":true,"period":15,"vmMigrationTimeout":180}"#),
    ("vm-migration-network", ""),
    ("volume-snapshot-class", "longhorn"),
];

async fn server() -> (Croft, Client) {
    let server = Croft::start(StoreKind::Embedded).await.expect("the server starts");
    let client = server.client().expect("a client");
    (server, client)
}

async fn set(client: &Client, name: &str, value: &str) -> croft_testkit::Answer {
    let path = format!("{SETTINGS}/{name}");
    client.patch(&path, "merge-patch", &json!({"value": value})).await.expect("an answer")
}

/// The refusal's code and text.
#[track_caller]
fn refused(answer: &croft_testkit::Answer, code: u16, text: &str) {
    assert_eq!(answer.status, code, "{}", answer.text());
    let message = answer.json()["message"].as_str().unwrap_or_default().to_owned();
    assert!(message.contains(text), "{message}");
    assert!(message.starts_with("admission webhook \"validator.harvesterhci.io\" denied the request: "), "{message}");
}

async fn defaults(client: &Client) -> BTreeMap<String, String> {
    let list = client.get(SETTINGS).await.expect("an answer").ok().expect("a list");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let items = list["items"].as_array().expect("items").iter();
    items.map(|item| (text(&item["metadata"]["name"]), text(&item["default"]))).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settings_are_there_are_checked_and_stay() {
    let (_server, client) = server().await;
    let found = defaults(&client).await;
    let expected: BTreeMap<String, String> =
        DEFAULTS.iter().map(|(name, default)| ((*name).to_owned(), (*default).to_owned())).collect();
    assert_eq!(found, expected);

    for (name, value, message) in BAD_SETTINGS.iter().copied() {
        refused(&set(&client, name, value).await, 422, message);
        let kept = client.get(&format!("{SETTINGS}/{name}")).await.expect("an answer").json();
        assert_eq!(kept["value"].as_str().unwrap_or_default(), "", "{name}");
    }
    refused(&set(&client, "server-version", "v0.1").await, 405, "cannot be changed");
    let answer = client.delete(&format!("{SETTINGS}/log-level")).await.expect("an answer");
    refused(&answer, 405, "Disallow delete setting name log-level");

    // What has no effect here says so.
    set(&client, "vip-pools", r#"{"default":"192.0.2.0/24"}"#).await.ok().expect("taken");
    let path = format!("{SETTINGS}/vip-pools");
    let kept = becomes(&client, &path, "told", BOOT, |setting| condition(setting, "configured").is_some()).await;
    let told = condition(&kept, "configured").expect("a condition");
    assert_eq!(told["reason"], "NotSupported");
    assert!(told["message"].as_str().is_some_and(|why| why.contains("IPPool")), "{told}");
    set(&client, "ui-source", "bundled").await.ok().expect("taken");
    becomes(&client, &format!("{SETTINGS}/ui-source"), "told", BOOT, |setting| is_true(setting, "configured")).await;
}

/// The table in the documentation is that of the server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_documentation_tells_of_every_setting() {
    let (_server, client) = server().await;
    let text = include_str!("../docs/settings.md");
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `"));
    let told: BTreeMap<String, String> = rows
        .map(|row| {
            let cells: Vec<&str> = row.split(" | ").collect();
            assert!(["works", "for clients", "stored only"].contains(&cells[2]), "{row}");
            (cells[0].trim_end_matches('`').to_owned(), cells[1].trim_matches('`').to_owned())
        })
        .collect();
    assert_eq!(told, defaults(&client).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_of_a_backup_target_are_moved_into_a_secret() {
    let (_server, client) = server().await;
    let bucket = Bucket::start();
    let (one, other) = (Relay::to(bucket.port()).await, Relay::to(bucket.port()).await);
    set(&client, "backup-target", &bucket.target(one.port, bucket.key())).await.ok().expect("taken");
    let path = format!("{SETTINGS}/backup-target");
    let id = bucket.said["id"].as_str().expect("an id");
    let stripped = becomes(&client, &path, "without keys", BOOT, |setting| {
        let value = setting["value"].as_str().unwrap_or_default();
        !value.contains(id) && !value.contains(bucket.key()) && is_true(setting, "configured")
    })
    .await;
    assert!(stripped["value"].as_str().expect("a value").contains("\"bucketName\":\"croft\""), "{stripped}");
    let coded = |text: &str| STANDARD.encode(text);
    let secret = client.get(BACKUP_SECRET).await.expect("an answer").ok().expect("the secret");
    assert_eq!(secret["data"]["AWS_SECRET_ACCESS_KEY"], coded(bucket.key()));
    let endpoint = |relay: &Relay| format!("http://127.0.0.1:{}", relay.port);
    assert_eq!(secret["data"]["AWS_ENDPOINTS"], coded(&endpoint(&one)));

    // The keys need not be given again, and go when there is no target any more.
    let value = stripped["value"].as_str().expect("a value").replace(&endpoint(&one), &endpoint(&other));
    set(&client, "backup-target", &value).await.ok().expect("taken");
    becomes(&client, BACKUP_SECRET, "changed", BOOT, |secret| {
        secret["data"]["AWS_ENDPOINTS"] == coded(&endpoint(&other)) && secret["data"]["AWS_ACCESS_KEY_ID"] == coded(id)
    })
    .await;
    set(&client, "backup-target", "").await.ok().expect("taken");
    is_gone(&client, BACKUP_SECRET).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_level_follows_its_setting() {
    let (server, client) = server().await;
    set(&client, "log-level", "debug").await.ok().expect("taken");
    eventually("the level changes", async || {
        let log = server.process().log_tail(400);
        if log.contains("the log level was changed") { Ok(()) } else { Err(log) }
    })
    .await;
    client.get("/version").await.expect("an answer");
    eventually("something is said at the new level", async || {
        let log = server.process().log_tail(1000);
        if log.contains("DEBUG") { Ok(()) } else { Err("nothing but INFO") }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_of_ones_own_is_served_at_once() {
    let port = free_port().expect("a port");
    let listen = format!("127.0.0.1:{port}");
    let server = Croft::start_with(StoreKind::Embedded, &["--listen", &listen]).await.expect("the server starts");
    let client = server.client().expect("a client");
    let authority = Authority::new("company").expect("an authority");
    let (own, other) = (authority.server().expect("a pair"), authority.server().expect("a pair"));
    let web = Client::trusting(&format!("https://{listen}"), &authority.cert_pem(), Protocol::Http1).expect("a client");
    assert!(web.get("/version").await.is_err(), "nobody trusts the company yet");

    let value = json!({"publicCertificate": own.cert_pem, "privateKey": other.key_pem}).to_string();
    refused(&set(&client, "ssl-certificates", &value).await, 422, "the certificate and its key cannot be used");
    let value = json!({"ca": "", "publicCertificate": own.cert_pem, "privateKey": own.key_pem}).to_string();
    set(&client, "ssl-certificates", &value).await.ok().expect("taken");
    eventually("the certificate is shown", async || web.get("/version").await.map_err(|err| format!("{err:#}"))).await;
    // Kubeconfigs go on.
    client.get("/version").await.expect("an answer").ok().expect("an answer");

    set(&client, "ssl-certificates", "").await.ok().expect("taken");
    eventually("the server's own is shown again", async || {
        let fresh = Client::trusting(&format!("https://{listen}"), &authority.cert_pem(), Protocol::Http1);
        match fresh.expect("a client").get("/version").await {
            Ok(_) => Err("still the company's"),
            Err(_) => Ok(()),
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_get_fingerprints_and_nonsense_is_refused() {
    let (server, client) = server().await;
    let pair = |key: &str| {
        json!({"apiVersion": "harvesterhci.io/v1beta1", "kind": "KeyPair", "metadata": {"name": "mine"},
            "spec": {"publicKey": key}})
    };
    refused(&client.post(KEYS, &pair("")).await.expect("an answer"), 422, "public key is required");
    let answer = client.post(KEYS, &pair("ssh-rsa AAAA")).await.expect("an answer");
    refused(&answer, 422, "key is not in valid OpenSSH public key format");
    made(&client, KEYS, &pair(KEY)).await;
    let path = format!("{KEYS}/mine");
    let done = becomes(&client, &path, "validated", BOOT, |pair| is_true(pair, "validated")).await;
    assert_eq!(done["status"]["fingerPrint"], "bc:85:56:b8:99:67:c3:16:5d:e3:66:62:6c:b9:ff:09");
    let shown = server.kubectl().expect("kubectl").ok(&["get", "kp", "mine"]).await;
    assert!(shown.stdout.contains("FINGER_PRINT") && shown.stdout.contains("bc:85:56"), "{}", shown.stdout);
}

fn version(name: &str, change: &Value) -> Value {
    let domain = json!({"devices": {}, "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}});
    let mut version = json!({"apiVersion": "harvesterhci.io/v1beta1", "kind": "VirtualMachineTemplateVersion",
        "metadata": {"name": name},
        "spec": {"templateId": "default/base",
                 "vm": {"spec": {"runStrategy": "Halted", "template": {"spec": {"domain": domain}}}}}});
    for (field, value) in change.as_object().into_iter().flatten() {
        version["spec"][field] = value.clone();
    }
    version
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn versions_of_templates_are_counted_and_protected() {
    let (_server, client) = server().await;
    let template = json!({"apiVersion": "harvesterhci.io/v1beta1", "kind": "VirtualMachineTemplate",
        "metadata": {"name": "base"}, "spec": {"description": "d"}});
    let answer = client.post(VERSIONS, &version("early", &json!({}))).await.expect("an answer");
    refused(&answer, 422, "\"base\" not found");
    made(&client, TEMPLATES, &template).await;
    for (change, message) in [
        (json!({"templateId": ""}), "TemplateId is empty"),
        (json!({"templateId": "other/base"}), "should reside in the same namespace"),
        (json!({"keyPairIds": ["default/none"]}), "KeyPairID default/none is invalid"),
        (
            json!({"vm": {"spec": {"template": {"spec": {"domain": {"devices": {}}}}}}}),
            "CPU and Memory limits are required",
        ),
    ] {
        refused(&client.post(VERSIONS, &version("bad", &change)).await.expect("an answer"), 422, message);
    }
    made(&client, VERSIONS, &version("one", &json!({}))).await;
    let template_path = format!("{TEMPLATES}/base");
    becomes(&client, &template_path, "counted", BOOT, |template| {
        template["spec"]["defaultVersionId"] == "default/one" && template["status"]["defaultVersion"] == 1
    })
    .await;
    made(&client, VERSIONS, &version("two", &json!({"imageId": "default/missing"}))).await;
    let two = becomes(&client, &format!("{VERSIONS}/two"), "counted", BOOT, |two| two["status"]["version"] == 2).await;
    assert!(is_true(&two, "assigned") && !is_true(&two, "ready"), "{two}");
    assert_eq!(two["metadata"]["labels"]["template.harvesterhci.io/templateID"], "base");
    assert_eq!(two["metadata"]["ownerReferences"][0]["kind"], "VirtualMachineTemplate");

    let change = json!({"spec": {"description": "other"}});
    let answer = client.patch(&format!("{VERSIONS}/one"), "merge-patch", &change).await.expect("an answer");
    refused(&answer, 405, "Update templateVersion is not supported");
    let answer = client.delete(&format!("{VERSIONS}/one")).await.expect("an answer");
    refused(&answer, 400, "Cannot delete the default templateVersion");
    patched(&client, &template_path, &json!({"spec": {"defaultVersionId": "default/two"}})).await;
    becomes(&client, &template_path, "moved", BOOT, |template| template["status"]["defaultVersion"] == 2).await;
    deleted(&client, &format!("{VERSIONS}/one")).await;

    // A number is not given again, and what the template owns goes with it.
    made(&client, VERSIONS, &version("three", &json!({}))).await;
    becomes(&client, &format!("{VERSIONS}/three"), "counted", BOOT, |three| three["status"]["version"] == 3).await;
    deleted(&client, &template_path).await;
    is_gone(&client, &format!("{VERSIONS}/three")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_in_use_is_not_deleted() {
    let (_server, client) = server().await;
    let image = json!({"apiVersion": "harvesterhci.io/v1beta1", "kind": "VirtualMachineImage",
        "metadata": {"name": "disk"}, "spec": {"displayName": "disk", "sourceType": "upload"}});
    made(&client, IMAGES, &image).await;
    let template = json!({"apiVersion": "harvesterhci.io/v1beta1", "kind": "VirtualMachineTemplate",
        "metadata": {"name": "base"}, "spec": {}});
    made(&client, TEMPLATES, &template).await;
    made(&client, VERSIONS, &version("one", &json!({"imageId": "default/disk"}))).await;
    let answer = client.delete(&format!("{IMAGES}/disk")).await.expect("an answer");
    refused(&answer, 422, "Cannot delete image default/disk: being used by VMTemplateVersion default/one");

    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}});
    made(&client, "/api/v1/namespaces", &namespace).await;
    let machines = "/apis/kubevirt.io/v1/namespaces/team/virtualmachines";
    let domain = json!({"devices": {}, "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}});
    let machine = json!({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": "vm"},
        "spec": {"runStrategy": "Halted", "template": {"spec": {"domain": domain}}}});
    made(&client, machines, &machine).await;
    let answer = client.delete("/api/v1/namespaces/team").await.expect("an answer");
    refused(&answer, 409, "it still has virtual machines: vm");
    deleted(&client, &format!("{machines}/vm")).await;
    is_gone(&client, &format!("{machines}/vm")).await;
    deleted(&client, "/api/v1/namespaces/team").await;
    is_gone(&client, "/api/v1/namespaces/team").await;
}

/// Croft can read every disk; whoever has it make a copy must be able to read the original.
#[tokio::test]
async fn what_one_may_not_read_is_not_copied_for_one() {
    let (_server, client) = server().await;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}});
    made(&client, "/api/v1/namespaces", &namespace).await;
    let admin = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "jane"},
        "subjects": [{"kind": "User", "name": "jane", "apiGroup": "rbac.authorization.k8s.io"}],
        "roleRef": {"kind": "ClusterRole", "name": "cluster-admin", "apiGroup": "rbac.authorization.k8s.io"}});
    made(&client, "/apis/rbac.authorization.k8s.io/v1/namespaces/team/rolebindings", &admin).await;
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "disk"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    made(&client, "/api/v1/namespaces/default/persistentvolumeclaims", &claim).await;

    let source = json!({"pvc": {"namespace": "default", "name": "disk"}});
    let export = json!({"apiVersion": "harvesterhci.io/v1beta1", "kind": "VirtualMachineImage", "metadata": {"name": "x"},
        "spec": {"displayName": "x", "sourceType": "export-from-volume", "pvcNamespace": "default", "pvcName": "disk"}});
    let volume = json!({"apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume", "metadata": {"name": "x"},
        "spec": {"source": source, "storage": {"resources": {"requests": {"storage": "1Gi"}}}}});
    let mut annotated = claim;
    annotated["metadata"]["annotations"] = json!({"harvesterhci.io/imageId": "default/secret"});
    for (path, object, expected) in [
        ("/apis/harvesterhci.io/v1beta1/namespaces/team/virtualmachineimages", &export, "no permission to get the pvc"),
        (
            "/apis/cdi.kubevirt.io/v1beta1/namespaces/team/datavolumes",
            &volume,
            "insufficient permissions in clone source",
        ),
        (
            "/api/v1/namespaces/team/persistentvolumeclaims",
            &annotated,
            "jane is not allowed to access image default/secret",
        ),
    ] {
        let call = Call::new(Method::POST, path).header("impersonate-user", "jane").json(object);
        let answer = client.send(call).await.expect("an answer");
        assert_eq!(answer.status, 422, "{}", answer.text());
        assert!(answer.text().contains(expected), "{}", answer.text());
        made(&client, path, object).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn networks_balancers_and_backups_are_checked() {
    let (_server, client) = server().await;
    let network = json!({"apiVersion": "network.harvesterhci.io/v1beta1", "kind": "ClusterNetwork", "metadata": {"name": "data"}});
    made(&client, "/apis/network.harvesterhci.io/v1beta1/clusternetworks", &network).await;
    for (path, object, message) in refusals() {
        croft_e2e::flows::refused(&client.post(path, &object).await.expect("an answer"), 422, message);
        assert_eq!(client.get(&format!("{path}/x")).await.expect("an answer").status, 404, "{path}");
    }
}
