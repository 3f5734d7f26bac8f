//! What priority and fairness does, under upstream's names.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::latency;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct LevelLabels {
    priority_level: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct FlowLabels {
    priority_level: String,
    flow_schema: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct RefusalLabels {
    priority_level: String,
    flow_schema: String,
    reason: &'static str,
}

/// Cheap to clone: what one counts, all show.
#[derive(Clone, Debug)]
pub(crate) struct Flows {
    limits: Family<LevelLabels, Gauge>,
    waiting: Family<FlowLabels, Gauge>,
    running: Family<FlowLabels, Gauge>,
    dispatched: Family<FlowLabels, Counter>,
    refused: Family<RefusalLabels, Counter>,
    waited: Family<FlowLabels, Histogram, fn() -> Histogram>,
}

impl Default for Flows {
    fn default() -> Self {
        Self {
            limits: Family::default(),
            waiting: Family::default(),
            running: Family::default(),
            dispatched: Family::default(),
            refused: Family::default(),
            waited: Family::new_with_constructor(latency as fn() -> Histogram),
        }
    }
}

impl Flows {
    pub(super) fn register(&self, registry: &mut Registry) {
        let name = |rest: &str| format!("apiserver_flowcontrol_{rest}");
        registry.register(
            name("nominal_limit_seats"),
            "Seats that a priority level has of its own",
            self.limits.clone(),
        );
        registry.register(name("current_inqueue_requests"), "Requests that wait for a seat", self.waiting.clone());
        registry.register(name("current_executing_requests"), "Requests that have a seat", self.running.clone());
        registry.register(name("dispatched_requests"), "Requests that were given a seat", self.dispatched.clone());
        registry.register(name("rejected_requests"), "Requests that were told to come back", self.refused.clone());
        registry.register(
            name("request_wait_duration_seconds"),
            "How long requests waited that had to",
            self.waited.clone(),
        );
    }

    /// The levels as they are from now on.
    pub(crate) fn arranged<'a>(&self, levels: impl Iterator<Item = (&'a str, usize)>) {
        self.limits.clear();
        for (level, seats) in levels {
            let labels = LevelLabels { priority_level: level.to_owned() };
            self.limits.get_or_create(&labels).set(i64::try_from(seats).unwrap_or(i64::MAX));
        }
    }

    pub(crate) fn waits(&self, level: &str, schema: &str, change: i64) {
        self.waiting.get_or_create(&labels(level, schema)).inc_by(change);
    }

    pub(crate) fn waited(&self, level: &str, schema: &str, took: Duration) {
        self.waited.get_or_create(&labels(level, schema)).observe(took.as_secs_f64());
    }

    pub(crate) fn runs(&self, level: &str, schema: &str, change: i64) {
        let labels = labels(level, schema);
        self.running.get_or_create(&labels).inc_by(change);
        if change > 0 {
            self.dispatched.get_or_create(&labels).inc();
        }
    }

    pub(crate) fn refused(&self, level: &str, schema: &str, reason: &'static str) {
        let FlowLabels { priority_level, flow_schema } = labels(level, schema);
        self.refused.get_or_create(&RefusalLabels { priority_level, flow_schema, reason }).inc();
    }
}

fn labels(level: &str, schema: &str) -> FlowLabels {
    FlowLabels { priority_level: level.to_owned(), flow_schema: schema.to_owned() }
}
