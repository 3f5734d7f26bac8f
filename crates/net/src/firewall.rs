//! The packet filter: two tables of our own, whose rules never change while guests come and go.
//!
//! Rules speak of sets; what a guest may do are elements of these sets. So the rules are loaded once, by `nft`, and a
//! guest costs one netlink message ([`elements`]) and no process. Whatever is not in a set is dropped: a guest whose
//! elements are missing is cut off, not let through.

pub(crate) mod elements;
mod netfilter;

use std::fmt::Write as _;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

pub(crate) use self::netfilter::{Change, Listener, Netfilter};
use crate::nic::{hash, hex};
use crate::subnet::Subnet;

const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Debug, thiserror::Error)]
pub enum FirewallError {
    #[error("cannot start nft (is nftables installed?)")]
    Start(#[source] std::io::Error),
    #[error("nft took longer than {PATIENCE:?}")]
    TooSlow,
    #[error("nft refused the rules: {0}")]
    Refused(String),
    #[error("cannot talk to the kernel's packet filter")]
    Netlink(#[source] std::io::Error),
}

/// The tables' name and what they are about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rules {
    pub(crate) table: String,
    pub(crate) bridge: String,
    /// How the names of taps begin whose guests are on the default network.
    pub(crate) nat_taps: String,
    /// How the names of taps begin that may only use their own hardware address.
    pub(crate) checked_taps: String,
    pub(crate) subnet: Subnet,
}

impl Rules {
    /// A chain without rules, whose name tells which rules are loaded.
    pub(crate) fn marker(&self) -> String {
        format!("version_{}", hex(&hash(&[&self.body()])[..6]))
    }

    /// Replaces our tables, and no others, in one transaction.
    pub(crate) async fn load(&self) -> Result<(), FirewallError> {
        let (table, marker) = (&self.table, self.marker());
        let mut script = self.removal();
        script.push_str(&self.body());
        for family in ["bridge", "inet"] {
            // Writing to a String cannot fail.
            let _ = writeln!(script, "add chain {family} {table} {marker}");
        }
        run(&script).await
    }

    pub(crate) async fn remove(&self) -> Result<(), FirewallError> {
        run(&self.removal()).await
    }

    /// Deleting what is not there fails, so it is made before.
    fn removal(&self) -> String {
        let table = &self.table;
        format!(
            "add table bridge {table}\ndelete table bridge {table}\nadd table inet {table}\ndelete table inet {table}\n"
        )
    }

    fn body(&self) -> String {
        let Rules { table, bridge, nat_taps, checked_taps, subnet } = self;
        let Subnet { v4, v6 } = subnet;
        let (gateway4, gateway6) = (subnet.gateway4(), subnet.gateway6());
        format!(
            r#"
table bridge {table} {{
	set macs {{
		type ifname . ether_addr
	}}
	set addresses4 {{
		type ifname . ipv4_addr
	}}
	set prefixes6 {{
		type ifname . ipv6_addr
		flags interval
	}}
	# A guest speaks as itself, or not at all.
	chain from_guest {{
		iifname . ether saddr != @macs drop
		ether type arp arp htype 1 arp saddr ip 0.0.0.0 accept
		ether type arp arp htype 1 iifname . arp saddr ip @addresses4 accept
		ether type ip ip saddr 0.0.0.0 udp sport 68 udp dport 67 accept
		ether type ip iifname . ip saddr @addresses4 accept
		ether type ip6 icmpv6 type {{ nd-router-advert, nd-redirect }} drop
		ether type ip6 ip6 saddr fe80::/64 accept
		ether type ip6 ip6 saddr :: ip6 nexthdr {{ hopopt, ipv6-icmp }} accept
		ether type ip6 iifname . ip6 saddr @prefixes6 accept
		drop
	}}
	chain prerouting {{
		type filter hook prerouting priority -300; policy accept;
		iifname "{nat_taps}*" jump from_guest
		iifname "{checked_taps}*" iifname . ether saddr != @macs drop
	}}
}}
table inet {table} {{
	set limited4 {{
		type ipv4_addr . inet_proto
	}}
	set open4 {{
		type ipv4_addr . inet_proto . inet_service
	}}
	set limited6 {{
		type ipv6_addr . inet_proto
		flags interval
	}}
	set open6 {{
		type ipv6_addr . inet_proto . inet_service
		flags interval
	}}
	map host_ports {{
		type inet_proto . inet_service : ipv4_addr . inet_service
	}}
	# Guests with a list of ports are reached on these alone, whoever asks.
	chain to_guest {{
		ct state established,related accept
		ip daddr . meta l4proto @limited4 ip daddr . meta l4proto . th dport != @open4 reject
		ip6 daddr . meta l4proto @limited6 ip6 daddr . meta l4proto . th dport != @open6 reject
	}}
	chain forward {{
		type filter hook forward priority 0; policy accept;
		ct state invalid iifname "{bridge}" drop
		oifname "{bridge}" jump to_guest
		iifname "{bridge}" ip saddr != {v4} drop
		iifname "{bridge}" ip6 saddr != {v6} drop
		iifname "{bridge}" accept
		oifname "{bridge}" ct state established,related accept
		oifname "{bridge}" ct status dnat accept
		oifname "{bridge}" drop
	}}
	chain input {{
		type filter hook input priority 0; policy accept;
		# The services of the default network are for its guests alone.
		iifname != {{ "{bridge}", "lo" }} ip daddr {gateway4} drop
		iifname != {{ "{bridge}", "lo" }} ip6 daddr {gateway6} drop
	}}
	chain output {{
		type filter hook output priority 0; policy accept;
		oifname "{bridge}" icmp type redirect drop
		oifname "{bridge}" icmpv6 type nd-redirect drop
		oifname "{bridge}" udp sport 67 udp dport 68 accept
		oifname "{bridge}" jump to_guest
	}}
	chain dnat_in {{
		type nat hook prerouting priority dstnat; policy accept;
		ip daddr != {v4} fib daddr type local dnat ip to meta l4proto . th dport map @host_ports
	}}
	chain dnat_out {{
		type nat hook output priority -100; policy accept;
		ip daddr != {{ {v4}, 127.0.0.0/8 }} fib daddr type local dnat ip to meta l4proto . th dport map @host_ports
	}}
	chain postrouting {{
		type nat hook postrouting priority srcnat; policy accept;
		ip saddr {v4} ip daddr != {v4} masquerade
		ip6 saddr {v6} ip6 daddr != {v6} masquerade
	}}
}}
"#
        )
    }
}

async fn run(script: &str) -> Result<(), FirewallError> {
    let mut command = Command::new("nft");
    command.args(["-f", "-"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().map_err(FirewallError::Start)?;
    let stdin = child.stdin.take();
    let talk = async {
        if let Some(mut stdin) = stdin {
            stdin.write_all(script.as_bytes()).await?;
        }
        child.wait_with_output().await
    };
    let output = tokio::time::timeout(PATIENCE, talk).await.map_err(|_| FirewallError::TooSlow)?;
    let output = output.map_err(FirewallError::Start)?;
    if output.status.success() {
        return Ok(());
    }
    let complaint: String = String::from_utf8_lossy(&output.stderr).trim().chars().take(400).collect();
    Err(FirewallError::Refused(complaint))
}
