//! Policies, compiled, each with its bindings.

use std::collections::HashMap;
use std::sync::Arc;

use croft_api::admission_policy::CompiledPolicy;
use croft_meta::field::join_errors;
use croft_meta::selector::LabelSelector;
use croft_meta::{Gvk, Revision};
use serde_json::Value;

use super::GROUP;
use super::matching::Criteria;
use crate::cache::{Cache, Collection, Object};

/// The stored objects that decide: policies and bindings that validate, policies and bindings that mutate.
#[derive(Debug)]
pub(super) struct Sources([Arc<Collection>; 4]);

impl Sources {
    pub(super) fn of(cache: &Cache) -> Self {
        let collection = |plural: &str| cache.collection(&format!("{GROUP}/{plural}"));
        Self([
            collection("validatingadmissionpolicies"),
            collection("validatingadmissionpolicybindings"),
            collection("mutatingadmissionpolicies"),
            collection("mutatingadmissionpolicybindings"),
        ])
    }

    pub(super) fn changed_at(&self) -> [Revision; 4] {
        let [a, b, c, d] = &self.0;
        [a.changed_at(), b.changed_at(), c.changed_at(), d.changed_at()]
    }
}

/// What was compiled, by name. Policies that did not change are not compiled again.
type Known = HashMap<Box<str>, (Revision, Arc<Policy>)>;

#[derive(Debug, Default)]
pub(super) struct Index {
    changed_at: [Revision; 4],
    known_validating: Known,
    known_mutating: Known,
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
    pub(super) fn is_of(&self, changed_at: &[Revision; 4]) -> bool {
        self.changed_at == *changed_at
    }

    pub(super) fn build(sources: &Sources, changed_at: [Revision; 4], previous: &Self) -> Self {
        let [validating, validating_bindings, mutating, mutating_bindings] = &sources.0;
        let known_validating = compile(&validating.list(""), &previous.known_validating);
        let known_mutating = compile(&mutating.list(""), &previous.known_mutating);
        Self {
            changed_at,
            validating: hooks(&known_validating, &validating_bindings.list("")),
            mutating: hooks(&known_mutating, &mutating_bindings.list("")),
            known_validating,
            known_mutating,
        }
    }
}

fn compile(objects: &[Arc<Object>], previous: &Known) -> Known {
    let entry = |object: &Arc<Object>| {
        let known = previous.get(object.id()).filter(|(revision, _)| *revision == object.revision);
        let policy = known.map_or_else(|| Arc::new(Policy::parse(&object.json())), |(_, known)| Arc::clone(known));
        (Box::from(object.id()), (object.revision, policy))
    };
    objects.iter().map(entry).collect()
}

/// The policies that have bindings, in the order of their names.
fn hooks(policies: &Known, bindings: &[Arc<Object>]) -> Vec<Hook> {
    let mut hooks: Vec<Hook> = Vec::new();
    for binding in bindings {
        let json = binding.json();
        let Some((_, policy)) = json["spec"]["policyName"].as_str().and_then(|name| policies.get(name)) else {
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

impl Policy {
    fn parse(json: &Value) -> Self {
        let (compiled, errors) = CompiledPolicy::compile(json);
        let param_kind = json["spec"].get("paramKind").filter(|kind| kind.is_object());
        Self {
            name: text(json, "/metadata/name"),
            ignores_failures: json["spec"]["failurePolicy"] == "Ignore",
            criteria: Criteria::parse(&json["spec"]["matchConstraints"]),
            param_kind: param_kind.map(|kind| {
                let api_version = text(kind, "/apiVersion");
                let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
                Gvk::new(group, version, text(kind, "/kind"))
            }),
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
