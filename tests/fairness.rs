//! Whoever asks much does not keep others from being answered.

use croft_testkit::{Answer, Client, Croft, StoreKind, eventually};
use serde_json::{Value, json};

const SCHEMAS: &str = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas";
const LEVELS: &str = "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn ok(answer: Answer) -> Value {
    answer.ok().expect("done")
}

/// A service account that may read and write ConfigMaps.
async fn account(server: &Croft, admin: &Client, name: &str) -> Client {
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    ok(admin.post(accounts, &json!({"metadata": {"name": name}})).await.expect("an answer"));
    let binding = json!({"metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
        "subjects": [{"kind": "ServiceAccount", "namespace": "default", "name": name}]});
    let bindings = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings";
    ok(admin.post(bindings, &binding).await.expect("an answer"));
    let token = ok(admin.post(&format!("{accounts}/{name}/token"), &json!({"spec": {}})).await.expect("an answer"));
    server.bearer(token["status"]["token"].as_str().expect("a token")).expect("a client")
}

/// A level with one seat of its own, and the flow of one account that belongs to it.
async fn give_level(admin: &Client, name: &str, response: Value) {
    let level = json!({"metadata": {"name": name}, "spec": {"type": "Limited", "limited": {
        "nominalConcurrencyShares": 1, "borrowingLimitPercent": 0, "limitResponse": response}}});
    ok(admin.post(LEVELS, &level).await.expect("an answer"));
    let account = json!({"kind": "ServiceAccount", "serviceAccount": {"namespace": "default", "name": name}});
    let all =
        json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "clusterScope": true, "namespaces": ["*"]});
    let schema = json!({"metadata": {"name": name}, "spec": {"matchingPrecedence": 50,
        "priorityLevelConfiguration": {"name": name}, "rules": [{"subjects": [account], "resourceRules": [all]}]}});
    ok(admin.post(SCHEMAS, &schema).await.expect("an answer"));
}

async fn uid(admin: &Client, path: &str, name: &str) -> String {
    let object = ok(admin.get(&format!("{path}/{name}")).await.expect("an answer"));
    object["metadata"]["uid"].as_str().expect("a uid").to_owned()
}

async fn taken_for(client: &Client) -> (String, String) {
    let answer = client.get(MAPS).await.expect("an answer");
    let header = |name| answer.header(name).unwrap_or_default().to_owned();
    (header("x-kubernetes-pf-flowschema-uid"), header("x-kubernetes-pf-prioritylevel-uid"))
}

/// What `/metrics` says of a level.
async fn figure(admin: &Client, name: &str, level: &str) -> f64 {
    let text = admin.get("/metrics").await.expect("an answer").text();
    let of_level = format!("priority_level=\"{level}\"");
    let lines = text.lines().filter(|line| line.starts_with(&format!("{name}{{")) && line.contains(&of_level));
    lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

async fn until_figure(admin: &Client, name: &str, level: &str, wanted: f64) {
    eventually(name, async || {
        let found = figure(admin, &format!("apiserver_flowcontrol_{name}"), level).await;
        if (found - wanted).abs() < 0.5 { Ok(()) } else { Err(format!("{found}, not {wanted}")) }
    })
    .await;
}

/// Keeps a seat taken: asks for a state that is far in the future, for which the server waits some seconds, again and again.
fn occupy(client: Client) -> tokio::task::JoinHandle<()> {
    tokio::spawn(async move {
        loop {
            let path = format!("{MAPS}?resourceVersionMatch=NotOlderThan&resourceVersion=900000000");
            let answer = client.get(&path).await.expect("an answer");
            assert!(matches!(answer.status, 504 | 429), "{}", answer.text());
        }
    })
}

async fn start() -> (Croft, Client) {
    let server =
        Croft::start_with(StoreKind::Embedded, &["--max-requests-inflight=8"]).await.expect("the server starts");
    let admin = server.client().expect("a client");
    (server, admin)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flows_and_levels_are_objects_and_answers_tell_which() {
    let (server, admin) = start().await;
    let noisy = account(&server, &admin, "noisy").await;
    let kubectl = server.kubectl().expect("kubectl");
    let shown = kubectl.ok(&["get", "flowschemas,prioritylevelconfigurations", "-o", "name"]).await.stdout;
    for name in ["flowschema.flowcontrol.apiserver.k8s.io/catch-all", "flowcontrol.apiserver.k8s.io/workload-low"] {
        assert!(shown.contains(name), "{name}: {shown}");
    }
    let expected = async |schema, level| (uid(&admin, SCHEMAS, schema).await, uid(&admin, LEVELS, level).await);
    assert_eq!(taken_for(&noisy).await, expected("service-accounts", "workload-low").await);
    assert_eq!(taken_for(&admin).await, expected("exempt", "exempt").await);

    give_level(&admin, "noisy", json!({"type": "Reject"})).await;
    assert_eq!(taken_for(&noisy).await, expected("noisy", "noisy").await);
    ok(admin.delete(&format!("{LEVELS}/noisy")).await.expect("an answer"));
    assert_eq!(taken_for(&noisy).await, expected("service-accounts", "workload-low").await, "its level is gone");

    // Even without them the administrator is let in, and others are held back.
    for name in ["exempt", "catch-all"] {
        ok(admin.delete(&format!("{SCHEMAS}/{name}")).await.expect("an answer"));
        ok(admin.delete(&format!("{LEVELS}/{name}")).await.expect("an answer"));
    }
    assert_eq!(admin.get(MAPS).await.expect("an answer").status, 200);
    assert_eq!(noisy.get(MAPS).await.expect("an answer").status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_level_refuses_or_lets_wait_while_others_go_on() {
    let (server, admin) = start().await;
    let refused = account(&server, &admin, "refused").await;
    let queued = account(&server, &admin, "queued").await;
    let other = account(&server, &admin, "other").await;
    give_level(&admin, "refused", json!({"type": "Reject"})).await;
    let queue = json!({"type": "Queue", "queuing": {"queues": 1, "handSize": 1, "queueLengthLimit": 1}});
    give_level(&admin, "queued", queue).await;

    let occupants = [occupy(refused.clone()), occupy(queued.clone())];
    let answer = eventually("a refusal", async || {
        let answer = refused.get(MAPS).await.expect("an answer");
        if answer.status == 429 { Ok(answer) } else { Err(answer.status) }
    })
    .await;
    assert_eq!((answer.header("retry-after"), &answer.json()["reason"]), (Some("1"), &json!("TooManyRequests")));
    assert_eq!(other.get(MAPS).await.expect("an answer").status, 200);

    eventually("a turn that was waited for", async || {
        assert_eq!(queued.get(MAPS).await.expect("an answer").status, 200, "one may wait");
        let waits = figure(&admin, "apiserver_flowcontrol_request_wait_duration_seconds_count", "queued").await;
        if waits > 0.5 { Ok(()) } else { Err("nobody waited") }
    })
    .await;
    for occupant in occupants {
        occupant.abort();
    }
    until_figure(&admin, "current_executing_requests", "queued", 0.0).await;
    until_figure(&admin, "current_inqueue_requests", "queued", 0.0).await;
    assert!(figure(&admin, "apiserver_flowcontrol_rejected_requests_total", "refused").await > 0.5);
}
