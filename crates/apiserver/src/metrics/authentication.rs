//! What tokens of other issuers cost, whether their keys can be had, and when the configuration was read.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use sha2::{Digest as _, Sha256};

use super::Metrics;

/// Upstream's.
const BUCKETS: [f64; 12] = [0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

type Seconds = Gauge<f64, AtomicU64>;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct LatencyLabels {
    result: &'static str,
    jwt_issuer_hash: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct FetchLabels {
    result: &'static str,
    jwt_issuer_hash: String,
    apiserver_id_hash: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct KeySetLabels {
    jwt_issuer_hash: String,
    apiserver_id_hash: String,
    hash: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ReloadLabels {
    status: &'static str,
    apiserver_id_hash: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ConfigLabels {
    apiserver_id_hash: String,
    hash: String,
}

/// Issuers are named by the hash of their URL, as upstream names them.
#[derive(Clone, Debug)]
pub(crate) struct AuthenticationMetrics {
    apiserver: String,
    latency: Family<LatencyLabels, Histogram, fn() -> Histogram>,
    fetched: Family<FetchLabels, Seconds>,
    key_sets: Family<KeySetLabels, Gauge>,
    reloads: Family<ReloadLabels, Counter>,
    reloaded: Family<ReloadLabels, Seconds>,
    config: Family<ConfigLabels, Gauge>,
    /// The key set of each issuer that is told.
    told: Arc<Mutex<BTreeMap<String, String>>>,
}

impl Metrics {
    /// Adds what is counted about tokens of others to what is told. `apiserver` is what tells this server from others.
    pub(crate) fn authentication(&mut self, apiserver: &str) -> AuthenticationMetrics {
        let metrics = AuthenticationMetrics {
            apiserver: hash(apiserver.as_bytes()),
            latency: Family::new_with_constructor((|| Histogram::new(BUCKETS)) as fn() -> Histogram),
            fetched: Family::default(),
            key_sets: Family::default(),
            reloads: Family::default(),
            reloaded: Family::default(),
            config: Family::default(),
            told: Arc::default(),
        };
        let registry = &mut self.registry;
        registry.register(
            "apiserver_authentication_jwt_authenticator_latency_seconds",
            "How long it took to verify a token of an issuer; not those that were verified a moment before",
            metrics.latency.clone(),
        );
        registry.register(
            "apiserver_authentication_jwt_authenticator_jwks_fetch_last_timestamp_seconds",
            "When the keys of an issuer were last fetched, and when that last failed",
            metrics.fetched.clone(),
        );
        registry.register(
            "apiserver_authentication_jwt_authenticator_jwks_fetch_last_key_set_info",
            "The hash of the keys of an issuer",
            metrics.key_sets.clone(),
        );
        registry.register(
            "apiserver_authentication_config_controller_automatic_reloads",
            "How often the authentication configuration was read again, by whether it could be used",
            metrics.reloads.clone(),
        );
        registry.register(
            "apiserver_authentication_config_controller_automatic_reload_last_timestamp_seconds",
            "When the authentication configuration was last read again, by whether it could be used",
            metrics.reloaded.clone(),
        );
        registry.register(
            "apiserver_authentication_config_controller_last_config_info",
            "The hash of the authentication configuration that is in use",
            metrics.config.clone(),
        );
        metrics
    }
}

impl AuthenticationMetrics {
    pub(crate) fn issuer(&self, url: &str) -> IssuerMetrics {
        IssuerMetrics { issuer: hash(url.as_bytes()), all: self.clone() }
    }

    /// What was told of an issuer that is no longer trusted.
    pub(crate) fn forget(&self, url: &str) {
        let issuer = hash(url.as_bytes());
        for result in ["success", "failure"] {
            self.fetched.remove(&self.fetch_labels(&issuer, result));
        }
        if let Some(old) = self.told.lock().remove(&issuer) {
            self.key_sets.remove(&self.key_set_labels(&issuer, old));
        }
    }

    /// The configuration that the server started with.
    pub(crate) fn configured(&self, text: &str) {
        self.config.clear();
        let labels = ConfigLabels { apiserver_id_hash: self.apiserver.clone(), hash: hash(text.as_bytes()) };
        self.config.get_or_create(&labels).set(1);
    }

    /// The configuration was read again; `None` if it is no good.
    pub(crate) fn reloaded(&self, text: Option<&str>) {
        let status = if text.is_some() { "success" } else { "failure" };
        let labels = ReloadLabels { status, apiserver_id_hash: self.apiserver.clone() };
        self.reloads.get_or_create(&labels).inc();
        self.reloaded.get_or_create(&labels).set(now());
        if let Some(text) = text {
            self.configured(text);
        }
    }

    fn fetch_labels(&self, issuer: &str, result: &'static str) -> FetchLabels {
        FetchLabels { result, jwt_issuer_hash: issuer.to_owned(), apiserver_id_hash: self.apiserver.clone() }
    }

    fn key_set_labels(&self, issuer: &str, hash: String) -> KeySetLabels {
        KeySetLabels { jwt_issuer_hash: issuer.to_owned(), apiserver_id_hash: self.apiserver.clone(), hash }
    }
}

/// What is counted about one issuer.
#[derive(Clone, Debug)]
pub(crate) struct IssuerMetrics {
    issuer: String,
    all: AuthenticationMetrics,
}

impl IssuerMetrics {
    pub(crate) fn authenticated(&self, is_good: bool, took: Duration) {
        let result = if is_good { "success" } else { "failure" };
        let labels = LatencyLabels { result, jwt_issuer_hash: self.issuer.clone() };
        self.all.latency.get_or_create(&labels).observe(took.as_secs_f64());
    }

    /// The keys were fetched; `None` if that failed.
    pub(crate) fn fetched(&self, keys: Option<&[u8]>) {
        let result = if keys.is_some() { "success" } else { "failure" };
        self.all.fetched.get_or_create(&self.all.fetch_labels(&self.issuer, result)).set(now());
        let Some(keys) = keys else { return };
        let new = hash(keys);
        let old = self.all.told.lock().insert(self.issuer.clone(), new.clone());
        if let Some(old) = old.filter(|old| *old != new) {
            self.all.key_sets.remove(&self.all.key_set_labels(&self.issuer, old));
        }
        self.all.key_sets.get_or_create(&self.all.key_set_labels(&self.issuer, new)).set(1);
    }
}

fn now() -> f64 {
    Timestamp::now().as_duration().as_secs_f64()
}

/// As upstream writes it.
fn hash(data: &[u8]) -> String {
    let mut text = "sha256:".to_owned();
    for byte in Sha256::digest(data) {
        // Writing to a String does not fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}
