//! Bringing a default object of an earlier start up to date without undoing what an administrator added.

use croft_meta::object;
use serde_json::{Map, Value};

use super::AUTOUPDATE;
use crate::auth::covers::{compact, uncovered};
use crate::auth::rule::{Rule, rules_of};

/// The stored object with what it lacks of the default added; `None` if nothing is to be written. Rules and subjects
/// that are not in the default stay. (A changed `roleRef` cannot be updated: Croft's defaults never change theirs.)
pub(crate) fn reconciled(stored: &Value, default: &Value) -> Option<Value> {
    if object::annotation(stored, AUTOUPDATE) == Some("false") {
        return None;
    }
    let mut new = stored.clone();
    for field in ["labels", "annotations"] {
        let mut merged = default["metadata"][field].as_object().cloned().unwrap_or_default();
        merged.extend(stored["metadata"][field].as_object().cloned().unwrap_or_default());
        object::set_meta(&mut new, field, merged);
    }
    if default["aggregationRule"].is_null() {
        let missing = compact(uncovered(&rules_of(stored), &rules_of(default)));
        append(&mut new, "rules", missing.iter().map(Rule::to_json));
    } else {
        let selectors = "/aggregationRule/clusterRoleSelectors";
        let wanted = default.pointer(selectors).and_then(Value::as_array).cloned().unwrap_or_default();
        if !new["aggregationRule"].is_object() {
            new["aggregationRule"] = Value::Object(Map::new());
        }
        append_missing(&mut new["aggregationRule"], "clusterRoleSelectors", wanted);
    }
    append_missing(&mut new, "subjects", default["subjects"].as_array().cloned().unwrap_or_default());
    (new != *stored).then_some(new)
}

fn append_missing(object: &mut Value, field: &str, wanted: Vec<Value>) {
    let known = object[field].as_array().cloned().unwrap_or_default();
    append(object, field, wanted.into_iter().filter(|value| !known.contains(value)));
}

fn append(object: &mut Value, field: &str, values: impl Iterator<Item = Value>) {
    for value in values {
        match &mut object[field] {
            Value::Array(list) => list.push(value),
            other => *other = Value::Array(vec![value]),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::auth::bootstrap::default_objects;

    fn default(kind: &str, name: &str) -> Value {
        default_objects().into_iter().find(|o| o["kind"] == kind && object::name(o) == name).unwrap()
    }

    #[test]
    fn up_to_date_objects_are_not_written() {
        for default in default_objects() {
            assert_eq!(reconciled(&default, &default), None);
        }
    }

    #[test]
    fn missing_parts_are_added_and_additions_stay() {
        let wanted = default("ClusterRole", "system:basic-user");
        let mut stored = wanted.clone();
        stored["metadata"]["labels"] = json!({"mine": "1"});
        let mine = json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]});
        stored["rules"] = json!([mine, wanted["rules"][0]]);
        let new = reconciled(&stored, &wanted).unwrap();
        assert_eq!(new["rules"], json!([mine, wanted["rules"][0], wanted["rules"][1]]));
        assert_eq!(object::label(&new, "mine"), Some("1"));
        assert_eq!(object::label(&new, "kubernetes.io/bootstrapping"), Some("rbac-defaults"));
        assert_eq!(reconciled(&new, &wanted), None);

        let wanted = default("ClusterRoleBinding", "system:public-info-viewer");
        let mut stored = wanted.clone();
        let mine = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "x"});
        stored["subjects"] = json!([mine, wanted["subjects"][1]]);
        let new = reconciled(&stored, &wanted).unwrap();
        assert_eq!(new["subjects"], json!([mine, wanted["subjects"][1], wanted["subjects"][0]]));
    }

    #[test]
    fn aggregated_rules_are_the_controllers() {
        let wanted = default("ClusterRole", "view");
        let mut stored = wanted.clone();
        stored["rules"] = json!([]);
        assert_eq!(reconciled(&stored, &wanted), None);
        stored["aggregationRule"] = Value::Null;
        assert_eq!(reconciled(&stored, &wanted).unwrap()["aggregationRule"], wanted["aggregationRule"]);
    }

    #[test]
    fn administrators_can_opt_out() {
        let wanted = default("ClusterRole", "system:basic-user");
        let mut stored = wanted.clone();
        stored["rules"] = json!([]);
        stored["metadata"]["annotations"] = json!({AUTOUPDATE: "false"});
        assert_eq!(reconciled(&stored, &wanted), None);
    }
}
