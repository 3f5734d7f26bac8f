//! The agent of a node, as far as the API server can tell: a real TLS server that echoes.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use croft_pki::AgentTls;
use futures::StreamExt;
use http::{Method, Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

type Body = UnsyncBoxBody<Bytes, std::io::Error>;

/// How large the image is that can be downloaded.
pub(crate) const IMAGE: usize = 8 << 20;

/// Stops when it is dropped.
#[derive(Debug)]
pub(crate) struct Agent {
    pub(crate) address: SocketAddr,
    seen: Arc<Mutex<Vec<String>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Agent {
    pub(crate) async fn start(tls: &AgentTls) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a listener");
        let address = listener.local_addr().expect("its address");
        let acceptor = TlsAcceptor::from(Arc::new(server_config(tls)));
        let seen: Arc<Mutex<Vec<String>>> = Arc::default();
        let log = Arc::clone(&seen);
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.expect("a connection");
                tokio::spawn(serve(stream, acceptor.clone(), Arc::clone(&log)));
            }
        });
        Self { address, seen, task }
    }

    /// `METHOD path?query` and the body of every request so far.
    pub(crate) fn seen(&self) -> Vec<String> {
        self.seen.lock().clone()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn server_config(tls: &AgentTls) -> ServerConfig {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(tls.ca_pem.as_bytes()).expect("a CA")).expect("added");
    let provider = croft_pki::tls::provider();
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
    let cert = CertificateDer::from_pem_slice(tls.cert_pem.as_bytes()).expect("a certificate");
    let key = PrivateKeyDer::from_pem_slice(tls.key_pem.reveal().as_bytes()).expect("a key");
    ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_client_cert_verifier(verifier.build().expect("a verifier"))
        .with_single_cert(vec![cert], key)
        .expect("a server")
}

async fn serve(stream: TcpStream, acceptor: TlsAcceptor, log: Arc<Mutex<Vec<String>>>) {
    let Ok(stream) = acceptor.accept(stream).await else { return };
    let service = service_fn(move |request| answer(request, Arc::clone(&log)));
    let connection = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    _ = connection.with_upgrades().await;
}

async fn answer(mut request: Request<Incoming>, log: Arc<Mutex<Vec<String>>>) -> Result<Response<Body>, Infallible> {
    let path = request.uri().to_string();
    let last = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
    if request.headers().contains_key("upgrade") {
        log.lock().push(format!("STREAM {path}"));
        if path.contains("preserveSession=true") {
            return Ok(status(409, "somebody else looks at it"));
        }
        let upgrade = hyper::upgrade::on(&mut request);
        tokio::spawn(async move { echo(TokioIo::new(upgrade.await.expect("an upgrade"))).await });
        let mut answer = Response::new(full(""));
        *answer.status_mut() = http::StatusCode::SWITCHING_PROTOCOLS;
        answer.headers_mut().insert("connection", "Upgrade".parse().expect("a header"));
        answer.headers_mut().insert("upgrade", "croft-stream".parse().expect("a header"));
        return Ok(answer);
    }
    let method = request.method().clone();
    let is_file = path.starts_with("/v1/claims/") || path.starts_with("/v1/images/");
    if is_file && method == Method::GET {
        let chunks = futures::stream::iter(0..IMAGE / 65536).map(|_| Ok(Frame::data(Bytes::from(vec![7_u8; 65536]))));
        return Ok(Response::new(BodyExt::boxed_unsync(StreamBody::new(chunks))));
    }
    let (mut size, mut text) = (0, String::new());
    let mut body = request.into_body();
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else {
            log.lock().push(format!("BROKEN {path}"));
            return Ok(status(400, "the body broke off"));
        };
        let Ok(data) = frame.into_data() else { continue };
        size += data.len();
        if text.len() < 200 {
            text.push_str(&String::from_utf8_lossy(&data[..data.len().min(200)]));
        }
    }
    log.lock().push(if size < 200 {
        format!("{method} {path} {text}")
    } else {
        format!("{method} {path} {size} bytes")
    });
    Ok(match last.as_str() {
        "guestosinfo" => json(r#"{"guestAgentVersion":"8.0"}"#),
        "screenshot" => Response::new(full(vec![0x89_u8, b'P', b'N', b'G'])),
        "log" => Response::new(full("login: ")),
        "metrics" => Response::new(full("kubevirt_vmi_info 1\n")),
        // Never answers.
        "unfreeze" => std::future::pending().await,
        "freeze" => status(409, "the guest agent does not freeze"),
        _ => Response::new(full("")),
    })
}

/// Says hello, gives back what it gets, and ends when it is told so.
async fn echo<S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin>(mut stream: S) {
    let mut buffer = vec![0; 65536];
    while let Ok(read @ 1..) = stream.read(&mut buffer).await {
        if buffer[..read].ends_with(b"bye") {
            break;
        }
        if buffer[..read].ends_with(b"die") {
            return;
        }
        if stream.write_all(&buffer[..read]).await.is_err() || stream.flush().await.is_err() {
            return;
        }
    }
    _ = stream.shutdown().await;
}

fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never: Infallible| match never {}).boxed_unsync()
}

fn json(text: &'static str) -> Response<Body> {
    let mut answer = Response::new(full(text));
    answer.headers_mut().insert("content-type", "application/json".parse().expect("a header"));
    answer
}

fn status(code: u16, message: &str) -> Response<Body> {
    let status = serde_json::json!({"kind": "Status", "apiVersion": "v1", "code": code, "message": message});
    let mut answer = Response::new(full(status.to_string()));
    *answer.status_mut() = http::StatusCode::from_u16(code).expect("a code");
    answer
}

/// Something that does not finish must not make a test hang.
pub(crate) async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), what).await.expect("it takes too long")
}
