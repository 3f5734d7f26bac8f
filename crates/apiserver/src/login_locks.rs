//! Keeps in the store which names are locked (see `auth::authenticate::lockouts`). Written only when a name is locked.

use std::sync::Arc;
use std::time::Duration;

use croft_meta::{ApiError, Gvk};
use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::json;

use crate::auth::authenticate::USERS_NAMESPACE;
use crate::auth::authenticate::lockouts::{Lockouts, NAME, SECRET_TYPE};
use crate::call::{Call, Target};
use crate::options::{FieldValidation, WriteOptions};
use crate::server::ApiServer;
use crate::verbs::create::{Tracking, create_object};
use crate::verbs::update::{Candidate, change};

/// After a write that failed; meanwhile the lock holds in this server.
const RETRY: Duration = Duration::from_secs(5);

/// Runs until the server stops.
pub(crate) async fn keep(server: Arc<ApiServer>) {
    let stop = server.stopping();
    let lockouts = server.auth.authenticator.lockouts();
    loop {
        tokio::select! {
            () = lockouts.changed() => {}
            () = stop.cancelled() => return,
        }
        while let Err(error) = write(&server, lockouts).await {
            tracing::warn!(%error, "which names are locked could not be written down; trying again");
            tokio::select! {
                () = tokio::time::sleep(RETRY) => {}
                () = stop.cancelled() => return,
            }
        }
    }
}

async fn write(server: &Arc<ApiServer>, lockouts: &Lockouts) -> Result<(), ApiError> {
    let catalog = server.catalog();
    let served = catalog.find_kind(&Gvk::new("", "v1", "Secret")).ok_or_else(ApiError::no_such_path)?.clone();
    let target = Target::new(served, USERS_NAMESPACE, NAME);
    let call = Call::internal(server, &target);
    let options = WriteOptions {
        dry_run: false,
        field_manager: "croft".to_owned(),
        field_validation: FieldValidation::Ignore,
        force: false,
    };
    let taken = Mutex::new(None);
    let changed = change(&call, &target, &options, |old| {
        if old["type"] != SECRET_TYPE {
            let why = format!("the Secret {NAME} of {USERS_NAMESPACE} is not of type {SECRET_TYPE}: delete it");
            return Err(ApiError::internal(why));
        }
        let mut new = old.clone();
        let (data, written) = lockouts.merge(&old["data"], Timestamp::now());
        new["data"] = data;
        *taken.lock() = Some(written);
        Ok(Candidate::Untracked(new))
    });
    match changed.await {
        Ok(_) => {}
        Err(error) if error.code() == 404 => {
            let (data, written) = lockouts.merge(&json!({}), Timestamp::now());
            let secret = json!({
                "apiVersion": "v1", "kind": "Secret", "type": SECRET_TYPE,
                "metadata": {"name": NAME, "namespace": USERS_NAMESPACE}, "data": data,
            });
            create_object(&call, &target, secret, &options, Tracking::Needed).await?;
            *taken.lock() = Some(written);
        }
        Err(error) => return Err(error),
    }
    server.cache.fresh().await?;
    if let Some(written) = taken.into_inner() {
        lockouts.written(&written);
    }
    Ok(())
}
