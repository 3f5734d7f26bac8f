//! Data directories of all releases so far, opened by this one (docs/upgrades.md).

use std::path::{Path, PathBuf};
use std::process::Command;

use base64::{Engine, prelude::BASE64_STANDARD};
use croft_testkit::{Call, Client, Croft};
use http::Method;
use serde::Deserialize;
use serde_json::{Value, json};

const OBJECTS: &str = include_str!("releases/objects.yaml");
const MAPS: &str = "/api/v1/namespaces/team/configmaps";
const GADGETS: &str = "/apis/example.com/v1alpha1/namespaces/team/gadgets";

fn kept() -> Vec<(String, PathBuf)> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("releases");
    let files = std::fs::read_dir(dir).expect("releases").map(|file| file.expect("a file").path());
    let version = |path: &Path| path.file_name()?.to_str()?.strip_suffix(".tar.zst").map(str::to_owned);
    files.filter_map(|path| Some((version(&path)?, path))).collect()
}

async fn opened(file: &Path) -> Croft {
    let dir = tempfile::tempdir().expect("a directory");
    let unpacked = Command::new("tar").arg("--zstd").arg("-xf").arg(file).arg("-C").arg(dir.path()).status();
    assert!(unpacked.expect("tar").success());
    Croft::start_in(dir).await.expect("the server opens what an earlier release wrote")
}

fn written() -> Vec<Value> {
    serde_saphyr::from_multiple::<Value>(OBJECTS).expect("objects")
}

/// Whether all that was written is there, whatever else is.
fn holds(found: &Value, written: &Value) -> bool {
    match (found, written) {
        (Value::Object(found), Value::Object(written)) => {
            written.iter().all(|(key, value)| found.get(key).is_some_and(|found| holds(found, value)))
        }
        (Value::Array(found), Value::Array(written)) => {
            found.len() == written.len() && found.iter().zip(written).all(|(found, written)| holds(found, written))
        }
        _ => found == written,
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Resources {
    resources: Vec<Resource>,
}

#[derive(Deserialize)]
struct Resource {
    name: String,
    kind: String,
    namespaced: bool,
}

/// Where an object is, as discovery tells.
async fn path_of(client: &Client, object: &Value) -> String {
    let api_version = object["apiVersion"].as_str().expect("a version");
    let root = if api_version.contains('/') { format!("/apis/{api_version}") } else { format!("/api/{api_version}") };
    let list = client.get(&root).await.expect("an answer").ok().expect("served");
    let list: Resources = serde_json::from_value(list).expect("resources");
    let is_it = |one: &&Resource| one.kind == object["kind"] && !one.name.contains('/');
    let found = list.resources.iter().find(is_it).expect("the kind is served");
    let name = object["metadata"]["name"].as_str().expect("a name");
    match object["metadata"]["namespace"].as_str().filter(|_| found.namespaced) {
        Some(namespace) => format!("{root}/namespaces/{namespace}/{}/{name}", found.name),
        None => format!("{root}/{}/{name}", found.name),
    }
}

async fn everything_is_served(client: &Client) {
    for object in written() {
        let path = path_of(client, &object).await;
        let found = client.get(&path).await.expect("an answer").ok().expect("it is there");
        assert!(holds(&found, &object), "{path}: {found:#}");
    }
    let old = client.get(&format!("{GADGETS}/one")).await.expect("an answer").ok().expect("in its other version");
    assert_eq!(old["spec"], json!({"size": 3, "colour": "red"}));
}

async fn everything_goes_on(client: &Client) {
    let list = client.get(MAPS).await.expect("an answer").ok().expect("a list");
    let version = list["metadata"]["resourceVersion"].as_str().expect("a version");
    let watch = Call::new(Method::GET, &format!("{MAPS}?watch=1&resourceVersion={version}&timeoutSeconds=60"));
    let mut watch = client.open(watch).await.expect("a watch");
    let patch = json!({"data": {"key": "changed"}});
    client.patch(&format!("{MAPS}/plain"), "merge-patch", &patch).await.expect("an answer").ok().expect("changed");
    let event = watch.event().await.expect("the watch goes on").expect("an event");
    assert_eq!((&event["type"], &event["object"]["data"]["key"]), (&json!("MODIFIED"), &json!("changed")));
    let large = json!({"apiVersion": "example.com/v1alpha1", "kind": "Gadget", "metadata": {"name": "large"},
        "spec": {"size": 99}});
    let refused = client.post(GADGETS, &large).await.expect("an answer");
    assert!(refused.status == 422 && refused.text().contains("gadgets are small"), "{}", refused.text());
    let quota = client.get("/api/v1/namespaces/team/resourcequotas/bounds").await.expect("an answer");
    assert_eq!(quota.ok().expect("there")["spec"]["hard"]["count/configmaps"], "20");
}

async fn everybody_can_log_in(server: &Croft, version: &str) {
    let token = std::fs::read_to_string(server.data_dir().join("jane.token")).expect("a token");
    let jane = server.bearer(token.trim()).expect("a client");
    assert_eq!(jane.get(&format!("{MAPS}/plain")).await.expect("an answer").status, 200);
    assert_eq!(jane.delete(&format!("{MAPS}/plain")).await.expect("an answer").status, 403);
    let basic = BASE64_STANDARD.encode(format!("admin:the password of {version}"));
    let call = Call::new(Method::GET, "/api/v1/namespaces/team/secrets/hidden");
    let call = call.header("authorization", &format!("Basic {basic}"));
    let secret = server.anonymous().expect("a client").send(call).await.expect("an answer").ok().expect("the secret");
    assert_eq!(secret["data"]["password"], "aHVudGVyMg==");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_earlier_releases_wrote_is_served_and_goes_on() {
    let kept = kept();
    assert!(!kept.is_empty(), "there are data directories to open");
    for (version, file) in kept {
        let mut server = opened(&file).await;
        everything_is_served(&server.client().expect("a client")).await;
        everybody_can_log_in(&server, &version).await;
        everything_goes_on(&server.client().expect("a client")).await;
        server.restart().await.expect("it opens what it wrote itself");
        let plain = server.client().expect("a client").get(&format!("{MAPS}/plain")).await.expect("an answer");
        assert_eq!(plain.ok().expect("there")["data"]["key"], "changed");
    }
}
