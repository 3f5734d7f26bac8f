//! The status of a machine, worked out anew from everything that is known.

use croft_api::kubevirt::{
    ANNOTATION_MACHINE_GENERATION, VirtualMachine, VirtualMachineInstance, VirtualMachineInstanceSpec,
    VirtualMachineStateChangeRequest, VirtualMachineStatus, Volume, VolumeSnapshotStatus, condition,
};
use jiff::Timestamp;

use super::conditions::{self, Failure, Restart};
use super::printable::Facts;
use super::run_strategy::{RunStrategy, START, is_first_request_done};
use super::view::{annotation, has_condition, status_of};
use super::{back_off, live_update, memory_dump};
use crate::claims::Disks;

/// Everything that the status depends on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known<'a> {
    pub(super) machine: &'a VirtualMachine,
    /// Nothing if it cannot be understood.
    pub(super) strategy: Option<RunStrategy>,
    pub(super) instance: Option<&'a VirtualMachineInstance>,
    pub(super) disks: &'a Disks,
    pub(super) is_start_expected: bool,
    pub(super) is_stop_expected: bool,
    /// The instance failed and is stopped: the next one is to be started.
    pub(super) wants_start: bool,
    pub(super) failure: Option<&'a Failure>,
    pub(super) restart: &'a Restart,
    pub(super) now: Timestamp,
    pub(super) random: u64,
}

pub(super) fn next(known: Known<'_>) -> VirtualMachineStatus {
    let Known { machine, instance, .. } = known;
    let mut status = status_of(machine).clone();
    status.created = instance.is_some().then_some(true);
    status.ready = instance.is_some_and(|one| has_condition(one, condition::READY, "True")).then_some(true);
    generations(&mut status, machine, instance);
    // From the first instance on, so that one can tell whether the machine ever ran with this strategy.
    if let Some(strategy) = known.strategy.filter(|_| status.run_strategy.is_some() || instance.is_some()) {
        status.run_strategy = Some(strategy.text().to_owned());
    }
    requests(&mut status, known);
    if let Some(request) = status.memory_dump_request.take() {
        status.memory_dump_request = memory_dump::next(&request, &machine.spec.template.spec, instance);
    }
    if let Some(strategy) = known.strategy {
        let before = status.start_failure.take();
        status.start_failure = back_off::next(before.as_ref(), strategy, instance, known.now, known.random);
    }
    conditions::update(&mut status.conditions, instance, known.failure, known.restart, known.now);
    status.volume_snapshot_statuses = snapshot_statuses(&machine.spec.template.spec);
    let facts = Facts {
        machine,
        status: &status,
        strategy: known.strategy,
        instance,
        disks: known.disks,
        is_start_expected: known.is_start_expected,
        is_stop_expected: known.is_stop_expected,
    };
    let word = facts.word();
    status.printable_status = Some(word.to_owned());
    status
}

/// What the guest runs with, and what it should run with.
fn generations(status: &mut VirtualMachineStatus, machine: &VirtualMachine, instance: Option<&VirtualMachineInstance>) {
    let Some(instance) = instance else { return };
    let observed = annotation(&instance.metadata, ANNOTATION_MACHINE_GENERATION).and_then(|text| text.parse().ok());
    if let Some(observed) = observed {
        status.observed_generation = Some(observed);
        status.desired_generation = machine.metadata.generation;
    }
}

/// Takes out what is done.
fn requests(status: &mut VirtualMachineStatus, known: Known<'_>) {
    let template = &known.machine.spec.template.spec;
    status.volume_requests.retain(|request| !live_update::is_fulfilled(request, template));
    if is_first_request_done(&status.state_change_requests, known.instance) {
        status.state_change_requests.remove(0);
    }
    if known.wants_start {
        let request = VirtualMachineStateChangeRequest { action: START.to_owned(), ..Default::default() };
        status.state_change_requests.push(request);
    }
}

/// Whether each volume could be part of a snapshot: those on claims of the machine's own are.
fn snapshot_statuses(template: &VirtualMachineInstanceSpec) -> Vec<VolumeSnapshotStatus> {
    let status = |volume: &Volume| {
        let name = &volume.name;
        let enabled = volume.persistent_volume_claim.is_some() || volume.data_volume.is_some();
        let reason = (!enabled).then(|| format!("Snapshot is not supported for this volumeSource type [{name}]"));
        VolumeSnapshotStatus { name: name.clone(), enabled, reason }
    };
    template.volumes.iter().map(status).collect()
}

#[cfg(test)]
#[expect(clippy::needless_pass_by_value, reason = "tables read better without references")]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn machine(strategy: &str, status: Value) -> VirtualMachine {
        let template = json!({"spec": {"domain": {"devices": {}}, "volumes": [
            {"name": "root", "persistentVolumeClaim": {"claimName": "c"}},
            {"name": "seed", "cloudInitNoCloud": {}},
        ]}});
        let spec = json!({"runStrategy": strategy, "template": template});
        serde_json::from_value(json!({"metadata": {"name": "vm", "generation": 3}, "spec": spec, "status": status}))
            .unwrap()
    }

    fn instance(status: Value) -> VirtualMachineInstance {
        let metadata = json!({"uid": "u1", "annotations": {"kubevirt.io/vm-generation": "2"}});
        let object = json!({"metadata": metadata, "spec": {"domain": {"devices": {}}}, "status": status});
        serde_json::from_value(object).unwrap()
    }

    fn next_of(machine: &VirtualMachine, instance: Option<&VirtualMachineInstance>) -> VirtualMachineStatus {
        next(Known {
            machine,
            strategy: RunStrategy::of(machine).ok(),
            instance,
            disks: &Disks::default(),
            is_start_expected: false,
            is_stop_expected: false,
            wants_start: false,
            failure: None,
            restart: &Restart::Unknown,
            now: "2026-01-01T00:00:00Z".parse().unwrap(),
            random: 0,
        })
    }

    #[test]
    fn a_running_machine_tells_so_everywhere() {
        let requests = json!({"stateChangeRequests": [{"action": "Start"}]});
        let running = instance(json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}));
        let status = next_of(&machine("Always", requests), Some(&running));
        assert_eq!((status.created, status.ready), (Some(true), Some(true)));
        assert_eq!(status.printable_status.as_deref(), Some("Running"));
        assert_eq!(status.run_strategy.as_deref(), Some("Always"));
        assert_eq!((status.observed_generation, status.desired_generation), (Some(2), Some(3)));
        assert_eq!(status.state_change_requests, []);
        let told = &status.volume_snapshot_statuses;
        assert!(told[0].enabled && told[0].reason.is_none(), "{told:?}");
        let reason = "Snapshot is not supported for this volumeSource type [seed]";
        assert!(!told[1].enabled && told[1].reason.as_deref() == Some(reason), "{told:?}");
    }

    #[test]
    fn a_machine_that_never_ran_says_nothing_of_its_strategy() {
        let status = next_of(&machine("Halted", json!({})), None);
        assert_eq!((status.created, status.ready, status.run_strategy), (None, None, None));
        assert_eq!(status.printable_status.as_deref(), Some("Stopped"));
        let status = next_of(&machine("Halted", json!({"runStrategy": "Always"})), None);
        assert_eq!(status.run_strategy.as_deref(), Some("Halted"));
    }

    #[test]
    fn working_it_out_again_changes_nothing() {
        let failed = instance(json!({"phase": "Failed"}));
        let mut machine = machine("Always", json!({}));
        let first = next_of(&machine, Some(&failed));
        assert_eq!(first.printable_status.as_deref(), Some("CrashLoopBackOff"));
        machine.status = Some(first.clone());
        assert_eq!(next_of(&machine, Some(&failed)), first);
    }

    #[test]
    fn other_writers_fields_stay() {
        let status = next_of(&machine("Halted", json!({"snapshotInProgress": "s1"})), None);
        assert_eq!(status.snapshot_in_progress.as_deref(), Some("s1"));
    }
}
