//! Behaviours of Kubernetes' conformance list about lists and watches that go on, owners and namespaces that go, and what servers
//! write by themselves.
//! `tests/conformance/behaviours.yaml` tells which test here stands for which behaviour.

use anyhow::ensure;
use croft_e2e::conformance_definition::get;
use croft_e2e::machines::croft_ok;
use croft_e2e::storage::{deleted, made, patched};
use croft_testkit::{Call, Client, Croft, StoreKind, eventually};
use http::Method;
use serde_json::{Value, json};

const TEMPLATES: &str = "/api/v1/namespaces/default/podtemplates";
const APPS: &str = "/apis/apps/v1/namespaces/default";
const CORE: &str = "/api/v1/namespaces/default";
const NAMESPACES: &str = "/api/v1/namespaces";
const TOTAL: u64 = 40;
const LIMIT: u64 = 4;

async fn start(store: StoreKind) -> (Croft, Client) {
    let server = Croft::start(store).await.expect("the server starts");
    let client = server.client().expect("a client");
    (server, client)
}

fn pod_spec() -> Value {
    json!({"containers": [{"name": "c", "image": "i:1"}]})
}

/// A page is as long as it may be, follows the ones before it, and says how much is left; gives its token.
fn follows(page: &Value, found: &mut u64) -> String {
    let items = page["items"].as_array().expect("items");
    for item in items {
        assert_eq!(item["metadata"]["name"], format!("template-{found:04}"));
        *found += 1;
    }
    assert!(items.len() <= usize::try_from(LIMIT).expect("a small number"));
    let token = page["metadata"]["continue"].as_str().unwrap_or_default();
    let left = page["metadata"]["remainingItemCount"].as_u64();
    assert_eq!(left, (!token.is_empty()).then(|| TOTAL - *found), "{}", page["metadata"]);
    token.to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_goes_on_after_its_moment_is_forgotten() {
    for store in [StoreKind::Embedded, StoreKind::Etcd] {
        let (server, client) = start(store).await;
        for number in 0..TOTAL {
            let template =
                json!({"metadata": {"name": format!("template-{number:04}")}, "template": {"spec": pod_spec()}});
            made(&client, TEMPLATES, &template).await;
        }
        let mut found = 0;
        let first = get(&client, &format!("{TEMPLATES}?limit={LIMIT}")).await;
        let token = follows(&first, &mut found);
        let next = |token: &str| format!("{TEMPLATES}?limit={LIMIT}&continue={token}");
        assert_eq!(
            get(&client, &next(&token)).await["metadata"]["resourceVersion"],
            first["metadata"]["resourceVersion"]
        );

        // Something else is written, or the moment would be the newest one, which is never forgotten.
        made(&client, "/api/v1/namespaces/default/configmaps", &json!({"metadata": {"name": "later"}})).await;
        croft_ok(&server, &["store", "defrag", "--compact"]).await.expect("all history is forgotten");
        let answer = client.get(&next(&token)).await.expect("an answer");
        let status = answer.json();
        assert_eq!((answer.status, &status["reason"]), (410, &json!("Expired")), "{status}");
        assert!(status["message"].as_str().is_some_and(|text| text.contains("inconsistent list")), "{status}");
        let inconsistent = status["metadata"]["continue"].as_str().expect("a token to go on with").to_owned();

        let second = get(&client, &next(&inconsistent)).await;
        let moment = second["metadata"]["resourceVersion"].clone();
        assert_ne!(moment, first["metadata"]["resourceVersion"]);
        assert_eq!(second["items"].as_array().map(Vec::len), usize::try_from(LIMIT).ok());
        let mut token = follows(&second, &mut found);
        while !token.is_empty() {
            let page = get(&client, &next(&token)).await;
            assert_eq!(page["metadata"]["resourceVersion"], moment);
            token = follows(&page, &mut found);
        }
        assert_eq!(found, TOTAL, "{store:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_goes_on_where_another_one_ended() {
    let (_server, client) = start(StoreKind::Embedded).await;
    let (maps, selector) = (&format!("{CORE}/configmaps"), "labelSelector=suite%3Dwatch");
    let list = get(&client, &format!("{maps}?{selector}")).await;
    let watch = |from: &Value| {
        let from = from["metadata"]["resourceVersion"].as_str().expect("a version");
        Call::new(Method::GET, &format!("{maps}?watch=1&{selector}&resourceVersion={from}"))
    };
    let mut events = client.open(watch(&list)).await.expect("a watch");
    made(&client, maps, &json!({"metadata": {"name": "w", "labels": {"suite": "watch"}}})).await;
    let change = async |data: &str| patched(&client, &format!("{maps}/w"), &json!({"data": {"a": data}})).await;
    change("1").await;
    let mut last = Value::Null;
    for kind in ["ADDED", "MODIFIED"] {
        let event = events.event().await.expect("an event").expect("the watch goes on");
        assert_eq!(event["type"], kind, "{event}");
        last = event["object"].clone();
    }
    drop(events);
    change("2").await;
    deleted(&client, &format!("{maps}/w")).await;
    let mut events = client.open(watch(&last)).await.expect("a watch");
    for kind in ["MODIFIED", "DELETED"] {
        let event = events.event().await.expect("an event").expect("the watch goes on");
        assert_eq!((&event["type"], &event["object"]["data"]["a"]), (&json!(kind), &json!("2")), "{event}");
    }
}

fn owned_by(kind: &str, owner: &Value) -> Value {
    let version = if kind == "ReplicationController" { "v1" } else { "apps/v1" };
    json!([{"apiVersion": version, "kind": kind, "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"],
        "controller": true, "blockOwnerDeletion": true}])
}

/// A ReplicationController, or a Deployment with its ReplicaSet, and a Pod, as their controllers would make them: no such
/// controllers are here. Gives the paths, from the owner down.
async fn owner_and_owned(client: &Client, name: &str, has_set: bool) -> Vec<String> {
    let labels = json!({"app": name});
    let template = json!({"metadata": {"labels": labels}, "spec": pod_spec()});
    let set = json!({"replicas": 1, "selector": {"matchLabels": labels}, "template": template});
    let controller = json!({"replicas": 1, "selector": labels, "template": template});
    let mut chain = vec![(format!("{CORE}/replicationcontrollers"), "ReplicationController", controller)];
    if has_set {
        chain = vec![
            (format!("{APPS}/deployments"), "Deployment", set.clone()),
            (format!("{APPS}/replicasets"), "ReplicaSet", set),
        ];
    }
    chain.push((format!("{CORE}/pods"), "Pod", pod_spec()));
    let mut owners = json!([]);
    for (path, kind, spec) in &chain {
        let object = json!({"metadata": {"name": name, "labels": labels, "ownerReferences": owners}, "spec": spec});
        owners = owned_by(kind, &made(client, path, &object).await);
    }
    chain.into_iter().map(|(path, _, _)| format!("{path}/{name}")).collect()
}

async fn delete_with(client: &Client, path: &str, policy: &str) {
    let call = Call::new(Method::DELETE, path).json(&json!({"propagationPolicy": policy}));
    client.send(call).await.expect("an answer").ok().expect("deleted");
}

async fn are_gone(client: &Client, paths: &[String]) {
    eventually("they are gone", async || {
        for path in paths {
            ensure!(client.get(path).await?.status == 404, "{path}");
        }
        anyhow::Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn owners_go_with_pods_after_them_or_without() {
    let (_server, client) = start(StoreKind::Embedded).await;
    for has_set in [true, false] {
        let all = owner_and_owned(&client, "background", has_set).await;
        delete_with(&client, &all[0], "Background").await;
        are_gone(&client, &all).await;

        let all = owner_and_owned(&client, "orphan", has_set).await;
        delete_with(&client, &all[0], "Orphan").await;
        are_gone(&client, &all[..1]).await;
        // The owner goes last: its own have been let go by then.
        for (at, path) in all.iter().enumerate().skip(1) {
            let left = get(&client, path).await;
            assert!(left["metadata"]["deletionTimestamp"].is_null(), "{left}");
            let owners = left["metadata"]["ownerReferences"].as_array().map_or(0, Vec::len);
            assert_eq!(owners, usize::from(at > 1), "{left}");
        }
        delete_with(&client, &all[1], "Background").await;
        are_gone(&client, &all).await;

        let all = owner_and_owned(&client, "foreground", has_set).await;
        let pod = all.last().expect("a pod");
        patched(&client, pod, &json!({"metadata": {"finalizers": ["example.com/hold"]}})).await;
        delete_with(&client, &all[0], "Foreground").await;
        eventually("the pod is being deleted", async || {
            let pod = client.get(pod).await?.ok()?;
            ensure!(pod["metadata"]["deletionTimestamp"].is_string(), "{pod}");
            anyhow::Ok(())
        })
        .await;
        for path in &all[..all.len() - 1] {
            let waiting = get(&client, path).await;
            assert_eq!(waiting["metadata"]["finalizers"], json!(["foregroundDeletion"]), "{waiting}");
        }
        patched(&client, pod, &json!({"metadata": {"finalizers": null}})).await;
        are_gone(&client, &all).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_namespace_waits_with_the_rest_until_its_pods_are_gone() {
    let (_server, client) = start(StoreKind::Embedded).await;
    let namespace = &format!("{NAMESPACES}/ordered");
    made(&client, NAMESPACES, &json!({"metadata": {"name": "ordered"}})).await;
    eventually("it has its account", async || client.get(&format!("{namespace}/serviceaccounts/default")).await?.ok())
        .await;
    let held = json!({"metadata": {"name": "p", "finalizers": ["e2e.example.com/finalizer"]}, "spec": pod_spec()});
    made(&client, &format!("{namespace}/pods"), &held).await;
    made(&client, &format!("{namespace}/configmaps"), &json!({"metadata": {"name": "m"}, "data": {"key": "value"}}))
        .await;
    deleted(&client, namespace).await;
    eventually("the namespace says that a pod is in its way", async || {
        let namespace = client.get(namespace).await?.ok()?;
        ensure!(namespace["status"]["phase"] == "Terminating", "{namespace}");
        let conditions = namespace["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let find = |name: &str| conditions.iter().find(|one| one["type"] == name).cloned().unwrap_or_default();
        ensure!(find("NamespaceDeletionContentFailure")["status"].is_string(), "{namespace}");
        let remaining = find("NamespaceContentRemaining");
        ensure!(remaining["message"] == "Some resources are remaining: pods. has 1 resource instances", "{remaining}");
        ensure!(find("NamespaceFinalizersRemaining")["status"] == "True", "{namespace}");
        Ok(())
    })
    .await;
    let pod = get(&client, &format!("{namespace}/pods/p")).await;
    assert!(pod["metadata"]["deletionTimestamp"].is_string(), "{pod}");
    let map = get(&client, &format!("{namespace}/configmaps/m")).await;
    assert!(map["metadata"]["deletionTimestamp"].is_null(), "{map}");
    patched(&client, &format!("{namespace}/pods/p"), &json!({"metadata": {"finalizers": []}})).await;
    eventually("the namespace is gone, and all that was in it", async || {
        for path in [&format!("{namespace}/pods/p"), &format!("{namespace}/configmaps/m"), namespace] {
            ensure!(client.get(path).await?.status == 404, "{path}");
        }
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_status_of_a_quota_is_written_and_put_right() {
    let (_server, client) = start(StoreKind::Embedded).await;
    let quotas = "/api/v1/namespaces/default/resourcequotas";
    let (quota, status) = (&format!("{quotas}/q"), &format!("{quotas}/q/status"));
    let from =
        get(&client, &format!("{quotas}?labelSelector=suite%3Dquota")).await["metadata"]["resourceVersion"].clone();
    let hard = |cpu: &str, memory: &str| json!({"cpu": cpu, "memory": memory});
    let object =
        json!({"metadata": {"name": "q", "labels": {"suite": "quota"}}, "spec": {"hard": hard("500m", "500Mi")}});
    made(&client, quotas, &object).await;
    assert_eq!(get(&client, quota).await["spec"]["hard"], hard("500m", "500Mi"));
    eventually("the status is replaced", async || {
        let mut object = client.get(status).await?.ok()?;
        object["status"] = json!({"hard": hard("500m", "500Mi")});
        client.put(status, &object).await?.ok()
    })
    .await;
    let watch =
        format!("{quotas}?watch=1&labelSelector=suite%3Dquota&resourceVersion={}", from.as_str().unwrap_or("0"));
    let mut events = client.open(Call::new(Method::GET, &watch)).await.expect("a watch");
    let mut seen = async |wanted: Value| loop {
        let event = events.event().await.expect("an event").expect("the watch goes on");
        if event["object"]["status"]["hard"] == wanted {
            return;
        }
    };
    seen(hard("500m", "500Mi")).await;

    let merge = "strategic-merge-patch";
    let patch = json!({"spec": {"hard": hard("1", "1Gi")}});
    client.patch(quota, merge, &patch).await.expect("an answer").ok().expect("patched");
    let patch = json!({"status": {"hard": hard("1", "1Gi")}});
    client.patch(status, merge, &patch).await.expect("an answer").ok().expect("patched");
    seen(hard("1", "1Gi")).await;
    assert_eq!(get(&client, status).await["status"]["hard"], hard("1", "1Gi"));

    let patch = json!({"status": {"hard": hard("2", "2Gi")}});
    let answer = client.patch(status, merge, &patch).await.expect("an answer").ok().expect("patched");
    assert_eq!((&answer["status"]["hard"], &answer["spec"]["hard"]), (&hard("2", "2Gi"), &hard("1", "1Gi")));
    seen(hard("2", "2Gi")).await;
    // It is the spec that counts.
    seen(hard("1", "1Gi")).await;
    let object = get(&client, quota).await;
    assert_eq!((&object["spec"]["hard"], &object["status"]["hard"]), (&hard("1", "1Gi"), &hard("1", "1Gi")));
}
