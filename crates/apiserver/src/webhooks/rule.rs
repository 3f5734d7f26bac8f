//! Which requests a webhook has a say in, by what they are about.

use croft_meta::Gvr;
use serde_json::Value;

use super::Operation;

/// One of a webhook's `rules`.
#[derive(Debug)]
pub(super) struct Rule {
    operations: Vec<String>,
    groups: Vec<String>,
    versions: Vec<String>,
    /// `pods`, `pods/status`, `pods/*`, `*`, `*/scale` or `*/*`.
    resources: Vec<String>,
    scope: Scope,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    All,
    Cluster,
    Namespaced,
}

/// What a request is about, as rules look at it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked<'a> {
    pub(super) operation: Operation,
    pub(super) resource: &'a Gvr,
    pub(super) subresource: &'a str,
    /// Objects in a namespace; a namespace itself is in none.
    pub(super) is_namespaced: bool,
}

impl Rule {
    pub(super) fn parse(rule: &Value) -> Self {
        let texts = |field: &str| -> Vec<String> {
            let list = rule[field].as_array().into_iter().flatten();
            list.filter_map(|text| text.as_str().map(str::to_owned)).collect()
        };
        Self {
            operations: texts("operations"),
            groups: texts("apiGroups"),
            versions: texts("apiVersions"),
            resources: texts("resources"),
            scope: match rule["scope"].as_str() {
                Some("Cluster") => Scope::Cluster,
                Some("Namespaced") => Scope::Namespaced,
                _ => Scope::All,
            },
        }
    }

    pub(super) fn matches(&self, asked: Asked<'_>) -> bool {
        let has = |list: &[String], wanted: &str| list.iter().any(|item| item == "*" || item == wanted);
        let is_in_scope = match self.scope {
            Scope::All => true,
            Scope::Cluster => !asked.is_namespaced,
            Scope::Namespaced => asked.is_namespaced,
        };
        is_in_scope
            && has(&self.operations, asked.operation.name())
            && has(&self.groups, &asked.resource.group)
            && has(&self.versions, &asked.resource.version)
            && self.resources.iter().any(|resource| names(resource, &asked.resource.resource, asked.subresource))
    }
}

/// A name without a slash means the resource itself; a star stands for anything on its side of the slash.
fn names(rule: &str, resource: &str, subresource: &str) -> bool {
    let (wanted, below) = rule.split_once('/').unwrap_or((rule, ""));
    (wanted == "*" || wanted == resource) && (below == "*" || below == subresource)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn resources_are_matched_with_their_subresources() {
        let table = [
            ("pods", "pods", "", true),
            ("pods", "pods", "status", false),
            ("pods/status", "pods", "status", true),
            ("pods/status", "pods", "", false),
            ("pods/*", "pods", "", true),
            ("pods/*", "pods", "status", true),
            ("pods/*", "services", "", false),
            ("*", "pods", "", true),
            ("*", "pods", "status", false),
            ("*/scale", "deployments", "scale", true),
            ("*/scale", "deployments", "", false),
            ("*/*", "pods", "", true),
            ("*/*", "pods", "status", true),
        ];
        for (rule, resource, subresource, expected) in table {
            assert_eq!(names(rule, resource, subresource), expected, "{rule} {resource}/{subresource}");
        }
    }

    #[test]
    fn all_parts_of_a_rule_must_match() {
        let rule = |scope: &str| {
            Rule::parse(&json!({
                "operations": ["CREATE", "UPDATE"], "apiGroups": ["apps"], "apiVersions": ["v1"],
                "resources": ["deployments"], "scope": scope,
            }))
        };
        let deployments = Gvr::new("apps", "v1", "deployments");
        let asked = |operation| Asked { operation, resource: &deployments, subresource: "", is_namespaced: true };
        assert!(rule("*").matches(asked(Operation::Create)));
        assert!(rule("Namespaced").matches(asked(Operation::Update)));
        assert!(!rule("*").matches(asked(Operation::Delete)));
        assert!(!rule("Cluster").matches(asked(Operation::Create)));
        let other = Gvr::new("apps", "v1beta1", "deployments");
        assert!(!rule("*").matches(Asked { resource: &other, ..asked(Operation::Create) }));
    }
}
