//! VirtualMachineInstances: defaults at creation, and a status and spec that only Croft's own parts change.

use croft_meta::{ApiError, FieldPath};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use serde_json::Value;

use super::denial::{Denial, below};
use super::machine::{add_finalizer, cluster_config};
use super::{Admission, compute, quantities, spec, typed, uuid};
use crate::kubevirt::{
    ANNOTATION_PCI_TOPOLOGY_VERSION, INSTANCE_FINALIZER, LABEL_CREATED_BY, LABEL_NODE_NAME, LABEL_SCHEDULABLE,
    VirtualMachineInstance, VirtualMachineInstancePhaseTransitionTimestamp, phase,
};
use crate::view::{get, map_mut, remove, restore, set, text};

pub(super) const CREATE: &str = "virtualmachineinstances-create-validator.kubevirt.io";
pub(super) const UPDATE: &str = "virtualmachineinstances-update-validator.kubevirt.io";

/// Labels that say what Croft did; nobody else may.
const RESERVED_LABELS: &[&str] = &[
    LABEL_CREATED_BY,
    "kubevirt.io/migrationJobUID",
    LABEL_NODE_NAME,
    "kubevirt.io/migrationTargetNodeName",
    LABEL_SCHEDULABLE,
    "kubevirt.io/install-strategy",
];

pub(super) fn admit(admission: &mut Admission<'_>) -> Result<(), ApiError> {
    match admission.old {
        Some(old) => update(admission, old),
        None => create(admission),
    }
}

fn create(admission: &mut Admission<'_>) -> Result<(), ApiError> {
    if !admission.is_internal {
        drop(remove(admission.object, "status"));
    }
    if let Some(spec) = crate::view::get_mut(admission.object, "spec") {
        quantities::of_instance_spec(spec);
    }
    let Some(mut vmi) = typed::read::<VirtualMachineInstance>(admission.object, CREATE)? else { return Ok(()) };
    compute::fill_limits(&mut vmi, text(admission.object, "metadata.namespace"), admission.lookup);
    vmi.fill_defaults(&cluster_config(admission.lookup), &uuid(admission.random));
    let status = vmi.status.get_or_insert_default();
    // A webhook may be asked twice about the same creation.
    let is_new = status.phase.as_deref() != Some(phase::PENDING);
    status.phase = Some(phase::PENDING.to_owned());
    let pending = VirtualMachineInstancePhaseTransitionTimestamp {
        phase: status.phase.clone(),
        phase_transition_timestamp: Some(Time(admission.now)),
    };
    if is_new {
        status.phase_transition_timestamps.push(pending);
    }
    let mut denial = Denial::by(CREATE);
    spec::check(&mut denial, &FieldPath::new("spec"), &vmi.spec);
    spec::check_instance(&mut denial, &vmi.spec);
    if !admission.is_internal {
        check_labels(&mut denial, &FieldPath::new("metadata"), &vmi.metadata);
    }
    denial.finish()?;
    let written = |part: serde_json::Result<Value>| part.map_err(ApiError::internal);
    set(admission.object, "spec", written(serde_json::to_value(&vmi.spec))?);
    set(admission.object, "status", written(serde_json::to_value(&vmi.status))?);
    if let Some(annotations) = map_mut(admission.object, "metadata.annotations") {
        annotations.entry(ANNOTATION_PCI_TOPOLOGY_VERSION).or_insert_with(|| Value::from("v3"));
    }
    add_finalizer(admission.object, INSTANCE_FINALIZER);
    compute::check_instance(admission.object, admission.lookup)
}

fn update(admission: &mut Admission<'_>, old: &Value) -> Result<(), ApiError> {
    if admission.is_internal {
        return Ok(());
    }
    restore(admission.object, old, "status");
    let mut denial = Denial::by(UPDATE);
    if let Some(spec) = crate::view::get_mut(admission.object, "spec") {
        quantities::of_instance_spec(spec);
    }
    let nowhere = FieldPath::root();
    if get(admission.object, "spec") != get(old, "spec") {
        denial.not_supported(&nowhere, "update of VMI object is restricted");
    }
    let reserved = |object: &Value| -> Vec<Option<Value>> {
        let labels = object.pointer("/metadata/labels");
        RESERVED_LABELS.iter().map(|key| labels.and_then(|labels| labels.get(*key)).cloned()).collect()
    };
    if denial.is_empty() && reserved(admission.object) != reserved(old) {
        let message = "modification of the following reserved kubevirt.io/ labels on a VMI object is prohibited";
        denial.not_supported(&nowhere, message);
    }
    denial.finish()
}

/// A user may not make an instance look as if Croft had placed it.
pub(super) fn check_labels(denial: &mut Denial, at: &FieldPath, metadata: &ObjectMeta) {
    let labels = metadata.labels.as_ref();
    if RESERVED_LABELS.iter().any(|key| labels.is_some_and(|labels| labels.contains_key(*key))) {
        let message = "creation of the following reserved kubevirt.io/ labels on a VMI object is prohibited";
        denial.not_supported(&below(at, "labels"), message);
    }
}

#[cfg(test)]
mod tests;
