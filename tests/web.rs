//! A web server for tests: honest about ranges, able to stop half-way, over TLS if asked, and usable as a proxy.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context, Result};
use bytes::Bytes;
use croft_testkit::Identity;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::{Mutex, watch};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

/// A request as it came.
#[derive(Clone, Debug)]
pub struct Seen {
    /// As in the request's first line; a proxy sees the whole URL.
    pub target: String,
    /// Where a range starts.
    pub from: Option<usize>,
}

#[derive(Clone, Debug)]
struct File {
    content: Bytes,
    /// Only half of it is sent before this is true.
    gate: Option<watch::Receiver<bool>>,
}

#[derive(Debug, Default)]
struct Shared {
    files: Mutex<BTreeMap<String, File>>,
    seen: Mutex<Vec<Seen>>,
}

/// Stops when it is dropped.
#[derive(Debug)]
pub struct Web {
    base: String,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

/// Holds back the second half of a file until it is opened or dropped.
#[derive(Debug)]
pub struct Gate(watch::Sender<bool>);

impl Gate {
    pub fn open(&self) {
        self.0.send_replace(true);
    }
}

impl Web {
    pub async fn start() -> Result<Self> {
        Self::serve(None).await
    }

    /// The same over TLS, with this certificate.
    pub async fn secure(identity: &Identity) -> Result<Self> {
        let chain = CertificateDer::pem_slice_iter(identity.cert_pem.as_bytes()).collect::<Result<Vec<_>, _>>()?;
        let key = PrivateKeyDer::from_pem_slice(identity.key_pem.as_bytes())?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        let config = config.with_no_client_auth().with_single_cert(chain, key)?;
        Self::serve(Some(TlsAcceptor::from(Arc::new(config)))).await
    }

    async fn serve(tls: Option<TlsAcceptor>) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let scheme = if tls.is_some() { "https" } else { "http" };
        let base = format!("{scheme}://{}", listener.local_addr()?);
        let shared = Arc::new(Shared::default());
        let served = Arc::clone(&shared);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (shared, tls) = (Arc::clone(&served), tls.clone());
                // A client that goes away in the middle is within its rights.
                tokio::spawn(async move {
                    match tls {
                        None => answer(stream, &shared).await,
                        Some(tls) => answer(tls.accept(stream).await?, &shared).await,
                    }
                });
            }
        });
        Ok(Self { base, shared, task })
    }

    /// Offers a file, and gives its URL.
    pub async fn put(&self, name: &str, content: impl Into<Bytes>) -> String {
        self.shared.files.lock().await.insert(name.to_owned(), File { content: content.into(), gate: None });
        self.url(name)
    }

    /// The same, but only half of it is sent until the gate is opened.
    pub async fn put_half(&self, name: &str, content: impl Into<Bytes>) -> (String, Gate) {
        let (send, gate) = watch::channel(false);
        let file = File { content: content.into(), gate: Some(gate) };
        self.shared.files.lock().await.insert(name.to_owned(), file);
        (self.url(name), Gate(send))
    }

    pub fn url(&self, name: &str) -> String {
        format!("{}/{name}", self.base)
    }

    /// All requests so far.
    pub async fn seen(&self) -> Vec<Seen> {
        self.shared.seen.lock().await.clone()
    }
}

impl Drop for Web {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn answer(mut stream: impl AsyncRead + AsyncWrite + Unpin, shared: &Shared) -> Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    let head = String::from_utf8(head)?;
    let mut lines = head.lines();
    let mut words = lines.next().unwrap_or_default().split(' ');
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default().to_owned());
    let header = |line: &str| line.split_once(": ").map(|(name, value)| (name.to_lowercase(), value.to_owned()));
    let headers: BTreeMap<String, String> = lines.filter_map(header).collect();
    let from = headers.get("range").and_then(|range| range.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok());
    shared.seen.lock().await.push(Seen { target: target.clone(), from });
    let name = target.rsplit('/').next().unwrap_or_default();
    let found = shared.files.lock().await.get(name).cloned();
    let Some(File { content: body, gate }) = found else {
        stream.write_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").await?;
        return Ok(());
    };
    let total = body.len();
    let rest = body.slice(from.unwrap_or(0).min(total)..);
    let status = match from {
        None => "200 OK".to_owned(),
        Some(from) => format!("206 Partial Content\r\ncontent-range: bytes {from}-{}/{total}", total - 1),
    };
    let length = rest.len();
    let head =
        format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\netag: \"{total}\"\r\nconnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).await?;
    if method != "HEAD" {
        let at = (total / 2).saturating_sub(from.unwrap_or(0)).min(length);
        stream.write_all(&rest[..at]).await?;
        stream.flush().await?;
        if let Some(mut gate) = gate {
            gate.wait_for(|is_open| *is_open).await.context("the gate is gone")?;
        }
        stream.write_all(&rest[at..]).await?;
    }
    stream.shutdown().await?;
    Ok(())
}
