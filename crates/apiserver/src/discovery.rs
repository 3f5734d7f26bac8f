//! Discovery: which groups, versions and resources are served.
//!
//! Two forms exist. The legacy one is a tree of small documents (`/api`, `/apis`, `/apis/<group>`, `/api/v1`,
//! `/apis/<group>/<version>`); the aggregated one answers everything at `/api` and `/apis`, and clients recognise it only
//! by the parameters of the answer's media type.

mod aggregated;
mod legacy;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use croft_api::Resource;
use croft_meta::ApiError;
use serde_json::Value;
use sha2::{Digest, Sha256, Sha512};

use crate::catalog::Catalog;
use crate::negotiate::MediaType;

const JSON: &str = "application/json";
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) content_type: &'static str,
    /// Quoted, as the header has it. Only aggregated discovery has one; it is also sent with `Vary: Accept` and
    /// `Cache-Control: public`.
    pub(crate) etag: Option<String>,
    pub(crate) body: Bytes,
}

/// The answer to a GET of a discovery path; `None` if the path is not one, or names nothing that is served.
/// `accept` is the client's list, best first; `server_address` is `host:port`, as clients can reach it.
pub(crate) fn answer(
    catalog: &Catalog,
    path: &str,
    accept: &[MediaType<'_>],
    server_address: &str,
) -> Option<Result<Answer, ApiError>> {
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    if matches!(parts.as_slice(), ["api" | "apis"]) && accept.iter().any(wants_aggregated) {
        return Some(Ok(aggregated_answer(&aggregated::document(catalog, parts[0] == "api"))));
    }
    let document = match parts.as_slice() {
        ["api"] => legacy::core_versions(catalog, server_address),
        ["apis"] => legacy::group_list(catalog),
        ["apis", group] => legacy::group(catalog, group)?,
        ["api", version] => legacy::resource_list(catalog, "", version)?,
        ["apis", group, version] => legacy::resource_list(catalog, group, version)?,
        _ => return None,
    };
    if !accept.is_empty() && !accept.iter().any(wants_plain_json) {
        return Some(Err(ApiError::not_acceptable(
            "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, \
             application/vnd.kubernetes.protobuf",
        )
        .with_details(croft_meta::status::Details::default())));
    }
    Some(Ok(Answer { content_type: JSON, etag: None, body: write(&document) }))
}

fn is_json(media: &MediaType<'_>) -> bool {
    matches!(media.essence, "application/json" | "application/*" | "*/*")
}

/// Upstream looks through the whole list for the aggregated form before it considers any other, whatever the order.
fn wants_aggregated(media: &MediaType<'_>) -> bool {
    is_json(media)
        && (media.param("g"), media.param("v"), media.param("as"))
            == ("apidiscovery.k8s.io", "v2", "APIGroupDiscoveryList")
}

fn wants_plain_json(media: &MediaType<'_>) -> bool {
    is_json(media) && ["g", "v", "as"].iter().all(|param| media.param(param).is_empty())
}

fn aggregated_answer(document: &Value) -> Answer {
    let body = write(document);
    let etag = format!("\"{}\"", hex_upper(&Sha512::digest(&body)));
    Answer { content_type: AGGREGATED, etag: Some(etag), body }
}

/// A document that was changed after it was made.
pub(crate) fn rewritten(document: &Value, is_aggregated: bool) -> Answer {
    if is_aggregated {
        return aggregated_answer(document);
    }
    Answer { content_type: JSON, etag: None, body: write(document) }
}

fn write(document: &Value) -> Bytes {
    // A document of ours has string keys only, so it can be written.
    Bytes::from(serde_json::to_vec(document).unwrap_or_default())
}

pub(crate) fn hex_upper(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02X}");
        text
    })
}

/// The order of upstream's lists: built-in resources sort their verbs, custom ones have a fixed order of their own.
fn verbs<'a>(resource: &'a Resource, verbs: &'a [&'static str]) -> Vec<&'static str> {
    const CUSTOM: [&str; 8] = ["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"];
    let mut ordered = verbs.to_vec();
    if resource.is_custom {
        ordered.sort_by_key(|verb| CUSTOM.iter().position(|v| v == verb));
    } else {
        ordered.sort_unstable();
    }
    ordered
}

/// Groups in the order of the catalog, custom ones after the built-in ones and by name.
fn groups(catalog: &Catalog) -> Vec<&crate::catalog::Group> {
    let is_custom = |group: &str| catalog.resources().iter().filter(|r| r.group == group).all(|r| r.is_custom);
    let mut groups: Vec<_> = catalog.groups().iter().filter(|g| !g.name.is_empty()).collect();
    groups.sort_by_cached_key(|group| is_custom(&group.name).then(|| group.name.clone()));
    groups
}

/// Tells clients when the stored form changes. Resources that share their storage share the hash.
fn storage_version_hash(catalog: &Catalog, resource: &Resource) -> Option<String> {
    if resource.is_virtual {
        return None;
    }
    let shares = |other: &&std::sync::Arc<Resource>| other.storage_key == resource.storage_key && !other.is_virtual;
    let owner = catalog.resources().iter().find(shares).map_or(resource, |owner| owner);
    let stored = format!("{}/{}/{}", owner.group, owner.storage_version, owner.names.kind);
    Some(STANDARD.encode(&Sha256::digest(stored.as_bytes())[..8]))
}

#[cfg(test)]
mod tests;
