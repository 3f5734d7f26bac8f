//! KubeVirt's VirtualMachineClone: a snapshot of the machine, another machine made of it, and what the two differ in.

use std::collections::BTreeMap;
use std::sync::Arc;

use croft_api::kubevirt::{
    VirtualMachineClone, VirtualMachineCloneStatus, VirtualMachineRestore as KubevirtRestore, VirtualMachineSnapshot,
};
use croft_api::machine_state::StateSource;
use croft_reconcile::failure::{absent_is_none, is_conflict, is_not_found, message};
use croft_reconcile::{Error, Key};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{DeleteParams, Patch};
use kube::{Api, Resource, ResourceExt};
use serde_json::{Value, json};

use super::machine_snapshot::tell;
use super::{Keeper, not_yet};
use crate::patch::{self, patch_params, post_params};
use crate::virtual_machine::view::this_second;

const SUCCEEDED: &str = "Succeeded";
const FAILED: &str = "Failed";
/// Its answer is in the new machine: what was asked for is done.
const CLONED: &str = "clone.kubevirt.io/source";

impl Keeper {
    pub(super) async fn reconcile_clone(self: &Arc<Self>, key: &Key) -> Result<(), Error> {
        let Some(clone) = self.clones.get(key) else { return Ok(()) };
        let status = clone.status.clone().unwrap_or_default();
        let is_over = matches!(status.phase.as_deref(), Some(SUCCEEDED | FAILED));
        if clone.metadata.deletion_timestamp.is_some() || is_over {
            return Ok(());
        }
        if let Some(why) = unsupported(&clone) {
            return self.write_clone(&clone, failed(status, &why)).await;
        }
        let snapshot = self.snapshot_for(key, &clone).await?;
        let step = |phase: &str| VirtualMachineCloneStatus {
            phase: Some(phase.to_owned()),
            snapshot_name: Some(snapshot.clone()),
            ..status.clone()
        };
        let taken = self.machine_snapshots.get(&Key::new(key.namespace.clone(), snapshot.clone()));
        let told = taken.and_then(|taken| taken.status.clone()).unwrap_or_default();
        if told.phase.as_deref() == Some(FAILED) {
            let why = told.error.and_then(|error| error.message).unwrap_or_else(|| "the snapshot failed".to_owned());
            return self.write_clone(&clone, failed(status, &why)).await;
        }
        if told.ready_to_use != Some(true) {
            return self.tell_clone(&clone, step("SnapshotInProgress"), "the source is being kept").await;
        }
        let target = target_name(&clone);
        let restore = match self.restore_for(key, &clone, &snapshot, &target).await? {
            Ok(restore) => restore,
            Err(why) => return self.write_clone(&clone, failed(status, &why)).await,
        };
        let mut next = step("RestoreInProgress");
        next.restore_name.clone_from(&restore.metadata.name);
        next.target_name = Some(target.clone());
        if restore.status.as_ref().and_then(|status| status.complete) != Some(true) {
            return self.tell_clone(&clone, next, "the new machine is being made").await;
        }
        self.tell_apart(key, &clone, &target).await?;
        next.phase = Some(SUCCEEDED.to_owned());
        next.creation_time.get_or_insert_with(|| Time(this_second()));
        tell(&mut next.conditions, "Progressing", false, "Ready");
        tell(&mut next.conditions, "Ready", true, "Ready");
        self.write_clone(&clone, next).await?;
        self.clear(key, &clone, &snapshot, &restore.name_any()).await
    }

    /// The snapshot that it is made from: a given one, or one of its own.
    async fn snapshot_for(&self, key: &Key, clone: &VirtualMachineClone) -> Result<String, Error> {
        if clone.spec.source.kind == "VirtualMachineSnapshot" {
            return Ok(clone.spec.source.name.clone());
        }
        let name = format!("tmp-snapshot-{}", clone.uid().unwrap_or_default());
        if self.machine_snapshots.get(&Key::new(key.namespace.clone(), name.clone())).is_none() {
            let wanted = json!({
                "metadata": { "name": name, "ownerReferences": [clone.controller_owner_ref(&())] },
                "spec": { "source": clone.spec.source },
            });
            let api: Api<VirtualMachineSnapshot> = Api::namespaced(self.client.clone(), &key.namespace);
            if let Ok(wanted) = serde_json::from_value(wanted) {
                made(api.create(&post_params(), &wanted).await)?;
            }
        }
        Ok(name)
    }

    /// What makes the new machine; refused if somebody else has its name.
    async fn restore_for(
        &self,
        key: &Key,
        clone: &VirtualMachineClone,
        snapshot: &str,
        target: &str,
    ) -> Result<Result<Arc<KubevirtRestore>, String>, Error> {
        let name = format!("tmp-restore-{}", clone.uid().unwrap_or_default());
        if let Some(restore) = self.machine_restores.get(&Key::new(key.namespace.clone(), name.clone())) {
            return Ok(Ok(restore));
        }
        if self.inventory.machines.get(&Key::new(key.namespace.clone(), target)).is_some() {
            return Ok(Err(format!("the target {target} exists already")));
        }
        let wanted = json!({
            "metadata": { "name": name, "ownerReferences": [clone.controller_owner_ref(&())] },
            "spec": {
                "target": { "apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": target },
                "virtualMachineSnapshotName": snapshot,
                "patches": clone.spec.patches,
                "volumeRestorePolicy": clone.spec.volume_name_policy,
            },
        });
        let Ok(wanted) = serde_json::from_value::<KubevirtRestore>(wanted) else {
            return Ok(Err("the restore cannot be written".to_owned()));
        };
        let api: Api<KubevirtRestore> = Api::namespaced(self.client.clone(), &key.namespace);
        match api.create(&post_params(), &wanted).await {
            Ok(restore) => Ok(Ok(Arc::new(restore))),
            Err(error) if is_conflict(&error) => Ok(Ok(Arc::new(api.get(&name).await?))),
            Err(kube::Error::Api(refused)) if (400..500).contains(&refused.code) => Ok(Err(refused.message.clone())),
            Err(error) => Err(error.into()),
        }
    }

    /// Gives the new machine what was asked for it alone.
    async fn tell_apart(&self, key: &Key, clone: &VirtualMachineClone, target: &str) -> Result<(), Error> {
        let api = self.machines(&key.namespace);
        let Some(machine) = absent_is_none(api.get(target).await)? else {
            return not_yet(format!("machine {target} is not there"));
        };
        if machine.annotations().contains_key(CLONED) {
            return Ok(());
        }
        let mut object = serde_json::to_value(&machine).unwrap_or_default();
        apply(&mut object, clone);
        object["metadata"]["annotations"][CLONED] = json!(clone.spec.source.name);
        let Ok(wanted) = serde_json::from_value(object) else { return Ok(()) };
        match api.replace(target, &post_params(), &wanted).await {
            Err(error) if is_conflict(&error) => Err(error.into()),
            Err(error) => not_yet(message(&error)),
            Ok(_) => Ok(()),
        }
    }

    /// What was made on the way.
    async fn clear(&self, key: &Key, clone: &VirtualMachineClone, snapshot: &str, restore: &str) -> Result<(), Error> {
        let gone = |result: Result<(), kube::Error>| match result {
            Err(error) if !is_not_found(&error) => Err(Error::from(error)),
            _ => Ok(()),
        };
        let params = DeleteParams::default();
        let restores: Api<KubevirtRestore> = Api::namespaced(self.client.clone(), &key.namespace);
        gone(restores.delete(restore, &params).await.map(drop))?;
        if clone.spec.source.kind != "VirtualMachineSnapshot" {
            let snapshots: Api<VirtualMachineSnapshot> = Api::namespaced(self.client.clone(), &key.namespace);
            gone(snapshots.delete(snapshot, &params).await.map(drop))?;
        }
        Ok(())
    }

    async fn tell_clone(
        &self,
        clone: &VirtualMachineClone,
        mut status: VirtualMachineCloneStatus,
        step: &str,
    ) -> Result<(), Error> {
        tell(&mut status.conditions, "Progressing", true, step);
        tell(&mut status.conditions, "Ready", false, step);
        self.write_clone(clone, status).await?;
        not_yet(step)
    }

    async fn write_clone(&self, old: &VirtualMachineClone, status: VirtualMachineCloneStatus) -> Result<(), Error> {
        let new = VirtualMachineClone { status: Some(status), ..old.clone() };
        let Some(change) = patch::difference(old, &new) else { return Ok(()) };
        let api: Api<VirtualMachineClone> = Api::namespaced(self.client.clone(), &old.namespace().unwrap_or_default());
        let written = api.patch_status(&old.name_any(), &patch_params(), &Patch::Merge(&change)).await;
        if let Some(written) = absent_is_none(written)? {
            self.clones.wrote(written);
        }
        Ok(())
    }
}

fn made<T>(result: Result<T, kube::Error>) -> Result<(), Error> {
    match result {
        Err(error) if !is_conflict(&error) => Err(error.into()),
        _ => Ok(()),
    }
}

fn target_name(clone: &VirtualMachineClone) -> String {
    let named = clone.spec.target.as_ref().map(|target| target.name.clone()).filter(|name| !name.is_empty());
    let uid = clone.uid().unwrap_or_default();
    named.unwrap_or_else(|| format!("clone-{}-{}", clone.spec.source.name, uid.get(..5).unwrap_or_default()))
}

fn unsupported(clone: &VirtualMachineClone) -> Option<String> {
    match clone.spec.volume_name_policy.as_deref() {
        None | Some("" | "RandomizeNames" | "PrefixTargetName") => None,
        Some(other) => Some(format!("volumeNamePolicy {other} is none of RandomizeNames, PrefixTargetName")),
    }
}

fn failed(mut status: VirtualMachineCloneStatus, why: &str) -> VirtualMachineCloneStatus {
    status.phase = Some(FAILED.to_owned());
    tell(&mut status.conditions, "Progressing", false, why);
    tell(&mut status.conditions, "Ready", false, why);
    status
}

/// Labels, annotations, addresses and serial number.
fn apply(machine: &mut Value, clone: &VirtualMachineClone) {
    let spec = &clone.spec;
    filter(&mut machine["metadata"]["labels"], &spec.label_filters);
    filter(&mut machine["metadata"]["annotations"], &spec.annotation_filters);
    let template = &mut machine["spec"]["template"];
    filter(&mut template["metadata"]["labels"], &spec.template.label_filters);
    let state = StateSource::of_template(template);
    filter(&mut template["metadata"]["annotations"], &spec.template.annotation_filters);
    // That is no annotation of the source's.
    StateSource::tell(state.as_ref(), template);
    let domain = &mut template["spec"]["domain"];
    if let Some(serial) = &spec.new_smbios_serial {
        domain["firmware"]["serial"] = json!(serial);
    }
    set_addresses(domain, &spec.new_mac_addresses);
}

fn set_addresses(domain: &mut Value, addresses: &BTreeMap<String, String>) {
    for interface in domain["devices"]["interfaces"].as_array_mut().into_iter().flatten() {
        let address = interface["name"].as_str().and_then(|name| addresses.get(name)).cloned();
        if let Some(address) = address {
            interface["macAddress"] = json!(address);
        }
    }
}

/// `*` stands for anything; what a filter with `!` names is left out. Without filters everything stays.
fn filter(map: &mut Value, filters: &[String]) {
    let Some(map) = map.as_object_mut().filter(|_| !filters.is_empty()) else { return };
    let (without, with): (Vec<&String>, Vec<&String>) = filters.iter().partition(|one| one.starts_with('!'));
    map.retain(|key, _| {
        let is_in = with.is_empty() || with.iter().any(|pattern| matches(pattern, key));
        is_in && !without.iter().any(|pattern| matches(pattern.trim_start_matches('!'), key))
    });
}

fn matches(pattern: &str, key: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == key,
        Some((start, end)) => key.len() >= start.len() + end.len() && key.starts_with(start) && key.ends_with(end),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clone_differs_in_what_was_asked_for() {
        let clone: VirtualMachineClone = serde_json::from_value(json!({
            "metadata": {"name": "c", "uid": "12345678"},
            "spec": {"source": {"kind": "VirtualMachine", "name": "vm"}, "labelFilters": ["*", "!secret/*"],
                "newMacAddresses": {"a": "02:00:00:00:00:01"}, "newSMBiosSerial": "s"},
        }))
        .unwrap();
        let mut machine = json!({
            "metadata": {"labels": {"team": "x", "secret/one": "y"}, "annotations": {"kept": "z"}},
            "spec": {"template": {"spec": {"domain": {"devices": {"interfaces": [{"name": "a"}, {"name": "b"}]}}}}},
        });
        apply(&mut machine, &clone);
        assert_eq!(machine["metadata"], json!({"labels": {"team": "x"}, "annotations": {"kept": "z"}}));
        let domain = &machine["spec"]["template"]["spec"]["domain"];
        assert_eq!(
            domain["devices"]["interfaces"],
            json!([{"name": "a", "macAddress": "02:00:00:00:00:01"}, {"name": "b"}])
        );
        assert_eq!(domain["firmware"]["serial"], "s");
        assert_eq!(target_name(&clone), "clone-vm-12345");
    }
}
