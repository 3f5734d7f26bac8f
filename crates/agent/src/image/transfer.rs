//! Uploads into images, and downloads of them.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use croft_api::harvester::{VirtualMachineImage, source_type};
use croft_image::{ImportError, Imported, Options, Progress};
use croft_meta::Chain;
use croft_reconcile::{Error, Key, failure};
use futures::Stream;
use jiff::Timestamp;
use kube::{Api, ResourceExt};
use serde_json::json;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{Images, Inner, Work, make_dir, status};

/// A sender that says nothing for this long has gone.
pub(crate) const STALL: Duration = Duration::from_mins(2);

/// Why a transfer failed; `code` is for HTTP.
#[derive(Debug, thiserror::Error)]
pub enum TransferError {
    #[error("there is no {0}")]
    NotFound(String),
    #[error("{0}")]
    Conflict(String),
    #[error("{0}")]
    BadRequest(String),
    #[error(transparent)]
    Import(#[from] ImportError),
    #[error("the API server refused")]
    Api(#[from] kube::Error),
}

impl TransferError {
    pub fn code(&self) -> u16 {
        match self {
            Self::NotFound(_) => 404,
            Self::Conflict(_) | Self::Import(ImportError::Offset { .. }) => 409,
            Self::BadRequest(_) | Self::Import(ImportError::Length { .. }) => 400,
            Self::Import(ImportError::NoSpace { .. }) => 507,
            Self::Import(ImportError::TooLarge { .. }) => 413,
            Self::Import(error) if error.may_pass() => 500,
            Self::Import(_) => 422,
            Self::Api(kube::Error::Api(status)) => status.code,
            Self::Api(_) => 500,
        }
    }
}

impl From<Error> for TransferError {
    fn from(error: Error) -> Self {
        match error {
            Error::Api(error) => Self::Api(error),
            Error::NotYet(text) => Self::Conflict(text),
        }
    }
}

impl Images {
    /// Fills an image of the source type `upload`. `size` must be how long the stream is. Dropping the future is an upload that
    /// failed, which the image says.
    pub async fn upload_image<S, E>(
        &self,
        namespace: &str,
        name: &str,
        size: Option<u64>,
        body: S,
    ) -> Result<Imported, TransferError>
    where
        S: Stream<Item = Result<Bytes, E>> + Unpin + Send,
        E: fmt::Display,
    {
        let (inner, key) = (&self.0, Key::new(namespace, name));
        let image = inner.waiting(&key).await?;
        let uid = image.uid().unwrap_or_default();
        let mut current = image.status.clone().unwrap_or_default();
        let running = Running::begin(inner, &uid, false)
            .ok_or_else(|| TransferError::Conflict(format!("an upload into image {key} is running")))?;
        status::uploading(&mut current, size, Timestamp::now());
        inner.patch(&key, &json!({ "status": current })).await?;
        let result = tokio::select! {
            result = inner.receive(&key, &uid, &current, size, body) => result,
            () = running.cancelled.cancelled() => Err(ImportError::GivenUp),
        };
        match &result {
            Ok(imported) => {
                current.size = i64::try_from(imported.size).ok();
                inner.tell_imported(&key, &uid, current).await?;
            }
            Err(error) => {
                status::upload_failed(&mut current, &Chain(error).to_string(), Timestamp::now());
                inner.events.warning(&*image, "UploadFailed", &Chain(error).to_string());
                if !running.cancelled.is_cancelled() {
                    inner.patch(&key, &json!({ "status": current })).await?;
                }
            }
        }
        Ok(result?)
    }

    /// The image as a gzip stream, and the name to save it by.
    pub async fn download_image(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<(String, impl Stream<Item = io::Result<Bytes>> + Send + Unpin + use<>), TransferError> {
        let key = Key::new(namespace, name);
        let image = self.0.get(&key).await?;
        if !image.status.as_ref().is_some_and(status::is_imported) {
            return Err(TransferError::Conflict(format!("image {key} is not ready")));
        }
        let stream = croft_image::export(&self.0.file(&image.uid().unwrap_or_default())).await?;
        Ok((format!("{}.gz", image.spec.display_name), stream))
    }
}

impl Inner {
    /// An image that is to be uploaded, and is not yet.
    pub(super) async fn waiting(&self, key: &Key) -> Result<Arc<VirtualMachineImage>, TransferError> {
        let image = self.get(key).await?;
        let current = image.status.clone().unwrap_or_default();
        if image.spec.source_type != source_type::UPLOAD {
            return Err(TransferError::BadRequest(format!("image {key} is not of the sourceType upload")));
        }
        if !status::is_initialized(&current) {
            return Err(TransferError::Conflict(format!("image {key} is not initialized yet: timeout waiting for it")));
        }
        if status::is_imported(&current) {
            return Err(TransferError::Conflict(format!("image {key} has been uploaded already")));
        }
        Ok(image)
    }

    /// From the server: an upload follows the creation so closely that the watch may be behind.
    async fn get(&self, key: &Key) -> Result<Arc<VirtualMachineImage>, TransferError> {
        let api: Api<VirtualMachineImage> = Api::namespaced(self.client.clone(), &key.namespace);
        let found = failure::absent_is_none(api.get(&key.name).await)?;
        found.map(Arc::new).ok_or_else(|| TransferError::NotFound(format!("image {key}")))
    }

    async fn receive<S, E>(
        &self,
        key: &Key,
        uid: &str,
        current: &croft_api::harvester::VirtualMachineImageStatus,
        size: Option<u64>,
        body: S,
    ) -> Result<Imported, ImportError>
    where
        S: Stream<Item = Result<Bytes, E>> + Unpin + Send,
        E: fmt::Display,
    {
        for dir in [self.dir(), self.work_dir()] {
            make_dir(&dir).map_err(|source| ImportError::File { doing: "make", path: dir, source })?;
        }
        let (send, seen) = watch::channel(Progress { done: 0, total: size });
        let options = Options { progress: Arc::new(move |it| _ = send.send_replace(it)), ..self.options(uid) };
        let file = self.file(uid);
        tokio::select! {
            imported = croft_image::import_stream(body, size, STALL, &file, &options) => imported,
            () = self.report(key, current, seen) => Err(ImportError::GivenUp),
        }
    }
}

/// An upload that runs; whoever removes the image cancels it.
pub(super) struct Running<'a> {
    inner: &'a Inner,
    uid: &'a str,
    pub(super) cancelled: CancellationToken,
}

impl<'a> Running<'a> {
    /// None if one runs already.
    pub(super) fn begin(inner: &'a Inner, uid: &'a str, is_piece: bool) -> Option<Self> {
        let mut running = inner.running.lock();
        if running.contains_key(uid) {
            return None;
        }
        let cancelled = CancellationToken::new();
        running.insert(uid.to_owned(), Work { cancelled: cancelled.clone(), is_piece });
        Some(Self { inner, uid, cancelled })
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.inner.running.lock().remove(self.uid);
    }
}
