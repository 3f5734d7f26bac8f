//! Fields that value rules at the root speak of must also stand in its properties.

use croft_meta::{FieldError, FieldErrors, FieldPath};
use serde_json::Value;

use super::{entries, list};

pub(super) fn check(schema: &Value, path: &FieldPath) -> FieldErrors {
    let mut errors = Vec::new();
    junctors(schema, schema, path, path, &mut errors);
    errors
}

fn junctors(rules: &Value, schema: &Value, schema_path: &FieldPath, rules_path: &FieldPath, errors: &mut FieldErrors) {
    if rules["not"].is_object() {
        nested(&rules["not"], schema, schema_path, &rules_path.child("not"), errors);
    }
    for name in ["allOf", "anyOf", "oneOf"] {
        for (index, branch) in list(rules, name) {
            nested(branch, schema, schema_path, &rules_path.child(name).index(index), errors);
        }
    }
}

fn nested(rules: &Value, schema: &Value, schema_path: &FieldPath, rules_path: &FieldPath, errors: &mut FieldErrors) {
    junctors(rules, schema, schema_path, rules_path, errors);
    if rules["items"].is_object() {
        below(&rules["items"], &schema["items"], &schema_path.child("items"), &rules_path.child("items"), errors);
    }
    for (name, property) in entries(rules, "properties") {
        let (at, from) = (schema_path.child("properties").key(name), rules_path.child("properties").key(name));
        below(property, &schema["properties"][name], &at, &from, errors);
    }
}

fn below(rules: &Value, schema: &Value, schema_path: &FieldPath, rules_path: &FieldPath, errors: &mut FieldErrors) {
    if schema.is_object() {
        nested(rules, schema, schema_path, rules_path, errors);
    } else {
        errors.push(FieldError::required(schema_path, format!("because it is defined in {rules_path}")));
    }
}
