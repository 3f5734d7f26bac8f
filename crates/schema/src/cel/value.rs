//! JSON as the values that rules see: typed by the schema, with field names that CEL can spell.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use base64::Engine;
use kube_cel::KubeCelExt;
use kube_cel::cel::extractors::This;
use kube_cel::cel::{Context, ExecutionError, Program, ResolveResult, Value as CelValue};
use serde_json::{Number, Value};

use crate::expression::{Key, Text, Val};
use crate::model::{Additional, Schema, Type};

/// Times and durations are made by CEL's own functions.
static TIMESTAMP: LazyLock<Program> = LazyLock::new(|| constant_program("timestamp(text)"));
static DURATION: LazyLock<Program> = LazyLock::new(|| constant_program("duration(text)"));

fn constant_program(source: &str) -> Program {
    Program::compile(source).expect("the two sources above are valid CEL")
}

/// The names of types, which rules compare with what `type()` yields.
pub(crate) const TYPES: [&str; 11] =
    ["bool", "bytes", "double", "duration", "int", "list", "map", "null_type", "string", "timestamp", "uint"];

/// Everything rules may call: Kubernetes' libraries, and what the interpreter lacks or gets wrong.
pub(crate) static CONTEXT: LazyLock<Context<'static>> = LazyLock::new(|| {
    let mut context = Context::default().with_all();
    context.add_function("type", |value: CelValue| -> ResolveResult { Ok(type_value(type_of(&value))) });
    context.add_function("dyn", |value: CelValue| -> ResolveResult { Ok(value) });
    // Texts are as long as they have characters; the interpreter counts bytes.
    context.add_function("size", |This(value): This<CelValue>| -> ResolveResult {
        let size = match &value {
            CelValue::String(text) => text.chars().count(),
            CelValue::Bytes(bytes) => bytes.len(),
            CelValue::List(list) => list.len(),
            CelValue::Map(map) => map.map.len(),
            _ => return Err(ExecutionError::NoSuchOverload),
        };
        Ok(CelValue::Int(i64::try_from(size).unwrap_or(i64::MAX)))
    });
    for name in TYPES {
        context.add_variable_from_value(name, type_value(name));
    }
    context
});

/// A type as a value: text that no rule would write.
fn type_value(name: &str) -> CelValue {
    CelValue::String(Arc::new(format!("\u{0}type {name}")))
}

fn type_of(value: &CelValue) -> &'static str {
    match value {
        CelValue::Bool(_) => "bool",
        CelValue::Bytes(_) => "bytes",
        CelValue::Float(_) => "double",
        CelValue::Duration(_) => "duration",
        CelValue::Int(_) => "int",
        CelValue::List(_) => "list",
        CelValue::Map(_) => "map",
        CelValue::Null => "null_type",
        CelValue::String(_) => "string",
        CelValue::Timestamp(_) => "timestamp",
        CelValue::UInt(_) => "uint",
        CelValue::Function(..) | CelValue::Opaque(_) => "dyn",
    }
}

/// Names that mean something to CEL, or may one day.
pub const RESERVED_WORDS: [&str; 21] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// A property's name as rules spell it; `None` if they cannot.
pub(super) fn escape(name: &str) -> Option<String> {
    if RESERVED_WORDS.contains(&name) {
        return Some(format!("__{name}__"));
    }
    if !name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
        return None;
    }
    let mut out = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(c) = rest.chars().next() {
        if let Some(tail) = rest.strip_prefix("__") {
            out.push_str("__underscores__");
            rest = tail;
            continue;
        }
        match c {
            '.' => out.push_str("__dot__"),
            '-' => out.push_str("__dash__"),
            '/' => out.push_str("__slash__"),
            c if c.is_ascii_alphanumeric() || c == '_' => out.push(c),
            _ => return None,
        }
        rest = &rest[c.len_utf8()..];
    }
    Some(out)
}

/// A value as its schema means it.
pub(super) fn convert<'a>(value: &'a Value, schema: Option<&Schema>) -> Val<'a> {
    match value {
        Value::Number(number) => convert_number(number, schema.map_or(Type::Any, |s| s.ty)),
        Value::String(text) => convert_text(text, schema),
        Value::Array(list) => {
            let items = schema.and_then(|s| s.items.as_deref());
            Val::list(list.iter().map(|item| convert(item, items)).collect())
        }
        Value::Object(object) => {
            let mut map = BTreeMap::new();
            for (key, value) in object {
                let (key, child) = match schema.map(|s| (s.properties.get(key), &s.additional)) {
                    Some((Some(property), _)) => (escape(key), Some(&**property)),
                    // Keys of maps are data, and are looked up as they are.
                    Some((None, Additional::Schema(values))) => (Some(key.clone()), Some(&**values)),
                    _ => (escape(key), None),
                };
                // To rules, a field that is null is not there.
                let Some(key) = key.filter(|_| !value.is_null()) else { continue };
                map.insert(Key::Text(Arc::from(key)), convert(value, child));
            }
            Val::map(map)
        }
        Value::Null | Value::Bool(_) => Val::of(value),
    }
}

fn convert_text<'a>(text: &'a str, schema: Option<&Schema>) -> Val<'a> {
    let plain = || Val::Text(Text::Borrowed(text));
    let format =
        schema.filter(|s| s.ty == Type::String).and_then(|s| s.constraints.as_ref()).and_then(|c| c.format.as_deref());
    match format {
        Some("byte") => {
            let bytes = base64::engine::general_purpose::STANDARD.decode(text);
            bytes.map_or_else(|_| plain(), |bytes| Val::Bytes(Arc::new(bytes)))
        }
        Some("date-time") => call(&TIMESTAMP, text.to_owned()).unwrap_or_else(plain),
        Some("date") => call(&TIMESTAMP, format!("{text}T00:00:00Z")).unwrap_or_else(plain),
        Some("duration") => call(&DURATION, text.to_owned()).unwrap_or_else(plain),
        _ => plain(),
    }
}

fn call<'a>(program: &Program, text: String) -> Option<Val<'a>> {
    let mut scope = CONTEXT.new_inner_scope();
    scope.add_variable_from_value("text", CelValue::String(Arc::new(text)));
    program.execute(&scope).ok().map(Val::Opaque)
}

#[expect(clippy::cast_possible_truncation, reason = "whole numbers within 2^53 only")]
fn convert_number(number: &Number, ty: Type) -> Val<'static> {
    let float = number.as_f64().unwrap_or(f64::NAN);
    match (number.as_i64(), ty) {
        (_, Type::Number) => Val::Double(float),
        (Some(integer), _) => Val::Int(integer),
        (None, Type::Integer) if float.fract() == 0.0 && float.abs() < 9_007_199_254_740_992.0 => {
            Val::Int(float as i64)
        }
        (None, _) => Val::Double(float),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped_as_upstream_escapes_them() {
        let cases = [
            ("a", Some("a")),
            ("my_field", Some("my_field")),
            ("a__b", Some("a__underscores__b")),
            ("a-b.c/d", Some("a__dash__b__dot__c__slash__d")),
            ("namespace", Some("__namespace__")),
            ("1a", None),
            ("a$", None),
            ("", None),
        ];
        for (name, want) in cases {
            assert_eq!(escape(name).as_deref(), want, "{name}");
        }
    }
}
