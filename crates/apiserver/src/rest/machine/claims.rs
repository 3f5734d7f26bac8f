//! A machine's volumes and the claims that its annotation lists.

use croft_meta::{ApiError, object};
use serde_json::{Value, json};

use super::super::acting::Acting;
use super::super::reply::invalid;

pub(super) const TEMPLATES: &str = "harvesterhci.io/volumeClaimTemplates";
pub(super) const IMAGE_ID: &str = "harvesterhci.io/imageId";

/// The entries of the annotation.
#[derive(Debug, Default)]
pub(super) struct Claims(pub(super) Vec<Value>);

impl Claims {
    pub(super) fn of(machine: &Value) -> Result<Self, ApiError> {
        let text = object::annotation(machine, TEMPLATES).unwrap_or_default();
        if text.trim().is_empty() {
            return Ok(Self::default());
        }
        let entries = serde_json::from_str(text);
        entries.map(Self).map_err(|error| invalid("InvalidState", format!("{TEMPLATES} cannot be read: {error}")))
    }

    pub(super) fn position(&self, claim: &str) -> Option<usize> {
        self.0.iter().position(|entry| object::name(entry) == claim)
    }

    /// No list is written where there was none and nothing is in it.
    pub(super) fn write(self, machine: &mut Value) {
        if self.0.is_empty() && object::annotation(machine, TEMPLATES).is_none() {
            return;
        }
        annotate(machine, TEMPLATES, &Value::Array(self.0).to_string());
    }
}

pub(super) fn annotate(object: &mut Value, key: &str, value: &str) {
    let annotations = object::metadata_mut(object).entry("annotations").or_insert(Value::Null);
    if !annotations.is_object() {
        *annotations = json!({});
    }
    annotations[key] = json!(value);
}

/// A claim of the machine's namespace.
pub(super) fn find(acting: &Acting<'_>, name: &str) -> Result<Value, ApiError> {
    let found = acting.find("", "persistentvolumeclaims", acting.namespace, name);
    found.ok_or_else(|| ApiError::not_found("", "persistentvolumeclaims", name))
}

/// An entry of the list that asks for a claim like this one.
pub(super) fn as_template(claim: &Value, name: &str) -> Value {
    let mut entry = json!({ "metadata": { "name": name }, "spec": {} });
    for field in ["accessModes", "resources", "volumeMode", "storageClassName"] {
        if !claim["spec"][field].is_null() {
            entry["spec"][field] = claim["spec"][field].clone();
        }
    }
    if let Some(image) = object::annotation(claim, IMAGE_ID) {
        entry["metadata"]["annotations"] = json!({ IMAGE_ID: image });
    }
    entry
}

pub(super) fn volumes(machine: &Value) -> &[Value] {
    machine.pointer("/spec/template/spec/volumes").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// The claim that a volume is on; a DataVolume's has its name.
pub(super) fn of_volume(volume: &Value) -> Option<&str> {
    let claim = volume.pointer("/persistentVolumeClaim/claimName").or_else(|| volume.pointer("/dataVolume/name"));
    claim.and_then(Value::as_str)
}

pub(super) fn is_hotpluggable(volume: &Value) -> bool {
    ["persistentVolumeClaim", "dataVolume"].iter().any(|source| volume[*source]["hotpluggable"] == true)
}
