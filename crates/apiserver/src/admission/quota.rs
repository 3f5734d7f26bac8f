//! ResourceQuotas: whether a namespace has room for one object more, and how much of it is used.
//!
//! What is used is counted in memory when it is asked for, so that it is never behind; whoever creates something that is
//! counted does so in turns ([`crate::quota_turns`]). Machines are counted with their own rules.

pub(crate) mod status;

use croft_api::object_quota;
use croft_meta::ApiError;
use serde_json::Value;

use crate::cache::Cache;
use crate::call::{Call, Target};

pub(crate) const QUOTAS: &str = "core/resourcequotas";
/// Refused with their own rules, where it is also known what is missing in them.
const INSTANCES: (&str, &str) = ("kubevirt.io", "virtualmachineinstances");

/// Is something of this kind bounded in the namespace?
pub(crate) fn counts(cache: &Cache, target: &Target) -> bool {
    let quotas = cache.collection(QUOTAS).list(&target.namespace);
    let of = (target.group(), target.plural());
    !target.namespace.is_empty() && quotas.iter().any(|quota| !object_quota::limits(&quota.json(), Some(of)).is_empty())
}

/// The last thing before an object is stored. A change counts for what it adds.
pub(crate) fn admit(call: &Call, target: &Target, new: &Value, old: Option<&Value>) -> Result<(), ApiError> {
    let of = (target.group(), target.plural());
    if target.namespace.is_empty() || of == INSTANCES || !target.subresource.is_empty() {
        return Ok(());
    }
    let cache = &call.server.cache;
    for quota in cache.collection(QUOTAS).list(&target.namespace) {
        let quota = quota.json();
        let mut over = Vec::new();
        for (key, limit, written) in object_quota::limits(&quota, Some(of)) {
            let before = old.map_or(0, |old| object_quota::demand(&key, old));
            let wanted = object_quota::demand(&key, new) - before;
            if wanted <= 0 {
                continue;
            }
            let used = used(cache, &target.namespace, &key);
            if used.saturating_add(wanted) > limit {
                over.push((key, wanted, used, written));
            }
        }
        if let Some(why) = object_quota::refusal(&quota, &over) {
            return Err(ApiError::forbidden(of.0, of.1, croft_meta::object::name(new), why));
        }
    }
    Ok(())
}

/// How much of what a key bounds is used in a namespace.
fn used(cache: &Cache, namespace: &str, key: &str) -> i64 {
    let Some((group, plural)) = object_quota::source(key) else { return 0 };
    let group = if group.is_empty() { "core" } else { group };
    let collection = cache.collection(&format!("{group}/{plural}"));
    if object_quota::is_plain_count(key) {
        return i64::try_from(collection.count(namespace)).unwrap_or(i64::MAX);
    }
    let objects = collection.list(namespace);
    objects.iter().map(|object| object_quota::demand(key, &object.json())).fold(0, i64::saturating_add)
}
