//! Network cards and the networks they are plugged into.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::devices::ClaimRequest;
use crate::kind::Marker;
use crate::kind::nullable;

/// A network card that is plugged into the network of the same name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Interface {
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bridge: Option<Marker>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slirp: Option<Marker>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub masquerade: Option<Marker>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sriov: Option<Marker>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub macvtap: Option<Marker>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub passt: Option<Marker>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub passt_binding: Option<Marker>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub binding: Option<PluginBinding>,
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<Port>,
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub port_ranges: Vec<PortRange>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mac_address: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boot_order: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pci_address: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dhcp_options: Option<DhcpOptions>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub acpi_index: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Port {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    pub port: i32,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PortRange {
    pub protocol: String,
    pub start: i32,
    pub end: i32,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DhcpOptions {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boot_file_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tftp_server_name: Option<String>,
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub ntp_servers: Vec<String>,
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub private_options: Vec<DhcpPrivateOptions>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DhcpPrivateOptions {
    pub option: i64,
    pub value: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PluginBinding {
    pub name: String,
}

/// Where an interface leads: exactly one of `pod` and `multus`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Network {
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod: Option<PodNetwork>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub multus: Option<MultusNetwork>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_claim: Option<ClaimRequest>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodNetwork {
    #[serde(rename = "vmNetworkCIDR", skip_serializing_if = "Option::is_none")]
    pub vm_network_cidr: Option<String>,
    #[serde(rename = "vmIPv6NetworkCIDR", skip_serializing_if = "Option::is_none")]
    pub vm_ipv6_network_cidr: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MultusNetwork {
    pub network_name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default: Option<bool>,
}

impl Interface {
    /// How it is plugged in, by the names of the fields; exactly one is right.
    pub fn bindings(&self) -> impl Iterator<Item = &'static str> {
        let set = [
            (self.bridge.is_some(), "bridge"),
            (self.slirp.is_some(), "slirp"),
            (self.masquerade.is_some(), "masquerade"),
            (self.sriov.is_some(), "sriov"),
            (self.macvtap.is_some(), "macvtap"),
            (self.passt.is_some(), "passt"),
            (self.passt_binding.is_some(), "passtBinding"),
            (self.binding.is_some(), "binding"),
        ];
        set.into_iter().filter(|(is_set, _)| *is_set).map(|(_, name)| name)
    }
}
