//! The forms of answers: failures, collections, links.

use croft_meta::ApiError;
use http::HeaderValue;
use http::header::{HOST, RETRY_AFTER};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::answer::{self, Answer};
use crate::call::Call;

/// A failure in Steve's form.
pub(crate) fn failure(error: &ApiError) -> Answer {
    let code = match error.reason() {
        "" => "ServerError",
        reason => reason,
    };
    let body = json!({
        "type": "error", "links": {}, "status": error.code(), "code": code, "message": error.message(), "detail": "",
    });
    let mut answer = answer::json(error.code(), &body);
    let retry_after = error.details().map_or(0, |details| details.retry_after_seconds);
    if retry_after > 0 {
        answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from(retry_after));
    }
    answer
}

pub(super) fn no_schema(id: &str) -> ApiError {
    ApiError::new(404, "NotFound", format!("there is no schema {id:?}"))
}

/// 422, naming what is wrong with a body.
pub(super) fn invalid(code: &'static str, message: impl Into<String>) -> ApiError {
    ApiError::new(422, code, message)
}

/// The body of a request; empty reads as an empty object.
pub(super) fn body<T: DeserializeOwned>(call: &Call) -> Result<T, ApiError> {
    let bytes: &[u8] = if call.body.is_empty() { b"{}" } else { &call.body };
    serde_json::from_slice(bytes)
        .map_err(|error| invalid("InvalidBodyContent", format!("the body cannot be read: {error}")))
}

/// `https://host[:port]` as the client knows it.
pub(super) fn base(call: &Call) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | ':' | '[' | ']' | '_');
    match call.header(HOST) {
        host if !host.is_empty() && host.chars().all(is_plain) => format!("https://{host}"),
        _ => format!("https://{}", call.server.outside_address()),
    }
}

/// A collection that is all there.
pub(super) fn collection(call: &Call, resource_type: &str, data: &[Value]) -> Answer {
    let this = format!("{}{}", base(call), call.info.path);
    answer::json(
        200,
        &json!({
            "type": "collection", "resourceType": resource_type, "links": { "self": this }, "createTypes": {},
            "actions": {}, "count": data.len(), "pagination": { "limit": data.len(), "total": data.len() },
            "data": data,
        }),
    )
}
