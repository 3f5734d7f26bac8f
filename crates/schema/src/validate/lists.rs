//! Lists that are sets or maps: no item twice.

use croft_meta::{FieldError, FieldErrors, FieldPath};
use serde_json::{Map, Value};

use super::ListType;
use crate::model::{Additional, Schema};

/// Duplicates in lists of type `set` and `map`, anywhere in the value.
pub fn validate_lists(schema: &Schema, value: &Value, path: &FieldPath) -> FieldErrors {
    let mut errors = Vec::new();
    walk(schema, value, path, &mut errors);
    errors
}

fn walk(schema: &Schema, value: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                if let Some(property) = schema.properties.get(key) {
                    walk(property, value, &path.child(key), errors);
                } else if let Additional::Schema(additional) = &schema.additional {
                    walk(additional, value, &path.key(key), errors);
                }
            }
        }
        Value::Array(list) => {
            match &schema.list_type {
                ListType::Atomic => {}
                ListType::Set => report_duplicates(list, path, errors),
                ListType::Map(keys) => check_map(keys, list, path, errors),
            }
            if let Some(items) = &schema.items {
                for (index, item) in list.iter().enumerate() {
                    walk(items, item, &path.index(index), errors);
                }
            }
        }
        _ => {}
    }
}

/// The second of equals is reported, and no further ones.
fn report_duplicates(list: &[Value], path: &FieldPath, errors: &mut FieldErrors) {
    for (index, item) in list.iter().enumerate() {
        if list[..index].iter().filter(|earlier| *earlier == item).count() == 1 {
            errors.push(FieldError::duplicate(&path.index(index), item.clone()));
        }
    }
}

fn check_map(keys: &[String], list: &[Value], path: &FieldPath, errors: &mut FieldErrors) {
    if let Some((index, item)) = list.iter().enumerate().find(|(_, item)| !item.is_object() && !item.is_null()) {
        let detail = "must be an object for an array of list-type map";
        errors.push(FieldError::invalid(&path.index(index), item.clone(), detail));
        return;
    }
    let keys: Vec<Value> = list.iter().map(|item| list_key(keys, item)).collect();
    report_duplicates(&keys, path, errors);
}

/// The key fields of an item of a list of type `map`, those that it has.
fn list_key(keys: &[String], item: &Value) -> Value {
    let present = keys.iter().filter_map(|key| Some((key.clone(), item.get(key)?.clone())));
    Value::Object(present.collect::<Map<_, _>>())
}

/// The item of the old list that this item of the new one replaces: only lists of type `map` know.
pub(crate) fn correlate<'a>(list_type: &ListType, item: &Value, old: &'a Value) -> Option<&'a Value> {
    let ListType::Map(keys) = list_type else { return None };
    let key = list_key(keys, item);
    old.as_array()?.iter().find(|old| list_key(keys, old) == key)
}
