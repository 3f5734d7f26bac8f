//! What is kept of machines, and machines that are made from it.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Condition;
use crate::kind::nullable;

/// A machine, by its name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineReference {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_group: Option<String>,
    pub kind: String,
    pub name: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachineBackupSpec {
    pub source: MachineReference,
    /// `snapshot` stays in the cluster, `backup` goes to the target.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub type_: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fs_freeze_deadline: Option<String>,
}

impl VirtualMachineBackupSpec {
    pub fn is_snapshot(&self) -> bool {
        self.type_.as_deref() == Some("snapshot")
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachineBackupStatus {
    #[serde(rename = "sourceUID", skip_serializing_if = "Option::is_none")]
    pub source_uid: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub creation_time: Option<Time>,
    /// Where it is, if it is not in the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backup_target: Option<BackupPlace>,
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "BTreeMap::is_empty")]
    pub csi_driver_volume_snapshot_class_names: BTreeMap<String, String>,
    /// The machine as it was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<Copied>,
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub volume_backups: Vec<VolumeBackup>,
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub secret_backups: Vec<SecretBackup>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_to_use: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<BackupError>,
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// What tells one target from another.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackupPlace {
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "String::is_empty")]
    pub endpoint: String,
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "String::is_empty")]
    pub bucket_name: String,
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "String::is_empty")]
    pub bucket_region: String,
}

/// An object's metadata and specification.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Copied {
    #[serde(default)]
    pub metadata: Value,
    #[serde(default)]
    pub spec: Value,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VolumeBackup {
    /// Its snapshot's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The machine's volume.
    pub volume_name: String,
    pub csi_driver_name: String,
    pub persistent_volume_claim: Copied,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub creation_time: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_size: Option<i64>,
    /// In the target.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub longhorn_backup_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_to_use: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<BackupError>,
}

#[derive(Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SecretBackup {
    pub name: String,
    /// In base64.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "BTreeMap::is_empty")]
    pub data: BTreeMap<String, String>,
}

impl std::fmt::Debug for SecretBackup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SecretBackup").field("name", &self.name).finish_non_exhaustive()
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BackupError {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<Time>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachineRestoreSpec {
    pub target: MachineReference,
    pub virtual_machine_backup_name: String,
    pub virtual_machine_backup_namespace: String,
    #[serde(rename = "newVM", default, deserialize_with = "nullable")]
    pub new_vm: bool,
    /// What becomes of the disks that are replaced: `delete` or `retain`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletion_policy: Option<String>,
    #[serde(default, deserialize_with = "nullable")]
    pub keep_mac_address: bool,
    #[serde(default, deserialize_with = "nullable")]
    pub halt_after_restore: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachineRestoreStatus {
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub restores: Vec<VolumeRestore>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restore_time: Option<Time>,
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub deleted_volumes: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub complete: Option<bool>,
    #[serde(rename = "targetUID", skip_serializing_if = "Option::is_none")]
    pub target_uid: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<i64>,
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VolumeRestore {
    /// The machine's volume.
    pub volume_name: String,
    /// The claim that is made for it.
    #[serde(rename = "persistentVolumeClaimSpec")]
    pub claim: Copied,
    pub volume_backup_name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_size: Option<i64>,
}
