//! Calling the agent of a node: HTTP/1.1 over mutual TLS, one connection per call.
//!
//! Where the agent listens is in its Node object; who it is, in its certificate ([`croft_pki::node`]). What the agent
//! answers, errors included, goes to the client as it is. A node that cannot be reached is 503, one that takes too
//! long 504, both with the node's name and the reason.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use croft_meta::{ApiError, Chain};
use croft_pki::node::{NodeClient, server_name};
use futures::{FutureExt, TryStreamExt};
use http::header::{CONNECTION, EXPECT, HOST, TRANSFER_ENCODING, UPGRADE};
use http::response::Parts;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::client::conn::http1;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::answer::{self, Answer, Body};
use crate::call::{Call, Target};
use crate::cut::{self, Cut, Ending};
use crate::moving::Moving;
use crate::pipeline::not_allowed;
use crate::server::ApiServer;
use crate::{connections, verbs};

/// For a node to accept a connection and prove who it is.
const CONNECT: Duration = Duration::from_secs(5);
/// For a node to answer. Less than a request may take in all, so that the client hears which node was slow.
const ANSWER: Duration = Duration::from_secs(50);
const NODES: &str = "core/nodes";
/// What an agent takes over as a stream of raw bytes.
const STREAM: &str = "croft-stream";

/// How long an answer may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// As long as any request.
    Short,
    /// As long as the request's own body moves, and what the node does with it then.
    AsLongAsItTakes,
}

/// What is needed to call agents.
#[derive(Debug, Default)]
pub(crate) struct NodeProxy {
    /// Made when the first agent is called, and again when it grows old.
    client: Mutex<Option<NodeClient>>,
}

/// Where an agent listens.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Agent {
    node: String,
    address: SocketAddr,
}

impl ApiServer {
    /// Sends a request to a node's agent. The answer, good or bad, is the agent's.
    pub(crate) async fn call_node(
        &self,
        node: &str,
        request: Request<Body>,
        patience: Patience,
    ) -> Result<Answer, ApiError> {
        let agent = self.agent(node)?;
        let answer = self.send(&agent, request, patience).await?;
        Ok(passed_on(answer))
    }

    /// As [`Self::call_node`], for an answer that goes on for as long as its reader stays, however quiet it is.
    pub(crate) async fn follow_node(&self, node: &str, request: Request<Body>) -> Result<Answer, ApiError> {
        let agent = self.agent(node)?;
        let (parts, body) = self.send(&agent, request, Patience::Short).await?.into_parts();
        let body = Cut::new(body, Ending::Broken, cut::stopped(self.stopping()));
        Ok(Response::from_parts(own_parts(parts), body.boxed_unsync()))
    }

    /// Opens a stream of raw bytes to something on a node; or the agent's answer why not.
    pub(crate) async fn open_stream(&self, node: &str, path: &str) -> Result<Result<Upgraded, Answer>, ApiError> {
        let agent = self.agent(node)?;
        let mut request = request(Method::GET, path, answer::full(""))?;
        request.headers_mut().insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        request.headers_mut().insert(UPGRADE, HeaderValue::from_static(STREAM));
        let answer = self.send(&agent, request, Patience::Short).await?;
        if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
            return Ok(Err(passed_on(answer)));
        }
        hyper::upgrade::on(answer).await.map(Ok).map_err(|error| agent.unreachable(&error))
    }

    fn agent(&self, node: &str) -> Result<Agent, ApiError> {
        let found = self.cache.collection(NODES).get(node);
        let object = found.ok_or_else(|| ApiError::unavailable(format!("node {node:?} is not known")))?.json();
        let address = agent_address(&object).ok_or_else(|| {
            ApiError::unavailable(format!("node {node:?} has not said yet where its agent can be reached"))
        })?;
        Ok(Agent { node: node.to_owned(), address })
    }

    async fn send(
        &self,
        agent: &Agent,
        mut request: Request<Body>,
        patience: Patience,
    ) -> Result<Response<Incoming>, ApiError> {
        let stream = match tokio::time::timeout(CONNECT, self.connect(agent)).await {
            Ok(connected) => connected.map_err(|error| agent.unreachable(&error))?,
            Err(_) => return Err(agent.too_slow("does not accept connections")),
        };
        if let Ok(host) = HeaderValue::from_str(&agent.address.to_string()) {
            request.headers_mut().insert(HOST, host);
        }
        let handshake = http1::handshake::<_, Body>(TokioIo::new(stream)).await;
        let (mut sender, connection) = handshake.map_err(|error| agent.unreachable(&error))?;
        // Ends with the request, or with the stream that the request became.
        tokio::spawn(connection.with_upgrades());
        let answer = sender.send_request(request);
        let answer = match patience {
            Patience::AsLongAsItTakes => answer.await,
            Patience::Short => match tokio::time::timeout(ANSWER, answer).await {
                Ok(answer) => answer,
                Err(_) => return Err(agent.too_slow("does not answer")),
            },
        };
        answer.map_err(|error| agent.failed(&error))
    }

    async fn connect(&self, agent: &Agent) -> io::Result<TlsStream<TcpStream>> {
        let name = server_name(&agent.node).ok_or_else(|| io::Error::other("its name cannot be in a certificate"))?;
        let config = self.node_client().map_err(io::Error::other)?.config;
        let tcp = TcpStream::connect(agent.address).await?;
        tcp.set_nodelay(true)?;
        TlsConnector::from(config).connect(name, tcp).await
    }

    fn node_client(&self) -> Result<NodeClient, croft_pki::Error> {
        let now = Timestamp::now();
        let mut client = self.node_proxy.client.lock();
        if let Some(client) = client.as_ref().filter(|client| !client.due_for_renewal(now)) {
            return Ok(client.clone());
        }
        let issued = NodeClient::issue(&self.ca, now)?;
        *client = Some(issued.clone());
        Ok(issued)
    }
}

impl Agent {
    fn unreachable(&self, error: &(dyn std::error::Error + 'static)) -> ApiError {
        let Self { node, address } = self;
        ApiError::unavailable(format!("node {node:?} cannot be reached at {address}: {}", Chain(error)))
    }

    fn too_slow(&self, what: &str) -> ApiError {
        let Self { node, address } = self;
        ApiError::timeout(format!("node {node:?} at {address} {what}"), 1)
    }

    /// A request that failed half-way is the client's fault if it was its body that broke off.
    fn failed(&self, error: &hyper::Error) -> ApiError {
        if error.is_user() {
            return ApiError::bad_request(format!("the request broke off: {}", Chain(error)));
        }
        self.unreachable(error)
    }
}

/// A request to an agent; `path` may have a query.
pub(crate) fn request(method: Method, path: &str, body: Body) -> Result<Request<Body>, ApiError> {
    Request::builder().method(method).uri(path).body(body).map_err(ApiError::internal)
}

/// A request that brings an agent a user's file. Nothing of it is sent before the agent asks for it: an agent that
/// refuses closes the connection, and whoever still writes into that may never read why.
pub(crate) fn upload(method: Method, path: &str, file: Body) -> Result<Request<Body>, ApiError> {
    let wanted = Arc::new(Notify::new());
    let asks = Arc::clone(&wanted);
    let held = async move {
        wanted.notified().await;
        file.into_data_stream().map_ok(Frame::data)
    };
    let mut request = request(method, path, StreamBody::new(held.flatten_stream()).boxed_unsync())?;
    request.headers_mut().insert(EXPECT, HeaderValue::from_static("100-continue"));
    hyper::ext::on_informational(&mut request, move |answer| {
        if answer.status() == StatusCode::CONTINUE {
            asks.notify_one();
        }
    });
    Ok(request)
}

/// An agent's answer as our own: what was about the connection to it stays behind.
fn passed_on(answer: Response<Incoming>) -> Answer {
    let (parts, body) = answer.into_parts();
    Response::from_parts(own_parts(parts), Moving::new(body.map_err(Into::into)).boxed_unsync())
}

fn own_parts(mut parts: Parts) -> Parts {
    for name in [CONNECTION, TRANSFER_ENCODING, UPGRADE] {
        parts.headers.remove(name);
    }
    parts.version = http::Version::default();
    parts.extensions = http::Extensions::new();
    parts
}

fn agent_address(node: &Value) -> Option<SocketAddr> {
    let addresses = node.pointer("/status/addresses").and_then(Value::as_array)?;
    let mut internal = addresses.iter().filter(|address| address["type"] == "InternalIP");
    let ip: IpAddr = internal.find_map(|address| address["address"].as_str()?.parse().ok())?;
    let port = node.pointer("/status/daemonEndpoints/kubeletEndpoint/Port").and_then(Value::as_u64)?;
    Some(SocketAddr::new(ip, u16::try_from(port).ok().filter(|port| *port > 0)?))
}

/// `/api/v1/nodes/<name>/proxy/metrics` and `.../proxy/logs`, which a node serves to others.
pub(crate) async fn answer(call: &Call) -> Result<Answer, ApiError> {
    let info = &call.info;
    served_path(&info.rest)?;
    if info.verb != "get" {
        return Err(not_allowed());
    }
    call.server.cache.fresh().await?;
    if call.server.cache.collection(NODES).get(&info.name).is_none() {
        return Err(ApiError::not_found("", "nodes", &info.name));
    }
    let tail = match call.query.get("tailBytes").map(|text| (text, text.parse::<u64>())) {
        None => String::new(),
        Some((_, Ok(bytes))) => format!("?tailBytes={bytes}"),
        Some((text, Err(_))) => return Err(ApiError::bad_request(format!("tailBytes: {text:?} is not a number"))),
    };
    // Upstream counts a proxied request as a connection to the node.
    let nodes = call.catalog.find("", "v1", "nodes").ok_or_else(ApiError::no_such_path)?.clone();
    let target = Target { subresource: info.subresource.clone(), ..Target::new(nodes, "", &info.name) };
    let options = verbs::reviewed::connection(call, &target, connections::proxy_options("Node", info)).await?;
    // Whoever was asked may have meant another path.
    let path = served_path(options["path"].as_str().unwrap_or_default())?;
    let request = request(Method::GET, &format!("/{path}{tail}"), answer::full(""))?;
    call.server.call_node(&info.name, request, Patience::Short).await
}

/// The path without slashes around it, if it is one that agents serve to others.
fn served_path(path: &str) -> Result<&str, ApiError> {
    let path = path.trim_matches('/');
    let is_plain = path.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'/' | b'.' | b'-' | b'_'));
    if !is_plain || (path != "metrics" && path.split('/').next() != Some("logs")) {
        return Err(ApiError::no_such_path());
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn agents_are_where_their_node_says() {
        let node = |addresses: Value, port: Value| json!({"status": {"addresses": addresses, "daemonEndpoints": {"kubeletEndpoint": {"Port": port}}}});
        let internal = |ip: &str| json!([{"type": "Hostname", "address": "a"}, {"type": "InternalIP", "address": ip}]);
        let table = [
            (node(internal("192.0.2.1"), json!(10250)), Some("192.0.2.1:10250")),
            (node(internal("2001:db8::1"), json!(10250)), Some("[2001:db8::1]:10250")),
            (node(internal("192.0.2.1"), json!(0)), None),
            (node(internal("192.0.2.1"), json!(70_000)), None),
            (node(internal("localhost"), json!(1)), None),
            (node(json!([]), json!(1)), None),
            (json!({}), None),
        ];
        for (node, expected) in table {
            assert_eq!(agent_address(&node).map(|a| a.to_string()).as_deref(), expected, "{node}");
        }
    }
}
