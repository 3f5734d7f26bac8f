use super::*;
use crate::auth::testing::{TestCache, cluster_role, cluster_role_binding, role, role_binding};

fn on<'a>(verb: &'a str, resource: &'a str, namespace: &'a str) -> Attributes<'a> {
    Attributes { is_resource: true, verb, resource, namespace, ..Attributes::default() }
}

fn rule(verbs: &[&str], resource: &str) -> Value {
    json!([{"verbs": verbs, "apiGroups": [""], "resources": [resource]}])
}

#[tokio::test]
async fn bindings_decide_where_and_for_whom() {
    let cache = TestCache::new([
        cluster_role("pods", rule(&["get"], "pods")),
        role("ns1", "secrets", rule(&["get"], "secrets")),
        role("ns2", "secrets", rule(&["delete"], "secrets")),
        cluster_role_binding(
            "everywhere",
            "pods",
            &[("User", "ann"), ("Group", "staff"), ("ServiceAccount", "ns1/robot")],
        ),
        role_binding("ns1", "here", ("ClusterRole", "pods"), &[("User", "bob"), ("ServiceAccount", "local")]),
        role_binding("ns1", "secrets", ("Role", "secrets"), &[("User", "bob")]),
        // In a ClusterRoleBinding a service account needs a namespace.
        cluster_role_binding("nowhere", "pods", &[("ServiceAccount", "homeless")]),
        cluster_role_binding("case", "pods", &[("group", "admins"), ("Whatever", "cid")]),
    ])
    .await;
    let rbac = Rbac::new(&cache);
    let robot = "system:serviceaccount:ns1:robot";
    let local = "system:serviceaccount:ns1:local";
    let table: [(&str, &[&str], Attributes<'_>, bool); 18] = [
        ("ann", &[], on("get", "pods", "ns1"), true),
        ("ann", &[], on("get", "pods", ""), true),
        ("ann", &[], on("list", "pods", ""), false),
        ("ann", &[], on("get", "secrets", "ns1"), false),
        ("x", &["staff"], on("get", "pods", "ns9"), true),
        ("staff", &["ann"], on("get", "pods", "ns9"), false),
        (robot, &[], on("get", "pods", "ns2"), true),
        ("system:serviceaccount:ns2:robot", &[], on("get", "pods", "ns2"), false),
        ("bob", &[], on("get", "pods", "ns1"), true),
        ("bob", &[], on("get", "pods", "ns2"), false),
        ("bob", &[], on("get", "pods", ""), false),
        (local, &[], on("get", "pods", "ns1"), true),
        (local, &[], on("get", "pods", "ns2"), false),
        ("bob", &[], on("get", "secrets", "ns1"), true),
        ("bob", &[], on("delete", "secrets", "ns1"), false),
        ("system:serviceaccount::homeless", &[], on("get", "pods", "ns1"), false),
        ("x", &["admins"], on("get", "pods", "ns1"), false),
        ("x", &[MASTERS], on("anything", "at all", ""), true),
    ];
    for (user, groups, wanted, allowed) in table {
        assert_eq!(
            rbac.authorize(&UserInfo::new(user, groups), &wanted).allowed,
            allowed,
            "{user} {groups:?} {wanted:?}"
        );
    }
}

#[tokio::test]
async fn reasons_name_the_binding_or_what_is_missing() {
    let cache = TestCache::new([
        cluster_role("pods", rule(&["get"], "pods")),
        cluster_role_binding("b", "pods", &[("User", "nobody"), ("Group", "staff"), ("User", "ann")]),
        role_binding("ns", "c", ("ClusterRole", "pods"), &[("ServiceAccount", "robot")]),
        cluster_role_binding("x", "gone", &[("User", "eve")]),
        role_binding("ns", "y", ("Role", "gone"), &[("User", "eve")]),
    ])
    .await;
    let rbac = Rbac::new(&cache);
    let reason = |user, groups: &[&str]| rbac.authorize(&UserInfo::new(user, groups), &on("get", "pods", "ns")).reason;
    assert_eq!(
        reason("ann", &["staff"]),
        r#"RBAC: allowed by ClusterRoleBinding "b" of ClusterRole "pods" to Group "staff""#
    );
    assert_eq!(
        reason("system:serviceaccount:ns:robot", &[]),
        r#"RBAC: allowed by RoleBinding "c/ns" of ClusterRole "pods" to ServiceAccount "robot/ns""#
    );
    assert_eq!(
        reason("eve", &[]),
        r#"RBAC: [clusterrole.rbac.authorization.k8s.io "gone" not found, role.rbac.authorization.k8s.io "gone" not found]"#
    );
    assert_eq!(reason("cid", &[]), "");
}

#[tokio::test]
async fn changes_count_with_the_next_decision() {
    let cache = TestCache::new([]).await;
    let rbac = Rbac::new(&cache);
    let allowed = || rbac.authorize(&UserInfo::new("ann", &[]), &on("get", "pods", "ns")).allowed;
    assert!(!allowed());
    cache.put(&role_binding("ns", "b", ("Role", "r"), &[("User", "ann")])).await;
    assert!(!allowed(), "the role is not there yet");
    cache.put(&role("ns", "r", rule(&["get"], "pods"))).await;
    assert!(allowed());
    cache.put(&role("ns", "r", rule(&["list"], "pods"))).await;
    assert!(!allowed());
    cache.put(&role("ns", "r", rule(&["*"], "pods"))).await;
    assert!(allowed());
    cache.delete("rbac.authorization.k8s.io/rolebindings/ns/b").await;
    assert!(!allowed());
}

#[tokio::test]
async fn unchanged_index_is_kept() {
    let cache = TestCache::new([cluster_role("pods", rule(&["get"], "pods"))]).await;
    let rbac = Rbac::new(&cache);
    assert!(Arc::ptr_eq(&rbac.index(), &rbac.index()));
    let before = rbac.index();
    cache.put(&cluster_role("more", rule(&["get"], "pods"))).await;
    assert!(!Arc::ptr_eq(&before, &rbac.index()));
}
