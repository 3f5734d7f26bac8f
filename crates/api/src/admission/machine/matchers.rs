//! `spec.instancetype` and `spec.preference`.

use croft_meta::{ApiError, FieldPath};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::super::Admission;
use super::super::denial::Denial;
use super::{MUTATOR, VALIDATOR};
use crate::instancetype::GROUP;
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

/// What the machine names, or a denial if that is not there. A machine that is there already may have lost it.
pub(super) fn named<T: DeserializeOwned>(admission: &Admission<'_>, field: &str) -> Result<Option<T>, ApiError> {
    let path = format!("spec.{field}");
    let matcher = get(admission.object, &path);
    let is_known = admission.old.is_some_and(|old| get(old, &path) == matcher);
    match find(admission, field) {
        Err(why) if !is_known => {
            let mut denial = Denial::by(VALIDATOR);
            denial.add("FieldValueNotFound", &FieldPath::new(path), format!("Failure to find {field}: {why}"));
            denial.finish().map(|()| None)
        }
        found => Ok(found.unwrap_or_default()),
    }
}

/// As the machine was made with it, if that is kept, else as it is now.
pub(super) fn find<T: DeserializeOwned>(admission: &Admission<'_>, field: &str) -> Result<Option<T>, String> {
    let Some(matcher) = get(admission.object, &format!("spec.{field}")) else { return Ok(None) };
    let namespace = text(admission.object, "metadata.namespace");
    let is_same = admission.old.is_some_and(|old| get(old, &format!("spec.{field}")) == Some(matcher));
    let kept = admission.old.filter(|_| is_same).unwrap_or(&Value::Null);
    let kept = text(kept, &format!("status.{field}Ref.controllerRevisionRef.name"));
    let revision = if kept.is_empty() { text(matcher, "revisionName") } else { kept };
    let (resource, found) = if revision.is_empty() {
        let (plural, namespace, name) = matched(matcher, field, namespace)?;
        (format!("{plural}.{GROUP} {name:?}"), admission.lookup.get(GROUP, &plural, namespace, name))
    } else {
        let found = admission.lookup.get("apps", "controllerrevisions", namespace, revision);
        (format!("controllerrevisions.apps {revision:?}"), found.map(|mut found| found["data"].take()))
    };
    let mut found = found.ok_or_else(|| format!("{resource} not found"))?;
    let unreadable = |error| format!("{resource} cannot be read: {error}");
    serde_json::from_value(found["spec"].take()).map(Some).map_err(unreadable)
}

/// The plural that a matcher names, the namespace to look in, and the name.
fn matched<'a>(matcher: &'a Value, field: &str, namespace: &'a str) -> Result<(String, &'a str, &'a str), String> {
    let (own, cluster) = (format!("virtualmachine{field}"), format!("virtualmachinecluster{field}"));
    let kind = text(matcher, "kind").to_lowercase();
    let kind = kind.trim_end_matches('s');
    let namespace = match kind {
        kind if kind == own => namespace,
        kind if kind.is_empty() || kind == cluster => "",
        kind => return Err(format!("got unexpected kind in {field} matcher: {kind}")),
    };
    let plural = if namespace.is_empty() { cluster } else { own };
    Ok((format!("{plural}s"), namespace, text(matcher, "name")))
}
