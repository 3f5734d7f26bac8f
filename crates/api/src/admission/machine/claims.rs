//! The claims of a machine: those its annotation asks for, and those it uses.

use std::fmt::Write;

use croft_meta::{ApiError, FieldPath, Quantity};
use serde_json::Value;

use super::super::denial::Denial;
use super::super::{Admission, access, storage};
use super::{HARVESTER, annotation, claim_names};
use crate::kubevirt::{Disk, VirtualMachine};
use crate::view::{get, strings, text};

const TEMPLATES: &str = "harvesterhci.io/volumeClaimTemplates";
const GOLDEN: &str = "harvesterhci.io/goldenImage";
const IMAGE: &str = "harvesterhci.io/imageId";

pub(super) fn check(
    vm: &VirtualMachine,
    old: Option<&VirtualMachine>,
    admission: &Admission<'_>,
) -> Result<(), ApiError> {
    let mut denial = Denial::by(HARVESTER);
    let entries = match templates(admission.object) {
        Ok(entries) => entries,
        Err(error) => {
            let message = format!("the volumeClaimTemplates annotaion is invalid: {error}");
            denial.invalid(&FieldPath::new("metadata.annotations"), message);
            return denial.finish();
        }
    };
    let is_changed =
        admission.old.is_none_or(|old| annotation(old, TEMPLATES) != annotation(admission.object, TEMPLATES));
    if is_changed {
        for entry in &entries {
            entry_exists(&mut denial, entry, admission);
        }
        if let Some(old) = admission.old {
            only_grow(&mut denial, &entries, &templates(old).unwrap_or_default(), admission);
        }
    }
    let used = |vm: &VirtualMachine| vm.spec.template.spec.volumes.clone();
    if old.is_none_or(|old| used(old) != used(vm)) {
        used_claims(&mut denial, admission);
    }
    for (index, disk) in vm.spec.template.spec.domain.devices.disks.iter().enumerate() {
        if disk.shareable == Some(true) {
            shareable(&mut denial, vm, index, disk);
        }
    }
    denial.finish()
}

/// The entries of the annotation; none if it is not there.
fn templates(machine: &Value) -> Result<Vec<Value>, String> {
    let text_of_all = annotation(machine, TEMPLATES);
    if text_of_all.is_empty() {
        return Ok(Vec::new());
    }
    let entries: Vec<Value> = serde_json::from_str(text_of_all).map_err(|error| error.to_string())?;
    if entries.iter().any(|entry| text(entry, "metadata.name").is_empty()) {
        return Err("PVC name is required".to_owned());
    }
    Ok(entries)
}

fn at_annotation() -> FieldPath {
    FieldPath::new(format!("metadata.annotations.{TEMPLATES}"))
}

/// The class is there, and is that of the image, which the user may read.
fn entry_exists(denial: &mut Denial, entry: &Value, admission: &Admission<'_>) {
    let class = text(entry, "spec.storageClassName");
    let image = get(entry, "metadata.annotations").and_then(|map| map.get(IMAGE)).and_then(Value::as_str);
    let expected = storage::image_of_class(class, admission.lookup);
    if let Some(image) = expected.as_deref().or(image) {
        access::image(denial, &at_annotation(), image, admission);
    }
    if class.is_empty() {
        return;
    }
    if admission.lookup.get("storage.k8s.io", "storageclasses", "", class).is_none() {
        denial.invalid(&at_annotation(), format!("storage class {class} does not exist"));
        return;
    }
    let (Some(image), Some(expected)) = (image, expected) else { return };
    if image != expected {
        let message = format!(
            "imageId \"{image}\" in volume template does not match backing image of storage class \"{class}\" \
             (expected \"{expected}\")"
        );
        denial.invalid(&FieldPath::new(format!("metadata.annotations[{TEMPLATES}]")), message);
    }
}

fn only_grow(denial: &mut Denial, new: &[Value], old: &[Value], admission: &Admission<'_>) {
    let size = |entry: &Value| Quantity::parse(text(entry, "spec.resources.requests.storage")).unwrap_or_default();
    let mut changed = String::new();
    for before in old {
        let name = text(before, "metadata.name");
        let Some(entry) = new.iter().find(|entry| text(entry, "metadata.name") == name) else { continue };
        if size(entry) < size(before) {
            denial.invalid(&at_annotation(), format!("{name} PVC requests storage can't be less than previous value"));
        } else if size(entry) > size(before) {
            let namespace = text(admission.object, "metadata.namespace");
            if let Some(claim) = admission.lookup.get("", "persistentvolumeclaims", namespace, name) {
                storage::check_growth(denial, &claim, admission.lookup);
            }
        }
        let (class, before) = (text(entry, "spec.storageClassName"), text(before, "spec.storageClassName"));
        if !class.is_empty() && !before.is_empty() && class != before {
            // Writing to a String cannot fail.
            let _ = write!(changed, " new name {class} in volume {name};");
        }
    }
    if !changed.is_empty() {
        let message =
            format!("storage class names for the volumes in the {TEMPLATES} annotation cannot be changed;{changed}");
        denial.invalid(&at_annotation(), message);
    }
}

/// No golden image, and nothing that another machine uses alone.
fn used_claims(denial: &mut Denial, admission: &Admission<'_>) {
    let namespace = text(admission.object, "metadata.namespace");
    let name = text(admission.object, "metadata.name");
    let claims: Vec<&str> = claim_names(admission.object).collect();
    if claims.is_empty() {
        return;
    }
    for claim in claims {
        let others = admission.lookup.mentioning("kubevirt.io", "virtualmachines", namespace, &format!("\"{claim}\""));
        let mut others = others.iter().filter(|other| text(other, "metadata.name") != name);
        let object = admission.lookup.get("", "persistentvolumeclaims", namespace, claim);
        let is_golden = object
            .as_ref()
            .and_then(|claim| get(claim, "metadata.annotations")?.get(GOLDEN)?.as_str())
            .is_some_and(|value| value == "true");
        if is_golden {
            let message = format!("PVC {namespace}/{claim} is a golden image, it can't be used as a volume in VM");
            denial.invalid(&FieldPath::new("spec.template.spec.volumes"), message);
        }
        let is_shared = object.as_ref().is_some_and(|claim| {
            strings(claim, "spec.accessModes").iter().any(|mode| matches!(*mode, "ReadWriteMany" | "ReadOnlyMany"))
        }) && is_shareable(admission.object, claim);
        let is_taken = others.any(|other| claim_names(other).any(|used| used == claim));
        if is_taken && !is_shared {
            let message =
                format!("PVC {namespace}/{claim} is already used by other VM, please use a shareable RWX volume.");
            denial.invalid(&FieldPath::new("spec.templates.spec.volumes"), message);
        }
    }
}

/// The disk that shows the claim says so.
pub(in crate::admission) fn is_shareable(machine: &Value, claim: &str) -> bool {
    let volumes = crate::view::list(machine, "spec.template.spec.volumes");
    let named = |volume: &&Value| {
        text(volume, "persistentVolumeClaim.claimName") == claim || text(volume, "dataVolume.name") == claim
    };
    let Some(volume) = volumes.iter().find(named) else { return false };
    crate::view::list(machine, "spec.template.spec.domain.devices.disks")
        .iter()
        .any(|disk| text(disk, "name") == text(volume, "name") && crate::view::flag(disk, "shareable"))
}

fn shareable(denial: &mut Denial, vm: &VirtualMachine, index: usize, disk: &Disk) {
    let spec = &vm.spec.template.spec;
    let disks_at = FieldPath::new("spec.template.spec.domain.devices.disks");
    let is_ordered = spec.domain.devices.disks.iter().any(|disk| disk.boot_order.is_some());
    let name = &disk.name;
    if disk.boot_order == Some(1) || (!is_ordered && index == 0) {
        let message = format!("disk {name} cannot be shareable: a shareable disk cannot be used as the boot disk");
        denial.invalid(&disks_at, message);
    }
    let volume = spec.volumes.iter().find(|volume| volume.name == *name);
    if volume.is_none_or(|volume| volume.persistent_volume_claim.is_none() && volume.data_volume.is_none()) {
        let message =
            format!("disk {name} cannot be shareable: a shareable disk must be backed by a persistent volume claim");
        denial.invalid(&FieldPath::new("spec.template.spec.volumes"), message);
    }
}
