//! Laying an applied configuration over an object.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde_json::{Map, Value};

use super::node::{Items, Node, Shape};
use crate::fieldpath::PathElement;

/// `live` with everything that `config` says. Nothing is removed: that takes knowing who owned it.
///
/// Both must have passed [`super::validate`].
pub fn merge(node: Node<'_>, live: &Value, config: &Value) -> Value {
    merge_values(node, live, config)
}

fn merge_values(node: Node<'_>, live: &Value, config: &Value) -> Value {
    let shape = node.shape(config).or_else(|| node.shape(live)).unwrap_or(Shape::Map);
    match shape {
        Shape::Scalar => config.clone(),
        Shape::Map => {
            let (live_map, config_map) = (live.as_object(), config.as_object());
            let empty = live_map.is_none_or(Map::is_empty) && config_map.is_none_or(Map::is_empty);
            if empty || node.is_atomic_map() {
                return config.clone();
            }
            merge_maps(node, live_map, config_map)
        }
        Shape::List => {
            let live_list = live.as_array().map(Vec::as_slice).unwrap_or_default();
            let config_list = config.as_array().map(Vec::as_slice).unwrap_or_default();
            let empty = live_list.is_empty() && config_list.is_empty();
            if empty || node.items() == Items::Atomic {
                return config.clone();
            }
            Value::Array(merge_lists(node, live_list, config_list))
        }
    }
}

fn merge_maps(node: Node<'_>, live: Option<&Map<String, Value>>, config: Option<&Map<String, Value>>) -> Value {
    let mut out = live.cloned().unwrap_or_default();
    for (name, value) in config.into_iter().flatten() {
        match out.get_mut(name) {
            Some(existing) => {
                let merged = merge_values(node.field(name), existing, value);
                *existing = merged;
            }
            None => {
                out.insert(name.clone(), value.clone());
            }
        }
    }
    Value::Object(out)
}

/// Items are ordered as the configuration has them; those it does not mention stay behind the item that they followed.
fn merge_lists(node: Node<'_>, live: &[Value], config: &[Value]) -> Vec<Value> {
    let live_elements = elements(node, live);
    let config_elements = elements(node, config);
    // Items that share a key cannot be merged with: they are replaced.
    let mut live_items: BTreeMap<&PathElement, Option<&Value>> = BTreeMap::new();
    for (element, item) in &live_elements {
        live_items.entry(element).and_modify(|single| *single = None).or_insert(Some(item));
    }
    let in_config: BTreeSet<&PathElement> = config_elements.iter().map(|(element, _)| element).collect();
    let mut shared: VecDeque<&PathElement> =
        config_elements.iter().map(|(element, _)| element).filter(|e| live_items.contains_key(e)).collect();
    let mut next_shared = shared.pop_front();
    let mut merged: BTreeSet<&PathElement> = BTreeSet::new();

    let take = |element: &PathElement, item: &Value| match live_items.get(element) {
        Some(Some(live)) => merge_values(node.item(), live, item),
        _ => item.clone(),
    };
    let mut out = Vec::with_capacity(live.len().max(config.len()));
    let (mut l, mut c) = (0, 0);
    while l < live_elements.len() || c < config_elements.len() {
        if let (Some((live_element, _)), Some((config_element, item))) = (live_elements.get(l), config_elements.get(c))
        {
            if live_element == config_element {
                merged.insert(config_element);
                out.push(take(config_element, item));
                (l, c) = (l + 1, c + 1);
                next_shared = shared.pop_front();
                continue;
            }
            if in_config.contains(live_element) && next_shared.is_some_and(|next| next != live_element) {
                // It comes later, where the configuration has it.
                l += 1;
                continue;
            }
        }
        if let Some((element, item)) = live_elements.get(l) {
            if !in_config.contains(element) {
                out.push((*item).clone());
                l += 1;
                continue;
            }
            if merged.contains(element) {
                l += 1;
            }
        }
        if let Some((element, item)) = config_elements.get(c) {
            merged.insert(element);
            out.push(take(element, item));
            c += 1;
            if next_shared == Some(element) {
                next_shared = shared.pop_front();
            }
        }
    }
    out
}

fn elements<'v>(node: Node<'_>, list: &'v [Value]) -> Vec<(PathElement, &'v Value)> {
    list.iter().filter_map(|item| Some((node.element(item).ok()?, item))).collect()
}
