//! What a ResourceQuota can bound, and how much of it an object takes.
//!
//! Objects count one each, under `count/<resource>.<group>` and the older names of a few kinds; claims by their size,
//! together and by class; machines as the pods that KubeVirt would run them in ([`crate::compute_quota`]), and pods that
//! are stored beside them ([`crate::pod_quota`]).

use croft_meta::Quantity;
use serde_json::Value;

use crate::view::{flag, has, list, map, number, strings, text};
use crate::{compute_quota, pod_quota};

const CLASS: &str = ".storageclass.storage.k8s.io/";
const INSTANCES: (&str, &str) = ("kubevirt.io", "virtualmachineinstances");
const PODS: (&str, &str) = ("", "pods");

/// The resources (group and plural) whose objects a key counts; none if nothing in Croft is counted by it.
pub fn sources(key: &str) -> Vec<(&str, &str)> {
    if let Some(counted) = key.strip_prefix("count/") {
        return vec![counted.split_once('.').map_or(("", counted), |(plural, group)| (group, plural))];
    }
    vec![match key {
        "configmaps"
        | "secrets"
        | "services"
        | "persistentvolumeclaims"
        | "replicationcontrollers"
        | "resourcequotas" => ("", key),
        "services.nodeports" | "services.loadbalancers" => ("", "services"),
        "requests.storage" => ("", "persistentvolumeclaims"),
        key if key.contains(CLASS) => ("", "persistentvolumeclaims"),
        key if compute_quota::is_counted(key) => return vec![INSTANCES, PODS],
        key if pod_quota::is_counted(key) => PODS,
        _ => return Vec::new(),
    }]
}

/// Is it about machines and pods, and what they ask for?
fn is_compute(key: &str) -> bool {
    !key.starts_with("count/") && sources(key).contains(&PODS)
}

/// Does every object of the resource count one, whatever it says?
pub fn is_plain_count(key: &str) -> bool {
    let is_special = matches!(key, "services.nodeports" | "services.loadbalancers") || key.contains(CLASS);
    let is_by_phase_or_scope = |of: &(&str, &str)| *of == INSTANCES || *of == PODS;
    let sources = sources(key);
    !sources.is_empty() && !sources.iter().any(is_by_phase_or_scope) && !is_special && !is_measured(key)
}

fn is_measured(key: &str) -> bool {
    key.ends_with("requests.storage")
}

/// How much of what a key of a quota bounds an object of one of its resources takes.
pub fn demand(quota: &Value, key: &str, of: (&str, &str), object: &Value) -> i64 {
    if of != PODS {
        return if is_in_scope(quota, key) { taken(key, object) } else { 0 };
    }
    if !pod_quota::is_in_scope(quota, object) {
        return 0;
    }
    if is_compute(key) { pod_quota::demand(key, object) } else { 1 }
}

fn taken(key: &str, object: &Value) -> i64 {
    if let Some((class, what)) = key.split_once(CLASS) {
        let is_of_class = class_of(object) == class;
        return if !is_of_class {
            0
        } else if what == "persistentvolumeclaims" {
            1
        } else {
            storage(object)
        };
    }
    match key {
        "requests.storage" => storage(object),
        "services.loadbalancers" => i64::from(text(object, "spec.type") == "LoadBalancer"),
        "services.nodeports" => node_ports(object),
        key if sources(key).contains(&INSTANCES) => instance(key, object).unwrap_or_default(),
        _ => 1,
    }
}

/// What an instance takes; `None` if it does not say. It holds what it was given until it has ended.
pub(crate) fn instance(key: &str, instance: &Value) -> Option<i64> {
    if matches!(text(instance, "status.phase"), "Succeeded" | "Failed") {
        return Some(0);
    }
    compute_quota::demand(key, |list, name| {
        let found = map(instance, &format!("spec.domain.resources.{list}"))?.get(name)?;
        Some(found.as_str().map_or_else(|| found.to_string(), str::to_owned))
    })
}

fn storage(claim: &Value) -> i64 {
    let size = text(claim, "spec.resources.requests.storage");
    Quantity::parse(size).map_or(0, |size| size.value())
}

fn class_of(claim: &Value) -> &str {
    let legacy = map(claim, "metadata.annotations").and_then(|a| a.get("volume.beta.kubernetes.io/storage-class"));
    legacy.and_then(Value::as_str).unwrap_or_else(|| text(claim, "spec.storageClassName"))
}

/// Every port is to have one, unless none are made up: then those count that are asked for.
fn node_ports(service: &Value) -> i64 {
    let allocates =
        !has(service, "spec.allocateLoadBalancerNodePorts") || flag(service, "spec.allocateLoadBalancerNodePorts");
    let ports = list(service, "spec.ports").iter();
    let count = match text(service, "spec.type") {
        "LoadBalancer" if !allocates => ports.filter(|port| number(port, "nodePort") != 0).count(),
        "NodePort" | "LoadBalancer" => ports.count(),
        _ => 0,
    };
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Are machines, or objects that are no pods, what the quota's scopes are about? Machines run without end, and always ask
/// for memory.
pub fn is_in_scope(quota: &Value, key: &str) -> bool {
    let is_compute = sources(key).contains(&INSTANCES);
    let fits = |scope: &str, operator: &str| {
        is_compute && matches!(scope, "NotTerminating" | "NotBestEffort") && matches!(operator, "" | "Exists")
    };
    strings(quota, "spec.scopes").iter().all(|scope| fits(scope, ""))
        && list(quota, "spec.scopeSelector.matchExpressions")
            .iter()
            .all(|term| fits(text(term, "scopeName"), text(term, "operator")))
}

/// The limits of a quota that are about one resource, or all: key, amount, and how it is written.
pub fn limits(quota: &Value, of: Option<(&str, &str)>) -> Vec<(String, i64, String)> {
    let hard = map(quota, "spec.hard").into_iter().flatten();
    // Which pods are in scope, each of them tells.
    let counts =
        |key: &str, found: (&str, &str)| of.is_none_or(|of| of == found) && (found == PODS || is_in_scope(quota, key));
    hard.filter(|(key, _)| sources(key).into_iter().any(|found| counts(key, found)))
        .filter_map(|(key, hard)| {
            let written = hard.as_str().map_or_else(|| hard.to_string(), str::to_owned);
            Some((key.clone(), compute_quota::parsed(key, &written)?, written))
        })
        .collect()
}

/// What is said of a creation or change for which a quota has no room; `None` if it has.
pub fn refusal(quota: &Value, over: &[(String, i64, i64, String)]) -> Option<String> {
    let written = |(key, wanted, used, hard): &(String, i64, i64, String)| {
        [compute_quota::written(key, *wanted), compute_quota::written(key, *used), hard.clone()]
            .map(|amount| format!("{key}={amount}"))
    };
    let texts: Vec<[String; 3]> = over.iter().map(written).collect();
    let joined = |index: usize| texts.iter().map(|three| three[index].as_str()).collect::<Vec<_>>().join(",");
    let name = text(quota, "metadata.name");
    (!over.is_empty()).then(|| {
        format!("exceeded quota: {name}, requested: {}, used: {}, limited: {}", joined(0), joined(1), joined(2))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn keys_count_what_they_name() {
        let table = [
            ("count/deployments.apps", vec![("apps", "deployments")], true),
            ("count/secrets", vec![("", "secrets")], true),
            ("configmaps", vec![("", "configmaps")], true),
            ("requests.storage", vec![("", "persistentvolumeclaims")], false),
            ("gold.storageclass.storage.k8s.io/requests.storage", vec![("", "persistentvolumeclaims")], false),
            ("services.loadbalancers", vec![("", "services")], false),
            ("count/pods", vec![PODS], false),
            ("count/virtualmachineinstances.kubevirt.io", vec![INSTANCES], false),
            ("pods", vec![INSTANCES, PODS], false),
            ("limits.cpu", vec![INSTANCES, PODS], false),
            ("requests.nvidia.com/gpu", vec![PODS], false),
            ("ephemeral-storage", vec![PODS], false),
            ("bananas", vec![], false),
        ];
        for (key, wanted, is_plain) in table {
            assert_eq!(sources(key), wanted, "{key}");
            assert_eq!(is_plain_count(key), is_plain, "{key}");
        }
    }

    #[test]
    fn objects_take_what_they_say() {
        let claim = json!({"spec": {"storageClassName": "gold", "resources": {"requests": {"storage": "2Gi"}}}});
        let service = json!({"spec": {"type": "LoadBalancer", "ports": [{"port": 1}, {"port": 2}]}});
        let plain = json!({"spec": {"type": "LoadBalancer", "allocateLoadBalancerNodePorts": false,
            "ports": [{"port": 1}, {"port": 2, "nodePort": 30_001}]}});
        let table = [
            ("requests.storage", &claim, 2 << 30),
            ("gold.storageclass.storage.k8s.io/requests.storage", &claim, 2 << 30),
            ("gold.storageclass.storage.k8s.io/persistentvolumeclaims", &claim, 1),
            ("iron.storageclass.storage.k8s.io/requests.storage", &claim, 0),
            ("persistentvolumeclaims", &claim, 1),
            ("services.loadbalancers", &service, 1),
            ("services.nodeports", &service, 2),
            ("services.nodeports", &plain, 1),
            ("services", &service, 1),
        ];
        for (key, object, wanted) in table {
            assert_eq!(taken(key, object), wanted, "{key}");
        }
    }

    #[test]
    fn scopes_choose_among_machines_alone() {
        let scoped = |scope: &str| json!({"spec": {"scopes": [scope]}});
        assert!(is_in_scope(&json!({}), "configmaps"));
        assert!(is_in_scope(&scoped("NotTerminating"), "limits.cpu"));
        assert!(!is_in_scope(&scoped("Terminating"), "limits.cpu"));
        assert!(!is_in_scope(&scoped("NotTerminating"), "configmaps"));
    }
}
