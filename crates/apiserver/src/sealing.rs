//! Secrets at rest, as far as the server is concerned: what is said of objects that cannot be read, the task that encrypts what
//! is not yet, and `/croft/v1/encryption`, which tells of the keys and replaces them. The encrypting itself is the store's
//! (`croft_store::sealed`).

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use croft_meta::time::format_seconds;
use croft_meta::{ApiError, Chain};
use croft_store::sealed::{Progress, RotateError, Sealing, Tally};
use croft_store::{Compare, Op, Txn, TxnResult};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::answer::{self, Answer};
use crate::auth::Attributes;
use crate::cache::{self, Unreadable, split_key, store_error};
use crate::call::{Call, Target};
use crate::options::DeleteOptions;
use crate::pipeline;
use crate::server::ApiServer;
use crate::write::Outcome;

pub(crate) const PATH: &str = "/croft/v1/encryption";
const ROTATE: &str = "/croft/v1/encryption/rotate";
/// What upstream asks of those who delete an object unseen.
const UNSAFE_DELETE: &str = "unsafe-delete-ignore-read-errors";
/// After an attempt that failed.
const RETRY: Duration = Duration::from_secs(5);
/// A list warns of so many objects by name.
const WARNED: usize = 5;

/// Where the objects of a kind are stored: `secrets`, or `settings.harvesterhci.io`.
pub fn storage_prefix(resource: &str) -> Result<String, String> {
    let is_good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let (plural, group) = resource.split_once('.').unwrap_or((resource, "core"));
    let is_name =
        |text: &str| !text.is_empty() && text.split('.').all(|part| !part.is_empty() && part.chars().all(is_good));
    if !is_name(plural) || !is_name(group) {
        return Err(format!("{resource:?} is not a kind, such as secrets or settings.harvesterhci.io"));
    }
    if plural == "events" && matches!(group, "core" | "events.k8s.io") {
        return Err("events are kept for an hour only, and cannot be encrypted".to_owned());
    }
    let is_known = |found: &Arc<croft_api::Resource>| found.group.is_empty() && found.names.plural == plural;
    if group == "core" && !croft_api::builtin().iter().any(is_known) {
        return Err(format!("there is no kind {resource:?}; say its group as well, as in settings.harvesterhci.io"));
    }
    Ok(format!("{}{group}/{plural}/", cache::ROOT))
}

/// As users write it: the other way round.
fn resource_of(storage_key: &str) -> String {
    match storage_key.split_once('/') {
        Some(("core", plural)) => plural.to_owned(),
        Some((group, plural)) => format!("{plural}.{group}"),
        None => storage_key.to_owned(),
    }
}

pub(crate) fn cannot_be_read(target: &Target, lost: &Unreadable) -> ApiError {
    ApiError::internal(format!("{} {:?} cannot be read: {}", target.plural(), target.id(), lost.why))
}

/// A list is served without them, but not in silence.
pub(crate) fn warn_of_unreadable(call: &Call, target: &Target) {
    let lost = call.server.cache.collection(target.storage_key()).all_unreadable(&target.namespace);
    for (id, lost) in lost.iter().take(WARNED) {
        call.warn(format!("{} {id} is left out, since it cannot be read: {}", target.plural(), lost.why));
    }
    if lost.len() > WARNED {
        call.warn(format!("{} more cannot be read", lost.len() - WARNED));
    }
}

/// Deletes what cannot be read, if it is that, for those who may.
pub(crate) async fn delete_unreadable(
    call: &Call,
    target: &Target,
    options: &DeleteOptions,
) -> Result<Option<Outcome>, ApiError> {
    let server = &call.server;
    server.cache.fresh().await?;
    let Some(lost) = server.cache.collection(target.storage_key()).unreadable(&target.id()) else { return Ok(None) };
    let wanted = Attributes {
        is_resource: true,
        verb: UNSAFE_DELETE,
        group: target.group(),
        resource: target.plural(),
        name: &target.name,
        namespace: &target.namespace,
        ..Attributes::default()
    };
    server.auth.authorize(&call.user, &wanted)?;
    let last = json!({ "metadata": { "name": target.name, "namespace": target.namespace } });
    if options.dry_run {
        return Ok(Some(Outcome::Deleted(last)));
    }
    let key = format!("{}{}/{}", cache::ROOT, target.storage_key(), target.id());
    let compare = vec![Compare { key: key.clone(), revision: lost.revision }];
    match server.store.txn(Txn { compare, ops: vec![Op::Delete { key }] }).await.map_err(store_error)? {
        TxnResult::Committed(revision) => {
            tracing::warn!(object = target.id(), user = call.user.name, "an object that could not be read was deleted");
            server.cache.applied_up_to(revision).await?;
            Ok(Some(Outcome::Deleted(last)))
        }
        TxnResult::Conflict(_) => Err(target.conflict("it was changed meanwhile; try again")),
    }
}

/// Until the server stops, has everything that is stored be as it is wanted.
pub(crate) async fn settle(server: Arc<ApiServer>) {
    let Some(sealing) = server.store.sealing().cloned() else { return };
    let stop = server.stopping();
    let work = async {
        loop {
            sealing.unsettled().await;
            if let Err(error) = sealing.settle().await {
                tracing::warn!(error = %Chain(&error), "not everything could be encrypted as it is wanted; trying again");
                tokio::time::sleep(RETRY).await;
            }
        }
    };
    tokio::select! {
        () = work => {}
        () = stop.cancelled() => {}
    }
}

pub(crate) async fn answer(call: &Call) -> Result<Answer, ApiError> {
    let sealing = call.server.store.sealing().ok_or_else(ApiError::no_such_path)?;
    match (call.info.path.as_str(), call.info.verb) {
        (PATH, "get" | "head") => status(sealing, 200).await,
        (ROTATE, "post") => {
            let made = sealing.rotate(&format_seconds(Timestamp::now())).await.map_err(refusal)?;
            tracing::info!(user = call.user.name, key = %made, "the rotation of the keys was asked for");
            status(sealing, 202).await
        }
        (PATH | ROTATE, _) => Err(pipeline::not_allowed()),
        _ => Err(ApiError::no_such_path()),
    }
}

#[expect(clippy::needless_pass_by_value, reason = "used as a map_err function")]
fn refusal(error: RotateError) -> ApiError {
    let text = Chain(&error).to_string();
    match error {
        RotateError::Off | RotateError::UnderWay => ApiError::new(409, "Conflict", text),
        RotateError::KeyFile(_) | RotateError::CutShort => ApiError::internal(text),
    }
}

async fn status(sealing: &Sealing, code: u16) -> Result<Answer, ApiError> {
    // Before the values are counted: what has come to its end by now is in the count, the dropping of old keys too.
    let progress = sealing.progress();
    let tally = sealing.tally().await.map_err(store_error)?;
    Ok(answer::json(code, &document(sealing, &progress, &tally)))
}

/// All values are as they are wanted, and what was to be done after that is done: nothing of before can be asked for, and its keys
/// are gone.
fn is_settled(progress: &Progress, tally: &Tally) -> bool {
    !progress.is_due && !progress.is_running && progress.error.is_none() && tally.unsettled() == 0
}

fn document(sealing: &Sealing, progress: &Progress, tally: &Tally) -> Value {
    let keys: Vec<Value> = tally
        .keys
        .iter()
        .enumerate()
        .map(|(at, (key, objects))| {
            json!({ "id": key.id().to_string(), "made": key.made(), "isNewest": at == 0, "objects": objects })
        })
        .collect();
    let unreadable: Vec<Value> = tally
        .unreadable
        .iter()
        .map(|lost| {
            let (kind, id) = split_key(&lost.key).unwrap_or_default();
            let (namespace, name) = id.split_once('/').unwrap_or(("", id));
            json!({ "resource": resource_of(kind), "namespace": namespace, "name": name, "why": lost.why })
        })
        .collect();
    let prefixes = sealing.prefixes().iter();
    let kinds = prefixes.filter_map(|prefix| prefix.strip_prefix(cache::ROOT)?.strip_suffix('/')).map(resource_of);
    json!({
        "keyFile": sealing.key_file().display().to_string(),
        "resources": kinds.collect::<Vec<String>>(),
        "keys": keys,
        "plain": tally.plain + tally.excess,
        "unreadableCount": tally.unreadable_count,
        "unreadable": unreadable,
        "isSettled": is_settled(progress, tally),
        "progress": {
            "isRunning": progress.is_running, "done": progress.done, "total": progress.total, "error": progress.error,
        },
    })
}

/// Figures for `/metrics`, under upstream's name.
pub(crate) fn tell(server: &ApiServer) -> String {
    let Some(sealing) = server.store.sealing() else { return String::new() };
    let name = "apiserver_storage_transformation_operations";
    let counts = sealing.counts();
    let mut text = format!("# HELP {name} Values that were encrypted or opened.\n# TYPE {name} counter\n");
    let rows = [
        ("to_storage", "OK", counts.sealed),
        ("from_storage", "OK", counts.opened),
        ("from_storage", "Internal", counts.refused),
    ];
    for (direction, status, count) in rows {
        let labels = format!("status=\"{status}\",transformation_type=\"{direction}\",transformer_prefix=\"croft:1:\"");
        // Writing to a string does not fail.
        let _ = writeln!(text, "{name}_total{{{labels}}} {count}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_failed_or_is_still_to_come_is_not_settled() {
        let (done, all) = (Progress { done: 3, total: 3, ..Progress::default() }, Tally::default());
        assert!(is_settled(&done, &all));
        let others = [
            Progress { is_due: true, ..done.clone() },
            Progress { is_running: true, ..done.clone() },
            Progress { error: Some("the old key was not dropped".to_owned()), ..done.clone() },
        ];
        for progress in others {
            assert!(!is_settled(&progress, &all), "{progress:?}");
        }
        assert!(!is_settled(&done, &Tally { plain: 1, ..Tally::default() }));
    }

    #[test]
    fn kinds_are_found_where_they_are_stored() {
        assert_eq!(storage_prefix("secrets").unwrap(), "registry/core/secrets/");
        assert_eq!(storage_prefix("settings.harvesterhci.io").unwrap(), "registry/harvesterhci.io/settings/");
        assert_eq!(resource_of("core/secrets"), "secrets");
        assert_eq!(resource_of("harvesterhci.io/settings"), "settings.harvesterhci.io");
        for (bad, why) in [
            ("", "is not a kind"),
            ("*.*", "is not a kind"),
            ("core/secrets", "is not a kind"),
            ("secrets.", "is not a kind"),
            ("secret", "there is no kind"),
            ("deployments", "there is no kind"),
            ("events", "cannot be encrypted"),
            ("events.events.k8s.io", "cannot be encrypted"),
        ] {
            let error = storage_prefix(bad).unwrap_err();
            assert!(error.contains(why), "{bad}: {error}");
        }
    }
}
