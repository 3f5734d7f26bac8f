//! Priorities, leases, runtime classes, flow control and API services.

use croft_meta::{FieldError, FieldErrors, FieldPath, names};
use serde_json::Value;

use super::checks::{named, not_negative, one_of, required, required_name, unchanged};
use super::spec;
use crate::view::{get, has, int, number, text};

const HIGHEST_USER_PRIORITY: i64 = 1_000_000_000;

pub(super) fn priority_class(object: &Value) -> FieldErrors {
    let mut errors = Vec::new();
    let name = text(object, "metadata.name");
    let is_system = matches!(name, "system-cluster-critical" | "system-node-critical");
    if name.starts_with("system-") && !is_system {
        let text = format!(
            "priority class names with 'system-' prefix are reserved for system use only. \
             error: {name} is not a known system priority class"
        );
        errors.push(FieldError::forbidden(&FieldPath::new("metadata.name"), text));
    } else if !is_system && number(object, "value") > HIGHEST_USER_PRIORITY {
        let text = format!("maximum allowed value of a user defined priority is {HIGHEST_USER_PRIORITY}");
        errors.push(FieldError::forbidden(&FieldPath::new("value"), text));
    }
    let policy = text(object, "preemptionPolicy");
    let path = FieldPath::new("preemptionPolicy");
    one_of(&mut errors, &path, policy, &["PreemptLowerPriority", "Never"]);
    errors
}

pub(super) fn priority_class_update(new: &Value, old: &Value) -> FieldErrors {
    let mut errors = priority_class(new);
    if number(new, "value") != number(old, "value") {
        errors.push(FieldError::forbidden(&FieldPath::new("value"), "may not be changed in an update."));
    }
    unchanged(&mut errors, new, old, "preemptionPolicy");
    errors
}

pub(super) fn lease(object: &Value) -> FieldErrors {
    let mut errors = Vec::new();
    if let Some(seconds) = int(object, "spec.leaseDurationSeconds").filter(|seconds| *seconds <= 0) {
        let path = spec().child("leaseDurationSeconds");
        errors.push(FieldError::invalid(&path, seconds, "must be greater than 0"));
    }
    not_negative(&mut errors, object.get("spec").unwrap_or(&Value::Null), &spec(), "leaseTransitions");
    errors
}

pub(super) fn runtime_class(object: &Value) -> FieldErrors {
    let mut errors = Vec::new();
    named(&mut errors, &FieldPath::new("handler"), text(object, "handler"), names::is_dns1123_label);
    errors
}

pub(super) fn runtime_class_update(new: &Value, old: &Value) -> FieldErrors {
    let mut errors = runtime_class(new);
    unchanged(&mut errors, new, old, "handler");
    errors
}

pub(super) fn flow_schema(object: &Value) -> FieldErrors {
    let mut errors = Vec::new();
    let precedence = number(object, "spec.matchingPrecedence");
    let path = spec().child("matchingPrecedence");
    if precedence <= 0 {
        errors.push(FieldError::invalid(&path, precedence, "must be a positive value"));
    } else if precedence > 10_000 {
        errors.push(FieldError::invalid(&path, precedence, "must not be greater than 10000"));
    }
    if text(object, "spec.priorityLevelConfiguration.name").is_empty() {
        let path = spec().child("priorityLevelConfiguration").child("name");
        errors.push(FieldError::required(&path, "must reference a priority level"));
    }
    errors
}

pub(super) fn api_service(object: &Value) -> FieldErrors {
    let mut errors = Vec::new();
    let (group, version) = (text(object, "spec.group"), text(object, "spec.version"));
    let wanted = format!("{version}.{group}");
    let name = text(object, "metadata.name");
    if name != wanted {
        let text = format!("must be `spec.version+\".\"+spec.group`: {wanted:?}");
        errors.push(FieldError::invalid(&FieldPath::new("metadata.name"), name, text));
    }
    required_name(&mut errors, &spec().child("version"), version, names::is_dns1035_label);
    for (field, most) in [("groupPriorityMinimum", 20_000), ("versionPriority", 1_000)] {
        let value = number(object, &format!("spec.{field}"));
        if value <= 0 || value > most {
            let text = format!("must be positive and less than {most}");
            errors.push(FieldError::invalid(&spec().child(field), value, text));
        }
    }
    let Some(service) = get(object, "spec.service") else {
        if !text(object, "spec.caBundle").is_empty() {
            let text = "local APIServices may not have a caBundle";
            errors.push(FieldError::invalid(&spec().child("caBundle"), text_of_bundle(object), text));
        }
        if has(object, "spec.insecureSkipTLSVerify") && crate::view::flag(object, "spec.insecureSkipTLSVerify") {
            let text = "local APIServices may not have insecureSkipTLSVerify";
            errors.push(FieldError::invalid(&spec().child("insecureSkipTLSVerify"), true, text));
        }
        return errors;
    };
    for field in ["namespace", "name"] {
        required(&mut errors, &spec().child("service").child(field), text(service, field));
    }
    errors
}

fn text_of_bundle(object: &Value) -> Value {
    get(object, "spec.caBundle").cloned().unwrap_or_default()
}
