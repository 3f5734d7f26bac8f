//! Who may do what: roles, admission, certificates, priorities and flow control.

use serde_json::{Value, json};

use super::{NONE, UNSET, age, condition, name, or_else};
use crate::view::{flag, get, int, list, number, text};

/// Both bindings.
pub(crate) fn role_binding(object: &Value, now: i64) -> Vec<Value> {
    let subjects = |kind: &str| {
        let names: Vec<String> = list(object, "subjects")
            .iter()
            .filter(|subject| text(subject, "kind") == kind)
            .map(|subject| match kind {
                "ServiceAccount" => format!("{}/{}", text(subject, "namespace"), text(subject, "name")),
                _ => text(subject, "name").to_owned(),
            })
            .collect();
        names.join(", ")
    };
    vec![
        json!(name(object)),
        json!(format!("{}/{}", text(object, "roleRef.kind"), text(object, "roleRef.name"))),
        json!(age(object, now)),
        json!(subjects("User")),
        json!(subjects("Group")),
        json!(subjects("ServiceAccount")),
    ]
}

pub(crate) fn webhook_configuration(object: &Value, now: i64) -> Vec<Value> {
    vec![json!(name(object)), json!(list(object, "webhooks").len()), json!(age(object, now))]
}

pub(crate) fn admission_policy(object: &Value, now: i64) -> Vec<Value> {
    policy_of(object, "spec.validations", now)
}

pub(crate) fn mutating_admission_policy(object: &Value, now: i64) -> Vec<Value> {
    policy_of(object, "spec.mutations", now)
}

fn policy_of(object: &Value, parts: &str, now: i64) -> Vec<Value> {
    let param_kind = get(object, "spec.paramKind")
        .map_or_else(|| UNSET.to_owned(), |kind| format!("{}/{}", text(kind, "apiVersion"), text(kind, "kind")));
    let count = list(object, parts).len();
    vec![json!(name(object)), json!(count), json!(param_kind), json!(age(object, now))]
}

pub(crate) fn admission_policy_binding(object: &Value, now: i64) -> Vec<Value> {
    let param = get(object, "spec.paramRef").map_or_else(
        || UNSET.to_owned(),
        |param| match (text(param, "name"), text(param, "namespace")) {
            ("", _) => get(param, "selector").map_or_else(|| UNSET.to_owned(), |s| super::selector_text(Some(s))),
            (name, "") => format!("*/{name}"),
            (name, namespace) => format!("{namespace}/{name}"),
        },
    );
    vec![json!(name(object)), json!(text(object, "spec.policyName")), json!(param), json!(age(object, now))]
}

pub(crate) fn certificate_signing_request(object: &Value, now: i64) -> Vec<Value> {
    let duration =
        int(object, "spec.expirationSeconds").map_or_else(|| NONE.to_owned(), croft_meta::time::human_duration);
    vec![
        json!(name(object)),
        json!(age(object, now)),
        json!(or_else(text(object, "spec.signerName"), NONE)),
        json!(text(object, "spec.username")),
        json!(duration),
        json!(certificate_status(object)),
    ]
}

fn certificate_status(object: &Value) -> String {
    let has = |kind| condition(object, "status.conditions", kind).is_some();
    let mut status = if has("Denied") {
        "Denied"
    } else if has("Approved") {
        "Approved"
    } else {
        "Pending"
    }
    .to_owned();
    if has("Failed") {
        status.push_str(",Failed");
    }
    if !text(object, "status.certificate").is_empty() {
        status.push_str(",Issued");
    }
    status
}

pub(crate) fn priority_class(object: &Value, now: i64) -> Vec<Value> {
    vec![
        json!(name(object)),
        json!(number(object, "value")),
        json!(flag(object, "globalDefault")),
        json!(age(object, now)),
        json!(text(object, "preemptionPolicy")),
    ]
}

pub(crate) fn flow_schema(object: &Value, now: i64) -> Vec<Value> {
    let dangling = condition(object, "status.conditions", "Dangling").map_or("?", |c| text(c, "status"));
    let method = get(object, "spec.distinguisherMethod").map_or(NONE, |method| text(method, "type"));
    vec![
        json!(name(object)),
        json!(text(object, "spec.priorityLevelConfiguration.name")),
        json!(number(object, "spec.matchingPrecedence")),
        json!(method),
        json!(age(object, now)),
        json!(dangling),
    ]
}

pub(crate) fn priority_level(object: &Value, now: i64) -> Vec<Value> {
    let cell = |path: &str| get(object, path).cloned().unwrap_or_else(|| json!(NONE));
    let queuing = |field: &str| cell(&format!("spec.limited.limitResponse.queuing.{field}"));
    vec![
        json!(name(object)),
        json!(text(object, "spec.type")),
        cell("spec.limited.nominalConcurrencyShares"),
        queuing("queues"),
        queuing("handSize"),
        queuing("queueLengthLimit"),
        json!(age(object, now)),
    ]
}
