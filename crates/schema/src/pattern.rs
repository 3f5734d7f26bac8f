//! Patterns in Go's regular expression syntax, run by Rust's engine.
//!
//! Both are RE2 descendants; the differences that real schemas meet are translated: Go's `\d`,
//! `\w` and `\s` are ASCII, a brace that starts no repetition is literal, and classes do not nest.

use std::sync::OnceLock;

use regex::{Regex, RegexBuilder};

/// A pattern that is compiled at most once, when first needed.
#[derive(Clone, Debug, Default)]
pub struct CompiledPattern(OnceLock<Result<Regex, String>>);

impl CompiledPattern {
    /// The compiled form of `pattern`, or why it is invalid.
    pub fn get(&self, pattern: &str) -> Result<&Regex, &str> {
        self.0.get_or_init(|| compile(pattern)).as_ref().map_err(String::as_str)
    }
}

/// Compiles a Go pattern.
pub(crate) fn compile(pattern: &str) -> Result<Regex, String> {
    // The engine's own limit.
    compile_within(pattern, 10 << 20)
}

/// As [`compile`], for patterns whose compiled form must not take more than so many bytes: it takes time to make it.
pub(crate) fn compile_within(pattern: &str, most_bytes: usize) -> Result<Regex, String> {
    RegexBuilder::new(&translate(pattern)).size_limit(most_bytes).build().map_err(|err| {
        let text = err.to_string();
        // The last line says what is wrong; the lines before it draw the place.
        let reason = match text.lines().last().unwrap_or_default().trim_start_matches("error: ") {
            "unclosed group" => "missing closing )",
            "unopened group" => "unexpected )",
            "unclosed character class" => "missing closing ]",
            "repetition operator missing expression" => "missing argument to repetition operator",
            other => other,
        };
        format!("error parsing regexp: {reason}: `{pattern}`")
    })
}

fn translate(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len() + 16);
    let mut chars = pattern.char_indices().peekable();
    let mut in_class = false;
    let mut class_start = 0;
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => {
                let Some((_, escaped)) = chars.next() else {
                    out.push('\\');
                    continue;
                };
                match escaped {
                    'd' => out.push_str("[0-9]"),
                    'D' => out.push_str("[^0-9]"),
                    'w' => out.push_str("[0-9A-Za-z_]"),
                    'W' => out.push_str("[^0-9A-Za-z_]"),
                    's' => out.push_str(r"[\t\n\f\r ]"),
                    'S' => out.push_str(r"[^\t\n\f\r ]"),
                    'b' if !in_class => out.push_str(r"(?-u:\b)"),
                    'B' if !in_class => out.push_str(r"(?-u:\B)"),
                    other => {
                        out.push('\\');
                        out.push(other);
                    }
                }
            }
            '[' if !in_class => {
                in_class = true;
                out.push('[');
                class_start = at + 1;
                if chars.next_if(|(_, c)| *c == '^').is_some() {
                    out.push('^');
                    class_start += 1;
                }
            }
            '[' if pattern[at..].starts_with("[:") => out.push('['),
            ']' if in_class && pattern[..at].ends_with(':') && pattern[class_start..at].contains("[:") => out.push(']'),
            // A bracket right at the start of a class is a member of it.
            ']' if in_class && at == class_start => out.push_str("\\]"),
            ']' if in_class => {
                in_class = false;
                out.push(']');
            }
            '[' | '&' | '~' if in_class => {
                out.push('\\');
                out.push(c);
            }
            '{' if !in_class && !starts_repetition(&pattern[at..]) => out.push_str("\\{"),
            _ => out.push(c),
        }
    }
    out
}

/// `{3}`, `{3,}` or `{3,5}`.
fn starts_repetition(text: &str) -> bool {
    let Some(end) = text.find('}') else { return false };
    let inner = &text[1..end];
    let (low, high) = inner.split_once(',').unwrap_or((inner, ""));
    !low.is_empty() && low.bytes().chain(high.bytes()).all(|b| b.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn go_syntax_means_what_go_means() {
        let cases = [
            (r"^\d+$", "12", true),
            (r"^\d+$", "١٢", false),
            (r"^[\w-]+$", "a-b", true),
            (r"^[[]$", "[", true),
            (r"^[]a]$", "]", true),
            (r"^[a&&b]$", "&", true),
            (r"^a{$", "a{", true),
            (r"^a{2}$", "aa", true),
            (r"^[[:alpha:]]+$", "ab", true),
            (r"^[^\s]+$", "a b", false),
            (r"^\/a$", "/a", true),
            (r"b", "abc", true),
        ];
        for (pattern, text, want) in cases {
            assert_eq!(compile(pattern).expect(pattern).is_match(text), want, "{pattern} {text}");
        }
    }

    #[test]
    fn a_bad_pattern_is_an_error() {
        assert!(compile("(").expect_err("unclosed").starts_with("error parsing regexp: "));
    }
}
