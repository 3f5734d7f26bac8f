//! KubeVirt's VirtualMachineSnapshot: its content holds the machine as it was, and owns the snapshots of its disks.

use std::sync::Arc;

use croft_api::harvester::{BackupError, Copied};
use croft_api::kubevirt::{
    KeptSource, KeptVolume, KeptVolumeStatus, SnapshotVolumes, SourceIndication, VirtualMachineCondition,
    VirtualMachineSnapshot, VirtualMachineSnapshotContent, VirtualMachineSnapshotContentSpec,
    VirtualMachineSnapshotContentStatus, VirtualMachineSnapshotStatus,
};
use croft_api::machine_state::wants_memory;
use croft_api::snapshot::{SnapshotSet, Stillness, VolumeSnapshot};
use croft_reconcile::failure::{absent_is_none, is_conflict};
use croft_reconcile::{Error, Key};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{ObjectMeta, Patch};
use kube::core::DynamicObject;
use kube::{Api, Resource, ResourceExt};
use serde_json::{Value, json};

use super::{Keeper, capture, not_yet, state};
use crate::patch::{self, patch_params, post_params};
use crate::virtual_machine::view::this_second;

const SUCCEEDED: &str = "Succeeded";
const FAILED: &str = "Failed";
/// As KubeVirt's, for snapshots that say nothing.
const PATIENCE_MS: u64 = 300_000;

/// Says it, unless it has been said.
pub(super) fn tell(conditions: &mut Vec<VirtualMachineCondition>, type_: &str, is_true: bool, reason: &str) {
    let status = if is_true { "True" } else { "False" };
    let is_same = |one: &VirtualMachineCondition| one.status == status && one.reason.as_deref() == Some(reason);
    match conditions.iter_mut().find(|one| one.type_ == type_) {
        Some(one) if is_same(one) => {}
        found => {
            let fresh = VirtualMachineCondition {
                type_: type_.to_owned(),
                status: status.to_owned(),
                last_transition_time: Some(Time(this_second())),
                reason: Some(reason.to_owned()),
                ..VirtualMachineCondition::default()
            };
            match found {
                Some(one) => *one = fresh,
                None => conditions.push(fresh),
            }
        }
    }
}

impl Keeper {
    pub(super) async fn reconcile_machine_snapshot(self: &Arc<Self>, key: &Key) -> Result<(), Error> {
        let Some(snapshot) = self.machine_snapshots.get(key) else { return Ok(()) };
        if snapshot.metadata.deletion_timestamp.is_some() {
            return Ok(());
        }
        let status = snapshot.status.clone().unwrap_or_default();
        if matches!(status.phase.as_deref(), Some(SUCCEEDED | FAILED)) {
            return Ok(());
        }
        if is_late(&snapshot, Timestamp::now()) {
            self.unlock(key, &snapshot).await?;
            return self.write_machine_snapshot(&snapshot, late(status)).await;
        }
        let api: Api<VirtualMachineSnapshotContent> = Api::namespaced(self.client.clone(), &key.namespace);
        let name = content_name(&snapshot);
        let Some(content) = absent_is_none(api.get(&name).await)? else {
            return self.begin_machine_snapshot(key, &snapshot).await;
        };
        self.take_disks(&snapshot, &content).await?;
        let content = self.tell_content(key, content).await?;
        let told = content.status.clone().unwrap_or_default();
        if told.ready_to_use != Some(true) {
            let mut status = status;
            status.error.clone_from(&told.error);
            self.write_machine_snapshot(&snapshot, in_progress(status, &name)).await?;
            return not_yet("its disks are not kept yet");
        }
        let mut status = self.done(key, status, &content);
        if let Some(volumes) = &mut status.snapshot_volumes
            && self.kept_state(&key.namespace, &snapshot.uid().unwrap_or_default()).await?.is_some()
        {
            // What KubeVirt calls the volume that it has them on.
            volumes.included_volumes.push(format!("persistent-state-for-{}", snapshot.spec.source.name));
        }
        self.write_machine_snapshot(&snapshot, status).await?;
        self.unlock(key, &snapshot).await
    }

    /// Writes down what the machine is.
    async fn begin_machine_snapshot(&self, key: &Key, snapshot: &VirtualMachineSnapshot) -> Result<(), Error> {
        let name = &snapshot.spec.source.name;
        let refuse = async |why: String| {
            let mut status = snapshot.status.clone().unwrap_or_default();
            if status.error.as_ref().and_then(|error| error.message.as_ref()) != Some(&why) {
                status.error = Some(BackupError { message: Some(why.clone()), time: Some(Time(this_second())) });
            }
            status.ready_to_use = Some(false);
            tell(&mut status.conditions, "Progressing", false, &why);
            tell(&mut status.conditions, "Ready", false, "Not ready");
            self.write_machine_snapshot(snapshot, status).await?;
            not_yet(why)
        };
        let Some(machine) = absent_is_none(self.machines(&key.namespace).get(name).await)? else {
            return refuse("Source does not exist".to_owned()).await;
        };
        let locked = machine.data["status"]["snapshotInProgress"].as_str().unwrap_or_default();
        if !locked.is_empty() && locked != key.name {
            return refuse(format!("Source is locked by snapshot {locked}")).await;
        }
        let mut volumes = Vec::new();
        for disk in capture::disks(&machine.data["spec"]["template"]["spec"]) {
            match self.bound_claim(&key.namespace, &disk.claim) {
                Some(claim) => volumes.push(KeptVolume {
                    volume_snapshot_name: Some(format!(
                        "vmsnapshot-{}-volume-{}",
                        snapshot.uid().unwrap_or_default(),
                        disk.volume
                    )),
                    persistent_volume_claim: capture::claim(&claim),
                    volume_name: disk.volume,
                }),
                None => {
                    return refuse(format!("the claim {} of volume {} is not bound", disk.claim, disk.volume)).await;
                }
            }
        }
        let template = &machine.data["spec"]["template"]["spec"];
        if let Some(why) = state::cannot_be_kept(template, !volumes.is_empty()) {
            return refuse(why.to_owned()).await;
        }
        let lock = json!({ "status": { "snapshotInProgress": key.name } });
        self.machines(&key.namespace).patch_status(name, &patch_params(), &Patch::Merge(&lock)).await?;
        let content = content(snapshot, &machine, volumes);
        let api: Api<VirtualMachineSnapshotContent> = Api::namespaced(self.client.clone(), &key.namespace);
        match api.create(&post_params(), &content).await {
            Err(error) if !is_conflict(&error) => return Err(error.into()),
            _ => {}
        }
        let mut status = snapshot.status.clone().unwrap_or_default();
        status.source_uid.clone_from(&machine.metadata.uid);
        status.error = None;
        self.write_machine_snapshot(snapshot, in_progress(status, &content_name(snapshot))).await?;
        // What comes next is begun when the snapshot is seen again.
        not_yet("the content was made")
    }

    async fn take_disks(
        &self,
        snapshot: &VirtualMachineSnapshot,
        content: &VirtualMachineSnapshotContent,
    ) -> Result<(), Error> {
        let namespace = content.namespace().unwrap_or_default();
        let volumes = &content.spec.volume_backups;
        let set = SnapshotSet {
            id: snapshot.uid().unwrap_or_default(),
            members: volumes.iter().filter_map(|volume| volume.volume_snapshot_name.clone()).collect(),
            machine: snapshot.spec.source.name.clone(),
            freeze_ms: capture::FREEZE_MS,
            with_memory: wants_memory(&snapshot.metadata),
        };
        for volume in volumes {
            let wanted = capture::SnapshotWanted {
                namespace: &namespace,
                name: volume.volume_snapshot_name.as_deref().unwrap_or_default(),
                claim: &volume.persistent_volume_claim,
                owner: content.controller_owner_ref(&()),
                set: &set,
                is_copied: false,
            };
            self.make_snapshot(&wanted).await?;
        }
        Ok(())
    }

    /// The content says what the snapshots of its disks say.
    async fn tell_content(
        &self,
        key: &Key,
        content: VirtualMachineSnapshotContent,
    ) -> Result<VirtualMachineSnapshotContent, Error> {
        let names = content.spec.volume_backups.iter().filter_map(|volume| volume.volume_snapshot_name.clone());
        let states: Vec<KeptVolumeStatus> = names
            .map(|name| {
                let taken = self.snapshots.get(&Key::new(key.namespace.clone(), name.clone()));
                let there = taken.as_ref().and_then(|taken| taken.status.clone()).unwrap_or_default();
                let error = there.error.map(|error| BackupError { message: error.message, time: error.time });
                KeptVolumeStatus {
                    volume_snapshot_name: name,
                    creation_time: there.creation_time,
                    ready_to_use: Some(there.ready_to_use.unwrap_or_default()),
                    error,
                }
            })
            .collect();
        let is_ready = states.iter().all(|state| state.ready_to_use == Some(true));
        let first = states.iter().filter_map(|state| state.creation_time.clone()).min();
        let known = content.status.clone().unwrap_or_default();
        let status = VirtualMachineSnapshotContentStatus {
            creation_time: known.creation_time.or(first).or_else(|| is_ready.then(|| Time(this_second()))),
            ready_to_use: Some(is_ready),
            error: states.iter().find_map(|state| state.error.clone()),
            volume_snapshot_status: states,
        };
        let new = VirtualMachineSnapshotContent { status: Some(status), ..content.clone() };
        let Some(change) = patch::guarded(&content, &new) else { return Ok(content) };
        let api: Api<VirtualMachineSnapshotContent> = Api::namespaced(self.client.clone(), &key.namespace);
        Ok(api.patch_status(&content.name_any(), &patch_params(), &Patch::Merge(&change)).await?)
    }

    fn done(
        &self,
        key: &Key,
        mut status: VirtualMachineSnapshotStatus,
        content: &VirtualMachineSnapshotContent,
    ) -> VirtualMachineSnapshotStatus {
        let volumes = &content.spec.volume_backups;
        let taken = |name: &String| self.snapshots.get(&Key::new(key.namespace.clone(), name.clone()));
        let first: Option<Arc<VolumeSnapshot>> =
            volumes.iter().filter_map(|volume| volume.volume_snapshot_name.as_ref()).find_map(taken);
        let guest = first.and_then(|snapshot| Stillness::of(&snapshot.metadata)).unwrap_or_default();
        status.indications = guest.indications().into_iter().map(str::to_owned).collect();
        status.source_indications = status.indications.iter().map(|one| meaning(one)).collect();
        let included: Vec<String> = volumes.iter().map(|volume| volume.volume_name.clone()).collect();
        let machine = content.spec.source.virtual_machine.clone().unwrap_or_default();
        let all = machine.spec.pointer("/template/spec/volumes").and_then(Value::as_array).cloned().unwrap_or_default();
        let names = all.iter().filter_map(|volume| volume["name"].as_str()).map(str::to_owned);
        let excluded = names.filter(|name| !included.contains(name)).collect();
        status.snapshot_volumes = Some(SnapshotVolumes { included_volumes: included, excluded_volumes: excluded });
        status.virtual_machine_snapshot_content_name.clone_from(&content.metadata.name);
        status.creation_time = content.status.as_ref().and_then(|told| told.creation_time.clone());
        status.phase = Some(SUCCEEDED.to_owned());
        status.ready_to_use = Some(true);
        status.error = None;
        tell(&mut status.conditions, "Progressing", false, "Operation complete");
        tell(&mut status.conditions, "Ready", true, "Operation complete");
        status
    }

    /// The machine may be changed again.
    async fn unlock(&self, key: &Key, snapshot: &VirtualMachineSnapshot) -> Result<(), Error> {
        let (api, name) = (self.machines(&key.namespace), &snapshot.spec.source.name);
        let Some(machine) = absent_is_none(api.get(name).await)? else { return Ok(()) };
        if machine.data["status"]["snapshotInProgress"] != key.name.as_str() {
            return Ok(());
        }
        let change = json!({
            "metadata": { "resourceVersion": machine.metadata.resource_version },
            "status": { "snapshotInProgress": null },
        });
        absent_is_none(api.patch_status(name, &patch_params(), &Patch::Merge(&change)).await)?;
        Ok(())
    }

    async fn write_machine_snapshot(
        &self,
        old: &VirtualMachineSnapshot,
        status: VirtualMachineSnapshotStatus,
    ) -> Result<(), Error> {
        let new = VirtualMachineSnapshot { status: Some(status), ..old.clone() };
        let Some(change) = patch::difference(old, &new) else { return Ok(()) };
        let api: Api<VirtualMachineSnapshot> =
            Api::namespaced(self.client.clone(), &old.namespace().unwrap_or_default());
        let written = api.patch_status(&old.name_any(), &patch_params(), &Patch::Merge(&change)).await;
        if let Some(written) = absent_is_none(written)? {
            self.machine_snapshots.wrote(written);
        }
        Ok(())
    }
}

fn content_name(snapshot: &VirtualMachineSnapshot) -> String {
    format!("vmsnapshot-content-{}", snapshot.uid().unwrap_or_default())
}

fn is_late(snapshot: &VirtualMachineSnapshot, now: Timestamp) -> bool {
    let patience = snapshot.spec.failure_deadline.as_deref().and_then(capture::milliseconds).unwrap_or(PATIENCE_MS);
    let Some(Time(begun)) = snapshot.metadata.creation_timestamp.clone() else { return false };
    let patience = SignedDuration::from_millis(i64::try_from(patience).unwrap_or(i64::MAX));
    // Nothing is said to be too late that may wait for ever.
    !patience.is_zero() && now.duration_since(begun) > patience
}

fn late(mut status: VirtualMachineSnapshotStatus) -> VirtualMachineSnapshotStatus {
    const WHY: &str = "snapshot deadline exceeded";
    status.phase = Some(FAILED.to_owned());
    status.ready_to_use = Some(false);
    let error = status.error.get_or_insert_default();
    error.message.get_or_insert_with(|| WHY.to_owned());
    error.time.get_or_insert_with(|| Time(this_second()));
    tell(&mut status.conditions, "Failure", true, WHY);
    tell(&mut status.conditions, "Progressing", false, "Operation failed");
    tell(&mut status.conditions, "Ready", false, "Operation failed");
    status
}

fn in_progress(mut status: VirtualMachineSnapshotStatus, content: &str) -> VirtualMachineSnapshotStatus {
    status.phase = Some("InProgress".to_owned());
    status.ready_to_use = Some(false);
    status.virtual_machine_snapshot_content_name = Some(content.to_owned());
    tell(&mut status.conditions, "Progressing", true, "Source locked and operation in progress");
    tell(&mut status.conditions, "Ready", false, "Not ready");
    status
}

fn content(
    snapshot: &VirtualMachineSnapshot,
    machine: &DynamicObject,
    volumes: Vec<KeptVolume>,
) -> VirtualMachineSnapshotContent {
    let metadata = serde_json::to_value(&machine.metadata).unwrap_or_default();
    let is_kept = snapshot.spec.deletion_policy.as_deref() == Some("Retain");
    let owner = snapshot.controller_owner_ref(&()).filter(|_| !is_kept);
    VirtualMachineSnapshotContent {
        metadata: ObjectMeta {
            name: Some(content_name(snapshot)),
            namespace: snapshot.metadata.namespace.clone(),
            owner_references: owner.map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        spec: VirtualMachineSnapshotContentSpec {
            virtual_machine_snapshot_name: snapshot.metadata.name.clone(),
            source: KeptSource {
                virtual_machine: Some(Copied {
                    metadata: capture::metadata(&metadata),
                    spec: machine.data["spec"].clone(),
                }),
            },
            volume_backups: volumes,
        },
        status: None,
    }
}

fn meaning(indication: &str) -> SourceIndication {
    let message = match indication {
        "Online" => "Snapshot taken while the VM was running.",
        "GuestAgent" => "Guest agent was active and the file systems were quiesced.",
        "NoGuestAgent" => "Guest agent was not active: the snapshot is as after a power cut.",
        "QuiesceFailed" => "The file systems did not come to rest: the snapshot is as after a power cut.",
        _ => "The VM was paused.",
    };
    SourceIndication { indication: indication.to_owned(), message: message.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_has_so_much_time() {
        let begun = Timestamp::from_second(1_000_000).unwrap();
        let mut snapshot = VirtualMachineSnapshot::default();
        snapshot.metadata.creation_timestamp = Some(Time(begun));
        let after = |seconds| begun + SignedDuration::from_secs(seconds);
        assert!(!is_late(&snapshot, after(299)) && is_late(&snapshot, after(301)));
        snapshot.spec.failure_deadline = Some("1m0s".to_owned());
        assert!(is_late(&snapshot, after(61)));
        snapshot.spec.failure_deadline = Some("0s".to_owned());
        assert!(!is_late(&snapshot, after(99_999)));
        let failed = late(VirtualMachineSnapshotStatus::default());
        assert_eq!(failed.phase.as_deref(), Some(FAILED));
        assert_eq!(failed.conditions.len(), 3);
    }
}
