//! What is in the target, shown as objects: a cluster that is new to it can restore what another has written there.
//!
//! Longhorn's Backups first, then the machines' whose disks are all there. What another cluster has deleted goes from here too.

use std::collections::{BTreeMap, BTreeSet};

use croft_api::harvester::{
    SecretBackup, VirtualMachineBackup, VirtualMachineBackupSpec, VirtualMachineBackupStatus, VirtualMachineImage,
    VirtualMachineImageSpec, set_condition, source_type,
};
use croft_api::longhorn::{self, Backup, BackupSpec, BackupStatus, BackupVolume, BackupVolumeSpec, BackupVolumeStatus};
use croft_backup::BackupUrl;
use croft_backup::config::{BLOCK_SIZE, BackupConfig, VolumeConfig};
use croft_backup::harvester::{VmBackup, VmImage};
use croft_meta::Chain;
use croft_reconcile::failure::{absent_is_none, is_conflict, made_or_there, message};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::api::{DeleteParams, ListParams, Patch};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

use super::Open;
use crate::backups::{HELD_BY_TARGET, is_sealed, set_sealed};
use crate::patch::{self, as_harvester, made_by_harvester};
use crate::virtual_machine::view::this_second;

/// Why not everything is shown.
#[derive(Debug, thiserror::Error)]
pub(super) enum SyncError {
    #[error("the backup target cannot be read")]
    Target(#[from] croft_backup::Error),
    #[error("the API server refused")]
    Api(#[from] kube::Error),
}

/// `is_first` says whether what cannot be shown is told of, which holds for as long as it is there.
pub(super) async fn sync(client: &Client, open: &Open, is_first: bool) -> Result<(), SyncError> {
    let view = View { client, open, is_first, backups: Api::namespaced(client.clone(), longhorn::NAMESPACE) };
    let known = view.known().await?;
    let volumes = open.store.volumes().await?;
    let found = view.show_volumes(&volumes, &known).await?;
    view.forget(&known, &found).await?;
    view.forget_volumes(&volumes, &known).await?;
    view.show_images().await?;
    view.show_machines(&found).await
}

struct View<'a> {
    client: &'a Client,
    open: &'a Open,
    backups: Api<Backup>,
    is_first: bool,
}

impl View<'_> {
    async fn known(&self) -> Result<BTreeMap<String, Backup>, kube::Error> {
        let all = self.backups.list(&ListParams::default()).await?;
        Ok(all.items.into_iter().map(|backup| (backup.name_any(), backup)).collect())
    }

    /// The names of all backups that are whole.
    async fn show_volumes(
        &self,
        volumes: &[String],
        known: &BTreeMap<String, Backup>,
    ) -> Result<BTreeSet<String>, SyncError> {
        let store = &self.open.store;
        let mut found = BTreeSet::new();
        for volume in volumes {
            let names = store.backups(volume).await?;
            let is_new = |name: &&String| known.get(*name).is_none_or(|backup| backup.state() != longhorn::COMPLETED);
            found.extend(names.iter().filter(|name| !is_new(name)).cloned());
            if !names.iter().any(|name| is_new(&name)) {
                continue;
            }
            let Some(facts) = store.volume(volume).await? else { continue };
            for name in names.iter().filter(is_new) {
                let Some(config) = store.backup(volume, name).await?.filter(BackupConfig::is_complete) else {
                    continue;
                };
                // One that a node here is sending is told of by the node.
                if known.contains_key(name) {
                    continue;
                }
                self.show_volume(&facts).await?;
                self.show_backup(&facts, &config).await?;
                found.insert(name.clone());
            }
        }
        Ok(found)
    }

    async fn show_volume(&self, facts: &VolumeConfig) -> Result<(), kube::Error> {
        let api: Api<BackupVolume> = Api::namespaced(self.client.clone(), longhorn::NAMESPACE);
        let volume = BackupVolume {
            metadata: metadata(&facts.name, &facts.name),
            spec: BackupVolumeSpec { backup_target_name: longhorn::TARGET.to_owned(), volume_name: facts.name.clone() },
            status: None,
        };
        made_or_there(api.create(&made_by_harvester(), &volume).await)?;
        let status = BackupVolumeStatus {
            size: facts.size.to_string(),
            created_at: facts.created_time.clone(),
            last_backup_name: facts.last_backup_name.clone(),
            last_backup_at: facts.last_backup_at.clone(),
            data_stored: facts.block_count.saturating_mul(BLOCK_SIZE).to_string(),
            storage_class_name: facts.storage_class_name.clone(),
            last_synced_at: Some(Time(this_second())),
        };
        let change = Patch::Merge(json!({ "status": status }));
        api.patch_status(&facts.name, &as_harvester(), &change).await.map(drop)
    }

    async fn show_backup(&self, facts: &VolumeConfig, config: &BackupConfig) -> Result<(), kube::Error> {
        let metadata = ObjectMeta {
            finalizers: Some(vec![longhorn::FINALIZER.to_owned()]),
            ..metadata(&config.name, &facts.name)
        };
        let spec = BackupSpec { snapshot_name: config.snapshot_name.clone(), ..BackupSpec::default() };
        made_or_there(self.backups.create(&made_by_harvester(), &Backup { metadata, spec, status: None }).await)?;
        let change = Patch::Merge(json!({ "status": backup_status(&self.open.url, facts, config) }));
        self.backups.patch_status(&config.name, &as_harvester(), &change).await.map(drop)
    }

    /// What was there and is not any more: there is nothing left to remove.
    async fn forget(&self, known: &BTreeMap<String, Backup>, found: &BTreeSet<String>) -> Result<(), kube::Error> {
        let gone = known.iter().filter(|(name, backup)| {
            let url = backup.status.as_ref().map(|status| status.url.as_str()).unwrap_or_default();
            let is_here = matches!(url.parse(), Ok(BackupUrl::Backup { target, .. }) if target == self.open.url);
            let is_going = backup.metadata.deletion_timestamp.is_some();
            backup.state() == longhorn::COMPLETED && is_here && !is_going && !found.contains(*name)
        });
        for (name, backup) in gone {
            tracing::info!(backup = name, "a backup has gone from the target");
            let left: Vec<&String> = backup.finalizers().iter().filter(|held| *held != longhorn::FINALIZER).collect();
            let change = Patch::Merge(json!({ "metadata": { "finalizers": left } }));
            absent_is_none(self.backups.patch(name, &as_harvester(), &change).await)?;
            absent_is_none(self.backups.delete(name, &DeleteParams::default()).await)?;
        }
        Ok(())
    }

    /// Volumes of which nothing is left. One that has no status has its first backup on the way.
    async fn forget_volumes(&self, volumes: &[String], known: &BTreeMap<String, Backup>) -> Result<(), kube::Error> {
        let api: Api<BackupVolume> = Api::namespaced(self.client.clone(), longhorn::NAMESPACE);
        for volume in api.list(&ListParams::default()).await? {
            let name = volume.name_any();
            let is_kept = known.values().any(|backup| backup.labels().get(longhorn::VOLUME_LABEL) == Some(&name));
            if volume.status.is_some() && !is_kept && !volumes.contains(&name) {
                absent_is_none(api.delete(&name, &DeleteParams::default()).await)?;
            }
        }
        Ok(())
    }

    /// Images are brought here by whoever looks after images. One of the same name, to users or otherwise, is the same.
    async fn show_images(&self) -> Result<(), SyncError> {
        for kept in self.open.store.vm_images().await? {
            let api: Api<VirtualMachineImage> = Api::namespaced(self.client.clone(), &kept.namespace);
            let known = api.list(&ListParams::default()).await?;
            let is_same = |image: &VirtualMachineImage| {
                image.name_any() == kept.name || image.spec.display_name == kept.display_name
            };
            let Ok(BackupUrl::BackingImage { name: backing, .. }) = kept.url.parse() else { continue };
            if known.iter().any(is_same) {
                continue;
            }
            if !self.open.store.backing_image(&backing).await?.is_some_and(|image| image.is_complete()) {
                continue;
            }
            self.make_namespace(&kept.namespace).await?;
            let wanted = image(&kept, &self.open.url, backing);
            match api.create(&made_by_harvester(), &wanted).await {
                Err(kube::Error::Api(refused)) => {
                    let error = kube::Error::Api(refused);
                    self.complain(&kept.namespace, &kept.name, &message(&error));
                }
                made => drop(made?),
            }
        }
        Ok(())
    }

    async fn show_machines(&self, found: &BTreeSet<String>) -> Result<(), SyncError> {
        for kept in self.open.store.vm_backups().await? {
            let name = |volume: &croft_backup::harvester::VolumeBackup| volume.longhorn_backup_name.clone();
            if !kept.volume_backups.iter().all(|volume| name(volume).is_some_and(|name| found.contains(&name))) {
                continue;
            }
            let api: Api<VirtualMachineBackup> = Api::namespaced(self.client.clone(), &kept.namespace);
            if let Some(there) = absent_is_none(api.get(&kept.name).await)? {
                self.unseal(&api, &there, kept).await?;
                continue;
            }
            let Some(wanted) = machine_backup(&kept, self.open) else {
                self.complain(&kept.namespace, &kept.name, "it is not as Harvester writes it");
                continue;
            };
            self.make_namespace(&kept.namespace).await?;
            // One that is refused does not keep the others away.
            match api.create(&made_by_harvester(), &wanted).await {
                Err(error) if is_conflict(&error) => {}
                Err(kube::Error::Api(refused)) => {
                    let error = kube::Error::Api(refused);
                    self.complain(&kept.namespace, &kept.name, &message(&error));
                }
                made => drop(made?),
            }
        }
        Ok(())
    }

    /// What was shown without its secrets has them once their key is here.
    async fn unseal(
        &self,
        api: &Api<VirtualMachineBackup>,
        there: &VirtualMachineBackup,
        kept: VmBackup,
    ) -> Result<(), kube::Error> {
        let Some(status) = there.status.as_ref().filter(|status| is_sealed(status)) else { return Ok(()) };
        let Ok(kept) = kept.unseal_with(&self.open.keys) else { return Ok(()) };
        let mut new = status.clone();
        new.secret_backups = secrets(&kept);
        set_sealed(&mut new, None, Timestamp::now());
        let wanted = VirtualMachineBackup { status: Some(new), ..there.clone() };
        let Some(change) = patch::guarded(there, &wanted) else { return Ok(()) };
        absent_is_none(api.patch(&there.name_any(), &as_harvester(), &Patch::Merge(&change)).await).map(drop)
    }

    fn complain(&self, namespace: &str, name: &str, why: &str) {
        if self.is_first {
            tracing::warn!(namespace, name, why, "what is in the backup target cannot be shown");
        }
    }

    async fn make_namespace(&self, name: &str) -> Result<(), kube::Error> {
        let api: Api<Namespace> = Api::all(self.client.clone());
        if absent_is_none(api.get(name).await)?.is_some() {
            return Ok(());
        }
        let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
        made_or_there(api.create(&made_by_harvester(), &Namespace { metadata, ..Namespace::default() }).await)
    }
}

fn metadata(name: &str, volume: &str) -> ObjectMeta {
    let labels = [
        (longhorn::VOLUME_LABEL.to_owned(), volume.to_owned()),
        (longhorn::TARGET_LABEL.to_owned(), longhorn::TARGET.to_owned()),
    ];
    ObjectMeta { name: Some(name.to_owned()), labels: Some(labels.into()), ..ObjectMeta::default() }
}

fn backup_status(target: &str, facts: &VolumeConfig, config: &BackupConfig) -> BackupStatus {
    let url = BackupUrl::Backup { target: target.to_owned(), volume: facts.name.clone(), backup: config.name.clone() };
    let disk_size = config.croft.as_ref().map_or(facts.size, |croft| croft.disk_size);
    BackupStatus {
        state: longhorn::COMPLETED.to_owned(),
        progress: 100,
        url: url.to_string(),
        snapshot_name: config.snapshot_name.clone(),
        snapshot_created_at: config.snapshot_created_at.clone(),
        backup_created_at: config.created_time.clone(),
        size: config.size.to_string(),
        newly_upload_data_size: config.newly_uploaded_data_size.to_string(),
        volume_name: facts.name.clone(),
        volume_size: disk_size.to_string(),
        compression_method: config.compression_method.clone(),
        backup_target_name: longhorn::TARGET.to_owned(),
        last_synced_at: Some(Time(this_second())),
        ..BackupStatus::default()
    }
}

/// The same image, to be fetched from this target: another cluster may know it by another address.
fn image(kept: &VmImage, target: &str, backing: String) -> VirtualMachineImage {
    let url = BackupUrl::BackingImage { target: target.to_owned(), name: backing };
    let text = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    VirtualMachineImage {
        metadata: ObjectMeta {
            name: Some(kept.name.clone()),
            namespace: Some(kept.namespace.clone()),
            ..ObjectMeta::default()
        },
        spec: VirtualMachineImageSpec {
            display_name: if kept.display_name.is_empty() { kept.name.clone() } else { kept.display_name.clone() },
            description: text(&kept.description),
            source_type: source_type::RESTORE.to_owned(),
            url: Some(url.to_string()),
            checksum: text(&kept.checksum),
            storage_class_parameters: kept.storage_class_parameters.clone(),
            ..VirtualMachineImageSpec::default()
        },
        status: None,
    }
}

fn secrets(kept: &VmBackup) -> Vec<SecretBackup> {
    let value = serde_json::to_value(&kept.secret_backups).unwrap_or_default();
    serde_json::from_value(value).unwrap_or_default()
}

/// A machine's backup as it was when it was ready. Its secrets are missing if they are encrypted and their key is not here.
fn machine_backup(kept: &VmBackup, open: &Open) -> Option<VirtualMachineBackup> {
    let opened = kept.clone().unseal_with(&open.keys);
    let sealed = opened.as_ref().err().map(|error| Chain(error).to_string());
    let kept = opened.as_ref().unwrap_or(kept);
    let value = |it: Result<Value, serde_json::Error>| it.unwrap_or_default();
    let spec: VirtualMachineBackupSpec = serde_json::from_value(kept.backup_spec.clone()).ok()?;
    let mut status: VirtualMachineBackupStatus = serde_json::from_value(json!({
        "source": kept.vm_source_spec,
        "volumeBackups": value(serde_json::to_value(&kept.volume_backups)),
        "readyToUse": true,
        "progress": 100,
    }))
    .ok()?;
    status.source.as_ref()?;
    status.secret_backups = secrets(kept);
    for volume in &mut status.volume_backups {
        (volume.ready_to_use, volume.progress, volume.error) = (Some(true), Some(100), None);
    }
    status.creation_time = status.volume_backups.iter().filter_map(|volume| volume.creation_time.clone()).min();
    status.backup_target = Some(open.place.clone());
    let now = Timestamp::now();
    set_condition(&mut status.conditions, "InProgress", false, ("", "Operation complete"), now);
    set_condition(&mut status.conditions, "Ready", true, ("", "Operation complete"), now);
    set_sealed(&mut status, sealed.as_deref(), now);
    let metadata = ObjectMeta {
        name: Some(kept.name.clone()),
        namespace: Some(kept.namespace.clone()),
        finalizers: Some(vec![HELD_BY_TARGET.to_owned()]),
        ..ObjectMeta::default()
    };
    Some(VirtualMachineBackup { metadata, spec, status: Some(status) })
}

/// Said once a look, not at every file.
pub(super) fn complain(error: &SyncError) {
    tracing::warn!(error = %Chain(error), "what is in the backup target is not all shown");
}
