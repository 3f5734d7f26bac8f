//! What becomes of a machine when its node goes into maintenance mode and comes out of it.

use croft_api::harvester::maintenance::{STOPPED_FOR, STRATEGY, strategy};
use croft_api::kubevirt::{VirtualMachine, run_strategy};

use crate::virtual_machine::view::annotation;

/// The strategy that a machine had before it was halted; Harvester starts it with that one.
const LAST_STRATEGY: &str = "harvesterhci.io/vmRunStrategy";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// Also for machines that would rather be moved: there is nothing that moves them.
    Stop,
    /// As soon as the node is empty, wherever there is room.
    RestartElsewhere,
    RestartHere,
}

pub(super) fn fate(machine: &VirtualMachine) -> Fate {
    let label = machine.metadata.labels.as_ref().and_then(|labels| labels.get(STRATEGY));
    match label.map(String::as_str) {
        Some(strategy::RESTART_AFTER_ENABLE) => Fate::RestartElsewhere,
        Some(strategy::RESTART_AFTER_DISABLE) => Fate::RestartHere,
        _ => Fate::Stop,
    }
}

/// The machine, halted as Harvester's `stop` does it. None if it is halted already.
pub(super) fn stopped(machine: &VirtualMachine, node: &str) -> Option<VirtualMachine> {
    let mut new = machine.clone();
    let annotations = new.metadata.annotations.get_or_insert_default();
    match (machine.spec.running, machine.spec.run_strategy.as_deref()) {
        (Some(false), _) | (None, None | Some(run_strategy::HALTED)) => return None,
        (Some(true), _) => {
            annotations.insert(LAST_STRATEGY.to_owned(), run_strategy::ALWAYS.to_owned());
            new.spec.running = Some(false);
        }
        (None, Some(strategy)) => {
            annotations.insert(LAST_STRATEGY.to_owned(), strategy.to_owned());
            new.spec.run_strategy = Some(run_strategy::HALTED.to_owned());
        }
    }
    if fate(machine) != Fate::Stop {
        annotations.insert(STOPPED_FOR.to_owned(), node.to_owned());
    }
    Some(new)
}

/// The machine as it ran before, unless somebody has started it meanwhile.
pub(super) fn started(machine: &VirtualMachine) -> VirtualMachine {
    let mut new = machine.clone();
    if let Some(annotations) = &mut new.metadata.annotations {
        annotations.remove(STOPPED_FOR);
    }
    let before = annotation(&machine.metadata, LAST_STRATEGY).filter(|before| *before != run_strategy::HALTED);
    match (machine.spec.running, machine.spec.run_strategy.as_deref()) {
        (Some(false), _) => new.spec.running = Some(true),
        (None, Some(run_strategy::HALTED)) => {
            new.spec.run_strategy = Some(before.unwrap_or(run_strategy::RERUN_ON_FAILURE).to_owned());
        }
        _ => {}
    }
    new
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn machine(label: &str, strategy: &str) -> VirtualMachine {
        let labels = if label.is_empty() { json!({}) } else { json!({STRATEGY: label}) };
        serde_json::from_value(json!({
            "metadata": {"name": "vm", "labels": labels},
            "spec": {"runStrategy": strategy, "template": {"spec": {"domain": {"devices": {}}}}},
        }))
        .unwrap()
    }

    #[test]
    fn machines_stop_and_come_back_as_they_ran() {
        for (label, comes_back) in [
            ("", false),
            ("Migrate", false),
            ("Shutdown", false),
            ("ShutdownAndRestartAfterEnable", true),
            ("ShutdownAndRestartAfterDisable", true),
        ] {
            for run in ["Always", "RerunOnFailure", "Manual", "Once"] {
                let before = machine(label, run);
                let halted = stopped(&before, "n1").unwrap();
                assert_eq!(halted.spec.run_strategy.as_deref(), Some("Halted"));
                assert_eq!(annotation(&halted.metadata, STOPPED_FOR), comes_back.then_some("n1"), "{label}");
                assert_eq!(stopped(&halted, "n1"), None);
                let after = started(&halted);
                assert_eq!(after.spec.run_strategy.as_deref(), Some(run));
                assert_eq!(annotation(&after.metadata, STOPPED_FOR), None);
            }
        }
    }

    #[test]
    fn whoever_was_started_by_hand_stays_as_it_is() {
        let mut running = stopped(&machine("ShutdownAndRestartAfterDisable", "Always"), "n1").unwrap();
        running.spec.run_strategy = Some("Once".to_owned());
        let after = started(&running);
        assert_eq!(after.spec.run_strategy.as_deref(), Some("Once"));
        assert_eq!(annotation(&after.metadata, STOPPED_FOR), None);
    }

    #[test]
    fn the_older_way_to_run_is_known() {
        let mut old = machine("ShutdownAndRestartAfterDisable", "");
        (old.spec.run_strategy, old.spec.running) = (None, Some(true));
        let halted = stopped(&old, "n1").unwrap();
        assert_eq!(halted.spec.running, Some(false));
        assert_eq!(started(&halted).spec.running, Some(true));
    }
}
