//! What Rancher and Steve offer beside the Kubernetes API, and Harvester's clients call: logging in (`/v3-public`, `/v3`),
//! and every kind as a collection (`/v1`, `/v1/harvester`) with links, actions and a state.
//!
//! It is a way of speaking, not a second server: each request becomes one of the Kubernetes API, made in the caller's name
//! and subject to the same roles, admission and validation; its answer is dressed up on the way out. Failures are Steve's:
//! `{"type":"error","status":404,"code":"NotFound","message":"..."}`.

mod about;
mod acting;
mod actions;
mod claim;
mod collection;
pub(crate) mod csrf;
mod dress;
mod extras;
mod filter;
pub(crate) mod fuzzing;
mod image;
mod key_pair;
mod kubeconfig;
mod list_stream;
mod login;
mod machine;
mod node_actions;
mod preferences;
mod quota_actions;
mod reply;
mod resource;
mod schema;
mod service_kubeconfig;
mod settings;
mod snapshot;
mod state;
pub(crate) mod subscribe;
mod support_bundle;
mod template;
mod tokens;
mod totp;
mod users;

use std::borrow::Cow;
use std::net::IpAddr;

use croft_meta::ApiError;
use http::HeaderValue;
use http::header::HOST;
use http::request::Parts;

use crate::answer::{self, Answer};
use crate::auth::ANONYMOUS;
use crate::call::Call;
use crate::catalog::Catalog;
use crate::pipeline::not_allowed;
use crate::request::{RequestInfo, percent_decode};

pub(crate) use about::about;
pub(crate) use reply::failure;

/// Rancher's way to the Kubernetes API of a cluster; ours is the only one.
const CLUSTER: &str = "/k8s/clusters/local";

/// The path in the cluster that a path through Rancher names.
pub(crate) fn without_cluster(path: &str) -> &str {
    match path.strip_prefix(CLUSTER) {
        Some("") => "/",
        Some(rest) if rest.starts_with('/') => rest,
        _ => path,
    }
}

pub(crate) fn is_rest(info: &RequestInfo) -> bool {
    let root = info.path.trim_start_matches('/').split('/').next();
    !info.is_resource && matches!(root, Some("v1" | "v3" | "v3-public" | "v1-public"))
}

/// Paths for which it does not matter who asks.
pub(crate) fn is_public(info: &RequestInfo) -> bool {
    is_rest(info)
        && (info.path.starts_with("/v3-public") || info.path.starts_with("/v1-public") || info.path == extras::UI_INFO)
}

/// Of what kind and namespace the request lists objects, if it does: where those are stored.
pub(crate) fn listed(catalog: &Catalog, info: &RequestInfo) -> Option<(String, String)> {
    let path = segments(&info.path);
    let mut path = path.iter().map(|part| &**part).filter(|_| info.verb == "get");
    let below = path.next().filter(|root| *root == "v1").and_then(|_| path.next())?;
    let id = if below == "harvester" { path.next()? } else { below };
    let (namespace, rest) = (path.next(), path.next());
    if rest.is_some() {
        return None;
    }
    let schema = schema::Schema::find(catalog, id).filter(|schema| namespace.is_none() || schema.is_namespaced())?;
    let key = schema.served.resource.storage_key.clone();
    Some((key, namespace.unwrap_or_default().to_owned()))
}

fn segments(path: &str) -> Vec<Cow<'_, str>> {
    path.trim_matches('/').split('/').map(percent_decode).collect()
}

/// Links are made from the name that the client knows the server by; HTTP/2 has it outside of the headers.
pub(crate) fn name_host(parts: &mut Parts) {
    if !parts.headers.contains_key(HOST)
        && let Some(authority) = parts.uri.authority()
        && let Ok(value) = HeaderValue::from_str(authority.as_str())
    {
        parts.headers.insert(HOST, value);
    }
}

pub(crate) async fn answer(call: &Call, address: Option<IpAddr>) -> Result<Answer, ApiError> {
    if !call.body.is_empty() && !may_be_json(call.content_type()) {
        let why = format!("the body is of type {:?}; send application/json", call.content_type());
        return Err(ApiError::new(415, "UnsupportedMediaType", why));
    }
    let path = segments(&call.info.path);
    let path: Vec<&str> = path.iter().map(|part| &**part).collect();
    let action = call.query.get("action").unwrap_or_default();
    match (call.info.verb, path.as_slice(), action) {
        ("post", ["v3-public", "localProviders", "local"], "login") | ("post", ["v1-public", "login"], _) => {
            return login::login(call, address).await;
        }
        ("get", ["v3-public" | "v1-public", rest @ ..], _) => return login::providers(call, rest),
        ("get", ["v3", "settings"] | ["v3", "settings", _], _) => return settings::get(call, path.get(2).copied()),
        _ => {}
    }
    if is_public(&call.info) && call.info.path != extras::UI_INFO {
        return Err(if call.info.verb == "get" { ApiError::no_such_path() } else { not_allowed() });
    }
    if call.user.name == ANONYMOUS && call.info.path != extras::UI_INFO {
        return Err(ApiError::new(401, "Unauthorized", "must authenticate"));
    }
    match path.as_slice() {
        ["v3", rest @ ..] => management(call, rest, address).await,
        ["v1", "harvester", rest @ ..] => steve(call, "/v1/harvester", rest, address).await,
        ["v1", rest @ ..] => steve(call, "/v1", rest, address).await,
        _ => Err(ApiError::no_such_path()),
    }
}

/// Rancher's own objects: users, tokens, settings, the cluster.
async fn management(call: &Call, path: &[&str], address: Option<IpAddr>) -> Result<Answer, ApiError> {
    let action = call.query.get("action").unwrap_or_default();
    match (call.info.verb, path, action) {
        ("get", ["users" | "user"], _) => Ok(users::list(call)),
        ("get", ["users" | "user", id], _) => users::get(call, id),
        ("post", ["users"], "changepassword") => login::change_password(call, address).await,
        ("post", ["users"], "enabletotp") => totp::begin(call, address).await,
        ("post", ["users"], "confirmtotp") => totp::confirm(call).await,
        ("post", ["users"], "disabletotp") => totp::disable(call, address).await,
        ("get", ["tokens" | "token"], _) => tokens::list(call),
        ("post", ["tokens" | "token"], "logout" | "logoutAll") => login::log_out(call).await,
        ("post", ["tokens" | "token"], "") => tokens::create(call).await,
        ("get", ["tokens" | "token", id], _) => tokens::get(call, id),
        ("delete", ["tokens" | "token", id], _) => tokens::delete(call, id).await,
        ("get", ["settings" | "setting"], _) => settings::get(call, None),
        ("get", ["settings" | "setting", name], _) => settings::get(call, Some(name)),
        ("put", ["settings" | "setting", name], _) => settings::put(call, name).await,
        ("get", ["clusters" | "cluster"], _) => Ok(kubeconfig::clusters(call)),
        ("get", ["clusters" | "cluster", "local"], _) => Ok(kubeconfig::cluster(call)),
        ("post", ["clusters" | "cluster", "local"], "generateKubeconfig") => kubeconfig::generate(call).await,
        (
            verb,
            ["users" | "user" | "tokens" | "token" | "settings" | "setting" | "clusters" | "cluster", ..],
            action,
        ) if verb != "get" => {
            let what = if action.is_empty() { verb } else { action };
            Err(ApiError::new(405, "MethodNotAllowed", format!("{what} is not supported here")))
        }
        _ => Err(ApiError::no_such_path()),
    }
}

/// Steve's collections, below `root`.
async fn steve(call: &Call, root: &str, path: &[&str], address: Option<IpAddr>) -> Result<Answer, ApiError> {
    match (call.info.verb, path) {
        ("get", []) => return Ok(answer::json(200, &schema::root(call, root))),
        ("get", ["schemas" | "schema"]) => return Ok(answer::json(200, &schema::list(call, root))),
        ("get", ["schemas" | "schema", id]) => return schema::get(call, root, id).map(|s| answer::json(200, &s)),
        (_, ["readyz" | "ui-info"] | ["backuptarget", "healthz"] | ["clusters", "local"]) => {
            return extras::answer(call, path).await;
        }
        (_, ["supportbundles", name, "download"]) => return support_bundle::download(call, name).await,
        (_, ["kubeconfig"]) if root == "/v1/harvester" => return service_kubeconfig::answer(call).await,
        (_, ["userpreferences" | "userpreference", rest @ ..]) => return preferences::answer(call, rest).await,
        _ => {}
    }
    if let [id, rest @ ..] = path
        && let Some(kind) = id.strip_prefix("management.cattle.io.")
    {
        let path: Vec<&str> = std::iter::once(kind).chain(rest.iter().copied()).collect();
        return management(call, &path, address).await;
    }
    let [id, rest @ ..] = path else { return Err(not_allowed()) };
    let schema = schema::Schema::find(&call.catalog, id).ok_or_else(|| reply::no_schema(id))?;
    match (call.info.verb, rest) {
        ("get", []) => collection::list(call, root, &schema, "").await,
        ("get", [namespace]) if schema.is_namespaced() => collection::list(call, root, &schema, namespace).await,
        _ => resource::answer(call, root, &schema, rest).await,
    }
}

/// What pages can send anywhere without asking, as forms do, is no JSON. curl calls its bodies the forms of HTML unless it is told
/// better, and is believed, as by Rancher.
fn may_be_json(content_type: &str) -> bool {
    let essence = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    matches!(essence.as_str(), "" | "application/json" | "application/x-www-form-urlencoded")
        || essence.ends_with("+json")
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;
    use crate::request::Query;

    #[test]
    fn paths_are_told_apart() {
        let info = |path: &str| RequestInfo::parse(&Method::GET, path, &Query::default());
        for (path, rest, public) in [
            ("/v1/harvester/nodes", true, false),
            ("/v1", true, false),
            ("/v3/users", true, false),
            ("/v3-public/localProviders/local", true, true),
            ("/v1/harvester/ui-info", true, true),
            ("/v1beta1/upload", false, false),
            ("/v11", false, false),
            ("/api/v1/pods", false, false),
            ("/apis/apps/v1", false, false),
        ] {
            assert_eq!((is_rest(&info(path)), is_public(&info(path))), (rest, public), "{path}");
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn lists_are_known_from_their_paths() {
        let server = crate::testing::TestServer::start().await;
        let catalog = server.running.server().catalog();
        for (method, path, expected) in [
            (Method::GET, "/v1/harvester/configmaps", Some(("core/configmaps", ""))),
            (Method::GET, "/v1/configmap/default/", Some(("core/configmaps", "default"))),
            (Method::GET, "/v1/harvester/nodes", Some(("core/nodes", ""))),
            (Method::GET, "/v1/harvester/nodes/one", None),
            (Method::GET, "/v1/harvester/configmaps/default/one", None),
            (Method::GET, "/v1/harvester", None),
            (Method::GET, "/v1/harvester/schemas", None),
            (Method::GET, "/v3/users", None),
            (Method::POST, "/v1/harvester/configmaps", None),
        ] {
            let info = RequestInfo::parse(&method, path, &Query::default());
            let found = listed(&catalog, &info);
            assert_eq!(found.as_ref().map(|(key, namespace)| (&**key, &**namespace)), expected, "{method} {path}");
        }
    }

    #[test]
    fn bodies_are_json() {
        for (content_type, expected) in [
            ("", true),
            ("application/json; charset=utf-8", true),
            ("Application/JSON", true),
            ("application/merge-patch+json", true),
            ("application/x-www-form-urlencoded", true),
            ("text/plain;charset=UTF-8", false),
            ("multipart/form-data; boundary=x", false),
            ("application/yaml", false),
        ] {
            assert_eq!(may_be_json(content_type), expected, "{content_type}");
        }
    }

    #[test]
    fn the_clusters_own_paths_are_found_through_ranchers() {
        for (path, expected) in [
            ("/k8s/clusters/local/api/v1/pods", "/api/v1/pods"),
            ("/k8s/clusters/local", "/"),
            ("/k8s/clusters/localhost/api", "/k8s/clusters/localhost/api"),
            ("/k8s/clusters/other/api", "/k8s/clusters/other/api"),
            ("/api", "/api"),
        ] {
            assert_eq!(without_cluster(path), expected);
        }
    }
}
