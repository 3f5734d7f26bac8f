//! Requests that another server answers, in the name of the user.

use std::time::Duration;

use croft_meta::{ApiError, Chain, names};
use http::header::{
    AUTHORIZATION, CONNECTION, COOKIE, HOST, HeaderName, SEC_WEBSOCKET_PROTOCOL, TE, TRAILER, TRANSFER_ENCODING,
    UPGRADE,
};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;

use super::Backend;
use crate::answer::{self, Answer, Body};
use crate::call::Call;
use crate::cut::{self, Cut, Ending};
use crate::request::{RequestInfo, percent_decode};
use crate::server::ApiServer;
use crate::user::UserInfo;

/// For an answer to begin; a watch or an upgraded connection may then go on for as long as it likes.
const ANSWER: Duration = Duration::from_mins(1);
/// Headers by which a server behind this one is told who asks; what a client says there is not passed on.
const USER: HeaderName = HeaderName::from_static("x-remote-user");
const UID: HeaderName = HeaderName::from_static("x-remote-uid");
const GROUP: HeaderName = HeaderName::from_static("x-remote-group");
const REMOTE: &str = "x-remote-";
const EXTRA: &str = "x-remote-extra-";
const IMPERSONATE: &str = "impersonate-";
/// The token of a WebSocket client is among its subprotocols.
const WEBSOCKET_BEARER: &str = "base64url.bearer.authorization.k8s.io.";
const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");

/// Whatever the server behind says; 503 in upstream's words if it says nothing. Whoever calls this holds the seat for it: a
/// second one would be waited for by those who hold the first ones.
pub(crate) async fn answer(call: &Call, backend: &Backend, parts: &mut Parts, body: Body) -> Result<Answer, ApiError> {
    if !means_one_thing(&call.info) {
        return Err(ApiError::no_such_path());
    }
    if !backend.is_available {
        return Ok(unavailable("service unavailable"));
    }
    let path = match parts.uri.query() {
        Some(query) => format!("{}?{query}", call.info.path),
        None => call.info.path.clone(),
    };
    let mut request = Request::builder().method(parts.method.clone()).uri(path).body(body);
    if let Ok(request) = &mut request {
        *request.headers_mut() = passed_on(&parts.headers, &call.user);
    }
    let request = request.map_err(ApiError::internal)?;
    let is_upgrade = parts.headers.contains_key(UPGRADE);
    let client = if is_upgrade { parts.extensions.remove::<OnUpgrade>() } else { None };
    match tokio::time::timeout(ANSWER, send(&call.server, backend, request)).await {
        Ok(Ok(answer)) => returned(call, answer, client),
        Ok(Err(why)) => Ok(unavailable(&format!("error trying to reach service: {why}"))),
        Err(_) => Err(ApiError::timeout("request did not complete within the allotted timeout", 0)),
    }
}

/// Is the path the same to whoever splits it before and after it is decoded? It is authorized by the one reading here, and
/// may be answered by the other there.
fn means_one_thing(info: &RequestInfo) -> bool {
    let segments = info.path.trim_matches('/').split('/').map(percent_decode);
    let mut names = [&info.namespace, &info.name].into_iter().filter(|_| info.is_resource);
    segments.into_iter().all(|segment| !matches!(&*segment, "" | "." | "..") && !segment.contains('/'))
        && names.all(|name| name.is_empty() || names::is_path_segment_name(name).is_empty())
}

pub(super) fn unavailable(why: &str) -> Answer {
    answer::text(503, format!("{why}\n"))
}

/// On a connection of its own, which may become something else.
pub(super) async fn send(
    server: &ApiServer,
    backend: &Backend,
    mut request: Request<Body>,
) -> Result<Response<Incoming>, String> {
    let stream = backend.connect(&server.cache, &server.aggregation.front_proxy).await?;
    let host = HeaderValue::from_str(&backend.place.authority()).map_err(|error| error.to_string())?;
    request.headers_mut().insert(HOST, host);
    let handshake = http1::handshake::<_, Body>(TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.map_err(|error| Chain(&error).to_string())?;
    // Ends with the answer, or with what the connection became.
    tokio::spawn(connection.with_upgrades());
    sender.send_request(request).await.map_err(|error| Chain(&error).to_string())
}

/// The client's headers, without its credentials and what is about its connection, and with who it is.
fn passed_on(given: &HeaderMap, user: &UserInfo) -> HeaderMap {
    let is_upgrade = given.contains_key(UPGRADE);
    let mut headers = HeaderMap::with_capacity(given.len() + 4);
    let dropped = [AUTHORIZATION, COOKIE, HOST, CONNECTION, UPGRADE, TE, TRAILER, TRANSFER_ENCODING, KEEP_ALIVE];
    for (name, value) in given {
        let is_about_user = name.as_str().starts_with(REMOTE) || name.as_str().starts_with(IMPERSONATE);
        if !is_about_user && !dropped.contains(name) && *name != SEC_WEBSOCKET_PROTOCOL {
            headers.append(name.clone(), value.clone());
        }
    }
    let protocols = given.get_all(SEC_WEBSOCKET_PROTOCOL).iter().filter_map(|value| value.to_str().ok());
    let protocols: Vec<&str> = protocols
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .filter(|protocol| !protocol.starts_with(WEBSOCKET_BEARER))
        .collect();
    let mut add = |name: HeaderName, text: &str| {
        if let Ok(value) = HeaderValue::from_bytes(text.as_bytes()) {
            headers.append(name, value);
        }
    };
    if !protocols.is_empty() {
        add(SEC_WEBSOCKET_PROTOCOL, &protocols.join(", "));
    }
    if let (true, Some(upgrade)) = (is_upgrade, given.get(UPGRADE).and_then(|value| value.to_str().ok())) {
        add(UPGRADE, upgrade);
        add(CONNECTION, "Upgrade");
    }
    add(USER, &user.name);
    if !user.uid.is_empty() {
        add(UID, &user.uid);
    }
    for group in &user.groups {
        add(GROUP, group);
    }
    for (key, values) in &user.extra {
        let Ok(name) = HeaderName::from_bytes(format!("{EXTRA}{}", escaped(key)).as_bytes()) else { continue };
        for value in values {
            add(name.clone(), value);
        }
    }
    headers
}

/// A key of `extra` as it may stand in the name of a header; `%` and what follows is how the rest is written.
fn escaped(key: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$&'*+-.^_`|~".contains(&byte);
    key.bytes().map(|byte| if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

fn returned(call: &Call, answer: Response<Incoming>, client: Option<OnUpgrade>) -> Result<Answer, ApiError> {
    if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
        let Some(client) = client else {
            return Err(ApiError::bad_request("this connection cannot be upgraded"));
        };
        let headers = answer.headers().clone();
        let (ended, session) = (call.ended(), call.session.clone());
        call.server.spawn(async move {
            // The credential is looked at for as long as somebody holds on to this.
            let _session = session;
            let (Ok(client), Ok(server)) = tokio::join!(client, hyper::upgrade::on(answer)) else { return };
            let (mut client, mut server) = (TokioIo::new(client), TokioIo::new(server));
            tokio::select! {
                // Whichever side ends it, it is over.
                _ = tokio::io::copy_bidirectional(&mut client, &mut server) => {}
                () = ended.cancelled() => {}
            }
        });
        let mut switched = Answer::new(answer::full(""));
        *switched.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        *switched.headers_mut() = headers;
        return Ok(switched);
    }
    let (mut parts, body) = answer.into_parts();
    for name in [CONNECTION, TRANSFER_ENCODING, UPGRADE, KEEP_ALIVE] {
        parts.headers.remove(name);
    }
    parts.version = http::Version::default();
    parts.extensions = http::Extensions::new();
    let body = Cut::new(body, Ending::of(call.info.verb), cut::stopped(call.server.stopping()));
    Ok(Response::from_parts(parts, body.boxed_unsync()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_can_be_read_in_two_ways_are_not_passed_on() {
        let root = "/apis/toys.example.com/v1/namespaces/default/toys";
        let is_passed_on = |path: &str| {
            let query = crate::request::Query::default();
            means_one_thing(&RequestInfo::parse(&http::Method::GET, path, &query))
        };
        for below in ["", "/", "/a", "/a/status", "/a%20b", "/a/proxy/b%3Fc"] {
            assert!(is_passed_on(&format!("{root}{below}")), "{below}");
        }
        for below in ["/a%2Fstatus", "/a%2fstatus", "/..%2F..", "/%2e%2e", "/.", "/..", "//a", "/a%252Fstatus"] {
            assert!(!is_passed_on(&format!("{root}{below}")), "{below}");
        }
        assert!(!is_passed_on("/apis/toys.example.com/v1/namespaces/a%2Ftoys/toys"));
        assert!(!is_passed_on("/apis/toys.example.com/v1/namespaces//toys"));
        assert!(is_passed_on("/openapi/v3/apis/toys.example.com/v1"));
    }

    /// Both sides of a connection that becomes something else.
    async fn switched() -> (Response<Incoming>, OnUpgrade) {
        let (near, far) = tokio::io::duplex(1024);
        let (tell, mut told) = tokio::sync::mpsc::channel(1);
        let service = hyper::service::service_fn(move |mut request: Request<Incoming>| {
            tell.try_send(hyper::upgrade::on(&mut request)).unwrap();
            let switched = Response::builder().status(101).header(CONNECTION, "upgrade").header(UPGRADE, "x");
            async move { switched.body(String::new()) }
        });
        let serving = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(far), service);
        tokio::spawn(serving.with_upgrades());
        let (mut sender, connection) = http1::handshake(TokioIo::new(near)).await.unwrap();
        tokio::spawn(connection.with_upgrades());
        let request = Request::get("/").header(CONNECTION, "upgrade").header(UPGRADE, "x").body(String::new());
        let answer = sender.send_request(request.unwrap()).await.unwrap();
        (answer, told.recv().await.unwrap())
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_a_connection_became_ends_with_its_credential() {
        use tokio::io::AsyncReadExt as _;

        let test = crate::testing::TestServer::start().await;
        let server = std::sync::Arc::clone(test.running.server());
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, HeaderValue::from_static("Bearer gone"));
        let (user, stop) = (UserInfo::new("jane", &[]), server.stopping());
        let known = user.clone().into();
        let session = server.sessions.enter(&server.auth.authenticator, &headers, &None, &known, &stop).unwrap();
        let (info, query) = (RequestInfo::default(), crate::request::Query::default());
        let mut call = Call::new(server, user, false, info, query, headers, bytes::Bytes::new());
        call.session = Some(session);
        let ((from_behind, behind), (to_client, client)) = (switched().await, switched().await);
        returned(&call, from_behind, Some(client)).unwrap();
        // The request is answered. Nobody knows the token, which is found out.
        drop(call);
        let mut client = TokioIo::new(hyper::upgrade::on(to_client).await.unwrap());
        let _behind = behind.await.unwrap();
        let ended = tokio::time::timeout(croft_testkit::patience(), client.read_u8()).await;
        assert!(ended.expect("it ends").is_err());
    }

    #[test]
    fn who_asks_is_ours_to_say() {
        let mut given = HeaderMap::new();
        for (name, value) in [
            ("accept", "application/json"),
            ("authorization", "Bearer secret"),
            ("cookie", "R_SESS=secret"),
            ("x-remote-user", "root"),
            ("x-remote-group", "system:masters"),
            ("x-remote-extra-scopes", "all"),
            ("impersonate-user", "jane"),
            ("sec-websocket-protocol", "base64url.bearer.authorization.k8s.io.c2VjcmV0, v4.channel.k8s.io"),
        ] {
            given.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        let mut user = UserInfo::new("jane", &["a", "b"]);
        user.extra.insert("example.com/key".to_owned(), vec!["x".to_owned(), "y".to_owned()]);
        let headers = passed_on(&given, &user);
        let all = |name: &str| -> Vec<&str> { headers.get_all(name).iter().map(|v| v.to_str().unwrap()).collect() };
        assert_eq!(all("x-remote-user"), ["jane"]);
        assert_eq!(all("x-remote-group"), ["a", "b"]);
        assert_eq!(all("x-remote-extra-example.com%2fkey"), ["x", "y"]);
        assert_eq!(all("sec-websocket-protocol"), ["v4.channel.k8s.io"]);
        assert_eq!(all("accept"), ["application/json"]);
        for gone in ["authorization", "cookie", "x-remote-extra-scopes", "impersonate-user", "x-remote-uid"] {
            assert!(all(gone).is_empty(), "{gone}");
        }
    }
}
