//! The definitions of built-in types, adapted to what each document needs.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::document::{META, V2_PREFIX, V3_PREFIX};

/// All definitions, in v3.
pub(super) fn definitions() -> Map<String, Value> {
    let mut definitions = croft_api::openapi_definitions();
    definitions.iter_mut().for_each(|(name, definition)| loosen(name, definition));
    // Patch has no fields of its own: it stands for whatever patch format the content type names.
    definitions.entry(format!("{META}.Patch")).or_insert_with(
        || json!({"type": "object", "description": "A patch, in the format that the request's Content-Type names."}),
    );
    definitions
}

/// The descriptions come from Rust types, which say more than Kubernetes: there, metadata is only required of an Event,
/// and any JSON is of any type.
fn loosen(name: &str, definition: &mut Value) {
    if name.ends_with(".apiextensions.v1.JSON")
        && let Some(map) = definition.as_object_mut()
    {
        map.remove("type");
    }
    if let Some(required) = definition.get_mut("required").and_then(Value::as_array_mut)
        && name != "io.k8s.api.core.v1.Event"
    {
        required.retain(|field| field != "metadata");
        if required.is_empty()
            && let Some(map) = definition.as_object_mut()
        {
            map.remove("required");
        }
    }
}

/// The named definitions and all that they refer to.
pub(super) fn closure(definitions: &Map<String, Value>, names: BTreeSet<String>) -> BTreeSet<String> {
    fn references(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(map) => {
                if let Some(name) = map.get("$ref").and_then(Value::as_str).and_then(|r| r.strip_prefix(V3_PREFIX)) {
                    found.push(name.to_owned());
                }
                map.values().for_each(|v| references(v, found));
            }
            Value::Array(list) => list.iter().for_each(|v| references(v, found)),
            _ => {}
        }
    }
    let mut pending: Vec<String> = names.into_iter().collect();
    let mut done = BTreeSet::new();
    while let Some(name) = pending.pop() {
        if let Some(definition) = definitions.get(&name).filter(|_| !done.contains(&name)) {
            references(definition, &mut pending);
            done.insert(name);
        }
    }
    done
}

/// Turns a built-in definition into v2: no defaults, references beside their descriptions, one type where v3 has a choice.
pub(super) fn to_v2(schema: &mut Value) {
    let Some(map) = schema.as_object_mut() else { return };
    map.remove("default");
    map.remove("nullable");
    if let Some(Value::Array(all)) = map.remove("allOf")
        && let [Value::Object(only)] = all.as_slice()
    {
        map.extend(only.clone());
    }
    for choice in ["oneOf", "anyOf"] {
        let Some(Value::Array(choices)) = map.remove(choice) else { continue };
        let is_scalar = |choice: &Value| matches!(choice["type"].as_str(), Some("string" | "integer" | "number"));
        if !choices.is_empty() && choices.iter().all(is_scalar) {
            map.insert("type".to_owned(), json!("string"));
        }
    }
    if let Some(Value::String(reference)) = map.get_mut("$ref") {
        *reference = reference.replacen(V3_PREFIX, V2_PREFIX, 1);
    }
    for (name, value) in map.iter_mut() {
        match (name.as_str(), value) {
            ("properties", Value::Object(properties)) => properties.values_mut().for_each(to_v2),
            ("items" | "additionalProperties", value) => to_v2(value),
            _ => {}
        }
    }
}
