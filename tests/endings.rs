//! How objects, namespaces and kinds end when something holds them: what the corpus, which a real server answered, does not ask.

use anyhow::{Result, ensure};
use croft_e2e::storage::{deleted, made, patched};
use croft_testkit::{Call, Client, Croft, StoreKind, eventually};
use http::Method;
use serde_json::{Value, json};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const HOLD: &str = "example.com/hold";

async fn gone(client: &Client, path: &str) {
    eventually("it is gone", async || {
        let answer = client.get(path).await?;
        ensure!(answer.status == 404, "{path}: {}", answer.text());
        Ok::<_, anyhow::Error>(())
    })
    .await;
}

async fn read(client: &Client, path: &str) -> Value {
    client.get(path).await.expect("an answer").ok().unwrap_or_else(|error| panic!("{path}: {error:#}"))
}

async fn condition(client: &Client, path: &str, name: &str) -> Result<Value> {
    let object = client.get(path).await?.ok()?;
    let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.into_iter().find(|found| found["type"] == name).ok_or_else(|| anyhow::anyhow!("no {name}: {object}"))
}

/// Waits until a condition has a status and a reason, and says this.
async fn says(client: &Client, path: &str, name: &str, expected: (&str, &str, &str)) {
    let (status, reason, message) = expected;
    eventually("the condition says so", async || {
        let found = condition(client, path, name).await?;
        ensure!(found["status"] == status && found["reason"] == reason, "{found}");
        ensure!(found["message"].as_str().is_some_and(|text| text.contains(message)), "{found}");
        Ok::<_, anyhow::Error>(())
    })
    .await;
}

fn held(name: &str) -> Value {
    json!({"metadata": {"name": name, "finalizers": [HOLD]}})
}

async fn namespace(client: &Client, name: &str) {
    made(client, "/api/v1/namespaces", &json!({"metadata": {"name": name}})).await;
}

fn definition() -> Value {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.endings.example.com"},
        "spec": {"group": "endings.example.com", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}})
}

fn thing(name: &str) -> Value {
    json!({"apiVersion": "endings.example.com/v1", "kind": "Thing", "metadata": {"name": name, "finalizers": [HOLD]}})
}

fn things(namespace: &str) -> String {
    format!("/apis/endings.example.com/v1/namespaces/{namespace}/things")
}

async fn defined(client: &Client) {
    made(client, DEFINITIONS, &definition()).await;
    eventually("the kind is served", async || client.get(&things("default")).await?.ok()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_held_ends_once_it_is_let_go() {
    let server = Croft::start(StoreKind::Embedded).await.expect("the server starts");
    let client = &server.client().expect("a client");
    objects(client).await;
    namespaces(client).await;
    namespaces_that_stay(client).await;
    kinds(client).await;
    a_kind_and_its_namespace_at_once(client).await;
}

async fn objects(client: &Client) {
    let maps = "/api/v1/namespaces/default/configmaps";
    let path = &format!("{maps}/a");
    let mut object =
        made(client, maps, &json!({"metadata": {"name": "a", "finalizers": [HOLD, "example.com/more"]}})).await;
    // Nobody deletes an object by writing when it was deleted.
    object["metadata"]["deletionTimestamp"] = json!("2026-01-02T03:04:05Z");
    let answer = client.put(path, &object).await.expect("an answer");
    let message = answer.json()["message"].as_str().unwrap_or_default().to_owned();
    assert_eq!(answer.status, 422, "{message}");
    assert!(
        message.contains("metadata.deletionTimestamp: Invalid value") && message.contains("field is immutable"),
        "{message}"
    );

    deleted(client, path).await;
    let dying = read(client, path).await;
    let (when, generation) = (&dying["metadata"]["deletionTimestamp"], &dying["metadata"]["generation"]);
    assert!(when.is_string(), "{dying}");
    let moved = json!({"metadata": {"deletionTimestamp": "2031-01-02T03:04:05Z"}, "data": {"a": "b"}});
    let written = patched(client, path, &moved).await;
    assert_eq!((&written["metadata"]["deletionTimestamp"], &written["data"]["a"]), (when, &json!("b")));
    deleted(client, path).await;
    let again = read(client, path).await;
    assert_eq!((&again["metadata"]["deletionTimestamp"], &again["metadata"]["generation"]), (when, generation));

    // One may be taken away, in any order, and put back by nobody.
    patched(client, path, &json!({"metadata": {"finalizers": [HOLD]}})).await;
    for finalizers in [json!([HOLD, "example.com/more"]), json!([HOLD, "foregroundDeletion"])] {
        let change = json!({"metadata": {"finalizers": finalizers}});
        let answer = client.patch(path, "merge-patch", &change).await.expect("an answer");
        let cause = answer.json()["details"]["causes"][0].clone();
        assert_eq!((answer.status, &cause["field"]), (422, &json!("metadata.finalizers")), "{}", answer.text());
    }
    let last = json!({"metadata": {"finalizers": []}});
    let answer = client.patch(&format!("{path}?dryRun=All"), "merge-patch", &last).await.expect("an answer");
    assert_eq!(
        (answer.status, client.get(path).await.expect("an answer").status),
        (200, 200),
        "a dry run ends nothing"
    );
    patched(client, path, &last).await;
    assert_eq!(client.get(path).await.expect("an answer").status, 404, "the last one ends it at once");

    // What waits for its dependents, and has none, waits for nothing; other finalizers hold it all the same.
    made(client, maps, &held("front")).await;
    let path = &format!("{maps}/front");
    let foreground = json!({"propagationPolicy": "Foreground"});
    client.send(Call::new(Method::DELETE, path).json(&foreground)).await.expect("an answer").ok().expect("deleted");
    eventually("only the other finalizer is left", async || {
        let object = client.get(path).await?.ok()?;
        ensure!(object["metadata"]["finalizers"] == json!([HOLD]), "{object}");
        Ok::<_, anyhow::Error>(())
    })
    .await;
    patched(client, path, &last).await;
    gone(client, path).await;
}

async fn namespaces(client: &Client) {
    namespace(client, "held").await;
    let (path, maps) = ("/api/v1/namespaces/held", "/api/v1/namespaces/held/configmaps");
    for name in ["a", "b"] {
        made(client, maps, &held(name)).await;
    }
    made(client, maps, &json!({"metadata": {"name": "free"}})).await;
    deleted(client, path).await;
    says(
        client,
        path,
        "NamespaceContentRemaining",
        ("True", "SomeResourcesRemain", "configmaps. has 2 resource instances"),
    )
    .await;
    let finalizers = "example.com/hold in 2 resource instances";
    says(client, path, "NamespaceFinalizersRemaining", ("True", "SomeFinalizersRemain", finalizers)).await;
    says(client, path, "NamespaceDeletionDiscoveryFailure", ("False", "ResourcesDiscovered", "")).await;
    says(client, path, "NamespaceDeletionContentFailure", ("False", "ContentDeleted", "")).await;

    let late = json!({"metadata": {"name": "late"}});
    for path in [maps, "/api/v1/namespaces/held/secrets", "/apis/coordination.k8s.io/v1/namespaces/held/leases"] {
        let answer = client.post(path, &late).await.expect("an answer");
        let status = answer.json();
        assert_eq!((answer.status, &status["reason"]), (403, &json!("Forbidden")), "{status}");
        assert_eq!(status["details"]["causes"][0]["reason"], "NamespaceTerminating", "{status}");
    }
    // What is there can still be changed and let go.
    for name in ["a", "b"] {
        patched(client, &format!("{maps}/{name}"), &json!({"metadata": {"finalizers": null}})).await;
    }
    gone(client, path).await;
    // Another one by that name has nothing of it.
    namespace(client, "held").await;
    let names = |list: &Value| -> Vec<String> {
        let items = list["items"].as_array().cloned().unwrap_or_default();
        items.iter().filter_map(|item| item["metadata"]["name"].as_str().map(str::to_owned)).collect()
    };
    let found = names(&read(client, maps).await);
    assert!(found.iter().all(|name| name == "kube-root-ca.crt"), "{found:?}");
    made(client, maps, &late).await;
    deleted(client, path).await;
    gone(client, path).await;
}

async fn namespaces_that_stay(client: &Client) {
    for name in ["default", "kube-system", "kube-public"] {
        let answer = client.delete(&format!("/api/v1/namespaces/{name}")).await.expect("an answer");
        let message = answer.json()["message"].as_str().unwrap_or_default().to_owned();
        assert_eq!(answer.status, 403, "{name}: {message}");
        assert!(message.contains("this namespace may not be deleted"), "{message}");
        assert_eq!(read(client, &format!("/api/v1/namespaces/{name}")).await["status"]["phase"], "Active");
    }
}

async fn kinds(client: &Client) {
    let path = &format!("{DEFINITIONS}/things.endings.example.com");
    defined(client).await;
    made(client, &things("default"), &thing("a")).await;
    deleted(client, path).await;
    says(client, path, "Terminating", ("True", "InstanceDeletionInProgress", "")).await;
    eventually("its objects are told to go", async || {
        let object = client.get(&format!("{}/a", things("default"))).await?.ok()?;
        ensure!(object["metadata"]["deletionTimestamp"].is_string(), "{object}");
        Ok::<_, anyhow::Error>(())
    })
    .await;
    let answer = client.post(&things("default"), &thing("late")).await.expect("an answer");
    assert_eq!(answer.status, 405, "{}", answer.text());
    assert!(
        answer.text().contains("create not allowed while custom resource definition is terminating"),
        "{}",
        answer.text()
    );
    patched(client, &format!("{}/a", things("default")), &json!({"metadata": {"finalizers": null}})).await;
    gone(client, path).await;
    // The same kind once more has none of the old objects.
    defined(client).await;
    assert_eq!(read(client, &things("default")).await["items"], json!([]));
    deleted(client, path).await;
    gone(client, path).await;
    gone(client, &things("default")).await;
}

async fn a_kind_and_its_namespace_at_once(client: &Client) {
    let (path, root) = (&format!("{DEFINITIONS}/things.endings.example.com"), "/api/v1/namespaces/both");
    defined(client).await;
    namespace(client, "both").await;
    made(client, &things("both"), &thing("a")).await;
    deleted(client, root).await;
    let remains = ("True", "SomeResourcesRemain", "things.endings.example.com has 1 resource instances");
    says(client, root, "NamespaceContentRemaining", remains).await;
    deleted(client, path).await;
    says(client, path, "Terminating", ("True", "InstanceDeletionInProgress", "")).await;
    assert_eq!(read(client, root).await["status"]["phase"], "Terminating");
    patched(client, &format!("{}/a", things("both")), &json!({"metadata": {"finalizers": null}})).await;
    gone(client, path).await;
    gone(client, root).await;
}

/// What a server needs may be on its way out when it starts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_starts_while_what_it_needs_is_going_and_has_it_back_after_that() {
    const PUBLIC: &str = "/api/v1/namespaces/harvester-public";
    const TEMPLATES: &str = "/apis/harvesterhci.io/v1beta1/namespaces/harvester-public/virtualmachinetemplates";
    let mut server = Croft::start(StoreKind::Embedded).await.expect("the server starts");
    let client = &server.client().expect("a client");
    let count = async |client: &Client| read(client, TEMPLATES).await["items"].as_array().map_or(0, Vec::len);
    let (all, old) = (count(client).await, read(client, PUBLIC).await["metadata"]["uid"].clone());
    assert!(all > 0);
    made(client, &format!("{PUBLIC}/configmaps"), &held("a")).await;
    deleted(client, PUBLIC).await;
    let remains = ("True", "SomeResourcesRemain", "configmaps. has 1 resource instances");
    says(client, PUBLIC, "NamespaceContentRemaining", remains).await;
    assert_eq!(count(client).await, 0);

    server.restart().await.expect("it starts all the same");
    let client = &server.client().expect("a client");
    assert_eq!(read(client, PUBLIC).await["status"]["phase"], "Terminating");
    patched(client, &format!("{PUBLIC}/configmaps/a"), &json!({"metadata": {"finalizers": null}})).await;
    eventually("it is there again, with all that was in it", async || {
        let namespace = client.get(PUBLIC).await?.ok()?;
        ensure!(namespace["metadata"]["uid"] != old, "{namespace}");
        let found = client.get(TEMPLATES).await?.ok()?["items"].as_array().map_or(0, Vec::len);
        ensure!(found == all, "{found} of {all}");
        Ok::<_, anyhow::Error>(())
    })
    .await;
}
