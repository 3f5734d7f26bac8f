//! An API server of somebody else behind ours: a second Croft, whose kinds are asked for through the first.

use anyhow::ensure;
use croft_testkit::{Call, Client, Croft, StoreKind, eventually};
use http::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

const SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
const SERVICE: &str = "/apis/apiregistration.k8s.io/v1/apiservices/v1.toys.example.com";
const TOYS: &str = "/apis/toys.example.com/v1/namespaces/default/toys";

fn definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "toys.toys.example.com"},
        "spec": {
            "group": "toys.example.com", "scope": "Namespaced", "names": {"plural": "toys", "kind": "Toy", "shortNames": ["ty"]},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "properties": {"color": {"type": "string"}}},
                    "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                }}},
            }],
        },
    })
}

fn toy(name: &str, color: &str) -> Value {
    json!({"apiVersion": "toys.example.com/v1", "kind": "Toy", "metadata": {"name": name}, "spec": {"color": color}})
}

/// The server in front, and the one behind it.
struct Field {
    front: Croft,
    client: Client,
    back: Croft,
    behind: Client,
}

async fn made(client: &Client, path: &str, object: &Value) -> Value {
    client.post(path, object).await.expect("an answer").ok().expect("it is made")
}

impl Field {
    async fn new() -> Self {
        // Few enough for one share of them to be one.
        let front = Croft::start_with(StoreKind::Embedded, &["--max-requests-inflight=8"]).await;
        let front = front.expect("the front starts");
        let client = front.client().expect("a client");
        let told = client.get("/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication");
        let told = told.await.expect("an answer").ok().expect("what servers behind need to know");
        assert_eq!(told["data"]["requestheader-username-headers"], "[\"X-Remote-User\"]");
        assert_eq!(told["data"]["requestheader-allowed-names"], "[\"front-proxy-client\"]");
        assert!(told["data"]["client-ca-file"].as_str().is_some_and(|pem| pem.starts_with("-----BEGIN")));
        let authority = front.data_dir().join("requestheader-ca.crt");
        let pem = told["data"]["requestheader-client-ca-file"].as_str().expect("the authority");
        std::fs::write(&authority, pem).expect("written");
        let file = authority.to_str().expect("a path").to_owned();
        let args = [
            "--requestheader-client-ca-file",
            &file,
            "--requestheader-allowed-names",
            "front-proxy-client",
            "--tls-san",
            "toys.default.svc",
        ];
        let back = Croft::start_with(StoreKind::Embedded, &args).await.expect("the back starts");
        let behind = back.client().expect("a client");
        made(&behind, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition()).await;
        Self { front, client, back, behind }
    }

    fn api_service(&self) -> Value {
        use base64::Engine as _;
        let ca = std::fs::read(self.back.data_dir().join("pki/ca.crt")).expect("the authority of the back");
        json!({
            "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": "v1.toys.example.com"},
            "spec": {
                "group": "toys.example.com", "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 15,
                "caBundle": base64::engine::general_purpose::STANDARD.encode(ca),
                "service": {"namespace": "default", "name": "toys", "port": 443},
            },
        })
    }

    /// Waits for the condition, which must come with this reason.
    async fn available(&self, status: &str, reason: &str) -> Value {
        eventually(&format!("Available={status} {reason}"), async || {
            let service = self.client.get(SERVICE).await?.ok()?;
            let conditions = service["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let found = conditions.into_iter().find(|condition| condition["type"] == "Available");
            let found = found.unwrap_or_default();
            ensure!(found["status"] == status && found["reason"] == reason, "{found}");
            Ok::<_, anyhow::Error>(found)
        })
        .await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_api_server_is_served_through_ours() {
    let mut field = Field::new().await;
    coming(&field).await;
    discovery(&field).await;
    requests(&field).await;
    users(&field).await;
    seats(&field).await;
    watches(&field).await;
    kubectl(&field).await;
    strangers(&field).await;
    going(&mut field).await;
}

/// What is missing is said, step by step, until nothing is.
async fn coming(field: &Field) {
    let before = field.client.get(TOYS).await.expect("an answer");
    assert_eq!(before.status, 404, "nobody serves it yet");
    made(&field.client, SERVICES, &field.api_service()).await;
    let missing = field.available("False", "ServiceNotFound").await;
    assert_eq!(missing["message"], "service/toys in \"default\" is not present");
    let down = field.client.get(TOYS).await.expect("an answer");
    assert_eq!((down.status, down.text().as_str()), (503, "service unavailable\n"));

    let address = field.back.address().expect("an address");
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "toys", "namespace": "default"},
        "spec": {"ports": [{"name": "https", "port": 443}]},
    });
    made(&field.client, "/api/v1/namespaces/default/services", &service).await;
    let missing = field.available("False", "MissingEndpoints").await;
    assert_eq!(
        missing["message"],
        "endpoints for service/toys in \"default\" have no addresses with port name \"https\""
    );
    // Endpoints may not be on loopback; what a name leads to may.
    let external =
        json!({"spec": {"type": "ExternalName", "externalName": "localhost", "clusterIP": null, "clusterIPs": null}});
    let path = "/api/v1/namespaces/default/services/toys";
    field.client.patch(path, "merge-patch", &external).await.expect("an answer").ok().expect("changed");
    let port = json!({"spec": {"service": {"port": address.port()}}});
    field.client.patch(SERVICE, "merge-patch", &port).await.expect("an answer").ok().expect("changed");
    let passed = field.available("True", "Passed").await;
    assert_eq!(passed["message"], "all checks passed");
}

async fn discovery(field: &Field) {
    let list = field.client.get("/apis").await.expect("an answer").ok().expect("groups");
    let groups = list["groups"].as_array().expect("groups");
    let toys = groups.iter().find(|group| group["name"] == "toys.example.com").expect("the group");
    assert_eq!(toys["preferredVersion"]["groupVersion"], "toys.example.com/v1");
    let group = field.client.get("/apis/toys.example.com").await.expect("an answer").ok().expect("the group");
    assert_eq!((&group["kind"], &group["versions"][0]["version"]), (&json!("APIGroup"), &json!("v1")));
    let resources = field.client.get("/apis/toys.example.com/v1").await.expect("an answer").ok().expect("resources");
    assert_eq!(resources["resources"][0]["name"], "toys");
    let found = aggregated(field).await;
    assert_eq!((&found["freshness"], &found["resources"][0]["resource"]), (&json!("Current"), &json!("toys")));
    assert_eq!(found["resources"][0]["subresources"][0]["subresource"], "status");
    assert_eq!(found["resources"][0]["responseKind"]["kind"], "Toy");
    let schema =
        field.client.get("/openapi/v3/apis/toys.example.com/v1").await.expect("an answer").ok().expect("a schema");
    assert!(schema["components"]["schemas"].get("com.example.toys.v1.Toy").is_some(), "{schema}");
}

/// The version as aggregated discovery tells it.
async fn aggregated(field: &Field) -> Value {
    let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let call = Call::new(Method::GET, "/apis").header("accept", accept);
    let list = field.client.send(call).await.expect("an answer").ok().expect("groups");
    let groups = list["items"].as_array().expect("groups");
    let toys = groups.iter().find(|group| group["metadata"]["name"] == "toys.example.com").expect("the group");
    toys["versions"][0].clone()
}

async fn requests(field: &Field) {
    let ball = made(&field.client, TOYS, &toy("ball", "red")).await;
    let there = field.behind.get(&format!("{TOYS}/ball")).await.expect("an answer").ok().expect("it is there");
    assert_eq!(there["metadata"]["uid"], ball["metadata"]["uid"]);
    let path = format!("{TOYS}/ball");
    let patched =
        field.client.patch(&path, "merge-patch", &json!({"spec": {"color": "blue"}})).await.expect("an answer");
    let mut patched = patched.ok().expect("patched");
    patched["spec"]["color"] = json!("green");
    field.client.put(&path, &patched).await.expect("an answer").ok().expect("replaced");
    let status = json!({"status": {"seen": true}});
    field.client.patch(&format!("{path}/status"), "merge-patch", &status).await.expect("an answer").ok().expect("told");
    let refused = field.client.post(TOYS, &toy("ball", "red")).await.expect("an answer");
    assert_eq!((refused.status, &refused.json()["reason"]), (409, &json!("AlreadyExists")), "the answer is theirs");
    let list = field.client.get(&format!("{TOYS}?limit=1")).await.expect("an answer").ok().expect("a list");
    assert_eq!(list["items"][0]["spec"]["color"], "green");
}

/// Who asks is decided here, and known there.
async fn users(field: &Field) {
    let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    let rules = json!([{"apiGroups": ["toys.example.com"], "resources": ["toys"], "verbs": ["get", "create"]}]);
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "toys"}, "rules": rules});
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "toys"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "toys"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "children"}],
    });
    let as_child = |call: Call| call.header("impersonate-user", "jane").header("impersonate-group", "children");
    let get = || as_child(Call::new(Method::GET, &format!("{TOYS}/ball")));
    let here = field.client.send(get()).await.expect("an answer");
    assert_eq!(here.status, 403);
    assert!(here.text().contains("User \\\"jane\\\" cannot get resource \\\"toys\\\""), "{}", here.text());
    made(&field.client, roles, &role).await;
    made(&field.client, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &binding).await;
    // Allowed here; the server behind looks for itself.
    let there = field.client.send(get()).await.expect("an answer");
    assert_eq!(there.status, 403, "{}", there.text());
    made(&field.behind, roles, &role).await;
    made(&field.behind, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &binding).await;
    let ball = field.client.send(get()).await.expect("an answer").ok().expect("both allow it");
    assert_eq!(ball["metadata"]["name"], "ball");
    // What a client says of itself in these headers is not passed on.
    let lying = get().header("x-remote-user", "admin").header("x-remote-group", "system:masters");
    let delete =
        as_child(Call::new(Method::DELETE, &format!("{TOYS}/ball"))).header("x-remote-group", "system:masters");
    field.client.send(lying).await.expect("an answer").ok().expect("still jane");
    assert_eq!(field.client.send(delete).await.expect("an answer").status, 403);
}

/// One seat is enough for a request, all the way to the answer of the server behind.
async fn seats(field: &Field) {
    let root = "/apis/flowcontrol.apiserver.k8s.io/v1";
    let level = json!({"metadata": {"name": "children"}, "spec": {"type": "Limited", "limited": {
        "nominalConcurrencyShares": 1, "borrowingLimitPercent": 0, "limitResponse": {"type": "Reject"}}}});
    made(&field.client, &format!("{root}/prioritylevelconfigurations"), &level).await;
    let all = json!({"verbs": ["*"], "apiGroups": ["toys.example.com"], "resources": ["*"], "namespaces": ["*"]});
    let jane = json!({"kind": "User", "user": {"name": "jane"}});
    let schema = json!({"metadata": {"name": "children"}, "spec": {"matchingPrecedence": 50,
        "priorityLevelConfiguration": {"name": "children"}, "rules": [{"subjects": [jane], "resourceRules": [all]}]}});
    let schema = made(&field.client, &format!("{root}/flowschemas"), &schema).await;
    let get = Call::new(Method::GET, &format!("{TOYS}/ball"))
        .header("impersonate-user", "jane")
        .header("impersonate-group", "children");
    // Nor does it have one while its body is still to come.
    let mut slow = field.front.connect(Some(&field.front.admin), &["http/1.1"]).await.expect("a connection");
    let begun = format!(
        "POST {TOYS} HTTP/1.1\r\nhost: x\r\nimpersonate-user: jane\r\nimpersonate-group: children\r\n\
         content-type: application/json\r\ncontent-length: 100\r\nexpect: 100-continue\r\n\r\n"
    );
    slow.write_all(begun.as_bytes()).await.expect("writes");
    slow.flush().await.expect("flushes");
    let mut asked = [0; 12];
    slow.read_exact(&mut asked).await.expect("an answer");
    assert_eq!(&asked, b"HTTP/1.1 100", "it is asked for its body");
    let answer = field.client.send(get).await.expect("an answer");
    assert_eq!(answer.header("x-kubernetes-pf-flowschema-uid"), schema["metadata"]["uid"].as_str());
    assert_eq!(answer.status, 200, "{}", answer.text());
}

async fn watches(field: &Field) {
    let call = Call::new(Method::GET, &format!("{TOYS}?watch=true"));
    let mut watch = field.client.open(call).await.expect("a watch");
    let event = watch.event().await.expect("an event").expect("one");
    assert_eq!((&event["type"], &event["object"]["metadata"]["name"]), (&json!("ADDED"), &json!("ball")));
    made(&field.behind, TOYS, &toy("kite", "white")).await;
    let event = watch.event().await.expect("an event").expect("one");
    assert_eq!((&event["type"], &event["object"]["metadata"]["name"]), (&json!("ADDED"), &json!("kite")));
}

async fn kubectl(field: &Field) {
    let kubectl = field.front.kubectl().expect("kubectl");
    let shown = kubectl.ok(&["get", "ty", "-o", "name"]).await.stdout;
    assert_eq!(
        shown.split_whitespace().collect::<Vec<_>>(),
        ["toy.toys.example.com/ball", "toy.toys.example.com/kite"]
    );
    kubectl.ok_with(&["apply", "-f", "-"], &toy("top", "black").to_string()).await;
    let color = kubectl.ok(&["get", "toys", "top", "-o", "jsonpath={.spec.color}"]).await.stdout;
    assert_eq!(color, "black");
    kubectl.ok(&["delete", "toy", "top"]).await;
    let listed = kubectl.ok(&["get", "apiservices", "v1.toys.example.com", "--no-headers"]).await.stdout;
    assert_eq!(listed.split_whitespace().take(3).collect::<Vec<_>>(), ["v1.toys.example.com", "default/toys", "True"]);
}

/// Nobody but the server in front is believed.
async fn strangers(field: &Field) {
    let anonymous = field.back.anonymous().expect("a client");
    let call = Call::new(Method::GET, &format!("{TOYS}/ball"))
        .header("x-remote-user", "admin")
        .header("x-remote-group", "system:masters");
    let refused = anonymous.send(call).await.expect("an answer");
    assert_eq!(refused.status, 403, "{}", refused.text());
    assert!(refused.text().contains("system:anonymous"), "{}", refused.text());
}

/// A server that is gone is said to be; the rest goes on.
async fn going(field: &mut Field) {
    made(&field.client, "/api/v1/namespaces", &json!({"metadata": {"name": "doomed"}})).await;
    made(&field.client, "/api/v1/namespaces/doomed/configmaps", &json!({"metadata": {"name": "a"}})).await;
    field.back.kill().expect("it is killed");
    field.available("False", "FailedDiscoveryCheck").await;
    let down = field.client.get(TOYS).await.expect("an answer");
    assert_eq!((down.status, down.text().as_str()), (503, "service unavailable\n"));
    assert_eq!(aggregated(field).await["freshness"], "Stale");
    field.client.delete("/api/v1/namespaces/doomed").await.expect("an answer").ok().expect("told to go");
    eventually("the namespace says what it waits for", async || {
        let namespace = field.client.get("/api/v1/namespaces/doomed").await?.ok()?;
        let conditions = namespace["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let found = conditions.iter().find(|found| found["type"] == "NamespaceDeletionDiscoveryFailure").cloned();
        let found = found.unwrap_or_default();
        ensure!(found["status"] == "True" && found["reason"] == "DiscoveryFailed", "{found}");
        let message = found["message"].as_str().unwrap_or_default();
        ensure!(message.contains("toys.example.com/v1: stale GroupVersion discovery"), "{message}");
        let maps = field.client.get("/api/v1/namespaces/doomed/configmaps").await?.ok()?;
        ensure!(maps["items"] == json!([]), "what can go goes: {maps}");
        Ok::<_, anyhow::Error>(())
    })
    .await;
    // Without the APIService there is nothing to wait for.
    field.client.delete(SERVICE).await.expect("an answer").ok().expect("removed");
    eventually("the namespace goes", async || {
        let answer = field.client.get("/api/v1/namespaces/doomed").await?;
        ensure!(answer.status == 404, "{}", answer.text());
        Ok::<_, anyhow::Error>(())
    })
    .await;
    assert_eq!(field.client.get(TOYS).await.expect("an answer").status, 404);
}
