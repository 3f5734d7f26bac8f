//! Snapshots for what is in the target alone: claims are made from them as from any other.
//!
//! They are there for one restore. Their contents do not own what they stand for, so that nothing goes from the target with them.

use std::sync::Arc;

use croft_api::harvester::{VirtualMachineBackup, VirtualMachineRestore, VolumeBackup, VolumeRestore};
use croft_api::longhorn::backup_handle;
use croft_api::snapshot::{
    VolumeSnapshot, VolumeSnapshotContent, VolumeSnapshotContentSource, VolumeSnapshotContentSpec,
    VolumeSnapshotSource, VolumeSnapshotSpec,
};
use croft_reconcile::failure::{absent_is_none, made_or_there};
use croft_reconcile::{Error, Key};
use k8s_openapi::api::core::v1::{ObjectReference, PersistentVolumeClaim};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::DeleteParams;
use kube::{Api, Resource, ResourceExt};
use serde_json::json;

use super::{Keeper, not_yet};
use crate::patch::made_by_harvester;

/// On a claim, by its node: how far it is filled, in percent.
const PROGRESS: &str = "croft.io/restore-progress";
/// The same: why it is not filled.
const ERROR: &str = "croft.io/restore-error";

impl Keeper {
    /// Has disks come from snapshots of this restore's own, where the backup has none in this namespace.
    pub(super) fn find_sources(&self, restore: &VirtualMachineRestore, disks: &mut [VolumeRestore]) {
        let namespace = restore.namespace().unwrap_or_default();
        let is_same = namespace == restore.spec.virtual_machine_backup_namespace;
        for disk in disks {
            let there = self.snapshots.get(&Key::new(namespace.clone(), disk.volume_backup_name.clone()));
            let is_there = there.is_some_and(|snapshot| snapshot.metadata.deletion_timestamp.is_none());
            if is_same && is_there {
                continue;
            }
            let name = own_name(restore, &disk.volume_name);
            disk.claim.spec["dataSource"]["name"] = json!(name);
            disk.volume_backup_name = name;
        }
    }

    /// Makes those that are missing.
    pub(super) async fn bring_sources(
        &self,
        restore: &VirtualMachineRestore,
        backup: &VirtualMachineBackup,
        disks: &[VolumeRestore],
    ) -> Result<(), Error> {
        let namespace = restore.namespace().unwrap_or_default();
        let kept = backup.status.iter().flat_map(|status| &status.volume_backups);
        for volume in kept {
            let name = own_name(restore, &volume.volume_name);
            let is_wanted = disks.iter().any(|disk| disk.volume_backup_name == name);
            if !is_wanted || self.snapshots.get(&Key::new(namespace.clone(), name.clone())).is_some() {
                continue;
            }
            let Some(handle) = handle(volume) else {
                return not_yet(format!("the backup of volume {} does not say where it is", volume.volume_name));
            };
            let standing = Standing {
                namespace: &namespace,
                name,
                owner: restore.controller_owner_ref(&()),
                handle,
                driver: volume.csi_driver_name.clone(),
                mode: volume.persistent_volume_claim.spec["volumeMode"].as_str(),
            };
            self.stand_in(&standing).await?;
        }
        Ok(())
    }

    /// Makes the snapshot that stands for what is in the target.
    pub(super) async fn stand_in(&self, standing: &Standing<'_>) -> Result<(), Error> {
        let contents: Api<VolumeSnapshotContent> = Api::all(self.client.clone());
        made_or_there(contents.create(&made_by_harvester(), &standing.content()).await)?;
        let snapshots: Api<VolumeSnapshot> = Api::namespaced(self.client.clone(), standing.namespace);
        Ok(made_or_there(snapshots.create(&made_by_harvester(), &standing.snapshot()).await)?)
    }

    /// Those whose claims have what they need.
    pub(super) async fn drop_sources(
        &self,
        restore: &VirtualMachineRestore,
        disks: &[VolumeRestore],
    ) -> Result<(), Error> {
        let namespace = restore.namespace().unwrap_or_default();
        for disk in disks.iter().filter(|disk| disk.volume_backup_name == own_name(restore, &disk.volume_name)) {
            let name = &disk.volume_backup_name;
            let claim = disk.claim.metadata["name"].as_str().unwrap_or_default();
            if self
                .inventory
                .claims
                .claims
                .get(&Key::new(namespace.clone(), claim))
                .as_ref()
                .is_none_or(|it| !is_bound(it))
            {
                continue;
            }
            let snapshots: Api<VolumeSnapshot> = Api::namespaced(self.client.clone(), &namespace);
            absent_is_none(snapshots.delete(name, &DeleteParams::default()).await)?;
            let contents: Api<VolumeSnapshotContent> = Api::all(self.client.clone());
            absent_is_none(contents.delete(name, &DeleteParams::default()).await)?;
        }
        Ok(())
    }

    /// How far each disk is, as its node tells.
    pub(super) fn filled(&self, namespace: &str, disks: &mut [VolumeRestore]) -> i64 {
        for disk in &mut *disks {
            let name = disk.claim.metadata["name"].as_str().unwrap_or_default();
            let claim = self.inventory.claims.claims.get(&Key::new(namespace, name));
            disk.progress = disk.progress.max(claim.as_ref().and_then(progress));
        }
        let total: i64 = disks.iter().map(|disk| disk.progress.unwrap_or_default()).sum();
        let count = i64::try_from(disks.len()).unwrap_or(i64::MAX);
        total.checked_div(count).unwrap_or(100)
    }
}

impl Keeper {
    /// Why a disk does not come.
    pub(super) fn hindrance(&self, namespace: &str, disks: &[VolumeRestore]) -> Option<String> {
        disks.iter().find_map(|disk| {
            let name = disk.claim.metadata["name"].as_str().unwrap_or_default();
            let claim = self.inventory.claims.claims.get(&Key::new(namespace, name)).filter(|it| !is_bound(it))?;
            Some(format!("volume {}: {}", disk.volume_name, hindrance(&claim)?))
        })
    }
}

/// Why a claim is not filled.
pub(super) fn hindrance(claim: &PersistentVolumeClaim) -> Option<&str> {
    claim.annotations().get(ERROR).map(String::as_str)
}

pub(super) fn is_bound(claim: &Arc<PersistentVolumeClaim>) -> bool {
    claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Bound")
}

fn progress(claim: &Arc<PersistentVolumeClaim>) -> Option<i64> {
    let told = claim.annotations().get(PROGRESS).and_then(|text| text.parse().ok());
    if is_bound(claim) { Some(100) } else { told.map(|told: i64| told.clamp(0, 100)) }
}

fn own_name(restore: &VirtualMachineRestore, volume: &str) -> String {
    format!("restore-{}-{volume}", restore.metadata.uid.as_deref().unwrap_or_default())
}

/// Where a volume is in the target.
fn handle(kept: &VolumeBackup) -> Option<String> {
    let volume = kept.persistent_volume_claim.spec["volumeName"].as_str()?;
    Some(backup_handle(volume, kept.longhorn_backup_name.as_deref()?))
}

/// A snapshot that is to stand for a backup.
pub(super) struct Standing<'a> {
    pub(super) namespace: &'a str,
    pub(super) name: String,
    pub(super) owner: Option<OwnerReference>,
    pub(super) handle: String,
    pub(super) driver: String,
    pub(super) mode: Option<&'a str>,
}

impl Standing<'_> {
    /// It does not own what it stands for, so that nothing goes from the target with it.
    fn content(&self) -> VolumeSnapshotContent {
        VolumeSnapshotContent {
            metadata: ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() },
            spec: VolumeSnapshotContentSpec {
                volume_snapshot_ref: ObjectReference {
                    api_version: Some("snapshot.storage.k8s.io/v1".to_owned()),
                    kind: Some("VolumeSnapshot".to_owned()),
                    namespace: Some(self.namespace.to_owned()),
                    name: Some(self.name.clone()),
                    ..ObjectReference::default()
                },
                deletion_policy: "Retain".to_owned(),
                driver: self.driver.clone(),
                volume_snapshot_class_name: None,
                source: VolumeSnapshotContentSource {
                    snapshot_handle: Some(self.handle.clone()),
                    ..VolumeSnapshotContentSource::default()
                },
                source_volume_mode: self.mode.map(str::to_owned),
            },
            status: None,
        }
    }

    fn snapshot(&self) -> VolumeSnapshot {
        VolumeSnapshot {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                namespace: Some(self.namespace.to_owned()),
                owner_references: self.owner.clone().map(|owner| vec![owner]),
                ..ObjectMeta::default()
            },
            spec: VolumeSnapshotSpec {
                source: VolumeSnapshotSource {
                    volume_snapshot_content_name: Some(self.name.clone()),
                    ..VolumeSnapshotSource::default()
                },
                volume_snapshot_class_name: None,
            },
            status: None,
        }
    }
}
