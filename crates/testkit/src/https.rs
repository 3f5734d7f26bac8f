//! A plain HTTPS client: it sends what it is told to and hides nothing of the answer.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Method, Request};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::ClientConfig;
use serde_json::Value;

use crate::patience;

/// Which HTTP versions a client offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    Any,
    Http1,
    Http2,
}

/// One request, before it is sent.
#[derive(Debug, Clone)]
pub struct Call {
    pub method: Method,
    /// Path and query, sent as they are.
    pub path: String,
    pub headers: Vec<(String, String)>,
    pub body: Bytes,
}

impl Call {
    pub fn new(method: Method, path: &str) -> Self {
        Self { method, path: path.to_owned(), headers: Vec::new(), body: Bytes::new() }
    }

    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    #[must_use]
    pub fn body(mut self, content_type: &str, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self.header("content-type", content_type)
    }

    #[must_use]
    pub fn json(self, body: &Value) -> Self {
        self.body("application/json", body.to_string())
    }
}

/// A whole answer.
#[derive(Debug, Clone)]
pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Answer {
    /// The body as JSON, or null when it is something else.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|v| v.to_str().ok())
    }

    /// The body of a success; anything else is an error that shows the answer. So is JSON that breaks off: over HTTP/2, hyper takes a
    /// stream that was reset with NO_ERROR for one that ended.
    pub fn ok(self) -> Result<Value> {
        if !(200..300).contains(&self.status) {
            bail!("{}: {}", self.status, self.text());
        }
        let is_json = self.header("content-type").is_some_and(|it| it.contains("json"));
        match serde_json::from_slice(&self.body) {
            Err(error) if is_json => {
                bail!("{} with {} bytes that are no JSON ({error}): {}", self.status, self.body.len(), self.text())
            }
            body => Ok(body.unwrap_or(Value::Null)),
        }
    }
}

/// An HTTPS client bound to one server and one identity. Clones share their connections.
#[derive(Debug, Clone)]
pub struct Client {
    inner: legacy::Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    base: String,
    bearer: Option<String>,
}

impl Client {
    pub fn new(base: &str, tls: ClientConfig, protocol: Protocol) -> Self {
        let builder = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http();
        let mut http = HttpConnector::new();
        http.enforce_http(false);
        http.set_nodelay(true);
        let connector = match protocol {
            Protocol::Any => builder.enable_all_versions().wrap_connector(http),
            Protocol::Http1 => builder.enable_http1().wrap_connector(http),
            Protocol::Http2 => builder.enable_http2().wrap_connector(http),
        };
        let inner = legacy::Client::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .http2_only(protocol == Protocol::Http2)
            .http2_initial_stream_window_size(16 << 20)
            .http2_initial_connection_window_size(32 << 20)
            .build(connector);
        Self { inner, base: base.to_owned(), bearer: None }
    }

    /// A client of any HTTPS server whose certificate comes from `ca_pem`, without credentials.
    pub fn trusting(base: &str, ca_pem: &str, protocol: Protocol) -> Result<Self> {
        Ok(Self::new(base, crate::endpoint::client_config(ca_pem, None)?, protocol))
    }

    #[must_use]
    pub fn with_bearer(mut self, token: &str) -> Self {
        self.bearer = Some(token.to_owned());
        self
    }

    /// Sends and reads the whole answer.
    pub async fn send(&self, call: Call) -> Result<Answer> {
        let what = format!("{} {}", call.method, call.path);
        let whole = async {
            let response = self.start(call).await?;
            let (parts, body) = response.into_parts();
            let body = body.collect().await.context("read the body")?.to_bytes();
            anyhow::Ok(Answer { status: parts.status.as_u16(), headers: parts.headers, body })
        };
        // Twice the patience: a request that a test waits for inside `eventually` should fail on its own first.
        tokio::time::timeout(patience() * 2, whole).await.with_context(|| format!("{what}: no answer"))?.context(what)
    }

    /// Sends and gives the answer's lines as they come, as a watch needs it.
    pub async fn open(&self, call: Call) -> Result<Stream> {
        let what = format!("{} {}", call.method, call.path);
        let response = tokio::time::timeout(patience(), self.start(call)).await.context(what)??;
        let (parts, body) = response.into_parts();
        Ok(Stream { status: parts.status.as_u16(), headers: parts.headers, body, pending: BytesMut::new() })
    }

    async fn start(&self, call: Call) -> Result<http::Response<Incoming>> {
        let mut request = Request::builder().method(call.method).uri(format!("{}{}", self.base, call.path));
        for (name, value) in &call.headers {
            request = request.header(name, value);
        }
        if let Some(token) = &self.bearer {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let request = request.body(Full::new(call.body)).context("build the request")?;
        self.inner.request(request).await.context("send the request")
    }

    pub async fn get(&self, path: &str) -> Result<Answer> {
        self.send(Call::new(Method::GET, path)).await
    }

    pub async fn post(&self, path: &str, body: &Value) -> Result<Answer> {
        self.send(Call::new(Method::POST, path).json(body)).await
    }

    pub async fn put(&self, path: &str, body: &Value) -> Result<Answer> {
        self.send(Call::new(Method::PUT, path).json(body)).await
    }

    /// `kind` is the part before `+json`: `json-patch`, `merge-patch`, `strategic-merge-patch`; or `apply-patch`.
    pub async fn patch(&self, path: &str, kind: &str, body: &Value) -> Result<Answer> {
        let suffix = if kind == "apply-patch" { "yaml" } else { "json" };
        let content_type = format!("application/{kind}+{suffix}");
        self.send(Call::new(Method::PATCH, path).body(&content_type, body.to_string())).await
    }

    pub async fn delete(&self, path: &str) -> Result<Answer> {
        self.send(Call::new(Method::DELETE, path)).await
    }
}

/// An answer that is still coming.
#[derive(Debug)]
pub struct Stream {
    pub status: u16,
    pub headers: HeaderMap,
    body: Incoming,
    pending: BytesMut,
}

impl Stream {
    /// The next line without its newline; `None` when the server ended the answer cleanly.
    pub async fn line(&mut self) -> Result<Option<Bytes>> {
        loop {
            if let Some(end) = self.pending.iter().position(|b| *b == b'\n') {
                let line = self.pending.split_to(end + 1).freeze();
                return Ok(Some(line.slice(..end)));
            }
            match self.body.frame().await {
                Some(frame) => {
                    if let Ok(data) = frame.context("read the stream")?.into_data() {
                        self.pending.extend_from_slice(&data);
                    }
                }
                None if self.pending.is_empty() => return Ok(None),
                None => return Ok(Some(self.pending.split().freeze())),
            }
        }
    }

    /// Reads to the end and keeps nothing of it; gives how many bytes there were.
    pub async fn discard(mut self) -> Result<usize> {
        let mut bytes = self.pending.len();
        while let Some(frame) = self.body.frame().await {
            bytes += frame.context("read the stream")?.data_ref().map_or(0, Bytes::len);
        }
        Ok(bytes)
    }

    /// The next line as JSON, within [`patience`].
    pub async fn event(&mut self) -> Result<Option<Value>> {
        self.event_within(patience()).await
    }

    pub async fn event_within(&mut self, limit: Duration) -> Result<Option<Value>> {
        let line = tokio::time::timeout(limit, self.line()).await.context("no event came")??;
        line.map(|line| serde_json::from_slice(&line).with_context(|| format!("{line:?}"))).transpose()
    }
}
