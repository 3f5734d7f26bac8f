//! What was sent and answered, as far as it is written down: never what is secret, and never so much that it cannot be read.

use std::io;

use croft_meta::redact::{self, HIDDEN, LAST_APPLIED, SECRET_BACKUPS};
use serde_json::Value;

/// What is longer is left out: an event must stay a line that readers take.
pub(super) const LONGEST: usize = 256 << 10;

/// Whether it is short enough as it would be written down: a byte of protobuf or YAML may take six of JSON.
pub(super) fn is_short(object: &Value) -> bool {
    serde_json::to_writer(Room(LONGEST), object).is_ok()
}

/// Takes so many bytes, and none of them is kept.
struct Room(usize);

impl io::Write for Room {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 = self.0.checked_sub(bytes.len()).ok_or(io::ErrorKind::FileTooLarge)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Takes out what is secret, whatever the policy says. `is_secret`: the request is about Secrets.
pub(super) fn without_secrets(mut object: Value, is_secret: bool, omit_managed_fields: bool) -> Value {
    hide(&mut object, is_secret);
    redact::value(&mut object);
    if omit_managed_fields {
        drop_managed_fields(&mut object);
    }
    object
}

/// Items of a list do not tell their kind, and a patch has none: then what the request is about decides.
fn hide(value: &mut Value, is_secret: bool) {
    match value {
        Value::Object(fields) => {
            let kind = fields.get("kind").and_then(Value::as_str).unwrap_or_default();
            let is_secret = is_secret || matches!(kind, "Secret" | "SecretList");
            let is_operation = fields.contains_key("op") && fields.contains_key("path");
            let path = fields.get("path").and_then(Value::as_str).unwrap_or_default();
            let names_secret = |part: &str| part == SECRET_BACKUPS || redact::is_secretive(part);
            let is_hidden = is_operation && (is_secret || path.split('/').any(names_secret));
            for (name, field) in fields.iter_mut() {
                let has_values = is_secret && matches!(name.as_str(), "data" | "stringData");
                if has_values || name == LAST_APPLIED || (is_hidden && name == "value") {
                    hide_values(field);
                } else {
                    hide(field, is_secret);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| hide(item, is_secret)),
        _ => {}
    }
}

/// The names stay.
fn hide_values(value: &mut Value) {
    match value {
        Value::Object(fields) => fields.iter_mut().for_each(|(_, field)| hide_values(field)),
        Value::Array(items) => items.iter_mut().for_each(hide_values),
        Value::Null => {}
        other => *other = HIDDEN.into(),
    }
}

/// Of the object, or of each item of a list.
fn drop_managed_fields(object: &mut Value) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    for list in ["items", "data"] {
        object.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten().for_each(drop_managed_fields);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const LEAK: &str = "hunter2";

    #[test]
    fn an_object_is_as_long_as_its_line() {
        assert!(is_short(&json!({"a": "x".repeat(LONGEST - 8)})));
        assert!(!is_short(&json!({"a": "x".repeat(LONGEST - 7)})));
        assert!(!is_short(&json!({"a": "\u{1}".repeat(LONGEST / 2)})));
    }

    #[test]
    fn nothing_secret_is_left() {
        for (object, is_secret) in [
            (json!({"kind": "Secret", "data": {"a": LEAK}, "stringData": {"b": LEAK}}), false),
            (json!({"data": {"a": LEAK}}), true),
            (json!({"kind": "SecretList", "items": [{"data": {"a": LEAK}}]}), false),
            (json!({"kind": "List", "items": [{"kind": "Secret", "data": {"a": LEAK}}]}), false),
            (json!({"kind": "Table", "rows": [{"object": {"kind": "Secret", "data": {"a": LEAK}}}]}), false),
            (json!([{"op": "replace", "path": "/data/a", "value": LEAK}]), true),
            (json!([{"op": "add", "path": "/data", "value": {"a": LEAK}}]), true),
            (json!([{"op": "replace", "path": "/spec/password", "value": LEAK}]), false),
            (json!({"kind": "TokenRequest", "status": {"token": LEAK}}), false),
            (json!({"kind": "TokenReview", "spec": {"token": LEAK}}), false),
            (json!({"username": "ann", "password": LEAK}), false),
            (json!({"metadata": {"annotations": {LAST_APPLIED: LEAK}}}), false),
            (json!({"spec": {"volumes": [{"cloudInitNoCloud": {"userData": LEAK}}]}}), false),
            (json!({"items": [{"status": {"secretBackups": [{"name": "s", "data": {"a": LEAK}}]}}]}), false),
            (json!([{"op": "add", "path": "/status/secretBackups/0/data/a", "value": LEAK}]), false),
            (json!([{"op": "add", "path": "/status", "value": {"secretBackups": [{"data": {"a": LEAK}}]}}]), false),
        ] {
            let shown = without_secrets(object, is_secret, false).to_string();
            assert!(!shown.contains(LEAK) && shown.contains(HIDDEN), "{shown}");
        }
        let map = json!({"kind": "ConfigMap", "data": {"a": "b"}, "metadata": {"managedFields": [{}], "name": "m"}});
        assert_eq!(without_secrets(map.clone(), false, false), map);
        let list = json!({"kind": "ConfigMapList", "items": [map]});
        assert_eq!(without_secrets(list, false, true)["items"][0]["metadata"], json!({"name": "m"}));
    }
}
