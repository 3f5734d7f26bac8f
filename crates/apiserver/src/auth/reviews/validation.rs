//! What is wrong with an access review, in upstream's order and words.

use croft_meta::names::{is_qualified_name, is_valid_label_value};
use croft_meta::{ApiError, FieldError, FieldErrors, FieldPath, object};
use serde_json::{Value, json};

pub(super) fn check_self(review: &Value) -> Result<(), ApiError> {
    let mut errors = attributes(&review["spec"]);
    errors.extend(selectors(&review["spec"]["resourceAttributes"]));
    errors.extend(metadata(review, &[], "must be empty"));
    finish(&errors)
}

pub(super) fn check_subject(review: &Value) -> Result<(), ApiError> {
    let mut errors = subject(&review["spec"]);
    errors.extend(metadata(review, &[], "must be empty"));
    finish(&errors)
}

pub(super) fn check_local(review: &Value) -> Result<(), ApiError> {
    let spec = &review["spec"];
    let mut errors = subject(spec);
    errors.extend(metadata(review, &["namespace"], "must be empty except for namespace"));
    let namespace = spec["resourceAttributes"]["namespace"].as_str().unwrap_or_default();
    if !spec["resourceAttributes"].is_null() && namespace != object::namespace(review) {
        let path = FieldPath::new("spec.resourceAttributes.namespace");
        errors.push(FieldError::invalid(&path, namespace, "must match metadata.namespace"));
    }
    let urls = &spec["nonResourceAttributes"];
    if !urls.is_null() {
        let path = FieldPath::new("spec.nonResourceAttributes");
        errors.push(FieldError::invalid(&path, internal(urls), "disallowed on this kind of request"));
    }
    finish(&errors)
}

fn finish(errors: &FieldErrors) -> Result<(), ApiError> {
    // Upstream's internal objects have lost their kind here, and so do its messages.
    if errors.is_empty() { Ok(()) } else { Err(ApiError::invalid("authorization.k8s.io", "", "", errors)) }
}

fn subject(spec: &Value) -> FieldErrors {
    let mut errors = attributes(spec);
    let has_user = spec["user"].as_str().is_some_and(|user| !user.is_empty());
    if !has_user && spec["groups"].as_array().is_none_or(Vec::is_empty) {
        let path = FieldPath::new("spec.user");
        errors.push(FieldError::invalid(&path, "", "at least one of user or group must be specified"));
    }
    errors.extend(selectors(&spec["resourceAttributes"]));
    errors
}

/// Exactly one of the two.
fn attributes(spec: &Value) -> FieldErrors {
    let (resource, urls) = (&spec["resourceAttributes"], &spec["nonResourceAttributes"]);
    let (path, detail) = match (resource.is_null(), urls.is_null()) {
        (false, false) => ("spec.nonResourceAttributes", "cannot be specified in combination with resourceAttributes"),
        (true, true) => {
            ("spec.resourceAttributes", "exactly one of nonResourceAttributes or resourceAttributes must be specified")
        }
        _ => return FieldErrors::new(),
    };
    vec![FieldError::invalid(&FieldPath::new(path), internal(urls), detail)]
}

/// Messages show upstream's internal type, whose fields are capitalised.
fn internal(urls: &Value) -> Value {
    if urls.is_null() {
        return Value::Null;
    }
    let text = |field: &str| urls[field].as_str().unwrap_or_default();
    json!({"Path": text("path"), "Verb": text("verb")})
}

fn metadata(review: &Value, allowed: &[&str], detail: &str) -> Option<FieldError> {
    let metadata = review["metadata"].as_object()?;
    let is_empty = |value: &Value| match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        _ => false,
    };
    let is_ignored = |field: &str| field == "managedFields" || allowed.contains(&field);
    if metadata.iter().all(|(field, value)| is_ignored(field) || is_empty(value)) {
        return None;
    }
    let said: serde_json::Map<_, _> =
        metadata.iter().filter(|(_, value)| !is_empty(value)).map(|(k, v)| (k.clone(), v.clone())).collect();
    Some(FieldError::invalid(&FieldPath::new("metadata"), said, detail))
}

fn selectors(resource: &Value) -> FieldErrors {
    let path = FieldPath::new("spec.resourceAttributes");
    let mut errors = selector(&resource["fieldSelector"], &path.child("fieldSelector"), field_requirement);
    errors.extend(selector(&resource["labelSelector"], &path.child("labelSelector"), label_requirement));
    errors
}

fn selector(selector: &Value, path: &FieldPath, check: impl Fn(&Value, &FieldPath) -> FieldErrors) -> FieldErrors {
    if selector.is_null() {
        return FieldErrors::new();
    }
    let mut errors = FieldErrors::new();
    let raw = selector["rawSelector"].as_str().unwrap_or_default();
    let requirements = selector["requirements"].as_array().map_or(&[][..], Vec::as_slice);
    if !raw.is_empty() && !requirements.is_empty() {
        let detail = "may not specified at the same time as requirements";
        errors.push(FieldError::invalid(&path.child("rawSelector"), raw, detail));
    }
    if raw.is_empty() && requirements.is_empty() {
        let detail = format!("when {path} is specified, requirements or rawSelector is required");
        errors.push(FieldError::required(&path.child("requirements"), detail));
    }
    for (index, requirement) in requirements.iter().enumerate() {
        errors.extend(check(requirement, &path.child("requirements").index(index)));
    }
    errors
}

fn field_requirement(requirement: &Value, path: &FieldPath) -> FieldErrors {
    let mut errors = FieldErrors::new();
    if requirement["key"].as_str().unwrap_or_default().is_empty() {
        errors.push(FieldError::required(&path.child("key"), "must be specified"));
    }
    errors.extend(values(requirement, path));
    errors
}

fn label_requirement(requirement: &Value, path: &FieldPath) -> FieldErrors {
    let mut errors: FieldErrors = values(requirement, path).into_iter().collect();
    let key = requirement["key"].as_str().unwrap_or_default();
    errors.extend(is_qualified_name(key).into_iter().map(|why| FieldError::invalid(&path.child("key"), key, why)));
    for (index, value) in super::strings(&requirement["values"]).into_iter().enumerate() {
        let path = path.child("values").index(index);
        errors.extend(
            is_valid_label_value(&value).into_iter().map(|why| FieldError::invalid(&path, value.as_str(), why)),
        );
    }
    errors
}

/// Operators that this server does not know may come from a newer client, and pass.
fn values(requirement: &Value, path: &FieldPath) -> Option<FieldError> {
    let is_empty = requirement["values"].as_array().is_none_or(Vec::is_empty);
    match requirement["operator"].as_str().unwrap_or_default() {
        "In" | "NotIn" if is_empty => {
            let detail = "must be specified when `operator` is 'In' or 'NotIn'";
            Some(FieldError::required(&path.child("values"), detail))
        }
        "Exists" | "DoesNotExist" if !is_empty => {
            let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
            Some(FieldError::forbidden(&path.child("values"), detail))
        }
        _ => None,
    }
}
