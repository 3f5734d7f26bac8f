//! What `/metrics` tells, under the names that Kubernetes dashboards know.

mod authentication;
mod connections;
pub(crate) mod conversions;
mod flows;
mod logins;
pub(crate) mod machines;
pub(crate) mod saved_states;
pub(crate) mod webhooks;

use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::audit::{Counters, Lost};

pub(crate) use authentication::{AuthenticationMetrics, IssuerMetrics};
pub(crate) use connections::Connections;
pub(crate) use flows::Flows;
pub(crate) use logins::Logins;

/// How OpenMetrics ends.
const END: &str = "# EOF\n";
const LATENCY_BUCKETS: [f64; 14] =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0];

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct RequestLabels {
    verb: &'static str,
    group: String,
    version: String,
    resource: String,
    subresource: String,
    scope: &'static str,
    component: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct RequestCodeLabels {
    verb: &'static str,
    group: String,
    version: String,
    resource: String,
    subresource: String,
    scope: &'static str,
    component: &'static str,
    code: u16,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct KindLabels {
    request_kind: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ResourceLabels {
    group: String,
    resource: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OperationLabels {
    operation: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct PluginLabels {
    plugin: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct PolicyLabels {
    policy: String,
    policy_binding: String,
    enforcement_action: &'static str,
    error_type: &'static str,
}

#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    duration: Family<RequestLabels, Histogram, fn() -> Histogram>,
    total: Family<RequestCodeLabels, Counter>,
    in_flight: Family<KindLabels, Gauge>,
    watches: Family<ResourceLabels, Gauge>,
    store: Family<OperationLabels, Histogram, fn() -> Histogram>,
    audit: Counters,
    validating_policies: Family<PolicyLabels, Counter>,
    mutating_policies: Family<PolicyLabels, Counter>,
    flows: Flows,
    connections: Connections,
    pub(crate) logins: Logins,
}

fn latency() -> Histogram {
    Histogram::new(LATENCY_BUCKETS)
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let mut registry = Registry::default();
        let duration = Family::new_with_constructor(latency as fn() -> Histogram);
        let total = Family::default();
        let in_flight = Family::default();
        let watches = Family::default();
        let store = Family::new_with_constructor(latency as fn() -> Histogram);
        registry.register(
            "apiserver_request_duration_seconds",
            "How long requests took, by verb and resource; watches are not counted",
            duration.clone(),
        );
        registry.register("apiserver_request", "Requests, by verb, resource and answered code", total.clone());
        registry.register(
            "apiserver_current_inflight_requests",
            "Requests being worked on, by whether they change something",
            in_flight.clone(),
        );
        registry.register("apiserver_registered_watchers", "Open watches, by resource", watches.clone());
        registry.register(
            "etcd_request_duration_seconds",
            "How long the store took, by operation; the name is the one dashboards know, whichever engine is used",
            store.clone(),
        );
        let events = Counter::default();
        let errors = Family::<PluginLabels, Counter>::default();
        registry.register("apiserver_audit_event", "Audit events that were to be written", events.clone());
        registry.register("apiserver_audit_error", "Audit events that were lost", errors.clone());
        let plugin = |plugin| errors.get_or_create_owned(&PluginLabels { plugin });
        let lost = Lost { buffered: plugin("buffered"), webhook: plugin("webhook") };
        let audit = Counters { events, errors: plugin("log"), lost };
        let (validating_policies, mutating_policies) = (Family::default(), Family::default());
        registry.register(
            "apiserver_validating_admission_policy_check",
            "Requests that a validating policy objected to, by what was done about it",
            validating_policies.clone(),
        );
        registry.register(
            "apiserver_mutating_admission_policy_check",
            "Requests that a mutating policy failed on",
            mutating_policies.clone(),
        );
        let flows = Flows::default();
        flows.register(&mut registry);
        let connections = Connections::default();
        connections.register(&mut registry);
        let logins = Logins::default();
        logins.register(&mut registry);
        registry.register_collector(Box::new(ProcessCollector));
        Self {
            registry,
            duration,
            total,
            in_flight,
            watches,
            store,
            audit,
            validating_policies,
            mutating_policies,
            flows,
            connections,
            logins,
        }
    }

    /// What the audit log counts.
    pub(crate) fn audit(&self) -> Counters {
        self.audit.clone()
    }

    /// What priority and fairness counts.
    pub(crate) fn flows(&self) -> Flows {
        self.flows.clone()
    }

    /// What those who accept connections count.
    pub(crate) fn connections(&self) -> Connections {
        self.connections.clone()
    }

    /// All of it, with figures that others have written in the same form.
    pub(crate) fn render(&self, others: &str) -> String {
        let mut text = String::new();
        // Writing to a String does not fail.
        let _ = encode(&mut text, &self.registry);
        let own = text.strip_suffix(END).unwrap_or(&text);
        format!("{own}{others}{END}")
    }

    pub(crate) fn observe_request(&self, of: &Observed<'_>, code: u16, took: Duration) {
        let labels = RequestLabels {
            verb: of.verb,
            group: of.group.to_owned(),
            version: of.version.to_owned(),
            resource: of.resource.to_owned(),
            subresource: of.subresource.to_owned(),
            scope: of.scope,
            component: "apiserver",
        };
        if of.verb != "WATCH" {
            self.duration.get_or_create(&labels).observe(took.as_secs_f64());
        }
        let RequestLabels { verb, group, version, resource, subresource, scope, component } = labels;
        let labels = RequestCodeLabels { verb, group, version, resource, subresource, scope, component, code };
        self.total.get_or_create(&labels).inc();
    }

    /// What was done because of a validating policy (`deny`, `warn`, `audit`), which may also have failed.
    pub(crate) fn policy_objected(&self, policy: &str, binding: &str, enforcement_action: &'static str, failed: bool) {
        self.validating_policies.get_or_create(&policy_labels(policy, binding, enforcement_action, failed)).inc();
    }

    pub(crate) fn mutation_failed(&self, policy: &str, binding: &str) {
        self.mutating_policies.get_or_create(&policy_labels(policy, binding, "deny", true)).inc();
    }

    pub(crate) fn observe_store(&self, operation: &'static str, took: Duration) {
        self.store.get_or_create(&OperationLabels { operation }).observe(took.as_secs_f64());
    }

    pub(crate) fn request_started(&self, changes_something: bool) -> GaugeGuard {
        let request_kind = if changes_something { "mutating" } else { "readOnly" };
        GaugeGuard::new(self.in_flight.get_or_create_owned(&KindLabels { request_kind }))
    }

    pub(crate) fn watch_started(&self, group: &str, resource: &str) -> WatchGuard {
        let labels = ResourceLabels { group: group.to_owned(), resource: resource.to_owned() };
        GaugeGuard::new(self.watches.get_or_create_owned(&labels))
    }
}

fn policy_labels(policy: &str, binding: &str, enforcement_action: &'static str, failed: bool) -> PolicyLabels {
    PolicyLabels {
        policy: policy.to_owned(),
        policy_binding: binding.to_owned(),
        enforcement_action,
        error_type: if failed { "invalid_error" } else { "no_error" },
    }
}

/// What a request was about, as metrics label it. Only names that the server serves: labels must stay few.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Observed<'a> {
    pub(crate) verb: &'static str,
    pub(crate) group: &'a str,
    pub(crate) version: &'a str,
    pub(crate) resource: &'a str,
    pub(crate) subresource: &'a str,
    pub(crate) scope: &'static str,
}

pub(crate) type WatchGuard = GaugeGuard;

/// Counts as long as it lives.
#[derive(Debug)]
pub(crate) struct GaugeGuard(Gauge);

impl GaugeGuard {
    fn new(gauge: Gauge) -> Self {
        gauge.inc();
        Self(gauge)
    }
}

impl Drop for GaugeGuard {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// `process_*`, read when asked.
#[derive(Debug)]
struct ProcessCollector;

impl Collector for ProcessCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let mut gauge = |name: &str, help: &str, value: f64| {
            let gauge = ConstGauge::new(value);
            let metric = encoder.encode_descriptor(name, help, None, gauge.metric_type())?;
            gauge.encode(metric)
        };
        let stat = ProcessStat::read().unwrap_or_default();
        gauge("process_resident_memory_bytes", "Resident memory", stat.resident_bytes)?;
        gauge("process_virtual_memory_bytes", "Virtual memory", stat.virtual_bytes)?;
        gauge("process_cpu_seconds_total", "Processor time used", stat.cpu_seconds)?;
        gauge("process_open_fds", "Open file descriptors", stat.open_fds)?;
        gauge("process_start_time_seconds", "When the process started, since the epoch", stat.started)
    }
}

#[derive(Debug, Default)]
struct ProcessStat {
    resident_bytes: f64,
    virtual_bytes: f64,
    cpu_seconds: f64,
    open_fds: f64,
    started: f64,
}

impl ProcessStat {
    /// From `/proc`; `None` where that is not mounted.
    fn read() -> Option<Self> {
        const PAGE: f64 = 4096.0;
        const TICKS: f64 = 100.0;
        let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
        // The command name may hold spaces; the numbers start after its closing parenthesis.
        let fields: Vec<f64> =
            stat.rsplit_once(')')?.1.split_whitespace().map(|f| f.parse().unwrap_or_default()).collect();
        let boot = std::fs::read_to_string("/proc/stat").ok()?;
        let boot: f64 = boot.lines().find_map(|l| l.strip_prefix("btime "))?.trim().parse().ok()?;
        let fds = std::fs::read_dir("/proc/self/fd").map(Iterator::count).unwrap_or_default();
        Some(Self {
            cpu_seconds: (fields.get(11)? + fields.get(12)?) / TICKS,
            started: boot + fields.get(19)? / TICKS,
            virtual_bytes: *fields.get(20)?,
            resident_bytes: fields.get(21)? * PAGE,
            open_fds: f64::from(u32::try_from(fds).unwrap_or(u32::MAX)),
        })
    }
}
