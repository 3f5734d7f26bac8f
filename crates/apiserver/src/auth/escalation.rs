//! Nobody may grant what they do not hold.
//!
//! A Role or ClusterRole may be written by who holds all its rules or the verb `escalate` on it; a binding by who holds
//! all rules of its role or the verb `bind` on it.

use croft_meta::ApiError;
use croft_meta::field::go_quote;
use croft_meta::object;
use serde_json::Value;

use super::covers::{compact, uncovered};
use super::rbac::{MissingRole, Rbac, RoleRef, aggregate};
use super::rule::{Rule, go_strings, rules_of};
use super::{Attributes, MASTERS, RBAC_GROUP};
use crate::request::RequestInfo;
use crate::user::UserInfo;

impl Rbac {
    /// Refuses a write that would give somebody more than `user` has. Kinds other than RBAC's pass. `old` is the object
    /// before an update; the namespace is the request's.
    pub(crate) fn check_escalation(
        &self,
        user: &UserInfo,
        info: &RequestInfo,
        new: &Value,
        old: Option<&Value>,
    ) -> Result<(), ApiError> {
        if info.group != RBAC_GROUP || !info.subresource.is_empty() || user.is_member_of(MASTERS) {
            return Ok(());
        }
        let is_role = match info.resource.as_str() {
            "roles" | "clusterroles" => true,
            "rolebindings" | "clusterrolebindings" => false,
            _ => return Ok(()),
        };
        // The garbage collector's work grants nothing.
        if old.is_some_and(|old| changes_only_ownership(new, old)) {
            return Ok(());
        }
        if is_role { self.check_role(user, info, new, old) } else { self.check_binding(user, info, new) }
    }

    fn check_role(
        &self,
        user: &UserInfo,
        info: &RequestInfo,
        new: &Value,
        old: Option<&Value>,
    ) -> Result<(), ApiError> {
        let escalate = Attributes { verb: "escalate", subresource: "", ..Attributes::of(info) };
        if self.authorize(user, &escalate).allowed {
            return Ok(());
        }
        let forbidden = |why: String| ApiError::forbidden(RBAC_GROUP, &info.resource, object::name(new), why);
        self.confirm_held(user, &info.namespace, &rules_of(new)).map_err(forbidden)?;
        if info.resource != "clusterroles" || !(aggregates(new) || old.is_some_and(aggregates)) {
            return Ok(());
        }
        // An aggregation can gather anything, now or later.
        let refused = "must have cluster-admin privileges to use the aggregationRule";
        self.confirm_held(user, &info.namespace, &everything()).map_err(|_| forbidden(refused.to_owned()))
    }

    fn check_binding(&self, user: &UserInfo, info: &RequestInfo, binding: &Value) -> Result<(), ApiError> {
        let role = RoleRef::of(binding);
        let plural = match role.kind.as_str() {
            "ClusterRole" => "clusterroles",
            "Role" => "roles",
            _ => "",
        };
        let bind = Attributes {
            is_resource: true,
            verb: "bind",
            group: &role.group,
            resource: plural,
            name: &role.name,
            // Where the binding is: a ClusterRole may be bound in one namespace and not in another.
            namespace: &info.namespace,
            ..Attributes::default()
        };
        if !plural.is_empty() && self.authorize(user, &bind).allowed {
            return Ok(());
        }
        let rules = self.referenced(&role, &info.namespace).map_err(|missing| {
            if plural.is_empty() {
                ApiError::internal(missing)
            } else {
                ApiError::not_found(RBAC_GROUP, plural, &role.name)
            }
        })?;
        self.confirm_held(user, &info.namespace, &rules)
            .map_err(|why| ApiError::forbidden(RBAC_GROUP, &info.resource, object::name(binding), why))
    }

    /// The error says what is missing.
    fn confirm_held(&self, user: &UserInfo, namespace: &str, wanted: &[Rule]) -> Result<(), String> {
        let (held, missing_roles) = self.held(user, namespace);
        let missing = uncovered(&held, wanted);
        if missing.is_empty() {
            return Ok(());
        }
        let mut missing: Vec<String> = compact(missing).iter().map(Rule::compact).collect();
        missing.sort_unstable();
        missing.dedup();
        let mut message = format!(
            "user {} (groups={}) is attempting to grant RBAC permissions not currently held:\n{}",
            go_quote(&user.name),
            go_strings(&user.groups),
            missing.join("\n")
        );
        if !missing_roles.is_empty() {
            let gone: Vec<String> = missing_roles.iter().map(describe_missing).collect();
            message = format!("{message}; resolution errors: [{}]", aggregate(&gone));
        }
        Err(message)
    }
}

/// Here upstream asks its storage, which speaks of resources in the plural.
fn describe_missing(MissingRole(role): &MissingRole) -> String {
    match role.kind.as_str() {
        "ClusterRole" => ApiError::not_found(RBAC_GROUP, "clusterroles", &role.name).to_string(),
        "Role" => ApiError::not_found(RBAC_GROUP, "roles", &role.name).to_string(),
        _ => MissingRole(role.clone()).to_string(),
    }
}

fn aggregates(cluster_role: &Value) -> bool {
    cluster_role
        .pointer("/aggregationRule/clusterRoleSelectors")
        .and_then(Value::as_array)
        .is_some_and(|s| !s.is_empty())
}

fn everything() -> [Rule; 2] {
    let all = || vec!["*".to_owned()];
    [
        Rule { verbs: all(), groups: all(), resources: all(), ..Rule::default() },
        Rule { verbs: all(), urls: all(), ..Rule::default() },
    ]
}

fn changes_only_ownership(new: &Value, old: &Value) -> bool {
    let mut compared = new.clone();
    for field in ["ownerReferences", "finalizers", "selfLink", "managedFields"] {
        object::set_meta(&mut compared, field, old["metadata"][field].clone());
    }
    compared == *old
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::auth::testing::{TestCache, cluster_role, cluster_role_binding, role_binding};

    fn write(resource: &str, namespace: &str) -> RequestInfo {
        RequestInfo {
            is_resource: true,
            verb: "create",
            group: RBAC_GROUP.to_owned(),
            version: "v1".to_owned(),
            namespace: namespace.to_owned(),
            resource: resource.to_owned(),
            ..RequestInfo::default()
        }
    }

    async fn rbac() -> (Rbac, TestCache) {
        let rule =
            |verbs: &[&str], resource: &str| json!([{"verbs": verbs, "apiGroups": [""], "resources": [resource]}]);
        let rbac_rule = |verb: &str, resource: &str, name: &str| json!([{"verbs": [verb], "apiGroups": [RBAC_GROUP], "resources": [resource], "resourceNames": [name]}]);
        let all = json!([{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}, {"verbs": ["*"], "nonResourceURLs": ["*"]}]);
        let cache = TestCache::new([
            cluster_role("read-pods", rule(&["get", "list"], "pods")),
            cluster_role("all", all),
            cluster_role("bind-all", rbac_rule("bind", "clusterroles", "all")),
            cluster_role(
                "escalate",
                json!([{"verbs": ["escalate"], "apiGroups": [RBAC_GROUP], "resources": ["clusterroles"]}]),
            ),
            cluster_role_binding("readers", "read-pods", &[("User", "reader")]),
            cluster_role_binding("alls", "all", &[("User", "root")]),
            role_binding("ns", "binders", ("ClusterRole", "bind-all"), &[("User", "binder")]),
            cluster_role_binding("escalators", "escalate", &[("User", "escalator")]),
        ])
        .await;
        (Rbac::new(&cache), cache)
    }

    #[tokio::test]
    async fn roles_may_only_hold_what_their_writer_holds() {
        let (rbac, _cache) = rbac().await;
        let held = cluster_role("new", json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]));
        let more = cluster_role(
            "new",
            json!([{"verbs": ["get", "list", "delete"], "apiGroups": [""], "resources": ["pods"]}]),
        );
        let reader = UserInfo::new("reader", &["a", "b"]);
        let check =
            |user: &UserInfo, role: &Value, old| rbac.check_escalation(user, &write("clusterroles", ""), role, old);
        assert_eq!(check(&reader, &held, None), Ok(()));
        let error = check(&reader, &more, None).unwrap_err();
        assert_eq!(error.code(), 403);
        assert_eq!(
            error.message(),
            "clusterroles.rbac.authorization.k8s.io \"new\" is forbidden: user \"reader\" (groups=[\"a\" \"b\"]) is attempting \
             to grant RBAC permissions not currently held:\n{APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"delete\"]}"
        );
        assert_eq!(check(&UserInfo::new("escalator", &[]), &more, None), Ok(()));
        assert_eq!(check(&UserInfo::new("x", &[MASTERS]), &more, None), Ok(()));
        assert_eq!(check(&UserInfo::new("root", &[]), &more, None), Ok(()));

        let mut collected = more.clone();
        object::set_meta(&mut collected, "finalizers", json!(["x"]));
        assert_eq!(check(&reader, &collected, Some(&more)), Ok(()), "the garbage collector grants nothing");
    }

    #[tokio::test]
    async fn aggregation_needs_everything() {
        let (rbac, _cache) = rbac().await;
        let mut role = cluster_role("new", json!([]));
        role["aggregationRule"] = json!({"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]});
        let check = |user| rbac.check_escalation(&UserInfo::new(user, &[]), &write("clusterroles", ""), &role, None);
        let error = check("reader").unwrap_err();
        assert!(
            error.message().ends_with(": must have cluster-admin privileges to use the aggregationRule"),
            "{error}"
        );
        assert_eq!(check("root"), Ok(()));
    }

    #[tokio::test]
    async fn bindings_need_the_rules_or_the_verb_bind() {
        let (rbac, _cache) = rbac().await;
        let check = |user, binding: &Value, info: &RequestInfo| {
            rbac.check_escalation(&UserInfo::new(user, &[]), info, binding, None).map_err(|e| (e.code(), e.to_string()))
        };
        let (cluster, local) = (write("clusterrolebindings", ""), write("rolebindings", "ns"));
        let pods = cluster_role_binding("new", "read-pods", &[("User", "x")]);
        let all = cluster_role_binding("new", "all", &[("User", "x")]);
        assert_eq!(check("reader", &pods, &cluster), Ok(()));
        let (code, message) = check("reader", &all, &cluster).unwrap_err();
        assert_eq!(code, 403);
        assert!(message.contains("{NonResourceURLs:[\"*\"], Verbs:[\"*\"]}"), "{message}");

        let all_here = role_binding("ns", "new", ("ClusterRole", "all"), &[("User", "x")]);
        assert_eq!(check("binder", &all_here, &local), Ok(()));
        assert_eq!(check("binder", &all, &cluster).unwrap_err().0, 403, "bind was granted in one namespace only");

        let gone = role_binding("ns", "new", ("Role", "gone"), &[("User", "x")]);
        assert_eq!(
            check("reader", &gone, &local),
            Err((404, "roles.rbac.authorization.k8s.io \"gone\" not found".to_owned()))
        );
    }
}
