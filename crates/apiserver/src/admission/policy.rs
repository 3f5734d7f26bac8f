//! Admission by policies: ValidatingAdmissionPolicy and MutatingAdmissionPolicy, with their bindings.
//!
//! Policies are compiled once per change into an [`Index`], made anew by the first write after a change; a write asks which
//! of them match it ([`matching`]), finds their parameters ([`params`]) and evaluates them ([`validating`], [`mutating`]).
//! Everything is done in memory and its work is bounded, so that it runs where the write is decided.
//!
//! Policies, bindings and webhook configurations are not subject to policies, or a mistake in one could not be undone.

mod authorizer;
mod index;
mod matching;
mod mutating;
mod params;
mod request;
mod validating;

use std::sync::Arc;

use arc_swap::ArcSwap;
use croft_meta::{ApiError, Gvk, object};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::cache::Cache;
use crate::call::{Call, Target};
use crate::{decode, prepare};

use index::{Index, Sources};
use request::Request;

const GROUP: &str = "admissionregistration.k8s.io";

/// All policies, as of the last look.
#[derive(Debug)]
pub(crate) struct Policies {
    sources: Sources,
    index: ArcSwap<Index>,
    /// Held while the index is made, so that a change is compiled once however many requests wait for it.
    rebuilding: Mutex<()>,
}

impl Policies {
    pub(crate) fn new(cache: &Cache) -> Self {
        Self { sources: Sources::of(cache), index: ArcSwap::from_pointee(Index::default()), rebuilding: Mutex::new(()) }
    }

    fn index(&self) -> Arc<Index> {
        let current = self.index.load_full();
        if current.is_of(&self.sources.changed_at()) {
            return current;
        }
        let _rebuilding = self.rebuilding.lock();
        let previous = self.index.load_full();
        // Read before the objects: a change in between is then seen as one and the index made once more.
        let changed_at = self.sources.changed_at();
        if previous.is_of(&changed_at) {
            return previous;
        }
        let index = Arc::new(Index::build(&self.sources, changed_at, &previous));
        self.index.store(Arc::clone(&index));
        index
    }
}

/// Before an object is admitted by anything else: changes it as the mutating policies say.
pub(crate) fn mutate(
    call: &Call,
    target: &Target,
    new: &mut Value,
    old: Option<&Value>,
    dry_run: bool,
) -> Result<(), ApiError> {
    if is_exempt(call, target) {
        return Ok(());
    }
    let index = call.server.policies.index();
    // What a scale is made of is not what was sent.
    if index.mutating.is_empty() || request::subresource(call, target) == "scale" {
        return Ok(());
    }
    // Without its namespace nothing is created, which is told later.
    let namespaces = call.server.cache.collection("core/namespaces");
    if !target.namespace.is_empty() && namespaces.get(&target.namespace).is_none() {
        return Ok(());
    }
    let Some(mutated) = mutating::run(&index.mutating, &Request::new(call, target, Some(new), old, dry_run))? else {
        return Ok(());
    };
    let before = std::mem::replace(new, mutated);
    keep_identity(new, &before);
    let gvk = target.gvk();
    decode::conform(&target.served, &gvk, new).map_err(|why| {
        let Gvk { version, kind, .. } = &gvk;
        ApiError::new(500, "", format!("{kind} in version {version:?} cannot be handled as a {kind}: {why}"))
    })?;
    prepare::default(target, new);
    Ok(())
}

/// After everything else has agreed: what the validating policies say. `new` is `None` for a deletion.
pub(crate) fn validate(
    call: &Call,
    target: &Target,
    new: Option<&Value>,
    old: Option<&Value>,
    dry_run: bool,
) -> Result<(), ApiError> {
    if is_exempt(call, target) {
        return Ok(());
    }
    let index = call.server.policies.index();
    if index.validating.is_empty() {
        return Ok(());
    }
    validating::run(&index.validating, &Request::new(call, target, new, old, dry_run))
}

/// What a policy's status tells once it is in force, which is as soon as it is stored.
pub(crate) fn observe(policy: &mut Value) {
    let generation = object::generation(policy);
    if !policy["status"].is_object() {
        policy["status"] = json!({});
    }
    policy["status"]["observedGeneration"] = json!(generation);
    policy["status"]["typeChecking"] = json!({});
}

fn is_exempt(call: &Call, target: &Target) -> bool {
    // What every server starts with must not hang on what somebody has stored.
    target.group() == GROUP || target.served.resource.is_virtual || !call.server.is_ready()
}

/// A policy does not make one object another.
fn keep_identity(new: &mut Value, before: &Value) {
    for field in ["apiVersion", "kind"] {
        new[field] = before[field].clone();
    }
    for field in ["name", "generateName", "namespace", "uid", "resourceVersion", "creationTimestamp", "managedFields"] {
        object::set_meta(new, field, before["metadata"][field].clone());
    }
}
