//! One webhook of a configuration.

use std::sync::Arc;
use std::time::Duration;

use croft_meta::selector::LabelSelector;
use croft_meta::{Gvk, Gvr};
use croft_schema::expression::{Expression, Names, Wants};
use serde_json::Value;

use super::Operation;
use super::remote::Remote;
use super::rule::{Asked, Rule};
use crate::call::Target;
use crate::catalog::Catalog;

/// What a webhook that says nothing else is given to answer.
const TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Mutating,
    Validating,
}

impl Stage {
    /// As metrics label it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Mutating => "admit",
            Self::Validating => "validating",
        }
    }
}

/// The form of the review that a webhook reads and writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReviewVersion {
    V1,
    V1Beta1,
}

impl ReviewVersion {
    pub(super) fn api_version(self) -> &'static str {
        match self {
            Self::V1 => "admission.k8s.io/v1",
            Self::V1Beta1 => "admission.k8s.io/v1beta1",
        }
    }
}

#[derive(Debug)]
pub(super) struct Hook {
    pub(super) stage: Stage,
    pub(super) configuration: String,
    pub(super) name: String,
    pub(super) remote: Remote,
    rules: Vec<Rule>,
    matches_equivalents: bool,
    pub(super) namespaces: LabelSelector,
    pub(super) objects: LabelSelector,
    /// What does not compile was refused when the configuration was written; stored by others, it never matches.
    pub(super) conditions: Result<Vec<Expression>, String>,
    pub(super) fails_open: bool,
    pub(super) has_side_effects: bool,
    pub(super) is_reinvoked: bool,
    pub(super) timeout: Duration,
    pub(super) review: ReviewVersion,
}

impl Hook {
    pub(super) fn parse(configuration: &str, hook: &Value, stage: Stage) -> Self {
        let text = |field: &str| hook[field].as_str().unwrap_or_default();
        // An absent selector is an empty one. One that cannot be read was refused when it was written.
        let selector = |field: &str| match &hook[field] {
            Value::Null => LabelSelector::everything(),
            selector => LabelSelector::from_json(selector).unwrap_or_else(|_| LabelSelector::nothing()),
        };
        let list = |field: &str| hook[field].as_array().into_iter().flatten();
        let condition = |condition: &Value| {
            let source = condition["expression"].as_str().unwrap_or_default().trim();
            Expression::compile(source, &Names::WEBHOOK_CONDITION, Wants::Bool)
        };
        let review = list("admissionReviewVersions").find_map(|version| match version.as_str() {
            Some("v1") => Some(ReviewVersion::V1),
            Some("v1beta1") => Some(ReviewVersion::V1Beta1),
            _ => None,
        });
        Self {
            stage,
            configuration: configuration.to_owned(),
            name: text("name").to_owned(),
            remote: Remote::new(&hook["clientConfig"]),
            rules: list("rules").map(Rule::parse).collect(),
            matches_equivalents: text("matchPolicy") != "Exact",
            namespaces: selector("namespaceSelector"),
            objects: selector("objectSelector"),
            conditions: list("matchConditions").map(condition).collect(),
            fails_open: text("failurePolicy") == "Ignore",
            has_side_effects: !matches!(text("sideEffects"), "None" | "NoneOnDryRun"),
            is_reinvoked: text("reinvocationPolicy") == "IfNeeded",
            timeout: hook["timeoutSeconds"].as_u64().map_or(TIMEOUT, Duration::from_secs),
            review: review.unwrap_or(ReviewVersion::V1),
        }
    }
}

/// A hook whose rules match a request, and the resource and kind that it is to see the object as.
#[derive(Clone, Debug)]
pub(super) struct Chosen {
    pub(super) hook: Arc<Hook>,
    pub(super) resource: Gvr,
    /// `None` for the kind that the request is about.
    pub(super) kind: Option<Gvk>,
}

impl Chosen {
    pub(super) fn find(hook: &Arc<Hook>, catalog: &Catalog, target: &Target, operation: Operation) -> Option<Self> {
        let own = target.served.resource.gvr(&target.served.version().name);
        let (subresource, is_namespaced) = (target.subresource.as_str(), !target.namespace.is_empty());
        let matches =
            |rule: &Rule, resource: &Gvr| rule.matches(Asked { operation, resource, subresource, is_namespaced });
        if hook.rules.iter().any(|rule| matches(rule, &own)) {
            return Some(Self { hook: Arc::clone(hook), resource: own, kind: None });
        }
        if !hook.matches_equivalents {
            return None;
        }
        let equivalents = equivalents(catalog, target, &own);
        // Earlier rules come first, whatever the order of versions.
        let found = hook.rules.iter().find_map(|rule| equivalents.iter().find(|(other, _)| matches(rule, other)));
        let (resource, kind) = found?.clone();
        // Of a subresource with a kind of its own there is but one form.
        Some(Self { hook: Arc::clone(hook), resource, kind: shows_object(target).then_some(kind) })
    }
}

/// Is what a subresource takes the object itself?
fn shows_object(target: &Target) -> bool {
    let subresources = &target.served.version().subresources;
    let below = subresources.iter().find(|below| below.name == target.subresource);
    below.is_none_or(|below| below.kind.kind == target.served.kind())
}

/// The other groups and versions under which the same objects are served.
fn equivalents(catalog: &Catalog, target: &Target, own: &Gvr) -> Vec<(Gvr, Gvk)> {
    let same = catalog.resources().iter().filter(|resource| resource.storage_key == target.storage_key());
    let all = same.flat_map(|resource| {
        resource.versions.iter().map(move |version| (resource.gvr(&version.name), resource.gvk(&version.name)))
    });
    all.filter(|(resource, _)| resource != own).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_left_out_has_upstreams_defaults() {
        let hook = Hook::parse("c", &json!({"name": "a.b.c", "sideEffects": "None"}), Stage::Mutating);
        assert!(!hook.fails_open && !hook.has_side_effects && !hook.is_reinvoked && hook.matches_equivalents);
        assert_eq!(hook.timeout, Duration::from_secs(10));
        assert!(hook.namespaces.is_everything() && hook.objects.is_everything());
        assert!(hook.conditions.as_ref().is_ok_and(Vec::is_empty));
    }

    #[test]
    fn the_first_known_review_version_is_used() {
        let of =
            |versions: Value| Hook::parse("c", &json!({"admissionReviewVersions": versions}), Stage::Mutating).review;
        assert_eq!(of(json!(["v9", "v1beta1", "v1"])), ReviewVersion::V1Beta1);
        assert_eq!(of(json!(["v1", "v1beta1"])), ReviewVersion::V1);
    }
}
