//! `metav1.Status`: the one shape in which every failure reaches a client.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::field::{FieldErrors, go_quote, join_errors};
use crate::gvk::group_resource;

/// One detail of a failure.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cause {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub field: String,
}

/// What the failure is about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Details {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// A kind for `Invalid`, a resource for the others: upstream is inconsistent, and clients know.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub kind: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<Cause>,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub retry_after_seconds: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_zero(n: &u32) -> bool {
    *n == 0
}

/// A failed request. Boxed so that `Result<T, ApiError>` stays small.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiError(Box<Inner>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Inner {
    code: u16,
    /// Nearly always one of Kubernetes' own; a webhook may say another.
    reason: Cow<'static, str>,
    message: String,
    details: Option<Details>,
    /// Where a list can go on all the same; empty for none.
    continue_token: String,
}

impl std::error::Error for ApiError {}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl ApiError {
    pub fn new(code: u16, reason: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        let (reason, message) = (reason.into(), message.into());
        Self(Box::new(Inner { code, reason, message, details: None, continue_token: String::new() }))
    }

    #[must_use]
    pub fn with_details(mut self, details: Details) -> Self {
        self.0.details = Some(details);
        self
    }

    /// The list can go on with this, though not as of the moment that it began.
    #[must_use]
    pub fn with_continue(mut self, token: String) -> Self {
        self.0.continue_token = token;
        self
    }

    fn about(self, group: &str, kind: &str, name: &str) -> Self {
        self.with_details(Details {
            name: name.to_owned(),
            group: group.to_owned(),
            kind: kind.to_owned(),
            ..Details::default()
        })
    }

    pub fn code(&self) -> u16 {
        self.0.code
    }

    pub fn reason(&self) -> &str {
        &self.0.reason
    }

    pub fn message(&self) -> &str {
        &self.0.message
    }

    pub fn details(&self) -> Option<&Details> {
        self.0.details.as_ref()
    }

    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    pub fn unauthorized() -> Self {
        Self::new(401, "Unauthorized", "Unauthorized")
    }

    /// `pods "a" is forbidden: <why>`.
    pub fn forbidden(group: &str, resource: &str, name: &str, why: impl fmt::Display) -> Self {
        let subject = match (resource, name) {
            ("", _) => "forbidden".to_owned(),
            (_, "") => format!("{} is forbidden", group_resource(group, resource)),
            _ => format!("{} {} is forbidden", group_resource(group, resource), go_quote(name)),
        };
        Self::new(403, "Forbidden", format!("{subject}: {why}")).about(group, resource, name)
    }

    /// The object does not exist.
    pub fn not_found(group: &str, resource: &str, name: &str) -> Self {
        Self::new(404, "NotFound", format!("{} {} not found", group_resource(group, resource), go_quote(name)))
            .about(group, resource, name)
    }

    /// The path itself names nothing that is served.
    pub fn no_such_path() -> Self {
        Self::new(404, "NotFound", "the server could not find the requested resource").with_details(Details::default())
    }

    pub fn method_not_allowed(group: &str, resource: &str, action: &str) -> Self {
        Self::new(
            405,
            "MethodNotAllowed",
            format!("{action} is not supported on resources of kind \"{}\"", group_resource(group, resource)),
        )
        .about(group, resource, "")
    }

    pub fn not_acceptable(message: impl Into<String>) -> Self {
        Self::new(406, "NotAcceptable", message)
    }

    pub fn already_exists(group: &str, resource: &str, name: &str) -> Self {
        Self::new(
            409,
            "AlreadyExists",
            format!("{} {} already exists", group_resource(group, resource), go_quote(name)),
        )
        .about(group, resource, name)
    }

    pub fn conflict(group: &str, resource: &str, name: &str, why: impl fmt::Display) -> Self {
        Self::new(
            409,
            "Conflict",
            format!("Operation cannot be fulfilled on {} {}: {why}", group_resource(group, resource), go_quote(name)),
        )
        .about(group, resource, name)
    }

    /// The conflict of a stale `resourceVersion`.
    pub fn modified(group: &str, resource: &str, name: &str) -> Self {
        Self::conflict(
            group,
            resource,
            name,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    /// A watch or list from a revision that history no longer holds.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    pub fn too_large(why: impl fmt::Display) -> Self {
        Self::new(413, "RequestEntityTooLarge", format!("Request entity too large: {why}"))
    }

    pub fn unsupported_media_type(message: impl Into<String>) -> Self {
        Self::new(415, "UnsupportedMediaType", message)
    }

    /// 422 with one cause per field. `kind` is the kind, not the resource.
    pub fn invalid(group: &str, kind: &str, name: &str, errors: &FieldErrors) -> Self {
        let causes = errors
            .iter()
            .map(|e| Cause { reason: e.kind.reason().to_owned(), message: e.body(), field: e.field.to_string() })
            .collect();
        let list = join_errors(errors);
        let qualified = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
        Self::new(422, "Invalid", format!("{qualified} {} is invalid: {list}", go_quote(name))).with_details(Details {
            name: name.to_owned(),
            group: group.to_owned(),
            kind: kind.to_owned(),
            causes,
            ..Details::default()
        })
    }

    pub fn too_many_requests(message: impl Into<String>, retry_after_seconds: u32) -> Self {
        Self::new(429, "TooManyRequests", message).with_details(Details { retry_after_seconds, ..Details::default() })
    }

    pub fn internal(message: impl fmt::Display) -> Self {
        let message = message.to_string();
        Self::new(500, "InternalError", format!("Internal error occurred: {message}"))
            .with_details(Details { causes: vec![Cause { message, ..Cause::default() }], ..Details::default() })
    }

    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(503, "ServiceUnavailable", message)
    }

    pub fn timeout(why: impl fmt::Display, retry_after_seconds: u32) -> Self {
        Self::new(504, "Timeout", format!("Timeout: {why}"))
            .with_details(Details { retry_after_seconds, ..Details::default() })
    }

    /// The body that goes to the client.
    pub fn to_status(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.0.message, "code": self.0.code,
        });
        if !self.0.reason.is_empty() {
            status["reason"] = json!(self.0.reason);
        }
        if let Some(details) = &self.0.details {
            status["details"] = json!(details);
        }
        if !self.0.continue_token.is_empty() {
            status["metadata"]["continue"] = json!(self.0.continue_token);
        }
        status
    }
}
