//! Where a list that was cut short goes on.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use croft_meta::{ApiError, Revision};
use serde::{Deserialize, Serialize};

const VERSION: &str = "meta.k8s.io/v1";

/// In a token: the moment that the list began at is forgotten, it goes on with another. As upstream.
const NOW: i64 = -1;

/// Where the next page starts. Clients treat it as opaque.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Token {
    #[serde(rename = "v")]
    version: String,
    /// [`NOW`] where the list goes on with what is there when it is asked for.
    #[serde(rename = "rv")]
    revision: i64,
    pub(super) start: String,
    /// How many objects earlier pages held, so that the rest can be counted without walking it.
    #[serde(rename = "n", default)]
    pub(super) served: usize,
    /// How many there are in all, where nothing is selected.
    #[serde(rename = "t", default)]
    pub(super) total: Option<usize>,
}

impl Token {
    pub(super) fn decode(text: &str) -> Result<Self, ApiError> {
        let invalid =
            |why: String| ApiError::bad_request(format!("invalid continue token: continue key is not valid: {why}"));
        let bytes = URL_SAFE_NO_PAD.decode(text.trim_end_matches('=')).map_err(|e| invalid(e.to_string()))?;
        let token = croft_meta::json::parse(&bytes).map_err(invalid)?;
        let token: Self = serde_json::from_value(token).map_err(|e| invalid(e.to_string()))?;
        if token.version != VERSION {
            return Err(invalid(format!("server does not recognize this encoded version {}", token.version)));
        }
        if token.revision == 0 {
            return Err(invalid(format!("incorrect encoded start resourceVersion (version {VERSION})")));
        }
        if token.start.contains("..") || token.start.starts_with('/') {
            return Err(invalid(token.start));
        }
        Ok(token)
    }

    /// The first page, of whatever moment.
    pub(super) fn start() -> Self {
        Self { version: VERSION.to_owned(), revision: 0, start: String::new(), served: 0, total: None }
    }

    /// What comes after the object of this id, as of then.
    pub(super) fn after(id: &str, revision: Revision, served: usize, total: Option<usize>) -> Self {
        let revision = i64::try_from(revision.0).unwrap_or(i64::MAX);
        Self { version: VERSION.to_owned(), revision, start: id.to_owned(), served, total }
    }

    /// The same place, in whatever is there when it is asked for.
    pub(super) fn of_now(self) -> Self {
        Self { revision: NOW, total: None, ..self }
    }

    /// That which the list began at, if it goes on with that.
    pub(super) fn moment(&self) -> Option<Revision> {
        u64::try_from(self.revision).ok().filter(|revision| *revision > 0).map(Revision)
    }

    pub(super) fn encode(&self) -> String {
        URL_SAFE_NO_PAD.encode(serde_json::to_vec(self).unwrap_or_default())
    }
}
