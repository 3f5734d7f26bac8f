//! What changed between two states of an object, as a JSON merge patch.
//!
//! Typed structs hold the fields that Croft knows; writing whole objects back would drop the others. A patch of what
//! this process changed leaves them alone, and with the version in it fails when somebody else was faster.

use kube::Resource;
use kube::api::{PatchParams, PostParams};
use serde::Serialize;
use serde_json::{Map, Value, json};

/// Who the managed fields of machines and instances say it was.
const MANAGER: &str = "virt-controller";

pub(crate) fn patch_params() -> PatchParams {
    PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() }
}

pub(crate) fn post_params() -> PostParams {
    PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() }
}

/// Who the managed fields of Harvester's own kinds say it was.
const HARVESTER: &str = "harvester";

pub(crate) fn as_harvester() -> PatchParams {
    PatchParams { field_manager: Some(HARVESTER.to_owned()), ..PatchParams::default() }
}

pub(crate) fn made_by_harvester() -> PostParams {
    PostParams { field_manager: Some(HARVESTER.to_owned()), ..PostParams::default() }
}

/// Nothing if they are equal.
pub(crate) fn difference<K: Serialize>(old: &K, new: &K) -> Option<Value> {
    // Structs of fields that are maps of strings at worst: they can always be written.
    let value = |object: &K| serde_json::to_value(object).unwrap_or_default();
    compare(&value(old), &value(new))
}

/// The same, for an object that must still be in the state of `old`.
pub(crate) fn guarded<K: Serialize + Resource>(old: &K, new: &K) -> Option<Value> {
    let mut patch = difference(old, new)?;
    patch["metadata"]["resourceVersion"] = json!(old.meta().resource_version);
    patch["metadata"]["uid"] = json!(old.meta().uid);
    Some(patch)
}

fn compare(old: &Value, new: &Value) -> Option<Value> {
    if old == new {
        return None;
    }
    let (Value::Object(old), Value::Object(new)) = (old, new) else { return Some(new.clone()) };
    let mut patch = Map::new();
    for (key, value) in new {
        match old.get(key) {
            Some(before) => patch.extend(compare(before, value).map(|change| (key.clone(), change))),
            None => drop(patch.insert(key.clone(), value.clone())),
        }
    }
    let gone = old.keys().filter(|key| !new.contains_key(*key));
    patch.extend(gone.map(|key| (key.clone(), Value::Null)));
    Some(Value::Object(patch))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_holds_what_changed_and_no_more() {
        let cases = [
            (json!({"a": 1}), json!({"a": 1}), None),
            (json!({"a": 1, "b": 2}), json!({"a": 3, "b": 2}), Some(json!({"a": 3}))),
            (json!({"a": {"x": 1, "y": 2}}), json!({"a": {"y": 2}}), Some(json!({"a": {"x": null}}))),
            (json!({"a": [1, 2]}), json!({"a": [2]}), Some(json!({"a": [2]}))),
            (json!({}), json!({"a": {"b": 1}}), Some(json!({"a": {"b": 1}}))),
            (json!({"a": {"b": 1}}), json!({}), Some(json!({"a": null}))),
        ];
        for (old, new, expected) in cases {
            assert_eq!(difference(&old, &new), expected, "{old} to {new}");
        }
    }
}
