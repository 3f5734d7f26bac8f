//! Instancetypes and preferences.

use croft_meta::{ApiError, FieldPath};
use serde_json::Value;

use super::denial::Denial;
use super::{Admission, quantities};
use crate::instancetype::is_topology;
use crate::view::{get, has, number, text};

pub(super) const INSTANCETYPE: &str = "virtualmachineinstancetype-validator.instancetype.kubevirt.io";
pub(super) const PREFERENCE: &str = "virtualmachinepreference-validator.instancetype.kubevirt.io";

pub(super) fn admit_instancetype(admission: &mut Admission<'_>) -> Result<(), ApiError> {
    quantities::of_size(admission.object);
    let mut denial = Denial::by(INSTANCETYPE);
    let field = FieldPath::new("spec.memory.overcommitPercent");
    let percent = number(admission.object, "spec.memory.overcommitPercent");
    if !(0..=100).contains(&percent) {
        denial.invalid(&field, format!("{field} '{percent}': must be in range between 0 and 100."));
    }
    if percent != 0 && has(admission.object, "spec.memory.hugepages") {
        denial.invalid(&field, format!("{field} and spec.memory.hugepages should not be requested together."));
    }
    if get(admission.object, "spec.cpu.guest").and_then(Value::as_i64) == Some(0) {
        denial.invalid(&FieldPath::new("spec.cpu.guest"), "spec.cpu.guest '0': must be greater than 0.");
    }
    denial.finish()
}

pub(super) fn admit_preference(admission: &mut Admission<'_>) -> Result<(), ApiError> {
    quantities::of_size(admission.object);
    let mut denial = Denial::by(PREFERENCE);
    let topology = text(admission.object, "spec.cpu.preferredCPUTopology");
    if !topology.is_empty() && !is_topology(topology) {
        let field = FieldPath::new("spec.cpu.preferredCPUTopology");
        denial.invalid(&field, format!("unknown preferredCPUTopology {topology}"));
    }
    if matches!(topology, "spread" | "preferSpread") {
        spread(&mut denial, admission.object);
    }
    denial.finish()
}

fn spread(denial: &mut Denial, preference: &Value) {
    let options = FieldPath::new("spec.cpu.spreadOptions");
    let across = text(preference, "spec.cpu.spreadOptions.across");
    let given = ["spec.cpu.spreadOptions.ratio", "spec.preferSpreadSocketToCoreRatio"];
    let ratio = given.into_iter().map(|path| number(preference, path)).find(|ratio| *ratio != 0).unwrap_or(2);
    if !matches!(across, "" | "SocketsCores" | "CoresThreads" | "SocketsCoresThreads") {
        denial.invalid(&options.child("across"), format!("across {across} is not supported"));
    } else if across == "CoresThreads" && ratio != 2 {
        let message = "only a ratio of 2 (1 core 2 threads) is allowed when spreading vCPUs over cores and threads";
        denial.invalid(&options.child("ratio"), message);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::testing::{admitted, refusal};
    use super::*;

    #[test]
    fn quantities_become_canonical() {
        let size = json!({"spec": {"cpu": {"guest": 1}, "memory": {"guest": 1_073_741_824}}});
        assert_eq!(admitted(admit_instancetype, size)["spec"]["memory"]["guest"], "1073741824");
        let size = json!({"spec": {"cpu": {"guest": 1}, "memory": {"guest": "1024Mi"}}});
        assert_eq!(admitted(admit_instancetype, size)["spec"]["memory"]["guest"], "1Gi");
    }

    #[test]
    fn sizes_that_cannot_be_are_refused() {
        let cases = [
            (
                json!({"overcommitPercent": 101}),
                "spec.memory.overcommitPercent '101': must be in range between 0 and 100.",
            ),
            (
                json!({"overcommitPercent": 5, "hugepages": {"pageSize": "2Mi"}}),
                "spec.memory.overcommitPercent and spec.memory.hugepages should not be requested together.",
            ),
        ];
        for (memory, message) in cases {
            let error = refusal(admit_instancetype, json!({"spec": {"cpu": {"guest": 1}, "memory": memory}}));
            assert!(error.message().ends_with(message), "{error}");
        }
    }

    #[test]
    fn preferences_know_their_topologies() {
        let cases = [
            (json!({"preferredCPUTopology": "cubes"}), "unknown preferredCPUTopology cubes"),
            (
                json!({"preferredCPUTopology": "spread", "spreadOptions": {"across": "CoresThreads", "ratio": 4}}),
                "only a ratio of 2 (1 core 2 threads) is allowed when spreading vCPUs over cores and threads",
            ),
            (
                json!({"preferredCPUTopology": "spread", "spreadOptions": {"across": "Nodes"}}),
                "across Nodes is not supported",
            ),
        ];
        for (cpu, message) in cases {
            let error = refusal(admit_preference, json!({"spec": {"cpu": cpu}}));
            assert!(error.message().ends_with(message), "{error}");
        }
        admitted(admit_preference, json!({"spec": {"cpu": {"preferredCPUTopology": "preferCores"}}}));
    }
}
