//! What is written on an instance when it gets a node, and when it cannot have one. Pure.

use croft_api::kubevirt::{
    INSTANCE_FINALIZER, LABEL_NODE_NAME, MACHINE_FINALIZER, VirtualMachineInstance, VirtualMachineInstanceCondition,
    VirtualMachineInstancePhaseTransitionTimestamp, condition, phase,
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::selectors::Labels;
use crate::virtual_machine::view::{phase_of, status_mut, uid};

/// Where the guest is, for cloud providers inside it.
const TOPOLOGY: [&str; 3] = ["topology.kubernetes.io/zone", "topology.kubernetes.io/region", "kubernetes.io/hostname"];

/// The instance on its node.
pub(super) fn bound(
    instance: &VirtualMachineInstance,
    node: &str,
    node_labels: &Labels,
    vsock_cid: Option<u32>,
    now: Timestamp,
) -> VirtualMachineInstance {
    let mut bound = instance.clone();
    bound.metadata.labels.get_or_insert_default().insert(LABEL_NODE_NAME.to_owned(), node.to_owned());
    let topology = TOPOLOGY.iter().filter_map(|key| Some(((*key).to_owned(), node_labels.get(*key)?.clone())));
    let topology: Vec<(String, String)> = topology.collect();
    if !topology.is_empty() {
        bound.metadata.annotations.get_or_insert_default().extend(topology);
    }
    enter(&mut bound, phase::SCHEDULED, now);
    let uid = uid(&instance.metadata).to_owned();
    let status = status_mut(&mut bound);
    status.node_name = Some(node.to_owned());
    status.active_pods = [(uid, node.to_owned())].into();
    status.vsock_cid = vsock_cid.or(status.vsock_cid);
    let obsolete = [condition::POD_SCHEDULED, condition::SYNCHRONIZED, condition::PROVISIONING];
    status.conditions.retain(|condition| !obsolete.contains(&condition.type_.as_str()));
    if status.conditions.iter().any(|condition| condition.type_ == condition::DATA_VOLUMES_READY) {
        let mut ready = of(condition::DATA_VOLUMES_READY, "AllDVsReady", "All of the VMI's DVs are bound and ready");
        "True".clone_into(&mut ready.status);
        set(&mut bound, ready, now);
    }
    set(&mut bound, of(condition::READY, "GuestNotRunning", "Guest VM is not reported as running"), now);
    bound
}

/// The instance that no node takes.
pub(super) fn unschedulable(
    instance: &VirtualMachineInstance,
    message: &str,
    now: Timestamp,
) -> VirtualMachineInstance {
    let mut waiting = instance.clone();
    enter(&mut waiting, phase::SCHEDULING, now);
    status_mut(&mut waiting).conditions.retain(|condition| condition.type_ != condition::SYNCHRONIZED);
    set(&mut waiting, of(condition::POD_SCHEDULED, "Unschedulable", message), now);
    waiting
}

/// The instance whose disks are on their way.
pub(super) fn waiting(instance: &VirtualMachineInstance, message: &str, now: Timestamp) -> VirtualMachineInstance {
    let mut waiting = instance.clone();
    set(&mut waiting, of(condition::DATA_VOLUMES_READY, "NotAllDVsReady", message), now);
    waiting
}

/// The instance that misses something which nobody may be about to bring.
pub(super) fn missing(
    instance: &VirtualMachineInstance,
    reason: &str,
    message: &str,
    now: Timestamp,
) -> VirtualMachineInstance {
    let mut waiting = instance.clone();
    if phase_of(&waiting).is_empty() {
        enter(&mut waiting, phase::PENDING, now);
    }
    set(&mut waiting, of(condition::SYNCHRONIZED, reason, message), now);
    set(&mut waiting, of(condition::POD_SCHEDULED, "Unschedulable", message), now);
    waiting
}

/// The instance that can never run any more.
pub(super) fn failed(
    instance: &VirtualMachineInstance,
    reason: &str,
    message: &str,
    now: Timestamp,
) -> VirtualMachineInstance {
    let mut failed = instance.clone();
    enter(&mut failed, phase::FAILED, now);
    status_mut(&mut failed).reason = Some(reason.to_owned());
    set(&mut failed, of(condition::READY, reason, message), now);
    failed
}

/// Without the finalizers of those who will never come to remove them.
pub(super) fn released(instance: &VirtualMachineInstance, has_node: bool, has_machine: bool) -> VirtualMachineInstance {
    let mut released = instance.clone();
    if let Some(finalizers) = &mut released.metadata.finalizers {
        finalizers.retain(|one| (has_node || one != INSTANCE_FINALIZER) && (has_machine || one != MACHINE_FINALIZER));
    }
    released
}

fn enter(instance: &mut VirtualMachineInstance, phase: &str, now: Timestamp) {
    let status = status_mut(instance);
    if status.phase.as_deref() == Some(phase) {
        return;
    }
    status.phase = Some(phase.to_owned());
    status.phase_transition_timestamps.retain(|one| one.phase.as_deref() != Some(phase));
    status.phase_transition_timestamps.push(VirtualMachineInstancePhaseTransitionTimestamp {
        phase: Some(phase.to_owned()),
        phase_transition_timestamp: Some(Time(now)),
    });
}

/// Only what is wrong is said here.
fn of(kind: &str, reason: &str, message: &str) -> VirtualMachineInstanceCondition {
    VirtualMachineInstanceCondition {
        type_: kind.to_owned(),
        status: "False".to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        ..VirtualMachineInstanceCondition::default()
    }
}

fn set(instance: &mut VirtualMachineInstance, mut new: VirtualMachineInstanceCondition, now: Timestamp) {
    let conditions = &mut status_mut(instance).conditions;
    let Some(there) = conditions.iter_mut().find(|there| there.type_ == new.type_) else {
        new.last_transition_time = Some(Time(now));
        conditions.push(new);
        return;
    };
    let since = there.last_transition_time.clone().filter(|_| there.status == new.status);
    new.last_transition_time = since.or(Some(Time(now)));
    *there = new;
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn now() -> Timestamp {
        "2026-01-01T00:00:00Z".parse().unwrap()
    }

    fn instance() -> VirtualMachineInstance {
        let finalizers = [INSTANCE_FINALIZER, MACHINE_FINALIZER];
        let conditions = json!([{"type": "Ready", "status": "False", "reason": "PodNotExists"}]);
        serde_json::from_value(json!({
            "metadata": {"name": "vm", "uid": "u", "finalizers": finalizers},
            "spec": {"domain": {"devices": {}}},
            "status": {"phase": "Pending", "conditions": conditions},
        }))
        .unwrap()
    }

    fn conditions(instance: &VirtualMachineInstance) -> Vec<String> {
        let conditions = &instance.status.as_ref().unwrap().conditions;
        conditions.iter().map(|one| format!("{} {}", one.type_, one.reason.as_deref().unwrap_or_default())).collect()
    }

    #[test]
    fn an_instance_waits_and_then_gets_its_node() {
        let waiting = unschedulable(&instance(), "0/1 nodes are available", now());
        assert_eq!(phase_of(&waiting), "Scheduling");
        assert_eq!(conditions(&waiting), ["Ready PodNotExists", "PodScheduled Unschedulable"]);
        assert_eq!(unschedulable(&waiting, "0/1 nodes are available", now()), waiting, "told once");
        let labels = Labels::from([("topology.kubernetes.io/zone".to_owned(), "z".to_owned())]);
        let bound = bound(&waiting, "n1", &labels, Some(3), now());
        assert_eq!(phase_of(&bound), "Scheduled");
        assert_eq!(conditions(&bound), ["Ready GuestNotRunning"]);
        let status = bound.status.as_ref().unwrap();
        assert_eq!((status.node_name.as_deref(), status.vsock_cid), (Some("n1"), Some(3)));
        assert_eq!(bound.metadata.labels.as_ref().unwrap()[LABEL_NODE_NAME], "n1");
        assert_eq!(bound.metadata.annotations.as_ref().unwrap()["topology.kubernetes.io/zone"], "z");
        let phases: Vec<&str> =
            status.phase_transition_timestamps.iter().filter_map(|one| one.phase.as_deref()).collect();
        assert_eq!(phases, ["Scheduling", "Scheduled"]);
    }

    #[test]
    fn a_claim_that_is_not_there_is_told_until_it_is() {
        let waiting = missing(&instance(), "FailedPvcNotFound", "PVC ns/c not found", now());
        let expected = ["Ready PodNotExists", "Synchronized FailedPvcNotFound", "PodScheduled Unschedulable"];
        assert_eq!(conditions(&waiting), expected);
        assert_eq!(conditions(&bound(&waiting, "n", &Labels::new(), None, now())), ["Ready GuestNotRunning"]);
    }

    #[test]
    fn finalizers_go_when_nobody_else_will_remove_them() {
        let left = |has_node, has_machine| released(&instance(), has_node, has_machine).metadata.finalizers.unwrap();
        assert_eq!(left(true, true), [INSTANCE_FINALIZER, MACHINE_FINALIZER]);
        assert_eq!(left(false, true), [MACHINE_FINALIZER]);
        assert_eq!(left(true, false), [INSTANCE_FINALIZER]);
        assert_eq!(left(false, false), [] as [&str; 0]);
    }
}
