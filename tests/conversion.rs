//! Kinds whose versions a webhook converts: a real HTTPS server beside a real Croft.
//!
//! `v1` of a Link, which is what is stored, has a host and a port; `v2` has one address, and a label that `v1` has not.

use anyhow::ensure;
use croft_e2e::webhook_server::{Reply, WebhookServer};
use croft_testkit::{Answer, Call, Client, Croft, StoreKind, eventually};
use http::Method;
use serde_json::{Value, json};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const DEFINITION: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/links.example.com";

struct Field {
    croft: Croft,
    client: Client,
    hooks: WebhookServer,
}

fn at(version: &str) -> String {
    format!("/apis/example.com/{version}/namespaces/default/links")
}

fn version(name: &str, storage: bool, spec: &Value, column: &str) -> Value {
    json!({
        "name": name, "served": true, "storage": storage,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {
            "spec": {"type": "object", "properties": spec},
            "status": {"type": "object", "properties": {"replicas": {"type": "integer"}, "seen": {"type": "string"}}},
        }}},
        "subresources": {
            "status": {}, "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"},
        },
        "selectableFields": [{"jsonPath": column}],
        "additionalPrinterColumns": [{"name": "Place", "type": "string", "jsonPath": column}],
    })
}

fn definition(hooks: &WebhookServer, stored: &str) -> Value {
    let text = json!({"type": "string"});
    let number = json!({"type": "integer"});
    let v1 = json!({"host": text, "port": number, "replicas": number, "mode": {"type": "string", "default": "plain"}});
    let v2 = json!({"address": text, "replicas": number, "mode": text});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "links.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"plural": "links", "kind": "Link"},
            "versions": [
                version("v1", stored == "v1", &v1, ".spec.host"), version("v2", stored == "v2", &v2, ".spec.address"),
            ],
            "conversion": {"strategy": "Webhook", "webhook": {
                "clientConfig": hooks.client_config("/convert"), "conversionReviewVersions": ["v9", "v1"]}},
        },
    })
}

/// What an honest webhook makes of an object.
fn converted(object: &Value, to: &str) -> Value {
    let mut made = object.clone();
    made["apiVersion"] = json!(to);
    let spec = made["spec"].as_object_mut().expect("a spec");
    match (to, spec.remove("host"), spec.remove("port"), spec.remove("address")) {
        ("example.com/v2", Some(host), port, _) => {
            let port = port.and_then(|port| port.as_u64()).unwrap_or(80);
            spec.insert("address".to_owned(), json!(format!("{}:{port}", host.as_str().expect("a name"))));
            spec.insert("unknown".to_owned(), json!("is pruned"));
            made["metadata"]["labels"]["converted"] = json!("yes");
        }
        ("example.com/v1", _, _, Some(address)) => {
            let (host, port) = address.as_str().and_then(|text| text.split_once(':')).expect("a host and a port");
            spec.insert("host".to_owned(), json!(host));
            spec.insert("port".to_owned(), json!(port.parse::<u16>().expect("a number")));
            if let Some(labels) = made["metadata"]["labels"].as_object_mut() {
                labels.remove("converted");
            }
        }
        other => panic!("{other:?}: {object}"),
    }
    made
}

fn honest(request: &Value) -> Reply {
    let to = request["desiredAPIVersion"].as_str().expect("a version");
    let objects: Vec<Value> =
        request["objects"].as_array().into_iter().flatten().map(|object| converted(object, to)).collect();
    Reply::Review(json!({"result": {"status": "Success"}, "convertedObjects": objects}))
}

impl Field {
    async fn new(store: StoreKind) -> Self {
        let croft = Croft::start(store).await.expect("the server starts");
        let client = croft.client().expect("a client");
        let hooks = WebhookServer::start().await.expect("the webhook starts");
        hooks.on("/convert", honest);
        let made = client.post(DEFINITIONS, &definition(&hooks, "v1")).await.expect("an answer");
        assert_eq!(made.header("warning"), None, "{}", made.text());
        made.ok().expect("the definition is made");
        Self { croft, client, hooks }
    }

    async fn get(&self, path: &str) -> Answer {
        self.client.get(path).await.expect("an answer")
    }

    async fn read(&self, path: &str) -> Value {
        self.get(path).await.ok().expect("it is read")
    }

    async fn make(&self, version: &str, name: &str, spec: &Value) -> Value {
        let link = link(version, name, spec);
        self.client.post(&at(version), &link).await.expect("an answer").ok().expect("it is made")
    }

    async fn merge(&self, path: &str, patch: &Value) -> Value {
        self.client.patch(path, "merge-patch", patch).await.expect("an answer").ok().expect("it is changed")
    }

    /// How many objects the webhook has seen since the last look.
    fn seen(&self) -> usize {
        let asked = self.hooks.asked("/convert");
        self.hooks.forget();
        asked.iter().map(|request| request["objects"].as_array().map_or(0, Vec::len)).sum()
    }
}

fn link(version: &str, name: &str, spec: &Value) -> Value {
    let api_version = format!("example.com/{version}");
    json!({"apiVersion": api_version, "kind": "Link", "metadata": {"name": name}, "spec": spec})
}

fn refused(answer: &Answer, message: &str) {
    let status = answer.json();
    assert_eq!((answer.status, status["message"].as_str()), (500, Some(message)), "{}", answer.text());
    assert_eq!(status["status"], "Failure");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn versions_are_converted_by_their_webhook() {
    let field = Field::new(StoreKind::Embedded).await;
    single_objects(&field).await;
    writes(&field).await;
    lists(&field).await;
    watches(&field).await;
    admission(&field).await;
    kubectl(&field).await;
    bad_answers(&field).await;
    another_storage_version(&field).await;
    metrics(&field).await;
    without_the_webhook(field).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn versions_are_converted_on_etcd_too() {
    let field = Field::new(StoreKind::Etcd).await;
    single_objects(&field).await;
    lists(&field).await;
    watches(&field).await;
}

async fn single_objects(field: &Field) {
    let made = field.make("v1", "one", &json!({"host": "a", "port": 1})).await;
    assert_eq!((&made["spec"]["mode"], field.seen()), (&json!("plain"), 0), "the stored version needs nobody");
    let path = format!("{}/one", at("v2"));
    let read = field.read(&path).await;
    assert_eq!(read["spec"], json!({"address": "a:1", "mode": "plain"}));
    assert_eq!(
        (&read["apiVersion"], &read["metadata"]["labels"]["converted"]),
        (&json!("example.com/v2"), &json!("yes"))
    );
    for field in ["uid", "resourceVersion", "creationTimestamp", "generation"] {
        assert_eq!(read["metadata"][field], made["metadata"][field]);
    }
    assert_eq!(field.hooks.asked("/convert")[0]["desiredAPIVersion"], "example.com/v2");
    assert_eq!(field.seen(), 1);
    field.read(&path).await;
    assert_eq!(field.seen(), 0, "what was converted once is kept");

    let made = field.make("v2", "two", &json!({"address": "b:2"})).await;
    assert_eq!(made["spec"], json!({"address": "b:2", "mode": "plain"}), "as it is read from now on");
    assert_eq!(field.seen(), 2, "there and back");
    let read = field.read(&format!("{}/two", at("v2"))).await;
    assert_eq!((read, field.seen()), (made, 0));
    let stored = field.read(&format!("{}/two", at("v1"))).await;
    assert_eq!(stored["spec"], json!({"host": "b", "port": 2, "mode": "plain"}));
    assert_eq!((stored["metadata"].get("labels"), field.seen()), (None, 0));
}

async fn writes(field: &Field) {
    let path = format!("{}/two", at("v2"));
    let patched = field.merge(&path, &json!({"spec": {"address": "c:3"}})).await;
    assert_eq!(patched["spec"]["address"], "c:3");
    let mut replaced = patched.clone();
    replaced["spec"]["address"] = json!("d:4");
    let replaced = field.client.put(&path, &replaced).await.expect("an answer").ok().expect("replaced");
    assert_eq!((&replaced["spec"]["address"], &replaced["metadata"]["generation"]), (&json!("d:4"), &json!(3)));
    let status = field.merge(&format!("{path}/status"), &json!({"status": {"seen": "yes"}})).await;
    assert_eq!((&status["status"]["seen"], &status["spec"]["address"]), (&json!("yes"), &json!("d:4")));
    let scaled = field.merge(&format!("{path}/scale"), &json!({"spec": {"replicas": 7}})).await;
    assert_eq!(scaled["spec"]["replicas"], 7);
    let applied = Call::new(Method::PATCH, &format!("{}/three?fieldManager=test", at("v2")))
        .body("application/apply-patch+yaml", link("v2", "three", &json!({"address": "e:5"})).to_string());
    let applied = field.client.send(applied).await.expect("an answer").ok().expect("applied");
    assert_eq!(applied["spec"]["address"], "e:5");
    let stored = field.read(&format!("{}/two", at("v1"))).await;
    let spec = json!({"host": "d", "port": 4, "mode": "plain", "replicas": 7});
    assert_eq!((&stored["spec"], &stored["status"]["seen"]), (&spec, &json!("yes")));
    // A dry run shows what would be, and leaves no trace.
    let dry = field.merge(&format!("{path}?dryRun=All"), &json!({"spec": {"address": "x:9"}})).await;
    assert_eq!(dry["spec"]["address"], "x:9");
    assert_eq!(field.read(&path).await["spec"]["address"], "d:4");
    let gone = field.client.delete(&format!("{}/three", at("v2"))).await.expect("an answer");
    assert_eq!(gone.json()["status"], "Success");
    field.client.delete(&path).await.expect("an answer").ok().expect("gone");
    field.client.delete(&format!("{}/one", at("v1"))).await.expect("an answer").ok().expect("gone");
    field.seen();
}

async fn lists(field: &Field) {
    field.client.delete(&at("v1")).await.expect("an answer").ok().expect("all are gone");
    for n in 0..25 {
        field.make("v1", &format!("list-{n:02}"), &json!({"host": format!("h{n}"), "port": n})).await;
    }
    assert_eq!(field.seen(), 0);
    let all = field.read(&at("v2")).await;
    assert_eq!(field.hooks.asked("/convert").len(), 1, "all in one go");
    assert_eq!(field.seen(), 25);
    let names = |list: &Value| -> Vec<String> {
        let items = list["items"].as_array().expect("items");
        items.iter().map(|item| item["spec"]["address"].as_str().expect("an address").to_owned()).collect()
    };
    let expected: Vec<String> = (0..25).map(|n| format!("h{n}:{n}")).collect();
    assert_eq!((names(&all), &all["apiVersion"]), (expected.clone(), &json!("example.com/v2")));
    // Page by page it is the same, and nobody is asked again.
    let (mut pages, mut next) = (Vec::new(), String::new());
    loop {
        let page = field.read(&format!("{}?limit=7&continue={next}", at("v2"))).await;
        pages.extend(names(&page));
        page["metadata"]["continue"].as_str().unwrap_or_default().clone_into(&mut next);
        if next.is_empty() {
            break;
        }
    }
    assert_eq!((pages, field.seen()), (expected.clone(), 0));
    // Selectors look at what the webhook made, page by page too.
    let selected = field.read(&format!("{}?labelSelector=converted%3Dyes", at("v2"))).await;
    assert_eq!(names(&selected), expected);
    let first = field.read(&format!("{}?labelSelector=converted%3Dyes&limit=20", at("v2"))).await;
    let next = first["metadata"]["continue"].as_str().expect("there are more");
    let second = field.read(&format!("{}?labelSelector=converted%3Dyes&limit=20&continue={next}", at("v2"))).await;
    assert_eq!([names(&first), names(&second)].concat(), expected);
    let one = field.read(&format!("{}?fieldSelector=spec.address%3Dh7:7", at("v2"))).await;
    assert_eq!(names(&one), ["h7:7"]);
    assert_eq!(field.read(&format!("{}?labelSelector=converted%3Dyes", at("v1"))).await["items"], json!([]));
    assert_eq!(field.seen(), 0);
    let table = Call::new(Method::GET, &at("v2")).header("accept", "application/json;as=Table;v=v1;g=meta.k8s.io");
    let table = field.client.send(table).await.expect("an answer").ok().expect("a table");
    assert_eq!(table["rows"][3]["cells"], json!(["list-03", "h3:3"]));
    let steve = field.read("/v1/harvester/example.com.links?limit=3").await;
    assert_eq!(steve["data"][2]["spec"]["address"], "h2:2");
}

async fn watches(field: &Field) {
    field.client.delete(&at("v1")).await.expect("an answer").ok().expect("all are gone");
    field.make("v1", "old", &json!({"host": "old"})).await;
    field.seen();
    let mut watchers = Vec::new();
    for _ in 0..5 {
        let call = Call::new(Method::GET, &format!("{}?watch=true&labelSelector=converted%3Dyes", at("v2")));
        watchers.push(field.client.open(call).await.expect("a watch"));
    }
    field.make("v1", "new", &json!({"host": "new"})).await;
    field.merge(&format!("{}/new", at("v1")), &json!({"spec": {"port": 5}})).await;
    field.client.delete(&format!("{}/new", at("v1"))).await.expect("an answer").ok().expect("gone");
    for watcher in &mut watchers {
        let mut seen = Vec::new();
        for _ in 0..4 {
            let event = watcher.event().await.expect("an event").expect("one more");
            assert_eq!(event["object"]["apiVersion"], "example.com/v2");
            seen.push((event["type"].clone(), event["object"]["spec"]["address"].clone()));
        }
        let expected = [("ADDED", "old:80"), ("ADDED", "new:80"), ("MODIFIED", "new:5"), ("DELETED", "new:5")];
        let expected = expected.map(|(ty, address)| (json!(ty), json!(address)));
        assert_eq!(seen, expected);
    }
    assert_eq!(field.seen(), 3, "each state once, whoever watches");
}

/// An admission webhook that asks for another version sees the object as the conversion webhook makes it.
async fn admission(field: &Field) {
    field.hooks.on("/admit", |request| {
        if request["object"]["spec"]["address"] == "bad:80" { Reply::deny("bad place") } else { Reply::allow() }
    });
    let hook = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "links"},
        "webhooks": [{
            "name": "links.example.com", "clientConfig": field.hooks.client_config("/admit"), "sideEffects": "None",
            "rules": [{"operations": ["CREATE"], "apiGroups": ["example.com"], "apiVersions": ["v2"], "resources": ["links"]}],
            "admissionReviewVersions": ["v1"], "matchPolicy": "Equivalent",
        }],
    });
    let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    field.client.post(path, &hook).await.expect("an answer").ok().expect("configured");
    field.make("v1", "good", &json!({"host": "good"})).await;
    let bad = field.client.post(&at("v1"), &link("v1", "bad", &json!({"host": "bad"}))).await.expect("an answer");
    assert_eq!(bad.json()["message"], "admission webhook \"links.example.com\" denied the request: bad place");
    field.client.delete(path).await.expect("an answer").ok().expect("removed");
    field.seen();
}

async fn kubectl(field: &Field) {
    let kubectl = field.croft.kubectl().expect("kubectl");
    let applied = link("v2", "applied", &json!({"address": "k:1"})).to_string();
    kubectl.ok_with(&["apply", "-f", "-"], &applied).await;
    let shown = kubectl.ok(&["get", "links", "applied", "--no-headers"]).await.stdout;
    assert_eq!(shown.split_whitespace().collect::<Vec<_>>(), ["applied", "k:1"], "v2 is preferred");
    let old = kubectl.ok(&["get", "links.v1.example.com", "applied", "-o", "jsonpath={.spec.host} {.spec.port}"]).await;
    assert_eq!(old.stdout, "k 1");
    let applied = link("v2", "applied", &json!({"address": "k:2"})).to_string();
    kubectl.ok_with(&["apply", "--server-side", "--force-conflicts", "-f", "-"], &applied).await;
    kubectl.ok(&["label", "links", "applied", "more=labels"]).await;
    let shown = kubectl.ok(&["get", "links", "-l", "more=labels", "-o", "jsonpath={.items[*].spec.address}"]).await;
    assert_eq!(shown.stdout, "k:2");
    kubectl.ok(&["delete", "links", "applied"]).await;
}

/// What a webhook makes of its answer.
type Change = fn(&mut Value);

async fn bad_answers(field: &Field) {
    let bad = |change: fn(&mut Value)| {
        move |request: &Value| {
            let Reply::Review(mut response) = honest(request) else { return Reply::Never };
            change(&mut response);
            Reply::Review(response)
        }
    };
    let table: [(Change, &str); 8] = [
        (|r| r["result"] = json!({"status": "Failure", "message": "not today"}), "failed: not today"),
        (|r| r["result"] = json!({"status": "Failure"}), "failed: response.result.status was 'Failure', not 'Success'"),
        (|r| r["convertedObjects"] = json!([]), "returned 0 objects, expected 1"),
        (
            |r| r["convertedObjects"][0]["apiVersion"] = json!("example.com/v3"),
            "returned invalid object at index 0: invalid groupVersion (expected example.com/v2, received example.com/v3)",
        ),
        (
            |r| r["convertedObjects"][0]["kind"] = json!("Chain"),
            "returned invalid object at index 0: invalid kind (expected Link, received Chain)",
        ),
        (
            |r| r["convertedObjects"][0]["metadata"]["name"] = json!("other"),
            "returned invalid object: must have the same name: bad-answers != other",
        ),
        (
            |r| r["convertedObjects"][0]["metadata"]["labels"] = json!({"a": 1}),
            "returned invalid metadata: metadata.labels[a] must be a string, but is int64 in converted object",
        ),
        (
            |r| drop(r["convertedObjects"][0].as_object_mut().map(|object| object.remove("metadata"))),
            "returned invalid object: must have the same name: bad-answers != ",
        ),
    ];
    field.make("v1", "bad-answers", &json!({"host": "a"})).await;
    let path = format!("{}/bad-answers", at("v2"));
    for (change, why) in table {
        field.hooks.on("/convert", bad(change));
        refused(&field.get(&path).await, &format!("conversion webhook for example.com/v1, Kind=Link {why}"));
    }
    let mut watch =
        field.client.open(Call::new(Method::GET, &format!("{}?watch=true", at("v2")))).await.expect("a watch");
    let event = watch.event().await.expect("an event").expect("one");
    assert_eq!((&event["type"], &event["object"]["code"]), (&json!("ERROR"), &json!(500)), "{event}");
    // What else a webhook makes of the metadata does not count.
    field.hooks.on("/convert", bad(|r| r["convertedObjects"][0]["metadata"]["finalizers"] = json!(["a/b"])));
    assert_eq!(field.read(&path).await["metadata"].get("finalizers"), None);
    field.hooks.on("/convert", honest);
    field.client.delete(&format!("{}/bad-answers", at("v1"))).await.expect("an answer").ok().expect("gone");
}

async fn another_storage_version(field: &Field) {
    field.client.delete(&at("v1")).await.expect("an answer").ok().expect("all are gone");
    field.make("v1", "before", &json!({"host": "before", "port": 1})).await;
    field.make("v1", "replaced", &json!({"host": "replaced", "port": 1})).await;
    let mut changed = field.read(DEFINITION).await;
    for version in changed["spec"]["versions"].as_array_mut().expect("versions") {
        version["storage"] = json!(version["name"] == "v2");
    }
    let changed = field.client.put(DEFINITION, &changed).await.expect("an answer").ok().expect("changed");
    assert_eq!(changed["status"]["storedVersions"], json!(["v1", "v2"]));
    field.make("v2", "after", &json!({"address": "after:2"})).await;
    field.seen();
    // Each is read in the version that it was stored in without a word to the webhook.
    field.read(&format!("{}/before", at("v1"))).await;
    field.read(&format!("{}/after", at("v2"))).await;
    assert_eq!(field.seen(), 0);
    let all = field.read(&at("v2")).await;
    assert_eq!(all["items"][0]["spec"], json!({"address": "after:2"}));
    assert_eq!(all["items"][1]["spec"]["address"], "before:1");
    assert_eq!(all["items"][2]["spec"]["address"], "replaced:1");
    assert_eq!(field.seen(), 2, "only what is in another version is sent");
    // A write stores it in the new one.
    field.merge(&format!("{}/before", at("v1")), &json!({"spec": {"port": 3}})).await;
    field.seen();
    assert_eq!(field.read(&format!("{}/before", at("v2"))).await["spec"]["address"], "before:3");
    assert_eq!(field.seen(), 0);
    // So does one that changes nothing: it is how objects are moved on. Once moved, they stay as they are.
    let path = format!("{}/replaced", at("v1"));
    let as_it_is = field.read(&path).await;
    let put = async |object: &Value| field.client.put(&path, object).await.expect("an answer").ok().expect("replaced");
    let moved = put(&as_it_is).await;
    assert_ne!(moved["metadata"]["resourceVersion"], as_it_is["metadata"]["resourceVersion"]);
    field.seen();
    assert_eq!(field.read(&format!("{}/replaced", at("v2"))).await["spec"]["address"], "replaced:1");
    assert_eq!(field.seen(), 0);
    assert_eq!(put(&moved).await, moved);
    let migrated = json!({"status": {"storedVersions": ["v2"]}});
    let status = field.merge(&format!("{DEFINITION}/status"), &migrated).await;
    assert_eq!(status["status"]["storedVersions"], json!(["v2"]));
}

async fn metrics(field: &Field) {
    let text = field.get("/metrics").await.text();
    let counted = |labels: &str| {
        text.lines().any(|line| {
            line.starts_with("apiserver_crd_webhook_conversion_duration_seconds_count") && line.contains(labels)
        })
    };
    let labels = r#"crd_name="links.example.com",from_version="v1",to_version="v2",succeeded="#;
    assert!(counted(&format!("{labels}\"true\"")) && counted(&format!("{labels}\"false\"")), "{text}");
}

/// Whoever is content with the stored version goes on; so do the garbage collector and the end of namespaces.
async fn without_the_webhook(field: Field) {
    let Field { croft: _croft, client, hooks } = field;
    let space = "/apis/example.com/v2/namespaces/doomed/links";
    client
        .post("/api/v1/namespaces", &json!({"metadata": {"name": "doomed"}}))
        .await
        .expect("an answer")
        .ok()
        .expect("made");
    // Stored in v1, while v2 is preferred: what sweeps up must not need a webhook.
    let mut stored = client.get(DEFINITION).await.expect("an answer").ok().expect("the definition");
    for version in stored["spec"]["versions"].as_array_mut().expect("versions") {
        version["storage"] = json!(version["name"] == "v1");
    }
    client.put(DEFINITION, &stored).await.expect("an answer").ok().expect("changed");
    let owner = client.post(&at("v2"), &link("v2", "owner", &json!({"address": "o:1"}))).await.expect("an answer");
    let owner = owner.ok().expect("made");
    client.post(space, &link("v2", "inmate", &json!({"address": "i:1"}))).await.expect("an answer").ok().expect("made");
    let mut owned = link("v2", "owned", &json!({"address": "p:1"}));
    owned["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "example.com/v2", "kind": "Link", "name": "owner", "uid": owner["metadata"]["uid"],
    }]);
    client.post(&at("v2"), &owned).await.expect("an answer").ok().expect("made");
    let port = hooks.port;
    drop(hooks);

    let path = format!("{}/owned", at("v2"));
    // Kept from before the webhook went.
    client.get(&path).await.expect("an answer").ok().expect("known");
    let fresh = client.post(&at("v1"), &link("v1", "fresh", &json!({"host": "f"}))).await.expect("an answer");
    fresh.ok().expect("the stored version needs nobody");
    let dead = eventually("the webhook is gone", async || {
        let answer = client.get(&format!("{}/fresh", at("v2"))).await?;
        ensure!(answer.status == 500 && answer.text().contains("connection refused"), "{}", answer.text());
        Ok::<_, anyhow::Error>(answer)
    });
    let url = format!("https://127.0.0.1:{port}/convert?timeout=30s");
    let why =
        format!("Post \\\"{url}\\\": dial tcp 127.0.0.1:{port}: connect: connection refused").replace("\\\"", "\"");
    refused(&dead.await, &format!("conversion webhook for example.com/v1, Kind=Link failed: {why}"));
    let list = client.get(&at("v2")).await.expect("an answer");
    assert_eq!(list.status, 500, "{}", list.text());

    client.delete(&format!("{}/owner", at("v1"))).await.expect("an answer").ok().expect("the owner goes");
    eventually("what it owned goes with it", async || {
        let answer = client.get(&format!("{}/owned", at("v1"))).await?;
        ensure!(answer.status == 404, "{}", answer.text());
        Ok::<_, anyhow::Error>(())
    })
    .await;
    client.delete("/api/v1/namespaces/doomed").await.expect("an answer").ok().expect("told to go");
    eventually("the namespace goes", async || {
        let answer = client.get("/api/v1/namespaces/doomed").await?;
        ensure!(answer.status == 404, "{}", answer.text());
        Ok::<_, anyhow::Error>(())
    })
    .await;
}
