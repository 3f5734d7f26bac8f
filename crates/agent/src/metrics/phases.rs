//! How long machines take from one phase to the next, by the names that KubeVirt's virt-controller gives it.
//!
//! Counted as the watch shows it, since the agent started. The API's times are whole seconds, and so are these.

use std::collections::BTreeMap;

use croft_api::kubevirt::VirtualMachineInstance;
use jiff::Timestamp;
use parking_lot::Mutex;

use super::text::{Histogram, Labels, Metric, Page, histogram};

const FROM_CREATION: Metric = histogram(
    "kubevirt_vmi_phase_transition_time_from_creation_seconds",
    "Histogram of VM phase transitions duration from creation time in seconds.",
);
const FROM_LAST: Metric = histogram(
    "kubevirt_vmi_phase_transition_time_seconds",
    "Histogram of VM phase transitions duration between different phases in seconds.",
);
const FROM_DELETION: Metric = histogram(
    "kubevirt_vmi_phase_transition_time_from_deletion_seconds",
    "Histogram of VM phase transitions duration from deletion time in seconds.",
);
/// Upper ends, in seconds.
const BUCKETS: [f64; 18] =
    [0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 90.0, 120.0, 180.0, 300.0, 600.0, 1200.0, 1800.0, 3600.0];

/// What has been counted so far.
#[derive(Debug, Default)]
pub(crate) struct Phases(Mutex<Counted>);

/// By name and labels.
type Counted = BTreeMap<(&'static str, Labels), (Metric, Histogram)>;

impl Phases {
    /// Counts the phases that an object has entered since it was last seen. `old` is `None` for one that is new.
    pub(crate) fn changed(&self, old: Option<&VirtualMachineInstance>, new: &VirtualMachineInstance) {
        let known = old.map(entered).unwrap_or_default();
        let created = new.metadata.creation_timestamp.as_ref().map(|time| time.0);
        let deleted = new.metadata.deletion_timestamp.as_ref().map(|time| time.0);
        let mut last: Option<(String, Timestamp)> = None;
        for (phase, at) in entered(new) {
            if !known.iter().any(|(other, _)| *other == phase) {
                let labels = Labels::default().with("phase", &phase);
                if let Some(created) = created {
                    self.count(FROM_CREATION, labels.clone(), created, at);
                }
                if let Some((last, since)) = &last {
                    self.count(FROM_LAST, labels.with("last", last), *since, at);
                }
                if let Some(deleted) = deleted.filter(|deleted| *deleted <= at) {
                    self.count(FROM_DELETION, labels, deleted, at);
                }
            }
            last = Some((phase, at));
        }
    }

    fn count(&self, metric: Metric, labels: Labels, from: Timestamp, to: Timestamp) {
        // Clocks that disagree make no time negative.
        let seconds = to.duration_since(from).as_secs_f64().max(0.0);
        let mut all = self.0.lock();
        let (_, histogram) = all.entry((metric.name, labels)).or_insert_with(|| (metric, Histogram::new(&BUCKETS)));
        histogram.count(seconds);
    }

    pub(super) fn tell(&self, page: &mut Page, node: &Labels) {
        for ((_, labels), (metric, histogram)) in &*self.0.lock() {
            page.add_histogram(*metric, &node.and(labels), histogram);
        }
    }
}

/// The phases of a machine in their order, and when they began.
fn entered(vmi: &VirtualMachineInstance) -> Vec<(String, Timestamp)> {
    let times = vmi.status.iter().flat_map(|status| &status.phase_transition_timestamps);
    times.filter_map(|one| Some((one.phase.clone()?, one.phase_transition_timestamp.as_ref()?.0))).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn vmi(phases: &[(&str, u32)]) -> VirtualMachineInstance {
        let times: Vec<_> = phases
            .iter()
            .map(|(phase, second)| {
                json!({"phase": phase, "phaseTransitionTimestamp": format!("2026-01-01T00:00:{second:02}Z")})
            })
            .collect();
        serde_json::from_value(json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
            "metadata": {"creationTimestamp": "2026-01-01T00:00:01Z"},
            "spec": {"domain": {"devices": {}}}, "status": {"phaseTransitionTimestamps": times},
        }))
        .unwrap()
    }

    #[test]
    fn each_phase_is_counted_once() {
        let phases = Phases::default();
        let first = vmi(&[("Pending", 1), ("Scheduled", 2)]);
        let second = vmi(&[("Pending", 1), ("Scheduled", 2), ("Running", 4)]);
        phases.changed(None, &first);
        phases.changed(Some(&first), &second);
        phases.changed(Some(&second), &second);
        let mut page = Page::default();
        phases.tell(&mut page, &Labels::default().with("node", "n1"));
        let text = page.finish();
        for expected in [
            "# TYPE kubevirt_vmi_phase_transition_time_from_creation_seconds histogram",
            r#"kubevirt_vmi_phase_transition_time_from_creation_seconds_bucket{node="n1",phase="Running",le="2"} 0"#,
            r#"kubevirt_vmi_phase_transition_time_from_creation_seconds_bucket{node="n1",phase="Running",le="5"} 1"#,
            r#"kubevirt_vmi_phase_transition_time_from_creation_seconds_bucket{node="n1",phase="Running",le="+Inf"} 1"#,
            r#"kubevirt_vmi_phase_transition_time_from_creation_seconds_sum{node="n1",phase="Running"} 3"#,
            r#"kubevirt_vmi_phase_transition_time_from_creation_seconds_count{node="n1",phase="Running"} 1"#,
            r#"kubevirt_vmi_phase_transition_time_seconds_sum{node="n1",phase="Running",last="Scheduled"} 2"#,
        ] {
            assert!(text.lines().any(|line| line == expected), "no {expected} in\n{text}");
        }
        assert!(!text.contains("from_deletion"), "{text}");
    }
}
