//! What the server answers: bodies, and failures as `metav1.Status`.

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use serde::Serialize;
use serde_json::json;

pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;
pub(crate) type Body = UnsyncBoxBody<Bytes, BoxError>;

/// A refusal, as the user will read it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(crate) struct Failure {
    pub(crate) code: StatusCode,
    reason: &'static str,
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn new(code: StatusCode, message: impl Into<String>) -> Self {
        let reason = match code {
            StatusCode::BAD_REQUEST => "BadRequest",
            StatusCode::FORBIDDEN => "Forbidden",
            StatusCode::NOT_FOUND => "NotFound",
            StatusCode::METHOD_NOT_ALLOWED => "MethodNotAllowed",
            StatusCode::CONFLICT => "Conflict",
            StatusCode::PAYLOAD_TOO_LARGE => "RequestEntityTooLarge",
            StatusCode::UNPROCESSABLE_ENTITY => "Invalid",
            StatusCode::SERVICE_UNAVAILABLE => "ServiceUnavailable",
            StatusCode::GATEWAY_TIMEOUT => "Timeout",
            _ => "InternalError",
        };
        Self { code, reason, message: message.into() }
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, message)
    }

    /// The state of an instance does not allow it; the words around the message are Kubernetes'.
    pub(crate) fn conflict(name: &str, message: &str) -> Self {
        let resource = "virtualmachineinstance.kubevirt.io";
        Self::new(StatusCode::CONFLICT, format!("Operation cannot be fulfilled on {resource} \"{name}\": {message}"))
    }

    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, message)
    }
}

pub(crate) fn failure(failure: &Failure) -> Response<Body> {
    let status = json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": failure.message,
        "reason": failure.reason,
        "code": failure.code.as_u16(),
    });
    with_type(failure.code, "application/json", status.to_string())
}

pub(crate) fn empty() -> Response<Body> {
    Response::new(full(Bytes::new()))
}

pub(crate) fn text(text: impl Into<Bytes>) -> Response<Body> {
    with_type(StatusCode::OK, "text/plain; charset=utf-8", text)
}

pub(crate) fn json_of(value: &impl Serialize) -> Result<Response<Body>, Failure> {
    let text = serde_json::to_vec(value).map_err(|error| Failure::internal(error.to_string()))?;
    Ok(with_type(StatusCode::OK, "application/json", text))
}

pub(crate) fn with_type(code: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(full(body));
    *response.status_mut() = code;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

pub(crate) fn full(body: impl Into<Bytes>) -> Body {
    Full::new(body.into()).map_err(|never| match never {}).boxed_unsync()
}
