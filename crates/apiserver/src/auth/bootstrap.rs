//! The roles and bindings that every cluster starts with: upstream's bootstrap policy, without the roles of components
//! that Croft does not have (kubelet, scheduler, controllers); and those of KubeVirt, CDI and Harvester.
//!
//! On every start the server creates those that are missing and brings the others up to date with [`reconciled`], unless
//! they carry `rbac.authorization.kubernetes.io/autoupdate: "false"`.

mod policy;
mod reconcile;
mod virtualization;

use croft_api::rbac::aggregate;
use croft_meta::object;
use serde_json::{Value, json};

use super::{AUTHENTICATED, MASTERS, RBAC_GROUP, UNAUTHENTICATED};

pub(crate) use reconcile::reconciled;

const AUTOUPDATE: &str = "rbac.authorization.kubernetes.io/autoupdate";

/// All of them, ready to be created. Aggregated roles have their rules already, so
/// that they work before the controller ran.
pub(crate) fn default_objects() -> Vec<Value> {
    let cluster_roles = policy::cluster_roles().into_iter().chain(virtualization::cluster_roles());
    let mut cluster_roles: Vec<Value> = cluster_roles.map(with_metadata).collect();
    // `admin` is made of `edit`, which is made of `view`.
    for _ in 0..3 {
        for (name, rules) in aggregate(&cluster_roles) {
            let role = cluster_roles.iter_mut().find(|role| object::name(role) == name);
            if let (Some(role), Ok(rules)) = (role, rules) {
                role["rules"] = Value::from(rules);
            }
        }
    }
    let mut objects = cluster_roles;
    objects.extend(policy::cluster_role_bindings().into_iter().map(with_metadata));
    objects.extend(policy::roles().into_iter().map(with_metadata));
    objects.extend(virtualization::bindings().into_iter().map(with_metadata));
    objects
}

/// The marks of a default object.
fn with_metadata(mut object: Value) -> Value {
    let mut labels = object["metadata"]["labels"].clone();
    labels["kubernetes.io/bootstrapping"] = json!("rbac-defaults");
    object::set_meta(&mut object, "labels", labels);
    object::set_meta(&mut object, "annotations", json!({AUTOUPDATE: "true"}));
    object["apiVersion"] = json!(format!("{RBAC_GROUP}/v1"));
    object
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::testing::TestCache;
    use crate::auth::{Attributes, Rbac};
    use crate::user::UserInfo;

    #[test]
    fn defaults_are_complete_and_distinct() {
        let objects = default_objects();
        let named =
            |kind: &str, name: &str| objects.iter().find(|o| o["kind"] == kind && object::name(o) == name).unwrap();
        for name in ["cluster-admin", "admin", "edit", "view", "system:discovery", "system:auth-delegator"] {
            assert!(!named("ClusterRole", name)["rules"].as_array().unwrap().is_empty(), "{name}");
        }
        let rules = |name| named("ClusterRole", name)["rules"].as_array().unwrap().len();
        assert!(rules("admin") > rules("edit") && rules("edit") > rules("view"));
        for object in &objects {
            assert_eq!(object::label(object, "kubernetes.io/bootstrapping"), Some("rbac-defaults"));
            assert_eq!(object::annotation(object, AUTOUPDATE), Some("true"));
        }
        let mut ids: Vec<_> =
            objects.iter().map(|o| (o["kind"].to_string(), object::namespace(o), object::name(o))).collect();
        ids.sort();
        let count = ids.len();
        ids.dedup();
        assert_eq!(ids.len(), count);
    }

    #[tokio::test]
    async fn defaults_allow_what_they_should() {
        let cache = TestCache::new(default_objects()).await;
        let rbac = Rbac::new(&cache);
        let anonymous = UserInfo::anonymous();
        let bob = UserInfo::new("bob", &[AUTHENTICATED]);
        let path = |user: &UserInfo, verb, path| rbac.authorize(user, &Attributes::path(verb, path)).allowed;
        for open in ["/healthz", "/livez", "/readyz", "/version", "/ping"] {
            assert!(path(&anonymous, "get", open), "{open}");
            assert!(path(&bob, "get", open), "{open}");
            assert!(!path(&anonymous, "post", open), "{open}");
        }
        for closed in [
            "/",
            "/api",
            "/apis",
            "/apis/apps/v1",
            "/openapi/v2",
            "/openapi/v3",
            "/metrics",
            "/healthzz",
            "/healthz/ping",
            "/readyz/etcd",
            "/pingx",
        ] {
            assert!(!path(&anonymous, "get", closed), "{closed}");
        }
        assert!(
            path(&bob, "get", "/apis/apps/v1") && path(&bob, "get", "/openapi/v3") && !path(&bob, "get", "/metrics")
        );

        let create = |group, resource| Attributes {
            is_resource: true,
            verb: "create",
            group,
            resource,
            ..Attributes::default()
        };
        let own = create("authorization.k8s.io", "selfsubjectaccessreviews");
        assert!(rbac.authorize(&bob, &own).allowed && !rbac.authorize(&anonymous, &own).allowed);
        assert!(!rbac.authorize(&bob, &create("", "pods")).allowed);
    }
}
