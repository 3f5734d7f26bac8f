//! ResourceQuotas: whether a namespace has room for one object more, and how much of it is used.
//!
//! What is used is counted in memory when it is asked for, so that it is never behind, and room is taken in the transaction
//! that stores the object ([`booking`]). Whoever creates something that is counted does so in turns
//! ([`crate::quota_turns`]), so that requests to one server need not count again and again.

pub(crate) mod booking;
pub(crate) mod status;

use std::sync::Arc;

use croft_api::object_quota;
use serde_json::Value;

use crate::cache::{Cache, Collection};
use crate::call::Target;

pub(crate) const QUOTAS: &str = "core/resourcequotas";
/// Machines that run. Their own rules have refused them before, where it is also known what is missing in them.
const INSTANCES: (&str, &str) = ("kubevirt.io", "virtualmachineinstances");
const PODS: (&str, &str) = ("", "pods");

/// Is something of this kind bounded in the namespace?
pub(crate) fn counts(cache: &Cache, target: &Target) -> bool {
    let quotas = cache.collection(QUOTAS).list(&target.namespace);
    let of = (target.group(), target.plural());
    !target.namespace.is_empty() && quotas.iter().any(|quota| !object_quota::limits(&quota.json(), Some(of)).is_empty())
}

/// The objects that a resource names, as the cache has them.
fn collection(cache: &Cache, (group, plural): (&str, &str)) -> Arc<Collection> {
    cache.collection(&format!("{}/{plural}", if group.is_empty() { "core" } else { group }))
}

/// How much of what a key of a quota bounds is used in its namespace.
fn used(cache: &Cache, namespace: &str, quota: &Value, key: &str) -> i64 {
    let of_source = |of: (&str, &str)| {
        let objects = collection(cache, of);
        if object_quota::is_plain_count(key) {
            return i64::try_from(objects.count(namespace)).unwrap_or(i64::MAX);
        }
        let objects = objects.list(namespace);
        let taken = objects.iter().map(|object| object_quota::demand(quota, key, of, &object.json()));
        taken.fold(0, i64::saturating_add)
    };
    object_quota::sources(key).into_iter().map(of_source).fold(0, i64::saturating_add)
}
