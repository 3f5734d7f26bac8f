//! Patches of all kinds, and server-side apply.

use std::sync::{Arc, LazyLock};

use croft_apply::fieldpath::Set;
use croft_apply::{WriteContext, json_patch as json_patches, merge_patch as merge_patches, strategic};
use croft_meta::{Gvk, json};
use croft_schema::Schema;
use serde_json::Value;

use crate::split;

static DEPLOYMENT: LazyLock<Arc<Schema>> = LazyLock::new(|| schema("apps", "Deployment"));
static SERVICE: LazyLock<Arc<Schema>> = LazyLock::new(|| schema("", "Service"));

fn schema(group: &str, kind: &str) -> Arc<Schema> {
    croft_api::kind_schema(&Gvk::new(group, "v1", kind)).unwrap_or_else(|| panic!("{kind} is built in"))
}

/// A document can be written and read again: it is not deeper than what is read.
fn is_readable(document: &Value) {
    assert_eq!(json::parse(document.to_string().as_bytes()).as_ref(), Ok(document));
}

pub(crate) fn json_patch(data: &[u8]) {
    let [document, patch] = split(data);
    let Ok(document) = json::parse(document) else { return };
    let Ok(patched) = json_patches::apply(&document, patch) else { return };
    is_readable(&patched);
    // Copies are bounded, everything else comes out of the patch or the document.
    let most = document.to_string().len() + patch.len() * 8 + (3 << 20) + 1024;
    assert!(patched.to_string().len() <= most, "{} bytes out of {most}", patched.to_string().len());
}

/// RFC 7396 says that doing it twice is doing it once; upstream's nulls in lists settle the second time.
pub(crate) fn merge_patch(data: &[u8]) {
    let [document, patch] = split(data);
    let (Ok(mut document), Ok(patch)) = (json::parse(document), merge_patches::decode(patch)) else { return };
    merge_patches::apply(&mut document, &patch);
    is_readable(&document);
    merge_patches::apply(&mut document, &patch);
    let settled = document.clone();
    merge_patches::apply(&mut document, &patch);
    assert_eq!(document, settled);
}

pub(crate) fn strategic_patch(data: &[u8]) {
    let [document, patch] = split(data);
    let (Ok(document), Ok(patch)) = (json::parse(document), json::parse(patch)) else { return };
    for schema in [&DEPLOYMENT, &SERVICE] {
        let Ok(patched) = strategic::apply(schema, &document, &patch) else { continue };
        is_readable(&patched);
        // What it leaves is a document that can be patched again.
        let _ = strategic::apply(schema, &patched, &patch);
    }
}

/// Applying the same configuration again changes nothing: neither the object nor who owns what.
pub(crate) fn server_side_apply(data: &[u8]) {
    let [live, config] = split(data);
    let Ok(config) = json::parse(config) else { return };
    let live = json::parse(live).ok().filter(Value::is_object);
    for (schema, api_version) in [(&DEPLOYMENT, "apps/v1"), (&SERVICE, "v1")] {
        let cx = WriteContext {
            schema,
            api_version,
            manager: "fuzz",
            subresource: "",
            now: "2026-01-02T03:04:05Z",
            reset_fields: &[&["status"]],
        };
        let mut tracked = live.clone();
        if let Some(tracked) = &mut tracked {
            let before = tracked.clone();
            let other = WriteContext { manager: "other", ..cx };
            if croft_apply::track_update(&other, Some(&before), tracked).is_err() {
                continue;
            }
        }
        let Ok(first) = croft_apply::apply(&cx, tracked.as_ref(), &config, true) else { continue };
        is_readable(&first);
        let Ok(second) = croft_apply::apply(&cx, Some(&first), &config, false) else {
            panic!("what was just applied is refused: {config} on {first}");
        };
        // Empty maps and lists settle the second time, upstream's too.
        let third = croft_apply::apply(&cx, Some(&second), &config, false);
        assert_eq!(third.as_ref().ok(), Some(&second), "{config}");
    }
}

/// A set of fields is written as it was read.
pub(crate) fn managed_fields(data: &[u8]) {
    let [one, other] = split(data);
    let read = |data| json::parse(data).ok().and_then(|fields| Set::from_fields_v1(&fields).ok());
    let Some(one) = read(one) else { return };
    let written = one.to_fields_v1();
    let again = Set::from_fields_v1(&written).unwrap_or_else(|error| panic!("{written}: {error}"));
    assert_eq!(again, one, "{written}");
    let text = one.to_fields_v1_text();
    assert_eq!(json::parse(text.as_bytes()), Ok(written), "{text}");
    let Some(other) = read(other) else { return };
    let union = one.union(&other);
    assert_eq!(union, other.union(&one));
    assert_eq!(one.union(&one), one);
    let common = one.intersection(&other);
    assert_eq!(one.intersects(&other), !common.is_empty());
    assert_eq!(one.difference(&other).union(&common), one);
    assert!(one.difference(&one).is_empty());
}
