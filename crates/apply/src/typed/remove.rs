//! Taking fields out of an object, or taking an object apart.

use serde_json::{Map, Value};

use super::node::{Items, Node, Shape};
use crate::fieldpath::{PathElement, Set};

/// Removes the fields of a set. An object or list that loses its last field becomes null.
pub fn remove_items(node: Node<'_>, value: &mut Value, set: &Set) {
    match node.shape(value).unwrap_or(Shape::Map) {
        Shape::Scalar => {}
        Shape::Map => {
            let Value::Object(map) = value else { return };
            if node.is_atomic_map() {
                *value = Value::Null;
                return;
            }
            remove_from_map(node, map, set);
            if map.is_empty() {
                *value = Value::Null;
            }
        }
        Shape::List => {
            let Value::Array(list) = value else { return };
            if node.items() == Items::Atomic {
                *value = Value::Null;
                return;
            }
            list.retain_mut(|item| {
                let Some(entry) = node.element(item).ok().and_then(|element| set.get(&element)) else { return true };
                if !entry.member {
                    remove_items(node.item(), item, &entry.children);
                }
                !entry.member
            });
            if list.is_empty() {
                *value = Value::Null;
            }
        }
    }
}

fn remove_from_map(node: Node<'_>, map: &mut Map<String, Value>, set: &Set) {
    for entry in set.entries() {
        let PathElement::Field(name) = &entry.element else { continue };
        if entry.member {
            map.remove(name);
        } else if let Some(value) = map.get_mut(name) {
            remove_items(node.field(name), value, &entry.children);
        }
    }
}

/// Only the fields of a set: what one manager wrote. Null if there are none.
pub fn extract_items(node: Node<'_>, value: &Value, set: &Set) -> Value {
    match node.shape(value).unwrap_or(Shape::Map) {
        Shape::Scalar => value.clone(),
        Shape::Map if node.is_atomic_map() => value.clone(),
        Shape::List if node.items() == Items::Atomic => value.clone(),
        Shape::Map => {
            let mut out = Map::new();
            for (name, value) in value.as_object().into_iter().flatten() {
                let Some(entry) = set.get(&PathElement::field(name.as_str())) else { continue };
                out.insert(name.clone(), extract_items(node.field(name), value, &entry.children));
            }
            if out.is_empty() { Value::Null } else { Value::Object(out) }
        }
        Shape::List => {
            let mut out = Vec::new();
            for item in value.as_array().into_iter().flatten() {
                let Some(entry) = node.element(item).ok().and_then(|element| set.get(&element)) else { continue };
                out.push(extract_items(node.item(), item, &entry.children));
            }
            if out.is_empty() { Value::Null } else { Value::Array(out) }
        }
    }
}
