//! Networks beyond the default one: what a NetworkAttachmentDefinition says.

use std::time::Duration;

use croft_api::cni::NetworkAttachmentDefinition;
use croft_api::kubevirt::VirtualMachineInstance;
use croft_net::Attachment;
use kube::{Api, Client};
use serde::Deserialize;

use crate::vm::host::Lacking;

const PATIENCE: Duration = Duration::from_secs(10);
/// Names of links are shorter than this.
const LINK_NAME_LIMIT: usize = 16;

/// The part of a CNI configuration that we honour. What an address management plugin would do is the guest's own business.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Configuration {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    bridge: String,
    #[serde(default)]
    vlan: Option<u16>,
    #[serde(default)]
    vlan_trunk: Option<serde_json::Value>,
    #[serde(default)]
    macspoofchk: Option<bool>,
    #[serde(default)]
    mtu: Option<u32>,
}

/// Finds the network by its name, which may begin with its namespace.
pub(super) async fn resolve(client: &Client, vmi: &VirtualMachineInstance, name: &str) -> Result<Attachment, Lacking> {
    let own = vmi.metadata.namespace.as_deref().unwrap_or_default();
    let (namespace, short) = name.split_once('/').unwrap_or((own, name));
    let api = Api::<NetworkAttachmentDefinition>::namespaced(client.clone(), namespace);
    let yet = |message: String| Lacking::Yet { reason: "NetworkNotReady", message };
    let found = tokio::time::timeout(PATIENCE, api.get_opt(short)).await;
    let found = found.map_err(|_| yet(format!("network {name} could not be read in time")))?;
    let found = found.map_err(|error| yet(format!("network {name} cannot be read: {error}")))?;
    let definition = found.ok_or_else(|| yet(format!("network {name} does not exist")))?;
    read(definition.spec.config.as_deref().unwrap_or_default())
        .map_err(|why| Lacking::ever(format!("network {name}: {why}")))
}

fn read(config: &str) -> Result<Attachment, String> {
    let configuration: Configuration =
        serde_json::from_str(config).map_err(|error| format!("its configuration is not understood: {error}"))?;
    let Configuration { kind, bridge, vlan, vlan_trunk, macspoofchk, mtu } = configuration;
    if kind != "bridge" {
        return Err(format!("its type is {kind:?}; this node has only \"bridge\""));
    }
    let is_name = !bridge.is_empty() && bridge.len() < LINK_NAME_LIMIT && !bridge.contains(['/', '\0', ' ']);
    if !is_name {
        return Err(format!("{bridge:?} is no name of a bridge"));
    }
    let has_trunk = vlan_trunk.is_some_and(|trunk| trunk.as_array().is_none_or(|ranges| !ranges.is_empty()));
    if has_trunk {
        return Err("trunks of VLANs are not offered".to_owned());
    }
    let vlan = match vlan {
        None | Some(0) => None,
        Some(vlan @ 1..=4094) => Some(vlan),
        Some(vlan) => return Err(format!("{vlan} is no VLAN")),
    };
    if mtu.is_some_and(|mtu| mtu != 0 && !(576..=65535).contains(&mtu)) {
        return Err("its MTU is not between 576 and 65535".to_owned());
    }
    let mtu = mtu.filter(|mtu| *mtu != 0);
    Ok(Attachment::Bridge { bridge, vlan, checks_mac: macspoofchk.unwrap_or(false), mtu })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bridges_are_read_as_harvester_writes_them() {
        let config = r#"{"cniVersion":"0.3.1","name":"vlan100","type":"bridge","bridge":"data-br","promiscMode":true,"vlan":100,"ipam":{},"mtu":9000}"#;
        let expected =
            Attachment::Bridge { bridge: "data-br".into(), vlan: Some(100), checks_mac: false, mtu: Some(9000) };
        assert_eq!(read(config), Ok(expected));
        let untagged = Attachment::Bridge { bridge: "br0".into(), vlan: None, checks_mac: true, mtu: None };
        assert_eq!(
            read(r#"{"type":"bridge","bridge":"br0","vlan":0,"macspoofchk":true,"vlanTrunk":[]}"#),
            Ok(untagged)
        );
    }

    #[test]
    fn what_cannot_be_honoured_is_refused() {
        for config in [
            "",
            "[]",
            r#"{"type":"kube-ovn"}"#,
            r#"{"type":"bridge"}"#,
            r#"{"type":"bridge","bridge":"../x"}"#,
            r#"{"type":"bridge","bridge":"a-name-that-is-too-long"}"#,
            r#"{"type":"bridge","bridge":"br0","vlan":4095}"#,
            r#"{"type":"bridge","bridge":"br0","vlan":-1}"#,
            r#"{"type":"bridge","bridge":"br0","vlanTrunk":[{"id":5}]}"#,
            r#"{"type":"bridge","bridge":"br0","mtu":9}"#,
        ] {
            assert!(read(config).is_err(), "{config}");
        }
    }
}
