//! Request bodies in Kubernetes' protobuf: an envelope, and in it the message of a built-in kind.
//!
//! client-go's typed clients send these for every built-in kind and do not fall back to JSON. There are no generated
//! types: the tables of [`crate::wire`] say what each number means, and the result is the JSON that the same client
//! would have sent.

mod reader;
#[cfg(test)]
mod tests;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use croft_meta::{Gvk, time};
use serde_json::{Map, Number, Value};

use crate::go_json;
use crate::wire::{Body, Field, Presence, Shape, TABLE, Ty};
use reader::{Reader, Wire};

/// What every body starts with.
pub const MAGIC: &[u8] = b"k8s\0";

/// Nested messages. Real objects need about 15; a CRD's schema somewhat more.
const MAX_DEPTH: usize = 100;
/// Messages in one body. Two bytes can make one, so the size of the body alone is no bound on memory.
const MAX_MESSAGES: usize = 250_000;

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ProtobufError {
    #[error("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")]
    NoMagic,
    #[error("unexpected EOF")]
    Truncated,
    #[error("proto: integer overflow")]
    Overflow,
    #[error("proto: illegal tag 0")]
    IllegalTag,
    #[error("proto: illegal wireType {0}")]
    IllegalWireType(u8),
    #[error("proto: wrong wireType = {wire} for field {field}")]
    WrongWireType { field: String, wire: u8 },
    #[error("the message is nested too deeply")]
    TooDeep,
    #[error("the message has too many parts")]
    TooLarge,
    #[error("the message does not say what kind it is")]
    NoKind,
    #[error("no kind {kind:?} is registered for version {version:?}")]
    UnknownKind { version: String, kind: String },
    #[error("field {field} does not hold JSON: {message}")]
    NotJson { field: String, message: String },
}

/// Decodes a request body. The object carries `apiVersion` and `kind` from the envelope.
pub fn decode_request(body: &[u8]) -> Result<(Gvk, Value), ProtobufError> {
    let message = body.strip_prefix(MAGIC).ok_or(ProtobufError::NoMagic)?;
    let (api_version, kind, raw) = envelope(message)?;
    if api_version.is_empty() || kind.is_empty() {
        return Err(ProtobufError::NoKind);
    }
    let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
    let gvk = Gvk::new(group, version, &kind);
    let index = TABLE
        .of_kind(group, version, &kind)
        .filter(|index| TABLE.get(*index).is_kind)
        .ok_or_else(|| ProtobufError::UnknownKind { version: api_version.clone(), kind: kind.clone() })?;
    let mut object = Map::new();
    Decoder { messages: 0 }.message(index, raw, &mut object, 0)?;
    let mut object = Value::Object(object);
    go_json::canonicalise_as(&mut object, index);
    if let Value::Object(map) = &mut object {
        map.insert("apiVersion".to_owned(), api_version.into());
        map.insert("kind".to_owned(), kind.into());
    }
    Ok((gvk, object))
}

/// `runtime.Unknown`: the type's name, and the bytes of the object.
fn envelope(message: &[u8]) -> Result<(String, String, &[u8]), ProtobufError> {
    let (mut api_version, mut kind, mut raw): (String, String, &[u8]) = Default::default();
    let mut fields = Reader::new(message);
    while let Some((number, value)) = fields.field()? {
        match (number, value) {
            (1, Wire::Bytes(type_meta)) => {
                let mut fields = Reader::new(type_meta);
                while let Some((number, value)) = fields.field()? {
                    match (number, value) {
                        (1, Wire::Bytes(text)) => api_version = lossy(text),
                        (2, Wire::Bytes(text)) => kind = lossy(text),
                        _ => {}
                    }
                }
            }
            (2, Wire::Bytes(bytes)) => raw = bytes,
            _ => {}
        }
    }
    Ok((api_version, kind, raw))
}

/// Go strings hold any bytes, JSON only UTF-8.
fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

struct Decoder {
    messages: usize,
}

impl Decoder {
    /// Reads a struct into `object`, which may hold fields already: a field sent twice is merged.
    fn message(
        &mut self,
        index: usize,
        bytes: &[u8],
        object: &mut Map<String, Value>,
        depth: usize,
    ) -> Result<(), ProtobufError> {
        self.enter(depth)?;
        let def = TABLE.get(index);
        let mut fields = Reader::new(bytes);
        while let Some((number, wire)) = fields.field()? {
            let Some(field) = def.by_number(number) else { continue };
            if let (true, Ty::Message(embedded)) = (field.inline, field.ty) {
                self.message(embedded, wire.bytes(field.json)?, object, depth + 1)?;
                continue;
            }
            match field.shape {
                Shape::One => {
                    let before = object.remove(field.json);
                    let value = self.value(field, field.ty, wire, before, depth)?;
                    // Go sends every plain field, set or not.
                    if field.presence != Presence::OmitEmpty || !go_json::is_zero(field.ty, &value) {
                        object.insert(field.json.to_owned(), value);
                    }
                }
                Shape::List => {
                    let list = object.entry(field.json).or_insert_with(|| Value::Array(Vec::new()));
                    let Value::Array(list) = list else { continue };
                    self.items(field, wire, list, depth)?;
                }
                Shape::Map => {
                    let (key, value) = self.entry(field, wire.bytes(field.json)?, depth)?;
                    let map = object.entry(field.json).or_insert_with(|| Value::Object(Map::new()));
                    let Value::Object(map) = map else { continue };
                    map.insert(key, value);
                }
            }
        }
        Ok(())
    }

    fn enter(&mut self, depth: usize) -> Result<(), ProtobufError> {
        self.messages += 1;
        if depth > MAX_DEPTH {
            return Err(ProtobufError::TooDeep);
        }
        if self.messages > MAX_MESSAGES {
            return Err(ProtobufError::TooLarge);
        }
        Ok(())
    }

    /// One item, or a packed run of numbers.
    fn items(&mut self, field: &Field, wire: Wire, list: &mut Vec<Value>, depth: usize) -> Result<(), ProtobufError> {
        let is_packable = matches!(field.ty, Ty::Int32 | Ty::Int64 | Ty::Bool | Ty::Double);
        let Wire::Bytes(packed) = wire else {
            list.push(self.value(field, field.ty, wire, None, depth)?);
            return Ok(());
        };
        if !is_packable {
            list.push(self.value(field, field.ty, wire, None, depth)?);
            return Ok(());
        }
        let mut run = Reader::new(packed);
        while !run.is_empty() {
            let wire = if field.ty == Ty::Double { Wire::Fixed64(run.fixed64()?) } else { Wire::Varint(run.varint()?) };
            list.push(self.value(field, field.ty, wire, None, depth)?);
        }
        Ok(())
    }

    /// A map entry is a message with the key as field 1 and the value as field 2.
    fn entry(&mut self, field: &Field, bytes: &[u8], depth: usize) -> Result<(String, Value), ProtobufError> {
        self.enter(depth)?;
        let mut key = String::new();
        let mut value = None;
        let mut fields = Reader::new(bytes);
        while let Some((number, wire)) = fields.field()? {
            match number {
                1 => key = lossy(wire.bytes(field.json)?),
                2 => value = Some(self.value(field, field.ty, wire, None, depth + 1)?),
                _ => {}
            }
        }
        let value = match (value, field.ty) {
            (Some(value), _) => value,
            (None, Ty::Bool) => Value::Bool(false),
            (None, Ty::Int32 | Ty::Int64 | Ty::Double) => 0.into(),
            (None, Ty::String | Ty::Bytes) => Value::String(String::new()),
            (None, _) => self.value(field, field.ty, Wire::Bytes(&[]), None, depth + 1)?,
        };
        Ok((key, value))
    }

    fn value(
        &mut self,
        field: &Field,
        ty: Ty,
        wire: Wire,
        before: Option<Value>,
        depth: usize,
    ) -> Result<Value, ProtobufError> {
        let name = field.json;
        Ok(match ty {
            Ty::String => Value::String(lossy(wire.bytes(name)?)),
            Ty::Bytes => Value::String(BASE64_STANDARD.encode(wire.bytes(name)?)),
            Ty::Int32 => i64::from(int32(wire.varint(name)?)).into(),
            Ty::Int64 => wire.varint(name)?.cast_signed().into(),
            Ty::Bool => Value::Bool(wire.varint(name)? != 0),
            Ty::Double => double(f64::from_bits(wire.fixed64(name)?)),
            Ty::Quantity => quantity(wire.bytes(name)?)?,
            Ty::IntOrString => int_or_string(wire.bytes(name)?)?,
            Ty::Time => timestamp(wire.bytes(name)?, 0)?,
            Ty::MicroTime => timestamp(wire.bytes(name)?, 1000)?,
            Ty::Raw | Ty::Json | Ty::FieldsV1 => raw_json(name, wire.bytes(name)?)?,
            Ty::Message(index) => self.nested(index, name, wire, before, depth)?,
        })
    }

    fn nested(
        &mut self,
        index: usize,
        name: &str,
        wire: Wire,
        before: Option<Value>,
        depth: usize,
    ) -> Result<Value, ProtobufError> {
        let bytes = wire.bytes(name)?;
        let def = TABLE.get(index);
        match def.body {
            Body::Struct => {
                let mut object = match before {
                    Some(Value::Object(object)) => object,
                    _ => Map::new(),
                };
                self.message(index, bytes, &mut object, depth + 1)?;
                Ok(Value::Object(object))
            }
            Body::List(_) => {
                self.enter(depth + 1)?;
                let mut items = Vec::new();
                let mut fields = Reader::new(bytes);
                while let Some((number, wire)) = fields.field()? {
                    if let (1, Wire::Bytes(text)) = (number, wire) {
                        items.push(Value::String(lossy(text)));
                    }
                }
                Ok(Value::Array(items))
            }
            // The struct part wins over `allows: true`, which is always sent beside it.
            Body::Union => {
                let mut parts = Map::new();
                self.message(index, bytes, &mut parts, depth + 1)?;
                let pick = ["schema", "jSONSchemas", "property", "allows"];
                Ok(pick.iter().find_map(|part| parts.remove(*part)).unwrap_or(Value::Bool(false)))
            }
        }
    }
}

/// Negative 32-bit numbers travel as 64-bit ones; the low half is the number.
fn int32(value: u64) -> i32 {
    let [a, b, c, d, ..] = value.to_le_bytes();
    i32::from_le_bytes([a, b, c, d])
}

/// Go writes whole numbers without a fraction. JSON has no NaN or infinity, and no valid object contains them.
fn double(value: f64) -> Value {
    let text = format!("{value}");
    let whole = text.parse::<i64>().ok().map(Number::from);
    whole.or_else(|| Number::from_f64(value)).map_or(Value::Null, Value::Number)
}

fn quantity(bytes: &[u8]) -> Result<Value, ProtobufError> {
    let mut text = "0".to_owned();
    let mut fields = Reader::new(bytes);
    while let Some((number, wire)) = fields.field()? {
        if let (1, Wire::Bytes(value)) = (number, wire) {
            text = lossy(value);
        }
    }
    Ok(Value::String(text))
}

fn int_or_string(bytes: &[u8]) -> Result<Value, ProtobufError> {
    let (mut is_string, mut number_value, mut text) = (false, 0, String::new());
    let mut fields = Reader::new(bytes);
    while let Some((number, wire)) = fields.field()? {
        match (number, wire) {
            (1, Wire::Varint(kind)) => is_string = kind == 1,
            (2, Wire::Varint(value)) => number_value = int32(value),
            (3, Wire::Bytes(value)) => text = lossy(value),
            _ => {}
        }
    }
    Ok(if is_string { Value::String(text) } else { number_value.into() })
}

/// Seconds and nanoseconds; an empty message is "not set". Times keep seconds, `MicroTime`s keep the nanoseconds
/// down to `resolution`.
fn timestamp(bytes: &[u8], resolution: i32) -> Result<Value, ProtobufError> {
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    let (mut seconds, mut nanos) = (0, 0);
    let mut fields = Reader::new(bytes);
    while let Some((number, wire)) = fields.field()? {
        match (number, wire) {
            (1, Wire::Varint(value)) => seconds = value.cast_signed(),
            (2, Wire::Varint(value)) => nanos = int32(value),
            _ => {}
        }
    }
    if resolution == 0 {
        nanos = 0;
    }
    let Ok(parsed) = jiff::Timestamp::new(seconds, nanos) else { return Ok(Value::Null) };
    Ok(if resolution == 0 { time::format_seconds(parsed) } else { time::format_micros(parsed) }.into())
}

/// `RawExtension`, `JSON` and `FieldsV1` hold JSON text in field 1.
fn raw_json(name: &str, bytes: &[u8]) -> Result<Value, ProtobufError> {
    let mut raw: &[u8] = &[];
    let mut fields = Reader::new(bytes);
    while let Some((number, wire)) = fields.field()? {
        if let (1, Wire::Bytes(value)) = (number, wire) {
            raw = value;
        }
    }
    if raw.is_empty() {
        return Ok(Value::Null);
    }
    serde_json::from_slice(raw)
        .map_err(|err| ProtobufError::NotJson { field: name.to_owned(), message: err.to_string() })
}
