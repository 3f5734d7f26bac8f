//! Why a patch could not be applied.

use croft_meta::ApiError;
use croft_meta::status::Details;
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
