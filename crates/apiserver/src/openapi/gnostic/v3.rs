//! The messages of `openapi.v3`.

use serde_json::{Map, Value};

use super::{
    Field, Kind, external_docs, members, put_bool, put_bytes, put_double, put_fields, put_message, put_named, put_text,
};

fn info(value: &Value, out: &mut Vec<u8>) {
    put_fields(&[("title", 1, Kind::Text), ("description", 2, Kind::Text), ("version", 6, Kind::Text)], 7, value, out);
}

fn reference(value: &Value, out: &mut Vec<u8>) {
    put_text(1, &value["$ref"], out);
    put_text(3, &value["description"], out);
}

pub(super) fn schema_or_reference(value: &Value, out: &mut Vec<u8>) {
    if value.get("$ref").is_some() {
        put_message(2, value, reference, out);
    } else {
        put_message(1, value, schema, out);
    }
}

fn schema(value: &Value, out: &mut Vec<u8>) {
    const FIELDS: &[Field] = &[
        ("nullable", 1, Kind::Flag),
        ("readOnly", 3, Kind::Flag),
        ("writeOnly", 4, Kind::Flag),
        ("externalDocs", 6, Kind::One(external_docs)),
        ("example", 7, Kind::Any),
        ("deprecated", 8, Kind::Flag),
        ("title", 9, Kind::Text),
        ("multipleOf", 10, Kind::Double),
        ("maximum", 11, Kind::Double),
        ("exclusiveMaximum", 12, Kind::Flag),
        ("minimum", 13, Kind::Double),
        ("exclusiveMinimum", 14, Kind::Flag),
        ("maxLength", 15, Kind::Integer),
        ("minLength", 16, Kind::Integer),
        ("pattern", 17, Kind::Text),
        ("maxItems", 18, Kind::Integer),
        ("minItems", 19, Kind::Integer),
        ("uniqueItems", 20, Kind::Flag),
        ("maxProperties", 21, Kind::Integer),
        ("minProperties", 22, Kind::Integer),
        ("required", 23, Kind::Texts),
        ("enum", 24, Kind::Anys),
        ("type", 25, Kind::Text),
        ("allOf", 26, Kind::Many(schema_or_reference)),
        ("oneOf", 27, Kind::Many(schema_or_reference)),
        ("anyOf", 28, Kind::Many(schema_or_reference)),
        ("not", 29, Kind::One(schema)),
        ("items", 30, Kind::One(items_item)),
        ("properties", 31, Kind::Named(schema_or_reference)),
        ("additionalProperties", 32, Kind::One(additional_properties)),
        ("default", 33, Kind::One(default_type)),
        ("description", 34, Kind::Text),
        ("format", 35, Kind::Text),
    ];
    put_fields(FIELDS, 36, value, out);
}

fn items_item(value: &Value, out: &mut Vec<u8>) {
    put_message(1, value, schema_or_reference, out);
}

fn additional_properties(value: &Value, out: &mut Vec<u8>) {
    match value {
        // Part of a oneof, so "false" is written too.
        Value::Bool(allowed) => put_bool(2, *allowed, out),
        value => put_message(1, value, schema_or_reference, out),
    }
}

/// Lists and objects have no place in the message: there is a default, but not which.
fn default_type(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Number(number) => put_double(1, number.as_f64().unwrap_or_default(), out),
        Value::Bool(flag) => put_bool(2, *flag, out),
        Value::String(text) => put_bytes(3, text.as_bytes(), out),
        _ => {}
    }
}

fn parameter(value: &Value, out: &mut Vec<u8>) {
    const FIELDS: &[Field] = &[
        ("name", 1, Kind::Text),
        ("in", 2, Kind::Text),
        ("description", 3, Kind::Text),
        ("required", 4, Kind::Flag),
        ("schema", 10, Kind::One(schema_or_reference)),
    ];
    put_fields(FIELDS, 14, value, out);
}

fn parameter_or_reference(value: &Value, out: &mut Vec<u8>) {
    put_message(1, value, parameter, out);
}

fn media_type(value: &Value, out: &mut Vec<u8>) {
    put_fields(&[("schema", 1, Kind::One(schema_or_reference))], 5, value, out);
}

fn request_body(value: &Value, out: &mut Vec<u8>) {
    put_fields(&[("content", 2, Kind::Named(media_type)), ("required", 3, Kind::Flag)], 4, value, out);
}

fn request_body_or_reference(value: &Value, out: &mut Vec<u8>) {
    put_message(1, value, request_body, out);
}

fn response(value: &Value, out: &mut Vec<u8>) {
    put_fields(&[("description", 1, Kind::Text), ("content", 3, Kind::Named(media_type))], 5, value, out);
}

fn response_or_reference(value: &Value, out: &mut Vec<u8>) {
    put_message(1, value, response, out);
}

fn responses(value: &Value, out: &mut Vec<u8>) {
    members(value).for_each(|(code, response)| put_named(2, code, response, response_or_reference, out));
}

fn operation(value: &Value, out: &mut Vec<u8>) {
    const FIELDS: &[Field] = &[
        ("tags", 1, Kind::Texts),
        ("description", 3, Kind::Text),
        ("operationId", 5, Kind::Text),
        ("parameters", 6, Kind::Many(parameter_or_reference)),
        ("requestBody", 7, Kind::One(request_body_or_reference)),
        ("responses", 8, Kind::One(responses)),
        ("deprecated", 10, Kind::Flag),
    ];
    put_fields(FIELDS, 13, value, out);
}

fn path_item(value: &Value, out: &mut Vec<u8>) {
    const FIELDS: &[Field] = &[
        ("get", 4, Kind::One(operation)),
        ("put", 5, Kind::One(operation)),
        ("post", 6, Kind::One(operation)),
        ("delete", 7, Kind::One(operation)),
        ("patch", 10, Kind::One(operation)),
        ("parameters", 13, Kind::Many(parameter_or_reference)),
    ];
    put_fields(FIELDS, 14, value, out);
}

fn security_scheme(value: &Value, out: &mut Vec<u8>) {
    const FIELDS: &[Field] =
        &[("type", 1, Kind::Text), ("description", 2, Kind::Text), ("name", 3, Kind::Text), ("in", 4, Kind::Text)];
    put_fields(FIELDS, 9, value, out);
}

fn security_scheme_or_reference(value: &Value, out: &mut Vec<u8>) {
    put_message(1, value, security_scheme, out);
}

/// A document that is put together piece by piece.
#[derive(Debug, Default)]
pub(in crate::openapi) struct Document {
    paths: Vec<u8>,
    schemas: Vec<u8>,
}

impl Document {
    pub(in crate::openapi) fn path(&mut self, path: &str, item: &Value) {
        put_named(1, path, item, path_item, &mut self.paths);
    }

    pub(in crate::openapi) fn schema(&mut self, name: &str, schema: &Value) {
        put_named(1, name, schema, schema_or_reference, &mut self.schemas);
    }

    /// `rest` has `openapi`, `info` and `securitySchemes`.
    pub(in crate::openapi) fn finish(self, rest: Map<String, Value>) -> Vec<u8> {
        let rest = Value::Object(rest);
        let mut components = Vec::with_capacity(self.schemas.len() + 256);
        put_bytes(1, &self.schemas, &mut components);
        put_fields(&[("securitySchemes", 7, Kind::Named(security_scheme_or_reference))], 10, &rest, &mut components);
        let mut out = Vec::with_capacity(self.paths.len() + components.len() + 256);
        put_fields(&[("openapi", 1, Kind::Text), ("info", 2, Kind::One(info))], 9, &rest, &mut out);
        put_bytes(4, &self.paths, &mut out);
        put_bytes(5, &components, &mut out);
        out
    }
}
