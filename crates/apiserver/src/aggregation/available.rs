//! Whether the servers behind this one are there: the condition `Available` of their APIServices.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use croft_meta::{ApiError, Gvk, Revision};
use futures::future::join_all;
use http::{Method, Request};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{Backend, proxy};
use crate::answer;
use crate::call::{Call, Target};
use crate::options::{FieldValidation, WriteOptions};
use crate::server::ApiServer;
use crate::verbs::update::{Candidate, change};
use crate::webhooks::place::Place;
use crate::{clock, crd};

const MANAGER: &str = "kube-aggregator";
/// Many changes come together; they are looked at together.
const PAUSE: Duration = Duration::from_millis(200);
/// A server is asked this often whether it is still there ...
const AGAIN: Duration = Duration::from_secs(30);
/// ... and this often while it is not.
const RETRY: Duration = Duration::from_secs(2);
/// What a server has to answer with what it serves.
const PATIENCE: Duration = Duration::from_secs(5);
const LONGEST: usize = 4 << 20;

/// When a server was asked last, and what had changed by then.
type Asked = HashMap<String, (Instant, [Revision; 4], bool)>;

/// Runs until the server stops.
pub(crate) async fn follow(server: Arc<ApiServer>) {
    let stop = server.stopping();
    let mut changed = server.cache.collection("apiregistration.k8s.io/apiservices").subscribe();
    let mut asked = Asked::new();
    loop {
        let backends = server.aggregation.all();
        let wait = if backends.is_empty() { AGAIN } else { PAUSE };
        tokio::select! {
            result = changed.changed() => if result.is_err() { return },
            () = tokio::time::sleep(wait) => {}
            () = stop.cancelled() => return,
        }
        look(&server, &mut asked).await;
    }
}

async fn look(server: &Arc<ApiServer>, asked: &mut Asked) {
    let backends = server.aggregation.all();
    asked.retain(|name, _| backends.iter().any(|backend| backend.name == *name));
    let cache = &server.cache;
    let places = ["core/services", "core/endpoints", "discovery.k8s.io/endpointslices", crd::STORAGE_KEY];
    let seen = places.map(|key| cache.collection(key).changed_at());
    let is_due = |backend: &&Arc<Backend>| match asked.get(&backend.name) {
        Some((when, known, is_good)) => {
            let every = if *is_good && backend.is_available { AGAIN } else { RETRY };
            *known != seen || when.elapsed() >= every
        }
        None => true,
    };
    let due: Vec<&Arc<Backend>> = backends.iter().filter(is_due).collect();
    let found = join_all(due.iter().map(|backend| check(server, backend))).await;
    for (backend, condition) in due.into_iter().zip(found) {
        let is_good = condition.is_good;
        if let Err(error) = tell(server, backend, &condition).await {
            tracing::warn!(service = backend.name, %error, "whether an API server is there could not be told");
        }
        asked.insert(backend.name.clone(), (Instant::now(), seen, is_good));
    }
}

struct Condition {
    is_good: bool,
    reason: &'static str,
    message: String,
}

impl Condition {
    fn bad(reason: &'static str, message: String) -> Self {
        Self { is_good: false, reason, message }
    }
}

async fn check(server: &Arc<ApiServer>, backend: &Backend) -> Condition {
    if backend.is_served_by(&server.catalog()) {
        let text = format!("{}/{} is served by Croft itself", backend.group, backend.version);
        return Condition::bad("ServedLocally", text);
    }
    if let Some(bad) = misplaced(server, &backend.place) {
        return bad;
    }
    match tokio::time::timeout(PATIENCE, discover(server, backend)).await {
        Ok(Ok(resources)) => {
            backend.serves(resources);
            Condition { is_good: true, reason: "Passed", message: "all checks passed".to_owned() }
        }
        Ok(Err(why)) => Condition::bad("FailedDiscoveryCheck", why),
        Err(_) => Condition::bad("FailedDiscoveryCheck", missing(backend, "context deadline exceeded")),
    }
}

/// What is wrong with the Service, before anybody is asked.
fn misplaced(server: &ApiServer, place: &Place) -> Option<Condition> {
    let Place::Service { namespace, name, port, .. } = place else { return None };
    let found = server.cache.collection("core/services").get(&format!("{namespace}/{name}"));
    let Some(service) = found else {
        let text = format!("service/{name} in {namespace:?} is not present");
        return Some(Condition::bad("ServiceNotFound", text));
    };
    let service = service.json();
    if service.pointer("/spec/type").and_then(Value::as_str) == Some("ExternalName") {
        return None;
    }
    let ports = service.pointer("/spec/ports").and_then(Value::as_array);
    let listed = ports.into_iter().flatten().find(|listed| listed["port"].as_u64() == Some(u64::from(*port)));
    let Some(listed) = listed else {
        let text = format!("service/{name} in {namespace:?} is not listening on port {port}");
        return Some(Condition::bad("ServicePortError", text));
    };
    place.address(&server.cache).err().map(|_| {
        let port = listed["name"].as_str().unwrap_or_default();
        let text = format!("endpoints for service/{name} in {namespace:?} have no addresses with port name {port:?}");
        Condition::bad("MissingEndpoints", text)
    })
}

fn missing(backend: &Backend, why: &str) -> String {
    let url = format!("https://{}{}", backend.place.authority(), backend.root());
    format!("failing or missing response from {url}: {why}")
}

/// The resources that the server serves, as aggregated discovery tells them.
async fn discover(server: &Arc<ApiServer>, backend: &Backend) -> Result<Vec<Value>, String> {
    let request = Request::builder()
        .method(Method::GET)
        .uri(backend.root())
        .header("x-remote-user", "system:kube-aggregator")
        .header("x-remote-group", "system:masters")
        .header(http::header::ACCEPT, "application/json")
        .body(answer::full(""))
        .map_err(|error| error.to_string())?;
    let answer = proxy::send(server, backend, request).await;
    let answer = answer.map_err(|why| missing(backend, &why))?;
    let (parts, body) = answer.into_parts();
    let code = parts.status.as_u16();
    if !(200..300).contains(&code) {
        let url = format!("https://{}{}", backend.place.authority(), backend.root());
        return Err(missing(backend, &format!("bad status from {url}: {code}")));
    }
    let body = answer::read_body(body.map_err(Into::into).boxed_unsync(), LONGEST).await;
    let body = body.map_err(|error| missing(backend, error.message()))?;
    let list: Value = serde_json::from_slice(&body).map_err(|error| missing(backend, &error.to_string()))?;
    Ok(super::discovered::of_list(&list, &backend.group, &backend.version))
}

/// Writes the condition, if it is another one.
async fn tell(server: &Arc<ApiServer>, backend: &Backend, found: &Condition) -> Result<(), ApiError> {
    let catalog = server.catalog();
    let kind = catalog.find_kind(&Gvk::new("apiregistration.k8s.io", "v1", "APIService"));
    let kind = kind.ok_or_else(ApiError::no_such_path)?;
    let mut target = Target::new(kind.clone(), "", &backend.name);
    "status".clone_into(&mut target.subresource);
    let options = WriteOptions {
        dry_run: false,
        field_manager: MANAGER.to_owned(),
        field_validation: FieldValidation::Strict,
        force: false,
    };
    let now = clock::now_rfc3339();
    let status = if found.is_good { "True" } else { "False" };
    let call = Call::internal(server, &target);
    let written = change(&call, &target, &options, |old| {
        let mut new = old.clone();
        let conditions = old.pointer("/status/conditions").and_then(Value::as_array).cloned().unwrap_or_default();
        let (mut kept, mut since) = (Vec::new(), json!(now));
        for condition in conditions {
            if condition["type"] != "Available" {
                kept.push(condition);
            } else if condition["status"] == status {
                since = condition["lastTransitionTime"].clone();
            }
        }
        kept.push(json!({
            "type": "Available", "status": status, "reason": found.reason, "message": found.message,
            "lastTransitionTime": since,
        }));
        new["status"]["conditions"] = json!(kept);
        Ok(Candidate::Untracked(new))
    });
    match written.await {
        Err(error) if error.code() != 404 => Err(error),
        _ => Ok(()),
    }
}
