//! The annotation of kubectl's client-side apply, which its server-side apply takes over.

use serde_json::{Value, json};

use super::{Conflict, WriteContext};
use crate::fieldpath::path_string;
use crate::typed::{Duplicates, compare, field_set, validate};

/// The only manager that this concerns; users opt out by naming another.
pub(super) const KUBECTL: &str = "kubectl";
const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// All annotations of an object together may have this size.
const MAX_ANNOTATIONS_BYTES: usize = 256 * 1024;

fn last_applied(object: &Value) -> Option<&str> {
    object.get("metadata")?.get("annotations")?.get(ANNOTATION)?.as_str().filter(|text| !text.is_empty())
}

/// The conflicts that are not about what kubectl itself applied before, as the annotation tells.
pub(super) fn remaining_conflicts(cx: &WriteContext<'_>, live: &Value, conflicts: Vec<Conflict>) -> Vec<Conflict> {
    let Some(own) = fields_of_last_applied(cx, live) else { return conflicts };
    conflicts.into_iter().filter(|conflict| !own.contains(&conflict.field)).collect()
}

/// The fields of the annotation that still are in the object as they were applied.
fn fields_of_last_applied(cx: &WriteContext<'_>, live: &Value) -> Option<Vec<String>> {
    let applied: Value = serde_json::from_str(last_applied(live)?).ok()?;
    if applied.get("apiVersion").and_then(Value::as_str) != Some(cx.api_version) {
        return None;
    }
    validate(cx.root(), &applied, Duplicates::Forbidden).ok()?;
    let mut fields = field_set(cx.root(), &applied);
    let changes = compare(cx.root(), &applied, live);
    for changed in [&changes.modified, &changes.added, &changes.removed] {
        fields.subtract(changed);
    }
    Some(fields.paths().iter().map(|path| path_string(path)).collect())
}

/// Brings the annotation up to date, if the object has it.
pub(super) fn refresh(object: &mut Value, config: &Value) {
    if last_applied(object).is_none() {
        return;
    }
    let mut applied = config.clone();
    if let Some(annotations) = applied.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
        annotations.remove(ANNOTATION);
        if annotations.is_empty()
            && let Some(metadata) = applied.pointer_mut("/metadata").and_then(Value::as_object_mut)
        {
            metadata.remove("annotations");
        }
    }
    let Some(annotations) = object.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) else { return };
    annotations.insert(ANNOTATION.to_owned(), json!(format!("{applied}\n")));
    let size: usize = annotations.iter().map(|(k, v)| k.len() + v.as_str().map_or(0, str::len)).sum();
    if size > MAX_ANNOTATIONS_BYTES {
        annotations.remove(ANNOTATION);
    }
}
