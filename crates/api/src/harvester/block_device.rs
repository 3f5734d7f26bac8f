//! What a BlockDevice holds.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Condition;
use crate::kind::nullable;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BlockDeviceSpec {
    pub node_name: String,
    pub dev_path: String,
    pub file_system: BlockDeviceFileSystem,
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// Whether the disk should be part of the node's storage.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-default" = false))]
    pub provision: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provisioner: Option<BlockDeviceProvisioner>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BlockDeviceFileSystem {
    pub mount_point: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub force_formatted: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provisioned: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repaired: Option<bool>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BlockDeviceProvisioner {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub longhorn: Option<LonghornProvisioner>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lvm: Option<LvmProvisioner>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LonghornProvisioner {
    #[schemars(extend("enum" = ["LonghornV1", "LonghornV2"]))]
    pub engine_version: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["", "auto", "aio"]))]
    pub disk_driver: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LvmProvisioner {
    pub vg_name: String,
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub parameters: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BlockDeviceStatus {
    #[schemars(extend("enum" = ["Active", "Inactive", "Unknown"]))]
    pub state: String,
    #[schemars(extend("enum" = ["Provisioned", "Unprovisioned", "Unprovisioning"], "x-default" = "Unprovisioned"))]
    pub provision_phase: String,
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_status: Option<DeviceStatus>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeviceStatus {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent_device: Option<String>,
    pub partitioned: bool,
    pub dev_path: String,
    pub capacity: DeviceCapacity,
    pub details: DeviceDetails,
    pub file_system: DeviceFileSystem,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeviceCapacity {
    pub size_bytes: i64,
    pub physical_block_size_bytes: i64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeviceDetails {
    #[schemars(extend("enum" = ["disk", "part"]))]
    pub device_type: String,
    #[schemars(extend("enum" = ["HDD", "FDD", "ODD", "SSD", "Unknown"]))]
    pub drive_type: String,
    #[schemars(extend("enum" = ["SCSI", "IDE", "virtio", "MMC", "NVMe", "Unknown"]))]
    pub storage_controller: String,
    #[serde(rename = "partUUID", skip_serializing_if = "Option::is_none")]
    pub part_uuid: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uuid: Option<String>,
    #[serde(rename = "ptUUID", skip_serializing_if = "Option::is_none")]
    pub pt_uuid: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub is_removable: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bus_path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vendor: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serial_number: Option<String>,
    #[serde(rename = "numaNodeID", skip_serializing_if = "Option::is_none")]
    pub numa_node_id: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wwn: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeviceFileSystem {
    #[serde(rename = "type")]
    pub type_: String,
    pub mount_point: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub is_read_only: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub corrupted: Option<bool>,
    #[serde(rename = "LastFormattedAt", skip_serializing_if = "Option::is_none")]
    pub last_formatted_at: Option<Time>,
}
