//! What expressions work with: JSON where it is, and what they make of it.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use kube_cel::cel::Value as CelValue;
use serde_json::{Number, Value};

use super::Fault;
use super::authorizer::Question;
use super::weight::{Made, deepest};

#[derive(Clone, Debug)]
pub(crate) enum Val<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    Text(Text<'a>),
    Bytes(Arc<Vec<u8>>),
    List(List<'a>),
    Map(Map<'a>),
    /// `Object.spec{…}`.
    Struct(Arc<Struct<'a>>),
    Optional(Option<Arc<Val<'a>>>),
    /// What `type()` yields.
    Type(&'static str),
    /// What `variables` stands for.
    Variables,
    /// `authorizer`, and what its methods yield.
    Authorizer(Arc<Question>),
    /// Times, quantities, addresses and the like, which only functions look into.
    Opaque(CelValue),
}

#[derive(Clone, Debug)]
pub(crate) enum Text<'a> {
    Borrowed(&'a str),
    Shared(Arc<str>),
}

impl std::ops::Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            Self::Borrowed(text) => text,
            Self::Shared(text) => text,
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) enum List<'a> {
    Json(&'a [Value]),
    Made(Arc<Made<Vec<Val<'a>>>>),
}

impl<'a> List<'a> {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Json(list) => list.len(),
            Self::Made(list) => list.len(),
        }
    }

    pub(super) fn get(&self, index: usize) -> Option<Val<'a>> {
        match self {
            Self::Json(list) => list.get(index).map(Val::of),
            Self::Made(list) => list.get(index).cloned(),
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Val<'a>> + '_ {
        (0..self.len()).filter_map(|index| self.get(index))
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key {
    Bool(bool),
    Int(i64),
    Text(Arc<str>),
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool(truth) => truth.fmt(f),
            Self::Int(number) => number.fmt(f),
            Self::Text(text) => text.fmt(f),
        }
    }
}

impl Key {
    pub(super) fn of(value: &Val<'_>) -> Option<Self> {
        match value {
            Val::Bool(truth) => Some(Self::Bool(*truth)),
            Val::Text(text) => Some(Self::Text(Arc::from(&**text))),
            other => other.whole_number().map(Self::Int),
        }
    }

    /// How many bytes it has.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Bool(_) | Self::Int(_) => 0,
        }
    }

    pub(super) fn into_val<'a>(self) -> Val<'a> {
        match self {
            Self::Bool(truth) => Val::Bool(truth),
            Self::Int(number) => Val::Int(number),
            Self::Text(text) => Val::Text(Text::Shared(text)),
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) enum Map<'a> {
    Json(&'a serde_json::Map<String, Value>),
    Made(Arc<Made<BTreeMap<Key, Val<'a>>>>),
}

impl<'a> Map<'a> {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Json(map) => map.len(),
            Self::Made(map) => map.len(),
        }
    }

    /// A field by its name in an expression, which may be spelt so that an expression can have it.
    pub(super) fn field(&self, name: &str) -> Option<Val<'a>> {
        match unescape(name) {
            Cow::Owned(plain) => self.named(&plain).or_else(|| self.named(name)),
            Cow::Borrowed(plain) if plain.len() < name.len() => self.named(plain).or_else(|| self.named(name)),
            Cow::Borrowed(name) => self.named(name),
        }
    }

    fn named(&self, name: &str) -> Option<Val<'a>> {
        match self {
            Self::Json(map) => map.get(name).map(Val::of),
            Self::Made(map) => map.get(&Key::Text(Arc::from(name))).cloned(),
        }
    }

    pub(super) fn get(&self, key: &Key) -> Option<Val<'a>> {
        match (self, key) {
            (Self::Json(map), Key::Text(name)) => map.get(&**name).map(Val::of),
            (Self::Json(_), _) => None,
            (Self::Made(map), key) => map.get(key).cloned(),
        }
    }

    pub(super) fn keys(&self) -> Vec<Key> {
        match self {
            Self::Json(map) => map.keys().map(|key| Key::Text(Arc::from(key.as_str()))).collect(),
            Self::Made(map) => map.keys().cloned().collect(),
        }
    }
}

/// A value of a named type.
#[derive(Clone, Debug)]
pub(crate) struct Struct<'a> {
    pub(super) name: &'a str,
    pub(super) fields: Made<BTreeMap<&'a str, Val<'a>>>,
}

impl<'a> Val<'a> {
    pub(crate) fn of(json: &'a Value) -> Self {
        match json {
            Value::Null => Self::Null,
            Value::Bool(truth) => Self::Bool(*truth),
            Value::Number(number) => Self::number(number),
            Value::String(text) => Self::Text(Text::Borrowed(text)),
            Value::Array(list) => Self::List(List::Json(list)),
            Value::Object(map) => Self::Map(Map::Json(map)),
        }
    }

    fn number(number: &Number) -> Self {
        number.as_i64().map_or_else(|| Self::Double(number.as_f64().unwrap_or(f64::NAN)), Self::Int)
    }

    pub(crate) fn text(text: impl Into<Arc<str>>) -> Self {
        Self::Text(Text::Shared(text.into()))
    }

    pub(crate) fn list(items: Vec<Self>) -> Self {
        let depth = deepest(items.iter());
        Self::List(List::Made(Arc::new(Made::new(items, depth))))
    }

    pub(crate) fn map(entries: BTreeMap<Key, Self>) -> Self {
        let depth = deepest(entries.values());
        Self::Map(Map::Made(Arc::new(Made::new(entries, depth))))
    }

    /// `Object.spec{…}`.
    pub(super) fn structure(name: &'a str, fields: BTreeMap<&'a str, Self>) -> Self {
        let depth = deepest(fields.values());
        Self::Struct(Arc::new(Struct { name, fields: Made::new(fields, depth) }))
    }

    pub(crate) fn some(value: Self) -> Self {
        Self::Optional(Some(Arc::new(value)))
    }

    /// A number without a fraction that fits; keys and indices may be of any numeric type.
    #[expect(clippy::cast_possible_truncation, reason = "whole numbers within 2^53 only")]
    pub(super) fn whole_number(&self) -> Option<i64> {
        match self {
            Self::Int(number) => Some(*number),
            Self::Uint(number) => i64::try_from(*number).ok(),
            Self::Double(number) if number.fract() == 0.0 && number.abs() < 9_007_199_254_740_992.0 => {
                Some(*number as i64)
            }
            _ => None,
        }
    }

    pub(super) fn truth(&self) -> Option<bool> {
        match self {
            Self::Bool(truth) => Some(*truth),
            _ => None,
        }
    }

    /// As JSON, to be stored. A field of a struct whose own type does not follow from its place is refused.
    pub(super) fn to_json(&self) -> Result<Value, Fault> {
        Ok(match self {
            Self::Null => Value::Null,
            Self::Bool(truth) => Value::Bool(*truth),
            Self::Int(number) => Value::from(*number),
            Self::Uint(number) => Value::from(*number),
            Self::Double(number) => Number::from_f64(*number).map_or(Value::Null, Value::Number),
            Self::Text(text) => Value::from(&**text),
            Self::Bytes(bytes) => {
                use base64::Engine as _;
                Value::from(base64::engine::general_purpose::STANDARD.encode(bytes.as_slice()))
            }
            Self::List(List::Json(list)) => Value::Array(list.to_vec()),
            Self::List(List::Made(list)) => Value::Array(list.iter().map(Self::to_json).collect::<Result<_, _>>()?),
            Self::Map(Map::Json(map)) => Value::Object((*map).clone()),
            Self::Map(Map::Made(map)) => {
                let entry = |(key, value): (&Key, &Self)| Ok((key.to_string(), value.to_json()?));
                Value::Object(map.iter().map(entry).collect::<Result<_, Fault>>()?)
            }
            Self::Struct(made) => {
                let mut fields = serde_json::Map::new();
                for (field, value) in made.fields.iter() {
                    if made.name != "JSONPatch" {
                        value.check_place(&format!("{}.{field}", made.name))?;
                    }
                    fields.insert(unescape(field).into_owned(), value.to_json()?);
                }
                Value::Object(fields)
            }
            Self::Opaque(value) => super::library::as_text(value)?,
            other => return Err(Fault::Failed(format!("type conversion error from '{}' to JSON", other.type_name()))),
        })
    }

    fn check_place(&self, wanted: &str) -> Result<(), Fault> {
        match self {
            Self::Struct(made) if made.name != wanted => Err(Fault::Failed(format!(
                "unexpected type name \"{}\", expected \"{wanted}\", which matches field name path from root Object type",
                made.name
            ))),
            Self::List(List::Made(list)) => {
                list.iter().try_for_each(|item| item.check_place(&format!("{wanted}.item")))
            }
            Self::Map(Map::Made(map)) => {
                map.values().try_for_each(|value| value.check_place(&format!("{wanted}.value")))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn type_name(&self) -> &'static str {
        match self {
            Self::Null => "null_type",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Uint(_) => "uint",
            Self::Double(_) => "double",
            Self::Text(_) => "string",
            Self::Bytes(_) => "bytes",
            Self::List(_) => "list",
            Self::Map(_) => "map",
            Self::Struct(_) => "object",
            Self::Optional(_) => "optional_type",
            Self::Type(_) => "type",
            Self::Variables | Self::Authorizer(_) => "dyn",
            Self::Opaque(CelValue::Timestamp(_)) => "google.protobuf.Timestamp",
            Self::Opaque(CelValue::Duration(_)) => "google.protobuf.Duration",
            Self::Opaque(_) => "opaque",
        }
    }
}

/// The name of a field as it is stored: `__dash__` is how expressions spell what they cannot.
fn unescape(name: &str) -> Cow<'_, str> {
    if !name.contains("__") {
        return Cow::Borrowed(name);
    }
    let plain = name
        .strip_prefix("__")
        .and_then(|rest| rest.strip_suffix("__"))
        .filter(|word| !matches!(*word, "dot" | "dash" | "slash" | "underscores"));
    if let Some(reserved) = plain {
        return Cow::Borrowed(reserved);
    }
    let spelt = name.replace("__dot__", ".").replace("__dash__", "-").replace("__slash__", "/");
    Cow::Owned(spelt.replace("__underscores__", "__"))
}
