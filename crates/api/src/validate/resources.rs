//! Configuration, nodes, quotas and events.

use std::collections::BTreeSet;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use croft_meta::{FieldError, FieldErrors, FieldPath, names};
use serde_json::{Map, Value};

use super::checks::{cidr, named, not_negative_quantity, one_of, quantity, quantity_text};
use super::pod::resource_name;
use super::spec;
use crate::view::{flag, get, has, list, map, strings, text};

/// Most bytes in a ConfigMap or a Secret.
const MAX_DATA: usize = 1024 * 1024;
const SEALED: &str = "field is immutable when `immutable` is set";

pub(super) fn config_map(object: &Value) -> FieldErrors {
    let mut errors = Vec::new();
    let binary = map(object, "binaryData");
    let mut size = 0;
    for (key, value) in map(object, "data").into_iter().flatten() {
        let path = FieldPath::new("data").key(key);
        named(&mut errors, &path, key, names::is_config_map_key);
        if binary.is_some_and(|binary| binary.contains_key(key)) {
            errors.push(FieldError::invalid(&path, key.as_str(), "duplicate of key present in binaryData"));
        }
        size += value.as_str().map_or(0, str::len);
    }
    for (key, value) in binary.into_iter().flatten() {
        named(&mut errors, &FieldPath::new("binaryData").key(key), key, names::is_config_map_key);
        size += decoded_length(value);
    }
    if size > MAX_DATA {
        errors.push(FieldError::too_long(&FieldPath::new("[]"), MAX_DATA));
    }
    errors
}

fn decoded_length(value: &Value) -> usize {
    value.as_str().map_or(0, |text| text.len() / 4 * 3 - text.bytes().rev().take_while(|b| *b == b'=').count())
}

/// An object that was sealed stays sealed.
fn sealed(errors: &mut FieldErrors, new: &Value, old: &Value, fields: &[&str]) {
    if !flag(old, "immutable") {
        return;
    }
    if !flag(new, "immutable") {
        errors.push(FieldError::forbidden(&FieldPath::new("immutable"), SEALED));
    }
    for field in fields {
        if get(new, field) != get(old, field) {
            errors.push(FieldError::forbidden(&FieldPath::new(*field), SEALED));
        }
    }
}

pub(super) fn config_map_update(new: &Value, old: &Value) -> FieldErrors {
    let mut errors = config_map(new);
    sealed(&mut errors, new, old, &["data", "binaryData"]);
    errors
}

pub(super) fn secret(object: &Value) -> FieldErrors {
    let mut errors = Vec::new();
    let path = FieldPath::new("data");
    let empty = Map::new();
    let data = map(object, "data").unwrap_or(&empty);
    let mut size = 0;
    for (key, value) in data {
        named(&mut errors, &path.key(key), key, names::is_config_map_key);
        size += decoded_length(value);
    }
    if size > MAX_DATA {
        errors.push(FieldError::too_long(&path, MAX_DATA));
    }
    let mut demand = |key: &str| {
        if !data.contains_key(key) {
            errors.push(FieldError::required(&path.key(key), ""));
        }
    };
    match text(object, "type") {
        "kubernetes.io/service-account-token" => {
            let key = "kubernetes.io/service-account.name";
            if croft_meta::object::annotation(object, key).unwrap_or_default().is_empty() {
                let path = FieldPath::new("metadata.annotations").key(key);
                errors.push(FieldError::required(&path, ""));
            }
        }
        "kubernetes.io/tls" => {
            demand("tls.crt");
            demand("tls.key");
        }
        // Either is enough.
        "kubernetes.io/basic-auth" if !data.contains_key("username") && !data.contains_key("password") => {
            demand("username");
            demand("password");
        }
        "kubernetes.io/ssh-auth" if data.get("ssh-privatekey").is_none_or(|key| key == "") => demand("ssh-privatekey"),
        "kubernetes.io/dockercfg" => json_key(&mut errors, data, ".dockercfg"),
        "kubernetes.io/dockerconfigjson" => json_key(&mut errors, data, ".dockerconfigjson"),
        _ => {}
    }
    errors
}

/// The key holds a JSON object.
fn json_key(errors: &mut FieldErrors, data: &Map<String, Value>, key: &str) {
    let path = FieldPath::new("data").key(key);
    let Some(value) = data.get(key).and_then(Value::as_str) else {
        errors.push(FieldError::required(&path, ""));
        return;
    };
    let content = BASE64_STANDARD.decode(value).unwrap_or_default();
    if let Err(err) = serde_json::from_slice::<Map<String, Value>>(&content) {
        errors.push(FieldError::invalid(&path, "<secret contents redacted>", err.to_string()));
    }
}

pub(super) fn secret_update(new: &Value, old: &Value) -> FieldErrors {
    let mut errors = secret(new);
    super::checks::unchanged(&mut errors, new, old, "type");
    sealed(&mut errors, new, old, &["data"]);
    errors
}

pub(super) fn node(object: &Value) -> FieldErrors {
    let mut errors = Vec::new();
    let mut seen = BTreeSet::new();
    for (index, taint) in list(object, "spec.taints").iter().enumerate() {
        // Upstream's path says metadata, though taints are in the spec.
        let path = FieldPath::new("metadata.taints").index(index);
        let (key, value, effect) = (text(taint, "key"), text(taint, "value"), text(taint, "effect"));
        named(&mut errors, &path.child("key"), key, names::is_qualified_name);
        let wrong = names::is_valid_label_value(value);
        if !wrong.is_empty() {
            errors.push(FieldError::invalid(&path.child("value"), value, wrong.join(";")));
        }
        if effect.is_empty() {
            errors.push(FieldError::required(&path.child("effect"), ""));
        } else {
            one_of(&mut errors, &path.child("effect"), effect, &["NoSchedule", "PreferNoSchedule", "NoExecute"]);
        }
        if !seen.insert((key, effect)) {
            let mut duplicate = FieldError::duplicate(&path, taint.clone());
            "taints must be unique by key and effect pair".clone_into(&mut duplicate.detail);
            errors.push(duplicate);
        }
    }
    for (index, range) in strings(object, "spec.podCIDRs").iter().enumerate() {
        cidr(&mut errors, &spec().child("podCIDRs").index(index), range);
    }
    errors
}

pub(super) fn limit_range(object: &Value) -> FieldErrors {
    let mut errors = Vec::new();
    let mut seen = BTreeSet::new();
    for (index, limit) in list(object, "spec.limits").iter().enumerate() {
        let path = spec().child("limits").index(index);
        let kind = text(limit, "type");
        if !seen.insert(kind) {
            errors.push(FieldError::duplicate(&path.child("type"), kind));
        }
        let value = |field: &str, name: &str| map(limit, field).and_then(|m| m.get(name));
        let names: BTreeSet<&String> = ["max", "min", "default", "defaultRequest"]
            .into_iter()
            .flat_map(|field| map(limit, field).into_iter().flat_map(Map::keys))
            .collect();
        for name in names {
            let mut ordered = |low: (&str, &str), high: (&str, &str), at: &str, shown: &str| {
                let (Some(least), Some(most)) = (value(low.0, name), value(high.0, name)) else { return };
                let (Some(a), Some(b)) = (quantity(least), quantity(most)) else { return };
                if a > b {
                    let (least, most) = (quantity_text(least), quantity_text(most));
                    let text = format!("{} value {least} is greater than {} value {most}", low.1, high.1);
                    let shown = if shown == "low" { least } else { most };
                    errors.push(FieldError::invalid(&path.child(at).key(name), shown, text));
                }
            };
            ordered(("min", "min"), ("max", "max"), "min", "low");
            ordered(("min", "min"), ("defaultRequest", "default request"), "defaultRequest", "high");
            ordered(("defaultRequest", "default request"), ("max", "max"), "defaultRequest", "low");
            ordered(("min", "min"), ("default", "default"), "default", "low");
            ordered(("default", "default"), ("max", "max"), "default", "low");
            ordered(("defaultRequest", "default request"), ("default", "default"), "defaultRequest", "low");
        }
    }
    errors
}

fn is_quota_resource(name: &str) -> bool {
    const COUNTS: &[&str] = &[
        "pods",
        "services",
        "replicationcontrollers",
        "resourcequotas",
        "secrets",
        "configmaps",
        "persistentvolumeclaims",
        "services.nodeports",
        "services.loadbalancers",
        "cpu",
        "memory",
        "ephemeral-storage",
    ];
    COUNTS.contains(&name)
        || ["requests.", "limits.", "count/", "hugepages-"].iter().any(|prefix| name.starts_with(prefix))
}

fn is_counted(name: &str) -> bool {
    is_quota_resource(name)
        && !name.contains("cpu")
        && !name.contains("memory")
        && !name.contains("storage")
        && !name.contains("hugepages")
}

const SCOPES: &[&str] = &[
    "Terminating",
    "NotTerminating",
    "BestEffort",
    "NotBestEffort",
    "PriorityClass",
    "CrossNamespacePodAffinity",
    "VolumeAttributesClass",
];

/// Most scopes select pods, and so can only limit what pods use.
fn is_scope_for(scope: &str, resource: &str) -> bool {
    const COMPUTE: &[&str] = &["cpu", "memory", "limits.cpu", "limits.memory", "requests.cpu", "requests.memory"];
    match scope {
        "BestEffort" => resource == "pods",
        "VolumeAttributesClass" => matches!(resource, "persistentvolumeclaims" | "requests.storage"),
        _ => resource == "pods" || COMPUTE.contains(&resource),
    }
}

pub(super) fn resource_quota(object: &Value) -> FieldErrors {
    let mut errors = Vec::new();
    for (name, value) in map(object, "spec.hard").into_iter().flatten() {
        let path = spec().child("hard").key(name);
        resource_name(&mut errors, &path, name, "must be a standard resource for quota", is_quota_resource);
        not_negative_quantity(&mut errors, &path, value);
        let is_whole = quantity(value).is_some_and(|q| q.milli_value() % 1000 == 0);
        if is_counted(name) && !is_whole {
            errors.push(FieldError::invalid(&path, quantity_text(value), "must be an integer"));
        }
    }
    let resources: Vec<&String> = map(object, "spec.hard").into_iter().flat_map(Map::keys).collect();
    for scope in strings(object, "spec.scopes") {
        let wrong = if !SCOPES.contains(&scope) {
            "unsupported scope"
        } else if resources.iter().any(|resource| !is_scope_for(scope, resource)) {
            "unsupported scope applied to resource"
        } else {
            continue;
        };
        let value = get(object, "spec.scopes").cloned().unwrap_or_default();
        errors.push(FieldError::invalid(&spec().child("scopes"), value, wrong));
    }
    errors
}

/// Events live where the object is that they are about; those about cluster-wide ones in `default`.
pub(super) fn event(object: &Value) -> FieldErrors {
    let mut errors = Vec::new();
    let (own, about) = (text(object, "metadata.namespace"), text(object, "involvedObject.namespace"));
    let is_there =
        if about.is_empty() { matches!(own, "" | "default" | "kube-system") } else { own.is_empty() || own == about };
    if !is_there {
        let path = FieldPath::new("involvedObject.namespace");
        errors.push(FieldError::invalid(&path, about, "does not match event.namespace"));
    }
    errors
}

/// The new group demands what the old one only asked for.
pub(super) fn new_event(object: &Value) -> FieldErrors {
    let mut errors = Vec::new();
    let root = FieldPath::root();
    if !has(object, "eventTime") {
        errors.push(FieldError::required(&root.child("eventTime"), ""));
    }
    let kind = text(object, "type");
    if !matches!(kind, "Normal" | "Warning") {
        errors.push(FieldError::invalid(&root.child("type"), kind, format!("has invalid value: {kind}")));
    }
    if !has(object, "eventTime") {
        return errors;
    }
    for (field, path) in [
        ("reportingController", "reportingController"),
        ("reportingInstance", "reportingInstance"),
        ("action", "action"),
        ("reason", "reason"),
    ] {
        if text(object, field).is_empty() {
            errors.push(FieldError::required(&root.child(path), ""));
        }
    }
    errors
}
