//! The cells of `kubectl get`, one function per kind, as upstream's
//! `pkg/printers/internalversion/printers.go` fills them.

pub(crate) mod policy;
pub(crate) mod resources;
pub(crate) mod workloads;

use serde_json::{Value, json};

use crate::view::{get, list, map, strings, text};

const NONE: &str = "<none>";
const UNSET: &str = "<unset>";
const UNKNOWN: &str = "<unknown>";

/// `Name` and `Created At`: kinds without printers of their own.
pub(crate) fn name_and_creation(object: &Value, _now: i64) -> Vec<Value> {
    vec![json!(name(object)), get(object, "metadata.creationTimestamp").cloned().unwrap_or(Value::Null)]
}

/// `Name` and `Age`.
pub(crate) fn name_and_age(object: &Value, now: i64) -> Vec<Value> {
    vec![json!(name(object)), json!(age(object, now))]
}

pub(crate) fn name(object: &Value) -> &str {
    text(object, "metadata.name")
}

pub(crate) fn age(object: &Value, now: i64) -> String {
    since(text(object, "metadata.creationTimestamp"), now)
}

/// `5m`, or `<unknown>` for a time that is not set.
pub(crate) fn since(timestamp: &str, now: i64) -> String {
    match croft_meta::time::parse(timestamp) {
        Ok(time) => croft_meta::time::human_duration(now - time.as_second()),
        Err(_) => UNKNOWN.to_owned(),
    }
}

fn or_else<'a>(value: &'a str, instead: &'a str) -> &'a str {
    if value.is_empty() { instead } else { value }
}

/// `a=1,b=2`, or `<none>`.
fn labels(object: &Value, path: &str) -> String {
    let pairs: Vec<String> = map(object, path)
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    if pairs.is_empty() { NONE.to_owned() } else { pairs.join(",") }
}

/// A LabelSelector in the text form of `kubectl get -l`; empty if it selects everything or is absent.
pub(crate) fn selector_text(selector: Option<&Value>) -> String {
    let Some(selector) = selector else { return String::new() };
    let mut terms: Vec<(String, String)> = Vec::new();
    for (key, value) in map(selector, "matchLabels").into_iter().flatten() {
        terms.push((key.clone(), format!("{key}={}", value.as_str().unwrap_or_default())));
    }
    for expression in list(selector, "matchExpressions") {
        let key = text(expression, "key");
        let mut values = strings(expression, "values");
        values.sort_unstable();
        let values = values.join(",");
        let term = match text(expression, "operator") {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "Exists" => key.to_owned(),
            "DoesNotExist" => format!("!{key}"),
            _ => return "<error>".to_owned(),
        };
        terms.push((key.to_owned(), term));
    }
    terms.sort_by(|a, b| a.0.cmp(&b.0));
    terms.into_iter().map(|(_, term)| term).collect::<Vec<_>>().join(",")
}

fn selector_or_none(object: &Value, path: &str) -> String {
    let text = selector_text(get(object, path));
    if text.is_empty() { NONE.to_owned() } else { text }
}

/// The names and the images of containers, each joined by commas.
fn containers(object: &Value, path: &str) -> (String, String) {
    let join = |field| list(object, path).iter().map(|c| text(c, field)).collect::<Vec<_>>().join(",");
    (join("name"), join("image"))
}

/// A list cut at `max`, with the number left out; `empty` if there is nothing.
fn with_more(items: &[String], count: usize, max: usize, empty: &str) -> String {
    let shown = items[..items.len().min(max)].join(",");
    if count > max {
        format!("{shown} + {} more...", count - max)
    } else if shown.is_empty() {
        empty.to_owned()
    } else {
        shown
    }
}

/// The status of the condition of this type.
fn condition<'a>(object: &'a Value, path: &str, kind: &str) -> Option<&'a Value> {
    list(object, path).iter().find(|c| text(c, "type") == kind)
}

fn is_true(object: &Value, kind: &str) -> bool {
    condition(object, "status.conditions", kind).is_some_and(|c| text(c, "status") == "True")
}

/// A quantity as it was written; `0` when absent, like Go's zero value.
fn quantity(value: Option<&Value>) -> String {
    match value {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Number(number)) => number.to_string(),
        _ => "0".to_owned(),
    }
}

#[cfg(test)]
mod tests;
