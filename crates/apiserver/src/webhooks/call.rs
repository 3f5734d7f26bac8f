//! Asks one webhook, and settles what its answer, or its silence, means.

use std::time::Instant;

use croft_meta::ApiError;
use croft_meta::field::go_quote;

use super::Attributes;
use super::applies::Shown;
use super::failure::{self, Failure};
use super::hook::Chosen;
use super::remote::RemoteError;
use super::review::{self, Consent, Remarks};
use crate::metrics::webhooks::Asked;

/// What all warnings of one answer may take, and what a longer one is cut to; upstream's limits.
const WARNINGS_MAX_CHARS: usize = 4 << 10;
const WARNING_CUT_CHARS: usize = 256;
/// What one answer may add to the audit log.
const MOST_ANNOTATIONS: usize = 16;

impl Chosen {
    pub(super) async fn ask(&self, attributes: &Attributes<'_>, shown: &Shown<'_>) -> Result<Consent, Failure> {
        let hook = &self.hook;
        if attributes.dry_run && hook.has_side_effects {
            let text = format!("admission webhook {} does not support dry run", go_quote(&hook.name));
            return Err(Failure::Useless(ApiError::bad_request(text)));
        }
        let uid = uuid::Uuid::new_v4().to_string();
        let body = review::body(hook, &uid, &attributes.request(self), shown);
        let answer = hook.remote.post(&attributes.call.server.cache, body.into(), hook.timeout).await;
        let answer = answer.map_err(|error| match error {
            RemoteError::Unusable(_) => Failure::Calling { reason: error.to_string(), code: error.code() },
            _ => Failure::call(&error, error.code()),
        })?;
        let mut remarks = Remarks::default();
        let read = review::read(hook, &uid, &answer, &mut remarks);
        self.pass_on(attributes, remarks);
        read
    }

    fn pass_on(&self, attributes: &Attributes<'_>, remarks: Remarks) {
        let mut room = WARNINGS_MAX_CHARS;
        for warning in remarks.warnings {
            let is_long = warning.chars().count() > room;
            let text: String = if is_long { warning.chars().take(WARNING_CUT_CHARS).collect() } else { warning };
            let Some(left) = room.checked_sub(text.chars().count()) else { break };
            room = left;
            attributes.call.warn(text);
        }
        for (key, text) in remarks.annotations.into_iter().take(MOST_ANNOTATIONS) {
            attributes.call.trail.annotated(format!("{}/{key}", self.hook.name), text);
        }
    }

    /// Counts the answer. `Ok(None)` if the webhook could not be asked and nobody minds.
    pub(super) fn settle<T>(
        &self,
        attributes: &Attributes<'_>,
        started: Instant,
        result: Result<T, Failure>,
    ) -> Result<Option<T>, ApiError> {
        let hook = &self.hook;
        let metrics = &attributes.call.server.webhooks.metrics;
        let asked = Asked { name: &hook.name, stage: hook.stage.name(), operation: attributes.operation.name() };
        let took = started.elapsed();
        let failure = match result {
            Ok(answer) => {
                metrics.answered(&asked, took, 200, false);
                return Ok(Some(answer));
            }
            Err(failure) => failure,
        };
        let (label, code) = failure.label();
        let is_ignored = matches!(failure, Failure::Calling { .. }) && hook.fails_open;
        metrics.answered(&asked, took, code, !is_ignored);
        if !is_ignored {
            metrics.rejected(&asked, label, code);
        }
        match failure {
            Failure::Calling { reason, .. } if is_ignored => {
                tracing::warn!(webhook = hook.name, error = reason, "a webhook failed and was passed over");
                metrics.failed_open(&asked);
                Ok(None)
            }
            Failure::Calling { reason, .. } => {
                tracing::warn!(webhook = hook.name, error = reason, "a webhook failed");
                Err(failure::calling(&hook.name, &reason))
            }
            Failure::Denied(error) | Failure::Useless(error) => Err(error),
        }
    }
}
