//! OpenAPI as protobuf: the `openapi.v2.Document` message of gnostic, which client-go insists on, and
//! `openapi.v3.Document`.
//!
//! Messages are tables of fields; the encoder walks a JSON document along them. Fields are written in the order of their
//! numbers and zero values are left out, as other encoders do. What the tables do not name is skipped, except
//! extensions (`x-...`), which travel as YAML text: JSON is YAML.

mod v2;
mod v3;

use serde_json::Value;

pub(super) use v2::Document as V2Document;
pub(super) use v3::Document as V3Document;

/// Writes the content of a message.
type Encode = fn(&Value, &mut Vec<u8>);

enum Kind {
    Text,
    Flag,
    Double,
    Integer,
    Texts,
    Any,
    Anys,
    One(Encode),
    Many(Encode),
    /// A message whose field 1 is repeated `{1: name, 2: value}`.
    Named(Encode),
}

/// JSON name, field number, kind.
type Field = (&'static str, u32, Kind);

const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const BYTES: u64 = 2;

fn put_varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        // The mask leaves seven bits.
        out.push(u8::try_from(value & 0x7f).unwrap_or_default() | 0x80);
        value >>= 7;
    }
    out.push(u8::try_from(value).unwrap_or_default());
}

fn put_key(number: u32, wire_type: u64, out: &mut Vec<u8>) {
    put_varint(u64::from(number) << 3 | wire_type, out);
}

fn put_bytes(number: u32, bytes: &[u8], out: &mut Vec<u8>) {
    put_key(number, BYTES, out);
    put_varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

fn put_text(number: u32, value: &Value, out: &mut Vec<u8>) {
    if let Some(text) = value.as_str().filter(|t| !t.is_empty()) {
        put_bytes(number, text.as_bytes(), out);
    }
}

fn put_message(number: u32, value: &Value, encode: Encode, out: &mut Vec<u8>) {
    let mut inner = Vec::new();
    encode(value, &mut inner);
    put_bytes(number, &inner, out);
}

/// `{1: name, 2: value}`, as field `number`.
fn put_named(number: u32, name: &str, value: &Value, encode: Encode, out: &mut Vec<u8>) {
    let mut inner = Vec::new();
    put_bytes(1, name.as_bytes(), &mut inner);
    put_message(2, value, encode, &mut inner);
    put_bytes(number, &inner, out);
}

fn any(value: &Value, out: &mut Vec<u8>) {
    put_bytes(2, format!("{value}\n").as_bytes(), out);
}

fn elements(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn members(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

fn put_field(number: u32, kind: &Kind, value: &Value, out: &mut Vec<u8>) {
    match kind {
        Kind::Text => put_text(number, value, out),
        Kind::Flag if value.as_bool() == Some(true) => put_bool(number, true, out),
        Kind::Flag => {}
        Kind::Double => {
            if let Some(number_value) = value.as_f64().filter(|n| n.to_bits() != 0) {
                put_double(number, number_value, out);
            }
        }
        Kind::Integer => {
            if let Some(n) = value.as_u64().filter(|n| *n != 0) {
                put_key(number, VARINT, out);
                put_varint(n, out);
            }
        }
        Kind::Texts => {
            for text in elements(value).iter().filter_map(Value::as_str) {
                put_bytes(number, text.as_bytes(), out);
            }
        }
        Kind::Any => put_message(number, value, any, out),
        Kind::Anys => elements(value).iter().for_each(|item| put_message(number, item, any, out)),
        Kind::One(encode) => put_message(number, value, *encode, out),
        Kind::Many(encode) => elements(value).iter().for_each(|item| put_message(number, item, *encode, out)),
        Kind::Named(encode) => {
            let mut inner = Vec::new();
            members(value).for_each(|(name, value)| put_named(1, name, value, *encode, &mut inner));
            put_bytes(number, &inner, out);
        }
    }
}

/// The fields that the value has, then its extensions.
fn put_fields(fields: &[Field], extensions: u32, value: &Value, out: &mut Vec<u8>) {
    for (name, number, kind) in fields {
        if let Some(value) = value.get(name) {
            put_field(*number, kind, value, out);
        }
    }
    for (name, value) in members(value).filter(|(name, _)| name.starts_with("x-")) {
        put_named(extensions, name, value, any, out);
    }
}

fn external_docs(value: &Value, out: &mut Vec<u8>) {
    put_fields(&[("description", 1, Kind::Text), ("url", 2, Kind::Text)], 3, value, out);
}

fn put_bool(number: u32, value: bool, out: &mut Vec<u8>) {
    put_key(number, VARINT, out);
    out.push(u8::from(value));
}

fn put_double(number: u32, value: f64, out: &mut Vec<u8>) {
    put_key(number, FIXED64, out);
    out.extend_from_slice(&value.to_le_bytes());
}

#[cfg(test)]
mod tests;
