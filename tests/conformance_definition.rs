//! Definitions that tests of Kubernetes' conformance list make.

use croft_testkit::{Answer, Client, eventually};
use serde_json::{Value, json};

use crate::storage::made;

pub const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// Of `machinery.example.com`; the first version is stored.
pub fn definition(plural: &str, kind: &str, versions: &[(&str, Value)]) -> Value {
    let versions: Vec<Value> = versions
        .iter()
        .enumerate()
        .map(|(index, (name, schema))| {
            json!({"name": name, "served": true, "storage": index == 0, "schema": {"openAPIV3Schema": schema}})
        })
        .collect();
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.machinery.example.com"), "labels": {"suite": "machinery"}},
        "spec": {"group": "machinery.example.com", "scope": "Namespaced", "names": {"plural": plural, "kind": kind},
            "versions": versions}})
}

/// With a default, and without room for what is unknown.
pub fn strict() -> Value {
    json!({"type": "object", "properties": {"spec": {"type": "object",
        "properties": {"known": {"type": "string"}, "size": {"type": "integer", "default": 3}}}}})
}

/// With room for anything.
pub fn open() -> Value {
    json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

pub fn things(version: &str, plural: &str) -> String {
    format!("/apis/machinery.example.com/{version}/namespaces/default/{plural}")
}

pub fn thing(kind: &str, name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "machinery.example.com/v1", "kind": kind, "metadata": {"name": name}, "spec": spec})
}

pub async fn defined(client: &Client, definition: &Value) {
    made(client, DEFINITIONS, definition).await;
    let plural = definition["spec"]["names"]["plural"].as_str().expect("a plural");
    let version = definition["spec"]["versions"][0]["name"].as_str().expect("a version");
    eventually("the kind is served", async || client.get(&things(version, plural)).await?.ok()).await;
}

pub async fn get(client: &Client, path: &str) -> Value {
    client.get(path).await.expect("an answer").ok().unwrap_or_else(|error| panic!("{path}: {error:#}"))
}

#[track_caller]
pub fn refused(answer: &Answer, code: u16, text: &str) {
    let message = answer.json()["message"].as_str().unwrap_or_default().to_owned();
    assert!(answer.status == code && message.contains(text), "{}", answer.text());
}
