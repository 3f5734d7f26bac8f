//! The messages of `openapi.v2`.

use serde_json::{Map, Value};

use super::{
    Field, Kind, external_docs, members, put_bool, put_bytes, put_field, put_fields, put_message, put_named, put_text,
};

fn info(value: &Value, out: &mut Vec<u8>) {
    put_fields(&[("title", 1, Kind::Text), ("version", 2, Kind::Text), ("description", 3, Kind::Text)], 7, value, out);
}

fn reference(value: &Value, out: &mut Vec<u8>) {
    put_text(1, &value["$ref"], out);
    put_text(2, &value["description"], out);
}

pub(super) fn schema(value: &Value, out: &mut Vec<u8>) {
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

fn additional_properties(value: &Value, out: &mut Vec<u8>) {
    match value {
        // Part of a oneof, so "false" is written too.
        Value::Bool(allowed) => put_bool(2, *allowed, out),
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
pub(in crate::openapi) struct Document {
    paths: Vec<u8>,
    definitions: Vec<u8>,
}

impl Document {
    pub(in crate::openapi) fn path(&mut self, path: &str, item: &Value) {
        put_named(2, path, item, path_item, &mut self.paths);
    }

    pub(in crate::openapi) fn definition(&mut self, name: &str, definition: &Value) {
        put_named(1, name, definition, schema, &mut self.definitions);
    }

    /// `rest` are the other members of the document.
    pub(in crate::openapi) fn finish(self, rest: Map<String, Value>) -> Vec<u8> {
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
