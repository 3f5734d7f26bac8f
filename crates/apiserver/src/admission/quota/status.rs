//! `status.used` of ResourceQuotas, kept true.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use croft_api::{compute_quota, object_quota};
use croft_meta::{ApiError, Gvk, Revision};
use serde_json::{Map, Value, json};

use super::{QUOTAS, collection, used};
use crate::cache::{Cache, Object};
use crate::call::{Call, Target};
use crate::options::{FieldValidation, WriteOptions};
use crate::server::ApiServer;
use crate::verbs::update::{Candidate, change};

const MANAGER: &str = "croft";
/// Many changes come together; they are counted together.
const PAUSE: Duration = Duration::from_millis(300);

/// Runs until the server stops. Several servers on one store all do it, and come to the same figures.
pub(crate) async fn follow(server: Arc<ApiServer>) {
    let stop = server.stopping();
    let mut applied = server.cache.subscribe();
    let mut known = HashMap::new();
    loop {
        tokio::select! {
            changed = applied.changed() => if changed.is_err() { return },
            () = stop.cancelled() => return,
        }
        tell(&server, &mut known).await;
        tokio::select! {
            () = tokio::time::sleep(PAUSE) => {}
            () = stop.cancelled() => return,
        }
    }
}

/// When a quota, and what it counts, had last changed when it was told.
type Told = HashMap<String, Vec<Revision>>;

async fn tell(server: &Arc<ApiServer>, told: &mut Told) {
    // Before the server is ready, what is counted is still being written.
    if !server.is_ready() {
        return;
    }
    let quotas = server.cache.collection(QUOTAS).list("");
    told.retain(|id, _| quotas.iter().any(|quota| quota.id() == id));
    for quota in quotas {
        let json = quota.json();
        let seen = seen(&server.cache, &quota, &json);
        if told.get(quota.id()) == Some(&seen) {
            continue;
        }
        match write(server, &quota, &json).await {
            Ok(()) => drop(told.insert(quota.id().to_owned(), seen)),
            Err(error) => tracing::warn!(quota = quota.id(), %error, "what a quota's namespace uses could not be told"),
        }
    }
}

fn seen(cache: &Cache, quota: &Object, json: &Value) -> Vec<Revision> {
    let mut revisions = vec![quota.revision];
    for (key, _, _) in object_quota::limits(json, None) {
        revisions.extend(object_quota::sources(&key).into_iter().map(|of| collection(cache, of).changed_at()));
    }
    revisions
}

async fn write(server: &Arc<ApiServer>, quota: &Object, json: &Value) -> Result<(), ApiError> {
    if json["status"] == status(&server.cache, quota.namespace(), json) {
        return Ok(());
    }
    let catalog = server.catalog();
    let kind = catalog.find_kind(&Gvk::new("", "v1", "ResourceQuota")).ok_or_else(ApiError::no_such_path)?;
    let mut target = Target::new(kind.clone(), quota.namespace(), quota.name());
    "status".clone_into(&mut target.subresource);
    let options = WriteOptions {
        dry_run: false,
        field_manager: MANAGER.to_owned(),
        field_validation: FieldValidation::Strict,
        force: false,
    };
    let call = Call::internal(server, &target);
    // Counted after the quota was read: whoever takes room meanwhile changes the quota, and then it is counted again.
    let written = change(&call, &target, &options, |old| {
        let mut new = old.clone();
        new["status"] = status(&server.cache, quota.namespace(), old);
        Ok(Candidate::Untracked(new))
    });
    match written.await {
        Err(error) if error.code() != 404 => Err(error),
        // It is gone, and so is what there was to tell.
        _ => Ok(()),
    }
}

fn status(cache: &Cache, namespace: &str, quota: &Value) -> Value {
    let hard = quota.pointer("/spec/hard").cloned().unwrap_or_else(|| json!({}));
    let limits = object_quota::limits(quota, None);
    let amounts = limits.into_iter().map(|(key, _, _)| {
        let amount = compute_quota::written(&key, used(cache, namespace, quota, &key));
        (key, Value::from(amount))
    });
    json!({"hard": hard, "used": amounts.collect::<Map<String, Value>>()})
}
