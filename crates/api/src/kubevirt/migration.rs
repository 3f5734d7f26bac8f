//! Moves of a guest from one node to another.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::kind::nullable;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachineInstanceMigrationStatus {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<VirtualMachineInstanceMigrationCondition>,
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub phase_transition_timestamps: Vec<VirtualMachineInstanceMigrationPhaseTransitionTimestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub migration_state: Option<VirtualMachineInstanceMigrationState>,
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub synchronization_addresses: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachineInstanceMigrationSource {
    #[serde(rename = "migrationID")]
    pub migration_id: String,
    #[serde(rename = "connectURL")]
    pub connect_url: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachineInstanceMigrationTarget {
    #[serde(rename = "migrationID")]
    pub migration_id: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachineInstanceMigrationCondition {
    #[serde(rename = "type")]
    pub type_: String,
    pub status: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_probe_time: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachineInstanceMigrationPhaseTransitionTimestamp {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase_transition_timestamp: Option<Time>,
}

/// The last move of a guest from one node to another.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachineInstanceMigrationState {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_timestamp: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_timestamp: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_node_domain_ready_timestamp: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_node_domain_detected: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_node_address: Option<String>,
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "BTreeMap::is_empty")]
    pub target_direct_migration_node_ports: BTreeMap<String, i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_node: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_pod: Option<String>,
    #[serde(rename = "targetAttachmentPodUID", skip_serializing_if = "Option::is_none")]
    pub target_attachment_pod_uid: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_node: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_pod: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completed: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub abort_requested: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub abort_status: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub migration_uid: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub migration_policy_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub migration_configuration: Option<VmimConfigurationOptions>,
    #[serde(rename = "targetCPUSet", default, deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub target_cpu_set: Vec<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_node_topology: Option<String>,
    #[serde(rename = "sourcePersistentStatePVCName", skip_serializing_if = "Option::is_none")]
    pub source_persistent_state_pvc_name: Option<String>,
    #[serde(rename = "targetPersistentStatePVCName", skip_serializing_if = "Option::is_none")]
    pub target_persistent_state_pvc_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_state: Option<VirtualMachineInstanceMigrationSourceState>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_state: Option<VirtualMachineInstanceMigrationTargetState>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub migration_network_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_memory_overhead: Option<Quantity>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachineInstanceMigrationSourceState {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
    #[serde(rename = "migrationUID", skip_serializing_if = "Option::is_none")]
    pub migration_uid: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain_namespace: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sync_address: Option<String>,
    #[serde(rename = "persistentStatePVCName", skip_serializing_if = "Option::is_none")]
    pub persistent_state_pvc_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selinux_context: Option<String>,
    #[serde(rename = "virtualMachineInstanceUID", skip_serializing_if = "Option::is_none")]
    pub virtual_machine_instance_uid: Option<String>,
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selectors: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachineInstanceMigrationTargetState {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
    #[serde(rename = "migrationUID", skip_serializing_if = "Option::is_none")]
    pub migration_uid: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain_namespace: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sync_address: Option<String>,
    #[serde(rename = "persistentStatePVCName", skip_serializing_if = "Option::is_none")]
    pub persistent_state_pvc_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selinux_context: Option<String>,
    #[serde(rename = "virtualMachineInstanceUID", skip_serializing_if = "Option::is_none")]
    pub virtual_machine_instance_uid: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain_ready_timestamp: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain_detected: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_address: Option<String>,
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "BTreeMap::is_empty")]
    pub direct_migration_node_ports: BTreeMap<String, i64>,
    #[serde(rename = "attachmentPodUID", skip_serializing_if = "Option::is_none")]
    pub attachment_pod_uid: Option<String>,
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub cpu_set: Vec<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_topology: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VmimConfigurationOptions {
    #[serde(flatten)]
    pub common: MigrationConfiguration,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub experimental: Option<ExperimentalMigrationOptions>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExperimentalMigrationOptions {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stall_detector: Option<StallDetectorOptions>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub downtime_tuning: Option<DowntimeTuningOptions>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compression: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StallDetectorOptions {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stall_margin: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ewma_alpha: Option<Quantity>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stall_progress_timeout: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub switchover_timeout: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub precopy_possible_factor: Option<Quantity>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub patience_window_decay_factor: Option<Quantity>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub search_local_minima: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completion_timeout_factor: Option<Quantity>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DowntimeTuningOptions {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initial_ms: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_after_iteration: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cooldown_seconds: Option<i32>,
}

/// Move an instance to another node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachineInstanceMigrationSpec {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vmi_name: Option<String>,
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "BTreeMap::is_empty")]
    pub added_node_selector: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub send_to: Option<VirtualMachineInstanceMigrationSource>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receive: Option<VirtualMachineInstanceMigrationTarget>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MigrationConfiguration {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_drain_taint_key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parallel_outbound_migrations_per_node: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parallel_migrations_per_cluster: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_auto_converge: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bandwidth_per_migration: Option<Quantity>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completion_timeout_per_gi_b: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_downtime_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress_timeout: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub utility_volumes_timeout: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unsafe_migration_override: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_post_copy: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_workload_disruption: Option<bool>,
    #[serde(rename = "disableTLS", skip_serializing_if = "Option::is_none")]
    pub disable_tls: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
    #[serde(rename = "matchSELinuxLevelOnMigration", skip_serializing_if = "Option::is_none")]
    pub match_se_linux_level_on_migration: Option<bool>,
}
