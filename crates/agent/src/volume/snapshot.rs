//! VolumeSnapshots: each gets a file in the pool of its claim's volume, and a VolumeSnapshotContent that stands for the file.
//!
//! - `source` finds what a snapshot is to be taken of, and whether that can be; it does nothing;
//! - `take` makes files, of one disk or of all disks of a machine at one instant;
//! - `content` looks after contents: their state, and the end of their files.
//!
//! The file comes first and is named after the snapshot's uid; then the content, then the status. Whoever is killed in
//! between finds the file, which is whole, and goes on. Finalizers hold the objects until the file is gone.

mod content;
mod source;
mod take;

pub(super) use content::{file_of, snapshot_of, volume_mode, volume_of};

use std::collections::BTreeMap;
use std::sync::Arc;

use croft_api::longhorn::{backup_name, goes_to_target};
use croft_api::snapshot::{
    SnapshotSet, Stillness, VolumeSnapshot, VolumeSnapshotContent, VolumeSnapshotContentSource,
    VolumeSnapshotContentSpec, VolumeSnapshotStatus,
};
use croft_block::Snapshot;
use croft_meta::Quantity;
use croft_meta::quantity::Notation;
use croft_reconcile::failure::{absent_is_none, is_conflict, is_not_found};
use croft_reconcile::{Change, Error, Key};
use jiff::Timestamp;
use kube::api::{DeleteParams, ObjectMeta, Patch, PostParams};
use kube::{Api, Resource, ResourceExt};
use serde_json::{Value, json};

use super::objects::{has_finalizer, params};
use super::remote;
use super::{Inner, Work, blocking, plan};
use crate::MANAGER;
use source::{NotTaken, Source};

/// Nobody restores from it any more when this goes.
const AS_SOURCE: &str = "snapshot.storage.kubernetes.io/volumesnapshot-as-source-protection";
/// Its content is gone, or on its own, when this goes.
const BOUND: &str = "snapshot.storage.kubernetes.io/volumesnapshot-bound-protection";
/// Which node has the file.
const NODE: &str = "croft.io/node";
/// What the file would take up by itself.
pub(super) const ALLOCATED: &str = "croft.io/allocated-bytes";

/// The file of a snapshot is called after its uid, which nobody else ever has.
fn file_name(uid: &str) -> String {
    format!("snapshot-{uid}")
}

fn content_name(snapshot: &VolumeSnapshot) -> String {
    format!("snapcontent-{}", snapshot.metadata.uid.as_deref().unwrap_or_default())
}

impl Inner {
    /// The snapshot and those that belong to it, its content, and claims that wait for it.
    pub(super) fn after_snapshot(&self, change: &Change<VolumeSnapshot>) -> Vec<Work> {
        self.changed();
        let mut work = vec![Work::Snapshot(change.key.clone())];
        for object in [&change.old, &change.new].into_iter().flatten() {
            work.extend(set_of(object));
            let status = object.status.as_ref();
            let bound = status.and_then(|status| status.bound_volume_snapshot_content_name.clone());
            work.extend(bound.map(Work::Content));
        }
        let waits = |key: &Key| {
            self.claims.get(key).is_some_and(|claim| plan::source_snapshot(&claim).as_ref() == Some(&change.key))
        };
        work.extend(self.unbound().into_iter().filter(|other| matches!(other, Work::Claim(key) if waits(key))));
        work
    }

    pub(super) fn after_content(&self, change: &Change<VolumeSnapshotContent>) -> Vec<Work> {
        self.changed();
        let object = change.new.as_ref().or(change.old.as_ref());
        let snapshot = object.map(|content| Work::Snapshot(content::snapshot_of(content)));
        std::iter::once(Work::Content(change.key.name.clone())).chain(snapshot).collect()
    }

    /// The snapshots of a claim that are not taken yet.
    pub(super) fn snapshots_waiting_for(&self, claim: &Key) -> Vec<Work> {
        let is_its = |snapshot: &&Arc<VolumeSnapshot>| {
            !snapshot.is_ready()
                && snapshot.metadata.namespace.as_deref() == Some(claim.namespace.as_str())
                && snapshot.spec.source.persistent_volume_claim_name.as_deref() == Some(claim.name.as_str())
        };
        let snapshots = self.snapshots.list();
        let work = |snapshot: &Arc<VolumeSnapshot>| {
            set_of(snapshot).unwrap_or_else(|| Work::Snapshot(Key::of(snapshot.as_ref())))
        };
        snapshots.iter().filter(is_its).map(work).collect()
    }

    pub(super) async fn reconcile_snapshot(self: &Arc<Self>, key: &Key) -> Result<(), Error> {
        let Some(snapshot) = self.snapshots.get(key) else { return Ok(()) };
        if snapshot.metadata.deletion_timestamp.is_some() {
            return self.let_snapshot_go(key, &snapshot).await;
        }
        if let Some(content) = self.content_of(&snapshot).await? {
            return self.tell_of_content(&snapshot, &content).await;
        }
        if let Some(name) = &snapshot.spec.source.volume_snapshot_content_name {
            return self.refuse_snapshot(&snapshot, &format!("there is no VolumeSnapshotContent {name} for it")).await;
        }
        if snapshot.is_ready() {
            return self.refuse_snapshot(&snapshot, "VolumeSnapshotContent is missing").await;
        }
        // Those that belong together are taken together.
        if SnapshotSet::of(&snapshot.metadata).is_some() {
            return Ok(());
        }
        let source = match self.source_of(&snapshot) {
            Ok(source) => source,
            Err(NotTaken::NotOurs) => return Ok(()),
            Err(NotTaken::Because(why)) => return self.refuse_snapshot(&snapshot, &why).await,
        };
        let snapshot = self.protect(&snapshot).await?;
        match self.file_for(&snapshot, &source).await {
            Ok(file) => self.publish_snapshot(&snapshot, &source, &file, None).await,
            Err(why) => self.refuse_snapshot(&snapshot, &why).await,
        }
    }

    /// All snapshots of a set, once they are all there.
    pub(super) async fn reconcile_set(self: &Arc<Self>, namespace: &str, id: &str) -> Result<(), Error> {
        let is_member = |snapshot: &Arc<VolumeSnapshot>| {
            snapshot.metadata.namespace.as_deref() == Some(namespace)
                && SnapshotSet::of(&snapshot.metadata).is_some_and(|set| set.id == id)
        };
        let there: Vec<_> = self.snapshots.list().into_iter().filter(is_member).collect();
        let Some(set) = there.first().and_then(|first| SnapshotSet::of(&first.metadata)) else { return Ok(()) };
        let mut members = Vec::new();
        for name in &set.members {
            let found = there.iter().find(|snapshot| snapshot.metadata.name.as_ref() == Some(name));
            let Some(found) = found.filter(|found| found.metadata.deletion_timestamp.is_none()) else {
                return Err(Error::NotYet(format!("snapshot {name} of the set is not there")));
            };
            if self.content_of(found).await?.is_some() {
                // They were taken: each is looked after by itself now.
                members.clear();
                break;
            }
            members.push(Arc::clone(found));
        }
        if members.is_empty() {
            return self.finish_set(&set, &there).await;
        }
        let mut sources = Vec::new();
        for member in &members {
            match self.source_of(member) {
                Ok(source) => sources.push(source),
                Err(NotTaken::NotOurs) => return Ok(()),
                Err(NotTaken::Because(why)) => return self.refuse_set(&members, &why).await,
            }
        }
        let mut protected = Vec::new();
        for member in &members {
            protected.push(self.protect(member).await?);
        }
        let stillness = match self.files_for(&set, &protected, &sources).await {
            Ok(stillness) => stillness,
            Err(why) => return self.refuse_set(&members, &why).await,
        };
        for (member, source) in protected.iter().zip(&sources) {
            let name = file_name(member.metadata.uid.as_deref().unwrap_or_default());
            let Some((_, file)) = self.pools.find_snapshot(&name) else {
                return Err(Error::NotYet(format!("the file of snapshot {} has gone", member.name_any())));
            };
            self.publish_snapshot(member, source, &file, stillness.as_ref()).await?;
        }
        Ok(())
    }

    /// What was left to do for a set whose files are all there, when we were killed.
    async fn finish_set(self: &Arc<Self>, set: &SnapshotSet, there: &[Arc<VolumeSnapshot>]) -> Result<(), Error> {
        for member in there.iter().filter(|member| set.members.contains(&member.name_any())) {
            if member.metadata.deletion_timestamp.is_some() || self.content_of(member).await?.is_some() {
                continue;
            }
            let name = file_name(member.metadata.uid.as_deref().unwrap_or_default());
            match (self.source_of(member), self.pools.find_snapshot(&name)) {
                (Ok(source), Some((_, file))) => self.publish_snapshot(member, &source, &file, None).await?,
                _ => return self.refuse_snapshot(member, "the other snapshots of its set are taken already").await,
            }
        }
        Ok(())
    }

    async fn refuse_set(&self, members: &[Arc<VolumeSnapshot>], why: &str) -> Result<(), Error> {
        for member in members {
            // Each is told; the set is tried again as one.
            let _ = self.refuse_snapshot(member, why).await;
        }
        Err(Error::NotYet(why.to_owned()))
    }

    /// Its content, if that is for this very snapshot; the server is asked before it is taken for missing.
    async fn content_of(&self, snapshot: &VolumeSnapshot) -> Result<Option<Arc<VolumeSnapshotContent>>, Error> {
        let given = snapshot.spec.source.volume_snapshot_content_name.clone();
        let name = given.unwrap_or_else(|| content_name(snapshot));
        let is_its = |content: &VolumeSnapshotContent| content::is_for(content, snapshot);
        if let Some(content) = self.contents.get(&Key::new("", name.clone())).filter(|content| is_its(content)) {
            return Ok(Some(content));
        }
        let found = absent_is_none(self.content_api().get(&name).await)?;
        Ok(found.filter(is_its).map(Arc::new))
    }

    /// The snapshot says what its content says.
    async fn tell_of_content(&self, snapshot: &VolumeSnapshot, content: &VolumeSnapshotContent) -> Result<(), Error> {
        let reference = &content.spec.volume_snapshot_ref;
        if reference.uid.as_deref().unwrap_or_default().is_empty() {
            let change = json!({
                "metadata": { "resourceVersion": content.metadata.resource_version },
                "spec": { "volumeSnapshotRef": { "uid": snapshot.metadata.uid } },
            });
            self.patch_content(&content.name_any(), &change).await?;
        }
        let snapshot = self.protect(snapshot).await?;
        let Some(there) = content.status.as_ref() else { return Ok(()) };
        let time = there.creation_time.and_then(|at| Timestamp::from_nanosecond(at.into()).ok());
        let status = json!({
            "boundVolumeSnapshotContentName": content.metadata.name,
            "creationTime": time.map(croft_meta::time::format_seconds),
            "readyToUse": there.ready_to_use.unwrap_or_default(),
            "restoreSize": there.restore_size.map(|bytes| Quantity::from_i64(bytes, Notation::Binary).to_string()),
            "error": there.error,
        });
        self.write_snapshot_status(&snapshot, status).await
    }

    /// Makes the objects for a file that is there.
    async fn publish_snapshot(
        &self,
        snapshot: &VolumeSnapshot,
        source: &Source,
        file: &Snapshot,
        stillness: Option<&Stillness>,
    ) -> Result<(), Error> {
        if let Some(stillness) = stillness {
            let text = serde_json::to_string(stillness).unwrap_or_default();
            let change = json!({ "metadata": { "annotations": { Stillness::ANNOTATION: text } } });
            self.patch_snapshot(snapshot, &change).await?;
        }
        let content = new_content(snapshot, source, file, &self.node_name);
        let params = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
        let made = match self.content_api().create(&params, &content).await {
            Ok(made) => made,
            Err(error) if is_conflict(&error) => self.content_api().get(&content.name_any()).await?,
            Err(error) => return Err(error.into()),
        };
        self.contents.insert(Key::of(&made), made.clone());
        let made = self.tell_content(&made).await?;
        if !remote::waits_to_be_sent(&made) {
            self.events.normal(snapshot, "SnapshotReady", "Snapshot is ready to use.");
        }
        self.tell_of_content(snapshot, &made).await
    }

    /// Puts the finalizers on, before anything is made that they must outlast.
    async fn protect(&self, snapshot: &VolumeSnapshot) -> Result<VolumeSnapshot, Error> {
        let mut finalizers = snapshot.finalizers().to_vec();
        for name in [AS_SOURCE, BOUND] {
            if !has_finalizer(snapshot, name) {
                finalizers.push(name.to_owned());
            }
        }
        if finalizers.len() == snapshot.finalizers().len() {
            return Ok(snapshot.clone());
        }
        let change =
            json!({ "metadata": { "resourceVersion": snapshot.metadata.resource_version, "finalizers": finalizers } });
        Ok(self.patch_snapshot(snapshot, &change).await?)
    }

    /// Says why there is no snapshot; it is tried again.
    async fn refuse_snapshot(&self, snapshot: &VolumeSnapshot, why: &str) -> Result<(), Error> {
        if snapshot.error() != Some(why) || snapshot.is_ready() {
            let now = croft_meta::time::format_seconds(Timestamp::now());
            let status = json!({ "readyToUse": false, "error": { "message": why, "time": now } });
            self.write_snapshot_status(snapshot, status).await?;
        }
        self.events.warning(snapshot, "SnapshotCreationFailed", why);
        Err(Error::NotYet(why.to_owned()))
    }

    async fn let_snapshot_go(self: &Arc<Self>, key: &Key, snapshot: &VolumeSnapshot) -> Result<(), Error> {
        if !has_finalizer(snapshot, AS_SOURCE) && !has_finalizer(snapshot, BOUND) {
            return Ok(());
        }
        let claims = self.claims.list();
        let reads =
            |claim: &&Arc<_>| plan::source_snapshot(claim).as_ref() == Some(key) && !super::binding::is_complete(claim);
        if let Some(claim) = claims.iter().find(reads) {
            return Err(Error::NotYet(format!("claim {} is made from it", claim.name_any())));
        }
        if let Some(content) = self.content_of(snapshot).await? {
            if !content::is_here(&content, &self.node_name) {
                return Ok(());
            }
            if content.spec.deletion_policy == "Delete" {
                self.delete_content(&content).await?;
                // Its end is seen, and brings us back.
                return Ok(());
            }
        } else {
            let (pools, name) = (self.pools.all(), file_name(snapshot.metadata.uid.as_deref().unwrap_or_default()));
            let deleted = blocking(move || pools.into_iter().try_for_each(|pool| pool.delete_snapshot(&name))).await;
            deleted.map_err(|error| Error::NotYet(croft_meta::Chain(&error).to_string()))?;
        }
        let left: Vec<&String> =
            snapshot.finalizers().iter().filter(|name| *name != AS_SOURCE && *name != BOUND).collect();
        let change =
            json!({ "metadata": { "resourceVersion": snapshot.metadata.resource_version, "finalizers": left } });
        match self.patch_snapshot(snapshot, &change).await {
            Err(error) if !is_not_found(&error) => Err(error.into()),
            _ => Ok(()),
        }
    }

    async fn delete_content(&self, content: &VolumeSnapshotContent) -> Result<(), Error> {
        if content.metadata.deletion_timestamp.is_none() {
            match self.content_api().delete(&content.name_any(), &DeleteParams::default()).await {
                Err(error) if !is_not_found(&error) => return Err(error.into()),
                _ => {}
            }
        }
        Ok(())
    }

    fn snapshot_api(&self, namespace: &str) -> Api<VolumeSnapshot> {
        Api::namespaced(self.client.clone(), namespace)
    }

    async fn patch_snapshot(&self, snapshot: &VolumeSnapshot, change: &Value) -> Result<VolumeSnapshot, kube::Error> {
        let api = self.snapshot_api(snapshot.metadata.namespace.as_deref().unwrap_or_default());
        let written = api.patch(&snapshot.name_any(), &params(), &Patch::Merge(change)).await?;
        self.snapshots.wrote(written.clone());
        Ok(written)
    }

    /// What is the same is not written.
    async fn write_snapshot_status(&self, snapshot: &VolumeSnapshot, status: Value) -> Result<(), Error> {
        let wanted: Option<VolumeSnapshotStatus> = serde_json::from_value(status.clone()).ok();
        if wanted.is_some() && wanted == snapshot.status {
            return Ok(());
        }
        let api = self.snapshot_api(snapshot.metadata.namespace.as_deref().unwrap_or_default());
        let change = Patch::Merge(json!({ "status": status }));
        match api.patch_status(&snapshot.name_any(), &params(), &change).await {
            Ok(written) => self.snapshots.wrote(written),
            Err(error) if is_not_found(&error) => {}
            Err(error) => return Err(error.into()),
        }
        self.changed();
        Ok(())
    }
}

fn set_of(snapshot: &Arc<VolumeSnapshot>) -> Option<Work> {
    let set = SnapshotSet::of(&snapshot.metadata)?;
    Some(Work::SnapshotSet(snapshot.metadata.namespace.clone().unwrap_or_default(), set.id))
}

fn new_content(snapshot: &VolumeSnapshot, source: &Source, file: &Snapshot, node: &str) -> VolumeSnapshotContent {
    let mut annotations: BTreeMap<String, String> =
        [(NODE.to_owned(), node.to_owned()), (ALLOCATED.to_owned(), file.allocated_bytes.to_string())].into();
    if goes_to_target(&source.class.parameters) {
        let backup = backup_name(snapshot.metadata.uid.as_deref().unwrap_or_default());
        annotations.insert(remote::BACKUP.to_owned(), backup);
    }
    VolumeSnapshotContent {
        metadata: ObjectMeta {
            name: Some(content_name(snapshot)),
            annotations: Some(annotations),
            finalizers: Some(vec![content::PROTECTION.to_owned()]),
            ..ObjectMeta::default()
        },
        spec: VolumeSnapshotContentSpec {
            volume_snapshot_ref: snapshot.object_ref(&()),
            deletion_policy: source.class.deletion_policy.clone(),
            driver: source.class.driver.clone(),
            volume_snapshot_class_name: source.class.metadata.name.clone(),
            source: VolumeSnapshotContentSource {
                volume_handle: Some(source.handle.clone()),
                ..VolumeSnapshotContentSource::default()
            },
            source_volume_mode: Some(source.volume_mode.clone()),
        },
        status: None,
    }
}
