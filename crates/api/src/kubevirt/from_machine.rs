//! The instance that a machine starts.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

use super::{
    ANNOTATION_CLUSTER_INSTANCETYPE, ANNOTATION_CLUSTER_PREFERENCE, ANNOTATION_INSTANCETYPE,
    ANNOTATION_MACHINE_GENERATION, ANNOTATION_PREFERENCE, Input, LABEL_INSTANCE_ID, LABEL_MACHINE_NAME,
    MACHINE_FINALIZER, VirtualMachine, VirtualMachineInstance, VirtualMachineInstanceSpec,
};
use crate::instancetype::{self, Chosen, Conflicts};

/// Builds the instance of a machine. What is left open is filled in when the instance is created.
pub fn vmi_from_vm(vm: &VirtualMachine, chosen: Chosen<'_>) -> Result<VirtualMachineInstance, Conflicts> {
    let template = &vm.spec.template;
    let mut spec = template.spec.clone();
    if is_start_paused(vm) {
        spec.start_strategy = Some("Paused".to_owned());
    }
    forget_finished_dump(vm, &mut spec);
    stable_identity(vm, &mut spec);
    spec.add_missing_disks();
    instancetype::apply_autoattach(chosen, &mut spec);
    add_input(&mut spec);
    spec.add_default_network();
    let mut metadata = metadata(vm);
    instancetype::apply(chosen, &mut spec, &mut metadata, "spec")?;
    Ok(VirtualMachineInstance { metadata, spec, status: None })
}

fn metadata(vm: &VirtualMachine) -> ObjectMeta {
    let template = &vm.spec.template.metadata;
    let mut labels = template.labels.clone().unwrap_or_default();
    let name = vm.metadata.name.clone().unwrap_or_default();
    labels.insert(LABEL_MACHINE_NAME.to_owned(), name.clone());
    labels.insert(LABEL_INSTANCE_ID.to_owned(), name.clone());
    let mut annotations = template.annotations.clone().unwrap_or_default();
    let generation = vm.metadata.generation.unwrap_or_default();
    annotations.insert(ANNOTATION_MACHINE_GENERATION.to_owned(), generation.to_string());
    let chosen = [
        (
            vm.spec.instancetype.as_ref().map(|matcher| (&matcher.kind, &matcher.name)),
            ANNOTATION_INSTANCETYPE,
            ANNOTATION_CLUSTER_INSTANCETYPE,
        ),
        (
            vm.spec.preference.as_ref().map(|matcher| (&matcher.kind, &matcher.name)),
            ANNOTATION_PREFERENCE,
            ANNOTATION_CLUSTER_PREFERENCE,
        ),
    ];
    for (matcher, own, cluster) in chosen {
        let Some((kind, Some(name))) = matcher else { continue };
        let kind = kind.as_deref().unwrap_or_default().to_lowercase();
        let key = if kind.is_empty() || kind.contains("cluster") { cluster } else { own };
        annotations.insert(key.to_owned(), name.clone());
    }
    ObjectMeta {
        name: Some(name.clone()),
        namespace: vm.metadata.namespace.clone(),
        labels: Some(labels),
        annotations: Some(annotations),
        // The controller of the machine has to see the instance before it goes.
        finalizers: Some(vec![MACHINE_FINALIZER.to_owned()]),
        owner_references: Some(vec![OwnerReference {
            api_version: "kubevirt.io/v1".to_owned(),
            kind: "VirtualMachine".to_owned(),
            name,
            uid: vm.metadata.uid.clone().unwrap_or_default(),
            controller: Some(true),
            block_owner_deletion: Some(true),
        }]),
        ..ObjectMeta::default()
    }
}

/// `start` with `paused`: the request is the first that waits.
fn is_start_paused(vm: &VirtualMachine) -> bool {
    let requests = vm.status.as_ref().map(|status| status.state_change_requests.as_slice()).unwrap_or_default();
    requests.first().is_some_and(|request| {
        request.action == "Start" && request.data.get("paused").is_some_and(|paused| paused == "true")
    })
}

/// A dump that is done would be taken again at every start.
fn forget_finished_dump(vm: &VirtualMachine, spec: &mut VirtualMachineInstanceSpec) {
    let Some(dump) = vm.status.as_ref().and_then(|status| status.memory_dump_request.as_ref()) else { return };
    if dump.phase == "Completed" || dump.phase == "Failed" {
        spec.volumes
            .retain(|volume| volume.memory_dump.as_ref().is_none_or(|source| source.claim_name != dump.claim_name));
    }
}

/// Machines from before firmware was given an identity at creation: it must be the same at every start.
fn stable_identity(vm: &VirtualMachine, spec: &mut VirtualMachineInstanceSpec) {
    let firmware = spec.domain.firmware.get_or_insert_default();
    if firmware.uuid.as_deref().unwrap_or_default().is_empty() {
        firmware.uuid.clone_from(&vm.metadata.uid);
    }
}

fn add_input(spec: &mut VirtualMachineInstanceSpec) {
    let devices = &mut spec.domain.devices;
    if devices.autoattach_input_device == Some(true) && devices.inputs.is_empty() {
        devices.inputs.push(Input { name: "default-0".to_owned(), ..Input::default() });
    }
}

#[cfg(test)]
mod tests;
