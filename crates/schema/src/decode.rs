//! Decodes built-in kinds as Go does: fields it does not know are dropped and reported, null is
//! absent, and a value of the wrong type is refused with the text of Go's `encoding/json`.
//!
//! Quantities and times come out in canonical form, because upstream writes them back so.

use std::fmt::{self, Write};

use croft_meta::field::go_quote;
use croft_meta::json::go_kind;
use croft_meta::{Quantity, time};
use serde_json::{Map, Value};

use crate::model::{Additional, Schema, Type};

/// Upstream stops counting here.
const MOST_UNKNOWN: usize = 100;

/// A field that the type does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unknown {
    pub path: String,
}

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown field {}", go_quote(&self.path))
    }
}

/// Decodes in place. `root_type` is the kind, which errors about its own fields name.
pub fn decode(schema: &Schema, value: &mut Value, root_type: &str) -> Result<Vec<Unknown>, String> {
    if !value.is_object() {
        let found = go_kind(value);
        return Err(format!("json: cannot unmarshal {found} into Go value of type v1.{root_type}"));
    }
    let mut decoder = Decoder { unknown: Vec::new(), path: String::new(), fields: Vec::new() };
    decoder.object(schema, value, root_type)?;
    Ok(decoder.unknown)
}

struct Decoder {
    unknown: Vec<Unknown>,
    /// With indices, for unknown fields.
    path: String,
    /// Names of struct fields only, as Go's errors join them.
    fields: Vec<String>,
}

impl Decoder {
    /// `owner` is the struct that holds the field being decoded.
    fn value(&mut self, schema: &Schema, value: &mut Value, owner: &str) -> Result<(), String> {
        match schema.ty {
            Type::Any => Ok(()),
            Type::Object if is_opaque(schema) && value.is_object() => Ok(()),
            Type::Object if value.is_object() => {
                let owner = if schema.type_name.is_empty() { owner } else { &schema.type_name };
                self.object(schema, value, owner)
            }
            Type::Array if value.is_array() => self.list(schema, value, owner),
            Type::String => self.string(schema, value, owner),
            Type::Boolean if value.is_boolean() => Ok(()),
            Type::Integer => self.integer(value, integer_type(schema), owner),
            Type::Number if value.is_number() => Ok(()),
            Type::IntOrString if value.is_string() => Ok(()),
            Type::IntOrString => self.integer(value, "int32", owner),
            Type::Object | Type::Array | Type::Boolean | Type::Number => {
                Err(self.mismatch(go_kind(value), owner, &go_type(schema)))
            }
        }
    }

    fn mismatch(&self, found: &str, owner: &str, wanted: &str) -> String {
        let field = self.fields.join(".");
        format!("json: cannot unmarshal {found} into Go struct field {owner}.{field} of type {wanted}")
    }

    fn object(&mut self, schema: &Schema, value: &mut Value, owner: &str) -> Result<(), String> {
        let Value::Object(map) = value else { return Ok(()) };
        if let (Additional::Schema(values), true) = (&schema.additional, schema.properties.is_empty()) {
            return self.map(values, map, owner);
        }
        let is_root = self.path.is_empty();
        let mut failed = None;
        map.retain(|key, value| {
            if failed.is_some() {
                return true;
            }
            if is_root && (key == "apiVersion" || key == "kind") && !schema.properties.contains_key(key) {
                return true;
            }
            let length = self.push_key(key);
            let keep = match schema.properties.get(key) {
                None => {
                    self.report_unknown();
                    false
                }
                Some(_) if value.is_null() => false,
                Some(property) => {
                    self.fields.push(key.clone());
                    failed = self.value(property, value, owner).err();
                    self.fields.pop();
                    true
                }
            };
            self.path.truncate(length);
            keep
        });
        failed.map_or(Ok(()), Err)
    }

    fn map(&mut self, values: &Schema, map: &mut Map<String, Value>, owner: &str) -> Result<(), String> {
        for (key, value) in map {
            let length = self.push_key(key);
            self.element(values, value, owner)?;
            self.path.truncate(length);
        }
        Ok(())
    }

    fn list(&mut self, schema: &Schema, value: &mut Value, owner: &str) -> Result<(), String> {
        let (Value::Array(list), Some(items)) = (value, &schema.items) else { return Ok(()) };
        for (index, item) in list.iter_mut().enumerate() {
            let length = self.path.len();
            // Writing to a String cannot fail.
            let _ = write!(self.path, "[{index}]");
            self.element(items, item, owner)?;
            self.path.truncate(length);
        }
        Ok(())
    }

    /// A value of a map or list, where null is Go's zero value.
    fn element(&mut self, schema: &Schema, value: &mut Value, owner: &str) -> Result<(), String> {
        if value.is_null() {
            *value = zero(schema);
            return Ok(());
        }
        self.value(schema, value, owner)
    }

    fn string(&mut self, schema: &Schema, value: &mut Value, owner: &str) -> Result<(), String> {
        if &*schema.type_name == "Quantity" {
            return decode_quantity(value);
        }
        let format = schema.constraints.as_ref().and_then(|c| c.format.as_deref()).unwrap_or_default();
        let Value::String(text) = value else {
            let wanted = if format == "date-time" { "string".to_owned() } else { go_type(schema) };
            return Err(self.mismatch(go_kind(value), owner, &wanted));
        };
        match format {
            "byte" => check_base64(text),
            "date-time" if &*schema.type_name == "MicroTime" => {
                *text = time::format_micros(time::parse_micros(text)?);
                Ok(())
            }
            "date-time" => {
                *text = time::format_seconds(time::parse(text)?);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn integer(&mut self, value: &Value, wanted: &str, owner: &str) -> Result<(), String> {
        let Value::Number(number) = value else {
            return Err(self.mismatch(go_kind(value), owner, wanted));
        };
        let fits = match wanted {
            "int32" => number.as_i64().is_some_and(|n| i32::try_from(n).is_ok()),
            _ => number.is_i64(),
        };
        if fits { Ok(()) } else { Err(self.mismatch(&format!("number {number}"), owner, wanted)) }
    }

    /// Returns the length to cut the path back to.
    fn push_key(&mut self, key: &str) -> usize {
        let length = self.path.len();
        if length > 0 {
            self.path.push('.');
        }
        self.path.push_str(key);
        length
    }

    fn report_unknown(&mut self) {
        if self.unknown.len() < MOST_UNKNOWN {
            self.unknown.push(Unknown { path: self.path.clone() });
        }
    }
}

/// Types that keep whatever JSON they are given.
fn is_opaque(schema: &Schema) -> bool {
    schema.preserve_unknown || matches!(&*schema.type_name, "FieldsV1" | "RawExtension" | "JSON")
}

fn integer_type(schema: &Schema) -> &'static str {
    match schema.constraints.as_ref().and_then(|c| c.format.as_deref()) {
        Some("int64") => "int64",
        Some("int32") => "int32",
        _ => "int",
    }
}

/// How Go prints the type; packages of API types are named after their version.
fn go_type(schema: &Schema) -> String {
    if !schema.type_name.is_empty() {
        return format!("v1.{}", schema.type_name);
    }
    match schema.ty {
        Type::Any => "interface {}".to_owned(),
        Type::Object => match &schema.additional {
            Additional::Schema(values) => format!("map[string]{}", go_type(values)),
            Additional::None => "map[string]interface {}".to_owned(),
        },
        Type::Array => format!("[]{}", schema.items.as_deref().map_or_else(|| "interface {}".to_owned(), go_type)),
        Type::String => {
            let is_bytes = schema.constraints.as_ref().is_some_and(|c| c.format.as_deref() == Some("byte"));
            if is_bytes { "[]uint8" } else { "string" }.to_owned()
        }
        Type::Integer => integer_type(schema).to_owned(),
        Type::Number => "float64".to_owned(),
        Type::Boolean => "bool".to_owned(),
        Type::IntOrString => "intstr.IntOrString".to_owned(),
    }
}

fn zero(schema: &Schema) -> Value {
    match schema.ty {
        Type::Any => Value::Null,
        Type::Object => Value::Object(Map::new()),
        Type::Array => Value::Array(Vec::new()),
        Type::String if &*schema.type_name == "Quantity" => Value::from("0"),
        Type::String => Value::from(""),
        Type::Integer | Type::Number | Type::IntOrString => Value::from(0),
        Type::Boolean => Value::from(false),
    }
}

/// Quantities may be written as numbers; anything else is read as its JSON text, and so refused.
fn decode_quantity(value: &mut Value) -> Result<(), String> {
    let text = value.as_str().map_or_else(|| value.to_string(), |text| text.trim().to_owned());
    let quantity = Quantity::parse(&text).map_err(|err| err.to_string())?;
    *value = Value::from(quantity.to_string());
    Ok(())
}

/// Go's base64 decoder skips line breaks and names the byte at which it gave up.
fn check_base64(text: &str) -> Result<(), String> {
    let corrupt = |at: usize| Err(format!("illegal base64 data at input byte {at}"));
    let bytes: Vec<(usize, u8)> = text.bytes().enumerate().filter(|(_, b)| *b != b'\n' && *b != b'\r').collect();
    for chunk in bytes.chunks(4) {
        for (place, (at, byte)) in chunk.iter().enumerate() {
            if byte.is_ascii_alphanumeric() || *byte == b'+' || *byte == b'/' {
                continue;
            }
            if *byte != b'=' || place < 2 {
                return corrupt(*at);
            }
            return check_padding(&bytes, chunk, place, text.len());
        }
        if chunk.len() < 4 {
            return corrupt(text.len() - chunk.len());
        }
    }
    Ok(())
}

/// One or two `=` complete the last four characters, and nothing follows.
fn check_padding(bytes: &[(usize, u8)], chunk: &[(usize, u8)], place: usize, length: usize) -> Result<(), String> {
    let corrupt = |at: usize| Err(format!("illegal base64 data at input byte {at}"));
    if place == 2 {
        match chunk.get(3) {
            None => return corrupt(length),
            Some((at, byte)) if *byte != b'=' => return corrupt(*at),
            Some(_) => {}
        }
    }
    match (bytes.last(), chunk.last()) {
        (Some(last), Some(end)) if last.0 != end.0 => corrupt(end.0 + 1),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
