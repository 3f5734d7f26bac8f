//! The conditions of a machine: its own, and those of its instance.

use croft_api::kubevirt::{
    VirtualMachineCondition, VirtualMachineInstance, VirtualMachineInstanceCondition, condition,
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::view;

/// Why a machine could not be brought to where it should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(crate) struct Failure {
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self { reason, message: message.into() }
    }
}

/// Whether the running guest differs from what the machine asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Restart {
    /// Nothing new is known.
    #[default]
    Unknown,
    NotRequired,
    Required(String),
}

/// These are the machine's own: an instance's condition of the same name is not copied.
const OWN: [&str; 3] = [condition::READY, condition::FAILURE, condition::RESTART_REQUIRED];

pub(super) fn update(
    conditions: &mut Vec<VirtualMachineCondition>,
    instance: Option<&VirtualMachineInstance>,
    failure: Option<&Failure>,
    restart: &Restart,
    now: Timestamp,
) {
    set(conditions, ready(instance), now);
    match failure {
        Some(failure) => set(conditions, of(condition::FAILURE, "True", failure.reason, &failure.message), now),
        None => remove(conditions, condition::FAILURE),
    }
    match restart {
        Restart::Required(message) => {
            set(conditions, of(condition::RESTART_REQUIRED, "True", "RestartRequired", message), now);
        }
        Restart::NotRequired => remove(conditions, condition::RESTART_REQUIRED),
        Restart::Unknown => {}
    }
    let Some(instance) = instance else {
        // What is left tells of a guest that is gone.
        conditions.retain(|condition| OWN.contains(&condition.type_.as_str()));
        return;
    };
    let theirs = instance.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let is_there = |kind: &str| theirs.iter().any(|condition| condition.type_ == kind);
    conditions.retain(|condition| OWN.contains(&condition.type_.as_str()) || is_there(&condition.type_));
    for theirs in theirs.iter().filter(|condition| !OWN.contains(&condition.type_.as_str())) {
        mirror(conditions, theirs);
    }
}

fn of(kind: &str, status: &str, reason: &str, message: &str) -> VirtualMachineCondition {
    VirtualMachineCondition {
        type_: kind.to_owned(),
        status: status.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        ..VirtualMachineCondition::default()
    }
}

fn ready(instance: Option<&VirtualMachineInstance>) -> VirtualMachineCondition {
    let Some(instance) = instance else {
        return of(condition::READY, "False", "VMINotExists", "VMI does not exist");
    };
    match view::condition(instance, condition::READY) {
        Some(theirs) => copied(theirs),
        None => of(condition::READY, "False", "VMIConditionMissing", "VMI is missing the Ready condition"),
    }
}

fn copied(theirs: &VirtualMachineInstanceCondition) -> VirtualMachineCondition {
    VirtualMachineCondition {
        type_: theirs.type_.clone(),
        status: theirs.status.clone(),
        last_probe_time: theirs.last_probe_time.clone(),
        last_transition_time: theirs.last_transition_time.clone(),
        reason: theirs.reason.clone(),
        message: theirs.message.clone(),
    }
}

fn mirror(conditions: &mut Vec<VirtualMachineCondition>, theirs: &VirtualMachineInstanceCondition) {
    let copy = copied(theirs);
    match conditions.iter_mut().find(|condition| condition.type_ == copy.type_) {
        Some(there) => *there = copy,
        None => conditions.push(copy),
    }
}

/// Times change only when something else does, else every look would be a write.
fn set(conditions: &mut Vec<VirtualMachineCondition>, mut new: VirtualMachineCondition, now: Timestamp) {
    let there = conditions.iter_mut().find(|condition| condition.type_ == new.type_);
    let is_same = there
        .as_ref()
        .is_some_and(|there| there.status == new.status && there.reason == new.reason && there.message == new.message);
    if is_same {
        return;
    }
    let since = there.as_ref().filter(|there| there.status == new.status);
    let since = since.and_then(|there| there.last_transition_time.clone());
    new.last_probe_time = new.last_probe_time.or(Some(Time(now)));
    new.last_transition_time = new.last_transition_time.or(since).or(Some(Time(now)));
    match there {
        Some(there) => *there = new,
        None => conditions.push(new),
    }
}

fn remove(conditions: &mut Vec<VirtualMachineCondition>, kind: &str) {
    conditions.retain(|condition| condition.type_ != kind);
}

#[cfg(test)]
#[expect(clippy::needless_pass_by_value, reason = "tables read better without references")]
mod tests {
    use serde_json::json;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + second).unwrap()
    }

    fn instance(conditions: serde_json::Value) -> VirtualMachineInstance {
        let object = json!({"spec": {"domain": {"devices": {}}}, "status": {"conditions": conditions}});
        serde_json::from_value(object).unwrap()
    }

    fn summary(conditions: &[VirtualMachineCondition]) -> Vec<String> {
        let one = |condition: &VirtualMachineCondition| {
            format!("{}={} {}", condition.type_, condition.status, condition.reason.as_deref().unwrap_or_default())
        };
        conditions.iter().map(one).collect()
    }

    #[test]
    fn a_machine_shows_the_conditions_of_its_instance_and_its_own() {
        let mut conditions = Vec::new();
        update(&mut conditions, None, None, &Restart::Unknown, at(0));
        assert_eq!(summary(&conditions), ["Ready=False VMINotExists"]);
        update(&mut conditions, Some(&instance(json!([]))), None, &Restart::Unknown, at(1));
        assert_eq!(summary(&conditions), ["Ready=False VMIConditionMissing"]);
        assert_eq!(conditions[0].last_transition_time, Some(Time(at(0))), "it has been false since");
        let running = instance(json!([
            {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"},
            {"type": "LiveMigratable", "status": "False", "reason": "HostDeviceNotLiveMigratable"},
            {"type": "Failure", "status": "True"},
        ]));
        let failure = Failure::new("FailedCreate", "no");
        let restart = Restart::Required("cpu".to_owned());
        update(&mut conditions, Some(&running), Some(&failure), &restart, at(2));
        let expected = [
            "Ready=True ",
            "Failure=True FailedCreate",
            "RestartRequired=True RestartRequired",
            "LiveMigratable=False HostDeviceNotLiveMigratable",
        ];
        assert_eq!(summary(&conditions), expected);
        update(&mut conditions, None, None, &Restart::NotRequired, at(3));
        assert_eq!(summary(&conditions), ["Ready=False VMINotExists"]);
    }

    #[test]
    fn nothing_changes_when_nothing_new_is_known() {
        let mut conditions = Vec::new();
        let failure = Failure::new("FailedCreate", "no");
        update(&mut conditions, None, Some(&failure), &Restart::Required("x".to_owned()), at(0));
        let before = conditions.clone();
        update(&mut conditions, None, Some(&failure), &Restart::Unknown, at(9));
        assert_eq!(conditions, before);
    }
}
