//! Turns for creating what quotas count.
//!
//! Whether there is room is found out from what is stored. Two who look at once would both take the room that is for one;
//! so whoever creates something that a quota of its namespace counts does so alone, from the look until the write is seen.

use std::hash::{BuildHasher, RandomState};

use tokio::sync::{Mutex, MutexGuard};

use crate::admission::quota;
use crate::cache::Cache;
use crate::call::Target;

/// Namespaces that share a turn wait for each other now and then; that is all.
const TURNS: usize = 32;

#[derive(Debug, Default)]
pub(crate) struct QuotaTurns {
    turns: [Mutex<()>; TURNS],
    hasher: RandomState,
}

impl QuotaTurns {
    /// The turn for a creation, to be held until it is done; `None` at once where nothing counts it.
    pub(crate) async fn take(&self, cache: &Cache, target: &Target) -> Option<MutexGuard<'_, ()>> {
        if !quota::counts(cache, target) {
            return None;
        }
        let hash = usize::try_from(self.hasher.hash_one(&target.namespace) >> 32).unwrap_or_default();
        Some(self.turns[hash % TURNS].lock().await)
    }

    /// The turn for a change, of what can come to take more than it did.
    pub(crate) async fn take_to_grow(&self, cache: &Cache, target: &Target) -> Option<MutexGuard<'_, ()>> {
        let may_grow = target.group().is_empty() && matches!(target.plural(), "persistentvolumeclaims" | "services");
        if may_grow && target.subresource.is_empty() { self.take(cache, target).await } else { None }
    }
}
