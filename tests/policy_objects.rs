//! Policies for the tests, and what is written under them.

use croft_testkit::{Answer, Client, Croft, StoreKind};
use serde_json::{Value, json};

const ADMISSION: &str = "/apis/admissionregistration.k8s.io";
pub const MAPS: &str = "/api/v1/namespaces/default/configmaps";

pub async fn start() -> (Croft, Client) {
    let server = Croft::start(StoreKind::Embedded).await.expect("the server starts");
    let client = server.client().expect("a client");
    (server, client)
}

pub fn rule(plural: &str, group: &str) -> Value {
    json!({"apiGroups": [group], "apiVersions": ["*"], "operations": ["*"], "resources": [plural]})
}

/// A policy about ConfigMaps with one validation.
pub fn policy(name: &str, expression: &str) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": {"name": name},
        "spec": {
            "matchConstraints": {"resourceRules": [rule("configmaps", "")]},
            "validations": [{"expression": expression}],
        },
    })
}

pub fn binding(name: &str, actions: &[&str]) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name}, "spec": {"policyName": name, "validationActions": actions},
    })
}

/// A mutating policy about ConfigMaps, and its binding.
pub fn mutating(name: &str, mutations: Value) -> (Value, Value) {
    let api_version = "admissionregistration.k8s.io/v1beta1";
    let mut policy = policy(name, "");
    policy["apiVersion"] = json!(api_version);
    policy["kind"] = json!("MutatingAdmissionPolicy");
    policy["spec"].as_object_mut().expect("a spec").remove("validations");
    policy["spec"]["mutations"] = mutations;
    let binding = json!({"apiVersion": api_version, "kind": "MutatingAdmissionPolicyBinding",
        "metadata": {"name": name}, "spec": {"policyName": name}});
    (policy, binding)
}

/// A mutation that is merged.
pub fn applied(expression: &str) -> Value {
    json!([{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}])
}

/// A mutation by patch.
pub fn patched(expression: &str) -> Value {
    json!([{"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}])
}

pub fn path(object: &Value) -> String {
    let version = object["apiVersion"].as_str().unwrap_or_default().rsplit('/').next().unwrap_or_default();
    let kind = object["kind"].as_str().unwrap_or_default().to_lowercase();
    let plural = kind.strip_suffix('y').map_or_else(|| format!("{kind}s"), |stem| format!("{stem}ies"));
    format!("{ADMISSION}/{version}/{plural}")
}

pub async fn create(client: &Client, object: &Value) -> Value {
    client.post(&path(object), object).await.expect("an answer").ok().expect("created")
}

pub async fn remove(client: &Client, object: &Value) {
    let name = object["metadata"]["name"].as_str().expect("a name");
    client.delete(&format!("{}/{name}", path(object))).await.expect("an answer").ok().expect("deleted");
}

/// Puts a policy in force, and takes it out of force again.
pub async fn with(client: &Client, policy: &Value, binding: &Value, then: impl AsyncFnOnce()) {
    create(client, policy).await;
    create(client, binding).await;
    then().await;
    remove(client, binding).await;
    remove(client, policy).await;
}

pub fn map(name: &str, data: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": {"name": name}}, "data": data})
}

pub async fn post(client: &Client, name: &str) -> Answer {
    client.post(MAPS, &map(name, &json!({"key": "value"}))).await.expect("an answer")
}

pub fn message(answer: &Answer) -> String {
    answer.json()["message"].as_str().unwrap_or_default().to_owned()
}
