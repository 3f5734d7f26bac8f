//! Behaviours of Kubernetes' conformance list about custom resource definitions.
//! `tests/conformance/behaviours.yaml` tells which test here stands for which behaviour.

use anyhow::{Result, ensure};
use croft_e2e::conformance_definition::{DEFINITIONS, defined, definition, get, open, refused, strict, thing, things};
use croft_e2e::storage::{deleted, made, patched};
use croft_testkit::{Call, Client, Croft, StoreKind, eventually};
use http::Method;
use serde_json::{Value, json};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn definitions_are_served_published_and_validated() {
    let server = Croft::start(StoreKind::Embedded).await.expect("the server starts");
    let client = &server.client().expect("a client");
    let status = json!({"conditions": [{"type": "StatusUpdate", "status": "True", "reason": "R", "message": "m"}]});
    defaults_are_filled_in(client).await;
    are_selected(client).await;
    are_published(client).await;
    are_explained(&server).await;
    hold_anything(&server).await;
    are_published_whatever_the_group(client).await;
    unknown_fields_are_found(client).await;
    are_watched(client).await;
    is_discovered(client).await;

    let path = &format!("{DEFINITIONS}/defaulted.machinery.example.com/status");
    let written = patched(client, path, &json!({"status": status})).await;
    assert_eq!(written["status"]["conditions"][0]["type"], "StatusUpdate");
    let mut object = get(client, path).await;
    object["status"]["conditions"][0]["message"] = json!("replaced");
    let replaced = client.put(path, &object).await.expect("an answer").ok().expect("replaced");
    assert_eq!(replaced["status"]["conditions"][0]["message"], "replaced");

    let selected = format!("{DEFINITIONS}?labelSelector=suite%3Dmachinery");
    let list = get(client, &selected).await;
    assert!(list["items"].as_array().is_some_and(|items| items.len() >= 4), "{list}");
    deleted(client, &selected).await;
    eventually("they are gone", async || {
        let list = client.get(&selected).await?.ok()?;
        ensure!(list["items"] == json!([]), "{list}");
        Ok::<_, anyhow::Error>(())
    })
    .await;
}

/// Of what is sent, and of what was stored before there was a default.
async fn defaults_are_filled_in(client: &Client) {
    let plain = json!({"type": "object", "properties": {"spec": {"type": "object",
        "properties": {"known": {"type": "string"}, "size": {"type": "integer"}}}}});
    let mut kind = definition("defaulted", "Defaulted", &[("v1", plain)]);
    defined(client, &kind).await;
    let path = things("v1", "defaulted");
    let before = made(client, &path, &thing("Defaulted", "old", &json!({"known": "x"}))).await;
    assert_eq!(before["spec"], json!({"known": "x"}));
    made(client, &path, &thing("Defaulted", "wanted", &json!({}))).await;
    kind["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = strict();
    patched(client, &format!("{DEFINITIONS}/defaulted.machinery.example.com"), &json!({"spec": kind["spec"]})).await;
    eventually("what is stored is shown with it", async || {
        let old = client.get(&format!("{path}/old")).await?.ok()?;
        ensure!(old["spec"] == json!({"known": "x", "size": 3}), "{old}");
        Ok::<_, anyhow::Error>(())
    })
    .await;
    let new = made(client, &path, &thing("Defaulted", "new", &json!({}))).await;
    assert_eq!(new["spec"], json!({"size": 3}));
    // What is asked for is stored, though it is shown already.
    patched(client, &format!("{path}/wanted"), &json!({"spec": {"size": 3}})).await;
    let fields = &mut kind["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"];
    *fields =
        json!({"known": {"type": "string"}, "size": {"type": "integer"}, "other": {"type": "string", "default": "y"}});
    patched(client, &format!("{DEFINITIONS}/defaulted.machinery.example.com"), &json!({"spec": kind["spec"]})).await;
    // What was stored with a default keeps it; what was stored before it loses it with the schema.
    eventually("another default is shown", async || {
        let new = client.get(&format!("{path}/new")).await?.ok()?;
        ensure!(new["spec"] == json!({"size": 3, "other": "y"}), "{new}");
        let old = client.get(&format!("{path}/old")).await?.ok()?;
        ensure!(old["spec"] == json!({"known": "x", "other": "y"}), "{old}");
        let wanted = client.get(&format!("{path}/wanted")).await?.ok()?;
        ensure!(wanted["spec"] == json!({"size": 3, "other": "y"}), "{wanted}");
        Ok::<_, anyhow::Error>(())
    })
    .await;
}

/// By a field that their definition names, in lists and in watches.
async fn are_selected(client: &Client) {
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"color": {"type": "string"}}}}});
    let mut kind = definition("shirts", "Shirt", &[("v1", schema)]);
    kind["spec"]["versions"][0]["selectableFields"] = json!([{"jsonPath": ".spec.color"}]);
    defined(client, &kind).await;
    let path = things("v1", "shirts");
    let blue = format!("{path}?fieldSelector=spec.color%3Dblue");
    let from = get(client, &blue).await["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
    let watch = Call::new(Method::GET, &format!("{blue}&watch=1&resourceVersion={from}"));
    let mut events = client.open(watch).await.expect("a watch");
    for (name, color) in [("a", "blue"), ("b", "green")] {
        made(client, &path, &thing("Shirt", name, &json!({"color": color}))).await;
    }
    let listed = async |name: &str| {
        let list = get(client, &blue).await;
        let names: Vec<_> = list["items"].as_array().into_iter().flatten().map(|it| &it["metadata"]["name"]).collect();
        assert_eq!(names, [name], "{list}");
    };
    listed("a").await;
    for (name, color) in [("b", "blue"), ("a", "green")] {
        patched(client, &format!("{path}/{name}"), &json!({"spec": {"color": color}})).await;
    }
    listed("b").await;
    deleted(client, &format!("{path}/b")).await;
    for (kind, name) in [("ADDED", "a"), ("ADDED", "b"), ("DELETED", "a"), ("DELETED", "b")] {
        let event = events.event().await.expect("an event").unwrap_or_default();
        assert_eq!((&event["type"], &event["object"]["metadata"]["name"]), (&json!(kind), &json!(name)), "{event}");
    }
}

async fn published(client: &Client, name: &str, check: impl Fn(&Value) -> Result<()>) {
    let name = format!("com.example.machinery.{name}");
    eventually("the schema is published", async || {
        let document = client.get("/openapi/v2").await?.ok()?;
        check(&document["definitions"][&name]).map_err(|error| error.context(name.clone()))
    })
    .await;
}

async fn are_published(client: &Client) {
    let described = json!({"type": "object", "properties": {"spec": {"type": "object", "required": ["known"],
        "properties": {"known": {"type": "string", "description": "what is known"}}}}});
    let embedded = json!({"type": "object", "properties": {"spec": {"type": "object",
        "x-kubernetes-preserve-unknown-fields": true}}});
    for kind in [
        definition("described", "Described", &[("v1", described.clone()), ("v2", described)]),
        definition("opened", "Opened", &[("v1", open())]),
        definition("embedded", "Embedded", &[("v1", embedded)]),
    ] {
        defined(client, &kind).await;
    }
    for version in ["v1", "v2"] {
        published(client, &format!("{version}.Described"), |schema| {
            let spec = &schema["properties"]["spec"];
            ensure!(spec["properties"]["known"]["description"] == "what is known", "{schema}");
            ensure!(spec["required"] == json!(["known"]), "{schema}");
            let kind = json!([{"group": "machinery.example.com", "version": version, "kind": "Described"}]);
            ensure!(schema["x-kubernetes-group-version-kind"] == kind, "{schema}");
            Ok(())
        })
        .await;
    }
    published(client, "v1.Opened", |schema| {
        ensure!(schema["type"] == "object" && schema["x-kubernetes-group-version-kind"].is_array(), "{schema}");
        Ok(())
    })
    .await;
    published(client, "v1.Embedded", |schema| {
        ensure!(schema["properties"]["spec"]["x-kubernetes-preserve-unknown-fields"] == true, "{schema}");
        Ok(())
    })
    .await;
    let path = format!("{DEFINITIONS}/described.machinery.example.com");
    let mut kind = get(client, &path).await;
    kind["spec"]["versions"][1]["name"] = json!("v3");
    client.put(&path, &kind).await.expect("an answer").ok().expect("renamed");
    published(client, "v3.Described", |schema| {
        ensure!(schema.is_object(), "not there");
        Ok(())
    })
    .await;
    published(client, "v2.Described", |schema| {
        ensure!(schema.is_null(), "still there");
        Ok(())
    })
    .await;
    kind = get(client, &path).await;
    kind["spec"]["versions"][1]["served"] = json!(false);
    client.put(&path, &kind).await.expect("an answer").ok().expect("no longer served");
    published(client, "v3.Described", |schema| {
        ensure!(schema.is_null(), "still there");
        Ok(())
    })
    .await;
    published(client, "v1.Described", |schema| {
        ensure!(schema.is_object(), "not there");
        Ok(())
    })
    .await;
}

/// What clients make of it.
async fn are_explained(server: &Croft) {
    let kubectl = server.kubectl().expect("kubectl");
    let explained = kubectl.ok(&["explain", "described.spec"]).await.stdout;
    assert!(explained.contains("what is known") && explained.contains("-required-"), "{explained}");
    let object = |spec: Value| thing("Described", "d", &spec).to_string();
    for (spec, text) in [(json!({}), "spec.known"), (json!({"known": "x", "more": 1}), "unknown field")] {
        let out = kubectl.fails(&["create", "-f", "-"], &object(spec)).await;
        assert!(out.stderr.contains(text), "{}", out.stderr);
    }
    kubectl.ok_with(&["create", "-f", "-"], &object(json!({"known": "x"}))).await;
    kubectl.ok_with(&["create", "-f", "-"], &thing("Opened", "o", &json!({"any": {"thing": 1}})).to_string()).await;
    kubectl.ok_with(&["create", "-f", "-"], &thing("Embedded", "e", &json!({"any": {"thing": 1}})).to_string()).await;
}

/// Created and applied as clients do that look at the schema first; and explained.
async fn hold_anything(server: &Croft) {
    let kubectl = server.kubectl().expect("kubectl");
    let mut object = thing("Opened", "test-cr", &Value::Null);
    object.as_object_mut().expect("an object").remove("spec");
    object["a"] = json!({"b": [{"c": "d"}]});
    for verb in ["create", "apply"] {
        kubectl.ok_with(&[verb, "-f", "-"], &object.to_string()).await;
        let shown = kubectl.ok(&["get", "opened", "test-cr", "-o", "json"]).await.json();
        assert_eq!(shown["a"], object["a"]);
        kubectl.ok(&["delete", "opened", "test-cr"]).await;
    }
    let explained = kubectl.ok(&["explain", "opened"]).await.stdout;
    assert!(explained.contains("KIND:") && explained.contains("Opened"), "{explained}");
}

async fn are_published_whatever_the_group(client: &Client) {
    let schemas = [("foos", "Foo", "foo.example.com", "v1"), ("waldos", "Waldo", "waldo.example.com", "v1beta1")];
    for (plural, kind, group, version) in schemas {
        let schema = json!({"type": "object", "description": format!("{kind} for Testing"), "properties": {
            "spec": {"type": "object", "description": format!("Specification of {kind}"), "properties": {
                "bars": {"type": "array", "items": {"type": "object", "required": ["name"], "properties": {
                    "name": {"type": "string", "description": "Name of Bar."}, "age": {"type": "string"}}}}}}}});
        let mut definition = definition(plural, kind, &[(version, schema)]);
        definition["metadata"]["name"] = json!(format!("{plural}.{group}"));
        definition["spec"]["group"] = json!(group);
        made(client, DEFINITIONS, &definition).await;
    }
    for (_, kind, group, version) in schemas {
        let name = format!("com.example.{}.{version}.{kind}", group.split('.').next().unwrap_or_default());
        eventually("the schema is published", async || {
            let document = client.get("/openapi/v2").await?.ok()?;
            let schema = &document["definitions"][&name];
            ensure!(schema["description"] == format!("{kind} for Testing"), "{name}: {schema}");
            let bars = &schema["properties"]["spec"]["properties"]["bars"]["items"];
            ensure!(bars["required"] == json!(["name"]), "{schema}");
            ensure!(bars["properties"]["name"]["description"] == "Name of Bar.", "{schema}");
            let kinds = json!([{"group": group, "version": version, "kind": kind}]);
            ensure!(schema["x-kubernetes-group-version-kind"] == kinds, "{schema}");
            Ok(())
        })
        .await;
    }
}

async fn unknown_fields_are_found(client: &Client) {
    let strictly = |path: &str| format!("{path}?fieldValidation=Strict");
    let opened = things("v1", "opened");
    made(client, &strictly(&opened), &thing("Opened", "free", &json!({"anything": {"goes": 1}}))).await;
    let applied = Call::new(Method::PATCH, &format!("{opened}/applied?fieldManager=m&fieldValidation=Strict"))
        .body("application/apply-patch+yaml", thing("Opened", "applied", &json!({"anything": 1})).to_string());
    client.send(applied).await.expect("an answer").ok().expect("applied");

    let twice =
        r#"{"apiVersion":"machinery.example.com/v1","kind":"Opened","metadata":{"name":"twice"},"spec":{"a":1,"a":2}}"#;
    let call = Call::new(Method::POST, &strictly(&opened)).body("application/json", twice);
    refused(&client.send(call).await.expect("an answer"), 400, "duplicate field \"spec.a\"");

    let mut object = thing("Opened", "meta", &json!({}));
    object["metadata"]["unknownMeta"] = json!("x");
    refused(
        &client.post(&strictly(&opened), &object).await.expect("an answer"),
        400,
        "unknown field \"metadata.unknownMeta\"",
    );
    let template = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"template":
        {"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true}}}}});
    defined(client, &definition("nested", "Nested", &[("v1", template)])).await;
    let inner = json!({"template": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "unknownMeta": "x"}}});
    let nested =
        client.post(&strictly(&things("v1", "nested")), &thing("Nested", "n", &inner)).await.expect("an answer");
    refused(&nested, 400, "unknown field \"spec.template.metadata.unknownMeta\"");

    let typed = json!({"metadata": {"name": "typed", "unknownMeta": "x"}});
    refused(
        &client.post(&strictly(MAPS), &typed).await.expect("an answer"),
        400,
        "unknown field \"metadata.unknownMeta\"",
    );
}

async fn are_watched(client: &Client) {
    let path = things("v1", "opened");
    let from = get(client, &path).await["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
    let watch = format!("{path}?watch=1&resourceVersion={from}");
    let mut events = client.open(Call::new(Method::GET, &watch)).await.expect("a watch");
    for name in ["seen-a", "seen-b"] {
        made(client, &path, &thing("Opened", name, &json!({}))).await;
    }
    patched(client, &format!("{path}/seen-a"), &json!({"spec": {"a": 1}})).await;
    for name in ["seen-a", "seen-b"] {
        deleted(client, &format!("{path}/{name}")).await;
    }
    for (kind, name) in
        [("ADDED", "seen-a"), ("ADDED", "seen-b"), ("MODIFIED", "seen-a"), ("DELETED", "seen-a"), ("DELETED", "seen-b")]
    {
        let event = events.event().await.expect("an event").unwrap_or_default();
        assert_eq!((&event["type"], &event["object"]["metadata"]["name"]), (&json!(kind), &json!(name)), "{event}");
    }
}

async fn is_discovered(client: &Client) {
    let accept = "application/json;v=v2;g=apidiscovery.k8s.io;as=APIGroupDiscoveryList";
    let call = Call::new(Method::GET, "/apis").header("accept", accept);
    let groups = client.send(call).await.expect("an answer").ok().expect("groups");
    assert_eq!(groups["kind"], "APIGroupDiscoveryList");
    let group =
        groups["items"].as_array().into_iter().flatten().find(|it| it["metadata"]["name"] == "machinery.example.com");
    let resources = group.expect("the group")["versions"][0]["resources"].as_array().cloned().expect("resources");
    let opened = resources.iter().find(|it| it["resource"] == "opened").expect("the resource");
    assert_eq!((&opened["responseKind"]["kind"], &opened["scope"]), (&json!("Opened"), &json!("Namespaced")));
}
