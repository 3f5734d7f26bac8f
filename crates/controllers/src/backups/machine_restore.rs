//! KubeVirt's VirtualMachineRestore: a machine becomes what it was, or another is made of it. Neither is started.

use std::sync::Arc;

use croft_api::harvester::{Copied, VolumeBackup, VolumeRestore};
use croft_api::kubevirt::{
    KeptVolume, RestoredVolume, VirtualMachineRestore as KubevirtRestore,
    VirtualMachineRestoreStatus as KubevirtRestoreStatus, VirtualMachineSnapshotContent,
};
use croft_meta::object;
use croft_reconcile::failure::{absent_is_none, is_conflict, message};
use croft_reconcile::{Error, Key};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::Patch;
use kube::core::DynamicObject;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use super::machine_snapshot::tell;
use super::rebuilt::{self, NewMachine};
use super::{Keeper, not_yet};
use crate::patch::{self, patch_params, post_params};
use crate::virtual_machine::view::this_second;

const LAST_RESTORE: &str = "restore.kubevirt.io/lastRestoreUID";

impl Keeper {
    pub(super) async fn reconcile_machine_restore(self: &Arc<Self>, key: &Key) -> Result<(), Error> {
        let Some(restore) = self.machine_restores.get(key) else { return Ok(()) };
        let status = restore.status.clone().unwrap_or_default();
        if restore.metadata.deletion_timestamp.is_some() || status.complete == Some(true) {
            return Ok(());
        }
        if let Some(why) = unsupported(&restore) {
            return self.refuse_machine_restore(&restore, why).await;
        }
        let Some(content) = self.content_for(key, &restore).await? else {
            let why = format!("VirtualMachineSnapshot {} is not ready", restore.spec.virtual_machine_snapshot_name);
            return self.refuse_machine_restore(&restore, &why).await;
        };
        let id = (restore.name_any(), restore.uid().unwrap_or_default());
        let disks: Vec<VolumeRestore> =
            content.spec.volume_backups.iter().map(|volume| self.disk(key, &id, volume)).collect();
        let mut status = status;
        status.complete = Some(false);
        status.restores = disks.iter().map(restored).collect();
        if !self.bring_claims(&key.namespace, &disks).await? {
            return self.tell_machine_restore(&restore, status, "Creating new PVCs").await;
        }
        let kept = content.spec.source.virtual_machine.clone().unwrap_or_default();
        let machine = match self.put_back(key, &restore, &kept, &disks).await? {
            Ok(machine) => machine,
            Err(why) => return self.tell_machine_restore(&restore, status, &why).await,
        };
        self.give_claims_to(&machine, &disks).await?;
        status.complete = Some(true);
        status.restore_time = Some(Time(this_second()));
        tell(&mut status.conditions, "Progressing", false, "Operation complete");
        tell(&mut status.conditions, "Ready", true, "Operation complete");
        self.events.normal(
            restore.as_ref(),
            "VirtualMachineRestoreComplete",
            "Successfully completed VirtualMachineRestore",
        );
        self.write_machine_restore(&restore, status).await
    }

    /// What its snapshot holds, if that is ready.
    async fn content_for(
        &self,
        key: &Key,
        restore: &KubevirtRestore,
    ) -> Result<Option<VirtualMachineSnapshotContent>, Error> {
        let name = restore.spec.virtual_machine_snapshot_name.clone();
        let snapshot = self.machine_snapshots.get(&Key::new(key.namespace.clone(), name));
        let status = snapshot.and_then(|snapshot| snapshot.status.clone()).unwrap_or_default();
        let Some(name) = status.virtual_machine_snapshot_content_name.filter(|_| status.ready_to_use == Some(true))
        else {
            return Ok(None);
        };
        let api: Api<VirtualMachineSnapshotContent> = Api::namespaced(self.client.clone(), &key.namespace);
        Ok(absent_is_none(api.get(&name).await)?)
    }

    fn disk(&self, key: &Key, id: &(String, String), volume: &KeptVolume) -> VolumeRestore {
        let snapshot = volume.volume_snapshot_name.clone().unwrap_or_default();
        let taken = self.snapshots.get(&Key::new(key.namespace.clone(), snapshot));
        let size = taken.and_then(|taken| taken.status.as_ref()?.restore_size.clone());
        let kept = VolumeBackup {
            name: volume.volume_snapshot_name.clone(),
            volume_name: volume.volume_name.clone(),
            persistent_volume_claim: volume.persistent_volume_claim.clone(),
            volume_size: size.and_then(|size| croft_meta::Quantity::parse(&size.0).ok()).map(|size| size.value()),
            ..VolumeBackup::default()
        };
        let mut disk = rebuilt::claim((&id.0, &id.1), "", &kept);
        disk.claim.metadata = json!({
            "name": format!("restore-{}-{}", id.1, volume.volume_name),
            "annotations": { "restore.kubevirt.io/name": id.0 },
        });
        disk
    }

    /// The machine on its new disks. The inner error is what it waits for.
    async fn put_back(
        &self,
        key: &Key,
        restore: &KubevirtRestore,
        kept: &Copied,
        disks: &[VolumeRestore],
    ) -> Result<Result<DynamicObject, String>, Error> {
        let (api, target) = (self.machines(&key.namespace), &restore.spec.target.name);
        let id = format!("{}-{}", key.name, restore.uid().unwrap_or_default());
        let there = absent_is_none(api.get(target).await)?;
        if let Some(machine) = there.clone().filter(|machine| machine.annotations().get(LAST_RESTORE) == Some(&id)) {
            return Ok(Ok(machine));
        }
        let mark = (LAST_RESTORE, id.as_str());
        let wanted = if let Some(now) = &there {
            let now = serde_json::to_value(now).unwrap_or_default();
            if now["status"]["created"] == true {
                return self.wait_for_stop(restore, &now).await.map(Err);
            }
            rebuilt::replaced(&now, kept, disks, mark).0
        } else {
            let (namespace, keeps_addresses) = (key.namespace.as_str(), false);
            let wanted = NewMachine { namespace, name: target, keeps_addresses, keeps_secrets: true, mark };
            rebuilt::new(&wanted, kept, disks)
        };
        let Ok(object) = serde_json::from_value::<DynamicObject>(wanted.clone()) else {
            return Ok(Err("the machine that was kept cannot be read".to_owned()));
        };
        let written = match &there {
            Some(_) => api.replace(object::name(&wanted), &post_params(), &object).await,
            None => api.create(&post_params(), &object).await,
        };
        match written {
            Ok(machine) => Ok(Ok(machine)),
            Err(error) if is_conflict(&error) => Err(error.into()),
            Err(kube::Error::Api(refused)) if (400..500).contains(&refused.code) => Ok(Err(refused.message.clone())),
            Err(error) => Err(error.into()),
        }
    }

    /// What is to be done about a machine that runs.
    async fn wait_for_stop(&self, restore: &KubevirtRestore, machine: &Value) -> Result<String, Error> {
        if restore.spec.target_readiness_policy.as_deref() == Some("StopTarget") {
            let change = json!({ "spec": { "runStrategy": "Halted", "running": null } });
            let api = self.machines(object::namespace(machine));
            absent_is_none(api.patch(object::name(machine), &patch_params(), &Patch::Merge(&change)).await)?;
        }
        Ok("Waiting for target to be ready".to_owned())
    }

    /// Whether all claims are there and filled; those that are not there are made.
    pub(super) async fn bring_claims(&self, namespace: &str, disks: &[VolumeRestore]) -> Result<bool, Error> {
        let api: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), namespace);
        let mut are_bound = true;
        for one in disks {
            let name = one.claim.metadata["name"].as_str().unwrap_or_default();
            let there = self.inventory.claims.claims.get(&Key::new(namespace, name));
            let phase = there.as_ref().and_then(|claim| claim.status.as_ref()?.phase.clone());
            // One that waits for its first user is bound when the machine starts.
            are_bound &=
                phase.as_deref() == Some("Bound") || there.as_ref().is_some_and(|claim| self.waits_for_a_user(claim));
            if there.is_some() {
                continue;
            }
            let wanted = json!({ "metadata": one.claim.metadata, "spec": one.claim.spec });
            let Ok(wanted) = serde_json::from_value::<PersistentVolumeClaim>(wanted) else {
                return Err(Error::NotYet(format!("the claim of volume {} cannot be read", one.volume_name)));
            };
            match api.create(&post_params(), &wanted).await {
                Err(error) if !is_conflict(&error) => {
                    let why = format!("the claim of volume {}: {}", one.volume_name, message(&error));
                    return Err(Error::NotYet(why));
                }
                _ => {}
            }
        }
        Ok(are_bound)
    }

    /// The disks go with the machine.
    pub(super) async fn give_claims_to(&self, machine: &DynamicObject, disks: &[VolumeRestore]) -> Result<(), Error> {
        let owner = json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": machine.metadata.name,
            "uid": machine.metadata.uid, "controller": true, "blockOwnerDeletion": true,
        });
        let change = Patch::Merge(json!({ "metadata": { "ownerReferences": [owner] } }));
        let namespace = machine.metadata.namespace.as_deref().unwrap_or_default();
        let api: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), namespace);
        for one in disks {
            let name = one.claim.metadata["name"].as_str().unwrap_or_default();
            absent_is_none(api.patch(name, &patch_params(), &change).await)?;
        }
        Ok(())
    }

    async fn tell_machine_restore(
        &self,
        restore: &KubevirtRestore,
        mut status: KubevirtRestoreStatus,
        step: &str,
    ) -> Result<(), Error> {
        tell(&mut status.conditions, "Progressing", true, step);
        tell(&mut status.conditions, "Ready", false, step);
        self.write_machine_restore(restore, status).await?;
        not_yet(step)
    }

    async fn refuse_machine_restore(&self, restore: &KubevirtRestore, why: &str) -> Result<(), Error> {
        let mut status = restore.status.clone().unwrap_or_default();
        status.complete = Some(false);
        tell(&mut status.conditions, "Progressing", false, why);
        tell(&mut status.conditions, "Ready", false, why);
        self.events.warning(restore, "VirtualMachineRestoreError", why);
        self.write_machine_restore(restore, status).await?;
        not_yet(why)
    }

    async fn write_machine_restore(&self, old: &KubevirtRestore, status: KubevirtRestoreStatus) -> Result<(), Error> {
        let new = KubevirtRestore { status: Some(status), ..old.clone() };
        let Some(change) = patch::difference(old, &new) else { return Ok(()) };
        let api: Api<KubevirtRestore> = Api::namespaced(self.client.clone(), &old.namespace().unwrap_or_default());
        let written = api.patch_status(&old.name_any(), &patch_params(), &Patch::Merge(&change)).await;
        if let Some(written) = absent_is_none(written)? {
            self.machine_restores.wrote(written);
        }
        Ok(())
    }
}

/// What is asked for and cannot be done is not left out.
fn unsupported(restore: &KubevirtRestore) -> Option<&'static str> {
    let spec = &restore.spec;
    if !spec.patches.is_empty() {
        return Some("patches are not supported: change the machine when it is restored");
    }
    if !spec.volume_restore_overrides.is_empty() {
        return Some("volumeRestoreOverrides are not supported");
    }
    match spec.volume_restore_policy.as_deref() {
        None | Some("" | "RandomizeNames") => None,
        Some(_) => Some("only the volumeRestorePolicy RandomizeNames is supported"),
    }
}

fn restored(disk: &VolumeRestore) -> RestoredVolume {
    RestoredVolume {
        volume_name: disk.volume_name.clone(),
        persistent_volume_claim: disk.claim.metadata["name"].as_str().unwrap_or_default().to_owned(),
        volume_snapshot_name: disk.volume_backup_name.clone(),
    }
}
