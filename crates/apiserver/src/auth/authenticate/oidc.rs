//! Tokens of other issuers: OpenID Connect, and whatever else signs JWTs and publishes its keys as OpenID Connect does.
//!
//! - [`config_file`] reads what is configured; [`reload`] reads it again when it changes.
//! - [`provider`] keeps the keys of an issuer.
//! - [`claims`] makes a user of a token.

mod claims;
mod config;
mod config_file;
mod config_rules;
pub(crate) mod fuzzing;
mod provider;
mod reload;

use std::sync::Arc;

use arc_swap::ArcSwap;
use croft_meta::field::go_quote;
use croft_pki::{Jws, SigningAlgorithm};
use jiff::Timestamp;
use serde_json::{Map, Value};
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use self::config::{Anonymous, IssuerConfig, JwtAuthenticator};
pub use self::config::{AuthenticationConfig, AuthenticationConfigError};
use self::provider::Provider;
use super::SIGNATURE_TTL;
use super::memo::Memo;
use crate::auth::rule::go_strings;
use crate::metrics::AuthenticationMetrics;
use crate::user::UserInfo;

/// How far the clock of an issuer may be ahead, in seconds; go-oidc's.
const NOT_BEFORE_LEEWAY: f64 = 300.0;

/// The issuers that are trusted.
#[derive(Debug)]
pub(crate) struct Issuers {
    current: ArcSwap<Current>,
    anonymous: Option<Anonymous>,
    algorithms: Vec<SigningAlgorithm>,
    verified: Memo<Verified>,
    metrics: AuthenticationMetrics,
    tasks: TaskTracker,
    stop: CancellationToken,
}

#[derive(Debug, Default)]
struct Current {
    /// Counts the configurations: what was found out under one says nothing under the next.
    generation: u64,
    trusted: Vec<Trusted>,
}

#[derive(Clone, Debug)]
struct Trusted {
    config: Arc<JwtAuthenticator>,
    connection: Arc<Connection>,
}

/// A provider whose keys are kept for as long as somebody needs them.
#[derive(Debug)]
struct Connection {
    provider: Arc<Provider>,
    _end: DropGuard,
}

#[derive(Clone, Debug)]
struct Verified {
    user: UserInfo,
    expires: f64,
}

impl Issuers {
    /// Starts to fetch keys, and to look after the file, in `tasks` until `stop`.
    pub(crate) fn start(
        config: AuthenticationConfig,
        metrics: AuthenticationMetrics,
        tasks: &TaskTracker,
        stop: CancellationToken,
    ) -> Result<Arc<Self>, IssuersError> {
        let issuers = Arc::new(Self {
            current: ArcSwap::default(),
            anonymous: config.anonymous.clone(),
            algorithms: config.algorithms.clone(),
            verified: Memo::new(SIGNATURE_TTL).map_err(IssuersError::Random)?,
            metrics,
            tasks: tasks.clone(),
            stop: stop.clone(),
        });
        issuers.replace(&config).map_err(IssuersError::Tls)?;
        if let Some(file) = config.file {
            issuers.metrics.configured(&file.text);
            tasks.spawn(reload::follow(Arc::clone(&issuers), file, stop));
        }
        Ok(issuers)
    }

    /// Keys of issuers that stay where they are stay too.
    fn replace(&self, config: &AuthenticationConfig) -> Result<(), reqwest::Error> {
        let before = self.current.load_full();
        let connect = |issuer: &IssuerConfig| {
            let known = before.trusted.iter().map(|one| &one.connection);
            let mut same = known.filter(|connection| connection.provider.config == *issuer);
            same.next().map_or_else(|| self.connect(issuer), |connection| Ok(Arc::clone(connection)))
        };
        let trust = |config: &Arc<JwtAuthenticator>| {
            Ok(Trusted { connection: connect(&config.issuer)?, config: Arc::clone(config) })
        };
        let trusted = config.issuers.iter().map(trust).collect::<Result<Vec<_>, reqwest::Error>>()?;
        for gone in before.trusted.iter().map(|one| &one.config.issuer.url) {
            if !trusted.iter().any(|one| one.config.issuer.url == *gone) {
                self.metrics.forget(gone);
            }
        }
        self.current.store(Arc::new(Current { generation: before.generation + 1, trusted }));
        Ok(())
    }

    fn connect(&self, issuer: &IssuerConfig) -> Result<Arc<Connection>, reqwest::Error> {
        let provider = Arc::new(Provider::new(issuer.clone(), self.metrics.issuer(&issuer.url))?);
        let end = self.stop.child_token();
        self.tasks.spawn(Arc::clone(&provider).follow(end.clone()));
        Ok(Arc::new(Connection { provider, _end: end.drop_guard() }))
    }

    /// Whether a request for this path may come without credentials.
    pub(crate) fn allows_anonymous(&self, path: &str) -> bool {
        self.anonymous.as_ref().is_none_or(|anonymous| anonymous.allows(path))
    }

    /// Who a token belongs to; `None` if it is of none of the issuers. The error says why the token is no good.
    pub(super) async fn identify(&self, token: &str, now: Timestamp) -> Option<Result<UserInfo, String>> {
        let current = self.current.load_full();
        if current.trusted.is_empty() {
            return None;
        }
        let digest = self.verified.digest(&[token.as_bytes(), &current.generation.to_le_bytes()]);
        if let Some(known) = self.verified.get(&digest, now).filter(|known| seconds(now) < known.expires) {
            return Some(Ok(known.user));
        }
        let token = Jws::parse(token).ok()?;
        let issuer = issuer_of(&token.claims)?;
        let trusted = current.trusted.iter().find(|one| one.config.issuer.url == issuer)?;
        let started = Instant::now();
        let outcome = self.verify(trusted, &token, now).await;
        trusted.connection.provider.metrics().authenticated(outcome.is_ok(), started.elapsed());
        Some(outcome.map(|verified| {
            let user = verified.user.clone();
            self.verified.put(digest, verified, now);
            user
        }))
    }

    async fn verify(&self, trusted: &Trusted, token: &Jws<'_>, now: Timestamp) -> Result<Verified, String> {
        let refused = |why: String| format!("oidc: verify token: {why}");
        let provider = &trusted.connection.provider;
        // All that costs nothing comes first, so that what is no good anyway does not bring about a request to the issuer.
        check_audience(&token.claims, &trusted.config.audiences).map_err(refused)?;
        let expires = check_times(&token.claims, now).map_err(refused)?;
        let algorithm = SigningAlgorithm::parse(&token.algorithm).filter(|used| self.algorithms.contains(used));
        let algorithm = algorithm.ok_or_else(|| {
            let known: Vec<String> = self.algorithms.iter().map(|known| known.name().to_owned()).collect();
            let (known, got) = (go_strings(&known), go_quote(&token.algorithm));
            refused(format!("oidc: id token signed with unsupported algorithm, expected {known} got {got}"))
        })?;
        let keys = match provider.keys() {
            Some(keys) => keys,
            None => provider
                .renewed()
                .await
                .ok_or_else(|| format!("oidc: authenticator not initialized: {}", provider.trouble()))?,
        };
        if let Err(why) = keys.verify(token, algorithm) {
            let renewed = provider.renewed().await.filter(|renewed| !Arc::ptr_eq(renewed, &keys));
            let verified = renewed.map(|keys| keys.verify(token, algorithm));
            verified.unwrap_or(Err(why)).map_err(|why| refused(format!("failed to verify signature: {why}")))?;
        }
        Ok(Verified { user: trusted.config.user(&token.claims)?, expires })
    }
}

#[derive(Debug, thiserror::Error)]
pub enum IssuersError {
    #[error("the system has no random numbers to give")]
    Random(#[source] getrandom::Error),
    #[error("the connection to an issuer cannot be prepared")]
    Tls(#[source] reqwest::Error),
}

/// Only to choose how to go on: nobody has vouched for it yet.
fn issuer_of(claims: &Map<String, Value>) -> Option<&str> {
    match claims.get("iss")?.as_str()? {
        // As Google's tokens name it (OpenID Connect Core 1.0, 15.6.2).
        "accounts.google.com" => Some("https://accounts.google.com"),
        issuer => Some(issuer),
    }
}

fn check_audience(claims: &Map<String, Value>, wanted: &[String]) -> Result<(), String> {
    let audiences: Vec<String> = match claims.get("aud") {
        Some(Value::String(one)) => vec![one.clone()],
        Some(Value::Array(list)) => list.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        _ => Vec::new(),
    };
    if audiences.iter().any(|audience| wanted.contains(audience)) {
        return Ok(());
    }
    Err(format!("oidc: expected audience in {} got {}", go_strings(wanted), go_strings(&audiences)))
}

/// When it expires.
fn check_times(claims: &Map<String, Value>, now: Timestamp) -> Result<f64, String> {
    let time = |name: &str| match claims.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => value.as_f64().map(Some).ok_or_else(|| format!("oidc: {name} is no number of seconds")),
    };
    let now = seconds(now);
    let expires = time("exp")?.ok_or("oidc: token has no exp")?;
    if expires <= now {
        return Err(format!("oidc: token is expired (Token Expiry: {expires} seconds since the epoch)"));
    }
    match time("nbf")? {
        Some(from) if now + NOT_BEFORE_LEEWAY < from => {
            Err(format!("oidc: current time {now} before the nbf (not before) time: {from}"))
        }
        _ => Ok(expires),
    }
}

fn seconds(time: Timestamp) -> f64 {
    time.as_duration().as_secs_f64()
}
