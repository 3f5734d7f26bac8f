//! OpenAPI v2 as protobuf: the `openapi.v2.Document` message of gnostic, which client-go insists on.
//!
//! Messages are tables of fields; the encoder walks a JSON document along them. Fields are written in the order of their
//! numbers and zero values are left out, as other encoders do. What the tables do not name is skipped, except
//! extensions (`x-...`), which travel as YAML text: JSON is YAML.

use serde_json::{Map, Value};

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

pub(super) fn put_bytes(number: u32, bytes: &[u8], out: &mut Vec<u8>) {
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
        Kind::Flag if value.as_bool() == Some(true) => {
            put_key(number, VARINT, out);
            out.push(1);
        }
        Kind::Flag => {}
        Kind::Double => {
            let bits = value.as_f64().unwrap_or_default().to_bits();
            if bits != 0 {
                put_key(number, FIXED64, out);
                out.extend_from_slice(&bits.to_le_bytes());
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

fn info(value: &Value, out: &mut Vec<u8>) {
    put_fields(&[("title", 1, Kind::Text), ("version", 2, Kind::Text), ("description", 3, Kind::Text)], 7, value, out);
}

fn reference(value: &Value, out: &mut Vec<u8>) {
    put_text(1, &value["$ref"], out);
    put_text(2, &value["description"], out);
}

fn schema(value: &Value, out: &mut Vec<u8>) {
    const FIELDS: &[Field] = &[
        ("$ref", 1, Kind::Text),
        ("format", 2, Kind::Text),
        ("title", 3, Kind::Text),
        ("description", 4, Kind::Text),
        ("default", 5, Kind::Any),
        ("multipleOf", 6, Kind::Double),
        ("maximum", 7, Kind::Double),
        ("exclusiveMaximum", 8, Kind::Flag),
        ("minimum", 9, Kind::Double),
        ("exclusiveMinimum", 10, Kind::Flag),
        ("maxLength", 11, Kind::Integer),
        ("minLength", 12, Kind::Integer),
        ("pattern", 13, Kind::Text),
        ("maxItems", 14, Kind::Integer),
        ("minItems", 15, Kind::Integer),
        ("uniqueItems", 16, Kind::Flag),
        ("maxProperties", 17, Kind::Integer),
        ("minProperties", 18, Kind::Integer),
        ("required", 19, Kind::Texts),
        ("enum", 20, Kind::Anys),
        ("additionalProperties", 21, Kind::One(additional_properties)),
        ("type", 22, Kind::One(type_item)),
        ("items", 23, Kind::One(items_item)),
        ("allOf", 24, Kind::Many(schema)),
        ("properties", 25, Kind::Named(schema)),
        ("externalDocs", 29, Kind::One(external_docs)),
        ("example", 30, Kind::Any),
    ];
    put_fields(FIELDS, 31, value, out);
}

fn external_docs(value: &Value, out: &mut Vec<u8>) {
    put_fields(&[("description", 1, Kind::Text), ("url", 2, Kind::Text)], 3, value, out);
}

fn additional_properties(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Bool(allowed) => {
            // Part of a oneof, so "false" is written too.
            put_key(2, VARINT, out);
            out.push(u8::from(*allowed));
        }
        value => put_message(1, value, schema, out),
    }
}

fn type_item(value: &Value, out: &mut Vec<u8>) {
    put_text(1, value, out);
}

fn items_item(value: &Value, out: &mut Vec<u8>) {
    put_message(1, value, schema, out);
}

/// Query and path parameters have the same fields; a query's are one further on after `name`.
fn query_parameter(value: &Value, out: &mut Vec<u8>) {
    const FIELDS: &[Field] = &[
        ("required", 1, Kind::Flag),
        ("in", 2, Kind::Text),
        ("description", 3, Kind::Text),
        ("name", 4, Kind::Text),
        ("type", 6, Kind::Text),
        ("format", 7, Kind::Text),
        ("uniqueItems", 20, Kind::Flag),
    ];
    put_fields(FIELDS, 23, value, out);
}

fn path_parameter(value: &Value, out: &mut Vec<u8>) {
    const FIELDS: &[Field] = &[
        ("required", 1, Kind::Flag),
        ("in", 2, Kind::Text),
        ("description", 3, Kind::Text),
        ("name", 4, Kind::Text),
        ("type", 5, Kind::Text),
        ("format", 6, Kind::Text),
        ("uniqueItems", 19, Kind::Flag),
    ];
    put_fields(FIELDS, 22, value, out);
}

fn body_parameter(value: &Value, out: &mut Vec<u8>) {
    const FIELDS: &[Field] = &[
        ("description", 1, Kind::Text),
        ("name", 2, Kind::Text),
        ("in", 3, Kind::Text),
        ("required", 4, Kind::Flag),
        ("schema", 5, Kind::One(schema)),
    ];
    put_fields(FIELDS, 6, value, out);
}

fn non_body_parameter(value: &Value, out: &mut Vec<u8>) {
    if value["in"] == "path" {
        put_message(4, value, path_parameter, out);
    } else {
        put_message(3, value, query_parameter, out);
    }
}

fn parameter(value: &Value, out: &mut Vec<u8>) {
    if value["in"] == "body" {
        put_message(1, value, body_parameter, out);
    } else {
        put_message(2, value, non_body_parameter, out);
    }
}

fn parameters_item(value: &Value, out: &mut Vec<u8>) {
    if value.get("$ref").is_some() {
        put_message(2, value, reference, out);
    } else {
        put_message(1, value, parameter, out);
    }
}

fn schema_item(value: &Value, out: &mut Vec<u8>) {
    put_message(1, value, schema, out);
}

fn response(value: &Value, out: &mut Vec<u8>) {
    put_fields(&[("description", 1, Kind::Text), ("schema", 2, Kind::One(schema_item))], 5, value, out);
}

fn response_value(value: &Value, out: &mut Vec<u8>) {
    put_message(1, value, response, out);
}

fn operation(value: &Value, out: &mut Vec<u8>) {
    const FIELDS: &[Field] = &[
        ("tags", 1, Kind::Texts),
        ("summary", 2, Kind::Text),
        ("description", 3, Kind::Text),
        ("operationId", 5, Kind::Text),
        ("produces", 6, Kind::Texts),
        ("consumes", 7, Kind::Texts),
        ("parameters", 8, Kind::Many(parameters_item)),
        ("responses", 9, Kind::Named(response_value)),
        ("schemes", 10, Kind::Texts),
        ("deprecated", 11, Kind::Flag),
    ];
    put_fields(FIELDS, 13, value, out);
}

fn path_item(value: &Value, out: &mut Vec<u8>) {
    const FIELDS: &[Field] = &[
        ("get", 2, Kind::One(operation)),
        ("put", 3, Kind::One(operation)),
        ("post", 4, Kind::One(operation)),
        ("delete", 5, Kind::One(operation)),
        ("patch", 8, Kind::One(operation)),
        ("parameters", 9, Kind::Many(parameters_item)),
    ];
    put_fields(FIELDS, 10, value, out);
}

fn api_key(value: &Value, out: &mut Vec<u8>) {
    const FIELDS: &[Field] =
        &[("type", 1, Kind::Text), ("name", 2, Kind::Text), ("in", 3, Kind::Text), ("description", 4, Kind::Text)];
    put_fields(FIELDS, 5, value, out);
}

fn security_definition(value: &Value, out: &mut Vec<u8>) {
    put_message(2, value, api_key, out);
}

fn string_array(value: &Value, out: &mut Vec<u8>) {
    put_field(1, &Kind::Texts, value, out);
}

fn security_requirement(value: &Value, out: &mut Vec<u8>) {
    members(value).for_each(|(name, scopes)| put_named(1, name, scopes, string_array, out));
}

/// A document that is put together piece by piece.
#[derive(Debug, Default)]
pub(super) struct Document {
    paths: Vec<u8>,
    definitions: Vec<u8>,
}

impl Document {
    pub(super) fn path(&mut self, path: &str, item: &Value) {
        put_named(2, path, item, path_item, &mut self.paths);
    }

    pub(super) fn definition(&mut self, name: &str, definition: &Value) {
        put_named(1, name, definition, schema, &mut self.definitions);
    }

    /// `rest` are the other members of the document.
    pub(super) fn finish(self, rest: Map<String, Value>) -> Vec<u8> {
        const BEFORE: &[Field] = &[("swagger", 1, Kind::Text), ("info", 2, Kind::One(info))];
        const AFTER: &[Field] = &[
            ("parameters", 10, Kind::Named(parameter)),
            ("security", 12, Kind::Many(security_requirement)),
            ("securityDefinitions", 13, Kind::Named(security_definition)),
        ];
        let rest = Value::Object(rest);
        let mut out = Vec::with_capacity(self.paths.len() + self.definitions.len() + 4096);
        put_fields(BEFORE, 16, &rest, &mut out);
        put_bytes(8, &self.paths, &mut out);
        put_bytes(9, &self.definitions, &mut out);
        put_fields(AFTER, 16, &rest, &mut out);
        out
    }
}

#[cfg(test)]
mod tests;
