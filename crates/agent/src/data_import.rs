//! DataVolumes: a claim, and what fills it. Also claims that wait for an upload, as `virtctl image-upload pvc` makes them.
//!
//! - `claim` builds the claim of a DataVolume; `status` decides what users are told, in CDI's words; both do nothing themselves;
//! - `source` brings the bytes; `upload` takes them from a request.
//!
//! The annotation `cdi.kubevirt.io/storage.pod.phase: Succeeded` of a claim says that it is filled. It is written after the data
//! is durable; a claim without it is filled again after we were killed.

mod claim;
mod source;
mod status;
mod upload;

use std::collections::HashSet;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use croft_api::cdi::filling::{POD_PHASE, is_filled, is_upload_target, wants_preallocation};
use croft_api::cdi::{DataVolume, DataVolumeStatus, StorageProfile};
use croft_image::{ImportError, Limits, Options};
use croft_meta::Chain;
use croft_reconcile::{Cache, Change, Error, Events, Key, Keys, Loop, Source, Tasks, failure};
use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::MANAGER;
use crate::image::{Images, make_dir, work_dir};
use crate::volume::{AttachedVolume, Volumes};
use claim::{Filling, is_bound};
use source::{Failed, Resolved};
use status::{Kind, Step};

/// How many claims are filled at a time.
const WORKERS: usize = 4;

/// Shared: clones are the same.
#[derive(Clone, Debug)]
pub struct DataImports(Arc<Inner>);

struct Inner {
    client: Client,
    events: Events,
    volumes: Volumes,
    images: Images,
    data_volumes: Cache<DataVolume>,
    claims: Cache<PersistentVolumeClaim>,
    /// The uids of claims that are being uploaded into.
    uploads: Mutex<HashSet<String>>,
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DataImports").finish_non_exhaustive()
    }
}

/// A piece of work.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Work {
    DataVolume(Key),
    /// That waits for an upload.
    Claim(Key),
}

impl DataImports {
    pub fn new(client: Client, events: Events, volumes: Volumes, images: Images) -> Self {
        let (data_volumes, claims, uploads) = (Cache::default(), Cache::default(), Mutex::default());
        Self(Arc::new(Inner { client, events, volumes, images, data_volumes, claims, uploads }))
    }

    /// Looks after DataVolumes until `stop`.
    pub async fn run(self, stop: CancellationToken) {
        let inner = self.0;
        let (keys, received) = Keys::channel();
        let mut tasks = Tasks::default();
        tasks.spawn(Arc::clone(&inner).follow_data_volumes(keys.clone(), stop.clone()));
        tasks.spawn(Arc::clone(&inner).follow_claims(keys.clone(), stop.clone()));
        tasks.spawn(Arc::clone(&inner).follow_files(keys, stop.clone()));
        let (gate, worker) = (Arc::clone(&inner), Arc::clone(&inner));
        let work = Loop { name: "data volumes", workers: WORKERS, stop };
        let gate = async move { gate.start().await };
        work.run(received, gate, move |work| Arc::clone(&worker).reconcile(work)).await;
        tasks.finish().await;
    }
}

impl Inner {
    async fn follow_data_volumes(self: Arc<Self>, keys: Keys<Work>, stop: CancellationToken) {
        let changes = self.data_volumes.follow(self.client.clone(), Source::of::<DataVolume>());
        futures::pin_mut!(changes);
        while let Some(Some(Change { key, old, new })) = stop.run_until_cancelled(changes.next()).await {
            if new.is_none()
                && let Some(uid) = old.as_ref().and_then(|gone| gone.uid())
            {
                croft_image::forget(&work_dir(&self.volumes), &uid);
            }
            // Our own words are no news: woken by them, what failed would be tried again at once and for ever.
            let wish = |volume: Arc<DataVolume>| (volume.uid(), volume.metadata.generation);
            if old.map(wish) != new.map(wish) {
                keys.send(Work::DataVolume(key), Duration::ZERO).await;
            }
        }
    }

    async fn follow_claims(self: Arc<Self>, keys: Keys<Work>, stop: CancellationToken) {
        let changes = self.claims.follow(self.client.clone(), Source::of::<PersistentVolumeClaim>());
        futures::pin_mut!(changes);
        while let Some(Some(Change { key, new, .. })) = stop.run_until_cancelled(changes.next()).await {
            if new.is_some_and(|claim| is_upload_target(&claim)) {
                keys.send(Work::Claim(key.clone()), Duration::ZERO).await;
            }
            if self.data_volumes.get(&key).is_some() {
                keys.send(Work::DataVolume(key), Duration::ZERO).await;
            }
        }
    }

    /// Claims get their files, which those that wait want to know. A download that failed has its file and waits for time.
    async fn follow_files(self: Arc<Self>, keys: Keys<Work>, stop: CancellationToken) {
        let mut changes = self.volumes.changes();
        while let Some(Ok(())) = stop.run_until_cancelled(changes.changed()).await {
            for volume in
                self.data_volumes.list().iter().filter(|volume| status::waits_for_files(volume.status.as_ref()))
            {
                keys.send(Work::DataVolume(Key::of(volume.as_ref())), Duration::ZERO).await;
            }
        }
    }

    /// Nothing is decided before everything is known. What is left of imports that nobody knows is removed.
    async fn start(&self) {
        tokio::join!(self.data_volumes.synced(), self.claims.synced(), self.volumes.synced());
        let mut known: HashSet<String> = self.images.uids().await.into_iter().collect();
        known.extend(self.data_volumes.list().iter().filter_map(|volume| volume.uid()));
        let dir = work_dir(&self.volumes);
        let swept = move || make_dir(&dir).and_then(|()| croft_image::sweep(&dir, |key| known.contains(key)));
        if let Ok(Err(error)) = tokio::task::spawn_blocking(swept).await {
            tracing::warn!(%error, "cannot look for what is left of imports");
        }
    }

    async fn reconcile(self: Arc<Self>, work: Work) -> Result<(), Error> {
        match work {
            Work::DataVolume(key) => self.reconcile_data_volume(&key).await,
            Work::Claim(key) => self.offer_upload(&key).await,
        }
    }

    async fn reconcile_data_volume(&self, key: &Key) -> Result<(), Error> {
        let Some(volume) = self.data_volumes.get(key) else { return Ok(()) };
        if volume.metadata.deletion_timestamp.is_some() || status::is_final(volume.status.as_ref()) {
            return Ok(());
        }
        let resolved = match self.resolve(&volume).await {
            Ok(resolved) => resolved,
            Err(failed) => return self.failed(key, &volume, &failed, &Resolved::Blank).await,
        };
        let claim = match self.claims.get(key) {
            Some(claim) => claim,
            None => match self.create_claim(key, &volume, &resolved).await? {
                Ok(claim) => Arc::new(claim),
                Err(failed) => return self.failed(key, &volume, &failed, &resolved).await,
            },
        };
        if !claim::belongs_to(&claim, &volume) {
            let message = format!("Resource {:?} already exists and is not managed by DataVolume", key.name);
            self.events.warning(&*volume, "ErrResourceExists", &message);
            return Err(Error::NotYet(message));
        }
        if is_filled(&claim) {
            return self.tell(key, &volume, &Step::Succeeded(resolved.kind())).await;
        }
        if !is_bound(&claim) {
            return self.tell(key, &volume, &Step::Pending).await;
        }
        self.fill(key, &volume, &claim, &resolved).await
    }

    async fn fill(
        &self,
        key: &Key,
        volume: &DataVolume,
        claim: &PersistentVolumeClaim,
        resolved: &Resolved,
    ) -> Result<(), Error> {
        let attached = match self.volumes.attach(&key.namespace, &key.name) {
            Ok(attached) => attached,
            Err(error) => {
                self.tell(key, volume, &Step::Pending).await?;
                return Err(Error::NotYet(Chain(&error).to_string()));
            }
        };
        if matches!(resolved, Resolved::Upload) {
            let is_offered = claim.annotations().get(POD_PHASE).is_some_and(|phase| phase == "Running");
            let step = if is_offered { Step::UploadReady } else { Step::UploadScheduled };
            return self.tell(key, volume, &step).await;
        }
        self.tell(key, volume, &Step::Running(resolved.kind(), None)).await?;
        let gone = self.gone(key, volume);
        let result = tokio::select! {
            () = gone => return Ok(()),
            result = self.bring(key, volume, &attached, resolved) => result,
        };
        match result {
            Ok(()) => {
                if let Err(error) = self.finish(key, claim, &attached).await? {
                    return self.failed(key, volume, &error.into(), resolved).await;
                }
                self.events.normal(volume, status::succeeded_reason(resolved.kind()), "the claim is filled");
                self.tell(key, volume, &Step::Succeeded(resolved.kind())).await
            }
            Err(failed) => self.failed(key, volume, &failed, resolved).await,
        }
    }

    /// Resolves when the DataVolume is deleted.
    async fn gone(&self, key: &Key, volume: &DataVolume) {
        let mut changes = self.volumes.changes();
        let is_there = || {
            let now = self.data_volumes.get(key);
            now.is_some_and(|now| now.uid() == volume.uid() && now.metadata.deletion_timestamp.is_none())
        };
        while is_there() {
            // The claim goes with it, which is a change of the node's volumes; the rest is for patience.
            let _ = tokio::time::timeout(Duration::from_secs(5), changes.changed()).await;
        }
    }

    /// What may pass is tried again by the loop, ever more slowly; the rest is over.
    async fn failed(&self, key: &Key, volume: &DataVolume, failed: &Failed, resolved: &Resolved) -> Result<(), Error> {
        let kind = resolved.kind();
        self.events.warning(volume, "Error", &failed.message);
        if failed.may_pass {
            self.tell(key, volume, &Step::Retrying(kind, failed.message.clone())).await?;
            return Err(Error::NotYet(failed.message.clone()));
        }
        if let Some(uid) = volume.uid() {
            croft_image::forget(&work_dir(&self.volumes), &uid);
        }
        self.tell(key, volume, &Step::Failed(kind, failed.message.clone())).await
    }

    async fn create_claim(
        &self,
        key: &Key,
        volume: &DataVolume,
        resolved: &Resolved,
    ) -> Result<Result<PersistentVolumeClaim, Failed>, Error> {
        let profile = match claim::class_of(volume) {
            None => None,
            Some(class) => {
                let profiles: Api<StorageProfile> = Api::all(self.client.clone());
                failure::absent_is_none(profiles.get(&class).await)?
            }
        };
        let source_size = match resolved {
            Resolved::Claim(source) => {
                self.volumes.attach(&source.namespace, &source.name).ok().map(|it| it.size_bytes)
            }
            Resolved::Snapshot(source) => self.volumes.snapshot_file(source).ok().map(|(_, size_bytes)| size_bytes),
            _ => None,
        };
        let filling = Filling {
            is_upload: matches!(resolved, Resolved::Upload),
            is_preallocated: volume.spec.preallocation.unwrap_or_else(|| self.images.settings().preallocates()),
        };
        let wanted = match claim::build(volume, profile.as_ref(), source_size, filling) {
            Ok(wanted) => wanted,
            Err(message) => return Ok(Err(Failed { message, may_pass: resolved.kind() == Kind::Clone })),
        };
        let api: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), &key.namespace);
        let params = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
        match api.create(&params, &wanted).await {
            Ok(made) => Ok(Ok(made)),
            Err(error) if failure::is_conflict(&error) => Ok(Ok(api.get(&key.name).await?)),
            Err(kube::Error::Api(refused)) if (400..500).contains(&refused.code) => {
                let message = format!("the claim cannot be made: {}", refused.message);
                Ok(Err(Failed { message, may_pass: true }))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// A claim that waits for an upload can be uploaded into as soon as it has a volume.
    async fn offer_upload(&self, key: &Key) -> Result<(), Error> {
        let Some(claim) = self.claims.get(key) else { return Ok(()) };
        let is_offered = claim.annotations().get(POD_PHASE).is_some_and(|phase| phase == "Running");
        if claim.metadata.deletion_timestamp.is_some() || is_filled(&claim) || is_offered || !is_bound(&claim) {
            return Ok(());
        }
        self.volumes.attach(&key.namespace, &key.name).map_err(|error| Error::NotYet(Chain(&error).to_string()))?;
        self.mark(key, &claim::offered()).await
    }

    /// The content is there: its blocks are taken if that is asked for, and then it is said to be filled. The inner error is
    /// the pool's.
    async fn finish(
        &self,
        key: &Key,
        claim: &PersistentVolumeClaim,
        attached: &AttachedVolume,
    ) -> Result<Result<(), ImportError>, Error> {
        let is_preallocated = wants_preallocation(claim) && !attached.is_block;
        if is_preallocated {
            let path = attached.path.clone();
            let taken = tokio::task::spawn_blocking(move || croft_image::preallocate(&path)).await;
            if let Err(error) = taken.map_err(|_| ImportError::Panicked).flatten() {
                return Ok(Err(error));
            }
        }
        self.mark(key, &claim::filled(is_preallocated)).await.map(Ok)
    }

    /// Tells those who wait for the claim, as CDI's pods would.
    async fn mark(&self, key: &Key, change: &Value) -> Result<(), Error> {
        let api: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), &key.namespace);
        let patched = api.patch(&key.name, &params(), &Patch::Merge(change)).await?;
        self.claims.insert(key.clone(), patched);
        Ok(())
    }

    async fn tell(&self, key: &Key, volume: &DataVolume, step: &Step) -> Result<(), Error> {
        let current = self.data_volumes.get(key).and_then(|volume| volume.status.clone()).unwrap_or_default();
        let next = status::after(&current, &key.name, step, Timestamp::now());
        if next == current {
            return Ok(());
        }
        tracing::debug!(data_volume = %key, phase = next.phase, "told");
        let change: Value = json!({ "metadata": { "uid": volume.uid() }, "status": status_value(&next) });
        let api: Api<DataVolume> = Api::namespaced(self.client.clone(), &key.namespace);
        match api.patch_status(&key.name, &params(), &Patch::Merge(&change)).await {
            Ok(patched) => self.data_volumes.insert(key.clone(), patched),
            Err(error) if failure::is_not_found(&error) || failure::is_conflict(&error) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// The directory and limits of an import into a claim.
    fn options(&self, key: &str, attached: &AttachedVolume) -> Result<Options, ImportError> {
        let dir = work_dir(&self.volumes);
        make_dir(&dir).map_err(|source| ImportError::File { doing: "make", path: dir.clone(), source })?;
        let limits = Limits { virtual_bytes: attached.size_bytes, ..Limits::default() };
        Ok(Options { limits, ..Options::new(dir, key) })
    }

    /// Where an import into a claim ends, before the claim gets it.
    fn staged(&self, key: &str) -> PathBuf {
        work_dir(&self.volumes).join(format!("{key}-disk.raw"))
    }
}

fn status_value(status: &DataVolumeStatus) -> Value {
    serde_json::to_value(status).unwrap_or_default()
}

fn params() -> PatchParams {
    PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() }
}

/// Puts what is staged into the claim's file.
async fn place(staged: PathBuf, target: PathBuf) -> Result<(), ImportError> {
    let placed = tokio::task::spawn_blocking(move || {
        let placed = croft_image::place(&staged, &target);
        let removed = std::fs::remove_file(&staged);
        placed.and(removed.map_err(|source| ImportError::File { doing: "remove", path: staged, source }))
    });
    placed.await.map_err(|_| ImportError::Panicked)?
}
