//! What a machine keeps over its runs besides its disks: its firmware's variables and its TPM.
//!
//! A machine's node has them as files. What is kept of them with a snapshot is a Secret, as they may hold keys. A machine
//! that is made or made anew from that says so in an annotation of its template, and its node does it once, at its next start.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::kubevirt::VirtualMachineInstanceSpec;

/// The type of the Secrets.
pub const SECRET_TYPE: &str = "croft.io/machine-state";
const PREFIX: &str = "machine-state-";

/// The Secret that belongs to a set of snapshots, or to what was restored.
pub fn secret_name(id: &str) -> String {
    format!("{PREFIX}{id}")
}

pub fn is_secret_name(name: &str) -> bool {
    name.starts_with(PREFIX)
}

/// Where a machine has its first variables and its first TPM from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateSource {
    /// What has asked for it. It is done once for each.
    pub id: String,
    #[serde(flatten)]
    pub origin: Origin,
}

/// By name, in the machine's own namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Origin {
    Secret(String),
    /// As they are when it is done.
    Machine(String),
}

impl StateSource {
    pub const ANNOTATION: &str = "croft.io/machine-state";

    /// What the metadata of an instance or of a machine's template say.
    pub fn of(metadata: &ObjectMeta) -> Option<Self> {
        let text = metadata.annotations.as_ref()?.get(Self::ANNOTATION)?;
        serde_json::from_str(text).ok()
    }

    /// What a machine's template says.
    pub fn of_template(template: &Value) -> Option<Self> {
        let text = template["metadata"]["annotations"][Self::ANNOTATION].as_str()?;
        serde_json::from_str(text).ok()
    }

    /// Has a machine's template say so, or nothing.
    pub fn tell(source: Option<&Self>, template: &mut Value) {
        annotate(template, Self::ANNOTATION, source);
    }
}

/// Asks for a snapshot with the guest's memory, on what asks for the snapshot.
pub const WITH_MEMORY: &str = "croft.io/memory";

pub fn wants_memory(metadata: &ObjectMeta) -> bool {
    metadata.annotations.as_ref().and_then(|all| all.get(WITH_MEMORY)).is_some_and(|value| value == "true")
}

/// The memory that a machine goes on from at its next start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemorySource {
    /// What has asked for it. It is done once for each.
    pub id: String,
    /// The VolumeSnapshot that it was kept with, in the machine's own namespace.
    pub snapshot: String,
}

impl MemorySource {
    pub const ANNOTATION: &str = "croft.io/memory-from";

    /// What the metadata of an instance say.
    pub fn of(metadata: &ObjectMeta) -> Option<Self> {
        let text = metadata.annotations.as_ref()?.get(Self::ANNOTATION)?;
        serde_json::from_str(text).ok()
    }
}

/// What a machine that was restored has at its next start besides its disks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Beginning {
    pub state: Option<StateSource>,
    pub memory: Option<MemorySource>,
}

impl Beginning {
    /// Has a machine's template say so. What it said before is no more.
    pub fn tell(&self, template: &mut Value) {
        StateSource::tell(self.state.as_ref(), template);
        annotate(template, MemorySource::ANNOTATION, self.memory.as_ref());
    }
}

fn annotate(template: &mut Value, name: &str, value: Option<&impl Serialize>) {
    let Some(value) = value else {
        let annotations = template.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut);
        annotations.map(|annotations| annotations.remove(name));
        return;
    };
    let annotations = &mut template["metadata"]["annotations"];
    if !annotations.is_object() {
        *annotations = json!({});
    }
    // A struct of texts can always be written.
    annotations[name] = json!(serde_json::to_string(value).unwrap_or_default());
}

/// Whether a machine like this keeps something besides its disks.
pub fn is_kept(spec: &VirtualMachineInstanceSpec) -> bool {
    let bootloader = spec.domain.firmware.as_ref().and_then(|firmware| firmware.bootloader.as_ref());
    let efi = bootloader.and_then(|bootloader| bootloader.efi.as_ref()).and_then(|efi| efi.persistent);
    let tpm = spec.domain.devices.tpm.as_ref().and_then(|tpm| tpm.persistent);
    efi == Some(true) || tpm == Some(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_says_where_the_state_is_from() {
        let source = StateSource { id: "7".into(), origin: Origin::Secret("s".into()) };
        let mut template = json!({ "metadata": { "labels": {} } });
        StateSource::tell(Some(&source), &mut template);
        assert_eq!(
            template["metadata"]["annotations"]["croft.io/machine-state"],
            json!({"id": "7", "secret": "s"}).to_string()
        );
        assert_eq!(StateSource::of_template(&template), Some(source.clone()));
        let metadata: ObjectMeta = serde_json::from_value(template["metadata"].clone()).unwrap();
        assert_eq!(StateSource::of(&metadata), Some(source));
        StateSource::tell(None, &mut template);
        assert_eq!(template, json!({ "metadata": { "labels": {}, "annotations": {} } }));
        let memory = MemorySource { id: "7".into(), snapshot: "s".into() };
        Beginning { state: None, memory: Some(memory.clone()) }.tell(&mut template);
        let metadata: ObjectMeta = serde_json::from_value(template["metadata"].clone()).unwrap();
        assert_eq!((MemorySource::of(&metadata), StateSource::of(&metadata)), (Some(memory), None));
        let mut bare = json!({});
        StateSource::tell(None, &mut bare);
        assert_eq!((StateSource::of_template(&bare), bare), (None, json!({})));
    }

    #[test]
    fn machines_without_firmware_or_tpm_of_their_own_keep_nothing() {
        let keeps = |domain: Value| is_kept(&serde_json::from_value(json!({ "domain": domain })).unwrap());
        assert!(keeps(json!({"firmware": {"bootloader": {"efi": {"persistent": true}}}, "devices": {}})));
        assert!(keeps(json!({"devices": {"tpm": {"persistent": true}}})));
        assert!(!keeps(json!({"firmware": {"bootloader": {"efi": {}}}, "devices": {"tpm": {}}})));
    }
}
