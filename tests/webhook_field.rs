//! A Croft server with webhooks beside it, and the few requests that tests of webhooks make all the time.

use croft_testkit::{Answer, Client, Croft, StoreKind};
use serde_json::{Value, json};

use crate::webhook_server::WebhookServer;

pub const REGISTRATION: &str = "/apis/admissionregistration.k8s.io/v1";
pub const VALIDATING: &str = "validatingwebhookconfigurations";
pub const MUTATING: &str = "mutatingwebhookconfigurations";
pub const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// A Croft server and a webhook server beside it.
#[derive(Debug)]
pub struct Field {
    pub croft: Croft,
    pub client: Client,
    pub hooks: WebhookServer,
}

impl Field {
    pub async fn new(store: StoreKind) -> Self {
        let croft = Croft::start(store).await.expect("the server starts");
        let client = croft.client().expect("a client");
        Self { croft, client, hooks: WebhookServer::start().await.expect("the webhooks start") }
    }

    /// A webhook for all that is done to ConfigMaps, but not by the server itself, with some fields set otherwise.
    pub fn hook(&self, name: &str, with: &Value) -> Value {
        let mut hook = json!({
            "name": format!("{name}.example.com"), "clientConfig": self.hooks.client_config(&format!("/{name}")),
            "rules": [{"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}],
            "matchConditions": [{"name": "ours", "expression": "request.userInfo.username != 'system:apiserver'"}],
            "sideEffects": "None", "admissionReviewVersions": ["v1"], "timeoutSeconds": 5,
        });
        for (field, value) in with.as_object().into_iter().flatten() {
            hook[field] = value.clone();
        }
        hook
    }

    pub async fn configure(&self, plural: &str, name: &str, hooks: &[Value]) {
        self.try_configure(plural, name, hooks).await.ok().expect("the configuration is accepted");
    }

    pub async fn try_configure(&self, plural: &str, name: &str, hooks: &[Value]) -> Answer {
        let kind = if plural == MUTATING { "MutatingWebhookConfiguration" } else { "ValidatingWebhookConfiguration" };
        let configuration = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
            "metadata": {"name": name}, "webhooks": hooks,
        });
        self.client.post(&format!("{REGISTRATION}/{plural}"), &configuration).await.expect("an answer")
    }

    /// Removes all configurations and what was remembered.
    pub async fn clear(&self) {
        for plural in [MUTATING, VALIDATING] {
            self.client.delete(&format!("{REGISTRATION}/{plural}")).await.expect("an answer").ok().expect("removed");
        }
        self.hooks.forget();
    }

    pub async fn create(&self, name: &str, data: &Value) -> Answer {
        self.client.post(MAPS, &map(name, data)).await.expect("an answer")
    }

    /// Without a look at what happens to the object.
    pub async fn made(&self, name: &str, data: &Value) -> Value {
        self.create(name, data).await.ok().expect("it is made")
    }

    pub async fn merge(&self, name: &str, patch: &Value) -> Answer {
        self.client.patch(&format!("{MAPS}/{name}"), "merge-patch", patch).await.expect("an answer")
    }

    pub async fn get(&self, name: &str) -> Answer {
        self.client.get(&format!("{MAPS}/{name}")).await.expect("an answer")
    }
}

pub fn map(name: &str, data: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data})
}

pub fn label(key: &str, value: &str) -> Value {
    json!([
        {"op": "add", "path": "/metadata/labels", "value": {}},
        {"op": "add", "path": format!("/metadata/labels/{key}"), "value": value},
    ])
}

#[track_caller]
pub fn refused(answer: &Answer, code: u16, message: &str) {
    assert_eq!((answer.status, answer.json()["message"].as_str()), (code, Some(message)), "{}", answer.text());
}
