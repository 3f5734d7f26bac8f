//! One object: read, created, changed, deleted or told to do something, through the Kubernetes API.

use std::sync::Arc;

use bytes::Bytes;
use croft_meta::{ApiError, names, object};
use http::header::{CONTENT_TYPE, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method};
use http_body_util::BodyExt;
use serde_json::Value;

use super::dress::{Dresser, undressed};
use super::reply::invalid;
use super::schema::Schema;
use super::{actions, machine, reply, template};
use crate::answer::{self, Answer};
use crate::auth::Attributes;
use crate::call::Call;
use crate::pipeline::{self, not_allowed};
use crate::request::{Query, RequestInfo};

/// Everything but lists.
pub(super) async fn answer(call: &Call, root: &str, schema: &Schema, path: &[&str]) -> Result<Answer, ApiError> {
    let (path, link) = match (path, schema.is_namespaced()) {
        ([namespace, name, link], true) => (&[*namespace, *name][..], *link),
        ([name, link], false) => (&[*name][..], *link),
        _ => (path, call.query.get("link").unwrap_or_default()),
    };
    let (namespace, name) = match (path, schema.is_namespaced()) {
        ([], _) => ("", ""),
        ([namespace], true) => (*namespace, ""),
        ([namespace, name], true) => (*namespace, *name),
        ([name], false) => ("", *name),
        _ => return Err(ApiError::no_such_path()),
    };
    if [namespace, name].iter().any(|part| !part.is_empty() && !names::is_path_segment_name(part).is_empty()) {
        return Err(ApiError::no_such_path());
    }
    let action = call.query.get("action").unwrap_or_default();
    match (call.info.verb, name) {
        ("post", "") if action.is_empty() => create(call, root, schema, namespace).await,
        ("post", _) if !action.is_empty() => actions::act(call, schema, (namespace, name), action).await,
        (_, "") => Err(not_allowed()),
        ("get", _) if !link.is_empty() => follow(call, root, schema, (namespace, name), link).await,
        (_, _) if !link.is_empty() => Err(not_allowed()),
        ("get", _) => {
            let found = kubernetes(call, schema, Method::GET, (namespace, name), Sent::NOTHING).await?;
            Ok(dressed(call, root, schema, 200, found))
        }
        ("put", _) => update(call, root, schema, namespace, name).await,
        ("patch", _) => {
            let content_type = match call.content_type().split(';').next().unwrap_or_default().trim() {
                "" | "application/json" => "application/merge-patch+json",
                other => other,
            };
            let sent = Sent { content_type, body: call.body.clone() };
            let changed = kubernetes(call, schema, Method::PATCH, (namespace, name), sent).await?;
            Ok(dressed(call, root, schema, 200, changed))
        }
        ("delete", _) => delete(call, root, schema, namespace, name).await,
        _ => Err(not_allowed()),
    }
}

/// What is below an object.
async fn follow(call: &Call, root: &str, schema: &Schema, place: (&str, &str), link: &str) -> Result<Answer, ApiError> {
    match link {
        "versions" if schema.is("harvesterhci.io", "virtualmachinetemplates") => {
            template::versions(call, root, schema, place).await
        }
        _ => Err(ApiError::new(404, "NotFound", format!("there is no link {link:?} here"))),
    }
}

async fn create(call: &Call, root: &str, schema: &Schema, namespace: &str) -> Result<Answer, ApiError> {
    let wanted = undressed(reply::body(call)?, schema);
    let own = object::namespace(&wanted);
    let namespace = if namespace.is_empty() { own } else { namespace };
    if schema.is_namespaced() && namespace.is_empty() {
        return Err(invalid("MissingRequired", "metadata.namespace is required"));
    }
    let namespace = namespace.to_owned();
    let sent = Sent::json(schema, wanted)?;
    let created = kubernetes(call, schema, Method::POST, (&namespace, ""), sent).await?;
    Ok(dressed(call, root, schema, 201, created))
}

async fn update(call: &Call, root: &str, schema: &Schema, namespace: &str, name: &str) -> Result<Answer, ApiError> {
    let wanted = undressed(reply::body(call)?, schema);
    if object::resource_version(&wanted).is_empty() {
        let why = "metadata.resourceVersion is required: read the object, change it, and send it back";
        return Err(invalid("MissingRequired", why));
    }
    let changed = kubernetes(call, schema, Method::PUT, (namespace, name), Sent::json(schema, wanted)?).await?;
    Ok(dressed(call, root, schema, 200, changed))
}

async fn delete(call: &Call, root: &str, schema: &Schema, namespace: &str, name: &str) -> Result<Answer, ApiError> {
    let place = (namespace, name);
    let disks: Vec<&str> = call.query.all("removedDisks").flat_map(|disks| disks.split(',')).collect();
    if schema.is("kubevirt.io", "virtualmachines") && !disks.is_empty() {
        // What may not be deleted must not be changed either.
        call.server.auth.authorize(&call.user, &schema.attributes("delete", namespace, name))?;
        machine::name_removed_disks(call, schema, place, &disks).await?;
    }
    let last = kubernetes(call, schema, Method::DELETE, place, Sent::NOTHING).await?;
    if last["kind"] == schema.served.kind() {
        return Ok(dressed(call, root, schema, 200, last));
    }
    Ok(no_content())
}

pub(super) fn no_content() -> Answer {
    let mut answer = Answer::new(answer::full(""));
    *answer.status_mut() = http::StatusCode::NO_CONTENT;
    answer
}

fn dressed(call: &Call, root: &str, schema: &Schema, code: u16, object: Value) -> Answer {
    answer::json(code, &Dresser::new(call, root, schema).value(object))
}

/// The body of a request to the Kubernetes API.
pub(super) struct Sent<'a> {
    pub(super) content_type: &'a str,
    pub(super) body: Bytes,
}

impl Sent<'_> {
    pub(super) const NOTHING: Self = Self { content_type: "application/json", body: Bytes::new() };

    /// An object of this kind; Steve's clients may leave out which.
    pub(super) fn json(schema: &Schema, mut object: Value) -> Result<Self, ApiError> {
        if !object.is_object() {
            return Err(invalid("InvalidBodyContent", "the body is not an object"));
        }
        let gvk = schema.served.gvk();
        if object["apiVersion"].is_null() {
            object["apiVersion"] = gvk.api_version().into();
        }
        if object["kind"].is_null() {
            object["kind"] = gvk.kind.into();
        }
        Ok(Self { content_type: "application/json", body: object.to_string().into() })
    }
}

/// Asks the Kubernetes API in the caller's name.
pub(super) async fn kubernetes(
    call: &Call,
    schema: &Schema,
    method: Method,
    (namespace, name): (&str, &str),
    sent: Sent<'_>,
) -> Result<Value, ApiError> {
    let asking = asking(call, &method, &schema.kubernetes_path(namespace, name), sent);
    call.server.auth.authorize_told(&call.user, &Attributes::of(&asking.info), &call.trail)?;
    let answer = pipeline::resource(&asking).await?;
    for text in asking.take_warnings() {
        call.warn(text);
    }
    let body = answer.into_body().collect().await.map_err(ApiError::internal)?.to_bytes();
    serde_json::from_slice(&body).map_err(ApiError::internal)
}

/// A request to the Kubernetes API that the caller is still to be allowed.
pub(super) fn asking(call: &Call, method: &Method, path: &str, sent: Sent<'_>) -> Call {
    let shared = ["dryRun", "propagationPolicy", "gracePeriodSeconds", "fieldManager", "fieldValidation"];
    let query = Query::of(shared.into_iter().filter_map(|key| Some((key, call.query.get(key)?.to_owned()))));
    let mut headers = HeaderMap::new();
    for (name, value) in [(USER_AGENT, call.user_agent()), (CONTENT_TYPE, sent.content_type)] {
        if let Ok(value) = HeaderValue::from_str(value) {
            headers.insert(name, value);
        }
    }
    let info = RequestInfo::parse(method, path, &query);
    let user = call.user.clone();
    let mut asking = Call::new(call.server.clone(), user, call.is_internal, info, query, headers, sent.body);
    asking.trail = Arc::clone(&call.trail);
    asking
}
