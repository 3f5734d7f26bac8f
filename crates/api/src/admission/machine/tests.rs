use serde_json::{Value, json};

use super::super::testing::{Objects, nothing, write};
use super::*;

fn machine() -> Value {
    json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {
            "runStrategy": "Always",
            "template": {"metadata": {"creationTimestamp": null}, "spec": {
                "domain": {
                    "cpu": {"cores": 2},
                    "resources": {"limits": {"cpu": 2, "memory": "4096Mi"}},
                    "devices": {
                        "disks": [{"name": "root", "disk": {"bus": "virtio"}}],
                        "interfaces": [{"name": "default", "masquerade": {}}],
                    },
                },
                "networks": [{"name": "default", "pod": {}}],
                "volumes": [{"name": "root", "containerDisk": {"image": "r/i:1"}}],
            }},
        },
    })
}

fn merged(mut into: Value, from: Value) -> Value {
    fn merge(into: &mut Value, from: Value) {
        match (into, from) {
            (Value::Object(into), Value::Object(from)) => {
                for (key, value) in from {
                    if value.is_null() {
                        into.remove(&key);
                    } else {
                        merge(into.entry(key).or_insert(Value::Null), value);
                    }
                }
            }
            (into, from) => *into = from,
        }
    }
    merge(&mut into, from);
    into
}

fn created(change: Value) -> Value {
    write(admit, merged(machine(), change), None, &nothing(), false).unwrap()
}

fn refused(change: Value, objects: &Objects) -> ApiError {
    write(admit, merged(machine(), change), None, objects, false).unwrap_err()
}

fn domain(machine: &Value) -> &Value {
    &machine["spec"]["template"]["spec"]["domain"]
}

#[test]
fn a_new_machine_is_completed() {
    let vm = created(json!({}));
    let template = &vm["spec"]["template"];
    assert_eq!(template["spec"]["architecture"], ClusterConfig::default().architecture);
    assert_eq!(domain(&vm)["machine"]["type"], ClusterConfig::default().machine_type);
    assert_eq!(domain(&vm)["firmware"]["uuid"].as_str().unwrap().len(), 36);
    assert_ne!(domain(&vm)["firmware"]["uuid"], domain(&vm)["firmware"]["serial"]);
    assert_eq!(template["metadata"]["annotations"][ANNOTATION_PCI_TOPOLOGY_VERSION], "v3");
    assert_eq!(vm["metadata"]["annotations"][ANNOTATION_LATEST_API_VERSION], "v1");
    assert_eq!(vm["metadata"]["finalizers"], json!([MACHINE_FINALIZER]));
    assert_eq!(template["spec"]["terminationGracePeriodSeconds"], 120);
    assert_eq!(domain(&vm)["cpu"], json!({"cores": 2, "sockets": 1, "threads": 1, "maxSockets": 1}));
    let mac = domain(&vm)["devices"]["interfaces"][0]["macAddress"].as_str().unwrap();
    let first = u8::from_str_radix(&mac[..2], 16).unwrap();
    assert_eq!(first & 0x03, 0x02, "{mac}");
}

#[test]
fn limits_are_booked_with_overcommit() {
    let plain = domain(&created(json!({}))).clone();
    assert_eq!(plain["resources"]["limits"], json!({"cpu": "2", "memory": "4Gi"}));
    assert_eq!(plain["resources"]["requests"], json!({"cpu": "200m", "memory": "2730Mi"}));
    assert_eq!(plain["memory"]["guest"], "4Gi");

    let change = |value: Value| json!({"spec": {"template": {"spec": {"domain": value}}}});
    let dedicated = created(change(json!({"cpu": {"cores": 2, "dedicatedCpuPlacement": true}})));
    assert_eq!(domain(&dedicated)["resources"]["requests"], json!({"cpu": "2", "memory": "4Gi"}));
    let passed = created(change(json!({"devices": {"gpus": [{"name": "g", "deviceName": "d"}]}})));
    assert_eq!(domain(&passed)["resources"]["requests"]["memory"], "4Gi");

    let reserved = created(json!({"metadata": {"annotations": {"harvesterhci.io/reservedMemory": "1Gi"}}}));
    assert_eq!(domain(&reserved)["memory"]["guest"], "3Gi");
    let growing = created(json!({
        "metadata": {"annotations": {"harvesterhci.io/enableCPUAndMemoryHotplug": "true"}},
        "spec": {"template": {"spec": {"domain": {"memory": {"guest": "2Gi", "maxGuest": "4Gi"}}}}},
    }));
    assert_eq!(domain(&growing)["memory"], json!({"guest": "2Gi", "maxGuest": "4Gi"}));
    assert_eq!(domain(&growing)["cpu"].get("maxSockets"), None);

    let pure = created(change(json!({"resources": null, "memory": {"guest": "64Mi"}})));
    assert_eq!(domain(&pure).get("resources"), None);
    assert_eq!(domain(&pure)["memory"], json!({"guest": "64Mi"}));
}

#[test]
fn settings_change_what_is_booked() {
    let setting = |name: &str, value: &str| json!({"metadata": {"name": name}, "value": value});
    let objects = Objects::default()
        .with("harvesterhci.io", "settings", setting("overcommit-config", r#"{"cpu":100,"memory":200,"storage":100}"#))
        .with("harvesterhci.io", "settings", setting("additional-guest-memory-overhead-ratio", "0"))
        .with("harvesterhci.io", "settings", setting("default-vm-termination-grace-period-seconds", "7"));
    let vm = write(admit, machine(), None, &objects, false).unwrap();
    assert_eq!(domain(&vm)["resources"]["requests"], json!({"cpu": "2", "memory": "2Gi"}));
    assert_eq!(domain(&vm)["memory"]["guest"], "3996Mi");
    assert_eq!(vm["spec"]["template"]["spec"]["terminationGracePeriodSeconds"], 7);
}

#[test]
fn memory_must_be_given_and_be_enough() {
    let cases = [
        (
            json!({"spec": {"template": {"spec": {"domain": {"resources": null}}}}}),
            "either memory.guest or resources.limits.memory must be set",
        ),
        (
            json!({"spec": {"template": {"spec": {"domain": {"resources": {"limits": {"memory": "5Mi"}}}}}}}),
            "guest memory is under the minimum requirement (10 Mi), original: 5242880, final: 5242880",
        ),
        (
            json!({"metadata": {"annotations": {"harvesterhci.io/reservedMemory": "4Gi"}}}),
            "reservedMemory can't be equal or greater than limits.memory  4294967296 4294967296",
        ),
        (
            json!({"metadata": {"annotations": {"harvesterhci.io/reservedMemory": "much"}}}),
            "annotation much can't be converted to memory unit",
        ),
    ];
    for (change, message) in cases {
        let error = refused(change, &nothing());
        assert!(error.message().ends_with(message), "{error}");
    }
}

#[test]
fn a_running_strategy_is_needed_and_only_one() {
    let cases = [
        (json!({"spec": {"runStrategy": null}}), "spec.running", "RunStrategy must be specified"),
        (
            json!({"spec": {"running": true}}),
            "spec.running",
            "Running and RunStrategy are mutually exclusive. Note that Running is deprecated, please use RunStrategy instead",
        ),
        (json!({"spec": {"runStrategy": "Often"}}), "spec.runStrategy", "Invalid RunStrategy (Often)"),
    ];
    for (change, field, message) in cases {
        let error = refused(change, &nothing());
        assert_eq!(error.message(), format!("admission webhook \"{VALIDATOR}\" denied the request: {message}"));
        assert_eq!((error.code(), error.reason()), (422, "Invalid"));
        assert_eq!(error.details().unwrap().causes[0].field, field);
    }
    created(json!({"spec": {"runStrategy": null, "running": true}}));
}

#[test]
fn starting_a_halted_machine_brings_its_strategy_back() {
    let halted = created(json!({"spec": {"runStrategy": "Halted"}}));
    let start = |old: &Value, annotations: Value| {
        let new =
            merged(old.clone(), json!({"spec": {"runStrategy": "Always"}, "metadata": {"annotations": annotations}}));
        write(admit, new, Some(old), &nothing(), false).unwrap()["spec"]["runStrategy"].clone()
    };
    assert_eq!(start(&halted, json!({})), "RerunOnFailure");
    assert_eq!(start(&halted, json!({"harvesterhci.io/vmRunStrategy": "Manual"})), "Manual");
    assert_eq!(start(&halted, json!({"harvesterhci.io/vmRunStrategy": "Halted"})), "RerunOnFailure");
    let running = created(json!({"spec": {"runStrategy": "Once"}}));
    assert_eq!(start(&running, json!({})), "Always");
}

#[test]
fn addresses_are_kept_and_not_shared() {
    let vm = created(json!({}));
    let again = merged(vm.clone(), json!({"metadata": {"labels": {"a": "b"}}}));
    let updated = write(admit, again, Some(&vm), &nothing(), false).unwrap();
    assert_eq!(domain(&updated)["devices"], domain(&vm)["devices"]);

    let known =
        json!({"metadata": {"annotations": {"harvesterhci.io/mac-address": "{\"default\":\"02:00:00:00:00:01\"}"}}});
    assert_eq!(domain(&created(known))["devices"]["interfaces"][0].get("macAddress"), None);
    // Whoever writes the machine anew without it does not change it.
    let old = created(json!({}));
    let anew = merged(machine(), json!({"metadata": {"labels": {"a": "b"}}}));
    let anew = write(admit, anew, Some(&old), &nothing(), false).unwrap();
    assert_eq!(domain(&anew)["devices"]["interfaces"], domain(&old)["devices"]["interfaces"]);

    let other = merged(vm.clone(), json!({"metadata": {"name": "other"}}));
    let objects = Objects::default().with("kubevirt.io", "virtualmachines", other);
    let error = write(admit, merged(vm, json!({"metadata": {"name": "third"}})), None, &objects, false).unwrap_err();
    assert!(
        error.message().ends_with("duplicate mac address present for vm third for cluster network mgmt"),
        "{error}"
    );
}

#[test]
fn machines_go_where_their_networks_are() {
    let nad = |name: &str, network: &str| json!({"metadata": {"name": name, "namespace": "shop", "labels": {"network.harvesterhci.io/clusternetwork": network}}});
    let objects = Objects::default()
        .with("k8s.cni.cncf.io", "network-attachment-definitions", nad("red", "data"))
        .with("k8s.cni.cncf.io", "network-attachment-definitions", nad("base", "mgmt"));
    let plugged = |name: &str| {
        merged(
            machine(),
            json!({"spec": {"template": {"spec": {
                "networks": [{"name": "default", "multus": {"networkName": name}}],
                "domain": {"devices": {"interfaces": [{"name": "default", "bridge": {}}]}},
            }}}}),
        )
    };
    let vm = write(admit, plugged("shop/red"), None, &objects, false).unwrap();
    let terms = |vm: &Value| {
        vm.pointer("/spec/template/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms").cloned()
    };
    let wanted = json!({"key": "network.harvesterhci.io/data", "operator": "In", "values": ["true"]});
    assert_eq!(terms(&vm), Some(json!([{"matchExpressions": [wanted]}])));
    // What follows from a network goes with it; what the user asked for stays.
    let zone = json!({"key": "zone", "operator": "In", "values": ["a"]});
    let mut moved = vm.clone();
    moved["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"] =
        json!([{"matchExpressions": [zone, wanted]}]);
    moved["spec"]["template"]["spec"]["networks"][0]["multus"]["networkName"] = json!("base");
    let moved = write(admit, moved, Some(&vm), &objects, false).unwrap();
    assert_eq!(terms(&moved), Some(json!([{"matchExpressions": [zone]}])));
    let error = write(admit, plugged("blue"), None, &objects, false).unwrap_err();
    assert!(error.message().ends_with("network-attachment-definitions.k8s.cni.cncf.io \"blue\" not found"), "{error}");
}

#[test]
fn pinned_processors_choose_the_node_and_the_user_does_not() {
    let with = |pinned: bool, expression: Value| {
        let mut vm = machine();
        vm["spec"]["template"]["spec"]["domain"]["cpu"]["dedicatedCpuPlacement"] = json!(pinned);
        vm["spec"]["template"]["spec"]["affinity"] = json!({"nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}});
        vm
    };
    let ours = json!({"key": "cpumanager", "operator": "In", "values": ["true"]});
    let other = json!({"key": "cpumanager", "operator": "In", "values": ["false"]});
    let why = "key \"cpumanager\" is automatically operated by Harvester controller and can't be changed manually";
    for (pinned, expression) in [(true, &other), (false, &ours), (false, &other)] {
        let error = write(admit, with(pinned, expression.clone()), None, &nothing(), false).unwrap_err();
        assert!(error.message().contains(why), "{error}");
    }
    // Sent back as it was read, though it is not pinned any more.
    let old = with(true, ours.clone());
    let after = write(admit, with(false, ours.clone()), Some(&old), &nothing(), false).unwrap();
    assert!(after.pointer("/spec/template/spec/affinity").is_none(), "{after}");
    write(admit, with(false, other), Some(&old), &nothing(), false).unwrap_err();
}

#[test]
fn claim_templates_are_checked() {
    let class = json!({"metadata": {"name": "fast"}, "provisioner": "driver.longhorn.io"});
    let objects = Objects::default().with("storage.k8s.io", "storageclasses", class);
    let with = |text: &str| json!({"metadata": {"annotations": {"harvesterhci.io/volumeClaimTemplates": text}}});
    let entry = |size: &str, class: &str| {
        format!(
            r#"[{{"metadata":{{"name":"d"}},"spec":{{"storageClassName":"{class}","resources":{{"requests":{{"storage":"{size}"}}}}}}}}]"#
        )
    };
    let cases = [
        ("x".to_owned(), "the volumeClaimTemplates annotaion is invalid: "),
        ("[{}]".to_owned(), "the volumeClaimTemplates annotaion is invalid: PVC name is required"),
        (entry("1Gi", "slow"), "storage class slow does not exist"),
    ];
    for (text, message) in cases {
        let error = refused(with(&text), &objects);
        assert!(error.message().contains(message), "{error}");
    }
    let vm = write(admit, merged(machine(), with(&entry("2Gi", "fast"))), None, &objects, false).unwrap();
    let smaller =
        write(admit, merged(vm.clone(), with(&entry("1Gi", "fast"))), Some(&vm), &objects, false).unwrap_err();
    assert!(smaller.message().ends_with("d PVC requests storage can't be less than previous value"), "{smaller}");
    assert!(write(admit, merged(vm.clone(), with(&entry("3Gi", "fast"))), Some(&vm), &objects, false).is_ok());
}

#[test]
fn a_claim_is_not_used_twice() {
    let on_claim = json!({"spec": {"template": {"spec": {"volumes": [{"name": "root", "persistentVolumeClaim": {"claimName": "c"}}]}}}});
    let other = merged(merged(machine(), on_claim.clone()), json!({"metadata": {"name": "other"}}));
    let objects = Objects::default().with("kubevirt.io", "virtualmachines", other);
    let error = refused(on_claim.clone(), &objects);
    assert!(
        error.message().ends_with("PVC shop/c is already used by other VM, please use a shareable RWX volume."),
        "{error}"
    );
    let golden =
        json!({"metadata": {"name": "c", "namespace": "shop", "annotations": {"harvesterhci.io/goldenImage": "true"}}});
    let error = refused(on_claim, &Objects::default().with("", "persistentvolumeclaims", golden));
    assert!(error.message().ends_with("PVC shop/c is a golden image, it can't be used as a volume in VM"), "{error}");
}

#[test]
fn an_instancetype_gives_the_size_and_conflicts_are_refused() {
    let size = json!({"metadata": {"name": "small"}, "spec": {"cpu": {"guest": 2}, "memory": {"guest": "2Gi"}}});
    let preference = json!({"metadata": {"name": "linux"}, "spec": {
        "machine": {"preferredMachineType": "pc-q35-7.2"}, "requirements": {"cpu": {"guest": 2}},
    }});
    let objects = Objects::default().with("instancetype.kubevirt.io", "virtualmachineclusterinstancetypes", size).with(
        "instancetype.kubevirt.io",
        "virtualmachineclusterpreferences",
        preference,
    );
    let sized = json!({"spec": {
        "instancetype": {"name": "small"}, "preference": {"name": "linux"},
        "template": {"spec": {"domain": {"cpu": null, "resources": null}}},
    }});
    let vm = write(admit, merged(machine(), sized.clone()), None, &objects, false).unwrap();
    assert_eq!(domain(&vm).get("cpu"), None);
    assert_eq!(domain(&vm)["machine"]["type"], "pc-q35-7.2");
    let both = merged(sized, json!({"spec": {"template": {"spec": {"domain": {"cpu": {"cores": 2}}}}}}));
    let error = refused(both, &objects);
    assert!(
        error
            .message()
            .ends_with("VM field(s) spec.template.spec.domain.cpu.cores conflicts with selected instance type"),
        "{error}"
    );
    for (matcher, why) in [
        (json!({"name": "none"}), "virtualmachineclusterinstancetypes.instancetype.kubevirt.io \"none\" not found"),
        (json!({"name": "x", "kind": "Toaster"}), "got unexpected kind in instancetype matcher: toaster"),
        (json!({"name": "x", "revisionName": "r"}), "controllerrevisions.apps \"r\" not found"),
    ] {
        let error = refused(json!({"spec": {"instancetype": matcher}}), &objects);
        assert!(error.message().ends_with(&format!("Failure to find instancetype: {why}")), "{error}");
    }
    let error = refused(json!({"spec": {"instancetype": {}}}), &objects);
    assert!(
        error.message().ends_with("Either Name or InferFromVolume should be provided within the InstancetypeMatcher"),
        "{error}"
    );
}

#[test]
fn an_instancetype_is_inferred_from_the_labels_of_a_volume() {
    let claim = json!({"metadata": {"name": "c", "namespace": "shop", "labels": {
        "instancetype.kubevirt.io/default-instancetype": "small",
        "instancetype.kubevirt.io/default-instancetype-kind": "VirtualMachineInstancetype",
    }}});
    let small = json!({"metadata": {"name": "small", "namespace": "shop"},
        "spec": {"cpu": {"guest": 1}, "memory": {"guest": "1Gi"}}});
    let objects = Objects::default().with("", "persistentvolumeclaims", claim).with(
        instancetype::GROUP,
        "virtualmachineinstancetypes",
        small,
    );
    let infer = |policy: &str| {
        json!({"spec": {
            "instancetype": {"inferFromVolume": "root", "inferFromVolumeFailurePolicy": policy},
            "template": {"spec": {
                "domain": {"cpu": null, "resources": null, "memory": {"guest": "1Gi"}},
                "volumes": [{"name": "root", "persistentVolumeClaim": {"claimName": "c"}}],
            }},
        }})
    };
    let sizeless = json!({"spec": {"template": {"spec": {"domain": {"memory": null}}}}});
    let vm = write(admit, merged(machine(), merged(infer("Reject"), sizeless)), None, &objects, false).unwrap();
    assert_eq!(vm["spec"]["instancetype"], json!({"name": "small", "kind": "VirtualMachineInstancetype"}));
    let unlabelled = json!({"metadata": {"name": "c", "namespace": "shop"}});
    let objects = Objects::default().with("", "persistentvolumeclaims", unlabelled);
    let error = refused(infer("Reject"), &objects);
    assert_eq!(error.code(), 400);
    assert!(
        error.message().contains("unable to find required instancetype.kubevirt.io/default-instancetype label"),
        "{error}"
    );
    let vm = write(admit, merged(machine(), infer("Ignore")), None, &objects, false).unwrap();
    assert_eq!(vm["spec"].get("instancetype"), None);
}

#[test]
fn specs_of_templates_are_checked_below_the_template() {
    let error = refused(json!({"spec": {"template": {"spec": {"hostname": "A"}}}}), &nothing());
    assert_eq!(error.details().unwrap().causes[0].field, "spec.template.spec.hostname");
    let error =
        refused(json!({"spec": {"template": {"metadata": {"labels": {"kubevirt.io/nodeName": "n"}}}}}), &nothing());
    assert!(error.message().contains("reserved kubevirt.io/ labels"), "{error}");
    let error = refused(json!({"metadata": {"labels": {MAINTENANCE: "Pray"}}}), &nothing());
    assert!(error.message().ends_with("invalid maintenance mode strategy: Pray"), "{error}");
}

#[test]
fn what_the_schema_forbids_is_left_to_the_schema() {
    let wrong = json!({"spec": {"template": {"spec": {"domain": {"cpu": {"cores": "two"}}}}}});
    assert!(write(admit, merged(machine(), wrong), None, &nothing(), false).is_ok());
    // The metadata of a template has no schema, so nobody else would refuse this.
    let wrong = json!({"spec": {"template": {"metadata": {"labels": {"a": 5}}}}});
    assert_eq!(refused(wrong, &nothing()).code(), 422);
}

#[test]
fn writes_that_change_nothing_here_pass_untouched() {
    let old = json!({"metadata": {"name": "a", "annotations": {"x": "y"}}, "spec": {"old": "shape"}});
    let new = merged(old.clone(), json!({"metadata": {"finalizers": ["f"]}}));
    assert_eq!(write(admit, new.clone(), Some(&old), &nothing(), true).unwrap(), new);
    let going = merged(
        machine(),
        json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "spec": {"runStrategy": "Odd"}}),
    );
    assert_eq!(write(admit, going.clone(), None, &nothing(), false).unwrap(), going);
}
