//! Replaces what differs from run to run (times, uids, revisions, tokens) by placeholders.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// Which parts of a body count.
#[derive(Debug, Default)]
pub(super) struct Shape<'a> {
    pub(super) keep: &'a [String],
    pub(super) drop: &'a [String],
    pub(super) sort: &'a [String],
    pub(super) without: &'a [String],
}

impl Shape<'_> {
    /// Items that tell of something the reference does not have.
    fn counts(&self, item: &Value) -> bool {
        let text = item.to_string();
        !self.without.iter().any(|word| text.contains(word))
    }
}

/// The body as it is compared and stored.
pub(super) fn body(mut body: Value, shape: &Shape, variables: &BTreeMap<String, String>) -> Value {
    if !shape.keep.is_empty() {
        let kept = shape.keep.iter().map(|p| (p.clone(), body.pointer(p).cloned().unwrap_or(Value::Null)));
        body = Value::Object(kept.collect());
    }
    for pointer in shape.drop {
        remove(&mut body, &pointer.split('/').skip(1).collect::<Vec<_>>());
    }
    walk(&mut body, "", variables);
    // A Status lists its causes in an order that even the reference does not keep.
    for pointer in
        ["/details/causes", "/object/details/causes"].into_iter().chain(shape.sort.iter().map(String::as_str))
    {
        let list = if shape.keep.is_empty() { body.pointer_mut(pointer) } else { body.get_mut(pointer) };
        if let Some(Value::Array(list)) = list {
            list.retain(|item| shape.counts(item));
            list.sort_by_key(Value::to_string);
            // It also names some of them twice.
            list.dedup();
        }
    }
    body
}

/// Without the parameters that say nothing.
pub(super) fn content_type(text: &str) -> String {
    text.replace("; ", ";").replace(";charset=utf-8", "").replace(";charset=UTF-8", "")
}

fn remove(value: &mut Value, path: &[&str]) {
    let Some((first, rest)) = path.split_first() else { return };
    match value {
        Value::Object(map) if *first == "*" => map.values_mut().for_each(|v| remove(v, rest)),
        Value::Array(list) if *first == "*" => list.iter_mut().for_each(|v| remove(v, rest)),
        Value::Object(map) => {
            let key = first.replace("~1", "/").replace("~0", "~");
            if rest.is_empty() {
                map.remove(&key);
            } else if let Some(inner) = map.get_mut(&key) {
                remove(inner, rest);
            }
        }
        Value::Array(list) => {
            if let Some(inner) = first.parse::<usize>().ok().and_then(|i| list.get_mut(i)) {
                remove(inner, rest);
            }
        }
        _ => {}
    }
}

fn walk(value: &mut Value, key: &str, variables: &BTreeMap<String, String>) {
    match value {
        Value::Object(map) => {
            mask_numbers(map);
            drop_prose(map);
            for (key, inner) in map.iter_mut() {
                walk(inner, key, variables);
            }
        }
        Value::Array(list) => {
            for inner in list.iter_mut() {
                walk(inner, key, variables);
            }
            // Ordered by time, so by whether a second passed between two requests.
            if key == "managedFields" || key == "/metadata/managedFields" {
                list.sort_by_key(Value::to_string);
            }
        }
        Value::String(text) => *text = string(key, text, variables),
        _ => {}
    }
}

/// Ports that a server picks.
fn mask_numbers(map: &mut Map<String, Value>) {
    for key in ["nodePort", "healthCheckNodePort"] {
        if let Some(port) = map.get_mut(key).filter(|v| v.is_number()) {
            *port = Value::String("<port>".into());
        }
    }
}

/// Texts that are for people to read: a server may word them as it likes.
fn drop_prose(map: &mut Map<String, Value>) {
    if map.contains_key("priority") && map.contains_key("format") {
        map.remove("description");
    }
    map.remove("kubernetes.io/description");
}

fn string(key: &str, text: &str, variables: &BTreeMap<String, String>) -> String {
    let last = key.rsplit('/').next().unwrap_or(key);
    let is_number = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    match last {
        "resourceVersion" if is_number && text != "0" => return "<rv>".into(),
        "continue" if !text.is_empty() => return "<continue>".into(),
        "storageVersionHash" | "hash" => return "<hash>".into(),
        "token" if text.len() > 20 => return "<token>".into(),
        _ => {}
    }
    if text.contains("-----BEGIN CERTIFICATE-----") {
        return "<certificate>".into();
    }
    if last == "cells" && is_age(text) {
        return "<age>".into();
    }
    let mut text = mask_tokens(text);
    for (name, value) in variables {
        // Short values (revisions, counts) would hit unrelated text.
        if name != "ns" && value.len() >= 8 {
            text = text.replace(value.as_str(), &format!("<{name}>"));
        }
    }
    mask_after(&mask_after(&text, "current: "), "rv=")
}

/// `12s`, `3m20s`: how tables print an age.
fn is_age(text: &str) -> bool {
    text.len() <= 8
        && text.starts_with(|c: char| c.is_ascii_digit())
        && text.ends_with(['s', 'm', 'h', 'd'])
        && text.chars().all(|c| c.is_ascii_digit() || "smhd".contains(c))
}

/// Masks uids, times, cluster addresses and JSON web tokens wherever they stand in a text.
fn mask_tokens(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let found = [(36, is_uuid as fn(&str) -> bool, "<uid>"), (27, is_time, "<time>"), (20, is_time, "<time>")]
            .into_iter()
            .find(|(len, matches, _)| rest.get(..*len).is_some_and(matches));
        if let Some((len, _, name)) = found {
            out.push_str(name);
            rest = &rest[len..];
        } else if rest.starts_with("eyJhbGciOi") {
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && !"-_.".contains(c)).unwrap_or(rest.len());
            out.push_str("<jwt>");
            rest = &rest[end..];
        } else if let Some(len) = cluster_ip(rest) {
            out.push_str("<ip>");
            rest = &rest[len..];
        } else {
            out.push(first);
            rest = &rest[first.len_utf8()..];
        }
    }
    out
}

fn is_uuid(text: &str) -> bool {
    text.bytes().enumerate().all(|(i, b)| match i {
        8 | 13 | 18 | 23 => b == b'-',
        _ => b.is_ascii_digit() || (b'a'..=b'f').contains(&b),
    })
}

/// RFC 3339 in UTC, with or without microseconds.
fn is_time(text: &str) -> bool {
    let form = if text.len() == 20 { "dddd-dd-ddTdd:dd:ddZ" } else { "dddd-dd-ddTdd:dd:dd.ddddddZ" };
    text.len() == form.len()
        && text.bytes().zip(form.bytes()).all(|(b, f)| if f == b'd' { b.is_ascii_digit() } else { b == f })
}

/// The length of an address of the service network at the start of `text`.
fn cluster_ip(text: &str) -> Option<usize> {
    if !text.starts_with("10.") {
        return None;
    }
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    text[..end].parse::<std::net::Ipv4Addr>().is_ok().then_some(end)
}

/// Masks the digits that follow `marker`.
fn mask_after(text: &str, marker: &str) -> String {
    let Some((before, after)) = text.split_once(marker) else { return text.to_owned() };
    let digits = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
    if digits == 0 { text.to_owned() } else { format!("{before}{marker}<n>{}", &after[digits..]) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn volatile_values_are_masked() {
        let cases = [
            (json!({"uid": "0b5f2c3e-1234-4a5b-8c7d-0123456789ab"}), json!({"uid": "<uid>"})),
            (json!({"resourceVersion": "42", "x": "42"}), json!({"resourceVersion": "<rv>", "x": "42"})),
            (json!({"resourceVersion": ""}), json!({"resourceVersion": ""})),
            (json!({"t": "2025-11-15T21:35:00Z"}), json!({"t": "<time>"})),
            (json!({"t": "2025-11-15T21:35:00.123456Z"}), json!({"t": "<time>"})),
            (json!({"message": "at 10.53.0.7: no"}), json!({"message": "at <ip>: no"})),
            (json!({"cells": ["a", "12s"], "cpu": "500m"}), json!({"cells": ["a", "<age>"], "cpu": "500m"})),
            (json!({"message": "Too large resource version: 9, current: 77"}), {
                json!({"message": "Too large resource version: 9, current: <n>"})
            }),
        ];
        for (input, wanted) in cases {
            assert_eq!(body(input, &Shape::default(), &BTreeMap::new()), wanted);
        }
    }

    #[test]
    fn keep_and_drop_choose_what_counts() {
        let keep = ["/a".to_owned()];
        let drop = ["/items/*/x".to_owned()];
        let kept = body(json!({"a": 1, "b": 2}), &Shape { keep: &keep, ..Shape::default() }, &BTreeMap::new());
        assert_eq!(kept, json!({"/a": 1}));
        let dropped = json!({"items": [{"x": 1, "y": 2}, {"x": 3}]});
        let dropped = body(dropped, &Shape { drop: &drop, ..Shape::default() }, &BTreeMap::new());
        assert_eq!(dropped, json!({"items": [{"y": 2}, {}]}));
        let (sort, without) = (["/items".to_owned()], ["own.io".to_owned()]);
        let shape = Shape { sort: &sort, without: &without, ..Shape::default() };
        let sorted = body(json!({"items": ["b", "x.own.io", "a"]}), &shape, &BTreeMap::new());
        assert_eq!(sorted, json!({"items": ["a", "b"]}));
    }
}
