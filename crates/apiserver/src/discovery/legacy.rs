//! The legacy documents, one per group and version.

use std::sync::Arc;

use croft_api::{Resource, Subresource};
use croft_meta::{GroupVersion, Gvk};
use serde_json::{Map, Value, json};

use super::{groups, storage_version_hash, verbs};
use crate::catalog::{Catalog, Group, Served};
use crate::{kubevirt, upload, usage};

/// `/api`: APIVersions.
pub(super) fn core_versions(catalog: &Catalog, server_address: &str) -> Value {
    let versions = catalog.group("").map(|g| g.versions.clone()).unwrap_or_default();
    json!({
        "kind": "APIVersions",
        "versions": versions,
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": server_address}],
    })
}

/// `/apis`: APIGroupList.
pub(super) fn group_list(catalog: &Catalog) -> Value {
    let groups: Vec<Value> = groups(catalog).into_iter().map(describe).collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// `/apis/<group>`: APIGroup.
pub(super) fn group(catalog: &Catalog, name: &str) -> Option<Value> {
    let mut document = describe(catalog.group(name).filter(|g| !g.name.is_empty())?);
    document["kind"] = json!("APIGroup");
    document["apiVersion"] = json!("v1");
    Some(document)
}

fn describe(group: &Group) -> Value {
    let version = |name: &String| json!({"groupVersion": format!("{}/{name}", group.name), "version": name});
    let versions: Vec<Value> = group.versions.iter().map(version).collect();
    json!({"name": group.name, "preferredVersion": versions.first(), "versions": versions})
}

/// `/api/v1` and `/apis/<group>/<version>`: APIResourceList, with subresources as `deployments/status`. The core group's
/// has no `apiVersion`, as upstream.
pub(super) fn resource_list(catalog: &Catalog, group: &str, version: &str) -> Option<Value> {
    if !catalog.group(group)?.versions.iter().any(|v| v == version) {
        return None;
    }
    let mut served: Vec<&Served> = catalog.in_version(group, version).collect();
    served.sort_by(|a, b| a.plural().cmp(b.plural()));
    let mut resources: Vec<Value> = served.into_iter().flat_map(|s| entries(catalog, s)).collect();
    resources.extend(match group {
        kubevirt::GROUP => kubevirt::about::listed(),
        upload::GROUP => upload::listed(),
        usage::GROUP => usage::listed(),
        _ => Vec::new(),
    });
    let group_version = GroupVersion::new(group, version).to_string();
    let mut list = json!({"kind": "APIResourceList", "groupVersion": group_version, "resources": resources});
    if !group.is_empty() {
        list["apiVersion"] = json!("v1");
    }
    Some(list)
}

fn entries(catalog: &Catalog, served: &Served) -> Vec<Value> {
    let resource = &served.resource;
    let mut main = entry(&resource.names.plural, resource, &served.gvk(), &served.gvk(), &resource.verbs);
    main.insert("singularName".to_owned(), json!(resource.names.singular));
    for (field, list) in [("shortNames", &resource.names.short_names), ("categories", &resource.names.categories)] {
        if !list.is_empty() {
            main.insert(field.to_owned(), json!(list));
        }
    }
    if let Some(hash) = storage_version_hash(catalog, resource) {
        main.insert("storageVersionHash".to_owned(), json!(hash));
    }
    let mut entries = vec![Value::Object(main)];
    entries.extend(subresources(served).into_iter().map(|sub| {
        let name = format!("{}/{}", resource.names.plural, sub.name);
        Value::Object(entry(&name, resource, &served.gvk(), &sub.kind, &sub.verbs))
    }));
    entries
}

/// Built-in subresources are listed by name, custom ones as the definition has them.
pub(super) fn subresources(served: &Served) -> Vec<&Subresource> {
    let mut list: Vec<&Subresource> = served.version().subresources.iter().collect();
    if !served.resource.is_custom {
        list.sort_by(|a, b| a.name.cmp(&b.name));
    }
    list
}

/// `group` and `version` are only written where the kind is of another group than the list.
fn entry(
    name: &str,
    resource: &Arc<Resource>,
    list: &Gvk,
    kind: &Gvk,
    verb_list: &[&'static str],
) -> Map<String, Value> {
    let mut entry = Map::new();
    entry.insert("name".to_owned(), json!(name));
    entry.insert("singularName".to_owned(), json!(""));
    entry.insert("namespaced".to_owned(), json!(resource.is_namespaced()));
    entry.insert("kind".to_owned(), json!(kind.kind));
    entry.insert("verbs".to_owned(), json!(verbs(resource, verb_list)));
    if kind.group_version() != list.group_version() {
        entry.insert("group".to_owned(), json!(kind.group));
        entry.insert("version".to_owned(), json!(kind.version));
    }
    entry
}
