//! The definitions of the kinds that Croft ships, kept as this program has them.
//!
//! They are ordinary CustomResourceDefinitions, so that clients find them among all others. Users' own definitions are
//! not looked at.
//!
//! To make more than a hundred definitions and to compare them takes a good part of a start. So the server remembers,
//! in a ConfigMap, at which revision it found each of them to be as the program has it: as long as program and
//! revisions are the same, there is nothing to make.

use std::sync::Arc;

use croft_meta::{ApiError, object};
use croft_store::Compare;
use serde_json::{Map, Value, json};

use super::{Existing, Wanted, options, stored_versions, target};
use crate::call::{Call, Target};
use crate::release::Standing;
use crate::server::ApiServer;
use crate::verbs::update::{Candidate, change};
use crate::{crd, prepare};

/// How many are worked on together. All of them at once would be the most memory that the server ever takes.
const TOGETHER: usize = 16;
const NAMESPACE: &str = "kube-system";
const MEMORY: &str = "croft-definitions";

/// Writes those that are missing or differ. Their kinds are served when this returns.
pub(super) async fn install(server: &Arc<ApiServer>) -> Result<(), ApiError> {
    server.cache.fresh().await?;
    if remembered(server).is_none_or(|memory| found(server) != Some(memory)) {
        install_all(server).await?;
        // With the versions gone that no object is stored in any more.
        if server.standing == Standing::Current && stored_versions::settle(server).await? {
            install_all(server).await?;
        }
    }
    // Also when there was nothing to write: definitions may have come with the replay of the newest changes.
    server.catalog_caught_up().await;
    Ok(())
}

async fn install_all(server: &Arc<ApiServer>) -> Result<(), ApiError> {
    let mut definitions = croft_api::shipped_definitions();
    loop {
        let some: Vec<Value> = definitions.by_ref().take(TOGETHER).collect();
        if some.is_empty() {
            return Ok(());
        }
        install_some(server, some).await?;
    }
}

/// The definitions that are being deleted: they come back when they have gone.
pub(super) fn going(server: &ApiServer) -> Vec<String> {
    let catalog = server.catalog();
    let is_there = |name: &String| catalog.definition(name).is_some_and(|definition| !definition.is_going);
    croft_api::shipped_names().filter(|name| !is_there(name)).collect()
}

/// What this start has found, for the next one.
pub(super) fn memory(server: &ApiServer) -> Option<Wanted> {
    if server.standing == Standing::Behind {
        return None;
    }
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": MEMORY, "namespace": NAMESPACE },
        "data": found(server)?,
    });
    Some(Wanted { object, existing: Existing::Refresh })
}

fn remembered(server: &ApiServer) -> Option<Value> {
    let memory = server.cache.collection("core/configmaps").get(&format!("{NAMESPACE}/{MEMORY}"))?;
    Some(memory.json()["data"].take())
}

/// The program, and the revision of each of its definitions; `None` if one of them is missing.
fn found(server: &ApiServer) -> Option<Value> {
    let stored = server.cache.collection(crd::STORAGE_KEY);
    let mut found = Map::new();
    for name in croft_api::shipped_names() {
        let revision = stored.get(&name)?.revision.to_string();
        found.insert(name, revision.into());
    }
    found.insert("program".to_owned(), croft_api::DEFINITIONS_DIGEST.into());
    Some(found.into())
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
                // A later release has fields that this one does not know, and objects have them.
                if server.standing == Standing::Current && is_outdated(&stored.json(), &definition) {
                    outdated.push((target, definition));
                }
            }
        }
    }
    // Nothing is served yet, so this waits for nobody; the next start compares again.
    let created = missing.iter().map(|(target, definition)| new(server, target, definition.clone()));
    let created: Vec<_> = created.collect::<Result<_, ApiError>>()?;
    if !server.create_together(&created).await? {
        // Another server was quicker. If it is of another version, the younger of the two has the last word.
        outdated.extend(missing);
    }
    for (target, definition) in &outdated {
        update(server, target, definition).await?;
    }
    Ok(())
}

/// A definition as it is first stored. A test proves that all of them pass the rules for definitions, so that no start
/// has to: it would be most of the time that the first one takes.
fn new(server: &ApiServer, target: &Target, mut definition: Value) -> Result<(Target, Value, Vec<Compare>), ApiError> {
    prepare::default(target, &mut definition);
    prepare::stamp_new(server, target, &mut definition)?;
    let tracked = prepare::with_write_context(server, target, &options().field_manager, |cx| {
        croft_apply::track_update(cx, croft_api::blank(&target.gvk()).as_ref(), &mut definition)
    });
    tracked.map_err(ApiError::internal)?;
    crd::establish(&server.catalog(), &mut definition, None);
    Ok((target.clone(), definition, Vec::new()))
}

/// One that is being deleted cannot be had back before it is gone.
fn is_outdated(stored: &Value, wanted: &Value) -> bool {
    stored["spec"] != wanted["spec"] && object::deletion_timestamp(stored).is_none()
}

async fn update(server: &Arc<ApiServer>, target: &Target, definition: &Value) -> Result<(), ApiError> {
    let call = Call::internal(server, target);
    change(&call, target, &options(), |old| {
        let mut new = old.clone();
        new["spec"] = stored_versions::spec_for_now(definition, old);
        Ok(Candidate::Untracked(new))
    })
    .await?;
    Ok(())
}
