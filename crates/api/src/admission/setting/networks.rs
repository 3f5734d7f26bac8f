//! Networks of the platform itself: for storage, for shared volumes and for migrations.

use std::net::{IpAddr, Ipv4Addr};

use ipnet::{IpNet, Ipv4Net};
use serde::Deserialize;
use serde_json::Value;

use super::super::Lookup;
use super::{Proposal, json};
use crate::harvester::settings;
use crate::view::{flag, int, list, text};

const MANAGEMENT: &str = "mgmt";
const NETWORKS: [&str; 3] = ["storage-network", "rwx-network", "vm-migration-network"];
const LONGEST_VLAN: i64 = 4094;
const SHORTEST_PREFIX: u8 = 16;
const LEAST_ADDRESSES: u32 = 16;

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Network {
    vlan: i64,
    #[serde(rename = "clusterNetwork")]
    cluster: String,
    range: String,
    exclude: Vec<String>,
    exclusive_vlan: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct Shared {
    share_storage_network: bool,
    network: Option<Network>,
}

pub(super) fn check(proposal: &Proposal<'_>) -> Result<(), String> {
    let Proposal { name, value, lookup } = *proposal;
    let network = match name {
        "rwx-network" => {
            let shared: Shared = json(value)?;
            let is_there = !settings::effective(lookup, "storage-network").is_empty();
            if shared.share_storage_network && !is_there {
                return Err("share-storage-network needs the storage-network setting".to_owned());
            }
            match shared.network.filter(|_| !shared.share_storage_network) {
                Some(network) => network,
                None => return Ok(()),
            }
        }
        _ => json(value)?,
    };
    let range = valid(&network, lookup)?;
    for other in NETWORKS.into_iter().filter(|other| *other != name) {
        let theirs = range_of(other, &settings::effective(lookup, other));
        if theirs.is_some_and(|theirs| theirs.contains(&range.network()) || range.contains(&theirs.network())) {
            return Err(format!("the network configuration is overlapped with {other}"));
        }
    }
    nobody_is_cut_off(name, lookup)
}

/// The range of another network, if it is in use.
fn range_of(name: &str, value: &str) -> Option<Ipv4Net> {
    let network = match name {
        "rwx-network" => serde_json::from_str::<Shared>(value).ok()?.network?,
        _ => serde_json::from_str(value).ok()?,
    };
    network.range.parse().ok()
}

fn valid(network: &Network, lookup: &dyn Lookup) -> Result<Ipv4Net, String> {
    let Network { vlan, cluster, .. } = network;
    if !(0..=LONGEST_VLAN).contains(vlan) {
        return Err(format!("the valid value range for VLAN IDs is 0 to {LONGEST_VLAN}"));
    }
    if cluster == MANAGEMENT {
        if *vlan <= 1 {
            return Err(format!("network with vlan id {vlan} not allowed on mgmt cluster"));
        }
    } else if lookup.get("network.harvesterhci.io", "clusternetworks", "", cluster).is_none() {
        return Err(format!("cluster network {cluster} not found"));
    } else {
        reaches_every_node(cluster, lookup)?;
    }
    if network.exclusive_vlan && *vlan <= 1 {
        return Err(format!("exclusive vlan cannot be enabled for vlan {vlan}"));
    }
    let nads = lookup.list("k8s.cni.cncf.io", "network-attachment-definitions", "");
    if network.exclusive_vlan && nads.iter().any(|nad| is_on(nad, cluster, *vlan)) {
        return Err(format!(
            "storage network cannot use the same vlan {vlan} as VM Network vlan as exclusive vlan is enabled"
        ));
    }
    addresses(network)
}

/// Each node has an uplink of the cluster network, and it works.
fn reaches_every_node(cluster: &str, lookup: &dyn Lookup) -> Result<(), String> {
    let mut statuses = lookup.list("network.harvesterhci.io", "vlanstatuses", "");
    statuses.retain(|status| text(status, "status.clusterNetwork") == cluster);
    if statuses.is_empty() {
        return Err(format!("vlan status not present for cluster network {cluster}"));
    }
    let is_ready = |status: &&Value| {
        let mut conditions = list(status, "status.conditions").iter();
        conditions.any(|condition| text(condition, "type") == "ready" && text(condition, "status") == "True")
    };
    if let Some(broken) = statuses.iter().find(|status| !is_ready(status)) {
        return Err(format!("vs {} status is not Ready", text(broken, "metadata.name")));
    }
    let nodes = lookup.list("", "nodes", "");
    let is_there = |node: &str| statuses.iter().any(|status| text(status, "status.node") == node);
    match nodes.iter().map(|node| text(node, "metadata.name")).find(|node| !is_there(node)) {
        Some(node) => Err(format!("vlanconfig does not span {node}")),
        None => Ok(()),
    }
}

/// Whether machines have the VLAN.
fn is_on(nad: &Value, cluster: &str, vlan: i64) -> bool {
    let config: Value = serde_json::from_str(text(nad, "spec.config")).unwrap_or_default();
    text(&config, "bridge").strip_suffix("-br") == Some(cluster) && int(&config, "vlan") == Some(vlan)
}

/// What is taken away: shared volumes may have no network of their own.
pub(super) fn check_removal(name: &str, lookup: &dyn Lookup) -> Result<(), String> {
    if name != "storage-network" {
        return Ok(());
    }
    let shared = serde_json::from_str::<Shared>(&settings::effective(lookup, "rwx-network")).unwrap_or_default();
    if shared.share_storage_network {
        return Err("storage-network cannot be disabled while rwx-network has share-storage-network=true".to_owned());
    }
    nobody_is_cut_off(name, lookup)
}

fn addresses(network: &Network) -> Result<Ipv4Net, String> {
    let range = match network.range.parse::<IpNet>() {
        Ok(IpNet::V4(range)) => range,
        Ok(IpNet::V6(_)) => return Err("IPv6 ranges are not supported for network settings".to_owned()),
        Err(error) => return Err(format!("range should be subnet CIDR: {}: {error}", network.range)),
    };
    if range.trunc() != range {
        return Err(format!("range should be subnet CIDR {}, not {range}", range.trunc()));
    }
    if range.prefix_len() < SHORTEST_PREFIX {
        let length = range.prefix_len();
        return Err(format!("min supported prefix length for network is {SHORTEST_PREFIX}, got {length}"));
    }
    // Neither the network's own address nor that of everybody.
    let mut free = u32::try_from(range.hosts().count()).unwrap_or(u32::MAX);
    for text in &network.exclude {
        let excluded = text.parse::<Ipv4Net>().or_else(|_| text.parse::<Ipv4Addr>().map(Ipv4Net::from));
        let Ok(excluded) = excluded else { return Err(format!("exclude range {text} is not a subnet CIDR")) };
        if !range.contains(&excluded) {
            return Err(format!("exclude range {text} is not part of {range}"));
        }
        let is_host = |address: &Ipv4Addr| *address != range.network() && *address != range.broadcast();
        let addresses = Ipv4Net::new_assert(excluded.network(), excluded.prefix_len());
        let count = (u32::from(addresses.network())..=u32::from(addresses.broadcast()))
            .filter(|address| is_host(&Ipv4Addr::from(*address)))
            .count();
        free = free.saturating_sub(u32::try_from(count).unwrap_or(u32::MAX));
    }
    if free < LEAST_ADDRESSES {
        return Err(format!("allocatable IP address range is < {LEAST_ADDRESSES}, allocate sufficient range"));
    }
    Ok(range)
}

fn nobody_is_cut_off(name: &str, lookup: &dyn Lookup) -> Result<(), String> {
    if name == "vm-migration-network" {
        return no_migration(lookup);
    }
    let machines = lookup.list("kubevirt.io", "virtualmachines", "");
    if machines.iter().any(|machine| flag(machine, "status.created")) {
        return Err(format!("Please stop all VMs before configuring the {name} setting"));
    }
    Ok(())
}

/// Machines that are on their way keep the network that they started on.
pub(super) fn no_migration(lookup: &dyn Lookup) -> Result<(), String> {
    let migrations = lookup.list("kubevirt.io", "virtualmachineinstancemigrations", "");
    let is_running = |phase: &str| !matches!(phase, "Succeeded" | "Failed");
    if migrations.iter().any(|migration| is_running(text(migration, "status.phase"))) {
        return Err("There is a VM Migration in progress, please wait for it to finish".to_owned());
    }
    Ok(())
}

/// Whether the list of a proxy's exceptions has the address, by itself or in a network.
pub(super) fn covers(exceptions: &str, address: IpAddr) -> bool {
    exceptions.split(',').map(str::trim).any(|entry| {
        entry.parse::<IpAddr>().is_ok_and(|ip| ip == address)
            || entry.parse::<IpNet>().is_ok_and(|network| network.contains(&address))
    })
}
