//! What an image's status says, step by step, in Harvester's words. Nothing here does anything.

use std::time::Duration;

use croft_api::harvester::{Condition, VirtualMachineImageStatus};
use jiff::Timestamp;

const INITIALIZED: &str = "Initialized";
const IMPORTED: &str = "Imported";
const RETRY_LIMIT_EXCEEDED: &str = "RetryLimitExceeded";
const FILE_MISSING: &str = "BackingImageMissing";

const FIRST_PAUSE: Duration = Duration::from_secs(5);
const LONGEST_PAUSE: Duration = Duration::from_mins(2);
/// A condition is no place for a novel.
const LONGEST_MESSAGE: usize = 1024;

fn condition<'a>(status: &'a VirtualMachineImageStatus, type_: &str) -> Option<&'a Condition> {
    status.conditions.iter().find(|condition| condition.type_ == type_)
}

fn is(status: &VirtualMachineImageStatus, type_: &str, value: &str) -> bool {
    condition(status, type_).is_some_and(|condition| condition.status == value)
}

pub(super) fn is_initialized(status: &VirtualMachineImageStatus) -> bool {
    is(status, INITIALIZED, "True")
}

pub(super) fn is_imported(status: &VirtualMachineImageStatus) -> bool {
    is(status, IMPORTED, "True")
}

/// Done, or given up.
pub(super) fn is_final(status: &VirtualMachineImageStatus) -> bool {
    is_imported(status) || is(status, IMPORTED, "False") || is(status, RETRY_LIMIT_EXCEEDED, "True")
}

pub(super) fn initialized(status: &mut VirtualMachineImageStatus, class: &str, url: Option<&str>, now: Timestamp) {
    status.storage_class_name = Some(class.to_owned());
    status.applied_url = url.filter(|url| !url.is_empty()).map(str::to_owned);
    status.progress = Some(0);
    status.failed = Some(status.failed.unwrap_or_default());
    set(status, INITIALIZED, "True", "Initialized", "", now);
    set(status, IMPORTED, "Unknown", "Importing", "", now);
}

/// 100 is said only when it is done.
pub(super) fn percent(done: u64, total: Option<u64>) -> i32 {
    let Some(total) = total.filter(|total| *total > 0) else { return 0 };
    i32::try_from(done.saturating_mul(100) / total).unwrap_or(99).min(99)
}

/// `length` is that of the file: what guests see.
pub(super) fn imported(status: &mut VirtualMachineImageStatus, length: u64, now: Timestamp) {
    let length = i64::try_from(length).unwrap_or(i64::MAX);
    status.progress = Some(100);
    status.virtual_size = Some(length);
    status.size = status.size.filter(|size| *size > 0).or(Some(length));
    set(status, IMPORTED, "True", "Imported", "", now);
    set(status, RETRY_LIMIT_EXCEEDED, "False", "", "", now);
}

/// True if that was the last try.
pub(super) fn failed(
    status: &mut VirtualMachineImageStatus,
    retry: i32,
    error: &str,
    may_pass: bool,
    now: Timestamp,
) -> bool {
    let failed = status.failed.unwrap_or_default().saturating_add(1);
    status.failed = Some(failed);
    status.last_failed_time = Some(text(now));
    status.progress = Some(0);
    let is_over = failed > retry || !may_pass;
    let message = format!("[retry attempted {}/{retry}] failed due to error: {error}", (failed - 1).min(retry));
    if is_over {
        set(status, RETRY_LIMIT_EXCEEDED, "True", "RetryLimitExceeded", &message, now);
        set(status, IMPORTED, "False", "ImportFailed", &message, now);
    } else {
        set(status, RETRY_LIMIT_EXCEEDED, "False", "", &message, now);
    }
    is_over
}

pub(super) fn uploading(status: &mut VirtualMachineImageStatus, size: Option<u64>, now: Timestamp) {
    status.progress = Some(0);
    status.size = size.and_then(|size| i64::try_from(size).ok());
    set(status, IMPORTED, "Unknown", "Importing", "", now);
}

pub(super) fn upload_failed(status: &mut VirtualMachineImageStatus, error: &str, now: Timestamp) {
    status.failed = Some(status.failed.unwrap_or_default().saturating_add(1));
    status.last_failed_time = Some(text(now));
    status.progress = Some(0);
    set(status, IMPORTED, "False", "UploadFailed", error, now);
}

/// How long to wait before the next try.
pub(super) fn pause(status: &VirtualMachineImageStatus, now: Timestamp) -> Option<Duration> {
    let failed = u32::try_from(status.failed.unwrap_or_default()).ok().filter(|failed| *failed > 0)?;
    let last: Timestamp = status.last_failed_time.as_deref()?.parse().ok()?;
    let wait = FIRST_PAUSE.saturating_mul(2_u32.saturating_pow(failed - 1)).min(LONGEST_PAUSE);
    let waited = Duration::try_from(now.duration_since(last)).unwrap_or_default();
    wait.checked_sub(waited).filter(|rest| !rest.is_zero())
}

/// What is said of an image that is done is made to fit what is there.
pub(super) fn check(status: &mut VirtualMachineImageStatus, has_file: bool, now: Timestamp) {
    if !is_imported(status) {
        return;
    }
    status.progress = Some(100);
    if !has_file {
        set(status, FILE_MISSING, "True", "FileMissing", "the image's file is gone from the pool", now);
    } else if is(status, FILE_MISSING, "True") {
        set(status, FILE_MISSING, "False", "", "", now);
    }
}

fn set(status: &mut VirtualMachineImageStatus, type_: &str, value: &str, reason: &str, message: &str, now: Timestamp) {
    let message: String = message.chars().take(LONGEST_MESSAGE).collect();
    let given = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    let before = status.conditions.iter_mut().find(|condition| condition.type_ == type_);
    let unchanged = before.as_ref().filter(|it| it.status == value).and_then(|it| it.last_transition_time.clone());
    let condition = Condition {
        type_: type_.to_owned(),
        status: value.to_owned(),
        last_update_time: Some(text(now)),
        last_transition_time: unchanged.or_else(|| Some(text(now))),
        reason: given(reason),
        message: given(&message),
    };
    match before {
        Some(before) => *before = condition,
        None => status.conditions.push(condition),
    }
}

fn text(now: Timestamp) -> String {
    now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).unwrap()
    }

    fn message<'a>(status: &'a VirtualMachineImageStatus, type_: &str) -> (&'a str, &'a str) {
        let condition = condition(status, type_).unwrap();
        (&condition.status, condition.message.as_deref().unwrap_or_default())
    }

    #[test]
    fn an_import_that_fails_is_tried_as_often_as_wished_and_later_every_time() {
        let mut status = VirtualMachineImageStatus::default();
        initialized(&mut status, "longhorn-a", Some("http://a/"), at(0));
        assert!(!failed(&mut status, 2, "cannot reach it", true, at(0)));
        let expected = ("False", "[retry attempted 0/2] failed due to error: cannot reach it");
        assert_eq!(message(&status, RETRY_LIMIT_EXCEEDED), expected);
        assert_eq!(message(&status, IMPORTED).0, "Unknown");
        assert_eq!(pause(&status, at(1)), Some(Duration::from_secs(4)));
        assert_eq!(pause(&status, at(5)), None);
        assert!(!failed(&mut status, 2, "cannot reach it", true, at(5)));
        assert_eq!(pause(&status, at(5)), Some(Duration::from_secs(10)));
        assert!(failed(&mut status, 2, "cannot reach it", true, at(15)));
        let expected = "[retry attempted 2/2] failed due to error: cannot reach it";
        assert_eq!(message(&status, RETRY_LIMIT_EXCEEDED), ("True", expected));
        assert_eq!(message(&status, IMPORTED), ("False", expected));
        assert!(is_final(&status) && !is_imported(&status));
    }

    #[test]
    fn what_cannot_get_better_is_not_tried_again() {
        let mut status = VirtualMachineImageStatus::default();
        assert!(failed(&mut status, 3, "not an image", false, at(0)));
        assert!(is_final(&status));
    }

    #[test]
    fn what_is_done_says_so_and_a_lost_file_is_told() {
        let mut status = VirtualMachineImageStatus::default();
        initialized(&mut status, "longhorn-a", None, at(0));
        status.size = Some(5);
        imported(&mut status, 1024, at(9));
        assert_eq!((status.progress, status.size, status.virtual_size), (Some(100), Some(5), Some(1024)));
        check(&mut status, true, at(10));
        assert!(condition(&status, FILE_MISSING).is_none());
        check(&mut status, false, at(10));
        assert!(is(&status, FILE_MISSING, "True"));
    }

    #[test]
    fn a_hundred_percent_is_said_only_at_the_end() {
        for (done, total, expected) in
            [(0, Some(10), 0), (5, Some(10), 50), (10, Some(10), 99), (7, None, 0), (7, Some(0), 0)]
        {
            assert_eq!(percent(done, total), expected);
        }
    }
}
