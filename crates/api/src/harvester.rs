//! harvesterhci.io/v1beta1: images, settings, addons, disks of nodes, keys and templates, with Harvester's own field names.

pub mod addon;
mod backup;
pub mod backup_target;
mod block_device;
mod image;
mod link_monitor;
pub mod maintenance;
mod remote_volume;
mod schedule;
pub mod settings;
pub mod ssh_key;
pub mod support_bundle;
mod template;

pub use backup::*;
pub use block_device::*;
pub use image::*;
pub use link_monitor::*;
pub use remote_volume::*;
pub use schedule::*;
pub use support_bundle::{SupportBundle, SupportBundleSpec, SupportBundleStatus};
pub use template::*;

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
    /// A part of the platform that is switched on and off.
    Addon, "harvesterhci.io", "v1beta1", "addons", NamespaceResourceScope {
        spec: addon::AddonSpec,
        #[serde(skip_serializing_if = "Option::is_none")]
        status: Option<addon::AddonStatus>,
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

kind! {
    /// A machine as it was, with its disks.
    VirtualMachineBackup, "harvesterhci.io", "v1beta1", "virtualmachinebackups", NamespaceResourceScope {
        spec: VirtualMachineBackupSpec,
        #[serde(skip_serializing_if = "Option::is_none")]
        status: Option<VirtualMachineBackupStatus>,
    }
}

kind! {
    /// A single volume in the backup target.
    VolumeRemoteBackup, "harvesterhci.io", "v1beta1", "volumeremotebackups", NamespaceResourceScope {
        spec: VolumeRemoteBackupSpec,
        #[serde(skip_serializing_if = "Option::is_none")]
        status: Option<VolumeRemoteBackupStatus>,
    }
}

kind! {
    /// A claim that is made of such a backup.
    VolumeRemoteRestore, "harvesterhci.io", "v1beta1", "volumeremoterestores", NamespaceResourceScope {
        spec: VolumeRemoteRestoreSpec,
        #[serde(skip_serializing_if = "Option::is_none")]
        status: Option<VolumeRemoteRestoreStatus>,
    }
}

kind! {
    /// A machine that is made, or made again, from what was kept.
    VirtualMachineRestore, "harvesterhci.io", "v1beta1", "virtualmachinerestores", NamespaceResourceScope {
        spec: VirtualMachineRestoreSpec,
        #[serde(skip_serializing_if = "Option::is_none")]
        status: Option<VirtualMachineRestoreStatus>,
    }
}

kind! {
    /// When a machine is kept, and how many of these are.
    ScheduleVMBackup, "harvesterhci.io", "v1beta1", "schedulevmbackups", NamespaceResourceScope {
        spec: ScheduleVMBackupSpec,
        #[serde(skip_serializing_if = "Option::is_none")]
        status: Option<ScheduleVMBackupStatus>,
    }
}

kind! {
    /// How much room snapshots of a namespace may take.
    ResourceQuota, "harvesterhci.io", "v1beta1", "resourcequotas", NamespaceResourceScope {
        #[serde(default, deserialize_with = "nullable")]
        status: SnapshotQuotaStatus,
    }
}

/// How much room they take.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotQuotaStatus {
    #[serde(default, deserialize_with = "nullable")]
    pub snapshot_limit_status: SnapshotUsage,
}

/// In bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotUsage {
    #[serde(default, deserialize_with = "nullable")]
    pub namespace_total_snapshot_size_usage: i64,
    #[serde(default, deserialize_with = "nullable")]
    pub vm_total_snapshot_size_usage: std::collections::BTreeMap<String, i64>,
}

kind! {
    /// A public key that may be put into machines.
    KeyPair, "harvesterhci.io", "v1beta1", "keypairs", NamespaceResourceScope {
        spec: KeyPairSpec,
        #[serde(skip_serializing_if = "Option::is_none")]
        status: Option<KeyPairStatus>,
    }
}

kind! {
    /// What machines are made from; its versions say how.
    VirtualMachineTemplate, "harvesterhci.io", "v1beta1", "virtualmachinetemplates", NamespaceResourceScope {
        #[serde(default, deserialize_with = "nullable")]
        spec: VirtualMachineTemplateSpec,
        #[serde(skip_serializing_if = "Option::is_none")]
        status: Option<VirtualMachineTemplateStatus>,
    }
}

kind! {
    /// One state of a template. It does not change.
    VirtualMachineTemplateVersion, "harvesterhci.io", "v1beta1", "virtualmachinetemplateversions", NamespaceResourceScope {
        spec: VirtualMachineTemplateVersionSpec,
        #[serde(skip_serializing_if = "Option::is_none")]
        status: Option<VirtualMachineTemplateVersionStatus>,
    }
}

kind! {
    /// How a cluster network reaches the wire on some nodes.
    VlanConfig, "network.harvesterhci.io", "v1beta1", "vlanconfigs", ClusterResourceScope {}
}

kind! {
    /// Which links of which nodes are to be shown, and how they are.
    LinkMonitor, "network.harvesterhci.io", "v1beta1", "linkmonitors", ClusterResourceScope {
        #[serde(default, deserialize_with = "nullable")]
        spec: LinkMonitorSpec,
        #[serde(skip_serializing_if = "Option::is_none")]
        status: Option<LinkMonitorStatus>,
    }
}

/// Holds a VlanConfig until its uplink is down.
pub const VLAN_CONFIG_FINALIZER: &str = "wrangler.cattle.io/harvester-network-manager-vlanconfig-controller";

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KeyPairSpec {
    /// A line as in `authorized_keys`.
    pub public_key: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KeyPairStatus {
    /// MD5, in pairs of hexadecimal digits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finger_print: Option<String>,
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
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

/// Says it, unless it has been said: the times tell since when it holds.
pub fn set_condition(
    conditions: &mut Vec<Condition>,
    ty: &str,
    is_true: bool,
    why: (&str, &str),
    now: jiff::Timestamp,
) {
    let (reason, message) = why;
    let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let status = if is_true { "True" } else { "False" };
    let now = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let old = conditions.iter().find(|condition| condition.type_ == ty);
    let since = old.filter(|old| old.status == status).and_then(|old| old.last_transition_time.clone());
    let mut new = Condition {
        type_: ty.to_owned(),
        status: status.to_owned(),
        last_update_time: old.and_then(|old| old.last_update_time.clone()),
        last_transition_time: Some(since.unwrap_or_else(|| now.clone())),
        reason: text(reason),
        message: text(message),
    };
    if old == Some(&new) {
        return;
    }
    new.last_update_time = Some(now);
    conditions.retain(|condition| condition.type_ != ty);
    conditions.push(new);
}
