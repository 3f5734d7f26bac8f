//! The one road by which objects change.
//!
//! A writer is a function from the current object to a [`Decision`]. It may run several times:
//! the decision is committed only if the object is still the one it was made for. The first try
//! works on the cache, which may lag behind the store by a moment; a refusal or a "nothing to do"
//! is believed only once the cache is known to be fresh.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use croft_meta::{ApiError, Gvk, Revision, object};
use croft_store::{Compare, LeaseId, Op, Txn, TxnResult};
use serde_json::Value;

use crate::admission::quota::booking::{Booking, Quotas};
use crate::cache::{self, Object, store_error};
use crate::call::Target;
use crate::conversion;
use crate::encoding;
use crate::sealing;
use crate::server::ApiServer;
use crate::services::{self, Taking};

/// What a writer wants done.
#[derive(Clone, Debug)]
pub(crate) enum Decision {
    Put(Value),
    /// Remove it; the value is its last state.
    Delete(Value),
    /// Leave it as it is.
    Keep,
    /// It is what it should be: it is written only if it is stored otherwise than it is shown.
    Same,
}

/// What came of a write. Objects are in the version of the request.
#[derive(Debug)]
pub(crate) enum Outcome {
    Created(Value),
    Updated(Value),
    Deleted(Value),
    Unchanged(Value),
}

impl Outcome {
    pub(crate) fn object(&self) -> &Value {
        match self {
            Self::Created(v) | Self::Updated(v) | Self::Deleted(v) | Self::Unchanged(v) => v,
        }
    }

    pub(crate) fn into_object(self) -> Value {
        match self {
            Self::Created(v) | Self::Updated(v) | Self::Deleted(v) | Self::Unchanged(v) => v,
        }
    }
}

/// Beyond this a single object is being fought over; the client had better come back later.
const MAX_TRIES: usize = 100;

/// What one transaction may hold, well within etcd's limits for a request.
const BATCH_BYTES: usize = 768 << 10;
const BATCH_OPS: usize = 100;

/// Events are kept for an hour.
const EVENT_TTL: Duration = Duration::from_hours(1);
/// One lease serves all events of this long, so that there are few leases.
const EVENT_LEASE_REUSE: Duration = Duration::from_mins(1);

/// The lease that new events are put under.
#[derive(Debug, Default)]
pub(crate) struct EventLease(tokio::sync::Mutex<Option<(LeaseId, Instant)>>);

impl ApiServer {
    /// Runs `decide` on the current object (`None` if there is none) until its decision is committed.
    pub(crate) async fn write(
        &self,
        target: &Target,
        dry_run: bool,
        decide: impl FnMut(Option<&Value>) -> Result<Decision, ApiError> + Send,
    ) -> Result<Outcome, ApiError> {
        self.write_guarded(target, dry_run, || Ok(Vec::new()), decide).await
    }

    /// As [`Self::write`], but only while the other objects that the decision rests on are what `guard` saw.
    pub(crate) async fn write_guarded(
        &self,
        target: &Target,
        dry_run: bool,
        guard: impl Fn() -> Result<Vec<Compare>, ApiError> + Send,
        mut decide: impl FnMut(Option<&Value>) -> Result<Decision, ApiError> + Send,
    ) -> Result<Outcome, ApiError> {
        let collection = self.cache.collection(target.storage_key());
        let id = target.id();
        let (mut is_fresh, mut is_overtaken) = (false, false);
        for _ in 0..MAX_TRIES {
            let known = self.cache.applied();
            let quotas = Quotas::of(&self.cache, target);
            let current = collection.get(&id);
            if current.is_none()
                && let Some(lost) = collection.unreadable(&id)
            {
                return Err(sealing::cannot_be_read(target, &lost));
            }
            let shown = match &current {
                Some(stored) => Some(conversion::object(self, target, Arc::clone(stored)).await?),
                None => None,
            };
            let old = shown.as_deref().map(|o| in_version(o, target));
            let decided = decide(old.as_ref()).and_then(|decision| {
                let decision = unless_same(decision, target, current.as_deref(), old.as_ref());
                let booking = match &decision {
                    Decision::Put(new) => quotas.book(&self.cache, target, new, old.as_ref())?,
                    Decision::Delete(_) | Decision::Keep | Decision::Same => Booking::default(),
                };
                Ok((decision, booking))
            });
            if !is_fresh && matches!(decided, Err(_) | Ok((Decision::Keep, _))) {
                self.cache.fresh().await?;
                is_fresh = true;
                // It may rest on other objects too: on quotas, on what is in use.
                if self.cache.applied() != known {
                    continue;
                }
            }
            let (decision, mut booking) = decided?;
            if let Decision::Keep = decision {
                return old.map(Outcome::Unchanged).ok_or_else(|| target.not_found());
            }
            let revision = current.as_ref().map_or(Revision::ZERO, |o| o.revision);
            let stored = self.stored_form(target, &decision).await?;
            if dry_run {
                let decision = self.read_back(target, decision, stored.as_ref(), None).await?;
                return Ok(outcome(decision, old.is_some(), revision));
            }
            booking.compare.extend(guard()?);
            // Who takes addresses does so alone, from the look until the write is seen.
            let _turn = if let Some(taking) = Taking::of(target, &decision, old.as_ref()) {
                let turn = self.service_turn.lock().await;
                let Some(claim) = taking.claim(self, &id).await? else {
                    // What is decided anew may take something else; what was made before takes the same.
                    if is_overtaken {
                        return Err(services::overtaken());
                    }
                    (is_overtaken, is_fresh) = (true, true);
                    continue;
                };
                booking.compare.extend(claim.compare);
                booking.ops.extend(claim.ops);
                Some(turn)
            } else {
                None
            };
            match self.commit(target, &id, stored.as_ref(), revision, booking).await? {
                TxnResult::Committed(revision) => {
                    // Whoever reads the cache next (authorization, admission, other requests) must see what was
                    // acknowledged. The write itself stands, whatever becomes of the wait.
                    if let Err(error) = self.cache.applied_up_to(revision).await {
                        tracing::warn!(%revision, %error, "the cache does not follow the store");
                    }
                    let decision = self.read_back(target, decision, stored.as_ref(), Some((&id, revision))).await?;
                    return Ok(outcome(decision, old.is_some(), revision));
                }
                TxnResult::Conflict(seen) => {
                    self.cache.reached(seen).await?;
                    is_fresh = true;
                }
            }
        }
        Err(ApiError::too_many_requests("the object is being changed too often; try again", 1))
    }

    /// What is to be stored; nothing if the object is to go.
    async fn stored_form(&self, target: &Target, decision: &Decision) -> Result<Option<Bytes>, ApiError> {
        let Decision::Put(object) = decision else { return Ok(None) };
        if target.served.conversion.is_none() {
            return Ok(Some(to_stored(object, target)));
        }
        let converted = conversion::value(self, target, object.clone(), &storage_gvk(target)).await?;
        Ok(Some(to_stored(&converted, target)))
    }

    /// What a webhook converted is answered as it is read from now on, which need not be what was sent. `written` says under
    /// which name and revision it is stored, if it is.
    async fn read_back(
        &self,
        target: &Target,
        decision: Decision,
        stored: Option<&Bytes>,
        written: Option<(&str, Revision)>,
    ) -> Result<Decision, ApiError> {
        let (Decision::Put(_), Some(stored), Some(_)) = (&decision, stored, &target.served.conversion) else {
            return Ok(decision);
        };
        let Some((id, revision)) = written else {
            // A dry run: nothing that anybody else may be shown.
            let stored = serde_json::from_slice(stored).map_err(ApiError::internal)?;
            return Ok(Decision::Put(conversion::value(self, target, stored, &target.gvk()).await?));
        };
        let written = Arc::new(Object::new(id, stored, revision));
        let shown = conversion::object(self, target, written).await?;
        Ok(Decision::Put(in_version(&shown, target)))
    }

    /// Stores new objects together, in as few transactions as their size allows; each comes with what it rests on. `false` if
    /// one of them has come to exist meanwhile, or does not rest on that any more: some of the others may then not be stored.
    pub(crate) async fn create_together(&self, objects: &[(Target, Value, Vec<Compare>)]) -> Result<bool, ApiError> {
        let mut batch = Txn::default();
        let mut size = 0;
        for (target, object, guards) in objects {
            let key = format!("{}{}/{}", cache::ROOT, target.storage_key(), target.id());
            let value = to_stored(object, target);
            // There are at least as many conditions as changes.
            if size + value.len() > BATCH_BYTES || batch.compare.len() + guards.len() >= BATCH_OPS {
                size = 0;
                if !self.commit_batch(std::mem::take(&mut batch)).await? {
                    return Ok(false);
                }
            }
            size += value.len();
            for guard in guards {
                if !batch.compare.iter().any(|known| known.key == guard.key) {
                    batch.compare.push(guard.clone());
                }
            }
            batch.compare.push(Compare { key: key.clone(), revision: Revision::ZERO });
            batch.ops.push(Op::Put { key, value, lease: None });
        }
        self.commit_batch(batch).await
    }

    async fn commit_batch(&self, batch: Txn) -> Result<bool, ApiError> {
        if batch.ops.is_empty() {
            return Ok(true);
        }
        match self.store.txn(batch).await.map_err(store_error)? {
            TxnResult::Committed(revision) => self.cache.applied_up_to(revision).await.map(|()| true),
            TxnResult::Conflict(seen) => self.cache.reached(seen).await.map(|()| false),
        }
    }

    async fn commit(
        &self,
        target: &Target,
        id: &str,
        stored: Option<&Bytes>,
        expected: Revision,
        mut besides: Booking,
    ) -> Result<TxnResult, ApiError> {
        let key = format!("{}{}/{id}", cache::ROOT, target.storage_key());
        let started = Instant::now();
        besides.compare.push(Compare { key: key.clone(), revision: expected });
        let mut result = self.store.txn(self.transaction(target, &key, stored, &besides).await?).await;
        if matches!(result, Err(croft_store::Error::NoSuchLease(_))) {
            // Somebody else ended it, or etcd was put back to an earlier state.
            *self.event_lease.0.lock().await = None;
            result = self.store.txn(self.transaction(target, &key, stored, &besides).await?).await;
        }
        self.metrics.observe_store("txn", started.elapsed());
        result.map_err(store_error)
    }

    async fn transaction(
        &self,
        target: &Target,
        key: &str,
        stored: Option<&Bytes>,
        besides: &Booking,
    ) -> Result<Txn, ApiError> {
        let op = match stored {
            Some(stored) => {
                Op::Put { key: key.to_owned(), value: stored.clone(), lease: self.lease_for(target).await? }
            }
            None => Op::Delete { key: key.to_owned() },
        };
        let ops = std::iter::once(op).chain(besides.ops.iter().cloned()).collect();
        Ok(Txn { compare: besides.compare.clone(), ops })
    }

    async fn lease_for(&self, target: &Target) -> Result<Option<LeaseId>, ApiError> {
        if target.storage_key() != "core/events" {
            return Ok(None);
        }
        let mut slot = self.event_lease.0.lock().await;
        if let Some((lease, made)) = *slot
            && made.elapsed() < EVENT_LEASE_REUSE
        {
            return Ok(Some(lease));
        }
        let lease = self.store.lease_grant(EVENT_TTL + EVENT_LEASE_REUSE).await.map_err(store_error)?;
        *slot = Some((lease, Instant::now()));
        Ok(Some(lease))
    }
}

/// Whoever asks for what is shown is to find it stored: a default that was filled in since may be taken away again, and a
/// version that nothing is stored in any more may be dropped.
fn unless_same(decision: Decision, target: &Target, current: Option<&Object>, old: Option<&Value>) -> Decision {
    let is_stored_as_shown = |current: &Object| {
        current.is_as_stored()
            && encoding::api_version(&current.bytes) == Some(storage_gvk(target).api_version().as_bytes())
    };
    match (decision, current, old) {
        (Decision::Same, Some(current), Some(old)) if !is_stored_as_shown(current) => Decision::Put(old.clone()),
        (Decision::Same, ..) => Decision::Keep,
        (decision, ..) => decision,
    }
}

fn outcome(decision: Decision, existed: bool, revision: Revision) -> Outcome {
    match decision {
        Decision::Put(mut object) => {
            if revision != Revision::ZERO {
                object::set_meta(&mut object, "resourceVersion", revision.to_string());
            }
            if existed { Outcome::Updated(object) } else { Outcome::Created(object) }
        }
        Decision::Delete(mut object) => {
            object::set_meta(&mut object, "resourceVersion", revision.to_string());
            Outcome::Deleted(object)
        }
        Decision::Keep | Decision::Same => Outcome::Unchanged(Value::Null),
    }
}

/// A cached object, parsed, in the version that the target names: without what that version does not know. Objects that
/// a webhook converts must have been ([`conversion::object`]).
pub(crate) fn in_version(stored: &Object, target: &Target) -> Value {
    let mut object = stored.json();
    convert(&mut object, target, &target.gvk());
    if target.served.resource.is_custom {
        croft_schema::prune_resource(&target.served.version().schema, &mut object);
    }
    object
}

/// Can the stored bytes be the answer, but for their head?
pub(crate) fn is_served_as_stored(target: &Target) -> bool {
    let resource = &target.served.resource;
    let is_as_stored = || target.served.version().name == resource.storage_version;
    // What a webhook converted is in the version of the request, and is served as its answer was kept.
    let is_converted = target.served.conversion.is_some();
    resource.behaviour.convert.is_none() && (!resource.is_custom || is_converted || is_as_stored())
}

fn to_stored(object: &Value, target: &Target) -> Bytes {
    let gvk = storage_gvk(target);
    if object::gvk(object) == gvk && target.served.conversion.is_none() {
        return encoding::to_stored(object);
    }
    let mut object = object.clone();
    convert(&mut object, target, &gvk);
    // The stored version may have defaults that the version of the request does not know.
    let resource = &target.served.resource;
    if resource.is_custom
        && let Some(stored) = resource.version(&resource.storage_version)
    {
        croft_schema::prune_resource(&stored.schema, &mut object);
        croft_schema::apply_defaults(&stored.schema, &mut object);
    }
    encoding::to_stored(&object)
}

/// The type under which a target's objects are stored. Two resources may share one storage; its key says whose it is.
pub(crate) fn storage_gvk(target: &Target) -> Gvk {
    let resource = &target.served.resource;
    let group = resource.storage_key.split('/').next().filter(|g| *g != "core").unwrap_or_default();
    Gvk::new(group, &resource.storage_version, &resource.names.kind)
}

/// Rewrites an object into another version of its kind.
pub(crate) fn convert(object: &mut Value, target: &Target, to: &Gvk) {
    if object::gvk(object) == *to {
        return;
    }
    match target.served.resource.behaviour.convert {
        Some(convert) => convert(object, to),
        None => object["apiVersion"] = Value::from(to.api_version()),
    }
}

#[cfg(test)]
mod tests;
