//! Mutating webhooks, one after the other; those that want to are asked once more if a later one changed the object.

use std::collections::BTreeSet;
use std::time::Instant;

use croft_meta::field::go_quote;
use croft_meta::{ApiError, object};
use serde_json::{Value, json};

use super::failure::Failure;
use super::hook::Chosen;
use super::review::Consent;
use super::{Attributes, Hooks};
use crate::{conversion, decode, prepare};

/// The second round is for hooks that ask for it; what it changes starts no third.
const ROUNDS: usize = 2;

/// Asked between the rounds if a hook has changed the object: policies may want to see what hooks make of their work. Says
/// whether it has changed it too.
pub(crate) type Between<'a> = &'a mut (dyn FnMut(&mut Value) -> Result<bool, ApiError> + Send);

impl Hooks {
    /// What the hooks make of the object. Without one (a deletion) they can only consent or refuse.
    pub(crate) async fn mutate(
        &self,
        attributes: &Attributes<'_>,
        mut object: Option<Value>,
        old: Option<&Value>,
        between: Between<'_>,
    ) -> Result<Option<Value>, ApiError> {
        let mut asked_so_far = BTreeSet::new();
        let mut wanted_again = BTreeSet::new();
        for round in 0..ROUNDS {
            let mut has_changed = false;
            for (index, chosen) in self.mutating.iter().enumerate() {
                if round > 0 && !wanted_again.contains(&index) {
                    continue;
                }
                let Some(result) = chosen.mutate_one(attributes, object.as_ref(), old).await? else { continue };
                chosen.note_mutation(attributes, round, index, &result);
                if let Mutation::Changed(changed) = result {
                    (object, has_changed) = (Some(changed), true);
                    wanted_again.append(&mut asked_so_far);
                }
                if chosen.hook.is_reinvoked {
                    asked_so_far.insert(index);
                }
            }
            if let Some(object) = object.as_mut().filter(|_| round == 0 && has_changed)
                && between(object)?
            {
                wanted_again.append(&mut asked_so_far);
            }
            if wanted_again.is_empty() {
                break;
            }
        }
        Ok(object)
    }
}

#[derive(Debug)]
enum Mutation {
    None,
    Changed(Value),
    /// It could not be asked, and nobody minds.
    FailedOpen,
}

impl Chosen {
    /// `None` if the hook does not apply to the object as it is by now.
    async fn mutate_one(
        &self,
        attributes: &Attributes<'_>,
        object: Option<&Value>,
        old: Option<&Value>,
    ) -> Result<Option<Mutation>, ApiError> {
        let Some(shown) = self.applies(attributes, object, old).await? else { return Ok(None) };
        let started = Instant::now();
        let answer = self.ask(attributes, &shown).await;
        let result = match answer {
            Ok(consent) => {
                let patched = self.patched(attributes, object, shown.object.as_deref(), &consent).await;
                patched.map_err(Failure::Useless)
            }
            Err(failure) => Err(failure),
        };
        Ok(Some(match self.settle(attributes, started, result)? {
            None => Mutation::FailedOpen,
            Some(None) => Mutation::None,
            Some(Some(changed)) => Mutation::Changed(changed),
        }))
    }

    /// The object with the hook's patch, in the version of the request and with its defaults; `None` if it is the same.
    async fn patched(
        &self,
        attributes: &Attributes<'_>,
        object: Option<&Value>,
        shown: Option<&Value>,
        consent: &Consent,
    ) -> Result<Option<Value>, ApiError> {
        let Some(patch) = &consent.patch else { return Ok(None) };
        let operations = croft_meta::json::parse(patch).map_err(ApiError::internal)?;
        if operations.as_array().is_some_and(Vec::is_empty) {
            return Ok(None);
        }
        let (Some(object), Some(shown)) = (object, shown) else {
            let name = go_quote(&self.hook.name);
            let text = format!(
                "admission webhook {name} attempted to modify the object, which is not supported for this operation"
            );
            return Err(ApiError::internal(text));
        };
        let mut patched = croft_apply::json_patch::apply(shown, patch).map_err(ApiError::internal)?;
        let wanted = self.kind.as_ref().unwrap_or(&attributes.kind);
        if object::gvk(&patched) != *wanted {
            let found = object::gvk(&patched);
            let text = format!("admission webhook {} turned {wanted} into {found}", go_quote(&self.hook.name));
            return Err(ApiError::internal(text));
        }
        if patched == *shown {
            return Ok(None);
        }
        if self.kind.is_some() {
            let server = &attributes.call.server;
            patched = conversion::value(server, attributes.target, patched, &attributes.kind).await?;
        }
        // What no field of the kind can hold is dropped, or is an error; then the patch may have made room for defaults.
        decode::conform(&attributes.target.served, &attributes.kind, &mut patched).map_err(ApiError::internal)?;
        if attributes.kind.kind == attributes.target.served.kind() {
            prepare::default(attributes.target, &mut patched);
        }
        keep_managed_fields(attributes, object, &mut patched);
        Ok(Some(patched))
    }

    fn note_mutation(&self, attributes: &Attributes<'_>, round: usize, index: usize, mutation: &Mutation) {
        let mutated = matches!(mutation, Mutation::Changed(_));
        let (configuration, webhook) = (&self.hook.configuration, &self.hook.name);
        let told = json!({ "configuration": configuration, "webhook": webhook, "mutated": mutated });
        let (trail, at) = (&attributes.call.trail, format!("round_{round}_index_{index}"));
        trail.annotated(format!("mutation.webhook.admission.k8s.io/{at}"), told.to_string());
        if matches!(mutation, Mutation::FailedOpen) {
            trail.annotated(format!("failed-open.mutation.webhook.admission.k8s.io/{at}"), webhook.clone());
        }
    }
}

/// A hook that does not know managed fields well may break them: then they stay as they were.
fn keep_managed_fields(attributes: &Attributes<'_>, before: &Value, after: &mut Value) {
    let is_entry = |entry: &Value| {
        let text = |field: &str| entry[field].as_str().unwrap_or_default();
        matches!(text("operation"), "Apply" | "Update")
            && !text("apiVersion").is_empty()
            && text("fieldsType") == "FieldsV1"
            && entry["fieldsV1"].is_object()
    };
    let is_good = match after.pointer("/metadata/managedFields") {
        None | Some(Value::Null) => true,
        Some(Value::Array(entries)) => entries.iter().all(is_entry),
        Some(_) => false,
    };
    if is_good {
        return;
    }
    let kept = before.pointer("/metadata/managedFields").cloned().unwrap_or_default();
    object::set_meta(after, "managedFields", kept);
    attributes.call.warn(
        ".metadata.managedFields was in an invalid state after admission; this could be caused by an outdated mutating \
         admission controller; please fix your requests",
    );
}
