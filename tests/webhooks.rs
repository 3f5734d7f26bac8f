//! Admission webhooks: a real HTTPS server that is asked, refuses and changes.

use anyhow::{Context as _, ensure};
use croft_e2e::webhook_field::{Field, MAPS, MUTATING, REGISTRATION, VALIDATING, label, map, refused};
use croft_e2e::webhook_server::Reply;
use croft_testkit::{Call, StoreKind, eventually};
use http::Method;
use serde_json::{Value, json};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn webhooks_are_told_all_and_can_refuse() {
    let field = Field::new(StoreKind::Embedded).await;
    what_they_are_told(&field).await;
    refusals(&field).await;
    warnings(&field).await;
    deletions(&field).await;
    dry_runs(&field).await;
    webhooks_cannot_lock_themselves_in(&field).await;
    controllers_ask_too(&field).await;
}

async fn what_they_are_told(field: &Field) {
    field.hooks.on("/told", |_| Reply::allow());
    field.configure(VALIDATING, "told", &[field.hook("told", &json!({}))]).await;
    let path = format!("{MAPS}?fieldManager=test&fieldValidation=Strict");
    field.client.post(&path, &map("told", &json!({"a": "1"}))).await.expect("an answer").ok().expect("made");
    field.merge("told", &json!({"data": {"a": "2"}})).await.ok().expect("changed");
    let asked = field.hooks.asked("/told");
    let [create, update] = &asked[..] else { panic!("{asked:#?}") };
    assert_eq!(create["kind"], json!({"group": "", "version": "v1", "kind": "ConfigMap"}));
    assert_eq!(create["resource"], json!({"group": "", "version": "v1", "resource": "configmaps"}));
    assert_eq!((&create["requestKind"], &create["requestResource"]), (&create["kind"], &create["resource"]));
    assert_eq!((&create["operation"], &create["name"]), (&json!("CREATE"), &json!("told")));
    assert_eq!((&create["namespace"], &create["dryRun"]), (&json!("default"), &json!(false)));
    assert!(create["userInfo"]["groups"].as_array().is_some_and(|groups| groups.contains(&json!("system:masters"))));
    let options = json!({
        "kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1", "fieldManager": "test", "fieldValidation": "Strict",
    });
    assert_eq!(create["options"], options);
    assert_eq!((&create["object"]["data"]["a"], &create["oldObject"]), (&json!("1"), &Value::Null));
    assert!(create.get("subResource").is_none(), "{create}");
    assert_eq!(create["object"]["kind"], "ConfigMap");
    assert_eq!((&update["operation"], &update["options"]["kind"]), (&json!("UPDATE"), &json!("UpdateOptions")));
    assert_eq!((&update["object"]["data"]["a"], &update["oldObject"]["data"]["a"]), (&json!("2"), &json!("1")));
    // One connection serves them all.
    assert_eq!(field.hooks.connections(), 1);
    // What is only read is nobody's business.
    field.get("told").await.ok().expect("read");
    assert_eq!(field.hooks.asked("/told").len(), 2);
    field.clear().await;
}

async fn refusals(field: &Field) {
    field.hooks.on("/deny", |request| match request["object"]["data"]["how"].as_str() {
        Some("plain") => Reply::deny("not like this"),
        Some("mute") => Reply::Review(json!({"allowed": false})),
        Some("success") => {
            Reply::Review(json!({"allowed": false, "status": {"status": "Success", "code": 200, "reason": "Why"}}))
        }
        Some("details") => Reply::Review(json!({"allowed": false, "status": {
            "code": 422, "reason": "OwnWords", "message": "bad",
            "details": {"causes": [{"field": "data.how", "message": "bad", "reason": "FieldValueInvalid"}]}}})),
        _ => Reply::allow(),
    });
    field.configure(VALIDATING, "deny", &[field.hook("deny", &json!({}))]).await;
    let denied = r#"admission webhook "deny.example.com" denied the request"#;
    let plain = field.create("no", &json!({"how": "plain"})).await;
    refused(&plain, 403, &format!("{denied}: not like this"));
    assert_eq!(plain.json()["reason"], "Forbidden");
    refused(&field.create("no", &json!({"how": "mute"})).await, 400, &format!("{denied} without explanation"));
    refused(&field.create("no", &json!({"how": "success"})).await, 400, &format!("{denied}: Why"));
    let details = field.create("no", &json!({"how": "details"})).await;
    refused(&details, 422, &format!("{denied}: bad"));
    assert_eq!(details.json()["reason"], "OwnWords");
    assert_eq!(details.json()["details"]["causes"][0]["field"], "data.how");
    assert_eq!(field.get("no").await.status, 404, "nothing was stored");

    let kubectl = field.croft.kubectl().expect("kubectl");
    let out = kubectl.fails(&["create", "configmap", "no", "--from-literal=how=plain"], "").await;
    assert!(out.stderr.contains(&format!("{denied}: not like this")), "{}", out.stderr);
    kubectl.ok(&["create", "configmap", "yes", "--from-literal=how=fine"]).await;
    let patch = r#"{"data":{"how":"plain"}}"#;
    let out = kubectl.fails(&["patch", "configmap", "yes", "--type=merge", "-p", patch], "").await;
    assert!(out.stderr.contains("not like this"), "{}", out.stderr);
    let applied = map("yes", &json!({"how": "plain"})).to_string();
    let out = kubectl.fails(&["apply", "--server-side", "--force-conflicts", "-f", "-"], &applied).await;
    assert!(out.stderr.contains("not like this"), "{}", out.stderr);
    field.clear().await;
}

async fn warnings(field: &Field) {
    field.hooks.on("/warn", |request| {
        let allowed = request["object"]["data"]["fine"] == "yes";
        Reply::Review(json!({"allowed": allowed, "warnings": ["mind the gap", "x".repeat(9000)]}))
    });
    field.configure(VALIDATING, "warn", &[field.hook("warn", &json!({}))]).await;
    for fine in ["yes", "no"] {
        let answer = field.create(&format!("warn-{fine}"), &json!({"fine": fine})).await;
        let warnings: Vec<_> = answer.headers.get_all("warning").iter().filter_map(|text| text.to_str().ok()).collect();
        assert!(warnings.contains(&r#"299 - "mind the gap""#), "{fine}: {warnings:?}");
        assert!(warnings.iter().all(|text| text.len() < 300), "long ones are cut");
    }
    field.clear().await;
}

async fn deletions(field: &Field) {
    for name in ["held", "free"] {
        field.client.post(MAPS, &json!({"metadata": {"name": name, "labels": {"del": "x"}}})).await.expect("an answer");
    }
    field.hooks.on("/keep", |request| match request["oldObject"]["metadata"]["name"].as_str() {
        Some("held") => Reply::deny("it is held"),
        _ => Reply::allow(),
    });
    let rules = json!([{"operations": ["DELETE"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"]}]);
    let selected = json!({"rules": rules, "objectSelector": {"matchLabels": {"del": "x"}}});
    field.configure(VALIDATING, "keep", &[field.hook("keep", &selected)]).await;
    let one = |name: &str| format!("{MAPS}/{name}");
    let answer = field.client.delete(&one("held")).await.expect("an answer");
    refused(&answer, 403, r#"admission webhook "keep.example.com" denied the request: it is held"#);
    let body = json!({"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"});
    let call = Call::new(Method::DELETE, &one("free")).json(&body);
    field.client.send(call).await.expect("an answer").ok().expect("removed");
    let asked = field.hooks.asked("/keep");
    let last = asked.last().expect("it was asked");
    assert_eq!((&last["operation"], &last["object"]), (&json!("DELETE"), &Value::Null));
    assert_eq!(
        (&last["options"]["kind"], &last["options"]["propagationPolicy"]),
        (&json!("DeleteOptions"), &json!("Background"))
    );
    // Each object of a collection is asked about by itself.
    let all = field.client.delete(&format!("{MAPS}?labelSelector=del%3Dx")).await.expect("an answer");
    assert_eq!(all.status, 403, "{}", all.text());
    assert_eq!(field.get("held").await.status, 200);
    field.clear().await;
    field.client.delete(&format!("{MAPS}?labelSelector=del%3Dx")).await.expect("an answer").ok().expect("removed");
}

async fn dry_runs(field: &Field) {
    field.hooks.on("/dry", |_| Reply::patch(&label("seen", "dry")));
    field.configure(MUTATING, "dry", &[field.hook("dry", &json!({"sideEffects": "NoneOnDryRun"}))]).await;
    let path = format!("{MAPS}?dryRun=All");
    let answer = field.client.post(&path, &map("dry", &json!({}))).await.expect("an answer").ok().expect("tried");
    assert_eq!(answer["metadata"]["labels"]["seen"], "dry");
    let asked = field.hooks.asked("/dry");
    assert_eq!((&asked[0]["dryRun"], &asked[0]["options"]["dryRun"]), (&json!(true), &json!(["All"])));
    assert_eq!(field.get("dry").await.status, 404);
    for effects in ["Some", "Unknown"] {
        let hook = field.hook("dry", &json!({"sideEffects": effects}));
        let answer = field.try_configure(MUTATING, "effects", &[hook]).await;
        let cause = &answer.json()["details"]["causes"][0];
        assert_eq!((answer.status, &cause["field"]), (422, &json!("webhooks[0].sideEffects")), "{}", answer.text());
    }
    field.clear().await;
}

/// What configures webhooks is not sent to webhooks, so that a bad one can be removed.
async fn webhooks_cannot_lock_themselves_in(field: &Field) {
    field.hooks.on("/all", |_| Reply::deny("nothing may change"));
    let rules = json!([{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]}]);
    // Only what this test makes: the server's own parts are to go on.
    let ours = json!([{"name": "ours", "expression": "!request.userInfo.username.startsWith('system:apiserver')"}]);
    let hook = |name: &str| field.hook(name, &json!({"rules": rules, "matchConditions": ours}));
    field.hooks.on("/mark", |_| Reply::patch(&label("marked", "yes")));
    field.configure(VALIDATING, "all", &[hook("all")]).await;
    field.configure(MUTATING, "mark", &[hook("mark")]).await;
    assert_eq!(field.create("any", &json!({})).await.status, 403);
    assert!(!field.hooks.asked("/mark").is_empty());
    for plural in [MUTATING, VALIDATING] {
        field.configure(plural, "dummy", &[]).await;
        let (path, change) =
            (format!("{REGISTRATION}/{plural}/dummy"), json!({"metadata": {"annotations": {"a": "b"}}}));
        let dummy = field.client.patch(&path, "merge-patch", &change).await.expect("an answer").ok().expect("changed");
        assert_eq!((&dummy["metadata"]["labels"], &dummy["metadata"]["annotations"]["a"]), (&Value::Null, &json!("b")));
        field.client.delete(&path).await.expect("an answer").ok().expect("removed");
    }
    field.clear().await;
    field.made("any", &json!({})).await;
}

/// What Croft's own controllers write is seen by webhooks as well.
async fn controllers_ask_too(field: &Field) {
    field.hooks.on("/accounts", |_| Reply::allow());
    let rules =
        json!([{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["serviceaccounts"]}]);
    field
        .configure(VALIDATING, "accounts", &[field.hook("accounts", &json!({"rules": rules, "matchConditions": []}))])
        .await;
    let namespace = json!({"metadata": {"name": "asks"}});
    field.client.post("/api/v1/namespaces", &namespace).await.expect("an answer").ok().expect("made");
    eventually("the controller's write is seen", async || {
        let asked = field.hooks.asked("/accounts");
        let found = asked.iter().find(|request| request["namespace"] == "asks" && request["name"] == "default");
        let user = found.context("not asked yet")?["userInfo"]["username"].clone();
        ensure!(user == "system:apiserver", "{user}");
        anyhow::Ok(())
    })
    .await;
    field.clear().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn webhooks_change_objects() {
    let field = Field::new(StoreKind::Embedded).await;
    one_after_the_other(&field).await;
    once_more_if_needed(&field).await;
    defaults_and_validation_follow(&field).await;
    useless_patches(&field).await;
    subresources(&field).await;
    other_versions(&field).await;
}

async fn one_after_the_other(field: &Field) {
    field.hooks.on("/first", |_| Reply::patch(&json!([{"op": "add", "path": "/data/first", "value": "was here"}])));
    field.hooks.on("/second", |request| {
        let seen = request["object"]["data"]["first"].as_str().unwrap_or("nobody").to_owned();
        Reply::patch(&json!([{"op": "add", "path": "/data/second", "value": seen}]))
    });
    field.hooks.on("/judge", |request| {
        if request["object"]["data"]["second"] == "was here" { Reply::allow() } else { Reply::deny("out of order") }
    });
    // By the name of the configuration, whichever was made first; then by the place in it.
    field.configure(MUTATING, "b", &[field.hook("second", &json!({}))]).await;
    field.configure(MUTATING, "a", &[field.hook("first", &json!({}))]).await;
    field.configure(VALIDATING, "0", &[field.hook("judge", &json!({}))]).await;
    let made = field.made("turns", &json!({"own": "x"})).await;
    assert_eq!(made["data"], json!({"own": "x", "first": "was here", "second": "was here"}));
    assert_eq!(field.hooks.paths(), ["/first", "/second", "/judge"]);
    assert_eq!(field.get("turns").await.json()["data"], made["data"]);
    // What a webhook adds belongs to nobody, as upstream has it.
    let fields = &made["metadata"]["managedFields"][0]["fieldsV1"]["f:data"];
    assert!(fields.get("f:own").is_some() && fields.get("f:first").is_none(), "{fields}");
    // Nothing is left to change, so that nothing changes.
    let again = field.merge("turns", &json!({"data": {"own": "x"}})).await.ok().expect("accepted");
    assert_eq!(again["metadata"]["resourceVersion"], made["metadata"]["resourceVersion"]);
    field.clear().await;
}

async fn once_more_if_needed(field: &Field) {
    field.hooks.on("/early", |request| {
        let has = |key: &str| request["object"]["data"].get(key).is_some();
        if has("late") && !has("early") {
            return Reply::patch(&json!([{"op": "add", "path": "/data/early", "value": "saw it"}]));
        }
        Reply::allow()
    });
    field.hooks.on("/late", |_| Reply::patch(&json!([{"op": "add", "path": "/data/late", "value": "x"}])));
    field.hooks.on("/never", |_| Reply::allow());
    field.hooks.on("/after", |_| Reply::allow());
    let again = json!({"reinvocationPolicy": "IfNeeded"});
    let hooks = [
        field.hook("early", &again),
        field.hook("never", &json!({})),
        field.hook("late", &json!({})),
        field.hook("after", &again),
    ];
    field.configure(MUTATING, "again", &hooks).await;
    let made = field.made("again", &json!({"own": "x"})).await;
    assert_eq!(made["data"], json!({"own": "x", "late": "x", "early": "saw it"}));
    // The last one is asked again because the first one changed the object in the second round.
    assert_eq!(field.hooks.paths(), ["/early", "/never", "/late", "/after", "/early", "/after"]);
    field.clear().await;
}

async fn defaults_and_validation_follow(field: &Field) {
    let pods = "/api/v1/namespaces/default/pods";
    let rules = json!([{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}]);
    field.hooks.on("/sidecar", |request| {
        let name = request["object"]["metadata"]["annotations"]["sidecar"].as_str().unwrap_or_default().to_owned();
        Reply::patch(&json!([{"op": "add", "path": "/spec/containers/-", "value": {"name": name, "image": "side:1", "unknown": 1}}]))
    });
    field.configure(MUTATING, "sidecar", &[field.hook("sidecar", &json!({"rules": rules}))]).await;
    let pod = |name: &str, sidecar: &str| json!({"metadata": {"name": name, "annotations": {"sidecar": sidecar}}, "spec": {"containers": [{"name": "a", "image": "a:1"}]}});
    let made = field.client.post(pods, &pod("good", "side")).await.expect("an answer").ok().expect("made");
    let side = &made["spec"]["containers"][1];
    assert_eq!((&side["imagePullPolicy"], side.get("unknown")), (&json!("IfNotPresent"), None), "{side}");
    // The name of the first container cannot be that of another.
    let answer = field.client.post(pods, &pod("bad", "a")).await.expect("an answer");
    let causes = &answer.json()["details"]["causes"];
    assert_eq!((answer.status, &causes[0]["field"]), (422, &json!("spec.containers[1].name")), "{}", answer.text());
    field.clear().await;
}

async fn useless_patches(field: &Field) {
    field.made("patched", &json!({"how": "none"})).await;
    field.hooks.on("/patch", |request| {
        let add = |path: &str, value: Value| json!([{"op": "add", "path": path, "value": value}]);
        Reply::patch(&match request["object"]["data"]["how"].as_str() {
            Some("name") => add("/metadata/name", json!("other")),
            Some("namespace") => add("/metadata/namespace", json!("kube-system")),
            Some("kind") => add("/kind", json!("Secret")),
            Some("type") => add("/data", json!(["a"])),
            Some("missing") => json!([{"op": "remove", "path": "/data/missing"}]),
            Some("uid") => add("/metadata/uid", json!("made-up")),
            _ => json!([]),
        })
    });
    field.configure(MUTATING, "patch", &[field.hook("patch", &json!({}))]).await;
    let change = async |how: &str| field.merge("patched", &json!({"data": {"how": how}})).await;
    assert_eq!(change("name").await.status, 422);
    assert_eq!(change("namespace").await.status, 400);
    assert_eq!(change("uid").await.status, 422);
    for how in ["kind", "type", "missing"] {
        let answer = change(how).await;
        assert_eq!(
            (answer.status, &answer.json()["reason"]),
            (500, &json!("InternalError")),
            "{how}: {}",
            answer.text()
        );
    }
    change("nothing").await.ok().expect("an empty patch changes nothing");
    // A new object gets its own uid whatever is said.
    let made = field.made("fresh", &json!({"how": "uid"})).await;
    assert_ne!(made["metadata"]["uid"], "made-up");
    // There is nothing to patch in a deletion.
    field.hooks.on("/patch", |_| Reply::patch(&label("a", "b")));
    let answer = field.client.delete(&format!("{MAPS}/fresh")).await.expect("an answer");
    refused(
        &answer,
        500,
        "Internal error occurred: admission webhook \"patch.example.com\" attempted to modify the object, which is not \
         supported for this operation",
    );
    field.clear().await;
}

async fn subresources(field: &Field) {
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    let deployment = json!({
        "metadata": {"name": "web"},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"a": "b"}}, "template": {
            "metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "a", "image": "a:1"}]}}},
    });
    field.client.post(deployments, &deployment).await.expect("an answer").ok().expect("made");
    let rule = |resource: &str| json!({"rules": [{"operations": ["UPDATE"], "apiGroups": ["apps"], "apiVersions": ["v1"], "resources": [resource]}]});
    field.hooks.on("/scale", |_| Reply::patch(&json!([{"op": "replace", "path": "/spec/replicas", "value": 3}])));
    for path in ["/whole", "/status"] {
        field.hooks.on(path, |_| Reply::allow());
    }
    let hooks = [
        field.hook("scale", &rule("deployments/scale")),
        field.hook("whole", &rule("deployments")),
        field.hook("status", &rule("*/status")),
    ];
    field.configure(MUTATING, "subresources", &hooks).await;
    let (path, nine) = (format!("{deployments}/web/scale"), json!({"spec": {"replicas": 9}}));
    let scaled = field.client.patch(&path, "merge-patch", &nine).await.expect("an answer").ok().expect("scaled");
    assert_eq!(scaled["spec"]["replicas"], 3);
    let asked = &field.hooks.asked("/scale")[0];
    assert_eq!(asked["kind"], json!({"group": "autoscaling", "version": "v1", "kind": "Scale"}));
    assert_eq!((&asked["subResource"], &asked["resource"]["resource"]), (&json!("scale"), &json!("deployments")));
    assert_eq!((&asked["object"]["spec"]["replicas"], &asked["oldObject"]["spec"]["replicas"]), (&json!(9), &json!(1)));
    assert_eq!(field.hooks.asked("/whole").len(), 0, "the whole was not written by the client");
    let status = json!({"status": {"observedGeneration": 1}});
    let path = format!("{deployments}/web/status");
    field.client.patch(&path, "merge-patch", &status).await.expect("an answer").ok().expect("written");
    assert!(field.hooks.asked("/status").iter().any(|asked| asked["subResource"] == "status"));
    field.clear().await;
}

/// A webhook that knows one version of a kind sees objects of the others in it.
async fn other_versions(field: &Field) {
    let version = |name: &str, storage: bool| {
        json!({"name": name, "served": true, "storage": storage, "schema": {"openAPIV3Schema": {"type": "object",
            "properties": {"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}}})
    };
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
            "versions": [version("v1", true), version("v2", false)]},
    });
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    field.client.post(definitions, &definition).await.expect("an answer").ok().expect("defined");
    let rules = json!([{"operations": ["CREATE"], "apiGroups": ["example.com"], "apiVersions": ["v1"], "resources": ["things"]}]);
    field.hooks.on("/same", |_| Reply::patch(&label("seen", "v1")));
    field.hooks.on("/exact", |_| Reply::deny("not asked for this version"));
    let hooks = [
        field.hook("same", &json!({"rules": rules})),
        field.hook("exact", &json!({"rules": rules, "matchPolicy": "Exact"})),
    ];
    field.configure(MUTATING, "versions", &hooks).await;
    let things = "/apis/example.com/v2/namespaces/default/things";
    let thing = json!({"apiVersion": "example.com/v2", "kind": "Thing", "metadata": {"name": "a"}, "spec": {"x": 1}});
    let made = field.client.post(things, &thing).await.expect("an answer").ok().expect("made");
    assert_eq!((&made["apiVersion"], &made["metadata"]["labels"]["seen"]), (&json!("example.com/v2"), &json!("v1")));
    let asked = &field.hooks.asked("/same")[0];
    assert_eq!((&asked["kind"]["version"], &asked["requestKind"]["version"]), (&json!("v1"), &json!("v2")));
    assert_eq!(
        (&asked["resource"]["version"], &asked["object"]["apiVersion"]),
        (&json!("v1"), &json!("example.com/v1"))
    );
    assert!(field.hooks.asked("/exact").is_empty());
    field.clear().await;
}
