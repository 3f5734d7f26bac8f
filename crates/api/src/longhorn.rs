//! longhorn.io/v1beta2: the backup target and what is in it, snapshots, and jobs that make them, in Longhorn's words.

mod recurring;
mod snapshot;

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::kind::{kind, nullable};

pub use recurring::{
    DEFAULT_GROUP, ENABLED, GROUP_LABEL, JOB_LABEL, MADE_BY_LABEL, RecurringJob, RecurringJobSpec, RecurringJobStatus,
    SELECTOR, SOURCE_LABEL, TIME_LABEL, Task, applies,
};
pub use snapshot::{SHOWN_AS, SHOWS, Snapshot, SnapshotSpec, SnapshotStatus};

pub const NAMESPACE: &str = "longhorn-system";
/// The one backup target that there is.
pub const TARGET: &str = "default";
/// Of a Backup: the volume that it is of.
pub const VOLUME_LABEL: &str = "backup-volume";
pub const TARGET_LABEL: &str = "backup-target";
/// Holds a Backup until it is out of the target.
pub const FINALIZER: &str = "longhorn.io";
/// The parameter of a VolumeSnapshotClass that says where snapshots are kept.
const CLASS_TYPE: &str = "type";
/// How Longhorn writes what is in the target: `bak://<volume>/<backup>`.
const SCHEME: &str = "bak://";

/// In the messages of a Backup that is on its way, and an annotation of the machine's: bytes in a second over the wire.
pub const SPEED: &str = "croft.io/bytes-per-second";

pub const IN_PROGRESS: &str = "InProgress";
pub const COMPLETED: &str = "Completed";
pub const ERROR: &str = "Error";

kind! {
    /// Where backups go, and whether it can be reached.
    BackupTarget, "longhorn.io", "v1beta2", "backuptargets", NamespaceResourceScope {
        #[serde(default, deserialize_with = "nullable")]
        spec: BackupTargetSpec,
        #[serde(skip_serializing_if = "Option::is_none")]
        status: Option<BackupTargetStatus>,
    }
}

kind! {
    /// A volume with backups in the target.
    BackupVolume, "longhorn.io", "v1beta2", "backupvolumes", NamespaceResourceScope {
        #[serde(default, deserialize_with = "nullable")]
        spec: BackupVolumeSpec,
        #[serde(skip_serializing_if = "Option::is_none")]
        status: Option<BackupVolumeStatus>,
    }
}

kind! {
    /// One backup of a volume, in the target or on its way there.
    Backup, "longhorn.io", "v1beta2", "backups", NamespaceResourceScope {
        #[serde(default, deserialize_with = "nullable")]
        spec: BackupSpec,
        #[serde(skip_serializing_if = "Option::is_none")]
        status: Option<BackupStatus>,
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackupTargetSpec {
    #[serde(rename = "backupTargetURL", default, deserialize_with = "nullable")]
    pub backup_target_url: String,
    #[serde(default, deserialize_with = "nullable")]
    pub credential_secret: String,
    /// As Go writes durations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub poll_interval: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackupTargetStatus {
    #[serde(default, deserialize_with = "nullable")]
    pub available: bool,
    #[serde(default, deserialize_with = "nullable")]
    pub conditions: Vec<TargetCondition>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_synced_at: Option<Time>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct TargetCondition {
    #[serde(rename = "type")]
    pub type_: String,
    pub status: String,
    pub last_probe_time: String,
    pub last_transition_time: String,
    pub reason: String,
    pub message: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackupVolumeSpec {
    #[serde(default, deserialize_with = "nullable")]
    pub backup_target_name: String,
    #[serde(default, deserialize_with = "nullable")]
    pub volume_name: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct BackupVolumeStatus {
    #[serde(deserialize_with = "nullable")]
    pub size: String,
    #[serde(deserialize_with = "nullable")]
    pub created_at: String,
    #[serde(deserialize_with = "nullable")]
    pub last_backup_name: String,
    #[serde(deserialize_with = "nullable")]
    pub last_backup_at: String,
    #[serde(deserialize_with = "nullable")]
    pub data_stored: String,
    #[serde(deserialize_with = "nullable")]
    pub storage_class_name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_synced_at: Option<Time>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackupSpec {
    #[serde(default, deserialize_with = "nullable")]
    pub snapshot_name: String,
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

/// Amounts are texts, as Longhorn has them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct BackupStatus {
    #[serde(deserialize_with = "nullable")]
    pub state: String,
    #[serde(deserialize_with = "nullable")]
    pub progress: i64,
    #[serde(deserialize_with = "nullable")]
    pub error: String,
    #[serde(deserialize_with = "nullable")]
    pub url: String,
    #[serde(deserialize_with = "nullable")]
    pub snapshot_name: String,
    #[serde(deserialize_with = "nullable")]
    pub snapshot_created_at: String,
    #[serde(deserialize_with = "nullable")]
    pub backup_created_at: String,
    #[serde(deserialize_with = "nullable")]
    pub size: String,
    #[serde(deserialize_with = "nullable")]
    pub newly_upload_data_size: String,
    #[serde(deserialize_with = "nullable")]
    pub volume_name: String,
    #[serde(deserialize_with = "nullable")]
    pub volume_size: String,
    #[serde(deserialize_with = "nullable")]
    pub compression_method: String,
    #[serde(deserialize_with = "nullable")]
    pub backup_target_name: String,
    /// Ours in it: how fast it goes.
    #[serde(deserialize_with = "nullable")]
    pub messages: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_synced_at: Option<Time>,
}

impl Backup {
    /// Bytes in a second, while it is on its way.
    pub fn speed(&self) -> Option<u64> {
        self.status.as_ref()?.messages.get(SPEED)?.parse().ok()
    }

    pub fn state(&self) -> &str {
        self.status.as_ref().map(|status| status.state.as_str()).unwrap_or_default()
    }
}

/// What the backup of a snapshot is called: after the snapshot's uid, so that whoever comes back to it finds it again.
pub fn backup_name(snapshot_uid: &str) -> String {
    let digits: String = snapshot_uid.chars().filter(char::is_ascii_hexdigit).take(16).collect();
    format!("backup-{digits}")
}

pub fn backup_handle(volume: &str, backup: &str) -> String {
    format!("{SCHEME}{volume}/{backup}")
}

/// The volume and the backup that a handle names.
pub fn parse_handle(handle: &str) -> Option<(&str, &str)> {
    let (volume, backup) = handle.strip_prefix(SCHEME)?.split_once('/')?;
    let is_name = |name: &str| !name.is_empty() && !name.contains('/');
    (is_name(volume) && is_name(backup)).then_some((volume, backup))
}

/// Whether snapshots of a class go to the target.
pub fn goes_to_target(class_parameters: &BTreeMap<String, String>) -> bool {
    class_parameters.get(CLASS_TYPE).is_some_and(|ty| ty == "bak")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backup_is_found_again_by_its_name() {
        let name = backup_name("0b7c1f8e-2d3a-4c5b-8e9f-001122334455");
        assert_eq!(name, "backup-0b7c1f8e2d3a4c5b");
        let handle = backup_handle("pvc-1", &name);
        assert_eq!(parse_handle(&handle), Some(("pvc-1", name.as_str())));
        for wrong in ["snap://pvc-1/x", "bak://pvc-1", "bak:///x", "bak://a/b/c", ""] {
            assert_eq!(parse_handle(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn what_go_leaves_out_or_says_to_be_null_is_read() {
        let backup: Backup = serde_json::from_str(r#"{"spec":{"labels":null},"status":{"progress":null}}"#).unwrap();
        assert_eq!((backup.state(), backup.spec.snapshot_name.as_str()), ("", ""));
        let target: BackupTarget =
            serde_json::from_str(r#"{"status":{"conditions":null,"lastSyncedAt":null}}"#).unwrap();
        assert!(!target.status.unwrap().available);
    }
}
