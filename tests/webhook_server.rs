//! A webhook server: HTTPS with a certificate of its own authority, answers that a test decides on, and a memory of what
//! it was asked.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use croft_testkit::Authority;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

/// What a webhook answers.
#[derive(Debug, Clone)]
pub enum Reply {
    /// The `response` of a review, without the uid.
    Review(Value),
    Raw {
        status: u16,
        content_type: &'static str,
        body: Vec<u8>,
    },
    /// The same, once the semaphore has a permit to give.
    Held(Arc<Semaphore>, Box<Reply>),
    /// It keeps the client waiting for good.
    Never,
}

impl Reply {
    pub fn allow() -> Self {
        Self::Review(json!({"allowed": true}))
    }

    pub fn deny(message: &str) -> Self {
        Self::Review(json!({"allowed": false, "status": {"message": message, "reason": "Forbidden", "code": 403}}))
    }

    /// Consent with a JSON patch.
    pub fn patch(patch: &Value) -> Self {
        let patch = STANDARD.encode(patch.to_string());
        Self::Review(json!({"allowed": true, "patchType": "JSONPatch", "patch": patch}))
    }

    pub fn raw(status: u16, body: &str) -> Self {
        Self::Raw { status, content_type: "text/plain", body: body.as_bytes().to_vec() }
    }
}

type Answer = Arc<dyn Fn(&Value) -> Reply + Send + Sync>;

#[derive(Default)]
struct Shared {
    answers: Mutex<HashMap<String, Answer>>,
    /// Path and request, in the order in which they came.
    asked: Mutex<Vec<(String, Value)>>,
    connections: AtomicUsize,
}

/// Ends when it is dropped.
pub struct WebhookServer {
    pub port: u16,
    authority: Authority,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

impl fmt::Debug for WebhookServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebhookServer").field("port", &self.port).finish_non_exhaustive()
    }
}

impl Drop for WebhookServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl WebhookServer {
    /// Its certificate is for loopback and for the Service `hook` in `default`.
    pub async fn start() -> Result<Self> {
        // A name of its own: authorities of the same name are told apart by their keys alone.
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        let authority = Authority::new(&format!("webhooks of {port}"))?;
        let identity = authority.server_named(&["localhost", "127.0.0.1", "hook.default.svc"])?;
        let chain = CertificateDer::pem_slice_iter(identity.cert_pem.as_bytes()).collect::<Result<Vec<_>, _>>()?;
        let key = PrivateKeyDer::from_pem_slice(identity.key_pem.as_bytes())?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        let tls = TlsAcceptor::from(Arc::new(builder.with_no_client_auth().with_single_cert(chain, key)?));
        let shared = Arc::new(Shared::default());
        let serving = Arc::clone(&shared);
        let task = tokio::spawn(async move {
            // Connections end with the server.
            let mut connections = JoinSet::new();
            while let Ok((tcp, _)) = listener.accept().await {
                serving.connections.fetch_add(1, Ordering::Relaxed);
                // A client that does not trust the certificate goes away; that is its affair.
                connections.spawn(serve(tls.clone(), tcp, Arc::clone(&serving)));
            }
        });
        Ok(Self { port, authority, shared, task })
    }

    /// Sets the answer under a path.
    pub fn on(&self, path: &str, answer: impl Fn(&Value) -> Reply + Send + Sync + 'static) {
        lock(&self.shared.answers).insert(path.to_owned(), Arc::new(answer));
    }

    /// What was asked under a path.
    pub fn asked(&self, path: &str) -> Vec<Value> {
        lock(&self.shared.asked).iter().filter(|(at, _)| at == path).map(|(_, request)| request.clone()).collect()
    }

    /// The paths that were asked, in order.
    pub fn paths(&self) -> Vec<String> {
        lock(&self.shared.asked).iter().map(|(path, _)| path.clone()).collect()
    }

    pub fn forget(&self) {
        lock(&self.shared.asked).clear();
    }

    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::Relaxed)
    }

    pub fn url(&self, path: &str) -> String {
        format!("https://127.0.0.1:{}{path}", self.port)
    }

    pub fn ca_bundle(&self) -> String {
        STANDARD.encode(self.authority.cert_pem())
    }

    pub fn client_config(&self, path: &str) -> Value {
        json!({"url": self.url(path), "caBundle": self.ca_bundle()})
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One connection, which may carry several requests.
async fn serve(tls: TlsAcceptor, tcp: TcpStream, shared: Arc<Shared>) -> Result<()> {
    // Whoever waits for an answer is not to wait for the kernel as well.
    tcp.set_nodelay(true)?;
    let mut stream = tls.accept(tcp).await?;
    let mut buffer = Vec::new();
    loop {
        let head = loop {
            if let Some(end) = buffer.windows(4).position(|window| window == b"\r\n\r\n") {
                break end + 4;
            }
            if stream.read_buf(&mut buffer).await? == 0 {
                return Ok(());
            }
        };
        let text = String::from_utf8_lossy(&buffer[..head]).to_lowercase();
        let length = text.lines().find_map(|line| line.strip_prefix("content-length:")).context("a length")?;
        let end = head + length.trim().parse::<usize>()?;
        while buffer.len() < end {
            if stream.read_buf(&mut buffer).await? == 0 {
                return Ok(());
            }
        }
        let target = String::from_utf8_lossy(&buffer[..head]).split(' ').nth(1).context("a target")?.to_owned();
        let path = target.split('?').next().unwrap_or_default().to_owned();
        let review: Value = serde_json::from_slice(&buffer[head..end])?;
        buffer.drain(..end);
        let request = review["request"].clone();
        lock(&shared.asked).push((path.clone(), request.clone()));
        let answer = lock(&shared.answers).get(&path).cloned();
        let reply = answer.map_or_else(|| Reply::raw(404, "no such webhook"), |answer| answer(&request));
        let (status, content_type, body) = body_of(reply, &review).await;
        let mut answer = format!(
            "HTTP/1.1 {status} X\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\nLocation: /elsewhere\r\n\r\n",
            body.len()
        )
        .into_bytes();
        answer.extend(body);
        stream.write_all(&answer).await?;
        stream.flush().await?;
    }
}

async fn body_of(mut reply: Reply, review: &Value) -> (u16, &'static str, Vec<u8>) {
    loop {
        reply = match reply {
            Reply::Never => return std::future::pending().await,
            Reply::Held(until, then) => {
                if let Ok(permit) = until.acquire().await {
                    permit.forget();
                }
                *then
            }
            Reply::Raw { status, content_type, body } => return (status, content_type, body),
            Reply::Review(mut response) => {
                response["uid"] = review["request"]["uid"].clone();
                let (version, kind) = (&review["apiVersion"], &review["kind"]);
                let answer = json!({"apiVersion": version, "kind": kind, "response": response});
                return (200, "application/json", answer.to_string().into_bytes());
            }
        }
    }
}
