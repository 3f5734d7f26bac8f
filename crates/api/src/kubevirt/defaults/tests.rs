use serde_json::{Value, json};

use super::*;

fn filled(spec: &Value) -> Value {
    let mut vmi: VirtualMachineInstance = serde_json::from_value(json!({"spec": spec})).unwrap();
    vmi.fill_defaults(
        &ClusterConfig { architecture: "amd64", machine_type: "q35".to_owned(), ..ClusterConfig::default() },
        "u-2",
    );
    serde_json::to_value(vmi).unwrap()
}

fn at<'a>(value: &'a Value, path: &str) -> &'a Value {
    value.pointer(path).unwrap_or(&Value::Null)
}

#[test]
fn an_instance_that_says_nothing_gets_everything() {
    let vmi = filled(&json!({"domain": {"devices": {}, "memory": {"guest": "64Mi"}}}));
    let expected = [
        ("/spec/architecture", json!("amd64")),
        ("/spec/domain/machine/type", json!("q35")),
        ("/spec/domain/cpu", json!({"cores": 1, "sockets": 1, "threads": 1, "maxSockets": 4, "model": "host-model"})),
        ("/spec/domain/features/acpi/enabled", json!(true)),
        ("/spec/domain/firmware/uuid", json!("u-2")),
        ("/spec/domain/devices/interfaces", json!([{"name": "default", "masquerade": {}}])),
        ("/spec/networks", json!([{"name": "default", "pod": {}}])),
        ("/spec/domain/memory", json!({"guest": "64Mi"})),
        ("/status/runtimeUser", json!(107)),
        ("/status/currentCPUTopology", json!({"cores": 1, "sockets": 1, "threads": 1})),
        ("/status/memory/guestAtBoot", json!("64Mi")),
    ];
    for (path, value) in expected {
        assert_eq!(at(&vmi, path), &value, "{path}");
    }
}

#[test]
fn one_field_follows_from_another() {
    let cases = [
        (json!({"resources": {"limits": {"cpu": "3", "memory": "2Gi"}}}), "/spec/domain/cpu/sockets", json!(3)),
        (json!({"resources": {"limits": {"cpu": "3"}}}), "/spec/domain/resources/requests/cpu", json!("3")),
        (json!({"resources": {"requests": {"cpu": "1500m"}}}), "/spec/domain/cpu/sockets", json!(2)),
        (json!({"cpu": {"cores": 4}}), "/spec/domain/cpu/maxSockets", json!(4)),
        (json!({"cpu": {"cores": 4, "sockets": 100}}), "/spec/domain/cpu/maxSockets", json!(128)),
        (json!({"cpu": {"sockets": 2, "maxSockets": 2}}), "/spec/domain/cpu/maxSockets", json!(2)),
        (json!({"resources": {"requests": {"memory": "2Gi"}}}), "/spec/domain/memory/guest", json!("2Gi")),
        (json!({"resources": {"limits": {"memory": "2Gi"}}}), "/spec/domain/memory/maxGuest", json!("8Gi")),
        (json!({"memory": {"guest": "1023Mi"}}), "/spec/domain/memory/maxGuest", Value::Null),
        (json!({"memory": {"guest": "1025Mi"}}), "/spec/domain/memory/maxGuest", Value::Null),
        (json!({"memory": {"hugepages": {"pageSize": "2Mi"}}}), "/spec/domain/memory/guest", json!("2Mi")),
        (
            json!({"features": {"hyperv": {"synictimer": {}}}}),
            "/spec/domain/features/hyperv",
            json!({"synictimer": {"enabled": true}, "synic": {"enabled": true}, "vpindex": {"enabled": true}}),
        ),
        (
            json!({"features": {"hyperv": {"evmcs": {}}}}),
            "/spec/domain/cpu/features",
            json!([{"name": "vmx", "policy": "require"}]),
        ),
        (
            json!({"features": {"hyperv": {"spinlocks": {}}}}),
            "/spec/domain/features/hyperv/spinlocks",
            json!({"enabled": true, "spinlocks": 4096}),
        ),
    ];
    for (domain, path, value) in cases {
        let mut domain = domain;
        domain["devices"] = json!({});
        let vmi = filled(&json!({"domain": domain}));
        assert_eq!(at(&vmi, path), &value, "{domain}");
    }
}

#[test]
fn devices_get_the_bus_that_any_guest_knows() {
    let vmi = filled(&json!({
        "domain": {"devices": {
            "disks": [{"name": "a"}, {"name": "b", "cdrom": {}}, {"name": "c", "lun": {}}, {"name": "d", "disk": {"bus": "virtio"}}],
            "inputs": [{"name": "i", "type": ""}], "watchdog": {"name": "w"}, "autoattachPodInterface": false,
        }},
        "volumes": [{"name": "e", "containerDisk": {"image": "r/i:1"}}, {"name": "f", "containerDisk": {"image": "r/i"}}],
        "readinessProbe": {"tcpSocket": {"port": 22}},
    }));
    let expected = [
        ("/spec/domain/devices/disks/0/disk/bus", json!("sata")),
        ("/spec/domain/devices/disks/1/cdrom", json!({"bus": "sata", "readonly": true, "tray": "closed"})),
        ("/spec/domain/devices/disks/2/lun/bus", json!("sata")),
        ("/spec/domain/devices/disks/3/disk/bus", json!("virtio")),
        ("/spec/domain/devices/disks/4/name", json!("e")),
        ("/spec/domain/devices/disks/5/disk/bus", json!("sata")),
        ("/spec/domain/devices/inputs/0", json!({"name": "i", "type": "tablet", "bus": "usb"})),
        ("/spec/domain/devices/watchdog/i6300esb/action", json!("reset")),
        ("/spec/volumes/0/containerDisk/imagePullPolicy", json!("IfNotPresent")),
        ("/spec/volumes/1/containerDisk/imagePullPolicy", json!("Always")),
        ("/spec/networks", Value::Null),
        ("/spec/readinessProbe/periodSeconds", json!(10)),
    ];
    for (path, value) in expected {
        assert_eq!(at(&vmi, path), &value, "{path}");
    }
}
