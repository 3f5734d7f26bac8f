use serde_json::{Value, json};

use super::*;
use crate::instancetype::{VirtualMachineInstancetypeSpec, VirtualMachinePreferenceSpec};

fn machine(extra: Value) -> VirtualMachine {
    let mut vm = json!({
        "metadata": {"name": "web", "namespace": "shop", "uid": "u-1", "generation": 7},
        "spec": {
            "runStrategy": "Always",
            "template": {
                "metadata": {"labels": {"app": "web"}, "annotations": {"note": "x"}},
                "spec": {"domain": {"devices": {}}, "volumes": [{"name": "root", "emptyDisk": {"capacity": "1Gi"}}]},
            },
        },
    });
    merge(&mut vm, extra);
    serde_json::from_value(vm).unwrap()
}

fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}

#[test]
fn the_instance_carries_the_template_and_belongs_to_the_machine() {
    let vmi = vmi_from_vm(&machine(json!({})), Chosen::default()).unwrap();
    let written = serde_json::to_value(&vmi).unwrap();
    assert_eq!(written["apiVersion"], "kubevirt.io/v1");
    assert_eq!(written["kind"], "VirtualMachineInstance");
    assert_eq!(
        written["metadata"],
        json!({
            "name": "web", "namespace": "shop",
            "labels": {"app": "web", "vm.kubevirt.io/name": "web", "vmi.kubevirt.io/id": "web"},
            "annotations": {"note": "x", "kubevirt.io/vm-generation": "7"},
            "finalizers": ["kubevirt.io/virtualMachineControllerFinalize"],
            "ownerReferences": [{"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": "web", "uid": "u-1",
                "controller": true, "blockOwnerDeletion": true}],
        })
    );
    assert_eq!(vmi.spec.domain.firmware.unwrap().uuid.as_deref(), Some("u-1"));
    assert_eq!(vmi.spec.domain.devices.disks[0].name, "root");
    assert!(vmi.spec.domain.devices.interfaces[0].masquerade.is_some() && vmi.spec.networks[0].pod.is_some());
}

#[test]
fn a_paused_start_is_asked_for_in_the_status() {
    let vm = machine(json!({"status": {"stateChangeRequests": [{"action": "Start", "data": {"paused": "true"}}]}}));
    assert_eq!(vmi_from_vm(&vm, Chosen::default()).unwrap().spec.start_strategy.as_deref(), Some("Paused"));
}

#[test]
fn a_finished_memory_dump_is_not_taken_again() {
    let volumes = json!([{"name": "dump", "memoryDump": {"claimName": "c"}}]);
    for (phase, left) in [("Completed", 0), ("InProgress", 1)] {
        let vm = machine(json!({
            "spec": {"template": {"spec": {"volumes": volumes}}},
            "status": {"memoryDumpRequest": {"claimName": "c", "phase": phase}},
        }));
        let vmi = vmi_from_vm(&vm, Chosen::default()).unwrap();
        assert_eq!(vmi.spec.volumes.len(), left, "{phase}");
    }
}

#[test]
fn a_preference_can_keep_the_default_network_away() {
    let preference: VirtualMachinePreferenceSpec = serde_json::from_value(
        json!({"devices": {"preferredAutoattachPodInterface": false, "preferredAutoattachInputDevice": true,
            "preferredInputBus": "virtio"}}),
    )
    .unwrap();
    let instancetype: VirtualMachineInstancetypeSpec =
        serde_json::from_value(json!({"cpu": {"guest": 2}, "memory": {"guest": "1Gi"}})).unwrap();
    let chosen = Chosen { instancetype: Some(&instancetype), preference: Some(&preference) };
    let vm = machine(json!({"spec": {"instancetype": {"name": "small"},
        "preference": {"name": "linux", "kind": "VirtualMachinePreference"}}}));
    let vmi = vmi_from_vm(&vm, chosen).unwrap();
    assert!(vmi.spec.networks.is_empty() && vmi.spec.domain.devices.interfaces.is_empty());
    assert_eq!(vmi.spec.domain.devices.inputs[0].bus.as_deref(), Some("virtio"));
    let annotations = vmi.metadata.annotations.unwrap();
    assert_eq!(annotations[ANNOTATION_CLUSTER_INSTANCETYPE], "small");
    assert_eq!(annotations[ANNOTATION_PREFERENCE], "linux");
}
