//! Validating webhooks, all at once.

use std::time::Instant;

use croft_meta::ApiError;
use futures::future::join_all;
use serde_json::Value;

use super::{Attributes, Hooks};

impl Hooks {
    /// Asks all hooks about the object as it is to be stored. Of several refusals the first hook's is told.
    pub(crate) async fn validate(
        &self,
        attributes: &Attributes<'_>,
        object: Option<&Value>,
        old: Option<&Value>,
    ) -> Result<(), ApiError> {
        let mut calls = Vec::new();
        for (index, chosen) in self.validating.iter().enumerate() {
            let Some(shown) = chosen.applies(attributes, object, old).await? else { continue };
            calls.push(async move {
                let started = Instant::now();
                let answer = chosen.ask(attributes, &shown).await;
                let settled = chosen.settle(attributes, started, answer);
                if let Ok(None) = settled {
                    let key = format!("failed-open.validating.webhook.admission.k8s.io/round_0_index_{index}");
                    attributes.call.trail.annotated(key, chosen.hook.name.clone());
                }
                settled.map(drop)
            });
        }
        join_all(calls).await.into_iter().collect()
    }
}
