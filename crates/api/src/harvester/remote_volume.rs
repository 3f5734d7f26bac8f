//! A single volume in the backup target, and one that is made from it: what the CSI driver of guest clusters asks for.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Condition;
use crate::kind::nullable;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VolumeRemoteBackupSpec {
    /// `lh`.
    #[serde(rename = "type", default, deserialize_with = "nullable")]
    pub type_: String,
    /// A claim in the same namespace.
    pub source: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VolumeRemoteBackupStatus {
    /// `bak://<volume>/<backup>`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handle: Option<String>,
    #[serde(rename = "csiProvider", skip_serializing_if = "Option::is_none")]
    pub csi_provider: Option<String>,
    /// The spec of the claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_spec: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub success: Option<bool>,
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VolumeRemoteRestoreSpec {
    /// `lh`.
    #[serde(rename = "type", default, deserialize_with = "nullable")]
    pub type_: String,
    /// The backup, as `namespace/name`.
    pub from: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VolumeRemoteRestoreStatus {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub success: Option<bool>,
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}
