use super::*;
use croft_meta::FieldPath;
use croft_schema::{prune_resource, validate};
use serde_json::json;

use crate::custom_resource;
use crate::resource::Resource;

fn row(group: &str, plural: &str) -> Resource {
    let name = format!("{plural}.{group}");
    let definition = shipped_definitions().find(|definition| definition["metadata"]["name"] == name.as_str());
    let definition = definition.unwrap();
    custom_resource(&definition.clone(), move || definition)
}

#[test]
fn every_schema_is_structural() {
    for definition in shipped_definitions() {
        for version in definition["spec"]["versions"].as_array().unwrap() {
            let errors =
                croft_schema::check_structural(&version["schema"]["openAPIV3Schema"], &FieldPath::new("schema"));
            assert!(errors.is_empty(), "{}: {errors:#?}", definition["metadata"]["name"]);
        }
    }
}

#[test]
fn every_definition_passes_the_rules_for_definitions() {
    let crd = crate::builtin().iter().find(|resource| resource.names.plural == "customresourcedefinitions").unwrap();
    for mut definition in shipped_definitions() {
        (crd.behaviour.default)(&mut definition);
        (crd.behaviour.prepare_create)(&mut definition);
        let errors = (crd.behaviour.validate_create)(&definition);
        assert!(errors.is_empty(), "{}: {errors:#?}", definition["metadata"]["name"]);
    }
}

#[test]
fn kinds_are_served_as_clients_know_them() {
    let vm = row("kubevirt.io", "virtualmachines");
    assert_eq!(vm.versions.iter().map(|v| v.name.as_str()).collect::<Vec<_>>(), ["v1", "v1alpha3"]);
    assert_eq!(vm.storage_version, "v1");
    assert!(vm.versions[1].deprecation_warning.is_some());
    assert_eq!(vm.names.short_names, ["vm", "vms"]);
    assert_eq!(vm.names.categories, ["all"]);
    assert!(vm.versions[0].subresources.iter().any(|s| s.name == "status"));
    assert!(vm.behaviour.admit.is_some() && vm.behaviour.admit_delete.is_some());
    let vmi = row("kubevirt.io", "virtualmachineinstances");
    assert!(vmi.versions[0].subresources.is_empty());
    let columns = |resource: &Resource| resource.versions[0].columns.iter().map(|c| c.name.clone()).collect::<Vec<_>>();
    assert_eq!(columns(&vmi), ["Age", "Phase", "IP", "NodeName", "Ready", "Live-Migratable", "Paused"]);
    assert_eq!(columns(&vm), ["Age", "Status", "Ready"]);
    assert_eq!(columns(&row("harvesterhci.io", "settings")), ["VALUE"]);
    assert!(!row("harvesterhci.io", "settings").is_namespaced());
}

#[test]
fn a_kind_is_described_once() {
    let names: Vec<String> = shipped_names().collect();
    let unique: std::collections::BTreeSet<&String> = names.iter().collect();
    assert_eq!(unique.len(), names.len(), "{names:#?}");
    let made = shipped_definitions().map(|definition| definition["metadata"]["name"].as_str().unwrap().to_owned());
    assert_eq!(made.collect::<Vec<_>>(), names);
}

#[test]
fn every_rule_compiles() {
    for definition in shipped_definitions() {
        for version in definition["spec"]["versions"].as_array().unwrap() {
            let schema = croft_schema::Schema::from_json(&version["schema"]["openAPIV3Schema"]).unwrap();
            let rules = croft_schema::CelRules::compile(&schema, &FieldPath::root());
            assert!(rules.is_ok(), "{}: {:?}", definition["metadata"]["name"], rules.err());
        }
    }
}

#[test]
fn no_kind_is_described_twice() {
    let mut seen = std::collections::HashSet::new();
    for definition in shipped_definitions() {
        assert!(seen.insert(definition["metadata"]["name"].to_string()), "{}", definition["metadata"]["name"]);
    }
    assert!(seen.len() > 90, "{}", seen.len());
}

#[test]
fn kinds_of_tables_are_known_by_their_headers() {
    assert_eq!(has_status("harvesterhci.io", "keypairs"), Some(false));
    assert_eq!(has_status("harvesterhci.io", "addons"), Some(true));
    assert_eq!(has_status("kubevirt.io", "virtualmachines"), Some(true));
    assert_eq!(has_status("example.com", "keypairs"), None);
    for definition in shipped_definitions() {
        let (group, plural) = (&definition["spec"]["group"], &definition["spec"]["names"]["plural"]);
        let has = !definition["spec"]["versions"][0]["subresources"]["status"].is_null();
        assert_eq!(has_status(group.as_str().unwrap(), plural.as_str().unwrap()), Some(has), "{plural}");
    }
}

#[test]
fn kinds_that_are_only_stored_say_so() {
    let row = row("harvesterhci.io", "lvmvolumegroups");
    let object = json!({"apiVersion": "harvesterhci.io/v1beta1", "kind": "LVMVolumeGroup"});
    let warnings = (row.behaviour.warnings)(&object);
    assert_eq!(warnings, ["Croft stores lvmvolumegroups but does not act on them: no volume group is made"]);
}

#[test]
fn versions_of_one_schema_share_it() {
    let vm = row("kubevirt.io", "virtualmachines");
    assert!(std::sync::Arc::ptr_eq(vm.versions[0].schema.shared(), vm.versions[1].schema.shared()));
    // So do equal parts: these schemas are resident in every server.
    let spec = &vm.versions[0].schema.properties["spec"].properties["template"].properties["spec"];
    assert!(std::sync::Arc::ptr_eq(&spec.properties["hostname"], &spec.properties["subdomain"]));
}

/// Objects as real clients send them: nothing is pruned, nothing is refused, and the structs read and write them back.
fn accepts<T>(group: &str, plural: &str, object: &Value)
where
    T: serde::de::DeserializeOwned + serde::Serialize,
{
    let row = row(group, plural);
    let schema = &row.versions[0].schema;
    let mut pruned = object.clone();
    let unknown = prune_resource(schema, &mut pruned);
    assert!(unknown.is_empty(), "{plural}: {unknown:?}");
    let errors = validate(schema, object, &FieldPath::root(), None);
    assert!(errors.is_empty(), "{plural}: {errors:#?}");
    let typed: T = serde_json::from_value(object.clone()).unwrap_or_else(|error| panic!("{plural}: {error}"));
    let written = serde_json::to_value(&typed).unwrap();
    let unknown = prune_resource(schema, &mut written.clone());
    assert!(unknown.is_empty(), "{plural} writes {unknown:?}");
    let errors = validate(schema, &written, &FieldPath::root(), None);
    assert!(errors.is_empty(), "{plural} writes: {errors:#?}");
    let again: T = serde_json::from_value(written.clone()).unwrap();
    assert_eq!(serde_json::to_value(&again).unwrap(), written, "{plural}");
}

#[test]
fn a_machine_with_everything_is_accepted() {
    // Every field of a machine that clients are known to write.
    let text = include_str!("../../testdata/machine-with-everything.json");
    let machine: Value = serde_json::from_str(text).unwrap();
    let mut read = machine.clone();
    // The one number among the quantities is made a text by admission.
    read["spec"]["template"]["spec"]["domain"]["resources"]["limits"]["cpu"] = json!("2");
    let row = row("kubevirt.io", "virtualmachines");
    assert!(validate(&row.versions[0].schema, &machine, &FieldPath::root(), None).is_empty());
    accepts::<kubevirt::VirtualMachine>("kubevirt.io", "virtualmachines", &read);
    let spec = read["spec"]["template"]["spec"].clone();
    let instance = json!({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": {"name": "a"}, "spec": spec, "status": {}});
    accepts::<kubevirt::VirtualMachineInstance>("kubevirt.io", "virtualmachineinstances", &instance);
}

#[test]
fn statuses_that_clients_read_are_kept() {
    let machine = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": "a"},
        "spec": {"running": true, "template": {"spec": {"domain": {"devices": {}}}}},
        "status": {
            "printableStatus": "Running", "ready": true, "created": true, "runStrategy": "Always", "observedGeneration": 1, "desiredGeneration": 1,
            "conditions": [{"type": "Ready", "status": "True", "lastProbeTime": null, "lastTransitionTime": null, "reason": "r", "message": "m"}],
            "stateChangeRequests": [{"action": "Stop", "uid": "u", "data": {"a": "b"}}],
            "volumeRequests": [{"addVolumeOptions": {"name": "v", "disk": {"name": "v", "disk": {"bus": "scsi"}},
                "volumeSource": {"persistentVolumeClaim": {"claimName": "c", "hotpluggable": true}}}}],
            "memoryDumpRequest": {"claimName": "c", "phase": "Completed", "startTimestamp": "2026-01-01T00:00:00Z", "fileName": "f"},
            "startFailure": {"consecutiveFailCount": 2, "retryAfterTimestamp": "2026-01-01T00:00:00Z"},
            "instancetypeRef": {"name": "i", "kind": "k", "controllerRevisionRef": {"name": "r"}}, "snapshotInProgress": "s",
            "volumeSnapshotStatuses": [{"name": "v", "enabled": false, "reason": "r"}],
        },
    });
    accepts::<kubevirt::VirtualMachine>("kubevirt.io", "virtualmachines", &machine);
    let instance = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": {"name": "a"}, "spec": {"domain": {"devices": {}}},
        "status": {
            "phase": "Running", "nodeName": "n", "evacuationNodeName": "e", "runtimeUser": 107, "qosClass": "Burstable", "VSOCKCID": 3, "fsFreezeStatus": "frozen",
            "interfaces": [{"name": "d", "mac": "m", "ipAddress": "1.2.3.4", "ipAddresses": ["1.2.3.4"], "interfaceName": "eth0", "infoSource": "domain, guest-agent",
                "queueCount": 1, "linkState": "up", "podInterfaceName": "eth0"}],
            "guestOSInfo": {"id": "d", "name": "n", "prettyName": "p", "version": "v", "versionId": "1", "kernelRelease": "k", "kernelVersion": "v", "machine": "m"},
            "migrationState": {"sourceNode": "a", "targetNode": "b", "completed": true, "migrationUid": "u", "mode": "PreCopy", "startTimestamp": null},
            "volumeStatus": [{"name": "v", "target": "vda", "phase": "Ready", "reason": "r", "message": "m", "size": 5,
                "persistentVolumeClaimInfo": {"claimName": "c", "accessModes": ["ReadWriteMany"], "volumeMode": "Block", "capacity": {"storage": "1Gi"}, "requests": {"storage": "1Gi"}},
                "hotplugVolume": {"attachPodName": "p", "attachPodUID": "u"}}],
            "activePods": {"u": "n"}, "launcherContainerImageVersion": "v", "migrationMethod": "BlockMigration", "migrationTransport": "Unix",
            "phaseTransitionTimestamps": [{"phase": "Pending", "phaseTransitionTimestamp": "2026-01-01T00:00:00Z"}],
            "currentCPUTopology": {"cores": 1, "sockets": 1, "threads": 1}, "memory": {"guestAtBoot": "1Gi", "guestCurrent": "1Gi", "guestRequested": "1Gi"},
            "machine": {"type": "q35"}, "virtualMachineRevisionName": "r", "selinuxContext": "none",
        },
    });
    accepts::<kubevirt::VirtualMachineInstance>("kubevirt.io", "virtualmachineinstances", &instance);
}

#[test]
fn other_kinds_are_accepted_as_clients_send_them() {
    accepts::<harvester::VirtualMachineImage>(
        "harvesterhci.io",
        "virtualmachineimages",
        &json!({
            "metadata": {"name": "i", "creationTimestamp": null},
            "spec": {"displayName": "d", "sourceType": "download", "url": "", "checksum": "", "pvcName": "", "pvcNamespace": "", "retry": 3, "backend": "cdi",
                "storageClassParameters": {"numberOfReplicas": "3"}, "targetStorageClassName": ""},
            "status": {"progress": 5, "size": 1, "virtualSize": 2, "failed": 0, "lastFailedTime": "", "appliedUrl": "u",
                "conditions": [{"type": "Imported", "status": "Unknown", "lastUpdateTime": "", "reason": "Importing"}]},
        }),
    );
    accepts::<harvester::Setting>(
        "harvesterhci.io",
        "settings",
        &json!({
            "metadata": {"name": "s"}, "value": "v", "default": "d", "customized": true, "source": "",
            "status": {"conditions": [{"type": "configured", "status": "True"}]},
        }),
    );
    accepts::<harvester::BlockDevice>(
        "harvesterhci.io",
        "blockdevices",
        &json!({
            "metadata": {"name": "b"},
            "spec": {"nodeName": "n", "devPath": "/dev/sdb", "provision": true, "fileSystem": {"mountPoint": "", "forceFormatted": true}, "tags": ["ssd"],
                "provisioner": {"longhorn": {"engineVersion": "LonghornV1", "diskDriver": "auto"}}},
            "status": {"state": "Active", "provisionPhase": "Provisioned", "deviceStatus": {"partitioned": false, "devPath": "/dev/sdb",
                "capacity": {"sizeBytes": 1, "physicalBlockSizeBytes": 512}, "details": {"deviceType": "disk", "driveType": "SSD", "storageController": "NVMe", "numaNodeID": 0},
                "fileSystem": {"type": "xfs", "mountPoint": "/m", "LastFormattedAt": "2026-01-01T00:00:00Z"}}},
        }),
    );
    accepts::<cni::NetworkAttachmentDefinition>(
        "k8s.cni.cncf.io",
        "network-attachment-definitions",
        &json!({
            "metadata": {"name": "n"}, "spec": {"config": "{}"},
        }),
    );
    accepts::<cdi::DataVolume>(
        "cdi.kubevirt.io",
        "datavolumes",
        &json!({
            "metadata": {"name": "d"},
            "spec": {"source": {"pvc": {"name": "a", "namespace": "b"}}, "contentType": "kubevirt", "preallocation": false, "priorityClassName": "p",
                "pvc": {"accessModes": ["ReadWriteOnce"], "volumeMode": "Block", "storageClassName": "s", "resources": {"requests": {"storage": "1Gi"}}}},
            "status": {"claimName": "d", "phase": "ImportInProgress", "progress": "45.0%", "restartCount": 1,
                "conditions": [{"type": "Bound", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z", "lastHeartbeatTime": null}]},
        }),
    );
    accepts::<cdi::StorageProfile>(
        "cdi.kubevirt.io",
        "storageprofiles",
        &json!({
            "metadata": {"name": "s"}, "spec": {},
            "status": {"provisioner": "p", "storageClass": "s", "cloneStrategy": "copy", "claimPropertySets": [{"accessModes": ["ReadWriteMany"], "volumeMode": "Block"}]},
        }),
    );
    accepts::<cdi::CDIConfig>(
        "cdi.kubevirt.io",
        "cdiconfigs",
        &json!({
            "metadata": {"name": "config"}, "spec": {"uploadProxyURLOverride": "u"}, "status": {"uploadProxyURL": "u", "filesystemOverhead": {"global": "0.06"}},
        }),
    );
    accepts::<cdi::CDI>(
        "cdi.kubevirt.io",
        "cdis",
        &json!({
            "metadata": {"name": "cdi"}, "spec": {"cloneStrategyOverride": "copy", "config": {"featureGates": ["HonorWaitForFirstConsumer"]}},
            "status": {"phase": "Deployed", "conditions": []},
        }),
    );
    accepts::<kubevirt::KubeVirt>(
        "kubevirt.io",
        "kubevirts",
        &json!({
            "metadata": {"name": "kubevirt"},
            "spec": {"imagePullPolicy": "IfNotPresent", "configuration": {"developerConfiguration": {"featureGates": ["HostDevices"]}, "migrations": {"parallelMigrationsPerCluster": 5},
                "evictionStrategy": "LiveMigrate", "permittedHostDevices": {"pciHostDevices": [{"pciVendorSelector": "a:b", "resourceName": "r"}]}}},
            "status": {"phase": "Deployed", "observedKubeVirtVersion": "v1.6.0", "conditions": [{"type": "Available", "status": "True", "lastProbeTime": null}]},
        }),
    );
    accepts::<kubevirt::VirtualMachineInstanceMigration>(
        "kubevirt.io",
        "virtualmachineinstancemigrations",
        &json!({
            "metadata": {"name": "m"}, "spec": {"vmiName": "a", "addedNodeSelector": {"a": "b"}}, "status": {"phase": "Running"},
        }),
    );
    accepts::<instancetype::VirtualMachineInstancetype>(
        "instancetype.kubevirt.io",
        "virtualmachineinstancetypes",
        &json!({
            "metadata": {"name": "i"}, "spec": {"cpu": {"guest": 2, "dedicatedCPUPlacement": false, "maxSockets": 4}, "memory": {"guest": "1Gi", "overcommitPercent": 5}},
        }),
    );
    accepts::<instancetype::VirtualMachineClusterPreference>(
        "instancetype.kubevirt.io",
        "virtualmachineclusterpreferences",
        &json!({
            "metadata": {"name": "p"}, "spec": {"cpu": {"preferredCPUTopology": "spread", "spreadOptions": {"across": "SocketsCores", "ratio": 2}},
                "devices": {"preferredDiskBus": "virtio", "preferredTPM": {"persistent": true}, "preferredNetworkInterfaceMultiQueue": true},
                "requirements": {"cpu": {"guest": 1}, "memory": {"guest": "1Gi"}}},
        }),
    );
}

#[test]
fn what_is_wrong_is_refused_by_the_schema() {
    let wrong = [
        json!({"spec": {"template": {"spec": {"domain": {}}}}}),
        json!({"spec": {"running": true}}),
        json!({"spec": {"template": {"spec": {"domain": {"devices": {}, "cpu": {"cores": -1}}}}}}),
        json!({"spec": {"template": {"spec": {"domain": {"devices": {}, "cpu": {"cores": 4_294_967_296_u64}}}}}}),
        json!({"spec": {"template": {"spec": {"domain": {"devices": {}, "memory": {"guest": "lots"}}}}}}),
        json!({"spec": {"template": {"spec": {"domain": {"devices": {"disks": [{"disk": {}}]}}}}}}),
    ];
    let row = row("kubevirt.io", "virtualmachines");
    for object in wrong {
        assert!(!validate(&row.versions[0].schema, &object, &FieldPath::root(), None).is_empty(), "{object}");
    }
}
