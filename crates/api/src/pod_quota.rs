//! How pods count against ResourceQuotas: upstream's evaluator of pods. They are stored here and never run, but what they ask
//! for is promised to them all the same.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::compute_quota;
use crate::pod_resources::{self, Amounts};
use crate::view::{get, int, list, strings, text};

/// What each container must name where it is bounded.
const NAMED: &[&str] = &["cpu", "limits.cpu", "limits.memory", "memory", "requests.cpu", "requests.memory"];

/// Whether it is something about pods, beside what [`compute_quota`] counts about machines too.
pub fn is_counted(key: &str) -> bool {
    let name = key.strip_prefix("requests.").unwrap_or(key);
    matches!(key, "ephemeral-storage" | "requests.ephemeral-storage" | "limits.ephemeral-storage")
        || name.starts_with("hugepages-")
        // Resources that somebody's devices are asked for by are named with a domain.
        || (key != name && name.contains('/') && !name.contains("kubernetes.io/"))
}

/// What a pod takes of what a key bounds. One that has ended, or is about to be gone, takes nothing.
pub fn demand(key: &str, pod: &Value) -> i64 {
    if is_ended(pod) {
        return 0;
    }
    if key == "pods" {
        return 1;
    }
    let amounts = |which: &str| pod_resources::total_with_overhead(pod, which);
    of_key(key, amounts).unwrap_or_default()
}

fn is_ended(pod: &Value) -> bool {
    let is_going = get(pod, "metadata.deletionTimestamp").is_some_and(|time| !time.is_null());
    matches!(text(pod, "status.phase"), "Succeeded" | "Failed")
        || (is_going && int(pod, "metadata.deletionGracePeriodSeconds") == Some(0))
}

fn of_key(key: &str, amounts: impl Fn(&str) -> Amounts) -> Option<i64> {
    let (which, name) = match key.split_once('.') {
        Some(("limits", name)) => ("limits", name),
        Some(("requests", name)) => ("requests", name),
        _ => ("requests", key),
    };
    compute_quota::parsed(key, &amounts(which).get(name)?.to_string())
}

/// Which of the bounded resources containers do not name, in upstream's words; `None` if they name all, or need not.
pub fn unsaid<'a>(quota: &Value, keys: impl Iterator<Item = &'a str>, pod: &Value) -> Option<String> {
    if !is_in_scope(quota, pod) || get(pod, "spec.resources").is_some_and(|said| !said.is_null()) {
        return None;
    }
    let mut missing: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for key in keys.filter(|key| NAMED.contains(key)) {
        for container in list(pod, "spec.containers").iter().chain(list(pod, "spec.initContainers")) {
            if of_key(key, |which| pod_resources::of(container, which)).is_none() {
                missing.entry(key).or_default().push(text(container, "name"));
            }
        }
    }
    let told = missing.into_iter().map(|(key, mut names)| {
        names.sort_unstable();
        format!("{key} for: {}", names.join(","))
    });
    let told: Vec<String> = told.collect();
    (!told.is_empty()).then(|| told.join("; "))
}

/// Is the pod one of those that the quota is about?
pub fn is_in_scope(quota: &Value, pod: &Value) -> bool {
    strings(quota, "spec.scopes").iter().all(|scope| fits(pod, scope, "Exists", &[]))
        && list(quota, "spec.scopeSelector.matchExpressions")
            .iter()
            .all(|term| fits(pod, text(term, "scopeName"), text(term, "operator"), &strings(term, "values")))
}

fn fits(pod: &Value, scope: &str, operator: &str, values: &[&str]) -> bool {
    let has_deadline = int(pod, "spec.activeDeadlineSeconds").is_some_and(|seconds| seconds >= 0);
    match scope {
        "Terminating" => has_deadline,
        "NotTerminating" => !has_deadline,
        "BestEffort" => is_best_effort(pod),
        "NotBestEffort" => !is_best_effort(pod),
        "PriorityClass" => {
            let class = text(pod, "spec.priorityClassName");
            match operator {
                "Exists" => !class.is_empty(),
                "DoesNotExist" => class.is_empty(),
                "In" => !class.is_empty() && values.contains(&class),
                "NotIn" => !values.contains(&class),
                _ => false,
            }
        }
        "CrossNamespacePodAffinity" => looks_into_other_namespaces(pod),
        _ => false,
    }
}

/// Nothing of it asks for processors or memory.
fn is_best_effort(pod: &Value) -> bool {
    pod_resources::quality_of_service(pod) == "BestEffort"
}

fn looks_into_other_namespaces(pod: &Value) -> bool {
    let looks = |term: &Value| {
        !list(term, "namespaces").is_empty() || get(term, "namespaceSelector").is_some_and(|it| !it.is_null())
    };
    ["podAffinity", "podAntiAffinity"].iter().any(|which| {
        let path = format!("spec.affinity.{which}");
        let required = list(pod, &format!("{path}.requiredDuringSchedulingIgnoredDuringExecution"));
        let preferred = list(pod, &format!("{path}.preferredDuringSchedulingIgnoredDuringExecution"));
        let preferred = preferred.iter().filter_map(|term| get(term, "podAffinityTerm"));
        required.iter().chain(preferred).any(looks)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(resources: &Value) -> Value {
        json!({"spec": {"containers": [{"name": "c", "resources": resources}]}})
    }

    #[test]
    fn pods_take_what_they_ask_for_until_they_end() {
        let mut asking =
            pod(&json!({"requests": {"cpu": "500m", "memory": "1Gi", "example.com/gpu": "2"}, "limits": {"cpu": "1"}}));
        let table = [
            ("pods", 1),
            ("cpu", 500),
            ("requests.cpu", 500),
            ("limits.cpu", 1000),
            ("requests.memory", 1 << 30),
            ("limits.memory", 0),
            ("requests.example.com/gpu", 2),
        ];
        for (key, wanted) in table {
            assert_eq!(demand(key, &asking), wanted, "{key}");
        }
        asking["status"] = json!({"phase": "Succeeded"});
        assert!(table.iter().all(|(key, _)| demand(key, &asking) == 0));
    }

    #[test]
    fn what_is_bounded_is_named_by_each_container() {
        let two =
            json!({"spec": {"containers": [{"name": "b"}, {"name": "a", "resources": {"requests": {"cpu": "1"}}}]}});
        let keys = || ["pods", "cpu", "memory"].into_iter();
        assert_eq!(unsaid(&json!({}), keys(), &two).as_deref(), Some("cpu for: b; memory for: a,b"));
        assert_eq!(unsaid(&json!({"spec": {"scopes": ["Terminating"]}}), keys(), &two), None);
    }

    #[test]
    fn scopes_choose_pods() {
        let idle = pod(&json!({}));
        let mut ending = pod(&json!({"limits": {"memory": "1Mi"}}));
        ending["spec"]["activeDeadlineSeconds"] = json!(5);
        ending["spec"]["priorityClassName"] = json!("high");
        for (scope, of_idle, of_ending) in [
            ("Terminating", false, true),
            ("NotTerminating", true, false),
            ("BestEffort", true, false),
            ("NotBestEffort", false, true),
            ("PriorityClass", false, true),
            ("CrossNamespacePodAffinity", false, false),
        ] {
            let quota = json!({"spec": {"scopes": [scope]}});
            assert_eq!((is_in_scope(&quota, &idle), is_in_scope(&quota, &ending)), (of_idle, of_ending), "{scope}");
        }
        let term = |operator: &str| {
            json!({"spec": {"scopeSelector": {"matchExpressions": [
            {"scopeName": "PriorityClass", "operator": operator, "values": ["high"]}]}}})
        };
        assert!(is_in_scope(&term("In"), &ending) && !is_in_scope(&term("In"), &idle));
        assert!(!is_in_scope(&term("NotIn"), &ending) && is_in_scope(&term("NotIn"), &idle));
    }
}
