//! For `croft-fuzz`: what a conversion webhook answers.

use croft_meta::{Gvk, object};
use serde_json::{Value, json};

use super::review::{ReviewVersion, checked, read};

/// What comes of one object of `v1`, if it is taken: the same object, of `v2`.
pub(crate) fn converted(answer: &[u8]) {
    let (from, to) = (Gvk::new("example.com", "v1", "Link"), Gvk::new("example.com", "v2", "Link"));
    let original = json!({"apiVersion": "example.com/v1", "kind": "Link", "spec": {"a": 1}, "metadata":
        {"name": "a", "namespace": "n", "uid": "u", "generation": 3, "labels": {"a": "b"}, "finalizers": ["example.com/f"]}});
    let without_labels = |object: &Value| {
        let mut metadata = object["metadata"].clone();
        metadata
            .as_object_mut()
            .into_iter()
            .for_each(|fields| fields.retain(|key, _| key != "labels" && key != "annotations"));
        metadata
    };
    for version in [ReviewVersion::V1, ReviewVersion::V1Beta1] {
        let Ok(objects) = read(version, "u", answer) else { continue };
        let Ok(taken) = checked(std::slice::from_ref(&original), objects, &from, &to) else { continue };
        assert_eq!(taken.len(), 1);
        assert_eq!(object::gvk(&taken[0]), to);
        assert_eq!(without_labels(&taken[0]), without_labels(&original));
    }
}
