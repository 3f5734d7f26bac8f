//! harvesterhci.io/v1beta1: images, settings and disks of nodes, with Harvester's own field names.

mod block_device;
mod image;
pub mod settings;

pub use block_device::*;
pub use image::*;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::kind::{kind, nullable};

pub const GROUP: &str = "harvesterhci.io";

kind! {
    /// A disk image that volumes are made from.
    VirtualMachineImage, "harvesterhci.io", "v1beta1", "virtualmachineimages", NamespaceResourceScope {
        spec: VirtualMachineImageSpec,
        #[serde(skip_serializing_if = "Option::is_none")]
        status: Option<VirtualMachineImageStatus>,
    }
}

kind! {
    /// One setting of the cluster; `value` counts if it is not empty, else `default`.
    Setting, "harvesterhci.io", "v1beta1", "settings", ClusterResourceScope {
        #[serde(skip_serializing_if = "Option::is_none")]
        value: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        default: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        customized: Option<bool>,
        #[serde(skip_serializing_if = "Option::is_none")]
        source: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        status: Option<SettingStatus>,
    }
}

impl Setting {
    /// What is in force.
    pub fn effective(&self) -> &str {
        let value = self.value.as_deref().filter(|value| !value.is_empty());
        value.or(self.default.as_deref()).unwrap_or_default()
    }
}

kind! {
    /// A disk of a node.
    BlockDevice, "harvesterhci.io", "v1beta1", "blockdevices", NamespaceResourceScope {
        spec: BlockDeviceSpec,
        #[serde(default)]
        status: BlockDeviceStatus,
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SettingStatus {
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// Harvester's condition: its times are texts, and may be empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    #[serde(rename = "type")]
    pub type_: String,
    pub status: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_update_time: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}
