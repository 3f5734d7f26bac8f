//! What servers behind this one serve, among what it serves itself.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::Backend;
use crate::{discovery, openapi};

/// The entries of an APIResourceList as aggregated discovery has them; of this group and version unless they say otherwise.
pub(super) fn of_list(list: &Value, group: &str, version: &str) -> Vec<Value> {
    let mut resources: BTreeMap<String, Value> = BTreeMap::new();
    let kind = |entry: &Value| {
        let or =
            |field: &str, own: &str| entry[field].as_str().filter(|text| !text.is_empty()).unwrap_or(own).to_owned();
        json!({
            "group": or("group", group), "version": or("version", version), "kind": or("kind", ""),
        })
    };
    let entries: Vec<&Value> = list["resources"].as_array().into_iter().flatten().collect();
    let name = |entry: &Value| entry["name"].as_str().unwrap_or_default().to_owned();
    for entry in entries.iter().filter(|entry| !name(entry).contains('/')) {
        let scope = if entry["namespaced"] == true { "Namespaced" } else { "Cluster" };
        let mut found = json!({
            "resource": name(entry), "responseKind": kind(entry), "scope": scope,
            "singularResource": entry["singularName"].as_str().unwrap_or_default(), "verbs": entry["verbs"],
        });
        for field in ["shortNames", "categories"] {
            if entry[field].as_array().is_some_and(|list| !list.is_empty()) {
                found[field] = entry[field].clone();
            }
        }
        resources.insert(name(entry), found);
    }
    for entry in &entries {
        let name = name(entry);
        let Some((parent, below)) = name.split_once('/') else { continue };
        let Some(found) = resources.get_mut(parent) else { continue };
        let below = json!({"subresource": below, "responseKind": kind(entry), "verbs": entry["verbs"]});
        match found["subresources"].as_array_mut() {
            Some(list) => list.push(below),
            None => found["subresources"] = json!([below]),
        }
    }
    resources.into_values().collect()
}

/// A discovery document with what others serve; `own` is what this server has to say.
pub(crate) fn merged(
    path: &str,
    own: Option<discovery::Answer>,
    backends: &[Arc<Backend>],
) -> Option<discovery::Answer> {
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    let (["apis"] | ["apis", _]) = parts.as_slice() else { return own };
    let group = parts.get(1).copied();
    let mine: Vec<&Arc<Backend>> =
        backends.iter().filter(|backend| group.is_none_or(|group| group == backend.group)).collect();
    if mine.is_empty() {
        return own;
    }
    let Some(own) = own else {
        let mut document = json!({"kind": "APIGroup", "apiVersion": "v1", "name": group, "versions": []});
        for backend in mine {
            add_version(&mut document, backend);
        }
        return Some(discovery::rewritten(&document, false));
    };
    let is_aggregated = own.etag.is_some();
    let mut document: Value = serde_json::from_slice(&own.body).unwrap_or_default();
    for backend in mine {
        if is_aggregated {
            add_resources(&mut document, backend);
        } else if group.is_some() {
            add_version(&mut document, backend);
        } else {
            add_group(&mut document, backend);
        }
    }
    Some(discovery::rewritten(&document, is_aggregated))
}

/// The index of OpenAPI v3 with the documents of others, which come from them.
pub(crate) fn index(own: &mut openapi::Answer, backends: &[Arc<Backend>]) {
    let Some(first) = backends.first() else { return };
    let Ok(mut document) = serde_json::from_slice::<Value>(&own.body) else { return };
    let mut names = first.name.clone();
    for backend in backends {
        let path = format!("apis/{}/{}", backend.group, backend.version);
        document["paths"][&path] = json!({"serverRelativeURL": format!("/openapi/v3/{path}")});
        names = format!("{names},{}", backend.name);
    }
    own.body = document.to_string().into();
    own.etag = format!("{}-{names}\"", own.etag.trim_end_matches('"'));
}

/// To an APIGroup. Versions of this server come first.
fn add_version(group: &mut Value, backend: &Backend) {
    let version = json!({
        "groupVersion": format!("{}/{}", backend.group, backend.version), "version": backend.version,
    });
    if let Some(versions) = group["versions"].as_array_mut()
        && !versions.contains(&version)
    {
        versions.push(version.clone());
    }
    if group["preferredVersion"].is_null() {
        group["preferredVersion"] = version;
    }
}

/// To an APIGroupList.
fn add_group(list: &mut Value, backend: &Backend) {
    let Some(groups) = list["groups"].as_array_mut() else { return };
    let at = groups.iter().position(|group| group["name"] == backend.group).unwrap_or_else(|| {
        groups.push(json!({"name": backend.group, "versions": []}));
        groups.len() - 1
    });
    add_version(&mut groups[at], backend);
}

/// To an APIGroupDiscoveryList. A server that is not there is told of, with what it served last.
fn add_resources(list: &mut Value, backend: &Backend) {
    let Some(groups) = list["items"].as_array_mut() else { return };
    let at = groups.iter().position(|group| group["metadata"]["name"] == backend.group).unwrap_or_else(|| {
        groups.push(json!({"metadata": {"name": backend.group}, "versions": []}));
        groups.len() - 1
    });
    let freshness = if backend.is_available { "Current" } else { "Stale" };
    let mut version = json!({"version": backend.version, "freshness": freshness});
    if let Some(resources) = backend.resources() {
        version["resources"] = json!(*resources);
    }
    if let Some(versions) = groups[at]["versions"].as_array_mut()
        && !versions.iter().any(|known| known["version"] == backend.version)
    {
        versions.push(version);
    }
}
