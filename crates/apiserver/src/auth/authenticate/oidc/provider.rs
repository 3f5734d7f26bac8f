//! The keys of an issuer, fetched beside the requests and kept fresh.
//!
//! One task for each issuer asks it: at the start, from time to time, and when a token is signed with a key that is not known.
//! Requests only wait for that task, not for long and not many at a time, and what they can have it do is bounded: tokens can
//! be forged by anybody, and are not to become requests to the issuer.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use croft_meta::Chain;
use croft_pki::KeySet;
use http::header::ACCEPT;
use parking_lot::Mutex;
use reqwest::redirect::Policy;
use reqwest::{Certificate, Client, Url};
use serde::Deserialize;
use tokio::sync::{Notify, Semaphore, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::config::IssuerConfig;
use crate::metrics::IssuerMetrics;

const WELL_KNOWN: &str = "/.well-known/openid-configuration";
/// How long one request may take, and how long connecting.
const TIMEOUT: Duration = Duration::from_secs(10);
const CONNECT: Duration = Duration::from_secs(5);
/// Both documents of an issuer are some KiB.
const MOST_BYTES: usize = 1 << 20;
/// A key that the issuer has withdrawn is good for no longer than this.
const REFRESH: Duration = Duration::from_mins(10);
/// After a failure; twice as long after each further one.
const RETRY: Duration = Duration::from_secs(1);
const LONGEST_RETRY: Duration = Duration::from_secs(30);
/// How often tokens can have the keys fetched, once they have had it done this many times in a row.
const PACE: Duration = Duration::from_secs(10);
const BURST: u32 = 3;
/// How long a request waits for the keys, and how many of them at a time.
const PATIENCE: Duration = Duration::from_secs(5);
const MOST_WAITING: usize = 64;

#[derive(Debug, thiserror::Error)]
pub(super) enum FetchError {
    #[error("cannot ask {url}")]
    Ask { url: String, source: reqwest::Error },
    #[error("{url} answered {code}, and redirects are not followed")]
    Redirected { url: String, code: u16 },
    #[error("{url} answered {code}")]
    Answered { url: String, code: u16 },
    #[error("the answer of {url} is larger than {MOST_BYTES} bytes")]
    TooLarge { url: String },
    #[error("the answer of {url} is no description of an issuer")]
    NoDescription { url: String },
    #[error("oidc: issuer did not match the issuer returned by provider, expected {expected:?} got {got:?}")]
    OtherIssuer { expected: String, got: String },
    #[error("its keys are not at an address of https: {0:?}")]
    KeysNotHttps(String),
    #[error("the keys at {url} cannot be used")]
    Keys { url: String, source: croft_pki::JwsError },
}

#[derive(Deserialize)]
struct Description {
    #[serde(default)]
    issuer: String,
    #[serde(default)]
    jwks_uri: String,
}

/// Requests for the keys that tokens have brought about.
#[derive(Debug)]
struct Demand {
    /// Somebody waits for the next attempt.
    is_pending: bool,
    /// When all that was asked for would have been done at the pace.
    paid_until: Instant,
}

impl Demand {
    /// Whether there is to be another attempt.
    fn ask(&mut self, now: Instant) -> bool {
        if self.is_pending {
            return true;
        }
        let from = self.paid_until.max(now);
        if from > now + PACE * (BURST - 1) {
            return false;
        }
        self.paid_until = from + PACE;
        self.is_pending = true;
        true
    }
}

#[derive(Debug)]
pub(super) struct Provider {
    pub(super) config: IssuerConfig,
    client: Client,
    keys: ArcSwapOption<KeySet>,
    /// Why there are no keys.
    trouble: Mutex<String>,
    demand: Mutex<Demand>,
    wanted: Notify,
    attempts: watch::Sender<u64>,
    waiting: Semaphore,
    metrics: IssuerMetrics,
}

impl Provider {
    pub(super) fn new(config: IssuerConfig, metrics: IssuerMetrics) -> Result<Self, reqwest::Error> {
        let builder = Client::builder().no_proxy().timeout(TIMEOUT).connect_timeout(CONNECT);
        let builder = builder.redirect(Policy::none()).https_only(true);
        let builder = if config.certificate_authority.is_empty() {
            builder
        } else {
            // They were read once before, when the configuration was checked.
            builder.tls_certs_only(Certificate::from_pem_bundle(config.certificate_authority.as_bytes())?)
        };
        Ok(Self {
            client: builder.build()?,
            config,
            keys: ArcSwapOption::empty(),
            trouble: Mutex::new("it has not been asked yet".to_owned()),
            demand: Mutex::new(Demand { is_pending: false, paid_until: Instant::now() }),
            wanted: Notify::new(),
            attempts: watch::Sender::new(0),
            waiting: Semaphore::new(MOST_WAITING),
            metrics,
        })
    }

    pub(super) fn keys(&self) -> Option<Arc<KeySet>> {
        self.keys.load_full()
    }

    pub(super) fn trouble(&self) -> String {
        self.trouble.lock().clone()
    }

    pub(super) fn metrics(&self) -> &IssuerMetrics {
        &self.metrics
    }

    /// Has the keys fetched, unless that was done too often of late, and waits a moment for them.
    pub(super) async fn renewed(&self) -> Option<Arc<KeySet>> {
        let _place = self.waiting.try_acquire().ok()?;
        let mut attempts = {
            let mut demand = self.demand.lock();
            if !demand.ask(Instant::now()) {
                return None;
            }
            self.wanted.notify_one();
            // The attempt that answers it is not to be missed, nor one from before to be taken for it.
            self.attempts.subscribe()
        };
        // The sender lives as long as this.
        tokio::time::timeout(PATIENCE, attempts.changed()).await.ok()?.ok()?;
        self.keys()
    }

    /// Fetches the keys again and again, until `stop`.
    pub(super) async fn follow(self: Arc<Self>, stop: CancellationToken) {
        let mut retry = RETRY;
        loop {
            let outcome = tokio::select! {
                outcome = self.fetch() => outcome,
                () = stop.cancelled() => return,
            };
            let pause = match outcome {
                Ok(()) => {
                    retry = RETRY;
                    REFRESH
                }
                Err(error) => {
                    let pause = retry;
                    retry = (retry * 2).min(LONGEST_RETRY);
                    self.failed(&error);
                    pause
                }
            };
            self.answer();
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.asked() => {}
                () = stop.cancelled() => return,
            }
        }
    }

    /// Tells those who wait that there was an attempt.
    fn answer(&self) {
        let mut demand = self.demand.lock();
        demand.is_pending = false;
        self.attempts.send_modify(|count| *count += 1);
    }

    /// Waits until somebody waits for an attempt. One that was under way has answered those who asked meanwhile, although they are
    /// still noted.
    async fn asked(&self) {
        loop {
            self.wanted.notified().await;
            if self.demand.lock().is_pending {
                return;
            }
        }
    }

    fn failed(&self, error: &FetchError) {
        self.metrics.fetched(None);
        let why = Chain(error).to_string();
        let has_keys = self.keys.load().is_some();
        tracing::warn!(issuer = self.config.url, reason = why, has_keys, "the keys of an issuer could not be fetched");
        *self.trouble.lock() = why;
    }

    async fn fetch(&self) -> Result<(), FetchError> {
        let at = match &self.config.discovery_url {
            Some(url) => url.clone(),
            None => format!("{}{WELL_KNOWN}", self.config.url.strip_suffix('/').unwrap_or(&self.config.url)),
        };
        let body = self.get(&at).await?;
        let description: Description =
            serde_json::from_slice(&body).map_err(|_| FetchError::NoDescription { url: at })?;
        if description.issuer != self.config.url {
            let expected = self.config.url.clone();
            return Err(FetchError::OtherIssuer { expected, got: description.issuer });
        }
        let url = description.jwks_uri;
        if Url::parse(&url).ok().is_none_or(|url| url.scheme() != "https") {
            return Err(FetchError::KeysNotHttps(url));
        }
        let body = self.get(&url).await?;
        let keys = KeySet::parse(&body).map_err(|source| FetchError::Keys { url, source })?;
        // Those that it had are good no more.
        if keys.is_empty() {
            tracing::warn!(
                issuer = self.config.url,
                "an issuer publishes no key that can be used: no token of it is good"
            );
        }
        if self.keys.swap(Some(Arc::new(keys))).is_none() {
            tracing::info!(issuer = self.config.url, "the keys of an issuer were fetched");
        }
        self.metrics.fetched(Some(&body));
        Ok(())
    }

    async fn get(&self, url: &str) -> Result<Vec<u8>, FetchError> {
        let asked = |source: reqwest::Error| FetchError::Ask { url: url.to_owned(), source: source.without_url() };
        let mut answer = self.client.get(url).header(ACCEPT, "application/json").send().await.map_err(asked)?;
        let code = answer.status();
        if code.is_redirection() {
            return Err(FetchError::Redirected { url: url.to_owned(), code: code.as_u16() });
        }
        if code != http::StatusCode::OK {
            return Err(FetchError::Answered { url: url.to_owned(), code: code.as_u16() });
        }
        let mut body = Vec::new();
        while let Some(piece) = answer.chunk().await.map_err(asked)? {
            if body.len() + piece.len() > MOST_BYTES {
                return Err(FetchError::TooLarge { url: url.to_owned() });
            }
            body.extend_from_slice(&piece);
        }
        Ok(body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn tokens_have_the_keys_fetched_a_few_times_and_then_slowly() {
        let start = Instant::now();
        let mut demand = Demand { is_pending: false, paid_until: start };
        let mut allowed = Vec::new();
        for second in 0..60 {
            // Whoever asks while somebody waits gets the same answer, and pays nothing.
            let now = start + Duration::from_secs(second);
            if demand.ask(now) {
                assert!(demand.ask(now));
                allowed.push(second);
            }
            demand.is_pending = false;
        }
        assert_eq!(allowed, [0, 1, 2, 10, 20, 30, 40, 50]);
    }

    #[tokio::test(start_paused = true)]
    async fn an_attempt_answers_those_who_asked_while_it_was_under_way() {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let config = IssuerConfig {
            url: "https://issuer.example".to_owned(),
            discovery_url: None,
            certificate_authority: String::new(),
        };
        let metrics = crate::metrics::Metrics::new().authentication("here").issuer(&config.url);
        let provider = Provider::new(config, metrics).unwrap();
        let moment = Duration::from_secs(1);
        let answered = async {
            tokio::task::yield_now().await;
            provider.answer();
        };
        tokio::join!(provider.renewed(), answered);
        assert!(tokio::time::timeout(moment, provider.asked()).await.is_err(), "nobody waits any more");
        let (_, asked) = tokio::join!(provider.renewed(), tokio::time::timeout(moment, provider.asked()));
        assert!(asked.is_ok(), "somebody waits");
    }
}
