//! When a machine runs: what its run strategy asks for next.

use croft_api::kubevirt::{
    VirtualMachine, VirtualMachineInstance, VirtualMachineStateChangeRequest, phase, run_strategy,
};
use jiff::Timestamp;

use super::view::{is_being_deleted, is_final, phase_of, status_of, uid};

pub(crate) const START: &str = "Start";
pub(crate) const STOP: &str = "Stop";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RunStrategy {
    Always,
    Halted,
    Manual,
    RerunOnFailure,
    Once,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum StrategyError {
    #[error("running and runStrategy are mutually exclusive")]
    Both,
    #[error("run strategy WaitAsReceiver is not supported: instances cannot be received from other clusters")]
    Receiver,
    #[error("unknown runstrategy: {0}")]
    Unknown(String),
}

impl RunStrategy {
    /// `running` is the older way to say Always or Halted.
    pub(crate) fn of(machine: &VirtualMachine) -> Result<Self, StrategyError> {
        let spec = &machine.spec;
        match (spec.running, spec.run_strategy.as_deref().filter(|text| !text.is_empty())) {
            (Some(_), Some(_)) => Err(StrategyError::Both),
            (Some(false), None) | (None, None | Some(run_strategy::HALTED)) => Ok(Self::Halted),
            (Some(true), None) | (None, Some(run_strategy::ALWAYS)) => Ok(Self::Always),
            (None, Some(run_strategy::MANUAL)) => Ok(Self::Manual),
            (None, Some(run_strategy::RERUN_ON_FAILURE)) => Ok(Self::RerunOnFailure),
            (None, Some(run_strategy::ONCE)) => Ok(Self::Once),
            (None, Some(run_strategy::WAIT_AS_RECEIVER)) => Err(StrategyError::Receiver),
            (None, Some(other)) => Err(StrategyError::Unknown(other.to_owned())),
        }
    }

    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Always => run_strategy::ALWAYS,
            Self::Halted => run_strategy::HALTED,
            Self::Manual => run_strategy::MANUAL,
            Self::RerunOnFailure => run_strategy::RERUN_ON_FAILURE,
            Self::Once => run_strategy::ONCE,
        }
    }

    /// A guest that could not even start is started again, after a while.
    pub(crate) fn retries_starts(self) -> bool {
        matches!(self, Self::Always | Self::RerunOnFailure | Self::Once)
    }
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Leave,
    Start,
    /// `and_start` leaves a request to start the next one, as nothing else would.
    Stop {
        and_start: bool,
    },
    /// Start, but not before this time.
    WaitUntil(Timestamp),
    /// A start was asked for: from now on the machine is to run.
    SwitchOn,
}

/// What the strategy asks for, given the instance that there is.
pub(crate) fn next_step(
    strategy: RunStrategy,
    machine: &VirtualMachine,
    instance: Option<&VirtualMachineInstance>,
    now: Timestamp,
) -> Step {
    let stop = Step::Stop { and_start: false };
    let Some(instance) = instance else { return without_instance(strategy, machine, now) };
    if is_being_deleted(&instance.metadata) {
        return Step::Leave;
    }
    let is_asked_to_stop = has_stop_request(machine, instance);
    match strategy {
        RunStrategy::Halted => stop,
        RunStrategy::Manual if is_asked_to_stop => stop,
        RunStrategy::RerunOnFailure if phase_of(instance) == phase::FAILED && !is_asked_to_stop => {
            Step::Stop { and_start: !has_start_request(machine) }
        }
        RunStrategy::Always | RunStrategy::RerunOnFailure if is_asked_to_stop || is_final(instance) => stop,
        _ => Step::Leave,
    }
}

fn without_instance(strategy: RunStrategy, machine: &VirtualMachine, now: Timestamp) -> Step {
    let retry = status_of(machine).start_failure.as_ref().and_then(|failure| failure.retry_after_timestamp.as_ref());
    let start = match retry {
        Some(time) if time.0 > now => Step::WaitUntil(time.0),
        _ => Step::Start,
    };
    match strategy {
        RunStrategy::Always => start,
        RunStrategy::RerunOnFailure if is_rerun_due(machine) => start,
        RunStrategy::Once => Step::Start,
        RunStrategy::Manual if has_start_request(machine) => Step::Start,
        RunStrategy::Halted if has_start_request(machine) => Step::SwitchOn,
        _ => Step::Leave,
    }
}

/// With no instance, one is due if it was asked for, or if the machine has not run with this strategy yet.
fn is_rerun_due(machine: &VirtualMachine) -> bool {
    let last = status_of(machine).run_strategy.as_deref();
    has_start_request(machine) || last != Some(run_strategy::RERUN_ON_FAILURE)
}

/// Whether the machine is on its way to run, or runs.
pub(crate) fn is_set_to_start(
    strategy: RunStrategy,
    machine: &VirtualMachine,
    instance: Option<&VirtualMachineInstance>,
) -> bool {
    match (strategy, instance) {
        (RunStrategy::Always, _) | (RunStrategy::Once, None) => true,
        (RunStrategy::Halted, _) | (RunStrategy::Once, Some(_)) => false,
        (RunStrategy::Manual, Some(instance)) => !has_stop_request(machine, instance),
        (RunStrategy::Manual, None) => has_start_request(machine),
        (RunStrategy::RerunOnFailure, Some(instance)) => phase_of(instance) != phase::SUCCEEDED,
        (RunStrategy::RerunOnFailure, None) => is_rerun_due(machine),
    }
}

/// Only the first request counts; the others wait for it.
fn first_request(machine: &VirtualMachine) -> Option<&VirtualMachineStateChangeRequest> {
    status_of(machine).state_change_requests.first()
}

pub(crate) fn has_start_request(machine: &VirtualMachine) -> bool {
    first_request(machine).is_some_and(|request| request.action == START)
}

fn has_stop_request(machine: &VirtualMachine, instance: &VirtualMachineInstance) -> bool {
    let uid = uid(&instance.metadata);
    first_request(machine).is_some_and(|request| request.action == STOP && request.uid.as_deref() == Some(uid))
}

/// Whether the first request has been fulfilled, or can never be.
pub(crate) fn is_first_request_done(
    requests: &[VirtualMachineStateChangeRequest],
    instance: Option<&VirtualMachineInstance>,
) -> bool {
    let Some(request) = requests.first() else { return false };
    match (request.action.as_str(), instance) {
        (STOP, Some(instance)) => request.uid.as_deref() != Some(uid(&instance.metadata)),
        (START, Some(instance)) => !is_being_deleted(&instance.metadata) && !is_final(instance),
        (START, None) => false,
        // There is nothing left to stop, or nobody knows what it asks for.
        _ => true,
    }
}

#[cfg(test)]
mod tests;
