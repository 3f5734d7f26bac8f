//! Resources inside resources (`x-kubernetes-embedded-resource`): their type and metadata must be valid.

use croft_meta::names::{is_dns1035_label, is_path_segment_name, validate_object_meta};
use croft_meta::{FieldError, FieldErrors, FieldPath};
use serde_json::{Value, json};

use crate::model::{Additional, Schema};

pub(crate) fn validate(schema: &Schema, value: &Value, path: &FieldPath) -> FieldErrors {
    let mut errors = Vec::new();
    walk(schema, value, path, &mut errors);
    errors
}

fn walk(schema: &Schema, value: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    match value {
        Value::Object(map) => {
            if schema.embedded_resource {
                check_resource(value, path, errors);
            }
            for (key, value) in map {
                if let Some(property) = schema.properties.get(key) {
                    walk(property, value, &path.child(key), errors);
                } else if let Additional::Schema(additional) = &schema.additional {
                    walk(additional, value, &path.key(key), errors);
                }
            }
        }
        Value::Array(list) => {
            let Some(items) = &schema.items else { return };
            for (index, item) in list.iter().enumerate() {
                walk(items, item, &path.index(index), errors);
            }
        }
        _ => {}
    }
}

fn check_resource(resource: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    for field in ["apiVersion", "kind"] {
        let at = path.child(field);
        match resource.get(field) {
            None => errors.push(FieldError::required(&at, "")),
            Some(Value::String(text)) if text.is_empty() => {
                errors.push(FieldError::invalid(&at, "", "must not be empty"));
            }
            Some(Value::String(text)) => errors.extend(check_type_field(field, text, &at)),
            Some(other) => errors.push(FieldError::invalid(&at, other.clone(), "must be a string")),
        }
    }
    let Some(metadata) = resource.get("metadata") else { return };
    let mut object = json!({"metadata": metadata});
    if !metadata.is_object() {
        return;
    }
    if metadata["name"].as_str().unwrap_or_default().is_empty() {
        // Templates have no name, and that is fine.
        object["metadata"]["name"] = json!("fakename");
    }
    let namespaced = !metadata["namespace"].as_str().unwrap_or_default().is_empty();
    for mut error in validate_object_meta(&object, namespaced, is_path_segment_name) {
        error.field = path.child(error.field.as_str());
        errors.push(error);
    }
}

fn check_type_field(field: &str, text: &str, at: &FieldPath) -> Option<FieldError> {
    if field == "apiVersion" {
        let bad = text.matches('/').count() > 1;
        let detail = || format!("unexpected GroupVersion string: {text}");
        return bad.then(|| FieldError::invalid(at, text, detail()));
    }
    let wrong = is_dns1035_label(&text.to_lowercase());
    let detail = format!("may have mixed case, but should otherwise match: {}", wrong.join(","));
    (!wrong.is_empty()).then(|| FieldError::invalid(at, text, detail))
}
