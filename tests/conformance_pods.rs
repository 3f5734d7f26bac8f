//! Behaviours of Kubernetes' conformance list about what a namespace gives its pods, which are stored and counted here though
//! nothing runs them. `tests/conformance/behaviours.yaml` tells which test here stands for which behaviour.

use anyhow::ensure;
use croft_e2e::conformance_definition::{get, refused};
use croft_e2e::storage::{deleted, made};
use croft_testkit::{Answer, Call, Client, Croft, StoreKind, eventually};
use http::Method;
use serde_json::{Value, json};

const ROOT: &str = "/api/v1/namespaces/default";
const PODS: &str = "/api/v1/namespaces/default/pods";
const QUOTAS: &str = "/api/v1/namespaces/default/resourcequotas";
const RANGES: &str = "/api/v1/namespaces/default/limitranges";

async fn start() -> (Croft, Client) {
    let server = Croft::start(StoreKind::Embedded).await.expect("the server starts");
    let client = server.client().expect("a client");
    (server, client)
}

fn pod(name: &str, requests: &Value, limits: &Value) -> Value {
    json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "pause", "image": "i:1",
        "resources": {"requests": requests, "limits": limits}}]}})
}

async fn created(client: &Client, pod: &Value) -> Answer {
    client.post(PODS, pod).await.expect("an answer")
}

async fn ended(client: &Client, name: &str) {
    let call = Call::new(Method::DELETE, &format!("{PODS}/{name}")).json(&json!({"gracePeriodSeconds": 0}));
    client.send(call).await.expect("an answer").ok().expect("deleted");
}

fn amounts(cpu: &str, memory: &str, storage: &str) -> Value {
    let mut amounts = json!({"cpu": cpu, "memory": memory, "ephemeral-storage": storage});
    amounts.as_object_mut().expect("an object").retain(|_, amount| amount != "");
    amounts
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_range_gives_pods_their_defaults() {
    let (_server, client) = start().await;
    let (given, asked) = (amounts("500m", "500Mi", "500Gi"), amounts("100m", "200Mi", "200Gi"));
    let mut limit = json!({"type": "Container", "min": amounts("50m", "100Mi", "100Gi"), "max": given,
        "default": given, "defaultRequest": asked});
    let range = |limit: &Value| json!({"metadata": {"name": "limit-range", "labels": {"suite": "limits"}}, "spec": {"limits": [limit]}});
    let selected = format!("{RANGES}?labelSelector=suite%3Dlimits");
    let before = get(&client, &selected).await;
    assert_eq!(before["items"], json!([]));
    let from = before["metadata"]["resourceVersion"].as_str().expect("a version").to_owned();
    let watch = Call::new(Method::GET, &format!("{selected}&watch=1&resourceVersion={from}"));
    let mut events = client.open(watch).await.expect("a watch");
    made(&client, RANGES, &range(&limit)).await;
    assert_eq!(events.event().await.expect("an event").unwrap_or_default()["type"], "ADDED");
    let path = &format!("{RANGES}/limit-range");
    let shown = get(&client, path).await["spec"]["limits"][0].clone();
    assert_eq!((&shown["default"], &shown["defaultRequest"]), (&given, &asked));

    let none = json!({});
    let resources = |pod: &Value| pod["spec"]["containers"][0]["resources"].clone();
    let idle = created(&client, &pod("no-resources", &none, &none)).await.ok().expect("a pod");
    assert_eq!(resources(&idle), json!({"requests": asked, "limits": given}));
    let partial = pod("partial-resources", &amounts("", "150Mi", "150Gi"), &amounts("300m", "", ""));
    let partial = created(&client, &partial).await.ok().expect("a pod");
    let merged = json!({"requests": amounts("300m", "150Mi", "150Gi"), "limits": amounts("300m", "500Mi", "500Gi")});
    assert_eq!(resources(&partial), merged);
    assert_eq!(get(&client, &format!("{PODS}/partial-resources")).await["status"]["qosClass"], "Burstable");

    let (little, much) = (amounts("10m", "50Mi", "50Gi"), amounts("600m", "600Mi", "600Gi"));
    let answer = created(&client, &pod("little", &little, &none)).await;
    refused(&answer, 403, "minimum cpu usage per Container is 50m, but request is 10m");
    // Requests above the limits that were filled in are no valid pod.
    let answer = created(&client, &pod("much", &much, &none)).await;
    refused(&answer, 422, "must be less than or equal to cpu limit");
    refused(
        &created(&client, &pod("much", &much, &much)).await,
        403,
        "maximum cpu usage per Container is 500m, but limit is 600m",
    );

    limit["min"] = amounts("9m", "49Mi", "49Gi");
    let mut object = get(&client, path).await;
    object["spec"] = range(&limit)["spec"].clone();
    client.put(path, &object).await.expect("an answer").ok().expect("updated");
    created(&client, &pod("little", &little, &none)).await.ok().expect("a pod");
    assert!(created(&client, &pod("much", &much, &none)).await.status >= 400);
    deleted(&client, path).await;
    created(&client, &pod("much", &much, &none)).await.ok().expect("a pod");
}

async fn uses(client: &Client, quota: &str, wanted: &[(&str, &str)]) {
    eventually("what is used is told", async || {
        let quota = client.get(&format!("{QUOTAS}/{quota}")).await?.ok()?;
        for (key, amount) in wanted {
            ensure!(quota["status"]["used"][key] == *amount, "{key} is not {amount}: {}", quota["status"]);
        }
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quota_follows_the_life_of_a_pod() {
    let (_server, client) = start().await;
    let gpu = "example.com/dongle";
    let hard = json!({"pods": "5", "cpu": "1", "memory": "500Mi", "ephemeral-storage": "50Gi", "resourcequotas": "1",
        format!("requests.{gpu}"): "3"});
    made(&client, QUOTAS, &json!({"metadata": {"name": "q"}, "spec": {"hard": hard}})).await;
    let requests_gpu = format!("requests.{gpu}");
    let nothing =
        [("pods", "0"), ("cpu", "0"), ("memory", "0"), ("ephemeral-storage", "0"), (requests_gpu.as_str(), "0")];
    uses(&client, "q", &[("resourcequotas", "1")]).await;
    uses(&client, "q", &nothing).await;

    let asked = json!({"cpu": "500m", "memory": "252Mi", "ephemeral-storage": "30Gi", gpu: "2"});
    let first = created(&client, &pod("p", &asked, &json!({gpu: "2"}))).await.ok().expect("a pod that fits");
    let all = [
        ("pods", "1"),
        ("cpu", "500m"),
        ("memory", "252Mi"),
        ("ephemeral-storage", "30Gi"),
        (requests_gpu.as_str(), "2"),
    ];
    uses(&client, "q", &all).await;
    let answer = created(&client, &pod("more", &json!({"cpu": "600m", "memory": "100Mi"}), &json!({}))).await;
    refused(&answer, 403, "exceeded quota: q, requested: cpu=600m, used: cpu=500m, limited: cpu=1");
    let more = json!({"cpu": "500m", "memory": "100Mi", "ephemeral-storage": "10Gi", gpu: "2"});
    let answer = created(&client, &pod("more", &more, &json!({gpu: "2"}))).await;
    refused(&answer, 403, "requested: requests.example.com/dongle=2");
    let answer = created(&client, &pod("silent", &json!({}), &json!({}))).await;
    refused(&answer, 403, "failed quota: q: must specify cpu for: pause; memory for: pause");
    let mut changed = first.clone();
    changed["spec"]["containers"][0]["resources"]["requests"] = json!({"cpu": "100m", "memory": "100Mi", gpu: "2"});
    assert_eq!(client.put(&format!("{PODS}/p"), &changed).await.expect("an answer").status, 422);
    uses(&client, "q", &all).await;
    // One that has ended holds nothing, though it is still there.
    let status = json!({"status": {"phase": "Succeeded"}});
    client.patch(&format!("{PODS}/p/status"), "merge-patch", &status).await.expect("an answer").ok().expect("patched");
    uses(&client, "q", &nothing).await;
    created(&client, &pod("next", &asked, &json!({gpu: "2"}))).await.ok().expect("there is room again");
    uses(&client, "q", &all).await;
    ended(&client, "next").await;
    uses(&client, "q", &nothing).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scopes_choose_the_pods_that_a_quota_counts() {
    let (_server, client) = start().await;
    let scoped = async |name: &str, scope: &str, hard: Value| {
        made(&client, QUOTAS, &json!({"metadata": {"name": name}, "spec": {"hard": hard, "scopes": [scope]}})).await;
        uses(&client, name, &[("pods", "0")]).await;
    };
    let bounds = json!({"pods": "5", "requests.cpu": "1", "requests.memory": "500Mi", "limits.cpu": "2", "limits.memory": "1Gi"});
    let (requests, limits) = (json!({"cpu": "500m", "memory": "200Mi"}), json!({"cpu": "1", "memory": "400Mi"}));
    let all = [
        ("pods", "1"),
        ("requests.cpu", "500m"),
        ("requests.memory", "200Mi"),
        ("limits.cpu", "1"),
        ("limits.memory", "400Mi"),
    ];
    let none =
        [("pods", "0"), ("requests.cpu", "0"), ("requests.memory", "0"), ("limits.cpu", "0"), ("limits.memory", "0")];

    scoped("ending", "Terminating", bounds.clone()).await;
    scoped("lasting", "NotTerminating", bounds.clone()).await;
    created(&client, &pod("p", &requests, &limits)).await.ok().expect("a pod");
    uses(&client, "lasting", &all).await;
    uses(&client, "ending", &none).await;
    ended(&client, "p").await;
    uses(&client, "lasting", &none).await;
    let mut short = pod("short", &requests, &limits);
    short["spec"]["activeDeadlineSeconds"] = json!(3600);
    created(&client, &short).await.ok().expect("a pod");
    uses(&client, "ending", &all).await;
    uses(&client, "lasting", &none).await;
    ended(&client, "short").await;
    uses(&client, "ending", &none).await;
    deleted(&client, &format!("{ROOT}/resourcequotas")).await;

    scoped("idle", "BestEffort", json!({"pods": "5"})).await;
    scoped("asking", "NotBestEffort", bounds).await;
    created(&client, &pod("idle", &json!({}), &json!({}))).await.ok().expect("a pod");
    uses(&client, "idle", &[("pods", "1")]).await;
    uses(&client, "asking", &none).await;
    ended(&client, "idle").await;
    uses(&client, "idle", &[("pods", "0")]).await;
    created(&client, &pod("asking", &requests, &limits)).await.ok().expect("a pod");
    uses(&client, "asking", &all).await;
    uses(&client, "idle", &[("pods", "0")]).await;
    ended(&client, "asking").await;
    uses(&client, "asking", &none).await;
}
