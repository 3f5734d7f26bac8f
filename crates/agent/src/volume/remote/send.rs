//! Snapshots on their way into the target.
//!
//! The newest snapshot of each volume that is in the target stays here as well: what changed since then is found by where
//! the blocks of both are, without reading them. Without one, all blocks are read, and those that are there are not sent.

use std::path::PathBuf;
use std::sync::Arc;

use croft_api::longhorn::{self, Backup, BackupSpec, BackupStatus, BackupVolume, BackupVolumeSpec, BackupVolumeStatus};
use croft_api::snapshot::VolumeSnapshotContent;
use croft_backup::config::BLOCK_SIZE;
use croft_backup::{BackupRequest, BackupUrl, Changes, Extent, Written};
use croft_block::Snapshot;
use croft_meta::Chain;
use croft_meta::time::format_seconds;
use croft_reconcile::failure::{absent_is_none, made_or_there};
use croft_reconcile::{Error, Key};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{ObjectMeta, Patch, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use super::super::objects::params;
use super::super::snapshot::{ALLOCATED, file_of, snapshot_of};
use super::super::{Inner, binding, blocking};
use super::target::{Open, Way};
use super::{Gauge, Move, Running, Stop, again, backup_of, is_ready, waits_to_be_sent};
use crate::MANAGER;

/// A snapshot that goes to the target.
struct Sending<'a> {
    content: &'a VolumeSnapshotContent,
    volume: &'a str,
    backup: &'a str,
    file: &'a Snapshot,
    open: &'a Open,
}

impl Sending<'_> {
    fn taken_at(&self) -> String {
        format_seconds(Timestamp::from_nanosecond(self.file.taken_at_ns.into()).unwrap_or_default())
    }
}

impl Inner {
    pub(super) async fn send(self: &Arc<Self>, name: &str) -> Result<(), Error> {
        let running = self.moves.begin(Move::Send(name.to_owned()));
        // The server is asked: whoever deletes it from now on waits for us.
        let Some(content) = absent_is_none(self.content_api().get(name).await)? else { return Ok(()) };
        if content.metadata.deletion_timestamp.is_some() || !waits_to_be_sent(&content) {
            return Ok(());
        }
        match self.send_content(&content, &running).await {
            Ok(()) => Ok(()),
            Err(Stop::Because(why)) => {
                self.tell_not_sent(&content, &why).await?;
                Err(Error::NotYet(why))
            }
            Err(stop) => again(stop),
        }
    }

    async fn send_content(
        self: &Arc<Self>,
        content: &VolumeSnapshotContent,
        running: &Running<'_>,
    ) -> Result<(), Stop> {
        let volume = content.spec.source.volume_handle.as_deref().unwrap_or_default();
        let backup = backup_of(content).unwrap_or_default();
        let Some((_, file)) = file_of(content).and_then(|file| self.pools.find_snapshot(&file)) else {
            return Err(Stop::Because(format!("its file is not on node {}", self.node_name)));
        };
        let open = self.open_target().await?;
        let sending = Sending { content, volume, backup, file: &file, open: &open };
        self.show_begun(&sending).await?;
        if content.status.as_ref().is_some_and(|status| status.error.is_some()) {
            self.write_content_status(content, json!({ "error": null })).await?;
        }
        let gauge = Gauge::default();
        let request = self.request(&sending, &gauge, running).await?;
        let written = tokio::select! {
            written = open.store.write(&request) => written?,
            never = gauge.watch(|percent, speed| self.show_progress(backup, percent, speed)) => match never {},
        };
        tracing::info!(
            volume,
            backup,
            read = written.read,
            sent = written.uploaded,
            blocks = written.new_blocks,
            is_incremental = written.is_incremental,
            "a snapshot is in the backup target"
        );
        self.show_sent(&sending, &written).await?;
        self.forget_older(content).await;
        // Images have no keys.
        if request.secret.is_none() {
            self.send_image(&open, volume, request.compression, &request.transfer).await;
        }
        Ok(())
    }

    async fn request(
        self: &Arc<Self>,
        sending: &Sending<'_>,
        gauge: &Gauge,
        running: &Running<'_>,
    ) -> Result<BackupRequest, Stop> {
        let volume = self.volumes.get(&Key::new("", sending.volume));
        let claim = volume.as_ref().and_then(|volume| binding::claim_of(volume));
        let claim = claim.unwrap_or_else(|| Key::new("", ""));
        let class = volume.and_then(|volume| volume.spec.as_ref()?.storage_class_name.clone());
        // Where Longhorn says what a volume was for.
        let used_by = json!({ "pvName": sending.volume, "pvcName": claim.name, "namespace": claim.namespace });
        Ok(BackupRequest {
            volume: sending.volume.to_owned(),
            backup: sending.backup.to_owned(),
            snapshot: sending.file.name.clone(),
            snapshot_created_at: sending.taken_at(),
            disk: sending.file.path.clone(),
            changes: self.changes_for(sending).await,
            compression: self.compression().await?,
            secret: self.keys().await?.current().cloned(),
            labels: [("KubernetesStatus".to_owned(), used_by.to_string())].into(),
            storage_class: class.unwrap_or_default(),
            transfer: self.transfer(Way::There, gauge, &running.token).await?,
        })
    }

    /// What is to be read of it.
    async fn changes_for(&self, sending: &Sending<'_>) -> Changes {
        let Some((path, backup)) = self.base_for(sending.content) else { return Changes::All };
        let new = sending.file.path.clone();
        match blocking(move || croft_block::changed(&path, &new)).await {
            Ok(ranges) => {
                let extent = |range: croft_block::Range| Extent { offset: range.offset, length: range.length };
                Changes::Since { backup, extents: ranges.into_iter().map(extent).collect() }
            }
            Err(error) => {
                tracing::info!(volume = sending.volume, why = %Chain(&error), "all blocks are read for a backup");
                Changes::All
            }
        }
    }

    /// The contents of the same volume that are in the target and have their file here, the newest last.
    fn sent(&self, content: &VolumeSnapshotContent) -> Vec<(i64, PathBuf, Arc<VolumeSnapshotContent>)> {
        let mut sent = Vec::new();
        for other in self.contents.list() {
            let is_other = other.metadata.name != content.metadata.name
                && other.spec.source.volume_handle == content.spec.source.volume_handle
                && backup_of(&other).is_some()
                && is_ready(&other)
                && other.metadata.deletion_timestamp.is_none();
            let file = file_of(&other).filter(|_| is_other).and_then(|file| self.pools.find_snapshot(&file));
            if let Some((_, file)) = file {
                sent.push((file.taken_at_ns, file.path, other));
            }
        }
        sent.sort_by_key(|(taken, ..)| *taken);
        sent
    }

    fn base_for(&self, content: &VolumeSnapshotContent) -> Option<(PathBuf, String)> {
        let (_, path, base) = self.sent(content).pop()?;
        Some((path, backup_of(&base)?.to_owned()))
    }

    /// What is in the target and older than the newest is not needed here.
    async fn forget_older(&self, content: &VolumeSnapshotContent) {
        let own = file_of(content).and_then(|file| self.pools.find_snapshot(&file));
        let Some((_, own)) = own else { return };
        for (_, _, older) in self.sent(content).into_iter().filter(|(taken, ..)| *taken < own.taken_at_ns) {
            let (Some(file), pools) = (file_of(&older), self.pools.all()) else { continue };
            let deleted = blocking(move || pools.into_iter().try_for_each(|pool| pool.delete_snapshot(&file))).await;
            if let Err(error) = deleted {
                tracing::warn!(content = older.name_any(), error = %Chain(&error), "a snapshot that is not needed is left");
                continue;
            }
            // It takes up nothing here any more, and is not counted.
            let change = json!({ "metadata": { "annotations": { ALLOCATED: "0" } } });
            if let Err(error) = self.patch_content(&older.name_any(), &change).await {
                tracing::debug!(content = older.name_any(), error = %Chain(&error), "its size cannot be told");
            }
        }
    }

    fn backups(&self) -> Api<Backup> {
        Api::namespaced(self.client.clone(), longhorn::NAMESPACE)
    }

    /// Longhorn's objects, before anything is in the target that they must outlast.
    async fn show_begun(&self, sending: &Sending<'_>) -> Result<(), Stop> {
        let post = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
        let labels = [
            (longhorn::VOLUME_LABEL.to_owned(), sending.volume.to_owned()),
            (longhorn::TARGET_LABEL.to_owned(), longhorn::TARGET.to_owned()),
        ];
        let meta = |name: &str| ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some(labels.clone().into()),
            ..ObjectMeta::default()
        };
        let volume = BackupVolume {
            metadata: meta(sending.volume),
            spec: BackupVolumeSpec {
                backup_target_name: longhorn::TARGET.to_owned(),
                volume_name: sending.volume.to_owned(),
            },
            status: None,
        };
        let volumes: Api<BackupVolume> = Api::namespaced(self.client.clone(), longhorn::NAMESPACE);
        made_or_there(volumes.create(&post, &volume).await)?;
        let metadata = ObjectMeta { finalizers: Some(vec![longhorn::FINALIZER.to_owned()]), ..meta(sending.backup) };
        let spec = BackupSpec { snapshot_name: sending.file.name.clone(), ..BackupSpec::default() };
        made_or_there(self.backups().create(&post, &Backup { metadata, spec, status: None }).await)?;
        let url = BackupUrl::Backup {
            target: sending.open.url.clone(),
            volume: sending.volume.to_owned(),
            backup: sending.backup.to_owned(),
        };
        let status = BackupStatus {
            state: longhorn::IN_PROGRESS.to_owned(),
            url: url.to_string(),
            snapshot_name: sending.file.name.clone(),
            snapshot_created_at: sending.taken_at(),
            volume_name: sending.volume.to_owned(),
            volume_size: sending.file.size_bytes.to_string(),
            backup_target_name: longhorn::TARGET.to_owned(),
            ..BackupStatus::default()
        };
        self.patch_backup(sending.backup, &json!({ "status": status })).await?;
        Ok(())
    }

    async fn patch_backup(&self, backup: &str, change: &Value) -> Result<(), kube::Error> {
        absent_is_none(self.backups().patch_status(backup, &params(), &Patch::Merge(change)).await).map(drop)
    }

    async fn show_progress(&self, backup: &str, percent: u64, speed: u64) {
        let messages = json!({ longhorn::SPEED: speed.to_string() });
        let change = json!({ "status": { "progress": percent, "messages": messages } });
        if let Err(error) = self.patch_backup(backup, &change).await {
            tracing::debug!(backup, error = %Chain(&error), "how far a backup is cannot be told");
        }
    }

    /// It is there: in Longhorn's words first, then to those who wait for the snapshot.
    async fn show_sent(&self, sending: &Sending<'_>, written: &Written) -> Result<(), Stop> {
        let now = Timestamp::now();
        let change = json!({ "status": {
            "state": longhorn::COMPLETED, "progress": 100, "error": "", "messages": null,
            "size": written.size.to_string(), "newlyUploadDataSize": written.uploaded.to_string(),
            "compressionMethod": written.method.to_string(), "backupCreatedAt": format_seconds(now),
            "lastSyncedAt": format_seconds(now),
        }});
        self.patch_backup(sending.backup, &change).await?;
        self.show_volume(sending, now).await?;
        let status = json!({
            "snapshotHandle": longhorn::backup_handle(sending.volume, sending.backup),
            "creationTime": sending.file.taken_at_ns,
            "restoreSize": i64::try_from(sending.file.size_bytes).unwrap_or(i64::MAX),
            "readyToUse": true,
            "error": null,
        });
        self.write_content_status(sending.content, status).await?;
        if let Some(snapshot) = self.snapshots.get(&snapshot_of(sending.content)) {
            self.events.normal(snapshot.as_ref(), "SnapshotReady", "Snapshot is in the backup target.");
        }
        Ok(())
    }

    async fn show_volume(&self, sending: &Sending<'_>, now: Timestamp) -> Result<(), Stop> {
        let config = sending.open.store.volume(sending.volume).await?.unwrap_or_default();
        let status = BackupVolumeStatus {
            size: config.size.to_string(),
            created_at: config.created_time,
            last_backup_name: config.last_backup_name,
            last_backup_at: config.last_backup_at,
            data_stored: config.block_count.saturating_mul(BLOCK_SIZE).to_string(),
            storage_class_name: config.storage_class_name,
            last_synced_at: Some(Time(Timestamp::from_second(now.as_second()).unwrap_or(now))),
        };
        let api: Api<BackupVolume> = Api::namespaced(self.client.clone(), longhorn::NAMESPACE);
        let change = Patch::Merge(json!({ "status": status }));
        absent_is_none(api.patch_status(sending.volume, &params(), &change).await)?;
        Ok(())
    }

    /// Says why it is not there yet; it is tried again.
    async fn tell_not_sent(&self, content: &VolumeSnapshotContent, why: &str) -> Result<(), Error> {
        let backup = backup_of(content).unwrap_or_default();
        let change = json!({ "status": { "state": longhorn::ERROR, "error": why } });
        self.patch_backup(backup, &change).await?;
        let now = self.contents.get(&Key::new("", content.name_any()));
        let known = now.as_ref().and_then(|now| now.status.as_ref()?.error.as_ref()?.message.as_deref());
        if known != Some(why) {
            let now = format_seconds(Timestamp::now());
            let status = json!({ "readyToUse": false, "error": { "message": why, "time": now } });
            self.write_content_status(content, status).await?;
        }
        if let Some(snapshot) = self.snapshots.get(&snapshot_of(content)) {
            self.events.warning(snapshot.as_ref(), "BackupFailed", why);
        }
        Ok(())
    }

    /// A backup that is to go is removed from the target by whoever looks after that.
    pub(in super::super) async fn delete_backup(&self, backup: &str) -> Result<(), kube::Error> {
        absent_is_none(self.backups().delete(backup, &kube::api::DeleteParams::default()).await).map(drop)
    }

    /// What Longhorn's object says of a backup that is whole.
    pub(in super::super) async fn whole_backup(&self, backup: &str) -> Result<Option<BackupStatus>, kube::Error> {
        let found = absent_is_none(self.backups().get(backup).await)?;
        Ok(found.filter(|backup| backup.state() == longhorn::COMPLETED).and_then(|backup| backup.status))
    }
}
