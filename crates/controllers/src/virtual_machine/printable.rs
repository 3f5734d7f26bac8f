//! The one word that tells how a machine is. Several could be true at once; the first one counts.

use croft_api::kubevirt::{VirtualMachine, VirtualMachineInstance, VirtualMachineStatus, condition, printable_status};

use super::run_strategy::{RunStrategy, is_set_to_start};
use super::view::{self, has_condition, is_being_deleted, is_final, is_migrating, is_running, is_starting};
use crate::claims::Disks;

/// Whether a word is true.
type Applies<'a> = fn(&Facts<'a>) -> bool;

#[derive(Clone, Copy, Debug)]
pub(super) struct Facts<'a> {
    pub(super) machine: &'a VirtualMachine,
    /// As it is about to be written.
    pub(super) status: &'a VirtualMachineStatus,
    pub(super) strategy: Option<RunStrategy>,
    pub(super) instance: Option<&'a VirtualMachineInstance>,
    pub(super) disks: &'a Disks,
    /// An instance was asked for, and has not been seen yet.
    pub(super) is_start_expected: bool,
    /// The instance was deleted, and that has not been seen yet.
    pub(super) is_stop_expected: bool,
}

impl Facts<'_> {
    pub(super) fn word(&self) -> &'static str {
        let words: [(&'static str, Applies<'_>); 15] = [
            (printable_status::TERMINATING, |facts| is_being_deleted(&facts.machine.metadata)),
            (printable_status::STOPPING, Self::is_stopping),
            (printable_status::MIGRATING, |facts| facts.instance.is_some_and(is_migrating)),
            (printable_status::PAUSED, |facts| facts.is_up() && facts.has(condition::PAUSED)),
            (printable_status::RUNNING, Self::is_up),
            (printable_status::PVC_NOT_FOUND, |facts| facts.is_unsynchronized("FailedPvcNotFound")),
            (printable_status::DATA_VOLUME_ERROR, |facts| facts.disks.failed.is_some()),
            (printable_status::UNSCHEDULABLE, Self::is_unschedulable),
            (printable_status::PROVISIONING, |facts| facts.disks.is_filling),
            (printable_status::WAITING_FOR_VOLUME_BINDING, Self::waits_for_binding),
            (printable_status::ERR_IMAGE_PULL, |facts| facts.is_unsynchronized("ErrImagePull")),
            (printable_status::IMAGE_PULL_BACK_OFF, |facts| facts.is_unsynchronized("ImagePullBackOff")),
            (printable_status::STARTING, Self::is_coming),
            (printable_status::CRASH_LOOP_BACK_OFF, Self::is_backing_off),
            (printable_status::STOPPED, Self::is_stopped),
        ];
        words.iter().find(|(_, applies)| applies(self)).map_or(printable_status::UNKNOWN, |(word, _)| *word)
    }

    fn is_up(&self) -> bool {
        self.instance.is_some_and(is_running)
    }

    fn has(&self, kind: &str) -> bool {
        self.instance.is_some_and(|instance| has_condition(instance, kind, "True"))
    }

    fn is_stopping(&self) -> bool {
        let is_going = |instance: &VirtualMachineInstance| {
            !is_final(instance) && (is_being_deleted(&instance.metadata) || self.is_stop_expected)
        };
        self.instance.is_some_and(is_going)
    }

    fn is_unsynchronized(&self, reason: &str) -> bool {
        let found = self.instance.and_then(|instance| view::condition(instance, condition::SYNCHRONIZED));
        found.is_some_and(|found| found.status == "False" && found.reason.as_deref() == Some(reason))
    }

    fn is_unschedulable(&self) -> bool {
        let found = self.instance.and_then(|instance| view::condition(instance, condition::POD_SCHEDULED));
        found.is_some_and(|found| found.status == "False" && found.reason.as_deref() == Some("Unschedulable"))
    }

    fn waits_for_binding(&self) -> bool {
        let starts = |strategy| is_set_to_start(strategy, self.machine, self.instance);
        self.disks.is_unbound && self.strategy.is_some_and(starts)
    }

    fn is_coming(&self) -> bool {
        self.instance.map_or(self.is_start_expected, is_starting)
    }

    fn is_backing_off(&self) -> bool {
        let failures = self.status.start_failure.as_ref().and_then(|failure| failure.consecutive_fail_count);
        self.instance.is_none_or(is_final)
            && failures.unwrap_or_default() > 0
            && self.strategy.is_some_and(RunStrategy::retries_starts)
    }

    fn is_stopped(&self) -> bool {
        self.instance.is_none_or(is_final)
    }
}

#[cfg(test)]
#[expect(clippy::needless_pass_by_value, reason = "tables read better without references")]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn word(machine: Value, instance: Option<Value>, disks: Disks, is_start_expected: bool) -> &'static str {
        let mut whole = json!({"metadata": {"name": "vm"}, "spec": {"runStrategy": "Always"}, "status": {}});
        whole.as_object_mut().unwrap().extend(machine.as_object().unwrap().clone());
        whole["spec"]["template"] = json!({});
        let machine: VirtualMachine = serde_json::from_value(whole).unwrap();
        let instance = instance.map(|status| {
            let metadata = status.get("metadata").cloned().unwrap_or(json!({}));
            let object = json!({"metadata": metadata, "spec": {"domain": {"devices": {}}}, "status": status});
            serde_json::from_value::<VirtualMachineInstance>(object).unwrap()
        });
        let facts = Facts {
            machine: &machine,
            status: view::status_of(&machine),
            strategy: RunStrategy::of(&machine).ok(),
            instance: instance.as_ref(),
            disks: &disks,
            is_start_expected,
            is_stop_expected: false,
        };
        facts.word()
    }

    #[test]
    fn every_word_has_its_case() {
        let failing = || json!({"status": {"startFailure": {"consecutiveFailCount": 2}}});
        let condition = |kind: &str, status: &str, reason: &str| json!({"phase": "Scheduling", "conditions": [{"type": kind, "status": status, "reason": reason}]});
        let paused = json!({"phase": "Running", "conditions": [{"type": "Paused", "status": "True"}]});
        let going = json!({"phase": "Running", "metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
        let moving = json!({"phase": "Running", "migrationState": {"startTimestamp": "2026-01-01T00:00:00Z"}});
        let deleted = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
        let halted = || json!({"spec": {"runStrategy": "Halted"}});
        let broken = Disks { failed: Some("x".to_owned()), ..Disks::default() };
        let filling = Disks { is_filling: true, ..Disks::default() };
        let unbound = Disks { is_unbound: true, ..Disks::default() };
        let fine = Disks::default;
        let cases = [
            (deleted, Some(json!({"phase": "Running"})), fine(), false, "Terminating"),
            (json!({}), Some(going), fine(), false, "Stopping"),
            (json!({}), Some(moving), fine(), false, "Migrating"),
            (json!({}), Some(paused), fine(), false, "Paused"),
            (json!({}), Some(json!({"phase": "Running"})), filling.clone(), false, "Running"),
            (
                json!({}),
                Some(condition("Synchronized", "False", "FailedPvcNotFound")),
                fine(),
                false,
                "ErrorPvcNotFound",
            ),
            (json!({}), None, broken, false, "DataVolumeError"),
            (json!({}), Some(condition("PodScheduled", "False", "Unschedulable")), fine(), false, "ErrorUnschedulable"),
            (json!({}), None, filling.clone(), false, "Provisioning"),
            (halted(), None, filling, false, "Provisioning"),
            (json!({}), None, unbound.clone(), false, "WaitingForVolumeBinding"),
            (halted(), None, unbound, false, "Stopped"),
            (json!({}), Some(condition("Synchronized", "False", "ErrImagePull")), fine(), false, "ErrImagePull"),
            (
                json!({}),
                Some(condition("Synchronized", "False", "ImagePullBackOff")),
                fine(),
                false,
                "ImagePullBackOff",
            ),
            (json!({}), Some(json!({"phase": "Scheduled"})), fine(), false, "Starting"),
            (json!({}), Some(json!({})), fine(), false, "Starting"),
            (json!({}), None, fine(), true, "Starting"),
            (failing(), None, fine(), false, "CrashLoopBackOff"),
            (failing(), Some(json!({"phase": "Failed"})), fine(), false, "CrashLoopBackOff"),
            (failing(), None, fine(), true, "Starting"),
            (json!({}), Some(json!({"phase": "Succeeded"})), fine(), false, "Stopped"),
            (halted(), None, fine(), false, "Stopped"),
            (json!({}), Some(json!({"phase": "Unknown"})), fine(), false, "Unknown"),
        ];
        for (index, (machine, instance, disks, is_expected, expected)) in cases.into_iter().enumerate() {
            assert_eq!(word(machine, instance, disks, is_expected), expected, "case {index}");
        }
    }
}
