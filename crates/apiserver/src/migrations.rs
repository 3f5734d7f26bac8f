//! Changes of how objects of our own kinds are stored, from one release to another: docs/upgrades.md.
//!
//! A release that changes the form of a kind understands both forms and writes the old one, so that the release before it can
//! still read what it wrote. The release after it changes what is stored: that is a [`Migration`]. Each is a function of one
//! object that does nothing to one which is in the new form already, so that a start that was cut short can be repeated.

use std::sync::Arc;

use croft_meta::ApiError;
use croft_store::{Compare, Op, Txn, TxnResult};
use serde_json::Value;

use crate::cache::{self, Object, store_error};
use crate::encoding;
use crate::release::{self, Mark, Standing};
use crate::server::ApiServer;

/// Beyond this somebody writes the object all the time, who should not be there before the server is ready.
const MAX_TRIES: usize = 20;

pub(crate) struct Migration {
    /// By which the store remembers that it is done. Never changes.
    pub(crate) name: &'static str,
    /// Where the objects are stored, as in `harvesterhci.io/settings`.
    pub(crate) kind: &'static str,
    /// The first release that understands the new form. Those after it run the migration.
    pub(crate) understood_since: u32,
    /// Brings an object into the new form. False if it is in it.
    pub(crate) change: fn(&mut Value) -> bool,
}

/// In the order in which they are run. One may go when no store is left that a release before it wrote.
pub(crate) const ALL: [Migration; 0] = [];

pub(crate) fn names() -> Vec<&'static str> {
    ALL.iter().map(|migration| migration.name).collect()
}

/// Runs those that are due, one after the other. The server is not ready before they are done.
pub(crate) async fn run(server: &Arc<ApiServer>, mark: Mark) -> Result<(), ApiError> {
    if server.standing == Standing::Behind {
        return Ok(());
    }
    run_these(server, &ALL, release::own(), mark).await
}

async fn run_these(server: &Arc<ApiServer>, all: &[Migration], own: u32, mut mark: Mark) -> Result<(), ApiError> {
    for migration in due(all, own, &mark) {
        server.cache.fresh().await?;
        let mut changed = 0_u64;
        for object in server.cache.collection(migration.kind).list("") {
            changed += u64::from(rewrite(server, migration.kind, &object, migration.change).await?);
        }
        mark.migrated.push(migration.name.to_owned());
        release::write(server, &mark).await?;
        tracing::info!(migration = migration.name, kind = migration.kind, changed, "stored objects were migrated");
    }
    Ok(())
}

fn due<'a>(all: &'a [Migration], own: u32, mark: &Mark) -> Vec<&'a Migration> {
    let is_done = |migration: &Migration| mark.migrated.iter().any(|name| name == migration.name);
    all.iter().filter(|migration| migration.understood_since < own && !is_done(migration)).collect()
}

/// Stores an object in another form, unless it is in that already. Nobody can tell but by its resource version.
pub(crate) async fn rewrite(
    server: &Arc<ApiServer>,
    kind: &str,
    object: &Arc<Object>,
    change: impl Fn(&mut Value) -> bool,
) -> Result<bool, ApiError> {
    let key = format!("{}{kind}/{}", cache::ROOT, object.id());
    let mut current = Some(Arc::clone(object));
    for _ in 0..MAX_TRIES {
        let Some(found) = current else { return Ok(false) };
        let mut value = found.json();
        if !change(&mut value) {
            return Ok(false);
        }
        let compare = vec![Compare { key: key.clone(), revision: found.revision }];
        let op = Op::Put { key: key.clone(), value: encoding::to_stored(&value), lease: None };
        match server.store.txn(Txn { compare, ops: vec![op] }).await.map_err(store_error)? {
            TxnResult::Committed(revision) => return server.cache.applied_up_to(revision).await.map(|()| true),
            TxnResult::Conflict(seen) => server.cache.reached(seen).await?,
        }
        current = server.cache.collection(kind).get(object.id());
    }
    Err(ApiError::too_many_requests(format!("{key} is being changed too often to be migrated"), 1))
}

#[cfg(test)]
mod tests;
