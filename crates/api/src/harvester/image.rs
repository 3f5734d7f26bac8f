//! What a VirtualMachineImage holds.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Condition;
use crate::kind::nullable;

/// `spec.sourceType`.
pub mod source_type {
    pub const DOWNLOAD: &str = "download";
    pub const UPLOAD: &str = "upload";
    pub const EXPORT_FROM_VOLUME: &str = "export-from-volume";
    pub const RESTORE: &str = "restore";
    pub const CLONE: &str = "clone";
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachineImageSpec {
    /// `backingimage` or `cdi`. Croft keeps both in the same way.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["backingimage", "cdi"], "x-default" = "backingimage"))]
    pub backend: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    pub display_name: String,
    #[schemars(extend("enum" = ["download", "upload", "export-from-volume", "restore", "clone"]))]
    pub source_type: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pvc_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pvc_namespace: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// SHA-512 of what is downloaded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checksum: Option<String>,
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "BTreeMap::is_empty")]
    pub storage_class_parameters: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("minimum" = 0, "maximum" = 10, "x-default" = 3))]
    pub retry: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub security_parameters: Option<ImageSecurityParameters>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_storage_class_name: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImageSecurityParameters {
    #[schemars(extend("enum" = ["encrypt", "decrypt"]))]
    pub crypto_operation: String,
    pub source_image_name: String,
    pub source_image_namespace: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachineImageStatus {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub applied_url: Option<String>,
    /// Percent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub virtual_size: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage_class_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_storage_class_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backup_target: Option<ImageBackupTarget>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("minimum" = 0, "x-default" = 0))]
    pub failed: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_failed_time: Option<String>,
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImageBackupTarget {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bucket_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bucket_region: Option<String>,
}
