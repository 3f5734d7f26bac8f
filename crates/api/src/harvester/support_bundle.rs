//! What a helper far away needs to know of a cluster, in one file.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Condition;
use crate::kind::{kind, nullable};

/// Where bundles are made, and looked for by those who download them.
pub const NAMESPACE: &str = "harvester-system";
/// Their files, in the data directory of the server.
pub const DIRECTORY: &str = "support-bundles";

/// The file of the bundle with this uid, once it is whole.
pub fn file_name(uid: &str) -> String {
    format!("{uid}.zip")
}

kind! {
    /// A request for a bundle, and what became of it.
    SupportBundle, "harvesterhci.io", "v1beta1", "supportbundles", NamespaceResourceScope {
        spec: SupportBundleSpec,
        #[serde(skip_serializing_if = "Option::is_none")]
        status: Option<SupportBundleStatus>,
    }
}

/// Times are in minutes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SupportBundleSpec {
    pub description: String,
    #[serde(rename = "issueURL", skip_serializing_if = "Option::is_none")]
    pub issue_url: Option<String>,
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub extra_collection_namespaces: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expiration: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_timeout: Option<u64>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SupportBundleStatus {
    /// Empty, `generating`, `ready` or `error`.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "String::is_empty")]
    pub state: String,
    /// In hundredths.
    #[serde(default, deserialize_with = "nullable")]
    pub progress: u64,
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "String::is_empty")]
    pub filename: String,
    #[serde(default, deserialize_with = "nullable")]
    pub filesize: u64,
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}
