//! The flows and priority levels that every cluster starts with: upstream's, without those of components that Croft does not
//! have. What an administrator made of them stays.

use serde_json::{Value, json};

use super::Wanted;
use crate::fairness::GROUP;

const EVERYBODY: [&str; 2] = ["system:unauthenticated", "system:authenticated"];

pub(super) fn objects() -> Vec<Wanted> {
    levels().into_iter().chain(schemas()).map(Wanted::kept).collect()
}

fn levels() -> Vec<Value> {
    let queue = |queues: u32, hand: u32| json!({"type": "Queue", "queuing": {"queues": queues, "handSize": hand, "queueLengthLimit": 50}});
    let limited = |name: &str, shares: u32, lendable: u32, response: Value| {
        let limited =
            json!({"nominalConcurrencyShares": shares, "lendablePercent": lendable, "limitResponse": response});
        object("PriorityLevelConfiguration", name, &json!({"type": "Limited", "limited": limited}))
    };
    vec![
        object(
            "PriorityLevelConfiguration",
            "exempt",
            &json!({"type": "Exempt", "exempt": {"nominalConcurrencyShares": 0, "lendablePercent": 0}}),
        ),
        limited("catch-all", 5, 0, json!({"type": "Reject"})),
        limited("node-high", 40, 25, queue(64, 6)),
        limited("system", 30, 33, queue(64, 6)),
        limited("leader-election", 10, 0, queue(16, 4)),
        limited("workload-high", 40, 50, queue(128, 6)),
        limited("workload-low", 100, 90, queue(128, 6)),
        limited("global-default", 20, 50, queue(128, 6)),
    ]
}

fn schemas() -> Vec<Value> {
    let leases = resources(&["get", "create", "update"], &["coordination.k8s.io"], &["leases"], false);
    let nodes = resources(&["*"], &[""], &["nodes", "nodes/status"], true);
    let node_leases = resources(&["*"], &["coordination.k8s.io"], &["leases"], false);
    let probes = json!({"verbs": ["get"], "nonResourceURLs": ["/healthz", "/readyz", "/livez"]});
    let masters = groups(&["system:masters"]);
    let system_accounts =
        json!([{"kind": "ServiceAccount", "serviceAccount": {"namespace": "kube-system", "name": "*"}}]);
    let of_nodes = groups(&["system:nodes"]);
    vec![
        schema("exempt", 1, "exempt", None, &everything(&masters)),
        schema("probes", 2, "exempt", None, &json!([{"subjects": groups(&EVERYBODY), "nonResourceRules": [probes]}])),
        schema(
            "workload-leader-election",
            200,
            "leader-election",
            Some("ByUser"),
            &json!([{"subjects": system_accounts, "resourceRules": [leases]}]),
        ),
        schema(
            "system-node-high",
            400,
            "node-high",
            Some("ByUser"),
            &json!([{"subjects": of_nodes, "resourceRules": [nodes, node_leases]}]),
        ),
        schema("system-nodes", 500, "system", Some("ByUser"), &everything(&of_nodes)),
        schema(
            "kube-system-service-accounts",
            900,
            "workload-high",
            Some("ByNamespace"),
            &everything(&system_accounts),
        ),
        schema(
            "service-accounts",
            9000,
            "workload-low",
            Some("ByUser"),
            &everything(&groups(&["system:serviceaccounts"])),
        ),
        schema("global-default", 9900, "global-default", Some("ByUser"), &everything(&groups(&EVERYBODY))),
        schema("catch-all", 10_000, "catch-all", Some("ByUser"), &everything(&groups(&EVERYBODY))),
    ]
}

fn object(kind: &str, name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": kind,
        "metadata": { "name": name, "annotations": { "apf.kubernetes.io/autoupdate-spec": "true" } },
        "spec": spec,
    })
}

fn schema(name: &str, precedence: u32, level: &str, distinguisher: Option<&str>, rules: &Value) -> Value {
    let mut spec =
        json!({"matchingPrecedence": precedence, "priorityLevelConfiguration": {"name": level}, "rules": rules});
    if let Some(ty) = distinguisher {
        spec["distinguisherMethod"] = json!({"type": ty});
    }
    object("FlowSchema", name, &spec)
}

fn groups(names: &[&str]) -> Value {
    names.iter().map(|name| json!({"kind": "Group", "group": {"name": name}})).collect()
}

fn resources(verbs: &[&str], groups: &[&str], resources: &[&str], cluster_scope: bool) -> Value {
    json!({"verbs": verbs, "apiGroups": groups, "resources": resources, "clusterScope": cluster_scope, "namespaces": ["*"]})
}

fn everything(subjects: &Value) -> Value {
    json!([{
        "subjects": subjects,
        "resourceRules": [resources(&["*"], &["*"], &["*"], true)],
        "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
    }])
}
