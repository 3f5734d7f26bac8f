//! KubeVirt's VirtualMachineRestore: a machine becomes what it was, or another is made of it. Neither is started.

use std::sync::Arc;

use croft_api::cdi::DataVolume;
use croft_api::harvester::{Copied, VolumeBackup, VolumeRestore};
use croft_api::kubevirt::{
    KeptVolume, RestoredVolume, VirtualMachineRestore as KubevirtRestore,
    VirtualMachineRestoreStatus as KubevirtRestoreStatus, VirtualMachineSnapshotContent,
};
use croft_api::machine_state::Beginning;
use croft_meta::object;
use croft_reconcile::failure::{absent_is_none, is_conflict, message};
use croft_reconcile::{Error, Key};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{DeleteParams, Patch};
use kube::core::DynamicObject;
use kube::{Api, Resource, ResourceExt};
use serde_json::json;

use super::machine_snapshot::tell;
use super::rebuilt::{self, NewMachine};
use super::restore_policy::{self, RESTORE_UID, Readiness};
use super::{Keeper, not_yet};
use crate::patch::{self, patch_params, post_params};
use crate::virtual_machine::view::this_second;

const LAST_RESTORE: &str = "restore.kubevirt.io/lastRestoreUID";
const FAILURE: &str = "Failure";

/// The machine that is to become what it was.
enum Target {
    Stopped,
    Runs(Readiness),
}

/// What a machine that was restored says of that.
fn mark_of(key: &Key, restore: &KubevirtRestore) -> String {
    format!("{}-{}", key.name, restore.uid().unwrap_or_default())
}

impl Keeper {
    pub(super) async fn reconcile_machine_restore(self: &Arc<Self>, key: &Key) -> Result<(), Error> {
        let Some(restore) = self.machine_restores.get(key) else { return Ok(()) };
        let status = restore.status.clone().unwrap_or_default();
        if restore.metadata.deletion_timestamp.is_some() || status.complete == Some(true) {
            return Ok(());
        }
        if status.conditions.iter().any(|one| one.type_ == FAILURE && one.status == "True") {
            return Ok(());
        }
        let Some(content) = self.content_for(key, &restore).await? else {
            let why = format!("VirtualMachineSnapshot {} is not ready", restore.spec.virtual_machine_snapshot_name);
            return self.refuse_machine_restore(&restore, &why).await;
        };
        if let Some(why) = restore_policy::refusal(&restore.spec, &content.spec.volume_backups) {
            return self.refuse_machine_restore(&restore, &why).await;
        }
        let disks: Vec<VolumeRestore> =
            content.spec.volume_backups.iter().map(|volume| self.disk(key, &restore, volume)).collect();
        let mut status = status;
        status.complete = Some(false);
        status.restores = disks.iter().map(restored).collect();
        // Claims are made for a machine that can have them; in place of others when nobody uses those.
        match self.stopped_target(key, &restore).await? {
            Target::Stopped => {}
            Target::Runs(Readiness::Fail(why)) => return self.fail_machine_restore(&restore, why).await,
            Target::Runs(Readiness::Wait(why)) => return self.tell_machine_restore(&restore, status, why).await,
            Target::Runs(Readiness::Stop) => {
                return self.tell_machine_restore(&restore, status, "Waiting for target to be ready").await;
            }
        }
        if restore_policy::is_in_place(&restore.spec) && !self.clear_claims(key, &restore, &disks, &mut status).await? {
            return self.tell_machine_restore(&restore, status, "Deleting the PVCs that are replaced").await;
        }
        if !self.bring_claims(&key.namespace, &disks).await? {
            return self.tell_machine_restore(&restore, status, "Creating new PVCs").await;
        }
        let kept = content.spec.source.virtual_machine.clone().unwrap_or_default();
        let machine = match self.put_back(key, &restore, &kept, &disks).await? {
            Ok(machine) => machine,
            Err(why) => return self.tell_machine_restore(&restore, status, &why).await,
        };
        if restore_policy::owns_disks(&restore.spec) {
            self.give_claims_to(&machine, &disks).await?;
        }
        self.give_state_to(&machine).await?;
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

    fn disk(&self, key: &Key, restore: &KubevirtRestore, volume: &KeptVolume) -> VolumeRestore {
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
        let mut disk = rebuilt::claim((&restore.name_any(), &restore.uid().unwrap_or_default()), "", &kept);
        disk.claim.metadata = restore_policy::claim_metadata(restore, volume);
        disk
    }

    /// Whether the machine that is replaced stands still, or is not there at all.
    async fn stopped_target(&self, key: &Key, restore: &KubevirtRestore) -> Result<Target, Error> {
        let name = &restore.spec.target.name;
        let Some(machine) = absent_is_none(self.machines(&key.namespace).get(name).await)? else {
            return Ok(Target::Stopped);
        };
        let id = mark_of(key, restore);
        if machine.annotations().get(LAST_RESTORE) == Some(&id) || machine.data["status"]["created"] != true {
            return Ok(Target::Stopped);
        }
        let readiness = restore_policy::readiness(restore, Timestamp::now());
        if readiness == Readiness::Stop {
            let change = json!({ "spec": { "runStrategy": "Halted", "running": null } });
            absent_is_none(self.machines(&key.namespace).patch(name, &patch_params(), &Patch::Merge(&change)).await)?;
        }
        Ok(Target::Runs(readiness))
    }

    /// Deletes the claims whose names are needed, and says whether they are gone.
    async fn clear_claims(
        &self,
        key: &Key,
        restore: &KubevirtRestore,
        disks: &[VolumeRestore],
        status: &mut KubevirtRestoreStatus,
    ) -> Result<bool, Error> {
        let api: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), &key.namespace);
        let mut are_gone = true;
        for disk in disks {
            let name = disk.claim.metadata["name"].as_str().unwrap_or_default();
            let Some(claim) = absent_is_none(api.get(name).await)? else { continue };
            if claim.annotations().get(RESTORE_UID) == restore.metadata.uid.as_ref() {
                continue;
            }
            are_gone = false;
            // It would be made again by the DataVolume that it is of.
            let maker = claim.owner_references().iter().find(|owner| owner.kind == "DataVolume");
            if let Some(maker) = maker {
                let volumes: Api<DataVolume> = Api::namespaced(self.client.clone(), &key.namespace);
                absent_is_none(volumes.delete(&maker.name, &DeleteParams::default()).await)?;
                if !status.deleted_data_volumes.contains(&maker.name) {
                    status.deleted_data_volumes.push(maker.name.clone());
                }
            }
            if claim.metadata.deletion_timestamp.is_none() {
                absent_is_none(api.delete(name, &DeleteParams::default()).await)?;
            }
        }
        Ok(are_gone)
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
        let id = mark_of(key, restore);
        let there = absent_is_none(api.get(target).await)?;
        if let Some(machine) = there.clone().filter(|machine| machine.annotations().get(LAST_RESTORE) == Some(&id)) {
            return Ok(Ok(machine));
        }
        let mark = (LAST_RESTORE, id.as_str());
        let set = self
            .machine_snapshots
            .get(&Key::new(key.namespace.clone(), restore.spec.virtual_machine_snapshot_name.clone()));
        let kept_state = match set.and_then(|set| set.metadata.uid.clone()) {
            Some(set) => self.kept_state(&key.namespace, &set).await?,
            None => None,
        };
        let wanted = if let Some(now) = &there {
            let now = serde_json::to_value(now).unwrap_or_default();
            if now["status"]["created"] == true {
                return Ok(Err("Waiting for target to be ready".to_owned()));
            }
            let state = self.bring_state(&key.namespace, restore.controller_owner_ref(&()), kept_state).await?;
            let first = disks.first().map(|disk| disk.volume_backup_name.as_str());
            let memory = self.memory_for(&key.namespace, &restore.uid().unwrap_or_default(), first);
            rebuilt::replaced(&now, kept, disks, mark, &Beginning { state, memory }).0
        } else {
            let (namespace, keeps_addresses) = (key.namespace.as_str(), false);
            let state = self.bring_state(namespace, restore.controller_owner_ref(&()), kept_state).await?;
            let state = state.as_ref();
            let wanted = NewMachine { namespace, name: target, keeps_addresses, keeps_secrets: true, mark, state };
            match restore_policy::patched(rebuilt::new(&wanted, kept, disks), &restore.spec.patches) {
                Ok(machine) => machine,
                Err(why) => return Ok(Err(why)),
            }
        };
        let Ok(object) = serde_json::from_value::<DynamicObject>(wanted.clone()) else {
            return Ok(Err("the machine that was kept cannot be read".to_owned()));
        };
        let written = match &there {
            Some(_) => api.replace(object::name(&wanted), &post_params(), &object).await,
            None => api.create(&post_params(), &object).await,
        };
        match written {
            Ok(machine) => {
                if let Some(before) = &there {
                    self.drop_state(&serde_json::to_value(before).unwrap_or_default(), &machine).await?;
                }
                Ok(Ok(machine))
            }
            Err(error) if is_conflict(&error) => Err(error.into()),
            Err(kube::Error::Api(refused)) if (400..500).contains(&refused.code) => Ok(Err(refused.message.clone())),
            Err(error) => Err(error.into()),
        }
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

    /// It is not tried again.
    async fn fail_machine_restore(&self, restore: &KubevirtRestore, why: &str) -> Result<(), Error> {
        let mut status = restore.status.clone().unwrap_or_default();
        status.complete = Some(false);
        tell(&mut status.conditions, FAILURE, true, why);
        tell(&mut status.conditions, "Progressing", false, "Operation failed");
        tell(&mut status.conditions, "Ready", false, "Operation failed");
        self.events.warning(restore, "VirtualMachineRestoreError", why);
        self.write_machine_restore(restore, status).await
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

fn restored(disk: &VolumeRestore) -> RestoredVolume {
    RestoredVolume {
        volume_name: disk.volume_name.clone(),
        persistent_volume_claim: disk.claim.metadata["name"].as_str().unwrap_or_default().to_owned(),
        volume_snapshot_name: disk.volume_backup_name.clone(),
    }
}
