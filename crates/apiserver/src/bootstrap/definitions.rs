//! The definitions of the kinds that Croft ships, kept as this program has them.
//!
//! They are ordinary CustomResourceDefinitions, so that clients find them among all others. Users' own definitions are
//! not looked at.

use std::sync::Arc;

use croft_meta::{ApiError, object};
use serde_json::Value;

use super::{options, target};
use crate::call::{Call, Target};
use crate::server::ApiServer;
use crate::verbs::create::{Tracking, prepared};
use crate::verbs::update::{Candidate, change};
use crate::{crd, prepare};

/// How many are worked on together. All of them at once would be the most memory that the server ever takes.
const TOGETHER: usize = 16;

/// Writes those that are missing or differ. Their kinds are served when this returns.
pub(super) async fn install(server: &Arc<ApiServer>) -> Result<(), ApiError> {
    server.cache.fresh().await?;
    let mut definitions = croft_api::shipped_definitions();
    loop {
        let some: Vec<Value> = definitions.by_ref().take(TOGETHER).collect();
        if some.is_empty() {
            break;
        }
        install_some(server, some).await?;
    }
    server.catalog_caught_up().await;
    Ok(())
}

async fn install_some(server: &Arc<ApiServer>, definitions: Vec<Value>) -> Result<(), ApiError> {
    let mut missing = Vec::new();
    let mut outdated = Vec::new();
    for mut definition in definitions {
        let target = target(server, &definition)?;
        match server.cache.collection(crd::STORAGE_KEY).get(&target.id()) {
            None => missing.push((target, definition)),
            Some(stored) => {
                prepare::default(&target, &mut definition);
                if is_outdated(&stored.json(), &definition) {
                    outdated.push((target, definition));
                }
            }
        }
    }
    // Nothing is served yet, so this waits for nobody; the next start compares again.
    let mut created = Vec::new();
    for (target, definition) in &missing {
        let call = Call::internal(server, target);
        let definition = prepared(&call, target, definition.clone(), &options(), Tracking::Needed).await?;
        created.push((target.clone(), definition));
    }
    if !server.create_together(&created).await? {
        // Another server was quicker. If it is of another version, the younger of the two has the last word.
        outdated.extend(missing);
    }
    for (target, definition) in &outdated {
        update(server, target, definition).await?;
    }
    Ok(())
}

/// One that is being deleted cannot be had back before it is gone.
fn is_outdated(stored: &Value, wanted: &Value) -> bool {
    stored["spec"] != wanted["spec"] && object::deletion_timestamp(stored).is_none()
}

async fn update(server: &Arc<ApiServer>, target: &Target, definition: &Value) -> Result<(), ApiError> {
    let call = Call::internal(server, target);
    change(&call, target, &options(), |old| {
        let mut new = old.clone();
        new["spec"] = definition["spec"].clone();
        Ok(Candidate::Untracked(new))
    })
    .await?;
    Ok(())
}
