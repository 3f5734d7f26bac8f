//! One rule of a role: which verbs on what.

use croft_meta::field::go_quote;
use serde_json::{Map, Value};

use super::Attributes;

/// A `PolicyRule`. Either the resource fields or the URLs say anything; validation sees to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Rule {
    pub(super) verbs: Vec<String>,
    pub(super) groups: Vec<String>,
    pub(super) resources: Vec<String>,
    /// Empty for all.
    pub(super) names: Vec<String>,
    pub(super) urls: Vec<String>,
}

/// The `rules` of a Role or ClusterRole.
pub(super) fn rules_of(role: &Value) -> Vec<Rule> {
    role["rules"].as_array().into_iter().flatten().map(Rule::from_json).collect()
}

impl Rule {
    pub(super) fn from_json(rule: &Value) -> Self {
        let list = |field: &str| strings(&rule[field]);
        Self {
            verbs: list("verbs"),
            groups: list("apiGroups"),
            resources: list("resources"),
            names: list("resourceNames"),
            urls: list("nonResourceURLs"),
        }
    }

    pub(super) fn to_json(&self) -> Value {
        let mut rule = Map::new();
        rule.insert("verbs".to_owned(), Value::from(self.verbs.clone()));
        for (field, values) in [
            ("apiGroups", &self.groups),
            ("resources", &self.resources),
            ("resourceNames", &self.names),
            ("nonResourceURLs", &self.urls),
        ] {
            if !values.is_empty() {
                rule.insert(field.to_owned(), Value::from(values.clone()));
            }
        }
        Value::Object(rule)
    }

    pub(super) fn allows(&self, wanted: &Attributes<'_>) -> bool {
        if !has_or_all(&self.verbs, wanted.verb) {
            return false;
        }
        if !wanted.is_resource {
            return self.urls.iter().any(|url| url_covers(url, wanted.path));
        }
        has_or_all(&self.groups, wanted.group)
            && self.resources.iter().any(|resource| resource_matches(resource, wanted))
            && (self.names.is_empty() || has(&self.names, wanted.name))
    }

    /// As error messages show a rule.
    pub(super) fn compact(&self) -> String {
        let fields = [
            ("APIGroups", &self.groups),
            ("Resources", &self.resources),
            ("NonResourceURLs", &self.urls),
            ("ResourceNames", &self.names),
            ("Verbs", &self.verbs),
        ];
        let said = fields.into_iter().filter(|(_, values)| !values.is_empty());
        let said: Vec<String> = said.map(|(field, values)| format!("{field}:{}", go_strings(values))).collect();
        format!("{{{}}}", said.join(", "))
    }
}

/// `pods`, `pods/status`, `*/scale` (that subresource of anything), `*` (everything).
fn resource_matches(rule: &str, wanted: &Attributes<'_>) -> bool {
    if rule == "*" {
        return true;
    }
    if wanted.subresource.is_empty() {
        return rule == wanted.resource;
    }
    let below = |resource| rule.strip_prefix(resource).and_then(|rest| rest.strip_prefix('/'));
    below(wanted.resource) == Some(wanted.subresource) || below("*") == Some(wanted.subresource)
}

/// The same URL, or one below a pattern that ends with `*`.
pub(super) fn url_covers(pattern: &str, url: &str) -> bool {
    pattern == url || (pattern.ends_with('*') && url.starts_with(pattern.trim_end_matches('*')))
}

pub(super) fn has(set: &[String], wanted: &str) -> bool {
    set.iter().any(|value| value == wanted)
}

pub(super) fn has_or_all(set: &[String], wanted: &str) -> bool {
    set.iter().any(|value| value == "*" || value == wanted)
}

/// A list of strings in JSON; null and absent are empty.
pub(super) fn strings(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// A list as Go's `%q` prints it.
pub(super) fn go_strings(values: &[String]) -> String {
    let quoted: Vec<String> = values.iter().map(|value| go_quote(value)).collect();
    format!("[{}]", quoted.join(" "))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn on<'a>(verb: &'a str, group: &'a str, resource: &'a str, name: &'a str) -> Attributes<'a> {
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        Attributes { is_resource: true, verb, group, resource, subresource, name, ..Attributes::default() }
    }

    #[test]
    fn resource_rules_match_as_upstreams() {
        let rule = |json: Value| Rule::from_json(&json);
        let pods = rule(json!({"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"]}));
        let log = rule(json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["pods/log"]}));
        let scale = rule(json!({"verbs": ["get"], "apiGroups": ["*"], "resources": ["*/scale"]}));
        let named =
            rule(json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["a", "b"]}));
        let all = rule(json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}));
        let table = [
            (&pods, on("get", "", "pods", "x"), true),
            (&pods, on("watch", "", "pods", "x"), false),
            (&pods, on("get", "apps", "pods", "x"), false),
            (&pods, on("get", "", "services", "x"), false),
            // A resource does not include its subresources.
            (&pods, on("get", "", "pods/log", "x"), false),
            (&log, on("get", "", "pods/log", "x"), true),
            (&log, on("get", "", "pods", "x"), false),
            (&scale, on("get", "apps", "deployments/scale", "x"), true),
            (&scale, on("get", "apps", "deployments/upscale", "x"), false),
            (&scale, on("get", "apps", "deployments", "x"), false),
            (&scale, on("get", "apps", "scale", "x"), false),
            // Reviews may put both into the resource.
            (&log, Attributes { resource: "pods/log", ..on("get", "", "", "x") }, true),
            (&named, on("get", "", "pods", "b"), true),
            (&named, on("get", "", "pods", "c"), false),
            // A list names no object, so names do not allow it.
            (&named, on("get", "", "pods", ""), false),
            (&all, on("escalate", "x", "y/z", ""), true),
        ];
        for (rule, wanted, allowed) in table {
            assert_eq!(rule.allows(&wanted), allowed, "{} on {wanted:?}", rule.compact());
        }
        assert!(!all.allows(&Attributes::path("get", "/healthz")), "resource rules say nothing about paths");
    }

    #[test]
    fn url_rules_match_as_upstreams() {
        let table = [
            ("/healthz", "/healthz", true),
            ("/healthz", "/healthz/ping", false),
            ("/healthz/*", "/healthz/ping", true),
            ("/healthz/*", "/healthz", false),
            ("/healthz*", "/healthzz", true),
            ("*", "/anything", true),
            ("/a*b", "/a*b", true),
            ("/a*b", "/axb", false),
        ];
        for (url, path, allowed) in table {
            let rule = Rule::from_json(&json!({"verbs": ["get"], "nonResourceURLs": [url]}));
            assert_eq!(rule.allows(&Attributes::path("get", path)), allowed, "{url} {path}");
            assert!(!rule.allows(&Attributes::path("post", path)), "{url} {path}");
        }
    }

    #[test]
    fn compact_form_reads_as_gos() {
        let rule = Rule::from_json(&json!({"verbs": ["get", "list"], "apiGroups": ["", "apps"], "resources": ["pods"],
            "resourceNames": null}));
        assert_eq!(rule.compact(), r#"{APIGroups:["" "apps"], Resources:["pods"], Verbs:["get" "list"]}"#);
        assert_eq!(Rule::from_json(&rule.to_json()), rule);
    }
}
