//! Bringing an image's bytes here: from a URL, the backup target, a volume, or another image.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use croft_api::harvester::{VirtualMachineImage, VirtualMachineImageStatus, source_type};
use croft_image::{Checksum, ImportError, Options, Progress};
use croft_meta::Chain;
use croft_reconcile::Key;
use kube::ResourceExt;
use serde_json::json;
use tokio::sync::watch;

use super::{Inner, make_dir, status};

/// How often users are told how far it is.
const REPORT: Duration = Duration::from_secs(1);

/// Why an image is not here, in words for its condition.
#[derive(Debug)]
pub(super) struct Failed {
    pub(super) message: String,
    /// Whether another try may help.
    pub(super) may_pass: bool,
}

impl Failed {
    fn for_good(message: impl Into<String>) -> Self {
        Self { message: message.into(), may_pass: false }
    }

    fn for_now(message: impl Into<String>) -> Self {
        Self { message: message.into(), may_pass: true }
    }
}

impl From<ImportError> for Failed {
    fn from(error: ImportError) -> Self {
        Self { message: Chain(&error).to_string(), may_pass: error.may_pass() }
    }
}

/// What the image's bytes are to have.
pub(super) fn checksum(image: &VirtualMachineImage) -> Result<Option<Checksum>, Failed> {
    let text = image.spec.checksum.as_deref().map(str::trim).filter(|checksum| !checksum.is_empty());
    text.map(str::parse).transpose().map_err(|error: croft_image::ChecksumError| Failed::for_good(error.to_string()))
}

impl Inner {
    /// Makes the image's file. Gives the size of what was downloaded, if it was.
    pub(super) async fn import(
        &self,
        key: &Key,
        image: &VirtualMachineImage,
        uid: &str,
        current: &VirtualMachineImageStatus,
    ) -> Result<Option<u64>, Failed> {
        for dir in [self.dir(), self.work_dir()] {
            make_dir(&dir).map_err(|error| Failed::for_now(format!("cannot make {}: {error}", dir.display())))?;
        }
        match image.spec.source_type.as_str() {
            source_type::DOWNLOAD => self.download(key, image, uid, current).await.map(Some),
            source_type::EXPORT_FROM_VOLUME => self.export_volume(image, uid).await.map(|()| None),
            source_type::CLONE => self.clone_image(image, uid).await.map(|()| None),
            source_type::RESTORE => self.restore(key, image, uid, current).await.map(Some),
            other => Err(Failed::for_good(format!("the sourceType {other} is not known"))),
        }
    }

    async fn download(
        &self,
        key: &Key,
        image: &VirtualMachineImage,
        uid: &str,
        current: &VirtualMachineImageStatus,
    ) -> Result<u64, Failed> {
        let url = image.spec.url.as_deref().unwrap_or_default();
        let checksum = checksum(image)?;
        let (send, seen) = watch::channel(Progress { done: 0, total: None });
        let progress = Arc::new(move |progress| _ = send.send_replace(progress));
        let options = Options { checksum, progress, ..self.options(uid) };
        let (transport, file) = (self.settings.transport(), self.file(uid));
        let import = croft_image::import_url(url, &transport, &file, &options);
        tokio::select! {
            imported = import => Ok(imported?.size),
            () = self.report(key, current, seen) => Err(Failed::for_now("nobody reports any more")),
        }
    }

    /// From the backup target.
    async fn restore(
        &self,
        key: &Key,
        image: &VirtualMachineImage,
        uid: &str,
        current: &VirtualMachineImageStatus,
    ) -> Result<u64, Failed> {
        let url = image.spec.url.as_deref().unwrap_or_default();
        let (send, seen) = watch::channel(Progress { done: 0, total: None });
        let told = move |now: croft_backup::Progress| {
            send.send_replace(Progress { done: now.done, total: Some(now.total) });
        };
        let transfer = croft_backup::Transfer { progress: Some(Arc::new(told)), ..croft_backup::Transfer::default() };
        let options = Options { checksum: checksum(image)?, ..self.options(uid) };
        let file = self.file(uid);
        tokio::select! {
            fetched = self.volumes.fetch_image(url, &file, &options, &transfer) => match fetched {
                Ok(imported) => Ok(imported.size),
                Err(why) => Err(Failed::for_now(why)),
            },
            () = self.report(key, current, seen) => Err(Failed::for_now("nobody reports any more")),
        }
    }

    /// Tells how far it is, now and then; has no end. Nothing but the figures is written: a late word must not undo what is said
    /// about the outcome.
    pub(super) async fn report(
        &self,
        key: &Key,
        current: &VirtualMachineImageStatus,
        mut seen: watch::Receiver<Progress>,
    ) {
        let mut told = (current.progress.unwrap_or_default(), current.size);
        loop {
            if seen.changed().await.is_err() {
                return std::future::pending().await;
            }
            let Progress { done, total } = *seen.borrow_and_update();
            let size = total.and_then(|total| i64::try_from(total).ok()).or(told.1);
            let now = (status::percent(done, total), size);
            if now != told {
                told = now;
                let change = json!({ "status": { "progress": now.0, "size": now.1 } });
                if let Err(error) = self.patch(key, &change).await {
                    tracing::debug!(image = %key, error = %Chain(&error), "progress could not be told");
                }
            }
            tokio::time::sleep(REPORT).await;
        }
    }

    async fn export_volume(&self, image: &VirtualMachineImage, uid: &str) -> Result<(), Failed> {
        let namespace = image.spec.pvc_namespace.clone().filter(|it| !it.is_empty()).or_else(|| image.namespace());
        let (namespace, claim) = (namespace.unwrap_or_default(), image.spec.pvc_name.clone().unwrap_or_default());
        let attached = self.volumes.attach(&namespace, &claim);
        let attached = attached.map_err(|error| Failed::for_now(Chain(&error).to_string()))?;
        if attached.is_being_filled {
            return Err(Failed::for_now(format!("claim {namespace}/{claim} is still being filled")));
        }
        self.copy(&attached.path, uid).await
    }

    async fn clone_image(&self, image: &VirtualMachineImage, uid: &str) -> Result<(), Failed> {
        let Some(wanted) = &image.spec.security_parameters else {
            return Err(Failed::for_good("securityParameters do not say which image to clone"));
        };
        // Admission refuses it too; an image from before it did must not become a plain copy of something secret.
        let message = format!("to {} images is not supported", wanted.crypto_operation);
        if !wanted.crypto_operation.is_empty() {
            return Err(Failed::for_good(message));
        }
        let source = Key::new(&wanted.source_image_namespace, &wanted.source_image_name);
        let found = self.images.get(&source).ok_or_else(|| Failed::for_now(format!("there is no image {source}")))?;
        if !found.status.as_ref().is_some_and(status::is_imported) {
            return Err(Failed::for_now(format!("image {source} is not ready")));
        }
        self.copy(&self.file(&found.uid().unwrap_or_default()), uid).await
    }

    /// By a name of its own until it is whole. Shares the blocks where the file system can.
    async fn copy(&self, from: &Path, uid: &str) -> Result<(), Failed> {
        let (from, staged, to) = (from.to_owned(), self.work_dir().join(format!("{uid}.raw")), self.file(uid));
        let copied = tokio::task::spawn_blocking(move || {
            let copy = || -> Result<(), ImportError> {
                let failed = |source| ImportError::File { doing: "make", path: staged.clone(), source };
                std::fs::File::create(&staged).map_err(failed)?;
                croft_image::place(&from, &staged)?;
                std::fs::rename(&staged, &to).map_err(failed)
            };
            copy().inspect_err(|_| drop(std::fs::remove_file(&staged)))
        });
        Ok(copied.await.map_err(|_| Failed::for_now("copying panicked"))??)
    }
}
