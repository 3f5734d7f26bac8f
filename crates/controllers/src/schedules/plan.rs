//! What a schedule does next, from what is there and what time it is.

use std::collections::BTreeMap;
use std::sync::Arc;

use croft_api::cron::Cron;
use croft_api::harvester::{
    BACKUP_SUSPEND, BackupInfo, SCHEDULE_ANNOTATION, SCHEDULE_TIME_LABEL, SCHEDULE_UID_LABEL, ScheduleVMBackup,
    VirtualMachineBackup, VolumeBackupInfo, set_condition,
};
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use kube::api::ObjectMeta;

use crate::ticker::{minute, minute_after};

/// As Harvester writes them into names.
const TIME_FORMAT: &str = "%Y%m%d.%H%M";
/// The last time that a backup was made for: one that its user deletes is not made again.
const LAST_MADE: &str = "croft.io/last-scheduled-time";
/// Since when it follows its cron: what another would have fired at was not missed.
const FOLLOWED: &str = "croft.io/cron-followed-since";
const REACH_MAX_FAILURE: &str = "Reach Max Failure";
const PROACTIVE_SUSPEND: &str = "Proactive Schedule Suspend";

/// What to do now.
#[derive(Debug, PartialEq)]
pub(super) enum Step {
    /// The backup of this minute.
    Make(Timestamp),
    /// The one before is not done; this minute's is made if it is in time.
    Wait {
        at: Timestamp,
        behind: String,
    },
    Suspend {
        reason: &'static str,
        message: String,
    },
    /// What failed goes before it is resumed: it would count.
    Clear(Vec<Arc<VirtualMachineBackup>>),
    Resume,
    Rest,
}

pub(super) fn step(schedule: &ScheduleVMBackup, runs: &Runs, made: Option<Timestamp>, now: Timestamp) -> Step {
    let (failures, most) = (runs.failures(), schedule.spec.max_failure);
    match (schedule.spec.suspend, is_suspended(schedule)) {
        (true, false) => {
            return Step::Suspend { reason: PROACTIVE_SUSPEND, message: PROACTIVE_SUSPEND.to_owned() };
        }
        (true, true) => return Step::Rest,
        (false, true) if failures >= most => return Step::Clear(runs.failed()),
        (false, true) => return Step::Resume,
        (false, false) => {}
    }
    let Some(at) = due(schedule, now).filter(|at| made != Some(*at) && !runs.has(*at)) else { return Step::Rest };
    if failures >= most {
        let message = format!("failure backups {failures} reach max tolerance {most}");
        return Step::Suspend { reason: REACH_MAX_FAILURE, message };
    }
    match runs.0.last().filter(|last| outcome(last) == Outcome::Open) {
        Some(last) => Step::Wait { at, behind: last.metadata.name.clone().unwrap_or_default() },
        None => Step::Make(at),
    }
}

/// This minute, if it fires in it: a time that has passed for longer is left out.
pub(super) fn due(schedule: &ScheduleVMBackup, now: Timestamp) -> Option<Timestamp> {
    let is_awake = !schedule.spec.suspend && !is_suspended(schedule);
    let (at, created) = (minute(now), created(schedule));
    // One that is yet to be made was made when the clock was ahead.
    let is_later = at >= created || created > minute_after(now);
    let cron = Cron::parse(&schedule.spec.cron)?;
    (is_awake && is_later && cron.fires_in(at)).then_some(at)
}

/// The first time that has passed without a backup, since the last one.
pub(super) fn missed(
    schedule: &ScheduleVMBackup,
    runs: &Runs,
    made: Option<Timestamp>,
    now: Timestamp,
) -> Option<Timestamp> {
    if schedule.spec.suspend || is_suspended(schedule) {
        return None;
    }
    let runs = runs.0.iter().filter_map(|run| time_of(run));
    let followed = match followed(schedule) {
        Some((cron, _)) if cron != schedule.spec.cron => return None,
        Some((_, since)) => Some(since),
        None => None,
    };
    let known = [Some(created(schedule)), resumed(schedule), followed, made].into_iter().flatten().chain(runs);
    let since = known.filter(|at| *at <= now).max()?;
    Cron::parse(&schedule.spec.cron)?.next_after(since).filter(|at| *at < minute(now))
}

pub(super) fn last_made(schedule: &ScheduleVMBackup) -> Option<Timestamp> {
    schedule.metadata.annotations.as_ref()?.get(LAST_MADE)?.parse().ok()
}

/// The cron that it was seen to follow, and since when.
fn followed(schedule: &ScheduleVMBackup) -> Option<(&str, Timestamp)> {
    let (since, cron) = schedule.metadata.annotations.as_ref()?.get(FOLLOWED)?.split_once(' ')?;
    Some((cron, since.parse().ok()?))
}

fn is_suspended(schedule: &ScheduleVMBackup) -> bool {
    schedule.status.as_ref().is_some_and(|status| status.suspended)
}

/// Everything is due after an object that does not say when it was made.
fn created(schedule: &ScheduleVMBackup) -> Timestamp {
    schedule.metadata.creation_timestamp.as_ref().map_or(Timestamp::MIN, |time| time.0)
}

fn resumed(schedule: &ScheduleVMBackup) -> Option<Timestamp> {
    let conditions = &schedule.status.as_ref()?.conditions;
    let suspend = conditions.iter().find(|condition| condition.type_ == BACKUP_SUSPEND)?;
    suspend.last_transition_time.as_ref()?.parse().ok()
}

/// The backup of this time.
pub(super) fn backup(schedule: &ScheduleVMBackup, at: Timestamp) -> VirtualMachineBackup {
    let (uid, time) = (schedule.metadata.uid.clone().unwrap_or_default(), stamp(at));
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    let id = format!("{}/{}", text(&schedule.metadata.namespace), text(&schedule.metadata.name));
    let metadata = ObjectMeta {
        name: Some(format!("svmb-{uid}-{time}")),
        namespace: schedule.metadata.namespace.clone(),
        annotations: Some(BTreeMap::from([(SCHEDULE_ANNOTATION.to_owned(), id)])),
        labels: Some(BTreeMap::from([(SCHEDULE_UID_LABEL.to_owned(), uid), (SCHEDULE_TIME_LABEL.to_owned(), time)])),
        ..ObjectMeta::default()
    };
    VirtualMachineBackup { metadata, spec: schedule.spec.backup.clone(), status: None }
}

fn stamp(at: Timestamp) -> String {
    at.strftime(TIME_FORMAT).to_string()
}

fn time_of(backup: &VirtualMachineBackup) -> Option<Timestamp> {
    let text = backup.metadata.labels.as_ref()?.get(SCHEDULE_TIME_LABEL)?;
    TimeZone::UTC.to_timestamp(DateTime::strptime(TIME_FORMAT, text).ok()?).ok()
}

#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Open,
    Ready,
    Failed,
}

fn outcome(backup: &VirtualMachineBackup) -> Outcome {
    let Some(status) = &backup.status else { return Outcome::Open };
    match (status.ready_to_use, &status.error) {
        (Some(true), _) => Outcome::Ready,
        (_, Some(_)) => Outcome::Failed,
        (_, None) => Outcome::Open,
    }
}

/// The backups that a schedule made and that stay, in the order that they were made.
#[derive(Debug)]
pub(super) struct Runs(Vec<Arc<VirtualMachineBackup>>);

impl Runs {
    pub(super) fn of(schedule: &ScheduleVMBackup, backups: &[Arc<VirtualMachineBackup>], now: Timestamp) -> Self {
        let is_its = |backup: &&Arc<VirtualMachineBackup>| {
            let uid = backup.metadata.labels.as_ref().and_then(|labels| labels.get(SCHEDULE_UID_LABEL));
            uid.is_some()
                && uid == schedule.metadata.uid.as_ref()
                && backup.metadata.namespace == schedule.metadata.namespace
                && backup.metadata.deletion_timestamp.is_none()
        };
        let mut runs: Vec<_> = backups.iter().filter(is_its).cloned().collect();
        // The clock was ahead when those of the future were made: all others came after them.
        let latest = minute_after(now);
        runs.sort_by_key(|run| {
            let at = time_of(run).unwrap_or(Timestamp::MIN);
            (at <= latest, at)
        });
        Self(runs)
    }

    fn has(&self, at: Timestamp) -> bool {
        self.0.iter().any(|run| time_of(run) == Some(at))
    }

    fn failed(&self) -> Vec<Arc<VirtualMachineBackup>> {
        self.0.iter().filter(|run| outcome(run) == Outcome::Failed).cloned().collect()
    }

    /// In a row, up to now.
    fn failures(&self) -> i64 {
        self.0.iter().fold(0, |count, run| match outcome(run) {
            Outcome::Ready => 0,
            Outcome::Failed => count + 1,
            Outcome::Open => count,
        })
    }

    /// Those that go once the last one is there: what failed first, then the oldest.
    pub(super) fn surplus(&self, retain: i64) -> Vec<Arc<VirtualMachineBackup>> {
        if self.0.last().is_none_or(|last| outcome(last) != Outcome::Ready) {
            return Vec::new();
        }
        // Whatever is asked for, the last one stays.
        let retain = usize::try_from(retain).unwrap_or_default().max(1);
        let others = self.0.iter().filter(|run| outcome(run) != Outcome::Failed).cloned();
        self.failed().into_iter().chain(others).take(self.0.len().saturating_sub(retain)).collect()
    }
}

/// What is said of the backups.
pub(super) fn tell(schedule: &mut ScheduleVMBackup, runs: &Runs, made: Option<Timestamp>, now: Timestamp) {
    let is_followed = followed(schedule).is_some_and(|(cron, _)| cron == schedule.spec.cron);
    let cron = schedule.spec.cron.clone();
    let annotations = schedule.metadata.annotations.get_or_insert_default();
    if !is_followed {
        annotations.insert(FOLLOWED.to_owned(), format!("{now:.0} {cron}"));
    }
    if let Some(made) = made {
        annotations.insert(LAST_MADE.to_owned(), made.to_string());
    }
    let status = schedule.status.get_or_insert_default();
    status.failure = runs.failures();
    status.backups = runs.0.iter().map(|run| info(run)).collect();
}

fn info(backup: &VirtualMachineBackup) -> BackupInfo {
    let name = backup.metadata.name.clone().unwrap_or_default();
    let Some(status) = &backup.status else { return BackupInfo { name, ..BackupInfo::default() } };
    let volumes = status.volume_backups.iter().map(|volume| VolumeBackupInfo {
        name: volume.name.clone(),
        ready_to_use: volume.ready_to_use,
        error: volume.error.clone(),
    });
    BackupInfo { name, ready_to_use: status.ready_to_use, error: status.error.clone(), volumes: volumes.collect() }
}

pub(super) fn suspend(schedule: &mut ScheduleVMBackup, reason: &str, message: &str, now: Timestamp) {
    schedule.spec.suspend = true;
    let status = schedule.status.get_or_insert_default();
    status.suspended = true;
    set_condition(&mut status.conditions, BACKUP_SUSPEND, true, (reason, message), now);
}

pub(super) fn resume(schedule: &mut ScheduleVMBackup, now: Timestamp) {
    let status = schedule.status.get_or_insert_default();
    status.suspended = false;
    set_condition(&mut status.conditions, BACKUP_SUSPEND, false, ("", ""), now);
}

#[cfg(test)]
mod tests;
