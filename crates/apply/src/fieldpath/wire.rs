//! `FieldsV1`: the JSON form of a set in `metadata.managedFields`.
//!
//! Each path element is a key (`f:name`, `k:{"name":"a"}`, `v:"a"`, `i:0`) of nested objects. An
//! empty object is a member without children; `.` marks a member that has some.

use serde_json::{Map, Value};
use thiserror::Error;

use super::{PathElement, Set};
use crate::go_format;

/// A `FieldsV1` that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FieldsError {
    #[error("expected an object of fields, got {0}")]
    NotAnObject(&'static str),
    #[error("parsing key as path element: {0}")]
    Element(String),
}

/// Nesting beyond this is no field of a real object, and would cost stack.
const MAX_DEPTH: usize = 128;

impl Set {
    pub fn from_fields_v1(fields: &Value) -> Result<Self, FieldsError> {
        read(fields, 0).map(|(children, _)| children)
    }

    pub fn to_fields_v1(&self) -> Value {
        Value::Object(write(self))
    }

    /// The canonical text, in the order of path elements. [`Set::to_fields_v1`] holds the same fields in the order of
    /// their names, which is all that a JSON object of ours can keep.
    pub fn to_fields_v1_text(&self) -> String {
        let mut out = String::new();
        write_text(&mut out, self, false);
        out
    }
}

/// The set below a node, and whether the node itself is a member.
fn read(fields: &Value, depth: usize) -> Result<(Set, bool), FieldsError> {
    let map = match fields {
        Value::Object(map) => map,
        // Upstream's reader takes null for an empty object.
        Value::Null => return Ok((Set::new(), true)),
        other => return Err(FieldsError::NotAnObject(croft_meta::json::go_kind(other))),
    };
    if depth > MAX_DEPTH {
        return Err(FieldsError::Element("nested too deeply".to_owned()));
    }
    let mut children = Set::new();
    let mut member = false;
    for (key, below) in map {
        if key == "." {
            member = true;
            continue;
        }
        // Kinds of element that a later version may add are dropped.
        let Some(element) = parse_element(key)? else { continue };
        let (grandchildren, is_member) = read(below, depth + 1)?;
        children.attach(element, is_member, grandchildren);
    }
    member |= children.is_empty();
    Ok((children, member))
}

fn parse_element(key: &str) -> Result<Option<PathElement>, FieldsError> {
    let mut chars = key.chars();
    let (Some(kind), Some(colon)) = (chars.next(), chars.next()) else {
        return Err(FieldsError::Element("key must be 2 characters long:".to_owned()));
    };
    if colon != ':' {
        return Err(FieldsError::Element(format!("missing colon: {key}")));
    }
    let text = chars.as_str();
    let invalid = |e: &dyn std::fmt::Display| FieldsError::Element(e.to_string());
    match kind {
        'f' => Ok(Some(PathElement::Field(text.to_owned()))),
        'v' => serde_json::from_str(text).map(|v| Some(PathElement::Value(v))).map_err(|e| invalid(&e)),
        'k' => {
            let fields: Map<String, Value> = serde_json::from_str(text).map_err(|e| invalid(&e))?;
            Ok(Some(PathElement::Key(fields.into_iter().collect())))
        }
        'i' => text.parse().map(|i| Some(PathElement::Index(i))).map_err(|e| invalid(&e)),
        _ => Ok(None),
    }
}

fn write(set: &Set) -> Map<String, Value> {
    let mut map = Map::new();
    for entry in set.entries() {
        let mut below = write(&entry.children);
        if entry.member && !below.is_empty() {
            below.insert(".".to_owned(), Value::Object(Map::new()));
        }
        map.insert(element_key(&entry.element), Value::Object(below));
    }
    map
}

fn write_text(out: &mut String, set: &Set, member: bool) {
    out.push('{');
    let mut first = true;
    if member && !set.is_empty() {
        out.push_str("\".\":{}");
        first = false;
    }
    for entry in set.entries() {
        if !first {
            out.push(',');
        }
        first = false;
        push_json_string(out, &element_key(&entry.element), false);
        out.push(':');
        write_text(out, &entry.children, entry.member);
    }
    out.push('}');
}

fn element_key(element: &PathElement) -> String {
    match element {
        PathElement::Field(name) => {
            let mut key = String::with_capacity(name.len() + 2);
            key.push_str("f:");
            key.push_str(name);
            key
        }
        PathElement::Key(fields) => {
            let mut key = "k:{".to_owned();
            for (i, (name, value)) in fields.iter().enumerate() {
                if i > 0 {
                    key.push(',');
                }
                push_json_string(&mut key, name, false);
                key.push(':');
                push_value(&mut key, value);
            }
            key.push('}');
            key
        }
        PathElement::Value(value) => {
            let mut key = "v:".to_owned();
            push_value(&mut key, value);
            key
        }
        PathElement::Index(index) => format!("i:{index}"),
    }
}

fn push_value(out: &mut String, value: &Value) {
    match value {
        Value::String(text) => push_json_string(out, text, true),
        Value::Number(n) => out.push_str(&go_format::number(n, 21)),
        other => out.push_str(&other.to_string()),
    }
}

/// Values escape `<`, `>` and `&`, names do not: what upstream's encoder does, and keys are compared as text.
fn push_json_string(out: &mut String, text: &str, escape_html: bool) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{0}'..='\u{1f}' => push_escape(out, c),
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' if escape_html => push_escape(out, c),
            c => out.push(c),
        }
    }
    out.push('"');
}

fn push_escape(out: &mut String, c: char) {
    use std::fmt::Write as _;
    // Writing to a String cannot fail.
    let _ = write!(out, "\\u{:04x}", c as u32);
}
