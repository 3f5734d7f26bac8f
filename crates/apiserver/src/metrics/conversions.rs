//! What conversion webhooks cost.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};

use super::Metrics;

/// Which webhook was asked, by its definition, and for what.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked<'a> {
    pub(crate) definition: &'a str,
    pub(crate) from: &'a str,
    pub(crate) to: &'a str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Labels {
    crd_name: String,
    from_version: String,
    to_version: String,
    succeeded: String,
}

#[derive(Debug)]
pub(crate) struct ConversionMetrics {
    duration: Family<Labels, Histogram, fn() -> Histogram>,
}

impl Metrics {
    /// Adds what conversions take to what is told.
    pub(crate) fn conversions(&mut self) -> ConversionMetrics {
        let made = || Histogram::new(exponential_buckets(0.001, 2.0, 15));
        let duration = Family::new_with_constructor(made as fn() -> Histogram);
        self.registry.register(
            "apiserver_crd_webhook_conversion_duration_seconds",
            "How long conversion webhooks took to answer",
            duration.clone(),
        );
        ConversionMetrics { duration }
    }
}

impl ConversionMetrics {
    pub(crate) fn answered(&self, asked: &Asked<'_>, took: Duration, is_good: bool) {
        let labels = Labels {
            crd_name: asked.definition.to_owned(),
            from_version: asked.from.to_owned(),
            to_version: asked.to.to_owned(),
            succeeded: is_good.to_string(),
        };
        self.duration.get_or_create(&labels).observe(took.as_secs_f64());
    }
}
