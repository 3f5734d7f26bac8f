//! Turns for creating what quotas count.
//!
//! Whether there is room is found out from what is stored. Two who look at once would both take the room that is for one;
//! so whoever creates something that a quota of its namespace counts does so alone, from the look until the write is seen.

use std::hash::{BuildHasher, RandomState};

use tokio::sync::{Mutex, MutexGuard};

use crate::cache::Cache;
use crate::call::Target;

const QUOTAS: &str = "core/resourcequotas";
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
        let is_counted = target.group() == "kubevirt.io" && target.plural() == "virtualmachineinstances";
        if !is_counted || cache.collection(QUOTAS).list(&target.namespace).is_empty() {
            return None;
        }
        let hash = usize::try_from(self.hasher.hash_one(&target.namespace) >> 32).unwrap_or_default();
        Some(self.turns[hash % TURNS].lock().await)
    }
}
