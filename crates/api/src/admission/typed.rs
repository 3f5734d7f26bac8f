//! Objects as their structs.

use croft_meta::{ApiError, FieldPath};
use croft_schema::Schema;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::denial::refuse;

/// The object as its kind. `None` if its schema forbids it, which the API server is about to say in more detail.
pub(super) fn read<T>(object: &Value, webhook: &str) -> Result<Option<T>, ApiError>
where
    T: for<'de> Deserialize<'de> + JsonSchema,
{
    let error = match T::deserialize(object) {
        Ok(typed) => return Ok(Some(typed)),
        Err(error) => error,
    };
    let schema = Schema::from_json(&crate::shipped::schema::of::<T>()).map_err(ApiError::internal)?;
    if croft_schema::validate(&schema, object, &FieldPath::root(), None).is_empty() {
        // Nobody else would say it: parts of templates have no schema.
        return Err(refuse(webhook, 422, "Invalid", &error.to_string()));
    }
    Ok(None)
}
