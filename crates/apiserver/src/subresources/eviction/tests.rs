use serde_json::{Value, json};

use crate::testing::TestServer;

const PODS: &str = "/api/v1/namespaces/default/pods";
const BUDGETS: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";

async fn pod(server: &TestServer, name: &str, phase: &str, is_ready: bool) {
    let pod = json!({"metadata": {"name": name, "labels": {"app": "web"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]}});
    server.post(PODS, &pod).await;
    let ready = if is_ready { "True" } else { "False" };
    let status = json!({"status": {"phase": phase, "conditions": [{"type": "Ready", "status": ready}]}});
    assert_eq!(server.send("PATCH", &format!("{PODS}/{name}/status"), &status).await.0, 200);
}

async fn budget(server: &TestServer, name: &str, spec: Value) {
    let mut budget = json!({"metadata": {"name": name}, "spec": {"minAvailable": 2}});
    budget["spec"]["selector"] = json!({"matchLabels": {"app": "web"}});
    budget["spec"].as_object_mut().unwrap().extend(spec.as_object().cloned().unwrap_or_default());
    server.post(BUDGETS, &budget).await;
}

/// As a controller would.
async fn counted(server: &TestServer, name: &str, allowed: i64, healthy: i64) {
    let status = json!({"status": {"observedGeneration": 1, "disruptionsAllowed": allowed, "expectedPods": 3,
        "currentHealthy": healthy, "desiredHealthy": 2, "disruptedPods": null}});
    let (code, told) = server.send("PATCH", &format!("{BUDGETS}/{name}/status"), &status).await;
    assert_eq!(code, 200, "{told}");
}

async fn evicted(server: &TestServer, name: &str, query: &str) -> (u16, Value) {
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}});
    server.send("POST", &format!("{PODS}/{name}/eviction{query}"), &eviction).await
}

#[track_caller]
fn refused(answer: &(u16, Value), cause: &str, retry: &Value) {
    let (code, status) = answer;
    let told = "Cannot evict pod as it would violate the pod's disruption budget.";
    let message = status["details"]["causes"][0]["message"].as_str().unwrap_or_default();
    assert!(*code == 429 && status["reason"] == "TooManyRequests" && status["message"] == told, "{status}");
    assert_eq!((&status["details"]["causes"][0]["reason"], message), (&json!("DisruptionBudget"), cause));
    assert_eq!(&status["details"]["retryAfterSeconds"], retry);
}

async fn is_there(server: &TestServer, name: &str) -> bool {
    server.send("GET", &format!("{PODS}/{name}"), &Value::Null).await.0 == 200
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn budgets_have_their_say_about_pods_that_run() {
    let server = TestServer::start().await;
    budget(&server, "b", json!({})).await;
    pod(&server, "a", "Running", true).await;
    let answer = evicted(&server, "a", "").await;
    refused(&answer, "The disruption budget b is still being processed by the server.", &json!(10));
    counted(&server, "b", 0, 1).await;
    let answer = evicted(&server, "a", "").await;
    refused(&answer, "The disruption budget b needs 2 healthy pods and has 1 currently", &Value::Null);
    assert!(is_there(&server, "a").await);
    counted(&server, "b", -1, 1).await;
    assert_eq!(evicted(&server, "a", "").await.0, 403);
    counted(&server, "b", 0, 1).await;
    for phase in ["Pending", "Succeeded", "Failed"] {
        let name = phase.to_lowercase();
        pod(&server, &name, phase, false).await;
        assert_eq!(evicted(&server, &name, "").await.0, 201, "{phase}");
        assert!(!is_there(&server, &name).await, "{phase}");
    }
    budget(&server, "another", json!({})).await;
    let (code, status) = evicted(&server, "a", "").await;
    let why = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
    assert!(code == 500 && status["message"] == why, "{status}");
    assert_eq!(evicted(&server, "gone", "").await.0, 404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn evictions_are_counted_down() {
    let server = TestServer::start().await;
    budget(&server, "b", json!({})).await;
    counted(&server, "b", 2, 4).await;
    let path = format!("{BUDGETS}/b");
    for name in ["a", "b", "c"] {
        pod(&server, name, "Running", true).await;
    }
    let before = server.get(&path).await;
    assert_eq!(evicted(&server, "a", "?dryRun=All").await.0, 201);
    assert!(is_there(&server, "a").await && server.get(&path).await == before);
    assert_eq!(evicted(&server, "a", "").await.0, 201);
    let status = server.get(&path).await["status"].clone();
    assert!(status["disruptionsAllowed"] == 1 && status["disruptedPods"]["a"].is_string(), "{status}");
    assert_eq!(status.get("conditions"), None);
    assert_eq!(evicted(&server, "b", "").await.0, 201);
    let status = server.get(&path).await["status"].clone();
    assert!(status["disruptionsAllowed"] == 0 && status["disruptedPods"]["b"].is_string(), "{status}");
    let told = &status["conditions"][0];
    assert_eq!((&told["type"], &told["status"]), (&json!("DisruptionAllowed"), &json!("False")));
    assert_eq!(told["reason"], "InsufficientPods");
    assert_eq!(evicted(&server, "c", "").await.0, 429);
    assert!(!is_there(&server, "a").await && !is_there(&server, "b").await && is_there(&server, "c").await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_that_are_not_ready_are_not_counted() {
    let server = TestServer::start().await;
    budget(&server, "b", json!({})).await;
    counted(&server, "b", 0, 1).await;
    pod(&server, "a", "Running", false).await;
    assert_eq!(evicted(&server, "a", "").await.0, 429);
    counted(&server, "b", 0, 2).await;
    assert_eq!(evicted(&server, "a", "").await.0, 201);
    assert!(!is_there(&server, "a").await);
    assert_eq!(server.send("DELETE", &format!("{BUDGETS}/b"), &Value::Null).await.0, 200);
    budget(&server, "always", json!({"unhealthyPodEvictionPolicy": "AlwaysAllow"})).await;
    pod(&server, "a", "Running", false).await;
    assert_eq!(evicted(&server, "a", "").await.0, 201);
}
