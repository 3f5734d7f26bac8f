//! Everything in one document: `apidiscovery.k8s.io/v2` APIGroupDiscoveryList.

use croft_api::Scope;
use croft_meta::Gvk;
use serde_json::{Map, Value, json};

use super::legacy::subresources;
use super::{groups, verbs};
use crate::catalog::{Catalog, Group, Served};
use crate::{upload, usage};

/// The core group for `/api`, all others for `/apis`.
pub(super) fn document(catalog: &Catalog, core: bool) -> Value {
    let groups = if core { catalog.group("").into_iter().collect() } else { groups(catalog) };
    let items: Vec<Value> = groups.into_iter().map(|group| describe(catalog, group)).collect();
    json!({
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": items,
    })
}

fn describe(catalog: &Catalog, group: &Group) -> Value {
    let versions: Vec<Value> = group
        .versions
        .iter()
        .map(|version| {
            let mut served: Vec<&Served> = catalog.in_version(&group.name, version).collect();
            served.sort_by(|a, b| a.plural().cmp(b.plural()));
            let mut resources: Vec<Value> = served.into_iter().map(resource).collect();
            // KubeVirt's subresources have nothing that this form could say of them.
            match group.name.as_str() {
                upload::GROUP => resources.extend(upload::discovered()),
                usage::GROUP => resources.extend(usage::discovered()),
                _ => {}
            }
            json!({"version": version, "resources": resources, "freshness": "Current"})
        })
        .collect();
    let metadata = if group.name.is_empty() { json!({}) } else { json!({"name": group.name}) };
    json!({"metadata": metadata, "versions": versions})
}

fn resource(served: &Served) -> Value {
    let resource = &served.resource;
    let mut entry = Map::new();
    entry.insert("resource".to_owned(), json!(served.plural()));
    entry.insert("responseKind".to_owned(), response_kind(served, &served.gvk()));
    let scope = if resource.scope == Scope::Namespaced { "Namespaced" } else { "Cluster" };
    entry.insert("scope".to_owned(), json!(scope));
    entry.insert("singularResource".to_owned(), json!(resource.names.singular));
    entry.insert("verbs".to_owned(), json!(verbs(resource, &resource.verbs)));
    let subresources: Vec<Value> = subresources(served)
        .into_iter()
        .map(|sub| {
            let kind = response_kind(served, &sub.kind);
            json!({"subresource": sub.name, "responseKind": kind, "verbs": verbs(resource, &sub.verbs)})
        })
        .collect();
    let lists = [
        ("shortNames", json!(resource.names.short_names)),
        ("categories", json!(resource.names.categories)),
        ("subresources", Value::Array(subresources)),
    ];
    for (field, list) in lists {
        if list.as_array().is_some_and(|l| !l.is_empty()) {
            entry.insert(field.to_owned(), list);
        }
    }
    Value::Object(entry)
}

/// Built-in resources leave the group and version of the list empty, which clients read as "the same"; custom resources
/// write them out.
fn response_kind(served: &Served, kind: &Gvk) -> Value {
    if !served.resource.is_custom && kind.group_version() == served.gvk().group_version() {
        return json!({"group": "", "version": "", "kind": kind.kind});
    }
    json!({"group": kind.group, "version": kind.version, "kind": kind.kind})
}
