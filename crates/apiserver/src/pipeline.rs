//! The road of every request: who is it, may they, what do they want, and the answer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use croft_meta::{ApiError, names};
use http::Request;
use rustls::pki_types::CertificateDer;

use crate::answer::{self, Answer, Body};
use crate::auth::Attributes;
use crate::auth::impersonate::impersonate;
use crate::call::{Call, Target};
use crate::metrics::Observed;
use crate::request::{Query, RequestInfo};
use crate::server::ApiServer;
use crate::user::UserInfo;
use crate::{negotiate, paths, subresources, verbs};

/// Upstream's limit for request bodies.
const BODY_LIMIT: usize = 3 << 20;
/// How long anything but a watch may take, the reading of its body included.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

/// How a request came in.
#[derive(Clone, Debug)]
pub(crate) enum Caller {
    /// Over TLS, with the client's certificates if it showed any.
    Remote(Option<Arc<[CertificateDer<'static>]>>),
    /// From a part of Croft in this process.
    Internal,
}

/// Answers one request. Never fails: every failure is an answer.
pub(crate) async fn handle(server: Arc<ApiServer>, request: Request<Body>, caller: Caller) -> Answer {
    let started = Instant::now();
    let query = Query::parse(request.uri().query());
    let info = RequestInfo::parse(request.method(), request.uri().path(), &query);
    let changes = !matches!(info.verb, "get" | "list" | "watch" | "head" | "options");
    let _counted = server.metrics.request_started(changes);
    let is_watch = info.verb == "watch";

    let work = answer_request(&server, request, &caller, info.clone(), query);
    let result = if is_watch {
        // Only the start of a watch is bounded; the stream lives on in the answer.
        work.await
    } else {
        match tokio::time::timeout(REQUEST_TIMEOUT, work).await {
            Ok(result) => result,
            Err(_) => Err(ApiError::timeout("the request did not finish within a minute", 1)),
        }
    };
    let answer = match result {
        Ok(answer) => answer,
        Err(error) => {
            log_failure(&info, &error);
            answer::failure(&error)
        }
    };
    observe(&server, &info, answer.status().as_u16(), started.elapsed());
    answer
}

async fn answer_request(
    server: &Arc<ApiServer>,
    request: Request<Body>,
    caller: &Caller,
    info: RequestInfo,
    query: Query,
) -> Result<Answer, ApiError> {
    let (parts, body) = request.into_parts();
    let user = match caller {
        Caller::Internal => UserInfo::internal(),
        Caller::Remote(chain) => {
            let user = server.auth.authenticator.authenticate(&parts.headers, chain.as_deref()).await?;
            impersonate(&server.auth.rbac, user, &parts.headers, &parts.uri.to_string())?
        }
    };
    let wanted = Attributes::of(&info);
    server.auth.authorize(&user, &wanted)?;
    let _permit = if info.verb == "watch" || matches!(caller, Caller::Internal) {
        None
    } else {
        let permit = server.in_flight.try_acquire();
        Some(permit.map_err(|_| ApiError::too_many_requests("too many requests at a time; try again", 1))?)
    };
    let body = answer::read_body(body, BODY_LIMIT).await?;
    let call = Call::new(Arc::clone(server), user, info, query, parts.headers, body);
    let result = if call.info.is_resource { resource(&call).await } else { paths::answer(&call).await };
    let mut answer = result?;
    answer::add_warnings(&mut answer, &call.take_warnings());
    Ok(answer)
}

/// A request for a resource: the same verbs for every kind.
async fn resource(call: &Call) -> Result<Answer, ApiError> {
    let info = &call.info;
    let served =
        call.catalog.find(&info.group, &info.version, &info.resource).ok_or_else(ApiError::no_such_path)?.clone();
    if !info.rest.is_empty() {
        return Err(ApiError::no_such_path());
    }
    check_scope(info, served.resource.is_namespaced())?;
    if let Some(text) = &served.version().deprecation_warning {
        call.warn(text.as_str());
    }
    let mut target = Target::new(served, &info.namespace, path_name(info));
    if !info.subresource.is_empty() {
        target.subresource.clone_from(&info.subresource);
        return subresources::answer(call, &target).await;
    }
    if target.served.resource.is_virtual {
        return subresources::virtual_kind(call, &target).await;
    }
    if !target.served.resource.verbs.contains(&info.verb) {
        return Err(ApiError::method_not_allowed(target.group(), target.plural(), info.verb));
    }
    let output = negotiate::output(&call.headers)?;
    match info.verb {
        "get" => verbs::get::get(call, &target, output).await,
        "list" => {
            target.name.clear();
            verbs::list::list(call, &target, output).await
        }
        "watch" => {
            target.name.clear();
            verbs::watch::watch(call, &target, output).await
        }
        "create" if target.name.is_empty() => {
            let created = verbs::create::create(call, &target).await?;
            verbs::get::object(call, &target, output, 201, created)
        }
        "update" if !target.name.is_empty() => written(call, &target, verbs::update::update(call, &target).await?),
        "patch" if !target.name.is_empty() => written(call, &target, verbs::patch::patch(call, &target).await?),
        "delete" => {
            let (code, value) = verbs::delete::delete(call, &target).await?;
            Ok(verbs::get::render(negotiate::Output { shape: negotiate::Shape::Whole, ..output }, code, &value))
        }
        "deletecollection" => {
            target.name.clear();
            let list = verbs::delete::delete_collection(call, &target).await?;
            Ok(answer::json(200, &list))
        }
        _ => Err(not_allowed()),
    }
}

/// A method that no path of this form takes, whatever the kind.
fn not_allowed() -> ApiError {
    ApiError::new(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")
        .with_details(croft_meta::status::Details::default())
}

/// The object of a PUT or PATCH: 201 if the request created it.
pub(crate) fn written(call: &Call, target: &Target, written: verbs::update::Written) -> Result<Answer, ApiError> {
    let output = negotiate::output(&call.headers)?;
    verbs::get::object(call, target, output, if written.created { 201 } else { 200 }, written.object)
}

/// The name in the path. [`RequestInfo`] also puts one there that a field selector asks for, for authorization.
fn path_name(info: &RequestInfo) -> &str {
    if matches!(info.verb, "list" | "watch" | "deletecollection") && !info.path.ends_with(&info.name) {
        return "";
    }
    &info.name
}

/// Namespaced kinds are written in a namespace, cluster-scoped ones outside of any; names must be names.
fn check_scope(info: &RequestInfo, is_namespaced: bool) -> Result<(), ApiError> {
    let is_namespace_itself = info.group.is_empty() && info.resource == "namespaces";
    if !is_namespaced && !info.namespace.is_empty() && !is_namespace_itself {
        return Err(ApiError::no_such_path());
    }
    // Across all namespaces one can only look.
    if is_namespaced && info.namespace.is_empty() && !matches!(info.verb, "list" | "watch") {
        let by_name = matches!(info.verb, "get" | "update" | "patch" | "delete");
        return Err(if by_name { ApiError::no_such_path() } else { not_allowed() });
    }
    if !info.name.is_empty() && !names::is_path_segment_name(&info.name).is_empty() {
        return Err(ApiError::no_such_path());
    }
    Ok(())
}

fn log_failure(info: &RequestInfo, error: &ApiError) {
    let (verb, path, code, reason) = (info.verb, info.path.as_str(), error.code(), error.reason());
    if code >= 500 {
        tracing::error!(verb, path, code, reason, message = error.message(), "request failed");
    } else {
        tracing::info!(verb, path, code, reason, message = error.message(), "request refused");
    }
}

fn observe(server: &ApiServer, info: &RequestInfo, code: u16, took: Duration) {
    let known = info.is_resource && server.catalog().find(&info.group, &info.version, &info.resource).is_some();
    if !known {
        return;
    }
    let verb = match info.verb {
        "get" => "GET",
        "list" => "LIST",
        "watch" => "WATCH",
        "create" => "POST",
        "update" => "PUT",
        "patch" => "PATCH",
        "delete" => "DELETE",
        "deletecollection" => "DELETECOLLECTION",
        _ => "OTHER",
    };
    let scope = match (info.name.is_empty(), info.namespace.is_empty()) {
        (false, _) => "resource",
        (true, false) => "namespace",
        (true, true) => "cluster",
    };
    // Subresources that nobody serves must not make labels.
    let subresource = if code == 404 { "" } else { info.subresource.as_str() };
    let of =
        Observed { verb, group: &info.group, version: &info.version, resource: &info.resource, subresource, scope };
    server.metrics.observe_request(&of, code, took);
}
