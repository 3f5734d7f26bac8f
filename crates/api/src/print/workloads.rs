//! Pods and what makes them.

use serde_json::{Value, json};

use super::{NONE, UNKNOWN, UNSET, age, containers, is_true, labels, name, or_else, quantity, selector_or_none, since};
use crate::view::{flag, get, has, int, list, number, text};

/// What the container statuses say: how many are ready, restarts, and the reason that best explains the state.
struct PodState {
    ready: usize,
    total: usize,
    restarts: i64,
    last_restart: String,
    reason: String,
}

pub(crate) fn pod(object: &Value, now: i64) -> Vec<Value> {
    let state = pod_state(object);
    let restarts = if state.restarts != 0 && !state.last_restart.is_empty() {
        format!("{} ({} ago)", state.restarts, since(&state.last_restart, now))
    } else {
        state.restarts.to_string()
    };
    let ip = list(object, "status.podIPs").first().map_or("", |ip| text(ip, "ip"));
    vec![
        json!(name(object)),
        json!(format!("{}/{}", state.ready, state.total)),
        json!(state.reason),
        json!(restarts),
        json!(age(object, now)),
        json!(or_else(ip, NONE)),
        json!(or_else(text(object, "spec.nodeName"), NONE)),
        json!(or_else(text(object, "status.nominatedNodeName"), NONE)),
        json!(readiness_gates(object)),
    ]
}

fn readiness_gates(object: &Value) -> String {
    let gates = list(object, "spec.readinessGates");
    if gates.is_empty() {
        return NONE.to_owned();
    }
    let open = gates.iter().filter(|gate| is_true(object, text(gate, "conditionType"))).count();
    format!("{open}/{}", gates.len())
}

fn pod_state(object: &Value) -> PodState {
    let phase = text(object, "status.phase");
    let status_reason = text(object, "status.reason");
    let mut reason = or_else(status_reason, phase).to_owned();
    let is_gated = |c: &Value| text(c, "type") == "PodScheduled" && text(c, "reason") == "SchedulingGated";
    if list(object, "status.conditions").iter().any(is_gated) {
        "SchedulingGated".clone_into(&mut reason);
    }
    let restartable: Vec<&str> = list(object, "spec.initContainers")
        .iter()
        .filter(|c| text(c, "restartPolicy") == "Always")
        .map(|c| text(c, "name"))
        .collect();
    let mut state = PodState {
        ready: 0,
        total: list(object, "spec.containers").len() + restartable.len(),
        restarts: 0,
        last_restart: String::new(),
        reason,
    };
    let mut sidecars = (0, String::new());
    let initializing = init_containers(object, &restartable, &mut state, &mut sidecars);
    if !initializing || is_true(object, "Initialized") {
        (state.restarts, state.last_restart) = sidecars;
        main_containers(object, &mut state);
    }
    if get(object, "metadata.deletionTimestamp").is_some() {
        if status_reason == "NodeLost" {
            "Unknown".clone_into(&mut state.reason);
        } else if phase != "Failed" && phase != "Succeeded" {
            "Terminating".clone_into(&mut state.reason);
        }
    }
    state
}

/// Walks the init containers up to the one that holds the pod back; true if there is such a one.
fn init_containers(object: &Value, restartable: &[&str], state: &mut PodState, sidecars: &mut (i64, String)) -> bool {
    for (index, status) in list(object, "status.initContainerStatuses").iter().enumerate() {
        let is_sidecar = restartable.contains(&text(status, "name"));
        let finished = text(status, "lastState.terminated.finishedAt");
        state.restarts += number(status, "restartCount");
        later(&mut state.last_restart, finished);
        if is_sidecar {
            sidecars.0 += number(status, "restartCount");
            later(&mut sidecars.1, finished);
        }
        let terminated = get(status, "state.terminated");
        if terminated.is_some_and(|t| number(t, "exitCode") == 0) {
            continue;
        }
        if is_sidecar && flag(status, "started") {
            state.ready += usize::from(flag(status, "ready"));
            continue;
        }
        let waiting = text(status, "state.waiting.reason");
        state.reason = if let Some(terminated) = terminated {
            format!("Init:{}", end_reason(terminated))
        } else if !waiting.is_empty() && waiting != "PodInitializing" {
            format!("Init:{waiting}")
        } else {
            format!("Init:{index}/{}", list(object, "spec.initContainers").len())
        };
        return true;
    }
    false
}

fn main_containers(object: &Value, state: &mut PodState) {
    let mut has_running = false;
    for status in list(object, "status.containerStatuses").iter().rev() {
        state.restarts += number(status, "restartCount");
        later(&mut state.last_restart, text(status, "lastState.terminated.finishedAt"));
        let waiting = text(status, "state.waiting.reason");
        if !waiting.is_empty() {
            waiting.clone_into(&mut state.reason);
        } else if let Some(terminated) = get(status, "state.terminated") {
            state.reason = end_reason(terminated);
        } else if flag(status, "ready") && has(status, "state.running") {
            has_running = true;
            state.ready += 1;
        }
    }
    if state.reason == "Completed" && has_running {
        let running = if is_true(object, "Ready") { "Running" } else { "NotReady" };
        running.clone_into(&mut state.reason);
    }
}

fn end_reason(terminated: &Value) -> String {
    let reason = text(terminated, "reason");
    if !reason.is_empty() {
        return reason.to_owned();
    }
    match number(terminated, "signal") {
        0 => format!("ExitCode:{}", number(terminated, "exitCode")),
        signal => format!("Signal:{signal}"),
    }
}

/// RFC 3339 times in UTC sort as text.
fn later(latest: &mut String, candidate: &str) {
    if candidate > latest.as_str() {
        candidate.clone_into(latest);
    }
}

pub(crate) fn pod_template(object: &Value, _now: i64) -> Vec<Value> {
    let (names, images) = containers(object, "template.spec.containers");
    vec![json!(name(object)), json!(names), json!(images), json!(labels(object, "template.metadata.labels"))]
}

const TEMPLATE_CONTAINERS: &str = "spec.template.spec.containers";

pub(crate) fn replication_controller(object: &Value, now: i64) -> Vec<Value> {
    let mut cells = replicas(object, now);
    cells.push(json!(labels(object, "spec.selector")));
    cells
}

pub(crate) fn replica_set(object: &Value, now: i64) -> Vec<Value> {
    let mut cells = replicas(object, now);
    cells.push(json!(selector_or_none(object, "spec.selector")));
    cells
}

fn replicas(object: &Value, now: i64) -> Vec<Value> {
    let (names, images) = containers(object, TEMPLATE_CONTAINERS);
    vec![
        json!(name(object)),
        json!(number(object, "spec.replicas")),
        json!(number(object, "status.replicas")),
        json!(number(object, "status.readyReplicas")),
        json!(age(object, now)),
        json!(names),
        json!(images),
    ]
}

pub(crate) fn deployment(object: &Value, now: i64) -> Vec<Value> {
    let (names, images) = containers(object, TEMPLATE_CONTAINERS);
    let selector = match super::selector_text(get(object, "spec.selector")).as_str() {
        "<error>" => "<invalid>".to_owned(),
        text => text.to_owned(),
    };
    vec![
        json!(name(object)),
        json!(format!("{}/{}", number(object, "status.readyReplicas"), number(object, "spec.replicas"))),
        json!(number(object, "status.updatedReplicas")),
        json!(number(object, "status.availableReplicas")),
        json!(age(object, now)),
        json!(names),
        json!(images),
        json!(selector),
    ]
}

pub(crate) fn stateful_set(object: &Value, now: i64) -> Vec<Value> {
    let (names, images) = containers(object, TEMPLATE_CONTAINERS);
    vec![
        json!(name(object)),
        json!(format!("{}/{}", number(object, "status.readyReplicas"), number(object, "spec.replicas"))),
        json!(age(object, now)),
        json!(names),
        json!(images),
    ]
}

pub(crate) fn daemon_set(object: &Value, now: i64) -> Vec<Value> {
    let (names, images) = containers(object, TEMPLATE_CONTAINERS);
    vec![
        json!(name(object)),
        json!(number(object, "status.desiredNumberScheduled")),
        json!(number(object, "status.currentNumberScheduled")),
        json!(number(object, "status.numberReady")),
        json!(number(object, "status.updatedNumberScheduled")),
        json!(number(object, "status.numberAvailable")),
        json!(labels(object, "spec.template.spec.nodeSelector")),
        json!(age(object, now)),
        json!(names),
        json!(images),
        json!(selector_or_none(object, "spec.selector")),
    ]
}

/// The controller in upstream's `kind.group/name`.
pub(crate) fn controller_revision(object: &Value, now: i64) -> Vec<Value> {
    let owner = list(object, "metadata.ownerReferences").iter().find(|owner| flag(owner, "controller"));
    let controller = owner.map_or_else(
        || NONE.to_owned(),
        |owner| {
            let group = text(owner, "apiVersion").split_once('/').map_or("", |(group, _)| group);
            let kind = text(owner, "kind");
            let kind = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
            format!("{}/{}", kind.to_lowercase(), text(owner, "name"))
        },
    );
    vec![json!(name(object)), json!(controller), json!(number(object, "revision")), json!(age(object, now))]
}

pub(crate) fn job(object: &Value, now: i64) -> Vec<Value> {
    let succeeded = number(object, "status.succeeded");
    let completions = match (int(object, "spec.completions"), number(object, "spec.parallelism")) {
        (Some(wanted), _) => format!("{succeeded}/{wanted}"),
        (None, parallelism) if parallelism > 1 => format!("{succeeded}/1 of {parallelism}"),
        (None, _) => format!("{succeeded}/1"),
    };
    let start = text(object, "status.startTime");
    let duration = match (start, text(object, "status.completionTime")) {
        ("", _) => String::new(),
        (start, "") => since(start, now),
        (start, end) => croft_meta::time::parse(end).map(|end| since(start, end.as_second())).unwrap_or_default(),
    };
    let (names, images) = containers(object, TEMPLATE_CONTAINERS);
    vec![
        json!(name(object)),
        json!(job_status(object)),
        json!(completions),
        json!(duration),
        json!(age(object, now)),
        json!(names),
        json!(images),
        json!(selector_or_none(object, "spec.selector")),
    ]
}

fn job_status(object: &Value) -> &'static str {
    for (condition, status) in [("Complete", "Complete"), ("Failed", "Failed")] {
        if is_true(object, condition) {
            return status;
        }
    }
    if has(object, "metadata.deletionTimestamp") {
        return "Terminating";
    }
    ["Suspended", "FailureTarget", "SuccessCriteriaMet"]
        .into_iter()
        .find(|condition| is_true(object, condition))
        .unwrap_or("Running")
}

pub(crate) fn cron_job(object: &Value, now: i64) -> Vec<Value> {
    let suspend = match get(object, "spec.suspend").and_then(Value::as_bool) {
        Some(true) => "True",
        Some(false) => "False",
        None => UNSET,
    };
    let last = match text(object, "status.lastScheduleTime") {
        "" => NONE.to_owned(),
        time => since(time, now),
    };
    let zone = get(object, "spec.timeZone").and_then(Value::as_str).unwrap_or(NONE);
    let (names, images) = containers(object, "spec.jobTemplate.spec.template.spec.containers");
    vec![
        json!(name(object)),
        json!(text(object, "spec.schedule")),
        json!(zone),
        json!(suspend),
        json!(list(object, "status.active").len()),
        json!(last),
        json!(age(object, now)),
        json!(names),
        json!(images),
        json!(selector_or_none(object, "spec.jobTemplate.spec.selector")),
    ]
}

/// The first version of the API shows what the second would.
pub(crate) fn horizontal_pod_autoscaler(object: &Value, now: i64) -> Vec<Value> {
    if text(object, "apiVersion") == "autoscaling/v1" {
        let mut newer = object.clone();
        crate::kinds::convert_autoscaler_to_v2(&mut newer);
        return horizontal_pod_autoscaler(&newer, now);
    }
    let reference =
        format!("{}/{}", text(object, "spec.scaleTargetRef.kind"), text(object, "spec.scaleTargetRef.name"));
    let min = int(object, "spec.minReplicas").map_or_else(|| UNSET.to_owned(), |n| n.to_string());
    vec![
        json!(name(object)),
        json!(reference),
        json!(metrics(object)),
        json!(min),
        json!(number(object, "spec.maxReplicas")),
        json!(number(object, "status.currentReplicas")),
        json!(age(object, now)),
    ]
}

/// The first two metrics as `current/target`.
fn metrics(object: &Value) -> String {
    const SHOWN: usize = 2;
    let specs = list(object, "spec.metrics");
    if specs.is_empty() {
        return NONE.to_owned();
    }
    let statuses = list(object, "status.currentMetrics");
    let all: Vec<String> = specs.iter().enumerate().map(|(i, spec)| metric(spec, statuses.get(i))).collect();
    let shown = all[..all.len().min(SHOWN)].join(", ");
    if all.len() > SHOWN { format!("{shown} + {} more...", all.len() - SHOWN) } else { shown }
}

fn metric(spec: &Value, status: Option<&Value>) -> String {
    let (field, is_resource) = match text(spec, "type") {
        "External" => ("external", false),
        "Pods" => ("pods", false),
        "Object" => ("object", false),
        "Resource" => ("resource", true),
        "ContainerResource" => ("containerResource", true),
        _ => return "<unknown type>".to_owned(),
    };
    let Some(spec) = get(spec, field) else { return "<unknown type>".to_owned() };
    let current = status.and_then(|s| get(s, field)).and_then(|s| get(s, "current"));
    let value = |name: &str| current.and_then(|c| get(c, name)).map(|v| quantity(Some(v)));
    let percent = |n: i64| format!("{n}%");
    let unknown = || UNKNOWN.to_owned();
    let average = get(spec, "target.averageValue");
    if is_resource {
        let name = text(spec, "name");
        if average.is_some() {
            return format!("{name}: {}/{}", value("averageValue").unwrap_or_else(unknown), quantity(average));
        }
        let now = current.and_then(|c| int(c, "averageUtilization")).map_or_else(unknown, percent);
        let target = int(spec, "target.averageUtilization").map_or_else(|| "<auto>".to_owned(), percent);
        return format!("{name}: {now}/{target}");
    }
    if field == "pods" {
        return format!("{}/{}", value("averageValue").unwrap_or_else(unknown), quantity(average));
    }
    if average.is_some() {
        return format!("{}/{} (avg)", value("averageValue").unwrap_or_else(unknown), quantity(average));
    }
    format!("{}/{}", value("value").unwrap_or_else(unknown), quantity(get(spec, "target.value")))
}

pub(crate) fn pod_disruption_budget(object: &Value, now: i64) -> Vec<Value> {
    let bound = |path| match get(object, path) {
        Some(Value::String(text)) => text.clone(),
        Some(number) => number.to_string(),
        None => "N/A".to_owned(),
    };
    vec![
        json!(name(object)),
        json!(bound("spec.minAvailable")),
        json!(bound("spec.maxUnavailable")),
        json!(number(object, "status.disruptionsAllowed")),
        json!(age(object, now)),
    ]
}

pub(crate) fn resource_claim(object: &Value, now: i64) -> Vec<Value> {
    let is_deleted = has(object, "metadata.deletionTimestamp");
    let mut states = Vec::new();
    if is_deleted {
        states.push("deleted");
    }
    if has(object, "status.allocation") {
        states.push("allocated");
        if !list(object, "status.reservedFor").is_empty() {
            states.push("reserved");
        }
    } else if !is_deleted {
        states.push("pending");
    }
    vec![json!(name(object)), json!(states.join(",")), json!(age(object, now))]
}

pub(crate) fn resource_slice(object: &Value, now: i64) -> Vec<Value> {
    vec![
        json!(name(object)),
        json!(text(object, "spec.nodeName")),
        json!(text(object, "spec.driver")),
        json!(text(object, "spec.pool.name")),
        json!(age(object, now)),
    ]
}
