//! When each virtual machine last changed its state, by the names that KubeVirt's virt-controller gives it.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use croft_api::kubevirt::printable_status as word;
use croft_meta::object;
use jiff::Timestamp;
use serde_json::Value;

use crate::cache::Cache;

const MACHINES: &str = "kubevirt.io/virtualmachines";

/// Groups of states, each with the words that belong to it.
const GROUPS: [(&str, &[&str]); 5] = [
    ("starting", &[word::PROVISIONING, word::STARTING, word::WAITING_FOR_VOLUME_BINDING]),
    ("running", &[word::RUNNING]),
    ("migrating", &[word::MIGRATING]),
    ("non_running", &[word::STOPPED, word::PAUSED, word::STOPPING, word::TERMINATING]),
    (
        "error",
        &[
            word::CRASH_LOOP_BACK_OFF,
            word::UNKNOWN,
            word::UNSCHEDULABLE,
            word::ERR_IMAGE_PULL,
            word::IMAGE_PULL_BACK_OFF,
            word::PVC_NOT_FOUND,
            word::DATA_VOLUME_ERROR,
        ],
    ),
];

/// The figures of all machines, in OpenMetrics' form.
pub(crate) fn tell(cache: &Cache) -> String {
    let machines: Vec<Value> = cache.collection(MACHINES).list("").iter().map(|machine| machine.json()).collect();
    text(&machines)
}

fn text(machines: &[Value]) -> String {
    let mut text = String::new();
    for (group, words) in GROUPS {
        let name = format!("kubevirt_vm_{group}_status_last_transition_timestamp_seconds");
        // Writing to a string does not fail.
        let _ = write!(text, "# HELP {name} VM last transition timestamp to {group} status.\n# TYPE {name} gauge\n");
        for machine in machines {
            let status = machine.pointer("/status/printableStatus").and_then(Value::as_str).unwrap_or(word::UNKNOWN);
            let since = if words.contains(&status) { last_transition(machine) } else { 0 };
            // Names are DNS labels: nothing in them needs quoting.
            let _ = writeln!(
                text,
                "{name}{{name=\"{}\",namespace=\"{}\"}} {since}",
                object::name(machine),
                object::namespace(machine)
            );
        }
    }
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for machine in machines {
        *counts.entry(object::namespace(machine)).or_default() += 1;
    }
    text.push_str(
        "# HELP kubevirt_number_of_vms The number of VMs by namespace.\n# TYPE kubevirt_number_of_vms gauge\n",
    );
    for (namespace, count) in counts {
        let _ = writeln!(text, "kubevirt_number_of_vms{{namespace=\"{namespace}\"}} {count}");
    }
    text
}

/// In seconds since the epoch: the latest change of a condition, or the creation.
fn last_transition(machine: &Value) -> i64 {
    let conditions = machine.pointer("/status/conditions").and_then(Value::as_array);
    let changes = conditions.into_iter().flatten().filter_map(|condition| condition["lastTransitionTime"].as_str());
    let created = machine.pointer("/metadata/creationTimestamp").and_then(Value::as_str);
    let times = changes.chain(created).filter_map(|time| time.parse::<Timestamp>().ok());
    times.map(Timestamp::as_second).max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_machine_has_a_time_in_the_group_of_its_state_and_none_elsewhere() {
        let machine = json!({
            "metadata": {"name": "web", "namespace": "default", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "status": {"printableStatus": "Running", "conditions": [
                {"type": "Ready", "lastTransitionTime": "2026-01-01T00:01:00Z"}, {"type": "Odd", "lastTransitionTime": null}]},
        });
        let text = text(&[machine]);
        for expected in [
            r#"kubevirt_vm_running_status_last_transition_timestamp_seconds{name="web",namespace="default"} 1767225660"#,
            r#"kubevirt_vm_starting_status_last_transition_timestamp_seconds{name="web",namespace="default"} 0"#,
            r#"kubevirt_number_of_vms{namespace="default"} 1"#,
        ] {
            assert!(text.lines().any(|line| line == expected), "no {expected} in\n{text}");
        }
    }
}
