//! What is asked, how it ends, and how long it takes.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Reviewed {
    stage: String,
    resource: String,
    operation: String,
    outcome: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Stage {
    stage: String,
}

#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    reviews: Family<Reviewed, Counter>,
    duration: Family<Stage, Histogram, fn() -> Histogram>,
}

/// One review, as it is counted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counted<'a> {
    pub(crate) stage: &'static str,
    pub(crate) resource: &'a str,
    pub(crate) operation: &'static str,
    pub(crate) outcome: &'static str,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let made = || Histogram::new(exponential_buckets(0.0005, 2.0, 15));
        let (reviews, duration) = (Family::default(), Family::new_with_constructor(made as fn() -> Histogram));
        let mut registry = Registry::default();
        registry.register("croft_webhook_reviews", "Requests that were decided, by how", Family::clone(&reviews));
        registry.register("croft_webhook_review_duration_seconds", "How long decisions took", Family::clone(&duration));
        Self { registry, reviews, duration }
    }

    pub(crate) fn reviewed(&self, counted: &Counted<'_>, took: Duration) {
        let Counted { stage, resource, operation, outcome } = *counted;
        let labels = Reviewed {
            stage: stage.to_owned(),
            resource: resource.to_owned(),
            operation: operation.to_owned(),
            outcome: outcome.to_owned(),
        };
        self.reviews.get_or_create(&labels).inc();
        self.duration.get_or_create(&Stage { stage: stage.to_owned() }).observe(took.as_secs_f64());
    }

    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = encode(&mut text, &self.registry);
        text
    }
}
