//! Drops the fields that a schema does not know, as apiextensions-apiserver's pruning does.

use std::fmt::Write;

use serde_json::{Map, Value};

use crate::model::{Additional, Schema};

const META_FIELDS: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// Prunes a value below the root of a resource; returns the dropped paths, sorted.
pub fn prune(schema: &Schema, value: &mut Value) -> Vec<String> {
    run(schema, value, schema.embedded_resource)
}

/// Prunes a whole resource: its `apiVersion`, `kind` and `metadata` stay as they are.
pub fn prune_resource(schema: &Schema, object: &mut Value) -> Vec<String> {
    run(schema, object, true)
}

fn run(schema: &Schema, value: &mut Value, is_resource: bool) -> Vec<String> {
    let mut pruner = Pruner { path: String::new(), unknown: Vec::new() };
    pruner.node(Some(schema), value, is_resource, schema.preserve_unknown);
    pruner.unknown.sort_unstable();
    pruner.unknown
}

struct Pruner {
    path: String,
    unknown: Vec<String>,
}

impl Pruner {
    /// `keep`: unknown fields at this level stay; what the schema describes below is pruned all the same.
    fn node(&mut self, schema: Option<&Schema>, value: &mut Value, is_resource: bool, keep: bool) {
        match value {
            Value::Object(map) => self.object(schema, map, is_resource, keep),
            Value::Array(list) => {
                let items = schema.and_then(|s| s.items.as_deref());
                let is_resource = items.is_some_and(|s| s.embedded_resource);
                let keep = keep || items.is_some_and(|s| s.preserve_unknown);
                for (index, item) in list.iter_mut().enumerate() {
                    let length = self.path.len();
                    // Writing to a String cannot fail.
                    let _ = write!(self.path, "[{index}]");
                    self.node(items, item, is_resource, keep);
                    self.path.truncate(length);
                }
            }
            _ => {}
        }
    }

    fn object(&mut self, schema: Option<&Schema>, map: &mut Map<String, Value>, is_resource: bool, keep: bool) {
        map.retain(|key, value| {
            if is_resource && META_FIELDS.contains(&key.as_str()) {
                return true;
            }
            let length = self.path.len();
            if !self.path.is_empty() {
                self.path.push('.');
            }
            self.path.push_str(key);
            let child = schema.and_then(|s| child(s, key));
            if let Some(child) = child {
                self.node(Some(child), value, child.embedded_resource, child.preserve_unknown);
            } else if !keep {
                self.unknown.push(self.path.clone());
            }
            self.path.truncate(length);
            child.is_some() || keep
        });
    }
}

fn child<'a>(schema: &'a Schema, key: &str) -> Option<&'a Schema> {
    schema.properties.get(key).map(AsRef::as_ref).or(match &schema.additional {
        Additional::Schema(schema) => Some(schema),
        Additional::None => None,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::testing::any_json;

    fn schema() -> Schema {
        Schema::from_json(&json!({"type": "object", "properties": {
            "spec": {"type": "object", "properties": {
                "a": {"type": "string"},
                "list": {"type": "array", "items": {"type": "object", "properties": {"b": {"type": "string"}}}},
                "map": {"type": "object", "additionalProperties": {"type": "object", "properties": {"c": {"type": "string"}}}},
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true,
                    "properties": {"strict": {"type": "object", "properties": {"d": {"type": "string"}}}}},
                "template": {"type": "object", "x-kubernetes-embedded-resource": true, "properties": {"spec": {"type": "object"}}},
                "bools": {"type": "object", "additionalProperties": true},
            }},
        }}))
        .expect("valid")
    }

    #[test]
    fn unknown_fields_are_dropped_and_named() {
        let cases = [
            (json!({"apiVersion": "v1", "kind": "K", "metadata": {"x": 1}, "z": 1}), vec!["z"]),
            (json!({"spec": {"a": "", "foo": {"x": 1}}}), vec!["spec.foo"]),
            (json!({"spec": {"list": [{"b": ""}, {"bar": 1}, 3]}}), vec!["spec.list[1].bar"]),
            (json!({"spec": {"map": {"k": {"c": "", "e": 1}}}}), vec!["spec.map.k.e"]),
            (json!({"spec": {"free": {"x": {"y": 1}, "strict": {"d": "", "e": 1}}}}), vec!["spec.free.strict.e"]),
            (json!({"spec": {"template": {"kind": "K", "metadata": {"m": 1}, "z": 1}}}), vec!["spec.template.z"]),
            (json!({"spec": {"bools": {"k": {"x": 1}, "l": 2}}}), vec!["spec.bools.k.x"]),
        ];
        for (mut object, want) in cases {
            assert_eq!(prune_resource(&schema(), &mut object), want, "{object}");
            assert_eq!(prune_resource(&schema(), &mut object), Vec::<String>::new(), "{object}");
        }
    }

    proptest! {
        #[test]
        fn pruning_twice_is_pruning_once(mut value in any_json()) {
            let schema = schema();
            prune_resource(&schema, &mut value);
            let once = value.clone();
            prop_assert!(prune_resource(&schema, &mut value).is_empty());
            prop_assert_eq!(once, value);
        }
    }
}
