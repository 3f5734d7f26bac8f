//! ClusterRoles that are made of others, found by label.
//!
//! As upstream, a controller computes the rules and writes them into the role: what is stored is what counts.

use croft_meta::object;
use croft_meta::selector::{LabelSelector, SelectorError};
use serde_json::{Map, Value};

/// The rules that aggregating ClusterRoles should have, by name; only those whose rules are not that yet. A role whose
/// selector cannot be read is left as it is, and reported.
pub fn aggregate(cluster_roles: &[Value]) -> Vec<(String, Result<Vec<Value>, SelectorError>)> {
    let mut sorted: Vec<&Value> = cluster_roles.iter().collect();
    sorted.sort_by_key(|role| object::name(role));
    let mut changes = Vec::new();
    for role in &sorted {
        if role["aggregationRule"].is_null() {
            continue;
        }
        match gather(role, &sorted) {
            Ok(rules) if rules == rules_of(role) => {}
            Ok(rules) => changes.push((object::name(role).to_owned(), Ok(rules))),
            Err(error) => changes.push((object::name(role).to_owned(), Err(error))),
        }
    }
    changes
}

/// `all` is sorted by name, so that the result does not depend on the order of creation.
fn gather(role: &Value, all: &[&Value]) -> Result<Vec<Value>, SelectorError> {
    let mut rules: Vec<Value> = Vec::new();
    for selector in
        role.pointer("/aggregationRule/clusterRoleSelectors").and_then(Value::as_array).into_iter().flatten()
    {
        let selector = LabelSelector::from_json(selector)?;
        let others = all.iter().filter(|other| object::name(other) != object::name(role));
        for rule in others.filter(|other| selector.matches_object(other)).flat_map(|other| rules_of(other)) {
            if !rules.contains(&rule) {
                rules.push(rule);
            }
        }
    }
    Ok(rules)
}

fn rules_of(role: &Value) -> Vec<Value> {
    role["rules"].as_array().into_iter().flatten().map(normal).collect()
}

/// A rule without what says nothing, so that rules that mean the same are the same.
fn normal(rule: &Value) -> Value {
    let mut kept = Map::new();
    for field in ["verbs", "apiGroups", "resources", "resourceNames", "nonResourceURLs"] {
        let values = rule[field].as_array().cloned().unwrap_or_default();
        if field == "verbs" || !values.is_empty() {
            kept.insert(field.to_owned(), Value::from(values));
        }
    }
    Value::Object(kept)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn role(name: &str, labels: Value, resources: &[&str], aggregates: Option<&str>) -> Value {
        let rules: Vec<Value> =
            resources.iter().map(|r| json!({"verbs": ["get"], "apiGroups": [""], "resources": [r]})).collect();
        let mut role = json!({"metadata": {"name": name}, "rules": rules});
        role["metadata"]["labels"] = labels;
        if let Some(label) = aggregates {
            role["aggregationRule"] = json!({"clusterRoleSelectors": [{"matchLabels": {label: "true"}}]});
        }
        role
    }

    fn resources(rules: &[Value]) -> Vec<&str> {
        rules.iter().map(|rule| rule["resources"][0].as_str().unwrap()).collect()
    }

    #[test]
    fn rules_are_gathered_by_label_in_order_and_once() {
        let roles = [
            role("z", json!({"view": "true"}), &["pods", "services"], None),
            role("a", json!({"view": "true"}), &["services", "secrets"], None),
            role("other", json!({"edit": "true"}), &["nodes"], None),
            role("sum", json!({"view": "true"}), &["stale"], Some("view")),
        ];
        let changes = aggregate(&roles);
        let [(name, Ok(rules))] = changes.as_slice() else { panic!("{changes:?}") };
        assert_eq!(name, "sum");
        assert_eq!(resources(rules), ["services", "secrets", "pods"]);
    }

    #[test]
    fn up_to_date_roles_are_left_alone() {
        let roles =
            [role("a", json!({"view": "true"}), &["pods"], None), role("sum", json!({}), &["pods"], Some("view"))];
        assert_eq!(aggregate(&roles), []);
    }

    #[test]
    fn aggregations_of_aggregations_settle() {
        // As edit is part of admin.
        let mut roles = [
            role("admin", json!({}), &[], Some("to-admin")),
            role("edit", json!({"to-admin": "true"}), &[], Some("to-edit")),
            role("piece", json!({"to-edit": "true"}), &["pods"], None),
        ];
        for _ in 0..2 {
            for (name, rules) in aggregate(&roles) {
                let role = roles.iter_mut().find(|role| object::name(role) == name).unwrap();
                role["rules"] = Value::from(rules.unwrap());
            }
        }
        assert_eq!(aggregate(&roles), []);
        assert_eq!(resources(roles[0]["rules"].as_array().unwrap()), ["pods"]);
    }

    #[test]
    fn unreadable_selector_is_reported() {
        let mut bad = role("bad", json!({}), &[], None);
        bad["aggregationRule"] =
            json!({"clusterRoleSelectors": [{"matchExpressions": [{"key": "a", "operator": "Like"}]}]});
        let changes = aggregate(&[bad]);
        assert!(matches!(changes.as_slice(), [(_, Err(_))]), "{changes:?}");
    }
}
