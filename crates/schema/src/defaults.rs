//! Fills in defaults, and drops nulls that the schema does not allow, as apiextensions-apiserver does.

use serde_json::Value;

use crate::model::{Additional, Schema};

/// Drops non-nullable nulls, then sets what is missing and has a default.
pub fn apply_defaults(schema: &Schema, value: &mut Value) {
    drop_nulls(Some(schema), value);
    fill(schema, value);
}

fn child<'a>(schema: &'a Schema, key: &str) -> Option<&'a Schema> {
    schema.properties.get(key).map(AsRef::as_ref).or(match &schema.additional {
        Additional::Schema(schema) => Some(schema),
        Additional::None => None,
    })
}

/// Nulls with a default stay for [`fill`] to replace; null items of lists stay, because removing one would shift the rest.
fn drop_nulls(schema: Option<&Schema>, value: &mut Value) {
    match value {
        Value::Object(map) => map.retain(|key, value| {
            let child = schema.and_then(|s| child(s, key));
            if value.is_null() {
                return child.is_none_or(|s| s.nullable || s.default.is_some());
            }
            drop_nulls(child, value);
            true
        }),
        Value::Array(list) => {
            let items = schema.and_then(|s| s.items.as_deref());
            for item in list {
                drop_nulls(items, item);
            }
        }
        _ => {}
    }
}

fn fill(schema: &Schema, value: &mut Value) {
    match value {
        Value::Object(map) => {
            for (name, property) in &schema.properties {
                let Some(default) = &property.default else { continue };
                if map.get(name).is_none_or(|v| v.is_null() && !property.nullable) {
                    map.insert(name.clone(), default.clone());
                }
            }
            for (key, value) in map {
                if let Some(property) = schema.properties.get(key) {
                    fill(property, value);
                } else if let Additional::Schema(additional) = &schema.additional {
                    fill_element(additional, value);
                }
            }
        }
        Value::Array(list) => {
            let Some(items) = &schema.items else { return };
            for item in list {
                fill_element(items, item);
            }
        }
        _ => {}
    }
}

/// A value of a map or list: a null that may not be null becomes the default, if there is one.
fn fill_element(schema: &Schema, value: &mut Value) {
    if let (Value::Null, false, Some(default)) = (&*value, schema.nullable, &schema.default) {
        *value = default.clone();
    }
    fill(schema, value);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::testing::any_json;

    fn schema() -> Schema {
        Schema::from_json(&json!({"type": "object", "properties": {
            "a": {"type": "string", "default": "A"},
            "nullable": {"type": "string", "nullable": true, "default": "N"},
            "plain": {"type": "string"},
            "spec": {"type": "object", "default": {"x": 1}, "properties": {"y": {"type": "integer", "default": 2}}},
            "absent": {"type": "object", "properties": {"y": {"type": "integer", "default": 2}}},
            "list": {"type": "array", "items": {"type": "object", "default": {}, "properties": {"k": {"type": "string", "default": "K"}}}},
            "map": {"type": "object", "additionalProperties": {"type": "object", "properties": {"k": {"type": "string", "default": "K"}}}},
        }}))
        .expect("valid")
    }

    #[test]
    fn missing_and_forbidden_null_values_are_filled() {
        let filled = json!({"a": "A", "nullable": "N", "spec": {"x": 1, "y": 2}});
        let with = |extra: Value| {
            let mut all = filled.clone();
            for (key, value) in extra.as_object().expect("object") {
                all[key] = value.clone();
            }
            all
        };
        let cases = [
            (json!({}), filled.clone()),
            (json!({"a": null, "plain": null}), filled.clone()),
            (json!({"nullable": null}), with(json!({"nullable": null}))),
            (json!({"spec": {"y": null}}), with(json!({"spec": {"y": 2}}))),
            (json!({"absent": {}}), with(json!({"absent": {"y": 2}}))),
            (json!({"list": [{}, null]}), with(json!({"list": [{"k": "K"}, {"k": "K"}]}))),
            (json!({"map": {"m": {}, "n": null}}), with(json!({"map": {"m": {"k": "K"}}}))),
            (json!({"unknown": null}), with(json!({"unknown": null}))),
        ];
        for (mut value, want) in cases {
            apply_defaults(&schema(), &mut value);
            assert_eq!(value, want);
        }
    }

    proptest! {
        #[test]
        fn defaulting_twice_is_defaulting_once(mut value in any_json()) {
            let schema = schema();
            apply_defaults(&schema, &mut value);
            let once = value.clone();
            apply_defaults(&schema, &mut value);
            prop_assert_eq!(once, value);
        }
    }
}
