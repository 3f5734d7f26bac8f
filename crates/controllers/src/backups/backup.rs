//! A VirtualMachineBackup: what is kept, from the first look to the last.

use std::collections::BTreeMap;
use std::sync::Arc;

use croft_api::harvester::{
    BackupError, Copied, SecretBackup, VirtualMachineBackup, VirtualMachineBackupStatus, VolumeBackup, set_condition,
};
use croft_api::longhorn;
use croft_api::machine_state::wants_memory;
use croft_api::snapshot::{SnapshotSet, VolumeSnapshot};
use croft_meta::Quantity;
use croft_reconcile::failure::{absent_is_none, is_conflict, is_not_found};
use croft_reconcile::{Error, Key};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{DeleteParams, Patch};
use kube::core::DynamicObject;
use kube::{Api, Resource, ResourceExt};
use serde_json::{Value, json};

use super::{Keeper, capture, not_yet, remote, state};
use crate::inventory::setting;
use crate::patch::{self, as_harvester, made_by_harvester};
use crate::virtual_machine::view::this_second;

impl Keeper {
    pub(super) async fn reconcile_backup(self: &Arc<Self>, key: &Key) -> Result<(), Error> {
        let Some(backup) = self.backups.get(key) else { return Ok(()) };
        if backup.metadata.deletion_timestamp.is_some() {
            return self.let_backup_go(key, &backup).await;
        }
        let status = backup.status.clone().unwrap_or_default();
        if status.source.is_none() && status.ready_to_use == Some(true) {
            // Somebody else's word.
            return Ok(());
        }
        if status.source.is_none() {
            return self.begin_backup(key, &backup).await;
        }
        let is_snapshot = backup.spec.is_snapshot();
        // What is in the target outlives its machine.
        if is_snapshot && self.is_machine_gone(key, &backup).await? {
            return self.follow_machine(key, &backup).await;
        }
        match (status.ready_to_use, is_snapshot) {
            (Some(true), true) => return Ok(()),
            (Some(true), false) => return self.write_metadata(&backup, status).await,
            _ => {}
        }
        self.make_snapshots(&backup, &status).await?;
        let mut next = self.progress(key, &backup, status);
        if next.ready_to_use == Some(true) && !is_snapshot {
            let set = backup.metadata.uid.as_deref().unwrap_or_default();
            self.add_state(&key.namespace, set, &mut next).await?;
        }
        self.write_backup(&backup, next).await
    }

    /// Writes down what the machine is, and what is to be taken.
    async fn begin_backup(&self, key: &Key, backup: &VirtualMachineBackup) -> Result<(), Error> {
        let name = &backup.spec.source.name;
        let Some(machine) = absent_is_none(self.machines(&key.namespace).get(name).await)? else {
            return self.fail_backup(backup, &format!("there is no machine {}/{name}", key.namespace)).await;
        };
        let mut status = match self.describe(key, backup, &machine).await? {
            Ok(status) => status,
            Err(why) => return self.fail_backup(backup, &why).await,
        };
        if !backup.spec.is_snapshot() {
            match self.place().await? {
                Ok(place) => status.backup_target = Some(place),
                Err(why) => return self.fail_backup(backup, &why).await,
            }
        }
        status.conditions = backup.status.clone().unwrap_or_default().conditions;
        let now = Timestamp::now();
        set_condition(&mut status.conditions, "InProgress", true, ("", "Operation in progress"), now);
        set_condition(&mut status.conditions, "Ready", false, ("", "Not ready"), now);
        self.write_backup(backup, status).await
    }

    /// The inner error is for the user; it may pass.
    async fn describe(
        &self,
        key: &Key,
        backup: &VirtualMachineBackup,
        machine: &DynamicObject,
    ) -> Result<Result<VirtualMachineBackupStatus, String>, Error> {
        let mut spec = machine.data["spec"].clone();
        let mut template = spec["template"]["spec"].take();
        let mut volumes = Vec::new();
        let mut classes = BTreeMap::new();
        for disk in capture::disks(&template) {
            let Some(claim) = self.bound_claim(&key.namespace, &disk.claim) else {
                return Ok(Err(format!("the claim {} of volume {} is not bound", disk.claim, disk.volume)));
            };
            let is_snapshot = backup.spec.is_snapshot();
            let mut kept = capture::claim(&claim);
            if !is_snapshot {
                // That is what the volume is called in the target.
                kept.spec["volumeName"] = json!(claim.spec.as_ref().and_then(|spec| spec.volume_name.as_ref()));
            }
            let volume = volume_backup(&key.name, disk, kept);
            let driver = volume.csi_driver_name.clone();
            let Some(class) = self.snapshot_class(&driver, is_snapshot) else {
                return Ok(Err(no_class(&driver, is_snapshot)));
            };
            classes.insert(driver, class);
            volumes.push(volume);
        }
        if let Some(why) = state::cannot_be_kept(&template, !volumes.is_empty()) {
            return Ok(Err(why.to_owned()));
        }
        let secrets = match self.secrets(&key.namespace, &mut template).await? {
            Ok(secrets) => secrets,
            Err(why) => return Ok(Err(why)),
        };
        spec["template"]["spec"] = template;
        let metadata = serde_json::to_value(&machine.metadata).unwrap_or_default();
        Ok(Ok(VirtualMachineBackupStatus {
            source_uid: machine.metadata.uid.clone(),
            csi_driver_volume_snapshot_class_names: classes,
            source: Some(Copied { metadata: capture::metadata(&metadata), spec }),
            volume_backups: volumes,
            secret_backups: secrets,
            progress: Some(0),
            ready_to_use: Some(false),
            ..VirtualMachineBackupStatus::default()
        }))
    }

    /// The class for snapshots of what this driver made, that stay in the cluster or go to the target.
    pub(super) fn snapshot_class(&self, driver: &str, is_snapshot: bool) -> Option<String> {
        let text = setting(&self.inventory, "csi-driver-config").unwrap_or_default();
        let config: Value = serde_json::from_str(&text).unwrap_or_default();
        config[driver][class_field(is_snapshot)].as_str().filter(|class| !class.is_empty()).map(str::to_owned)
    }

    async fn secrets(&self, namespace: &str, template: &mut Value) -> Result<Result<Vec<SecretBackup>, String>, Error> {
        let api: Api<Secret> = Api::namespaced(self.client.clone(), namespace);
        let mut kept: Vec<SecretBackup> = Vec::new();
        let names: Vec<String> =
            capture::secrets(template).iter().filter_map(|name| name.as_str()).map(str::to_owned).collect();
        for name in names {
            if kept.iter().any(|secret| secret.name == name) {
                continue;
            }
            let Some(secret) = absent_is_none(api.get(&name).await)? else {
                return Ok(Err(format!("the machine's secret {name} does not exist")));
            };
            let data = serde_json::to_value(secret.data.unwrap_or_default()).unwrap_or_default();
            kept.push(SecretBackup { name, data: serde_json::from_value(data).unwrap_or_default() });
        }
        Ok(Ok(kept))
    }

    /// One for each disk, all of one set.
    async fn make_snapshots(
        &self,
        backup: &VirtualMachineBackup,
        status: &VirtualMachineBackupStatus,
    ) -> Result<(), Error> {
        let members: Vec<String> = status.volume_backups.iter().filter_map(|volume| volume.name.clone()).collect();
        let freeze_ms = backup.spec.fs_freeze_deadline.as_deref().and_then(capture::milliseconds);
        let set = SnapshotSet {
            id: backup.metadata.uid.clone().unwrap_or_default(),
            members,
            machine: backup.spec.source.name.clone(),
            freeze_ms: freeze_ms.filter(|wait| *wait > 0).unwrap_or(capture::FREEZE_MS),
            with_memory: backup.spec.is_snapshot() && wants_memory(&backup.metadata),
        };
        for volume in &status.volume_backups {
            let wanted = capture::SnapshotWanted {
                namespace: backup.metadata.namespace.as_deref().unwrap_or_default(),
                name: volume.name.as_deref().unwrap_or_default(),
                claim: &volume.persistent_volume_claim,
                owner: backup.controller_owner_ref(&()),
                set: &set,
                is_copied: !backup.spec.is_snapshot(),
            };
            match self.make_snapshot(&wanted).await {
                Err(Error::NotYet(why)) => return self.fail_backup(backup, &why).await,
                made => made?,
            }
        }
        Ok(())
    }

    /// One that is there is left as it is; what is refused may pass.
    pub(super) async fn make_snapshot(&self, wanted: &capture::SnapshotWanted<'_>) -> Result<(), Error> {
        if self.snapshots.get(&Key::new(wanted.namespace, wanted.name)).is_some() {
            return Ok(());
        }
        let driver = capture::driver(wanted.claim);
        let Some(class) = self.snapshot_class(driver, !wanted.is_copied) else {
            return not_yet(no_class(driver, !wanted.is_copied));
        };
        let api: Api<VolumeSnapshot> = Api::namespaced(self.client.clone(), wanted.namespace);
        match api.create(&made_by_harvester(), &capture::snapshot(wanted, class)).await {
            Err(error) if is_conflict(&error) => Ok(()),
            Err(kube::Error::Api(refused)) if (400..500).contains(&refused.code) => not_yet(refused.message.clone()),
            made => made.map(drop).map_err(Error::from),
        }
    }

    /// A claim that has its volume.
    pub(super) fn bound_claim(&self, namespace: &str, name: &str) -> Option<Arc<PersistentVolumeClaim>> {
        let claim = self.inventory.claims.claims.get(&Key::new(namespace, name))?;
        claim.spec.as_ref()?.volume_name.as_ref()?;
        Some(claim)
    }

    /// What the snapshots say, put together.
    fn progress(
        &self,
        key: &Key,
        backup: &VirtualMachineBackup,
        mut status: VirtualMachineBackupStatus,
    ) -> VirtualMachineBackupStatus {
        let now = Timestamp::now();
        let mut failed = None;
        for volume in &mut status.volume_backups {
            let name = volume.name.clone().unwrap_or_default();
            let found = self.snapshots.get(&Key::new(key.namespace.clone(), name));
            let there = found.as_ref().and_then(|snapshot| snapshot.status.as_ref());
            volume.ready_to_use = Some(found.as_ref().is_some_and(|snapshot| snapshot.is_ready()));
            volume.progress = Some(if volume.ready_to_use == Some(true) { 100 } else { 0 });
            if let Some(snapshot) = found.as_ref().filter(|_| !backup.spec.is_snapshot()) {
                let name = longhorn::backup_name(snapshot.metadata.uid.as_deref().unwrap_or_default());
                let sent = self.copy(&name).and_then(|copy| copy.status.as_ref().map(|status| status.progress));
                // All of it is sent a moment before it counts.
                volume.progress = volume.progress.max(sent.map(|sent| sent.clamp(0, 99)));
                volume.longhorn_backup_name = Some(name);
            }
            volume.creation_time = there.and_then(|there| there.creation_time.clone());
            let size = there.and_then(|there| there.restore_size.as_ref());
            volume.volume_size = size.and_then(|size| Quantity::parse(&size.0).ok()).map(|size| size.value());
            let error = there.and_then(|there| there.error.clone());
            volume.error = error.map(|error| BackupError { message: error.message, time: error.time });
            failed = failed.or_else(|| volume.error.clone());
        }
        let (count, ready) = (status.volume_backups.len(), |one: &&VolumeBackup| one.ready_to_use == Some(true));
        let done = status.volume_backups.iter().filter(ready).count();
        status.progress = Some(remote::overall(&status.volume_backups));
        status.error.clone_from(&failed);
        if done == count {
            let first = status.volume_backups.iter().filter_map(|volume| volume.creation_time.clone()).min();
            status.creation_time = first.or_else(|| Some(Time(this_second())));
            status.ready_to_use = Some(true);
            set_condition(&mut status.conditions, "InProgress", false, ("", "Operation complete"), now);
            set_condition(&mut status.conditions, "Ready", true, ("", "Operation complete"), now);
        } else if let Some(error) = failed {
            let why = error.message.unwrap_or_default();
            set_condition(&mut status.conditions, "InProgress", false, ("Error", &why), now);
            set_condition(&mut status.conditions, "Ready", false, ("", "Not ready"), now);
        } else {
            set_condition(&mut status.conditions, "InProgress", true, ("", "Operation in progress"), now);
            set_condition(&mut status.conditions, "Ready", false, ("", "Not ready"), now);
        }
        status
    }

    async fn fail_backup(&self, backup: &VirtualMachineBackup, why: &str) -> Result<(), Error> {
        let mut status = backup.status.clone().unwrap_or_default();
        let is_told = status.error.as_ref().and_then(|error| error.message.as_deref()) == Some(why);
        if !is_told {
            let now = Timestamp::now();
            status.ready_to_use = Some(false);
            status.error = Some(BackupError { message: Some(why.to_owned()), time: Some(Time(this_second())) });
            set_condition(&mut status.conditions, "InProgress", false, ("Error", why), now);
            set_condition(&mut status.conditions, "Ready", false, ("", "Not ready"), now);
            self.events.warning(backup, "SnapshotFailed", why);
            self.write_backup(backup, status).await?;
        }
        not_yet(why)
    }

    /// What goes to the target is held until it is out of there again.
    pub(super) async fn write_backup(
        &self,
        old: &VirtualMachineBackup,
        status: VirtualMachineBackupStatus,
    ) -> Result<(), Error> {
        let mut new = VirtualMachineBackup { status: Some(status), ..old.clone() };
        if !old.spec.is_snapshot() && !old.finalizers().iter().any(|name| name == remote::FINALIZER) {
            new.finalizers_mut().push(remote::FINALIZER.to_owned());
        }
        self.tell_speed(&mut new);
        let Some(change) = patch::guarded(old, &new) else { return Ok(()) };
        let api: Api<VirtualMachineBackup> =
            Api::namespaced(self.client.clone(), old.metadata.namespace.as_deref().unwrap_or_default());
        let written = api.patch(&old.name_any(), &as_harvester(), &Patch::Merge(&change)).await;
        if let Some(written) = absent_is_none(written)? {
            self.backups.wrote(written);
        }
        Ok(())
    }

    /// Whether the machine that it is of is no more; the server is asked before it is taken for gone.
    async fn is_machine_gone(&self, key: &Key, backup: &VirtualMachineBackup) -> Result<bool, Error> {
        let uid = backup.status.as_ref().and_then(|status| status.source_uid.clone());
        let name = &backup.spec.source.name;
        let is_it = |found: Option<&String>| found == uid.as_ref();
        let known = self.inventory.machines.get(&Key::new(key.namespace.clone(), name.clone()));
        if uid.is_none() || known.is_some_and(|machine| is_it(machine.metadata.uid.as_ref())) {
            return Ok(false);
        }
        let found = absent_is_none(self.machines(&key.namespace).get(name).await)?;
        Ok(!found.is_some_and(|machine| is_it(machine.metadata.uid.as_ref())))
    }

    /// Whether something is being restored from it.
    pub(super) fn is_read(&self, key: &Key) -> bool {
        self.restores.list().iter().any(|restore| {
            restore.spec.virtual_machine_backup_name == key.name
                && restore.spec.virtual_machine_backup_namespace == key.namespace
                && restore.status.as_ref().and_then(|status| status.complete) != Some(true)
        })
    }

    /// As in Harvester, snapshots of a machine go with it; those of its disks stay with the disks that stay.
    async fn follow_machine(&self, key: &Key, backup: &VirtualMachineBackup) -> Result<(), Error> {
        if self.is_read(key) {
            return not_yet("something is restored from it");
        }
        let api: Api<VolumeSnapshot> = Api::namespaced(self.client.clone(), &key.namespace);
        for volume in backup.status.iter().flat_map(|status| &status.volume_backups) {
            let name = volume.name.clone().unwrap_or_default();
            let claim = volume.persistent_volume_claim.metadata["name"].as_str().unwrap_or_default();
            let claim = self.inventory.claims.claims.get(&Key::new(key.namespace.clone(), claim));
            let Some(owner) = claim
                .filter(|claim| claim.metadata.deletion_timestamp.is_none())
                .and_then(|claim| claim.owner_ref(&()))
            else {
                continue;
            };
            let change = json!({ "metadata": { "ownerReferences": [owner] } });
            match api.patch(&name, &as_harvester(), &Patch::Merge(&change)).await {
                Err(error) if !is_not_found(&error) => return Err(error.into()),
                _ => {}
            }
        }
        let api: Api<VirtualMachineBackup> = Api::namespaced(self.client.clone(), &key.namespace);
        let uid = kube::api::Preconditions { uid: backup.metadata.uid.clone(), resource_version: None };
        match api.delete(&key.name, &DeleteParams { preconditions: Some(uid), ..DeleteParams::default() }).await {
            Err(error) if !is_not_found(&error) => Err(error.into()),
            _ => Ok(()),
        }
    }
}

fn volume_backup(backup: &str, disk: capture::Disk, claim: Copied) -> VolumeBackup {
    VolumeBackup {
        name: Some(format!("{backup}-volume-{}", disk.claim)),
        volume_name: disk.volume,
        csi_driver_name: capture::driver(&claim).to_owned(),
        persistent_volume_claim: claim,
        ready_to_use: Some(false),
        ..VolumeBackup::default()
    }
}

fn class_field(is_snapshot: bool) -> &'static str {
    if is_snapshot { "volumeSnapshotClassName" } else { "backupVolumeSnapshotClassName" }
}

fn no_class(driver: &str, is_snapshot: bool) -> String {
    format!("csi-driver-config has no {} for {driver}", class_field(is_snapshot))
}
