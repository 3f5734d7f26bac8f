//! The pools of this node: its own, and those on disks that were added.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use croft_block::{Pool, Snapshot, Usage, Volume};
use k8s_openapi::api::core::v1::PersistentVolume;
use parking_lot::RwLock;

use super::DEFAULT_POOL;
use super::binding;

#[derive(Debug)]
pub(super) struct Pools {
    default: Arc<Pool>,
    /// Where disks are mounted.
    pub(super) mounts: PathBuf,
    added: RwLock<BTreeMap<String, Added>>,
}

/// A pool on a disk of its own.
#[derive(Clone, Debug)]
pub(super) struct Added {
    pub(super) pool: Arc<Pool>,
    /// What storage classes choose disks by.
    pub(super) tags: Vec<String>,
    /// On its way out: nothing new goes there.
    pub(super) is_leaving: bool,
}

/// How full one pool is.
#[derive(Clone, Debug)]
pub struct PoolFigures {
    pub id: String,
    pub dir: PathBuf,
    pub usage: Usage,
    /// What its volumes would take if they were full.
    pub promised_bytes: u64,
}

impl Pools {
    pub(super) fn new(default: Pool, mounts: PathBuf) -> Self {
        Self { default: Arc::new(default), mounts, added: RwLock::default() }
    }

    pub(super) fn default(&self) -> Arc<Pool> {
        Arc::clone(&self.default)
    }

    pub(super) fn get(&self, id: &str) -> Option<Arc<Pool>> {
        if id == DEFAULT_POOL {
            return Some(self.default());
        }
        self.added.read().get(id).map(|added| Arc::clone(&added.pool))
    }

    pub(super) fn add(&self, id: String, added: Added) {
        self.added.write().insert(id, added);
    }

    pub(super) fn remove(&self, id: &str) {
        self.added.write().remove(id);
    }

    /// Whether a disk waits for its last volume to go.
    pub(super) fn is_any_leaving(&self) -> bool {
        self.added.read().values().any(|added| added.is_leaving)
    }

    pub(super) fn all(&self) -> Vec<Arc<Pool>> {
        let added = self.added.read();
        let added = added.values().map(|added| Arc::clone(&added.pool));
        std::iter::once(self.default()).chain(added).collect()
    }

    /// The pools that a new volume may go to: all that have every one of these tags.
    pub(super) fn candidates(&self, tags: &[String]) -> Vec<Arc<Pool>> {
        let added = self.added.read();
        let fitting =
            added.values().filter(|added| !added.is_leaving && tags.iter().all(|tag| added.tags.contains(tag)));
        let fitting = fitting.map(|added| Arc::clone(&added.pool));
        tags.is_empty().then(|| self.default()).into_iter().chain(fitting).collect()
    }

    /// Where the file of this name is, whichever pool its object names.
    pub(super) fn find(&self, handle: &str) -> Option<(Arc<Pool>, Volume)> {
        self.all().into_iter().find_map(|pool| pool.volume(handle).ok().map(|volume| (pool, volume)))
    }

    /// Where the snapshot of this name is.
    pub(super) fn find_snapshot(&self, name: &str) -> Option<(Arc<Pool>, Snapshot)> {
        self.all().into_iter().find_map(|pool| pool.snapshot(name).ok().map(|snapshot| (pool, snapshot)))
    }

    pub(super) fn volumes(&self) -> Vec<Volume> {
        let read = |pool: &Arc<Pool>| {
            pool.volumes().unwrap_or_else(|error| {
                tracing::warn!(pool = pool.id(), error = %croft_meta::Chain(&error), "the volumes cannot be listed");
                Vec::new()
            })
        };
        self.all().iter().flat_map(read).collect()
    }

    /// What the volumes of this node promise, by pool.
    pub(super) fn promised(volumes: &[Arc<PersistentVolume>], node: &str) -> BTreeMap<String, u64> {
        let mut promised = BTreeMap::new();
        for volume in volumes.iter().filter(|volume| binding::is_local(volume, node)) {
            *promised.entry(binding::pool(volume).to_owned()).or_default() += binding::capacity_bytes(volume);
        }
        promised
    }

    pub(super) fn figures(&self, volumes: &[Arc<PersistentVolume>], node: &str) -> Vec<PoolFigures> {
        let promised = Self::promised(volumes, node);
        let read = |pool: &Arc<Pool>| {
            let usage = pool.usage().ok()?;
            let promised_bytes = promised.get(pool.id()).copied().unwrap_or_default();
            Some(PoolFigures { id: pool.id().to_owned(), dir: pool.dir().to_owned(), usage, promised_bytes })
        };
        self.all().iter().filter_map(read).collect()
    }
}
