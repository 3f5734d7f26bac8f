//! Reading VirtualMachine and VirtualMachineInstance objects.

use croft_meta::{ApiError, object};
use serde_json::Value;

pub(super) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

pub(super) fn phase(vmi: &Value) -> &str {
    text(vmi, "/status/phase")
}

pub(super) fn is_running(vmi: &Value) -> bool {
    phase(vmi) == "Running"
}

/// It has ended, well or not.
pub(super) fn is_final(vmi: &Value) -> bool {
    matches!(phase(vmi), "Succeeded" | "Failed")
}

/// Whether a condition is there at all: KubeVirt removes those that do not hold.
pub(super) fn has_condition(object: &Value, ty: &str) -> bool {
    conditions(object).any(|condition| condition["type"] == ty && condition["status"] != "False")
}

pub(super) fn is_true(object: &Value, ty: &str) -> bool {
    conditions(object).any(|condition| condition["type"] == ty && condition["status"] == "True")
}

fn conditions(object: &Value) -> impl Iterator<Item = &Value> {
    object.pointer("/status/conditions").and_then(Value::as_array).into_iter().flatten()
}

/// `runStrategy`, or what `running` means in its stead.
pub(super) fn run_strategy(vm: &Value) -> Result<&str, ApiError> {
    let strategy = text(vm, "/spec/runStrategy");
    match (strategy, vm.pointer("/spec/running").and_then(Value::as_bool)) {
        ("", Some(true)) => Ok("Always"),
        ("", _) => Ok("Halted"),
        (strategy, None) => Ok(strategy),
        (_, Some(_)) => {
            let name = object::name(vm);
            let why = format!("VirtualMachine {name:?} has both spec.running and spec.runStrategy set");
            Err(super::Kind::Vm.conflict(name, why))
        }
    }
}

pub(super) fn grace_period(vmi: &Value) -> Option<i64> {
    vmi.pointer("/spec/terminationGracePeriodSeconds").and_then(Value::as_i64)
}

pub(super) fn is_owned_by_vm(vmi: &Value) -> bool {
    let owners = object::owner_references(vmi);
    owners.iter().any(|owner| owner["kind"] == "VirtualMachine" && owner["controller"] == true)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_run_strategy_is_told_in_two_ways() {
        let table = [
            (json!({"runStrategy": "Manual"}), Ok("Manual")),
            (json!({"running": true}), Ok("Always")),
            (json!({"running": false}), Ok("Halted")),
            (json!({"running": null, "runStrategy": "Once"}), Ok("Once")),
            (json!({}), Ok("Halted")),
            (json!({"running": false, "runStrategy": "Once"}), Err(409)),
        ];
        for (spec, expected) in table {
            let vm = json!({"metadata": {"name": "a"}, "spec": spec});
            assert_eq!(run_strategy(&vm).map_err(|error| error.code()), expected, "{vm}");
        }
    }
}
