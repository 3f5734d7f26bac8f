//! The networks of this node's guests: taps where the host lets us make them, else QEMU's own network.
//!
//! - `croft-net` does the work on the host; here is decided what is asked of it.
//! - `request` turns an interface of a guest's description into that, pure but for `attachment`,
//! - `attachment` reads the network that a NetworkAttachmentDefinition describes.

mod attachment;
mod request;

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::path::{Path, PathBuf};

use croft_api::kubevirt::VirtualMachineInstance;
use croft_meta::Chain;
pub use croft_net::Ipv4Net;
use croft_net::{Host, Mac, NetError, Nic, Subnet};
use futures::future::{BoxFuture, FutureExt as _};
use kube::Client;
use tokio::sync::watch;

use crate::node::{Aspect, Finding, Health};
use crate::vm::host::{Lacking, NicWanted, Nics, Plugged};

/// Where the host says whom it asks for names.
const RESOLV_CONF: &str = "/etc/resolv.conf";
/// A start may meet a host that is busy with its own networks.
const ATTEMPTS: u32 = 3;

/// The networks of this node.
pub struct Networks {
    client: Client,
    mode: Mode,
}

impl fmt::Debug for Networks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Networks").field("mode", &self.mode).finish_non_exhaustive()
    }
}

#[derive(Debug)]
enum Mode {
    Taps(Host),
    /// Only QEMU's own network, and why.
    User {
        reason: String,
        changes: watch::Sender<u64>,
    },
}

/// How a port of a guest is reached from this process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Dial {
    Direct(SocketAddr),
    /// Through QEMU, once it was told to: `hostfwd_add <back end> <addition>` in its human monitor, then dial `address`.
    /// `hostfwd_remove <back end> <removal>` ends it.
    ThroughQemu {
        address: SocketAddr,
        addition: String,
        removal: String,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    Tcp,
    Udp,
}

#[derive(Debug, thiserror::Error)]
pub enum DialError {
    #[error("the guest has no interface {0}")]
    NoInterface(String),
    #[error("no address of the guest's interface {0} is known yet")]
    NoAddress(String),
    #[error("no port of the host is free")]
    NoPort(#[source] io::Error),
}

impl Networks {
    /// Makes the default network in `data_dir`, or says in the node's conditions why it cannot be.
    pub async fn start(client: Client, data_dir: &Path, subnet: Option<Ipv4Net>, health: &Health) -> Networks {
        let config =
            croft_net::Config { dir: data_dir.join("network"), subnet, resolv_conf: PathBuf::from(RESOLV_CONF) };
        let mut attempt = 1;
        let started = loop {
            match Host::start(config.clone()).await {
                Err(error) if !error.is_lack_of_rights() && attempt < ATTEMPTS => attempt += 1,
                result => break result,
            }
        };
        let mode = match started {
            Ok(host) => {
                let message = format!("guests have taps on {} ({})", host.bridge(), host.subnet().v4);
                health.set(Aspect::Networking, Finding::good("Taps", message));
                Mode::Taps(host)
            }
            Err(error) => {
                let reason = Chain(&error).to_string();
                let message = format!("guests have QEMU's own network, without names or bridges, because: {reason}");
                tracing::warn!(%reason, "no taps for guests; using QEMU's own network");
                health.set(Aspect::Networking, Finding::bad("UserMode", message));
                Mode::User { reason, changes: watch::Sender::new(0) }
            }
        };
        Networks { client, mode }
    }

    /// The addresses that the interface with this hardware address is known to have, IPv4 first.
    pub fn addresses(&self, mac: [u8; 6]) -> Vec<IpAddr> {
        match &self.mode {
            Mode::Taps(host) => host.addresses(Mac(mac)),
            Mode::User { .. } => Vec::new(),
        }
    }

    /// The host's end of an interface's wire; None in QEMU's own network.
    pub fn tap(&self, vmi_uid: &str, nic_name: &str) -> Option<String> {
        match &self.mode {
            Mode::Taps(host) => host.tap(vmi_uid, nic_name),
            Mode::User { .. } => None,
        }
    }

    /// Counts up whenever an answer of [`Networks::addresses`] may have changed.
    pub fn changes(&self) -> watch::Receiver<u64> {
        match &self.mode {
            Mode::Taps(host) => host.changes(),
            Mode::User { changes, .. } => changes.subscribe(),
        }
    }

    /// Where a port of a guest's first interface is reached from this node.
    pub fn dial_address(
        &self,
        vmi: &VirtualMachineInstance,
        port: u16,
        transport: Transport,
    ) -> Result<Dial, DialError> {
        let interface = vmi.spec.domain.devices.interfaces.first();
        let name = interface.map(|interface| interface.name.as_str()).unwrap_or_default();
        match &self.mode {
            Mode::Taps(host) => {
                let uid = vmi.metadata.uid.as_deref().unwrap_or_default();
                if !host.plugged().iter().any(|(vmi_uid, nic)| vmi_uid == uid && nic == name) {
                    return Err(DialError::NoInterface(name.to_owned()));
                }
                let address = host.dial_address(uid, name, port);
                address.map(Dial::Direct).ok_or_else(|| DialError::NoAddress(name.to_owned()))
            }
            Mode::User { .. } => through_qemu(port, transport).map_err(DialError::NoPort),
        }
    }

    async fn plug(&self, wanted: NicWanted<'_>) -> Result<Plugged, Lacking> {
        let network = request::network_of(wanted.vmi, &wanted.interface.name)?;
        let attachment = match &network.multus {
            Some(multus) => attachment::resolve(&self.client, wanted.vmi, &multus.network_name).await?,
            None => request::nat(wanted.vmi, wanted.interface)?,
        };
        let nic: Nic = request::nic(&wanted, attachment);
        match &self.mode {
            Mode::Taps(host) => {
                let tap = host.plug(&nic).await.map_err(|error| lacking(&error))?;
                // Guests are told only what differs from what they assume.
                let mtu = u16::try_from(tap.mtu).ok().filter(|mtu| *mtu != 1500);
                Ok(Plugged::Tap { fds: tap.fds, mtu })
            }
            Mode::User { .. } if network.pod.is_some() => Ok(Plugged::User { forwards: request::user_forwards(&nic)? }),
            Mode::User { reason, .. } => {
                Err(Lacking::ever(format!("network {} needs a tap, and this node has none: {reason}", network.name)))
            }
        }
    }

    async fn unplug(&self, vmi_uid: &str, interface: &str) -> Result<(), String> {
        match &self.mode {
            Mode::Taps(host) => host.unplug(vmi_uid, interface).await.map_err(|error| Chain(&error).to_string()),
            Mode::User { .. } => Ok(()),
        }
    }

    async fn retain(&self, keep: impl Fn(&str) -> bool) -> Result<(), String> {
        match &self.mode {
            Mode::Taps(host) => host.retain(keep).await.map_err(|error| Chain(&error).to_string()),
            Mode::User { .. } => Ok(()),
        }
    }
}

impl Nics for Networks {
    fn plug<'a>(&'a self, wanted: NicWanted<'a>) -> BoxFuture<'a, Result<Plugged, Lacking>> {
        Networks::plug(self, wanted).boxed()
    }

    fn unplug<'a>(&'a self, vmi_uid: &'a str, interface: &'a str) -> BoxFuture<'a, Result<(), String>> {
        Networks::unplug(self, vmi_uid, interface).boxed()
    }

    fn unplug_all<'a>(&'a self, vmi_uid: &'a str) -> BoxFuture<'a, Result<(), String>> {
        Networks::retain(self, move |uid| uid != vmi_uid).boxed()
    }

    fn retain<'a>(&'a self, known: &'a BTreeSet<String>) -> BoxFuture<'a, Result<(), String>> {
        Networks::retain(self, |uid| known.contains(uid)).boxed()
    }

    fn idle_machines(&self) -> Vec<(String, String)> {
        match &self.mode {
            Mode::Taps(host) => host.idle_machines(),
            Mode::User { .. } => Vec::new(),
        }
    }

    fn forget_machine(&self, namespace: &str, name: &str) -> Result<(), String> {
        match &self.mode {
            Mode::Taps(host) => host.forget_machine(namespace, name).map_err(|error| Chain(&error).to_string()),
            Mode::User { .. } => Ok(()),
        }
    }
}

/// Reads a subnet for the default network, such as `10.60.0.0/16`.
pub fn parse_subnet(text: &str) -> Result<Ipv4Net, String> {
    let net = text.parse().map_err(|_| format!("{text:?} is not a subnet, such as 10.60.0.0/16"))?;
    Subnet::check(net).map_err(|error| error.to_string())
}

/// Removes the networks of a node that does not run: links, rules and files.
pub async fn remove_all(data_dir: &Path) -> Result<(), NetError> {
    Host::remove(&data_dir.join("network")).await
}

/// A conflict or a missing bridge may be over in a moment; what was asked for stays possible.
fn lacking(error: &NetError) -> Lacking {
    let message = Chain(error).to_string();
    match error {
        NetError::NoVlanFiltering { .. } | NetError::NotABridge(_) => Lacking::Ever { message },
        _ => Lacking::Yet { reason: "NetworkNotReady", message },
    }
}

/// A port of the loopback that is free now. Somebody may take it before QEMU does; then QEMU says so.
fn through_qemu(guest_port: u16, transport: Transport) -> io::Result<Dial> {
    let any = (Ipv4Addr::LOCALHOST, 0);
    let (address, word) = match transport {
        Transport::Tcp => (TcpListener::bind(any)?.local_addr()?, "tcp"),
        Transport::Udp => (UdpSocket::bind(any)?.local_addr()?, "udp"),
    };
    let removal = format!("{word}:{}:{}", address.ip(), address.port());
    Ok(Dial::ThroughQemu { address, addition: format!("{removal}-:{guest_port}"), removal })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_through_qemu_is_one_that_is_free() {
        let Dial::ThroughQemu { address, addition, removal } = through_qemu(22, Transport::Tcp).unwrap() else {
            panic!("through QEMU");
        };
        assert!(address.ip().is_loopback());
        assert_eq!(addition, format!("tcp:127.0.0.1:{}-:22", address.port()));
        assert_eq!(removal, format!("tcp:127.0.0.1:{}", address.port()));
    }

    #[test]
    fn a_missing_bridge_may_come_and_a_bridge_without_vlans_stays_one() {
        assert!(matches!(lacking(&NetError::NoSuchBridge("br0".into())), Lacking::Yet { .. }));
        let never = lacking(&NetError::NoVlanFiltering { bridge: "br0".into(), vlan: 7 });
        assert!(matches!(never, Lacking::Ever { .. }));
    }
}
