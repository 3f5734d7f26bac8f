//! JSON patch (RFC 6902) in the dialect of evanphx/json-patch v4, which is what the Kubernetes API
//! speaks and clients rely on.
//!
//! It differs from the RFC: `test` for null passes on a missing member; `replace` of a missing member sets it;
//! `copy` from a missing member gives null; array indices may be negative, counting from the end; and
//! the first segment of a path is not looked at. And what it makes is not nested more deeply than what can be read again.

mod diff;

use serde_json::{Map, Value};

use crate::error::PatchError;
use croft_meta::json::{self, go_kind};

pub use self::diff::diff;

const MAX_OPERATIONS: usize = 10_000;
/// What all `copy` operations of one patch may add, as a request may not be larger either.
const MAX_COPIED_BYTES: usize = 3 * 1024 * 1024;

/// Applies an encoded patch to a document.
pub fn apply(doc: &Value, patch: &[u8]) -> Result<Value, PatchError> {
    let operations = decode(patch)?;
    let mut doc = doc.clone();
    let mut copied_bytes = 0;
    for operation in &operations {
        run(&mut doc, operation, &mut copied_bytes).map_err(PatchError::Rejected)?;
    }
    Ok(doc)
}

fn decode(patch: &[u8]) -> Result<Vec<Map<String, Value>>, PatchError> {
    let malformed = |text: String| PatchError::Malformed(format!("error decoding patch: {text}"));
    let patch = json::parse(patch).map_err(malformed)?;
    let operations = match patch {
        Value::Array(operations) => operations,
        Value::Null => Vec::new(),
        other => {
            let kind = go_kind(&other);
            return Err(malformed(format!(
                "json: cannot unmarshal {kind} into Go value of type []handlers.jsonPatchOp"
            )));
        }
    };
    let mut decoded = Vec::with_capacity(operations.len());
    for operation in operations {
        let operation = match operation {
            Value::Object(map) => map,
            Value::Null => Map::new(),
            other => {
                let kind = go_kind(&other);
                let text = format!("json: cannot unmarshal {kind} into Go value of type handlers.jsonPatchOp");
                return Err(malformed(text));
            }
        };
        for field in ["op", "path", "from"] {
            match operation.get(field) {
                None | Some(Value::String(_) | Value::Null) => {}
                Some(other) => {
                    let kind = go_kind(other);
                    let text = format!(
                        "json: cannot unmarshal {kind} into Go struct field jsonPatchOp.{field} of type string"
                    );
                    return Err(malformed(text));
                }
            }
        }
        decoded.push(operation);
    }
    if decoded.len() > MAX_OPERATIONS {
        return Err(PatchError::TooLarge(format!(
            "The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {}",
            decoded.len()
        )));
    }
    Ok(decoded)
}

fn run(doc: &mut Value, operation: &Map<String, Value>, copied_bytes: &mut usize) -> Result<(), String> {
    let text = |field: &str| operation.get(field).and_then(Value::as_str);
    let kind = text("op").unwrap_or("unknown");
    let path = || text("path").ok_or_else(|| format!("{kind} operation failed to decode path: missing value"));
    let from = || text("from").ok_or_else(|| format!("{kind} operation failed to decode from: missing value"));
    // A missing value is null.
    let value = operation.get("value").unwrap_or(&Value::Null);
    match kind {
        "add" => check_depth(path()?, value).and_then(|()| add(doc, path()?, value.clone())),
        "remove" => remove(doc, path()?).map(drop),
        "replace" => check_depth(path()?, value).and_then(|()| replace(doc, path()?, value)),
        "move" => {
            let (from, path) = (from()?, path()?);
            let moved = remove(doc, from)?;
            // What does not go further down than it was is as deep as before.
            if segments(path) > segments(from) {
                check_depth(path, &moved)?;
            }
            add(doc, path, moved)
        }
        "copy" => {
            let from = from()?;
            let copy = get(doc, from)?.cloned().unwrap_or(Value::Null);
            *copied_bytes += if copy.is_null() { 0 } else { copy.to_string().len() };
            if *copied_bytes > MAX_COPIED_BYTES {
                return Err(format!(
                    "Unable to complete the copy, the accumulated size increase of copy is {copied_bytes}, \
                     exceeding the limit {MAX_COPIED_BYTES}"
                ));
            }
            check_depth(path()?, &copy)?;
            add(doc, path()?, copy)
        }
        "test" => test(doc, path()?, value),
        other => Err(format!("Unexpected kind: {other}")),
    }
}

/// A document grows downwards with each operation: unchecked, it would become deeper than any stack.
fn check_depth(path: &str, value: &Value) -> Result<(), String> {
    let room = json::MAX_DEPTH.checked_sub(segments(path)).filter(|room| !json::is_deeper_than(value, *room));
    room.map(drop).ok_or_else(|| json::TOO_DEEP.to_owned())
}

fn segments(path: &str) -> usize {
    path.matches('/').count()
}

/// The container that holds the last segment of a path, and that segment.
fn parent<'d>(doc: &'d mut Value, path: &str) -> Result<(&'d mut Value, String), String> {
    let missing = || format!("doc is missing path: {path:?}: missing value");
    let (_, pointer) = path.split_once('/').ok_or_else(missing)?;
    let mut segments = pointer.split('/').map(unescape);
    let mut container = doc;
    let mut key = segments.next().ok_or_else(missing)?;
    for next in segments {
        container = match container {
            Value::Object(map) => map.get_mut(&key),
            Value::Array(list) => match position(&key, list.len()) {
                Ok(at) => list.get_mut(at),
                Err(_) => None,
            },
            _ => None,
        }
        .ok_or_else(missing)?;
        key = next;
    }
    if container.is_object() || container.is_array() { Ok((container, key)) } else { Err(missing()) }
}

fn unescape(segment: &str) -> String {
    segment.replace("~1", "/").replace("~0", "~")
}

/// An index into a list of `len` items.
fn position(key: &str, len: usize) -> Result<usize, String> {
    let index: i64 = key.parse().map_err(|_| format!("value was not a proper array index: '{key}'"))?;
    let from_start = if index < 0 { index.saturating_add_unsigned(len as u64) } else { index };
    usize::try_from(from_start)
        .ok()
        .filter(|at| *at < len)
        .ok_or_else(|| format!("Unable to access invalid index: {index}: invalid index referenced"))
}

/// The value at a path; `None` for a missing member of an object that is there.
fn get<'d>(doc: &'d mut Value, path: &str) -> Result<Option<&'d mut Value>, String> {
    let (container, key) = parent(doc, path)?;
    match container {
        Value::Object(map) => Ok(map.get_mut(&key)),
        Value::Array(list) => position(&key, list.len()).map(|at| list.get_mut(at)),
        _ => Ok(None),
    }
}

fn add(doc: &mut Value, path: &str, value: Value) -> Result<(), String> {
    let (container, key) = parent(doc, path)?;
    match container {
        Value::Object(map) => {
            map.insert(key, value);
        }
        Value::Array(list) if key == "-" => list.push(value),
        Value::Array(list) => list.insert(position(&key, list.len() + 1)?, value),
        _ => {}
    }
    Ok(())
}

fn remove(doc: &mut Value, path: &str) -> Result<Value, String> {
    let (container, key) = parent(doc, path)?;
    match container {
        Value::Object(map) => {
            map.remove(&key).ok_or_else(|| format!("Unable to remove nonexistent key: {key}: missing value"))
        }
        Value::Array(list) => position(&key, list.len()).map(|at| list.remove(at)),
        _ => Ok(Value::Null),
    }
}

fn replace(doc: &mut Value, path: &str, value: &Value) -> Result<(), String> {
    if path.is_empty() {
        // The whole document can only become another container; upstream lets anything else pass without effect.
        if value.is_object() || value.is_array() {
            *doc = value.clone();
        }
        return Ok(());
    }
    let (container, key) = parent(doc, path)?;
    match container {
        Value::Object(map) => {
            map.insert(key, value.clone());
        }
        Value::Array(list) => {
            let at = position(&key, list.len())?;
            list[at] = value.clone();
        }
        _ => {}
    }
    Ok(())
}

fn test(doc: &mut Value, path: &str, value: &Value) -> Result<(), String> {
    let passed = if path.is_empty() { doc == value } else { get(doc, path)?.map_or(&Value::Null, |v| &*v) == value };
    if passed { Ok(()) } else { Err(format!("testing value {path} failed: test failed")) }
}

#[cfg(test)]
mod tests;
