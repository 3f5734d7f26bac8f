//! VirtualMachineImages.

use croft_meta::{ApiError, FieldPath, names};
use serde_json::{Value, json};

use super::denial::{Denial, refuse};
use super::machine::HARVESTER;
use super::storage::is_imported;
use super::{Admission, Lookup, access};
use crate::harvester::{images_of_version, source_type};
use crate::view::{default, default_text, get, has, map_mut, set, text};

const DISPLAY_NAME: &str = "harvesterhci.io/imageDisplayName";
const CLASS: &str = "harvesterhci.io/storageClassName";
const DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";

fn annotation<'a>(object: &'a Value, key: &str) -> &'a str {
    get(object, "metadata.annotations").and_then(|map| map.get(key)).and_then(Value::as_str).unwrap_or_default()
}

fn invalid(field: &str, message: impl Into<String>) -> Result<(), ApiError> {
    let mut denial = Denial::by(HARVESTER);
    denial.invalid(&FieldPath::new(field), message);
    denial.finish()
}

pub(super) fn admit(admission: &mut Admission<'_>) -> Result<(), ApiError> {
    if has(admission.object, "metadata.deletionTimestamp") {
        return Ok(());
    }
    match admission.old {
        None => create(admission),
        Some(old) => update(admission, old),
    }
}

fn create(admission: &mut Admission<'_>) -> Result<(), ApiError> {
    fill_in(admission);
    let image = &*admission.object;
    let display_name = text(image, "spec.displayName");
    let wrong = names::is_valid_label_value(display_name);
    if !wrong.is_empty() {
        let message = format!("displayName is not a valid Kubernetes label value: {}", wrong.join("; "));
        return invalid("spec.displayName", message);
    }
    check_display_name(image, admission.lookup)?;
    check_url(image)?;
    check_claim(image, admission)?;
    check_clone(image, admission.lookup)?;
    let class = annotation(image, CLASS);
    if !class.is_empty() && admission.lookup.get("storage.k8s.io", "storageclasses", "", class).is_none() {
        return invalid(&format!("metadata.annotations[{CLASS}]"), format!("storage class {class} not found"));
    }
    Ok(())
}

/// The class is named twice, by a field and by an annotation; the label makes images findable by their name.
fn fill_in(admission: &mut Admission<'_>) {
    let image = &mut *admission.object;
    default_text(image, "spec.backend", "backingimage");
    default(image, "spec.retry", 3);
    let display_name = text(image, "spec.displayName").to_owned();
    let (field, note) = (text(image, "spec.targetStorageClassName").to_owned(), annotation(image, CLASS).to_owned());
    let class = [field, note].into_iter().find(|class| !class.is_empty()).or_else(|| {
        let classes = admission.lookup.list("storage.k8s.io", "storageclasses", "");
        let found = classes.iter().find(|class| annotation(class, DEFAULT_CLASS) == "true");
        found.map(|class| text(class, "metadata.name").to_owned())
    });
    if let Some(labels) = map_mut(image, "metadata.labels").filter(|_| !display_name.is_empty()) {
        labels.insert(DISPLAY_NAME.to_owned(), json!(display_name));
    }
    let Some(class) = class else { return };
    set(image, "spec.targetStorageClassName", class.clone());
    if let Some(annotations) = map_mut(image, "metadata.annotations") {
        annotations.insert(CLASS.to_owned(), json!(class));
    }
}

fn check_display_name(image: &Value, lookup: &dyn Lookup) -> Result<(), ApiError> {
    let (namespace, display_name) = (text(image, "metadata.namespace"), text(image, "spec.displayName"));
    if display_name.is_empty() {
        return invalid("spec.displayName", "displayName is required");
    }
    let is_other = |other: &Value| {
        text(other, "spec.displayName") == display_name && text(other, "metadata.name") != text(image, "metadata.name")
    };
    if lookup.list("harvesterhci.io", "virtualmachineimages", namespace).iter().any(is_other) {
        return Err(refuse(HARVESTER, 409, "Conflict", "A resource with the same name exists"));
    }
    Ok(())
}

fn check_url(image: &Value) -> Result<(), ApiError> {
    let (kind, url) = (text(image, "spec.sourceType"), text(image, "spec.url"));
    if !matches!(kind, source_type::DOWNLOAD | source_type::RESTORE) {
        if url.is_empty() {
            return Ok(());
        }
        return invalid("spec.url", format!("url should be empty when image source type is \"{kind}\""));
    }
    if url.is_empty() {
        return invalid("spec.url", "url is required");
    }
    let rest = ["http://", "https://"].iter().find_map(|scheme| url.strip_prefix(scheme));
    let is_plain = |rest: &str| !rest.is_empty() && !rest.starts_with('/') && !rest.contains(char::is_whitespace);
    if kind == source_type::DOWNLOAD && !rest.is_some_and(is_plain) {
        return invalid("spec.url", format!("url is invalid: {url} is not an http or https address"));
    }
    Ok(())
}

fn check_claim(image: &Value, admission: &Admission<'_>) -> Result<(), ApiError> {
    if text(image, "spec.sourceType") != source_type::EXPORT_FROM_VOLUME {
        return Ok(());
    }
    for field in ["pvcNamespace", "pvcName"] {
        let path = format!("spec.{field}");
        if text(image, &path).is_empty() {
            let message = format!("{field} is required when image source type is \"export-from-volume\"");
            return invalid(&path, message);
        }
    }
    let (namespace, name) = (text(image, "spec.pvcNamespace"), text(image, "spec.pvcName"));
    // First, so that nobody learns what claims others have.
    let mut denial = Denial::by(HARVESTER);
    access::claim(&mut denial, &FieldPath::new("spec.pvcName"), (namespace, name), admission);
    denial.finish()?;
    if admission.lookup.get("", "persistentvolumeclaims", namespace, name).is_none() {
        let why = format!("persistentvolumeclaims \"{name}\" not found");
        return invalid("", format!("failed to get pvc {name}/{namespace}, error: {why}"));
    }
    Ok(())
}

/// Clones in Harvester are made to encrypt or decrypt, which Croft cannot do.
fn check_clone(image: &Value, lookup: &dyn Lookup) -> Result<(), ApiError> {
    if text(image, "spec.sourceType") != source_type::CLONE {
        return Ok(());
    }
    let parameters = get(image, "spec.securityParameters");
    let Some(parameters) = parameters else {
        let message = "sourceParameters is required when image source type is \"clone\"";
        return invalid("spec.sourceParameters", message);
    };
    let (namespace, name) = (text(parameters, "sourceImageNamespace"), text(parameters, "sourceImageName"));
    for (value, label) in [(name, "SourceImageName"), (namespace, "SourceImageNamespace")] {
        if value.is_empty() {
            let message = format!("{label} is required when image source type is \"clone\"");
            return invalid("spec.security.sourceImageName", message);
        }
    }
    let Some(source) = lookup.get("harvesterhci.io", "virtualmachineimages", namespace, name) else {
        let field = "spec.securityParameters.sourceImageName";
        return invalid(field, format!("source image {namespace}/{name} not found"));
    };
    let display_name = text(&source, "spec.displayName");
    if text(parameters, "cryptoOperation").is_empty() {
        let message = "cryptoOperation is required when image source type is \"clone\": encrypt or decrypt";
        return invalid("spec.securityParameters.cryptoOperation", message);
    }
    if text(parameters, "cryptoOperation") == "decrypt" {
        let message = format!("can not re-decrypt, source image {namespace}/{name} ({display_name}) is not encrypted");
        return invalid("", message);
    }
    if !is_imported(&source) {
        return invalid("", format!("source image {namespace}/{name} ({display_name}) is not ready"));
    }
    invalid("spec.securityParameters.cryptoOperation", "encrypted images are not supported")
}

/// What an image is made from does not change.
fn update(admission: &mut Admission<'_>, old: &Value) -> Result<(), ApiError> {
    let image = &*admission.object;
    let fixed = [
        ("displayName", "displayName cannot be modified"),
        ("storageClassParameters", "storageClassParameters of the VM Image cannot be modified"),
        ("sourceType", "sourceType cannot be modified"),
        ("pvcNamespace", "pvcNamespace cannot be modified"),
        ("pvcName", "pvcName cannot be modified"),
        ("url", "url cannot be modified"),
        ("securityParameters", "securityParameters cannot be modified"),
    ];
    // Clients write what is unset as an empty text.
    let value = |object: &Value, path: &str| get(object, path).filter(|value| *value != "").cloned();
    for (field, message) in fixed {
        let path = format!("spec.{field}");
        if value(image, &path) != value(old, &path) {
            return invalid(&path, message);
        }
    }
    let is_moved = !annotation(old, CLASS).is_empty() && annotation(image, CLASS) != annotation(old, CLASS);
    let target = "spec.targetStorageClassName";
    if is_moved || (value(old, target).is_some() && value(image, target) != value(old, target)) {
        return invalid(target, "storageClassName should keep the consistency");
    }
    Ok(())
}

/// Not while a volume was made from it: a clone shares its blocks, but the claim's class would be gone.
pub(super) fn admit_delete(image: &Value, lookup: &dyn Lookup) -> Result<(), ApiError> {
    let (namespace, display_name) = (text(image, "metadata.namespace"), text(image, "spec.displayName"));
    let used_by = |what: String| format!("Cannot delete image {namespace}/{display_name}: being used by {what}");
    let id = format!("{namespace}/{}", text(image, "metadata.name"));
    for version in lookup.list("harvesterhci.io", "virtualmachinetemplateversions", "") {
        if images_of_version(&version).contains(&id) && !has(&version, "metadata.deletionTimestamp") {
            let version = format!("{}/{}", text(&version, "metadata.namespace"), text(&version, "metadata.name"));
            return invalid("", used_by(format!("VMTemplateVersion {version}")));
        }
    }
    let class = text(image, "status.storageClassName");
    if class.is_empty() {
        return Ok(());
    }
    let claims = lookup.list("", "persistentvolumeclaims", "");
    match claims.iter().find(|claim| text(claim, "spec.storageClassName") == class) {
        Some(claim) => {
            let claim = format!("volume {}/{}", text(claim, "metadata.namespace"), text(claim, "metadata.name"));
            invalid("", used_by(claim))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
