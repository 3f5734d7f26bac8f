//! Values that can only be replaced as a whole.

use std::fmt::Write as _;

use serde_json::Value;

use super::node::{Items, Node};

/// The places in a configuration where there is a list or map that is one field: what it leaves out would be lost.
pub fn atomics(node: Node<'_>, config: &Value) -> Vec<String> {
    let mut found = Vec::new();
    walk(node, config, &mut String::new(), &mut found);
    found
}

fn walk(node: Node<'_>, value: &Value, path: &mut String, found: &mut Vec<String>) {
    let end = path.len();
    match value {
        Value::Object(map) => {
            if node.is_atomic_map() {
                found.push(path.clone());
            }
            for (name, value) in map {
                // Keys of maps are data: below them nothing is looked for.
                let Some(field) = node.named(name) else { continue };
                path.push('.');
                path.push_str(name);
                walk(field, value, path, found);
                path.truncate(end);
            }
        }
        Value::Array(list) => {
            if node.items() == Items::Atomic {
                found.push(path.clone());
            }
            for (index, item) in list.iter().enumerate() {
                // Writing to a String does not fail.
                let _ = write!(path, "[{index}]");
                walk(node.item(), item, path, found);
                path.truncate(end);
            }
        }
        _ => {}
    }
}
