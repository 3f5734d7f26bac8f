//! Starting and stopping, where Harvester does it otherwise than KubeVirt.

use croft_meta::{ApiError, object};
use serde_json::{Value, json};

use super::super::acting::Acting;
use super::super::state::Look;
use super::{VM, VMI};

/// How the machine ran before it was stopped.
const LAST_STRATEGY: &str = "harvesterhci.io/vmRunStrategy";

/// KubeVirt's start; a machine that was stopped by us runs as it did before.
pub(super) async fn start(acting: &Acting<'_>, machine: &Value) -> Result<(), ApiError> {
    let text = machine.to_string();
    let is_halted = Look::of(text.as_bytes()).run_strategy() == "Halted";
    let before = object::annotation(machine, LAST_STRATEGY).unwrap_or_default();
    let has_instance = acting.find("kubevirt.io", VMI, acting.namespace, acting.name).is_some();
    if !is_halted || before != "RerunOnFailure" || has_instance || !machine["spec"]["running"].is_null() {
        return acting.subresource(VM, "start", &json!({})).await;
    }
    acting
        .change(|machine| {
            machine["spec"]["runStrategy"] = json!(before);
            Ok(())
        })
        .await
}

/// Not KubeVirt's stop: the machine is halted whatever its strategy is.
pub(super) async fn stop(acting: &Acting<'_>, machine: &Value) -> Result<(), ApiError> {
    let text = machine.to_string();
    let strategy = Look::of(text.as_bytes()).run_strategy().to_owned();
    if strategy == "Halted" {
        return Err(acting.conflict("VM is not running"));
    }
    acting
        .change(|machine| {
            if machine["spec"]["running"].is_boolean() {
                machine["spec"]["running"] = json!(false);
                return Ok(());
            }
            machine["spec"]["runStrategy"] = json!("Halted");
            object::metadata_mut(machine)
                .entry("annotations")
                .or_insert_with(|| json!({}))
                .as_object_mut()
                .map(|annotations| annotations.insert(LAST_STRATEGY.to_owned(), json!(strategy)));
            Ok(())
        })
        .await
}
