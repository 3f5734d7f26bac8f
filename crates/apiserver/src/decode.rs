//! From a request body to an object: parse, check its type, drop or refuse what its schema does not know.

use croft_api::Resource;
use croft_meta::{ApiError, Gvk, json, object};
use croft_schema::Schema;
use serde_json::Value;

use crate::call::{Call, Target};
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
    parse_or_explain(body, content_type)?.map_err(ApiError::bad_request)
}

/// As [`parse`], for a body that should be a `kind`: the error shows how it begins.
fn parse_as(kind: &str, body: &[u8], content_type: &str) -> Result<Decoded, ApiError> {
    parse_or_explain(body, content_type)?.map_err(|why| unrecognized(kind, &why, body))
}

fn unrecognized(kind: &str, why: &str, body: &[u8]) -> ApiError {
    let beginning = beginning(body);
    ApiError::bad_request(format!("the object provided is unrecognized (must be of type {kind}): {why} ({beginning})"))
}

/// The first bytes of a body: as text if it looks like JSON, else in hexadecimal.
fn beginning(body: &[u8]) -> String {
    const SHOWN: usize = 30;
    if body.is_empty() {
        return "<empty>".to_owned();
    }
    let cut = &body[..body.len().min(SHOWN)];
    let text = if body[0] == b'{' {
        String::from_utf8_lossy(cut).into_owned()
    } else {
        cut.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
    };
    if body.len() > SHOWN { format!("{text} ...") } else { text }
}

/// The outer error is a content type that nobody reads, the inner one a body that is not what it says.
fn parse_or_explain(body: &[u8], content_type: &str) -> Result<Result<Decoded, String>, ApiError> {
    let parsed = match body_format(content_type)? {
        BodyFormat::Json => {
            parse_json(body).map(|object| Decoded { object, complaints: croft_schema::duplicate_fields(body) })
        }
        BodyFormat::Yaml => parse_yaml(body)
            .map(|object| Decoded { object, complaints: Vec::new() })
            .map_err(|e| e.message().to_owned()),
        BodyFormat::Protobuf if body.is_empty() => Err("empty data".to_owned()),
        BodyFormat::Protobuf => croft_api::protobuf::decode_request(body)
            .map(|(_, object)| Decoded { object, complaints: Vec::new() })
            .map_err(|e| e.to_string()),
    };
    Ok(parsed
        .and_then(|decoded| if is_too_deep(&decoded.object) { Err(json::TOO_DEEP.to_owned()) } else { Ok(decoded) }))
}

/// What is nested more deeply than JSON is read could be stored, and never be read again.
fn is_too_deep(object: &Value) -> bool {
    json::is_deeper_than(object, json::MAX_DEPTH)
}

fn parse_json(body: &[u8]) -> Result<Value, String> {
    let wrap = |why: String| format!("couldn't get version/kind; json parse error: {why}");
    let what = match json::parse(body).map_err(wrap)? {
        // Nothing at all is an object with nothing in it.
        Value::Null => return Ok(Value::Object(serde_json::Map::new())),
        object @ Value::Object(_) => return Ok(object),
        other => json::go_kind(&other),
    };
    Err(wrap(format!(
        "json: cannot unmarshal {what} into Go value of type struct {{ APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; \
         Kind string \"json:\\\"kind,omitempty\\\"\" }}"
    )))
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
    if is_too_deep(&value) {
        return Err(ApiError::bad_request(format!("error decoding YAML: {}", json::TOO_DEEP)));
    }
    if value.is_object() {
        return Ok(value);
    }
    Err(ApiError::bad_request("couldn't get version/kind; json parse error: the body must be an object"))
}

/// The object that a POST or PUT brings. Complaints become warnings, or the error, as asked.
pub(crate) fn object(call: &Call, target: &Target, validation: FieldValidation) -> Result<Value, ApiError> {
    let (served, expected) = (&target.served, &target.gvk());
    let (body, content_type) = (&call.body, call.content_type());
    if served.resource.is_custom && body_format(content_type)? == BodyFormat::Protobuf {
        return Err(ApiError::unsupported_media_type(
            "custom resources have no protobuf form - accepted media types include: application/json, application/yaml",
        ));
    }
    let mut decoded = parse_as(&expected.kind, body, content_type)?;
    if served.resource.is_custom {
        check_custom_type(&decoded.object, expected, body)?;
    }
    check_type(&mut decoded.object, expected)?;
    let mut complaints = decoded.complaints;
    complaints.extend(conform(served, expected, &mut decoded.object).map_err(|text| {
        ApiError::bad_request(format!(
            "{} in version {:?} cannot be handled as a {}: {text}",
            expected.kind, expected.version, expected.kind
        ))
    })?);
    match validation {
        FieldValidation::Ignore => {}
        FieldValidation::Warn => complaints.into_iter().for_each(|text| call.warn(text)),
        FieldValidation::Strict if complaints.is_empty() => {}
        FieldValidation::Strict => return Err(strict_error(expected, &complaints)),
    }
    Ok(decoded.object)
}

fn strict_error(expected: &Gvk, complaints: &[String]) -> ApiError {
    let Gvk { version, kind, .. } = expected;
    let text = complaints.join(", ");
    ApiError::bad_request(format!(
        "{kind} in version {version:?} cannot be handled as a {kind}: strict decoding error: {text}"
    ))
}

/// The body's type must be the one of the URL. Built-in kinds may leave it out.
pub(crate) fn check_type(object: &mut Value, expected: &Gvk) -> Result<(), ApiError> {
    let given = object::gvk(object);
    let mismatch = |why: &str| {
        let version = if given.version.is_empty() { &expected.version } else { &given.version };
        ApiError::bad_request(format!(
            "{} in version {version:?} cannot be handled as a {}: {why}",
            given.kind, expected.kind
        ))
    };
    if !given.version.is_empty() && given.group_version() != expected.group_version() {
        return Err(ApiError::bad_request(format!(
            "the API version in the data ({}) does not match the expected API version ({})",
            given.api_version(),
            expected.api_version()
        )));
    }
    if !given.kind.is_empty() && given.kind != expected.kind {
        return Err(mismatch("the kind does not match the one of the URL"));
    }
    object["apiVersion"] = Value::from(expected.api_version());
    object["kind"] = Value::from(expected.kind.as_str());
    Ok(())
}

/// A custom resource must say what it is.
fn check_custom_type(object: &Value, expected: &Gvk, body: &[u8]) -> Result<(), ApiError> {
    let given = object::gvk(object);
    let missing = |field: &str| {
        unrecognized(&expected.kind, &format!("Object '{field}' is missing in '{}'", summary(object)), body)
    };
    if given.kind.is_empty() {
        return Err(missing("Kind"));
    }
    if given.version.is_empty() {
        return Err(missing("apiVersion"));
    }
    if given.kind != expected.kind && given.group_version() == expected.group_version() {
        let path = croft_meta::FieldPath::new("kind");
        let error = croft_meta::FieldError::invalid(&path, given.kind.as_str(), format!("must be {}", expected.kind));
        return Err(ApiError::invalid(&given.group, &given.kind, object::name(object), &vec![error]));
    }
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

/// `3.0` is `3`, as in Go, which writes a number without the fraction that it does not have.
fn whole_numbers(value: &mut Value) {
    // Beyond this a float holds no fractions, and not every integer either.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    match value {
        Value::Object(map) => map.values_mut().for_each(whole_numbers),
        Value::Array(list) => list.iter_mut().for_each(whole_numbers),
        Value::Number(number) if number.is_f64() => {
            let float = number.as_f64().unwrap_or_default();
            if float.fract() == 0.0 && float.abs() <= EXACT {
                // Lossless within these bounds.
                #[expect(clippy::cast_possible_truncation)]
                let whole = float as i64;
                *number = whole.into();
            }
        }
        _ => {}
    }
}

/// The metadata of a custom resource is typed like everyone's, and so is that of resources in it; the rest is pruned.
fn conform_custom(schema: &Schema, object: &mut Value) -> Result<Vec<String>, String> {
    whole_numbers(object);
    let mut complaints = Vec::new();
    if let Some(metadata) = object.get_mut("metadata") {
        let unknown = croft_schema::decode(&croft_api::object_meta_schema(), metadata, "ObjectMeta")?;
        complaints.extend(unknown.into_iter().map(|u| format!("unknown field \"metadata.{}\"", u.path)));
    }
    croft_schema::each_embedded_metadata(schema, object, &mut |path, metadata| {
        let mut typed = metadata.clone();
        // What is of another type is left for validation to complain about.
        let Ok(unknown) = croft_schema::decode(&croft_api::object_meta_schema(), &mut typed, "ObjectMeta") else {
            return;
        };
        complaints.extend(unknown.into_iter().map(|unknown| format!("unknown field \"{path}.{}\"", unknown.path)));
        *metadata = typed;
    });
    complaints
        .extend(croft_schema::prune_resource(schema, object).into_iter().map(|path| format!("unknown field {path:?}")));
    Ok(complaints)
}
