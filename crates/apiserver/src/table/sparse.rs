//! Reading a few fields of a long object without building the rest.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// What is wanted of a value: all of it, or some members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    All,
    Members(BTreeMap<String, Wanted>),
}

impl Wanted {
    pub(crate) fn nothing() -> Self {
        Self::Members(BTreeMap::new())
    }

    /// Adds what is behind these names, one within the other.
    pub(crate) fn add<'a>(&mut self, mut names: impl Iterator<Item = &'a str>) {
        let Self::Members(members) = self else { return };
        match names.next() {
            None => *self = Self::All,
            Some(name) => members.entry(name.to_owned()).or_insert_with(Self::nothing).add(names),
        }
    }

    /// The object in these bytes, without what is not wanted of it. Bytes that are no JSON read as null.
    pub(crate) fn read(&self, json: &[u8]) -> Value {
        let mut deserializer = serde_json::Deserializer::from_slice(json);
        self.deserialize(&mut deserializer).unwrap_or_default()
    }
}

impl<'de> DeserializeSeed<'de> for &Wanted {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        match self {
            Wanted::All => serde::Deserialize::deserialize(deserializer),
            Wanted::Members(members) => deserializer.deserialize_any(Members(members)),
        }
    }
}

struct Members<'a>(&'a BTreeMap<String, Wanted>);

impl<'de> Visitor<'de> for Members<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut found = Map::new();
        while let Some(member) = map.next_key_seed(Member(self.0))? {
            match member {
                Some((name, wanted)) => drop(found.insert(name.to_owned(), map.next_value_seed(wanted)?)),
                None => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(Value::Object(found))
    }

    // Something else stands where an object was expected: a path that goes on there finds nothing, whatever it is.

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Value::Array(Vec::new()))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Value, E> {
        Ok(text.into())
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
}

/// A member's name, looked up without being copied.
struct Member<'a>(&'a BTreeMap<String, Wanted>);

impl<'de, 'a> DeserializeSeed<'de> for Member<'a> {
    type Value = Option<(&'a str, &'a Wanted)>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'a> Visitor<'_> for Member<'a> {
    type Value = Option<(&'a str, &'a Wanted)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a member")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Self::Value, E> {
        Ok(self.0.get_key_value(name).map(|(name, wanted)| (name.as_str(), wanted)))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_is_wanted_is_read() {
        let mut wanted = Wanted::nothing();
        for path in ["metadata.name", "status.conditions", "spec.a.b", "spec.a.b.c", "spec.list.x", "spec.text.x"] {
            wanted.add(path.split('.'));
        }
        let object = json!({
            "kind": "Widget", "metadata": {"name": "a\n", "labels": {"x": "y"}},
            "spec": {"a": {"b": {"c": 1, "d": [2.5]}, "e": true}, "list": [{"x": 1}], "text": "t", "other": [[{}]]},
            "status": {"conditions": [{"type": "Ready"}], "phase": null},
        });
        let expected = json!({
            "metadata": {"name": "a\n"},
            "spec": {"a": {"b": {"c": 1, "d": [2.5]}}, "list": [], "text": "t"},
            "status": {"conditions": [{"type": "Ready"}]},
        });
        assert_eq!(wanted.read(object.to_string().as_bytes()), expected);
        assert_eq!(wanted.read(b"[1, {}]"), json!([]));
        assert_eq!(wanted.read(b"{\"spec\": "), Value::Null);
        wanted.add(std::iter::empty());
        assert_eq!(wanted.read(object.to_string().as_bytes()), object);
    }
}
