//! What changed between two objects, field by field.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::node::{Items, Node, Shape};
use crate::fieldpath::{PathElement, Set, values_equal};

/// The fields in which two objects differ; no field is in more than one of the sets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Comparison {
    pub added: Set,
    pub modified: Set,
    pub removed: Set,
}

/// What became of the node itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    None,
    Added,
    Modified,
    Removed,
}

impl Comparison {
    pub fn is_same(&self) -> bool {
        self.added.is_empty() && self.modified.is_empty() && self.removed.is_empty()
    }

    /// Takes fields out, and all that is below them.
    pub fn exclude(&mut self, fields: &Set) {
        for set in [&mut self.added, &mut self.modified, &mut self.removed] {
            set.subtract_recursively(fields);
        }
    }

    /// Takes fields out, and leaves what is below them.
    pub fn subtract(&mut self, fields: &Set) {
        for set in [&mut self.added, &mut self.modified, &mut self.removed] {
            set.subtract(fields);
        }
    }

    fn attach(&mut self, element: PathElement, change: Change, below: Self) {
        // The element is cloned only for the sets that get it; mostly that is one.
        if change == Change::Modified || !below.modified.is_empty() {
            self.modified.attach(element.clone(), change == Change::Modified, below.modified);
        }
        if change == Change::Removed || !below.removed.is_empty() {
            self.removed.attach(element.clone(), change == Change::Removed, below.removed);
        }
        if change == Change::Added || !below.added.is_empty() {
            self.added.attach(element, change == Change::Added, below.added);
        }
    }
}

/// How `new` differs from `old`.
pub fn compare(node: Node<'_>, old: &Value, new: &Value) -> Comparison {
    let mut out = Comparison::default();
    walk(node, Some(old), Some(new), &mut out);
    out
}

fn walk(node: Node<'_>, old: Option<&Value>, new: Option<&Value>, out: &mut Comparison) -> Change {
    let old_shape = old.and_then(|v| node.shape(v));
    let new_shape = new.and_then(|v| node.shape(v));
    match (old_shape, new_shape) {
        // A value of another shape: the old one's parts went, the new one's came.
        (Some(old_shape), Some(new_shape)) if old_shape != new_shape => {
            let was = walk_as(old_shape, node, old, new, out);
            let is = walk_as(new_shape, node, old, new, out);
            if was == Change::None { is } else { was }
        }
        (old_shape, new_shape) => walk_as(old_shape.or(new_shape).unwrap_or(Shape::Map), node, old, new, out),
    }
}

fn walk_as(shape: Shape, node: Node<'_>, old: Option<&Value>, new: Option<&Value>, out: &mut Comparison) -> Change {
    let is_leaf = match shape {
        Shape::Scalar => true,
        Shape::Map => {
            let (old, new) = (old.and_then(Value::as_object), new.and_then(Value::as_object));
            let empty = old.is_none_or(Map::is_empty) && new.is_none_or(Map::is_empty);
            if !empty && !node.is_atomic_map() {
                walk_map(node, old, new, out);
            }
            empty || node.is_atomic_map()
        }
        Shape::List => {
            let items = |v: Option<&Value>| v.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default().len();
            let empty = items(old) == 0 && items(new) == 0;
            if !empty && node.items() != Items::Atomic {
                walk_list(node, old.and_then(Value::as_array), new.and_then(Value::as_array), out);
            }
            empty || node.items() == Items::Atomic
        }
    };
    match (old, new) {
        (None, _) => Change::Added,
        (_, None) => Change::Removed,
        (Some(old), Some(new)) if is_leaf && !values_equal(old, new) => Change::Modified,
        _ => Change::None,
    }
}

fn walk_map(node: Node<'_>, old: Option<&Map<String, Value>>, new: Option<&Map<String, Value>>, out: &mut Comparison) {
    let mut visit = |name: &String, mut old_value: Option<&Value>, mut new_value: Option<&Value>| {
        if old_value.is_none() && old.is_some() {
            old_value = node.absent(name);
        }
        if new_value.is_none() && new.is_some() {
            new_value = node.absent(name);
        }
        let mut below = Comparison::default();
        let change = walk(node.field(name), old_value, new_value, &mut below);
        if change != Change::None || !below.is_same() {
            out.attach(PathElement::Field(name.clone()), change, below);
        }
    };
    let mut olds = old.into_iter().flatten().peekable();
    let mut news = new.into_iter().flatten().peekable();
    loop {
        match (olds.peek(), news.peek()) {
            (Some((o, _)), Some((n, _))) if o == n => {
                if let (Some((name, old_value)), Some((_, new_value))) = (olds.next(), news.next()) {
                    visit(name, Some(old_value), Some(new_value));
                }
            }
            (Some((o, old_value)), n) if n.is_none_or(|(n, _)| o < n) => {
                visit(o, Some(old_value), None);
                olds.next();
            }
            (_, Some((n, new_value))) => {
                visit(n, None, Some(new_value));
                news.next();
            }
            (_, None) => break,
        }
    }
}

fn walk_list(node: Node<'_>, old: Option<&Vec<Value>>, new: Option<&Vec<Value>>, out: &mut Comparison) {
    if old == new {
        return;
    }
    let mut groups: BTreeMap<PathElement, [Vec<&Value>; 2]> = BTreeMap::new();
    for (side, list) in [old, new].into_iter().enumerate() {
        for item in list.into_iter().flatten() {
            // Items that cannot be told apart are kept out by validation.
            if let Ok(element) = node.element(item) {
                groups.entry(element).or_default()[side].push(item);
            }
        }
    }
    let item = node.item();
    for (element, [old, new]) in groups {
        let mut below = Comparison::default();
        let change = match (old.as_slice(), new.as_slice()) {
            ([] | [_], [] | [_]) => walk(item, old.first().copied(), new.first().copied(), &mut below),
            // Items with the same key are one field together: nobody can tell which one is meant.
            ([_, _, ..], [_, _, ..]) if same_items(&old, &new) => Change::None,
            ([_, _, ..], [_, _, ..]) => Change::Modified,
            ([_, _, ..], _) => {
                if let Some(new) = new.first() {
                    let change = walk(item, None, Some(new), &mut below);
                    out.attach(element.clone(), change, std::mem::take(&mut below));
                }
                Change::Removed
            }
            (_, [_, _, ..]) => {
                if let Some(old) = old.first() {
                    let change = walk(item, Some(old), None, &mut below);
                    out.attach(element.clone(), change, std::mem::take(&mut below));
                }
                Change::Added
            }
        };
        if change != Change::None || !below.is_same() {
            out.attach(element, change, below);
        }
    }
}

fn same_items(old: &[&Value], new: &[&Value]) -> bool {
    old.len() == new.len() && old.iter().zip(new).all(|(o, n)| values_equal(o, n))
}
