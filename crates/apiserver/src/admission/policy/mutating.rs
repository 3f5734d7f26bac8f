//! Evaluates mutating policies: each in turn changes the object that the next one sees.

use std::collections::BTreeSet;

use croft_api::admission_policy::Mutation;
use croft_apply::PatchError;
use croft_apply::typed::{self, Duplicates, Node};
use croft_meta::status::{Cause, Details};
use croft_meta::{ApiError, Gvk};
use croft_schema::Schema;
use croft_schema::expression::{Budget, Evaluation, Inputs};
use serde_json::Value;

use super::index::{Binding, Hook, Policy};
use super::params;
use super::request::{Form, Request};
use crate::admission::authorizer::Caller;
use crate::admission::conditions;
use crate::{connections, prepare};

/// One policy, to be evaluated with one set of parameters.
struct Invocation<'a> {
    policy: &'a Policy,
    binding: &'a Binding,
    form: Form<'a>,
    params: Value,
}

/// Why a policy could not do its part.
struct Failure {
    message: String,
    /// It was found out while it was evaluated.
    is_invalid: bool,
}

/// Policies that were asked about an object, and want to be asked again if somebody changes it after them.
#[derive(Debug, Default)]
pub(crate) struct Reinvocable(BTreeSet<(String, String)>);

impl Reinvocable {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn note(&mut self, invocation: &Invocation<'_>) {
        if invocation.policy.is_reinvoked {
            self.0.insert(invocation.name());
        }
    }
}

/// What the policies make of an object, `None` if they leave it as it is; and which are to hear of what becomes of it.
pub(super) fn run(hooks: &[Hook], request: &Request<'_>) -> Result<(Option<Value>, Reinvocable), ApiError> {
    let mut failures = Vec::new();
    let invocations = invocations(hooks, request, &mut failures);
    let budget = Budget::default();
    let mut object = if invocations.is_empty() { Value::Null } else { request.object.clone() };
    let mut reinvocable = Reinvocable::default();
    // How often the object had changed when each was done with it.
    let mut seen = vec![0; invocations.len()];
    let mut changes = 0;
    for (invocation, seen) in invocations.iter().zip(&mut seen) {
        changes += usize::from(invocation.mutate(request, &mut object, &budget, &mut failures));
        *seen = changes;
        reinvocable.note(invocation);
    }
    // Those that want to see what later ones have made of it.
    for (invocation, seen) in invocations.iter().zip(seen) {
        if invocation.policy.is_reinvoked && seen < changes {
            invocation.mutate(request, &mut object, &budget, &mut failures);
        }
    }
    finish(request, &failures, changes > 0, object).map(|object| (object, reinvocable))
}

/// What those make of the object that want to see what others have made of it since they were asked.
pub(super) fn run_again(hooks: &[Hook], request: &Request<'_>, asked: &Reinvocable) -> Result<Option<Value>, ApiError> {
    let mut failures = Vec::new();
    let mut invocations = invocations(hooks, request, &mut failures);
    invocations.retain(|invocation| asked.0.contains(&invocation.name()));
    let (budget, mut object) = (Budget::default(), request.object.clone());
    let mut has_changed = false;
    for invocation in &invocations {
        has_changed |= invocation.mutate(request, &mut object, &budget, &mut failures);
    }
    finish(request, &failures, has_changed, object)
}

fn finish(
    request: &Request<'_>,
    failures: &[Failure],
    has_changed: bool,
    object: Value,
) -> Result<Option<Value>, ApiError> {
    if failures.is_empty() { Ok(has_changed.then_some(object)) } else { Err(error(request, failures)) }
}

fn invocations<'a>(hooks: &'a [Hook], request: &Request<'a>, failures: &mut Vec<Failure>) -> Vec<Invocation<'a>> {
    let mut invocations = Vec::new();
    for hook in hooks {
        let policy = &*hook.policy;
        let Some(form) = policy.criteria.matches(request, request.object) else { continue };
        let mut misconfigured = |binding: Option<&Binding>, why: &str| {
            if !policy.ignores_failures {
                failures.push(Failure { message: denied(policy, binding, why), is_invalid: false });
            }
        };
        let unseen = request.cannot_show(form);
        let kind = match (policy.broken.as_ref().or(unseen.as_ref()), params::kind(policy, request)) {
            (Some(why), _) => {
                misconfigured(None, &format!("failed to configure policy: {why}"));
                continue;
            }
            (None, Err(why)) => {
                misconfigured(None, &format!("failed to configure policy: {why}"));
                continue;
            }
            (None, Ok(kind)) => kind,
        };
        for binding in &hook.bindings {
            let is_meant = |criteria: &super::matching::Criteria| criteria.matches(request, request.object).is_some();
            if !binding.criteria.as_ref().is_none_or(is_meant) {
                continue;
            }
            match params::find(kind, binding, request) {
                Ok(found) => {
                    let with = |params| Invocation { policy, binding, form, params };
                    invocations.extend(found.into_iter().map(with));
                }
                Err(why) => misconfigured(Some(binding), &format!("failed to configure binding: {why}")),
            }
        }
    }
    invocations
}

/// What expressions see.
struct Shown {
    object: Value,
    old: Value,
    request: Value,
}

impl Invocation<'_> {
    fn name(&self) -> (String, String) {
        (self.policy.name.clone(), self.binding.name.clone())
    }

    /// Has it changed the object?
    fn mutate(&self, request: &Request<'_>, object: &mut Value, budget: &Budget, failures: &mut Vec<Failure>) -> bool {
        let mut failed = |why: &str| {
            if self.policy.ignores_failures {
                return;
            }
            request.call.server.metrics.mutation_failed(&self.policy.name, &self.binding.name);
            let message = denied(self.policy, Some(self.binding), why);
            failures.push(Failure { message, is_invalid: true });
        };
        match self.is_meant(request, object, budget) {
            Ok(true) => {}
            Ok(false) => return false,
            Err(why) => {
                failed(&why);
                return false;
            }
        }
        let before = object.clone();
        for mutation in &self.policy.compiled.mutations {
            match self.apply(mutation, request, object, budget) {
                Ok(patched) => *object = patched,
                Err(why) => failed(&why),
            }
        }
        *object != before
    }

    fn shown(&self, request: &Request<'_>, object: &Value) -> Shown {
        Shown {
            object: request.shown(object, self.form),
            old: request.shown(request.old, self.form),
            request: request.to_json(self.form),
        }
    }

    fn evaluation<'a>(
        &'a self,
        shown: &'a Shown,
        namespace: &'a Value,
        caller: &'a Caller<'a>,
        budget: &'a Budget,
    ) -> Evaluation<'a> {
        let inputs = Inputs {
            object: &shown.object,
            old_object: &shown.old,
            request: &shown.request,
            params: &self.params,
            namespace,
            authorizer: Some(caller),
            ..Inputs::default()
        };
        Evaluation::new(inputs, &self.policy.compiled.variables, budget)
    }

    fn is_meant(&self, request: &Request<'_>, object: &Value, budget: &Budget) -> Result<bool, String> {
        if self.policy.compiled.match_conditions.is_empty() {
            return Ok(true);
        }
        let (shown, caller) = (self.shown(request, object), request.caller());
        let evaluation = self.evaluation(&shown, request.namespace_object(), &caller, budget);
        conditions::hold(&self.policy.compiled.match_conditions, &evaluation)
    }

    /// The patched object.
    fn apply(
        &self,
        mutation: &Mutation,
        request: &Request<'_>,
        object: &Value,
        budget: &Budget,
    ) -> Result<Value, String> {
        let (shown, caller) = (self.shown(request, object), request.caller());
        let evaluation = self.evaluation(&shown, request.namespace_object(), &caller, budget);
        let mut patched = match mutation {
            Mutation::ApplyConfiguration(expression) => {
                let config = evaluation.object(expression).map_err(|fault| fault.of(expression))?;
                merged(request, self.form, &shown.object, config)?
            }
            Mutation::JsonPatch(expression) => {
                let patch = evaluation.json(expression).map_err(|fault| fault.of(expression))?;
                match croft_apply::json_patch::apply(&shown.object, patch.to_string().as_bytes()) {
                    Ok(patched) => patched,
                    // A test that does not hold means that there is nothing to do.
                    Err(PatchError::Rejected(why)) if why.ends_with("test failed") => return Ok(object.clone()),
                    Err(why) => return Err(format!("JSONPath: {why}")),
                }
            }
        };
        if request.sent_kind().is_some() {
            return Ok(patched);
        }
        crate::write::convert(&mut patched, request.target, &request.target.gvk());
        prepare::default(request.target, &mut patched);
        Ok(patched)
    }
}

/// An apply configuration laid over the object. Nothing is removed, and what is one value is not changed in parts.
fn merged(request: &Request<'_>, form: Form<'_>, object: &Value, mut config: Value) -> Result<Value, String> {
    for field in ["apiVersion", "kind"] {
        config[field] = object[field].clone();
    }
    let failed = |what: &str, why: String| format!("error applying patch: {what}: {why}");
    // Upstream publishes no schema of the options of a connection, and has nothing to merge them by.
    let published = |kind: &Gvk| croft_api::kind_schema(kind).filter(|_| !connections::is_options(kind));
    let sent = request.sent_kind().map(published);
    let schema: Option<&Schema> = match &sent {
        Some(sent) => sent.as_deref(),
        None => form.resource.version(form.version).map(|version| &*version.schema),
    };
    let schema = schema.ok_or_else(|| {
        let kind = request.sent_kind().cloned().unwrap_or_else(|| form.gvk());
        failed("failed to convert patch object to typed object", format!("no corresponding type for {kind}"))
    })?;
    let node = Node::root(schema);
    typed::validate(node, &config, Duplicates::Forbidden)
        .map_err(|why| failed("failed to convert patch object to typed object", why))?;
    let atomics = typed::atomics(node, &config);
    if !atomics.is_empty() {
        let why = format!("may not mutate atomic arrays, maps or structs: {}", atomics.join(", "));
        return Err(failed("invalid ApplyConfiguration", why));
    }
    Ok(typed::merge(node, object, &config))
}

fn denied(policy: &Policy, binding: Option<&Binding>, why: &str) -> String {
    let policy = &policy.name;
    match binding {
        Some(binding) => format!("policy '{policy}' with binding '{}' denied request: {why}", binding.name),
        None => format!("policy '{policy}' denied request: {why}"),
    }
}

fn error(request: &Request<'_>, failures: &[Failure]) -> ApiError {
    let first = failures.first();
    let reason = if first.is_some_and(|failure| failure.is_invalid) { "Invalid" } else { "Forbidden" };
    let cause =
        |failure: &Failure| Cause { reason: String::new(), message: failure.message.clone(), field: String::new() };
    ApiError::new(403, reason, first.map_or("", |failure| &failure.message)).with_details(Details {
        name: request.name().to_owned(),
        group: request.target.group().to_owned(),
        kind: request.target.plural().to_owned(),
        causes: failures.iter().map(cause).collect(),
        ..Details::default()
    })
}
