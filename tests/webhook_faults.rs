//! Admission webhooks that choose what they see, that fail, that dawdle, and that are overtaken.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use croft_e2e::webhook_field::{Field, MAPS, MUTATING, VALIDATING, label, map, refused};
use croft_e2e::webhook_server::{Reply, WebhookServer};
use croft_testkit::{StoreKind, eventually, free_port};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn webhooks_choose_what_they_see_and_fail_as_they_say() {
    let field = Field::new(StoreKind::Embedded).await;
    selectors(&field).await;
    conditions(&field).await;
    bad_configurations(&field).await;
    dead_webhooks(&field).await;
    slow_webhooks(&field).await;
    patience(&field).await;
    nonsense(&field).await;
    services(&field).await;
    metrics(&field).await;
}

async fn selectors(field: &Field) {
    for path in ["/objects", "/spaces"] {
        field.hooks.on(path, |_| Reply::deny("selected"));
    }
    let everything = json!([{"operations": ["CREATE", "UPDATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps", "namespaces", "persistentvolumes"]}]);
    let objects = json!({"objectSelector": {"matchLabels": {"watch": "me"}}});
    let spaces = json!({"rules": everything, "namespaceSelector": {"matchExpressions": [{"key": "strict", "operator": "Exists"}]}});
    let hooks = [field.hook("objects", &objects), field.hook("spaces", &spaces)];
    field.made("plain", &json!({})).await;
    field.client.post("/api/v1/namespaces", &json!({"metadata": {"name": "loose"}})).await.expect("an answer");
    field
        .client
        .post("/api/v1/namespaces", &json!({"metadata": {"name": "strict", "labels": {"strict": ""}}}))
        .await
        .expect("an answer");
    field.configure(VALIDATING, "selectors", &hooks).await;
    field.merge("plain", &json!({"data": {"a": "b"}})).await.ok().expect("it has no labels");
    assert_eq!(
        field.merge("plain", &json!({"metadata": {"labels": {"watch": "me"}}})).await.status,
        403,
        "it is to have"
    );
    let at = |namespace: &str| format!("/api/v1/namespaces/{namespace}/configmaps");
    let create = async |path: &str, object: Value| field.client.post(path, &object).await.expect("an answer").status;
    assert_eq!(create(&at("loose"), map("a", &json!({}))).await, 201);
    assert_eq!(create(&at("strict"), map("a", &json!({}))).await, 403);
    // A namespace is selected by its own labels.
    assert_eq!(create("/api/v1/namespaces", json!({"metadata": {"name": "x"}})).await, 201);
    assert_eq!(create("/api/v1/namespaces", json!({"metadata": {"name": "y", "labels": {"strict": ""}}})).await, 403);
    // What is in no namespace is never left out by a selector of namespaces.
    let volume = json!({"metadata": {"name": "v"}, "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/x"}}});
    assert_eq!(create("/api/v1/persistentvolumes", volume).await, 403);
    // One that does not exist is said to, before anybody is asked.
    assert_eq!(create(&at("nowhere"), map("a", &json!({}))).await, 404);
    field.clear().await;
}

async fn conditions(field: &Field) {
    field.hooks.on("/if", |_| Reply::deny("the condition held"));
    let condition = |expression: &str| json!([{"name": "only", "expression": expression}]);
    let rules =
        json!([{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}]);
    let when = |expression: &str| json!({"rules": rules, "matchConditions": condition(expression)});
    let asks = async |with: &Value, data: &Value| {
        field.clear().await;
        field.configure(VALIDATING, "if", &[field.hook("if", with)]).await;
        field.create("if", data).await
    };
    let yes = json!({"ask": "yes"});
    assert_eq!(asks(&when("object.data.ask == 'yes'"), &yes).await.status, 403);
    assert_eq!(asks(&when("object.data.ask == 'no'"), &yes).await.status, 201);
    field.client.delete(&format!("{MAPS}/if")).await.expect("an answer");
    assert_eq!(asks(&when("request.operation == 'CREATE' && oldObject == null"), &yes).await.status, 403);
    assert_eq!(asks(&when("object.metadata.namespace == 'default' && has(object.data)"), &yes).await.status, 403);
    let failing = asks(&when("object.data.missing == 'x'"), &yes).await;
    refused(
        &failing,
        403,
        "configmaps \"if\" is forbidden: expression 'object.data.missing == 'x'' resulted in error: no such key: missing",
    );
    let mut ignored = when("object.data.missing == 'x'");
    ignored["failurePolicy"] = json!("Ignore");
    assert_eq!(asks(&ignored, &yes).await.status, 201, "what cannot be told does not match");
    assert!(field.hooks.asked("/if").is_empty());
    field.clear().await;
}

async fn bad_configurations(field: &Field) {
    let invalid = async |with: Value, at: &str| {
        for plural in [MUTATING, VALIDATING] {
            let answer = field.try_configure(plural, "bad", &[field.hook("bad", &with)]).await;
            let causes = answer.json()["details"]["causes"].as_array().cloned().unwrap_or_default();
            let named = causes.iter().any(|cause| cause["field"] == format!("webhooks[0].{at}"));
            assert!(answer.status == 422 && named, "{plural} {at}: {} {}", answer.status, answer.text());
        }
    };
    let condition =
        |name: &str, expression: &str| json!({"matchConditions": [{"name": name, "expression": expression}]});
    invalid(condition("a", "nobody.knows"), "matchConditions[0].expression").await;
    invalid(condition("a", "object.a =="), "matchConditions[0].expression").await;
    invalid(condition("a", "'text'"), "matchConditions[0].expression").await;
    invalid(condition("a", " "), "matchConditions[0].expression").await;
    invalid(condition("", "true"), "matchConditions[0].name").await;
    invalid(condition("not a name", "true"), "matchConditions[0].name").await;
    let many: Vec<Value> = (0..65).map(|n| json!({"name": format!("c{n}"), "expression": "true"})).collect();
    invalid(json!({"matchConditions": many}), "matchConditions").await;
    let twice = json!([{"name": "a", "expression": "true"}, {"name": "a", "expression": "true"}]);
    invalid(json!({"matchConditions": twice}), "matchConditions[1].name").await;
    invalid(json!({"clientConfig": {"url": "http://127.0.0.1/x"}}), "clientConfig.url").await;
    invalid(json!({"clientConfig": {}}), "clientConfig").await;
    invalid(json!({"timeoutSeconds": 31}), "timeoutSeconds").await;
    invalid(json!({"admissionReviewVersions": ["v9"]}), "admissionReviewVersions").await;
    invalid(json!({"failurePolicy": "Perhaps"}), "failurePolicy").await;
}

async fn dead_webhooks(field: &Field) {
    let port = free_port().expect("a port");
    let dead = |policy: &str| json!({"clientConfig": {"url": format!("https://127.0.0.1:{port}/x"), "caBundle": field.hooks.ca_bundle()}, "failurePolicy": policy});
    let failed = |why: &str| format!("Internal error occurred: failed calling webhook \"dead.example.com\": {why}");
    field.configure(MUTATING, "dead", &[field.hook("dead", &dead("Fail"))]).await;
    let refusal = format!(
        "failed to call webhook: Post \"https://127.0.0.1:{port}/x?timeout=5s\": dial tcp 127.0.0.1:{port}: connect: connection refused"
    );
    refused(&field.create("dead", &json!({})).await, 500, &failed(&refusal));
    field.clear().await;
    for plural in [MUTATING, VALIDATING] {
        field.configure(plural, "dead", &[field.hook("dead", &dead("Ignore"))]).await;
    }
    field.made("dead", &json!({})).await;
    field.clear().await;
    let stranger = WebhookServer::start().await.expect("another one");
    let wrong = json!({"clientConfig": {"url": field.hooks.url("/x"), "caBundle": stranger.ca_bundle()}});
    field.configure(MUTATING, "dead", &[field.hook("dead", &wrong)]).await;
    let answer = field.create("wrong", &json!({})).await;
    let text = "tls: failed to verify certificate: x509: certificate signed by unknown authority";
    assert!(answer.status == 500 && answer.text().contains(text), "{}", answer.text());
    field.clear().await;
    let unreadable = json!({"clientConfig": {"url": field.hooks.url("/x"), "caBundle": "aGVsbG8="}});
    field.configure(MUTATING, "dead", &[field.hook("dead", &unreadable)]).await;
    let text = "could not get REST client: unable to load root certificates: unable to parse bytes as PEM block";
    refused(&field.create("wrong", &json!({})).await, 500, &failed(text));
    field.clear().await;
}

async fn slow_webhooks(field: &Field) {
    field.hooks.on("/slow", |_| Reply::Never);
    field.configure(VALIDATING, "slow", &[field.hook("slow", &json!({"timeoutSeconds": 1}))]).await;
    let url = field.hooks.url("/slow");
    let text = format!(
        "Internal error occurred: failed calling webhook \"slow.example.com\": failed to call webhook: Post \"{url}?timeout=1s\": context deadline exceeded"
    );
    refused(&field.create("slow", &json!({})).await, 500, &text);
    field.clear().await;
    // All are waited for at once.
    let ignored = json!({"timeoutSeconds": 2, "failurePolicy": "Ignore"});
    let hooks: Vec<Value> = (0..4)
        .map(|n| {
            let mut hook = field.hook("slow", &ignored);
            hook["name"] = json!(format!("slow{n}.example.com"));
            hook
        })
        .collect();
    field.configure(VALIDATING, "slow", &hooks).await;
    let started = Instant::now();
    field.made("slow", &json!({})).await;
    // One after the other they would take 8 s.
    assert!(started.elapsed() < Duration::from_secs(8), "{:?}", started.elapsed());
    field.clear().await;
    // The client's own patience counts as well.
    field.configure(VALIDATING, "slow", &[field.hook("slow", &json!({"timeoutSeconds": 30}))]).await;
    let answer = field.client.post(&format!("{MAPS}?timeout=1s"), &map("late", &json!({}))).await.expect("an answer");
    assert_eq!((answer.status, &answer.json()["reason"]), (504, &json!("Timeout")), "{}", answer.text());
    assert_eq!(field.get("late").await.status, 404);
    field.clear().await;
}

/// One that takes its time is waited for; by default for ten seconds.
async fn patience(field: &Field) {
    let gate = Arc::new(Semaphore::new(0));
    let held = Arc::clone(&gate);
    field.hooks.on("/slow", move |_| Reply::Held(Arc::clone(&held), Box::new(Reply::allow())));
    for (name, timeout) in [("patient", json!(30)), ("default", Value::Null)] {
        let hook = field.hook("slow", &json!({"timeoutSeconds": timeout}));
        let configured = field.try_configure(VALIDATING, "slow", &[hook]).await.ok().expect("configured");
        assert_eq!(configured["webhooks"][0]["timeoutSeconds"], timeout.as_u64().unwrap_or(10));
        // Longer than the second after which others give up.
        let answers = async {
            tokio::time::sleep(Duration::from_secs(2)).await;
            gate.add_permits(1);
        };
        let nothing = json!({});
        let (answer, ()) = tokio::join!(field.create(name, &nothing), answers);
        answer.ok().expect("it is waited for");
        field.clear().await;
    }
}

async fn nonsense(field: &Field) {
    field.hooks.on("/odd", |request| {
        let review = |response: Value| Reply::Raw {
            status: 200,
            content_type: "application/json",
            body: json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
                .to_string()
                .into_bytes(),
        };
        match request["object"]["data"]["how"].as_str().unwrap_or_default() {
            "text" => Reply::raw(200, "hello"),
            "empty" => Reply::raw(200, ""),
            "absent" => review(Value::Null),
            "uid" => review(json!({"uid": "other", "allowed": true})),
            "crash" => Reply::raw(500, "boom"),
            "redirect" => Reply::raw(302, ""),
            "huge" => Reply::Raw { status: 200, content_type: "application/json", body: vec![b' '; 9 << 20] },
            "patch" => Reply::Review(json!({"allowed": true, "patch": "W10=", "patchType": "JSONPatch"})),
            _ => Reply::allow(),
        }
    });
    field.configure(VALIDATING, "odd", &[field.hook("odd", &json!({}))]).await;
    let table = [
        (
            "text",
            "failed to call webhook: couldn't get version/kind; json parse error: invalid character 'h' looking for beginning of value",
        ),
        ("empty", "failed to call webhook: couldn't get version/kind; json parse error: unexpected end of JSON input"),
        ("absent", "received invalid webhook response: webhook response was absent"),
        (
            "crash",
            "failed to call webhook: an error on the server (\"boom\") has prevented the request from succeeding",
        ),
        (
            "redirect",
            "failed to call webhook: the server responded with the status code 302 but did not return more information",
        ),
        ("patch", "received invalid webhook response: validating webhook may not return response.patch"),
    ];
    for (how, why) in table {
        let text = format!("Internal error occurred: failed calling webhook \"odd.example.com\": {why}");
        refused(&field.create("odd", &json!({"how": how})).await, 500, &text);
    }
    for (how, part) in [("uid", "expected response.uid="), ("huge", "larger than 8388608 bytes")] {
        let answer = field.create("odd", &json!({"how": how})).await;
        assert!(answer.status == 500 && answer.text().contains(part), "{how}: {}", answer.text());
    }
    field.made("odd", &json!({})).await;
    field.clear().await;
}

async fn services(field: &Field) {
    field.hooks.on("/svc", |_| Reply::patch(&label("seen", "service")));
    let port = field.hooks.port;
    let reference = json!({"namespace": "default", "name": "hook", "path": "/svc", "port": port});
    let client = json!({"clientConfig": {"service": reference, "caBundle": field.hooks.ca_bundle()}});
    field.configure(MUTATING, "svc", &[field.hook("svc", &client)]).await;
    let failed = |why: &str| {
        let url = format!("https://hook.default.svc:{port}/svc?timeout=5s");
        let calling = "Internal error occurred: failed calling webhook \"svc.example.com\": failed to call webhook";
        format!("{calling}: Post \"{url}\": {why}")
    };
    let create = async || field.create("svc", &json!({})).await;
    refused(&create().await, 500, &failed("service \"hook\" not found"));
    let services = "/api/v1/namespaces/default/services";
    let service = |ports: Value| json!({"metadata": {"name": "hook"}, "spec": {"ports": ports}});
    let object = service(json!([{"name": "other", "port": 1}]));
    field.client.post(services, &object).await.expect("an answer").ok().expect("made");
    refused(&create().await, 500, &failed(&format!("no service port {port} found for service \"hook\"")));
    let one = format!("{services}/hook");
    let listed = service(json!([{"name": "https", "port": port}]));
    field.client.patch(&one, "merge-patch", &listed).await.expect("an answer").ok().expect("changed");
    refused(&create().await, 500, &failed("no endpoints available for service \"hook\""));
    field.client.delete(&one).await.expect("an answer").ok().expect("removed");
    // The certificate must be the Service's, wherever it leads.
    let external = json!({"metadata": {"name": "hook"}, "spec": {"type": "ExternalName", "externalName": "localhost"}});
    field.client.post(services, &external).await.expect("an answer").ok().expect("made");
    assert_eq!(create().await.ok().expect("made")["metadata"]["labels"]["seen"], "service");
    field.clear().await;
}

async fn metrics(field: &Field) {
    let text = field.client.get("/metrics").await.expect("an answer").text();
    let count = |start: &str| text.lines().filter(|line| line.starts_with(start)).count();
    for name in ["admission_duration_seconds_bucket", "rejection_count{", "fail_open_count{", "request_total{"] {
        assert!(count(&format!("apiserver_admission_webhook_{name}")) > 0, "{name}");
    }
    let refused = r#"apiserver_admission_webhook_rejection_count{name="odd.example.com",type="validating",operation="CREATE",error_type="calling_webhook_error",rejection_code="503"}"#;
    assert!(
        text.contains(refused),
        "{}",
        text.lines().filter(|l| l.contains("rejection_count")).collect::<Vec<_>>().join("\n")
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_webhooks_saw_is_what_is_stored() {
    racing(StoreKind::Embedded).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_webhooks_saw_is_what_is_stored_in_etcd() {
    racing(StoreKind::Etcd).await;
}

async fn racing(store: StoreKind) {
    let field = Arc::new(Field::new(store).await);
    let gate = Arc::new(Semaphore::new(0));
    let held = Arc::clone(&gate);
    // Whoever asks to be slow waits; others pass, and change the object meanwhile.
    field.hooks.on("/race", move |request| {
        let is_slow = request["object"]["data"]["slow"] == "yes" || request["operation"] == "DELETE";
        let reply = match (request["operation"].as_str(), request["oldObject"]["data"]["locked"].as_str()) {
            (Some("DELETE"), Some(_)) => Reply::deny("it is locked by now"),
            _ => Reply::allow(),
        };
        if is_slow { Reply::Held(Arc::clone(&held), Box::new(reply)) } else { reply }
    });
    field.made("race", &json!({"a": "1"})).await;
    field.configure(VALIDATING, "race", &[field.hook("race", &json!({"timeoutSeconds": 30}))]).await;

    // A patch applies to what is there in the end, and the webhook has seen that.
    let slow = tokio::spawn({
        let field = Arc::clone(&field);
        async move { field.merge("race", &json!({"data": {"slow": "yes"}})).await }
    });
    asked(&field, 1).await.expect("the webhook thinks");
    field.merge("race", &json!({"data": {"b": "2"}})).await.ok().expect("somebody else is quicker");
    gate.add_permits(2);
    let patched = slow.await.expect("it ends").ok().expect("patched");
    assert_eq!(patched["data"], json!({"a": "1", "b": "2", "slow": "yes"}));
    let last = field.hooks.asked("/race").pop().expect("it was asked");
    assert_eq!((&last["oldObject"]["data"]["b"], &last["object"]["data"]["b"]), (&json!("2"), &json!("2")));

    // A PUT that names a version is told that it is gone.
    let mut put = patched.clone();
    put["data"]["c"] = json!("3");
    field.hooks.forget();
    let slow = tokio::spawn({
        let field = Arc::clone(&field);
        async move { field.client.put(&format!("{MAPS}/race"), &put).await.expect("an answer") }
    });
    asked(&field, 1).await.expect("the webhook thinks");
    field.merge("race", &json!({"data": {"slow": null}})).await.ok().expect("somebody else is quicker");
    gate.add_permits(1);
    let answer = slow.await.expect("it ends");
    assert_eq!((answer.status, &answer.json()["reason"]), (409, &json!("Conflict")), "{}", answer.text());

    // A deletion is asked about again when the object has changed.
    field.hooks.forget();
    let slow = tokio::spawn({
        let field = Arc::clone(&field);
        async move { field.client.delete(&format!("{MAPS}/race")).await.expect("an answer") }
    });
    asked(&field, 1).await.expect("the webhook thinks");
    field.merge("race", &json!({"data": {"locked": "yes"}})).await.ok().expect("somebody else is quicker");
    gate.add_permits(2);
    let answer = slow.await.expect("it ends");
    refused(&answer, 403, r#"admission webhook "race.example.com" denied the request: it is locked by now"#);

    // The webhook is gone while it thinks: the write stands by its answer, and the next one asks nobody.
    field.clear().await;
    let patches = (0..12).map(|n| {
        let field = Arc::clone(&field);
        tokio::spawn(async move { field.merge("race", &json!({"data": {format!("n{n}"): "x"}})).await })
    });
    field.hooks.on("/race", |_| Reply::patch(&json!([{"op": "add", "path": "/data/by", "value": "hook"}])));
    field.configure(MUTATING, "race", &[field.hook("race", &json!({}))]).await;
    for patch in patches.collect::<Vec<_>>() {
        patch.await.expect("it ends").ok().expect("patched");
    }
    let end = field.get("race").await.json();
    let keys = end["data"].as_object().map_or(0, |data| data.keys().filter(|key| key.starts_with('n')).count());
    assert_eq!((keys, &end["data"]["by"]), (12, &json!("hook")), "none is lost: {}", end["data"]);
}

async fn asked(field: &Field, times: usize) -> Result<()> {
    eventually("the webhook is asked", async || {
        let asked = field.hooks.asked("/race").len();
        ensure!(asked >= times, "asked {asked} times");
        Ok(())
    })
    .await;
    Ok(())
}
