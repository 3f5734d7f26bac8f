//! The node's volumes: claims get a raw file in one of the node's pools, and lose it again.
//!
//! - `claim` looks after PersistentVolumeClaims: provides a volume, binds, lets go; `expand` lets them grow;
//! - `persistent` looks after PersistentVolumes: their phase, and what becomes of the file when the claim is gone;
//! - `binding` and `plan` decide, without doing anything; `objects` writes what they decide;
//! - `snapshot` keeps what volumes were at an instant, `revert` lets them be that again; `remote` sends that to the backup target, and fetches it from there;
//! - `pools` knows the pools, `disks` makes pools of the node's disks as BlockDevice objects ask.
//!
//! Three rules. A volume's file is made before its object, so that an object without a file means a loss: it is told, and
//! nothing is put in its place. A file without an object is told too, and left alone. And whatever is deleted must not be
//! in use by a machine: finalizers hold it until then.

mod attach;
mod binding;
mod claim;
mod consumer;
mod disks;
mod expand;
mod longhorn_node;
mod objects;
mod persistent;
mod plan;
mod pools;
mod remote;
mod revert;
mod snapshot;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use croft_api::harvester::VirtualMachineImage;
use croft_api::snapshot::{VolumeSnapshot, VolumeSnapshotClass, VolumeSnapshotContent};
use croft_block::{Options, Pool, PoolError};
use croft_reconcile::{Cache, Change, Error, Events, Key, Keys, Loop, Source, Tasks};
use futures::{FutureExt, StreamExt};
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Client, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub use attach::{AttachError, AttachedVolume};
use consumer::Consumer;
pub use pools::PoolFigures;
use pools::Pools;

use crate::guest::Guests;
use crate::node::{Aspect, Finding, Health};

/// The name that clients look for; what it does here is our own.
pub(crate) const DRIVER: &str = "driver.longhorn.io";
/// The same under our own name.
const OWN_DRIVER: &str = "local.croft.io";
/// The pool that every node has.
pub(crate) const DEFAULT_POOL: &str = "default";
/// How many claims and volumes are worked on at a time.
const WORKERS: usize = 8;

fn is_ours(driver: &str) -> bool {
    driver == DRIVER || driver == OWN_DRIVER
}

/// What the volumes of a node need to start.
pub struct VolumesConfig {
    pub client: Client,
    /// Where users are told what happens to their claims.
    pub events: Events,
    pub node_name: String,
    /// The pool is `pool` in it; pools of further disks are in `disks`.
    pub data_dir: PathBuf,
    pub pool: Options,
    pub health: Health,
    /// Those who write to volumes, and stand still for snapshots.
    pub guests: Guests,
}

impl fmt::Debug for VolumesConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VolumesConfig").field("data_dir", &self.data_dir).finish_non_exhaustive()
    }
}

/// Shared: clones are the same volumes.
#[derive(Clone, Debug)]
pub struct Volumes(Arc<Inner>);

struct Inner {
    client: Client,
    node_name: String,
    pools: Pools,
    claims: Cache<PersistentVolumeClaim>,
    volumes: Cache<PersistentVolume>,
    classes: Cache<StorageClass>,
    images: Cache<VirtualMachineImage>,
    consumers: Cache<Consumer>,
    snapshots: Cache<VolumeSnapshot>,
    contents: Cache<VolumeSnapshotContent>,
    snapshot_classes: Cache<VolumeSnapshotClass>,
    guests: Guests,
    moves: remote::Moves,
    is_synced: AtomicBool,
    changes: watch::Sender<u64>,
    events: Events,
    health: Health,
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Volumes").field("pools", &self.pools).finish_non_exhaustive()
    }
}

/// A piece of work.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Work {
    Claim(Key),
    Volume(String),
    Snapshot(Key),
    /// All snapshots of this namespace that are taken together, by what they call themselves.
    SnapshotSet(String, String),
    Content(String),
}

impl Volumes {
    /// Opens the node's own pool, making it if need be. What it is short of becomes a condition of the node.
    pub async fn open(config: VolumesConfig) -> Result<Self, PoolError> {
        let directory = config.data_dir.join("pool");
        let options = config.pool;
        let pool = blocking(move || Pool::open(DEFAULT_POOL, &directory, &options)).await?;
        tracing::info!(dir = %pool.dir().display(), backing = ?pool.backing(), cloning = %pool.cloning(), "pool opened");
        let volumes = Self(Arc::new(Inner {
            events: config.events,
            client: config.client,
            node_name: config.node_name,
            pools: Pools::new(pool, config.data_dir.join("disks")),
            claims: Cache::default(),
            volumes: Cache::default(),
            classes: Cache::default(),
            images: Cache::default(),
            consumers: Cache::default(),
            snapshots: Cache::default(),
            contents: Cache::default(),
            snapshot_classes: Cache::default(),
            guests: config.guests,
            moves: remote::Moves::default(),
            is_synced: AtomicBool::new(false),
            changes: watch::Sender::new(0),
            health: config.health,
        }));
        volumes.0.tell_health();
        Ok(volumes)
    }

    /// Told whenever the answer of [`Volumes::attach`] may be another.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.0.changes.subscribe()
    }

    /// The pool that files of one machine, images and state go to: `scratch/<uid>`, `images`, `state/<uid>` in it are
    /// theirs, and `tmp` is cleared at every start. Clones inside share extents if the file system can.
    pub fn pool_for_scratch(&self) -> PathBuf {
        self.0.pools.default().dir().to_owned()
    }

    /// The pool that every node has.
    pub fn default_pool(&self) -> Arc<Pool> {
        self.0.pools.default()
    }

    /// The file of a snapshot that is ready, and how large it is. The error is for the user; it may pass.
    pub(crate) fn snapshot_file(&self, key: &Key) -> Result<(PathBuf, u64), String> {
        self.0.restorable(key).map(|found| (found.path, found.size_bytes))
    }

    /// The memory that was kept with a snapshot that is ready. The error is for the user; it may pass.
    pub(crate) fn memory_file(&self, key: &Key) -> Result<PathBuf, String> {
        let found = self.0.restorable(key)?;
        let path = found.pool.memory_path(&found.name).ok().filter(|path| path.exists());
        path.ok_or_else(|| format!("no memory was kept with snapshot {key}"))
    }

    /// How full the node's pools are. Asks the file systems.
    pub fn figures(&self) -> Vec<PoolFigures> {
        self.0.pools.figures(&self.0.volumes.list(), &self.0.node_name)
    }

    /// Waits until all claims that there are have been seen.
    pub async fn synced(&self) {
        let inner = &self.0;
        tokio::join!(inner.claims.synced(), inner.volumes.synced(), inner.consumers.synced());
    }

    /// Looks after claims, volumes and disks until `stop`.
    pub async fn run(self, stop: CancellationToken) {
        let inner = self.0;
        let (keys, received) = Keys::channel();
        let mut tasks = Tasks::default();
        let watches = [
            inner.follow(inner.claims.clone(), keys.clone(), Inner::after_claim).boxed(),
            inner.follow(inner.volumes.clone(), keys.clone(), Inner::after_volume).boxed(),
            inner.follow(inner.classes.clone(), keys.clone(), |inner, _| inner.unbound()).boxed(),
            inner.follow(inner.images.clone(), keys.clone(), |inner, _| inner.unbound()).boxed(),
            inner.follow(inner.consumers.clone(), keys.clone(), |_, change| Inner::after_consumer(change)).boxed(),
            inner.follow(inner.snapshots.clone(), keys.clone(), Inner::after_snapshot).boxed(),
            inner.follow(inner.contents.clone(), keys.clone(), Inner::after_content).boxed(),
            inner.follow(inner.snapshot_classes.clone(), keys.clone(), |_, _| Vec::new()).boxed(),
        ];
        for watch in watches {
            let stop = stop.clone();
            tasks.spawn(async move {
                tokio::select! { () = watch => {}, () = stop.cancelled() => {} }
            });
        }
        tasks.spawn(Arc::clone(&inner).look_after_disks(keys.clone(), stop.clone()));
        tasks.spawn(Arc::clone(&inner).move_disks(keys.clone(), stop.clone()));
        let (gate, worker) = (Arc::clone(&inner), Arc::clone(&inner));
        let work = Loop { name: "volumes", workers: WORKERS, stop };
        let gate = async move { gate.start().await };
        work.run(received, gate, move |work| Arc::clone(&worker).reconcile(work)).await;
        tasks.finish().await;
    }
}

impl Inner {
    /// Keeps a cache, and has worked on whatever a change concerns.
    fn follow<K>(
        self: &Arc<Self>,
        cache: Cache<K>,
        keys: Keys<Work>,
        concerned: impl Fn(&Self, &Change<K>) -> Vec<Work> + Send + 'static,
    ) -> impl Future<Output = ()> + Send + 'static
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Send + Sync + 'static,
    {
        let inner = Arc::clone(self);
        async move {
            let changes = cache.follow(inner.client.clone(), Source::of::<K>());
            futures::pin_mut!(changes);
            while let Some(change) = changes.next().await {
                for work in concerned(&inner, &change) {
                    keys.send(work, Duration::ZERO).await;
                }
            }
        }
    }

    /// Nothing is decided before everything is known.
    async fn start(&self) {
        tokio::join!(
            self.claims.synced(),
            self.volumes.synced(),
            self.classes.synced(),
            self.images.synced(),
            self.consumers.synced(),
            self.snapshots.synced(),
            self.contents.synced(),
            self.snapshot_classes.synced()
        );
        self.is_synced.store(true, Ordering::Release);
        self.changed();
        self.report_orphans();
    }

    async fn reconcile(self: Arc<Self>, work: Work) -> Result<(), Error> {
        match work {
            // A step may be a large one; most are not.
            Work::Claim(key) => Box::pin(self.reconcile_claim(&key)).await,
            Work::Volume(name) => Box::pin(self.reconcile_volume(&name)).await,
            Work::Snapshot(key) => Box::pin(self.reconcile_snapshot(&key)).await,
            Work::SnapshotSet(namespace, id) => Box::pin(self.reconcile_set(&namespace, &id)).await,
            Work::Content(name) => Box::pin(self.reconcile_content(&name)).await,
        }
    }

    fn changed(&self) {
        self.changes.send_modify(|count| *count = count.wrapping_add(1));
    }

    /// The claim, its volume, and those that wait to be cloned from it.
    fn after_claim(&self, change: &Change<PersistentVolumeClaim>) -> Vec<Work> {
        self.changed();
        let volume_of = |claim: &Arc<PersistentVolumeClaim>| claim.spec.as_ref()?.volume_name.clone();
        let volumes = [&change.old, &change.new].into_iter().flatten().filter_map(volume_of);
        let mut work: Vec<Work> = volumes.map(Work::Volume).collect();
        work.dedup();
        work.push(Work::Claim(change.key.clone()));
        let waits_for_it = |key: &Key| {
            let claim = self.claims.get(key);
            claim.is_some_and(|claim| plan::source_claim(&claim).as_ref() == Some(&change.key))
        };
        work.extend(self.unbound().into_iter().filter(|other| matches!(other, Work::Claim(key) if waits_for_it(key))));
        work.extend(self.snapshots_waiting_for(&change.key));
        // One that was made from a snapshot holds it no longer.
        let source = change.new.as_ref().or(change.old.as_ref()).and_then(|claim| plan::source_snapshot(claim));
        work.extend(source.map(Work::Snapshot));
        work
    }

    /// The volume and its claim; one that is free may be what any claim waits for.
    fn after_volume(&self, change: &Change<PersistentVolume>) -> Vec<Work> {
        self.changed();
        let mut work = vec![Work::Volume(change.key.name.clone())];
        let object = change.new.as_ref().or(change.old.as_ref());
        match object.and_then(|volume| binding::claim_of(volume)) {
            Some(claim) => work.push(Work::Claim(claim)),
            None => work.extend(self.unbound()),
        }
        work
    }

    /// What a machine uses, or used.
    fn after_consumer(change: &Change<Consumer>) -> Vec<Work> {
        let used =
            |consumer: &Option<Arc<Consumer>>| consumer.as_ref().map(|consumer| consumer.claims()).unwrap_or_default();
        let (mut old, new) = (used(&change.old), used(&change.new));
        let same = |consumer: &Option<Arc<Consumer>>| consumer.as_ref().map(|consumer| consumer.is_running());
        if old == new && same(&change.old) == same(&change.new) {
            return Vec::new();
        }
        old.extend(new);
        old.sort();
        old.dedup();
        old.into_iter().map(Work::Claim).collect()
    }

    /// The claims that have no volume yet.
    fn unbound(&self) -> Vec<Work> {
        let claims = self.claims.list();
        let unbound = claims.iter().filter(|claim| !binding::is_complete(claim));
        unbound.map(|claim| Work::Claim(Key::of(claim.as_ref()))).collect()
    }

    /// The node's word on its pool.
    fn tell_health(&self) {
        let pool = self.pools.default();
        let finding = match (pool.usage(), pool.cloning()) {
            (Ok(usage), _) if usage.free_bytes < usage.capacity_bytes / 20 => {
                let text = format!(
                    "{} MiB of {} MiB are free: delete volumes or images, or add a disk",
                    usage.free_bytes >> 20,
                    usage.capacity_bytes >> 20
                );
                Finding::bad("AlmostFull", text)
            }
            (Err(error), _) => Finding::bad("Unreadable", croft_meta::Chain(&error).to_string()),
            (_, croft_block::Cloning::Reflinks) => Finding::good("Reflinks", pool.cloning().to_string()),
            (_, croft_block::Cloning::Copies(_)) => Finding::bad("Copying", pool.cloning().to_string()),
        };
        self.health.set(Aspect::Pool, finding);
    }

    /// Files that no object tells of. They may be somebody's data, so that is all that is done.
    fn report_orphans(&self) {
        let known = self.volumes.list();
        let handles: std::collections::HashSet<&str> =
            known.iter().filter_map(|volume| binding::handle(volume)).collect();
        let claims = self.claims.list();
        let expected: std::collections::HashSet<String> =
            claims.iter().map(|claim| objects::volume_name(claim)).collect();
        let metadata = ObjectMeta { name: Some(self.node_name.clone()), ..ObjectMeta::default() };
        let node = Node { metadata, ..Node::default() };
        let files = self.pools.volumes();
        let orphans =
            files.iter().filter(|file| !handles.contains(file.name.as_str()) && !expected.contains(&file.name));
        for orphan in orphans {
            tracing::warn!(path = %orphan.path.display(), "a volume's file has no PersistentVolume; it is left alone");
            let text = format!("the file {} belongs to no PersistentVolume; it is left alone", orphan.path.display());
            self.events.warning(&node, "OrphanedVolume", &text);
        }
    }
}

/// File systems take their time; the runtime's workers do not wait for them.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        // It panicked, which is a bug that must be seen; tasks are not cancelled.
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

#[cfg(test)]
mod tests;
