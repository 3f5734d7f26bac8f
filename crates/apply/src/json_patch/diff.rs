//! The patch that makes one document of another.

use serde_json::{Value, json};

/// Operations that turn `old` into `new`, in the order in which they are to be applied. Empty if they are equal. Nothing but
/// what differs is named, so that the patch of a webhook does not undo what another one does beside it.
pub fn diff(old: &Value, new: &Value) -> Vec<Value> {
    let mut operations = Vec::new();
    between("", old, new, &mut operations);
    operations
}

fn between(path: &str, old: &Value, new: &Value, operations: &mut Vec<Value>) {
    if old == new {
        return;
    }
    match (old, new) {
        (Value::Object(before), Value::Object(after)) => {
            for key in before.keys().filter(|key| !after.contains_key(*key)) {
                operations.push(json!({"op": "remove", "path": below(path, key)}));
            }
            for (key, value) in after {
                match before.get(key) {
                    Some(known) => between(&below(path, key), known, value, operations),
                    None => operations.push(json!({"op": "add", "path": below(path, key), "value": value})),
                }
            }
        }
        (Value::Array(before), Value::Array(after)) => {
            for (index, (known, value)) in before.iter().zip(after).enumerate() {
                between(&below(path, &index.to_string()), known, value, operations);
            }
            // From the end, so that the places of the others stay what they are.
            for index in (after.len()..before.len()).rev() {
                operations.push(json!({"op": "remove", "path": below(path, &index.to_string())}));
            }
            for value in after.iter().skip(before.len()) {
                operations.push(json!({"op": "add", "path": below(path, "-"), "value": value}));
            }
        }
        _ => operations.push(json!({"op": "replace", "path": path, "value": new})),
    }
}

/// The pointer of a member.
fn below(path: &str, key: &str) -> String {
    format!("{path}/{}", key.replace('~', "~0").replace('/', "~1"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::apply;
    use super::*;

    #[test]
    fn only_what_differs_is_named() {
        let cases = [
            (json!({"a": 1}), json!({"a": 1}), json!([])),
            (json!({"a": 1}), json!({"a": 2}), json!([{"op": "replace", "path": "/a", "value": 2}])),
            (
                json!({"gone": 1, "l": [1, 2, 3]}),
                json!({"l": [1, 4], "x/y~z": {}}),
                json!([
                    {"op": "remove", "path": "/gone"},
                    {"op": "replace", "path": "/l/1", "value": 4},
                    {"op": "remove", "path": "/l/2"},
                    {"op": "add", "path": "/x~1y~0z", "value": {}},
                ]),
            ),
            (json!({"l": []}), json!({"l": [1]}), json!([{"op": "add", "path": "/l/-", "value": 1}])),
            (json!({"m": {"a": 1}}), json!({"m": null}), json!([{"op": "replace", "path": "/m", "value": null}])),
        ];
        for (old, new, expected) in cases {
            assert_eq!(Value::Array(diff(&old, &new)), expected, "{old} -> {new}");
        }
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![Just(Value::Null), any::<bool>().prop_map(Value::from), (0..4).prop_map(Value::from)];
        leaf.prop_recursive(4, 32, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("[ab/~]{0,2}", inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn the_patch_leads_there(old in any_json(), new in any_json()) {
            // Objects are what has patches.
            let (old, new) = (json!({"o": old}), json!({"o": new}));
            let patch = Value::Array(diff(&old, &new)).to_string();
            prop_assert_eq!(apply(&old, patch.as_bytes()).unwrap(), new);
        }
    }
}
