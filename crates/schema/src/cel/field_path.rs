//! `fieldPath` of a rule: `.spec.x` or `['x']`, relative to the rule's place.

use crate::model::{Additional, Schema};

/// The path as errors print it (`spec.x`, `labels[x]`); `None` if the schema has no such field.
pub(crate) fn normalise(schema: &Schema, path: &str) -> Option<String> {
    let mut out = String::new();
    let mut schema = schema;
    let mut rest = path;
    while !rest.is_empty() {
        let name;
        if let Some(tail) = rest.strip_prefix("['") {
            let end = closing_quote(tail)?;
            name = unescape(&tail[..end])?;
            rest = tail[end..].strip_prefix("']")?;
        } else {
            let tail = rest.strip_prefix('.')?;
            let end = tail.find(['.', '[', ']']).unwrap_or(tail.len());
            if end == 0 {
                return None;
            }
            name = tail[..end].to_owned();
            rest = &tail[end..];
        }
        if let Some(property) = schema.properties.get(&name) {
            if !out.is_empty() {
                out.push('.');
            }
            out.push_str(&name);
            schema = property;
            continue;
        }
        let Additional::Schema(values) = &schema.additional else { return None };
        out.push('[');
        out.push_str(&name);
        out.push(']');
        schema = values;
    }
    Some(out)
}

fn closing_quote(text: &str) -> Option<usize> {
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '\'' => return Some(at),
            _ => {}
        }
    }
    None
}

fn unescape(text: &str) -> Option<String> {
    let mut out = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        out.push(match chars.next()? {
            'a' => '\x07',
            'b' => '\x08',
            'f' => '\x0c',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'v' => '\x0b',
            special @ ('\'' | '\\') => special,
            _ => return None,
        });
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn paths_are_checked_against_the_schema() {
        let schema = Schema::from_json(&json!({"type": "object", "properties": {
            "a": {"type": "object", "properties": {"b-c": {"type": "string"}}},
            "m": {"type": "object", "additionalProperties": {"type": "string"}},
        }}))
        .expect("valid");
        let cases = [
            (".a", Some("a")),
            (".a.b-c", Some("a.b-c")),
            ("['a']['b-c']", Some("a.b-c")),
            (".m['x.y']", Some("m[x.y]")),
            (".m.x", Some("m[x]")),
            ("a", None),
            (".x", None),
            (".a.", None),
            (".a['b-c", None),
            (" ", None),
        ];
        for (path, want) in cases {
            assert_eq!(normalise(&schema, path).as_deref(), want, "{path}");
        }
    }
}
