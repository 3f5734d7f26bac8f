//! Evictions: asking for a pod to go, politely. A PodDisruptionBudget that covers the pod has its say, as upstream. Nothing here
//! counts pods: what the budget's status says is believed.

use croft_meta::selector::LabelSelector;
use croft_meta::status::{Cause, Details};
use croft_meta::{ApiError, object};
use serde_json::{Value, json};

use super::{is_named, success};
use crate::answer::{self, Answer};
use crate::call::{Call, Target};
use crate::options::DeleteOptions;
use crate::verbs::delete::delete_one;
use crate::verbs::reviewed;
use crate::write::{Decision, in_version};
use crate::{clock, decode};

/// Beyond this the pod is being changed all the time.
const MOST_TURNS: usize = 20;
/// So many evictions may be unknown to whoever counts the pods.
const MOST_DISRUPTED: usize = 2000;
const ALLOWED: &str = "DisruptionAllowed";

pub(super) async fn evict(call: &Call, target: &Target) -> Result<Answer, ApiError> {
    let eviction = decode::parse(&call.body, call.content_type())?.object;
    let is_dry_run = delete_options(call, &eviction)?.dry_run;
    let is_this_pod = |eviction: &mut Value| is_named(target, "Eviction", eviction);
    let eviction = reviewed::action(call, target, is_dry_run, eviction, is_this_pod).await?;
    let pod = Target { subresource: String::new(), ..target.clone() };
    let options = delete_options(call, &eviction)?;
    evict_pod(&Call::already_admitted(call, &pod), &pod, &options).await?;
    Ok(answer::json(201, &success()))
}

fn delete_options(call: &Call, eviction: &Value) -> Result<DeleteOptions, ApiError> {
    DeleteOptions::parse(&call.query, eviction.get("deleteOptions").filter(|o| !o.is_null()).cloned())
}

async fn evict_pod(call: &Call, target: &Target, options: &DeleteOptions) -> Result<(), ApiError> {
    let is_other_welcome = options.precondition_resource_version.is_none();
    let mut turns = 0;
    loop {
        turns += 1;
        let pod = current(call, target).await?;
        let is_over = is_over(&pod);
        if !is_over && pod["status"]["phase"] != "Pending" {
            return evict_running(call, target, options, &pod).await;
        }
        // One that comes to run meanwhile is its budget's.
        let seen = if is_over { options.clone() } else { as_seen(options, &pod) };
        match delete_one(call, target, &seen).await {
            Err(error) if is_other_welcome && error.reason() == "Conflict" && turns < MOST_TURNS => {}
            result => return result.map(drop),
        }
    }
}

/// Ended, or about to: there is nothing left to disrupt.
fn is_over(pod: &Value) -> bool {
    object::deletion_timestamp(pod).is_some() || matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
}

/// The pod as the store has it, after all that was acknowledged before.
async fn current(call: &Call, target: &Target) -> Result<Value, ApiError> {
    call.server.cache.fresh().await?;
    let found = call.server.cache.collection(target.storage_key()).get(&target.id());
    let found = found.ok_or_else(|| target.not_found())?;
    Ok(in_version(&found, target))
}

/// Only if the pod is still what was looked at.
fn as_seen(options: &DeleteOptions, pod: &Value) -> DeleteOptions {
    let version = options.precondition_resource_version.clone();
    let version = version.or_else(|| Some(object::resource_version(pod).to_owned()));
    DeleteOptions { precondition_resource_version: version, ..options.clone() }
}

async fn evict_running(call: &Call, target: &Target, options: &DeleteOptions, pod: &Value) -> Result<(), ApiError> {
    let Some(budget) = budget_of(call, target, pod)? else {
        return delete_one(call, target, options).await.map(drop);
    };
    if !is_not_counted(pod, &budget) {
        count_down(call, target, object::name(&budget), options.dry_run).await?;
        return delete_one(call, target, options).await.map(drop);
    }
    match delete_one(call, target, &as_seen(options, pod)).await {
        // It may have become ready, and so be counted.
        Err(error) if options.precondition_resource_version.is_none() && error.reason() == "Conflict" => {
            Err(still_processed(object::name(&budget)))
        }
        result => result.map(drop),
    }
}

fn budget_of(call: &Call, target: &Target, pod: &Value) -> Result<Option<Value>, ApiError> {
    let budgets = call.server.cache.collection("policy/poddisruptionbudgets").list(&target.namespace);
    let covers = |budget: &Value| {
        LabelSelector::from_json(&budget["spec"]["selector"]).is_ok_and(|selector| selector.matches_object(pod))
    };
    let mut covering = budgets.iter().map(|budget| budget.json()).filter(|budget| covers(budget));
    let first = covering.next();
    if covering.next().is_some() {
        let why = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
        return Err(ApiError::new(500, "", why));
    }
    Ok(first)
}

/// A pod that is not ready is not among the healthy ones: it may go if there are enough of these, or if it always may.
fn is_not_counted(pod: &Value, budget: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    let is_ready = conditions.into_iter().any(|one| one["type"] == "Ready" && one["status"] == "True");
    let (healthy, wanted) = (counted(budget, "currentHealthy"), counted(budget, "desiredHealthy"));
    !is_ready && (budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow" || (healthy >= wanted && wanted > 0))
}

fn counted(budget: &Value, field: &str) -> i64 {
    budget["status"][field].as_i64().unwrap_or_default()
}

/// Takes one of the disruptions that the budget allows.
async fn count_down(call: &Call, pod: &Target, name: &str, is_dry_run: bool) -> Result<(), ApiError> {
    let budgets = call.catalog.find("policy", "v1", "poddisruptionbudgets").ok_or_else(ApiError::no_such_path)?;
    let budget = Target::new(budgets.clone(), &pod.namespace, name);
    let decide = |old: Option<&Value>| {
        let old = old.ok_or_else(|| budget.not_found())?;
        counted_down(old, &pod.name, &clock::now_rfc3339()).map(Decision::Put)
    };
    call.server.write(&budget, is_dry_run, decide).await.map(drop)
}

fn counted_down(budget: &Value, pod: &str, now: &str) -> Result<Value, ApiError> {
    let (name, allowed) = (object::name(budget), counted(budget, "disruptionsAllowed"));
    let forbidden = |why: &str| Err(ApiError::forbidden("policy", "poddisruptionbudget", name, why));
    if counted(budget, "observedGeneration") < object::generation(budget) {
        return Err(still_processed(name));
    }
    if allowed < 0 {
        return forbidden("pdb disruptions allowed is negative");
    }
    if budget["status"]["disruptedPods"].as_object().is_some_and(|pods| pods.len() > MOST_DISRUPTED) {
        return forbidden("DisruptedPods map too big - too many evictions not confirmed by PDB controller");
    }
    if allowed == 0 {
        let (wanted, healthy) = (counted(budget, "desiredHealthy"), counted(budget, "currentHealthy"));
        let why = format!("The disruption budget {name} needs {wanted} healthy pods and has {healthy} currently");
        return Err(would_violate(0, why));
    }
    let mut new = budget.clone();
    new["status"]["disruptionsAllowed"] = json!(allowed - 1);
    // Whoever counts the pods is to know that this one goes.
    new["status"]["disruptedPods"][pod] = json!(now);
    if allowed == 1 {
        tell_that_none_is_left(&mut new["status"], now);
    }
    Ok(new)
}

fn tell_that_none_is_left(status: &mut Value, now: &str) {
    let mut conditions = status["conditions"].as_array().cloned().unwrap_or_default();
    let known = conditions.iter().find(|one| one["type"] == ALLOWED && one["status"] == "False");
    let since = known.map_or_else(|| json!(now), |known| known["lastTransitionTime"].clone());
    let condition = json!({"type": ALLOWED, "status": "False", "reason": "InsufficientPods", "message": "",
        "lastTransitionTime": since, "observedGeneration": status["observedGeneration"]});
    conditions.retain(|one| one["type"] != ALLOWED);
    conditions.push(condition);
    status["conditions"] = json!(conditions);
}

fn still_processed(budget: &str) -> ApiError {
    would_violate(10, format!("The disruption budget {budget} is still being processed by the server."))
}

fn would_violate(retry_after_seconds: u32, why: String) -> ApiError {
    let cause = Cause { reason: "DisruptionBudget".to_owned(), message: why, ..Cause::default() };
    let told = "Cannot evict pod as it would violate the pod's disruption budget.";
    ApiError::too_many_requests(told, retry_after_seconds).with_details(Details {
        causes: vec![cause],
        retry_after_seconds,
        ..Details::default()
    })
}

#[cfg(test)]
mod tests;
