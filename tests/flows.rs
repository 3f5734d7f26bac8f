//! What the suites that play clients share: how Go writes objects, and what those clients do everywhere.

use croft_testkit::{Answer, Call, Client};
use http::Method;
use serde_json::{Value, json};

use crate::machines::is_gone;

pub const HARVESTER: &str = "/apis/harvesterhci.io/v1beta1";
pub const NETWORKS: &str = "/apis/network.harvesterhci.io/v1beta1";
pub const NADS: &str = "/apis/k8s.cni.cncf.io/v1/namespaces/default/network-attachment-definitions";
pub const BALANCERS: &str = "/apis/loadbalancer.harvesterhci.io/v1beta1/namespaces/default/loadbalancers";
pub const POOLS: &str = "/apis/loadbalancer.harvesterhci.io/v1beta1/ippools";
pub const SETTINGS: &str = "/apis/harvesterhci.io/v1beta1/settings";

/// The object as Go's types are written: a time that is not set is null, and a status is there, empty.
#[must_use]
pub fn go(mut object: Value) -> Value {
    object["metadata"]["creationTimestamp"] = Value::Null;
    if object["spec"]["template"]["metadata"].is_object() {
        object["spec"]["template"]["metadata"]["creationTimestamp"] = Value::Null;
    }
    if object["status"].is_null() {
        object["status"] = json!({});
    }
    object
}

/// Whether all that was sent is in what came back; the first difference is the error.
fn difference(sent: &Value, got: &Value, at: &str) -> Option<String> {
    match (sent, got) {
        (Value::Null, _) => None,
        (Value::Object(sent), got) if sent.is_empty() && got.is_null() => None,
        (Value::Object(sent), Value::Object(got)) => sent
            .iter()
            .find_map(|(key, value)| difference(value, got.get(key).unwrap_or(&Value::Null), &format!("{at}.{key}"))),
        (Value::Array(sent), Value::Array(got)) if sent.len() == got.len() => {
            let pairs = sent.iter().zip(got).enumerate();
            pairs.map(|(n, (sent, got))| difference(sent, got, &format!("{at}[{n}]"))).find_map(|found| found)
        }
        (sent, got) if sent == got => None,
        (sent, got) => Some(format!("{at}: {sent} became {got}")),
    }
}

/// A client that compares what it wants with what there is finds no drift.
#[track_caller]
pub fn holds(got: &Value, sent: &Value) {
    if let Some(drift) = difference(sent, got, "") {
        panic!("{}: {drift}\n{got}", sent["metadata"]["name"]);
    }
}

/// Creates it, reads it back, and finds no drift.
pub async fn applied(client: &Client, path: &str, object: &Value) -> Value {
    let sent = go(object.clone());
    let answer = client.post(path, &sent).await.expect("an answer");
    assert_eq!(answer.status, 201, "{path}: {}", answer.text());
    let name = answer.json()["metadata"]["name"].as_str().expect("a name").to_owned();
    let got = read(client, &format!("{path}/{name}")).await;
    holds(&got, &sent);
    got
}

pub async fn read(client: &Client, path: &str) -> Value {
    client.get(path).await.expect("an answer").ok().unwrap_or_else(|err| panic!("{path}: {err:#}"))
}

/// What clients do to change an object: read it, change it, and write all of it.
pub async fn updated(client: &Client, path: &str, change: impl Fn(&mut Value)) -> Value {
    loop {
        let mut object = read(client, path).await;
        change(&mut object);
        let answer = client.put(path, &object).await.expect("an answer");
        if answer.status == 409 && answer.text().contains("the object has been modified") {
            continue;
        }
        let got = answer.ok().unwrap_or_else(|err| panic!("{path}: {err:#}"));
        // Whoever wrote says nothing about versions and times.
        for field in ["resourceVersion", "generation", "managedFields"] {
            object["metadata"][field] = Value::Null;
        }
        holds(&got, &object);
        return got;
    }
}

/// Deletes as Go clients do with a propagation policy, and waits until nothing is left.
pub async fn destroyed(client: &Client, path: &str, policy: Option<&str>) {
    let mut call = Call::new(Method::DELETE, path);
    if let Some(policy) = policy {
        call = call.json(&json!({"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": policy}));
    }
    let answer = client.send(call).await.expect("an answer");
    assert!((200..300).contains(&answer.status), "{path}: {}", answer.text());
    is_gone(client, path).await;
}

/// Harvester's upload of an image: one part called `chunk`.
pub async fn uploaded(client: &Client, name: &str, content: &[u8]) -> Answer {
    const BOUNDARY: &str = "01234567890abcdef";
    let mut body = format!(
        "--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"chunk\"; filename=\"{name}.raw\"\r\n\
         Content-Type: application/octet-stream\r\n\r\n"
    )
    .into_bytes();
    body.extend_from_slice(content);
    body.extend_from_slice(format!("\r\n--{BOUNDARY}--\r\n").as_bytes());
    let path = format!(
        "/v1/harvester/harvesterhci.io.virtualmachineimages/default/{name}?action=upload&size={}",
        content.len()
    );
    let call = Call::new(Method::POST, &path).body(&format!("multipart/form-data; boundary={BOUNDARY}"), body);
    client.send(call).await.expect("an answer")
}

/// A refusal with its code and a part of its text.
#[track_caller]
pub fn refused(answer: &Answer, code: u16, text: &str) {
    assert_eq!(answer.status, code, "{}", answer.text());
    assert!(answer.json()["message"].as_str().unwrap_or_default().contains(text), "{}", answer.text());
}
