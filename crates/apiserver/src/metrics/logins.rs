//! How many requests prove who they are from, and what comes of passwords.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ResultLabels {
    result: &'static str,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Logins {
    /// A gauge that only grows: a counter would be written with `_total`, which upstream's name does not have.
    requests: Family<ResultLabels, Gauge>,
    passwords: Family<ResultLabels, Counter>,
    lockouts: Counter,
}

impl Logins {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "authentication_attempts",
            "Requests by whether they proved who they are from, or did not try to",
            self.requests.clone(),
        );
        registry.register(
            "croft_logins",
            "Names and passwords that were checked, by what came of it",
            self.passwords.clone(),
        );
        registry.register("croft_login_lockouts", "Names locked after too many wrong passwords", self.lockouts.clone());
    }

    /// What came of a request's credentials.
    pub(crate) fn counted<T, E>(&self, known: Result<T, E>) -> Result<T, E> {
        let result = if known.is_ok() { "success" } else { "failure" };
        self.requests.get_or_create(&ResultLabels { result }).inc();
        known
    }

    /// What came of a name and a password.
    pub(crate) fn login(&self, result: &'static str) {
        self.passwords.get_or_create(&ResultLabels { result }).inc();
    }

    pub(crate) fn lockout(&self) {
        self.lockouts.inc();
    }
}
