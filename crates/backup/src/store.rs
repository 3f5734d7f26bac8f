//! A target with backups in it: what all operations go through.

use std::collections::HashSet;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::TryStreamExt;
use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use crate::config::{BackingImageConfig, BackupConfig, VolumeConfig};
use crate::error::Error;
use crate::layout::{self, check_name};
use crate::target::{Entry, Target, TargetError};

/// The list of blocks of a disk of some 10 TiB.
const LARGEST_CONFIG: u64 = 600 << 20;
/// How long a target may be away before an operation on it is given up.
const PATIENCE: Duration = Duration::from_mins(1);
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Cheap to clone.
#[derive(Clone, Debug)]
pub struct BackupStore {
    pub(crate) target: Arc<dyn Target>,
    pub(crate) owner: Owner,
    patience: Duration,
}

/// Who writes into a target. Of all processes with the same name at most one may live at a time: whatever locks an earlier one
/// left are broken at once, and not only after they are old.
#[derive(Clone, Debug)]
pub struct Owner {
    pub(crate) name: String,
    pub(crate) session: String,
    /// Locks that were let go while the target was away, so that their files are still there.
    pub(crate) left: Arc<Mutex<HashSet<String>>>,
}

impl Owner {
    /// `name` says which node of which cluster it is.
    pub fn new(name: impl Into<String>) -> Result<Self, Error> {
        let session = format!("{:016x}", getrandom::u64().map_err(Error::Random)?);
        Ok(Self { name: name.into(), session, left: Arc::default() })
    }
}

impl BackupStore {
    pub fn new(target: Arc<dyn Target>, owner: Owner) -> Self {
        Self { target, owner, patience: PATIENCE }
    }

    /// Gives up after this long when the target cannot be reached or has a problem.
    #[must_use]
    pub fn with_patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// For what is done on the way out: a target that is away is not waited for.
    pub(crate) fn hasty(&self) -> Self {
        self.clone().with_patience(Duration::ZERO)
    }

    pub fn target(&self) -> &dyn Target {
        self.target.as_ref()
    }

    /// Tries until it works, or fails for a reason that will not pass, or the patience ends. All operations on targets may be
    /// repeated.
    pub(crate) async fn insist<T, F>(&self, operation: impl Fn() -> F) -> Result<T, TargetError>
    where
        F: Future<Output = Result<T, TargetError>>,
    {
        let give_up = Instant::now() + self.patience;
        let mut pause = FIRST_PAUSE;
        loop {
            match operation().await {
                Err(error) if error.may_pass() && Instant::now() + pause < give_up => {
                    tracing::warn!(error = %croft_meta::Chain(&error), "a backup target fails; trying again");
                }
                other => return other,
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    pub(crate) async fn get(&self, path: &str, limit: u64) -> Result<Bytes, TargetError> {
        self.insist(|| self.target.get(path, limit)).await
    }

    pub(crate) async fn put(&self, path: &str, data: Bytes) -> Result<(), TargetError> {
        self.insist(|| self.target.put(path, data.clone())).await
    }

    /// Several, in no order: after an error some of them may be there.
    pub(crate) async fn put_all(&self, files: Vec<(String, Bytes)>) -> Result<(), TargetError> {
        self.insist(|| self.target.put_all(files.clone())).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Result<(), TargetError> {
        self.insist(|| self.target.delete(path)).await
    }

    pub(crate) async fn stat(&self, path: &str) -> Result<Option<Entry>, TargetError> {
        self.insist(|| self.target.stat(path)).await
    }

    pub(crate) async fn list(&self, dir: &str) -> Result<Vec<String>, TargetError> {
        self.insist(|| self.target.list(dir)).await
    }

    /// Folds all files below a directory. Begins anew, with `start`, when the target fails on the way.
    pub(crate) async fn fold<T>(
        &self,
        dir: &str,
        start: impl Fn() -> T,
        mut add: impl FnMut(&mut T, Entry),
    ) -> Result<T, TargetError> {
        let add = parking_lot::Mutex::new(&mut add);
        self.insist(|| async {
            let mut folded = start();
            let mut entries = self.target.walk(dir);
            while let Some(entry) = entries.try_next().await? {
                (add.lock())(&mut folded, entry);
            }
            Ok(folded)
        })
        .await
    }

    pub(crate) async fn load<T: DeserializeOwned>(&self, path: &str) -> Result<Option<T>, Error> {
        match self.get(path, LARGEST_CONFIG).await {
            Ok(text) => {
                serde_json::from_slice(&text).map(Some).map_err(|source| Error::Config { path: path.into(), source })
            }
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    pub(crate) async fn save<T: Serialize>(&self, path: &str, value: &T) -> Result<(), Error> {
        let text = serde_json::to_vec(value).map_err(|source| Error::Config { path: path.into(), source })?;
        Ok(self.put(path, text.into()).await?)
    }

    /// Those with at least one file in their directory; not all of them need have a complete backup.
    pub async fn volumes(&self) -> Result<Vec<String>, Error> {
        let mut volumes = Vec::new();
        for first in self.list(layout::VOLUMES).await? {
            for second in self.list(&format!("{}/{first}", layout::VOLUMES)).await? {
                let names = self.list(&format!("{}/{first}/{second}", layout::VOLUMES)).await?;
                volumes.extend(names.into_iter().filter(|name| layout::is_volume(name)));
            }
        }
        volumes.sort_unstable();
        Ok(volumes)
    }

    pub async fn volume(&self, volume: &str) -> Result<Option<VolumeConfig>, Error> {
        named("a volume", volume)?;
        self.load(&layout::volume_config(volume)).await
    }

    /// The names of a volume's backups, of those under way too.
    pub async fn backups(&self, volume: &str) -> Result<Vec<String>, Error> {
        named("a volume", volume)?;
        let files = self.list(&layout::backups_dir(volume)).await?;
        let mut names: Vec<_> = files.iter().filter_map(|file| layout::backup_name(file)).map(str::to_owned).collect();
        names.sort_unstable();
        Ok(names)
    }

    pub async fn backup(&self, volume: &str, backup: &str) -> Result<Option<BackupConfig>, Error> {
        named("a volume", volume)?;
        named("a backup", backup)?;
        self.load(&layout::backup_config(volume, backup)).await
    }

    pub async fn backing_images(&self) -> Result<Vec<String>, Error> {
        let mut names = self.list(layout::BACKING_IMAGES).await?;
        names.retain(|name| check_name(name).is_ok());
        names.sort_unstable();
        Ok(names)
    }

    pub async fn backing_image(&self, name: &str) -> Result<Option<BackingImageConfig>, Error> {
        named("a backing image", name)?;
        self.load(&layout::backing_image_config(name)).await
    }
}

pub(crate) fn named(what: &'static str, name: &str) -> Result<(), Error> {
    check_name(name).map_err(|source| Error::Name { what, source })
}

/// The time as all files have it.
pub(crate) fn now() -> String {
    jiff::Timestamp::now().round(jiff::Unit::Second).map_or_else(|_| String::new(), |now| now.to_string())
}
