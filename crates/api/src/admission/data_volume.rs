//! DataVolumes, and their templates in machines.

use croft_meta::{ApiError, FieldPath};
use k8s_openapi::api::core::v1::{TypedLocalObjectReference, TypedObjectReference};
use serde_json::Value;

use super::denial::{Denial, refuse};
use super::machine::{HARVESTER, claim_names};
use super::{Admission, Lookup, access, quantities, typed};
use crate::cdi::{DataVolume, DataVolumeSource, DataVolumeSpec};
use crate::kubevirt::VirtualMachineSpec;
use crate::view::{get, has, list, text};

pub(super) const VALIDATOR: &str = "datavolume-validate.cdi.kubevirt.io";

pub(super) fn admit(admission: &mut Admission<'_>) -> Result<(), ApiError> {
    if admission.subresource == "status" || has(admission.object, "metadata.deletionTimestamp") {
        return Ok(());
    }
    quantities::of_data_volume(admission.object);
    let Some(volume) = typed::read::<DataVolume>(admission.object, VALIDATOR)? else { return Ok(()) };
    let mut denial = Denial::by(VALIDATOR);
    match admission.old {
        Some(old) if get(old, "spec") != get(admission.object, "spec") => {
            denial.add("FieldValueDuplicate", &FieldPath::new("DataVolume.Spec"), "Cannot update DataVolume Spec");
        }
        Some(_) => {}
        None => {
            check(&mut denial, &FieldPath::new("spec"), &volume.spec);
            access::clone_source(&mut denial, &FieldPath::new("spec.source"), &volume.spec, admission);
            size(&mut denial, &volume.spec);
            name(&mut denial, admission);
        }
    }
    denial.finish()
}

/// The claim of the same name must not be somebody else's.
fn name(denial: &mut Denial, admission: &Admission<'_>) {
    let (namespace, name) = (text(admission.object, "metadata.namespace"), text(admission.object, "metadata.name"));
    let Some(claim) = admission.lookup.get("", "persistentvolumeclaims", namespace, name) else { return };
    let is_adopted = admission.object.pointer("/metadata/annotations").is_some_and(|annotations| {
        ["cdi.kubevirt.io/allowClaimAdoption", "cdi.kubevirt.io/storage.prePopulated"]
            .iter()
            .any(|key| annotations.get(*key).is_some_and(|value| value != "false"))
    });
    let is_owned = list(&claim, "metadata.ownerReferences").iter().any(|owner| text(owner, "kind") == "DataVolume");
    if !is_adopted && !is_owned {
        let message = format!("Destination PVC {namespace}/{name} already exists");
        denial.add("FieldValueDuplicate", &FieldPath::new("DataVolume.Name"), message);
    }
}

fn size(denial: &mut Denial, spec: &DataVolumeSpec) {
    let requests = match (&spec.pvc, &spec.storage) {
        (Some(pvc), _) => pvc.resources.as_ref().and_then(|resources| resources.requests.as_ref()),
        // A clone takes the size of its source.
        (None, _) => return,
    };
    let size = requests.and_then(|requests| requests.get("storage"));
    if size.is_none_or(|size| crate::amount::value(size) <= 0) {
        denial.invalid(&FieldPath::new("spec.pvc.resources.requests.storage"), "PVC size is missing");
    }
}

/// Where the claim is described, and what it is filled with: one of each.
pub(super) fn check(denial: &mut Denial, at: &FieldPath, spec: &DataVolumeSpec) {
    let place = at.child("PVC").child("Storage");
    match (&spec.pvc, &spec.storage) {
        (None, None) => return denial.invalid(&place, "Missing Data volume PVC or Storage"),
        (Some(_), Some(_)) => {
            let message = "Duplicate storage definition, both target storage and target pvc defined";
            return denial.invalid(&place, message);
        }
        _ => {}
    }
    let references: (Option<&TypedObjectReference>, Option<&TypedLocalObjectReference>) =
        match (&spec.pvc, &spec.storage) {
            (Some(pvc), _) => (pvc.data_source_ref.as_ref(), pvc.data_source.as_ref()),
            (_, Some(storage)) => (storage.data_source_ref.as_ref(), storage.data_source.as_ref()),
            _ => (None, None),
        };
    let is_external = references.0.is_some() || references.1.is_some();
    let is_filled = spec.source.is_some() || spec.source_ref.is_some();
    if is_external && is_filled {
        denial.invalid(&at.child("source"), "External population is incompatible with Source and SourceRef");
    } else if !is_external && !is_filled {
        let message = "Data volume should have either Source, SourceRef, or be externally populated";
        denial.invalid(&at.child("source").child("sourceRef"), message);
    }
    if spec.source.is_some() && spec.source_ref.is_some() {
        denial.invalid(&at.child("source"), "Either Source or SourceRef should be set, not both");
    }
    if let Some(source) = &spec.source {
        check_source(denial, at, source);
    }
    if let Some(reference) = spec.source_ref.as_ref().filter(|reference| reference.kind != "DataSource") {
        let message = format!("unsupported sourceRef kind {}, only DataSource is supported", reference.kind);
        denial.invalid(&at.child("sourceRef").child("kind"), message);
    }
    let content = spec.content_type.as_deref().unwrap_or_default();
    if !matches!(content, "" | "kubevirt" | "archive") {
        denial.invalid(&at.child("contentType"), format!("ContentType not one of: kubevirt, archive: {content}"));
    }
}

fn check_source(denial: &mut Denial, at: &FieldPath, source: &DataVolumeSource) {
    let own = at.child("source");
    let sources = [
        ("blank", source.blank.is_some(), true),
        ("http", source.http.is_some(), true),
        ("registry", source.registry.is_some(), true),
        ("pvc", source.pvc.is_some(), true),
        ("upload", source.upload.is_some(), true),
        ("snapshot", source.snapshot.is_some(), true),
        ("s3", source.s3.is_some(), false),
        ("gcs", source.gcs.is_some(), false),
        ("imageio", source.imageio.is_some(), false),
        ("vddk", source.vddk.is_some(), false),
    ];
    match sources.iter().filter(|(_, is_set, _)| *is_set).count() {
        0 => denial.invalid(&own, "Missing dataVolume valid source"),
        1 => {}
        _ => denial.invalid(&own, "Multiple dataVolume sources"),
    }
    for (name, is_set, is_offered) in sources {
        if is_set && !is_offered {
            denial.not_supported(&own.child(name), format!("source {name} is not supported: use http or registry"));
        }
    }
    if let Some(http) = &source.http {
        let is_http = ["http://", "https://"].iter().any(|scheme| http.url.starts_with(scheme));
        if http.url.is_empty() {
            denial.invalid(&own, "DataVolume source URL is empty");
        } else if !is_http {
            denial.invalid(&own, format!("Invalid URI {}: only http and https are supported", http.url));
        }
    }
    if let Some(registry) = &source.registry {
        let url = registry.url.as_deref().unwrap_or_default();
        let is_stream = registry.image_stream.is_some();
        if is_stream {
            denial.not_supported(&own.child("registry"), "image streams are not supported: use url");
        } else if !url.starts_with("docker://") {
            denial.invalid(&own.child("registry").child("url"), "registry URL must be docker://");
        }
    }
}

/// The templates of a machine; what did not change may stay.
pub(super) fn check_templates(
    denial: &mut Denial,
    spec: &VirtualMachineSpec,
    old: Option<&VirtualMachineSpec>,
    namespace: &str,
) {
    let is_changed = old.is_none_or(|old| old.data_volume_templates != spec.data_volume_templates);
    for (index, template) in spec.data_volume_templates.iter().enumerate() {
        let at = FieldPath::new("spec.dataVolumeTemplate").index(index);
        let name = template.metadata.name.as_deref().unwrap_or_default();
        if name.is_empty() {
            let field = at.child("name");
            let message = format!("'name' field must not be empty for DataVolumeTemplate entry {field}.");
            denial.required(&field, message);
            continue;
        }
        check(denial, &at, &template.spec);
        let is_used = spec.template.spec.volumes.iter().any(|volume| {
            volume.persistent_volume_claim.as_ref().is_some_and(|source| source.claim_name == name)
                || volume.data_volume.as_ref().is_some_and(|source| source.name == name)
        });
        if !is_used {
            let message =
                format!("DataVolumeTemplate entry {at} must be referenced in the VMI template's 'volumes' list");
            denial.required(&at, message);
        }
        let own = template.metadata.namespace.as_deref().unwrap_or_default();
        if is_changed && !own.is_empty() && !namespace.is_empty() && own != namespace {
            let message = format!("Embedded DataVolume namespace {own} differs from VM namespace {namespace}");
            denial.invalid(&FieldPath::new("spec.dataVolumeTemplates").index(index), message);
        }
    }
}

/// Not while an image or a machine stands on it.
pub(super) fn admit_delete(volume: &Value, lookup: &dyn Lookup) -> Result<(), ApiError> {
    let (namespace, name) = (text(volume, "metadata.namespace"), text(volume, "metadata.name"));
    for owner in list(volume, "metadata.ownerReferences") {
        if text(owner, "kind") != "VirtualMachineImage" {
            continue;
        }
        let image = lookup.get("harvesterhci.io", "virtualmachineimages", namespace, text(owner, "name"));
        if image.is_some_and(|image| !has(&image, "metadata.deletionTimestamp")) {
            let message =
                format!("can not delete the volume {name} which is owned by image {namespace}/{}", text(owner, "name"));
            return Err(refuse(HARVESTER, 422, "Invalid", &message));
        }
    }
    for machine in lookup.list("kubevirt.io", "virtualmachines", namespace) {
        let is_going = has(&machine, "metadata.deletionTimestamp");
        if !is_going && claim_names(&machine).any(|claim| claim == name) {
            let machine = text(&machine, "metadata.name");
            let message =
                format!("can not delete the volume {name} which is currently attached to VM: {namespace}/{machine}");
            return Err(refuse(HARVESTER, 409, "Conflict", &message));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
