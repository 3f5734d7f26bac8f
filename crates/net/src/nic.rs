//! What is known of one network interface of one guest.

use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::Mac;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nic {
    pub vmi_uid: String,
    pub namespace: String,
    pub vm_name: String,
    pub hostname: String,
    /// The interface's name within the guest's description.
    pub name: String,
    pub mac: Mac,
    pub attachment: Attachment,
    /// Queues that the guest's driver may use; 1 unless it asked for more.
    pub queues: u16,
    /// Told to guests of the default network; others have their own server.
    #[serde(default)]
    pub told: Told,
}

/// What a guest is told by DHCP beside its addresses.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Told {
    pub boot_file: Option<String>,
    pub tftp_server: Option<String>,
    pub ntp_servers: Vec<Ipv4Addr>,
    /// By their codes, of which 224 to 254 are for private use.
    pub others: Vec<(u8, String)>,
    /// Asked after the host's own resolver, or in its stead.
    pub resolvers: Vec<Ipv4Addr>,
    /// Where names are looked for besides, or instead of the host's own domains.
    pub domains: Vec<String>,
    /// Neither the host's resolver nor its domains.
    pub is_without_host_names: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Attachment {
    /// The default network.
    Nat {
        /// The only ports that others may open connections to; all when empty.
        ports: Vec<Port>,
        host_ports: Vec<HostPort>,
    },
    /// A bridge that the host already has.
    Bridge { bridge: String, vlan: Option<u16>, checks_mac: bool, mtu: Option<u32> },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Protocol {
    Tcp,
    Udp,
    Sctp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Port {
    pub protocol: Protocol,
    pub port: u16,
}

/// A port of the host's own addresses that leads to the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostPort {
    pub protocol: Protocol,
    pub host_port: u16,
    pub guest_port: u16,
}

impl Protocol {
    /// IP's number for it.
    pub fn number(self) -> u8 {
        match self {
            Protocol::Tcp => 6,
            Protocol::Udp => 17,
            Protocol::Sctp => 132,
        }
    }
}

impl Nic {
    /// The interface of the machine that this is, whichever run of it.
    pub(crate) fn key(&self) -> Key {
        Key { namespace: self.namespace.clone(), vm_name: self.vm_name.clone(), name: self.name.clone() }
    }

    pub(crate) fn is_nat(&self) -> bool {
        matches!(self.attachment, Attachment::Nat { .. })
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Key {
    pub(crate) namespace: String,
    pub(crate) vm_name: String,
    pub(crate) name: String,
}

impl Key {
    pub(crate) fn hash(&self) -> [u8; 32] {
        hash(&[&self.namespace, &self.vm_name, &self.name])
    }
}

/// Parts cannot run into each other: a zero byte is in no name.
pub(crate) fn hash(parts: &[&str]) -> [u8; 32] {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update(part.as_bytes());
        hasher.update([0]);
    }
    hasher.finalize().into()
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
