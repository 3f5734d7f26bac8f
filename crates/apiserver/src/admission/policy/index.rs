//! Policies, compiled, each with its bindings.

use std::sync::Arc;

use croft_api::admission_policy::CompiledPolicy;
use croft_meta::Gvk;
use croft_meta::field::join_errors;
use croft_meta::selector::LabelSelector;
use serde_json::Value;

use super::matching::Criteria;
use crate::cache::{Collection, Object, Parsed};

/// The stored objects that decide.
pub(super) const SOURCES: [&str; 4] = [
    "validatingadmissionpolicies",
    "validatingadmissionpolicybindings",
    "mutatingadmissionpolicies",
    "mutatingadmissionpolicybindings",
];

#[derive(Debug, Default)]
pub(super) struct Index {
    known_validating: Parsed<Policy>,
    known_mutating: Parsed<Policy>,
    pub(super) validating: Vec<Hook>,
    pub(super) mutating: Vec<Hook>,
}

/// A policy that is in force somewhere.
#[derive(Debug)]
pub(super) struct Hook {
    pub(super) policy: Arc<Policy>,
    pub(super) bindings: Vec<Binding>,
}

#[derive(Debug)]
pub(super) struct Policy {
    pub(super) name: String,
    /// `failurePolicy: Ignore`.
    pub(super) ignores_failures: bool,
    pub(super) criteria: Criteria,
    pub(super) param_kind: Option<Gvk>,
    pub(super) compiled: CompiledPolicy,
    /// Why it cannot be evaluated: it was stored by a server that knew more.
    pub(super) broken: Option<String>,
    /// `reinvocationPolicy: IfNeeded`.
    pub(super) is_reinvoked: bool,
}

#[derive(Debug)]
pub(super) struct Binding {
    pub(super) name: String,
    pub(super) criteria: Option<Criteria>,
    pub(super) param_ref: Option<ParamRef>,
    /// `Deny`, `Warn`, `Audit`.
    pub(super) actions: Vec<String>,
}

#[derive(Debug)]
pub(super) struct ParamRef {
    pub(super) name: String,
    pub(super) namespace: String,
    pub(super) selector: Option<LabelSelector>,
    /// `parameterNotFoundAction: Deny`.
    pub(super) must_exist: bool,
}

impl Index {
    pub(super) fn build(sources: [&Collection; SOURCES.len()], previous: &Self) -> Self {
        let [validating, validating_bindings, mutating, mutating_bindings] = sources.map(|of| of.list(""));
        let known_validating = Parsed::of(&validating, &previous.known_validating, Policy::read);
        let known_mutating = Parsed::of(&mutating, &previous.known_mutating, Policy::read);
        Self {
            validating: hooks(&known_validating, &validating_bindings),
            mutating: hooks(&known_mutating, &mutating_bindings),
            known_validating,
            known_mutating,
        }
    }
}

/// The policies that have bindings, in the order of their names.
fn hooks(policies: &Parsed<Policy>, bindings: &[Arc<Object>]) -> Vec<Hook> {
    let mut hooks: Vec<Hook> = Vec::new();
    for binding in bindings {
        let json = binding.json();
        let Some(policy) = json["spec"]["policyName"].as_str().and_then(|name| policies.get(name)) else {
            continue;
        };
        let binding = Binding::parse(&json);
        match hooks.iter_mut().find(|hook| Arc::ptr_eq(&hook.policy, policy)) {
            Some(hook) => hook.bindings.push(binding),
            None => hooks.push(Hook { policy: Arc::clone(policy), bindings: vec![binding] }),
        }
    }
    hooks.sort_by(|a, b| a.policy.name.cmp(&b.policy.name));
    hooks
}

fn text(json: &Value, pointer: &str) -> String {
    json.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// The kind of a policy's parameters, if it has some.
pub(super) fn param_kind(policy: &Value) -> Option<Gvk> {
    let kind = policy["spec"].get("paramKind").filter(|kind| kind.is_object())?;
    let api_version = text(kind, "/apiVersion");
    let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
    Some(Gvk::new(group, version, text(kind, "/kind")))
}

impl Policy {
    fn read(object: &Object) -> Self {
        Self::parse(&object.json())
    }

    fn parse(json: &Value) -> Self {
        let (compiled, errors) = CompiledPolicy::compile(json);
        Self {
            name: text(json, "/metadata/name"),
            ignores_failures: json["spec"]["failurePolicy"] == "Ignore",
            criteria: Criteria::parse(&json["spec"]["matchConstraints"]),
            param_kind: param_kind(json),
            compiled,
            broken: (!errors.is_empty()).then(|| join_errors(&errors)),
            is_reinvoked: json["spec"]["reinvocationPolicy"] == "IfNeeded",
        }
    }
}

impl Binding {
    fn parse(json: &Value) -> Self {
        let spec = &json["spec"];
        let present = |field: &str| spec.get(field).filter(|value| value.is_object());
        let actions = spec["validationActions"].as_array().into_iter().flatten();
        Self {
            name: text(json, "/metadata/name"),
            criteria: present("matchResources").map(Criteria::parse),
            param_ref: present("paramRef").map(|reference| ParamRef {
                name: text(reference, "/name"),
                namespace: text(reference, "/namespace"),
                selector: reference.get("selector").filter(|selector| selector.is_object()).map(selector),
                must_exist: reference["parameterNotFoundAction"] == "Deny",
            }),
            actions: actions.filter_map(|action| action.as_str().map(str::to_owned)).collect(),
        }
    }
}

/// Selectors were checked when they were stored; one that cannot be understood selects nothing.
pub(super) fn selector(json: &Value) -> LabelSelector {
    LabelSelector::from_json(json).unwrap_or_else(|_| LabelSelector::nothing())
}
