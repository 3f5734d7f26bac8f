use croft_api::harvester::{BackupError, ScheduleVMBackupSpec, VirtualMachineBackupStatus};
use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::*;

fn time(text: &str) -> Timestamp {
    text.parse().unwrap_or_else(|_| panic!("{text}"))
}

/// What a schedule does, with all its backups, as a clock goes that a test sets as it likes.
struct Simulated {
    now: Timestamp,
    schedule: ScheduleVMBackup,
    backups: Vec<Arc<VirtualMachineBackup>>,
    /// Whether backups are ready at once, fail at once, or go on.
    outcome: Outcome,
}

impl Simulated {
    fn new(cron: &str, start: &str) -> Self {
        let metadata = ObjectMeta {
            name: Some("s".to_owned()),
            namespace: Some("n".to_owned()),
            uid: Some("u".to_owned()),
            creation_timestamp: Some(Time(time(start))),
            ..ObjectMeta::default()
        };
        let spec = ScheduleVMBackupSpec {
            cron: cron.to_owned(),
            retain: 4,
            max_failure: 2,
            ..ScheduleVMBackupSpec::default()
        };
        let schedule = ScheduleVMBackup { metadata, spec, status: None };
        Self { now: time(start), schedule, backups: Vec::new(), outcome: Outcome::Ready }
    }

    fn runs(&self) -> Runs {
        Runs::of(&self.schedule, &self.backups, self.now)
    }

    fn names(&self) -> Vec<&str> {
        self.backups.iter().map(|backup| &backup.metadata.name.as_deref().unwrap()["svmb-u-".len()..]).collect()
    }

    /// One look, as the controller does it.
    fn look(&mut self) -> Step {
        let made = last_made(&self.schedule);
        let step = step(&self.schedule, &self.runs(), made, self.now);
        let mut now_made = None;
        match &step {
            Step::Make(at) => {
                let mut backup = backup(&self.schedule, *at);
                set(&mut backup, &self.outcome);
                self.backups.push(Arc::new(backup));
                now_made = Some(*at);
            }
            Step::Suspend { reason, message } => suspend(&mut self.schedule, reason, message, self.now),
            Step::Resume => resume(&mut self.schedule, self.now),
            Step::Clear(failed) => self.remove(failed),
            Step::Wait { .. } | Step::Rest => {}
        }
        let runs = self.runs();
        tell(&mut self.schedule, &runs, now_made, self.now);
        self.remove(&self.runs().surplus(self.schedule.spec.retain));
        step
    }

    fn remove(&mut self, gone: &[Arc<VirtualMachineBackup>]) {
        self.backups.retain(|backup| !gone.iter().any(|one| one.metadata.name == backup.metadata.name));
    }

    /// Looks every 20 seconds.
    fn go_on(&mut self, until: &str) {
        while self.now < time(until) {
            self.now += SignedDuration::from_secs(20);
            self.look();
        }
    }

    fn set_clock(&mut self, text: &str) {
        self.now = time(text);
        self.look();
    }

    fn finish(&mut self, outcome: &Outcome) {
        for backup in &mut self.backups {
            if super::outcome(backup) == Outcome::Open {
                set(Arc::make_mut(backup), outcome);
            }
        }
    }

    fn condition(&self) -> (String, String) {
        let status = self.schedule.status.clone().unwrap();
        let condition = status.conditions.iter().find(|one| one.type_ == BACKUP_SUSPEND).unwrap().clone();
        (condition.status, condition.reason.unwrap_or_default())
    }
}

fn set(backup: &mut VirtualMachineBackup, outcome: &Outcome) {
    let error = BackupError { message: Some("no room".to_owned()), time: None };
    backup.status = match outcome {
        Outcome::Open => None,
        Outcome::Ready => Some(VirtualMachineBackupStatus { ready_to_use: Some(true), ..Default::default() }),
        Outcome::Failed => {
            Some(VirtualMachineBackupStatus { ready_to_use: Some(false), error: Some(error), ..Default::default() })
        }
    };
}

#[test]
fn backups_are_made_in_their_minute_and_the_oldest_go() {
    let mut it = Simulated::new("*/15 * * * *", "2026-11-16T12:00:30Z");
    it.go_on("2026-11-16T12:14:50Z");
    assert!(it.names().is_empty(), "a time before it was made does not count");
    it.go_on("2026-11-16T12:59:00Z");
    assert_eq!(it.names(), ["20261116.1215", "20261116.1230", "20261116.1245"]);
    let backup = &it.backups[0];
    assert_eq!(backup.metadata.name.as_deref(), Some("svmb-u-20261116.1215"));
    let label = |name: &str| backup.metadata.labels.as_ref().unwrap()[name].clone();
    assert_eq!((label(SCHEDULE_UID_LABEL), label(SCHEDULE_TIME_LABEL)), ("u".to_owned(), "20261116.1215".to_owned()));
    assert_eq!(backup.metadata.annotations.as_ref().unwrap()[SCHEDULE_ANNOTATION], "n/s");
    it.go_on("2026-11-16T13:31:00Z");
    assert_eq!(it.names(), ["20261116.1245", "20261116.1300", "20261116.1315", "20261116.1330"]);
    let status = it.schedule.status.clone().unwrap();
    assert_eq!((status.failure, status.suspended), (0, false));
    assert_eq!(status.backups.last().unwrap().ready_to_use, Some(true));
}

#[test]
fn what_was_missed_is_told_and_not_made_up_for() {
    let mut it = Simulated::new("0 * * * *", "2026-11-16T00:00:30Z");
    it.go_on("2026-11-16T01:30:00Z");
    assert_eq!(missed(&it.schedule, &it.runs(), last_made(&it.schedule), it.now), None);
    // The server is down for two times, and there again in time for a third.
    it.now = time("2026-11-16T03:40:00Z");
    let told = missed(&it.schedule, &it.runs(), last_made(&it.schedule), it.now);
    assert_eq!(told, Some(time("2026-11-16T02:00:00Z")));
    assert_eq!(it.look(), Step::Rest);
    it.set_clock("2026-11-16T04:00:59.9Z");
    assert_eq!(it.names(), ["20261116.0100", "20261116.0400"]);
    it.set_clock("2026-11-16T05:01:00Z");
    assert_eq!(it.names().len(), 2, "a minute late is too late");
    // Its user deletes them all: nothing was missed, and none is made again.
    let mut it = Simulated::new("0 * * * *", "2026-11-16T00:00:30Z");
    it.set_clock("2026-11-16T01:00:10Z");
    it.backups.clear();
    it.set_clock("2026-11-16T01:00:20Z");
    assert!(it.names().is_empty());
    assert_eq!(missed(&it.schedule, &it.runs(), last_made(&it.schedule), time("2026-11-16T01:59:00Z")), None);
}

#[test]
fn a_new_cron_has_missed_nothing() {
    let mut it = Simulated::new("0 0 1 * *", "2026-11-16T00:00:30Z");
    it.set_clock("2026-11-16T10:30:00Z");
    it.schedule.spec.cron = "0 * * * *".to_owned();
    assert_eq!(missed(&it.schedule, &it.runs(), None, it.now), None);
    it.look();
    assert_eq!(missed(&it.schedule, &it.runs(), None, it.now), None);
    // From then on, it has.
    let told = missed(&it.schedule, &it.runs(), None, time("2026-11-16T11:01:00Z"));
    assert_eq!(told, Some(time("2026-11-16T11:00:00Z")));
}

#[test]
fn one_waits_for_the_one_before_a_minute_at_the_most() {
    let mut it = Simulated::new("*/5 * * * *", "2026-11-16T12:00:30Z");
    it.outcome = Outcome::Open;
    it.go_on("2026-11-16T12:09:00Z");
    it.now = time("2026-11-16T12:10:05Z");
    let (at, behind) = (time("2026-11-16T12:10:00Z"), "svmb-u-20261116.1205".to_owned());
    assert_eq!(it.look(), Step::Wait { at, behind });
    it.finish(&Outcome::Ready);
    it.set_clock("2026-11-16T12:10:40Z");
    assert_eq!(it.names(), ["20261116.1205", "20261116.1210"]);
    // This one takes longer than until the next, and that is left out.
    it.go_on("2026-11-16T12:17:00Z");
    it.finish(&Outcome::Ready);
    it.go_on("2026-11-16T12:21:00Z");
    assert_eq!(it.names(), ["20261116.1205", "20261116.1210", "20261116.1220"]);
}

#[test]
fn after_too_many_failures_it_rests_until_it_is_resumed() {
    let mut it = Simulated::new("*/10 * * * *", "2026-11-16T12:00:30Z");
    it.go_on("2026-11-16T12:11:00Z");
    it.outcome = Outcome::Failed;
    it.go_on("2026-11-16T12:31:00Z");
    let status = it.schedule.status.clone().unwrap();
    assert_eq!((status.failure, status.suspended), (2, false));
    assert_eq!(status.backups[1].error.as_ref().unwrap().message.as_deref(), Some("no room"));
    it.go_on("2026-11-16T13:31:00Z");
    assert_eq!(it.names(), ["20261116.1210", "20261116.1220", "20261116.1230"]);
    assert!(it.schedule.spec.suspend && it.schedule.status.as_ref().unwrap().suspended);
    assert_eq!(it.condition(), ("True".to_owned(), REACH_MAX_FAILURE.to_owned()));

    // Resumed by its user: what failed goes, what is good stays.
    it.outcome = Outcome::Ready;
    it.schedule.spec.suspend = false;
    assert!(matches!(it.look(), Step::Clear(failed) if failed.len() == 2));
    assert_eq!(it.look(), Step::Resume);
    assert_eq!(it.condition(), ("False".to_owned(), String::new()));
    assert_eq!(missed(&it.schedule, &it.runs(), last_made(&it.schedule), it.now), None, "it was asleep");
    it.go_on("2026-11-16T13:41:00Z");
    assert_eq!(it.names(), ["20261116.1210", "20261116.1340"]);
    assert_eq!(it.schedule.status.as_ref().unwrap().failure, 0);
}

#[test]
fn what_is_suspended_makes_nothing_until_it_is_resumed() {
    let mut it = Simulated::new("* * * * *", "2026-11-16T12:00:30Z");
    it.schedule.spec.suspend = true;
    it.look();
    assert_eq!(it.condition(), ("True".to_owned(), PROACTIVE_SUSPEND.to_owned()));
    it.go_on("2026-11-16T12:30:00Z");
    assert!(it.names().is_empty());
    it.schedule.spec.suspend = false;
    it.go_on("2026-11-16T12:31:10Z");
    assert_eq!(it.names().last(), Some(&"20261116.1231"));
}

#[test]
fn a_success_ends_a_row_of_failures_and_what_failed_goes_first() {
    let mut it = Simulated::new("*/10 * * * *", "2026-11-16T12:00:30Z");
    it.schedule.spec.retain = 3;
    it.go_on("2026-11-16T12:21:00Z");
    it.outcome = Outcome::Failed;
    it.go_on("2026-11-16T12:31:00Z");
    it.outcome = Outcome::Ready;
    it.go_on("2026-11-16T12:41:00Z");
    assert_eq!(it.names(), ["20261116.1210", "20261116.1220", "20261116.1240"], "the failed one went");
    // While the last one is not there, nothing goes.
    it.outcome = Outcome::Failed;
    it.go_on("2026-11-16T12:51:00Z");
    assert_eq!(it.names().len(), 4);
    assert_eq!(it.schedule.status.as_ref().unwrap().failure, 1);
}

#[test]
fn the_clock_may_be_set() {
    let mut it = Simulated::new("*/10 * * * *", "2026-11-16T12:00:30Z");
    it.go_on("2026-11-16T12:41:00Z");
    assert_eq!(it.names(), ["20261116.1210", "20261116.1220", "20261116.1230", "20261116.1240"]);
    // Back: what is there is not made again.
    it.set_clock("2026-11-16T12:20:20Z");
    it.set_clock("2026-11-16T12:15:00Z");
    assert_eq!(it.names().len(), 4);
    // The schedule itself is of a time to come.
    it.set_clock("2026-11-16T11:49:50Z");
    it.go_on("2026-11-16T11:51:00Z");
    assert_eq!(it.names(), ["20261116.1220", "20261116.1230", "20261116.1240", "20261116.1150"]);
    // Far back, as after a clock that was years ahead.
    let mut it = Simulated::new("*/10 * * * *", "2026-11-16T12:00:30Z");
    it.now = time("2031-01-01T00:00:00Z");
    it.go_on("2031-01-01T00:35:00Z");
    assert_eq!(it.names().len(), 4);
    it.now = time("2026-11-16T13:00:30Z");
    it.look();
    it.go_on("2026-11-16T13:11:00Z");
    assert_eq!(it.names().last(), Some(&"20261116.1310"), "{:?}", it.names());
    it.go_on("2026-11-16T13:31:00Z");
    assert_eq!(it.names(), ["20261116.1300", "20261116.1310", "20261116.1320", "20261116.1330"], "those of 2031 went");
    // Forth: one time at the most.
    it.set_clock("2026-11-18T09:20:30Z");
    it.set_clock("2026-11-18T09:20:50Z");
    assert_eq!(it.names().last(), Some(&"20261118.0920"));
    assert_eq!(it.names().len(), 4);
}

#[test]
fn others_are_not_its_own() {
    let mut it = Simulated::new("* * * * *", "2026-11-16T12:00:30Z");
    let mut other = it.schedule.clone();
    other.metadata.uid = Some("v".to_owned());
    it.backups.push(Arc::new(backup(&other, time("2026-11-16T12:01:00Z"))));
    other.metadata.uid = Some("u".to_owned());
    other.metadata.namespace = Some("elsewhere".to_owned());
    it.backups.push(Arc::new(backup(&other, time("2026-11-16T12:01:00Z"))));
    it.set_clock("2026-11-16T12:01:10Z");
    assert_eq!(it.backups.len(), 3);
    assert_eq!(it.schedule.status.as_ref().unwrap().backups.len(), 1);
    // A time that cannot be read is the oldest.
    let mut odd = backup(&it.schedule, it.now);
    odd.metadata.labels.as_mut().unwrap().insert(SCHEDULE_TIME_LABEL.to_owned(), "soon".to_owned());
    it.backups.push(Arc::new(odd));
    assert!(it.runs().0[0].metadata.labels.as_ref().unwrap()[SCHEDULE_TIME_LABEL] == "soon");
}

#[test]
fn what_never_fires_does_nothing() {
    assert_eq!(stamp(time("2026-01-02T03:04:00Z")), "20260102.0304");
    for text in ["bad", "0 0 30 2 *"] {
        let it = Simulated::new(text, "2026-11-16T12:00:00Z");
        assert_eq!(due(&it.schedule, time("2026-11-16T13:00:00Z")), None);
        assert_eq!(missed(&it.schedule, &it.runs(), None, time("2026-12-16T13:00:00Z")), None);
    }
}
