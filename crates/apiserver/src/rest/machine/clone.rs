//! Another machine like this one, with copies of its disks and Secrets, and addresses of its own.

use croft_api::machine_state::{self, Origin, StateSource};
use croft_meta::{ApiError, names, object};
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::acting::{Acting, name};
use super::super::reply::invalid;
use super::VM;
use super::claims::{self, Claims, annotate};
use super::secrets::Copies;
use crate::prepare::random_suffix;

const VM_NAME: &str = "harvesterhci.io/vmName";
/// What the annotations say about the machine rather than about its fate.
const KEPT: [&str; 3] =
    ["harvesterhci.io/reservedMemory", "harvesterhci.io/enableCPUAndMemoryHotplug", "field.cattle.io/description"];

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Asked {
    target_vm: String,
    run_strategy: String,
}

pub(super) async fn clone(acting: &Acting<'_>, source: &Value) -> Result<(), ApiError> {
    let asked: Asked = acting.body()?;
    let target = name("targetVm", &asked.target_vm)?;
    if acting.find("kubevirt.io", VM, acting.namespace, target).is_some() {
        return Err(ApiError::already_exists("kubevirt.io", VM, target));
    }
    acting.may("create", "kubevirt.io", VM)?;
    let mut machine = like(source, target, &asked.run_strategy);
    copy_state(&mut machine, object::name(source), &random_suffix()?);
    copy_disks(acting, &mut machine, target)?;
    let copies = Copies::plan(acting, &mut machine["spec"]["template"]["spec"], target)?;
    copies.make(acting).await?;
    match acting.create("kubevirt.io", VM, acting.namespace, machine).await {
        Ok(made) => {
            copies.give_to(acting, &made).await;
            Ok(())
        }
        Err(error) => {
            copies.undo(acting).await;
            Err(error)
        }
    }
}

/// The new machine, still with the disks and Secrets of the old one.
fn like(source: &Value, target: &str, run_strategy: &str) -> Value {
    let mut machine = json!({ "metadata": { "name": target, "annotations": {} }, "spec": source["spec"] });
    if !source["metadata"]["labels"].is_null() {
        machine["metadata"]["labels"] = source["metadata"]["labels"].clone();
    }
    for key in KEPT {
        if let Some(value) = object::annotation(source, key) {
            annotate(&mut machine, key, value);
        }
    }
    let spec = &mut machine["spec"];
    if !run_strategy.is_empty() {
        spec["runStrategy"] = json!(run_strategy);
        remove(spec, "running");
    }
    // Their disks are listed as claims from now on.
    remove(spec, "dataVolumeTemplates");
    // Revisions belong to the machine that they were made for.
    for chosen in ["instancetype", "preference"] {
        remove(&mut spec[chosen], "revisionName");
        if spec[chosen].is_null() {
            remove(spec, chosen);
        }
    }
    let template = &mut spec["template"];
    let labels = &mut template["metadata"]["labels"];
    if !labels.is_object() {
        *labels = json!({});
    }
    for value in labels.as_object_mut().into_iter().flat_map(|labels| labels.values_mut()) {
        if *value == object::name(source) {
            *value = json!(target);
        }
    }
    labels[VM_NAME] = json!(target);
    let spec = &mut template["spec"];
    remove(spec, "hostname");
    if names::is_dns1123_label(target).is_empty() {
        spec["hostname"] = json!(target);
    }
    for field in ["uuid", "serial"] {
        remove(&mut spec["domain"]["firmware"], field);
    }
    forget_addresses(spec);
    machine
}

/// Addresses are each machine's own; new ones are given.
pub(super) fn forget_addresses(spec: &mut Value) {
    let interfaces = spec.pointer_mut("/domain/devices/interfaces").and_then(Value::as_array_mut);
    for interface in interfaces.into_iter().flatten() {
        remove(interface, "macAddress");
    }
}

fn remove(object: &mut Value, field: &str) {
    if let Some(fields) = object.as_object_mut() {
        fields.remove(field);
    }
}

/// The firmware's variables and the TPM are copied by the node that starts it.
fn copy_state(machine: &mut Value, source: &str, id: &str) {
    let spec = serde_json::from_value(machine["spec"]["template"]["spec"].clone()).unwrap_or_default();
    // A preference may ask for them too.
    let is_kept = machine_state::is_kept(&spec) || machine["spec"]["preference"].is_object();
    let from = StateSource { id: id.to_owned(), origin: Origin::Machine(source.to_owned()) };
    StateSource::tell(is_kept.then_some(&from), &mut machine["spec"]["template"]);
}

fn copy_disks(acting: &Acting<'_>, machine: &mut Value, target: &str) -> Result<(), ApiError> {
    let mut list = Claims::default();
    let mut kept = Vec::new();
    for mut volume in std::mem::take(object::list_mut(machine, "/spec/template/spec/volumes")) {
        if !volume["memoryDump"].is_null() {
            continue;
        }
        if !volume["hostDisk"].is_null() {
            let why = format!("volume {} is a file of the host, which cannot be cloned", volume["name"]);
            return Err(invalid("InvalidState", why));
        }
        if let Some(source) = claims::of_volume(&volume) {
            let claim = claims::find(acting, source)?;
            let volume_name = volume["name"].as_str().unwrap_or_default();
            let new = format!("{target}-{volume_name}-{}", random_suffix()?);
            let mut entry = claims::as_template(&claim, &new);
            entry["spec"]["dataSource"] = json!({ "kind": "PersistentVolumeClaim", "name": source });
            list.0.push(entry);
            let mut on_claim = json!({ "claimName": new });
            if claims::is_hotpluggable(&volume) {
                on_claim["hotpluggable"] = json!(true);
            }
            volume = json!({ "name": volume["name"], "persistentVolumeClaim": on_claim });
        }
        kept.push(volume);
    }
    *object::list_mut(machine, "/spec/template/spec/volumes") = kept;
    list.write(machine);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clone_keeps_what_is_not_its_sources_own() {
        let source = json!({
            "metadata": {"name": "a", "uid": "1", "labels": {"team": "x"}, "annotations": {
                "harvesterhci.io/reservedMemory": "64Mi", "harvesterhci.io/vmRunStrategy": "Always",
                "harvesterhci.io/mac-address": "{}"}},
            "spec": {
                "running": true, "dataVolumeTemplates": [{}], "instancetype": {"name": "u1", "revisionName": "r"},
                "template": {
                    "metadata": {"labels": {"harvesterhci.io/vmName": "a", "app": "a", "kept": "b"}},
                    "spec": {"hostname": "a", "domain": {
                        "firmware": {"uuid": "u", "serial": "s", "bootloader": {"efi": {}}},
                        "devices": {"interfaces": [{"name": "n", "macAddress": "02:00:00:00:00:01"}]},
                    }},
                },
            },
            "status": {"ready": true},
        });
        let machine = like(&source, "b", "Halted");
        assert_eq!(
            machine,
            json!({
                "metadata": {"name": "b", "labels": {"team": "x"},
                    "annotations": {"harvesterhci.io/reservedMemory": "64Mi"}},
                "spec": {
                    "runStrategy": "Halted", "instancetype": {"name": "u1"},
                    "template": {
                        "metadata": {"labels": {"harvesterhci.io/vmName": "b", "app": "b", "kept": "b"}},
                        "spec": {"hostname": "b", "domain": {
                            "firmware": {"bootloader": {"efi": {}}},
                            "devices": {"interfaces": [{"name": "n"}]},
                        }},
                    },
                },
            })
        );
        let mut machine = machine;
        copy_state(&mut machine, "a", "1");
        assert_eq!(StateSource::of_template(&machine["spec"]["template"]), None);
        machine["spec"]["template"]["spec"]["domain"]["firmware"]["bootloader"]["efi"]["persistent"] = json!(true);
        copy_state(&mut machine, "a", "1");
        let from = StateSource { id: "1".into(), origin: Origin::Machine("a".into()) };
        assert_eq!(StateSource::of_template(&machine["spec"]["template"]), Some(from));
        assert_eq!(like(&source, "b.c", "")["spec"]["running"], true);
        assert!(like(&source, "b.c", "")["spec"]["template"]["spec"]["hostname"].is_null());
    }
}
