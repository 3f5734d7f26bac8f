//! Definitions without their schemas, which are by far the most of them.

use std::fmt;

use serde::Deserializer;
use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// What a schema is kept under.
const SCHEMA: &str = "openAPIV3Schema";

/// Reads a definition, and skips the schemas of its versions.
pub fn definition_outline(json: &[u8]) -> serde_json::Result<Value> {
    let mut reader = serde_json::Deserializer::from_slice(json);
    let outline = Outline.deserialize(&mut reader)?;
    reader.end()?;
    Ok(outline)
}

struct Outline;

impl<'de> DeserializeSeed<'de> for Outline {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Outline {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(Outline)? {
            list.push(item);
        }
        Ok(list.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(name) = fields.next_key::<String>()? {
            if name == SCHEMA {
                fields.next_value::<IgnoredAny>()?;
                continue;
            }
            map.insert(name, fields.next_value_seed(Outline)?);
        }
        Ok(map.into())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn everything_but_schemas_is_read() {
        let mut definition = json!({
            "metadata": {"name": "a", "generation": 3, "labels": null},
            "spec": {"versions": [
                {"name": "v1", "served": true, "schema": {"openAPIV3Schema": {"type": "object", "default": -1.5}}},
                {"name": "v2", "subresources": {"status": {}}, "weight": -2, "share": 0.5},
            ]},
        });
        let outline = definition_outline(definition.to_string().as_bytes()).unwrap();
        definition["spec"]["versions"][0]["schema"] = json!({});
        assert_eq!(outline, definition);
    }

    #[test]
    fn broken_json_is_an_error() {
        for text in ["", "{", "{\"a\":1}}", "[1,]"] {
            assert!(definition_outline(text.as_bytes()).is_err(), "{text}");
        }
    }
}
