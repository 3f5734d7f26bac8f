//! cdi.kubevirt.io/v1beta1: disks that are filled from somewhere.

pub mod filling;
mod types;

pub use types::*;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::kind::kind;

pub const GROUP: &str = "cdi.kubevirt.io";

kind! {
    /// A claim and what to fill it with.
    DataVolume, "cdi.kubevirt.io", "v1beta1", "datavolumes", NamespaceResourceScope {
        spec: DataVolumeSpec,
        #[serde(skip_serializing_if = "Option::is_none")]
        status: Option<DataVolumeStatus>,
    }
}

kind! {
    /// A name for whatever is the current source of an image.
    DataSource, "cdi.kubevirt.io", "v1beta1", "datasources", NamespaceResourceScope {
        spec: DataSourceSpec,
        #[serde(skip_serializing_if = "Option::is_none")]
        status: Option<DataSourceStatus>,
    }
}

kind! {
    /// What claims of a storage class look like unless they say so themselves.
    StorageProfile, "cdi.kubevirt.io", "v1beta1", "storageprofiles", ClusterResourceScope {
        spec: StorageProfileSpec,
        #[serde(skip_serializing_if = "Option::is_none")]
        status: Option<StorageProfileStatus>,
    }
}

kind! {
    /// The settings of imports; `config` is the only one.
    CDIConfig, "cdi.kubevirt.io", "v1beta1", "cdiconfigs", ClusterResourceScope {
        spec: CdiConfigSpec,
        #[serde(skip_serializing_if = "Option::is_none")]
        status: Option<CdiConfigStatus>,
    }
}

kind! {
    /// How CDI is deployed; kept for the clients that look at its status.
    CDI, "cdi.kubevirt.io", "v1beta1", "cdis", ClusterResourceScope {
        spec: CdiSpec,
        #[serde(skip_serializing_if = "Option::is_none")]
        status: Option<CdiStatus>,
    }
}

pub type Cdi = CDI;
pub type CdiConfig = CDIConfig;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CdiSpec {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config: Option<CdiConfigSpec>,
    #[serde(flatten)]
    pub other: BTreeMap<String, Value>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CdiStatus {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_version: Option<String>,
    #[serde(flatten)]
    pub other: BTreeMap<String, Value>,
}
