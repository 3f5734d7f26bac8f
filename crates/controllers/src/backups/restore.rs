//! A VirtualMachineRestore: the disks first, then the machine, then it runs.
//!
//! Each step finds out whether it was done before: whoever is killed in between goes on from there.

use std::sync::Arc;

use croft_api::harvester::{VirtualMachineBackup, VirtualMachineRestore, VirtualMachineRestoreStatus, set_condition};
use croft_api::machine_state::{Beginning, StateSource, is_secret_name};
use croft_meta::object;
use croft_reconcile::failure::{absent_is_none, is_conflict, is_not_found};
use croft_reconcile::{Error, Key};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{DeleteParams, Patch};
use kube::core::DynamicObject;
use kube::{Api, Resource, ResourceExt};
use serde_json::{Value, json};

use super::rebuilt::{self, LAST_RESTORE, NewMachine};
use super::{Keeper, not_yet, remote, state};
use crate::patch::{self, as_harvester, made_by_harvester};
use crate::virtual_machine::view::this_second;

const CREATING: &str = "Creating new PVCs";
const SEALED: &str =
    "the backup is encrypted with a key that is not here: see the Secret longhorn-system/croft-backup-encryption";
const WAITING: &str = "Waiting for target vm to be ready";

impl Keeper {
    pub(super) async fn reconcile_restore(self: &Arc<Self>, key: &Key) -> Result<(), Error> {
        let Some(restore) = self.restores.get(key) else { return Ok(()) };
        let status = restore.status.clone().unwrap_or_default();
        if restore.metadata.deletion_timestamp.is_some() || status.complete == Some(true) {
            return Ok(());
        }
        let spec = &restore.spec;
        let source = Key::new(spec.virtual_machine_backup_namespace.clone(), spec.virtual_machine_backup_name.clone());
        let Some(backup) = self.backups.get(&source) else {
            return self.fail_restore(&restore, &format!("there is no VirtualMachineBackup {source}")).await;
        };
        if status.complete.is_none() {
            return self.begin_restore(&restore, &backup).await;
        }
        if !backup.spec.is_snapshot() {
            self.bring_sources(&restore, &backup, &status.restores).await?;
        }
        match self.bring_claims(&key.namespace, &status.restores).await {
            Ok(true) => {}
            Ok(false) => {
                let mut status = status;
                if let Some(why) = self.hindrance(&key.namespace, &status.restores) {
                    return self.fail_restore(&restore, &why).await;
                }
                status.progress = Some(self.filled(&key.namespace, &mut status.restores));
                return self.tell_restore(&restore, status, CREATING).await;
            }
            Err(Error::NotYet(why)) => return self.fail_restore(&restore, &why).await,
            Err(error) => return Err(error),
        }
        let Some(machine) = self.bring_machine(key, &restore, &backup, &status).await? else { return Ok(()) };
        let Some(restore) = self.restores.get(key) else { return Ok(()) };
        let mut status = restore.status.clone().unwrap_or_default();
        status.target_uid.clone_from(&machine.metadata.uid);
        for one in &mut status.restores {
            one.progress = Some(100);
        }
        status.progress = Some(100);
        if !self.is_up(&restore, &backup, &machine).await? {
            return self.tell_restore(&restore, status, WAITING).await;
        }
        self.complete_restore(&restore, status, &machine).await
    }

    async fn begin_restore(&self, restore: &VirtualMachineRestore, backup: &VirtualMachineBackup) -> Result<(), Error> {
        let kept = backup.status.clone().unwrap_or_default();
        if kept.ready_to_use != Some(true) || kept.source.is_none() {
            return not_yet("the backup is not ready");
        }
        if remote::is_sealed(&kept) {
            // The key may have come since the target was looked at.
            self.target.changed();
            return self.fail_restore(restore, SEALED).await;
        }
        let id = (restore.name_any(), restore.uid().unwrap_or_default());
        let claim = |volume| rebuilt::claim((&id.0, &id.1), &backup.name_any(), volume);
        let mut restores: Vec<_> = kept.volume_backups.iter().map(claim).collect();
        if !backup.spec.is_snapshot() {
            self.find_sources(restore, &mut restores);
            match self.naturalize(restore, &mut restores).await {
                Err(Error::NotYet(why)) => return self.fail_restore(restore, &why).await,
                done => done?,
            }
        }
        let mut status = VirtualMachineRestoreStatus {
            restores,
            complete: Some(false),
            progress: Some(0),
            ..VirtualMachineRestoreStatus::default()
        };
        let now = Timestamp::now();
        set_condition(&mut status.conditions, "InProgress", true, ("", "Initializing VirtualMachineRestore"), now);
        set_condition(&mut status.conditions, "Ready", false, ("", "Initializing VirtualMachineRestore"), now);
        self.write_restore(restore, status).await
    }

    pub(super) fn waits_for_a_user(&self, claim: &PersistentVolumeClaim) -> bool {
        let class = claim.spec.as_ref().and_then(|spec| spec.storage_class_name.clone()).unwrap_or_default();
        let class = self.inventory.classes.get(&Key::new("", class));
        class.is_some_and(|class| class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer"))
    }

    /// The machine on its new disks, made or changed. Nothing if it could not be.
    async fn bring_machine(
        &self,
        key: &Key,
        restore: &VirtualMachineRestore,
        backup: &VirtualMachineBackup,
        status: &VirtualMachineRestoreStatus,
    ) -> Result<Option<DynamicObject>, Error> {
        let kept = backup.status.clone().unwrap_or_default();
        let Some(source) = &kept.source else { return Ok(None) };
        let (target, id) = (&restore.spec.target.name, format!("{}-{}", key.name, restore.uid().unwrap_or_default()));
        let api = self.machines(&key.namespace);
        let there = absent_is_none(api.get(target).await)?;
        let is_done = |machine: &DynamicObject| machine.annotations().get(LAST_RESTORE) == Some(&id);
        if let Some(machine) = there.clone().filter(is_done) {
            return Ok(Some(machine));
        }
        if restore.spec.new_vm {
            if there.is_some() {
                let why = format!("VM {target} is already exists");
                return self.fail_restore(restore, &why).await.map(|()| None);
            }
            let state = self.state_for(restore, backup).await?;
            self.bring_secrets(&key.namespace, target, backup).await?;
            let wanted = NewMachine {
                namespace: &key.namespace,
                name: target,
                keeps_addresses: restore.spec.keep_mac_address,
                keeps_secrets: false,
                mark: (LAST_RESTORE, &id),
                state: state.as_ref(),
            };
            let machine = rebuilt::new(&wanted, source, &status.restores);
            return self.write_machine(restore, &machine, true).await;
        }
        let Some(now) = there else {
            let why = format!("can't replace nonexistent vm {target}");
            return self.fail_restore(restore, &why).await.map(|()| None);
        };
        let now = serde_json::to_value(&now).unwrap_or_default();
        if now["status"]["created"] == true {
            let why = format!("Please stop the VM {target:?} before doing a restore");
            return self.fail_restore(restore, &why).await.map(|()| None);
        }
        let first = kept.volume_backups.first().and_then(|volume| volume.name.as_deref());
        let beginning = Beginning {
            state: self.state_for(restore, backup).await?,
            memory: self.memory_for(&key.namespace, &restore.uid().unwrap_or_default(), first),
        };
        let (machine, old) = rebuilt::replaced(&now, source, &status.restores, (LAST_RESTORE, &id), &beginning);
        // What is replaced is known before it is no longer named.
        let mut told = status.clone();
        told.deleted_volumes = old;
        self.write_restore(restore, told).await?;
        let written = self.write_machine(restore, &machine, false).await?;
        if let Some(written) = &written {
            self.drop_state(&now, written).await?;
        }
        Ok(written)
    }

    /// What the machine is to begin with besides its disks.
    async fn state_for(
        &self,
        restore: &VirtualMachineRestore,
        backup: &VirtualMachineBackup,
    ) -> Result<Option<StateSource>, Error> {
        let secrets = backup.status.iter().flat_map(|status| &status.secret_backups).cloned().collect::<Vec<_>>();
        let kept = match state::in_secrets(&secrets) {
            Some(kept) => Some(kept),
            None => {
                self.kept_state(&restore.spec.virtual_machine_backup_namespace, &backup.uid().unwrap_or_default())
                    .await?
            }
        };
        self.bring_state(&restore.namespace().unwrap_or_default(), restore.controller_owner_ref(&()), kept).await
    }

    async fn write_machine(
        &self,
        restore: &VirtualMachineRestore,
        machine: &Value,
        is_new: bool,
    ) -> Result<Option<DynamicObject>, Error> {
        let Ok(wanted) = serde_json::from_value::<DynamicObject>(machine.clone()) else { return Ok(None) };
        let api = self.machines(object::namespace(machine));
        let written = if is_new {
            api.create(&made_by_harvester(), &wanted).await
        } else {
            api.replace(object::name(machine), &made_by_harvester(), &wanted).await
        };
        match written {
            Ok(machine) => Ok(Some(machine)),
            // Somebody was faster; it is looked at again.
            Err(error) if is_conflict(&error) => Err(error.into()),
            Err(kube::Error::Api(refused)) if (400..500).contains(&refused.code) => {
                self.fail_restore(restore, &refused.message).await.map(|()| None)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The Secrets of a new machine, under names of its own.
    async fn bring_secrets(&self, namespace: &str, target: &str, backup: &VirtualMachineBackup) -> Result<(), Error> {
        let api: Api<Secret> = Api::namespaced(self.client.clone(), namespace);
        let kept = backup.status.iter().flat_map(|status| &status.secret_backups);
        for kept in kept.filter(|kept| !is_secret_name(&kept.name)) {
            let wanted = json!({ "metadata": { "name": rebuilt::secret_name(target, &kept.name) }, "data": kept.data });
            let Ok(wanted) = serde_json::from_value::<Secret>(wanted) else {
                return not_yet(format!("the secret {} that was kept cannot be read", kept.name));
            };
            match api.create(&made_by_harvester(), &wanted).await {
                Err(error) if !is_conflict(&error) => return Err(error.into()),
                _ => {}
            }
        }
        Ok(())
    }

    /// Starts the machine, if it is to run, and says whether it does.
    async fn is_up(
        &self,
        restore: &VirtualMachineRestore,
        backup: &VirtualMachineBackup,
        machine: &DynamicObject,
    ) -> Result<bool, Error> {
        let kept = backup.status.as_ref().and_then(|status| status.source.as_ref());
        let strategy = kept.map_or_else(|| "Halted".to_owned(), |source| rebuilt::run_strategy(&source.spec));
        // Whoever runs a machine by hand starts it by hand.
        if restore.spec.halt_after_restore || matches!(strategy.as_str(), "Halted" | "Manual") {
            return Ok(true);
        }
        if machine.data["spec"]["runStrategy"] == "Halted" {
            let change = json!({
                "metadata": { "resourceVersion": machine.metadata.resource_version },
                "spec": { "runStrategy": strategy },
            });
            let api = self.machines(machine.metadata.namespace.as_deref().unwrap_or_default());
            api.patch(&machine.name_any(), &as_harvester(), &Patch::Merge(&change)).await?;
            return Ok(false);
        }
        Ok(machine.data["status"]["ready"] == true)
    }

    async fn complete_restore(
        &self,
        restore: &VirtualMachineRestore,
        mut status: VirtualMachineRestoreStatus,
        machine: &DynamicObject,
    ) -> Result<(), Error> {
        if restore.spec.deletion_policy.as_deref() == Some("delete") {
            let namespace = restore.namespace().unwrap_or_default();
            let api: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), &namespace);
            for name in &status.deleted_volumes {
                match api.delete(name, &DeleteParams::default()).await {
                    Err(error) if !is_not_found(&error) => return Err(error.into()),
                    _ => {}
                }
            }
        }
        self.drop_sources(restore, &status.restores).await?;
        self.own(restore, machine).await?;
        self.give_state_to(machine).await?;
        let Some(restore) = self.restores.get(&Key::of(restore)) else { return Ok(()) };
        let now = Timestamp::now();
        status.complete = Some(true);
        status.restore_time = Some(Time(this_second()));
        set_condition(&mut status.conditions, "InProgress", false, ("", "Operation complete"), now);
        set_condition(&mut status.conditions, "Ready", true, ("", "Operation complete"), now);
        self.events.normal(
            restore.as_ref(),
            "VirtualMachineRestoreComplete",
            "Successfully completed VirtualMachineRestore",
        );
        self.write_restore(&restore, status).await
    }

    /// A restore goes with its machine, and so do Secrets that were made for a new one.
    async fn own(&self, restore: &VirtualMachineRestore, machine: &DynamicObject) -> Result<(), Error> {
        let owner = json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": machine.metadata.name, "uid": machine.metadata.uid,
        });
        let change = Patch::Merge(json!({ "metadata": { "ownerReferences": [owner] } }));
        let namespace = restore.namespace().unwrap_or_default();
        let api: Api<VirtualMachineRestore> = Api::namespaced(self.client.clone(), &namespace);
        if let Some(written) = absent_is_none(api.patch(&restore.name_any(), &as_harvester(), &change).await)? {
            self.restores.wrote(written);
        }
        if !restore.spec.new_vm {
            return Ok(());
        }
        let source = Key::new(
            restore.spec.virtual_machine_backup_namespace.clone(),
            restore.spec.virtual_machine_backup_name.clone(),
        );
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &namespace);
        let kept = self.backups.get(&source).and_then(|backup| backup.status.clone()).unwrap_or_default();
        for secret in kept.secret_backups.iter().filter(|secret| !is_secret_name(&secret.name)) {
            let name = rebuilt::secret_name(&restore.spec.target.name, &secret.name);
            absent_is_none(secrets.patch(&name, &as_harvester(), &change).await)?;
        }
        Ok(())
    }

    async fn tell_restore(
        &self,
        restore: &VirtualMachineRestore,
        mut status: VirtualMachineRestoreStatus,
        step: &str,
    ) -> Result<(), Error> {
        let now = Timestamp::now();
        set_condition(&mut status.conditions, "InProgress", true, ("", step), now);
        set_condition(&mut status.conditions, "Ready", false, ("", step), now);
        self.write_restore(restore, status).await?;
        not_yet(step)
    }

    async fn fail_restore(&self, restore: &VirtualMachineRestore, why: &str) -> Result<(), Error> {
        let mut status = restore.status.clone().unwrap_or_default();
        let now = Timestamp::now();
        set_condition(&mut status.conditions, "InProgress", false, ("Error", why), now);
        set_condition(&mut status.conditions, "Ready", false, ("Error", why), now);
        self.events.warning(restore, "VirtualMachineRestoreError", why);
        self.write_restore(restore, status).await?;
        not_yet(why)
    }

    async fn write_restore(
        &self,
        old: &VirtualMachineRestore,
        status: VirtualMachineRestoreStatus,
    ) -> Result<(), Error> {
        let new = VirtualMachineRestore { status: Some(status), ..old.clone() };
        let Some(change) = patch::guarded(old, &new) else { return Ok(()) };
        let api: Api<VirtualMachineRestore> =
            Api::namespaced(self.client.clone(), &old.namespace().unwrap_or_default());
        let written = api.patch(&old.name_any(), &as_harvester(), &Patch::Merge(&change)).await;
        if let Some(written) = absent_is_none(written)? {
            self.restores.wrote(written);
        }
        Ok(())
    }
}
