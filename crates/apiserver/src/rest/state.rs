//! `metadata.state`: how an object is, in one word, for lists that people look at.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::dress::quoted;

/// The few fields that tell an object's state. Read without building the rest: lists are long.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Look<'a> {
    #[serde(borrow)]
    pub(super) kind: Cow<'a, str>,
    #[serde(borrow)]
    pub(super) metadata: Metadata<'a>,
    #[serde(borrow)]
    pub(super) spec: Spec<'a>,
    #[serde(borrow)]
    pub(super) status: Status<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Metadata<'a> {
    #[serde(borrow)]
    pub(super) deletion_timestamp: Option<Cow<'a, str>>,
    /// Where it is in the bytes, to be left out.
    #[serde(borrow)]
    pub(super) managed_fields: Option<&'a RawValue>,
    /// Read further only where a kind's actions depend on it.
    #[serde(borrow)]
    pub(super) annotations: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) labels: Option<&'a RawValue>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Spec<'a> {
    #[serde(borrow)]
    pub(super) run_strategy: Option<Cow<'a, str>>,
    pub(super) running: Option<bool>,
    pub(super) unschedulable: Option<bool>,
    #[serde(borrow)]
    pub(super) template: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) resources: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) source_type: Option<Cow<'a, str>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Status<'a> {
    #[serde(borrow)]
    pub(super) phase: Cow<'a, str>,
    #[serde(borrow, rename = "printableStatus")]
    pub(super) printable: Cow<'a, str>,
    #[serde(borrow)]
    pub(super) conditions: Vec<Condition<'a>>,
    #[serde(borrow)]
    pub(super) state_change_requests: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) capacity: Option<&'a RawValue>,
    pub(super) ready_to_use: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Condition<'a> {
    #[serde(borrow, rename = "type")]
    pub(super) ty: Cow<'a, str>,
    #[serde(borrow)]
    pub(super) status: Cow<'a, str>,
    #[serde(borrow)]
    reason: Cow<'a, str>,
    #[serde(borrow)]
    message: Cow<'a, str>,
}

impl<'a> Look<'a> {
    /// What cannot be read this way looks like an object without a status.
    pub(super) fn of(bytes: &'a [u8]) -> Self {
        serde_json::from_slice(bytes).unwrap_or_default()
    }

    pub(super) fn is_true(&self, ty: &str) -> bool {
        self.status.conditions.iter().any(|condition| condition.ty == ty && condition.status == "True")
    }

    /// `runStrategy`, or what `running` means in its stead.
    pub(super) fn run_strategy(&self) -> &str {
        match (&self.spec.run_strategy, self.spec.running) {
            (Some(strategy), _) => strategy,
            (None, Some(true)) => "Always",
            (None, _) => "Halted",
        }
    }

    pub(super) fn state(&self) -> State {
        if self.metadata.deletion_timestamp.is_some() {
            return State::moving("removing", "");
        }
        if !self.status.printable.is_empty() {
            return self.machine_state();
        }
        if self.kind == "Node" {
            return self.node_state();
        }
        if let Some(failed) = self.failed_condition() {
            return State { name: "error".to_owned(), message: failed.text(), error: true, transitioning: false };
        }
        match &*self.status.phase {
            "" => self.state_by_conditions(),
            phase => {
                let error = matches!(phase, "Failed" | "Lost" | "Error" | "Unknown");
                let transitioning = matches!(
                    phase,
                    "Pending" | "Scheduling" | "Scheduled" | "Terminating" | "Released" | "Importing" | "InProgress"
                );
                State { name: phase.to_ascii_lowercase(), message: String::new(), error, transitioning }
            }
        }
    }

    fn machine_state(&self) -> State {
        let status = &*self.status.printable;
        let transitioning = matches!(
            status,
            "Starting" | "Stopping" | "Provisioning" | "Terminating" | "Migrating" | "WaitingForVolumeBinding"
        );
        let error = status.starts_with("Err")
            || matches!(status, "CrashLoopBackOff" | "DataVolumeError" | "Unknown" | "ImagePullBackOff");
        let why =
            self.status.conditions.iter().find(|condition| condition.ty == "Failure" && condition.status == "True");
        State {
            name: status.to_ascii_lowercase(),
            message: why.map(Condition::text).unwrap_or_default(),
            error,
            transitioning,
        }
    }

    fn node_state(&self) -> State {
        if !self.is_true("Ready") {
            let why = self.status.conditions.iter().find(|condition| condition.ty == "Ready").map(Condition::text);
            let message = why.unwrap_or_default();
            return State { name: "unavailable".to_owned(), message, error: true, transitioning: false };
        }
        if self.spec.unschedulable == Some(true) { State::still("cordoned") } else { State::still("active") }
    }

    fn failed_condition(&self) -> Option<&Condition<'a>> {
        let says_failure = |condition: &&Condition<'_>| match &*condition.status {
            "True" => matches!(&*condition.ty, "Failed" | "Failure" | "Error" | "RetryLimitExceeded"),
            "False" => condition.reason.contains("Error") || condition.reason.contains("Failed"),
            _ => false,
        };
        self.status.conditions.iter().find(says_failure)
    }

    fn state_by_conditions(&self) -> State {
        let is_progress = |condition: &&Condition<'_>| {
            let tells =
                matches!(&*condition.ty, "Ready" | "Imported" | "Initialized" | "Available" | "ready" | "InProgress");
            match &*condition.ty {
                "InProgress" => condition.status == "True",
                _ => tells && condition.status != "True",
            }
        };
        match self.status.conditions.iter().find(is_progress) {
            Some(condition) => State::moving("in-progress", &condition.text()),
            None => State::still("active"),
        }
    }
}

impl Condition<'_> {
    fn text(&self) -> String {
        if self.message.is_empty() { self.reason.to_string() } else { self.message.to_string() }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct State {
    pub(super) name: String,
    message: String,
    pub(super) error: bool,
    pub(super) transitioning: bool,
}

impl State {
    fn still(name: &str) -> Self {
        Self { name: name.to_owned(), message: String::new(), error: false, transitioning: false }
    }

    fn moving(name: &str, message: &str) -> Self {
        Self { name: name.to_owned(), message: message.to_owned(), error: false, transitioning: true }
    }

    /// The same as [`Self::to_json`], as text.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"name\":");
        quoted(out, &[&self.name]);
        out.extend_from_slice(b",\"message\":");
        quoted(out, &[&self.message]);
        let flags = format!(",\"error\":{},\"transitioning\":{}}}", self.error, self.transitioning);
        out.extend_from_slice(flags.as_bytes());
    }

    pub(super) fn to_json(&self) -> Value {
        json!({ "name": self.name, "message": self.message, "error": self.error, "transitioning": self.transitioning })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_say_how_objects_are() {
        let table = [
            (json!({}), ("active", false, false)),
            (json!({"status": 3}), ("active", false, false)),
            (json!({"metadata": {"deletionTimestamp": "x"}}), ("removing", false, true)),
            (json!({"status": {"printableStatus": "Running"}}), ("running", false, false)),
            (json!({"status": {"printableStatus": "Starting"}}), ("starting", false, true)),
            (json!({"status": {"printableStatus": "ErrorUnschedulable"}}), ("errorunschedulable", true, false)),
            (json!({"status": {"phase": "Bound"}}), ("bound", false, false)),
            (json!({"status": {"phase": "Pending"}}), ("pending", false, true)),
            (json!({"status": {"phase": "Lost"}}), ("lost", true, false)),
            (json!({"kind": "Node"}), ("unavailable", true, false)),
            (
                json!({"kind": "Node", "status": {"conditions": [{"type": "Ready", "status": "True"}]}}),
                ("active", false, false),
            ),
            (
                json!({"status": {"conditions": [{"type": "Imported", "status": "Unknown"}]}}),
                ("in-progress", false, true),
            ),
            (
                json!({"status": {"conditions": [{"type": "Imported", "status": "False", "reason": "ImportFailed"}]}}),
                ("error", true, false),
            ),
        ];
        for (object, expected) in table {
            let text = object.to_string();
            let state = Look::of(text.as_bytes()).state();
            assert_eq!((state.name.as_str(), state.error, state.transitioning), expected, "{object}");
            let mut text = Vec::new();
            state.write(&mut text);
            assert_eq!(serde_json::from_slice::<Value>(&text).unwrap(), state.to_json());
        }
    }
}
