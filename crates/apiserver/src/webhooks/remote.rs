//! Posts JSON to a webhook: HTTP/1.1 over TLS, on connections that are kept for the next call.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use croft_meta::Chain;
use croft_meta::field::go_quote;
use http::header::{ACCEPT, CONTENT_TYPE, HOST, USER_AGENT};
use http::{HeaderValue, Method, Request, Response};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::sync::OnceCell;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::place::{Address, Place};
use super::tls;
use crate::cache::Cache;

/// More than a patch of the largest object takes.
const ANSWER_MAX_BYTES: usize = 8 << 20;
/// Of an error's body, what is told of it.
const TOLD_MAX_CHARS: usize = 2 << 10;
/// Connections that are kept when nothing goes over them, and for how long.
const MOST_IDLE: usize = 8;
const IDLE: Duration = Duration::from_secs(30);
/// For one of several addresses to take a connection and prove who it is.
const MOST_SHARE: Duration = Duration::from_secs(2);
const LEAST_SHARE: Duration = Duration::from_millis(250);

#[derive(Debug, thiserror::Error)]
pub(crate) enum RemoteError {
    #[error("could not get REST client: {0}")]
    Unusable(String),
    #[error("Post {}: {why}", go_quote(.url))]
    Post { url: String, why: String },
    #[error("{text}")]
    Answered { code: u16, text: String },
}

impl RemoteError {
    /// As metrics label it: the server's answer, or that there was none.
    pub(crate) fn code(&self) -> u16 {
        match self {
            Self::Unusable(_) => 400,
            Self::Post { .. } => 503,
            Self::Answered { code, .. } => *code,
        }
    }
}

/// A webhook's server, as a client configuration describes it.
#[derive(Debug)]
pub(crate) struct Remote {
    place: Place,
    ca_bundle: String,
    tls: OnceCell<Result<Arc<ClientConfig>, String>>,
    idle: Mutex<Vec<Idle>>,
}

#[derive(Debug)]
struct Idle {
    address: SocketAddr,
    since: Instant,
    sender: SendRequest<Full<Bytes>>,
}

/// How sending a request failed.
enum Sent {
    /// The server had given up the connection before; nothing of the request was answered.
    Gone(String),
    Failed(String),
}

impl Remote {
    pub(crate) fn new(client_config: &Value) -> Self {
        let ca_bundle = client_config["caBundle"].as_str().unwrap_or_default().to_owned();
        Self { place: Place::parse(client_config), ca_bundle, tls: OnceCell::new(), idle: Mutex::default() }
    }

    /// The body of the answer, if it is a good one.
    pub(crate) async fn post(&self, cache: &Cache, body: Bytes, timeout: Duration) -> Result<Bytes, RemoteError> {
        if let Place::Unusable(why) = &self.place {
            return Err(RemoteError::Unusable(why.clone()));
        }
        let config = self.tls_config().await.map_err(RemoteError::Unusable)?;
        let path = self.place.path(timeout);
        let failed = |why: String| {
            let url = format!("https://{}{path}", self.place.authority());
            RemoteError::Post { url, why }
        };
        match tokio::time::timeout(timeout, self.exchange(cache, &config, &path, body, timeout)).await {
            Ok(Ok((answer, body))) => read(&answer, body),
            Ok(Err(why)) => Err(failed(why)),
            Err(_) => Err(failed("context deadline exceeded".to_owned())),
        }
    }

    async fn tls_config(&self) -> Result<Arc<ClientConfig>, String> {
        let make = || async {
            let bundle = self.ca_bundle.clone();
            // The machine's authorities are many files.
            let made = tokio::task::spawn_blocking(move || tls::client_config(&bundle)).await;
            made.unwrap_or_else(|error| Err(error.to_string()))
        };
        self.tls.get_or_init(make).await.clone()
    }

    async fn exchange(
        &self,
        cache: &Cache,
        config: &Arc<ClientConfig>,
        path: &str,
        body: Bytes,
        patience: Duration,
    ) -> Result<(http::response::Parts, Bytes), String> {
        let addresses = resolve(self.place.address(cache)?).await?;
        if let Some(kept) = self.take_idle(&addresses) {
            match self.send(kept, path, body.clone()).await {
                Ok(answer) => return Ok(answer),
                Err(Sent::Failed(why)) => return Err(why),
                Err(Sent::Gone(_)) => {}
            }
        }
        let fresh = self.connect(config, &addresses, patience).await?;
        self.send(fresh, path, body).await.map_err(|(Sent::Gone(why) | Sent::Failed(why))| why)
    }

    async fn connect(
        &self,
        config: &Arc<ClientConfig>,
        addresses: &[SocketAddr],
        patience: Duration,
    ) -> Result<Idle, String> {
        let (address, tls) = dial(addresses, &self.place.server_name(), config, patience).await?;
        let handshake = http1::handshake(TokioIo::new(tls)).await;
        let (sender, connection) = handshake.map_err(|error| Chain(&error).to_string())?;
        // Ends when its sender is dropped, at the latest with the configuration that the webhook is in.
        tokio::spawn(connection);
        Ok(Idle { address, since: Instant::now(), sender })
    }

    async fn send(&self, mut to: Idle, path: &str, body: Bytes) -> Result<(http::response::Parts, Bytes), Sent> {
        let request = self.request(path, body).map_err(|error| Sent::Failed(error.to_string()))?;
        to.sender.ready().await.map_err(|error| Sent::Gone(Chain(&error).to_string()))?;
        let answer = to.sender.send_request(request).await.map_err(|error| {
            let is_gone = error.is_canceled() || error.is_closed() || error.is_incomplete_message();
            let why = if is_gone { "EOF".to_owned() } else { Chain(&error).to_string() };
            if is_gone { Sent::Gone(why) } else { Sent::Failed(why) }
        })?;
        let (parts, body) = whole(answer).await.map_err(Sent::Failed)?;
        self.keep(to);
        Ok((parts, body))
    }

    fn request(&self, path: &str, body: Bytes) -> Result<Request<Full<Bytes>>, http::Error> {
        Request::builder()
            .method(Method::POST)
            .uri(path)
            .header(HOST, HeaderValue::from_str(&self.place.authority())?)
            .header(USER_AGENT, "kube-apiserver-admission")
            .header(ACCEPT, "application/json, */*")
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(body))
    }

    fn take_idle(&self, addresses: &[SocketAddr]) -> Option<Idle> {
        let mut idle = self.idle.lock();
        idle.retain(Idle::is_usable);
        let place = idle.iter().rposition(|kept| addresses.contains(&kept.address))?;
        Some(idle.remove(place))
    }

    fn keep(&self, connection: Idle) {
        let mut idle = self.idle.lock();
        idle.retain(Idle::is_usable);
        if idle.len() < MOST_IDLE {
            idle.push(Idle { since: Instant::now(), ..connection });
        }
    }
}

impl Idle {
    fn is_usable(&self) -> bool {
        self.since.elapsed() < IDLE && !self.sender.is_closed()
    }
}

pub(crate) async fn resolve(address: Address) -> Result<Vec<SocketAddr>, String> {
    match address {
        Address::Known(addresses) => Ok(addresses),
        Address::Named(host, port) => {
            let lookup = tokio::net::lookup_host((host.as_str(), port)).await;
            let found: Vec<SocketAddr> = lookup.map(Iterator::collect).unwrap_or_default();
            if found.is_empty() { Err(format!("dial tcp: lookup {host}: no such host")) } else { Ok(found) }
        }
    }
}

/// A connection over TLS to the first of the addresses that takes one, from a random one on. Each but the last gets its
/// share of the time only: one that hangs must not stand for the others.
pub(crate) async fn dial(
    addresses: &[SocketAddr],
    name: &str,
    config: &Arc<ClientConfig>,
    patience: Duration,
) -> Result<(SocketAddr, TlsStream<TcpStream>), String> {
    let first = usize::try_from(getrandom::u32().unwrap_or_default()).unwrap_or_default() % addresses.len().max(1);
    let in_turn: Vec<SocketAddr> = addresses[first..].iter().chain(&addresses[..first]).copied().collect();
    dial_in_turn(&in_turn, name, config, patience).await
}

async fn dial_in_turn(
    addresses: &[SocketAddr],
    name: &str,
    config: &Arc<ClientConfig>,
    patience: Duration,
) -> Result<(SocketAddr, TlsStream<TcpStream>), String> {
    let parts = u32::try_from(addresses.len()).unwrap_or(u32::MAX).saturating_add(1);
    let share = (patience / parts).clamp(LEAST_SHARE, MOST_SHARE);
    let Some((&last, others)) = addresses.split_last() else { return Err("no addresses".to_owned()) };
    for &address in others {
        match tokio::time::timeout(share, dial_one(address, name, config)).await {
            Ok(Ok(connected)) => return Ok((address, connected)),
            Ok(Err(why)) => tracing::debug!(%address, why, "another address is tried"),
            Err(_) => tracing::debug!(%address, "another address is tried: this one hangs"),
        }
    }
    dial_one(last, name, config).await.map(|connected| (last, connected))
}

async fn dial_one(address: SocketAddr, name: &str, config: &Arc<ClientConfig>) -> Result<TlsStream<TcpStream>, String> {
    let tcp = TcpStream::connect(address).await.map_err(|error| dial_failure(address, &error))?;
    tcp.set_nodelay(true).map_err(|error| error.to_string())?;
    let wanted = ServerName::try_from(name.to_owned()).map_err(|error| format!("{name}: {error}"))?;
    let connected = TlsConnector::from(Arc::clone(config)).connect(wanted, tcp).await;
    connected.map_err(|error| tls::refusal(&error, name))
}

fn dial_failure(address: SocketAddr, error: &io::Error) -> String {
    let why = match error.kind() {
        io::ErrorKind::ConnectionRefused => "connection refused".to_owned(),
        io::ErrorKind::HostUnreachable => "no route to host".to_owned(),
        io::ErrorKind::NetworkUnreachable => "network is unreachable".to_owned(),
        _ => error.to_string(),
    };
    format!("dial tcp {address}: connect: {why}")
}

/// The whole answer, if it is not too large.
async fn whole(answer: Response<Incoming>) -> Result<(http::response::Parts, Bytes), String> {
    let (parts, body) = answer.into_parts();
    match Limited::new(body, ANSWER_MAX_BYTES).collect().await {
        Ok(body) => Ok((parts, body.to_bytes())),
        Err(error) if error.is::<http_body_util::LengthLimitError>() => {
            Err(format!("the answer is larger than {ANSWER_MAX_BYTES} bytes"))
        }
        Err(error) => Err(Chain(&*error).to_string()),
    }
}

fn read(answer: &http::response::Parts, body: Bytes) -> Result<Bytes, RemoteError> {
    let code = answer.status.as_u16();
    if (200..=206).contains(&code) {
        return Ok(body);
    }
    let content_type = answer.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    Err(RemoteError::Answered { code, text: generic(code, content_type, &body) })
}

/// What client-go makes of an answer that is no good one.
fn generic(code: u16, content_type: &str, body: &[u8]) -> String {
    if let Ok(status) = serde_json::from_slice::<Value>(body)
        && status["kind"] == "Status"
        && let Some(message) = status["message"].as_str().filter(|message| !message.is_empty())
    {
        return message.chars().take(TOLD_MAX_CHARS).collect();
    }
    let told = if content_type.starts_with("text/") { String::from_utf8_lossy(body) } else { "unknown".into() };
    let told: String = told.trim().chars().take(TOLD_MAX_CHARS).collect();
    match code {
        400 => "the server rejected our request for an unknown reason".to_owned(),
        401 => "the server has asked for the client to provide credentials".to_owned(),
        403 => told,
        404 => "the server could not find the requested resource".to_owned(),
        405 => "the server does not allow this method on the requested resource".to_owned(),
        409 => "the server reported a conflict".to_owned(),
        422 => "the server rejected our request due to an error in our request".to_owned(),
        429 => "the server has received too many requests and has asked us to try again later".to_owned(),
        503 => "the server is currently unable to handle the request".to_owned(),
        504 => "the server was unable to return a response in the time allotted, but may still be processing the \
                request"
            .to_owned(),
        500.. => format!("an error on the server ({}) has prevented the request from succeeding", go_quote(&told)),
        _ => format!("the server responded with the status code {code} but did not return more information"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_address_that_hangs_or_refuses_does_not_stand_for_the_others() {
        use rustls::pki_types::pem::PemObject as _;
        use rustls::pki_types::{CertificateDer, PrivateKeyDer};
        use tokio::net::TcpListener;

        let authority = croft_testkit::Authority::new("hooks").unwrap();
        let identity = authority.server_named(&["hooks.example.com"]).unwrap();
        let certificates = vec![CertificateDer::from_pem_slice(identity.cert_pem.as_bytes()).unwrap()];
        let key = PrivateKeyDer::from_pem_slice(identity.key_pem.as_bytes()).unwrap();
        let builder = rustls::ServerConfig::builder_with_provider(croft_pki::tls::provider());
        let builder = builder.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
        let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(builder.with_single_cert(certificates, key).unwrap()));
        // One never says anything, one hangs up.
        let (mute, rude, good) = (listener().await, listener().await, listener().await);
        let addresses = [&mute, &rude, &good].map(|listener: &TcpListener| listener.local_addr().unwrap());
        let serving = tokio::spawn(async move {
            drop(rude.accept().await.unwrap());
            let (tcp, _) = good.accept().await.unwrap();
            acceptor.accept(tcp).await.unwrap()
        });
        let bundle = {
            use base64::Engine as _;
            base64::engine::general_purpose::STANDARD.encode(authority.cert_pem())
        };
        let config = tls::client_config(&bundle).unwrap();
        let patience = Duration::from_secs(10);
        let (address, _) = dial_in_turn(&addresses, "hooks.example.com", &config, patience).await.unwrap();
        assert_eq!(address, addresses[2]);
        serving.await.unwrap();
        assert_eq!(dial(&[], "hooks.example.com", &config, patience).await.unwrap_err(), "no addresses");
    }

    async fn listener() -> tokio::net::TcpListener {
        tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap()
    }

    #[test]
    fn bad_answers_are_told_as_client_go_tells_them() {
        let table = [
            (
                500,
                "text/plain",
                "boom\n",
                r#"an error on the server ("boom") has prevented the request from succeeding"#,
            ),
            (500, "image/png", "x", r#"an error on the server ("unknown") has prevented the request from succeeding"#),
            (404, "text/plain", "x", "the server could not find the requested resource"),
            (
                302,
                "text/plain",
                "x",
                "the server responded with the status code 302 but did not return more information",
            ),
            (500, "application/json", r#"{"kind":"Status","message":"own words"}"#, "own words"),
        ];
        for (code, content_type, body, expected) in table {
            assert_eq!(generic(code, content_type, body.as_bytes()), expected);
        }
    }
}
