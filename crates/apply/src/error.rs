//! Why a patch could not be applied.

use croft_meta::ApiError;
use croft_meta::status::Details;
use serde_json::Value;
use thiserror::Error;

/// The failure of a JSON, merge or strategic merge patch, by what the client is told.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PatchError {
    /// The patch itself makes no sense: 400.
    #[error("{0}")]
    Malformed(String),
    /// More operations than the server is willing to run: 413.
    #[error("{0}")]
    TooLarge(String),
    /// A sound patch that does not fit the object: 422, always with the same words. The text is
    /// for the log.
    #[error("{0}")]
    Rejected(String),
    /// What upstream answers with a bare 500: a patch whose parts contradict each other.
    #[error("{0}")]
    Failed(String),
}

impl From<PatchError> for ApiError {
    fn from(error: PatchError) -> Self {
        match error {
            PatchError::Malformed(text) => Self::bad_request(text),
            PatchError::TooLarge(text) => Self::too_large(text),
            // virtctl retries on exactly these words.
            PatchError::Rejected(_) => {
                Self::new(422, "Invalid", "the server rejected our request due to an error in our request")
                    .with_details(Details::default())
            }
            PatchError::Failed(text) => Self::new(500, "", text),
        }
    }
}

/// Decodes the body of a patch; a syntax error reads as Go's decoder puts it.
pub(crate) fn decode(body: &[u8]) -> Result<Value, String> {
    serde_json::from_slice(body).map_err(|err| {
        if err.is_eof() {
            return "unexpected end of JSON input".to_owned();
        }
        let text = err.to_string();
        let looking_for = match text.as_str() {
            t if t.starts_with("expected value") => "beginning of value",
            t if t.starts_with("trailing comma") || t.starts_with("key must be a string") => {
                "beginning of object key string"
            }
            _ => return text,
        };
        let line = body.split(|b| *b == b'\n').nth(err.line().saturating_sub(1)).unwrap_or_default();
        let culprit = line.get(err.column().saturating_sub(1)).copied().unwrap_or_default();
        format!("invalid character '{}' looking for {looking_for}", char::from(culprit))
    })
}
