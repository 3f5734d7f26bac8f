//! What is kept in the backup target: how far it is, what is written beside it, and how it goes.
//!
//! The disks are sent by the node that has them, and told of by Longhorn's Backup objects. What the machine was is written
//! last, so that whoever finds it in the target finds all of it; and it goes first.

use std::sync::Arc;

use croft_api::harvester::{
    BackupPlace, Condition, VirtualMachineBackup, VirtualMachineBackupStatus, VolumeBackup, set_condition,
};
use croft_api::longhorn::{self, Backup, BackupVolume};
use croft_backup::BackupUrl;
use croft_backup::harvester::VmBackup;
use croft_meta::Chain;
use croft_reconcile::failure::{absent_is_none, is_not_found};
use croft_reconcile::{Change, Error, Key};
use jiff::Timestamp;
use kube::api::{DeleteParams, Patch};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use super::{Keeper, Work, not_yet};
use crate::backup_target::Open;
use crate::patch::as_harvester;

/// Holds a backup until it is out of the target.
pub(crate) const FINALIZER: &str = "wrangler.cattle.io/harvester-vm-backup-controller";
const METADATA_READY: &str = "MetadataReady";
/// Why what a machine was is not all known: its secrets are encrypted with a key that is not here.
const KEY_NEEDED: &str = "KeyNeeded";

/// Whether secrets are missing in it that are in the target.
pub(crate) fn is_sealed(status: &VirtualMachineBackupStatus) -> bool {
    let is_it = |it: &Condition| it.type_ == METADATA_READY && it.reason.as_deref() == Some(KEY_NEEDED);
    status.conditions.iter().any(is_it)
}

/// Says whether they are.
pub(crate) fn set_sealed(status: &mut VirtualMachineBackupStatus, why: Option<&str>, now: Timestamp) {
    match why {
        Some(why) => set_condition(&mut status.conditions, METADATA_READY, false, (KEY_NEEDED, why), now),
        None => set_condition(&mut status.conditions, METADATA_READY, true, ("", ""), now),
    }
}

/// A share of hundred, by the sizes of the disks.
pub(super) fn overall(volumes: &[VolumeBackup]) -> i64 {
    let weight = |volume: &VolumeBackup| i128::from(volume.volume_size.unwrap_or(1).max(1));
    let total: i128 = volumes.iter().map(weight).sum();
    let done: i128 =
        volumes.iter().map(|volume| weight(volume) * i128::from(volume.progress.unwrap_or_default())).sum();
    i64::try_from(done.checked_div(total).unwrap_or(100)).unwrap_or_default()
}

impl Keeper {
    /// The backup itself if it is to go, and the machines' backups that it belongs to.
    pub(super) fn after_copy(&self, change: &Change<Backup>) -> Vec<Work> {
        let name = &change.key.name;
        let is_its = |backup: &&Arc<VirtualMachineBackup>| {
            let volumes = backup.status.iter().flat_map(|status| &status.volume_backups);
            volumes.into_iter().any(|volume| volume.longhorn_backup_name.as_ref() == Some(name))
        };
        let backups = self.backups.list();
        let concerned = backups.iter().filter(is_its).map(|backup| Work::Backup(Key::of(backup.as_ref())));
        let is_going = change.new.as_ref().is_some_and(|copy| copy.metadata.deletion_timestamp.is_some());
        concerned.chain(is_going.then(|| Work::Copy(name.clone()))).collect()
    }

    pub(super) fn copy(&self, name: &str) -> Option<Arc<Backup>> {
        self.copies.get(&Key::new(longhorn::NAMESPACE, name))
    }

    /// How fast it goes, all disks together, for as long as it does.
    pub(super) fn tell_speed(&self, backup: &mut VirtualMachineBackup) {
        let volumes = backup.status.iter().flat_map(|status| &status.volume_backups);
        let sent = volumes.filter(|volume| volume.ready_to_use != Some(true));
        let speeds = sent.filter_map(|volume| self.copy(volume.longhorn_backup_name.as_deref()?)?.speed());
        let total: u64 = speeds.fold(0, u64::saturating_add);
        if total > 0 {
            backup.annotations_mut().insert(longhorn::SPEED.to_owned(), total.to_string());
        } else if let Some(annotations) = backup.metadata.annotations.as_mut() {
            annotations.remove(longhorn::SPEED);
        }
    }

    fn copies_api(&self) -> Api<Backup> {
        Api::namespaced(self.client.clone(), longhorn::NAMESPACE)
    }

    /// Which target it goes to. The inner error is for the user.
    pub(super) async fn place(&self) -> Result<Result<BackupPlace, String>, Error> {
        Ok(self.target.open().await?.map(|open| open.place))
    }

    /// What the machine was, beside its disks.
    pub(super) async fn write_metadata(
        &self,
        backup: &VirtualMachineBackup,
        mut status: VirtualMachineBackupStatus,
    ) -> Result<(), Error> {
        let is_written = |status: &VirtualMachineBackupStatus| {
            status.conditions.iter().any(|condition| condition.type_ == METADATA_READY && condition.status == "True")
        };
        if is_written(&status) || is_sealed(&status) {
            return Ok(());
        }
        let written = match self.open_for(status.backup_target.as_ref()).await? {
            Err(why) => Err(why),
            Ok(None) => Err("the backup target is another now".to_owned()),
            Ok(Some(open)) => match described(backup, &status) {
                Err(why) => Err(why),
                Ok(kept) => {
                    let saved = open.store.save_vm_backup(&kept, open.keys.current()).await;
                    saved.map_err(|error| Chain(&error).to_string())
                }
            },
        };
        let now = Timestamp::now();
        match &written {
            Ok(()) => set_condition(&mut status.conditions, METADATA_READY, true, ("", ""), now),
            Err(why) => set_condition(&mut status.conditions, METADATA_READY, false, ("Error", why), now),
        }
        self.write_backup(backup, status).await?;
        written.or_else(not_yet)
    }

    /// The target that is set, if it is this one. The inner error is for the user; it may pass.
    async fn open_for(&self, place: Option<&BackupPlace>) -> Result<Result<Option<Open>, String>, Error> {
        Ok(self.target.open().await?.map(|open| Some(open).filter(|open| Some(&open.place) == place)))
    }

    /// Its description first, so that nobody takes it for whole; then its disks.
    pub(super) async fn let_backup_go(&self, key: &Key, backup: &VirtualMachineBackup) -> Result<(), Error> {
        if !backup.finalizers().iter().any(|name| name == FINALIZER) {
            return Ok(());
        }
        let status = backup.status.clone().unwrap_or_default();
        // What is in a target that is not ours any more stays there.
        if let Ok(Some(open)) = self.open_for(status.backup_target.as_ref()).await?
            && let Err(error) = open.store.delete_vm_backup(&key.namespace, &key.name).await
        {
            let why = format!("it is still in the backup target: {}", Chain(&error));
            self.events.warning(backup, "BackupDeleteFailed", &why);
            return not_yet(why);
        }
        if self.delete_snapshots(key, backup, &status).await? {
            return not_yet("its snapshots are going");
        }
        for name in status.volume_backups.iter().filter_map(|volume| volume.longhorn_backup_name.as_ref()) {
            match self.copies_api().delete(name, &DeleteParams::default()).await {
                Err(error) if !is_not_found(&error) => return Err(error.into()),
                _ => {}
            }
        }
        let left: Vec<&String> = backup.finalizers().iter().filter(|name| *name != FINALIZER).collect();
        let change = json!({ "metadata": { "resourceVersion": backup.metadata.resource_version, "finalizers": left } });
        let api: Api<VirtualMachineBackup> = Api::namespaced(self.client.clone(), &key.namespace);
        absent_is_none(api.patch(&key.name, &as_harvester(), &Patch::Merge(&change)).await)?;
        Ok(())
    }

    /// Whether there is still one. A node that is sending it stops, and has it removed from the target.
    async fn delete_snapshots(
        &self,
        key: &Key,
        backup: &VirtualMachineBackup,
        status: &VirtualMachineBackupStatus,
    ) -> Result<bool, Error> {
        let api: Api<croft_api::snapshot::VolumeSnapshot> = Api::namespaced(self.client.clone(), &key.namespace);
        let mut is_any_left = false;
        for name in status.volume_backups.iter().filter_map(|volume| volume.name.as_ref()) {
            let Some(snapshot) = absent_is_none(api.get(name).await)? else { continue };
            let is_ours =
                snapshot.owner_references().iter().any(|owner| Some(&owner.uid) == backup.metadata.uid.as_ref());
            if !is_ours {
                continue;
            }
            is_any_left = true;
            if snapshot.metadata.deletion_timestamp.is_none() {
                absent_is_none(api.delete(name, &DeleteParams::default()).await)?;
            }
        }
        Ok(is_any_left)
    }

    /// A backup of a volume that is to go: out of the target first.
    pub(super) async fn reconcile_copy(&self, name: &str) -> Result<(), Error> {
        let Some(copy) = self.copy(name) else { return Ok(()) };
        let is_held = copy.finalizers().iter().any(|held| held == longhorn::FINALIZER);
        if copy.metadata.deletion_timestamp.is_none() || !is_held {
            return Ok(());
        }
        let volume = copy.labels().get(longhorn::VOLUME_LABEL).cloned().unwrap_or_default();
        match self.target.open().await? {
            Ok(open) if is_in(&copy, &open.url) => {
                if let Err(error) = open.store.delete_backup(&volume, name).await {
                    let why = format!("it is still in the backup target: {}", Chain(&error));
                    self.events.warning(copy.as_ref(), "BackupDeleteFailed", &why);
                    return not_yet(why);
                }
                tracing::info!(volume, backup = name, "a backup is removed from the target");
                self.forget_volume(&open, &volume).await?;
            }
            // What is in a target that is not ours any more stays there.
            _ => tracing::info!(volume, backup = name, "a backup is in another target, and stays there"),
        }
        let left: Vec<&String> = copy.finalizers().iter().filter(|held| *held != longhorn::FINALIZER).collect();
        let change = json!({ "metadata": { "resourceVersion": copy.metadata.resource_version, "finalizers": left } });
        match self.copies_api().patch(name, &as_harvester(), &Patch::Merge(&change)).await {
            Err(error) if !is_not_found(&error) => Err(error.into()),
            _ => Ok(()),
        }
    }
}

impl Keeper {
    /// A volume goes with the last of its backups.
    async fn forget_volume(&self, open: &Open, volume: &str) -> Result<(), Error> {
        let is_its = |copy: &Arc<Backup>| copy.labels().get(longhorn::VOLUME_LABEL).map(String::as_str) == Some(volume);
        let others = self.copies.list().iter().filter(|copy| is_its(copy)).count();
        // What cannot be told now is told at the next look at the target.
        if others > 1 || !matches!(open.store.volume(volume).await, Ok(None)) {
            return Ok(());
        }
        let api: Api<BackupVolume> = Api::namespaced(self.client.clone(), longhorn::NAMESPACE);
        absent_is_none(api.delete(volume, &DeleteParams::default()).await)?;
        Ok(())
    }
}

/// One that was never begun is nowhere; looking for it does no harm.
fn is_in(copy: &Backup, target: &str) -> bool {
    let url = copy.status.as_ref().map(|status| status.url.as_str()).unwrap_or_default();
    match url.parse() {
        Ok(BackupUrl::Backup { target: its, .. }) => its == target,
        _ => true,
    }
}

/// As Harvester writes it.
fn described(backup: &VirtualMachineBackup, status: &VirtualMachineBackupStatus) -> Result<VmBackup, String> {
    let value = |it: Result<Value, serde_json::Error>| it.unwrap_or_default();
    let kept = json!({
        "name": backup.name_any(),
        "namespace": backup.namespace(),
        "backupSpec": value(serde_json::to_value(&backup.spec)),
        "vmSourceSpec": value(serde_json::to_value(&status.source)),
        "volumeBackups": value(serde_json::to_value(&status.volume_backups)),
        "secretBackups": value(serde_json::to_value(&status.secret_backups)),
    });
    serde_json::from_value(kept).map_err(|error| format!("it cannot be described: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_disks_count_for_more() {
        let volume = |size, progress| VolumeBackup {
            volume_size: Some(size),
            progress: Some(progress),
            ..VolumeBackup::default()
        };
        assert_eq!(overall(&[volume(3 << 40, 100), volume(1 << 40, 0)]), 75);
        assert_eq!(overall(&[volume(1, 100), volume(1, 100)]), 100);
        assert_eq!(overall(&[VolumeBackup::default()]), 0);
        assert_eq!(overall(&[]), 100);
    }

    #[test]
    fn a_backup_is_described_in_harvesters_words() {
        let backup: VirtualMachineBackup = serde_json::from_value(json!({
            "metadata": {"name": "b", "namespace": "n"},
            "spec": {"type": "backup", "source": {"kind": "VirtualMachine", "name": "vm"}},
            "status": {
                "source": {"metadata": {"name": "vm"}, "spec": {"running": true}},
                "volumeBackups": [{"name": "b-volume-c", "volumeName": "root", "csiDriverName": "d",
                    "persistentVolumeClaim": {"metadata": {"name": "c"}, "spec": {"volumeName": "pvc-1"}},
                    "longhornBackupName": "backup-1", "volumeSize": 7, "readyToUse": true}],
                "secretBackups": [{"name": "s", "data": {"k": "dg=="}}],
            },
        }))
        .unwrap();
        let kept = described(&backup, backup.status.as_ref().unwrap()).unwrap();
        assert_eq!((kept.name.as_str(), kept.namespace.as_str()), ("b", "n"));
        assert_eq!(kept.volume_backups[0].backup_volume(), Some("pvc-1"));
        assert_eq!(kept.volume_backups[0].longhorn_backup_name.as_deref(), Some("backup-1"));
        assert_eq!(kept.volume_backups[0].rest["readyToUse"], true);
        assert_eq!(kept.secret_backups[0].data["k"], "dg==");
        assert_eq!(kept.vm_source_spec.unwrap()["spec"]["running"], true);
    }

    #[test]
    fn a_backup_in_another_target_is_left_there() {
        let at = |url: &str| -> Backup { serde_json::from_value(json!({"status": {"url": url}})).unwrap() };
        assert!(is_in(&at("file:///a?backup=backup-1&volume=pvc-1"), "file:///a"));
        assert!(!is_in(&at("file:///a?backup=backup-1&volume=pvc-1"), "file:///b"));
        assert!(is_in(&at(""), "file:///b"));
    }
}
