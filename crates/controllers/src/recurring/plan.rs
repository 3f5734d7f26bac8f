//! What a recurring job does next, from what is there and what time it is.

use std::collections::BTreeMap;
use std::sync::Arc;

use croft_api::cron::Cron;
use croft_api::longhorn::{MADE_BY_LABEL, RecurringJob, TIME_LABEL};
use croft_api::snapshot::{VolumeSnapshot, VolumeSnapshotSource, VolumeSnapshotSpec};
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::ResourceExt;
use kube::api::ObjectMeta;

use crate::backups::milliseconds;
use crate::ticker::minute;

const TIME_FORMAT: &str = "%Y%m%d.%H%M";
/// The last time that it was begun at, and the last one that is done with.
const BEGUN: &str = "croft.io/last-scheduled-time";
const DONE: &str = "croft.io/last-completed-time";
/// Names of objects are no longer.
const LONGEST_NAME: usize = 253;

/// Whether it fires in this minute, and has not yet.
pub(super) fn is_due(job: &RecurringJob, now: Timestamp) -> bool {
    let created = job.metadata.creation_timestamp.as_ref().map_or(Timestamp::MIN, |time| time.0);
    let fires = Cron::parse(&job.spec.cron).is_some_and(|cron| cron.fires_in(now));
    fires && minute(now) >= created && time(job, BEGUN) != Some(minute(now))
}

/// Whether it has begun.
pub(super) fn begin(job: &mut RecurringJob, now: Timestamp) -> bool {
    if !is_due(job, now) {
        return false;
    }
    job.annotations_mut().insert(BEGUN.to_owned(), minute(now).to_string());
    job.status.get_or_insert_default().execution_count += 1;
    true
}

pub(super) fn complete(job: &mut RecurringJob, at: Timestamp) {
    job.annotations_mut().insert(DONE.to_owned(), at.to_string());
}

/// The run that is not done.
pub(super) fn open_run(job: &RecurringJob) -> Option<Timestamp> {
    time(job, BEGUN).filter(|begun| time(job, DONE) != Some(*begun))
}

fn time(job: &RecurringJob, annotation: &str) -> Option<Timestamp> {
    job.annotations().get(annotation)?.parse().ok()
}

/// It has a volume, and is to stay.
pub(super) fn can_be_kept(claim: &PersistentVolumeClaim) -> bool {
    let is_bound = claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Bound");
    is_bound && claim.metadata.deletion_timestamp.is_none()
}

/// What is left of a run.
#[derive(Debug, Default)]
pub(super) struct Left {
    pub(super) to_make: Vec<Arc<PersistentVolumeClaim>>,
    /// Made, and neither ready nor failed.
    pub(super) open: usize,
}

pub(super) fn left(
    job: &RecurringJob,
    claims: &[Arc<PersistentVolumeClaim>],
    snapshots: &[Arc<VolumeSnapshot>],
    at: Timestamp,
) -> Left {
    let mut left = Left::default();
    for claim in claims {
        let name = name(job, claim, at);
        let made = snapshots.iter().find(|one| one.namespace() == claim.namespace() && one.name_any() == name);
        match made {
            None => {
                let created = claim.metadata.creation_timestamp.as_ref().map_or(Timestamp::MIN, |time| time.0);
                // One that came later has its turn the next time.
                if created <= at.saturating_add(SignedDuration::from_secs(59)).unwrap_or(at) {
                    left.to_make.push(Arc::clone(claim));
                }
            }
            Some(made) => left.open += usize::from(!made.is_ready() && made.error().is_none()),
        }
    }
    left
}

fn stamp(at: Timestamp) -> String {
    at.strftime(TIME_FORMAT).to_string()
}

fn name(job: &RecurringJob, claim: &PersistentVolumeClaim, at: Timestamp) -> String {
    let mut name = format!("{}-{}-{}", job.name_any(), stamp(at), claim.name_any());
    name.truncate(LONGEST_NAME);
    name.trim_end_matches(['-', '.']).to_owned()
}

pub(super) fn snapshot(
    job: &RecurringJob,
    claim: &PersistentVolumeClaim,
    class: String,
    at: Timestamp,
) -> VolumeSnapshot {
    let mut labels: BTreeMap<String, String> = job.spec.labels.clone();
    labels.insert(MADE_BY_LABEL.to_owned(), job.name_any());
    labels.insert(TIME_LABEL.to_owned(), stamp(at));
    VolumeSnapshot {
        metadata: ObjectMeta {
            name: Some(name(job, claim, at)),
            namespace: claim.namespace(),
            labels: Some(labels),
            ..ObjectMeta::default()
        },
        spec: VolumeSnapshotSpec {
            source: VolumeSnapshotSource {
                persistent_volume_claim_name: claim.metadata.name.clone(),
                ..VolumeSnapshotSource::default()
            },
            volume_snapshot_class_name: Some(class),
        },
        status: None,
    }
}

/// The claim that it is of.
fn volume_of(snapshot: &VolumeSnapshot) -> Option<(Option<String>, String)> {
    Some((snapshot.namespace(), snapshot.spec.source.persistent_volume_claim_name.clone()?))
}

fn made_at(snapshot: &VolumeSnapshot) -> Option<Timestamp> {
    let text = snapshot.labels().get(TIME_LABEL)?;
    TimeZone::UTC.to_timestamp(DateTime::strptime(TIME_FORMAT, text).ok()?).ok()
}

/// What a job made and does not keep: what failed before the last, and what is beyond its number or its age once a newer one is there.
pub(super) fn outlived(job: &RecurringJob, all: &[Arc<VolumeSnapshot>], now: Timestamp) -> Vec<Arc<VolumeSnapshot>> {
    let mut of_volumes: BTreeMap<_, Vec<(Timestamp, &Arc<VolumeSnapshot>)>> = BTreeMap::new();
    for snapshot in all {
        let is_its = snapshot.labels().get(MADE_BY_LABEL) == Some(&job.name_any())
            && snapshot.metadata.deletion_timestamp.is_none();
        if let (true, Some(volume), Some(at)) = (is_its, volume_of(snapshot), made_at(snapshot)) {
            of_volumes.entry(volume).or_default().push((at, snapshot));
        }
    }
    let mut gone = Vec::new();
    for made in of_volumes.values_mut() {
        made.sort_by_key(|(at, _)| *at);
        // Of what failed only the last is of interest.
        let before = made.iter().rev().skip(1).filter(|(_, one)| !one.is_ready() && one.error().is_some());
        gone.extend(before.map(|(_, one)| Arc::clone(one)));
        let Some(newest) = made.iter().rposition(|(_, one)| one.is_ready()) else { continue };
        let ready: Vec<_> = made[..newest].iter().filter(|(_, one)| one.is_ready()).collect();
        let kept = match age(job) {
            Some(age) => ready.iter().filter(|(at, _)| now.duration_since(*at) <= age).count(),
            // The newest counts.
            None => usize::try_from(job.spec.retain).unwrap_or_default().saturating_sub(1),
        };
        let surplus = ready.len().saturating_sub(kept);
        gone.extend(ready.iter().take(surplus).map(|(_, one)| Arc::clone(one)));
    }
    gone
}

fn age(job: &RecurringJob) -> Option<SignedDuration> {
    if job.spec.retention_policy != "age-based" {
        return None;
    }
    // What cannot be read keeps everything.
    let age = milliseconds(&job.spec.retain_age).and_then(|age| i64::try_from(age).ok());
    Some(age.map_or(SignedDuration::MAX, SignedDuration::from_millis))
}

/// All snapshots of these volumes but the newest, whoever made them; those that belong to something else stay with it.
pub(super) fn beyond(
    job: &RecurringJob,
    claims: &[Arc<PersistentVolumeClaim>],
    all: &[Arc<VolumeSnapshot>],
    class_for: impl Fn(&PersistentVolumeClaim) -> Option<String>,
) -> Vec<Arc<VolumeSnapshot>> {
    let retain = usize::try_from(job.spec.retain).unwrap_or_default();
    let mut gone = Vec::new();
    for claim in claims {
        // Of another class are those that went to the target.
        let class = class_for(claim);
        let is_its = |one: &&Arc<VolumeSnapshot>| {
            (one.spec.volume_snapshot_class_name.is_none() || one.spec.volume_snapshot_class_name == class)
                && volume_of(one) == Some((claim.namespace(), claim.name_any()))
                && one.is_ready()
                && one.owner_references().is_empty()
                && one.metadata.deletion_timestamp.is_none()
        };
        let mut its: Vec<_> = all.iter().filter(is_its).cloned().collect();
        its.sort_by_key(|one| one.status.as_ref().and_then(|status| status.creation_time.as_ref().map(|time| time.0)));
        its.truncate(its.len().saturating_sub(retain));
        gone.extend(its);
    }
    gone
}

#[cfg(test)]
mod tests;
