//! Behaviours of Kubernetes' conformance list about webhooks, and what no other suite has.
//! `tests/conformance/behaviours.yaml` tells which test here stands for which behaviour.

use anyhow::ensure;
use croft_e2e::conformance_definition::{DEFINITIONS, defined, definition, get, refused, strict, thing, things};
use croft_e2e::storage::{deleted, made, patched};
use croft_e2e::webhook_field::{Field, MAPS, MUTATING, REGISTRATION, VALIDATING, label};
use croft_e2e::webhook_server::Reply;
use croft_testkit::{Call, Client, Croft, StoreKind, eventually};
use http::Method;
use serde_json::{Value, json};

const SECRETS: &str = "/api/v1/namespaces/default/secrets";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn configurations_of_webhooks_count_as_they_are_written() {
    let field = Field::new(StoreKind::Embedded).await;
    field.hooks.on("/add", |request| match request["operation"].as_str() {
        Some("CREATE") => Reply::patch(&label("seen", "yes")),
        _ => Reply::allow(),
    });
    field.hooks.on("/no", |request| match request["operation"].as_str() {
        Some("CREATE") => Reply::deny("no"),
        _ => Reply::allow(),
    });
    for (plural, name) in [(MUTATING, "add"), (VALIDATING, "no")] {
        are_listed(&field, plural, name).await;
        are_changed(&field, plural, name).await;
        have_conditions(&field, plural, name).await;
    }
}

async fn is_asked(field: &Field) -> bool {
    is_asked_about(field, "probe").await
}

/// Whether a ConfigMap is changed or refused by it.
async fn is_asked_about(field: &Field, name: &str) -> bool {
    let answer = field.create(name, &json!({})).await;
    let seen = answer.status == 403 || answer.json()["metadata"]["labels"]["seen"] == "yes";
    if answer.status == 201 {
        deleted(&field.client, &format!("{MAPS}/{name}")).await;
    }
    seen
}

async fn are_listed(field: &Field, plural: &str, name: &str) {
    for configuration in ["one", "two"] {
        field.configure(plural, configuration, &[field.hook(name, &json!({}))]).await;
        let path = format!("{REGISTRATION}/{plural}/{configuration}");
        patched(&field.client, &path, &json!({"metadata": {"labels": {"suite": "lists"}}})).await;
    }
    field.configure(plural, "other", &[]).await;
    let selected = format!("{REGISTRATION}/{plural}?labelSelector=suite%3Dlists");
    let list = get(&field.client, &selected).await;
    assert_eq!(list["items"].as_array().map(Vec::len), Some(2), "{list}");
    assert!(is_asked(field).await);
    deleted(&field.client, &selected).await;
    assert!(!is_asked(field).await);
    assert_eq!(
        get(&field.client, &format!("{REGISTRATION}/{plural}")).await["items"].as_array().map(Vec::len),
        Some(1)
    );
    field.clear().await;
}

async fn are_changed(field: &Field, plural: &str, name: &str) {
    field.configure(plural, "changing", &[field.hook(name, &json!({}))]).await;
    let path = &format!("{REGISTRATION}/{plural}/changing");
    assert!(is_asked(field).await);
    let mut object = get(&field.client, path).await;
    object["webhooks"][0]["rules"][0]["operations"] = json!(["UPDATE"]);
    field.client.put(path, &object).await.expect("an answer").ok().expect("updated");
    assert!(!is_asked(field).await);
    let patch = json!([{"op": "replace", "path": "/webhooks/0/rules/0/operations", "value": ["CREATE"]}]);
    field.client.patch(path, "json-patch", &patch).await.expect("an answer").ok().expect("patched");
    assert!(is_asked(field).await);
    field.clear().await;
}

async fn have_conditions(field: &Field, plural: &str, name: &str) {
    let others = json!([{"name": "others", "expression": "request.name != 'probe'"}]);
    field.configure(plural, "conditions", &[field.hook(name, &json!({"matchConditions": others}))]).await;
    let path = &format!("{REGISTRATION}/{plural}/conditions");
    let mut object = get(&field.client, path).await;
    assert_eq!(object["webhooks"][0]["matchConditions"], others);
    assert!(!is_asked(field).await && is_asked_about(field, "another").await);
    let this = json!([{"name": "this", "expression": "request.name == 'probe'"}]);
    object["webhooks"][0]["matchConditions"] = this.clone();
    let updated = field.client.put(path, &object).await.expect("an answer").ok().expect("updated");
    assert_eq!(updated["webhooks"][0]["matchConditions"], this);
    assert!(is_asked(field).await && !is_asked_about(field, "another").await);
    field.clear().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn webhooks_have_their_say_about_pods_definitions_and_custom_resources() {
    let field = Field::new(StoreKind::Embedded).await;
    let client = &field.client;
    field.hooks.on("/no", |request| {
        let objects = [&request["object"], &request["oldObject"]];
        let is_bad = |object: &&Value| object["metadata"]["labels"]["bad"] == "yes";
        if objects.iter().any(is_bad) { Reply::deny("it is bad") } else { Reply::allow() }
    });
    let rules = json!([{"operations": ["*"], "apiGroups": ["", "apiextensions.k8s.io", "machinery.example.com"],
        "apiVersions": ["*"], "resources": ["pods", "configmaps", "customresourcedefinitions", "things"]}]);
    field.configure(VALIDATING, "no", &[field.hook("no", &json!({"rules": rules}))]).await;
    let bad = |mut object: Value| {
        object["metadata"]["labels"] = json!({"bad": "yes"});
        object
    };
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let kind = definition("things", "Thing", &[("v1", strict()), ("v2", strict())]);
    for (path, object) in
        [("/api/v1/namespaces/default/pods", &pod), (MAPS, &json!({"metadata": {"name": "m"}})), (DEFINITIONS, &kind)]
    {
        refused(
            &client.post(path, &bad(object.clone())).await.expect("an answer"),
            403,
            "denied the request: it is bad",
        );
    }
    assert_eq!(
        client.get(&format!("{DEFINITIONS}/things.machinery.example.com")).await.expect("an answer").status,
        404
    );
    defined(client, &kind).await;

    // Custom resources: creation, update and deletion.
    let path = &format!("{}/a", things("v1", "things"));
    let object = thing("Thing", "a", &json!({"known": "x"}));
    refused(&client.post(&things("v1", "things"), &bad(object.clone())).await.expect("an answer"), 403, "it is bad");
    made(client, &things("v1", "things"), &object).await;
    let spoil = json!({"metadata": {"labels": {"bad": "yes"}}});
    refused(&client.patch(path, "merge-patch", &spoil).await.expect("an answer"), 403, "it is bad");
    field.clear().await;
    patched(client, path, &spoil).await;
    field.configure(VALIDATING, "no", &[field.hook("no", &json!({"rules": rules}))]).await;
    refused(&client.delete(path).await.expect("an answer"), 403, "it is bad");
    field.clear().await;
    deleted(client, path).await;
    mutated_whatever_the_version(&field, &kind).await;
    attaching_is_denied(&field).await;
}

/// To attach to a pod is a connection, which a webhook can deny whatever the pod does.
async fn attaching_is_denied(field: &Field) {
    let client = &field.client;
    field.hooks.on("/attach", |request| match request["operation"].as_str() {
        Some("CONNECT") => Reply::deny("attaching to pod 'to-be-attached-pod' is not allowed"),
        _ => Reply::allow(),
    });
    let rules =
        json!([{"operations": ["CONNECT"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods/attach"]}]);
    field.configure(VALIDATING, "attach", &[field.hook("attach", &json!({"rules": rules}))]).await;
    let name = "to-be-attached-pod";
    let pod = json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c1", "image": "i"}]}});
    made(client, "/api/v1/namespaces/default/pods", &pod).await;
    let kubectl = field.croft.kubectl().expect("kubectl");
    let out = kubectl.fails(&["attach", name, "-i", "-c=c1"], "").await;
    assert!(out.stderr.contains("attaching to pod 'to-be-attached-pod' is not allowed"), "{}", out.stderr);
    let path = format!("/api/v1/namespaces/default/pods/{name}/attach?container=c1&stdin=true");
    refused(&client.get(&path).await.expect("an answer"), 403, "denied the request: attaching to pod");
    let asked = field.hooks.asked("/attach").pop().unwrap_or_default();
    assert_eq!(asked["kind"], json!({"group": "", "version": "v1", "kind": "PodAttachOptions"}));
    assert_eq!(
        (&asked["subResource"], &asked["name"], &asked["options"]),
        (&json!("attach"), &json!(name), &Value::Null)
    );
    assert_eq!(
        asked["object"],
        json!({"kind": "PodAttachOptions", "apiVersion": "v1", "stdin": true, "stdout": true, "stderr": true, "container": "c1"})
    );
    field.clear().await;
    refused(&client.get(&path).await.expect("an answer"), 400, "no pods run here: there is nothing to attach to");
}

/// What a webhook adds and the schema does not have is pruned; and it goes on when another version is stored.
async fn mutated_whatever_the_version(field: &Field, kind: &Value) {
    let client = &field.client;
    field.hooks.on("/fill", |_| {
        Reply::patch(&json!([{"op": "add", "path": "/spec/known", "value": "filled"},
            {"op": "add", "path": "/spec/unknown", "value": "pruned"}]))
    });
    let rules = json!([{"operations": ["CREATE", "UPDATE"], "apiGroups": ["machinery.example.com"], "apiVersions": ["v1"],
        "resources": ["things"]}]);
    field.configure(MUTATING, "fill", &[field.hook("fill", &json!({"rules": rules}))]).await;
    let first = made(client, &things("v1", "things"), &thing("Thing", "first", &json!({}))).await;
    assert_eq!(first["spec"], json!({"known": "filled", "size": 3}));
    let path = format!("{DEFINITIONS}/{}", kind["metadata"]["name"].as_str().expect("a name"));
    let mut stored = kind["spec"]["versions"].clone();
    (stored[0]["storage"], stored[1]["storage"]) = (json!(false), json!(true));
    patched(client, &path, &json!({"spec": {"versions": stored}})).await;
    eventually("the other version is stored", async || {
        let kind = client.get(&path).await?.ok()?;
        ensure!(kind["status"]["storedVersions"] == json!(["v1", "v2"]), "{kind}");
        Ok::<_, anyhow::Error>(())
    })
    .await;
    let change = json!({"spec": {"known": "other"}});
    let changed = patched(client, &format!("{}/first", things("v1", "things")), &change).await;
    assert_eq!(
        (&changed["apiVersion"], &changed["spec"]["known"]),
        (&json!("machinery.example.com/v1"), &json!("filled"))
    );
    let shown = get(client, &format!("{}/first", things("v2", "things"))).await;
    assert_eq!(shown["spec"], json!({"known": "filled", "size": 3}));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn small_promises_are_kept() {
    let server = Croft::start(StoreKind::Embedded).await.expect("the server starts");
    let client = &server.client().expect("a client");
    for (path, field) in [(MAPS, "data"), (SECRETS, "stringData")] {
        let keyless = json!({"metadata": {"name": "keyless"}, field: {"": "x"}});
        refused(&client.post(path, &keyless).await.expect("an answer"), 422, "data[]: Invalid value");
        fixed(client, path, field).await;
    }
    let service = get(client, "/api/v1/namespaces/default/services/kubernetes").await;
    let port = service["spec"]["ports"].as_array().into_iter().flatten().find(|port| port["name"] == "https");
    assert_eq!(port.map(|port| &port["port"]), Some(&json!(443)), "{service}");

    reviews_are_no_tables(client).await;
    circles_do_not_hold(client).await;
    another_owner_holds(client).await;
    let address = json!({"spec": {"parentRef": {"resource": "services", "namespace": "default", "name": "s"}}});
    addresses(client, &address).await;
}

async fn reviews_are_no_tables(client: &Client) {
    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {"verb": "get", "resource": "pods", "namespace": "default"}}});
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    for (accept, status) in [(table, 406), (&format!("{table},application/json"), 201)] {
        let call = Call::new(Method::POST, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews");
        let answer = client.send(call.header("accept", accept).json(&review)).await.expect("an answer");
        assert_eq!(answer.status, status, "{}", answer.text());
    }
}

/// What says that it does not change, does not, nor does it stop saying so.
async fn fixed(client: &Client, path: &str, field: &str) {
    let (one, object) = (format!("{path}/fixed"), json!({"metadata": {"name": "fixed"}, field: {"a": "b"}}));
    made(client, path, &object).await;
    patched(client, &one, &json!({field: {"a": "c"}})).await;
    patched(client, &one, &json!({"immutable": true})).await;
    for change in [json!({field: {"a": "d"}}), json!({"immutable": false}), json!({"immutable": null})] {
        let answer = client.patch(&one, "merge-patch", &change).await.expect("an answer");
        refused(&answer, 422, "field is immutable when `immutable` is set");
    }
    patched(client, &one, &json!({"metadata": {"labels": {"a": "b"}}})).await;
    deleted(client, &one).await;
}

fn owned_by(owners: &[(&str, &Value)]) -> Value {
    let owners: Vec<Value> = owners
        .iter()
        .map(|(name, uid)| {
            json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid, "blockOwnerDeletion": true})
        })
        .collect();
    json!({"metadata": {"ownerReferences": owners}})
}

/// Three that own each other in a circle all go when one does.
async fn circles_do_not_hold(client: &Client) {
    let names = ["circle-a", "circle-b", "circle-c"];
    let mut uids = Vec::new();
    for name in names {
        uids.push(made(client, MAPS, &json!({"metadata": {"name": name}})).await["metadata"]["uid"].clone());
    }
    for (index, name) in names.iter().enumerate() {
        let owner = (index + 2) % 3;
        patched(client, &format!("{MAPS}/{name}"), &owned_by(&[(names[owner], &uids[owner])])).await;
    }
    let foreground = json!({"propagationPolicy": "Foreground"});
    let call = Call::new(Method::DELETE, &format!("{MAPS}/circle-a")).json(&foreground);
    client.send(call).await.expect("an answer").ok().expect("deleted");
    for name in names {
        gone(client, &format!("{MAPS}/{name}")).await;
    }
}

async fn gone(client: &Client, path: &str) {
    eventually("it is gone", async || {
        let answer = client.get(path).await?;
        ensure!(answer.status == 404, "{}", answer.text());
        Ok::<_, anyhow::Error>(())
    })
    .await;
}

/// What also has an owner that stays does not go with the one that waits for it.
async fn another_owner_holds(client: &Client) {
    let dying = made(client, MAPS, &json!({"metadata": {"name": "dying"}})).await["metadata"]["uid"].clone();
    let staying = made(client, MAPS, &json!({"metadata": {"name": "staying"}})).await["metadata"]["uid"].clone();
    for (name, owners) in [("one", vec![("dying", &dying)]), ("both", vec![("dying", &dying), ("staying", &staying)])] {
        let mut object = owned_by(&owners);
        object["metadata"]["name"] = json!(name);
        made(client, SECRETS, &object).await;
    }
    let foreground = json!({"propagationPolicy": "Foreground"});
    let call = Call::new(Method::DELETE, &format!("{MAPS}/dying")).json(&foreground);
    client.send(call).await.expect("an answer").ok().expect("deleted");
    gone(client, &format!("{MAPS}/dying")).await;
    gone(client, &format!("{SECRETS}/one")).await;
    let both = get(client, &format!("{SECRETS}/both")).await;
    assert!(both["metadata"]["deletionTimestamp"].is_null(), "{both}");
    let owners = both["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
    assert!(owners.len() == 1 && owners[0]["name"] == "staying", "{both}");
}

/// `IPAddress` and `ServiceCIDR`, whose names are addresses or whose ranges must not change.
async fn addresses(client: &Client, address: &Value) {
    let root = "/apis/networking.k8s.io/v1";
    let mut ip = address.clone();
    ip["metadata"] = json!({"name": "192.0.2.7"});
    let range = json!({"metadata": {"name": "more"}, "spec": {"cidrs": ["192.0.2.0/24"]}});
    for (plural, object) in [("ipaddresses", &ip), ("servicecidrs", &range)] {
        let path = &format!("{root}/{plural}");
        let name = object["metadata"]["name"].as_str().expect("a name");
        let from = get(client, path).await["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
        let watch = format!("{path}?watch=1&fieldSelector=metadata.name%3D{name}&resourceVersion={from}");
        let mut events = client.open(Call::new(Method::GET, &watch)).await.expect("a watch");
        made(client, path, object).await;
        let one = &format!("{path}/{name}");
        assert_eq!(get(client, one).await["spec"], object["spec"]);
        patched(client, one, &json!({"metadata": {"labels": {"suite": "machinery"}}})).await;
        let mut read = get(client, one).await;
        read["metadata"]["annotations"] = json!({"updated": "yes"});
        client.put(one, &read).await.expect("an answer").ok().expect("updated");
        let list = get(client, &format!("{path}?labelSelector=suite%3Dmachinery")).await;
        assert_eq!(list["items"][0]["metadata"]["annotations"]["updated"], "yes", "{list}");
        deleted(client, &format!("{path}?labelSelector=suite%3Dmachinery")).await;
        gone(client, one).await;
        let mut seen = Vec::new();
        while seen.last() != Some(&json!("DELETED")) {
            seen.push(events.event().await.expect("an event").unwrap_or_default()["type"].clone());
        }
        assert_eq!((&seen[0], &seen[1]), (&json!("ADDED"), &json!("MODIFIED")));
    }
}
