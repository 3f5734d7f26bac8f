//! Which requests a policy or binding is about.

use croft_meta::object;
use croft_meta::selector::LabelSelector;
use serde_json::Value;

use super::index::selector;
use super::request::{Form, Request};

/// `matchConstraints` of a policy, `matchResources` of a binding.
#[derive(Debug)]
pub(super) struct Criteria {
    /// `matchPolicy: Exact`: other groups and versions of the same objects do not count.
    is_exact: bool,
    rules: Vec<Rule>,
    excluded: Vec<Rule>,
    namespaces: LabelSelector,
    objects: LabelSelector,
}

#[derive(Debug)]
struct Rule {
    /// Names of objects; empty for all.
    names: Vec<String>,
    operations: Vec<String>,
    groups: Vec<String>,
    versions: Vec<String>,
    resources: Vec<String>,
    /// `*`, `Cluster`, `Namespaced`.
    scope: String,
}

impl Criteria {
    pub(super) fn parse(json: &Value) -> Self {
        let rules = |field: &str| json[field].as_array().into_iter().flatten().map(Rule::parse).collect();
        let select = |field: &str| json.get(field).map_or_else(LabelSelector::everything, selector);
        Self {
            is_exact: json["matchPolicy"] == "Exact",
            rules: rules("resourceRules"),
            excluded: rules("excludeResourceRules"),
            namespaces: select("namespaceSelector"),
            objects: select("objectSelector"),
        }
    }

    /// The form in which the request is meant; `None` if it is not.
    pub(super) fn matches<'a>(&self, request: &Request<'a>, object: &Value) -> Option<Form<'a>> {
        if self.find(&self.excluded, request).is_some() {
            return None;
        }
        let own = request.own_form();
        let form = if self.rules.is_empty() { Some(own) } else { self.find(&self.rules, request) }?;
        (self.selects_namespace(request, object) && self.selects_object(request, object)).then_some(form)
    }

    fn find<'a>(&self, rules: &[Rule], request: &Request<'a>) -> Option<Form<'a>> {
        let own = request.own_form();
        if rules.iter().any(|rule| rule.matches(request, own)) {
            return Some(own);
        }
        if self.is_exact {
            return None;
        }
        // Earlier rules come first, whatever the order of versions.
        rules.iter().find_map(|rule| request.other_forms().find(|form| rule.matches(request, *form)))
    }

    fn selects_namespace(&self, request: &Request<'_>, object: &Value) -> bool {
        if self.namespaces.is_everything() {
            return true;
        }
        if request.is_namespace() {
            // A namespace is selected by its own labels: those it will have, or had.
            let itself = if object.is_null() { request.old } else { object };
            return self.namespaces.matches_object(itself);
        }
        // What is not in a namespace is in none that could be left out.
        let namespace = request.namespace_object();
        namespace.is_null() || self.namespaces.matches_object(namespace)
    }

    fn selects_object(&self, request: &Request<'_>, object: &Value) -> bool {
        let selects = |object: &Value| !object.is_null() && self.objects.matches_object(object);
        self.objects.is_everything() || selects(object) || selects(request.old)
    }
}

impl Rule {
    fn parse(json: &Value) -> Self {
        let texts = |field: &str| {
            let list = json[field].as_array().into_iter().flatten();
            list.filter_map(|text| text.as_str().map(str::to_owned)).collect()
        };
        Self {
            names: texts("resourceNames"),
            operations: texts("operations"),
            groups: texts("apiGroups"),
            versions: texts("apiVersions"),
            resources: texts("resources"),
            scope: json["scope"].as_str().unwrap_or("*").to_owned(),
        }
    }

    fn matches(&self, request: &Request<'_>, form: Form<'_>) -> bool {
        let has = |list: &[String], wanted: &str| list.iter().any(|item| item == "*" || item == wanted);
        let is_namespaced = request.target.served.resource.is_namespaced();
        let in_scope = match self.scope.as_str() {
            "Namespaced" => is_namespaced,
            "Cluster" => !is_namespaced,
            _ => true,
        };
        let is_named = || {
            let name = request.name();
            self.names.is_empty() || self.names.iter().any(|wanted| *wanted == name)
        };
        in_scope
            && has(&self.operations, request.operation.name())
            && has(&self.groups, &form.resource.group)
            && has(&self.versions, form.version)
            && self
                .resources
                .iter()
                .any(|resource| is_resource(resource, &form.resource.names.plural, request.subresource))
            && is_named()
    }
}

/// `pods`, `pods/status`, `*/scale`, `*`, `*/*`.
fn is_resource(pattern: &str, plural: &str, below: &str) -> bool {
    let (resource, subresource) = pattern.split_once('/').unwrap_or((pattern, ""));
    (resource == "*" || resource == plural) && (subresource == "*" || subresource == below)
}

/// The name that a request is about: that of its path, or of the object it brings.
pub(super) fn name_of<'a>(path: &'a str, object: &'a Value) -> &'a str {
    if path.is_empty() { object::name(object) } else { path }
}
