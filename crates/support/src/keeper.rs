//! SupportBundles: each is made once, told about while it is made, and deleted when it expires.
//!
//! A bundle is a file only when it is whole: it is written beside its name and renamed. One whose making was cut short
//! by the end of the server is told so at the next start, and what there was of it is removed.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use croft_api::harvester::support_bundle::{NAMESPACE, file_name};
use croft_api::harvester::{SupportBundle, SupportBundleStatus, set_condition};
use croft_meta::Chain;
use croft_reconcile::{Cache, Error, Key, Keys, Loop, Source, Tasks, failure};
use futures::StreamExt;
use jiff::Timestamp;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Api, Client};
use serde_json::json;
use tokio::sync::{Mutex, watch};
use tokio_util::sync::CancellationToken;

use crate::Config;
use crate::archive::{Archive, Limits};
use crate::collect::{CollectError, collect};
use crate::terms::Terms;

/// Who the managed fields say it was.
const MANAGER: &str = "harvester";
const LIMITS: Limits = Limits { file: 32 << 20, whole: 512 << 20, files: 20_000 };
/// Bundles that are kept at a time: they lie on the disk of the machines.
const KEPT: usize = 10;
const PARTIAL: &str = "partial";
/// Progress is told no more often than this.
const TELL: Duration = Duration::from_millis(500);

#[derive(Debug, thiserror::Error)]
enum MakeError {
    #[error("it must be in the namespace {NAMESPACE}")]
    Elsewhere,
    #[error("{KEPT} bundles are kept already: download or delete one first")]
    TooMany,
    #[error("the directory {} cannot be used", path.display())]
    Directory {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("it took longer than {} minutes", .0.as_secs() / 60)]
    TooSlow(Duration),
    #[error(transparent)]
    Collect(#[from] CollectError),
    #[error("the finished bundle cannot be put in its place")]
    Finish(#[source] io::Error),
}

/// Makes and expires bundles until `stop`.
pub async fn run(config: Config, stop: CancellationToken) {
    let (keys, received) = Keys::channel();
    let cache: Cache<SupportBundle> = Cache::default();
    let mut tasks = Tasks::default();
    let (followed, source, told) = (cache.clone(), config.client.clone(), keys.clone());
    tasks.spawn(async move {
        let mut changes = std::pin::pin!(followed.follow(source, Source::of::<SupportBundle>()));
        while let Some(change) = changes.next().await {
            told.send(change.key, Duration::ZERO).await;
        }
    });
    let keeper = Arc::new(Keeper { config, cache, keys, one_at_a_time: Mutex::default() });
    let gate = async {
        keeper.cache.synced().await;
        keeper.sweep(true).await;
    };
    let reconcile = |key: Key| {
        let keeper = Arc::clone(&keeper);
        async move { keeper.look_at(&key).await }
    };
    let work = Loop { name: "support bundle", workers: 4, stop };
    tokio::select! {
        () = work.run(received, gate, reconcile) => {}
        () = async { loop { tasks.watch_over().await } } => {}
    }
}

struct Keeper {
    config: Config,
    cache: Cache<SupportBundle>,
    keys: Keys<Key>,
    one_at_a_time: Mutex<()>,
}

impl Keeper {
    async fn look_at(&self, key: &Key) -> Result<(), Error> {
        let is_there = |bundle: &Arc<SupportBundle>| bundle.metadata.deletion_timestamp.is_none();
        let Some(bundle) = self.cache.get(key).filter(is_there) else {
            self.sweep(false).await;
            return Ok(());
        };
        match bundle.status.as_ref().map_or("", |status| &status.state) {
            "" => self.make(key, &bundle).await,
            // It is not being made: that would be the work on this very key.
            "generating" => self.tell_failure(key, &bundle, "the server stopped while it was made: make another").await,
            "ready" => self.expire(key, &bundle).await,
            _ => Ok(()),
        }
    }

    async fn make(&self, key: &Key, bundle: &SupportBundle) -> Result<(), Error> {
        let _turn = self.one_at_a_time.lock().await;
        let terms = Terms::of(&self.config.client, bundle).await?;
        let mut status = SupportBundleStatus { state: "generating".to_owned(), ..SupportBundleStatus::default() };
        set_condition(&mut status.conditions, "Initialized", true, ("", ""), Timestamp::now());
        if !self.tell(key, bundle, &status).await? {
            return Ok(());
        }
        let (progress, reached) = watch::channel(0);
        let stem = terms.file_stem(uid(bundle), Timestamp::now());
        let made = tokio::select! {
            made = self.write(key, bundle, &terms, &stem, &progress) => made,
            () = self.tell_progress(key, bundle, reached) => {
                tracing::info!(bundle = %key, "a support bundle was deleted while it was made");
                return self.remove(bundle).await;
            }
        };
        match made {
            Ok(filesize) => {
                let status = SupportBundleStatus {
                    state: "ready".to_owned(),
                    progress: 100,
                    filename: format!("{stem}.zip"),
                    filesize,
                    ..status
                };
                tracing::info!(bundle = %key, filesize, "a support bundle was made");
                if !self.tell(key, bundle, &status).await? {
                    self.remove(bundle).await?;
                }
                Ok(())
            }
            Err(error) => {
                let why = Chain(&error).to_string();
                tracing::warn!(bundle = %key, error = why, "a support bundle could not be made");
                self.remove(bundle).await?;
                self.tell_failure(key, bundle, &why).await
            }
        }
    }

    /// Its size.
    async fn write(
        &self,
        key: &Key,
        bundle: &SupportBundle,
        terms: &Terms,
        stem: &str,
        progress: &watch::Sender<u64>,
    ) -> Result<u64, MakeError> {
        if key.namespace != NAMESPACE {
            return Err(MakeError::Elsewhere);
        }
        let is_ready = |bundle: &SupportBundle| bundle.status.as_ref().is_some_and(|status| status.state == "ready");
        if self.cache.list().iter().filter(|bundle| is_ready(bundle)).count() >= KEPT {
            return Err(MakeError::TooMany);
        }
        let directory = &self.config.directory;
        let made = DirBuilder::new().recursive(true).mode(0o700).create(directory);
        made.map_err(|source| MakeError::Directory { path: directory.clone(), source })?;
        let path = directory.join(file_name(uid(bundle)));
        let partial = path.with_added_extension(PARTIAL);
        let archive = Archive::create(&partial, stem, LIMITS);
        let collected = collect(&self.config, bundle, terms, archive, progress);
        let size = match terms.whole {
            None => collected.await?,
            Some(whole) => match tokio::time::timeout(whole, collected).await {
                Ok(collected) => collected?,
                Err(_) => return Err(MakeError::TooSlow(whole)),
            },
        };
        tokio::fs::rename(&partial, &path).await.map_err(MakeError::Finish)?;
        Ok(size)
    }

    /// Ends when the bundle is gone.
    async fn tell_progress(&self, key: &Key, bundle: &SupportBundle, mut reached: watch::Receiver<u64>) {
        loop {
            tokio::time::sleep(TELL).await;
            if reached.changed().await.is_err() {
                return std::future::pending().await;
            }
            let change = json!({ "status": { "progress": *reached.borrow_and_update() } });
            match self.patch(key, bundle, &change).await {
                Ok(false) => return,
                Ok(true) => {}
                Err(error) => tracing::debug!(bundle = %key, error = %Chain(&error), "progress could not be told"),
            }
        }
    }

    async fn tell_failure(&self, key: &Key, bundle: &SupportBundle, why: &str) -> Result<(), Error> {
        let mut status = SupportBundleStatus { state: "error".to_owned(), ..bundle.status.clone().unwrap_or_default() };
        set_condition(&mut status.conditions, "Initialized", false, ("Failed", why), Timestamp::now());
        self.tell(key, bundle, &status).await?;
        Ok(())
    }

    /// False if the bundle is gone.
    async fn tell(&self, key: &Key, bundle: &SupportBundle, status: &SupportBundleStatus) -> Result<bool, Error> {
        Ok(self.patch(key, bundle, &json!({ "status": status })).await?)
    }

    async fn patch(&self, key: &Key, bundle: &SupportBundle, change: &serde_json::Value) -> Result<bool, kube::Error> {
        let mut change = change.clone();
        // Another one of the same name is not meant.
        change["metadata"] = json!({ "uid": uid(bundle) });
        let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        match self.api(key).patch(&key.name, &params, &Patch::Merge(&change)).await {
            Ok(written) => {
                self.cache.wrote(written);
                Ok(true)
            }
            Err(error) if failure::is_not_found(&error) || failure::is_conflict(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn expire(&self, key: &Key, bundle: &SupportBundle) -> Result<(), Error> {
        let path = self.config.directory.join(file_name(uid(bundle)));
        let since = match tokio::fs::metadata(&path).await.and_then(|file| file.modified()) {
            Ok(since) => Timestamp::try_from(since).unwrap_or_default(),
            Err(error) => {
                let why = format!("its file is gone: {error}");
                return self.tell_failure(key, bundle, &why).await;
            }
        };
        let kept = Terms::of(&self.config.client, bundle).await?.kept;
        // A clock that was set back does not keep a bundle for ever: it counts as made now.
        let age = Duration::try_from(Timestamp::now().duration_since(since)).unwrap_or_default();
        if let Some(left) = kept.checked_sub(age).filter(|left| !left.is_zero()) {
            self.keys.send(key.clone(), left).await;
            return Ok(());
        }
        tracing::info!(bundle = %key, "a support bundle expired");
        let condition = Preconditions { uid: bundle.metadata.uid.clone(), ..Preconditions::default() };
        let params = DeleteParams { preconditions: Some(condition), ..DeleteParams::default() };
        failure::absent_is_none(self.api(key).delete(&key.name, &params).await)?;
        Ok(())
    }

    fn api(&self, key: &Key) -> Api<SupportBundle> {
        let client: Client = self.config.client.clone();
        Api::namespaced(client, &key.namespace)
    }

    /// What there is of a bundle's file.
    async fn remove(&self, bundle: &SupportBundle) -> Result<(), Error> {
        let path = self.config.directory.join(file_name(uid(bundle)));
        for path in [path.with_added_extension(PARTIAL), path] {
            remove(&path).await;
        }
        Ok(())
    }

    /// Removes the files of bundles that are no more, and at the start those that were never finished.
    async fn sweep(&self, is_start: bool) {
        let known: Vec<String> = self.cache.list().iter().map(|bundle| file_name(uid(bundle))).collect();
        let Ok(mut files) = tokio::fs::read_dir(&self.config.directory).await else { return };
        while let Ok(Some(file)) = files.next_entry().await {
            let name = file.file_name().to_string_lossy().into_owned();
            let is_partial = name.ends_with(&format!(".{PARTIAL}"));
            let is_over = if is_partial { is_start } else { !known.contains(&name) };
            if is_over {
                remove(&file.path()).await;
            }
        }
    }
}

fn uid(bundle: &SupportBundle) -> &str {
    bundle.metadata.uid.as_deref().unwrap_or_default()
}

async fn remove(path: &std::path::Path) {
    match tokio::fs::remove_file(path).await {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!(path = %path.display(), %error, "a support bundle's file could not be removed");
        }
        _ => {}
    }
}
