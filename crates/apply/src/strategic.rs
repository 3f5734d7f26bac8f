//! Strategic merge patch: a merge patch that knows which lists are merged by key.
//!
//! Directives: `$patch: replace|delete` in an object or list item, `$retainKeys`,
//! `$deleteFromPrimitiveList/<field>` and `$setElementOrder/<field>`. Only built-in kinds have the
//! patch strategies that it takes; the caller refuses it for others.

mod lists;

use croft_schema::{Additional, Schema, Type};
use serde_json::{Map, Value};

use crate::error::PatchError;
use crate::go_format;

const PATCH: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM_LIST: &str = "$deleteFromPrimitiveList";
const ELEMENT_ORDER: &str = "$setElementOrder";

const BAD_PRIMITIVE_LIST: &str = "invalid patch format of primitive list";
const BAD_RETAIN_KEYS: &str = "invalid patch format of retainKeys";
const BAD_ELEMENT_ORDER: &str = "invalid patch format of setElementOrder list";

/// Applies a decoded patch to a document of the kind that `schema` describes.
pub fn apply(schema: &Schema, doc: &Value, patch: &Value) -> Result<Value, PatchError> {
    let Value::Object(doc) = doc else {
        return Err(PatchError::Malformed("invalid JSON document".to_owned()));
    };
    let patch = match patch {
        Value::Object(patch) => patch.clone(),
        Value::Null => Map::new(),
        other => {
            let kind = croft_meta::json::go_kind(other);
            let text = format!("json: cannot unmarshal {kind} into Go value of type map[string]interface {{}}");
            return Err(PatchError::Malformed(text));
        }
    };
    merge_maps(Field::Known(schema), doc.clone(), patch).map(Value::Object)
}

/// The schema at a place in the document.
#[derive(Clone, Copy)]
enum Field<'s> {
    Known(&'s Schema),
    /// Inside something untyped, where no strategy is declared.
    Untyped,
}

impl<'s> Field<'s> {
    fn child(self, name: &str) -> Result<Self, PatchError> {
        let Self::Known(schema) = self else { return Ok(Self::Untyped) };
        if let Some(child) = schema.properties.get(name) {
            return Ok(Self::Known(child));
        }
        if let Additional::Schema(child) = &schema.additional {
            return Ok(Self::Known(child));
        }
        if schema.ty == Type::Any || schema.properties.is_empty() || schema.preserve_unknown {
            return Ok(Self::Untyped);
        }
        Err(PatchError::Failed(format!(
            "unable to find api field in struct {} for the json field {}",
            schema.type_name,
            croft_meta::field::go_quote(name)
        )))
    }

    fn items(self) -> Self {
        match self {
            Self::Known(schema) => schema.items.as_deref().map_or(Self::Untyped, Self::Known),
            Self::Untyped => Self::Untyped,
        }
    }

    fn merges(self) -> bool {
        matches!(self, Self::Known(schema) if schema.patch.merge)
    }

    fn merge_key(self) -> Option<&'s str> {
        match self {
            Self::Known(schema) => schema.patch.merge_key.as_deref(),
            Self::Untyped => None,
        }
    }
}

fn merge_maps(
    field: Field<'_>,
    mut original: Map<String, Value>,
    mut patch: Map<String, Value>,
) -> Result<Map<String, Value>, PatchError> {
    if let Some(directive) = patch.get(PATCH) {
        match directive.as_str() {
            Some("replace") => {
                patch.remove(PATCH);
                return Ok(patch);
            }
            Some("delete") => return Ok(Map::new()),
            _ => return Err(unknown_patch_type(directive, &patch)),
        }
    }
    retain_keys(&mut original, &mut patch)?;
    set_element_orders(field, &mut original, &mut patch)?;

    for (key, value) in patch {
        let deletion = key.starts_with(DELETE_FROM_LIST);
        let key = if deletion { directive_field(&key, DELETE_FROM_LIST, BAD_PRIMITIVE_LIST)? } else { key };
        if value.is_null() {
            original.remove(&key);
            continue;
        }
        let merged = match (original.remove(&key), value) {
            (Some(Value::Object(old)), Value::Object(new)) => {
                Some(Value::Object(merge_maps(field.child(&key)?, old, new)?))
            }
            (Some(Value::Array(old)), Value::Array(new)) => {
                let list = field.child(&key)?;
                Some(Value::Array(if deletion { lists::delete(old, &new)? } else { lists::merge(list, old, new)? }))
            }
            (old, _) if deletion => old,
            (_, new) => without_directives(without_nulls(new)),
        };
        if let Some(merged) = merged {
            original.insert(key, merged);
        }
    }
    Ok(original)
}

fn unknown_patch_type(directive: &Value, map: &Map<String, Value>) -> PatchError {
    let map = go_format::plain(&Value::Object(map.clone()));
    let directive = match directive {
        Value::String(text) => text.clone(),
        other => format!("%!s({}={})", go_format::type_name(other), go_format::plain(other)),
    };
    PatchError::Failed(format!("unknown patch type: {directive} in map: {map}"))
}

/// The field that a directive such as `$setElementOrder/containers` is about.
fn directive_field(key: &str, prefix: &str, error: &str) -> Result<String, PatchError> {
    match key.split_once('/') {
        Some((directive, field)) if directive == prefix => Ok(field.to_owned()),
        _ => Err(PatchError::Malformed(error.to_owned())),
    }
}

/// `$retainKeys`: drops every key of the original that is not in the list.
fn retain_keys(original: &mut Map<String, Value>, patch: &mut Map<String, Value>) -> Result<(), PatchError> {
    let Some(retain) = patch.remove(RETAIN_KEYS) else { return Ok(()) };
    let malformed = || PatchError::Malformed(BAD_RETAIN_KEYS.to_owned());
    let retain = retain.as_array().ok_or_else(malformed)?;
    let retained = |key: &str| retain.iter().any(|k| k.as_str() == Some(key));
    let is_directive = |key: &str| key.starts_with(DELETE_FROM_LIST) || key.starts_with(ELEMENT_ORDER);
    if patch.iter().any(|(key, value)| !value.is_null() && !is_directive(key) && !retained(key)) {
        return Err(malformed());
    }
    original.retain(|key, _| retained(key));
    Ok(())
}

/// `$setElementOrder/<field>`: merges the lists concerned, in the order given, and takes them out of the patch.
fn set_element_orders(
    field: Field<'_>,
    original: &mut Map<String, Value>,
    patch: &mut Map<String, Value>,
) -> Result<(), PatchError> {
    let directives: Vec<String> = patch.keys().filter(|key| key.starts_with(ELEMENT_ORDER)).cloned().collect();
    for directive in directives {
        let Some(order) = patch.remove(&directive) else { continue };
        let order = into_list(order)?;
        let key = directive_field(&directive, ELEMENT_ORDER, BAD_ELEMENT_ORDER)?;
        let live = original.get(&key).cloned().map(into_list).transpose()?;
        let changes = patch.get(&key).cloned().map(into_list).transpose()?;
        let list = field.child(&key)?;
        let merged = lists::merge_in_order(list, live, changes, &order)?;
        if let Some(merged) = merged {
            original.insert(key.clone(), Value::Array(merged));
            patch.remove(&key);
        }
    }
    Ok(())
}

fn into_list(value: Value) -> Result<Vec<Value>, PatchError> {
    match value {
        Value::Array(items) => Ok(items),
        other => Err(bad_type("[]interface {}", &other)),
    }
}

fn bad_type(expected: &str, actual: &Value) -> PatchError {
    // Go names the type of nil with its own notation for a bad argument.
    let actual = if actual.is_null() { "%!s(<nil>)" } else { go_format::type_name(actual) };
    PatchError::Failed(format!("expected a {expected}, but received a {actual}"))
}

/// A value that is new to the document, without the nulls that mean deletion.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            map.into_iter().filter(|(_, v)| !v.is_null()).map(|(k, v)| (k, without_nulls(v))).collect()
        }
        Value::Array(items) => items.into_iter().map(without_nulls).collect(),
        scalar => scalar,
    }
}

/// A value that is new to the document: objects that are only instructions go.
fn without_directives(value: Value) -> Option<Value> {
    match value {
        Value::Object(map) if map.contains_key(PATCH) => None,
        Value::Object(map) => Some(map.into_iter().filter_map(|(k, v)| Some((k, without_directives(v)?))).collect()),
        Value::Array(items) => Some(items.into_iter().filter_map(without_directives).collect()),
        scalar => Some(scalar),
    }
}

#[cfg(test)]
mod tests;
