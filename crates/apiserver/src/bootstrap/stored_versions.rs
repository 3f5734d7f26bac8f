//! In which versions the objects of the shipped kinds are stored, when a release stores another than the one before it, or
//! drops one.
//!
//! A definition says in `status.storedVersions` in which versions objects of its kind may be stored, and none of those may be
//! taken out of it. So a version that a release drops stays in the definition, unserved, until every object was stored anew;
//! then it is forgotten, and goes with the next look at the definitions.

use std::sync::Arc;

use croft_meta::{ApiError, Gvk, object};
use serde_json::{Value, json};

use super::{options, target};
use crate::call::Call;
use crate::migrations::rewrite;
use crate::server::ApiServer;
use crate::verbs::update::{Candidate, change};
use crate::{crd, write};

fn names<'a>(definition: &'a Value, path: &str) -> Vec<&'a str> {
    let list = definition.pointer(path).and_then(Value::as_array);
    list.into_iter().flatten().filter_map(|one| one.as_str().or_else(|| one["name"].as_str())).collect()
}

fn storage_version(definition: &Value) -> Option<&str> {
    let versions = definition.pointer("/spec/versions").and_then(Value::as_array);
    versions.into_iter().flatten().find(|version| version["storage"] == true)?["name"].as_str()
}

/// The spec that a stored definition gets for now: the wanted one, and the versions that objects may still be stored in.
pub(super) fn spec_for_now(wanted: &Value, stored: &Value) -> Value {
    let known = names(wanted, "/spec/versions");
    let still = names(stored, "/status/storedVersions");
    let versions = stored.pointer("/spec/versions").and_then(Value::as_array);
    let dropped = versions
        .into_iter()
        .flatten()
        .filter(|version| version["name"].as_str().is_some_and(|name| still.contains(&name) && !known.contains(&name)));
    let mut spec = wanted["spec"].clone();
    for version in dropped {
        let mut version = version.clone();
        version["served"] = json!(false);
        version["storage"] = json!(false);
        if let Some(versions) = spec["versions"].as_array_mut() {
            versions.push(version);
        }
    }
    spec
}

/// Stores what is in another version than that of its definition, and has the definitions say so. True if one did.
pub(super) async fn settle(server: &Arc<ApiServer>) -> Result<bool, ApiError> {
    let mut is_changed = false;
    for name in croft_api::shipped_names() {
        let Some(found) = server.cache.collection(crd::STORAGE_KEY).get(&name) else { continue };
        let definition = found.json();
        let Some(storage) = storage_version(&definition) else { continue };
        if names(&definition, "/status/storedVersions") == [storage]
            || object::deletion_timestamp(&definition).is_some()
        {
            continue;
        }
        settle_one(server, &definition, storage).await?;
        is_changed = true;
    }
    Ok(is_changed)
}

async fn settle_one(server: &Arc<ApiServer>, definition: &Value, storage: &str) -> Result<(), ApiError> {
    let text = |path: &str| definition.pointer(path).and_then(Value::as_str).unwrap_or_default();
    let (group, plural) = (text("/spec/group"), text("/spec/names/plural"));
    let to = Gvk::new(group, storage, text("/spec/names/kind"));
    let of_kind = target(server, &json!({ "apiVersion": to.api_version(), "kind": to.kind, "metadata": {} }))?;
    let kind = format!("{group}/{plural}");
    let mut changed = 0_u64;
    for object in server.cache.collection(&kind).list("") {
        let anew = |value: &mut Value| {
            let is_other = object::gvk(value) != to;
            write::convert(value, &of_kind, &to);
            is_other
        };
        changed += u64::from(rewrite(server, &kind, &object, anew).await?);
    }
    let mut target = target(server, definition)?;
    "status".clone_into(&mut target.subresource);
    let call = Call::internal(server, &target);
    change(&call, &target, &options(), |old| {
        let mut new = old.clone();
        new["status"]["storedVersions"] = json!([storage]);
        Ok(Candidate::Untracked(new))
    })
    .await?;
    tracing::info!(kind, version = storage, changed, "all objects are stored in one version");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_stays_as_long_as_objects_are_stored_in_it() {
        let version = |name: &str, storage: bool| json!({ "name": name, "served": true, "storage": storage });
        let wanted = json!({ "spec": { "versions": [version("v1", true)] } });
        let stored = |still: Value| {
            let versions = json!([version("v1alpha1", true), version("v1beta1", false), version("v1", false)]);
            json!({ "spec": { "versions": versions }, "status": { "storedVersions": still } })
        };
        assert_eq!(spec_for_now(&wanted, &stored(json!(["v1"]))), wanted["spec"]);
        let spec = spec_for_now(&wanted, &stored(json!(["v1alpha1", "v1"])));
        let kept = json!({ "name": "v1alpha1", "served": false, "storage": false });
        assert_eq!(spec["versions"], json!([version("v1", true), kept]));
        assert_eq!(storage_version(&json!({ "spec": spec })), Some("v1"));
    }
}
