use serde_json::{Value, json};

use super::*;

fn machine(spec: &Value) -> VirtualMachine {
    serde_json::from_value(json!({
        "metadata": {"name": "a"},
        "spec": {"instancetype": {"name": "i"}, "preference": {"name": "p"}, "template": {"spec": spec}},
    }))
    .unwrap()
}

fn run(spec: &Value, instancetype: &Value, preference: &Value) -> Result<Value, Conflicts> {
    let instancetype: Option<VirtualMachineInstancetypeSpec> = serde_json::from_value(instancetype.clone()).unwrap();
    let preference: Option<VirtualMachinePreferenceSpec> = serde_json::from_value(preference.clone()).unwrap();
    let chosen = Chosen { instancetype: instancetype.as_ref(), preference: preference.as_ref() };
    let expanded = expand(&machine(spec), chosen, &ClusterConfig::default())?;
    assert!(expanded.spec.instancetype.is_none() && expanded.spec.preference.is_none());
    Ok(serde_json::to_value(expanded).unwrap()["spec"]["template"].clone())
}

fn size(cpu: u32) -> Value {
    json!({"cpu": {"guest": cpu}, "memory": {"guest": "1Gi"}})
}

#[test]
fn processors_are_laid_out_as_preferred() {
    let layout =
        |topology: &str, options: Value| json!({"cpu": {"preferredCPUTopology": topology, "spreadOptions": options}});
    let cases = [
        (4, Value::Null, [4, 1, 1]),
        (4, layout("cores", Value::Null), [1, 4, 1]),
        (4, layout("preferThreads", Value::Null), [1, 1, 4]),
        (4, layout("any", Value::Null), [4, 1, 1]),
        (4, layout("spread", Value::Null), [2, 2, 1]),
        (8, layout("spread", json!({"ratio": 4})), [2, 4, 1]),
        (4, layout("spread", json!({"across": "CoresThreads"})), [1, 2, 2]),
        (8, layout("spread", json!({"across": "SocketsCoresThreads", "ratio": 2})), [2, 2, 2]),
        (1, layout("cores", Value::Null), [1, 1, 1]),
    ];
    for (count, preference, [sockets, cores, threads]) in cases {
        let template = run(&json!({"domain": {"devices": {}}}), &size(count), &preference).unwrap();
        let cpu = &template["spec"]["domain"]["cpu"];
        assert_eq!(
            (&cpu["sockets"], &cpu["cores"], &cpu["threads"]),
            (&json!(sockets), &json!(cores), &json!(threads)),
            "{count} {preference}"
        );
    }
}

#[test]
fn what_both_set_is_a_conflict() {
    let cases = [
        (json!({"domain": {"cpu": {"cores": 2}}}), size(1), "spec.template.spec.domain.cpu.cores"),
        (json!({"domain": {"memory": {"guest": "1Gi"}}}), size(1), "spec.template.spec.domain.memory.guest"),
        (
            json!({"domain": {"resources": {"requests": {"cpu": "1"}, "limits": {"memory": "1Gi"}}}}),
            size(1),
            "spec.template.spec.domain.resources.requests.cpu, spec.template.spec.domain.resources.limits.memory",
        ),
        (
            json!({"nodeSelector": {"a": "b"}, "domain": {}}),
            json!({"cpu": {"guest": 1}, "memory": {"guest": "1Gi"}, "nodeSelector": {"c": "d"}}),
            "spec.template.spec.nodeSelector",
        ),
        (
            json!({"domain": {"devices": {"gpus": [{"name": "g", "deviceName": "x"}]}}}),
            json!({"cpu": {"guest": 1}, "memory": {"guest": "1Gi"}, "gpus": [{"name": "h", "deviceName": "x"}]}),
            "spec.template.spec.domain.devices.gpus",
        ),
    ];
    for (mut spec, instancetype, fields) in cases {
        if spec["domain"]["devices"].is_null() {
            spec["domain"]["devices"] = json!({});
        }
        let conflicts = run(&spec, &instancetype, &Value::Null).unwrap_err();
        assert_eq!(conflicts.fields(), fields);
        assert_eq!(conflicts.to_string(), format!("VM field(s) {fields} conflicts with selected instance type"));
    }
}

#[test]
fn an_odd_number_cannot_be_spread() {
    let preference = json!({"cpu": {"preferredCPUTopology": "spread"}});
    let conflicts = run(&json!({"domain": {"devices": {}}}), &size(3), &preference).unwrap_err();
    assert_eq!(
        conflicts.to_string(),
        "3 vCPUs provided by the instance type are not divisible by the Spec.PreferSpreadSocketToCoreRatio or \
         Spec.CPU.PreferSpreadOptions.Ratio of 2 provided by the preference"
    );
}

#[test]
fn memory_can_be_overcommitted() {
    let instancetype = json!({"cpu": {"guest": 1}, "memory": {"guest": "1Gi", "overcommitPercent": 25}});
    let template = run(&json!({"domain": {"devices": {}}}), &instancetype, &Value::Null).unwrap();
    assert_eq!(template["spec"]["domain"]["resources"]["requests"]["memory"], "768Mi");
    assert_eq!(template["spec"]["domain"]["memory"]["guest"], "1Gi");
}

#[test]
fn a_preference_fills_only_what_is_open() {
    let preference = json!({
        "devices": {"preferredDiskBus": "virtio", "preferredInterfaceModel": "e1000", "preferredTPM": {}, "preferredCdromBus": "scsi",
            "preferredDiskDedicatedIoThread": true},
        "firmware": {"preferredEfi": {"secureBoot": false}},
        "features": {"preferredSmm": {}, "preferredHyperv": {"relaxed": {}}},
        "clock": {"preferredClockOffset": {"timezone": "UTC"}},
        "machine": {"preferredMachineType": "pc-q35-7.2"},
        "preferredTerminationGracePeriodSeconds": 7,
        "annotations": {"a": "preferred", "b": "preferred"},
    });
    let spec = json!({
        "domain": {"devices": {
            "disks": [{"name": "x"}, {"name": "y", "disk": {"bus": "sata"}}, {"name": "z", "cdrom": {}}],
            "interfaces": [{"name": "n", "model": "virtio", "bridge": {}}, {"name": "m", "bridge": {}}],
        }, "features": {"smm": {"enabled": false}}},
        "networks": [{"name": "n", "pod": {}}, {"name": "m", "multus": {"networkName": "x"}}],
    });
    let template = run(&spec, &size(1), &preference).unwrap();
    let expected = [
        ("/spec/domain/devices/disks/0/disk/bus", json!("virtio")),
        ("/spec/domain/devices/disks/0/dedicatedIOThread", json!(true)),
        ("/spec/domain/devices/disks/1/disk/bus", json!("sata")),
        ("/spec/domain/devices/disks/2/cdrom/bus", json!("scsi")),
        ("/spec/domain/devices/interfaces/0/model", json!("virtio")),
        ("/spec/domain/devices/interfaces/1/model", json!("e1000")),
        ("/spec/domain/devices/tpm", json!({})),
        ("/spec/domain/firmware/bootloader/efi/secureBoot", json!(false)),
        ("/spec/domain/features/smm/enabled", json!(false)),
        ("/spec/domain/features/hyperv/relaxed", json!({})),
        ("/spec/domain/clock/timezone", json!("UTC")),
        ("/spec/domain/machine/type", json!("pc-q35-7.2")),
        ("/spec/terminationGracePeriodSeconds", json!(7)),
        ("/metadata/annotations/b", json!("preferred")),
    ];
    for (path, value) in expected {
        assert_eq!(template.pointer(path), Some(&value), "{path}");
    }
    assert_eq!(template.pointer("/spec/domain/devices/disks/1/dedicatedIOThread"), None);
}

#[test]
fn a_preference_may_require_a_size() {
    let check = |instancetype: &Value, preference: Value, spec: Value| -> Result<(), Conflicts> {
        let instancetype: Option<VirtualMachineInstancetypeSpec> =
            serde_json::from_value(instancetype.clone()).unwrap();
        let preference: VirtualMachinePreferenceSpec = serde_json::from_value(preference).unwrap();
        let spec: VirtualMachineInstanceSpec = serde_json::from_value(spec).unwrap();
        check_requirements(instancetype.as_ref(), &preference, &spec)
    };
    let open = || json!({"domain": {"devices": {}}});
    let cpu = |count: u32| json!({"requirements": {"cpu": {"guest": count}}});
    let memory = |size: &str| json!({"requirements": {"memory": {"guest": size}}});
    assert!(check(&size(2), cpu(2), open()).is_ok());
    assert!(check(&size(2), memory("1Gi"), open()).is_ok());
    let cases = [
        (
            size(2),
            cpu(4),
            open(),
            "insufficient CPU resources of 2 vCPU provided by instance type, preference requires 4 vCPU",
        ),
        (Value::Null, cpu(4), open(), "no CPU resources provided by VirtualMachine, preference requires 4 vCPU"),
        (
            Value::Null,
            cpu(4),
            json!({"domain": {"devices": {}, "cpu": {"sockets": 2, "cores": 2}}}),
            "insufficient CPU resources of 2 vCPU provided by VirtualMachine, preference requires 4 vCPU provided as sockets",
        ),
        (
            size(2),
            memory("2Gi"),
            open(),
            "insufficient Memory resources of 1Gi provided by instance type, preference requires 2Gi",
        ),
        (
            Value::Null,
            memory("2Gi"),
            open(),
            "insufficient Memory resources of 0 provided by VirtualMachine, preference requires 2Gi",
        ),
        (
            Value::Null,
            json!({"requirements": {"architecture": "arm64"}}),
            json!({"architecture": "amd64", "domain": {"devices": {}}}),
            "preference requires architecture arm64 but amd64 is being requested",
        ),
    ];
    for (instancetype, preference, spec, message) in cases {
        assert_eq!(check(&instancetype, preference, spec).unwrap_err().to_string(), message);
    }
}
