//! Uploads that come in pieces, whatever happens between them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use croft_api::harvester::VirtualMachineImage;
use croft_image::{ImportError, Options, Progress, Received};
use croft_meta::Chain;
use croft_reconcile::Key;
use futures::Stream;
use jiff::Timestamp;
use kube::ResourceExt;
use serde_json::json;
use tokio::sync::watch;

use super::transfer::{Running, STALL};
use super::{Images, Inner, TransferError, make_dir, source, status};

/// For the piece before, whose sender is gone, to let go.
const TAKE_OVER: Duration = Duration::from_secs(10);
const LOOK_AGAIN: Duration = Duration::from_millis(20);

impl Images {
    /// How much of an image is here.
    pub async fn pieces_of(&self, namespace: &str, name: &str) -> Result<Option<Received>, TransferError> {
        let image = self.0.waiting(&Key::new(namespace, name)).await?;
        Ok(croft_image::received(&self.0.work_dir(), &image.uid().unwrap_or_default()))
    }

    /// Takes the piece of an image that begins at `offset`, and with the last one makes the image. Gives where the next begins.
    pub async fn upload_piece<S, E>(
        &self,
        (namespace, name): (&str, &str),
        (offset, length): (u64, u64),
        body: S,
    ) -> Result<u64, TransferError>
    where
        S: Stream<Item = Result<Bytes, E>> + Unpin + Send,
        E: fmt::Display,
    {
        let (inner, key) = (&self.0, Key::new(namespace, name));
        let image = inner.waiting(&key).await?;
        let uid = image.uid().unwrap_or_default();
        let running = inner.take_over(&key, &uid).await?;
        tokio::select! {
            taken = inner.take_piece(&key, &image, (offset, length), body) => taken,
            () = running.cancelled.cancelled() => Err(ImportError::GivenUp.into()),
        }
    }

    /// Throws away what is here of an image.
    pub async fn forget_pieces(&self, namespace: &str, name: &str) -> Result<(), TransferError> {
        let (inner, key) = (&self.0, Key::new(namespace, name));
        let image = inner.waiting(&key).await?;
        let uid = image.uid().unwrap_or_default();
        let _running = inner.take_over(&key, &uid).await?;
        croft_image::forget(&inner.work_dir(), &uid);
        Ok(inner.patch(&key, &json!({ "status": { "progress": 0 } })).await?)
    }
}

impl Inner {
    /// The place of whoever uploads. A sender whose connection was cut comes back before we have noticed that it was.
    async fn take_over<'a>(&'a self, key: &Key, uid: &'a str) -> Result<Running<'a>, TransferError> {
        let taking = async {
            loop {
                if let Some(running) = Running::begin(self, uid, true) {
                    return Some(running);
                }
                match self.running.lock().get(uid) {
                    Some(other) if !other.is_piece => return None,
                    Some(other) => other.cancelled.cancel(),
                    None => {}
                }
                tokio::time::sleep(LOOK_AGAIN).await;
            }
        };
        let taken = tokio::time::timeout(TAKE_OVER, taking).await.ok().flatten();
        taken.ok_or_else(|| TransferError::Conflict(format!("another upload into image {key} is running")))
    }

    async fn take_piece<S, E>(
        &self,
        key: &Key,
        image: &VirtualMachineImage,
        (offset, length): (u64, u64),
        body: S,
    ) -> Result<u64, TransferError>
    where
        S: Stream<Item = Result<Bytes, E>> + Unpin + Send,
        E: fmt::Display,
    {
        for dir in [self.dir(), self.work_dir()] {
            make_dir(&dir).map_err(|source| ImportError::File { doing: "make", path: dir, source })?;
        }
        let uid = image.uid().unwrap_or_default();
        let checksum = source::checksum(image).map_err(|failed| TransferError::BadRequest(failed.message))?;
        let mut current = image.status.clone().unwrap_or_default();
        if croft_image::received(&self.work_dir(), &uid).is_none() {
            status::uploading(&mut current, Some(length), Timestamp::now());
            self.patch(key, &json!({ "status": current })).await?;
        }
        let (send, seen) = watch::channel(Progress { done: offset, total: Some(length) });
        let progress = Arc::new(move |it| _ = send.send_replace(it));
        let options = Options { checksum, progress, ..self.options(&uid) };
        let taking = async {
            let reached = croft_image::append(body, offset, length, STALL, &options).await?;
            if reached < length {
                return Ok(None);
            }
            Ok(Some(croft_image::import_pieces(&self.file(&uid), &options).await))
        };
        let made = tokio::select! {
            taken = taking => taken.map_err(|error: ImportError| TransferError::from(error))?,
            () = self.report(key, &current, seen) => return Err(ImportError::GivenUp.into()),
        };
        match made {
            None => {}
            Some(Ok(imported)) => {
                current.size = i64::try_from(imported.size).ok();
                self.tell_imported(key, &uid, current).await?;
            }
            Some(Err(error)) => {
                self.tell_unusable(key, image, &error).await?;
                return Err(error.into());
            }
        }
        let here = croft_image::received(&self.work_dir(), &uid);
        Ok(here.map_or(length, |here| here.offset))
    }

    /// All of it came, and it is no image.
    async fn tell_unusable(
        &self,
        key: &Key,
        image: &VirtualMachineImage,
        error: &ImportError,
    ) -> Result<(), TransferError> {
        let text = Chain(error).to_string();
        let mut current = image.status.clone().unwrap_or_default();
        status::upload_failed(&mut current, &text, Timestamp::now());
        self.events.warning(image, "UploadFailed", &text);
        Ok(self.patch(key, &json!({ "status": current })).await?)
    }
}
