//! Snapshots of volumes, as Longhorn shows them.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::kind::{kind, nullable};

/// Of a Snapshot: the VolumeSnapshot that it shows, as namespace and name.
pub const SHOWS: &str = "croft.io/volume-snapshot";
/// Of a VolumeSnapshot that was asked for by a Snapshot: the Snapshot's name.
pub const SHOWN_AS: &str = "croft.io/longhorn-snapshot";

kind! {
    /// One snapshot of a volume, or the wish for one.
    Snapshot, "longhorn.io", "v1beta2", "snapshots", NamespaceResourceScope {
        #[serde(default, deserialize_with = "nullable")]
        spec: SnapshotSpec,
        #[serde(skip_serializing_if = "Option::is_none")]
        status: Option<SnapshotStatus>,
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SnapshotSpec {
    #[serde(deserialize_with = "nullable")]
    pub volume: String,
    #[serde(deserialize_with = "nullable")]
    pub create_snapshot: bool,
    #[serde(deserialize_with = "nullable", skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

/// There is no chain of snapshots: `parent` and `children` are left out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SnapshotStatus {
    #[serde(deserialize_with = "nullable")]
    pub creation_time: String,
    #[serde(deserialize_with = "nullable")]
    pub ready_to_use: bool,
    #[serde(deserialize_with = "nullable")]
    pub restore_size: i64,
    /// What it would take up by itself.
    #[serde(deserialize_with = "nullable")]
    pub size: i64,
    #[serde(deserialize_with = "nullable")]
    pub user_created: bool,
    #[serde(deserialize_with = "nullable")]
    pub error: String,
}
