//! Bodies and answers of the subresources.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::TypedObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ListMeta, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::disks::{Disk, HotplugVolumeSource};
use super::instance_status::VirtualMachineInstanceGuestOsInfo;
use crate::kind::{is_default, nullable};

/// The body of `start`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StartOptions {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub dry_run: Vec<String>,
}

/// The body of `stop`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StopOptions {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grace_period: Option<i64>,
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub dry_run: Vec<String>,
}

/// The body of `restart`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RestartOptions {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grace_period_seconds: Option<i64>,
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub dry_run: Vec<String>,
}

/// The body of `pause`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PauseOptions {
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub dry_run: Vec<String>,
}

/// The body of `unpause`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UnpauseOptions {
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub dry_run: Vec<String>,
}

/// The body of `migrate`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MigrateOptions {
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub dry_run: Vec<String>,
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "BTreeMap::is_empty")]
    pub added_node_selector: BTreeMap<String, String>,
}

/// The body of `evacuate/cancel`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EvacuateCancelOptions {
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub dry_run: Vec<String>,
    pub evacuation_node_name: String,
}

/// The body of `freeze`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FreezeUnfreezeTimeout {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unfreeze_timeout: Option<String>,
}

/// A memory dump and how far it came.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachineMemoryDumpRequest {
    pub claim_name: String,
    pub phase: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remove: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_timestamp: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_timestamp: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// The body of `addvolume`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AddVolumeOptions {
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk: Option<Disk>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_source: Option<HotplugVolumeSource>,
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub dry_run: Vec<String>,
}

/// The body of `removevolume`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RemoveVolumeOptions {
    pub name: String,
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub dry_run: Vec<String>,
}

/// The query of `vnc/screenshot`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScreenshotOptions {
    pub move_cursor: bool,
}

/// The query of `vsock`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VsockOptions {
    pub target_port: u32,
    #[serde(rename = "useTLS", skip_serializing_if = "Option::is_none")]
    pub use_tls: Option<bool>,
}

/// The answer of `guestosinfo`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachineInstanceGuestAgentInfo {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guest_agent_version: Option<String>,
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub supported_commands: Vec<GuestAgentCommandInfo>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "is_default")]
    pub os: VirtualMachineInstanceGuestOsInfo,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timezone: Option<String>,
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub user_list: Vec<VirtualMachineInstanceGuestOsUser>,
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "is_default")]
    pub fs_info: VirtualMachineInstanceFileSystemInfo,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fs_freeze_status: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GuestAgentCommandInfo {
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachineInstanceGuestOsUserList {
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "is_default")]
    pub metadata: ListMeta,
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub items: Vec<VirtualMachineInstanceGuestOsUser>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachineInstanceGuestOsUser {
    pub user_name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub login_time: Option<f64>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachineInstanceFileSystemInfo {
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub disks: Vec<VirtualMachineInstanceFileSystem>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachineInstanceFileSystemList {
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "is_default")]
    pub metadata: ListMeta,
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub items: Vec<VirtualMachineInstanceFileSystem>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachineInstanceFileSystem {
    pub disk_name: String,
    pub mount_point: String,
    pub file_system_type: String,
    pub used_bytes: i64,
    pub total_bytes: i64,
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub disk: Vec<VirtualMachineInstanceFileSystemDisk>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachineInstanceFileSystemDisk {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    pub bus_type: String,
}

/// An object and those it needs: the answer of `objectgraph`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ObjectGraphNode {
    pub object_reference: TypedObjectReference,
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub optional: Option<bool>,
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub children: Vec<ObjectGraphNode>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ObjectGraphOptions {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub include_optional_nodes: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<LabelSelector>,
}
