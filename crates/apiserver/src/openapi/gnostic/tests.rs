//! Bytes, compared with those of gnostic's own encoder.

use serde_json::json;
use sha2::{Digest, Sha256};

use super::v2::schema;
use super::*;

/// Made with `openapi_v2.ParseDocument` and `proto.Marshal` from the same document.
#[test]
fn bytes_are_those_of_gnostic() {
    let operation = json!({
        "description": "read", "operationId": "readX", "tags": ["core_v1"], "consumes": ["*/*"],
        "produces": ["application/json"], "schemes": ["https"],
        "parameters": [
            {"name": "dryRun", "in": "query", "type": "string", "description": "d", "uniqueItems": true},
            {"$ref": "#/parameters/pretty"},
            {"name": "body", "in": "body", "required": true, "schema": {"$ref": "#/definitions/X"}},
        ],
        "responses": {
            "200": {"description": "OK", "schema": {"$ref": "#/definitions/X"}},
            "401": {"description": "Unauthorized"},
        },
    });
    let name = json!({
        "name": "name", "in": "path", "type": "string", "description": "name of the X", "required": true, "uniqueItems": true,
    });
    let definition = json!({
        "description": "an x", "type": "object", "required": ["a"],
        "properties": {
            "a": {"type": "integer", "format": "int32", "minimum": 1.5, "maximum": 300, "minLength": 200},
            "b": {"type": "array", "items": {"type": "string"}},
            "c": {"type": "object", "additionalProperties": {"$ref": "#/definitions/X"}},
            "d": {"type": "object", "additionalProperties": false},
        },
    });
    let frame = json!({
        "swagger": "2.0", "info": {"title": "Kubernetes", "version": "1.34"},
        "parameters": {"pretty": {"name": "pretty", "in": "query", "type": "string", "description": "p", "uniqueItems": true}},
        "security": [{"BearerToken": []}],
        "securityDefinitions": {"BearerToken": {
            "type": "apiKey", "description": "Bearer Token authentication", "name": "authorization", "in": "header",
        }},
    });
    let mut document = V2Document::default();
    document.path("/api/v1/x/{name}", &json!({"get": operation, "parameters": [name]}));
    document.definition("X", &definition);
    let bytes = document.finish(frame.as_object().unwrap().clone());
    assert_eq!(bytes.len(), 646);
    let hash = crate::discovery::hex_upper(&Sha256::digest(&bytes));
    assert_eq!(hash, "F33E7026404E4C55DE970C6EDF1B1B49FA9392851A686A16D96B9C5205941C68");
}

/// Extensions travel as YAML, and JSON is YAML.
#[test]
fn extensions_are_kept_with_their_values() {
    let mut out = Vec::new();
    schema(&json!({"type": "object", "x-kubernetes-list-map-keys": ["name"], "nullable": true}), &mut out);
    let named = b"\x0a\x1ax-kubernetes-list-map-keys\x12\x0b\x12\x09[\"name\"]\n";
    let mut want = b"\xb2\x01\x08\x0a\x06object\xfa\x01".to_vec();
    want.push(u8::try_from(named.len()).unwrap());
    want.extend_from_slice(named);
    assert_eq!(out, want);
}

/// As above, with `openapi_v3.ParseDocument`.
#[test]
fn v3_bytes_are_those_of_gnostic() {
    let reference = json!({"$ref": "#/components/schemas/X"});
    let name = json!({
        "name": "name", "in": "path", "description": "n", "required": true,
        "schema": {"type": "string", "uniqueItems": true},
    });
    let operation = json!({
        "description": "d", "operationId": "patchX", "tags": ["x_v1"],
        "requestBody": {"content": {"*/*": {"schema": reference}}, "required": true},
        "responses": {
            "200": {"description": "OK", "content": {"application/json": {"schema": reference}}},
            "401": {"description": "Unauthorized"},
        },
    });
    let definition = json!({
        "description": "an x", "type": "object", "required": ["a"],
        "properties": {
            "a": {"type": "integer", "default": 0, "nullable": true},
            "b": {"default": "", "type": "string"},
            "c": {"allOf": [reference], "default": {}},
            "d": {"type": "object", "additionalProperties": true},
            "e": {"type": "array", "items": {"type": "boolean", "default": false}},
            "f": {"oneOf": [{"type": "integer"}, {"type": "string"}]},
        },
    });
    let frame = json!({
        "openapi": "3.0.0", "info": {"title": "Kubernetes", "version": "1.34"},
        "securitySchemes": {"BearerToken": {"type": "apiKey", "description": "b", "name": "authorization", "in": "header"}},
    });
    let mut document = V3Document::default();
    document.path("/x/{name}", &json!({"parameters": [name], "patch": operation}));
    document.schema("X", &definition);
    let bytes = document.finish(frame.as_object().unwrap().clone());
    assert_eq!(bytes.len(), 537);
    let hash = crate::discovery::hex_upper(&Sha256::digest(&bytes));
    assert_eq!(hash, "77BF88597B81360E0FCACF0711919C3898F859341152A74F74E6192521448619");
}
