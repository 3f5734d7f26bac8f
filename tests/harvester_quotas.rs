//! Quotas: how much machines of a namespace may use, and how much room their snapshots may take.

use anyhow::ensure;
use croft_e2e::machines::{CLAIMS, INSTANCES, MACHINES, create, empty, node, status_becomes};
use croft_testkit::{Answer, Call, Client, Croft, StoreKind, eventually};
use http::Method;
use serde_json::{Value, json};

const QUOTA: &str = "/apis/harvesterhci.io/v1beta1/namespaces/default/resourcequotas/default-resource-quota";
const VM: &str = "/v1/harvester/kubevirt.io.virtualmachines/default/vm";
const NAMESPACE: &str = "/v1/harvester/namespaces/default";
const INSUFFICIENT: &str = "harvesterhci.io/insufficient-resource-quota";

async fn act(client: &Client, path: &str, action: &str, body: &Value) -> Answer {
    client.post(&format!("{path}?action={action}"), body).await.expect("an answer")
}

fn halted(name: &str) -> Value {
    let mut machine = empty(name);
    machine["spec"]["runStrategy"] = "Halted".into();
    machine
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn room_for_snapshots_is_set_and_kept_within() {
    let server = Croft::start(StoreKind::Embedded).await.expect("the server starts");
    let client = server.client().expect("a client");
    create(&client, &halted("vm")).await;
    // Nothing to take away is no failure.
    assert_eq!(act(&client, VM, "deleteResourceQuota", &json!({})).await.status, 204);
    let sized = |size: &str| json!({"totalSnapshotSizeQuota": size});
    for (path, size) in [(VM, "10Gi"), (NAMESPACE, "100Gi")] {
        let answer = act(&client, path, "updateResourceQuota", &sized(size)).await;
        assert_eq!(answer.status, 204, "{path}: {}", answer.text());
    }
    let quota = client.get(QUOTA).await.expect("an answer").ok().expect("the quota");
    let limits = &quota["spec"]["snapshotLimit"];
    assert_eq!(limits["vmTotalSnapshotSizeQuota"], json!({"vm": 10_737_418_240_u64}), "{quota}");
    assert_eq!(limits["namespaceTotalSnapshotSizeQuota"], 107_374_182_400_u64, "{quota}");

    for (path, action, body, code) in [
        (VM, "updateResourceQuota", json!({}), 422),
        (VM, "updateResourceQuota", sized("much"), 422),
        (NAMESPACE, "updateResourceQuota", sized("-1Gi"), 422),
        ("/v1/harvester/kubevirt.io.virtualmachines/default/none", "updateResourceQuota", sized("1Gi"), 404),
        ("/v1/harvester/namespaces/none", "updateResourceQuota", sized("1Gi"), 404),
    ] {
        let answer = act(&client, path, action, &body).await;
        assert_eq!(answer.status, code, "{path} {body}: {}", answer.text());
    }
    let stranger = Call::new(Method::POST, &format!("{VM}?action=updateResourceQuota")).json(&sized("1Gi"));
    let stranger = stranger.header("impersonate-user", "jane");
    assert_eq!(client.send(stranger).await.expect("an answer").status, 403);

    let backup = json!({"apiVersion": "harvesterhci.io/v1beta1", "kind": "VirtualMachineBackup", "metadata": {"name": "b"},
        "spec": {"type": "snapshot", "source": {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": "vm"}}});
    let backups = "/apis/harvesterhci.io/v1beta1/namespaces/default/virtualmachinebackups";
    for path in [VM, NAMESPACE] {
        assert_eq!(act(&client, path, "deleteResourceQuota", &json!({})).await.status, 204);
    }
    let quota = client.get(QUOTA).await.expect("an answer").ok().expect("the quota");
    let limits = &quota["spec"]["snapshotLimit"];
    assert!(limits["vmTotalSnapshotSizeQuota"]["vm"].is_null(), "{quota}");
    assert!(limits["namespaceTotalSnapshotSizeQuota"].is_null(), "{quota}");
    assert_eq!(client.post(backups, &backup).await.expect("an answer").status, 201);
}

fn limited(name: &str, cpu: &str) -> Value {
    let mut machine = empty(name);
    machine["spec"]["template"]["spec"]["domain"]["resources"]["limits"] = json!({"cpu": cpu, "memory": "64Mi"});
    machine
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn machines_stay_within_their_namespaces_quota() {
    let (_server, client) = node().await;
    let quotas = "/api/v1/namespaces/default/resourcequotas";
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "small"},
        "spec": {"hard": {"limits.cpu": "1500m", "limits.memory": "1Gi"}}});
    client.post(quotas, &quota).await.expect("an answer").ok().expect("a quota");
    create(&client, &limited("first", "1")).await;
    status_becomes(&client, "first", "Running").await;
    eventually("what is used", async || {
        let quota = client.get(&format!("{quotas}/small")).await?.ok()?;
        ensure!(quota["status"]["used"] == json!({"limits.cpu": "1", "limits.memory": "64Mi"}), "{quota}");
        ensure!(quota["status"]["hard"]["limits.cpu"] == "1500m", "{quota}");
        Ok::<_, anyhow::Error>(())
    })
    .await;

    // The second does not fit: it is halted, and says why.
    create(&client, &limited("second", "1")).await;
    let told = eventually("the second is told", async || {
        let machine = client.get(&format!("{MACHINES}/second")).await?.ok()?;
        let told = machine["metadata"]["annotations"][INSUFFICIENT].as_str().unwrap_or_default().to_owned();
        ensure!(told.contains("exceeded quota: small") && machine["spec"]["runStrategy"] == "Halted", "{machine}");
        Ok::<_, anyhow::Error>(told)
    })
    .await;
    assert!(told.contains("requested: limits.cpu=1, used: limits.cpu=1, limited: limits.cpu=1500m"), "{told}");
    status_becomes(&client, "second", "Stopped").await;
    let path = "/v1/harvester/kubevirt.io.virtualmachines/default/second";
    let shown = client.get(path).await.expect("an answer").ok().expect("the machine");
    assert!(!shown["actions"]["dismissInsufficientResourceQuota"].is_null(), "{shown}");
    assert_eq!(act(&client, path, "dismissInsufficientResourceQuota", &json!({})).await.status, 204);
    let shown = client.get(path).await.expect("an answer").ok().expect("the machine");
    assert!(shown["metadata"]["annotations"][INSUFFICIENT].is_null(), "{shown}");
    assert!(shown["actions"]["dismissInsufficientResourceQuota"].is_null(), "{shown}");

    // The namespace's share of its project does not fall below what is used.
    let share = |cpu: &str| {
        let quota = json!({"limit": {"limitsCpu": cpu}}).to_string();
        json!({"metadata": {"annotations": {"field.cattle.io/resourceQuota": quota}}})
    };
    let refused = client.patch("/api/v1/namespaces/default", "merge-patch", &share("500m")).await.expect("an answer");
    assert_eq!(refused.status, 422, "{}", refused.text());
    assert!(
        refused.text().contains("new CPU limit 500m is lower than the current used CPU limit 1"),
        "{}",
        refused.text()
    );
    client.patch("/api/v1/namespaces/default", "merge-patch", &share("1")).await.expect("an answer").ok().expect("set");

    // There is room again when the first is gone.
    client.delete(&format!("{MACHINES}/first")).await.expect("an answer").ok().expect("deleted");
    eventually("room for the second", async || {
        let quota = client.get(&format!("{quotas}/small")).await?.ok()?;
        ensure!(quota["status"]["used"]["limits.cpu"] == "0", "{quota}");
        Ok::<_, anyhow::Error>(())
    })
    .await;
    assert_eq!(act(&client, path, "start", &json!({})).await.status, 204);
    status_becomes(&client, "second", "Running").await;
}

/// Many at once see the same room; it is given out once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quota_holds_when_many_come_at_once() {
    let server = Croft::start(StoreKind::Embedded).await.expect("the server starts");
    let client = server.client().expect("a client");
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few"}, "spec": {"hard": {"pods": "3"}}});
    client.post("/api/v1/namespaces/default/resourcequotas", &quota).await.expect("an answer").ok().expect("a quota");
    let instance = |number: usize| {
        json!({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": {"name": format!("one-{number}")},
            "spec": {"domain": {"memory": {"guest": "64Mi"}, "devices": {"autoattachPodInterface": false}}}})
    };
    let answers = futures::future::join_all((0..24).map(|number| {
        let (client, instance) = (client.clone(), instance(number));
        async move { client.post(INSTANCES, &instance).await.expect("an answer") }
    }))
    .await;
    let made = answers.iter().filter(|answer| answer.status == 201).count();
    let full = answers.iter().filter(|answer| answer.status == 403 && answer.text().contains("exceeded quota: few"));
    assert_eq!((made, full.count()), (3, 21), "{}", answers[0].text());
}

/// What a namespace says of those who say nothing, and of what they may ask for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limit_ranges_fill_in_and_bound() {
    let server = Croft::start(StoreKind::Embedded).await.expect("the server starts");
    let client = server.client().expect("a client");
    let limits = json!([
        {"type": "Container", "default": {"cpu": "1", "memory": "256Mi"}},
        {"type": "PersistentVolumeClaim", "min": {"storage": "1Gi"}, "max": {"storage": "2Gi"}},
    ]);
    let range =
        json!({"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "usual"}, "spec": {"limits": limits}});
    client.post("/api/v1/namespaces/default/limitranges", &range).await.expect("an answer").ok().expect("a range");
    let instance = json!({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": {"name": "plain"},
        "spec": {"domain": {"memory": {"guest": "64Mi"}, "devices": {"autoattachPodInterface": false}}}});
    let made = client.post(INSTANCES, &instance).await.expect("an answer").ok().expect("an instance");
    assert_eq!(made["spec"]["domain"]["resources"]["limits"], json!({"cpu": "1", "memory": "256Mi"}), "{made}");

    let claim = |name: &str, size: &str| {
        json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
            "spec": {"accessModes": ["ReadWriteMany"], "volumeMode": "Block", "resources": {"requests": {"storage": size}}}})
    };
    for (size, code, told) in [
        ("1536Mi", 201, "1536Mi"),
        ("512Mi", 403, "minimum storage usage per PersistentVolumeClaim is 1Gi, but request is 512Mi"),
        ("3Gi", 403, "maximum storage usage per PersistentVolumeClaim is 2Gi, but request is 3Gi"),
    ] {
        let answer = client.post(CLAIMS, &claim(&format!("c-{}", size.to_lowercase()), size)).await.expect("an answer");
        assert_eq!(answer.status, code, "{}", answer.text());
        assert!(answer.text().contains(told), "{}", answer.text());
    }
}
