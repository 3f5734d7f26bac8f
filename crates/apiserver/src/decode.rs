//! From a request body to an object: parse, check its type, drop or refuse what its schema does not know.

use croft_api::Resource;
use croft_meta::{ApiError, Gvk, object};
use croft_schema::Schema;
use serde_json::Value;

use crate::catalog::Served;
use crate::negotiate::{BodyFormat, body_format};
use crate::options::FieldValidation;

/// A parsed body and what strict validation would object to.
#[derive(Debug)]
pub(crate) struct Decoded {
    pub(crate) object: Value,
    pub(crate) complaints: Vec<String>,
}

/// Parses a body into JSON, whatever it is written in. Also says which fields stand there twice.
pub(crate) fn parse(body: &[u8], content_type: &str) -> Result<Decoded, ApiError> {
    match body_format(content_type)? {
        BodyFormat::Json => {
            let object = parse_json(body)?;
            Ok(Decoded { object, complaints: croft_schema::duplicate_fields(body) })
        }
        BodyFormat::Yaml => Ok(Decoded { object: parse_yaml(body)?, complaints: Vec::new() }),
        BodyFormat::Protobuf => {
            let (_, object) =
                croft_api::protobuf::decode_request(body).map_err(|e| ApiError::bad_request(e.to_string()))?;
            Ok(Decoded { object, complaints: Vec::new() })
        }
    }
}

fn parse_json(body: &[u8]) -> Result<Value, ApiError> {
    if body.is_empty() {
        return Err(ApiError::bad_request("couldn't get version/kind; json parse error: unexpected end of JSON input"));
    }
    let value: Value = serde_json::from_slice(body)
        .map_err(|e| ApiError::bad_request(format!("couldn't get version/kind; json parse error: {e}")))?;
    require_object(value)
}

/// YAML, of which JSON is a part.
pub(crate) fn parse_yaml(body: &[u8]) -> Result<Value, ApiError> {
    let text = std::str::from_utf8(body)
        .map_err(|e| ApiError::bad_request(format!("error decoding YAML: the body is not UTF-8: {e}")))?;
    // JSON first: it is what nearly all clients send, and its parser keeps whole numbers exact.
    if let Ok(value) = serde_json::from_str::<Value>(text) {
        return require_object(value);
    }
    let value: Value =
        serde_saphyr::from_str(text).map_err(|e| ApiError::bad_request(format!("error decoding YAML: {e}")))?;
    require_object(value)
}

fn require_object(value: Value) -> Result<Value, ApiError> {
    if value.is_object() {
        return Ok(value);
    }
    Err(ApiError::bad_request("couldn't get version/kind; json parse error: the body must be an object"))
}

/// Decodes the object of a POST or PUT. Complaints become warnings in `warnings`, or the error, as asked.
pub(crate) fn object(
    served: &Served,
    expected: &Gvk,
    body: &[u8],
    content_type: &str,
    validation: FieldValidation,
    warnings: &mut Vec<String>,
) -> Result<Value, ApiError> {
    let mut decoded = parse(body, content_type)?;
    check_type(&mut decoded.object, expected, served.resource.is_custom)?;
    let mut complaints = decoded.complaints;
    complaints.extend(conform(served, expected, &mut decoded.object).map_err(|text| {
        ApiError::bad_request(format!(
            "{} in version {:?} cannot be handled as a {}: {text}",
            expected.kind, expected.version, expected.kind
        ))
    })?);
    match validation {
        FieldValidation::Ignore => {}
        FieldValidation::Warn => warnings.append(&mut complaints),
        FieldValidation::Strict if complaints.is_empty() => {}
        FieldValidation::Strict => return Err(strict_error(expected, &complaints, served.resource.is_custom)),
    }
    Ok(decoded.object)
}

fn strict_error(expected: &Gvk, complaints: &[String], is_custom: bool) -> ApiError {
    let text = format!("strict decoding error: {}", complaints.join(", "));
    if is_custom {
        return ApiError::bad_request(text);
    }
    let Gvk { version, kind, .. } = expected;
    ApiError::bad_request(format!("{kind} in version {version:?} cannot be handled as a {kind}: {text}"))
}

/// The body's type must be the one of the URL. Built-in kinds may leave it out.
pub(crate) fn check_type(object: &mut Value, expected: &Gvk, is_custom: bool) -> Result<(), ApiError> {
    let given = object::gvk(object);
    if is_custom && given.kind.is_empty() {
        return Err(ApiError::bad_request(format!("Object 'Kind' is missing in '{}'", summary(object))));
    }
    if is_custom && given.version.is_empty() {
        return Err(ApiError::bad_request(format!("Object 'apiVersion' is missing in '{}'", summary(object))));
    }
    let version_differs =
        !given.version.is_empty() && (given.group != expected.group || given.version != expected.version);
    if version_differs {
        return Err(ApiError::bad_request(format!(
            "the API version in the data ({}) does not match the expected API version ({})",
            given.api_version(),
            expected.api_version()
        )));
    }
    if !given.kind.is_empty() && given.kind != expected.kind {
        return Err(ApiError::bad_request(format!(
            "{} in version {:?} cannot be handled as a {}: the kind does not match the one of the URL",
            given.kind, expected.version, expected.kind
        )));
    }
    object["apiVersion"] = Value::from(expected.api_version());
    object["kind"] = Value::from(expected.kind.as_str());
    Ok(())
}

/// The first bytes of an object, for messages.
fn summary(object: &Value) -> String {
    let text = object.to_string();
    text.chars().take(256).collect()
}

/// Makes the object fit its schema; returns what was dropped. An error is a type that cannot be.
pub(crate) fn conform(served: &Served, expected: &Gvk, object: &mut Value) -> Result<Vec<String>, String> {
    let resource: &Resource = &served.resource;
    // Subresource bodies (Scale, TokenRequest, Eviction, ...) bring their own kind and are checked where they are used.
    if expected.kind != resource.names.kind {
        return Ok(Vec::new());
    }
    let schema = &served.version().schema;
    if resource.is_custom {
        conform_custom(schema, object)
    } else {
        let unknown = croft_schema::decode(schema, object, &resource.names.kind)?;
        Ok(unknown.into_iter().map(|u| u.to_string()).collect())
    }
}

/// The metadata of a custom resource is typed like everyone's; the rest is pruned.
fn conform_custom(schema: &Schema, object: &mut Value) -> Result<Vec<String>, String> {
    let mut complaints = Vec::new();
    if let Some(metadata) = object.get_mut("metadata") {
        let unknown = croft_schema::decode(&croft_api::object_meta_schema(), metadata, "ObjectMeta")?;
        complaints.extend(unknown.into_iter().map(|u| format!("unknown field \"metadata.{}\"", u.path)));
    }
    complaints
        .extend(croft_schema::prune_resource(schema, object).into_iter().map(|path| format!("unknown field {path:?}")));
    Ok(complaints)
}
