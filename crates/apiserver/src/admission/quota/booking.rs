//! Room in ResourceQuotas, taken in the transaction that stores what takes it.
//!
//! What is used is counted in memory, by a server that may not yet know what another has just stored. So whatever takes room
//! also writes the quotas that it takes it from, and only if they are as they were before it was counted: of two servers
//! that count at the same moment, one has to count again.

use std::sync::Arc;

use croft_api::{compute_quota, object_quota, pod_quota};
use croft_meta::{ApiError, object};
use croft_store::{Compare, Op};
use serde_json::{Value, json};

use super::{INSTANCES, PODS, QUOTAS, used};
use crate::cache::{self, Cache, Object};
use crate::call::Target;
use crate::encoding;

/// The quotas that a write may take room from, as they were before anything was counted.
#[derive(Debug)]
pub(crate) struct Quotas(Vec<Arc<Object>>);

/// What the transaction of a write has to check and to write besides.
#[derive(Debug, Default)]
pub(crate) struct Booking {
    pub(crate) compare: Vec<Compare>,
    /// To come after what takes the room: who sees the quota sees that too.
    pub(crate) ops: Vec<Op>,
}

impl Quotas {
    pub(crate) fn of(cache: &Cache, target: &Target) -> Self {
        if target.namespace.is_empty() || !target.subresource.is_empty() {
            return Self(Vec::new());
        }
        Self(cache.collection(QUOTAS).list(&target.namespace))
    }

    /// Room for an object that is to be stored, or why there is none. A change counts for what it adds.
    pub(crate) fn book(
        &self,
        cache: &Cache,
        target: &Target,
        new: &Value,
        old: Option<&Value>,
    ) -> Result<Booking, ApiError> {
        let of = (target.group(), target.plural());
        let mut booking = Booking::default();
        // A machine that runs was let in with what it may grow to.
        if of == INSTANCES && old.is_some() {
            return Ok(booking);
        }
        for stored in &self.0 {
            let mut quota = stored.json();
            let limits = object_quota::limits(&quota, Some(of));
            if of == PODS && old.is_none() {
                refuse_unsaid(&quota, &limits, new)?;
            }
            let (mut over, mut taken) = (Vec::new(), Vec::new());
            for (key, limit, written) in limits {
                let before = old.map_or(0, |old| object_quota::demand(&quota, &key, of, old));
                let wanted = object_quota::demand(&quota, &key, of, new) - before;
                if wanted <= 0 {
                    continue;
                }
                let used = used(cache, &target.namespace, &quota, &key);
                let total = used.saturating_add(wanted);
                if total > limit {
                    over.push((key, wanted, used, written));
                } else {
                    taken.push((key, total));
                }
            }
            if let Some(why) = object_quota::refusal(&quota, &over) {
                return Err(ApiError::forbidden(of.0, of.1, object::name(new), why));
            }
            if !taken.is_empty() {
                tell(&mut quota, taken);
                let key = format!("{}{QUOTAS}/{}", cache::ROOT, stored.id());
                booking.compare.push(Compare { key: key.clone(), revision: stored.revision });
                booking.ops.push(Op::Put { key, value: encoding::to_stored(&quota), lease: None });
            }
        }
        Ok(booking)
    }
}

/// Where processors or memory are bounded, every container says what it takes.
fn refuse_unsaid(quota: &Value, limits: &[(String, i64, String)], pod: &Value) -> Result<(), ApiError> {
    let keys = limits.iter().map(|(key, _, _)| key.as_str());
    let Some(unsaid) = pod_quota::unsaid(quota, keys, pod) else { return Ok(()) };
    let why = format!("failed quota: {}: must specify {unsaid}", object::name(quota));
    Err(ApiError::forbidden(PODS.0, PODS.1, object::name(pod), why))
}

fn tell(quota: &mut Value, taken: Vec<(String, i64)>) {
    if !quota["status"]["used"].is_object() {
        quota["status"]["used"] = json!({});
    }
    for (key, total) in taken {
        quota["status"]["used"][&key] = Value::from(compute_quota::written(&key, total));
    }
}
