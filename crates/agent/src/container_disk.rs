//! Disks out of container images: pulled once, kept raw as `<pool>/container-disks/<digest>.raw`, shared read-only by all who use
//! them, and removed some time after nobody does.
//!
//! Beside each disk lies a record for every name it was asked for by, so that a restart of ours or of the host finds it again.

mod record;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use croft_api::kubevirt::VirtualMachineInstance;
use croft_image::oci::{self, Platform, PullError, Reference};
use croft_image::{Credentials, Options};
use croft_meta::Chain;
use futures::FutureExt;
use futures::future::BoxFuture;
use jiff::Timestamp;
use kube::api::ListParams;
use kube::{Api, Client};
use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::image::settings::{self, Settings};
use crate::image::{Images, make_dir};
use crate::vm::host::{ImageWanted, Lacking};
use crate::volume::Volumes;
use record::{Record, Wanted};

/// How long a disk that nobody uses is kept, as long as there is room.
const UNUSED: Duration = Duration::from_hours(24);
const COLLECT: Duration = Duration::from_hours(1);
/// Of a hundred; with less free space than this nothing unused is kept.
const SCARCE: u64 = 15;

const FIRST_PAUSE: Duration = Duration::from_secs(5);
const LONGEST_PAUSE: Duration = Duration::from_mins(5);

/// When the registry is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PullPolicy {
    Always,
    IfNotPresent,
    Never,
}

impl PullPolicy {
    /// As Kubernetes has it: what is called `latest` may be another image tomorrow.
    fn of(text: Option<&str>, reference: &Reference) -> Self {
        match text {
            Some("Always") => Self::Always,
            Some("Never") => Self::Never,
            Some("IfNotPresent") => Self::IfNotPresent,
            _ if reference.digest().is_none() && reference.tag() == "latest" => Self::Always,
            _ => Self::IfNotPresent,
        }
    }
}

/// A disk that is here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerDisk {
    /// Raw, and not to be written to.
    pub path: PathBuf,
    pub digest: String,
    pub size_bytes: u64,
}

/// Shared: clones are the same disks.
#[derive(Clone, Debug)]
pub struct ContainerDisks(Arc<Inner>);

struct Inner {
    client: Client,
    images: Images,
    dir: PathBuf,
    /// One pull of the same at a time.
    pulls: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
    /// How often it failed in a row, and when to ask again.
    failures: Mutex<HashMap<String, (u32, Instant, String)>>,
    /// Held by those who may be about to make a disk; whoever removes disks waits for its turn.
    gate: tokio::sync::RwLock<()>,
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ContainerDisks").field("dir", &self.dir).finish_non_exhaustive()
    }
}

impl ContainerDisks {
    /// What an interrupted pull left is removed. A directory that cannot be made is told by the first pull.
    pub fn new(client: Client, images: Images, volumes: &Volumes) -> Self {
        let dir = volumes.pool_for_scratch().join("container-disks");
        if let Err(error) = clear(&work_dir(&dir)) {
            tracing::warn!(%error, "container disks have no place to be made in");
        }
        let (pulls, failures, gate) = (Mutex::default(), Mutex::default(), tokio::sync::RwLock::default());
        Self(Arc::new(Inner { client, images, dir, pulls, failures, gate }))
    }

    /// Removes disks that nobody has used for long, until `stop`.
    pub async fn run(self, stop: CancellationToken) {
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(COLLECT) => {}
            }
            if let Err(error) = self.0.collect().await {
                tracing::warn!(error = %Chain(&*error), "cannot remove unused container disks");
            }
        }
    }

    /// The disk of an image, pulled unless it is here and the policy lets it be. `path` is where it is in the image; by default
    /// the one file in `/disk`.
    pub async fn ensure(
        &self,
        image: &str,
        policy: PullPolicy,
        credentials: Option<Credentials>,
        path: Option<&str>,
    ) -> Result<ContainerDisk, PullError> {
        let wanted = Wanted { image: image.to_owned(), path: path.map(str::to_owned), is_disk: true };
        self.0.ensure(&wanted, &parse(image)?, policy, credentials).await
    }
}

/// Makes the directory, empty.
fn clear(dir: &Path) -> std::io::Result<()> {
    if dir.exists() {
        std::fs::remove_dir_all(dir)?;
    }
    make_dir(dir)
}

fn parse(image: &str) -> Result<Reference, PullError> {
    image.parse().map_err(|source| PullError::Reference { image: image.to_owned(), source })
}

fn work_dir(dir: &Path) -> PathBuf {
    dir.join("work")
}

impl crate::vm::host::Images for ContainerDisks {
    fn ensure<'a>(&'a self, wanted: &'a ImageWanted) -> BoxFuture<'a, Result<PathBuf, Lacking>> {
        self.0.ensure_wanted(wanted).boxed()
    }
}

impl Inner {
    fn settings(&self) -> &Settings {
        self.images.settings()
    }

    /// With the words that Kubernetes has for what goes wrong. A registry that refuses is not asked again at once.
    async fn ensure_wanted(&self, wanted: &ImageWanted) -> Result<PathBuf, Lacking> {
        let reference = parse(&wanted.image).map_err(|error| Lacking::ever(Chain(&error).to_string()))?;
        let policy = PullPolicy::of(wanted.pull_policy.as_deref(), &reference);
        let what = Wanted { image: wanted.image.clone(), path: wanted.path.clone(), is_disk: wanted.is_disk };
        let id = what.id();
        if let Some((_, until, message)) = self.failures.lock().get(&id)
            && *until > Instant::now()
        {
            return Err(Lacking::Yet { reason: "ImagePullBackOff", message: message.clone() });
        }
        let credentials = self.credentials(wanted, &reference).await?;
        match self.ensure(&what, &reference, policy, credentials).await {
            Ok(disk) => {
                self.failures.lock().remove(&id);
                Ok(disk.path)
            }
            Err(error) => {
                let message = format!("cannot pull {}: {}", wanted.image, Chain(&error));
                let mut failures = self.failures.lock();
                let count = failures.get(&id).map_or(0, |(count, ..)| *count).saturating_add(1);
                let pause = FIRST_PAUSE.saturating_mul(2_u32.saturating_pow(count - 1)).min(LONGEST_PAUSE);
                failures.insert(id, (count, Instant::now() + pause, message.clone()));
                Err(Lacking::Yet { reason: "ErrImagePull", message })
            }
        }
    }

    async fn credentials(&self, wanted: &ImageWanted, reference: &Reference) -> Result<Option<Credentials>, Lacking> {
        let Some(name) = wanted.pull_secret.as_deref().filter(|name| !name.is_empty()) else { return Ok(None) };
        match settings::secret(&self.client, &wanted.namespace, name).await {
            Ok(secret) => Ok(settings::credentials(&secret, reference.registry())),
            Err(error) => {
                let message = format!("the pull secret {name} cannot be read: {}", Chain(&error));
                Err(Lacking::Yet { reason: "ErrImagePull", message })
            }
        }
    }

    async fn ensure(
        &self,
        wanted: &Wanted,
        reference: &Reference,
        policy: PullPolicy,
        credentials: Option<Credentials>,
    ) -> Result<ContainerDisk, PullError> {
        let _open = self.gate.read().await;
        let id = wanted.id();
        let pull = Arc::clone(self.pulls.lock().entry(id.clone()).or_default());
        let _only = pull.lock().await;
        let known = Record::load(&self.dir, &id).and_then(|record| Some((record.disk(&self.dir)?, record)));
        let is_enough = policy != PullPolicy::Always || reference.digest().is_some();
        if let Some((disk, record)) = known.filter(|_| is_enough) {
            record.save(&self.dir, &id);
            return Ok(disk);
        }
        if policy == PullPolicy::Never {
            return Err(PullError::NotFound(format!("image {reference} on this node, and it must not be pulled")));
        }
        let access = self.settings().access(credentials);
        let found = oci::find(reference, &Platform::default(), &access).await?;
        let record = Record::new(wanted, &found.digest);
        if record.disk(&self.dir).is_none() {
            tracing::info!(image = %reference, digest = found.digest, "pulling");
            let (options, file) = (Options::new(work_dir(&self.dir), &id), record.path(&self.dir));
            match wanted.path.as_deref().filter(|_| !wanted.is_disk) {
                Some(path) => drop(found.pull_file(path, &file, &options).await?),
                None => drop(found.pull(wanted.path.as_deref(), &file, &options).await?),
            }
        }
        record.save(&self.dir, &id);
        record.disk(&self.dir).ok_or_else(|| PullError::NoDisk("its file is gone again".to_owned()))
    }

    /// Skipped while something is being pulled; there is a next time.
    async fn collect(&self) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let machines: Api<VirtualMachineInstance> = Api::all(self.client.clone());
        let machines = machines.list(&ListParams::default()).await?;
        let used: HashSet<String> = machines.items.iter().flat_map(images_of).collect();
        let Ok(_closed) = self.gate.try_write() else { return Ok(()) };
        let stat = rustix::fs::statvfs(&self.dir)?;
        let is_scarce = stat.f_bavail.saturating_mul(100) < stat.f_blocks.saturating_mul(SCARCE);
        let keep = if is_scarce { Duration::ZERO } else { UNUSED };
        self.pulls.lock().clear();
        record::sweep(&self.dir, &used, keep, Timestamp::now())?;
        Ok(())
    }
}

fn images_of(machine: &VirtualMachineInstance) -> Vec<String> {
    let disks = machine.spec.volumes.iter().filter_map(|volume| volume.container_disk.as_ref());
    let mut images: Vec<String> = disks.map(|disk| disk.image.clone()).collect();
    let boot = machine.spec.domain.firmware.as_ref().and_then(|firmware| firmware.kernel_boot.as_ref());
    images.extend(boot.and_then(|boot| boot.container.as_ref()).map(|container| container.image.clone()));
    images
}
