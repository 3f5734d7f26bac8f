//! How saving the state on a schedule goes, as the Lease of those who do it tells.

use std::fmt::Write as _;

use croft_api::state_schedule::{ANNOTATION, LEASE, NAMESPACE, StateSchedule};

use crate::cache::Cache;

const LEASES: &str = "coordination.k8s.io/leases";

/// In OpenMetrics' form; nothing where none was ever asked for.
pub(crate) fn tell(cache: &Cache) -> String {
    let lease = cache.collection(LEASES).get(&format!("{NAMESPACE}/{LEASE}")).map(|lease| lease.json());
    let told = lease.as_ref().and_then(|lease| lease["metadata"]["annotations"][ANNOTATION].as_str());
    told.and_then(|told| serde_json::from_str(told).ok()).map(|schedule| text(&schedule)).unwrap_or_default()
}

fn text(schedule: &StateSchedule) -> String {
    let saved = schedule.last_success.as_ref();
    let (time, size) = saved.map_or((0, 0), |saved| (saved.time.as_second(), saved.size));
    let mut text = String::new();
    let gauges = [
        (
            "croft_saved_state_last_success_timestamp_seconds",
            "When a scheduled state was last saved; 0 for never",
            time,
        ),
        ("croft_saved_state_last_success_size_bytes", "How large it is", i64::try_from(size).unwrap_or(i64::MAX)),
        (
            "croft_saved_state_next_timestamp_seconds",
            "When the next one is due",
            schedule.next().map_or(0, jiff::Timestamp::as_second),
        ),
    ];
    for (name, help, value) in gauges {
        // Writing to a string does not fail.
        let _ = write!(text, "# HELP {name} {help}.\n# TYPE {name} gauge\n{name} {value}\n");
    }
    let name = "croft_saved_state_failures";
    let _ = write!(
        text,
        "# HELP {name} Attempts to save a scheduled state that failed.\n# TYPE {name} counter\n{name}_total {}\n",
        schedule.failures
    );
    text
}

#[cfg(test)]
mod tests {
    use croft_api::state_schedule::SavedState;

    use super::*;

    #[test]
    fn the_last_success_and_all_failures_are_told() {
        let mut schedule = StateSchedule::default();
        schedule.failed(jiff::Timestamp::UNIX_EPOCH, "full".to_owned());
        let time = jiff::Timestamp::from_second(1_700_000_000).unwrap();
        schedule.succeeded(SavedState { time, size: 4711, ..SavedState::default() });
        let told = text(&schedule);
        for line in [
            "croft_saved_state_last_success_timestamp_seconds 1700000000",
            "croft_saved_state_last_success_size_bytes 4711",
            "croft_saved_state_failures_total 1",
        ] {
            assert!(told.lines().any(|found| found == line), "{line}: {told}");
        }
    }
}
