//! VolumeSnapshotContents: what they stand for, and what becomes of it.

use std::path::PathBuf;
use std::sync::Arc;

use croft_api::snapshot::{MODE_MAY_CHANGE, VolumeSnapshot, VolumeSnapshotContent, VolumeSnapshotContentStatus};
use croft_block::{Pool, Snapshot};
use croft_meta::Chain;
use croft_reconcile::failure::{absent_is_none, is_not_found};
use croft_reconcile::{Error, Key};
use jiff::Timestamp;
use kube::api::Patch;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use super::super::objects::{has_finalizer, params, with_finalizer, without_finalizer};
use super::super::remote::{self, Move};
use super::super::{Inner, blocking, is_ours};
use super::{NODE, file_name};

pub(super) const PROTECTION: &str = "snapshot.storage.kubernetes.io/volumesnapshotcontent-bound-protection";
/// How Longhorn writes handles: `snap://<volume>/<snapshot>`.
const SCHEME: &str = "snap://";

pub(in super::super) fn snapshot_of(content: &VolumeSnapshotContent) -> Key {
    let reference = &content.spec.volume_snapshot_ref;
    Key::new(reference.namespace.as_deref().unwrap_or_default(), reference.name.as_deref().unwrap_or_default())
}

/// Whether a content is for this very snapshot; one that was reserved by name takes whoever has it and asks for it.
pub(super) fn is_for(content: &VolumeSnapshotContent, snapshot: &VolumeSnapshot) -> bool {
    let uid = content.spec.volume_snapshot_ref.uid.as_deref().unwrap_or_default();
    let asked = snapshot.spec.source.volume_snapshot_content_name.as_deref();
    snapshot_of(content) == Key::of(snapshot)
        && (Some(uid) == snapshot.metadata.uid.as_deref()
            || (uid.is_empty() && asked == content.metadata.name.as_deref()))
}

/// Contents that somebody else made name no node; who has the file looks after them.
pub(super) fn is_here(content: &VolumeSnapshotContent, node: &str) -> bool {
    is_ours(&content.spec.driver) && content.annotations().get(NODE).is_none_or(|named| named == node)
}

/// The name of its file.
pub(in super::super) fn file_of(content: &VolumeSnapshotContent) -> Option<String> {
    let source = &content.spec.source;
    if let Some(handle) = &source.snapshot_handle {
        let path = handle.strip_prefix(SCHEME).unwrap_or(handle);
        return path.rsplit('/').next().map(str::to_owned);
    }
    let uid = content.spec.volume_snapshot_ref.uid.as_deref().filter(|uid| !uid.is_empty());
    uid.map(file_name)
}

/// The volume that it was taken of.
pub(in super::super) fn volume_of(content: &VolumeSnapshotContent) -> Option<String> {
    let source = &content.spec.source;
    let given = source.snapshot_handle.as_deref().and_then(|handle| handle.strip_prefix(SCHEME)?.split_once('/'));
    source.volume_handle.clone().or_else(|| given.map(|(volume, _)| volume.to_owned()))
}

fn handle_of(content: &VolumeSnapshotContent, file: &str) -> String {
    let source = &content.spec.source;
    source
        .snapshot_handle
        .clone()
        .unwrap_or_else(|| format!("{SCHEME}{}/{file}", source.volume_handle.as_deref().unwrap_or_default()))
}

impl Inner {
    pub(in super::super) fn content_api(&self) -> Api<VolumeSnapshotContent> {
        Api::all(self.client.clone())
    }

    pub(in super::super) async fn reconcile_content(self: &Arc<Self>, name: &str) -> Result<(), Error> {
        let Some(content) = self.contents.get(&Key::new("", name)) else { return Ok(()) };
        if !is_here(&content, &self.node_name) {
            return Ok(());
        }
        if content.metadata.deletion_timestamp.is_some() {
            return self.let_content_go(&content).await;
        }
        if !has_finalizer(content.as_ref(), PROTECTION) {
            let finalizers = with_finalizer(content.as_ref(), PROTECTION);
            let change = json!({ "metadata": { "resourceVersion": content.metadata.resource_version, "finalizers": finalizers } });
            self.patch_content(name, &change).await?;
        }
        let content = self.tell_content(&content).await?;
        if remote::waits_to_be_sent(&content) {
            self.moves.want(Move::Send(name.to_owned())).await;
        }
        Ok(())
    }

    /// Says what its file is.
    pub(super) async fn tell_content(&self, content: &VolumeSnapshotContent) -> Result<VolumeSnapshotContent, Error> {
        let file = file_of(content).unwrap_or_default();
        let found = self.pools.find_snapshot(&file).map(|(_, found)| found);
        let missing = || bad(content, &format!("there is no snapshot {file} on node {}", self.node_name));
        let status = match (remote::in_target(content), found) {
            // It is in the target, whatever is here.
            (Some(_), _) if remote::backup_of(content).is_some() => return Ok(content.clone()),
            (Some((volume, backup)), _) => self.remote_status(content, &volume, &backup).await?,
            (None, Some(found)) if remote::backup_of(content).is_some() => taken(content, &found),
            (None, Some(found)) => good(&handle_of(content, &file), &found),
            (None, None) => missing(),
        };
        self.write_content_status(content, status).await
    }

    /// What somebody says to be in the target.
    async fn remote_status(&self, content: &VolumeSnapshotContent, volume: &str, backup: &str) -> Result<Value, Error> {
        let Some(found) = self.whole_backup(backup).await?.filter(|found| found.volume_name == volume) else {
            return Ok(bad(content, &format!("there is no backup {backup} of volume {volume} in the target")));
        };
        let taken_at = croft_meta::time::parse(&found.snapshot_created_at).unwrap_or_default();
        Ok(json!({
            "snapshotHandle": croft_api::longhorn::backup_handle(volume, backup),
            "creationTime": i64::try_from(taken_at.as_nanosecond()).unwrap_or_default(),
            "restoreSize": found.volume_size.parse::<i64>().unwrap_or_default(),
            "readyToUse": true,
            "error": null,
        }))
    }

    /// What is the same is not written.
    pub(in super::super) async fn write_content_status(
        &self,
        content: &VolumeSnapshotContent,
        status: Value,
    ) -> Result<VolumeSnapshotContent, Error> {
        let wanted: Option<VolumeSnapshotContentStatus> = serde_json::from_value(status.clone()).ok();
        if wanted.is_some() && wanted == content.status {
            return Ok(content.clone());
        }
        let change = Patch::Merge(json!({ "status": status }));
        let written = self.content_api().patch_status(&content.name_any(), &params(), &change).await?;
        self.contents.wrote(written.clone());
        self.changed();
        Ok(written)
    }

    /// The file goes first, if that is the policy; while its snapshot is there, it stays.
    async fn let_content_go(&self, content: &VolumeSnapshotContent) -> Result<(), Error> {
        if !has_finalizer(content, PROTECTION) {
            return Ok(());
        }
        let key = snapshot_of(content);
        let snapshot = absent_is_none(self.snapshot_api(&key.namespace).get(&key.name).await)?;
        let is_kept = |one: &VolumeSnapshot| is_for(content, one) && one.metadata.deletion_timestamp.is_none();
        if snapshot.as_ref().is_some_and(is_kept) {
            tracing::debug!(content = content.name_any(), "deleted, but its snapshot is still there");
            return Ok(());
        }
        if self.moves.stop(&Move::Send(content.name_any())) {
            return Err(Error::NotYet("it is being sent to the backup target, which ends now".to_owned()));
        }
        let backup = remote::backup_of(content).map(str::to_owned);
        let backup = backup.or_else(|| remote::in_target(content).map(|(_, backup)| backup));
        if let Some(backup) = backup.filter(|_| content.spec.deletion_policy == "Delete") {
            self.delete_backup(&backup).await?;
        }
        if content.spec.deletion_policy == "Delete"
            && let Some(file) = file_of(content)
        {
            let pools = self.pools.all();
            let deleted = blocking(move || pools.into_iter().try_for_each(|pool| pool.delete_snapshot(&file))).await;
            if let Err(error) = deleted {
                let text = Chain(&error).to_string();
                self.events.warning(content, "SnapshotDeleteError", &text);
                return Err(Error::NotYet(text));
            }
        }
        match self.patch_content(&content.name_any(), &without_finalizer(content, PROTECTION)).await {
            Err(error) if !is_not_found(&error) => Err(error.into()),
            _ => Ok(()),
        }
    }

    pub(in super::super) async fn patch_content(&self, name: &str, change: &Value) -> Result<(), kube::Error> {
        let written = self.content_api().patch(name, &params(), &Patch::Merge(change)).await?;
        self.contents.wrote(written);
        Ok(())
    }

    /// The file of a snapshot that is ready, and the volume mode of what it was taken of unless any will do. The error is for
    /// the user; it may pass.
    pub(in super::super) fn restorable(&self, key: &Key) -> Result<Restorable, String> {
        let content = self.ready_content(key)?;
        let file = file_of(&content).and_then(|file| self.pools.find_snapshot(&file));
        let Some((pool, file)) = file else {
            return Err(format!("the file of snapshot {key} is not on node {}", self.node_name));
        };
        Ok(Restorable {
            pool,
            name: file.name,
            path: file.path,
            size_bytes: file.size_bytes,
            volume_mode: volume_mode(&content),
        })
    }

    /// The content of a snapshot that is ready. The error is for the user; it may pass.
    pub(in super::super) fn ready_content(&self, key: &Key) -> Result<Arc<VolumeSnapshotContent>, String> {
        let snapshot = self.snapshots.get(key).ok_or_else(|| format!("there is no snapshot {key}"))?;
        if snapshot.metadata.deletion_timestamp.is_some() {
            return Err(format!("snapshot {key} is being deleted"));
        }
        let bound = snapshot.status.as_ref().and_then(|status| status.bound_volume_snapshot_content_name.clone());
        let content = bound.and_then(|name| self.contents.get(&Key::new("", name)));
        let Some(content) = content.filter(|content| snapshot.is_ready() && is_for(content, &snapshot)) else {
            let why = snapshot.error().map(|why| format!(": {why}")).unwrap_or_default();
            return Err(format!("snapshot {key} is not ready{why}"));
        };
        Ok(content)
    }
}

/// Of what it was taken of, unless any will do.
pub(in super::super) fn volume_mode(content: &VolumeSnapshotContent) -> Option<String> {
    let may_change = content.annotations().get(MODE_MAY_CHANGE).is_some_and(|value| value == "true");
    content.spec.source_volume_mode.clone().filter(|_| !may_change)
}

/// A snapshot that volumes can be made from.
#[derive(Debug)]
pub(in super::super) struct Restorable {
    pub(in super::super) pool: Arc<Pool>,
    /// Of the file in the pool.
    pub(in super::super) name: String,
    pub(in super::super) path: PathBuf,
    pub(in super::super) size_bytes: u64,
    pub(in super::super) volume_mode: Option<String>,
}

fn good(handle: &str, file: &Snapshot) -> Value {
    json!({
        "snapshotHandle": handle,
        "creationTime": file.taken_at_ns,
        "restoreSize": i64::try_from(file.size_bytes).unwrap_or(i64::MAX),
        "readyToUse": true,
        "error": null,
    })
}

/// It is there, but is to go to the target before it counts. Why it is not there stays.
fn taken(content: &VolumeSnapshotContent, file: &Snapshot) -> Value {
    json!({
        "creationTime": file.taken_at_ns,
        "restoreSize": i64::try_from(file.size_bytes).unwrap_or(i64::MAX),
        "readyToUse": false,
        "error": content.status.as_ref().and_then(|status| status.error.as_ref()),
    })
}

/// What is known of it stays; the time is that of the first word.
fn bad(content: &VolumeSnapshotContent, why: &str) -> Value {
    let mut status = serde_json::to_value(content.status.clone().unwrap_or_default()).unwrap_or_default();
    let known = content.status.as_ref().and_then(|status| status.error.as_ref());
    status["readyToUse"] = json!(false);
    if known.and_then(|error| error.message.as_deref()) != Some(why) {
        status["error"] = json!({ "message": why, "time": croft_meta::time::format_seconds(Timestamp::now()) });
    }
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(source: &Value, reference: &Value) -> VolumeSnapshotContent {
        serde_json::from_value(json!({"metadata": {"name": "c"}, "spec": {"driver": "driver.longhorn.io",
            "deletionPolicy": "Delete", "source": source, "volumeSnapshotRef": reference}}))
        .unwrap()
    }

    #[test]
    fn the_file_is_found_by_uid_or_handle() {
        let reference = json!({"namespace": "n", "name": "s", "uid": "7"});
        let dynamic = content(&json!({"volumeHandle": "pvc-1"}), &reference);
        assert_eq!(file_of(&dynamic).as_deref(), Some("snapshot-7"));
        assert_eq!(handle_of(&dynamic, "snapshot-7"), "snap://pvc-1/snapshot-7");
        assert_eq!(volume_of(&dynamic).as_deref(), Some("pvc-1"));
        for handle in ["snap://pvc-1/snapshot-7", "snapshot-7"] {
            let given = content(&json!({"snapshotHandle": handle}), &json!({"namespace": "n", "name": "other"}));
            assert_eq!(file_of(&given).as_deref(), Some("snapshot-7"));
            assert_eq!(handle_of(&given, "snapshot-7"), handle);
        }
        assert_eq!(file_of(&content(&json!({"volumeHandle": "x"}), &json!({}))), None);
    }

    #[test]
    fn a_content_is_for_the_snapshot_that_it_names() {
        let snapshot = |uid: &str, given: Option<&str>| -> VolumeSnapshot {
            serde_json::from_value(json!({"metadata": {"namespace": "n", "name": "s", "uid": uid},
                "spec": {"source": {"volumeSnapshotContentName": given}}}))
            .unwrap()
        };
        let bound = content(&json!({"volumeHandle": "x"}), &json!({"namespace": "n", "name": "s", "uid": "1"}));
        assert!(is_for(&bound, &snapshot("1", None)) && !is_for(&bound, &snapshot("2", Some("c"))));
        let free = content(&json!({"snapshotHandle": "x"}), &json!({"namespace": "n", "name": "s"}));
        assert!(is_for(&free, &snapshot("2", Some("c"))) && !is_for(&free, &snapshot("2", None)));
    }
}
