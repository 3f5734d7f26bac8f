//! What can go wrong with a network.

use std::io;
use std::path::PathBuf;

use crate::firewall::FirewallError;
use crate::subnet::SubnetError;

#[derive(Debug, thiserror::Error)]
pub enum NetError {
    #[error("cannot {operation} {link}")]
    Link { operation: &'static str, link: String, source: io::Error },
    #[error("cannot make a tap")]
    Tap(#[source] io::Error),
    #[error("cannot open a socket for {0}")]
    Socket(&'static str, #[source] io::Error),
    #[error("cannot set {path}")]
    Sysctl { path: PathBuf, source: io::Error },
    #[error("cannot {operation} {path}")]
    File { operation: &'static str, path: PathBuf, source: io::Error },
    #[error("cannot change the packet filter")]
    Firewall(#[from] FirewallError),
    #[error("cannot choose a subnet")]
    Subnet(#[from] SubnetError),
    #[error("the hardware address {mac} is already used by {holder}")]
    MacInUse { mac: crate::Mac, holder: String },
    #[error("port {port} of the host already leads to {holder}")]
    HostPortInUse { port: u16, holder: String },
    #[error("no address is left in {0}")]
    NoAddressLeft(ipnet::Ipv4Net),
    #[error("this host has no bridge {0}")]
    NoSuchBridge(String),
    #[error("{0} is no bridge")]
    NotABridge(String),
    #[error("bridge {bridge} has no VLAN filtering, so an interface cannot be put into VLAN {vlan}")]
    NoVlanFiltering { bridge: String, vlan: u16 },
    #[error("tap {0} is in use by another process")]
    TapInUse(String),
}

impl NetError {
    /// True if the process lacks the rights, or the kernel the parts, for taps and bridges.
    pub fn is_lack_of_rights(&self) -> bool {
        let source = match self {
            NetError::Link { source, .. }
            | NetError::Sysctl { source, .. }
            | NetError::Tap(source)
            | NetError::Socket(_, source) => source,
            NetError::Firewall(FirewallError::Start(_) | FirewallError::Refused(_)) => return true,
            _ => return false,
        };
        let kind = source.kind();
        matches!(kind, io::ErrorKind::PermissionDenied | io::ErrorKind::NotFound | io::ErrorKind::Unsupported)
            || matches!(source.raw_os_error(), Some(libc::ENODEV | libc::EOPNOTSUPP | libc::EROFS))
    }
}
