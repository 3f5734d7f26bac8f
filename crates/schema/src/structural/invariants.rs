//! The shape of a structural schema: a type everywhere, and nothing but value rules inside junctors.

use croft_meta::{FieldError, FieldErrors, FieldPath};
use serde_json::{Value, json};

use super::{entries, flag, list, text};
use crate::pattern;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Item,
    Field,
}

pub(super) fn check(schema: &Value, path: &FieldPath) -> FieldErrors {
    let mut errors = Vec::new();
    node(schema, Level::Root, path, &mut errors);
    errors
}

fn node(schema: &Value, level: Level, path: &FieldPath, errors: &mut FieldErrors) {
    if text(schema, "type") == "array" && !schema["items"].is_object() {
        errors.push(FieldError::required(&path.child("items"), "must be specified"));
    }
    if schema["items"].is_object() {
        node(&schema["items"], Level::Item, &path.child("items"), errors);
    }
    for (name, property) in entries(schema, "properties") {
        node(property, Level::Field, &path.child("properties").key(name), errors);
    }
    let additional = &schema["additionalProperties"];
    if !additional.is_null() && level == Level::Root {
        errors.push(FieldError::forbidden(&path.child("additionalProperties"), "must not be used at the root"));
    }
    if additional.is_object() {
        node(additional, Level::Field, &path.child("additionalProperties"), errors);
    }
    extensions(schema, path, errors);

    let int_or_string = json!([{"type": "integer"}, {"type": "string"}]);
    let skip_any_of = schema["anyOf"] == int_or_string;
    let skip_first = schema["allOf"].get(0).is_some_and(|first| first["anyOf"] == int_or_string);
    value_rules(schema, skip_any_of, skip_first, path, errors);
    types(schema, level, path, errors);
    metadata(schema, level, path, errors);
}

fn extensions(schema: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    if !flag(schema, "x-kubernetes-int-or-string") {
        return;
    }
    for name in ["x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource"] {
        if flag(schema, name) {
            let detail = "must be false if x-kubernetes-int-or-string is true";
            errors.push(FieldError::invalid(&path.child(name), true, detail));
        }
    }
}

fn types(schema: &Value, level: Level, path: &FieldPath, errors: &mut FieldErrors) {
    let at = path.child("type");
    let ty = text(schema, "type");
    let embedded = flag(schema, "x-kubernetes-embedded-resource");
    if embedded && ty != "object" {
        let detail = "must be object if x-kubernetes-embedded-resource is true";
        let missing = ty.is_empty();
        errors.push(if missing { FieldError::required(&at, detail) } else { FieldError::invalid(&at, ty, detail) });
    } else if ty.is_empty()
        && !flag(schema, "x-kubernetes-int-or-string")
        && !flag(schema, "x-kubernetes-preserve-unknown-fields")
    {
        let detail = match level {
            Level::Root => "must not be empty at the root",
            Level::Item => "must not be empty for specified array items",
            Level::Field => "must not be empty for specified object fields",
        };
        errors.push(FieldError::required(&at, detail));
    }
    if embedded && !schema["additionalProperties"].is_null() {
        let detail = "must not be used if x-kubernetes-embedded-resource is set";
        errors.push(FieldError::forbidden(&path.child("additionalProperties"), detail));
    }
    if level == Level::Root && !ty.is_empty() && ty != "object" {
        errors.push(FieldError::invalid(&at, ty, "must be object at the root"));
    }
    let no_properties = entries(schema, "properties").next().is_none();
    if embedded && no_properties && !flag(schema, "x-kubernetes-preserve-unknown-fields") {
        let detail = "must not be empty if x-kubernetes-embedded-resource is true without \
                      x-kubernetes-preserve-unknown-fields";
        errors.push(FieldError::required(&path.child("properties"), detail));
    }
}

/// The fields that every resource has may hardly be described.
fn metadata(schema: &Value, level: Level, path: &FieldPath, errors: &mut FieldErrors) {
    let is_resource = level == Level::Root || flag(schema, "x-kubernetes-embedded-resource");
    let properties = &schema["properties"];
    let at = |name: &str| path.child("properties").key(name);
    for name in ["kind", "apiVersion"] {
        let Some(property) = properties.get(name).filter(|_| is_resource) else { continue };
        if text(property, "type") != "string" {
            errors.push(FieldError::invalid(&at(name).child("type"), text(property, "type"), "must be string"));
        }
    }
    let Some(metadata) = properties.get("metadata") else { return };
    if is_resource && text(metadata, "type") != "object" {
        errors.push(FieldError::invalid(&at("metadata").child("type"), text(metadata, "type"), "must be object"));
    }
    if level != Level::Root {
        return;
    }
    let allowed = metadata.as_object().into_iter().flatten().all(|(key, value)| match key.as_str() {
        "properties" => {
            let names: Vec<&str> = entries(metadata, "properties").map(|(name, _)| name).collect();
            names.iter().all(|name| *name == "name" || *name == "generateName")
        }
        "type" | "default" | "example" | "externalDocs" => true,
        _ => !is_set(value),
    });
    if !allowed {
        let detail = "must not specify anything other than name and generateName, but metadata is implicitly specified";
        errors.push(FieldError::forbidden(&at("metadata"), detail));
    }
}

/// Not Go's zero value.
fn is_set(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(list) => !list.is_empty(),
        Value::Object(map) => !map.is_empty(),
        Value::Bool(true) | Value::Number(_) => true,
    }
}

fn value_rules(schema: &Value, skip_any_of: bool, skip_first: bool, path: &FieldPath, errors: &mut FieldErrors) {
    if !skip_any_of {
        for (index, branch) in list(schema, "anyOf") {
            nested(branch, false, &path.child("anyOf").index(index), errors);
        }
    }
    for (index, branch) in list(schema, "allOf") {
        nested(branch, skip_first && index == 0, &path.child("allOf").index(index), errors);
    }
    for (index, branch) in list(schema, "oneOf") {
        nested(branch, false, &path.child("oneOf").index(index), errors);
    }
    if schema["not"].is_object() {
        nested(&schema["not"], false, &path.child("not"), errors);
    }
    let pattern = text(schema, "pattern");
    if let Some(why) = Some(pattern).filter(|p| !p.is_empty()).and_then(|p| pattern::compile(p).err()) {
        let detail = format!("must be a valid regular expression, but isn't: {why}");
        errors.push(FieldError::invalid(&path.child("pattern"), pattern, detail));
    }
}

/// Inside `anyOf` and the like only values are restricted; the shape is told outside.
fn nested(schema: &Value, skip_any_of: bool, path: &FieldPath, errors: &mut FieldErrors) {
    value_rules(schema, skip_any_of, false, path, errors);
    if schema["items"].is_object() {
        nested(&schema["items"], false, &path.child("items"), errors);
    }
    for (name, property) in entries(schema, "properties") {
        nested(property, false, &path.child("properties").key(name), errors);
    }
    let forbidden = [
        ("type", "must be empty to be structural"),
        ("default", "must be undefined to be structural"),
        ("title", "must be empty to be structural"),
        ("description", "must be empty to be structural"),
        ("nullable", "must be false to be structural"),
        ("x-kubernetes-preserve-unknown-fields", "must be false to be structural"),
        ("x-kubernetes-embedded-resource", "must be false to be structural"),
        ("x-kubernetes-int-or-string", "must be false to be structural"),
        ("x-kubernetes-list-map-keys", "must be empty to be structural"),
        ("x-kubernetes-list-type", "must be undefined to be structural"),
        ("x-kubernetes-map-type", "must be undefined to be structural"),
        ("x-kubernetes-validations", "must be empty to be structural"),
    ];
    for (name, detail) in forbidden {
        let value = &schema[name];
        if is_set(value) || (name == "default" && !value.is_null()) {
            errors.push(FieldError::forbidden(&path.child(name), detail));
        }
    }
    let additional = &schema["additionalProperties"];
    if additional.is_object() || additional == &Value::Bool(true) {
        let detail = "must be undefined to be structural";
        errors.push(FieldError::forbidden(&path.child("additionalProperties"), detail));
    }
    if schema["properties"].get("metadata").is_some() {
        let at = path.child("properties").key("metadata");
        errors.push(FieldError::forbidden(&at, "must not be specified in a nested context"));
    }
}
