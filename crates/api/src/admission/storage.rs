//! Claims and storage classes, as Harvester guards them.

mod cdi;

use croft_meta::{ApiError, FieldPath, Quantity};
use serde_json::Value;

use super::denial::{Denial, refuse};
use super::machine::{HARVESTER, claim_names};
use super::{Admission, Lookup, access, compute};
use crate::harvester::settings;
use crate::view::{get, has, list, text};

const IMAGE: &str = "harvesterhci.io/imageId";
const GOLDEN: &str = "harvesterhci.io/goldenImage";
const DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";
const RESERVED: &str = "harvesterhci.io/is-reserved-storageclass";
/// Classes for Croft's own claims.
const INTERNAL_CLASSES: &[&str] = &["vmstate-persistence", "longhorn-static"];

fn annotation<'a>(object: &'a Value, key: &str) -> &'a str {
    get(object, "metadata.annotations").and_then(|map| map.get(key)).and_then(Value::as_str).unwrap_or_default()
}

fn invalid(field: &str, message: impl Into<String>) -> Result<(), ApiError> {
    let mut denial = Denial::by(HARVESTER);
    denial.invalid(&FieldPath::new(field), message);
    denial.finish()
}

/// The image (`namespace/name`) whose clones a class makes.
pub(super) fn image_of_class(class: &str, lookup: &dyn Lookup) -> Option<String> {
    let class = lookup.get("storage.k8s.io", "storageclasses", "", class)?;
    let backing = get(&class, "parameters")?.get("backingImage")?.as_str()?.to_owned();
    lookup.list("harvesterhci.io", "virtualmachineimages", "").into_iter().find_map(|image| {
        let (namespace, name) = (text(&image, "metadata.namespace"), text(&image, "metadata.name"));
        // By its uid, or as older releases called it.
        let is_it = backing.strip_prefix("vmi-") == Some(text(&image, "metadata.uid"))
            || backing.strip_prefix(namespace).and_then(|rest| rest.strip_prefix('-')) == Some(name);
        is_it.then(|| format!("{namespace}/{name}"))
    })
}

pub(super) fn admit_claim(admission: &mut Admission<'_>) -> Result<(), ApiError> {
    let size = |claim: &Value| text(claim, "spec.resources.requests.storage").to_owned();
    if admission.subresource.is_empty() && admission.old.map(size).unwrap_or_default() != size(admission.object) {
        compute::check_claim(admission.object, admission.lookup)?;
    }
    if admission.is_internal || admission.subresource == "status" {
        return Ok(());
    }
    let claim = &*admission.object;
    let Some(old) = admission.old else {
        let class = text(claim, "spec.storageClassName");
        if INTERNAL_CLASSES.contains(&class) {
            let message = format!("can not create volume with the reserved storage class {class}");
            return invalid("spec.storageClassName", message);
        }
        let mut denial = Denial::by(HARVESTER);
        let of_class = image_of_class(class, admission.lookup).unwrap_or_default();
        access::image(&mut denial, &FieldPath::new("spec.storageClassName"), &of_class, admission);
        let annotations = FieldPath::new("metadata.annotations");
        access::image(&mut denial, &annotations, annotation(claim, IMAGE), admission);
        return denial.finish();
    };
    let (before, after) = (annotation(old, GOLDEN), annotation(claim, GOLDEN));
    if !before.is_empty() && before != after {
        let verb = if after.is_empty() { "remove" } else { "change" };
        let (namespace, name) = (text(claim, "metadata.namespace"), text(claim, "metadata.name"));
        return invalid("", format!("can not {verb} golden image annotation from PVC {namespace}/{name}"));
    }
    let size = |claim: &Value| Quantity::parse(text(claim, "spec.resources.requests.storage")).unwrap_or_default();
    if size(claim) <= size(old) {
        return Ok(());
    }
    let mut denial = Denial::by(HARVESTER);
    check_growth(&mut denial, claim, admission.lookup);
    denial.finish()
}

/// A disk grows under a running guest only where the setting says that its provisioner can do that.
pub(super) fn check_growth(denial: &mut Denial, claim: &Value, lookup: &dyn Lookup) {
    let (namespace, name) = (text(claim, "metadata.namespace"), text(claim, "metadata.name"));
    let is_running = lookup
        .list("kubevirt.io", "virtualmachines", namespace)
        .iter()
        .any(|machine| crate::view::flag(machine, "status.created") && claim_names(machine).any(|used| used == name));
    if !is_running {
        return;
    }
    let class = lookup.get("storage.k8s.io", "storageclasses", "", text(claim, "spec.storageClassName"));
    let provisioner = class.as_ref().map(|class| text(class, "provisioner")).unwrap_or_default();
    let setting = settings::effective(lookup, "csi-online-expand-validation");
    let allowed: Value = serde_json::from_str(&setting).unwrap_or_default();
    if allowed.get(provisioner).and_then(Value::as_bool) != Some(true) {
        let message = format!("PVC_EXPAND: pvc {namespace}/{name} is not online expandable with its provider");
        denial.invalid(&FieldPath::root(), message);
    }
}

/// Not while an image is made from it or a machine stands on it. Not called for the garbage collector.
pub(super) fn admit_claim_delete(claim: &Value, lookup: &dyn Lookup) -> Result<(), ApiError> {
    let (namespace, name) = (text(claim, "metadata.namespace"), text(claim, "metadata.name"));
    let images = lookup.list("harvesterhci.io", "virtualmachineimages", "");
    let is_image =
        |image: &Value| text(image, "metadata.namespace") == namespace && text(image, "metadata.name") == name;
    if annotation(claim, GOLDEN) == "true" && images.iter().any(is_image) {
        return invalid("", "can not delete golden image PVC");
    }
    for image in &images {
        let is_source = text(image, "spec.pvcNamespace") == namespace && text(image, "spec.pvcName") == name;
        if is_source && text(image, "spec.sourceType") == "export-from-volume" && !is_imported(image) {
            let (namespace, image) = (text(image, "metadata.namespace"), text(image, "metadata.name"));
            let message = format!("can not delete volume {name} which is exporting for image {namespace}/{image}");
            return invalid("value", message);
        }
    }
    let machines = lookup.list("kubevirt.io", "virtualmachines", namespace);
    let staying = || machines.iter().filter(|machine| !has(machine, "metadata.deletionTimestamp"));
    if let Some(machine) = staying().find(|machine| claim_names(machine).any(|used| used == name)) {
        let machine = text(machine, "metadata.name");
        let message =
            format!("can not delete the volume {name} which is currently attached to VM: {namespace}/{machine}");
        return Err(refuse(HARVESTER, 409, "Conflict", &message));
    }
    let owners: Vec<&str> = list(claim, "metadata.ownerReferences")
        .iter()
        .filter(|owner| text(owner, "kind") == "VirtualMachine")
        .map(|owner| text(owner, "name"))
        .filter(|owner| staying().any(|machine| text(machine, "metadata.name") == *owner))
        .collect();
    if owners.is_empty() {
        return Ok(());
    }
    let message =
        format!("can not delete the volume {name} which is currently owned by these VMs: {}", owners.join(","));
    invalid("", message)
}

/// Condition `Imported`.
pub(super) fn is_imported(image: &Value) -> bool {
    list(image, "status.conditions")
        .iter()
        .any(|condition| text(condition, "type") == "Imported" && text(condition, "status") == "True")
}

pub(super) fn admit_class(admission: &mut Admission<'_>) -> Result<(), ApiError> {
    if admission.is_internal {
        return Ok(());
    }
    let class = &*admission.object;
    let name = text(class, "metadata.name");
    match get(class, "parameters").map(|parameters| text(parameters, "dataLocality")).unwrap_or_default() {
        "" | "disabled" | "best-effort" => {}
        "strict-local" => return invalid("", "storage class with strict-local data locality is not allowed"),
        other => {
            let message =
                format!("storage class with invalid data locality {other}, valid values: [disabled best-effort]");
            return invalid("", message);
        }
    }
    if text(class, "provisioner") == "driver.longhorn.io"
        && get(class, "parameters").map(|parameters| text(parameters, "encrypted")) == Some("true")
    {
        return invalid("spec.parameters", "encrypted volumes are not supported");
    }
    let is_new = |path: &str| admission.old.is_none_or(|old| get(old, path) != get(class, path));
    if is_new("metadata.annotations")
        && let Some(problem) = cdi::problem(class, admission.lookup)
    {
        return invalid("metadata.annotations", problem);
    }
    if admission.old.is_none()
        && let Some(problem) = cdi::missing_volume_group(class, admission.lookup)
    {
        return invalid("parameters", problem);
    }
    if let Some(old) = admission.old
        && (annotation(old, RESERVED) == "true" || INTERNAL_CLASSES.contains(&name))
        && is_changed(class, old)
    {
        return invalid("", format!("storage class {name} is reserved by Harvester and can't be modified"));
    }
    if annotation(class, DEFAULT_CLASS) != "true" {
        return Ok(());
    }
    let others = admission.lookup.list("storage.k8s.io", "storageclasses", "");
    let is_other = |other: &&Value| text(other, "metadata.name") != name && annotation(other, DEFAULT_CLASS) == "true";
    match others.iter().find(is_other) {
        Some(other) => {
            let other = text(other, "metadata.name");
            let message = format!(
                "default storage class {other} already exists, please reset it first before set {name} as default"
            );
            invalid("", message)
        }
        None => Ok(()),
    }
}

/// A disk is one thing or the other.
pub(super) fn admit_disk(admission: &mut Admission<'_>) -> Result<(), ApiError> {
    let provisioners = crate::view::map(admission.object, "spec.provisioner").into_iter().flatten();
    if provisioners.filter(|(_, provisioner)| !provisioner.is_null()).count() > 1 {
        return invalid("spec.provisioner", "Blockdevice should not have multiple provisioners");
    }
    Ok(())
}

/// Which class is the default one may be changed of all.
fn is_changed(class: &Value, old: &Value) -> bool {
    let fields = ["provisioner", "parameters", "reclaimPolicy", "volumeBindingMode", "allowVolumeExpansion"];
    annotation(class, RESERVED) != annotation(old, RESERVED)
        || fields.into_iter().any(|field| get(class, field) != get(old, field))
}

pub(super) fn admit_class_delete(class: &Value, lookup: &dyn Lookup) -> Result<(), ApiError> {
    let name = text(class, "metadata.name");
    if annotation(class, RESERVED) == "true" || INTERNAL_CLASSES.contains(&name) {
        return invalid("", format!("storage class {name} is reserved by Harvester and can't be deleted"));
    }
    let images = lookup.list("harvesterhci.io", "virtualmachineimages", "");
    let users: Vec<String> = images
        .iter()
        .filter(|image| {
            let of_image =
                text(image, "status.storageClassName") == name || text(image, "spec.targetStorageClassName") == name;
            of_image && !has(image, "metadata.deletionTimestamp")
        })
        .map(|image| format!("{}/{}", text(image, "metadata.namespace"), text(image, "metadata.name")))
        .collect();
    if users.is_empty() {
        return Ok(());
    }
    invalid("", format!("storage class {name} is used by virtual machine images: {}", users.join(", ")))
}

#[cfg(test)]
mod tests;
