//! ResourceQuotas on objects and claims: what does not fit is refused, also when many ask at once; what is used is told.

use anyhow::ensure;
use croft_testkit::{Client, Croft, StoreKind, eventually};
use serde_json::{Value, json};

const NAMESPACE: &str = "/api/v1/namespaces/default";

async fn post(client: &Client, plural: &str, object: &Value) -> (u16, String) {
    let answer = client.post(&format!("{NAMESPACE}/{plural}"), object).await.expect("an answer");
    (answer.status, answer.json()["message"].as_str().unwrap_or_default().to_owned())
}

async fn quota(client: &Client, name: &str, hard: &Value) {
    let quota = json!({"metadata": {"name": name}, "spec": {"hard": hard}});
    let (status, why) = post(client, "resourcequotas", &quota).await;
    assert_eq!(status, 201, "{why}");
}

async fn used_becomes(client: &Client, name: &str, wanted: &Value) {
    eventually("what is used is told", async || {
        let quota = client.get(&format!("{NAMESPACE}/resourcequotas/{name}")).await?.ok()?;
        ensure!(quota["status"]["used"] == *wanted, "{quota}");
        ensure!(quota["status"]["hard"] == quota["spec"]["hard"], "{quota}");
        Ok::<_, anyhow::Error>(())
    })
    .await;
}

fn named(name: &str) -> Value {
    json!({"metadata": {"name": name}})
}

fn claim(name: &str, size: &str, class: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": class,
        "resources": {"requests": {"storage": size}}}})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn quotas_hold_whatever_is_counted() {
    let server = Croft::start(StoreKind::Embedded).await.expect("the server starts");
    let client = server.client().expect("a client");
    quota(
        &client,
        "objects",
        &json!({"configmaps": "3", "count/roles.rbac.authorization.k8s.io": "1", "services.loadbalancers": "0"}),
    )
    .await;
    // Every namespace gets this one.
    eventually("the namespace has its map", async || {
        client.get(&format!("{NAMESPACE}/configmaps/kube-root-ca.crt")).await?.ok()
    })
    .await;
    assert_eq!(post(&client, "configmaps", &named("a")).await.0, 201);
    assert_eq!(post(&client, "configmaps", &named("b")).await.0, 201);
    let (status, why) = post(&client, "configmaps", &named("c")).await;
    let words = "configmaps \"c\" is forbidden: exceeded quota: objects, requested: configmaps=1, used: configmaps=3, limited: configmaps=3";
    assert_eq!((status, why.as_str()), (403, words));
    let roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles";
    assert_eq!(client.post(roles, &named("r")).await.expect("an answer").status, 201);
    let refused = client.post(roles, &named("s")).await.expect("an answer");
    assert!(refused.text().contains("used: count/roles.rbac.authorization.k8s.io=1"), "{}", refused.text());
    let service = json!({"metadata": {"name": "s"}, "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]}});
    let (status, why) = post(&client, "services", &service).await;
    assert!(status == 403 && why.contains("requested: services.loadbalancers=1"), "{why}");
    let used = json!({"configmaps": "3", "count/roles.rbac.authorization.k8s.io": "1", "services.loadbalancers": "0"});
    used_becomes(&client, "objects", &used).await;
    // What goes makes room.
    client.delete(&format!("{NAMESPACE}/configmaps/a")).await.expect("an answer").ok().expect("deleted");
    assert_eq!(post(&client, "configmaps", &named("c")).await.0, 201);

    let gold = "gold.storageclass.storage.k8s.io/requests.storage";
    quota(&client, "storage", &json!({"requests.storage": "5Gi", gold: "2Gi", "persistentvolumeclaims": "3"})).await;
    assert_eq!(post(&client, "persistentvolumeclaims", &claim("one", "2Gi", "gold")).await.0, 201);
    let (status, why) = post(&client, "persistentvolumeclaims", &claim("two", "1Gi", "gold")).await;
    let words = format!("exceeded quota: storage, requested: {gold}=1Gi, used: {gold}=2Gi, limited: {gold}=2Gi");
    assert!(status == 403 && why.ends_with(&words), "{why}");
    let (status, why) = post(&client, "persistentvolumeclaims", &claim("three", "4Gi", "iron")).await;
    let words = "requested: requests.storage=4Gi, used: requests.storage=2Gi, limited: requests.storage=5Gi";
    assert!(status == 403 && why.ends_with(words), "{why}");
    assert_eq!(post(&client, "persistentvolumeclaims", &claim("four", "3Gi", "iron")).await.0, 201);
    used_becomes(&client, "storage", &json!({"requests.storage": "5Gi", gold: "2Gi", "persistentvolumeclaims": "2"}))
        .await;
}

/// Neither server knows what the other is just about to store.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_servers_on_one_etcd_do_not_give_the_same_room_twice() {
    let first = Croft::start(StoreKind::Etcd).await.expect("the server starts");
    let second = Croft::start_beside(&first).await.expect("another server starts");
    let clients = [first.client().expect("a client"), second.client().expect("a client")];
    for round in 0..5 {
        let namespace = format!("shared-{round}");
        clients[0].post("/api/v1/namespaces", &named(&namespace)).await.expect("an answer").ok().expect("made");
        let path = format!("/api/v1/namespaces/{namespace}");
        let hard = json!({"count/secrets": "5", "requests.storage": "20Gi"});
        let quota = json!({"metadata": {"name": "few"}, "spec": {"hard": hard}});
        clients[0].post(&format!("{path}/resourcequotas"), &quota).await.expect("an answer").ok().expect("made");
        eventually("the other server knows the quota", async || {
            clients[1].get(&format!("{path}/resourcequotas/few?resourceVersion=0")).await?.ok()
        })
        .await;
        let mut asking = tokio::task::JoinSet::new();
        for number in 0..20 {
            let (client, path) = (clients[number % 2].clone(), path.clone());
            asking.spawn(async move {
                let secret = named(&format!("s{number}"));
                let claim = claim(&format!("c{number}"), "5Gi", "none");
                let secret = client.post(&format!("{path}/secrets"), &secret).await.expect("an answer").status;
                let claim = client.post(&format!("{path}/persistentvolumeclaims"), &claim).await.expect("an answer");
                (secret, claim.status)
            });
        }
        let answers = asking.join_all().await;
        let made = |of: fn(&(u16, u16)) -> u16| answers.iter().filter(|answer| of(answer) == 201).count();
        assert_eq!((made(|both| both.0), made(|both| both.1)), (5, 4), "{answers:?}");
        assert!(answers.iter().all(|(secret, claim)| [*secret, *claim].iter().all(|code| matches!(code, 201 | 403))));
        let told = clients[1].get(&format!("{path}/resourcequotas/few")).await.expect("an answer").ok().expect("one");
        assert_eq!(told["status"]["used"], json!({"count/secrets": "5", "requests.storage": "20Gi"}));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_who_ask_at_once_get_what_there_is_and_no_more() {
    let server = Croft::start(StoreKind::Embedded).await.expect("the server starts");
    let client = server.client().expect("a client");
    quota(&client, "small", &json!({"count/secrets": "7"})).await;
    let before = client.get(&format!("{NAMESPACE}/secrets")).await.expect("an answer").ok().expect("a list");
    let room = 7 - before["items"].as_array().map_or(0, Vec::len);
    let mut asking = tokio::task::JoinSet::new();
    for number in 0..40 {
        let client = client.clone();
        asking.spawn(async move { post(&client, "secrets", &named(&format!("s{number}"))).await });
    }
    let answers = asking.join_all().await;
    let made = answers.iter().filter(|(status, _)| *status == 201).count();
    assert_eq!(made, room, "{answers:?}");
    assert!(answers.iter().all(|(status, why)| *status == 201 || why.contains("exceeded quota: small")), "{answers:?}");
    used_becomes(&client, "small", &json!({"count/secrets": "7"})).await;
}
