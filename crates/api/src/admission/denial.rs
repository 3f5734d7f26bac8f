//! A refusal as a webhook words it.

use croft_meta::status::{Cause, Details};
use croft_meta::{ApiError, FieldPath};

/// Collects what is wrong, in the name of the webhook that would have said so.
#[derive(Debug)]
pub(crate) struct Denial {
    webhook: &'static str,
    causes: Vec<Cause>,
}

impl Denial {
    pub(crate) fn by(webhook: &'static str) -> Self {
        Self { webhook, causes: Vec::new() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.causes.is_empty()
    }

    /// `FieldValueInvalid`.
    pub(crate) fn invalid(&mut self, field: &FieldPath, message: impl Into<String>) {
        self.add("FieldValueInvalid", field, message);
    }

    /// `FieldValueRequired`.
    pub(crate) fn required(&mut self, field: &FieldPath, message: impl Into<String>) {
        self.add("FieldValueRequired", field, message);
    }

    /// `FieldValueDuplicate`.
    pub(crate) fn duplicate(&mut self, field: &FieldPath, message: impl Into<String>) {
        self.add("FieldValueDuplicate", field, message);
    }

    /// `FieldValueNotSupported`.
    pub(crate) fn not_supported(&mut self, field: &FieldPath, message: impl Into<String>) {
        self.add("FieldValueNotSupported", field, message);
    }

    pub(crate) fn add(&mut self, reason: &str, field: &FieldPath, message: impl Into<String>) {
        self.causes.push(Cause { reason: reason.to_owned(), message: message.into(), field: field.to_string() });
    }

    /// 422 with all causes, if there are any.
    pub(crate) fn finish(self) -> Result<(), ApiError> {
        if self.causes.is_empty() {
            return Ok(());
        }
        let messages: Vec<&str> = self.causes.iter().map(|cause| cause.message.as_str()).collect();
        let error = refuse(self.webhook, 422, "Invalid", &messages.join(", "));
        Err(error.with_details(Details { causes: self.causes, ..Details::default() }))
    }
}

/// A refusal that is not about fields.
pub(crate) fn refuse(webhook: &str, code: u16, reason: &'static str, message: &str) -> ApiError {
    ApiError::new(code, reason, format!("admission webhook \"{webhook}\" denied the request: {message}"))
}

/// A field further down: `below(&at, "domain.cpu")`.
pub(crate) fn below(at: &FieldPath, path: &str) -> FieldPath {
    if at.as_str().is_empty() { FieldPath::new(path) } else { FieldPath::new(format!("{at}.{path}")) }
}
