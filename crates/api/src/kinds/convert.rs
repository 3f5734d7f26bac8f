//! Kinds with two shapes: events of two groups, autoscalers of two versions.

use croft_meta::Gvk;
use serde_json::{Value, json};

use crate::view::{get, has, list, map_mut, remove, set, text};

pub(super) fn of(group: &str, plural: &str) -> Option<fn(&mut Value, &Gvk)> {
    match (group, plural) {
        ("" | "events.k8s.io", "events") => Some(event),
        ("autoscaling", "horizontalpodautoscalers") => Some(autoscaler),
        _ => None,
    }
}

/// Old name, new name.
const EVENT_FIELDS: &[(&str, &str)] = &[
    ("involvedObject", "regarding"),
    ("source", "deprecatedSource"),
    ("message", "note"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

fn event(v: &mut Value, to: &Gvk) {
    set(v, "apiVersion", to.api_version());
    for (old, new) in EVENT_FIELDS {
        let (from, into) = if to.group.is_empty() { (new, old) } else { (old, new) };
        if let Some(value) = remove(v, from) {
            set(v, into, value);
        }
    }
    crate::go_json::canonicalise(v);
}

const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const CURRENT_METRICS: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";

/// For printing, which knows the newer shape only.
pub(crate) fn convert_autoscaler_to_v2(v: &mut Value) {
    autoscaler(v, &Gvk::new("autoscaling", "v2", "HorizontalPodAutoscaler"));
}

fn autoscaler(v: &mut Value, to: &Gvk) {
    let from = text(v, "apiVersion").rsplit('/').next().unwrap_or_default().to_owned();
    set(v, "apiVersion", to.api_version());
    match (from.as_str(), to.version.as_str()) {
        ("v2", "v1") => to_v1(v),
        ("v1", "v2") => to_v2(v),
        _ => {}
    }
}

fn is_cpu(metric: &Value) -> bool {
    text(metric, "type") == "Resource" && text(metric, "resource.name") == "cpu"
}

/// v1 has a field for cpu alone; everything else travels in annotations.
fn to_v1(v: &mut Value) {
    let is_plain = |m: &Value| is_cpu(m) && has(m, "resource.target.averageUtilization");
    let metrics = list(v, "spec.metrics").to_vec();
    remove(v, "spec.metrics");
    if let Some(cpu) = metrics.iter().find(|m| is_plain(m)) {
        set(v, "spec.targetCPUUtilizationPercentage", cpu["resource"]["target"]["averageUtilization"].clone());
    }
    let others: Vec<Value> = metrics.iter().filter(|m| !is_plain(m)).map(|m| reshape(m, flat_target)).collect();
    annotate(v, METRICS, (!others.is_empty()).then(|| json!(others)));
    let behavior = remove(v, "spec.behavior");
    annotate(v, BEHAVIOR, behavior);

    let current = list(v, "status.currentMetrics").to_vec();
    remove(v, "status.currentMetrics");
    let cpu = current.iter().filter(|m| is_cpu(m)).find_map(|m| get(m, "resource.current.averageUtilization"));
    if let Some(percent) = cpu.cloned() {
        set(v, "status.currentCPUUtilizationPercentage", percent);
    }
    let current: Vec<Value> = current.iter().map(|m| reshape(m, flat_current)).collect();
    annotate(v, CURRENT_METRICS, (!current.is_empty()).then(|| json!(current)));
    let conditions = remove(v, "status.conditions").filter(|c| c.as_array().is_some_and(|c| !c.is_empty()));
    annotate(v, CONDITIONS, conditions);
    crate::go_json::canonicalise(v);
}

fn to_v2(v: &mut Value) {
    let mut metrics: Vec<Value> = annotation(v, METRICS)
        .and_then(|metrics| metrics.as_array().cloned())
        .unwrap_or_default()
        .iter()
        .map(|m| reshape(m, deep_target))
        .collect();
    if let Some(percent) = remove(v, "spec.targetCPUUtilizationPercentage") {
        metrics.push(json!({"type": "Resource", "resource": {
            "name": "cpu", "target": {"type": "Utilization", "averageUtilization": percent},
        }}));
    }
    if metrics.is_empty() {
        let target = json!({"type": "Utilization", "averageUtilization": 80});
        metrics.push(json!({"type": "Resource", "resource": {"name": "cpu", "target": target}}));
    }
    set(v, "spec.metrics", metrics);
    if let Some(behavior) = annotation(v, BEHAVIOR) {
        set(v, "spec.behavior", behavior);
    }
    let percent = remove(v, "status.currentCPUUtilizationPercentage");
    if let Some(current) = annotation(v, CURRENT_METRICS).and_then(|c| c.as_array().cloned()) {
        let current: Vec<Value> = current.iter().map(|m| reshape(m, deep_current)).collect();
        set(v, "status.currentMetrics", current);
    } else if let Some(percent) = percent {
        let metric = json!({"type": "Resource", "resource": {
            "name": "cpu", "current": {"averageUtilization": percent},
        }});
        set(v, "status.currentMetrics", json!([metric]));
    }
    if let Some(conditions) = annotation(v, CONDITIONS) {
        set(v, "status.conditions", conditions);
    }
    for key in [METRICS, CURRENT_METRICS, CONDITIONS, BEHAVIOR] {
        annotate(v, key, None);
    }
    crate::go_json::canonicalise(v);
}

fn annotation(v: &Value, key: &str) -> Option<Value> {
    serde_json::from_str(croft_meta::object::annotation(v, key)?).ok()
}

fn annotate(v: &mut Value, key: &str, value: Option<Value>) {
    let Some(annotations) = map_mut(v, "metadata.annotations") else { return };
    match value {
        Some(value) => annotations.insert(key.to_owned(), value.to_string().into()),
        None => annotations.remove(key),
    };
    if annotations.is_empty() {
        remove(v, "metadata.annotations");
    }
}

/// The fields of a target, as (v2, v1).
fn targets(field: &str) -> &'static [(&'static str, &'static str)] {
    match field {
        "resource" | "containerResource" => {
            &[("averageUtilization", "targetAverageUtilization"), ("averageValue", "targetAverageValue")]
        }
        "external" => &[("value", "targetValue"), ("averageValue", "targetAverageValue")],
        "object" => &[("value", "targetValue"), ("averageValue", "averageValue")],
        _ => &[("averageValue", "targetAverageValue")],
    }
}

/// The fields of a current value, as (v2, v1).
fn currents(field: &str) -> &'static [(&'static str, &'static str)] {
    match field {
        "resource" | "containerResource" => {
            &[("averageUtilization", "currentAverageUtilization"), ("averageValue", "currentAverageValue")]
        }
        "external" => &[("value", "currentValue"), ("averageValue", "currentAverageValue")],
        "object" => &[("value", "currentValue"), ("averageValue", "averageValue")],
        _ => &[("averageValue", "currentAverageValue")],
    }
}

/// Rewrites the part of a metric that belongs to its type.
fn reshape(metric: &Value, with: fn(&str, &Value) -> Value) -> Value {
    let kind = text(metric, "type").to_owned();
    let mut field = kind.clone();
    if let Some(first) = field.get_mut(..1) {
        first.make_ascii_lowercase();
    }
    let mut out = json!({"type": kind});
    if let Some(source) = metric.get(&field) {
        out[&field] = with(&field, source);
    }
    out
}

/// v2 `{metric, target}` to v1 `{metricName, targetValue, ...}`.
fn flat_target(field: &str, source: &Value) -> Value {
    let mut out = flat_common(field, source);
    let target = &source["target"];
    copy(target, &mut out, targets(field), false);
    out
}

fn flat_current(field: &str, source: &Value) -> Value {
    let mut out = flat_common(field, source);
    let current = &source["current"];
    copy(current, &mut out, currents(field), false);
    out
}

fn flat_common(field: &str, source: &Value) -> Value {
    let mut out = json!({});
    for key in ["name", "container"] {
        if let Some(value) = source.get(key) {
            out[key] = value.clone();
        }
    }
    if let Some(metric) = source.get("metric") {
        out["metricName"] = metric["name"].clone();
        if let Some(selector) = metric.get("selector") {
            out[if field == "external" { "metricSelector" } else { "selector" }] = selector.clone();
        }
    }
    if let Some(object) = source.get("describedObject") {
        out["target"] = object.clone();
    }
    out
}

fn deep_target(field: &str, source: &Value) -> Value {
    let mut out = deep_common(field, source);
    let mut target = json!({});
    copy(source, &mut target, targets(field), true);
    let kind = if has(&target, "averageUtilization") {
        "Utilization"
    } else if has(&target, "averageValue") {
        "AverageValue"
    } else {
        "Value"
    };
    target["type"] = kind.into();
    out["target"] = target;
    out
}

fn deep_current(field: &str, source: &Value) -> Value {
    let mut out = deep_common(field, source);
    let mut current = json!({});
    copy(source, &mut current, currents(field), true);
    out["current"] = current;
    out
}

fn deep_common(field: &str, source: &Value) -> Value {
    let mut out = json!({});
    for key in ["name", "container"] {
        if let Some(value) = source.get(key) {
            out[key] = value.clone();
        }
    }
    if let Some(name) = source.get("metricName") {
        out["metric"] = json!({"name": name});
        let selector = if field == "external" { "metricSelector" } else { "selector" };
        if let Some(selector) = source.get(selector) {
            out["metric"]["selector"] = selector.clone();
        }
    }
    if let (Some(object), true) = (source.get("target"), field == "object") {
        out["describedObject"] = object.clone();
    }
    out
}

/// Copies fields by their (v2, v1) names.
fn copy(from: &Value, into: &mut Value, names: &[(&str, &str)], is_back: bool) {
    for (deep, flat) in names {
        let (source, target) = if is_back { (flat, deep) } else { (deep, flat) };
        if let Some(value) = from.get(*source) {
            into[*target] = value.clone();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_change_their_group_and_back() {
        let old = json!({
            "apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"}, "involvedObject": {"name": "p"},
            "message": "m", "count": 2, "source": {"component": "kubelet"}, "reportingComponent": "",
            "reportingInstance": "",
        });
        let mut event_ = old.clone();
        event(&mut event_, &Gvk::new("events.k8s.io", "v1", "Event"));
        assert_eq!(event_["regarding"], json!({"name": "p"}));
        assert_eq!(event_["note"], "m");
        assert_eq!(event_["deprecatedCount"], 2);
        assert_eq!(event_["involvedObject"], Value::Null);
        event(&mut event_, &Gvk::new("", "v1", "Event"));
        assert_eq!(event_, old);
    }

    #[test]
    fn autoscalers_survive_the_old_version() {
        let v2 = json!({
            "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "h"},
            "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "d"}, "maxReplicas": 3, "metrics": [
                {"type": "Pods", "pods": {"metric": {"name": "m"}, "target": {"type": "AverageValue", "averageValue": "1"}}},
                {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}},
            ]},
            "status": {"desiredReplicas": 1, "currentMetrics": [
                {"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 40}}},
            ]},
        });
        let mut object = v2.clone();
        autoscaler(&mut object, &Gvk::new("autoscaling", "v1", "HorizontalPodAutoscaler"));
        assert_eq!(object["spec"]["targetCPUUtilizationPercentage"], 50);
        assert_eq!(object["status"]["currentCPUUtilizationPercentage"], 40);
        assert!(object["metadata"]["annotations"][METRICS].as_str().unwrap().contains("targetAverageValue"));
        autoscaler(&mut object, &Gvk::new("autoscaling", "v2", "HorizontalPodAutoscaler"));
        assert_eq!(object, v2);
    }
}
