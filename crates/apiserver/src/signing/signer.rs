//! Signs what was approved. The server does it itself, since it holds the authority's key and gives it to nobody.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use base64::{Engine, prelude::BASE64_STANDARD};
use croft_meta::{ApiError, Chain, Gvk, Revision};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{COLLECTION, GROUP, cleaner, condition, parse, rules, text};
use crate::cache::Object;
use crate::call::{Call, Target};
use crate::options::{FieldValidation, WriteOptions};
use crate::server::ApiServer;
use crate::verbs::update::{Candidate, change};

/// The longest that a certificate lasts, and what it lasts if the request does not say.
const MOST: Duration = Duration::from_hours(365 * 24);
const LEAST: Duration = Duration::from_mins(10);
/// After a write that failed, and while the server starts.
const RETRY: Duration = Duration::from_secs(1);

/// Runs until the server stops. Of several servers on one store, the first to write wins.
pub(crate) async fn follow(server: Arc<ApiServer>) {
    let stop = server.stopping();
    let mut changed = server.cache.collection(COLLECTION).subscribe();
    let mut done = HashMap::new();
    let mut sweep = tokio::time::interval(cleaner::INTERVAL);
    loop {
        let is_done = server.is_ready() && sign_all(&server, &mut done).await;
        tokio::select! {
            result = changed.changed() => if result.is_err() { return },
            _ = sweep.tick() => cleaner::sweep(&server, Timestamp::now()).await,
            () = tokio::time::sleep(RETRY), if !is_done => {}
            () = stop.cancelled() => return,
        }
    }
}

/// The states of requests that have been looked at.
type Done = HashMap<String, Revision>;

/// Whether nothing is left to try again.
async fn sign_all(server: &Arc<ApiServer>, done: &mut Done) -> bool {
    let all = server.cache.collection(COLLECTION).list("");
    done.retain(|name, _| all.iter().any(|object| object.name() == name));
    let mut is_done = true;
    for object in &all {
        if done.get(object.name()) == Some(&object.revision) {
            continue;
        }
        match handle(server, object).await {
            Ok(()) => drop(done.insert(object.name().to_owned(), object.revision)),
            Err(error) => {
                tracing::warn!(request = object.name(), %error, "a certificate request could not be signed");
                is_done = false;
            }
        }
    }
    is_done
}

/// What is to become of an approved request.
enum Verdict {
    Signed(String),
    Refused(String),
}

async fn handle(server: &Arc<ApiServer>, object: &Object) -> Result<(), ApiError> {
    match decide(server, &object.json(), Timestamp::now())? {
        Some(verdict) => write(server, object.name(), &verdict).await,
        None => Ok(()),
    }
}

fn decide(server: &ApiServer, request: &Value, now: Timestamp) -> Result<Option<Verdict>, ApiError> {
    if !waits(request) {
        return Ok(None);
    }
    // It was checked when it was made.
    let Ok(parsed) = parse(request) else { return Ok(None) };
    let usages = request.pointer("/spec/usages").and_then(Value::as_array);
    let usages: Vec<&str> = usages.into_iter().flatten().filter_map(Value::as_str).collect();
    let purpose = match rules::check(text(request, "/spec/signerName"), &parsed, &usages) {
        Ok(Some(purpose)) => purpose,
        Ok(None) => return Ok(None),
        Err(why) => return Ok(Some(Verdict::Refused(why))),
    };
    let signed = server.ca.sign(&parsed, purpose, rules::may_encipher(&usages), lifetime(request), now);
    Ok(Some(Verdict::Signed(signed.map_err(|error| ApiError::internal(Chain(&error)))?)))
}

/// Approved, and nothing has come of it yet.
fn waits(request: &Value) -> bool {
    let is_true = |kind| condition(request, kind).is_some_and(|found| found["status"] == "True");
    is_true("Approved")
        && condition(request, "Denied").is_none()
        && !is_true("Failed")
        && text(request, "/status/certificate").is_empty()
}

fn lifetime(request: &Value) -> Duration {
    let asked = request.pointer("/spec/expirationSeconds").and_then(Value::as_u64);
    asked.map_or(MOST, |seconds| Duration::from_secs(seconds).clamp(LEAST, MOST))
}

async fn write(server: &Arc<ApiServer>, name: &str, verdict: &Verdict) -> Result<(), ApiError> {
    let catalog = server.catalog();
    let kind = Gvk::new(GROUP, "v1", "CertificateSigningRequest");
    let served = catalog.find_kind(&kind).ok_or_else(ApiError::no_such_path)?.clone();
    let mut target = Target::new(served, "", name);
    "status".clone_into(&mut target.subresource);
    let options = WriteOptions {
        dry_run: false,
        field_manager: "croft".to_owned(),
        field_validation: FieldValidation::Strict,
        force: false,
    };
    let call = Call::internal(server, &target);
    let written = change(&call, &target, &options, |old| Ok(Candidate::Untracked(outcome(old, verdict))));
    match written.await {
        Ok(_) => {
            let outcome = if matches!(verdict, Verdict::Signed(_)) { "signed" } else { "refused" };
            tracing::info!(request = name, outcome, "certificate request handled");
            Ok(())
        }
        // It is gone, and so is what there was to sign.
        Err(error) if error.code() == 404 => Ok(()),
        Err(error) => Err(error),
    }
}

fn outcome(old: &Value, verdict: &Verdict) -> Value {
    let mut new = old.clone();
    // Another server may have been quicker.
    if !waits(old) {
        return new;
    }
    match verdict {
        Verdict::Signed(pem) => new["status"]["certificate"] = json!(BASE64_STANDARD.encode(pem)),
        Verdict::Refused(why) => {
            let failed =
                json!({"type": "Failed", "status": "True", "reason": "SignerValidationFailure", "message": why});
            if let Some(conditions) = new["status"]["conditions"].as_array_mut() {
                conditions.push(failed);
            }
        }
    }
    new
}
