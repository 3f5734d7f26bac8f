//! snapshot.kubevirt.io/v1beta1 and clone.kubevirt.io/v1beta1: what is kept of machines, and what is made of it.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::VirtualMachineCondition;
use crate::harvester::{BackupError, Copied, MachineReference};
use crate::kind::{is_default, kind, nullable};

kind! {
    /// A machine that is to be kept as it is.
    VirtualMachineSnapshot, "snapshot.kubevirt.io", "v1beta1", "virtualmachinesnapshots", NamespaceResourceScope {
        spec: VirtualMachineSnapshotSpec,
        #[serde(skip_serializing_if = "Option::is_none")]
        status: Option<VirtualMachineSnapshotStatus>,
    }
}

kind! {
    /// A machine as it was.
    VirtualMachineSnapshotContent, "snapshot.kubevirt.io", "v1beta1", "virtualmachinesnapshotcontents", NamespaceResourceScope {
        spec: VirtualMachineSnapshotContentSpec,
        #[serde(skip_serializing_if = "Option::is_none")]
        status: Option<VirtualMachineSnapshotContentStatus>,
    }
}

kind! {
    /// A machine that becomes what it was.
    VirtualMachineRestore, "snapshot.kubevirt.io", "v1beta1", "virtualmachinerestores", NamespaceResourceScope {
        spec: VirtualMachineRestoreSpec,
        #[serde(skip_serializing_if = "Option::is_none")]
        status: Option<VirtualMachineRestoreStatus>,
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachineSnapshotSpec {
    pub source: MachineReference,
    /// `Delete` or `Retain`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletion_policy: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_deadline: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachineSnapshotStatus {
    #[serde(rename = "sourceUID", skip_serializing_if = "Option::is_none")]
    pub source_uid: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub virtual_machine_snapshot_content_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub creation_time: Option<Time>,
    /// `InProgress`, `Succeeded` or `Failed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_to_use: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<BackupError>,
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<VirtualMachineCondition>,
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub indications: Vec<String>,
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub source_indications: Vec<SourceIndication>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot_volumes: Option<SnapshotVolumes>,
}

/// What an indication means.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SourceIndication {
    pub indication: String,
    pub message: String,
}

/// Which volumes are kept.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotVolumes {
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub included_volumes: Vec<String>,
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub excluded_volumes: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachineSnapshotContentSpec {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub virtual_machine_snapshot_name: Option<String>,
    pub source: KeptSource,
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub volume_backups: Vec<KeptVolume>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KeptSource {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub virtual_machine: Option<Copied>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KeptVolume {
    pub volume_name: String,
    pub persistent_volume_claim: Copied,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_snapshot_name: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachineSnapshotContentStatus {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub creation_time: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_to_use: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<BackupError>,
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub volume_snapshot_status: Vec<KeptVolumeStatus>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KeptVolumeStatus {
    pub volume_snapshot_name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub creation_time: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_to_use: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<BackupError>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachineRestoreSpec {
    pub target: MachineReference,
    pub virtual_machine_snapshot_name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_readiness_policy: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_restore_policy: Option<String>,
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub patches: Vec<String>,
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub volume_restore_overrides: Vec<VolumeRestoreOverride>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_ownership_policy: Option<String>,
}

/// What the claim of a restored disk is called, and what is said of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VolumeRestoreOverride {
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "String::is_empty")]
    pub volume_name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restore_name: Option<String>,
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachineRestoreStatus {
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub restores: Vec<RestoredVolume>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restore_time: Option<Time>,
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub deleted_data_volumes: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub complete: Option<bool>,
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<VirtualMachineCondition>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RestoredVolume {
    pub volume_name: String,
    pub persistent_volume_claim: String,
    pub volume_snapshot_name: String,
}

kind! {
    /// Another machine like one that is, or was.
    VirtualMachineClone, "clone.kubevirt.io", "v1beta1", "virtualmachineclones", NamespaceResourceScope {
        spec: VirtualMachineCloneSpec,
        #[serde(skip_serializing_if = "Option::is_none")]
        status: Option<VirtualMachineCloneStatus>,
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachineCloneSpec {
    /// A machine or a snapshot of one.
    pub source: MachineReference,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<MachineReference>,
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub label_filters: Vec<String>,
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub annotation_filters: Vec<String>,
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "is_default")]
    pub template: VirtualMachineCloneTemplate,
    /// By the names of interfaces.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "BTreeMap::is_empty")]
    pub new_mac_addresses: BTreeMap<String, String>,
    #[serde(rename = "newSMBiosSerial", skip_serializing_if = "Option::is_none")]
    pub new_smbios_serial: Option<String>,
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub patches: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_name_policy: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachineCloneTemplate {
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub label_filters: Vec<String>,
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub annotation_filters: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachineCloneStatus {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<VirtualMachineCondition>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restore_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub creation_time: Option<Time>,
}
