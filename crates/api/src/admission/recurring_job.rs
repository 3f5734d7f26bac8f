//! Longhorn's RecurringJobs: what cannot be done, or never would be, is refused.

use croft_meta::{ApiError, FieldPath};

use super::Admission;
use super::denial::Denial;
use crate::cron::Cron;
use crate::longhorn::Task;
use crate::view::{get, has, number, text};

const LONGHORN: &str = "validator.longhorn.io";
/// Longhorn's own bound.
const MOST_RETAINED: i64 = 250;

pub(super) fn admit(admission: &mut Admission<'_>) -> Result<(), ApiError> {
    if has(admission.object, "metadata.deletionTimestamp") {
        return Ok(());
    }
    let is_same = admission.old.is_some_and(|old| get(old, "spec") == get(admission.object, "spec"));
    if is_same || !admission.subresource.is_empty() {
        return Ok(());
    }
    if !has(admission.object, "spec.concurrency") {
        admission.object["spec"]["concurrency"] = 1.into();
    }
    let job = &*admission.object;
    let mut denial = Denial::by(LONGHORN);
    let task = text(job, "spec.task");
    if let Err(why) = Task::parse(task) {
        denial.invalid(&FieldPath::new("spec.task"), format!("task {task:?} is not possible: {why}"));
    }
    if Cron::parse(text(job, "spec.cron")).is_none() {
        denial.invalid(&FieldPath::new("spec.cron"), "invalid cron format");
    }
    if number(job, "spec.concurrency") < 1 {
        denial.invalid(&FieldPath::new("spec.concurrency"), "concurrency must be at least 1");
    }
    let retain = number(job, "spec.retain");
    if text(job, "spec.retentionPolicy") == "age-based" {
        if text(job, "spec.retainAge").is_empty() {
            denial.required(&FieldPath::new("spec.retainAge"), "retainAge must say how long, as in 72h");
        }
    } else if !(1..=MOST_RETAINED).contains(&retain) {
        denial.invalid(&FieldPath::new("spec.retain"), format!("retain must be from 1 to {MOST_RETAINED}"));
    }
    denial.finish()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::testing::{nothing, write};
    use super::*;

    type Change = fn(&mut Value);

    fn job(change: impl FnOnce(&mut Value)) -> Result<Value, ApiError> {
        let mut job = json!({"metadata": {"name": "hourly", "namespace": "longhorn-system"},
            "spec": {"task": "snapshot", "cron": "0 * * * *", "retain": 3, "groups": ["default"]}});
        change(&mut job);
        write(admit, job, None, &nothing(), false)
    }

    #[test]
    fn what_would_never_be_done_is_refused() {
        assert_eq!(job(|_| {}).unwrap()["spec"]["concurrency"], 1);
        let refused: [(Change, &str); 5] = [
            (|job| job["spec"]["task"] = json!("filesystem-trim"), "fstrim"),
            (|job| job["spec"]["cron"] = json!("often"), "cron"),
            (|job| job["spec"]["retain"] = json!(0), "from 1 to 250"),
            (|job| job["spec"]["concurrency"] = json!(-1), "at least 1"),
            (|job| job["spec"]["retentionPolicy"] = json!("age-based"), "retainAge"),
        ];
        for (change, word) in refused {
            let error = job(change).unwrap_err();
            assert!(error.message().contains(word), "{word}: {}", error.message());
        }
    }
}
