//! What is done for the store beside the requests, one of each kind at a time.

use std::fmt::Write as _;
use std::sync::Arc;

use croft_meta::time::format_seconds;
use croft_meta::{ApiError, Chain};
use croft_store::contents::Pages;
use croft_store::{History, Store, sealed};
use jiff::Timestamp;
use parking_lot::Mutex;
use serde::Serialize;
use serde::de::IgnoredAny;
use serde_json::{Map, Value, json};

use crate::server::ApiServer;

/// More of them tell nothing new.
const MOST_PROBLEMS: usize = 100;

/// The last job of each kind, as long as the server runs.
#[derive(Debug, Default)]
pub(crate) struct StoreCare {
    defragmentation: Slot,
    check: Slot,
}

type Slot = Mutex<Jobs>;

#[derive(Debug, Default)]
struct Jobs {
    last: Option<Job>,
    done: u64,
    failed: u64,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Job {
    /// Of those since the server was started.
    number: u64,
    started: String,
    #[serde(skip)]
    since: Timestamp,
    /// `None` while it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    /// What came of it.
    #[serde(flatten)]
    found: Map<String, Value>,
}

impl StoreCare {
    pub(super) fn told(&self) -> Map<String, Value> {
        let slots = [("defragmentation", &self.defragmentation), ("check", &self.check)];
        // A job is text and numbers: it has JSON.
        let told = slots.map(|(name, slot)| (name.to_owned(), json!(slot.lock().last.clone())));
        told.into_iter().filter(|(_, job)| !job.is_null()).collect()
    }

    pub(super) fn tell(&self, text: &mut String) {
        let name = "croft_store_defragmentations";
        let jobs = self.defragmentation.lock();
        // Writing to a string does not fail.
        let _ = write!(
            text,
            "# HELP {name} Times that the store was defragmented on request.\n# TYPE {name} counter\n\
             {name}_total{{result=\"ok\"}} {}\n{name}_total{{result=\"failed\"}} {}\n",
            jobs.done, jobs.failed
        );
        if let Some(seconds) = jobs.last.as_ref().and_then(|job| job.seconds) {
            let name = "croft_store_last_defragmentation_seconds";
            let _ =
                write!(text, "# HELP {name} How long the last of them took.\n# TYPE {name} gauge\n{name} {seconds}\n");
        }
    }
}

/// Refuses a second one.
fn begin(slot: &Slot, what: &str) -> Result<(), ApiError> {
    let mut jobs = slot.lock();
    if jobs.last.as_ref().is_some_and(|job| job.seconds.is_none()) {
        return Err(ApiError::new(409, "Conflict", format!("the store is being {what} already; wait for its end")));
    }
    let since = Timestamp::now();
    jobs.last = Some(Job {
        number: jobs.done + jobs.failed + 1,
        started: format_seconds(since),
        since,
        seconds: None,
        error: None,
        found: Map::new(),
    });
    Ok(())
}

fn end(slot: &Slot, outcome: croft_store::Result<Map<String, Value>>) {
    let mut jobs = slot.lock();
    let Some(job) = &mut jobs.last else { return };
    job.seconds = Some(Timestamp::now().duration_since(job.since).as_secs_f64());
    match outcome {
        Ok(found) => {
            job.found = found;
            jobs.done += 1;
        }
        Err(error) => {
            job.error = Some(Chain(&error).to_string());
            jobs.failed += 1;
        }
    }
}

pub(super) fn defragment(server: &Arc<ApiServer>, history: History) -> Result<(), ApiError> {
    begin(&server.store_care.defragmentation, "defragmented")?;
    let (its, stop) = (Arc::clone(server), server.stopping());
    server.spawn(async move {
        let outcome = tokio::select! {
            outcome = defragmented(&*its.store, history) => outcome,
            () = stop.cancelled() => return,
        };
        if let Err(error) = &outcome {
            tracing::warn!(error = %Chain(error), "the store could not be defragmented");
        }
        end(&its.store_care.defragmentation, outcome);
    });
    Ok(())
}

async fn defragmented(store: &dyn Store, history: History) -> croft_store::Result<Map<String, Value>> {
    let before = store.status().await?.size_bytes;
    store.defragment(history).await?;
    let after = store.status().await?.size_bytes;
    tracing::info!(before_bytes = before, after_bytes = after, "the store was defragmented");
    Ok(Map::from_iter([("beforeBytes".to_owned(), json!(before)), ("afterBytes".to_owned(), json!(after))]))
}

pub(super) fn check(server: &Arc<ApiServer>) -> Result<(), ApiError> {
    begin(&server.store_care.check, "checked")?;
    let (its, stop) = (Arc::clone(server), server.stopping());
    server.spawn(async move {
        let outcome = tokio::select! {
            outcome = checked(&*its.store) => outcome,
            () = stop.cancelled() => return,
        };
        end(&its.store_care.check, outcome);
    });
    Ok(())
}

/// What the engine finds, and whether every object can be read.
async fn checked(store: &dyn Store) -> croft_store::Result<Map<String, Value>> {
    let mut problems = store.check().await?;
    let mut records = 0_u64;
    let mut pages = Pages::new(store, store.revision().await?);
    loop {
        let page = match pages.next().await {
            Ok(Some(page)) => page,
            Ok(None) => break,
            // Has been found above, with more words.
            Err(croft_store::Error::Corrupt { .. }) if !problems.is_empty() => break,
            Err(error) => return Err(error),
        };
        for record in &page {
            records += 1;
            if let Some(why) = fault(&record.value) {
                problems.push(format!("{}: {why}", record.key));
            }
        }
    }
    for problem in problems.iter().take(MOST_PROBLEMS) {
        tracing::error!(problem, "the store is damaged");
    }
    problems.truncate(MOST_PROBLEMS);
    Ok(Map::from_iter([("records".to_owned(), json!(records)), ("problems".to_owned(), json!(problems))]))
}

/// Why a value is no object.
fn fault(value: &[u8]) -> Option<String> {
    if let Some(why) = sealed::unreadable(value) {
        return Some(format!("it cannot be read: {why}"));
    }
    let parsed = serde_json::from_slice::<IgnoredAny>(value);
    parsed.err().map(|error| format!("it is no JSON: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_job_of_a_kind_runs_at_a_time() {
        let care = StoreCare::default();
        begin(&care.check, "checked").unwrap();
        let refused = begin(&care.check, "checked").unwrap_err();
        assert_eq!((refused.code(), refused.reason()), (409, "Conflict"));
        begin(&care.defragmentation, "defragmented").unwrap();
        assert_eq!(care.told()["check"]["seconds"], Value::Null);
        end(&care.check, Ok(Map::from_iter([("records".to_owned(), json!(3))])));
        assert_eq!((&care.told()["check"]["records"], &care.told()["check"]["number"]), (&json!(3), &json!(1)));
        begin(&care.check, "checked").unwrap();
        assert_eq!(care.told()["check"]["number"], 2);
        let reason = "full".to_owned();
        end(&care.defragmentation, Err(croft_store::Error::ReadOnly { reason }));
        assert_eq!(care.told()["defragmentation"]["error"], "the store is read-only: full");
        let mut text = String::new();
        care.tell(&mut text);
        assert!(text.contains("defragmentations_total{result=\"failed\"} 1\n") && text.contains("_seconds "), "{text}");
    }

    #[test]
    fn what_is_no_object_is_told() {
        assert_eq!(fault(b"{\"a\":1}"), None);
        assert!(fault(b"{\"a\":").unwrap().starts_with("it is no JSON"));
    }
}
