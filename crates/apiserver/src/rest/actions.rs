//! What can be done with objects by `POST ...?action=<name>`: one module for each kind, found here.
//!
//! Each has `offered`, the actions that make sense for an object as it is, and `act`. As in Harvester, whoever may update
//! an object may have it act. What an action creates or deletes beside it needs the caller's own right to do so. An
//! action that has nothing to say answers 204.

use croft_meta::ApiError;

use super::acting::Acting;
use super::schema::Schema;
use super::state::Look;
use super::{claim, image, key_pair, machine, node_actions, quota_actions, snapshot};
use crate::answer::Answer;
use crate::cache::Cache;
use crate::call::Call;

/// The actions that can be used on the object with this id (`namespace/name`), by somebody who may update it.
pub(super) fn offered(cache: &Cache, schema: &Schema, id: &str, look: &Look<'_>) -> Vec<&'static str> {
    if look.metadata.deletion_timestamp.is_some() {
        return Vec::new();
    }
    let mut offered = match (schema.served.group(), schema.served.plural()) {
        ("kubevirt.io", "virtualmachines") => machine::offered(cache, id, look),
        ("", "persistentvolumeclaims") => claim::offered(look),
        ("harvesterhci.io", "virtualmachineimages") => image::offered(look),
        ("", "nodes") => node_actions::offered(look),
        ("snapshot.storage.k8s.io", "volumesnapshots") => snapshot::offered(look),
        _ => Vec::new(),
    };
    if quota_actions::is_bounded(schema) {
        offered.extend(quota_actions::OFFERED);
    }
    offered
}

/// What there is about an object below its own path.
pub(super) fn links(schema: &Schema, look: &Look<'_>) -> Vec<&'static str> {
    match (schema.served.group(), schema.served.plural()) {
        ("harvesterhci.io", "virtualmachineimages") => image::links(look),
        ("harvesterhci.io", "virtualmachinetemplates") => vec!["versions"],
        _ => Vec::new(),
    }
}

/// Has one object do something.
pub(super) async fn act(
    call: &Call,
    schema: &Schema,
    (namespace, name): (&str, &str),
    action: &str,
) -> Result<Answer, ApiError> {
    let acting = || Acting::new(call, schema, namespace, name);
    match (schema.served.group(), schema.served.plural()) {
        _ if name.is_empty() => on_collection(call, schema, action).await,
        _ if quota_actions::is_bounded(schema) && quota_actions::OFFERED.contains(&action) => {
            quota_actions::act(call, schema, (namespace, name), action).await
        }
        ("kubevirt.io", "virtualmachines") => machine::act(&acting()?, action).await,
        ("", "persistentvolumeclaims") => claim::act(&acting()?, action).await,
        ("", "nodes") => node_actions::act(&acting()?, action).await,
        ("snapshot.storage.k8s.io", "volumesnapshots") => snapshot::act(&acting()?, action).await,
        _ => Err(not_available(action)),
    }
}

/// What is asked of a kind as a whole.
async fn on_collection(call: &Call, schema: &Schema, action: &str) -> Result<Answer, ApiError> {
    match (schema.served.group(), schema.served.plural()) {
        ("harvesterhci.io", "keypairs") => key_pair::act(call, schema, action).await,
        _ => Err(not_available(action)),
    }
}

pub(super) fn not_available(action: &str) -> ApiError {
    ApiError::new(404, "ActionNotAvailable", format!("there is no action {action:?} here"))
}
