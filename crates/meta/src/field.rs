//! Field paths and field errors, worded as Kubernetes' `field.Error` words them.

use std::fmt;

use serde_json::Value;

/// `spec.containers[0].name`, built while descending into an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct FieldPath(String);

impl FieldPath {
    pub fn root() -> Self {
        Self::default()
    }

    pub fn new(path: impl Into<String>) -> Self {
        Self(path.into())
    }

    #[must_use]
    pub fn child(&self, name: &str) -> Self {
        if self.0.is_empty() { Self(name.to_owned()) } else { Self(format!("{}.{name}", self.0)) }
    }

    #[must_use]
    pub fn index(&self, index: usize) -> Self {
        Self(format!("{}[{index}]", self.0))
    }

    #[must_use]
    pub fn key(&self, key: &str) -> Self {
        Self(format!("{}[{key}]", self.0))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// `<nil>` is how Go prints the path of an error about the whole object.
impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "<nil>" } else { &self.0 })
    }
}

/// The kinds of `field.Error`, with the reason that a Status cause carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldErrorKind {
    NotFound,
    Required,
    Duplicate,
    Invalid,
    NotSupported,
    Forbidden,
    TooLong,
    TooMany,
    InternalError,
    TypeInvalid,
}

impl FieldErrorKind {
    pub fn reason(self) -> &'static str {
        match self {
            Self::NotFound => "FieldValueNotFound",
            Self::Required => "FieldValueRequired",
            Self::Duplicate => "FieldValueDuplicate",
            Self::Invalid => "FieldValueInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Forbidden => "FieldValueForbidden",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
            Self::InternalError => "InternalError",
            Self::TypeInvalid => "FieldValueTypeInvalid",
        }
    }

    fn text(self) -> &'static str {
        match self {
            Self::NotFound => "Not found",
            Self::Required => "Required value",
            Self::Duplicate => "Duplicate value",
            Self::Invalid | Self::TypeInvalid => "Invalid value",
            Self::NotSupported => "Unsupported value",
            Self::Forbidden => "Forbidden",
            Self::TooLong => "Too long",
            Self::TooMany => "Too many",
            Self::InternalError => "Internal error",
        }
    }
}

/// One thing wrong with one field.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldError {
    pub kind: FieldErrorKind,
    pub field: FieldPath,
    pub value: Value,
    pub detail: String,
}

/// Everything wrong with an object; empty means valid.
pub type FieldErrors = Vec<FieldError>;

impl FieldError {
    fn new(kind: FieldErrorKind, field: &FieldPath, value: Value, detail: impl Into<String>) -> Self {
        Self { kind, field: field.clone(), value, detail: detail.into() }
    }

    pub fn required(field: &FieldPath, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Required, field, Value::Null, detail)
    }

    pub fn invalid(field: &FieldPath, value: impl Into<Value>, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Invalid, field, value.into(), detail)
    }

    pub fn type_invalid(field: &FieldPath, value: impl Into<Value>, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::TypeInvalid, field, value.into(), detail)
    }

    pub fn duplicate(field: &FieldPath, value: impl Into<Value>) -> Self {
        Self::new(FieldErrorKind::Duplicate, field, value.into(), "")
    }

    pub fn not_found(field: &FieldPath, value: impl Into<Value>) -> Self {
        Self::new(FieldErrorKind::NotFound, field, value.into(), "")
    }

    pub fn forbidden(field: &FieldPath, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Forbidden, field, Value::Null, detail)
    }

    pub fn not_supported(field: &FieldPath, value: impl Into<Value>, supported: &[&str]) -> Self {
        let quoted: Vec<String> = supported.iter().map(|s| go_quote(s)).collect();
        let detail = if quoted.is_empty() { String::new() } else { format!("supported values: {}", quoted.join(", ")) };
        Self::new(FieldErrorKind::NotSupported, field, value.into(), detail)
    }

    pub fn too_long(field: &FieldPath, max_length: usize) -> Self {
        Self::new(
            FieldErrorKind::TooLong,
            field,
            Value::Null,
            format!("may not be more than {max_length} {}", if max_length == 1 { "byte" } else { "bytes" }),
        )
    }

    pub fn too_many(field: &FieldPath, actual: usize, max: usize) -> Self {
        Self::new(
            FieldErrorKind::TooMany,
            field,
            Value::from(actual),
            format!("must have at most {max} {}", if max == 1 { "item" } else { "items" }),
        )
    }

    /// The message without the field, as `StatusCause.message` carries it.
    pub fn body(&self) -> String {
        let what = self.kind.text();
        let mut text = match self.kind {
            FieldErrorKind::Required
            | FieldErrorKind::Forbidden
            | FieldErrorKind::TooLong
            | FieldErrorKind::InternalError => what.to_owned(),
            _ => format!("{what}: {}", go_value(&self.value)),
        };
        if !self.detail.is_empty() {
            text.push_str(": ");
            text.push_str(&self.detail);
        }
        text
    }
}

/// Go's rendering of a bad value: strings as `%q`, numbers as `%v`, the rest as `json.Marshal` writes it.
fn go_value(value: &Value) -> String {
    match value {
        Value::String(text) => go_quote(text),
        Value::Number(number) => match number.as_f64() {
            Some(float) if number.is_f64() => go_float(float),
            _ => number.to_string(),
        },
        // Go's encoder escapes these for HTML; outside strings JSON has none of them.
        other => other.to_string().replace('&', "\\u0026").replace('<', "\\u003c").replace('>', "\\u003e"),
    }
}

/// A float as Go's `%v` prints it: `1.5`, `3`, `1e+21`.
pub fn go_float(float: f64) -> String {
    let magnitude = float.abs();
    if float == 0.0 || (1e-4..1e21).contains(&magnitude) || !float.is_finite() {
        return format!("{float}");
    }
    let scientific = format!("{float:e}");
    let Some((mantissa, exponent)) = scientific.split_once('e') else { return scientific };
    let (sign, digits) = exponent.strip_prefix('-').map_or(('+', exponent), |digits| ('-', digits));
    format!("{mantissa}e{sign}{digits:0>2}")
}

/// A string as Go's `%q` prints it.
pub fn go_quote(text: &str) -> String {
    let escape = |escaped: fmt::Arguments<'_>, out: &mut String| out.push_str(&escaped.to_string());
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\x07' => out.push_str("\\a"),
            '\x08' => out.push_str("\\b"),
            '\x0c' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\x0b' => out.push_str("\\v"),
            ' ' => out.push(' '),
            c if !c.is_control() && !c.is_whitespace() => out.push(c),
            c if c.is_ascii() => escape(format_args!("\\x{:02x}", u32::from(c)), &mut out),
            c if u32::from(c) < 0x1_0000 => escape(format_args!("\\u{:04x}", u32::from(c)), &mut out),
            c => escape(format_args!("\\U{:08x}", u32::from(c)), &mut out),
        }
    }
    out.push('"');
    out
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.body())
    }
}

/// Several errors in one text, as Go's aggregate joins them: duplicates once, more than one in brackets.
pub fn join_errors(errors: &[FieldError]) -> String {
    let mut texts: Vec<String> = Vec::new();
    for text in errors.iter().map(ToString::to_string) {
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    match texts.as_slice() {
        [one] => one.clone(),
        many => format!("[{}]", many.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn bad_values_read_as_go_prints_them() {
        let cases = [
            (json!("a\"b\u{1}"), r#"Invalid value: "a\"b\x01": no"#),
            (json!(3), "Invalid value: 3: no"),
            (json!(3.0), "Invalid value: 3: no"),
            (json!(1e21), "Invalid value: 1e+21: no"),
            (json!(0.00001), "Invalid value: 1e-05: no"),
            (json!(true), "Invalid value: true: no"),
            (json!(null), "Invalid value: null: no"),
            (json!({"a": "<b>"}), r#"Invalid value: {"a":"\u003cb\u003e"}: no"#),
        ];
        for (value, want) in cases {
            assert_eq!(FieldError::invalid(&FieldPath::new("x"), value, "no").body(), want);
        }
    }

    #[test]
    fn an_error_about_the_whole_object_has_a_nil_path() {
        assert_eq!(FieldError::required(&FieldPath::root(), "").to_string(), "<nil>: Required value");
    }
}
