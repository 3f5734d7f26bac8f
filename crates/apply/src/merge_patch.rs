//! JSON merge patch (RFC 7396), as evanphx/json-patch reads it.
//!
//! Its one addition to the RFC: nulls inside the objects of a new list go too, unless the list takes the place of an
//! object.

use serde_json::{Map, Value};

use crate::error::PatchError;
use croft_meta::json::go_kind;

/// Decodes the body of a merge patch, which must be an object.
pub fn decode(patch: &[u8]) -> Result<Value, PatchError> {
    let malformed = |text: String| PatchError::Malformed(format!("error decoding patch: {text}"));
    let patch = croft_meta::json::parse(patch).map_err(malformed)?;
    match patch {
        Value::Object(_) => Ok(patch),
        Value::Null => Err(PatchError::Malformed("Invalid JSON Patch".to_owned())),
        other => {
            let kind = go_kind(&other);
            Err(malformed(format!("json: cannot unmarshal {kind} into Go value of type map[string]interface {{}}")))
        }
    }
}

/// Applies a merge patch in place.
pub fn apply(target: &mut Value, patch: &Value) {
    match (target.as_object_mut(), patch) {
        (Some(target), Value::Object(patch)) => merge(target, patch),
        (Some(_), patch) => *target = patch.clone(),
        (None, patch) => *target = without_nulls(patch),
    }
}

fn merge(target: &mut Map<String, Value>, patch: &Map<String, Value>) {
    for (key, value) in patch {
        if value.is_null() {
            target.remove(key);
            continue;
        }
        match target.get_mut(key) {
            Some(existing) => apply(existing, value),
            None => {
                target.insert(key.clone(), without_nulls(value));
            }
        }
    }
}

fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            map.iter().filter(|(_, v)| !v.is_null()).map(|(k, v)| (k.clone(), without_nulls(v))).collect()
        }
        Value::Array(items) => items.iter().map(without_nulls).collect(),
        scalar => scalar.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_cases_of_the_rfc_hold() {
        let cases = [
            (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "b"}), json!({"b": "c"}), json!({"a": "b", "b": "c"})),
            (json!({"a": "b"}), json!({"a": null}), json!({})),
            (json!({"a": "b", "b": "c"}), json!({"a": null}), json!({"b": "c"})),
            (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "c"}), json!({"a": ["b"]}), json!({"a": ["b"]})),
            (json!({"a": {"b": "c"}}), json!({"a": {"b": "d", "c": null}}), json!({"a": {"b": "d"}})),
            (json!({"a": [{"b": "c"}]}), json!({"a": [1]}), json!({"a": [1]})),
            (json!({"e": null}), json!({"a": 1}), json!({"e": null, "a": 1})),
            (json!([1, 2]), json!({"a": "b", "c": null}), json!({"a": "b"})),
            (json!({}), json!({"a": {"bb": {"ccc": null}}}), json!({"a": {"bb": {}}})),
        ];
        for (mut target, patch, want) in cases {
            apply(&mut target, &patch);
            assert_eq!(target, want, "{patch}");
        }
    }

    #[test]
    fn nulls_in_lists_go_unless_an_object_was_there() {
        let patch = json!({"a": [{"b": null, "c": 1}, null]});
        for (mut target, want) in [
            (json!({}), json!({"a": [{"c": 1}, null]})),
            (json!({"a": [1]}), json!({"a": [{"c": 1}, null]})),
            (json!({"a": {"x": 1}}), json!({"a": [{"b": null, "c": 1}, null]})),
        ] {
            apply(&mut target, &patch);
            assert_eq!(target, want);
        }
    }

    #[test]
    fn only_objects_are_merge_patches() {
        assert_eq!(decode(b"{\"a\":1}"), Ok(json!({"a": 1})));
        for (patch, want) in [
            ("[]", "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}"),
            ("null", "Invalid JSON Patch"),
            ("{", "error decoding patch: unexpected end of JSON input"),
        ] {
            assert_eq!(decode(patch.as_bytes()), Err(PatchError::Malformed(want.to_owned())));
        }
    }
}
