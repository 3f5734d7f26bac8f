//! Match conditions of webhooks: what they can ask, and what happens where they cannot be told.

use std::time::{Duration, Instant};

use croft_e2e::webhook_field::{Field, MAPS, MUTATING, VALIDATING, map, refused};
use croft_e2e::webhook_server::Reply;
use croft_testkit::{Answer, Call, StoreKind};
use http::Method;
use serde_json::{Value, json};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conditions_ask_and_fail_as_they_do_upstream() {
    let field = Field::new(StoreKind::Embedded).await;
    field.hooks.on("/deny", |_| Reply::deny("no"));
    roles_let_pass(&field).await;
    what_does_not_compile_is_refused(&field).await;
    failures_follow_the_policy(&field).await;
    what_is_deleted_is_the_old_object(&field).await;
    too_much_work_is_a_failure(&field).await;
}

/// A webhook that denies everything, if these conditions hold.
fn denying(field: &Field, failure_policy: &str, conditions: &[&str]) -> Value {
    let condition = |(index, text): (usize, &&str)| json!({"name": format!("c{index}"), "expression": text});
    let conditions: Vec<Value> = conditions.iter().enumerate().map(condition).collect();
    field.hook("deny", &json!({"matchConditions": conditions, "failurePolicy": failure_policy}))
}

async fn create_as(field: &Field, user: &str, name: &str) -> Answer {
    let call = Call::new(Method::POST, MAPS).header("impersonate-user", user).json(&map(name, &json!({})));
    field.client.send(call).await.expect("an answer")
}

async fn roles_let_pass(field: &Field) {
    for (user, verbs) in [("ann", json!(["create", "breakglass"])), ("bob", json!(["create"]))] {
        let role = json!({"metadata": {"name": user}, "rules": [
            {"apiGroups": [""], "resources": ["configmaps"], "verbs": verbs}]});
        let binding = json!({"metadata": {"name": user},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": user},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}]});
        field.client.post(&format!("{RBAC}/roles"), &role).await.expect("an answer").ok().expect("made");
        field.client.post(&format!("{RBAC}/rolebindings"), &binding).await.expect("an answer").ok().expect("made");
    }
    let denied = r#"admission webhook "deny.example.com" denied the request: no"#;
    let table = [
        "!authorizer.group('').resource('configmaps').namespace('default').check('breakglass').allowed()",
        "!authorizer.requestResource.check('breakglass').allowed()",
        "request.userInfo.username == 'bob' && !authorizer.serviceAccount('default', 'x').path('/secret').check('get').allowed()",
        "authorizer.requestResource.subresource('status').check('breakglass').reason() == '' && request.userInfo.username != 'ann'",
    ];
    for (index, condition) in table.into_iter().enumerate() {
        field.configure(VALIDATING, "deny", &[denying(field, "Fail", &[condition])]).await;
        refused(&create_as(field, "bob", "bobs").await, 403, denied);
        assert_eq!(create_as(field, "ann", &format!("anns-{index}")).await.status, 201, "{condition}");
        assert_eq!(field.hooks.asked("/deny").len(), 1, "{condition}");
        field.clear().await;
    }
}

async fn what_does_not_compile_is_refused(field: &Field) {
    let table = [
        ("object.x =", "compilation failed: "),
        ("object.metadata.name.nope()", "undeclared reference to 'nope'"),
        ("params.x == 1", "undeclared reference to 'params' (in container '')"),
        ("variables.x == 1", "undeclared reference to 'variables' (in container '')"),
        ("request.nope == ''", "undefined field 'nope'"),
        ("'text'", "must evaluate to bool"),
        ("authorizer.group('').resource('pods').check('get')", "must evaluate to bool"),
        ("authorizer.group('').check('get').allowed()", "found no matching overload for 'check'"),
        ("authorizer.nope('x').allowed()", "found no matching overload for 'nope'"),
    ];
    let kinds = table.iter().flat_map(|row| [(MUTATING, row), (VALIDATING, row)]);
    for (plural, (condition, wanted)) in kinds {
        let answer = field.try_configure(plural, "bad", &[denying(field, "Fail", &[condition])]).await;
        assert_eq!(answer.status, 422, "{condition}: {}", answer.text());
        let message = answer.json()["message"].as_str().unwrap_or_default().to_owned();
        assert!(message.contains("webhooks[0].matchConditions[0].expression: Invalid value: "), "{message}");
        assert!(message.contains(wanted), "{condition}: {message}");
    }
}

async fn failures_follow_the_policy(field: &Field) {
    let (missing, empty) = ("object.data.missing == 'x'", "authorizer.path(object.data.none).check('get').allowed()");
    let failed = |source: &str, why: &str| format!("expression '{source}' resulted in error: {why}");
    let (no_key, no_path) = (failed(missing, "no such key: missing"), failed(empty, "path must not be empty"));
    let table = [
        (vec![missing], Some(no_key.clone())),
        (vec![empty], Some(no_path.clone())),
        (vec![missing, empty], Some(format!("[{no_key}, {no_path}]"))),
        // One that does not hold outweighs the rest.
        (vec![missing, "object.metadata.name == 'other'"], None),
        (vec!["object.metadata.name == 'other'", empty], None),
    ];
    for (index, (conditions, why)) in table.into_iter().enumerate() {
        for failure_policy in ["Fail", "Ignore"] {
            field.configure(VALIDATING, "deny", &[denying(field, failure_policy, &conditions)]).await;
            let name = format!("failing-{index}-{}", failure_policy.to_lowercase());
            let answer = field.create(&name, &json!({"none": ""})).await;
            match &why {
                Some(why) if failure_policy == "Fail" => {
                    refused(&answer, 403, &format!("configmaps {name:?} is forbidden: {why}"));
                }
                _ => assert_eq!(answer.status, 201, "{conditions:?}: {}", answer.text()),
            }
            assert!(field.hooks.asked("/deny").is_empty(), "{conditions:?}");
            field.clear().await;
        }
    }
}

/// There is no object then, as upstream has it.
async fn what_is_deleted_is_the_old_object(field: &Field) {
    field.made("kept", &json!({})).await;
    let path = &format!("{MAPS}/kept");
    let new = "object.metadata.name == 'kept'";
    field.configure(VALIDATING, "deny", &[denying(field, "Fail", &[new])]).await;
    let why = format!("expression '{new}' resulted in error: no such key: metadata");
    let answer = field.client.delete(path).await.expect("an answer");
    refused(&answer, 403, &format!(r#"configmaps "kept" is forbidden: {why}"#));
    field.clear().await;
    field.configure(VALIDATING, "deny", &[denying(field, "Fail", &["oldObject.metadata.name == 'kept'"])]).await;
    let answer = field.client.delete(path).await.expect("an answer");
    refused(&answer, 403, r#"admission webhook "deny.example.com" denied the request: no"#);
    field.clear().await;
}

async fn too_much_work_is_a_failure(field: &Field) {
    let data: Value = (0..300).map(|n| (format!("k{n}"), json!("x"))).collect::<serde_json::Map<_, _>>().into();
    let cube = "object.data.all(a, object.data.all(b, object.data.all(c, a + b + c != '')))";
    let square = "object.data.all(a, object.data.all(b, a + b != ''))";
    let limit =
        format!("no further validation rules will be run due to call cost exceeds limit for expression: {cube}");
    let budget = "validation failed due to running out of cost budget, no further validation rules will be run";
    let many = vec![square; 64];
    for (conditions, why) in [(vec![cube], limit.as_str()), (many, budget)] {
        field.configure(VALIDATING, "deny", &[denying(field, "Fail", &conditions)]).await;
        let started = Instant::now();
        refused(&field.create("much", &data).await, 403, &format!(r#"configmaps "much" is forbidden: {why}"#));
        assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
        field.clear().await;
    }
    field.configure(VALIDATING, "deny", &[denying(field, "Ignore", &[cube])]).await;
    assert_eq!(field.create("much", &data).await.status, 201);
    field.clear().await;
}
