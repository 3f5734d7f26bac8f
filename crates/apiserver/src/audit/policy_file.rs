//! The file of `--audit-policy-file`: read as a whole, with every mistake named by its path, before the server starts.

use croft_meta::field::join_errors;
use croft_meta::{FieldError, FieldPath, names};
use serde_json::{Map, Value};

use super::event::Stage;
use super::rules::{GroupResources, Level, Rule, Rules};
use crate::config_reader::Reader;

const API_VERSION: &str = "audit.k8s.io/v1";
const STAGES: [&str; 4] = ["Panic", "RequestReceived", "ResponseComplete", "ResponseStarted"];

#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    #[error("it is no YAML: {0}")]
    Yaml(String),
    #[error("it is no policy of {API_VERSION}: its apiVersion is {api_version:?}, its kind {kind:?}")]
    Kind { api_version: String, kind: String },
    #[error("it has no rules; --audit-log-path=off keeps no audit log")]
    NoRules,
    #[error("{0}")]
    Fields(String),
}

impl Rules {
    /// Reads a policy, in YAML or JSON.
    pub fn parse(text: &str) -> Result<Self, PolicyError> {
        parse(text)
    }
}

pub(super) fn parse(text: &str) -> Result<Rules, PolicyError> {
    let document: Value = serde_saphyr::from_str(text).map_err(|error| PolicyError::Yaml(error.to_string()))?;
    let said = |field: &str| document[field].as_str().unwrap_or_default().to_owned();
    let (api_version, kind) = (said("apiVersion"), said("kind"));
    if (api_version.as_str(), kind.as_str()) != (API_VERSION, "Policy") {
        return Err(PolicyError::Kind { api_version, kind });
    }
    let mut reader = Reader::default();
    let rules = reader.policy(&document);
    if !reader.errors.is_empty() {
        return Err(PolicyError::Fields(join_errors(&reader.errors)));
    }
    if rules.list.is_empty() { Err(PolicyError::NoRules) } else { Ok(rules) }
}

impl Reader {
    fn policy(&mut self, document: &Value) -> Rules {
        let root = FieldPath::root();
        let known = ["apiVersion", "kind", "metadata", "rules", "omitStages", "omitManagedFields"];
        let Some(fields) = self.fields(&root, document, &known) else { return Rules::default() };
        let omit_stages = self.stages(&root, fields);
        let omit_managed_fields = self.flag(&root, fields, "omitManagedFields").unwrap_or_default();
        let path = root.child("rules");
        let list = self.list(&path, fields.get("rules"));
        let rules = list.iter().enumerate().filter_map(|(at, rule)| self.rule(&path.index(at), rule)).collect();
        Rules { list: rules, omit_stages, omit_managed_fields }
    }

    fn rule(&mut self, path: &FieldPath, value: &Value) -> Option<Rule> {
        let known = [
            "level",
            "users",
            "userGroups",
            "verbs",
            "resources",
            "namespaces",
            "nonResourceURLs",
            "omitStages",
            "omitManagedFields",
        ];
        let fields = self.fields(path, value, &known)?;
        let level = self.level(&path.child("level"), fields.get("level"));
        let resources = self.resources(&path.child("resources"), fields.get("resources"));
        let namespaces = self.texts(path, fields, "namespaces");
        let non_resource_urls = self.texts(path, fields, "nonResourceURLs");
        self.check_urls(&path.child("nonResourceURLs"), &non_resource_urls);
        if !non_resource_urls.is_empty() && (!resources.is_empty() || !namespaces.is_empty()) {
            let why = "rules cannot apply to both regular resources and non-resource URLs";
            self.errors.push(FieldError::invalid(&path.child("nonResourceURLs"), non_resource_urls.clone(), why));
        }
        Some(Rule {
            users: self.texts(path, fields, "users"),
            user_groups: self.texts(path, fields, "userGroups"),
            verbs: self.texts(path, fields, "verbs"),
            omit_stages: self.stages(path, fields),
            omit_managed_fields: self.flag(path, fields, "omitManagedFields"),
            level: level?,
            resources,
            namespaces,
            non_resource_urls,
        })
    }

    fn level(&mut self, path: &FieldPath, value: Option<&Value>) -> Option<Level> {
        let Some(value) = value.filter(|value| !value.is_null() && *value != "") else {
            self.errors.push(FieldError::required(path, ""));
            return None;
        };
        let level = value.as_str().and_then(Level::parse);
        if level.is_none() {
            self.errors.push(FieldError::not_supported(path, value.clone(), &Level::NAMES));
        }
        level
    }

    fn resources(&mut self, path: &FieldPath, value: Option<&Value>) -> Vec<GroupResources> {
        let list = self.list(path, value);
        list.iter().enumerate().filter_map(|(at, one)| self.group(&path.index(at), one)).collect()
    }

    fn group(&mut self, path: &FieldPath, value: &Value) -> Option<GroupResources> {
        let fields = self.fields(path, value, &["group", "resources", "resourceNames"])?;
        let group = self.text(&path.child("group"), fields.get("group"));
        // Group names may be empty, for the core group.
        for why in if group.is_empty() { Vec::new() } else { names::is_dns1123_subdomain(&group) } {
            self.errors.push(FieldError::invalid(&path.child("group"), group.clone(), why));
        }
        let resources = self.texts(path, fields, "resources");
        for (at, resource) in resources.iter().enumerate() {
            if resource.matches('/').count() > 1 {
                let why = "a resource and a subresource are separated by one slash";
                self.errors.push(FieldError::invalid(&path.child("resources").index(at), resource.clone(), why));
            }
        }
        let resource_names = self.texts(path, fields, "resourceNames");
        if resources.is_empty() && !resource_names.is_empty() {
            let why = "using resourceNames requires at least one resource";
            self.errors.push(FieldError::invalid(&path.child("resourceNames"), resource_names.clone(), why));
        }
        Some(GroupResources { group, resources, resource_names })
    }

    fn check_urls(&mut self, path: &FieldPath, urls: &[String]) {
        for (at, url) in urls.iter().enumerate().filter(|(_, url)| *url != "*") {
            let why = if !url.starts_with('/') {
                "non-resource URL rules must begin with a '/' character"
            } else if url.strip_suffix('*').unwrap_or(url).contains('*') {
                "non-resource URL wildcards '*' must be the final character of the rule"
            } else {
                continue;
            };
            self.errors.push(FieldError::invalid(&path.index(at), url.clone(), why));
        }
    }

    fn stages(&mut self, path: &FieldPath, fields: &Map<String, Value>) -> Vec<Stage> {
        let path_of = path.child("omitStages");
        let mut found = Vec::new();
        for (at, name) in self.texts(path, fields, "omitStages").into_iter().enumerate() {
            match Stage::parse(&name) {
                Some(stage) => found.push(stage),
                None => self.errors.push(FieldError::not_supported(&path_of.index(at), name, &STAGES)),
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistakes_are_named_by_their_path() {
        let head = "apiVersion: audit.k8s.io/v1\nkind: Policy\n";
        for (text, expected) in [
            ("rules: [", "it is no YAML"),
            ("apiVersion: v1\nkind: Policy\nrules: [{level: None}]", "its apiVersion is \"v1\""),
            ("hello", "it is no policy"),
            (&*head.to_owned(), "it has no rules"),
            (&*format!("{head}rules: []"), "it has no rules"),
            (&*format!("{head}rules: [{{}}]"), "rules[0].level: Required value"),
            (
                &*format!("{head}rules: [{{level: Loud}}]"),
                "rules[0].level: Unsupported value: \"Loud\": supported values: \"Metadata\", \"None\"",
            ),
            (
                &*format!("{head}rules: [{{level: None, user: [a]}}]"),
                "rules[0].user: Forbidden: there is no such field",
            ),
            (
                &*format!("{head}rules: [{{level: None, users: a}}]"),
                "rules[0].users: Invalid value: \"a\": must be a list",
            ),
            (
                &*format!("{head}rules: [{{level: None, users: [1]}}]"),
                "rules[0].users[0]: Invalid value: 1: must be a string",
            ),
            (
                &*format!("{head}omitStages: [Late]\nrules: [{{level: None}}]"),
                "omitStages[0]: Unsupported value: \"Late\"",
            ),
            (
                &*format!("{head}rules: [{{level: None}}, {{level: None, nonResourceURLs: [x]}}]"),
                "rules[1].nonResourceURLs[0]: Invalid value: \"x\": non-resource URL rules must begin with a '/'",
            ),
            (&*format!("{head}rules: [{{level: None, nonResourceURLs: ['/a*b']}}]"), "must be the final character"),
            (&*format!("{head}rules: [{{level: None, nonResourceURLs: ['/*ä']}}]"), "must be the final character"),
            (
                &*format!("{head}rules: [{{level: None, nonResourceURLs: ['/a'], namespaces: [b]}}]"),
                "rules cannot apply to both regular resources and non-resource URLs",
            ),
            (
                &*format!("{head}rules: [{{level: None, resources: [{{resourceNames: [b]}}]}}]"),
                "rules[0].resources[0].resourceNames: Invalid value: ",
            ),
            (
                &*format!("{head}rules: [{{level: None, resources: [{{group: 'a/b'}}]}}]"),
                "rules[0].resources[0].group: Invalid value: \"a/b\"",
            ),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
        assert!(parse(&format!("{head}rules: [{{level: None, nonResourceURLs: ['/ä', '/ä*', '/']}}]")).is_ok());
        let two = format!("{head}rules: [{{level: Loud}}, {{level: None, omitManagedFields: maybe}}]");
        let error = parse(&two).unwrap_err().to_string();
        assert!(error.contains("rules[0].level") && error.contains("rules[1].omitManagedFields"), "{error}");
    }
}
