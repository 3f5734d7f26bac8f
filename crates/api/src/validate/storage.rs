//! Volumes, claims, and the classes and drivers behind them.

use croft_meta::{FieldError, FieldErrors, FieldPath, names};
use serde_json::Value;

use super::checks::{named, one_of, quantity, quantity_text, required, required_name, selector};
use super::spec;
use crate::view::{get, has, list, map, restore, strings, text};

const ACCESS_MODES: &[&str] = &["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
const NOT_POSITIVE: &str = "must be greater than zero";

fn access_modes(errors: &mut FieldErrors, object: &Value) {
    let path = spec().child("accessModes");
    let modes = strings(object, "spec.accessModes");
    for mode in &modes {
        one_of(errors, &path, mode, ACCESS_MODES);
    }
    if modes.contains(&"ReadWriteOncePod") && modes.len() > 1 {
        errors.push(FieldError::forbidden(&path, "may not use ReadWriteOncePod with other access modes"));
    }
}

pub(super) fn claim(object: &Value) -> FieldErrors {
    let mut errors = Vec::new();
    if strings(object, "spec.accessModes").is_empty() {
        let path = spec().child("accessModes");
        errors.push(FieldError::required(&path, "at least 1 access mode is required"));
    }
    if let Some(found) = get(object, "spec.selector") {
        selector(&mut errors, found, &spec().child("selector"));
    }
    access_modes(&mut errors, object);
    let path = spec().child("resources").key("storage");
    match get(object, "spec.resources.requests.storage") {
        None => errors.push(FieldError::required(&path, "")),
        Some(size) if quantity(size).is_none_or(|size| size.as_f64() <= 0.0) => {
            errors.push(FieldError::invalid(&path, quantity_text(size), NOT_POSITIVE));
        }
        Some(_) => {}
    }
    let class = text(object, "spec.storageClassName");
    if !class.is_empty() {
        named(&mut errors, &spec().child("storageClassName"), class, names::is_dns1123_subdomain);
    }
    if let Some(mode) = get(object, "spec.volumeMode").and_then(Value::as_str) {
        one_of(&mut errors, &spec().child("volumeMode"), mode, &["Block", "Filesystem"]);
    }
    for field in ["dataSource", "dataSourceRef"] {
        if let Some(source) = get(object, &format!("spec.{field}")) {
            let path = spec().child(field);
            for part in ["name", "kind"] {
                required(&mut errors, &path.child(part), text(source, part));
            }
            let is_core = text(source, "apiGroup").is_empty();
            if is_core && !matches!(text(source, "kind"), "PersistentVolumeClaim" | "") {
                let text = "must be 'PersistentVolumeClaim' when referencing the default apiGroup";
                errors.push(FieldError::invalid(&path, source["kind"].clone(), text));
            }
        }
    }
    errors
}

/// A bound claim can grow; nothing else of a claim's spec changes, except that a class may be filled in.
pub(super) fn claim_update(new: &Value, old: &Value) -> FieldErrors {
    let mut errors = claim(new);
    let mut munged = new.clone();
    // Binding fills in the volume.
    if text(old, "spec.volumeName").is_empty() && !text(new, "spec.volumeName").is_empty() {
        restore(&mut munged, old, "spec.volumeName");
    }
    if !has(old, "spec.storageClassName") {
        restore(&mut munged, old, "spec.storageClassName");
    }
    if text(old, "status.phase") == "Bound" {
        restore(&mut munged, old, "spec.resources.requests");
        restore(&mut munged, old, "spec.volumeAttributesClassName");
        shrinks_not(&mut errors, new, old);
    }
    if munged.get("spec") != old.get("spec") {
        errors.push(FieldError::forbidden(
            &spec(),
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims",
        ));
    }
    errors
}

fn shrinks_not(errors: &mut FieldErrors, new: &Value, old: &Value) {
    const SIZE: &str = "spec.resources.requests.storage";
    let size = |object: &Value| get(object, SIZE).and_then(quantity);
    let (Some(now), Some(before)) = (size(new), size(old)) else { return };
    // A growth that failed can be taken back, down to what the volume has.
    let actual = get(old, "status.capacity.storage").and_then(quantity);
    if now < before && actual.is_none_or(|actual| now <= actual) {
        let path = spec().child("resources").child("requests").child("storage");
        errors.push(FieldError::forbidden(&path, "field can not be less than status.capacity"));
    }
}

/// Everything in a volume's spec that is not the source itself.
const VOLUME_FIELDS: &[&str] = &[
    "capacity",
    "accessModes",
    "claimRef",
    "persistentVolumeReclaimPolicy",
    "storageClassName",
    "mountOptions",
    "volumeMode",
    "nodeAffinity",
    "volumeAttributesClassName",
];

fn sources(object: &Value) -> Vec<(&str, &Value)> {
    let fields = map(object, "spec").into_iter().flatten();
    fields
        .filter(|(key, value)| !VOLUME_FIELDS.contains(&key.as_str()) && !value.is_null())
        .map(|(key, value)| (key.as_str(), value))
        .collect()
}

pub(super) fn volume(object: &Value) -> FieldErrors {
    let mut errors = Vec::new();
    if strings(object, "spec.accessModes").is_empty() {
        errors.push(FieldError::required(&spec().child("accessModes"), ""));
    }
    access_modes(&mut errors, object);
    let capacity = spec().child("capacity");
    let sizes = map(object, "spec.capacity").cloned().unwrap_or_default();
    if sizes.is_empty() {
        errors.push(FieldError::required(&capacity, ""));
    }
    if sizes.len() != 1 || !sizes.contains_key("storage") {
        let value = get(object, "spec.capacity").cloned().unwrap_or(Value::Null);
        errors.push(FieldError::not_supported(&capacity, value, &["storage"]));
    }
    for (name, size) in &sizes {
        let is_negative = quantity(size).is_some_and(|size| size.as_f64() < 0.0);
        let path = capacity.key(name);
        if is_negative {
            // Upstream prints this one without quotes.
            let shown = quantity_text(size).parse::<i64>().map_or_else(|_| size.clone(), Value::from);
            errors.push(FieldError::invalid(&path, shown, "must be a valid resource quantity"));
        }
        if quantity(size).is_none_or(|size| size.as_f64() <= 0.0) {
            errors.push(FieldError::invalid(&path, quantity_text(size), NOT_POSITIVE));
        }
    }
    let policy = text(object, "spec.persistentVolumeReclaimPolicy");
    one_of(&mut errors, &spec().child("persistentVolumeReclaimPolicy"), policy, &["Delete", "Recycle", "Retain"]);
    if let Some(mode) = get(object, "spec.volumeMode").and_then(Value::as_str) {
        one_of(&mut errors, &spec().child("volumeMode"), mode, &["Block", "Filesystem"]);
    }
    let class = text(object, "spec.storageClassName");
    if !class.is_empty() {
        named(&mut errors, &spec().child("storageClassName"), class, names::is_dns1123_subdomain);
    }
    let sources = sources(object);
    if sources.is_empty() {
        errors.push(FieldError::required(&spec(), "must specify a volume type"));
    }
    for (index, (kind, source)) in sources.iter().enumerate() {
        let path = spec().child(kind);
        if index > 0 {
            errors.push(FieldError::forbidden(&path, "may not specify more than 1 volume type"));
            continue;
        }
        volume_source(&mut errors, kind, source, &path);
    }
    errors
}

fn volume_source(errors: &mut FieldErrors, kind: &str, source: &Value, path: &FieldPath) {
    match kind {
        "hostPath" | "local" => required(errors, &path.child("path"), text(source, "path")),
        "nfs" => {
            required(errors, &path.child("server"), text(source, "server"));
            required(errors, &path.child("path"), text(source, "path"));
            if !text(source, "path").is_empty() && !text(source, "path").starts_with('/') {
                errors.push(FieldError::invalid(&path.child("path"), text(source, "path"), "must be an absolute path"));
            }
        }
        "csi" => {
            let driver = text(source, "driver");
            required(errors, &path.child("driver"), driver);
            named(errors, &path.child("driver"), &driver.to_lowercase(), names::is_dns1123_subdomain);
            required(errors, &path.child("volumeHandle"), text(source, "volumeHandle"));
        }
        _ => {}
    }
}

pub(super) fn volume_update(new: &Value, old: &Value) -> FieldErrors {
    let mut errors = volume(new);
    if sources(new) != sources(old) {
        let path = spec().child("persistentvolumesource");
        errors.push(FieldError::forbidden(&path, "spec.persistentvolumesource is immutable after creation"));
    }
    super::checks::unchanged(&mut errors, new, old, "spec.volumeMode");
    if has(old, "spec.nodeAffinity") {
        super::checks::unchanged(&mut errors, new, old, "spec.nodeAffinity");
    }
    errors
}

pub(super) fn class(object: &Value) -> FieldErrors {
    let mut errors = Vec::new();
    let root = FieldPath::root();
    let provisioner = text(object, "provisioner");
    if provisioner.is_empty() {
        errors.push(FieldError::required(&root.child("provisioner"), ""));
    } else {
        named(&mut errors, &root.child("provisioner"), &provisioner.to_lowercase(), names::is_qualified_name);
    }
    parameters(&mut errors, object);
    one_of(&mut errors, &root.child("reclaimPolicy"), text(object, "reclaimPolicy"), &["Delete", "Retain"]);
    let mode = text(object, "volumeBindingMode");
    one_of(&mut errors, &root.child("volumeBindingMode"), mode, &["Immediate", "WaitForFirstConsumer"]);
    errors
}

fn parameters(errors: &mut FieldErrors, object: &Value) {
    const MOST: usize = 512;
    let path = FieldPath::new("parameters");
    let Some(parameters) = map(object, "parameters") else { return };
    if parameters.len() > MOST {
        errors.push(FieldError::too_long(&path, MOST));
    }
    if parameters.contains_key("") {
        errors.push(FieldError::invalid(&path, "", "field can not be empty."));
    }
    let size: usize = parameters.iter().map(|(key, value)| key.len() + value.as_str().map_or(0, str::len)).sum();
    if size > 256 * 1024 {
        errors.push(FieldError::too_long(&path, 256 * 1024));
    }
}

fn forbidden_changes(errors: &mut FieldErrors, new: &Value, old: &Value, fields: &[&str]) {
    for field in fields {
        if get(new, field) != get(old, field) {
            let text = format!("updates to {field} are forbidden.");
            errors.push(FieldError::forbidden(&FieldPath::new(*field), text));
        }
    }
}

pub(super) fn class_update(new: &Value, old: &Value) -> FieldErrors {
    let mut errors = class(new);
    forbidden_changes(&mut errors, new, old, &["parameters", "provisioner", "reclaimPolicy"]);
    super::checks::unchanged(&mut errors, new, old, "volumeBindingMode");
    errors
}

pub(super) fn attributes_class(object: &Value) -> FieldErrors {
    let mut errors = Vec::new();
    required(&mut errors, &FieldPath::new("driverName"), text(object, "driverName"));
    if map(object, "parameters").is_none_or(serde_json::Map::is_empty) {
        errors.push(FieldError::required(&FieldPath::new("parameters"), "must contain at least one key/value pair"));
    }
    parameters(&mut errors, object);
    errors
}

pub(super) fn attributes_class_update(new: &Value, old: &Value) -> FieldErrors {
    let mut errors = attributes_class(new);
    forbidden_changes(&mut errors, new, old, &["driverName", "parameters"]);
    errors
}

pub(super) fn attachment(object: &Value) -> FieldErrors {
    let mut errors = Vec::new();
    let attacher = text(object, "spec.attacher");
    let path = spec().child("attacher");
    if attacher.is_empty() {
        // Two rules of upstream ask for it.
        errors.push(FieldError::required(&path, ""));
        errors.push(FieldError::required(&path, ""));
    }
    named(&mut errors, &path, &attacher.to_lowercase(), names::is_dns1123_subdomain);
    let has_volume = !text(object, "spec.source.persistentVolumeName").is_empty();
    let has_inline = has(object, "spec.source.inlineVolumeSpec");
    if has_volume == has_inline {
        let text = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
        errors.push(FieldError::required(&spec().child("source"), text));
    }
    named(&mut errors, &spec().child("nodeName"), text(object, "spec.nodeName"), names::is_dns1123_subdomain);
    errors
}

pub(super) fn attachment_update(new: &Value, old: &Value) -> FieldErrors {
    let mut errors = attachment(new);
    super::checks::unchanged(&mut errors, new, old, "spec");
    errors
}

pub(super) fn csi_node(object: &Value) -> FieldErrors {
    let mut errors = Vec::new();
    for (index, driver) in list(object, "spec.drivers").iter().enumerate() {
        let path = spec().child("drivers").index(index);
        required_name(&mut errors, &path.child("name"), text(driver, "name"), names::is_dns1123_subdomain);
        required(&mut errors, &path.child("nodeID"), text(driver, "nodeID"));
    }
    errors
}

pub(super) fn csi_driver(object: &Value) -> FieldErrors {
    let mut errors = Vec::new();
    for (index, mode) in strings(object, "spec.volumeLifecycleModes").iter().enumerate() {
        let path = spec().child("volumeLifecycleModes").index(index);
        one_of(&mut errors, &path, mode, &["Persistent", "Ephemeral"]);
    }
    let policy = text(object, "spec.fsGroupPolicy");
    let known = ["ReadWriteOnceWithFSType", "File", "None"];
    one_of(&mut errors, &spec().child("fsGroupPolicy"), policy, &known);
    errors
}

pub(super) fn capacity(object: &Value) -> FieldErrors {
    let mut errors = Vec::new();
    let class = text(object, "storageClassName");
    named(&mut errors, &FieldPath::new("storageClassName"), class, names::is_dns1123_subdomain);
    for field in ["capacity", "maximumVolumeSize"] {
        if let Some(size) = get(object, field) {
            super::checks::not_negative_quantity(&mut errors, &FieldPath::new(field), size);
        }
    }
    errors
}

pub(super) fn capacity_update(new: &Value, old: &Value) -> FieldErrors {
    let mut errors = capacity(new);
    for field in ["nodeTopology", "storageClassName"] {
        super::checks::unchanged(&mut errors, new, old, field);
    }
    errors
}
