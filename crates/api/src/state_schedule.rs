//! What is known of the states that servers save on a schedule.
//!
//! It is an annotation of the Lease that decides which of several servers saves one: whoever holds the Lease writes it, all of
//! them read it, and it outlives them.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::cron::Cron;

pub const NAMESPACE: &str = "kube-system";
pub const LEASE: &str = "croft-state-schedule";
/// Of the Lease: a [`StateSchedule`] as JSON.
pub const ANNOTATION: &str = "croft.io/state-schedule";

/// The first pause after a failure; each further one doubles it.
const RETRY: SignedDuration = SignedDuration::from_mins(1);
const LONGEST_RETRY: SignedDuration = SignedDuration::from_hours(1);

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StateSchedule {
    pub cron: String,
    /// Where they go; empty for the cluster's backup target.
    pub target: String,
    /// How many good ones are kept.
    pub keep: u32,
    /// Since when this cron is followed: what another would have fired at was not missed.
    pub since: Option<Timestamp>,
    /// When the last one was begun, whatever became of it.
    pub last_attempt: Option<Timestamp>,
    pub last_success: Option<SavedState>,
    pub last_error: Option<FailedState>,
    /// Failures since the last success.
    pub failures_in_a_row: u32,
    /// All failures there ever were.
    pub failures: u64,
    /// The name of the one that is being written. If nobody is at it, it was cut short.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub writing: String,
    /// The name of the last one, if there were objects that could not be read and are not in it. It counts for nothing, and the next
    /// one takes its place.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub incomplete: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SavedState {
    pub time: Timestamp,
    pub name: String,
    pub size: u64,
    pub objects: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FailedState {
    pub time: Timestamp,
    pub message: String,
}

impl StateSchedule {
    /// When one is to be saved. It lies in the past when that was missed, however often: it is then made up for once.
    pub fn next(&self) -> Option<Timestamp> {
        let cron = Cron::parse(&self.cron)?;
        let since = self.last_attempt.max(self.since)?;
        let fires = cron.next_after(since);
        let Some(attempt) = self.last_attempt.filter(|_| self.failures_in_a_row > 0) else { return fires };
        let doublings = (self.failures_in_a_row - 1).min(6);
        let pause = RETRY.saturating_mul(1 << doublings).min(LONGEST_RETRY);
        let again = attempt.checked_add(pause).ok();
        again.into_iter().chain(fires).min()
    }

    /// Takes over what is asked for now. Another cron has missed nothing yet.
    pub fn follow(&mut self, cron: &str, target: &str, keep: u32, now: Timestamp) {
        if self.cron != cron || self.since.is_none() {
            cron.clone_into(&mut self.cron);
            self.since = Some(now);
        }
        target.clone_into(&mut self.target);
        self.keep = keep;
    }

    pub fn succeeded(&mut self, saved: SavedState) {
        self.last_success = Some(saved);
        self.failures_in_a_row = 0;
        self.writing.clear();
    }

    pub fn failed(&mut self, time: Timestamp, message: String) {
        self.last_error = Some(FailedState { time, message });
        self.failures_in_a_row = self.failures_in_a_row.saturating_add(1);
        self.failures = self.failures.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().expect("a time")
    }

    fn followed() -> StateSchedule {
        let mut schedule = StateSchedule::default();
        schedule.follow("0 */6 * * *", "", 7, at("2026-01-01T05:00:00Z"));
        schedule
    }

    #[test]
    fn it_fires_after_it_is_followed_and_after_each_attempt() {
        let mut schedule = followed();
        assert_eq!(schedule.next(), Some(at("2026-01-01T06:00:00Z")));
        schedule.last_attempt = Some(at("2026-01-01T06:00:03Z"));
        assert_eq!(schedule.next(), Some(at("2026-01-01T12:00:00Z")));
        // Days later: the first that was missed, and after it the next to come.
        schedule.last_attempt = Some(at("2026-01-05T07:00:00Z"));
        assert_eq!(schedule.next(), Some(at("2026-01-05T12:00:00Z")));
    }

    #[test]
    fn what_failed_is_tried_again_ever_later_but_not_after_the_next_time() {
        let mut schedule = followed();
        schedule.last_attempt = Some(at("2026-01-01T06:00:00Z"));
        for (minutes, failure) in
            ["06:01", "06:02", "06:04", "06:08", "06:16", "06:32", "07:00", "07:00"].iter().zip(1..)
        {
            schedule.failed(at("2026-01-01T06:00:00Z"), "no".to_owned());
            assert_eq!(schedule.next(), Some(at(&format!("2026-01-01T{minutes}:00Z"))), "failure {failure}");
        }
        schedule.last_attempt = Some(at("2026-01-01T11:30:00Z"));
        assert_eq!(schedule.next(), Some(at("2026-01-01T12:00:00Z")));
        schedule.succeeded(SavedState::default());
        assert_eq!((schedule.failures_in_a_row, schedule.failures), (0, 8));
    }

    #[test]
    fn another_cron_has_missed_nothing() {
        let mut schedule = followed();
        schedule.follow("0 */6 * * *", "file:///x", 3, at("2026-02-01T00:00:00Z"));
        assert_eq!(schedule.since, Some(at("2026-01-01T05:00:00Z")), "the same is followed on");
        schedule.follow("@daily", "", 3, at("2026-02-01T01:00:00Z"));
        assert_eq!(schedule.next(), Some(at("2026-02-02T00:00:00Z")));
    }

    #[test]
    fn it_survives_being_written_down() {
        let mut schedule = followed();
        schedule.failed(at("2026-01-01T06:00:00Z"), "full".to_owned());
        let text = serde_json::to_string(&schedule).expect("JSON");
        assert_eq!(serde_json::from_str::<StateSchedule>(&text).expect("the same"), schedule);
        assert_eq!(serde_json::from_str::<StateSchedule>("{}").expect("nothing"), StateSchedule::default());
    }
}
