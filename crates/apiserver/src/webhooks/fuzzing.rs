//! For `croft-fuzz`: what a webhook answers.

use serde_json::json;

use super::hook::{Hook, Stage};
use super::review::{Remarks, read as read_review};

/// The patch, if the answer is one that lets the request pass and has one.
pub(crate) fn read(body: &[u8]) -> Option<Vec<u8>> {
    let mut patch = None;
    for stage in [Stage::Mutating, Stage::Validating] {
        for version in ["v1", "v1beta1"] {
            let hook = Hook::parse("c", &json!({"name": "a.b.c", "admissionReviewVersions": [version]}), stage);
            let found = read_review(&hook, "u", body, &mut Remarks::default()).ok().and_then(|consent| consent.patch);
            assert!(found.is_none() || stage == Stage::Mutating, "a validating webhook changes nothing");
            patch = patch.or(found);
        }
    }
    patch
}
