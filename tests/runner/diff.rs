//! Where two JSON values differ.

use std::fmt;

use serde_json::Value;

/// One place where the answers are not the same.
#[derive(Debug, Clone, PartialEq)]
pub struct Difference {
    /// JSON pointer into the recorded answer.
    pub at: String,
    pub expected: Option<Value>,
    pub actual: Option<Value>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let show = |value: &Option<Value>| value.as_ref().map_or("(absent)".to_owned(), Value::to_string);
        let (expected, actual) = (show(&self.expected), show(&self.actual));
        write!(f, "{}\n      expected {}\n      actual   {}", self.at, shorten(&expected), shorten(&actual))
    }
}

fn shorten(text: &str) -> &str {
    match text.char_indices().nth(600) {
        Some((end, _)) => &text[..end],
        None => text,
    }
}

/// Every difference, in the order of the pointers. Answers with different codes have one: the whole answer.
pub fn diff(expected: &Value, actual: &Value) -> Vec<Difference> {
    let mut found = Vec::new();
    if expected.get("code") != actual.get("code") {
        let at = "/code".to_owned();
        return vec![Difference { at, expected: Some(expected.clone()), actual: Some(actual.clone()) }];
    }
    compare(String::new(), Some(expected), Some(actual), &mut found);
    found
}

fn compare(at: String, expected: Option<&Value>, actual: Option<&Value>, found: &mut Vec<Difference>) {
    match (expected, actual) {
        (Some(Value::Object(e)), Some(Value::Object(a))) => {
            let keys = e.keys().chain(a.keys().filter(|k| !e.contains_key(*k)));
            for key in keys {
                let at = format!("{at}/{}", key.replace('~', "~0").replace('/', "~1"));
                compare(at, e.get(key), a.get(key), found);
            }
        }
        (Some(Value::Array(e)), Some(Value::Array(a))) => {
            for i in 0..e.len().max(a.len()) {
                compare(format!("{at}/{i}"), e.get(i), a.get(i), found);
            }
        }
        (e, a) if e == a => {}
        (e, a) => found.push(Difference { at, expected: e.cloned(), actual: a.cloned() }),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn differences_are_found_at_their_place() {
        let found = diff(&json!({"a": [1, {"b": 2}], "c": 3}), &json!({"a": [1, {"b": 4}, 5], "d": 3}));
        let places: Vec<&str> = found.iter().map(|d| d.at.as_str()).collect();
        assert_eq!(places, ["/a/1/b", "/a/2", "/c", "/d"]);
        assert_eq!(diff(&json!([{"x": null}]), &json!([{"x": null}])), []);
    }
}
