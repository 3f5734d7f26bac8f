//! The parsers of this crate, for `croft-fuzz` alone: nothing else may use them.

use bytes::Bytes;
use croft_meta::{ApiError, Revision};
use futures::stream;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use serde_json::{Map, Value};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_util::sync::CancellationToken;

use crate::aggregation::fuzzing as aggregation;
use crate::answer::BoxError;
use crate::audit::fuzzing as audit;
use crate::auth::authenticate::oidc::fuzzing as oidc;
use crate::conversion::fuzzing as conversion;
use crate::decode;
use crate::encoding;
use crate::negotiate;
use crate::options::{DeleteOptions, ListOptions, WriteKind, WriteOptions};
use crate::request::{Query, RequestInfo};
use crate::rest::fuzzing as rest;
use crate::table::jsonpath::{self, JsonPath};
use crate::upload::multipart::{Form, file_of};
use crate::verbs::list;
use crate::webhooks::fuzzing as webhooks;
use crate::websocket::{self, Framing, Handshake};

/// A body and what strict validation would object to.
pub fn parse_body(body: &[u8], content_type: &str) -> Result<(Value, Vec<String>), ApiError> {
    decode::parse(body, content_type).map(|decoded| (decoded.object, decoded.complaints))
}

/// An object as clients get it.
pub fn stored_and_served(object: &Value, revision: u64) -> Bytes {
    encoding::to_served(&encoding::to_stored(object), Revision(revision))
}

/// Verb, group, version, namespace, resource, name, subresource and the rest; `None` for a path that is no resource.
pub fn request(method: &str, path: &str, query: &str) -> Option<[String; 8]> {
    let method = Method::from_bytes(method.as_bytes()).unwrap_or(Method::GET);
    let info = RequestInfo::parse(&method, path, &Query::parse(Some(query)));
    let verb = info.verb.to_owned();
    info.is_resource.then_some([
        verb,
        info.group,
        info.version,
        info.namespace,
        info.resource,
        info.name,
        info.subresource,
        info.rest,
    ])
}

/// The name that a list by this field selector is authorized for; empty if it is for all.
pub fn selected_name(field_selector: &str) -> String {
    let query = Query::of([("fieldSelector", field_selector.to_owned())]);
    RequestInfo::parse(&Method::GET, "/api/v1/namespaces/a/secrets", &query).name
}

/// All options that a query can hold.
pub fn query_options(query: &str, body: Option<Value>) {
    let query = Query::parse(Some(query));
    for kind in [WriteKind::Create, WriteKind::Update, WriteKind::Patch, WriteKind::Apply] {
        let _ = WriteOptions::parse(&query, kind, "kubectl/v1.34");
    }
    for watch in [false, true] {
        if let Ok(options) = ListOptions::parse(&query, watch) {
            let _ = (options.revision(), options.list_revision());
        }
    }
    let _ = DeleteOptions::parse(&query, None);
    let _ = DeleteOptions::parse(&query, body);
}

/// A continue token written again, or nothing if it is none.
pub fn continue_token(text: &str) -> Option<String> {
    list::rewritten_token(text)
}

/// The type of the answer that these Accept headers ask for.
pub fn accept(values: &[&[u8]]) -> Option<&'static str> {
    let mut headers = HeaderMap::new();
    for value in values {
        headers.append(ACCEPT, HeaderValue::from_bytes(value).ok()?);
    }
    let _ = values.first().and_then(|value| std::str::from_utf8(value).ok()).map(negotiate::body_format);
    negotiate::output(&headers).ok().map(negotiate::Output::content_type)
}

/// What a printer column of this path shows of the value.
pub fn printer_column(path: &str, value: &Value) -> Option<String> {
    let path = JsonPath::parse(path).ok()?;
    let _ = path.trunk().count();
    path.first(value).map(|found| jsonpath::to_text(&found))
}

/// `filter=` and `sort=` of Harvester's lists, over these objects.
pub fn rest_query(filters: &[&str], sort: &str, objects: &mut [Value]) {
    rest::query(filters, sort, objects);
}

/// The filter of the audit log's page, over one line of it; and the file of its policy.
pub fn audit(query: &str, line: &[u8], policy: &str) {
    audit::judge(&Query::parse(Some(query)), line);
    let _ = crate::AuditPolicy::parse(policy);
}

/// The patch that a webhook's answer holds.
pub fn webhook_answer(body: &[u8]) -> Option<Vec<u8>> {
    webhooks::read(body)
}

/// The objects in a conversion webhook's answer.
pub fn conversion_answer(body: &[u8]) {
    conversion::converted(body);
}

/// The resources that a server behind this one says that it has.
pub fn discovered(list: &Value) -> Vec<Value> {
    aggregation::discovered(list)
}

/// What a subscription is answered.
pub fn subscription(message: &[u8]) -> Option<Value> {
    rest::wish(message)
}

/// Names and groups of those whom an issuer's claims are about.
pub fn users_of_claims(claims: &Map<String, Value>) -> Vec<(String, Vec<String>)> {
    oidc::users(claims)
}

/// What a WebSocket client's bytes become on the node's side. The handshake's headers come first.
pub async fn websocket(protocols: &[u8], frames: &[u8], datagrams: bool) -> Vec<u8> {
    let mut headers = HeaderMap::new();
    let fixed = [("connection", "Upgrade"), ("upgrade", "websocket"), ("sec-websocket-version", "13")];
    for (name, value) in fixed {
        headers.append(name, HeaderValue::from_static(value));
    }
    headers.append("sec-websocket-key", HeaderValue::from_static("dGhlIHNhbXBsZSBub25jZQ=="));
    if let Ok(value) = HeaderValue::from_bytes(protocols) {
        headers.append("sec-websocket-protocol", value);
    }
    if let Ok(handshake) = Handshake::parse(&headers) {
        let _ = handshake.answer();
    }
    let framing = if datagrams { Framing::Datagrams } else { Framing::Bytes };
    let (mut client, server) = tokio::io::duplex(frames.len() + 64);
    // The pipe holds all of it: nobody waits.
    let _ = client.write_all(frames).await;
    let _ = client.shutdown().await;
    let server = websocket::of_stream(server).await;
    let (mut node, far) = tokio::io::duplex(3 * frames.len() + 64);
    let mut received = Vec::new();
    let copied = async {
        let _ = node.read_to_end(&mut received).await;
    };
    let discard = async {
        let _ = tokio::io::copy(&mut client, &mut tokio::io::sink()).await;
    };
    let bridge = websocket::bridge(server, far, framing, CancellationToken::new());
    futures::join!(bridge, copied, discard);
    received
}

/// The file in a form that comes in pieces of so many bytes, as far as it comes.
pub async fn multipart(content_type: &[u8], form: &[u8], piece: usize) -> Result<Vec<u8>, String> {
    let pieces: Vec<_> =
        form.chunks(piece.max(1)).map(|piece| Ok::<_, BoxError>(Frame::data(Bytes::copy_from_slice(piece)))).collect();
    let body = BodyExt::boxed_unsync(StreamBody::new(stream::iter(pieces)));
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_bytes(content_type).map_err(|error| error.to_string())?);
    let file = file_of(&headers, body, Form::RawOrField("chunk")).await.map_err(|error| error.message().to_owned())?;
    file.collect().await.map(|all| all.to_bytes().to_vec()).map_err(|error| error.to_string())
}
