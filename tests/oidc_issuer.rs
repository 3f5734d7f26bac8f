//! An issuer of tokens whose every step a test decides: its keys, what it answers and whether it answers at all.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::Result;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use croft_testkit::Authority;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

/// For whom the tokens are.
pub const AUDIENCE: &str = "croft";
const KEYS: &str = "/keys";

/// How the issuer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mood {
    Well,
    /// Connections end before anything is said.
    Down,
    /// It is another one.
    Stranger,
    /// Its keys are somewhere else.
    Redirecting,
    /// Its keys never end.
    Endless,
    /// It takes the question and says nothing.
    Silent,
    /// What it has are no keys.
    Broken,
}

/// A key of an issuer.
pub struct Key {
    pub kid: String,
    pair: EcdsaKeyPair,
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Key").field("kid", &self.kid).finish_non_exhaustive()
    }
}

impl Key {
    pub fn new(kid: &str) -> Self {
        let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).expect("a key is made");
        Self { kid: kid.to_owned(), pair }
    }

    fn jwk(&self) -> Value {
        let point = &self.pair.public_key().as_ref()[1..];
        let (x, y) = point.split_at(point.len() / 2);
        json!({"kty": "EC", "crv": "P-256", "use": "sig", "alg": "ES256", "kid": self.kid,
            "x": URL_SAFE_NO_PAD.encode(x), "y": URL_SAFE_NO_PAD.encode(y)})
    }

    pub fn sign(&self, claims: &Value) -> String {
        let signed = unsigned(&json!({"alg": "ES256", "kid": self.kid, "typ": "JWT"}), claims);
        let signature = self.pair.sign(&SystemRandom::new(), signed.as_bytes()).expect("it is signed");
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}

/// A token but for its signature.
pub fn unsigned(header: &Value, claims: &Value) -> String {
    format!("{}.{}", URL_SAFE_NO_PAD.encode(header.to_string()), URL_SAFE_NO_PAD.encode(claims.to_string()))
}

#[derive(Debug)]
struct Shared {
    url: String,
    mood: Mutex<Mood>,
    keys: Mutex<Vec<Arc<Key>>>,
    asked_for_keys: AtomicUsize,
}

/// Ends when it is dropped.
#[derive(Debug)]
pub struct Issuer {
    pub ca_pem: String,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

impl Drop for Issuer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Issuer {
    pub async fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        let authority = Authority::new(&format!("issuer of {port}"))?;
        let identity = authority.server()?;
        let chain = CertificateDer::pem_slice_iter(identity.cert_pem.as_bytes()).collect::<Result<Vec<_>, _>>()?;
        let key = PrivateKeyDer::from_pem_slice(identity.key_pem.as_bytes())?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        let tls = TlsAcceptor::from(Arc::new(builder.with_no_client_auth().with_single_cert(chain, key)?));
        let shared = Arc::new(Shared {
            url: format!("https://127.0.0.1:{port}/realm"),
            mood: Mutex::new(Mood::Well),
            keys: Mutex::new(vec![Arc::new(Key::new("first"))]),
            asked_for_keys: AtomicUsize::new(0),
        });
        let serving = Arc::clone(&shared);
        let task = tokio::spawn(async move {
            while let Ok((tcp, _)) = listener.accept().await {
                // A client that goes away has its reasons.
                tokio::spawn(serve(tls.clone(), tcp, Arc::clone(&serving)));
            }
        });
        Ok(Self { ca_pem: authority.cert_pem(), shared, task })
    }

    pub fn url(&self) -> &str {
        &self.shared.url
    }

    pub fn set_mood(&self, mood: Mood) {
        *lock(&self.shared.mood) = mood;
    }

    /// Signs with a new key from now on, and forgets the others.
    pub fn rotate(&self, kid: &str) {
        *lock(&self.shared.keys) = vec![Arc::new(Key::new(kid))];
    }

    /// It has no keys any more.
    pub fn withdraw(&self) {
        lock(&self.shared.keys).clear();
    }

    pub fn key(&self) -> Arc<Key> {
        Arc::clone(&lock(&self.shared.keys)[0])
    }

    pub fn asked_for_keys(&self) -> usize {
        self.shared.asked_for_keys.load(Ordering::Relaxed)
    }

    /// The claims of a good token, with others in their place or besides them; null takes one away.
    pub fn claims(&self, subject: &str, others: &Value) -> Value {
        let now = i64::try_from(seconds()).expect("the clock is right");
        let mut claims = json!({"iss": self.url(), "sub": subject, "aud": AUDIENCE, "iat": now, "exp": now + 600});
        for (name, value) in others.as_object().into_iter().flatten() {
            claims[name] = value.clone();
        }
        claims.as_object_mut().expect("claims are an object").retain(|_, value| !value.is_null());
        claims
    }

    pub fn token(&self, subject: &str, others: &Value) -> String {
        self.key().sign(&self.claims(subject, others))
    }

    /// How a configuration describes it.
    pub fn described(&self) -> Value {
        json!({"url": self.url(), "audiences": [AUDIENCE], "certificateAuthority": self.ca_pem})
    }
}

/// Since the epoch.
pub fn seconds() -> u64 {
    std::time::UNIX_EPOCH.elapsed().map(|passed| passed.as_secs()).unwrap_or_default()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One request.
async fn serve(tls: TlsAcceptor, tcp: TcpStream, shared: Arc<Shared>) -> Result<()> {
    let mood = *lock(&shared.mood);
    if mood == Mood::Down {
        return Ok(());
    }
    let mut stream = tls.accept(tcp).await?;
    let mut head = Vec::new();
    while !head.windows(4).any(|window| window == b"\r\n\r\n") {
        if stream.read_buf(&mut head).await? == 0 {
            return Ok(());
        }
    }
    let path = String::from_utf8_lossy(&head).split(' ').nth(1).unwrap_or_default().to_owned();
    let is_keys = path == KEYS;
    if is_keys {
        shared.asked_for_keys.fetch_add(1, Ordering::Relaxed);
    }
    let (status, body) = match (mood, is_keys) {
        (Mood::Silent, _) => return std::future::pending().await,
        (Mood::Redirecting, true) => ("302 Found", String::new()),
        (Mood::Broken, true) => ("200 OK", "<html>hello</html>".to_owned()),
        (Mood::Endless, true) => ("200 OK", "x".repeat(4 << 20)),
        (_, true) => {
            let keys: Vec<Value> = lock(&shared.keys).iter().map(|key| key.jwk()).collect();
            ("200 OK", json!({"keys": keys}).to_string())
        }
        (_, false) if path == "/realm/.well-known/openid-configuration" => {
            let base = shared.url.trim_end_matches("/realm");
            let issuer = if mood == Mood::Stranger { base } else { &shared.url };
            ("200 OK", json!({"issuer": issuer, "jwks_uri": format!("{base}{KEYS}")}).to_string())
        }
        _ => ("404 Not Found", String::new()),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\nlocation: {}/elsewhere\r\ncontent-length: {}\r\n\
         connection: close\r\n\r\n",
        shared.url,
        body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body.as_bytes()).await?;
    stream.shutdown().await?;
    Ok(())
}
