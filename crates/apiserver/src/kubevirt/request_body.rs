//! The options that come with a request: JSON or YAML, and no body means no options.

use croft_meta::ApiError;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::call::Call;
use crate::decode;

/// What `dryRun: ["All"]` asks for.
#[derive(Clone, Debug, Default, serde::Deserialize)]
#[serde(transparent)]
pub(super) struct DryRun(Option<Vec<String>>);

impl DryRun {
    pub(super) fn is_on(&self) -> Result<bool, ApiError> {
        let values = self.0.as_deref().unwrap_or_default();
        match values.iter().find(|value| *value != "All") {
            Some(value) => {
                Err(ApiError::bad_request(format!("dryRun: Unsupported value: {value:?}: supported: \"All\"")))
            }
            None => Ok(!values.is_empty()),
        }
    }
}

/// The options; those that are not given are as `T` has them by default.
pub(super) fn options<T: DeserializeOwned + Default>(call: &Call) -> Result<T, ApiError> {
    match value(call)? {
        Value::Null => Ok(T::default()),
        value => serde_json::from_value(value).map_err(unreadable),
    }
}

/// The body itself; null if there is none.
pub(super) fn value(call: &Call) -> Result<Value, ApiError> {
    if call.body.iter().all(u8::is_ascii_whitespace) {
        return Ok(Value::Null);
    }
    croft_meta::json::parse(&call.body)
        .or_else(|_| decode::parse_yaml(&call.body))
        .map_err(|error| unreadable(error.message()))
}

fn unreadable(error: impl std::fmt::Display) -> ApiError {
    ApiError::bad_request(format!("Can not unmarshal Request body to struct, error: {error}"))
}
