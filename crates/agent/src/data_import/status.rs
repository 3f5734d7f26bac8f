//! What a DataVolume's status says, in CDI's words. Nothing here does anything.

use croft_api::cdi::{DataVolumeCondition, DataVolumeStatus};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

const LONGEST_MESSAGE: usize = 1024;

/// What is done to fill a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Import,
    Clone,
    Upload,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Import => "Import",
            Self::Clone => "Clone",
            Self::Upload => "Upload",
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    /// The claim has no volume yet.
    Pending,
    UploadScheduled,
    UploadReady,
    /// With how many percent, if that is known.
    Running(Kind, Option<f64>),
    /// Failed, and will be tried again.
    Retrying(Kind, String),
    Failed(Kind, String),
    Succeeded(Kind),
}

pub(super) fn is_final(status: Option<&DataVolumeStatus>) -> bool {
    status.is_some_and(|status| matches!(status.phase.as_deref(), Some("Succeeded" | "Failed")))
}

pub(super) fn waits_for_files(status: Option<&DataVolumeStatus>) -> bool {
    let phase = status.and_then(|status| status.phase.as_deref());
    !matches!(phase, Some("Succeeded" | "Failed" | "ImportInProgress"))
}

pub(super) fn succeeded_reason(kind: Kind) -> &'static str {
    match kind {
        Kind::Import => "ImportSucceeded",
        Kind::Clone => "CloneSucceeded",
        Kind::Upload => "UploadSucceeded",
    }
}

pub(super) fn after(current: &DataVolumeStatus, claim: &str, step: &Step, now: Timestamp) -> DataVolumeStatus {
    let mut next = current.clone();
    next.claim_name = Some(claim.to_owned());
    let restarts = next.restart_count.unwrap_or_default();
    let (phase, progress) = match step {
        Step::Pending => ("Pending".to_owned(), None),
        Step::UploadScheduled => ("UploadScheduled".to_owned(), None),
        Step::UploadReady => ("UploadReady".to_owned(), None),
        Step::Running(kind, percent) => (format!("{}InProgress", kind.name()), *percent),
        Step::Retrying(kind, _) => (format!("{}InProgress", kind.name()), None),
        Step::Failed(..) => ("Failed".to_owned(), None),
        Step::Succeeded(_) => ("Succeeded".to_owned(), Some(100.0)),
    };
    next.phase = Some(phase);
    next.progress = Some(progress.map_or_else(|| "N/A".to_owned(), |percent| format!("{percent:.1}%")));
    next.restart_count = Some(if matches!(step, Step::Retrying(..)) { restarts.saturating_add(1) } else { restarts });

    let bound = format!("PVC {claim} Bound");
    let pending = format!("PVC {claim} Pending");
    match step {
        Step::Pending => set(&mut next, "Bound", "False", "Pending", &pending, now),
        _ => set(&mut next, "Bound", "True", "Bound", &bound, now),
    }
    match step {
        Step::Pending | Step::UploadScheduled => set(&mut next, "Running", "False", "", "", now),
        Step::UploadReady | Step::Running(..) => set(&mut next, "Running", "True", "Pod is running", "", now),
        Step::Retrying(_, message) | Step::Failed(_, message) => {
            set(&mut next, "Running", "False", "Error", message, now);
        }
        Step::Succeeded(kind) => {
            set(&mut next, "Running", "False", "Completed", &format!("{} Complete", kind.name()), now);
        }
    }
    match step {
        Step::Succeeded(_) => set(&mut next, "Ready", "True", "", "", now),
        Step::Failed(_, message) => set(&mut next, "Ready", "False", "Error", message, now),
        Step::Retrying(..) | Step::Running(..) | Step::UploadReady => {
            set(&mut next, "Ready", "False", "TransferRunning", "", now);
        }
        Step::Pending | Step::UploadScheduled => set(&mut next, "Ready", "False", "", "", now),
    }
    next
}

fn set(status: &mut DataVolumeStatus, type_: &str, value: &str, reason: &str, message: &str, now: Timestamp) {
    let message: String = message.chars().take(LONGEST_MESSAGE).collect();
    let given = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    let mut next = DataVolumeCondition {
        type_: type_.to_owned(),
        status: value.to_owned(),
        reason: given(reason),
        message: given(&message),
        last_transition_time: Some(Time(now)),
        last_heartbeat_time: Some(Time(now)),
    };
    let Some(before) = status.conditions.iter_mut().find(|condition| condition.type_ == type_) else {
        status.conditions.push(next);
        return;
    };
    if before.status == next.status {
        next.last_transition_time.clone_from(&before.last_transition_time);
        // What says the same as before is the same: nobody is woken for a heartbeat.
        if (&before.reason, &before.message) == (&next.reason, &next.message) {
            next.last_heartbeat_time.clone_from(&before.last_heartbeat_time);
        }
    }
    *before = next;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).unwrap()
    }

    fn condition<'a>(status: &'a DataVolumeStatus, type_: &str) -> (&'a str, &'a str, &'a str) {
        let found = status.conditions.iter().find(|condition| condition.type_ == type_).unwrap();
        (&found.status, found.reason.as_deref().unwrap_or_default(), found.message.as_deref().unwrap_or_default())
    }

    #[test]
    fn phases_and_conditions_are_cdis() {
        let failed = || "cannot reach it".to_owned();
        for (step, phase, progress, running, ready) in [
            (Step::Pending, "Pending", "N/A", ("False", "", ""), "False"),
            (Step::UploadReady, "UploadReady", "N/A", ("True", "Pod is running", ""), "False"),
            (
                Step::Running(Kind::Import, Some(45.0)),
                "ImportInProgress",
                "45.0%",
                ("True", "Pod is running", ""),
                "False",
            ),
            (
                Step::Retrying(Kind::Import, failed()),
                "ImportInProgress",
                "N/A",
                ("False", "Error", "cannot reach it"),
                "False",
            ),
            (Step::Failed(Kind::Clone, failed()), "Failed", "N/A", ("False", "Error", "cannot reach it"), "False"),
            (Step::Succeeded(Kind::Upload), "Succeeded", "100.0%", ("False", "Completed", "Upload Complete"), "True"),
        ] {
            let status = after(&DataVolumeStatus::default(), "disk", &step, at(0));
            assert_eq!(
                (status.phase.as_deref(), status.progress.as_deref()),
                (Some(phase), Some(progress)),
                "{step:?}"
            );
            assert_eq!(condition(&status, "Running"), running, "{step:?}");
            assert_eq!(condition(&status, "Ready").0, ready, "{step:?}");
        }
    }

    #[test]
    fn the_same_step_later_is_the_same_status_and_retries_are_counted() {
        let step = Step::Running(Kind::Import, Some(1.0));
        let first = after(&DataVolumeStatus::default(), "disk", &step, at(0));
        assert_eq!(after(&first, "disk", &step, at(9)), first);
        let retried = after(&first, "disk", &Step::Retrying(Kind::Import, "x".to_owned()), at(9));
        assert_eq!(retried.restart_count, Some(1));
    }
}
