//! Single volumes in the backup target: VolumeRemoteBackups, and VolumeRemoteRestores that make claims of them.
//!
//! The CSI driver of guest clusters asks for them and waits for `status.success`. A backup is a snapshot of the class that goes to the
//! target, and goes with its object. A restore is a claim of its own name, made from a snapshot that stands for what is there.

use std::sync::Arc;

use croft_api::harvester::{
    VolumeRemoteBackup, VolumeRemoteBackupStatus, VolumeRemoteRestore, VolumeRemoteRestoreStatus, set_condition,
};
use croft_api::longhorn;
use croft_api::snapshot::{VolumeSnapshot, VolumeSnapshotContent, VolumeSnapshotSource, VolumeSnapshotSpec};
use croft_reconcile::failure::{absent_is_none, is_conflict, made_or_there, message};
use croft_reconcile::{Error, Key};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, Patch};
use kube::{Api, Resource, ResourceExt};
use serde_json::{Value, json};

use super::fetched::{self, Standing};
use super::{Keeper, Work, capture, not_yet};
use crate::patch::{self, as_harvester, made_by_harvester};

const READY: &str = "Ready";
/// What a claim that is made of a backup takes from the one that was.
const TAKEN: [&str; 4] = ["accessModes", "volumeMode", "storageClassName", "resources"];

impl Keeper {
    pub(super) async fn reconcile_volume_backup(&self, key: &Key) -> Result<(), Error> {
        let Some(backup) = self.volume_backups.get(key) else { return Ok(()) };
        let mut status = backup.status.clone().unwrap_or_default();
        if backup.metadata.deletion_timestamp.is_some() || status.success == Some(true) {
            return Ok(());
        }
        match self.send_volume(key, &backup, &mut status).await {
            Ok(true) => {
                status.success = Some(true);
                set_condition(&mut status.conditions, READY, true, ("", ""), Timestamp::now());
                self.write_volume_backup(&backup, status).await
            }
            Ok(false) => {
                let text = "it is on its way to the backup target";
                set_condition(&mut status.conditions, READY, false, ("InProgress", text), Timestamp::now());
                self.write_volume_backup(&backup, status).await
            }
            Err(Error::NotYet(why)) => {
                status.success = Some(false);
                set_condition(&mut status.conditions, READY, false, ("Error", &why), Timestamp::now());
                self.write_volume_backup(&backup, status).await?;
                not_yet(why)
            }
            Err(error) => Err(error),
        }
    }

    /// Whether it is there.
    async fn send_volume(
        &self,
        key: &Key,
        backup: &VolumeRemoteBackup,
        status: &mut VolumeRemoteBackupStatus,
    ) -> Result<bool, Error> {
        let name = format!("remote-{}", backup.uid().unwrap_or_default());
        let Some(snapshot) = self.snapshots.get(&Key::new(key.namespace.clone(), name.clone())) else {
            return self.begin_volume_backup(key, backup, status, name).await.map(|()| false);
        };
        let told = snapshot.status.clone().unwrap_or_default();
        if let Some(why) = told.error.and_then(|error| error.message).filter(|_| told.ready_to_use != Some(true)) {
            return Err(Error::NotYet(why));
        }
        if told.ready_to_use != Some(true) {
            return Ok(false);
        }
        let contents: Api<VolumeSnapshotContent> = Api::all(self.client.clone());
        let content = contents.get(&told.bound_volume_snapshot_content_name.unwrap_or_default()).await?;
        status.handle = content.status.and_then(|status| status.snapshot_handle);
        Ok(status.handle.is_some())
    }

    async fn begin_volume_backup(
        &self,
        key: &Key,
        backup: &VolumeRemoteBackup,
        status: &mut VolumeRemoteBackupStatus,
        name: String,
    ) -> Result<(), Error> {
        let source = &backup.spec.source;
        let Some(claim) = self.bound_claim(&key.namespace, source) else {
            return not_yet(format!("claim {}/{source} is not there or not bound", key.namespace));
        };
        let kept = capture::claim(&claim);
        let driver = capture::driver(&kept).to_owned();
        let Some(class) = self.snapshot_class(&driver, false) else {
            return not_yet(format!("csi-driver-config has no backupVolumeSnapshotClassName for {driver}"));
        };
        let spec: serde_json::Map<String, Value> =
            TAKEN.iter().map(|field| ((*field).to_owned(), kept.spec[*field].clone())).collect();
        status.source_spec = Some(spec.into_iter().filter(|(_, value)| !value.is_null()).collect());
        status.csi_provider = Some(driver);
        let snapshot = VolumeSnapshot {
            metadata: ObjectMeta {
                name: Some(name),
                namespace: Some(key.namespace.clone()),
                owner_references: backup.controller_owner_ref(&()).map(|owner| vec![owner]),
                ..ObjectMeta::default()
            },
            spec: VolumeSnapshotSpec {
                source: VolumeSnapshotSource {
                    persistent_volume_claim_name: Some(source.clone()),
                    ..VolumeSnapshotSource::default()
                },
                volume_snapshot_class_name: Some(class),
            },
            status: None,
        };
        let api: Api<VolumeSnapshot> = Api::namespaced(self.client.clone(), &key.namespace);
        match api.create(&made_by_harvester(), &snapshot).await {
            Err(kube::Error::Api(refused)) if (400..500).contains(&refused.code) && refused.code != 409 => {
                not_yet(refused.message.clone())
            }
            made => Ok(made_or_there(made)?),
        }
    }

    async fn write_volume_backup(
        &self,
        old: &VolumeRemoteBackup,
        status: VolumeRemoteBackupStatus,
    ) -> Result<(), Error> {
        let new = VolumeRemoteBackup { status: Some(status), ..old.clone() };
        let Some(change) = patch::guarded(old, &new) else { return Ok(()) };
        let api: Api<VolumeRemoteBackup> = Api::namespaced(self.client.clone(), &old.namespace().unwrap_or_default());
        let written = api.patch(&old.name_any(), &as_harvester(), &Patch::Merge(&change)).await;
        if let Some(written) = absent_is_none(written)? {
            self.volume_backups.wrote(written);
        }
        Ok(())
    }

    pub(super) async fn reconcile_volume_restore(&self, key: &Key) -> Result<(), Error> {
        let Some(restore) = self.volume_restores.get(key) else { return Ok(()) };
        let mut status = restore.status.clone().unwrap_or_default();
        if restore.metadata.deletion_timestamp.is_some() || status.success == Some(true) {
            return Ok(());
        }
        match self.fetch_volume(key, &restore).await {
            Ok(true) => {
                status.success = Some(true);
                set_condition(&mut status.conditions, READY, true, ("", ""), Timestamp::now());
                self.write_volume_restore(&restore, status).await
            }
            Ok(false) => {
                let text = "the claim is being filled";
                set_condition(&mut status.conditions, READY, false, ("InProgress", text), Timestamp::now());
                self.write_volume_restore(&restore, status).await
            }
            Err(Error::NotYet(why)) => {
                status.success = Some(false);
                set_condition(&mut status.conditions, READY, false, ("Error", &why), Timestamp::now());
                self.write_volume_restore(&restore, status).await?;
                not_yet(why)
            }
            Err(error) => Err(error),
        }
    }

    /// Whether the claim has what was kept.
    async fn fetch_volume(&self, key: &Key, restore: &VolumeRemoteRestore) -> Result<bool, Error> {
        let from = &restore.spec.from;
        let (namespace, name) = from.split_once('/').unwrap_or_default();
        let backup = self.volume_backups.get(&Key::new(namespace, name));
        let kept = backup.and_then(|backup| backup.status.clone()).filter(|status| status.success == Some(true));
        let Some(kept) = kept else {
            return Err(Error::NotYet(format!("VolumeRemoteBackup {from} is not there or not ready")));
        };
        let Some((volume, backup)) = kept.handle.as_deref().and_then(longhorn::parse_handle) else {
            return Err(Error::NotYet(format!("VolumeRemoteBackup {from} does not say where it is")));
        };
        let standing = Standing {
            namespace: &key.namespace,
            name: format!("remote-{}", restore.uid().unwrap_or_default()),
            owner: restore.controller_owner_ref(&()),
            handle: longhorn::backup_handle(volume, backup),
            driver: kept.csi_provider.clone().unwrap_or_default(),
            mode: kept.source_spec.as_ref().and_then(|spec| spec["volumeMode"].as_str()),
        };
        let claims = &self.inventory.claims.claims;
        let Some(claim) = claims.get(key) else {
            self.stand_in(&standing).await?;
            return self.make_claim(key, &kept, &standing.name).await.map(|()| false);
        };
        let source = claim.spec.as_ref().and_then(|spec| spec.data_source.as_ref());
        if source.is_none_or(|source| source.name != standing.name) {
            return Err(Error::NotYet(format!("there is a claim {key} already, which is not made of the backup")));
        }
        if !fetched::is_bound(&claim) {
            let why = fetched::hindrance(&claim).map(str::to_owned);
            return why.map_or(Ok(false), |why| Err(Error::NotYet(why)));
        }
        self.stand_down(&standing).await?;
        Ok(true)
    }

    async fn make_claim(&self, key: &Key, kept: &VolumeRemoteBackupStatus, snapshot: &str) -> Result<(), Error> {
        let mut spec = kept.source_spec.clone().unwrap_or_default();
        if let Some(class) = spec["storageClassName"].as_str() {
            spec["storageClassName"] = json!(self.class_here(class).map_err(Error::NotYet)?);
        }
        spec["dataSource"] =
            json!({ "apiGroup": croft_api::snapshot::GROUP, "kind": "VolumeSnapshot", "name": snapshot });
        let wanted = json!({ "metadata": { "name": key.name, "namespace": key.namespace }, "spec": spec });
        let wanted: PersistentVolumeClaim = serde_json::from_value(wanted)
            .map_err(|error| Error::NotYet(format!("what is kept of the claim cannot be read: {error}")))?;
        let api: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), &key.namespace);
        match api.create(&made_by_harvester(), &wanted).await {
            Err(error) if !is_conflict(&error) => not_yet(message(&error)),
            _ => Ok(()),
        }
    }

    async fn write_volume_restore(
        &self,
        old: &VolumeRemoteRestore,
        status: VolumeRemoteRestoreStatus,
    ) -> Result<(), Error> {
        let new = VolumeRemoteRestore { status: Some(status), ..old.clone() };
        let Some(change) = patch::guarded(old, &new) else { return Ok(()) };
        let api: Api<VolumeRemoteRestore> = Api::namespaced(self.client.clone(), &old.namespace().unwrap_or_default());
        let written = api.patch(&old.name_any(), &as_harvester(), &Patch::Merge(&change)).await;
        if let Some(written) = absent_is_none(written)? {
            self.volume_restores.wrote(written);
        }
        Ok(())
    }

    /// Removes what stood for the backup: the claim has it all.
    async fn stand_down(&self, standing: &Standing<'_>) -> Result<(), Error> {
        let snapshots: Api<VolumeSnapshot> = Api::namespaced(self.client.clone(), standing.namespace);
        absent_is_none(snapshots.delete(&standing.name, &DeleteParams::default()).await)?;
        let contents: Api<VolumeSnapshotContent> = Api::all(self.client.clone());
        absent_is_none(contents.delete(&standing.name, &DeleteParams::default()).await)?;
        Ok(())
    }

    /// Restores wait for their backup.
    pub(super) fn after_volume_backup(&self, key: &Key) -> Vec<Work> {
        let from = key.to_string();
        let waits = |restore: &&Arc<VolumeRemoteRestore>| restore.spec.from == from;
        let restores = self.volume_restores.list();
        let waiting = restores.iter().filter(waits).map(|restore| Work::VolumeRestore(Key::of(restore.as_ref())));
        std::iter::once(Work::VolumeBackup(key.clone())).chain(waiting).collect()
    }
}
