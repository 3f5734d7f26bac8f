//! Finds keys that occur twice in one JSON object, which a parsed value no longer shows.

use std::collections::BTreeSet;
use std::fmt::Write;

use croft_meta::field::go_quote;

/// `duplicate field "spec.x"` for each key that is repeated; the text is JSON that has been parsed before.
///
/// Works without recursion, so that deep nesting is no danger. What is not JSON ends the scan.
pub fn duplicate_fields(raw: &[u8]) -> Vec<String> {
    let mut scanner = Scanner { raw, at: 0, levels: Vec::new(), found: Vec::new() };
    scanner.run();
    scanner.found
}

enum Level {
    Object { keys: BTreeSet<String>, current: String, expects_key: bool },
    Array { index: usize },
}

struct Scanner<'a> {
    raw: &'a [u8],
    at: usize,
    levels: Vec<Level>,
    found: Vec<String>,
}

impl Scanner<'_> {
    fn run(&mut self) {
        while let Some(byte) = self.raw.get(self.at) {
            self.at += 1;
            match byte {
                b'{' => {
                    self.levels.push(Level::Object {
                        keys: BTreeSet::new(),
                        current: String::new(),
                        expects_key: true,
                    });
                }
                b'[' => self.levels.push(Level::Array { index: 0 }),
                b'}' | b']' => {
                    self.levels.pop();
                }
                b',' => match self.levels.last_mut() {
                    Some(Level::Object { expects_key, .. }) => *expects_key = true,
                    Some(Level::Array { index }) => *index += 1,
                    None => return,
                },
                b'"' => {
                    let start = self.at - 1;
                    if !self.skip_string() {
                        return;
                    }
                    self.key(start);
                }
                _ => {}
            }
        }
    }

    /// Moves past the closing quote; false if there is none.
    fn skip_string(&mut self) -> bool {
        while let Some(byte) = self.raw.get(self.at) {
            self.at += 1;
            match byte {
                b'\\' => self.at += 1,
                b'"' => return true,
                _ => {}
            }
        }
        false
    }

    /// Notes the string from `start` if it stands where a key does.
    fn key(&mut self, start: usize) {
        let Some(Level::Object { keys, current, expects_key }) = self.levels.last_mut() else { return };
        if !*expects_key {
            return;
        }
        let Ok(key) = serde_json::from_slice::<String>(&self.raw[start..self.at]) else { return };
        *expects_key = false;
        current.clone_from(&key);
        if !keys.insert(key) {
            let text = format!("duplicate field {}", go_quote(&self.path()));
            if !self.found.contains(&text) {
                self.found.push(text);
            }
        }
    }

    fn path(&self) -> String {
        let mut path = String::new();
        for level in &self.levels {
            match level {
                Level::Object { current, .. } => {
                    if !path.is_empty() {
                        path.push('.');
                    }
                    path.push_str(current);
                }
                Level::Array { index } => {
                    // Writing to a String cannot fail.
                    let _ = write!(path, "[{index}]");
                }
            }
        }
        path
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::any_json;

    #[test]
    fn repeated_keys_are_named_by_path() {
        let cases: [(&str, &[&str]); 6] = [
            (r#"{"a": 1, "a": 2}"#, &[r#"duplicate field "a""#]),
            (r#"{"a": {"b": 1, "b": 2, "b": 3}, "c": {"b": 1}}"#, &[r#"duplicate field "a.b""#]),
            (r#"{"l": [{"x": 1}, {"x": "x", "y": ["x"], "x": 1}]}"#, &[r#"duplicate field "l[1].x""#]),
            (r#"{"a\u0062": 1, "ab": 2}"#, &[r#"duplicate field "ab""#]),
            (r#"{"a": "{\"a\": \"a\", ", "b": "\\"}"#, &[]),
            (r#"{"a": "#, &[]),
        ];
        for (text, want) in cases {
            assert_eq!(duplicate_fields(text.as_bytes()), want, "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_serde_writes_has_none(value in any_json()) {
            prop_assert!(duplicate_fields(value.to_string().as_bytes()).is_empty());
        }

        #[test]
        fn no_bytes_make_it_panic(raw in prop::collection::vec(any::<u8>(), 0..64)) {
            duplicate_fields(&raw);
        }
    }
}
