//! How asking a webhook can end badly.

use croft_meta::ApiError;
use croft_meta::field::go_quote;
use croft_meta::status::Details;
use serde::Deserialize as _;
use serde_json::Value;

/// What came of a webhook instead of its consent.
#[derive(Debug)]
pub(super) enum Failure {
    /// It could not be asked, or its answer could not be understood: its failure policy decides.
    Calling { reason: String, code: u16 },
    /// It said no.
    Denied(ApiError),
    /// What it said cannot be done.
    Useless(ApiError),
}

impl Failure {
    /// The call itself failed.
    pub(super) fn call(reason: impl std::fmt::Display, code: u16) -> Self {
        Self::Calling { reason: format!("failed to call webhook: {reason}"), code }
    }

    /// Its answer makes no sense.
    pub(super) fn answer(reason: impl std::fmt::Display) -> Self {
        Self::Calling { reason: format!("received invalid webhook response: {reason}"), code: 503 }
    }

    /// As metrics label it.
    pub(super) fn label(&self) -> (&'static str, u16) {
        match self {
            Self::Calling { code, .. } => ("calling_webhook_error", *code),
            Self::Denied(error) => ("no_error", error.code()),
            Self::Useless(_) => ("apiserver_internal_error", 0),
        }
    }
}

/// `Internal error occurred: failed calling webhook "x": ...`.
pub(super) fn calling(webhook: &str, reason: &str) -> ApiError {
    ApiError::internal(format!("failed calling webhook {}: {reason}", go_quote(webhook)))
}

/// A webhook's own status, made a refusal whatever it says.
pub(super) fn denied(webhook: &str, status: Option<&Value>) -> ApiError {
    let status = status.unwrap_or(&Value::Null);
    let by = format!("admission webhook {} denied the request", go_quote(webhook));
    let text = |field: &str| status[field].as_str().unwrap_or_default();
    let (message, reason) = (text("message"), text("reason"));
    let message = match (message, reason) {
        ("", "") => format!("{by} without explanation"),
        ("", reason) => format!("{by}: {reason}"),
        (message, _) => format!("{by}: {message}"),
    };
    let code =
        status["code"].as_u64().and_then(|code| u16::try_from(code).ok()).filter(|code| (400..600).contains(code));
    let error = ApiError::new(code.unwrap_or(400), reason.to_owned(), message);
    match Details::deserialize(&status["details"]) {
        Ok(details) => error.with_details(details),
        Err(_) => error,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_refusal_says_who_refuses_and_why() {
        let table = [
            (json!(null), 400, "", "without explanation"),
            (json!({"message": "no"}), 400, "", ": no"),
            (json!({"reason": "Forbidden", "code": 403}), 403, "Forbidden", ": Forbidden"),
            (json!({"message": "no", "reason": "OwnWords", "code": 422}), 422, "OwnWords", ": no"),
            // A refusal is never a success.
            (json!({"message": "no", "code": 200, "status": "Success"}), 400, "", ": no"),
        ];
        for (status, code, reason, end) in table {
            let error = denied("a.b.c", Some(&status));
            assert_eq!((error.code(), error.reason()), (code, reason), "{status}");
            let start = r#"admission webhook "a.b.c" denied the request"#;
            assert!(error.message().starts_with(start) && error.message().ends_with(end), "{}", error.message());
        }
        let causes = json!({"details": {"causes": [{"field": "spec", "message": "bad"}]}});
        assert_eq!(denied("a", Some(&causes)).details().map(|details| details.causes.len()), Some(1));
    }
}
