//! Roles and bindings.

use croft_meta::{FieldError, FieldErrors, FieldPath, names};
use serde_json::{Value, json};

use super::checks::{one_of, required, required_name, selector};
use crate::view::{get, has, list, strings, text};

const GROUP: &str = "rbac.authorization.k8s.io";

pub(super) fn role(object: &Value) -> FieldErrors {
    let mut errors = Vec::new();
    rules(&mut errors, object, true);
    errors
}

pub(super) fn cluster_role(object: &Value) -> FieldErrors {
    let mut errors = Vec::new();
    rules(&mut errors, object, false);
    if has(object, "aggregationRule") {
        let path = FieldPath::new("aggregationRule.clusterRoleSelectors");
        let selectors = list(object, "aggregationRule.clusterRoleSelectors");
        if selectors.is_empty() {
            let text = "at least one clusterRoleSelector required if aggregationRule is non-nil";
            errors.push(FieldError::required(&path, text));
        }
        for (index, one) in selectors.iter().enumerate() {
            selector(&mut errors, one, &path.index(index));
        }
    }
    errors
}

fn rules(errors: &mut FieldErrors, object: &Value, is_namespaced: bool) {
    for (index, rule) in list(object, "rules").iter().enumerate() {
        let path = FieldPath::new("rules").index(index);
        if strings(rule, "verbs").is_empty() {
            errors.push(FieldError::required(&path.child("verbs"), "verbs must contain at least one value"));
        }
        let urls = strings(rule, "nonResourceURLs");
        let (groups, resources) = (strings(rule, "apiGroups"), strings(rule, "resources"));
        if !urls.is_empty() {
            let path = path.child("nonResourceURLs");
            let has_resources =
                !groups.is_empty() || !resources.is_empty() || !strings(rule, "resourceNames").is_empty();
            let wrong = if is_namespaced {
                "namespaced rules cannot apply to non-resource URLs"
            } else if has_resources {
                "rules cannot apply to both regular resources and non-resource URLs"
            } else {
                continue;
            };
            errors.push(FieldError::invalid(&path, rule["nonResourceURLs"].clone(), wrong));
            continue;
        }
        if groups.is_empty() {
            let text = "resource rules must supply at least one api group";
            errors.push(FieldError::required(&path.child("apiGroups"), text));
        }
        if resources.is_empty() {
            let text = "resource rules must supply at least one resource";
            errors.push(FieldError::required(&path.child("resources"), text));
        }
    }
}

pub(super) fn role_binding(object: &Value) -> FieldErrors {
    binding(object, &["Role", "ClusterRole"], true)
}

pub(super) fn cluster_role_binding(object: &Value) -> FieldErrors {
    binding(object, &["ClusterRole"], false)
}

fn binding(object: &Value, kinds: &[&str], is_namespaced: bool) -> FieldErrors {
    let mut errors = Vec::new();
    let path = FieldPath::new("roleRef");
    one_of(&mut errors, &path.child("apiGroup"), text(object, "roleRef.apiGroup"), &[GROUP]);
    one_of(&mut errors, &path.child("kind"), text(object, "roleRef.kind"), kinds);
    required_name(&mut errors, &path.child("name"), text(object, "roleRef.name"), names::is_path_segment_name);
    for (index, one) in list(object, "subjects").iter().enumerate() {
        subject(&mut errors, one, &FieldPath::new("subjects").index(index), is_namespaced);
    }
    errors
}

fn subject(errors: &mut FieldErrors, subject: &Value, path: &FieldPath, is_namespaced: bool) {
    let name = text(subject, "name");
    required(errors, &path.child("name"), name);
    let group = text(subject, "apiGroup");
    match text(subject, "kind") {
        "ServiceAccount" => {
            if !name.is_empty() {
                super::checks::named(errors, &path.child("name"), name, names::is_dns1123_subdomain);
            }
            if !group.is_empty() {
                errors.push(FieldError::not_supported(&path.child("apiGroup"), group, &[""]));
            }
            // In a RoleBinding the namespace is the binding's own, if it is not said.
            if text(subject, "namespace").is_empty() && !is_namespaced {
                errors.push(FieldError::required(&path.child("namespace"), ""));
            }
        }
        "User" | "Group" => one_of(errors, &path.child("apiGroup"), group, &[GROUP]),
        other => {
            errors.push(FieldError::not_supported(&path.child("kind"), other, &["ServiceAccount", "User", "Group"]));
        }
    }
}

fn same_role(errors: &mut FieldErrors, new: &Value, old: &Value) {
    if get(new, "roleRef") != get(old, "roleRef") {
        // Upstream prints its internal form, whose names differ from JSON's.
        let field = |name: &str| text(new, &format!("roleRef.{name}")).to_owned();
        let value = json!({ "APIGroup": field("apiGroup"), "Kind": field("kind"), "Name": field("name") });
        errors.push(FieldError::invalid(&FieldPath::new("roleRef"), value, "cannot change roleRef"));
    }
}

pub(super) fn role_binding_update(new: &Value, old: &Value) -> FieldErrors {
    let mut errors = role_binding(new);
    same_role(&mut errors, new, old);
    errors
}

pub(super) fn cluster_role_binding_update(new: &Value, old: &Value) -> FieldErrors {
    let mut errors = cluster_role_binding(new);
    same_role(&mut errors, new, old);
    errors
}
