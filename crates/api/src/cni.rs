//! k8s.cni.cncf.io/v1: networks that interfaces can be plugged into.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::kind::kind;

pub const GROUP: &str = "k8s.cni.cncf.io";

kind! {
    /// A network, described by a CNI configuration.
    NetworkAttachmentDefinition, "k8s.cni.cncf.io", "v1", "network-attachment-definitions", NamespaceResourceScope {
        #[serde(default, deserialize_with = "crate::kind::nullable")]
        spec: NetworkAttachmentDefinitionSpec,
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NetworkAttachmentDefinitionSpec {
    /// A CNI configuration as JSON text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config: Option<String>,
}
