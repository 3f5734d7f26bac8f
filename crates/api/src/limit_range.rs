//! What LimitRanges give a pod's containers, and what they refuse: upstream's admission plugin `LimitRanger`. Machines and
//! claims have rules of their own in [`crate::admission`].

use croft_meta::Quantity;
use serde_json::{Map, Value, json};

use crate::pod_resources::{self, Amounts};
use crate::view::{list, list_mut, map, map_mut, text};

/// Says what was filled in.
const ANNOTATION: &str = "kubernetes.io/limit-ranger";

/// Gives containers the requests and limits that they do not name.
pub fn fill(pod: &mut Value, ranges: &[Value]) {
    for range in ranges {
        let mut told = Vec::new();
        for (which, word) in [("spec.containers", "container"), ("spec.initContainers", "init container")] {
            for container in list_mut(pod, which) {
                fill_container(container, range, word, &mut told);
            }
        }
        if !told.is_empty()
            && let Some(annotations) = map_mut(pod, "metadata.annotations")
        {
            annotations.insert(ANNOTATION.to_owned(), json!(format!("LimitRanger plugin set: {}", told.join("; "))));
        }
    }
}

fn fill_container(container: &mut Value, range: &Value, word: &str, told: &mut Vec<String>) {
    let name = text(container, "name").to_owned();
    for (which, given, one) in [("requests", "defaultRequest", "request"), ("limits", "default", "limit")] {
        let mut defaults = Map::new();
        for limit in list(range, "spec.limits").iter().filter(|limit| text(limit, "type") == "Container") {
            defaults.extend(map(limit, given).cloned().unwrap_or_default());
        }
        let known = map(container, &format!("resources.{which}"));
        defaults.retain(|resource, _| known.is_none_or(|known| !known.contains_key(resource)));
        if defaults.is_empty() {
            continue;
        }
        let mut names: Vec<String> = defaults.keys().cloned().collect();
        names.sort();
        told.push(format!("{} {one} for {word} {name}", names.join(", ")));
        if let Some(amounts) = map_mut(container, &format!("resources.{which}")) {
            amounts.extend(defaults);
        }
    }
}

/// Why a range does not allow a pod; `None` if all do.
pub fn refusal(pod: &Value, ranges: &[Value]) -> Option<String> {
    ranges.iter().find_map(|range| {
        let mut errors = Vec::new();
        for limit in list(range, "spec.limits") {
            match text(limit, "type") {
                "Container" => {
                    for container in list(pod, "spec.containers").iter().chain(list(pod, "spec.initContainers")) {
                        let [requests, limits] = ["requests", "limits"].map(|of| pod_resources::of(container, of));
                        check(&mut errors, limit, &requests, &limits);
                    }
                }
                "Pod" => {
                    let [requests, limits] = ["requests", "limits"].map(|of| pod_resources::total(pod, of));
                    check(&mut errors, limit, &requests, &limits);
                }
                _ => {}
            }
        }
        aggregate(errors)
    })
}

/// As Go prints several errors: each once.
fn aggregate(errors: Vec<String>) -> Option<String> {
    let mut unique: Vec<String> = Vec::new();
    for error in errors {
        if !unique.contains(&error) {
            unique.push(error);
        }
    }
    match unique.as_slice() {
        [] => None,
        [one] => Some(one.clone()),
        several => Some(format!("[{}]", several.join(", "))),
    }
}

fn check(errors: &mut Vec<String>, limit: &Value, requests: &Amounts, limits: &Amounts) {
    let kind = text(limit, "type");
    let bounds = |which: &str| pod_resources::amounts(map(limit, which));
    for (name, least) in bounds("min") {
        errors.extend(below(kind, &name, &least, requests.get(&name), limits.get(&name)));
    }
    for (name, most) in bounds("max") {
        errors.extend(above(kind, &name, &most, requests.get(&name), limits.get(&name)));
    }
    for (name, most) in bounds("maxLimitRequestRatio") {
        errors.extend(too_far_apart(kind, &name, &most, requests.get(&name), limits.get(&name)));
    }
}

type Asked<'a> = Option<&'a Quantity>;

fn below(kind: &str, name: &str, least: &Quantity, request: Asked<'_>, limit: Asked<'_>) -> Option<String> {
    let start = format!("minimum {name} usage per {kind} is {least}");
    match (request, limit) {
        (None, _) => Some(format!("{start}.  No request is specified")),
        (Some(request), _) if request < least => Some(format!("{start}, but request is {request}")),
        (_, Some(limit)) if limit < least => Some(format!("{start}, but limit is {limit}")),
        _ => None,
    }
}

fn above(kind: &str, name: &str, most: &Quantity, request: Asked<'_>, limit: Asked<'_>) -> Option<String> {
    let start = format!("maximum {name} usage per {kind} is {most}");
    match (request, limit) {
        (_, None) => Some(format!("{start}.  No limit is specified")),
        (_, Some(limit)) if limit > most => Some(format!("{start}, but limit is {limit}")),
        (Some(request), _) if request > most => Some(format!("{start}, but request is {request}")),
        _ => None,
    }
}

fn too_far_apart(kind: &str, name: &str, most: &Quantity, request: Asked<'_>, limit: Asked<'_>) -> Option<String> {
    let start = format!("{name} max limit to request ratio per {kind} is {most}");
    let Some(request) = request.filter(|request| !request.is_zero()) else {
        return Some(format!("{start}, but no request is specified or request is 0"));
    };
    let Some(limit) = limit.filter(|limit| !limit.is_zero()) else {
        return Some(format!("{start}, but no limit is specified or limit is 0"));
    };
    let ratio = limit.as_f64() / request.as_f64();
    (ratio > most.as_f64()).then(|| format!("{start}, but provided ratio is {ratio:.6}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(limit: &Value) -> Vec<Value> {
        vec![json!({"spec": {"limits": [limit]}})]
    }

    fn pod(requests: &Value, limits: &Value) -> Value {
        json!({"metadata": {}, "spec": {"containers": [{"name": "c", "resources": {"requests": requests, "limits": limits}}]}})
    }

    #[test]
    fn what_is_not_named_is_given() {
        let given = json!({"type": "Container", "default": {"cpu": "500m", "memory": "500Mi"}, "defaultRequest": {"cpu": "100m"}});
        let mut pod = pod(&json!({}), &json!({"memory": "1Gi"}));
        fill(&mut pod, &range(&given));
        let resources = &pod["spec"]["containers"][0]["resources"];
        assert_eq!(*resources, json!({"requests": {"cpu": "100m"}, "limits": {"cpu": "500m", "memory": "1Gi"}}));
        let told = "LimitRanger plugin set: cpu request for container c; cpu limit for container c";
        assert_eq!(pod["metadata"]["annotations"][ANNOTATION], told);
    }

    #[test]
    fn refusals_are_in_upstreams_words() {
        let small = || pod(&json!({"cpu": "10m"}), &json!({"cpu": "20m"}));
        let table = [
            (json!({"type": "Container", "min": {"cpu": "10m"}, "max": {"cpu": "20m"}}), small(), None),
            (
                json!({"type": "Container", "min": {"cpu": "15m"}}),
                small(),
                Some("minimum cpu usage per Container is 15m, but request is 10m"),
            ),
            (
                json!({"type": "Pod", "max": {"cpu": "15m", "memory": "1Gi"}}),
                small(),
                Some(
                    "[maximum cpu usage per Pod is 15m, but limit is 20m, maximum memory usage per Pod is 1Gi.  No limit is specified]",
                ),
            ),
            (
                json!({"type": "Container", "maxLimitRequestRatio": {"cpu": "1500m"}}),
                small(),
                Some("cpu max limit to request ratio per Container is 1500m, but provided ratio is 2.000000"),
            ),
            (json!({"type": "PersistentVolumeClaim", "max": {"storage": "1"}}), small(), None),
        ];
        for (limit, pod, wanted) in table {
            assert_eq!(refusal(&pod, &range(&limit)).as_deref(), wanted, "{limit}");
        }
    }
}
