//! Validating admission policies: what they refuse, warn of and write down, and how bad ones are turned away.

use std::time::{Duration, Instant};

use croft_e2e::policy_objects::{
    MAPS, applied, binding, create, map, message, mutating, path, policy, post, remove, rule, start, with,
};
use croft_testkit::{Call, Client};
use http::Method;
use serde_json::{Value, json};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_policies_are_refused_when_they_are_made() {
    let (server, client) = start().await;
    let with = |field: &str, value: Value| {
        let mut policy = policy("p", "true");
        policy["spec"][field] = value;
        policy
    };
    let table = [
        (
            policy("p", "object.x ="),
            "spec.validations[0].expression: Invalid value: \"object.x =\": compilation failed: ",
        ),
        (policy("p", "foo.bar"), "undeclared reference to 'foo' (in container '')"),
        (policy("p", "params.x"), "undeclared reference to 'params' (in container '')"),
        (policy("p", "'text'"), "spec.validations[0].expression: Invalid value: \"'text'\": must evaluate to bool"),
        (policy("p", "request.nope == ''"), "undefined field 'nope'"),
        (policy("p", " "), "spec.validations[0].expression: Required value: expression is not specified"),
        (with("matchConstraints", Value::Null), "spec.matchConstraints: Required value"),
        (with("matchConstraints", json!({})), "spec.matchConstraints.resourceRules: Required value"),
        (with("failurePolicy", json!("Never")), "spec.failurePolicy: Unsupported value: \"Never\""),
        (with("paramKind", json!({"kind": "ConfigMap"})), "spec.paramKind.apiVersion: Required value"),
        (with("validations", json!([])), "validations or auditAnnotations must contain at least one item"),
        (
            with("validations", json!([{"expression": "true", "message": "a\nb"}])),
            "message must not contain line breaks",
        ),
        (with("validations", json!([{"expression": "true", "messageExpression": "1"}])), "must evaluate to string"),
        (with("validations", json!([{"expression": "true", "reason": "Because"}])), "Unsupported value: \"Because\""),
        (with("variables", json!([{"name": "a-b", "expression": "1"}])), "name is not a valid CEL identifier"),
        (
            with("variables", json!([{"name": "a", "expression": "variables.b"}, {"name": "b", "expression": "1"}])),
            "undefined field 'b'",
        ),
        (
            with("auditAnnotations", json!([{"key": "k", "valueExpression": "1"}])),
            "must evaluate to one of [string null_type]",
        ),
        (with("matchConditions", json!([{"name": "a", "expression": "1"}])), "must evaluate to bool"),
    ];
    for (policy, wanted) in table {
        let answer = client.post(&path(&policy), &policy).await.expect("an answer");
        assert_eq!(answer.status, 422, "{policy}: {}", answer.text());
        assert!(message(&answer).contains(wanted), "{wanted}: {}", message(&answer));
    }
    let both = binding("b", &["Deny", "Warn"]);
    let answer = client.post(&path(&both), &both).await.expect("an answer");
    assert!(message(&answer).contains("must not contain both Deny and Warn"), "{}", answer.text());

    let made = create(&client, &policy("good", "true")).await;
    assert_eq!(made["spec"]["failurePolicy"], "Fail");
    assert_eq!(made["spec"]["matchConstraints"]["matchPolicy"], "Equivalent");
    assert_eq!(made["status"]["observedGeneration"], made["metadata"]["generation"], "{made}");
    let shown = server.kubectl().expect("kubectl").run(&["get", "validatingadmissionpolicies"]).await.expect("runs");
    assert!(shown.success && shown.stdout.contains("good"), "{shown:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn policies_deny_warn_and_tell_the_audit_log() {
    let (server, client) = start().await;
    let mut strict = policy("strict", "variables.size < 3");
    strict["spec"]["variables"] = json!([{"name": "name", "expression": "object.metadata.name"},
        {"name": "size", "expression": "variables.name.size()"}]);
    strict["spec"]["validations"][0]["messageExpression"] = json!("'the name ' + variables.name + ' is too long'");
    strict["spec"]["matchConditions"] = json!([{"name": "not-deleted", "expression": "request.operation != 'DELETE'"}]);
    strict["spec"]["auditAnnotations"] = json!([{"key": "size", "valueExpression": "string(variables.size)"}]);
    with(&client, &strict, &binding("strict", &["Deny"]), async || {
        let refused = post(&client, "long").await;
        assert_eq!((refused.status, refused.json()["reason"].as_str()), (422, Some("Invalid")), "{}", refused.text());
        let words =
            "ValidatingAdmissionPolicy 'strict' with binding 'strict' denied request: the name long is too long";
        assert_eq!(message(&refused), format!("configmaps \"long\" is forbidden: {words}"));
        assert_eq!(refused.json()["details"]["causes"][0]["message"], words);
        assert_eq!(post(&client, "ok").await.status, 201);
        let audit = client.get("/croft/v1/audit?name=ok&verb=create").await.expect("an answer").ok().expect("a list");
        assert_eq!(audit["items"][0]["annotations"]["strict/size"], "2", "{audit}");
        // The same through kubectl, by an apply that changes what is there.
        let applied = map("ok", &json!({"a": "b"})).to_string();
        let kubectl = server.kubectl().expect("kubectl");
        assert!(
            kubectl
                .run_with(&["apply", "--server-side", "--force-conflicts", "-f", "-"], &applied)
                .await
                .expect("runs")
                .success
        );
        let refused =
            kubectl.run_with(&["create", "-f", "-"], &map("four", &json!({})).to_string()).await.expect("runs");
        assert!(!refused.success && refused.stderr.contains("the name four is too long"), "{refused:?}");
    })
    .await;
    // What is removed no longer counts.
    assert_eq!(post(&client, "long").await.status, 201);
    deployments_are_judged(&client).await;

    let mut warning = policy("warning", "!has(object.data)");
    warning["spec"]["validations"][0]["message"] = json!("there is data");
    with(&client, &warning, &binding("warning", &["Warn", "Audit"]), async || {
        let warned = post(&client, "warned").await;
        assert_eq!(warned.status, 201);
        let header = warned.header("warning").unwrap_or_default();
        let words = "Validation failed for ValidatingAdmissionPolicy 'warning' with binding 'warning': there is data";
        assert!(header.contains(words), "{header}");
        let audit = client.get("/croft/v1/audit?name=warned").await.expect("an answer").ok().expect("a list");
        let failure = &audit["items"][0]["annotations"]["validation.policy.admission.k8s.io/validation_failure"];
        let failure: Value = serde_json::from_str(failure.as_str().unwrap_or_default()).expect("JSON");
        assert_eq!(
            failure[0],
            json!({"message": "there is data", "policy": "warning", "binding": "warning",
            "expressionIndex": 0, "validationActions": ["Warn", "Audit"]})
        );
    })
    .await;

    // The reason decides about the code.
    for (reason, code) in [("Forbidden", 403), ("Unauthorized", 401), ("RequestEntityTooLarge", 413)] {
        let mut reasoned = policy("reasoned", "false");
        reasoned["spec"]["validations"][0]["reason"] = json!(reason);
        with(&client, &reasoned, &binding("reasoned", &["Deny"]), async || {
            let refused = post(&client, "x").await;
            assert_eq!((refused.status, refused.json()["reason"].as_str()), (code, Some(reason)));
            assert!(message(&refused).ends_with("denied request: failed expression: false"), "{}", refused.text());
        })
        .await;
    }
}

/// ReplicaSets, whatever is in them, are none of that policy's business.
async fn deployments_are_judged(client: &Client) {
    let mut judging = policy("judging", "");
    let mut creation = rule("deployments", "apps");
    creation["operations"] = json!(["CREATE"]);
    judging["spec"]["matchConstraints"]["resourceRules"] = json!([creation]);
    judging["spec"]["validations"] = json!([
        {"expression": "object.spec.replicas > 1", "messageExpression": "'wants replicas > 1, got ' + string(object.spec.replicas)"},
        {"expression": "namespaceObject.metadata.name == 'default'", "message": "not in this namespace"}]);
    let object = |name: &str, replicas: u32| {
        json!({"metadata": {"name": name}, "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "x"}},
            "template": {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}}}})
    };
    with(client, &judging, &binding("judging", &["Deny"]), async || {
        let apps = "/apis/apps/v1/namespaces/default";
        let create = async |plural: &str, object: &Value| {
            client.post(&format!("{apps}/{plural}"), object).await.expect("an answer")
        };
        let refused = create("deployments", &object("single", 1)).await;
        assert_eq!(refused.status, 422, "{}", refused.text());
        assert!(message(&refused).ends_with("denied request: wants replicas > 1, got 1"), "{}", refused.text());
        assert_eq!(create("deployments", &object("replicated", 2)).await.status, 201);
        assert_eq!(create("replicasets", &object("single", 1)).await.status, 201);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn policies_see_operations_namespaces_parameters_and_rights() {
    let (_server, client) = start().await;
    post(&client, "kept").await.ok().expect("created");
    let on_delete =
        policy("on-delete", "request.operation != 'DELETE' || (object == null && oldObject.metadata.name != 'kept')");
    with(&client, &on_delete, &binding("on-delete", &["Deny"]), async || {
        assert_eq!(client.delete(&format!("{MAPS}/kept")).await.expect("an answer").status, 422);
        let collection = client.delete(&format!("{MAPS}?labelSelector=name%3Dkept")).await.expect("an answer");
        assert_eq!(collection.status, 422, "{}", collection.text());
        let change = json!({"data": {"key": "other"}});
        client.patch(&format!("{MAPS}/kept"), "merge-patch", &change).await.expect("an answer").ok().expect("changed");
    })
    .await;

    // Selectors and excluded rules, of policies and bindings.
    let mut selective = policy("selective", "false");
    selective["spec"]["matchConstraints"]["namespaceSelector"] =
        json!({"matchLabels": {"kubernetes.io/metadata.name": "default"}});
    selective["spec"]["matchConstraints"]["objectSelector"] =
        json!({"matchExpressions": [{"key": "name", "operator": "Exists"}]});
    let mut excluded = rule("configmaps", "");
    excluded["resourceNames"] = json!(["spared"]);
    selective["spec"]["matchConstraints"]["excludeResourceRules"] = json!([excluded]);
    let mut only_creation = binding("selective", &["Deny"]);
    let mut creation = rule("configmaps", "");
    creation["operations"] = json!(["CREATE"]);
    only_creation["spec"]["matchResources"] = json!({"resourceRules": [creation]});
    with(&client, &selective, &only_creation, async || {
        assert_eq!(post(&client, "hit").await.status, 422);
        assert_eq!(post(&client, "spared").await.status, 201);
        let unlabelled = json!({"metadata": {"name": "unlabelled"}});
        assert_eq!(client.post(MAPS, &unlabelled).await.expect("an answer").status, 201);
        let elsewhere = MAPS.replace("/default/", "/kube-public/");
        assert_eq!(client.post(&elsewhere, &map("hit", &json!({}))).await.expect("an answer").status, 201);
        assert_eq!(client.delete(&format!("{MAPS}/spared")).await.expect("an answer").status, 200);
    })
    .await;

    // Parameters, each of which is asked.
    let mut limited = policy("limited", "object.data.size() <= int(params.data.most)");
    limited["spec"]["paramKind"] = json!({"apiVersion": "v1", "kind": "ConfigMap"});
    limited["spec"]["matchConditions"] = json!([{"name": "no-params", "expression": "!has(object.data.most)"}]);
    let mut refers = binding("limited", &["Deny"]);
    refers["spec"]["paramRef"] = json!({"name": "limits", "parameterNotFoundAction": "Deny"});
    with(&client, &limited, &refers, async || {
        let words =
            "failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction";
        let refused = post(&client, "x").await;
        assert!(message(&refused).ends_with(words), "{}", refused.text());
    })
    .await;
    refers["spec"]["paramRef"]["parameterNotFoundAction"] = json!("Allow");
    with(&client, &limited, &refers, async || {
        assert_eq!(post(&client, "unlimited").await.status, 201);
        client.post(MAPS, &map("limits", &json!({"most": "1"}))).await.expect("an answer").ok().expect("created");
        assert_eq!(post(&client, "small").await.status, 201);
        let large = map("large", &json!({"a": "1", "b": "2"}));
        assert_eq!(client.post(MAPS, &large).await.expect("an answer").status, 422);
    })
    .await;
    refers["spec"]["paramRef"] =
        json!({"selector": {"matchLabels": {"name": "limits"}}, "parameterNotFoundAction": "Deny"});
    with(&client, &limited, &refers, async || {
        assert_eq!(client.post(MAPS, &map("two", &json!({"a": "1", "b": "2"}))).await.expect("an answer").status, 422);
    })
    .await;
    limited["spec"]["paramKind"] = json!({"apiVersion": "example.com/v1", "kind": "Nothing"});
    with(&client, &limited, &refers, async || {
        let refused = post(&client, "x").await;
        let words = "ValidatingAdmissionPolicy 'limited' denied request: failed to configure policy: failed to find resource \
                     referenced by paramKind: 'example.com/v1, Kind=Nothing'";
        assert!(message(&refused).ends_with(words), "{}", refused.text());
    })
    .await;

    // What the caller may do elsewhere.
    let asks = policy(
        "asks",
        "authorizer.group('').resource('secrets').namespace('default').check('list').allowed() \
                               && namespaceObject.metadata.name == 'default' && request.userInfo.username != 'eve'",
    );
    let role = json!({"metadata": {"name": "writer"}, "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]}]});
    let bound = json!({"metadata": {"name": "writer"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role",
        "name": "writer"}, "subjects": [{"kind": "User", "name": "jane", "apiGroup": "rbac.authorization.k8s.io"}]});
    let rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
    client.post(&format!("{rbac}/roles"), &role).await.expect("an answer").ok().expect("created");
    client.post(&format!("{rbac}/rolebindings"), &bound).await.expect("an answer").ok().expect("created");
    with(&client, &asks, &binding("asks", &["Deny"]), async || {
        let by_jane = Call::new(Method::POST, MAPS).json(&map("hers", &json!({}))).header("impersonate-user", "jane");
        assert_eq!(client.send(by_jane).await.expect("an answer").status, 422);
        assert_eq!(post(&client, "mine").await.status, 201);
    })
    .await;
}

/// What a policy makes of its parameters it can tell whoever it warns: nobody reads by it what they could not get.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parameters_are_for_those_who_may_read_them() {
    let (_server, client) = start().await;
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let role = json!({"metadata": {"name": "policies"}, "rules": [
        {"apiGroups": ["admissionregistration.k8s.io"], "resources": ["*"], "verbs": ["*"]},
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]},
    ]});
    let bound = json!({"metadata": {"name": "policies"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io",
        "kind": "ClusterRole", "name": "policies"}, "subjects": [{"kind": "User", "name": "jane", "apiGroup": "rbac.authorization.k8s.io"}]});
    client.post(&format!("{rbac}/clusterroles"), &role).await.expect("an answer").ok().expect("created");
    client.post(&format!("{rbac}/clusterrolebindings"), &bound).await.expect("an answer").ok().expect("created");
    let by_jane = async |object: &Value| {
        let call = Call::new(Method::POST, &path(object)).json(object).header("impersonate-user", "jane");
        client.send(call).await.expect("an answer")
    };
    let patched_by_jane = async |path: &str, patch: &Value| {
        let call = Call::new(Method::PATCH, path).body("application/merge-patch+json", patch.to_string());
        client.send(call.header("impersonate-user", "jane")).await.expect("an answer")
    };
    let expression =
        json!([{"message": "m", "expression": "false", "messageExpression": "string(params.data.password)"}]);
    for kind in ["Validating", "Mutating"] {
        let (mut about, mut bind) = (policy("p", "false"), binding("p", &["Warn"]));
        if kind == "Mutating" {
            (about, bind) = mutating("p", applied("Object{}"));
        } else {
            about["spec"]["validations"] = expression.clone();
        }
        about["spec"]["paramKind"] = json!({"apiVersion": "v1", "kind": "Secret"});
        bind["spec"]["paramRef"] = json!({"namespace": "kube-system", "name": "x", "parameterNotFoundAction": "Allow"});
        let of_all = "spec.paramKind: Forbidden: user jane must have \"get\" permission on all objects of the referenced \
                      paramKind (kind=Secret, apiVersion=v1)";
        let of_one =
            "spec.paramRef: Forbidden: user jane does not have \"get\" permission on the object referenced by paramRef";

        // Neither the kind of secrets nor, with a policy that is there, one of them; nor what may become anything.
        let refused = by_jane(&about).await;
        assert_eq!((refused.status, message(&refused).ends_with(of_all)), (422, true), "{}", refused.text());
        let refused = by_jane(&bind).await;
        assert_eq!((refused.status, message(&refused).ends_with(of_one)), (422, true), "{}", refused.text());
        create(&client, &about).await;
        let refused = by_jane(&bind).await;
        assert_eq!((refused.status, message(&refused).ends_with(of_one)), (422, true), "{}", refused.text());

        // Whoever may read them all may; and what an administrator set up can be changed otherwise, but not led elsewhere.
        let (one, other) = (format!("{}/p", path(&about)), format!("{}/p", path(&bind)));
        let label = json!({"metadata": {"labels": {"a": "b"}}});
        create(&client, &bind).await;
        for path in [&one, &other] {
            patched_by_jane(path, &label).await.ok().expect("changed");
        }
        let elsewhere = json!({"spec": {"paramRef": {"name": "y"}}});
        assert_eq!(patched_by_jane(&other, &elsewhere).await.status, 422);
        remove(&client, &bind).await;
        remove(&client, &about).await;
        about["spec"]["paramKind"]["kind"] = json!("ConfigMap");
        by_jane(&about).await.ok().expect("created");
        by_jane(&bind).await.ok().expect("created");
        remove(&client, &bind).await;
        remove(&client, &about).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failures_follow_the_failure_policy_and_work_is_bounded() {
    let (_server, client) = start().await;
    let mut failing = policy("failing", "object.data.nope == 'x'");
    with(&client, &failing, &binding("failing", &["Deny"]), async || {
        let refused = post(&client, "x").await;
        let words = "denied request: expression 'object.data.nope == 'x'' resulted in error: no such key: nope";
        assert!(message(&refused).ends_with(words), "{}", refused.text());
    })
    .await;
    failing["spec"]["failurePolicy"] = json!("Ignore");
    with(&client, &failing, &binding("failing", &["Deny"]), async || {
        assert_eq!(post(&client, "ignored").await.status, 201);
    })
    .await;

    let items: Vec<String> = (0..100).map(|number| number.to_string()).collect();
    let list = format!("[{}]", items.join(","));
    let runaway = format!("{list}.all(a, {list}.all(b, {list}.all(c, {list}.all(d, a + b + c + d >= 0))))");
    with(&client, &policy("runaway", &runaway), &binding("runaway", &["Deny"]), async || {
        let begun = Instant::now();
        let refused = post(&client, "x").await;
        assert!(message(&refused).contains("call cost exceeds limit for expression"), "{}", refused.text());
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    })
    .await;

    // A policy is in force, changed and gone as soon as that is acknowledged; and it cannot lock itself in.
    let mut changing = policy("changing", "false");
    changing["spec"]["matchConstraints"]["resourceRules"] = json!([rule("*", "*")]);
    create(&client, &changing).await;
    create(&client, &binding("changing", &["Deny"])).await;
    assert_eq!(post(&client, "x").await.status, 422);
    let change =
        json!([{"op": "replace", "path": "/spec/validations/0/expression", "value": "object.metadata.name != 'x'"}]);
    let at = format!("{}/changing", path(&changing));
    let changed = client.patch(&at, "json-patch", &change).await.expect("an answer").ok().expect("changed");
    assert_eq!(changed["status"]["observedGeneration"], 2, "{changed}");
    assert_eq!(post(&client, "x").await.status, 422);
    assert_eq!(post(&client, "y").await.status, 201);
    remove(&client, &changing).await;
    assert_eq!(post(&client, "x").await.status, 201);
}
