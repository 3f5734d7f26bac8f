//! A machine made of what was kept of one. Nothing is done here.

use std::collections::BTreeMap;

use croft_api::harvester::{Copied, VolumeBackup, VolumeRestore};
use croft_api::machine_state::{Beginning, StateSource};
use croft_meta::names;
use serde_json::{Value, json};

use super::capture;

const TEMPLATES: &str = "harvesterhci.io/volumeClaimTemplates";
const RUN_STRATEGY: &str = "harvesterhci.io/vmRunStrategy";
const VM_NAME: &str = "harvesterhci.io/vmName";
const CREATOR: &str = "harvesterhci.io/creator";
pub(super) const IMAGE_ID: &str = "harvesterhci.io/imageId";
/// What a new machine keeps of the annotations of the old one.
const KEPT: [&str; 3] =
    ["harvesterhci.io/reservedMemory", "harvesterhci.io/enableCPUAndMemoryHotplug", "field.cattle.io/description"];
const FATE: [&str; 5] =
    ["kubevirt.io/", "harvesterhci.io/", "restore.", "clone.kubevirt.io/", "kubectl.kubernetes.io/"];
pub(super) const LAST_RESTORE: &str = "restore.harvesterhci.io/last-restore-uid";

/// The claim that a disk comes back as.
pub(super) fn claim(restore: (&str, &str), backup: &str, volume: &VolumeBackup) -> VolumeRestore {
    let (restore_name, uid) = restore;
    let old = &volume.persistent_volume_claim;
    let snapshot = volume.name.clone().unwrap_or_default();
    let mut annotations = json!({
        "restore.harvesterhci.io/name": restore_name,
        "pvc.harvesterhci.io/name": old.metadata["name"],
        "pvc.harvesterhci.io/namespace": old.metadata["namespace"],
    });
    if let Some(image) = old.metadata["annotations"][IMAGE_ID].as_str() {
        annotations[IMAGE_ID] = json!(image);
    }
    let mut spec = json!({});
    for field in ["accessModes", "volumeMode", "storageClassName", "resources"] {
        if !old.spec[field].is_null() {
            spec[field] = old.spec[field].clone();
        }
    }
    // It may have grown since it was asked for.
    if let Some(size) = volume.volume_size {
        let asked = spec["resources"]["requests"]["storage"].as_str().map(croft_meta::Quantity::parse);
        if !asked.is_some_and(|asked| asked.is_ok_and(|asked| asked.value() >= size)) {
            spec["resources"] = json!({ "requests": { "storage": size.to_string() } });
        }
    }
    spec["dataSource"] = json!({ "apiGroup": croft_api::snapshot::GROUP, "kind": "VolumeSnapshot", "name": snapshot });
    let name = format!("restore-{backup}-{uid}-{}", volume.volume_name);
    VolumeRestore {
        volume_name: volume.volume_name.clone(),
        claim: Copied { metadata: json!({ "name": name, "annotations": annotations }), spec },
        volume_backup_name: snapshot,
        progress: Some(0),
        volume_size: volume.volume_size,
    }
}

/// Has the volumes of a template's spec be on the new claims, and gives the names of those that they were on.
fn swap_disks(template: &mut Value, restores: &[VolumeRestore]) -> Vec<String> {
    let old: BTreeMap<String, String> =
        capture::disks(template).into_iter().map(|disk| (disk.volume, disk.claim)).collect();
    let volumes = template["volumes"].as_array_mut();
    for volume in volumes.into_iter().flatten() {
        let name = volume["name"].as_str().unwrap_or_default();
        let Some(restore) = restores.iter().find(|restore| restore.volume_name == name) else { continue };
        let hotpluggable =
            ["persistentVolumeClaim", "dataVolume"].iter().any(|kind| volume[*kind]["hotpluggable"] == true);
        let mut source = json!({ "claimName": restore.claim.metadata["name"] });
        if hotpluggable {
            source["hotpluggable"] = json!(true);
        }
        *volume = json!({ "name": volume["name"], "persistentVolumeClaim": source });
    }
    old.into_values().collect()
}

/// The list of claims that belong to the machine.
fn templates(restores: &[VolumeRestore]) -> String {
    let entry = |restore: &VolumeRestore| {
        let mut entry = json!({ "metadata": { "name": restore.claim.metadata["name"] }, "spec": restore.claim.spec });
        if let Some(image) = restore.claim.metadata["annotations"][IMAGE_ID].as_str() {
            entry["metadata"]["annotations"] = json!({ IMAGE_ID: image });
        }
        entry
    };
    Value::Array(restores.iter().map(entry).collect()).to_string()
}

/// How the machine ran when it was kept.
pub(super) fn run_strategy(spec: &Value) -> String {
    match (spec["runStrategy"].as_str(), spec["running"].as_bool()) {
        (Some(strategy), _) => strategy.to_owned(),
        (None, Some(true)) => "Always".to_owned(),
        (None, _) => "Halted".to_owned(),
    }
}

/// Stopped: it is started when everything is there.
fn halted(mut spec: Value) -> Value {
    spec["runStrategy"] = json!("Halted");
    remove(&mut spec, "running");
    // Their disks are claims from now on.
    remove(&mut spec, "dataVolumeTemplates");
    for chosen in ["instancetype", "preference"] {
        // Revisions belong to the machine that they were made for.
        if spec[chosen].is_object() {
            remove(&mut spec[chosen], "revisionName");
        }
    }
    spec
}

/// The machine that was, in the place of the one that is. Also the claims that it was on until now.
pub(super) fn replaced(
    now: &Value,
    kept: &Copied,
    restores: &[VolumeRestore],
    mark: (&str, &str),
    beginning: &Beginning,
) -> (Value, Vec<String>) {
    let mut machine = now.clone();
    let old = capture::disks(&now["spec"]["template"]["spec"]).into_iter().map(|disk| disk.claim).collect();
    machine["spec"] = halted(kept.spec.clone());
    swap_disks(&mut machine["spec"]["template"]["spec"], restores);
    describe(&mut machine, kept, restores, mark);
    beginning.tell(&mut machine["spec"]["template"]);
    (machine, old)
}

/// What a restored machine says of itself. The list of its claims is Harvester's, whose machines have one.
fn describe(machine: &mut Value, kept: &Copied, restores: &[VolumeRestore], (key, value): (&str, &str)) {
    if key == LAST_RESTORE || kept.metadata["annotations"][TEMPLATES].is_string() {
        annotate(machine, TEMPLATES, &templates(restores));
        annotate(machine, RUN_STRATEGY, &run_strategy(&kept.spec));
    }
    annotate(machine, key, value);
}

/// What a new machine is called, and what it may keep.
#[derive(Debug)]
pub(super) struct NewMachine<'a> {
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
    pub(super) keeps_addresses: bool,
    /// Otherwise it has copies of its own.
    pub(super) keeps_secrets: bool,
    /// An annotation that says what made it.
    pub(super) mark: (&'a str, &'a str),
    /// What it begins with besides its disks.
    pub(super) state: Option<&'a StateSource>,
}

/// Another machine like the one that was, with names and addresses of its own.
pub(super) fn new(wanted: &NewMachine<'_>, kept: &Copied, restores: &[VolumeRestore]) -> Value {
    let mut machine = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
        "metadata": { "name": wanted.name, "namespace": wanted.namespace, "annotations": {} },
        "spec": halted(kept.spec.clone()),
    });
    let labels = &kept.metadata["labels"];
    machine["metadata"]["labels"] = if labels.is_object() { labels.clone() } else { json!({}) };
    machine["metadata"]["labels"][CREATOR] = json!("harvester");
    for (key, value) in kept.metadata["annotations"].as_object().into_iter().flatten() {
        // Harvester's machines begin anew; KubeVirt's keep what is not about the old one's fate.
        let is_own = wanted.keeps_secrets && !FATE.iter().any(|prefix| key.starts_with(prefix));
        if KEPT.contains(&key.as_str()) || is_own {
            annotate(&mut machine, key, value.as_str().unwrap_or_default());
        }
    }
    describe(&mut machine, kept, restores, wanted.mark);
    let template = &mut machine["spec"]["template"];
    // A guest that went on in another machine would have the addresses of this one.
    Beginning { state: wanted.state.cloned(), memory: None }.tell(template);
    let labels = &mut template["metadata"]["labels"];
    if !labels.is_object() {
        *labels = json!({});
    }
    labels[CREATOR] = json!("harvester");
    labels[VM_NAME] = json!(wanted.name);
    let spec = &mut template["spec"];
    swap_disks(spec, restores);
    if !wanted.keeps_secrets {
        rename_secrets(spec, wanted.name);
    }
    own_identity(spec, wanted);
    machine
}

/// A name, a board and addresses that no other machine has.
fn own_identity(spec: &mut Value, wanted: &NewMachine<'_>) {
    remove(spec, "hostname");
    if names::is_dns1123_label(wanted.name).is_empty() {
        spec["hostname"] = json!(wanted.name);
    }
    if spec["domain"]["firmware"].is_object() {
        for field in ["uuid", "serial"] {
            remove(&mut spec["domain"]["firmware"], field);
        }
    }
    if wanted.keeps_addresses {
        return;
    }
    let interfaces = spec.pointer_mut("/domain/devices/interfaces").and_then(Value::as_array_mut);
    for interface in interfaces.into_iter().flatten() {
        remove(interface, "macAddress");
    }
}

/// A new machine has Secrets of its own.
pub(super) fn secret_name(machine: &str, secret: &str) -> String {
    format!("{machine}-{secret}")
}

fn rename_secrets(spec: &mut Value, machine: &str) {
    for name in capture::secrets(spec) {
        *name = json!(secret_name(machine, name.as_str().unwrap_or_default()));
    }
}

fn annotate(object: &mut Value, key: &str, value: &str) {
    let annotations = &mut object["metadata"]["annotations"];
    if !annotations.is_object() {
        *annotations = json!({});
    }
    annotations[key] = json!(value);
}

fn remove(object: &mut Value, field: &str) {
    if let Some(fields) = object.as_object_mut() {
        fields.remove(field);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept() -> Copied {
        Copied {
            metadata: json!({"name": "old", "labels": {"team": "a"}, "annotations": {"harvesterhci.io/reservedMemory": "64Mi", "other": "x"}}),
            spec: json!({
                "running": true, "dataVolumeTemplates": [{}],
                "template": {"spec": {
                    "domain": {"firmware": {"uuid": "u"}, "devices": {"interfaces": [{"name": "n", "macAddress": "m"}]}},
                    "volumes": [
                        {"name": "root", "dataVolume": {"name": "old-root"}},
                        {"name": "seed", "cloudInitNoCloud": {"secretRef": {"name": "seed"}}},
                    ],
                }},
            }),
        }
    }

    fn disk() -> VolumeRestore {
        let volume = VolumeBackup {
            name: Some("b-volume-old-root".into()),
            volume_name: "root".into(),
            persistent_volume_claim: Copied {
                metadata: json!({"name": "old-root", "namespace": "n", "annotations": {IMAGE_ID: "n/i"}}),
                spec: json!({"storageClassName": "c", "resources": {"requests": {"storage": "1Gi"}}, "volumeName": "pv"}),
            },
            volume_size: Some(2 << 30),
            ..VolumeBackup::default()
        };
        claim(("r", "7"), "b", &volume)
    }

    #[test]
    fn a_disk_comes_back_as_large_as_it_was() {
        let disk = disk();
        assert_eq!(disk.claim.metadata["name"], "restore-b-7-root");
        assert_eq!(disk.claim.metadata["annotations"][IMAGE_ID], "n/i");
        assert_eq!(disk.claim.spec["resources"]["requests"]["storage"], "2147483648");
        assert_eq!(disk.claim.spec["dataSource"]["name"], "b-volume-old-root");
        assert!(disk.claim.spec["volumeName"].is_null());
    }

    #[test]
    fn a_new_machine_is_like_the_old_one_but_its_own() {
        let wanted = NewMachine {
            namespace: "n",
            name: "new",
            keeps_addresses: false,
            keeps_secrets: false,
            mark: (LAST_RESTORE, "r-7"),
            state: None,
        };
        let machine = new(&wanted, &kept(), &[disk()]);
        let spec = &machine["spec"]["template"]["spec"];
        assert_eq!(machine["spec"]["runStrategy"], "Halted");
        assert!(machine["spec"]["running"].is_null() && machine["spec"]["dataVolumeTemplates"].is_null());
        assert_eq!(
            spec["volumes"][0],
            json!({"name": "root", "persistentVolumeClaim": {"claimName": "restore-b-7-root"}})
        );
        assert_eq!(spec["volumes"][1]["cloudInitNoCloud"]["secretRef"]["name"], "new-seed");
        assert!(spec["domain"]["devices"]["interfaces"][0]["macAddress"].is_null());
        assert!(spec["domain"]["firmware"]["uuid"].is_null());
        assert_eq!(machine["metadata"]["annotations"]["harvesterhci.io/reservedMemory"], "64Mi");
        assert!(machine["metadata"]["annotations"]["other"].is_null());
        let keeping = NewMachine { keeps_addresses: true, ..wanted };
        let machine = new(&keeping, &kept(), &[disk()]);
        assert_eq!(machine["spec"]["template"]["spec"]["domain"]["devices"]["interfaces"][0]["macAddress"], "m");
    }

    #[test]
    fn a_machine_that_is_replaced_keeps_its_name_and_loses_its_disks() {
        let now = json!({
            "metadata": {"name": "old", "resourceVersion": "3"},
            "spec": {"runStrategy": "Halted", "template": {"spec": {"volumes": [
                {"name": "root", "persistentVolumeClaim": {"claimName": "newer"}}]}}},
        });
        let (machine, old) = replaced(&now, &kept(), &[disk()], (LAST_RESTORE, "r-7"), &Beginning::default());
        assert_eq!(old, ["newer"]);
        assert_eq!(machine["metadata"]["resourceVersion"], "3");
        assert_eq!(machine["metadata"]["annotations"][LAST_RESTORE], "r-7");
        let spec = &machine["spec"]["template"]["spec"];
        assert_eq!(spec["volumes"][0]["persistentVolumeClaim"]["claimName"], "restore-b-7-root");
        assert_eq!(spec["domain"]["devices"]["interfaces"][0]["macAddress"], "m");
    }
}
