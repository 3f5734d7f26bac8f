//! The road of every request: who is it, may they, what do they want, and the answer.

mod patience;
mod resource;

use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use croft_meta::ApiError;
use http::Request;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, UPGRADE, WWW_AUTHENTICATE};
use http::request::Parts;
use parking_lot::Mutex;
use rustls::pki_types::CertificateDer;

use crate::answer::{self, Answer, Body};
use crate::audit::{Pending, Trail};
use crate::auth::authenticate::Recognized;
use crate::auth::impersonate::impersonate;
use crate::auth::{ANONYMOUS, Attributes};
use crate::call::Call;
use crate::cut::Ending;
use crate::fairness::{self, Classified, Seat};
use crate::metrics::Observed;
use crate::negotiate::Output;
use crate::request::{Query, RequestInfo};
use crate::serve::{Lane, LongAnswer};
use crate::server::ApiServer;
use crate::sessions::{self, Session};
use crate::shares::Share;
use crate::streams::Streamed;
use crate::user::UserInfo;
use crate::{negotiate, paths, rest, upload, usage};

use patience::{REQUEST_TIMEOUT, too_slow};
pub(crate) use resource::{not_allowed, resource, written};

/// What browsers send with every request that a page makes.
const FETCHED: &str = "sec-fetch-mode";

/// How a request came in.
#[derive(Clone, Debug)]
pub(crate) enum Caller {
    /// Over TLS, from an address, with the client's certificates if it showed any.
    Remote { certificates: Option<Arc<[CertificateDer<'static>]>>, address: IpAddr, lane: Lane },
    /// From a part of Croft in this process.
    Internal,
}

impl Caller {
    pub(crate) fn address(&self) -> Option<IpAddr> {
        match self {
            Self::Remote { address, .. } => Some(*address),
            Self::Internal => None,
        }
    }
}

/// Answers one request. Never fails: every failure is an answer.
pub(crate) async fn handle(server: Arc<ApiServer>, request: Request<Body>, caller: Caller) -> Answer {
    let started = Instant::now();
    let is_head = request.method() == http::Method::HEAD;
    let (parts, body) = request.into_parts();
    if let Some(file) = server.website.and_then(|website| website(&parts)) {
        let answer = file.map(answer::full);
        return if is_head { answer::without_body(answer) } else { answer };
    }
    let is_from_page = parts.headers.contains_key(FETCHED);
    let query = Query::parse(parts.uri.query());
    let info = RequestInfo::parse(&parts.method, rest::without_cluster(parts.uri.path()), &query);
    let changes = !matches!(info.verb, "get" | "list" | "watch" | "head" | "options");
    let _counted = server.metrics.request_started(changes);
    let streamed = Streamed::find(&server, &info, &query);
    // Only the start of a watch is bounded; the stream lives on in the answer. Other streams watch over themselves.
    let is_unbounded = info.verb == "watch" || streamed.is_some();
    let is_rest = rest::is_rest(&info);
    let failed = negotiate::output(&parts.headers).map_or(Output::JSON, Output::whole);
    let audited = Pending::begin(&server, &parts, &caller, &info, &query, streamed.as_ref());

    let patience = match patience::of(&query) {
        Ok(patience) => patience,
        Err(error) => {
            let mut answer = answer::failure(&error);
            audited.answered(&mut answer, Some(&error)).await;
            return answer;
        }
    };
    let arrived = Arrived { parts, body, info: info.clone(), query, streamed };
    let (warnings, classified) = (Mutex::default(), OnceLock::new());
    let work = answer_request(&server, arrived, &caller, audited.trail(), &warnings, &classified);
    let result = if is_unbounded {
        work.await
    } else {
        match tokio::time::timeout(patience, work).await {
            Ok(result) => result,
            Err(_) => Err(too_slow()),
        }
    };
    let (answer, failure) = match result {
        Ok(answer) => (answer, None),
        Err(error) => {
            log_failure(&info, &error, &caller);
            (if is_rest { rest::failure(&error) } else { answer::failure_as(failed, &error) }, Some(error))
        }
    };
    let mut answer = if is_from_page { without_prompt(answer) } else { answer };
    answer::add_warnings(&mut answer, &warnings.into_inner());
    if let Some(classified) = classified.get() {
        classified.tell(&mut answer);
    }
    observe(&server, &info, answer.status().as_u16(), started.elapsed());
    audited.answered(&mut answer, failure.as_ref()).await;
    if is_head { answer::without_body(answer) } else { answer }
}

/// To be asked for a password by the browser itself, over a page that has its own way of asking, helps nobody.
fn without_prompt(mut answer: Answer) -> Answer {
    answer.headers_mut().remove(WWW_AUTHENTICATE);
    answer
}

/// A request, and what its head says.
struct Arrived {
    parts: Parts,
    body: Body,
    info: RequestInfo,
    query: Query,
    streamed: Option<Streamed>,
}

async fn answer_request(
    server: &Arc<ApiServer>,
    arrived: Arrived,
    caller: &Caller,
    trail: &Arc<Trail>,
    warnings: &Mutex<Vec<String>>,
    classified: &OnceLock<Classified>,
) -> Result<Answer, ApiError> {
    let Arrived { mut parts, body, info, query, streamed } = arrived;
    if let Some(Streamed::ClaimUpload(form)) = streamed {
        // Not a user of ours: a token for this one upload says all.
        return upload::claim(server, &parts, body, form, trail).await;
    }
    let (user, recognized) = recognize(server, &parts, &info, caller, trail).await?;
    let is_rest = rest::is_rest(&info);
    if is_rest {
        rest::name_host(&mut parts);
    }
    match streamed.as_ref().and_then(Streamed::attributes) {
        Some(wanted) => server.auth.authorize_told(&user, &wanted, trail)?,
        // Each of those paths is about a resource, and is authorized where that is known.
        None if is_rest || usage::is_usage(&info) => {}
        None => server.auth.authorize_told(&user, &Attributes::of(&info), trail)?,
    }
    let is_internal = matches!(caller, Caller::Internal);
    let session = match (caller, &recognized) {
        (Caller::Remote { certificates, .. }, Some(known)) if streamed.is_some() || info.verb == "watch" => {
            let Parts { headers, .. } = &parts;
            server.sessions.enter(&server.auth.authenticator, headers, certificates, known, &server.stopping())
        }
        _ => None,
    };
    if let Some(streamed) = streamed {
        // Neither must it keep a seat while another server is told.
        let (body, _room) = if streamed.is_aggregated() && !is_internal && !parts.headers.contains_key(UPGRADE) {
            let reading = read_body(server, caller, &user, &info, body);
            let (body, room) = tokio::time::timeout(REQUEST_TIMEOUT, reading).await.map_err(|_| too_slow())??;
            if looks(&info) {
                parts.headers.remove(CONTENT_LENGTH);
            }
            (answer::full(body), room)
        } else {
            (body, None)
        };
        let headers = parts.headers.clone();
        let mut call = Call::new(Arc::clone(server), user, is_internal, info, query, headers, Bytes::new());
        call.trail = Arc::clone(trail);
        call.session = session;
        return stream(call, &streamed, &mut parts, body, classified).await;
    }
    if parts.method == http::Method::HEAD && info.is_resource {
        return Err(not_allowed());
    }
    let (body, _room) = read_body(server, caller, &user, &info, body).await?;
    let content_type = parts.headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    trail.sent(&body, content_type.unwrap_or_default());
    // Not before the body is there: whoever sends it slowly must not keep a seat meanwhile. Of a watch, only its beginning takes a seat.
    let seated = match caller {
        Caller::Internal => None,
        Caller::Remote { lane, .. } => {
            let of = classified.get_or_init(|| server.fairness.classify(&user, &info));
            let objects = listed(server, &info);
            let (seat, long) = seated(server, of, objects.map_or(1, fairness::width), lane).await?;
            Some((seat, long, objects.is_some()))
        }
    };
    // Not of whoever acts as somebody else.
    let standing = recognized.filter(|known| known.user == user).and_then(|known| known.standing);
    let mut call = Call::new(Arc::clone(server), user, is_internal, info, query, parts.headers, body);
    call.trail = Arc::clone(trail);
    call.standing = standing;
    let result = if call.info.is_resource {
        resource(&call).await.map(|answer| lasting(answer, session, Ending::of(call.info.verb)))
    } else if is_rest {
        rest::answer(&call, caller.address()).await
    } else if usage::is_usage(&call.info) {
        usage::answer(&call).await
    } else {
        paths::answer(&call).await
    };
    // Whoever is refused may be warned all the same.
    *warnings.lock() = call.take_warnings();
    match seated {
        Some((seat, long, true)) => result.map(|answer| fairness::until_sent(answer, seat, long)),
        _ => result,
    }
}

/// Who asks, as whom they ask, and by what they were recognized.
async fn recognize(
    server: &ApiServer,
    parts: &Parts,
    info: &RequestInfo,
    caller: &Caller,
    trail: &Trail,
) -> Result<(UserInfo, Option<Recognized>), ApiError> {
    match caller {
        Caller::Internal => Ok((UserInfo::internal(), None)),
        // Whoever logs in may still hold a session that has ended.
        Caller::Remote { .. } if rest::is_public(info) => {
            rest::csrf::check_site(parts, true)?;
            Ok((UserInfo::anonymous(), None))
        }
        Caller::Remote { certificates, address, .. } => {
            rest::csrf::check(&parts.method, &parts.headers)?;
            rest::csrf::check_site(parts, rest::is_rest(info) || info.path.starts_with("/croft/"))?;
            let known = server.auth.authenticator.recognize(&parts.headers, certificates.as_deref(), Some(*address));
            let recognized = server.metrics.logins.counted(known.await)?;
            let known = recognized.user.clone();
            if known.name == ANONYMOUS && !server.auth.authenticator.allows_anonymous(parts.uri.path()) {
                return Err(ApiError::unauthorized());
            }
            trail.user(&known);
            let uri = parts.uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
            let user = impersonate(&server.auth.rbac, known, &parts.headers, uri)?;
            trail.acts_as(&user);
            Ok((user, Some(recognized)))
        }
    }
}

/// What is no answer of ours: the bytes go on between the client and somebody else.
async fn stream(
    call: Call,
    streamed: &Streamed,
    parts: &mut Parts,
    body: Body,
    classified: &OnceLock<Classified>,
) -> Result<Answer, ApiError> {
    let (ended, session, ending) = (call.ended(), call.session.clone(), Ending::of(call.info.verb));
    // Whatever another server has to do for it, until it answers.
    let _seat = if streamed.is_aggregated() && !call.is_internal {
        let of = classified.get_or_init(|| call.server.fairness.classify(&call.user, &call.info));
        Some(call.server.fairness.seat(of, 1).await?)
    } else {
        None
    };
    let answer = tokio::select! {
        answer = streamed.answer(call, parts, body) => answer?,
        () = ended.cancelled(), if session.is_some() => return Err(ApiError::unauthorized()),
    };
    Ok(lasting(answer, session, ending))
}

fn looks(info: &RequestInfo) -> bool {
    matches!(info.verb, "get" | "list" | "watch" | "head")
}

async fn read_body(
    server: &ApiServer,
    caller: &Caller,
    user: &UserInfo,
    info: &RequestInfo,
    body: Body,
) -> Result<(Bytes, Option<Share>), ApiError> {
    // Whoever only looks has nothing to say, and as upstream nobody listens: it may never end, and a watch has all the time there is.
    let body = if looks(info) { answer::full("") } else { body };
    server.body_room.read(&user.name, caller.address(), body).await
}

/// A stream lasts as long as the credential that it was opened with.
fn lasting(answer: Answer, session: Option<Arc<Session>>, ending: Ending) -> Answer {
    match session {
        Some(session) => sessions::until_ended(answer, session, ending),
        None => answer,
    }
}

/// Waits for a turn. What is long to answer goes on among its kind.
async fn seated(
    server: &ApiServer,
    of: &Classified,
    width: usize,
    lane: &Lane,
) -> Result<(Seat, Option<LongAnswer>), ApiError> {
    let seat = server.fairness.seat(of, width).await?;
    if width == 1 {
        return Ok((seat, None));
    }
    let long = lane.long_answer();
    // Here the threads change. Besides, whatever has arrived meanwhile is to ask for its seat before a thread is busy for long:
    // otherwise those who come in numbers are served in the order in which they came, and seats are never scarce.
    tokio::task::yield_now().await;
    Ok((seat, Some(long)))
}

/// How many objects there are to be listed, if the request is for a list of them.
fn listed(server: &ApiServer, info: &RequestInfo) -> Option<usize> {
    let catalog = server.catalog();
    if rest::is_rest(info) {
        let (key, namespace) = rest::listed(&catalog, info)?;
        return Some(server.cache.collection(&key).count(&namespace));
    }
    let served = (info.verb == "list").then(|| catalog.find(&info.group, &info.version, &info.resource))?;
    Some(served.map_or(0, |served| server.cache.collection(&served.resource.storage_key).count(&info.namespace)))
}

fn log_failure(info: &RequestInfo, error: &ApiError, caller: &Caller) {
    let (verb, path, code, reason) = (info.verb, info.path.as_str(), error.code(), error.reason());
    if code >= 500 {
        tracing::error!(verb, path, code, reason, error = error.message(), "request failed");
    } else if matches!(caller, Caller::Internal) {
        // Controllers look for what may not be there; that is nobody's failure.
        tracing::debug!(verb, path, code, reason, error = error.message(), "request refused");
    } else {
        tracing::info!(verb, path, code, reason, error = error.message(), "request refused");
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
