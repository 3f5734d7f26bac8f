//! Admission of what is not stored: connections, tokens, evictions, bindings and reviews, by policies and by webhooks.

use croft_e2e::policy_objects::{
    MAPS, applied, binding, create, message, mutating, patched, path, policy, post, remove, rule, start, with,
};
use croft_e2e::webhook_field::{Field, MUTATING, VALIDATING, refused};
use croft_e2e::webhook_server::Reply;
use croft_testkit::{Answer, Call, Client, StoreKind};
use http::Method;
use serde_json::{Value, json};

const PODS: &str = "/api/v1/namespaces/default/pods";
const TOKEN: &str = "/api/v1/namespaces/default/serviceaccounts/robot/token";

async fn pod(client: &Client, name: &str) {
    let pod = json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    client.post(PODS, &pod).await.expect("an answer").ok().expect("a pod");
}

async fn robot(client: &Client) {
    let account = json!({"metadata": {"name": "robot"}});
    client.post("/api/v1/namespaces/default/serviceaccounts", &account).await.expect("an answer").ok().expect("made");
}

/// A policy about one resource with one validation.
fn about(resource: &str, expression: &str) -> Value {
    let mut policy = policy("p", expression);
    policy["spec"]["matchConstraints"]["resourceRules"] = json!([rule(resource, "")]);
    policy["spec"]["validations"][0]["messageExpression"] =
        json!("request.operation + ' ' + request.kind.kind + ' ' + request.name");
    policy
}

/// As [`about`], but it changes what is sent.
fn changing(resource: &str, mutations: Value) -> (Value, Value) {
    let (mut policy, binding) = mutating("m", mutations);
    policy["spec"]["matchConstraints"]["resourceRules"] = json!([rule(resource, "")]);
    (policy, binding)
}

#[track_caller]
fn denied(answer: &Answer, words: &str) {
    assert_eq!(answer.status, 422, "{}", answer.text());
    let wanted = format!("ValidatingAdmissionPolicy 'p' with binding 'p' denied request: {words}");
    assert!(message(answer).ends_with(&wanted), "{}", message(answer));
}

async fn get(client: &Client, path: &str) -> Answer {
    client.get(path).await.expect("an answer")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_lead_nowhere_but_are_asked_about() {
    let (server, client) = start().await;
    pod(&client, "web").await;
    let service = json!({"metadata": {"name": "front"}, "spec": {"ports": [{"port": 80}]}});
    let services = "/api/v1/namespaces/default/services";
    client.post(services, &service).await.expect("an answer").ok().expect("a service");
    let listed = get(&client, "/api/v1").await.json();
    let table = [
        (format!("{PODS}/web/attach"), "pods/attach", "PodAttachOptions", "attach to in pod \"web\""),
        (format!("{PODS}/web/exec?command=ls"), "pods/exec", "PodExecOptions", "executed in pod \"web\""),
        (format!("{PODS}/web/portforward?ports=80"), "pods/portforward", "PodPortForwardOptions", "to forward"),
        (format!("{PODS}/http:web:80/proxy/a/b"), "pods/proxy", "PodProxyOptions", "answers for pod \"web\""),
        (format!("{services}/front:80/proxy/"), "services/proxy", "ServiceProxyOptions", "for service \"front\""),
    ];
    for (path, resource, kind, why) in table {
        let entry = listed["resources"].as_array().into_iter().flatten().find(|entry| entry["name"] == resource);
        assert_eq!(entry.map(|entry| &entry["kind"]), Some(&json!(kind)), "{resource}");
        for method in [Method::GET, Method::POST] {
            let answer = client.send(Call::new(method, &path)).await.expect("an answer");
            let status = if resource == "services/proxy" { 503 } else { 400 };
            assert_eq!((answer.status, &answer.json()["kind"]), (status, &json!("Status")), "{}", answer.text());
            let told = message(&answer);
            assert!(told.starts_with("no pods run here: ") && told.contains(why), "{told}");
        }
        let gone = path.replace("web", "gone").replace("front", "gone");
        assert_eq!(get(&client, &gone).await.status, 404, "{gone}");
        let stranger = Call::new(Method::GET, &path).header("impersonate-user", "jane");
        assert_eq!(client.send(stranger).await.expect("an answer").status, 403, "{path}");
        let name = path.split('/').nth(6).expect("a name").split('?').next().expect("a name").to_owned();
        with(&client, &about(resource, "request.operation != 'CONNECT'"), &binding("p", &["Deny"]), async || {
            denied(&get(&client, &path).await, &format!("CONNECT {kind} {name}"));
            // Who has a say is asked before anybody looks.
            assert_eq!(get(&client, &gone).await.status, 422, "{gone}");
        })
        .await;
    }
    for (path, status) in [
        (format!("{PODS}/web/attach?dryRun=All"), 400),
        (format!("{PODS}/web/portforward?ports=http"), 400),
        (format!("{PODS}/ftp:web:80/proxy"), 400),
        (format!("{PODS}/web/attach/more"), 404),
        (format!("{PODS}/web/log"), 404),
    ] {
        assert_eq!(get(&client, &path).await.status, status, "{path}");
    }
    assert_eq!(client.delete(&format!("{PODS}/web/exec")).await.expect("an answer").status, 405);
    let out = server.kubectl().expect("kubectl").fails(&["exec", "web", "--", "ls"], "").await;
    assert!(out.stderr.contains("no pods run here"), "{}", out.stderr);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn policies_see_what_a_connection_is_made_with() {
    let (_server, client) = start().await;
    pod(&client, "web").await;
    let exec = &format!("{PODS}/web/exec?command=rm&command=-r&container=c");
    let safe = "object.container != 'c' || !('rm' in object.command) || namespaceObject.metadata.name != 'default'";
    with(&client, &about("pods/exec", safe), &binding("p", &["Deny"]), async || {
        denied(&get(&client, exec).await, "CONNECT PodExecOptions web");
        assert_eq!(get(&client, &format!("{PODS}/web/exec?command=ls&container=c")).await.status, 400);
        // What changes it comes first.
        let patch = patched("[JSONPatch{op: 'replace', path: '/command', value: ['ls']}]");
        let (changes, bound) = changing("pods/exec", patch);
        with(&client, &changes, &bound, async || assert_eq!(get(&client, exec).await.status, 400)).await;
    })
    .await;
    // There is no type to merge it by.
    let (merges, bound) = changing("pods/exec", applied("Object{container: 'other'}"));
    with(&client, &merges, &bound, async || {
        let answer = get(&client, exec).await;
        assert_eq!(answer.status, 403, "{}", answer.text());
        assert!(message(&answer).contains("no corresponding type for /v1, Kind=PodExecOptions"), "{}", answer.text());
    })
    .await;
}

/// A proxied request goes where admission lets it go, and nowhere that agents do not serve.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn policies_see_proxied_requests_to_nodes() {
    let (_server, client) = start().await;
    let node = json!({"metadata": {"name": "n"}});
    client.post("/api/v1/nodes", &node).await.expect("an answer").ok().expect("a node");
    let metrics = "/api/v1/nodes/n/proxy/metrics";
    with(&client, &about("nodes/proxy", "object.path != '/metrics'"), &binding("p", &["Deny"]), async || {
        denied(&get(&client, metrics).await, "CONNECT NodeProxyOptions n");
        let elsewhere = patched("[JSONPatch{op: 'replace', path: '/path', value: '/run/sh'}]");
        let (leads_astray, bound) = changing("nodes/proxy", elsewhere);
        with(&client, &leads_astray, &bound, async || assert_eq!(get(&client, metrics).await.status, 404)).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn policies_see_tokens_evictions_and_bindings() {
    let (_server, client) = start().await;
    robot(&client).await;
    let ask = async |seconds: u64| {
        let request = json!({"spec": {"expirationSeconds": seconds}});
        client.post(TOKEN, &request).await.expect("an answer")
    };
    let short =
        "object.spec.expirationSeconds <= 3600 && object.spec.audiences.size() == 1 && object.metadata.name == 'robot'";
    with(&client, &about("serviceaccounts/token", short), &binding("p", &["Deny"]), async || {
        denied(&ask(7200).await, "CREATE TokenRequest robot");
        assert!(ask(3600).await.ok().expect("a token")["status"]["token"].is_string());
        let (shortens, bound) =
            changing("serviceaccounts/token", applied("Object{spec: Object.spec{expirationSeconds: 600}}"));
        with(&client, &shortens, &bound, async || {
            let token = ask(7200).await.ok().expect("a token");
            assert_eq!(token["spec"]["expirationSeconds"], 600, "{token}");
        })
        .await;
    })
    .await;

    for name in ["one", "two", "three"] {
        pod(&client, name).await;
    }
    let evict = async |name: &str| {
        let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}});
        client.post(&format!("{PODS}/{name}/eviction"), &eviction).await.expect("an answer")
    };
    with(&client, &about("pods/eviction", "object.metadata.name != 'one'"), &binding("p", &["Deny"]), async || {
        denied(&evict("one").await, "CREATE Eviction one");
        assert_eq!(evict("two").await.status, 201);
    })
    .await;
    // Who may evict does so, whatever is said of deletions: nobody was asked for one.
    with(&client, &about("pods", "request.operation != 'DELETE'"), &binding("p", &["Deny"]), async || {
        assert_eq!(evict("one").await.status, 201);
    })
    .await;
    assert_eq!(get(&client, &format!("{PODS}/one")).await.status, 404);

    let bound = json!({"metadata": {"name": "three"}, "target": {"kind": "Node", "name": "bad"}});
    for (resource, path) in [
        ("pods/binding", format!("{PODS}/three/binding")),
        ("bindings", "/api/v1/namespaces/default/bindings".to_owned()),
    ] {
        with(&client, &about(resource, "object.target.name != 'bad'"), &binding("p", &["Deny"]), async || {
            denied(&client.post(&path, &bound).await.expect("an answer"), "CREATE Binding three");
        })
        .await;
    }
    let other = json!({"metadata": {"name": "other"}, "target": {"name": "good"}});
    assert_eq!(client.post(&format!("{PODS}/three/binding"), &other).await.expect("an answer").status, 400);
    assert!(get(&client, &format!("{PODS}/three")).await.json()["spec"]["nodeName"].is_null());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_policy_against_everything_leaves_a_way_out() {
    let (_server, client) = start().await;
    let mut nothing = policy("p", "request.userInfo.username == 'system:apiserver'");
    nothing["spec"]["matchConstraints"]["resourceRules"] = json!([{
        "apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*/*"]}]);
    let bound = binding("p", &["Deny"]);
    create(&client, &nothing).await;
    create(&client, &bound).await;
    assert_eq!(post(&client, "refused").await.status, 422);
    let review = json!({"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}});
    let reviews = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    assert_eq!(client.post(reviews, &review).await.expect("an answer").status, 201);
    let hook = json!({"metadata": {"name": "hook"}, "webhooks": []});
    let hooks = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    assert_eq!(client.post(hooks, &hook).await.expect("an answer").status, 422, "only policies are left out");
    let other = policy("other", "true");
    create(&client, &other).await;
    remove(&client, &other).await;
    remove(&client, &bound).await;
    remove(&client, &nothing).await;
    assert_eq!(post(&client, "allowed").await.status, 201);
    assert_eq!(get(&client, &format!("{MAPS}/refused")).await.status, 404);
    assert_eq!(get(&client, &path(&other)).await.json()["items"], json!([]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn webhooks_see_tokens_and_reviews() {
    let field = Field::new(StoreKind::Embedded).await;
    let client = &field.client;
    robot(client).await;
    let rules = |group: &str, resource: &str| json!({"rules": [{"operations": ["CREATE"], "apiGroups": [group], "apiVersions": ["*"], "resources": [resource]}]});
    field
        .hooks
        .on("/short", |_| Reply::patch(&json!([{"op": "add", "path": "/spec/expirationSeconds", "value": 600}])));
    field.hooks.on("/judge", |request| match request["object"]["spec"]["audiences"][0].as_str() {
        Some("evil") => Reply::deny("not for these"),
        _ => Reply::allow(),
    });
    let hook = |name: &str| field.hook(name, &rules("", "serviceaccounts/token"));
    field.configure(MUTATING, "short", &[hook("short")]).await;
    field.configure(VALIDATING, "judge", &[hook("judge")]).await;
    let made = client.post(TOKEN, &json!({"spec": {}})).await.expect("an answer").ok().expect("a token");
    assert_eq!(made["spec"]["expirationSeconds"], 600, "{made}");
    let seen = &field.hooks.asked("/judge")[0];
    assert_eq!(seen["kind"], json!({"group": "authentication.k8s.io", "version": "v1", "kind": "TokenRequest"}));
    assert_eq!(seen["resource"], json!({"group": "", "version": "v1", "resource": "serviceaccounts"}));
    assert_eq!((&seen["subResource"], &seen["name"]), (&json!("token"), &json!("robot")));
    assert_eq!(seen["object"]["metadata"]["namespace"], "default", "{seen}");
    assert!(seen["object"]["status"]["token"].as_str().unwrap_or_default().is_empty(), "no token is shown: {seen}");
    let evil = client.post(TOKEN, &json!({"spec": {"audiences": ["evil"]}})).await.expect("an answer");
    refused(&evil, 403, r#"admission webhook "judge.example.com" denied the request: not for these"#);
    let gone = client.post(&TOKEN.replace("robot", "gone"), &json!({"spec": {}})).await.expect("an answer");
    assert_eq!(gone.status, 404, "{}", gone.text());
    field.clear().await;

    field.hooks.on("/reviews", |_| Reply::deny("no questions"));
    field.configure(VALIDATING, "reviews", &[field.hook("reviews", &rules("authorization.k8s.io", "*"))]).await;
    let review = json!({"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}});
    let answer =
        client.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", &review).await.expect("an answer");
    refused(&answer, 403, r#"admission webhook "reviews.example.com" denied the request: no questions"#);
    assert_eq!(field.hooks.asked("/reviews")[0]["kind"]["kind"], "SelfSubjectAccessReview");
    field.clear().await;
}
