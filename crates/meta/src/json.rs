//! Parsing JSON with errors in Go's words, which users of Kubernetes know and scripts look for.

use serde_json::Value;

/// How deeply a document may be nested. Go stops at 10,000; our parser, and that of every client in Rust, at 127. An object
/// must be readable within a list, an event or a review, and with a record of who owns its fields.
pub const MAX_DEPTH: usize = 110;
/// What is said of one that is nested more deeply, in Go's words.
pub const TOO_DEEP: &str = "exceeded max depth";

/// Parses a whole document, which is then nested no more deeply than [`MAX_DEPTH`].
pub fn parse(body: &[u8]) -> Result<Value, String> {
    let value = serde_json::from_slice(body).map_err(|error| describe(body, &error))?;
    if is_deeper_than(&value, MAX_DEPTH) { Err(TOO_DEEP.to_owned()) } else { Ok(value) }
}

/// Whether a value has lists and objects within each other more often than that. Looks no deeper.
pub fn is_deeper_than(value: &Value, depth: usize) -> bool {
    match (value, depth) {
        (Value::Array(_) | Value::Object(_), 0) => true,
        (Value::Array(items), _) => items.iter().any(|item| is_deeper_than(item, depth - 1)),
        (Value::Object(map), _) => map.values().any(|item| is_deeper_than(item, depth - 1)),
        _ => false,
    }
}

/// What Go's decoder calls a value in "cannot unmarshal … into".
pub fn go_kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn describe(body: &[u8], error: &serde_json::Error) -> String {
    if error.is_eof() {
        return "unexpected end of JSON input".to_owned();
    }
    let text = error.to_string();
    let starts = |prefix: &str| text.starts_with(prefix);
    let problem = if starts("expected value") {
        "looking for beginning of value"
    } else if starts("trailing comma") || starts("key must be a string") {
        "looking for beginning of object key string"
    } else if starts("trailing characters") {
        "after top-level value"
    } else if starts("recursion limit exceeded") {
        "exceeded max depth"
    } else if starts("expected `,` or `}`") {
        "after object key:value pair"
    } else if starts("expected `,` or `]`") {
        "after array element"
    } else if starts("expected `:`") {
        "after object key"
    } else {
        return text;
    };
    let line = body.split(|b| *b == b'\n').nth(error.line().saturating_sub(1)).unwrap_or_default();
    let culprit = line.get(error.column().saturating_sub(1)).copied().unwrap_or_default();
    let shown = match culprit {
        b'\'' => "'\\''".to_owned(),
        0x20..0x7f => format!("'{}'", char::from(culprit)),
        other => format!("'\\u{other:04x}'"),
    };
    format!("invalid character {shown} {problem}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_read_as_gos() {
        let table = [
            ("", "unexpected end of JSON input"),
            ("{\"a\":", "unexpected end of JSON input"),
            ("{nope", "invalid character 'n' looking for beginning of object key string"),
            ("{\"a\":1}{", "invalid character '{' after top-level value"),
            ("{\"a\" 1}", "invalid character '1' after object key"),
            ("{\"a\":1 2}", "invalid character '2' after object key:value pair"),
            ("[1 2]", "invalid character '2' after array element"),
            ("apiVersion: v1", "invalid character 'a' looking for beginning of value"),
        ];
        for (body, expected) in table {
            assert_eq!(parse(body.as_bytes()).unwrap_err(), expected, "{body}");
        }
    }

    #[test]
    fn documents_are_not_nested_without_end() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(parse(nested(MAX_DEPTH).as_bytes()).is_ok());
        for depth in [MAX_DEPTH + 1, 127, 128, 100_000] {
            assert!(parse(nested(depth).as_bytes()).unwrap_err().ends_with(TOO_DEEP), "{depth}");
        }
        assert!(!is_deeper_than(&Value::Null, 0) && is_deeper_than(&serde_json::json!([]), 0));
        assert!(
            is_deeper_than(&serde_json::json!({"a": [{}]}), 2) && !is_deeper_than(&serde_json::json!({"a": [{}]}), 3)
        );
    }
}
