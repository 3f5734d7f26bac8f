//! The KubeVirt object: settings of the whole cluster.
//!
//! Only what Croft reads is typed. The rest describes how KubeVirt's own programs are deployed, which Croft keeps
//! for the clients that look at it and does nothing with.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::MigrationConfiguration;
use crate::kind::nullable;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KubeVirtSpec {
    #[serde(default, deserialize_with = "nullable")]
    pub configuration: KubeVirtConfiguration,
    #[serde(flatten)]
    pub other: BTreeMap<String, Value>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KubeVirtConfiguration {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_model: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eviction_strategy: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub migrations: Option<MigrationConfiguration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub live_update_configuration: Option<LiveUpdateConfiguration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vm_rollout_strategy: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vm_state_storage_class: Option<String>,
    #[serde(flatten)]
    pub other: BTreeMap<String, Value>,
}

/// How far a running guest may grow.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LiveUpdateConfiguration {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_hotplug_ratio: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_cpu_sockets: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_guest: Option<Quantity>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KubeVirtStatus {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<KubeVirtCondition>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operator_version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_kube_virt_version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_kube_virt_version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_architecture: Option<String>,
    #[serde(flatten)]
    pub other: BTreeMap<String, Value>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KubeVirtCondition {
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
