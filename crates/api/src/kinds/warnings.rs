//! Texts for `Warning` headers: fields that are deprecated, and kinds that are kept faithfully while nothing in Croft
//! acts on them yet.

use serde_json::Value;

use crate::view::{has, list, map, text};

pub(crate) fn of(group: &str, plural: &str) -> fn(&Value) -> Vec<String> {
    match (group, plural) {
        ("", "pods") => |_| idle("pods", "no container is started"),
        ("", "replicationcontrollers") => |_| idle("replication controllers", "no pod is made"),
        ("", "resourcequotas") => resource_quota,
        ("", "limitranges") => |_| for_machines("limit ranges"),
        ("apps", "deployments") => |_| idle("deployments", "no pod is made"),
        ("apps", "replicasets") => |_| idle("replica sets", "no pod is made"),
        ("apps", "statefulsets") => |_| idle("stateful sets", "no pod is made"),
        ("apps", "daemonsets") => |_| idle("daemon sets", "no pod is made"),
        ("batch", "jobs") => |_| idle("jobs", "no pod is made"),
        ("batch", "cronjobs") => |_| idle("cron jobs", "no job is made"),
        ("autoscaling", "horizontalpodautoscalers") => |_| idle("autoscalers", "nothing is scaled"),
        ("networking.k8s.io", "ingresses") => |_| idle("ingresses", "no traffic is routed"),
        ("networking.k8s.io", "networkpolicies") => |_| idle("network policies", "no traffic is filtered"),
        ("policy", "poddisruptionbudgets") => |_| idle("disruption budgets", "their status is not kept up to date"),
        ("storage.k8s.io", "volumeattachments") => |_| idle("volume attachments", "no volume is attached"),
        ("resource.k8s.io", "resourceclaims") => |_| idle("resource claims", "no device is allocated"),
        ("flowcontrol.apiserver.k8s.io", _) => {
            |_| idle("flow schemas and priority levels", "no request is queued by them")
        }
        ("", "services") => service,
        ("kubevirt.io", "virtualmachines") => virtual_machine,
        ("instancetype.kubevirt.io", "virtualmachinepreferences" | "virtualmachineclusterpreferences") => preference,
        _ if crate::shipped::idle(group, plural).is_some() => shipped,
        _ => |_| Vec::new(),
    }
}

/// A kind that Croft ships for the clients that write and read it.
fn shipped(object: &Value) -> Vec<String> {
    let (group, _) = text(object, "apiVersion").split_once('/').unwrap_or_default();
    let kind = text(object, "kind");
    let plural = crate::shipped::plural(group, kind);
    plural.and_then(|plural| Some(idle(plural, crate::shipped::idle(group, plural)?))).unwrap_or_default()
}

fn idle(kinds: &str, consequence: &str) -> Vec<String> {
    vec![format!("Croft stores {kinds} but does not act on them: {consequence}")]
}

/// What is bounded in vain.
fn resource_quota(object: &Value) -> Vec<String> {
    let hard = map(object, "spec.hard").into_iter().flatten();
    let unknown = hard.filter(|(key, _)| crate::object_quota::sources(key).is_empty());
    unknown.map(|(key, _)| format!("Croft does not count {key}: the quota does not limit it")).collect()
}

fn for_machines(kinds: &str) -> Vec<String> {
    vec![format!("Croft applies {kinds} to virtual machines and the sizes of claims: nothing else is limited")]
}

fn virtual_machine(object: &Value) -> Vec<String> {
    let is_old = has(object, "spec.running");
    is_old.then(|| "spec.running is deprecated, please use spec.runStrategy instead.".to_owned()).into_iter().collect()
}

/// Layouts have shorter names now.
fn preference(object: &Value) -> Vec<String> {
    let old = text(object, "spec.cpu.preferredCPUTopology");
    let Some(new) = old.strip_prefix("prefer") else { return Vec::new() };
    let new = new.to_lowercase();
    vec![format!("PreferredCPUTopology {old} is deprecated for removal in a future release, please use {new} instead")]
}

/// Upstream's own warnings: what a headless service cannot have.
fn service(object: &Value) -> Vec<String> {
    if text(object, "spec.clusterIP") != "None" {
        return Vec::new();
    }
    let mut ignored = Vec::new();
    if !text(object, "spec.loadBalancerIP").is_empty() {
        ignored.push("spec.loadBalancerIP is ignored for headless services".to_owned());
    }
    if !list(object, "spec.externalIPs").is_empty() {
        ignored.push("spec.externalIPs is ignored for headless services".to_owned());
    }
    if !matches!(text(object, "spec.sessionAffinity"), "" | "None") {
        ignored.push("spec.SessionAffinity is ignored for headless services".to_owned());
    }
    ignored
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_has_no_effect_says_so_once() {
        let warnings = of("apps", "deployments")(&json!({}));
        assert_eq!(warnings, ["Croft stores deployments but does not act on them: no pod is made"]);
        assert!(of("", "configmaps")(&json!({})).is_empty());
        let forwarded = json!({"spec": {"service": {"namespace": "toys", "name": "api"}}});
        assert!(of("apiregistration.k8s.io", "apiservices")(&forwarded).is_empty());
    }
}
