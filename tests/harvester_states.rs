//! What objects say about themselves: addons, and objects whose behaviour is not there yet.

use croft_testkit::{Client, Croft, StoreKind, eventually};
use serde_json::{Value, json};

const HARVESTER: &str = "/apis/harvesterhci.io/v1beta1";
const NOT_YET: &str = "Croft cannot do this yet: ";

async fn server() -> (Croft, Client) {
    let server = Croft::start(StoreKind::Embedded).await.expect("the server starts");
    let client = server.client().expect("a client");
    (server, client)
}

async fn get(client: &Client, path: &str) -> Value {
    client.get(path).await.expect("an answer").ok().expect(path)
}

fn addon(namespace: &str, name: &str) -> String {
    format!("{HARVESTER}/namespaces/{namespace}/addons/{name}")
}

async fn switch(client: &Client, addon: &str, enabled: bool) {
    let change = json!({"spec": {"enabled": enabled}});
    client.patch(addon, "merge-patch", &change).await.expect("an answer").ok().expect(addon);
}

/// Waits until the addon says this of its condition, and gives the message that goes with it.
async fn condition(client: &Client, addon: &str, ty: &str, status: &str) -> String {
    eventually(&format!("{addon}: {ty} is {status}"), async || {
        let addon = get(client, addon).await;
        let conditions = addon["status"]["conditions"].as_array().into_iter().flatten();
        let found = conditions.into_iter().find(|condition| condition["type"] == ty && condition["status"] == status);
        found.map(|found| found["message"].as_str().unwrap_or_default().to_owned()).ok_or_else(|| addon.to_string())
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn addons_are_there_switched_off_and_stay_as_users_left_them() {
    let (mut server, client) = server().await;
    let addons = get(&client, &format!("{HARVESTER}/addons")).await;
    let mut found: Vec<String> = Vec::new();
    for addon in addons["items"].as_array().expect("items") {
        assert_eq!(addon["spec"]["enabled"], false, "{addon}");
        let text = |field: &str| addon["metadata"][field].as_str().unwrap_or_default();
        found.push(format!("{}/{}", text("namespace"), text("name")));
    }
    found.sort();
    assert_eq!(
        found,
        [
            "cattle-logging-system/rancher-logging",
            "cattle-monitoring-system/rancher-monitoring",
            "harvester-system/harvester-seeder",
            "harvester-system/nvidia-driver-toolkit",
            "harvester-system/pcidevices-controller",
            "harvester-system/vm-import-controller",
            "kube-system/descheduler",
            "kube-system/kubeovn-operator",
        ]
    );
    let monitoring = addon("cattle-monitoring-system", "rancher-monitoring");
    let refused = client.delete(&monitoring).await.expect("an answer");
    assert_eq!(refused.status, 400, "{}", refused.text());

    let change = json!({"spec": {"enabled": true, "valuesContent": "grafana:\n  enabled: false\n"}});
    client.patch(&monitoring, "merge-patch", &change).await.expect("an answer").ok().expect("a change");
    condition(&client, &monitoring, "Completed", "True").await;
    server.restart().await.expect("the server starts again");
    let client = server.client().expect("a client");
    let kept = get(&client, &monitoring).await;
    assert_eq!(kept["spec"]["enabled"], true);
    assert_eq!(kept["spec"]["valuesContent"], change["spec"]["valuesContent"]);
    assert_eq!(kept["status"]["status"], "AddonDeploySuccessful");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_addon_says_what_it_switches_on_or_what_is_missing() {
    let (_server, client) = server().await;
    let monitoring = addon("cattle-monitoring-system", "rancher-monitoring");
    switch(&client, &monitoring, true).await;
    let what = condition(&client, &monitoring, "Completed", "True").await;
    assert!(what.contains("/metrics"), "{what}");
    assert_eq!(get(&client, &monitoring).await["status"]["status"], "AddonDeploySuccessful");
    switch(&client, &monitoring, false).await;
    eventually("it is switched off", async || {
        let addon = get(&client, &monitoring).await;
        if addon["status"]["status"] == "AddonDisabled" { Ok(()) } else { Err(addon.to_string()) }
    })
    .await;

    let devices = addon("harvester-system", "pcidevices-controller");
    switch(&client, &devices, true).await;
    let why = condition(&client, &devices, "OperationFailed", "True").await;
    assert!(why.starts_with(NOT_YET), "{why}");
    // It is not on its way to anything, so that it can be changed.
    switch(&client, &devices, false).await;
    condition(&client, &devices, "OperationFailed", "False").await;

    let own = json!({
        "apiVersion": "harvesterhci.io/v1beta1", "kind": "Addon", "metadata": {"name": "mine"},
        "spec": {"repo": "https://example.com", "chart": "mine", "version": "1", "valuesContent": "", "enabled": true},
    });
    client.post(&format!("{HARVESTER}/namespaces/default/addons"), &own).await.expect("an answer").ok().expect("mine");
    let mine = addon("default", "mine");
    assert!(condition(&client, &mine, "OperationFailed", "True").await.contains("no charts"));
    client.delete(&mine).await.expect("an answer").ok().expect("a deletion");

    for (addon, change) in [
        (&monitoring, json!({"spec": {"valuesContent": "- a list"}})),
        (&monitoring, json!({"spec": {"chart": "other"}})),
        (&addon("kube-system", "descheduler"), json!({"spec": {"enabled": true}})),
    ] {
        let refused = client.patch(addon, "merge-patch", &change).await.expect("an answer");
        assert_eq!(refused.status, 422, "{change}: {}", refused.text());
    }
}

/// Where an object is written, what is written, and where in it the sentence is.
fn idle_objects() -> Vec<(&'static str, Value, &'static str)> {
    vec![
        (
            "/apis/loadbalancer.harvesterhci.io/v1beta1/namespaces/default/loadbalancers",
            json!({"kind": "LoadBalancer", "spec": {"workloadType": "cluster", "ipam": "dhcp"}}),
            "/status/conditions/0/message",
        ),
        (
            "/apis/loadbalancer.harvesterhci.io/v1beta1/ippools",
            json!({"kind": "IPPool", "spec": {"ranges": [{"subnet": "10.9.0.0/24"}]}}),
            "/status/conditions/0/message",
        ),
        (
            "/apis/network.harvesterhci.io/v1beta1/clusternetworks",
            json!({"kind": "ClusterNetwork"}),
            "/status/conditions/0/message",
        ),
    ]
}

fn named(collection: &str, mut object: Value) -> Value {
    let version: Vec<&str> = collection.split('/').skip(2).take(2).collect();
    object["apiVersion"] = json!(version.join("/"));
    object["metadata"] = json!({"name": "one"});
    object
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_that_nothing_acts_on_say_so_in_their_status() {
    let (_server, client) = server().await;
    for (collection, object, place) in idle_objects() {
        let created = client.post(collection, &named(collection, object)).await.expect("an answer");
        let created = created.ok().expect(collection);
        let path = format!("{collection}/one");
        let stored = get(&client, &path).await;
        assert_eq!(created["status"], stored["status"], "{path}");
        let why = stored.pointer(place).and_then(Value::as_str).unwrap_or_default();
        assert!(why.starts_with(NOT_YET), "{path}: {stored}");

        // A client that knows no status does not change it.
        let mut same = stored.clone();
        same.as_object_mut().expect("an object").remove("status");
        let after = client.put(&path, &same).await.expect("an answer").ok().expect(&path);
        assert_eq!(after["status"], stored["status"], "{path}");
    }
    let known = "/apis/devices.harvesterhci.io/v1beta1/pcidevices";
    client.post(known, &named(known, json!({"kind": "PCIDevice"}))).await.expect("an answer").ok().expect("a device");
    let group = json!({"status": {"iommuGroup": "7"}});
    let told = client.patch(&format!("{known}/one/status"), "merge-patch", &group).await.expect("an answer");
    told.ok().expect("its group");
    let devices = "/apis/devices.harvesterhci.io/v1beta1/pcideviceclaims";
    let claim =
        json!({"kind": "PCIDeviceClaim", "spec": {"address": "0000:00:1f.0", "nodeName": "a", "userName": "u"}});
    let claim = client.post(devices, &named(devices, claim)).await.expect("an answer").ok().expect("a claim");
    assert_eq!(claim["status"], json!({"passthroughEnabled": false}));
}

/// The cloud provider of a guest cluster writes the address itself, with the object.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_load_balancer_keeps_the_status_that_its_client_writes() {
    let (_server, client) = server().await;
    let (collection, object, _) = idle_objects().remove(0);
    let created = client.post(collection, &named(collection, object)).await.expect("an answer");
    let mut balancer = created.ok().expect("a load balancer");
    balancer["status"]["address"] = json!("10.0.0.7");
    balancer["status"]["allocatedAddress"] = json!({"ip": "0.0.0.0"});
    let path = format!("{collection}/one");
    let written = client.put(&path, &balancer).await.expect("an answer").ok().expect("the address");
    assert_eq!(written["status"]["address"], "10.0.0.7");
    // As the provider does when the service changes: spec and status in one.
    let mut changed = written.clone();
    changed["spec"]["listeners"] = json!([{"name": "http", "port": 80, "protocol": "TCP", "backendPort": 30080}]);
    let changed = client.put(&path, &changed).await.expect("an answer").ok().expect("a listener");
    assert_eq!(changed["status"], written["status"]);
    let stale = client.put(&path, &balancer).await.expect("an answer");
    assert_eq!(stale.status, 409, "{}", stale.text());
    client.delete(&path).await.expect("an answer").ok().expect("a deletion");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn versions_are_listed_and_an_upgrade_is_refused_clearly() {
    let (_server, client) = server().await;
    let versions = format!("{HARVESTER}/namespaces/harvester-system/versions");
    let version = json!({
        "apiVersion": "harvesterhci.io/v1beta1", "kind": "Version", "metadata": {"name": "v1.9.0"},
        "spec": {"isoURL": "https://example.com/v1.9.0.iso", "releaseDate": "20260901", "tags": ["latest"]},
    });
    client.post(&versions, &version).await.expect("an answer").ok().expect("a version");
    let listed = get(&client, &versions).await;
    assert_eq!(listed["items"][0]["spec"]["isoURL"], version["spec"]["isoURL"]);
    let upgrades = format!("{HARVESTER}/namespaces/harvester-system/upgrades");
    let upgrade = |version: &str| {
        json!({
            "apiVersion": "harvesterhci.io/v1beta1", "kind": "Upgrade", "metadata": {"generateName": "hvst-upgrade-"},
            "spec": {"version": version},
        })
    };
    let refused = client.post(&upgrades, &upgrade("v1.9.0")).await.expect("an answer");
    assert_eq!(refused.status, 405, "{}", refused.text());
    assert!(refused.text().contains("replace its program"), "{}", refused.text());
    let unknown = client.post(&upgrades, &upgrade("v0")).await.expect("an answer");
    assert_eq!(unknown.status, 422, "{}", unknown.text());
    assert_eq!(get(&client, &upgrades).await["items"], json!([]));
}
