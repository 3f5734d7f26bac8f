//! What can be done with a node by `POST ...?action=<name>`: closing it, and emptying it for maintenance.
//!
//! As in Harvester, whoever may update a node may do all of it. What is asked for is written into the Node; the
//! controllers empty it and tell when that is done.

use std::collections::BTreeMap;
use std::sync::Arc;

use croft_api::harvester::maintenance::{DRAIN_FORCED, DRAIN_REQUESTED, DRAIN_TAINT, STATUS, STRATEGY, strategy};
use croft_meta::{ApiError, object};
use http::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use super::acting::Acting;
use super::actions::not_available;
use super::reply::invalid;
use super::resource::{Sent, asking, no_content};
use super::state::Look;
use crate::answer::{self, Answer};
use crate::cache::Object;
use crate::call::id;
use crate::pipeline;

const NODES: &str = "core/nodes";
const WITNESS: &str = "node-role.harvesterhci.io/witness";
const LAST: &str = "can't enable maintenance mode or cordon on the last available node";
/// A node's agent writes to it every few seconds.
const TRIES: usize = 8;

/// The actions that make sense for a node as it is.
pub(super) fn offered(node: &Look<'_>) -> Vec<&'static str> {
    let is_cordoned = node.spec.unschedulable == Some(true);
    let in_maintenance = node.metadata.annotations.is_some_and(|all| all.get().contains(STATUS));
    [
        ("cordon", !is_cordoned),
        ("uncordon", is_cordoned && !in_maintenance),
        ("enableMaintenanceMode", !in_maintenance),
        ("maintenancePossible", !in_maintenance),
        ("listUnhealthyVM", true),
        ("disableMaintenanceMode", in_maintenance),
    ]
    .into_iter()
    .filter_map(|(action, is_usable)| is_usable.then_some(action))
    .collect()
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Maintenance {
    /// Harvester's clients send a text.
    force: Value,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Power {
    operation: String,
}

pub(super) async fn act(acting: &Acting<'_>, action: &str) -> Result<Answer, ApiError> {
    let node = acting.object().await?;
    match action {
        "cordon" => {
            must_not_be_last(acting)?;
            write(acting, |_| Ok(json!({ "spec": { "unschedulable": true } }))).await?;
        }
        "uncordon" => uncordon(acting).await?,
        "enableMaintenanceMode" => enable(acting).await?,
        "disableMaintenanceMode" => disable(acting).await?,
        "maintenancePossible" => must_be_possible(acting)?,
        "listUnhealthyVM" => return Ok(answer::json(200, &unhealthy_list(acting))),
        "enableCPUManager" | "disableCPUManager" => return Err(no_cpu_manager(&node, action)),
        "powerAction" => {
            let asked: Power = acting.body()?;
            if !matches!(asked.operation.as_str(), "shutdown" | "poweron" | "reboot") {
                return Err(invalid("InvalidOption", "operation must be shutdown, poweron or reboot"));
            }
            return Err(no_power(acting));
        }
        "powerActionPossible" => return Err(no_power(acting)),
        other => return Err(not_available(other)),
    }
    Ok(no_content())
}

/// Machines need somewhere to be.
fn must_not_be_last(acting: &Acting<'_>) -> Result<(), ApiError> {
    let nodes = acting.call.server.cache.collection(NODES).list("");
    let mut others = nodes.iter().filter(|node| node.name() != acting.name);
    if others.any(|node| is_available(&node.json())) { Ok(()) } else { Err(ApiError::bad_request(LAST)) }
}

fn must_be_possible(acting: &Acting<'_>) -> Result<(), ApiError> {
    must_not_be_last(acting)?;
    let blocking = unhealthy(acting);
    if blocking.is_empty() {
        return Ok(());
    }
    let names: Vec<String> = blocking.into_values().flatten().collect();
    let why =
        format!("these machines run here and cannot be moved: {}; with force they are shut down", names.join(", "));
    Err(acting.conflict(&why))
}

async fn enable(acting: &Acting<'_>) -> Result<(), ApiError> {
    let asked: Maintenance = acting.body()?;
    let is_forced = match &asked.force {
        Value::Null => false,
        Value::Bool(force) => *force,
        Value::String(text) if text.is_empty() || text == "false" => false,
        Value::String(text) if text == "true" => true,
        other => return Err(invalid("InvalidOption", format!("force is \"true\" or \"false\", not {other}"))),
    };
    if !is_forced {
        must_be_possible(acting)?;
    }
    write(acting, |node| {
        if object::annotation(node, STATUS).is_some() {
            return Err(acting.conflict("the node is in maintenance mode already"));
        }
        let mut annotations = json!({ DRAIN_REQUESTED: "true", STATUS: "running" });
        if is_forced {
            annotations[DRAIN_FORCED] = "true".into();
        }
        let mut taints = other_taints(node);
        taints.push(json!({ "key": DRAIN_TAINT, "value": "draining", "effect": "NoSchedule" }));
        Ok(json!({
            "metadata": { "annotations": annotations }, "spec": { "unschedulable": true, "taints": taints },
        }))
    })
    .await
}

async fn disable(acting: &Acting<'_>) -> Result<(), ApiError> {
    write(acting, |node| {
        if object::annotation(node, STATUS).is_none() {
            return Err(acting.conflict("the node is not in maintenance mode"));
        }
        let annotations = json!({ DRAIN_REQUESTED: null, DRAIN_FORCED: null, STATUS: null });
        let spec = json!({ "unschedulable": null, "taints": other_taints(node) });
        Ok(json!({ "metadata": { "annotations": annotations }, "spec": spec }))
    })
    .await
}

async fn uncordon(acting: &Acting<'_>) -> Result<(), ApiError> {
    write(acting, |node| {
        if object::annotation(node, STATUS).is_some() {
            return Err(acting.conflict("the node is in maintenance mode: end that instead"));
        }
        Ok(json!({ "spec": { "unschedulable": null } }))
    })
    .await
}

/// Writes a change of the node as it is, however often others write in between.
async fn write(acting: &Acting<'_>, change: impl Fn(&Value) -> Result<Value, ApiError>) -> Result<(), ApiError> {
    let mut tries = 0;
    loop {
        let node = acting.object().await?;
        let mut patch = change(&node)?;
        patch["metadata"]["resourceVersion"] = object::resource_version(&node).into();
        let path = acting.schema.kubernetes_path("", acting.name);
        let sent = Sent { content_type: "application/merge-patch+json", body: patch.to_string().into() };
        tries += 1;
        match pipeline::resource(&asking(acting.call, &Method::PATCH, &path, sent)).await {
            Err(error) if error.code() == 409 && tries < TRIES => {}
            written => return written.map(drop),
        }
    }
}

fn unhealthy_list(acting: &Acting<'_>) -> Value {
    let grouped = unhealthy(acting).into_iter();
    grouped.map(|(message, vms)| json!({ "message": message, "vms": vms })).collect()
}

/// The machines that would keep the node from being emptied, by the reason why.
fn unhealthy(acting: &Acting<'_>) -> BTreeMap<String, Vec<String>> {
    let cache = &acting.call.server.cache;
    let machines = cache.collection("kubevirt.io/virtualmachines");
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for instance in cache.collection("kubevirt.io/virtualmachineinstances").list("") {
        let object = instance.json();
        if object["status"]["nodeName"] != acting.name || is_over(&object) {
            continue;
        }
        let id = id(instance.namespace(), instance.name());
        if machines.get(&id).is_some_and(|machine| is_shut_down_in_maintenance(&machine)) {
            continue;
        }
        found.entry(why_not_moved(&object)).or_default().push(id);
    }
    found
}

/// Switching machines on and off is done by the addon that knows their management controllers.
fn no_power(acting: &Acting<'_>) -> ApiError {
    let addons = acting.call.server.cache.collection("harvesterhci.io/addons");
    let addon = addons.get("harvester-system/harvester-seeder").map(|addon| addon.json());
    if addon.is_none_or(|addon| addon["spec"]["enabled"] != true) {
        return ApiError::new(424, "FailedDependency", "the addon harvester-seeder is not enabled");
    }
    acting.conflict("no inventory of this node is ready: its management controller is not known")
}

fn is_available(node: &Value) -> bool {
    let mut conditions = node["status"]["conditions"].as_array().into_iter().flatten();
    node["spec"]["unschedulable"] != true
        && object::annotation(node, STATUS).is_none()
        && node["metadata"]["labels"][WITNESS].is_null()
        && conditions.any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

fn is_over(instance: &Value) -> bool {
    matches!(instance["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
}

fn is_shut_down_in_maintenance(machine: &Arc<Object>) -> bool {
    machine.label(STRATEGY).is_some_and(|label| label != strategy::MIGRATE)
}

/// KubeVirt's word for it, or that there is nowhere to go.
fn why_not_moved(instance: &Value) -> String {
    let mut conditions = instance["status"]["conditions"].as_array().into_iter().flatten();
    let fixed = conditions.find(|condition| condition["type"] == "LiveMigratable" && condition["status"] == "False");
    let reason = fixed.and_then(|condition| condition["reason"].as_str()).filter(|reason| !reason.is_empty());
    reason.unwrap_or("NodeSchedulingRequirementsNotMet").to_owned()
}

fn other_taints(node: &Value) -> Vec<Value> {
    let taints = node["spec"]["taints"].as_array().into_iter().flatten();
    taints.filter(|taint| taint["key"] != DRAIN_TAINT).cloned().collect()
}

/// Nothing here gives whole processors to machines, and the node says so by not having the label.
fn no_cpu_manager(node: &Value, action: &str) -> ApiError {
    if node["metadata"]["labels"][WITNESS].is_string() {
        return ApiError::bad_request("The witness node is unable to update the CPU manager policy.");
    }
    if action == "disableCPUManager" {
        return ApiError::bad_request("current cpu manager policy is already the same as requested value: none");
    }
    ApiError::bad_request("label cpumanager not found: this node cannot give processors to single machines")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actions_are_offered_when_they_can_be_used() {
        let drained = json!({"metadata": {"annotations": {STATUS: "completed"}}, "spec": {"unschedulable": true}});
        for (node, expected) in [
            (json!({}), "cordon enableMaintenanceMode maintenancePossible listUnhealthyVM"),
            (
                json!({"spec": {"unschedulable": true}}),
                "uncordon enableMaintenanceMode maintenancePossible listUnhealthyVM",
            ),
            (drained, "listUnhealthyVM disableMaintenanceMode"),
        ] {
            assert_eq!(offered(&Look::of(node.to_string().as_bytes())).join(" "), expected, "{node}");
        }
    }

    #[test]
    fn a_node_is_available_while_machines_may_start_there() {
        let ready = json!({"conditions": [{"type": "Ready", "status": "True"}]});
        for (node, expected) in [
            (json!({"status": ready}), true),
            (json!({"status": {}}), false),
            (json!({"status": ready, "spec": {"unschedulable": true}}), false),
            (json!({"status": ready, "metadata": {"annotations": {STATUS: "completed"}}}), false),
            (json!({"status": ready, "metadata": {"labels": {WITNESS: "true"}}}), false),
        ] {
            assert_eq!(is_available(&node), expected, "{node}");
        }
    }

    #[test]
    fn machines_that_stay_are_told_by_reason() {
        let fixed = json!({"status": {"conditions": [
            {"type": "LiveMigratable", "status": "False", "reason": "DisksNotLiveMigratable"}]}});
        assert_eq!(why_not_moved(&fixed), "DisksNotLiveMigratable");
        assert_eq!(why_not_moved(&json!({"status": {}})), "NodeSchedulingRequirementsNotMet");
    }
}
