//! Admission by policies: ValidatingAdmissionPolicy and MutatingAdmissionPolicy, with their bindings.
//!
//! Policies are compiled once per change into an [`Index`], made anew by the first write after a change; a write asks which
//! of them match it ([`matching`]), finds their parameters ([`params`]) and evaluates them ([`validating`], [`mutating`]).
//! Everything is done in memory and its work is bounded, so that it runs where the write is decided.
//!
//! Policies and their bindings are not subject to policies, or a mistake in one could not be undone; and reviews are not,
//! since everything else rests on them.

mod index;
mod matching;
mod mutating;
mod params;
mod request;
mod rights;
mod validating;

use std::sync::Arc;

use croft_meta::{ApiError, Gvk, object};
use serde_json::{Value, json};

use crate::cache::{Cache, Derived};
use crate::call::{Call, Target};
use crate::webhooks::Operation;
use crate::{decode, prepare};

pub(crate) use mutating::Reinvocable;

use index::Index;
use request::Request;

const GROUP: &str = "admissionregistration.k8s.io";

/// All policies, as of the last look.
#[derive(Debug)]
pub(crate) struct Policies {
    index: Derived<Index, 4>,
}

impl Policies {
    pub(crate) fn new(cache: &Cache) -> Self {
        Self { index: Derived::of(cache, GROUP, index::SOURCES) }
    }

    fn index(&self) -> Arc<Index> {
        self.index.get(Index::build)
    }
}

/// Before an object is admitted by anything else: changes it as the mutating policies say. Its namespace is known by now.
pub(crate) fn mutate(
    call: &Call,
    target: &Target,
    new: &mut Value,
    old: Option<&Value>,
    dry_run: bool,
) -> Result<Reinvocable, ApiError> {
    let Some(index) = mutating_index(call, target) else { return Ok(Reinvocable::default()) };
    let (mutated, reinvocable) = mutating::run(&index.mutating, &Request::new(call, target, Some(new), old, dry_run))?;
    take(target, new, old, mutated)?;
    Ok(reinvocable)
}

/// After webhooks have changed an object: asks those policies again that want to see what others make of their work. Have they
/// changed it once more?
pub(crate) fn mutate_again(
    call: &Call,
    target: &Target,
    new: &mut Value,
    old: Option<&Value>,
    dry_run: bool,
    asked: &Reinvocable,
) -> Result<bool, ApiError> {
    let Some(index) = mutating_index(call, target).filter(|_| !asked.is_empty()) else { return Ok(false) };
    let request = Request::new(call, target, Some(new), old, dry_run);
    let mutated = mutating::run_again(&index.mutating, &request, asked)?;
    take(target, new, old, mutated)
}

/// The policies, if there are any that such a request is shown to.
fn mutating_index(call: &Call, target: &Target) -> Option<Arc<Index>> {
    // What a scale is made of is not what was sent.
    if is_exempt(call, target) || request::subresource(call, target) == "scale" {
        return None;
    }
    Some(call.server.policies.index()).filter(|index| !index.mutating.is_empty())
}

/// Puts what policies made of an object in its place, with what they have no say in as it was.
fn take(target: &Target, new: &mut Value, old: Option<&Value>, mutated: Option<Value>) -> Result<bool, ApiError> {
    let Some(mutated) = mutated else { return Ok(false) };
    let before = std::mem::replace(new, mutated);
    keep_identity(new, &before);
    if old.is_none() {
        prepare::restamp_new(&before["metadata"], new);
    }
    let gvk = target.gvk();
    decode::conform(&target.served, &gvk, new).map_err(|why| {
        let Gvk { version, kind, .. } = &gvk;
        ApiError::new(500, "", format!("{kind} in version {version:?} cannot be handled as a {kind}: {why}"))
    })?;
    prepare::default(target, new);
    Ok(true)
}

/// After everything else has agreed: what the validating policies say. `new` is `None` for a deletion.
pub(crate) fn validate(
    call: &Call,
    target: &Target,
    new: Option<&Value>,
    old: Option<&Value>,
    dry_run: bool,
) -> Result<(), ApiError> {
    examine(&Request::new(call, target, new, old, dry_run))
}

/// As [`mutate`], for what is sent and not stored as such: what is created below an object, the options of a connection.
pub(crate) fn mutate_sent(
    call: &Call,
    target: &Target,
    operation: Operation,
    sent: &mut Value,
    dry_run: bool,
) -> Result<Reinvocable, ApiError> {
    if is_exempt(call, target) {
        return Ok(Reinvocable::default());
    }
    let index = call.server.policies.index();
    if index.mutating.is_empty() {
        return Ok(Reinvocable::default());
    }
    let request = Request::sent(call, target, operation, sent, dry_run);
    let (mutated, reinvocable) = mutating::run(&index.mutating, &request)?;
    take_sent(sent, mutated)?;
    Ok(reinvocable)
}

/// As [`mutate_again`], for what is sent and not stored as such.
pub(crate) fn mutate_sent_again(
    call: &Call,
    target: &Target,
    operation: Operation,
    sent: &mut Value,
    dry_run: bool,
    asked: &Reinvocable,
) -> Result<bool, ApiError> {
    if asked.is_empty() || is_exempt(call, target) {
        return Ok(false);
    }
    let index = call.server.policies.index();
    let request = Request::sent(call, target, operation, sent, dry_run);
    let mutated = mutating::run_again(&index.mutating, &request, asked)?;
    take_sent(sent, mutated)
}

fn take_sent(sent: &mut Value, mutated: Option<Value>) -> Result<bool, ApiError> {
    let Some(mut mutated) = mutated else { return Ok(false) };
    let gvk = object::gvk(sent);
    for field in ["apiVersion", "kind"] {
        mutated[field] = sent[field].clone();
    }
    if let Some(schema) = croft_api::kind_schema(&gvk) {
        let Gvk { version, kind, .. } = &gvk;
        let failed = |why| format!("{kind} in version {version:?} cannot be handled as a {kind}: {why}");
        croft_schema::decode(&schema, &mut mutated, kind).map_err(|why| ApiError::new(500, "", failed(why)))?;
    }
    *sent = mutated;
    Ok(true)
}

/// As [`validate`], for what is sent and not stored as such.
pub(crate) fn validate_sent(
    call: &Call,
    target: &Target,
    operation: Operation,
    sent: &Value,
    dry_run: bool,
) -> Result<(), ApiError> {
    examine(&Request::sent(call, target, operation, sent, dry_run))
}

fn examine(request: &Request<'_>) -> Result<(), ApiError> {
    if is_exempt(request.call, request.target) {
        return Ok(());
    }
    let index = request.call.server.policies.index();
    if index.validating.is_empty() { Ok(()) } else { validating::run(&index.validating, request) }
}

/// Once a policy or a binding is prepared: whether its author may read what it makes expressions look at.
pub(crate) fn authorize(call: &Call, target: &Target, new: &Value, old: Option<&Value>) -> Result<(), ApiError> {
    if is_policy(target) { rights::check(call, target, new, old) } else { Ok(()) }
}

/// What a policy's status tells once it is in force, which is as soon as it is stored.
pub(crate) fn observe(policy: &mut Value) {
    let generation = object::generation(policy);
    if !policy["status"].is_object() {
        policy["status"] = json!({});
    }
    policy["status"]["observedGeneration"] = json!(generation);
    policy["status"]["typeChecking"] = json!({});
}

/// A policy, or a binding of one.
fn is_policy(target: &Target) -> bool {
    target.group() == GROUP && index::SOURCES.contains(&target.plural())
}

fn is_exempt(call: &Call, target: &Target) -> bool {
    let is_review = matches!(target.group(), "authentication.k8s.io" | "authorization.k8s.io");
    // What every server starts with must not hang on what somebody has stored.
    is_policy(target) || is_review || !call.asks_policies || !call.server.is_ready()
}

/// A policy does not make one object another.
fn keep_identity(new: &mut Value, before: &Value) {
    for field in ["apiVersion", "kind"] {
        new[field] = before[field].clone();
    }
    for field in ["name", "generateName", "namespace", "uid", "resourceVersion", "creationTimestamp", "managedFields"] {
        object::set_meta(new, field, before["metadata"][field].clone());
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::testing::TestServer;

    const REGISTRATION: &str = "/apis/admissionregistration.k8s.io/v1";

    async fn policy(server: &TestServer, kind: &str, api_version: &str, spec: &Value) {
        let path = format!("/apis/{api_version}");
        let plural = format!("{}policies", kind.to_lowercase().trim_end_matches("policy"));
        let about = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "p"}, "spec": spec});
        server.post(&format!("{path}/{plural}"), &about).await;
        let mut binding = json!({"apiVersion": api_version, "kind": format!("{kind}Binding"), "metadata": {"name": "p"},
            "spec": {"policyName": "p"}});
        if kind.starts_with("Validating") {
            binding["spec"]["validationActions"] = json!(["Deny"]);
        }
        server.post(&format!("{path}/{}bindings", plural.replace("policies", "policy")), &binding).await;
    }

    fn rules(group: &str, version: &str, plural: &str) -> Value {
        json!({"resourceRules": [
            {"operations": ["CREATE"], "apiGroups": [group], "apiVersions": [version], "resources": [plural]},
        ]})
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_the_server_gives_to_a_new_object_is_not_for_policies_to_change() {
        let server = TestServer::start().await;
        let patch = r#"[
            JSONPatch{op: "add", path: "/metadata/deletionTimestamp", value: "2020-01-01T00:00:00Z"},
            JSONPatch{op: "add", path: "/metadata/deletionGracePeriodSeconds", value: 0},
            JSONPatch{op: "add", path: "/metadata/generation", value: 77},
            JSONPatch{op: "add", path: "/data", value: {"seen": "yes"}}
        ]"#;
        let spec = json!({
            "matchConstraints": rules("", "v1", "configmaps"), "failurePolicy": "Fail", "reinvocationPolicy": "Never",
            "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": patch}}],
        });
        policy(&server, "MutatingAdmissionPolicy", "admissionregistration.k8s.io/v1beta1", &spec).await;
        let map = server.post("/api/v1/namespaces/default/configmaps", &json!({"metadata": {"name": "a"}})).await;
        assert_eq!(map["data"]["seen"], "yes", "{map}");
        for field in ["deletionTimestamp", "deletionGracePeriodSeconds", "generation"] {
            assert!(map["metadata"][field].is_null(), "{map}");
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn policies_are_asked_about_a_namespace_that_another_server_has_just_made() {
        let (server, store) = TestServer::start_lagging().await;
        let expression = "Object{data: {'team': namespaceObject.metadata.labels.team}}";
        let mut constraints = rules("", "v1", "configmaps");
        constraints["namespaceSelector"] = json!({"matchLabels": {"team": "a"}});
        let spec = json!({
            "matchConstraints": constraints, "failurePolicy": "Fail", "reinvocationPolicy": "Never",
            "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}],
        });
        policy(&server, "MutatingAdmissionPolicy", "admissionregistration.k8s.io/v1beta1", &spec).await;
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "new", "uid": "u",
            "labels": {"team": "a"}}, "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}});
        store.put_elsewhere("core/namespaces", &namespace).await;
        let map = server.post("/api/v1/namespaces/new/configmaps", &json!({"metadata": {"name": "a"}})).await;
        assert_eq!(map["data"]["team"], "a", "{map}");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn the_same_objects_are_meant_in_each_of_their_groups() {
        let server = TestServer::start().await;
        let spec = json!({
            "matchConstraints": rules("events.k8s.io", "v1", "events"),
            "validations": [{"expression": "object.regarding.name != 'secret' && request.resource.group == 'events.k8s.io'"}],
        });
        policy(&server, "ValidatingAdmissionPolicy", "admissionregistration.k8s.io/v1", &spec).await;
        let event = |name: &str, about: &str| {
            json!({"metadata": {"name": name}, "involvedObject": {"kind": "Pod", "namespace": "default", "name": about},
                "reason": "R", "message": "m", "type": "Normal", "source": {"component": "c"},
                "firstTimestamp": "2024-01-01T00:00:00Z", "lastTimestamp": "2024-01-01T00:00:00Z", "count": 1})
        };
        let events = "/api/v1/namespaces/default/events";
        let (code, why) = server.send("POST", events, &event("a", "secret")).await;
        assert_eq!(code, 422, "{why}");
        server.post(events, &event("b", "plain")).await;
        let exact = json!({"spec": {"matchConstraints": {"matchPolicy": "Exact"}}});
        let path = format!("{REGISTRATION}/validatingadmissionpolicies/p");
        assert_eq!(server.send("PATCH", &path, &exact).await.0, 200);
        server.post(events, &event("a", "secret")).await;
    }
}
