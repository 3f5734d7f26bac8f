//! Reading and writing the metadata of an object held as JSON.
//!
//! Absent and mistyped fields read as empty: the API server checks types before it stores.

use serde_json::{Map, Value, json};

use crate::gvk::Gvk;

/// `metadata.<field>` as a string, `""` when absent.
fn meta_str<'a>(object: &'a Value, field: &str) -> &'a str {
    object.get("metadata").and_then(|m| m.get(field)).and_then(Value::as_str).unwrap_or_default()
}

pub fn name(object: &Value) -> &str {
    meta_str(object, "name")
}

pub fn namespace(object: &Value) -> &str {
    meta_str(object, "namespace")
}

pub fn uid(object: &Value) -> &str {
    meta_str(object, "uid")
}

pub fn resource_version(object: &Value) -> &str {
    meta_str(object, "resourceVersion")
}

pub fn deletion_timestamp(object: &Value) -> Option<&str> {
    Some(meta_str(object, "deletionTimestamp")).filter(|t| !t.is_empty())
}

pub fn generation(object: &Value) -> i64 {
    object.pointer("/metadata/generation").and_then(Value::as_i64).unwrap_or_default()
}

pub fn label<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object.get("metadata")?.get("labels")?.get(key)?.as_str()
}

pub fn annotation<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object.get("metadata")?.get("annotations")?.get(key)?.as_str()
}

pub fn finalizers(object: &Value) -> Vec<&str> {
    object
        .pointer("/metadata/finalizers")
        .and_then(Value::as_array)
        .map(|list| list.iter().filter_map(Value::as_str).collect())
        .unwrap_or_default()
}

pub fn owner_references(object: &Value) -> &[Value] {
    object.pointer("/metadata/ownerReferences").and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The object's `apiVersion` and `kind`; empty strings when absent.
pub fn gvk(object: &Value) -> Gvk {
    let field = |name| object.get(name).and_then(Value::as_str).unwrap_or_default();
    let api_version = field("apiVersion");
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    Gvk::new(group, version, field("kind"))
}

/// `metadata` as a map, made if it is missing or not a map.
pub fn metadata_mut(object: &mut Value) -> &mut Map<String, Value> {
    if !object.is_object() {
        *object = Value::Object(Map::new());
    }
    let Value::Object(map) = object else { unreachable!("made an object above") };
    let metadata = map.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
    if !metadata.is_object() {
        *metadata = Value::Object(Map::new());
    }
    match metadata {
        Value::Object(map) => map,
        _ => unreachable!("made an object above"),
    }
}

/// Sets `metadata.<field>`, or removes it when the value is null.
pub fn set_meta(object: &mut Value, field: &str, value: impl Into<Value>) {
    let value = value.into();
    let metadata = metadata_mut(object);
    if value.is_null() {
        metadata.remove(field);
    } else {
        metadata.insert(field.to_owned(), value);
    }
}

/// The five-letter suffix alphabet of `generateName`: no vowels, nothing that reads like another letter.
pub const SUFFIX_ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// The list at a JSON pointer, made if it is not there. What is in its way (null, most likely) goes.
pub fn list_mut<'a>(object: &'a mut Value, pointer: &str) -> &'a mut Vec<Value> {
    let mut place = object;
    for part in pointer.split('/').skip(1) {
        if !place.is_object() {
            *place = json!({});
        }
        place = &mut place[part];
    }
    if !place.is_array() {
        *place = json!([]);
    }
    match place {
        Value::Array(list) => list,
        // Made an array in the lines above.
        _ => unreachable!(),
    }
}
