//! `spec.instancetype` and `spec.preference`.

use croft_meta::{ApiError, FieldPath};
use serde_json::Value;

use super::super::Admission;
use super::super::denial::Denial;
use super::MUTATOR;
use crate::view::{get, text};

pub(super) fn check(admission: &Admission<'_>) -> Result<(), ApiError> {
    for (field, kind) in [("instancetype", "InstancetypeMatcher"), ("preference", "PreferenceMatcher")] {
        let path = format!("spec.{field}");
        let Some(matcher) = get(admission.object, &path) else { continue };
        let mut denial = Denial::by(MUTATOR);
        let at = FieldPath::new(path.clone());
        if let Some(old) = admission.old.and_then(|old| get(old, &path)) {
            check_change(&mut denial, &at, matcher, old);
        }
        check_one(&mut denial, &at, matcher, kind);
        denial.finish()?;
    }
    Ok(())
}

/// A revision belongs to a name.
fn check_change(denial: &mut Denial, at: &FieldPath, new: &Value, old: &Value) {
    let revision = text(old, "revisionName");
    if !revision.is_empty() && text(new, "name") != text(old, "name") && text(new, "revisionName") == revision {
        let message = "the Matcher Name has been updated without updating the RevisionName";
        denial.invalid(&at.child("revisionName"), message);
    }
}

fn check_one(denial: &mut Denial, at: &FieldPath, matcher: &Value, kind: &str) {
    let [name, matched_kind, volume, policy] =
        ["name", "kind", "inferFromVolume", "inferFromVolumeFailurePolicy"].map(|field| text(matcher, field));
    if name.is_empty() && volume.is_empty() {
        let message = format!("Either Name or InferFromVolume should be provided within the {kind}");
        denial.add("FieldValueNotFound", at, message);
    }
    if !volume.is_empty() {
        for (value, field, label) in [(name, "name", "Name"), (matched_kind, "kind", "Kind")] {
            if !value.is_empty() {
                let message = format!("{label} already set, should be cleared before setting inferFromVolume");
                denial.not_supported(&at.child(field), message);
            }
        }
    }
    if !matches!(policy, "" | "Reject" | "Ignore") {
        let message = format!("Invalid value '{policy}' for InferFromVolumeFailurePolicy");
        denial.invalid(&at.child("inferFromVolumeFailurePolicy"), message);
    }
}
