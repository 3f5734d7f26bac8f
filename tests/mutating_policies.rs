//! Mutating admission policies: what they make of what is written, and how bad ones are turned away.

use croft_e2e::policy_objects::{MAPS, applied, map, message, mutating, patched, path, post, rule, start, with};
use croft_e2e::webhook_field::{Field, MUTATING};
use croft_e2e::webhook_server::Reply;
use croft_testkit::StoreKind;
use serde_json::json;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mutating_policies_change_what_is_stored() {
    let (_server, client) = start().await;
    for (mutations, wanted) in [
        (json!([]), "spec.mutations: Required value"),
        (applied("1"), "must evaluate to Object"),
        (patched("object"), ""),
        (patched("'a'"), "must evaluate to list(JSONPatch)"),
        (json!([{"patchType": "Other"}]), "Unsupported value: \"Other\""),
    ] {
        let (policy, _) = mutating("bad", mutations);
        let answer = client.post(&format!("{}?dryRun=All", path(&policy)), &policy).await.expect("an answer");
        assert_eq!(answer.status == 201, wanted.is_empty(), "{}", answer.text());
        assert!(message(&answer).contains(wanted), "{}", answer.text());
    }

    let (label, bound) = mutating(
        "label",
        applied(
            "Object{metadata: Object.metadata{labels: {'by': request.userInfo.username}}, data: {'added': object.metadata.name}}",
        ),
    );
    with(&client, &label, &bound, async || {
        let made = post(&client, "one").await.ok().expect("created");
        assert_eq!(made["data"], json!({"added": "one", "key": "value"}), "{made}");
        assert!(made["metadata"]["labels"]["by"].is_string() && made["metadata"]["labels"]["name"] == "one", "{made}");
    })
    .await;

    let (patch, bound) = mutating(
        "patch",
        patched(
            "[JSONPatch{op: 'test', path: '/data/key', value: 'value'}, JSONPatch{op: 'add', \
                  path: '/metadata/labels/' + jsonpatch.escapeKey('example.com/seen'), value: 'yes'}]",
        ),
    );
    with(&client, &patch, &bound, async || {
        let made = post(&client, "two").await.ok().expect("created");
        assert_eq!(made["metadata"]["labels"]["example.com/seen"], "yes", "{made}");
        // The test does not hold: nothing is done.
        let other = map("three", &json!({"key": "other"}));
        let made = client.post(MAPS, &other).await.expect("an answer").ok().expect("created");
        assert!(made["metadata"]["labels"]["example.com/seen"].is_null(), "{made}");
    })
    .await;

    // Lists merge by their keys, defaults follow, and what is one value is left alone.
    let (mut sidecar, bound) = mutating(
        "sidecar",
        applied(
            "Object{spec: Object.spec{template: Object.spec.template{spec: Object.spec.template.spec{containers: [\
                 Object.spec.template.spec.containers.item{name: 'side', image: 'side:1'}]}}}}",
        ),
    );
    sidecar["spec"]["matchConstraints"]["resourceRules"] = json!([rule("deployments", "apps")]);
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": {
        "selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}},
        "spec": {"containers": [{"name": "main", "image": "main:1"}]}}}});
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    with(&client, &sidecar, &bound, async || {
        let made = client.post(deployments, &deployment).await.expect("an answer").ok().expect("created");
        let containers = made["spec"]["template"]["spec"]["containers"].as_array().expect("a list").clone();
        assert_eq!(containers.len(), 2, "{made}");
        assert!(containers.iter().all(|container| container["imagePullPolicy"].is_string()), "{made}");
    })
    .await;

    // Two that build on each other: the first sees what the second has done if it wants to.
    let count = "Object{data: {'seen': has(object.data.late) ? 'late' : 'early'}}";
    let (mut first, first_bound) = mutating("a-first", applied(count));
    first["spec"]["reinvocationPolicy"] = json!("IfNeeded");
    let (second, second_bound) = mutating("b-second", applied("Object{data: {'late': 'yes'}}"));
    with(&client, &first, &first_bound, async || {
        with(&client, &second, &second_bound, async || {
            let made = post(&client, "again").await.ok().expect("created");
            assert_eq!(made["data"]["seen"], "late", "{made}");
        })
        .await;
    })
    .await;

    let (failing, bound) = mutating("failing", applied("Object{data: {'a': object.nope}}"));
    with(&client, &failing, &bound, async || {
        let refused = post(&client, "x").await;
        assert_eq!(refused.status, 403, "{}", refused.text());
        let words = "policy 'failing' with binding 'failing' denied request: expression";
        assert!(
            message(&refused).starts_with(words) && message(&refused).ends_with("no such key: nope"),
            "{}",
            refused.text()
        );
    })
    .await;
}

/// A policy sets a label, a webhook takes it away again: whoever wants to hear of it does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn policies_hear_of_webhooks_and_webhooks_of_policies() {
    let field = Field::new(StoreKind::Embedded).await;
    field.hooks.on("/strip", |request| match request["object"]["metadata"]["labels"]["team"].as_str() {
        Some(_) => Reply::patch(&json!([{"op": "remove", "path": "/metadata/labels/team"}])),
        None => Reply::allow(),
    });
    field.hooks.on("/sees", |_| Reply::allow());
    let hooks = [field.hook("strip", &json!({})), field.hook("sees", &json!({"reinvocationPolicy": "IfNeeded"}))];
    field.configure(MUTATING, "hooks", &hooks).await;
    let (mut policy, binding) = mutating("team", applied("Object{metadata: Object.metadata{labels: {'team': 'a'}}}"));
    for (reinvocation, label, asked) in
        [("Never", json!(null), &["/strip", "/sees"][..]), ("IfNeeded", json!("a"), &["/strip", "/sees", "/sees"][..])]
    {
        policy["spec"]["reinvocationPolicy"] = json!(reinvocation);
        with(&field.client, &policy, &binding, async || {
            let name = reinvocation.to_lowercase();
            field.hooks.forget();
            let made = field.made(&name, &json!({"a": "1"})).await;
            assert_eq!(made["metadata"]["labels"]["team"], label, "{reinvocation}: {made}");
            assert_eq!(field.hooks.paths(), asked, "{reinvocation}");
            let seen = field.hooks.asked("/sees").pop().expect("asked");
            assert_eq!(seen["object"]["metadata"]["labels"]["team"], label, "{reinvocation}: {seen}");

            field.hooks.forget();
            let changed = field.merge(&name, &json!({"data": {"a": "2"}})).await.ok().expect("changed");
            assert_eq!((&changed["metadata"]["labels"]["team"], &changed["data"]["a"]), (&label, &json!("2")));
            assert_eq!(field.hooks.paths(), asked, "{reinvocation}");
        })
        .await;
    }
    field.clear().await;
}
