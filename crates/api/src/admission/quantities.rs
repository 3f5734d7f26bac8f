//! Quantities in the form that Go writes them in: `1024Mi` is `1Gi`, and the number 2 is `"2"`.
//!
//! The webhooks write the whole spec back, so clients know this form; and the structs read no other.

use croft_meta::Quantity;
use serde_json::Value;

use crate::view::{get_mut, list_mut};

/// In `spec.template.spec` and the templates of DataVolumes.
pub(super) fn of_machine(machine: &mut Value) {
    if let Some(spec) = get_mut(machine, "spec.template.spec") {
        of_instance_spec(spec);
    }
    for template in list_mut(machine, "spec.dataVolumeTemplates") {
        of_data_volume(template);
    }
}

pub(super) fn of_instance_spec(spec: &mut Value) {
    for path in ["domain.resources.requests", "domain.resources.limits"] {
        map(get_mut(spec, path));
    }
    for path in ["domain.memory.guest", "domain.memory.maxGuest"] {
        one(get_mut(spec, path));
    }
    for volume in list_mut(spec, "volumes") {
        one(get_mut(volume, "emptyDisk.capacity"));
        one(get_mut(volume, "hostDisk.capacity"));
    }
}

pub(super) fn of_data_volume(volume: &mut Value) {
    for path in ["spec.pvc.resources", "spec.storage.resources"] {
        if let Some(resources) = get_mut(volume, path) {
            map(get_mut(resources, "requests"));
            map(get_mut(resources, "limits"));
        }
    }
}

/// Instancetypes and preferences.
pub(super) fn of_size(size: &mut Value) {
    for path in ["spec.memory.guest", "spec.memory.maxGuest", "spec.requirements.memory.guest"] {
        one(get_mut(size, path));
    }
}

fn map(quantities: Option<&mut Value>) {
    for quantity in quantities.and_then(Value::as_object_mut).into_iter().flat_map(serde_json::Map::values_mut) {
        one(Some(quantity));
    }
}

/// What is no quantity stays, and is refused by the schema.
fn one(quantity: Option<&mut Value>) {
    let Some(value) = quantity else { return };
    let text = match &*value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => return,
    };
    if let Ok(quantity) = Quantity::parse(&text) {
        *value = Value::from(quantity.to_string());
    }
}
