//! What the selectors of nodes and guests select.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{NodeSelectorRequirement, NodeSelectorTerm};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};

pub(super) type Labels = BTreeMap<String, String>;

/// An empty selector selects everything.
pub(super) fn selects(selector: &LabelSelector, labels: &Labels) -> bool {
    let equal = selector.match_labels.iter().flatten().all(|(key, value)| labels.get(key) == Some(value));
    equal && selector.match_expressions.iter().flatten().all(|requirement| holds(requirement, labels))
}

fn holds(requirement: &LabelSelectorRequirement, labels: &Labels) -> bool {
    let values = requirement.values.as_deref().unwrap_or_default();
    compare(&requirement.operator, values, labels.get(&requirement.key).map(String::as_str))
}

/// One of the terms must hold. A term without requirements selects nothing, as upstream has it.
pub(super) fn any_term_holds(terms: &[NodeSelectorTerm], name: &str, labels: &Labels) -> bool {
    terms.iter().any(|term| term_holds(term, name, labels))
}

pub(super) fn term_holds(term: &NodeSelectorTerm, name: &str, labels: &Labels) -> bool {
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    if expressions.is_empty() && fields.is_empty() {
        return false;
    }
    let label = |requirement: &NodeSelectorRequirement| labels.get(&requirement.key).map(String::as_str);
    let field = |requirement: &NodeSelectorRequirement| (requirement.key == "metadata.name").then_some(name);
    expressions.iter().all(|requirement| node_holds(requirement, label(requirement)))
        && fields.iter().all(|requirement| node_holds(requirement, field(requirement)))
}

fn node_holds(requirement: &NodeSelectorRequirement, value: Option<&str>) -> bool {
    compare(&requirement.operator, requirement.values.as_deref().unwrap_or_default(), value)
}

/// An operator that nobody knows holds never.
fn compare(operator: &str, values: &[String], value: Option<&str>) -> bool {
    let is_among = |value: &str| values.iter().any(|wanted| wanted == value);
    match operator {
        "In" => value.is_some_and(is_among),
        "NotIn" => !value.is_some_and(is_among),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => numbers(values, value).is_some_and(|(value, limit)| value > limit),
        "Lt" => numbers(values, value).is_some_and(|(value, limit)| value < limit),
        _ => false,
    }
}

fn numbers(values: &[String], value: Option<&str>) -> Option<(i64, i64)> {
    let [limit] = values else { return None };
    Some((value?.parse().ok()?, limit.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn every_operator_of_node_affinity_works() {
        let node = labels(&[("zone", "a"), ("cores", "8")]);
        let cases = [
            ("zone", "In", vec!["a", "b"], true),
            ("zone", "In", vec!["b"], false),
            ("rack", "In", vec!["a"], false),
            ("zone", "NotIn", vec!["b"], true),
            ("zone", "NotIn", vec!["a"], false),
            ("rack", "NotIn", vec!["a"], true),
            ("zone", "Exists", vec![], true),
            ("rack", "Exists", vec![], false),
            ("rack", "DoesNotExist", vec![], true),
            ("zone", "DoesNotExist", vec![], false),
            ("cores", "Gt", vec!["4"], true),
            ("cores", "Gt", vec!["8"], false),
            ("cores", "Lt", vec!["9"], true),
            ("zone", "Lt", vec!["9"], false),
            ("cores", "Gt", vec!["1", "2"], false),
            ("zone", "Near", vec!["a"], false),
        ];
        for (key, operator, values, expected) in cases {
            let requirement = NodeSelectorRequirement {
                key: key.to_owned(),
                operator: operator.to_owned(),
                values: Some(values.iter().map(|value| (*value).to_owned()).collect()),
            };
            let term = NodeSelectorTerm { match_expressions: Some(vec![requirement]), match_fields: None };
            assert_eq!(any_term_holds(&[term], "n", &node), expected, "{key} {operator} {values:?}");
        }
    }

    #[test]
    fn fields_select_by_name_and_an_empty_term_selects_nothing() {
        let requirement = NodeSelectorRequirement {
            key: "metadata.name".to_owned(),
            operator: "In".to_owned(),
            values: Some(vec!["n1".to_owned()]),
        };
        let by_name = NodeSelectorTerm { match_expressions: None, match_fields: Some(vec![requirement]) };
        assert!(any_term_holds(std::slice::from_ref(&by_name), "n1", &Labels::new()));
        assert!(!any_term_holds(&[by_name], "n2", &Labels::new()));
        assert!(!any_term_holds(&[NodeSelectorTerm::default()], "n1", &Labels::new()));
    }

    #[test]
    fn a_label_selector_needs_all_its_parts() {
        let selector: LabelSelector = serde_json::from_value(serde_json::json!({
            "matchLabels": {"app": "web"},
            "matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["test"]}],
        }))
        .unwrap();
        assert!(selects(&selector, &labels(&[("app", "web")])));
        assert!(!selects(&selector, &labels(&[("app", "web"), ("tier", "test")])));
        assert!(!selects(&selector, &labels(&[("tier", "prod")])));
        assert!(selects(&LabelSelector::default(), &Labels::new()));
    }
}
