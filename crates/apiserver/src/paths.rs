//! Paths that are not resources: health, version, metrics, discovery, OpenAPI, token keys, the state, the store, the audit log.

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use croft_meta::ApiError;
use http::header::{CACHE_CONTROL, CONTENT_ENCODING, ETAG, IF_NONE_MATCH, LOCATION, VARY};
use http::{HeaderMap, HeaderValue, StatusCode};
use serde_json::{Value, json};

use crate::answer::{self, Answer};
use crate::audit::page as audit;
use crate::call::Call;
use crate::{aggregation, crd, discovery, metrics, negotiate, openapi, sealing, state, store_page};

/// The Kubernetes version whose behaviour this server follows.
const KUBERNETES_MAJOR: &str = "1";
const KUBERNETES_MINOR: &str = "34";

/// Who asks whether the server is ready does not wait long for the answer; upstream's limit for the same.
const STORE_PROBE: Duration = Duration::from_secs(2);

pub(crate) async fn answer(call: &Call) -> Result<Answer, ApiError> {
    let path = call.info.path.as_str();
    if let Some(check) = ["/healthz", "/livez", "/readyz"].iter().find(|p| is_below(path, p)) {
        return health(call, check, path).await;
    }
    if is_below(path, sealing::PATH) {
        return sealing::answer(call).await;
    }
    if is_below(path, store_page::PATH) {
        return store_page::answer(call).await;
    }
    if !matches!(call.info.verb, "get" | "head") {
        return Err(ApiError::new(
            405,
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
        ));
    }
    match path {
        "/" => return Ok(answer::json(200, &index(call))),
        "/ping" => return Ok(answer::text(200, "pong")),
        "/version" | "/version/" => return Ok(answer::json(200, &version())),
        "/metrics" => {
            let content_type = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            let server = &call.server;
            let others = [
                metrics::machines::tell(&server.cache),
                sealing::tell(server),
                store_page::tell(server),
                metrics::saved_states::tell(&server.cache),
            ];
            let text = server.metrics.render(&others.concat());
            return Ok(answer::bytes(200, content_type, text));
        }
        "/.well-known/openid-configuration" => {
            let base = format!("https://{}", call.server.outside_address());
            return Ok(answer::json(200, &call.server.auth.tokens.signer().discovery(&base)));
        }
        "/openid/v1/jwks" => {
            let keys = call.server.auth.tokens.signer().jwks().to_string();
            return Ok(answer::bytes(200, "application/jwk-set+json", keys));
        }
        state::PATH => return state::answer(call).await,
        audit::PATH => return audit::answer(call).await,
        _ => {}
    }
    if path.starts_with("/openapi/") {
        return openapi_document(call).await;
    }
    discovered(call)
}

fn is_below(path: &str, root: &str) -> bool {
    path == root || path.strip_prefix(root).is_some_and(|rest| rest.starts_with('/'))
}

/// Alive means answering; ready means that the store can be read and the first objects are there.
async fn health(call: &Call, check: &str, path: &str) -> Result<Answer, ApiError> {
    let wanted = path.strip_prefix(check).unwrap_or_default().trim_matches('/');
    // A restart would not bring the store back, so being alive does not depend on it.
    let is_live = check == "/livez";
    let checks = [
        ("ping", true),
        ("store", is_live || (matches!(wanted, "" | "store") && can_read_store(call).await)),
        // Reads go on, but what is damaged wants somebody's care.
        ("store-integrity", is_live || !call.server.store.stats().is_damaged),
        ("bootstrap", is_live || call.server.is_ready()),
    ];
    if !wanted.is_empty() {
        let (_, good) = checks.into_iter().find(|(name, _)| *name == wanted).ok_or_else(ApiError::no_such_path)?;
        return Ok(if good { answer::text(200, "ok") } else { answer::text(500, "not ready") });
    }
    let all_good = checks.iter().all(|(_, good)| *good);
    if all_good && !call.query.flag("verbose") {
        return Ok(answer::text(200, "ok"));
    }
    let mut text: String = checks
        .iter()
        .map(|(name, good)| if *good { format!("[+]{name} ok\n") } else { format!("[-]{name} failed\n") })
        .collect();
    let root = check.trim_start_matches('/');
    let verdict = if all_good { "passed" } else { "failed" };
    let _ = writeln!(text, "{root} check {verdict}");
    Ok(answer::text(if all_good { 200 } else { 500 }, text))
}

/// Whether what is newest in the store can be told, soon enough for a probe.
async fn can_read_store(call: &Call) -> bool {
    matches!(tokio::time::timeout(STORE_PROBE, call.server.cache.fresh()).await, Ok(Ok(_)))
}

/// `minor` is digits only: shell scripts compare it as a number.
pub(crate) fn version() -> Value {
    let platform = format!(
        "{}/{}",
        std::env::consts::OS,
        std::env::consts::ARCH.replace("x86_64", "amd64").replace("aarch64", "arm64")
    );
    json!({
        "major": KUBERNETES_MAJOR, "minor": KUBERNETES_MINOR,
        "gitVersion": format!("v{KUBERNETES_MAJOR}.{KUBERNETES_MINOR}.0+croft{}", env!("CARGO_PKG_VERSION")),
        "gitCommit": "", "gitTreeState": "clean", "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "", "compiler": "rustc", "platform": platform,
    })
}

fn index(call: &Call) -> Value {
    let mut paths = vec!["/.well-known/openid-configuration".to_owned(), "/api".to_owned(), "/apis".to_owned()];
    for group in call.catalog.groups() {
        let root = if group.name.is_empty() { "/api".to_owned() } else { format!("/apis/{}", group.name) };
        paths.push(root.clone());
        paths.extend(group.versions.iter().map(|version| format!("{root}/{version}")));
    }
    let others = [
        audit::PATH,
        sealing::PATH,
        state::PATH,
        store_page::PATH,
        "/healthz",
        "/livez",
        "/metrics",
        "/openapi/v2",
        "/openapi/v3",
        "/openid/v1/jwks",
        "/ping",
        "/readyz",
        "/version",
    ];
    paths.extend(others.map(str::to_owned));
    paths.sort();
    paths.dedup();
    json!({ "paths": paths })
}

fn discovered(call: &Call) -> Result<Answer, ApiError> {
    let accept = negotiate::accepted(&call.headers);
    let own = discovery::answer(&call.catalog, &call.info.path, &accept, &call.server.address()).transpose()?;
    let found = aggregation::merged(&call.info.path, own, &call.server.aggregation.backends(&call.catalog));
    let found = found.ok_or_else(ApiError::no_such_path)?;
    let mut answer = answer::bytes(200, found.content_type, found.body);
    if let Some(etag) = found.etag {
        tag(&mut answer, &call.headers, &etag, "public");
    }
    Ok(answer)
}

/// Adds the ETag; a client that has this very document gets 304 instead of it.
fn tag(answer: &mut Answer, request: &HeaderMap, etag: &str, cache_control: &'static str) {
    let headers = answer.headers_mut();
    headers.insert(VARY, HeaderValue::from_static("Accept"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static(cache_control));
    if let Ok(value) = HeaderValue::from_str(etag) {
        headers.insert(ETAG, value);
    }
    let known = request.get_all(IF_NONE_MATCH).iter().filter_map(|v| v.to_str().ok());
    if known.flat_map(|v| v.split(',')).any(|v| v.trim() == etag) {
        *answer.status_mut() = StatusCode::NOT_MODIFIED;
        *answer.body_mut() = answer::full("");
    }
}

async fn openapi_document(call: &Call) -> Result<Answer, ApiError> {
    let server = Arc::clone(&call.server);
    let headers = call.headers.clone();
    let path = call.info.path.clone();
    let hash = call.query.get("hash").unwrap_or_default().to_owned();
    // Making a document takes long enough to be kept off the workers.
    let reply = tokio::task::spawn_blocking(move || {
        let accept = negotiate::accepted(&headers);
        let request = openapi::Request {
            path: &path,
            hash: &hash,
            accept: &accept,
            accepts_gzip: answer::accepts_gzip(&headers),
        };
        server.openapi().answer(&request, || crd::established(&server.cache))
    })
    .await
    .map_err(ApiError::internal)?;
    match reply {
        openapi::Reply::NotFound => Err(ApiError::no_such_path()),
        openapi::Reply::NotAcceptable => {
            let mut answer = answer::text(406, "");
            answer.headers_mut().insert(VARY, HeaderValue::from_static("Accept"));
            Ok(answer)
        }
        openapi::Reply::Moved(to) => {
            let mut answer = answer::text(301, "");
            if let Ok(value) = HeaderValue::from_str(&to) {
                answer.headers_mut().insert(LOCATION, value);
            }
            Ok(answer)
        }
        openapi::Reply::Document(mut document) => {
            if call.info.path.trim_end_matches('/') == "/openapi/v3" {
                aggregation::index(&mut document, &call.server.aggregation.backends(&call.catalog));
            }
            let mut answer = answer::bytes(200, document.content_type, document.body);
            if document.is_gzip {
                answer.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            }
            let caching = if document.is_immutable { "public, immutable" } else { "no-cache, private" };
            tag(&mut answer, &call.headers, &document.etag, caching);
            Ok(answer)
        }
    }
}
