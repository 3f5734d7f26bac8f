//! The fields that an object has, and field sets seen through a schema.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::node::{Items, Node, Shape};
use crate::fieldpath::{PathElement, Set};

/// Every leaf and every item of an object: what an applied configuration claims.
pub fn field_set(node: Node<'_>, value: &Value) -> Set {
    let mut set = Set::new();
    collect(node, value, &mut set);
    set
}

/// Collects what is below a value; returns whether the value itself is a field.
fn collect(node: Node<'_>, value: &Value, out: &mut Set) -> bool {
    match node.shape(value).unwrap_or(Shape::Map) {
        Shape::Scalar => true,
        Shape::Map => {
            if !node.is_atomic_map() {
                collect_map(node, value, out);
            }
            node.is_atomic_map()
        }
        Shape::List => {
            let atomic = node.items() == Items::Atomic;
            if !atomic {
                collect_list(node, value, out);
            }
            atomic
        }
    }
}

fn collect_map(node: Node<'_>, value: &Value, out: &mut Set) {
    for (name, value) in value.as_object().into_iter().flatten() {
        let named = node.named(name);
        let mut below = Set::new();
        let mut member = collect(named.unwrap_or_else(|| node.field(name)), value, &mut below);
        // The keys of a map are fields in their own right; those of a struct only if nothing is below them.
        member |= named.is_none() || value.is_null() || value.as_object().is_some_and(Map::is_empty);
        out.attach(PathElement::Field(name.clone()), member, below);
    }
}

fn collect_list(node: Node<'_>, value: &Value, out: &mut Set) {
    let mut groups: BTreeMap<PathElement, (&Value, bool)> = BTreeMap::new();
    for item in value.as_array().into_iter().flatten() {
        if let Ok(element) = node.element(item) {
            groups.entry(element).and_modify(|(_, duplicated)| *duplicated = true).or_insert((item, false));
        }
    }
    for (element, (item, duplicated)) in groups {
        let mut below = Set::new();
        if !duplicated {
            collect(node.item(), item, &mut below);
        }
        out.attach(element, true, below);
    }
}

/// Adds the declared fields that lead to members: a set with `.a.b.c` gets `.a` if it is declared, but not a key of a
/// map.
pub fn add_named_parents(node: Node<'_>, set: &mut Set) {
    set.edit_entries(|entry| {
        if entry.children.is_empty() {
            return;
        }
        match &entry.element {
            PathElement::Field(name) => {
                if let Some(named) = node.named(name) {
                    entry.member = true;
                    add_named_parents(named, &mut entry.children);
                } else if let Some(unnamed) = node.unnamed() {
                    add_named_parents(unnamed, &mut entry.children);
                }
            }
            PathElement::Key(_) => add_named_parents(node.item(), &mut entry.children),
            PathElement::Value(_) | PathElement::Index(_) => {}
        }
    });
}

/// Brings a recorded set in line with a schema that changed since: what was owned below a list or object
/// that is atomic now becomes ownership of the whole.
pub fn follow_schema(node: Node<'_>, set: &mut Set) {
    set.edit_entries(|entry| {
        if entry.children.is_empty() {
            return;
        }
        let child = match &entry.element {
            PathElement::Field(name) => node.named(name).or_else(|| node.unnamed()),
            _ => Some(node.item()),
        };
        let Some(child) = child else { return };
        let atomic = match child.shape(&Value::Null) {
            Some(Shape::Scalar) => return,
            Some(Shape::List) => child.items() == Items::Atomic,
            _ if child.is_deduced() => return,
            _ => child.is_atomic_map(),
        };
        if atomic {
            entry.member = true;
            entry.children = Set::new();
        } else {
            follow_schema(child, &mut entry.children);
        }
    });
}
