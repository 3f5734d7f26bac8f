//! What instancetypes and preferences hold.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::kind::{Marker, nullable};
use crate::kubevirt::{
    BlockSize, ClockOffset, CpuFeature, DiskIoThreads, Efi, FeatureApic, FeatureHyperv, FeatureKvm, FeatureState, Gpu,
    HostDevice, Hugepages, LaunchSecurity, Numa, Realtime, Timer, TpmDevice, VgpuOptions,
};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachineInstancetypeSpec {
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduler_name: Option<String>,
    pub cpu: CpuInstancetype,
    pub memory: MemoryInstancetype,
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<Gpu>,
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub host_devices: Vec<HostDevice>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub io_threads_policy: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub io_threads: Option<DiskIoThreads>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub launch_security: Option<LaunchSecurity>,
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CpuInstancetype {
    pub guest: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    #[serde(rename = "dedicatedCPUPlacement", skip_serializing_if = "Option::is_none")]
    pub dedicated_cpu_placement: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub numa: Option<Numa>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub isolate_emulator_thread: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub realtime: Option<Realtime>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_sockets: Option<u32>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MemoryInstancetype {
    pub guest: Quantity,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hugepages: Option<Hugepages>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overcommit_percent: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_guest: Option<Quantity>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachinePreferenceSpec {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock: Option<ClockPreferences>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<CpuPreferences>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub devices: Option<DevicePreferences>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub features: Option<FeaturePreferences>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub firmware: Option<FirmwarePreferences>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine: Option<MachinePreferences>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volumes: Option<VolumePreferences>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_subdomain: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_termination_grace_period_seconds: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requirements: Option<PreferenceRequirements>,
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefer_spread_socket_to_core_ratio: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_architecture: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_launch_security: Option<LaunchSecurity>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VolumePreferences {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_storage_class_name: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CpuPreferences {
    #[serde(rename = "preferredCPUTopology", skip_serializing_if = "Option::is_none")]
    pub preferred_cpu_topology: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spread_options: Option<SpreadOptions>,
    #[serde(
        rename = "preferredCPUFeatures",
        default,
        deserialize_with = "nullable",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub preferred_cpu_features: Vec<CpuFeature>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SpreadOptions {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub across: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio: Option<u32>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DevicePreferences {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_autoattach_graphics_device: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_autoattach_mem_balloon: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_autoattach_pod_interface: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_autoattach_serial_console: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_autoattach_input_device: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_disable_hotplug: Option<bool>,
    #[serde(rename = "preferredVirtualGPUOptions", skip_serializing_if = "Option::is_none")]
    pub preferred_virtual_gpu_options: Option<VgpuOptions>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_sound_model: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_use_virtio_transitional: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_input_bus: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_input_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_disk_bus: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_lun_bus: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_cdrom_bus: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_disk_dedicated_io_thread: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_disk_cache: Option<String>,
    #[serde(rename = "preferredDiskIO", skip_serializing_if = "Option::is_none")]
    pub preferred_disk_io: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_disk_block_size: Option<BlockSize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_interface_model: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_rng: Option<Marker>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_block_multi_queue: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_network_interface_multi_queue: Option<bool>,
    #[serde(rename = "preferredTPM", skip_serializing_if = "Option::is_none")]
    pub preferred_tpm: Option<TpmDevice>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_interface_masquerade: Option<Marker>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_panic_device_model: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_video_type: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FeaturePreferences {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_acpi: Option<FeatureState>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_apic: Option<FeatureApic>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_hyperv: Option<FeatureHyperv>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_kvm: Option<FeatureKvm>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_pvspinlock: Option<FeatureState>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_smm: Option<FeatureState>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FirmwarePreferences {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_use_bios: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_use_bios_serial: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_use_efi: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_use_secure_boot: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_efi: Option<Efi>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachinePreferences {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_machine_type: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClockPreferences {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_clock_offset: Option<ClockOffset>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred_timer: Option<Timer>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PreferenceRequirements {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<CpuPreferenceRequirement>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryPreferenceRequirement>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub architecture: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CpuPreferenceRequirement {
    pub guest: u32,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MemoryPreferenceRequirement {
    pub guest: Quantity,
}
