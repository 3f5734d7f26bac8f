use croft_api::longhorn::RecurringJobSpec;
use croft_api::snapshot::{SnapshotError, VolumeSnapshotStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};
use serde_json::json;

use super::*;

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn job(cron: &str, retain: i64) -> RecurringJob {
    let metadata = ObjectMeta {
        name: Some("hourly".to_owned()),
        creation_timestamp: Some(Time(at("2026-11-16T10:00:30Z"))),
        ..ObjectMeta::default()
    };
    let spec = RecurringJobSpec { cron: cron.to_owned(), retain, concurrency: 1, ..RecurringJobSpec::default() };
    RecurringJob { metadata, spec, status: None }
}

fn claim(name: &str, created: &str) -> Arc<PersistentVolumeClaim> {
    let claim = json!({"metadata": {"name": name, "namespace": "n", "creationTimestamp": created},
        "status": {"phase": "Bound"}});
    Arc::new(serde_json::from_value(claim).unwrap())
}

fn made(job: &RecurringJob, claim: &PersistentVolumeClaim, time: &str, is_ready: Option<bool>) -> Arc<VolumeSnapshot> {
    let mut made = snapshot(job, claim, "class".to_owned(), at(time));
    let error = (is_ready == Some(false)).then(|| SnapshotError { message: Some("no room".to_owned()), time: None });
    made.status = is_ready.map(|is_ready| VolumeSnapshotStatus {
        ready_to_use: Some(is_ready),
        creation_time: Some(Time(at(time))),
        error,
        ..VolumeSnapshotStatus::default()
    });
    Arc::new(made)
}

fn names(snapshots: &[Arc<VolumeSnapshot>]) -> Vec<String> {
    snapshots.iter().map(|one| one.name_any()).collect()
}

#[test]
fn a_run_begins_once_in_its_minute_and_is_open_until_it_is_done() {
    let mut job = job("0 * * * *", 2);
    assert!(!begin(&mut job, at("2026-11-16T10:00:40Z")), "it was made after that minute had begun");
    assert!(!begin(&mut job, at("2026-11-16T10:59:59Z")));
    assert!(begin(&mut job, at("2026-11-16T11:00:20Z")));
    assert!(!begin(&mut job, at("2026-11-16T11:00:40Z")), "not twice");
    assert_eq!((open_run(&job), job.status.as_ref().unwrap().execution_count), (Some(at("2026-11-16T11:00:00Z")), 1));
    complete(&mut job, at("2026-11-16T11:00:00Z"));
    assert_eq!(open_run(&job), None);
    assert!(begin(&mut job, at("2026-11-16T12:00:00Z")));
    assert_eq!(open_run(&job), Some(at("2026-11-16T12:00:00Z")));
}

#[test]
fn each_volume_is_kept_once_in_a_run() {
    let job = job("0 * * * *", 2);
    let claims =
        [claim("a", "2026-11-16T10:00:00Z"), claim("b", "2026-11-16T10:00:00Z"), claim("late", "2026-11-16T11:30:00Z")];
    let run = "2026-11-16T11:00:00Z";
    let none = left(&job, &claims, &[], at(run));
    assert_eq!((none.to_make.len(), none.open), (2, 0), "one came too late");
    let open = [made(&job, &claims[0], run, None)];
    assert_eq!(open[0].name_any(), "hourly-20261116.1100-a");
    let one = left(&job, &claims, &open, at(run));
    assert_eq!((one.to_make.len(), one.open), (1, 1));
    // What failed keeps nobody waiting.
    let over = [made(&job, &claims[0], run, Some(false)), made(&job, &claims[1], run, Some(true))];
    let none = left(&job, &claims, &over, at(run));
    assert_eq!((none.to_make.len(), none.open), (0, 0));
}

#[test]
fn the_oldest_go_when_the_newest_is_there() {
    let mut job = job("0 * * * *", 2);
    let (a, b) = (claim("a", "2026-11-16T10:00:00Z"), claim("b", "2026-11-16T10:00:00Z"));
    let hour = |hour: u8| format!("2026-11-16T{hour:02}:00:00Z");
    let mut all = vec![
        made(&job, &a, &hour(11), Some(true)),
        made(&job, &a, &hour(12), Some(false)),
        made(&job, &a, &hour(13), Some(true)),
        made(&job, &a, &hour(14), None),
        made(&job, &b, &hour(11), Some(true)),
    ];
    let now = at("2026-11-16T14:30:00Z");
    assert_eq!(names(&outlived(&job, &all, now)), ["hourly-20261116.1200-a"], "what failed before one that is there");
    all[3] = made(&job, &a, &hour(14), Some(true));
    let gone = names(&outlived(&job, &all, now));
    assert_eq!(gone, ["hourly-20261116.1200-a", "hourly-20261116.1100-a"]);
    job.spec.retention_policy = "age-based".to_owned();
    job.spec.retain_age = "2h".to_owned();
    assert_eq!(names(&outlived(&job, &all, now)), ["hourly-20261116.1200-a", "hourly-20261116.1100-a"]);
    job.spec.retain_age = "nonsense".to_owned();
    assert_eq!(outlived(&job, &all, now).len(), 1, "only what failed");
    // Another job's are none of its business.
    let other =
        RecurringJob { metadata: ObjectMeta { name: Some("other".to_owned()), ..ObjectMeta::default() }, ..job };
    assert!(outlived(&other, &all, now).is_empty());
}

#[test]
fn deleting_spares_what_belongs_to_something_else() {
    let job = job("0 * * * *", 1);
    let a = claim("a", "2026-11-16T10:00:00Z");
    let owned = |mut one: VolumeSnapshot| {
        one.metadata.owner_references = Some(vec![OwnerReference::default()]);
        Arc::new(one)
    };
    let sent = |mut one: VolumeSnapshot| {
        one.spec.volume_snapshot_class_name = Some("longhorn".to_owned());
        Arc::new(one)
    };
    let ready = |time: &str| made(&job, &a, time, Some(true));
    let all = [
        owned(ready("2026-11-16T11:00:00Z").as_ref().clone()),
        sent(ready("2026-11-16T11:01:00Z").as_ref().clone()),
        ready("2026-11-16T13:00:00Z"),
        ready("2026-11-16T12:00:00Z"),
    ];
    let class = |_: &PersistentVolumeClaim| Some("class".to_owned());
    assert_eq!(names(&beyond(&job, &[a], &all, class)), ["hourly-20261116.1200-a"]);
}
