//! Parsing JSON with errors in Go's words, which users of Kubernetes know and scripts look for.

use serde_json::Value;

/// Parses a whole document.
pub fn parse(body: &[u8]) -> Result<Value, String> {
    serde_json::from_slice(body).map_err(|error| describe(body, &error))
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
}
