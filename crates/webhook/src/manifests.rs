//! What makes an API server ask: two configurations, and the role that lets the rules look at what they need.

use croft_api::{Refuser, Scope, refusers};
use serde_json::{Value, json};

use crate::kinds::{Kind, Kinds};

/// The names of the objects.
pub const NAME: &str = "croft-rules";
const MUTATOR: &str = "mutator.croft.io";
/// Trying a backup target takes up to 8 s.
const TIMEOUT_SECONDS: u32 = 10;

/// Built-in kinds that rules look at; of Croft's own groups they may look at everything.
const LOOKED_AT: &[(&str, &[&str])] = &[
    ("", &["limitranges", "namespaces", "nodes", "persistentvolumeclaims", "persistentvolumes", "resourcequotas"]),
    ("apps", &["controllerrevisions"]),
    ("storage.k8s.io", &["storageclasses"]),
];

/// Where the API server finds us.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// `https://host:port`, without a slash at the end.
    Url(String),
    Service {
        namespace: String,
        name: String,
        port: u16,
    },
}

#[derive(Clone, Debug)]
pub struct Options {
    pub place: Place,
    /// In base64; without one, the authorities of the API server's machine count.
    pub ca_bundle: Option<String>,
    /// `Fail` or `Ignore`.
    pub failure_policy: &'static str,
}

impl Options {
    fn client_config(&self, path: &str) -> Value {
        let mut config = match &self.place {
            Place::Url(url) => json!({"url": format!("{url}{path}")}),
            Place::Service { namespace, name, port } => {
                json!({"service": {"namespace": namespace, "name": name, "port": port, "path": path}})
            }
        };
        if let Some(bundle) = &self.ca_bundle {
            config["caBundle"] = json!(bundle);
        }
        config
    }

    fn webhook(&self, name: &str, path: &str, rules: &[Value]) -> Value {
        json!({
            "name": name,
            "clientConfig": self.client_config(path),
            "rules": rules,
            "matchPolicy": "Equivalent",
            "failurePolicy": self.failure_policy,
            "sideEffects": "None",
            "timeoutSeconds": TIMEOUT_SECONDS,
            "admissionReviewVersions": ["v1"],
        })
    }
}

/// The objects to apply.
pub fn all(kinds: &Kinds, options: &Options) -> Vec<Value> {
    vec![mutating(kinds, options), validating(kinds, options), role(kinds)]
}

/// Of the kinds that Kubernetes itself does not have.
pub fn definitions() -> impl Iterator<Item = Value> {
    croft_api::shipped_definitions()
}

fn rule(kind: &Kind, operations: &[&str]) -> Value {
    let scope = if kind.scope == Scope::Namespaced { "Namespaced" } else { "Cluster" };
    json!({"apiGroups": [kind.group], "apiVersions": [kind.version], "resources": [kind.plural],
        "operations": operations, "scope": scope})
}

fn configuration(kind: &str, webhooks: &[Value]) -> Value {
    json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": NAME},
        "webhooks": webhooks})
}

fn mutating(kinds: &Kinds, options: &Options) -> Value {
    let written = kinds.with_rules().filter(|kind| kind.admit.is_some());
    let rules = written.map(|kind| rule(kind, &["CREATE", "UPDATE"])).collect::<Vec<_>>();
    let mut webhook = options.webhook(MUTATOR, "/mutate", &rules);
    // What others change afterwards is filled in again.
    webhook["reinvocationPolicy"] = json!("IfNeeded");
    configuration("MutatingWebhookConfiguration", &[webhook])
}

/// One webhook for each name that rules refuse in, so that refusals read as they do where the rules are inside.
fn validating(kinds: &Kinds, options: &Options) -> Value {
    let mut names: Vec<&'static str> = Vec::new();
    for Refuser { name, .. } in kinds.with_rules().flat_map(|kind| refusers(&kind.group, &kind.plural)) {
        if !names.contains(name) {
            names.push(name);
        }
    }
    names.sort_unstable();
    let webhooks: Vec<Value> = names
        .into_iter()
        .map(|name| {
            let rules = kinds.with_rules().filter_map(|kind| rule_for(kind, name)).collect::<Vec<_>>();
            options.webhook(name, &format!("/validate/{name}"), &rules)
        })
        .collect();
    configuration("ValidatingWebhookConfiguration", &webhooks)
}

/// What a webhook is asked of a kind.
fn rule_for(kind: &Kind, name: &str) -> Option<Value> {
    let refuser = refusers(&kind.group, &kind.plural).iter().find(|refuser| refuser.name == name)?;
    let mut operations = kind.operations();
    operations.retain(|operation| refuser.operations.contains(operation));
    (!operations.is_empty()).then(|| rule(kind, &operations))
}

/// What whoever runs `croft webhook` must be allowed.
fn role(kinds: &Kinds) -> Value {
    let builtin = LOOKED_AT
        .iter()
        .map(|(group, resources)| json!({"apiGroups": [group], "resources": resources, "verbs": ["get", "list"]}));
    let mut groups: Vec<&str> = kinds.custom_groups().collect();
    groups.dedup();
    let own = json!({"apiGroups": groups, "resources": ["*"], "verbs": ["get", "list"]});
    // The keys of the backup target, to try it with.
    let secret = json!({"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"],
        "resourceNames": [croft_api::harvester::backup_target::SECRET]});
    let reviews = json!({"apiGroups": ["authorization.k8s.io"], "resources": ["subjectaccessreviews"],
        "verbs": ["create"]});
    let rules: Vec<Value> = builtin.chain([own, secret, reviews]).collect();
    json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": NAME},
        "rules": rules})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(place: Place) -> Options {
        Options { place, ca_bundle: Some("Q0E=".to_owned()), failure_policy: "Fail" }
    }

    #[test]
    fn every_rule_is_asked_for_and_nothing_else() {
        let kinds = Kinds::all();
        let objects = all(&kinds, &options(Place::Url("https://h:1".to_owned())));
        let mut asked = Vec::new();
        for webhook in objects[1]["webhooks"].as_array().unwrap() {
            assert_eq!(
                webhook["clientConfig"]["url"],
                format!("https://h:1/validate/{}", webhook["name"].as_str().unwrap())
            );
            for rule in webhook["rules"].as_array().unwrap() {
                for operation in rule["operations"].as_array().unwrap() {
                    let text = |field: &str| rule[field][0].as_str().unwrap().to_owned();
                    asked.push((text("apiGroups"), text("resources"), operation.as_str().unwrap().to_owned()));
                }
            }
        }
        asked.sort();
        asked.dedup();
        let mut expected: Vec<_> = kinds
            .with_rules()
            .flat_map(|kind| {
                kind.operations().into_iter().map(|op| (kind.group.clone(), kind.plural.clone(), op.to_owned()))
            })
            .collect();
        expected.sort();
        assert_eq!(asked, expected);
        assert_eq!(objects[0]["webhooks"][0]["reinvocationPolicy"], "IfNeeded");
    }

    #[test]
    fn a_service_is_named_with_its_path() {
        let place = Place::Service { namespace: "croft".to_owned(), name: "rules".to_owned(), port: 443 };
        let objects = all(&Kinds::all(), &options(place));
        let config = &objects[0]["webhooks"][0]["clientConfig"];
        let service = json!({"namespace": "croft", "name": "rules", "port": 443, "path": "/mutate"});
        assert_eq!(config, &json!({"service": service, "caBundle": "Q0E="}));
    }
}
