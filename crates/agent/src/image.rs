//! VirtualMachineImages: fetched, kept as `<pool>/images/<uid>.raw`, handed out again, and removed.
//!
//! - `source` brings the bytes here, wherever they come from;
//! - `status` decides what users are told, without doing anything; `class` is the StorageClass of an image;
//! - `transfer` takes uploads and gives downloads, `pieces` takes uploads that come in several; `settings` says how the world outside is reached.
//!
//! A finalizer holds an image until its file and class are gone. A download that was interrupted, by whatever, goes on where it
//! was; its part lies in `<pool>/imports` under the image's uid.

mod class;
mod pieces;
pub(crate) mod settings;
mod source;
mod status;
mod transfer;

use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use croft_api::cdi::CDIConfig;
use croft_api::harvester::{Setting, VirtualMachineImage, VirtualMachineImageStatus, source_type};
use croft_image::Options;
use croft_meta::Chain;
use croft_reconcile::{Cache, Change, Error, Events, Key, Keys, Loop, Source, Tasks, failure};
use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::MANAGER;
use crate::volume::Volumes;
use settings::Settings;
pub use transfer::TransferError;

/// Harvester's own, so that whoever looks for it finds it.
const FINALIZER: &str = "wrangler.cattle.io/vm-image-controller";
/// How many images are brought here at a time.
const WORKERS: usize = 4;

/// Shared: clones are the same images.
#[derive(Clone, Debug)]
pub struct Images(Arc<Inner>);

struct Inner {
    client: Client,
    events: Events,
    volumes: Volumes,
    images: Cache<VirtualMachineImage>,
    settings: Settings,
    /// Imports and uploads that run, by the uid of their image. Cancelled when the image goes.
    running: Mutex<HashMap<String, Work>>,
}

/// An import or an upload.
#[derive(Debug)]
struct Work {
    cancelled: CancellationToken,
    /// One of several: the next may take its place.
    is_piece: bool,
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Images").field("dir", &self.dir()).finish_non_exhaustive()
    }
}

impl Images {
    pub fn new(client: Client, events: Events, volumes: Volumes) -> Self {
        let (images, settings, running) = (Cache::default(), Settings::default(), Mutex::default());
        Self(Arc::new(Inner { client, events, volumes, images, settings, running }))
    }

    /// Of all images. Waits until all that there are have been seen.
    pub(crate) async fn uids(&self) -> Vec<String> {
        self.0.images.synced().await;
        self.0.images.list().iter().filter_map(|image| image.uid()).collect()
    }

    /// How registries and other servers are reached.
    pub(crate) fn settings(&self) -> &Settings {
        &self.0.settings
    }

    /// Looks after images until `stop`.
    pub async fn run(self, stop: CancellationToken) {
        let inner = self.0;
        let (keys, received) = Keys::channel();
        let mut tasks = Tasks::default();
        let (settings, cdi) = (inner.settings.settings.clone(), inner.settings.cdi.clone());
        tasks.spawn(keep(settings.follow(inner.client.clone(), Source::of::<Setting>()), stop.clone()));
        tasks.spawn(keep(cdi.follow(inner.client.clone(), Source::of::<CDIConfig>()), stop.clone()));
        tasks.spawn(Arc::clone(&inner).follow(keys.clone(), stop.clone()));
        let gate = {
            let inner = Arc::clone(&inner);
            async move { inner.start().await }
        };
        let work = Loop { name: "images", workers: WORKERS, stop };
        let worker = Arc::clone(&inner);
        work.run(received, gate, move |key| Arc::clone(&worker).reconcile(key, keys.clone())).await;
        tasks.finish().await;
    }
}

/// Keeps a cache filled.
pub(crate) async fn keep<K: Send>(changes: impl futures::Stream<Item = Change<K>> + Send, stop: CancellationToken) {
    futures::pin_mut!(changes);
    tokio::select! {
        () = stop.cancelled() => {}
        () = async { while changes.next().await.is_some() {} } => {}
    }
}

impl Inner {
    fn dir(&self) -> PathBuf {
        self.volumes.pool_for_scratch().join("images")
    }

    fn file(&self, uid: &str) -> PathBuf {
        self.dir().join(format!("{uid}.raw"))
    }

    fn work_dir(&self) -> PathBuf {
        work_dir(&self.volumes)
    }

    fn options(&self, uid: &str) -> Options {
        Options::new(self.work_dir(), uid)
    }

    async fn follow(self: Arc<Self>, keys: Keys<Key>, stop: CancellationToken) {
        let changes = self.images.follow(self.client.clone(), Source::of::<VirtualMachineImage>());
        futures::pin_mut!(changes);
        loop {
            let change = tokio::select! {
                () = stop.cancelled() => return,
                Some(change) = changes.next() => change,
                else => return,
            };
            let is_going = change.new.as_ref().is_none_or(|image| image.metadata.deletion_timestamp.is_some());
            let object = change.new.as_ref().or(change.old.as_ref());
            if let Some(uid) = object.and_then(|image| image.uid()).filter(|_| is_going)
                && let Some(running) = self.running.lock().get(&uid)
            {
                running.cancelled.cancel();
            }
            keys.send(change.key, Duration::ZERO).await;
        }
    }

    /// Nothing is decided before everything is known. Files of images that went while nobody looked are removed.
    async fn start(&self) {
        tokio::join!(self.images.synced(), self.settings.synced());
        let known: Vec<String> = self.images.list().iter().filter_map(|image| image.uid()).collect();
        let dir = self.dir();
        let swept = tokio::task::spawn_blocking(move || sweep_files(&dir, &known)).await;
        if let Ok(Err(error)) = swept {
            tracing::warn!(%error, "cannot look for files of images that are gone");
        }
    }

    async fn reconcile(self: Arc<Self>, key: Key, keys: Keys<Key>) -> Result<(), Error> {
        let Some(image) = self.images.get(&key) else { return Ok(()) };
        let Some(uid) = image.uid() else { return Ok(()) };
        if image.metadata.deletion_timestamp.is_some() {
            return self.remove(&key, &image, &uid).await;
        }
        if !image.finalizers().iter().any(|finalizer| finalizer == FINALIZER) {
            let finalizers: Vec<&str> = image.finalizers().iter().map(String::as_str).chain([FINALIZER]).collect();
            let version = image.resource_version();
            let change = json!({ "metadata": { "finalizers": finalizers, "resourceVersion": version } });
            self.patch(&key, &change).await?;
        }
        let mut current = image.status.clone().unwrap_or_default();
        if !status::is_initialized(&current) {
            let class = self.ensure_class(&image, &uid).await?;
            status::initialized(&mut current, &class, image.spec.url.as_deref(), Timestamp::now());
            self.patch(&key, &json!({ "status": current })).await?;
        }
        self.bring(&key, &image, &uid, current, &keys).await
    }

    /// Has the image's file brought here, unless that is done or has been given up.
    async fn bring(
        &self,
        key: &Key,
        image: &VirtualMachineImage,
        uid: &str,
        mut current: VirtualMachineImageStatus,
        keys: &Keys<Key>,
    ) -> Result<(), Error> {
        let has_file = self.file(uid).is_file();
        if status::is_final(&current) {
            let before = current.clone();
            status::check(&mut current, has_file, Timestamp::now());
            if current != before {
                self.patch(key, &json!({ "status": current })).await?;
            }
            return Ok(());
        }
        if has_file {
            // We were killed between the file and the word.
            return self.tell_imported(key, uid, current).await;
        }
        if image.spec.source_type == source_type::UPLOAD {
            return self.await_upload(key, uid, current).await;
        }
        if let Some(wait) = status::pause(&current, Timestamp::now()) {
            keys.send(key.clone(), wait).await;
            return Ok(());
        }
        let cancelled = CancellationToken::new();
        self.running.lock().insert(uid.to_owned(), Work { cancelled: cancelled.clone(), is_piece: false });
        let result = tokio::select! {
            () = cancelled.cancelled() => None,
            result = self.import(key, image, uid, &current) => Some(result),
        };
        self.running.lock().remove(uid);
        match result {
            None => Ok(()),
            Some(Ok(size)) => {
                current.size = size.and_then(|size| i64::try_from(size).ok()).or(current.size);
                self.events.normal(image, "Imported", "the image is ready");
                self.tell_imported(key, uid, current).await
            }
            Some(Err(failed)) => self.tell_failed(key, image, uid, current, &failed, keys).await,
        }
    }

    async fn tell_imported(&self, key: &Key, uid: &str, mut current: VirtualMachineImageStatus) -> Result<(), Error> {
        let length = std::fs::metadata(self.file(uid)).map(|file| file.len()).unwrap_or_default();
        status::imported(&mut current, length, Timestamp::now());
        self.patch(key, &json!({ "status": current })).await
    }

    async fn tell_failed(
        &self,
        key: &Key,
        image: &VirtualMachineImage,
        uid: &str,
        mut current: VirtualMachineImageStatus,
        failed: &source::Failed,
        keys: &Keys<Key>,
    ) -> Result<(), Error> {
        tracing::debug!(image = %key, error = %failed.message, "an image could not be imported");
        self.events.warning(image, "ImportFailed", &failed.message);
        let retry = image.spec.retry.unwrap_or(3);
        let is_over = status::failed(&mut current, retry, &failed.message, failed.may_pass, Timestamp::now());
        if is_over {
            croft_image::forget(&self.work_dir(), uid);
        }
        self.patch(key, &json!({ "status": current })).await?;
        if let Some(wait) = status::pause(&current, Timestamp::now()).filter(|_| !is_over) {
            keys.send(key.clone(), wait).await;
        }
        Ok(())
    }

    /// One that was begun and is not running any more was cut off by our end.
    async fn await_upload(&self, key: &Key, uid: &str, mut current: VirtualMachineImageStatus) -> Result<(), Error> {
        if current.progress.unwrap_or_default() == 0 || self.running.lock().contains_key(uid) {
            return Ok(());
        }
        if croft_image::received(&self.work_dir(), uid).is_some() {
            // Its sender may go on whenever it likes.
            return Ok(());
        }
        status::upload_failed(&mut current, "the upload was interrupted", Timestamp::now());
        self.patch(key, &json!({ "status": current })).await
    }

    /// The file and the class go, then the image may.
    async fn remove(&self, key: &Key, image: &VirtualMachineImage, uid: &str) -> Result<(), Error> {
        if !image.finalizers().iter().any(|finalizer| finalizer == FINALIZER) {
            return Ok(());
        }
        if self.running.lock().contains_key(uid) {
            return Err(Error::NotYet("an upload is being ended".to_owned()));
        }
        croft_image::forget(&self.work_dir(), uid);
        match std::fs::remove_file(self.file(uid)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(Error::NotYet(format!("the file of image {key} cannot be removed: {error}")));
            }
            _ => {}
        }
        let classes: Api<StorageClass> = Api::all(self.client.clone());
        for name in class::names(image, uid) {
            let existing = failure::absent_is_none(classes.get(&name).await)?;
            if existing.is_some_and(|class| class::belongs_to(&class, uid)) {
                failure::absent_is_none(classes.delete(&name, &DeleteParams::default()).await)?;
            }
        }
        let finalizers: Vec<&String> = image.finalizers().iter().filter(|it| *it != FINALIZER).collect();
        let change = json!({ "metadata": { "finalizers": finalizers, "resourceVersion": image.resource_version() } });
        match self.patch(key, &change).await {
            Err(Error::Api(error)) if failure::is_not_found(&error) => Ok(()),
            other => other,
        }
    }

    /// The class that volumes of this image name. Its usual name may be taken by an image of another namespace.
    async fn ensure_class(&self, image: &VirtualMachineImage, uid: &str) -> Result<String, Error> {
        let classes: Api<StorageClass> = Api::all(self.client.clone());
        let chosen = match class::template_of(image) {
            None => None,
            Some(name) => failure::absent_is_none(classes.get(&name).await)?,
        };
        for name in class::names(image, uid) {
            let wanted = class::class(&name, image, uid, chosen.as_ref());
            match classes
                .create(&PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() }, &wanted)
                .await
            {
                Ok(_) => return Ok(name),
                Err(error) if failure::is_conflict(&error) => {}
                Err(error) => return Err(error.into()),
            }
            if class::belongs_to(&classes.get(&name).await?, uid) {
                return Ok(name);
            }
        }
        Err(Error::NotYet("the names of the image's storage class are taken".to_owned()))
    }

    /// What is written is seen at once.
    async fn patch(&self, key: &Key, change: &Value) -> Result<(), Error> {
        let api: Api<VirtualMachineImage> = Api::namespaced(self.client.clone(), &key.namespace);
        let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        let patched = api.patch(&key.name, &params, &Patch::Merge(change)).await;
        let patched =
            patched.inspect_err(|error| tracing::debug!(image = %key, error = %Chain(error), "not written"))?;
        self.images.insert(key.clone(), patched);
        Ok(())
    }
}

/// Where imports of images and claims are under way.
pub(crate) fn work_dir(volumes: &Volumes) -> PathBuf {
    volumes.pool_for_scratch().join("imports")
}

/// A directory that only we get into.
pub(crate) fn make_dir(path: &std::path::Path) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

fn sweep_files(dir: &std::path::Path, known: &[String]) -> std::io::Result<()> {
    make_dir(dir)?;
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        let uid = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        if path.extension().is_some_and(|ending| ending == "raw") && !known.iter().any(|it| it == uid) {
            tracing::info!(path = %path.display(), "removing the file of an image that is gone");
            std::fs::remove_file(&path)?;
        }
    }
    Ok(())
}
