//! Keywords that are refused, or that do not go together.

use croft_meta::{FieldError, FieldErrors, FieldPath};
use serde_json::Value;

use super::{entries, flag, list, text};
use crate::cel::normalise_field_path;
use crate::model::Schema;

const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];
const REASONS: [&str; 4] = ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];

/// What holds for everything below a node.
#[derive(Clone, Default)]
struct Scope {
    /// Why defaults are forbidden here, if they are.
    no_defaults: Option<String>,
    inside_meta: bool,
}

pub(super) fn check(schema: &Value, path: &FieldPath) -> FieldErrors {
    let mut errors = Vec::new();
    node(schema, path, &Scope::default(), true, &mut errors);
    errors
}

fn node(schema: &Value, path: &FieldPath, scope: &Scope, is_root: bool, errors: &mut FieldErrors) {
    standard(schema, path, scope, errors);
    if flag(schema, "uniqueItems") {
        let detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        errors.push(FieldError::forbidden(&path.child("uniqueItems"), detail));
    }
    children(schema, path, scope, is_root, errors);
    if schema["x-kubernetes-preserve-unknown-fields"] == Value::Bool(false) {
        let at = path.child("x-kubernetes-preserve-unknown-fields");
        errors.push(FieldError::invalid(&at, false, "must be true or undefined"));
    }
    map_type(schema, path, errors);
    list_type(schema, path, errors);
    list_map(schema, path, errors);
    list_items(schema, path, errors);
    rules(schema, path, errors);
}

fn standard(schema: &Value, path: &FieldPath, scope: &Scope, errors: &mut FieldErrors) {
    let ty = text(schema, "type");
    if !ty.is_empty() && !TYPES.contains(&ty) {
        errors.push(FieldError::not_supported(&path.child("type"), ty, &TYPES));
    }
    if let (Some(reason), false) = (&scope.no_defaults, schema["default"].is_null()) {
        errors.push(FieldError::forbidden(&path.child("default"), format!("must not be set {reason}")));
    }
    for name in ["id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref"] {
        let value = &schema[name];
        let empty = value.is_null() || value == "" || value.as_object().is_some_and(serde_json::Map::is_empty);
        if !empty {
            errors.push(FieldError::forbidden(&path.child(name), format!("{name} is not supported")));
        }
    }
    if ty == "null" {
        let detail = "type cannot be set to null, use nullable as an alternative";
        errors.push(FieldError::forbidden(&path.child("type"), detail));
    }
    if schema["items"].is_array() {
        let detail = "items must be a schema object and not an array";
        errors.push(FieldError::forbidden(&path.child("items"), detail));
    }
    if scope.inside_meta && flag(schema, "x-kubernetes-embedded-resource") {
        let at = path.child("x-kubernetes-embedded-resource");
        errors.push(FieldError::forbidden(&at, "must not be used inside of resource meta"));
    }
}

fn children(schema: &Value, path: &FieldPath, scope: &Scope, is_root: bool, errors: &mut FieldErrors) {
    let additional = &schema["additionalProperties"];
    let has_properties = entries(schema, "properties").next().is_some();
    if has_properties && (additional.is_object() || additional == &Value::Bool(false)) {
        let detail = "additionalProperties and properties are mutual exclusive";
        errors.push(FieldError::forbidden(&path.child("additionalProperties"), detail));
    }
    if additional.is_object() {
        let mut scope = scope.clone();
        if scope.inside_meta {
            // What pruning would do to such a default is ambiguous.
            scope.no_defaults = Some("inside additionalProperties applying to object metadata".to_owned());
        }
        node(additional, &path.child("additionalProperties"), &scope, false, errors);
    }
    for (name, property) in entries(schema, "properties") {
        let mut scope = scope.clone();
        let is_resource = is_root || flag(schema, "x-kubernetes-embedded-resource");
        if is_resource && matches!(name, "metadata" | "kind" | "apiVersion") {
            scope.inside_meta = true;
            if is_root {
                scope.no_defaults = Some(format!("in top-level {name}"));
            }
        }
        node(property, &path.child("properties").key(name), &scope, false, errors);
    }
    if schema["not"].is_object() {
        node(&schema["not"], &path.child("not"), scope, false, errors);
    }
    for name in ["allOf", "oneOf", "anyOf"] {
        for (index, branch) in list(schema, name) {
            node(branch, &path.child(name).index(index), scope, false, errors);
        }
    }
    for (name, definition) in entries(schema, "definitions") {
        node(definition, &path.child("definitions").key(name), scope, false, errors);
    }
    if schema["items"].is_object() {
        node(&schema["items"], &path.child("items"), scope, false, errors);
    }
    for (index, items) in list(schema, "items") {
        node(items, &path.child("items").index(index), scope, false, errors);
    }
}

fn demand_type(schema: &Value, path: &FieldPath, wanted: &str, keyword: &str, errors: &mut FieldErrors) {
    let ty = text(schema, "type");
    let at = path.child("type");
    let detail = format!("must be {wanted} if {keyword} is specified");
    errors.push(if ty.is_empty() { FieldError::required(&at, detail) } else { FieldError::invalid(&at, ty, detail) });
}

fn map_type(schema: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let Some(map_type) = schema["x-kubernetes-map-type"].as_str() else { return };
    if text(schema, "type") != "object" {
        demand_type(schema, path, "object", "x-kubernetes-map-type", errors);
    }
    if !["atomic", "granular"].contains(&map_type) {
        let at = path.child("x-kubernetes-map-type");
        errors.push(FieldError::not_supported(&at, map_type, &["atomic", "granular"]));
    }
}

fn list_type(schema: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let Some(list_type) = schema["x-kubernetes-list-type"].as_str() else { return };
    if text(schema, "type") != "array" {
        demand_type(schema, path, "array", "x-kubernetes-list-type", errors);
    } else if list_type == "set" {
        let items = &schema["items"];
        let detail = "must be atomic as item of a list with x-kubernetes-list-type=set";
        // Upstream quotes the list type in both cases.
        let inner = items["x-kubernetes-list-type"].clone();
        match text(items, "type") {
            "array" if !inner.is_null() && inner != "atomic" => {
                let at = path.child("items").child("x-kubernetes-list-type");
                errors.push(FieldError::invalid(&at, inner, detail));
            }
            "object" if items["x-kubernetes-map-type"] != "atomic" => {
                let at = path.child("items").child("x-kubernetes-map-type");
                errors.push(FieldError::invalid(&at, inner, detail));
            }
            _ => {}
        }
    }
    if !["atomic", "set", "map"].contains(&list_type) {
        let at = path.child("x-kubernetes-list-type");
        errors.push(FieldError::not_supported(&at, list_type, &["atomic", "set", "map"]));
    }
}

fn list_map(schema: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let keys: Vec<&str> = list(schema, "x-kubernetes-list-map-keys").filter_map(|(_, key)| key.as_str()).collect();
    let list_type = schema["x-kubernetes-list-type"].as_str();
    let at = path.child("x-kubernetes-list-type");
    let detail = "must be map if x-kubernetes-list-map-keys is non-empty";
    match list_type {
        None if !keys.is_empty() => errors.push(FieldError::required(&at, detail)),
        Some(other) if !keys.is_empty() && other != "map" => errors.push(FieldError::invalid(&at, other, detail)),
        _ => {}
    }
    if list_type != Some("map") {
        return;
    }
    let keys_at = path.child("x-kubernetes-list-map-keys");
    if keys.is_empty() {
        errors.push(FieldError::required(&keys_at, "must not be empty if x-kubernetes-list-type is map"));
    }
    let items = &schema["items"];
    let items_at = path.child("items");
    if items.is_null() {
        errors.push(FieldError::required(&items_at, "must have a schema if x-kubernetes-list-type is map"));
    }
    if !items.is_object() {
        return;
    }
    if text(items, "type") != "object" {
        let detail = "must be object if parent array's x-kubernetes-list-type is map";
        errors.push(FieldError::invalid(&items_at.child("type"), text(items, "type"), detail));
        return;
    }
    for (index, key) in keys.iter().enumerate() {
        match items["properties"].get(key) {
            Some(property) if matches!(text(property, "type"), "array" | "object") => {
                let detail = "must be a scalar type if parent array's x-kubernetes-list-type is map";
                let at = items_at.child("properties").key(key).child("type");
                errors.push(FieldError::invalid(&at, text(items, "type"), detail));
            }
            Some(_) => {}
            None => {
                let value = schema["x-kubernetes-list-map-keys"].clone();
                errors.push(FieldError::invalid(&keys_at, value, "entries must all be names of item properties"));
            }
        }
        if keys[..index].contains(key) {
            let value = schema["x-kubernetes-list-map-keys"].clone();
            errors.push(FieldError::invalid(&keys_at, value, "must not contain duplicate entries"));
        }
    }
}

/// Items of sets and maps are never null, and their keys are always there.
fn list_items(schema: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let items = &schema["items"];
    let list_type = text(schema, "x-kubernetes-list-type");
    if !items.is_object() || !matches!(list_type, "set" | "map") {
        return;
    }
    let at = path.child("items");
    if flag(items, "nullable") {
        let detail = format!("cannot be nullable when x-kubernetes-list-type is {list_type}");
        errors.push(FieldError::forbidden(&at.child("nullable"), detail));
    }
    if list_type != "map" {
        return;
    }
    for (_, key) in list(schema, "x-kubernetes-list-map-keys") {
        let Some(key) = key.as_str() else { continue };
        let Some(property) = items["properties"].get(key) else { continue };
        let at = at.child("properties").key(key);
        let required = list(items, "required").any(|(_, name)| name == key);
        if !required && property["default"].is_null() {
            let detail = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required \
                          property";
            errors.push(FieldError::required(&at.child("default"), detail));
        }
        if flag(property, "nullable") {
            let detail = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
            errors.push(FieldError::forbidden(&at.child("nullable"), detail));
        }
    }
}

/// What can be said about CEL rules without compiling them.
fn rules(schema: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    for (index, rule) in list(schema, "x-kubernetes-validations") {
        let at = path.child("x-kubernetes-validations").index(index);
        let (source, message) = (text(rule, "rule").trim(), text(rule, "message"));
        let breaks = |text: &str| text.contains(['\n', '\r']);
        if source.is_empty() {
            errors.push(FieldError::required(&at.child("rule"), "rule is not specified"));
        } else if !message.is_empty() && message.trim().is_empty() {
            errors.push(FieldError::invalid(&at.child("message"), message, "must be non-empty if specified"));
        } else if breaks(message.trim()) {
            errors.push(FieldError::invalid(&at.child("message"), message, "must not contain line breaks"));
        } else if breaks(source) && message.is_empty() {
            let detail = "message must be specified if rule contains line breaks";
            errors.push(FieldError::required(&at.child("message"), detail));
        }
        let expression = text(rule, "messageExpression");
        if !expression.is_empty() && expression.trim().is_empty() {
            let detail = "messageExpression must be non-empty if specified";
            errors.push(FieldError::required(&at.child("messageExpression"), detail));
        }
        if let Some(reason) = rule["reason"].as_str().filter(|reason| !REASONS.contains(reason)) {
            errors.push(FieldError::not_supported(&at.child("reason"), reason, &REASONS));
        }
        field_path(schema, rule, &at.child("fieldPath"), errors);
    }
}

fn field_path(schema: &Value, rule: &Value, at: &FieldPath, errors: &mut FieldErrors) {
    let field_path = text(rule, "fieldPath");
    if field_path.is_empty() {
        return;
    }
    if field_path.trim().is_empty() {
        errors.push(FieldError::invalid(at, field_path, "must be non-empty if specified"));
    }
    if field_path.contains(['\n', '\r']) {
        errors.push(FieldError::invalid(at, field_path, "must not contain line breaks"));
    }
    let is_valid = Schema::from_json(schema).is_ok_and(|schema| normalise_field_path(&schema, field_path).is_some());
    if !is_valid {
        errors.push(FieldError::invalid(at, field_path, "must be a valid path"));
    }
}
