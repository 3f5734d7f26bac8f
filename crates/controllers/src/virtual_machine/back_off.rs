//! How long to wait after guests that failed before they ran.

use croft_api::kubevirt::{VirtualMachineInstance, VirtualMachineStartFailure};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::run_strategy::RunStrategy;
use super::view::{is_final, uid, was_running};

/// KubeVirt's figures: 10 s, times the square of the failures in a row, and up to half as much again.
const INTERVAL_SECONDS: i64 = 10;
const LONGEST_SECONDS: i64 = 300;

/// What to remember of the failures so far. `random` spreads machines that fail together.
pub(super) fn next(
    before: Option<&VirtualMachineStartFailure>,
    strategy: RunStrategy,
    instance: Option<&VirtualMachineInstance>,
    now: Timestamp,
    random: u64,
) -> Option<VirtualMachineStartFailure> {
    if instance.is_some_and(was_running) || !strategy.retries_starts() {
        return None;
    }
    let Some(failed) = instance.filter(|instance| is_final(instance)) else { return before.cloned() };
    let uid = uid(&failed.metadata);
    if let Some(before) = before.filter(|before| before.last_failed_vmiuid.as_deref() == Some(uid)) {
        return Some(before.clone());
    }
    let count = before.and_then(|before| before.consecutive_fail_count).unwrap_or_default().saturating_add(1);
    let retry = now.saturating_add(SignedDuration::from_secs(delay_seconds(count, random))).unwrap_or(Timestamp::MAX);
    Some(VirtualMachineStartFailure {
        consecutive_fail_count: Some(count),
        last_failed_vmiuid: Some(uid.to_owned()),
        retry_after_timestamp: Some(Time(retry)),
    })
}

fn delay_seconds(count: i64, random: u64) -> i64 {
    let delay = INTERVAL_SECONDS.saturating_mul(count.max(1).saturating_pow(2));
    let range = u64::try_from(delay / 2 + 1).unwrap_or(1);
    let extra = i64::try_from(random % range).unwrap_or_default();
    delay.saturating_add(extra).min(LONGEST_SECONDS)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn now() -> Timestamp {
        "2026-01-01T00:00:00Z".parse().unwrap()
    }

    fn instance(uid: &str, phase: &str, ran: bool) -> VirtualMachineInstance {
        let transitions = if ran { json!([{"phase": "Running"}]) } else { json!([]) };
        serde_json::from_value(json!({
            "metadata": {"uid": uid},
            "spec": {"domain": {"devices": {}}},
            "status": {"phase": phase, "phaseTransitionTimestamps": transitions},
        }))
        .unwrap()
    }

    #[test]
    fn delays_grow_with_the_square_up_to_five_minutes() {
        for (count, random, expected) in [(1, 0, 10), (2, 0, 40), (3, 0, 90), (1, 5, 15), (1, 6, 10), (9, 0, 300)] {
            assert_eq!(delay_seconds(count, random), expected, "failure {count} with {random}");
        }
    }

    #[test]
    fn each_instance_that_never_ran_counts_once() {
        let always = RunStrategy::Always;
        let first = next(None, always, Some(&instance("a", "Failed", false)), now(), 0).unwrap();
        assert_eq!(first.consecutive_fail_count, Some(1));
        let again = next(Some(&first), always, Some(&instance("a", "Failed", false)), now(), 0).unwrap();
        assert_eq!(again, first);
        assert_eq!(next(Some(&first), always, None, now(), 0).as_ref(), Some(&first), "it is remembered meanwhile");
        let starting = next(Some(&first), always, Some(&instance("b", "Scheduled", false)), now(), 0);
        assert_eq!(starting.as_ref(), Some(&first));
        let second = next(Some(&first), always, Some(&instance("b", "Failed", false)), now(), 0).unwrap();
        assert_eq!(second.consecutive_fail_count, Some(2));
        assert_eq!(second.retry_after_timestamp.unwrap().0, "2026-01-01T00:00:40Z".parse().unwrap());
    }

    #[test]
    fn a_guest_that_ran_or_is_not_restarted_clears_the_count() {
        let before = VirtualMachineStartFailure { consecutive_fail_count: Some(4), ..Default::default() };
        let ran = instance("a", "Failed", true);
        assert_eq!(next(Some(&before), RunStrategy::Always, Some(&ran), now(), 0), None);
        let failed = instance("a", "Failed", false);
        assert_eq!(next(Some(&before), RunStrategy::Manual, Some(&failed), now(), 0), None);
        assert_eq!(next(Some(&before), RunStrategy::Halted, None, now(), 0), None);
    }
}
