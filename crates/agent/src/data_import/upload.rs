//! Uploads into claims, as CDI's upload proxy takes them.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use croft_api::cdi::filling::{is_filled, is_upload_target};
use croft_image::Imported;
use croft_meta::Chain;
use croft_reconcile::{Key, failure};
use futures::Stream;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::{Api, ResourceExt};
use parking_lot::Mutex;

use super::claim::is_archive;
use super::{DataImports, Inner, place};
use crate::image::TransferError;

/// A sender that says nothing for this long has gone.
const STALL: std::time::Duration = std::time::Duration::from_mins(2);

impl DataImports {
    /// Fills a claim that waits for an upload, from any format that is known. `size` must be how long the stream is, if it is
    /// given. An upload that breaks off can be made again.
    pub async fn upload_claim<S, E>(
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
        let claim = inner.upload_target(&key).await?;
        let uid = claim.uid().unwrap_or_default();
        let attached = inner.volumes.attach(namespace, name);
        let attached = attached.map_err(|error| TransferError::Conflict(Chain(&error).to_string()))?;
        let _running = Running::begin(&inner.uploads, &uid)
            .ok_or_else(|| TransferError::Conflict(format!("an upload into claim {key} is running")))?;
        let (options, staged) = (inner.options(&uid, &attached)?, inner.staged(&uid));
        let imported = croft_image::import_stream(body, size, STALL, &staged, &options).await;
        let imported = imported.inspect_err(|error| {
            inner.events.warning(&*claim, "UploadFailed", &Chain(error).to_string());
        })?;
        place(staged, attached.path.clone()).await?;
        inner.finish(&key, &claim, &attached).await??;
        inner.events.normal(&*claim, "UploadSucceeded", "Upload Successful");
        Ok(imported)
    }
}

impl Inner {
    async fn upload_target(&self, key: &Key) -> Result<Arc<PersistentVolumeClaim>, TransferError> {
        let api: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), &key.namespace);
        let claim = failure::absent_is_none(api.get(&key.name).await)?;
        let claim = claim.ok_or_else(|| TransferError::NotFound(format!("claim {key}")))?;
        if !is_upload_target(&claim) {
            return Err(TransferError::BadRequest(format!("claim {key} does not wait for an upload")));
        }
        if is_filled(&claim) {
            return Err(TransferError::Conflict(format!("claim {key} is filled already")));
        }
        if is_archive(&claim) {
            let message = "the contentType archive is not supported: volumes are disks".to_owned();
            return Err(TransferError::BadRequest(message));
        }
        Ok(Arc::new(claim))
    }
}

/// An upload that runs.
struct Running<'a> {
    uploads: &'a Mutex<std::collections::HashSet<String>>,
    uid: &'a str,
}

impl<'a> Running<'a> {
    fn begin(uploads: &'a Mutex<std::collections::HashSet<String>>, uid: &'a str) -> Option<Self> {
        uploads.lock().insert(uid.to_owned()).then_some(Self { uploads, uid })
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.uploads.lock().remove(self.uid);
    }
}
