//! What admission webhooks cost, and what they stop.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::Metrics;

/// Upstream's.
const BUCKETS: [f64; 8] = [0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10.0, 25.0];

/// Which webhook was asked, and about what. Its name is an administrator's, so that labels stay few.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked<'a> {
    pub(crate) name: &'a str,
    pub(crate) stage: &'static str,
    pub(crate) operation: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct DurationLabels {
    name: String,
    r#type: &'static str,
    operation: &'static str,
    rejected: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct RequestLabels {
    name: String,
    r#type: &'static str,
    operation: &'static str,
    code: u16,
    rejected: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct RejectionLabels {
    name: String,
    r#type: &'static str,
    operation: &'static str,
    error_type: &'static str,
    rejection_code: u16,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct FailOpenLabels {
    name: String,
    r#type: &'static str,
}

/// Two of them are counters under names that do not end as counters' names do here; they are written as gauges, so that
/// dashboards find them.
#[derive(Debug)]
pub(crate) struct WebhookMetrics {
    duration: Family<DurationLabels, Histogram, fn() -> Histogram>,
    requests: Family<RequestLabels, Counter>,
    rejections: Family<RejectionLabels, Gauge>,
    failed_open: Family<FailOpenLabels, Gauge>,
}

impl Metrics {
    /// Adds what webhooks count to what is told.
    pub(crate) fn webhooks(&mut self) -> WebhookMetrics {
        WebhookMetrics::register(&mut self.registry)
    }
}

impl WebhookMetrics {
    fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            duration: Family::new_with_constructor((|| Histogram::new(BUCKETS)) as fn() -> Histogram),
            requests: Family::default(),
            rejections: Family::default(),
            failed_open: Family::default(),
        };
        registry.register(
            "apiserver_admission_webhook_admission_duration_seconds",
            "How long admission webhooks took to answer",
            metrics.duration.clone(),
        );
        registry.register(
            "apiserver_admission_webhook_request",
            "Calls of admission webhooks, by the code they were answered with",
            metrics.requests.clone(),
        );
        registry.register(
            "apiserver_admission_webhook_rejection_count",
            "Requests that an admission webhook stopped, by refusing or by failing",
            metrics.rejections.clone(),
        );
        registry.register(
            "apiserver_admission_webhook_fail_open_count",
            "Requests that went on although an admission webhook failed",
            metrics.failed_open.clone(),
        );
        metrics
    }

    pub(crate) fn answered(&self, asked: &Asked<'_>, took: Duration, code: u16, is_rejected: bool) {
        let Asked { name, stage, operation } = *asked;
        let (name, rejected) = (name.to_owned(), is_rejected.to_string());
        let labels = DurationLabels { name: name.clone(), r#type: stage, operation, rejected: rejected.clone() };
        self.duration.get_or_create(&labels).observe(took.as_secs_f64());
        let labels = RequestLabels { name, r#type: stage, operation, code, rejected };
        self.requests.get_or_create(&labels).inc();
    }

    pub(crate) fn rejected(&self, asked: &Asked<'_>, error_type: &'static str, code: u16) {
        let Asked { name, stage, operation } = *asked;
        let name = name.to_owned();
        let labels = RejectionLabels { name, r#type: stage, operation, error_type, rejection_code: code };
        self.rejections.get_or_create(&labels).inc();
    }

    pub(crate) fn failed_open(&self, asked: &Asked<'_>) {
        let labels = FailOpenLabels { name: asked.name.to_owned(), r#type: asked.stage };
        self.failed_open.get_or_create(&labels).inc();
    }
}
