//! Evaluates validating policies, and words what they find.

use std::collections::BTreeMap;

use croft_api::admission_policy::Validation;
use croft_meta::ApiError;
use croft_meta::status::{Cause, Details};
use croft_schema::expression::{Budget, Evaluation, Inputs};
use serde_json::{Value, json};

use super::index::{Binding, Hook, Policy};
use super::params;
use super::request::{Form, Request};
use crate::admission::conditions;

const FAILURE: &str = "validation.policy.admission.k8s.io/validation_failure";
const LONGEST_MESSAGE: usize = 5 << 10;

/// What a policy has against a request.
#[derive(Debug)]
struct Decision {
    /// The place of the validation in its policy.
    index: usize,
    message: String,
    /// Empty if there is none but that it failed.
    reason: String,
}

/// A decision that ends the request.
struct Denial<'a> {
    policy: &'a Policy,
    binding: Option<&'a Binding>,
    message: String,
    reason: String,
}

/// Values of audit annotations, by key; several if bindings disagree.
type Annotations = BTreeMap<String, Vec<String>>;

pub(super) fn run(hooks: &[Hook], request: &Request<'_>) -> Result<(), ApiError> {
    let budget = Budget::default();
    let mut denials = Vec::new();
    // Most policies see the request in the same form: it is made once for all of them.
    let mut subjects: Vec<Subject<'_>> = Vec::new();
    for hook in hooks {
        let Some(form) = hook.policy.criteria.matches(request, request.object) else { continue };
        let known = subjects.iter().position(|subject| subject.form.is(form));
        let at = known.unwrap_or_else(|| {
            subjects.push(Subject::of(request, form));
            subjects.len() - 1
        });
        one(hook, &subjects[at], request, &budget, &mut denials);
    }
    denials.first().map_or(Ok(()), |denial| Err(denial.error(request)))
}

fn one<'a>(
    hook: &'a Hook,
    subject: &Subject<'_>,
    request: &Request<'_>,
    budget: &Budget,
    denials: &mut Vec<Denial<'a>>,
) {
    let policy = &*hook.policy;
    let misconfigured = |binding: Option<&'a Binding>, why: &str| {
        let what = if binding.is_some() { "binding" } else { "policy" };
        let message = format!("failed to configure {what}: {why}");
        (!policy.ignores_failures).then(|| Denial { policy, binding, message, reason: String::new() })
    };
    if let Some(why) = policy.broken.as_ref().or(request.cannot_show(subject.form).as_ref()) {
        return denials.extend(misconfigured(None, why));
    }
    let kind = match params::kind(policy, request) {
        Ok(kind) => kind,
        Err(why) => return denials.extend(misconfigured(None, &why)),
    };
    let mut annotations = Annotations::new();
    for binding in &hook.bindings {
        let is_meant = |criteria: &super::matching::Criteria| criteria.matches(request, request.object).is_some();
        if !binding.criteria.as_ref().is_none_or(is_meant) {
            continue;
        }
        let found = match params::find(kind, binding, request) {
            Ok(found) => found,
            Err(why) => {
                denials.extend(misconfigured(Some(binding), &why));
                continue;
            }
        };
        for params in &found {
            let evaluated = Evaluated::of(policy, subject, params, request, budget, &mut annotations);
            let reasons = enforce(policy, binding, evaluated.decisions, request);
            let failed = evaluated.failed_annotations.into_iter().map(|message| (message, String::new()));
            for (message, reason) in reasons.into_iter().chain(failed) {
                denials.push(Denial { policy, binding: Some(binding), message, reason });
            }
        }
    }
    for (key, values) in annotations {
        request.call.trail.annotated(format!("{}/{key}", policy.name), values.join(", "));
    }
}

/// Does what the binding wants done about each decision; returns those that deny the request.
fn enforce(
    policy: &Policy,
    binding: &Binding,
    decisions: Vec<Decision>,
    request: &Request<'_>,
) -> Vec<(String, String)> {
    let mut denied = Vec::new();
    for Decision { index, message, reason } in decisions {
        for action in &binding.actions {
            let done = match action.as_str() {
                "Deny" => "deny",
                "Warn" => "warn",
                _ => "audit",
            };
            request.call.server.metrics.policy_objected(&policy.name, &binding.name, done, reason.is_empty());
            match action.as_str() {
                "Deny" => denied.push((message.clone(), reason.clone())),
                "Warn" => request.call.warn(format!(
                    "Validation failed for ValidatingAdmissionPolicy '{}' with binding '{}': {message}",
                    policy.name, binding.name
                )),
                _ => {
                    let failure = json!([{
                        "message": message, "policy": policy.name, "binding": binding.name,
                        "expressionIndex": index, "validationActions": binding.actions,
                    }]);
                    request.call.trail.annotated(FAILURE.to_owned(), failure.to_string());
                }
            }
        }
    }
    denied
}

/// What expressions see of a request.
struct Subject<'a> {
    form: Form<'a>,
    object: Value,
    old: Value,
    request: Value,
}

impl<'a> Subject<'a> {
    fn of(request: &Request<'a>, form: Form<'a>) -> Self {
        let shown = |object| request.shown(object, form);
        Self { form, object: shown(request.object), old: shown(request.old), request: request.to_json(form) }
    }
}

#[derive(Default)]
struct Evaluated {
    decisions: Vec<Decision>,
    failed_annotations: Vec<String>,
}

impl Evaluated {
    fn of(
        policy: &Policy,
        subject: &Subject<'_>,
        params: &Value,
        request: &Request<'_>,
        budget: &Budget,
        annotations: &mut Annotations,
    ) -> Self {
        let caller = request.caller();
        let inputs = Inputs {
            object: &subject.object,
            old_object: &subject.old,
            request: &subject.request,
            params,
            namespace: request.namespace_object(),
            authorizer: Some(&caller),
            ..Inputs::default()
        };
        let evaluation = Evaluation::new(inputs, &policy.compiled.variables, budget);
        let mut evaluated = Self::default();
        match conditions::hold(&policy.compiled.match_conditions, &evaluation) {
            Ok(true) => {}
            Ok(false) => return evaluated,
            Err(_) if policy.ignores_failures => return evaluated,
            Err(message) => {
                evaluated.decisions.push(Decision { index: 0, message, reason: String::new() });
                return evaluated;
            }
        }
        for (index, validation) in policy.compiled.validations.iter().enumerate() {
            match evaluation.truth(&validation.expression) {
                Ok(true) => {}
                Ok(false) => {
                    let message = message(validation, &evaluation);
                    let reason = if validation.reason.is_empty() { "Invalid" } else { &validation.reason };
                    evaluated.decisions.push(Decision { index, message, reason: reason.to_owned() });
                }
                Err(_) if policy.ignores_failures => {}
                Err(fault) => {
                    let message = fault.of(&validation.expression);
                    evaluated.decisions.push(Decision { index, message, reason: String::new() });
                }
            }
        }
        for (key, expression) in &policy.compiled.audit_annotations {
            match evaluation.text(expression) {
                Ok(value) => {
                    let value = value.unwrap_or_default().trim().to_owned();
                    let values = annotations.entry(key.clone()).or_default();
                    if !value.is_empty() && !values.contains(&value) {
                        values.push(value);
                    }
                }
                Err(_) if policy.ignores_failures => {}
                Err(fault) => evaluated.failed_annotations.push(fault.of(expression)),
            }
        }
        annotations.retain(|_, values| !values.is_empty());
        evaluated
    }
}

/// What the policy's author has to say, or else the expression itself.
fn message<'a>(validation: &'a Validation, evaluation: &Evaluation<'a>) -> String {
    let own = validation.message_expression.as_ref().and_then(|expression| evaluation.text(expression).ok().flatten());
    let own = own.map(|text| text.trim().to_owned());
    let is_good = |text: &String| !text.is_empty() && text.len() <= LONGEST_MESSAGE && !text.contains('\n');
    own.filter(is_good).unwrap_or_else(|| match validation.message.as_str() {
        "" => format!("failed expression: {}", validation.expression.source().trim()),
        message => message.to_owned(),
    })
}

impl Denial<'_> {
    fn error(&self, request: &Request<'_>) -> ApiError {
        let policy = &self.policy.name;
        let message = match self.binding {
            Some(binding) => format!(
                "ValidatingAdmissionPolicy '{policy}' with binding '{}' denied request: {}",
                binding.name, self.message
            ),
            None => format!("ValidatingAdmissionPolicy '{policy}' denied request: {}", self.message),
        };
        let (code, reason) = match self.reason.as_str() {
            "Forbidden" => (403, "Forbidden"),
            "Unauthorized" => (401, "Unauthorized"),
            "RequestEntityTooLarge" => (413, "RequestEntityTooLarge"),
            _ => (422, "Invalid"),
        };
        let (group, plural, name) = (request.target.group(), request.target.plural(), request.name());
        let forbidden = ApiError::forbidden(group, plural, name, &message);
        let cause = Cause { reason: String::new(), message, field: String::new() };
        ApiError::new(code, reason, forbidden.message()).with_details(Details {
            name: name.to_owned(),
            group: group.to_owned(),
            kind: plural.to_owned(),
            causes: vec![cause],
            ..Details::default()
        })
    }
}
