//! How many requests prove who they are from.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ResultLabels {
    result: &'static str,
}

/// A gauge that only grows: a counter would be written with `_total`, which upstream's name does not have.
#[derive(Clone, Debug, Default)]
pub(crate) struct Logins(Family<ResultLabels, Gauge>);

impl Logins {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "authentication_attempts",
            "Requests by whether they proved who they are from, or did not try to",
            self.0.clone(),
        );
    }

    /// What came of a request's credentials.
    pub(crate) fn counted<T, E>(&self, known: Result<T, E>) -> Result<T, E> {
        let result = if known.is_ok() { "success" } else { "failure" };
        self.0.get_or_create(&ResultLabels { result }).inc();
        known
    }
}
