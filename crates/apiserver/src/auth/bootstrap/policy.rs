//! What the default roles allow, and to whom they are bound.

use serde_json::{Value, json};

use super::{AUTHENTICATED, MASTERS, RBAC_GROUP, UNAUTHENTICATED};

pub(super) const READ: &[&str] = &["get", "list", "watch"];
const WRITE: &[&str] = &["create", "delete", "deletecollection", "patch", "update"];
pub(super) const READ_WRITE: &[&str] =
    &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

const APPS: &str = "apps";
const AUTHENTICATION: &str = "authentication.k8s.io";
const AUTHORIZATION: &str = "authorization.k8s.io";
const AUTOSCALING: &str = "autoscaling";
const BATCH: &str = "batch";
const CERTIFICATES: &str = "certificates.k8s.io";
const COORDINATION: &str = "coordination.k8s.io";
const CORE: &str = "";
const DISCOVERY: &str = "discovery.k8s.io";
const EXTENSIONS: &str = "extensions";
const NETWORKING: &str = "networking.k8s.io";
const POLICY: &str = "policy";
const RESOURCE: &str = "resource.k8s.io";

pub(super) fn cluster_roles() -> Vec<Value> {
    vec![
        role("cluster-admin", vec![on(&["*"], "*", &["*"]), urls(&["*"], &["*"])]),
        role(
            "system:discovery",
            vec![urls(
                &["get"],
                &[
                    "/api",
                    "/api/*",
                    "/apis",
                    "/apis/*",
                    "/healthz",
                    "/livez",
                    "/openapi",
                    "/openapi/*",
                    "/readyz",
                    "/version",
                    "/version/",
                ],
            )],
        ),
        role(
            "system:monitoring",
            vec![
                urls(
                    &["get"],
                    &[
                        "/healthz",
                        "/healthz/*",
                        "/livez",
                        "/livez/*",
                        "/metrics",
                        "/metrics/slis",
                        "/readyz",
                        "/readyz/*",
                    ],
                ),
                on(&["get"], CORE, &["nodes/metrics"]),
            ],
        ),
        role(
            "system:basic-user",
            vec![
                on(&["create"], AUTHORIZATION, &["selfsubjectaccessreviews", "selfsubjectrulesreviews"]),
                on(&["create"], AUTHENTICATION, &["selfsubjectreviews"]),
            ],
        ),
        role(
            "system:public-info-viewer",
            vec![urls(&["get"], &["/healthz", "/livez", "/readyz", "/version", "/version/"])],
        ),
        // Croft's own: clients that have no credentials yet ask for this too.
        role("croft:public-info-viewer", vec![urls(&["get"], &["/ping"])]),
        aggregated("admin", "admin", None),
        aggregated("edit", "edit", Some("admin")),
        aggregated("view", "view", Some("edit")),
        part_of(
            "admin",
            vec![
                on(&["create"], AUTHORIZATION, &["localsubjectaccessreviews"]),
                on(READ_WRITE, RBAC_GROUP, &["rolebindings", "roles"]),
            ],
        ),
        part_of("edit", edit_rules()),
        part_of("view", view_rules()),
        role(
            "system:auth-delegator",
            vec![
                on(&["create"], AUTHENTICATION, &["tokenreviews"]),
                on(&["create"], AUTHORIZATION, &["subjectaccessreviews"]),
            ],
        ),
        role(
            "system:service-account-issuer-discovery",
            vec![urls(
                &["get"],
                &[
                    "/.well-known/openid-configuration",
                    "/.well-known/openid-configuration/",
                    "/openid/v1/jwks",
                    "/openid/v1/jwks/",
                ],
            )],
        ),
        approver("kube-apiserver-client"),
        approver("kube-apiserver-client-kubelet"),
        approver("kubelet-serving"),
    ]
}

/// Who may approve certificate requests for one of Kubernetes' signers.
fn approver(signer: &str) -> Value {
    let mut rule = on(&["approve"], CERTIFICATES, &["signers"]);
    rule["resourceNames"] = json!([format!("kubernetes.io/{signer}")]);
    role(&format!("system:certificates.k8s.io:{signer}-approver"), vec![rule])
}

pub(super) fn cluster_role_bindings() -> Vec<Value> {
    vec![
        binding("cluster-admin", &[MASTERS]),
        binding("system:monitoring", &["system:monitoring"]),
        binding("system:discovery", &[AUTHENTICATED]),
        binding("system:basic-user", &[AUTHENTICATED]),
        binding("system:public-info-viewer", &[AUTHENTICATED, UNAUTHENTICATED]),
        binding("croft:public-info-viewer", &[AUTHENTICATED, UNAUTHENTICATED]),
        binding("system:service-account-issuer-discovery", &["system:serviceaccounts"]),
    ]
}

/// Roles in kube-system.
pub(super) fn roles() -> Vec<Value> {
    // Extension API servers are bound to it to learn how callers are authenticated.
    let mut rule = on(READ, CORE, &["configmaps"]);
    rule["resourceNames"] = json!(["extension-apiserver-authentication"]);
    let metadata = json!({"namespace": "kube-system", "name": "extension-apiserver-authentication-reader"});
    vec![json!({"kind": "Role", "metadata": metadata, "rules": [rule]})]
}

fn view_rules() -> Vec<Value> {
    vec![
        on(
            READ,
            CORE,
            &[
                "configmaps",
                "endpoints",
                "persistentvolumeclaims",
                "persistentvolumeclaims/status",
                "pods",
                "replicationcontrollers",
                "replicationcontrollers/scale",
                "serviceaccounts",
                "services",
                "services/status",
            ],
        ),
        on(
            READ,
            CORE,
            &[
                "bindings",
                "events",
                "limitranges",
                "namespaces/status",
                "pods/log",
                "pods/status",
                "replicationcontrollers/status",
                "resourcequotas",
                "resourcequotas/status",
            ],
        ),
        // In a namespace this means that namespace: so users see which ones are theirs.
        on(READ, CORE, &["namespaces"]),
        on(READ, DISCOVERY, &["endpointslices"]),
        on(
            READ,
            APPS,
            &[
                "controllerrevisions",
                "daemonsets",
                "daemonsets/status",
                "deployments",
                "deployments/scale",
                "deployments/status",
                "replicasets",
                "replicasets/scale",
                "replicasets/status",
                "statefulsets",
                "statefulsets/scale",
                "statefulsets/status",
            ],
        ),
        on(READ, AUTOSCALING, &["horizontalpodautoscalers", "horizontalpodautoscalers/status"]),
        on(READ, BATCH, &["cronjobs", "cronjobs/status", "jobs", "jobs/status"]),
        on(
            READ,
            EXTENSIONS,
            &[
                "daemonsets",
                "daemonsets/status",
                "deployments",
                "deployments/scale",
                "deployments/status",
                "ingresses",
                "ingresses/status",
                "networkpolicies",
                "replicasets",
                "replicasets/scale",
                "replicasets/status",
                "replicationcontrollers/scale",
            ],
        ),
        on(READ, POLICY, &["poddisruptionbudgets", "poddisruptionbudgets/status"]),
        on(READ, NETWORKING, &["ingresses", "ingresses/status", "networkpolicies"]),
        on(READ, RESOURCE, &["resourceclaims", "resourceclaims/status", "resourceclaimtemplates"]),
    ]
}

fn edit_rules() -> Vec<Value> {
    vec![
        // Reading these is as good as writing: it gives access to what runs.
        on(READ, CORE, &["pods/attach", "pods/exec", "pods/portforward", "pods/proxy", "secrets", "services/proxy"]),
        on(&["impersonate"], CORE, &["serviceaccounts"]),
        on(WRITE, CORE, &["pods", "pods/attach", "pods/exec", "pods/portforward", "pods/proxy"]),
        on(&["create"], CORE, &["pods/eviction"]),
        on(
            WRITE,
            CORE,
            &[
                "configmaps",
                "events",
                "persistentvolumeclaims",
                "replicationcontrollers",
                "replicationcontrollers/scale",
                "secrets",
                "serviceaccounts",
                "services",
                "services/proxy",
            ],
        ),
        on(&["create"], CORE, &["serviceaccounts/token"]),
        on(
            WRITE,
            APPS,
            &[
                "daemonsets",
                "deployments",
                "deployments/rollback",
                "deployments/scale",
                "replicasets",
                "replicasets/scale",
                "statefulsets",
                "statefulsets/scale",
            ],
        ),
        on(WRITE, AUTOSCALING, &["horizontalpodautoscalers"]),
        on(WRITE, BATCH, &["cronjobs", "jobs"]),
        on(
            WRITE,
            EXTENSIONS,
            &[
                "daemonsets",
                "deployments",
                "deployments/rollback",
                "deployments/scale",
                "ingresses",
                "networkpolicies",
                "replicasets",
                "replicasets/scale",
                "replicationcontrollers/scale",
            ],
        ),
        on(WRITE, POLICY, &["poddisruptionbudgets"]),
        on(WRITE, NETWORKING, &["ingresses", "networkpolicies"]),
        on(READ_WRITE, COORDINATION, &["leases"]),
        on(WRITE, RESOURCE, &["resourceclaims", "resourceclaimtemplates"]),
    ]
}

pub(super) fn on(verbs: &[&str], group: &str, resources: &[&str]) -> Value {
    json!({"verbs": verbs, "apiGroups": [group], "resources": resources})
}

fn urls(verbs: &[&str], urls: &[&str]) -> Value {
    json!({"verbs": verbs, "nonResourceURLs": urls})
}

pub(super) fn role(name: &str, rules: Vec<Value>) -> Value {
    let mut role = json!({"kind": "ClusterRole", "metadata": {"name": name}});
    role["rules"] = Value::from(rules);
    role
}

/// A role made of those that are labelled as part of `to`, and itself part of another.
fn aggregated(name: &str, to: &str, part_of: Option<&str>) -> Value {
    let mut role = role(name, Vec::new());
    role["aggregationRule"] = json!({"clusterRoleSelectors": [{"matchLabels": {aggregate_to(to): "true"}}]});
    if let Some(whole) = part_of {
        role["metadata"]["labels"] = json!({aggregate_to(whole): "true"});
    }
    role
}

fn part_of(whole: &str, rules: Vec<Value>) -> Value {
    let mut role = role(&format!("system:aggregate-to-{whole}"), rules);
    role["metadata"]["labels"] = json!({aggregate_to(whole): "true"});
    role
}

pub(super) fn aggregate_to(whole: &str) -> String {
    format!("{RBAC_GROUP}/aggregate-to-{whole}")
}

/// A role bound to groups, under its own name.
pub(super) fn binding(role: &str, groups: &[&str]) -> Value {
    let subjects: Vec<Value> =
        groups.iter().map(|group| json!({"apiGroup": RBAC_GROUP, "kind": "Group", "name": group})).collect();
    json!({
        "kind": "ClusterRoleBinding", "metadata": {"name": role},
        "roleRef": {"apiGroup": RBAC_GROUP, "kind": "ClusterRole", "name": role}, "subjects": subjects,
    })
}
