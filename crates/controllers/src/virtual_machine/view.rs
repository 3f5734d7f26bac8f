//! Short answers to questions that are asked of machines and instances everywhere.

use std::sync::LazyLock;

use croft_api::kubevirt::{
    VirtualMachine, VirtualMachineInstance, VirtualMachineInstanceCondition, VirtualMachineInstanceStatus,
    VirtualMachineStatus, Volume, phase,
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

static NO_STATUS: LazyLock<VirtualMachineStatus> = LazyLock::new(VirtualMachineStatus::default);

pub(crate) fn status_of(machine: &VirtualMachine) -> &VirtualMachineStatus {
    machine.status.as_ref().unwrap_or(&NO_STATUS)
}

pub(crate) fn uid(meta: &ObjectMeta) -> &str {
    meta.uid.as_deref().unwrap_or_default()
}

pub(crate) fn name(meta: &ObjectMeta) -> &str {
    meta.name.as_deref().unwrap_or_default()
}

pub(crate) fn namespace(meta: &ObjectMeta) -> &str {
    meta.namespace.as_deref().unwrap_or_default()
}

pub(crate) fn is_being_deleted(meta: &ObjectMeta) -> bool {
    meta.deletion_timestamp.is_some()
}

pub(crate) fn has_finalizer(meta: &ObjectMeta, name: &str) -> bool {
    meta.finalizers.iter().flatten().any(|finalizer| finalizer == name)
}

pub(crate) fn annotation<'a>(meta: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    meta.annotations.as_ref()?.get(key).map(String::as_str)
}

pub(crate) fn controller(meta: &ObjectMeta) -> Option<&OwnerReference> {
    meta.owner_references.iter().flatten().find(|owner| owner.controller == Some(true))
}

pub(crate) fn phase_of(instance: &VirtualMachineInstance) -> &str {
    instance.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

pub(crate) fn node_of(instance: &VirtualMachineInstance) -> Option<&str> {
    let node = instance.status.as_ref().and_then(|status| status.node_name.as_deref());
    node.filter(|node| !node.is_empty())
}

/// It ended, well or badly.
pub(crate) fn is_final(instance: &VirtualMachineInstance) -> bool {
    matches!(phase_of(instance), phase::SUCCEEDED | phase::FAILED)
}

pub(crate) fn is_running(instance: &VirtualMachineInstance) -> bool {
    phase_of(instance) == phase::RUNNING
}

/// It waits for a node, or for the node to start it.
pub(crate) fn is_starting(instance: &VirtualMachineInstance) -> bool {
    matches!(phase_of(instance), "" | phase::PENDING | phase::SCHEDULING | phase::SCHEDULED)
}

/// Nobody has given it a node yet.
pub(crate) fn is_unscheduled(instance: &VirtualMachineInstance) -> bool {
    matches!(phase_of(instance), "" | phase::PENDING | phase::SCHEDULING) && node_of(instance).is_none()
}

pub(crate) fn was_running(instance: &VirtualMachineInstance) -> bool {
    let transitions = instance.status.iter().flat_map(|status| &status.phase_transition_timestamps);
    is_running(instance) || transitions.into_iter().any(|one| one.phase.as_deref() == Some(phase::RUNNING))
}

pub(crate) fn is_migrating(instance: &VirtualMachineInstance) -> bool {
    let state = instance.status.as_ref().and_then(|status| status.migration_state.as_ref());
    state.is_some_and(|state| state.start_timestamp.is_some() && state.end_timestamp.is_none())
}

pub(crate) fn condition<'a>(
    instance: &'a VirtualMachineInstance,
    kind: &str,
) -> Option<&'a VirtualMachineInstanceCondition> {
    instance.status.as_ref()?.conditions.iter().find(|condition| condition.type_ == kind)
}

pub(crate) fn has_condition(instance: &VirtualMachineInstance, kind: &str, status: &str) -> bool {
    condition(instance, kind).is_some_and(|condition| condition.status == status)
}

/// The claim behind a volume.
pub(crate) fn claim_name(volume: &Volume) -> Option<&str> {
    let claim = volume.persistent_volume_claim.as_ref().map(|source| source.claim_name.as_str());
    let data_volume = volume.data_volume.as_ref().map(|source| source.name.as_str());
    let dump = volume.memory_dump.as_ref().map(|source| source.claim_name.as_str());
    let ephemeral = volume.ephemeral.as_ref().and_then(|source| source.persistent_volume_claim.as_ref());
    claim.or(data_volume).or(dump).or(ephemeral.map(|source| source.claim_name.as_str()))
}

/// It may come and go while the guest runs.
pub(crate) fn is_hotpluggable(volume: &Volume) -> bool {
    let claim = volume.persistent_volume_claim.as_ref().and_then(|source| source.hotpluggable);
    let data_volume = volume.data_volume.as_ref().and_then(|source| source.hotpluggable);
    claim.or(data_volume).unwrap_or_default() || volume.memory_dump.is_some()
}

/// The status of an instance, to be written to.
pub(crate) fn status_mut(instance: &mut VirtualMachineInstance) -> &mut VirtualMachineInstanceStatus {
    instance.status.get_or_insert_default()
}

/// Now, as precisely as times are stored.
pub(crate) fn this_second() -> Timestamp {
    Timestamp::from_second(Timestamp::now().as_second()).unwrap_or_default()
}
