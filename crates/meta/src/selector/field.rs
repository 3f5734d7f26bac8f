//! Field selectors: `metadata.name=x,status.phase!=y`.
//!
//! Values escape backslash, comma and equals sign with a backslash.

use std::fmt;
use std::str::FromStr;

use super::SelectorError;

/// One term: the field equals, or does not equal, the value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldRequirement {
    pub field: String,
    pub value: String,
    pub negated: bool,
}

/// All terms must hold; no term selects everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSelector {
    requirements: Vec<FieldRequirement>,
}

impl FieldSelector {
    pub fn everything() -> Self {
        Self::default()
    }

    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        let mut terms = split_terms(text);
        terms.sort_unstable();
        let mut requirements = Vec::new();
        for term in terms.into_iter().filter(|term| !term.is_empty()) {
            let (field, negated, value) = split_term(term)
                .ok_or_else(|| SelectorError(format!("invalid selector: '{text}'; can't understand '{term}'")))?;
            let value = unescape(value)?;
            if !field.is_empty() || !value.is_empty() {
                requirements.push(FieldRequirement { field: field.to_owned(), value, negated });
            }
        }
        Ok(Self { requirements })
    }

    pub fn requirements(&self) -> &[FieldRequirement] {
        &self.requirements
    }

    pub fn is_everything(&self) -> bool {
        self.requirements.is_empty()
    }

    /// The value this field must have, when the selector pins it to one.
    pub fn exact(&self, field: &str) -> Option<&str> {
        self.requirements.iter().find(|r| r.field == field && !r.negated).map(|r| r.value.as_str())
    }

    /// Fields that the object lacks read as empty, as upstream's do.
    pub fn matches<'a>(&self, get: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.requirements.iter().all(|r| (get(&r.field).unwrap_or_default() == r.value) != r.negated)
    }
}

impl FromStr for FieldSelector {
    type Err = SelectorError;

    fn from_str(text: &str) -> Result<Self, SelectorError> {
        Self::parse(text)
    }
}

impl fmt::Display for FieldSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, r) in self.requirements.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            let operator = if r.negated { "!=" } else { "=" };
            write!(f, "{comma}{}{operator}{}", r.field, escape(&r.value))?;
        }
        Ok(())
    }
}

/// Splits at commas that no backslash precedes.
fn split_terms(text: &str) -> Vec<&str> {
    let mut terms = Vec::new();
    let mut start = 0;
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ',' => {
                terms.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    terms.push(&text[start..]);
    terms
}

fn split_term(term: &str) -> Option<(&str, bool, &str)> {
    // "!" without "=" is no operator, so the first of either kind decides.
    let at = term.find('=')?;
    let (left, right) = (&term[..at], &term[at + 1..]);
    match left.strip_suffix('!') {
        Some(field) => Some((field, true, right)),
        None => Some((left, false, right.strip_prefix('=').unwrap_or(right))),
    }
}

fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace(',', "\\,").replace('=', "\\=")
}

fn unescape(value: &str) -> Result<String, SelectorError> {
    let bad_escape =
        |sequence: String| SelectorError(format!("invalid field selector: invalid escape sequence: {sequence}"));
    let mut out = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(special @ ('\\' | ',' | '=')) => out.push(special),
                Some(other) => return Err(bad_escape(format!("\\{other}"))),
                None => return Err(bad_escape("\\".to_owned())),
            },
            // Go prints the character's number here.
            ',' | '=' => {
                let number = u32::from(c);
                return Err(SelectorError(format!("invalid field selector: unescaped character in value: {number}")));
            }
            _ => out.push(c),
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn terms_parse_and_match() {
        let selector = FieldSelector::parse("status.phase!=Failed,metadata.name==a").expect("valid");
        assert_eq!(selector.to_string(), "metadata.name=a,status.phase!=Failed");
        assert_eq!(selector.exact("metadata.name"), Some("a"));
        assert_eq!(selector.exact("status.phase"), None);
        assert!(selector.matches(|field| (field == "metadata.name").then_some("a")));
        assert!(!selector.matches(|field| (field == "metadata.name").then_some("b")));
        assert!(FieldSelector::parse("").expect("valid").is_everything());
    }

    #[test]
    fn bad_selectors_are_explained() {
        let cases = [
            ("a", "invalid selector: 'a'; can't understand 'a'"),
            ("a=b,c", "invalid selector: 'a=b,c'; can't understand 'c'"),
            ("a=b\\x", "invalid field selector: invalid escape sequence: \\x"),
            ("a=b\\", "invalid field selector: invalid escape sequence: \\"),
            ("a=b=c", "invalid field selector: unescaped character in value: 61"),
        ];
        for (text, want) in cases {
            assert_eq!(FieldSelector::parse(text).map_err(|e| e.to_string()), Err(want.to_owned()));
        }
    }

    proptest! {
        #[test]
        fn display_parses_back(field in "[a-z.]{1,8}", value in ".{0,8}", negated: bool) {
            let selector = FieldSelector { requirements: vec![FieldRequirement { field, value, negated }] };
            prop_assert_eq!(FieldSelector::parse(&selector.to_string()), Ok(selector));
        }
    }
}
