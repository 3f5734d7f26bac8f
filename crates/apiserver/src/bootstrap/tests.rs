use croft_testkit::eventually;

use super::*;
use crate::testing::TestServer;

const NAMESPACES_PATH: &str = "/api/v1/namespaces";
const SETTINGS: &str = "/apis/harvesterhci.io/v1beta1/settings";

async fn gone(server: &TestServer, path: &str) {
    assert_eq!(server.send("DELETE", path, &Value::Null).await.0, 200, "{path}");
}

fn is_there(server: &Arc<ApiServer>, wanted: &Wanted) -> bool {
    target(server, &wanted.object).is_ok_and(|target| exists(server, &target))
}

/// It starts once more on what is there.
async fn starts(server: &Arc<ApiServer>) {
    assert!(run(server, None).await.expect("nothing keeps it from starting").is_none());
}

async fn comes(test: &TestServer, path: &str) -> Value {
    eventually("it comes back", async || match test.send("GET", path, &Value::Null).await {
        (200, found) if found["metadata"]["deletionTimestamp"].is_null() => Ok(found),
        other => Err(format!("{path}: {other:?}")),
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_first_start_leaves_nothing_out() {
    let test = TestServer::start().await;
    let server = test.running.server();
    let all = NAMESPACES.into_iter().map(namespace).chain(wanted(server)).chain(templates::versions());
    let left_out: Vec<Wanted> = all.filter(|wanted| !is_there(server, wanted)).collect();
    assert!(left_out.is_empty(), "{left_out:?}");
    assert_eq!(definitions::going(server), [""; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_namespace_on_its_way_out_keeps_no_server_from_starting_and_comes_back_whole() {
    let test = TestServer::start().await;
    let server = test.running.server();
    let namespace = format!("{NAMESPACES_PATH}/harvester-public");
    let old = test.get(&namespace).await["metadata"]["uid"].clone();
    gone(&test, &namespace).await;
    // Nobody clears it here: one object goes, the others stay for now.
    let template = templates::objects().last().unwrap();
    let path = format!(
        "/apis/harvesterhci.io/v1beta1/namespaces/harvester-public/virtualmachinetemplates/{}",
        object::name(&template.object)
    );
    gone(&test, &path).await;
    starts(server).await;
    assert!(!is_there(server, &template));
    let empty = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "harvester-public"}});
    assert_eq!(test.send("PUT", &format!("{namespace}/finalize"), &empty).await.0, 200);
    comes(&test, &path).await;
    assert_ne!(test.get(&namespace).await["metadata"]["uid"], old);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_definition_on_its_way_out_keeps_no_server_from_starting_and_comes_back_with_its_objects() {
    let test = TestServer::start().await;
    let server = test.running.server();
    let definition = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/settings.harvesterhci.io";
    gone(&test, definition).await;
    let setting = format!("{SETTINGS}/server-version");
    gone(&test, &setting).await;
    starts(server).await;
    assert_eq!(definitions::going(server), ["settings.harvesterhci.io"]);
    assert_eq!(test.send("GET", &setting, &Value::Null).await.0, 404);
    let (code, _) = test.send("PATCH", definition, &json!({"metadata": {"finalizers": null}})).await;
    assert_eq!(code, 200);
    comes(&test, &setting).await;
    assert_eq!(definitions::going(server), [""; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_that_somebody_has_keeps_no_server_from_starting() {
    let test = TestServer::start().await;
    let services = "/api/v1/namespaces/default/services";
    gone(&test, &format!("{services}/kubernetes")).await;
    let taker = json!({"metadata": {"name": "taker"}, "spec": {"clusterIP": KUBERNETES_IP, "ports": [{"port": 80}]}});
    test.post(services, &taker).await;
    starts(test.running.server()).await;
    assert_eq!(test.send("GET", &format!("{services}/kubernetes"), &Value::Null).await.0, 404);
    gone(&test, &format!("{services}/taker")).await;
    let found = comes(&test, &format!("{services}/kubernetes")).await;
    assert_eq!(found["spec"]["clusterIP"], KUBERNETES_IP);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_created_in_a_namespace_that_began_to_go_after_it_was_looked_at() {
    let test = TestServer::start().await;
    let server = test.running.server();
    let map =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "harvester-public"}});
    let target = target(server, &map).unwrap();
    let (object, guards) = new(server, &target, &map).await.unwrap();
    gone(&test, &format!("{NAMESPACES_PATH}/harvester-public")).await;
    assert!(!server.create_together(&[(target.clone(), object, guards)]).await.unwrap());
    assert!(!exists(server, &target));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_password_that_is_set_from_outside_ends_tokens_only_if_it_is_another() {
    const USER: &str = "/api/v1/namespaces/kube-system/secrets/user-admin";
    let test = TestServer::start().await;
    let server = test.running.server();
    let started = async |password: &str| {
        assert!(run(server, Some(Secret::new(password))).await.expect("it starts").is_none());
        let user = test.get(USER).await;
        ["password-hash", "tokens-since"].map(|key| secret_text(&user, key))
    };
    let first = started("correct-horse").await;
    assert_eq!(first[1].as_deref(), Some("1"), "the one that was made up is good no more");
    assert_eq!(started("correct-horse").await, first);
    let second = started("another-horse").await;
    assert!(second[0] != first[0] && second[1].as_deref() == Some("2"), "{second:?}");
    let hash = first[0].as_deref().unwrap();
    let (code, user) = test.send("PATCH", USER, &json!({"stringData": {"password-hash": hash}})).await;
    assert_eq!((code, secret_text(&user, "tokens-since").as_deref()), (200, Some("3")), "{user}");
}
