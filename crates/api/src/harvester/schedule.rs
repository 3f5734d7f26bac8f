//! Machines that are kept again and again.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{BackupError, Condition, VirtualMachineBackupSpec};
use crate::kind::nullable;

/// The schedule that made a backup: its namespace and name.
pub const SCHEDULE_ANNOTATION: &str = "harvesterhci.io/svmbackupId";
/// The UID of the schedule that made a backup.
pub const SCHEDULE_UID_LABEL: &str = "harvesterhci.io/svmbackupUID";
/// When a backup was to be made, as in its name.
pub const SCHEDULE_TIME_LABEL: &str = "harvesterhci.io/svmbackupTimestamp";
/// Tells whether a schedule rests, and why.
pub const BACKUP_SUSPEND: &str = "BackupSuspend";

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScheduleVMBackupSpec {
    pub cron: String,
    /// How many backups stay.
    pub retain: i64,
    /// After so many failures in a row it is suspended.
    pub max_failure: i64,
    #[serde(default, deserialize_with = "nullable")]
    pub suspend: bool,
    #[serde(rename = "vmbackup")]
    pub backup: VirtualMachineBackupSpec,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScheduleVMBackupStatus {
    #[serde(rename = "vmbackupInfo", default, deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub backups: Vec<BackupInfo>,
    /// In a row.
    #[serde(default, deserialize_with = "nullable")]
    pub failure: i64,
    #[serde(default, deserialize_with = "nullable")]
    pub suspended: bool,
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// How a backup is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackupInfo {
    #[serde(default, deserialize_with = "nullable")]
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_to_use: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<BackupError>,
    #[serde(
        rename = "volumeBackupInfo",
        default,
        deserialize_with = "nullable",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub volumes: Vec<VolumeBackupInfo>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VolumeBackupInfo {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_to_use: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<BackupError>,
}
