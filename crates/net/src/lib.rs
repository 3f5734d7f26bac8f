//! The host's side of virtual networks: taps for guests, the default network with its NAT, DHCP, IPv6 and DNS, and
//! ports of bridges that the host already has. It knows nothing of objects and clusters.
//!
//! How the default network keeps guests apart:
//! - every tap is an isolated port of one bridge, so a guest reaches the host and nobody else directly; what goes from
//!   guest to guest is routed by the host, where the packet filter sees it ([`firewall`]);
//! - the filter lets a guest speak only with its own hardware address, IPv4 address and IPv6 prefix ([`subnet`]);
//! - the host knows where each guest is and believes no claims: its neighbour entries are permanent;
//! - answers of our services go to one hardware address, never to all.
//!
//! What is wanted is in small files ([`records`]); what is there is made to match at the start, on every change, and
//! when somebody removed it. Taps live as long as QEMU holds them: they outlast us, and never their guest.
//!
//! Start reading at [`Host::plug`].

mod dhcp;
mod dns;
mod error;
mod firewall;
#[doc(hidden)]
pub mod fuzzing;
mod host;
mod links;
mod mac;
mod nic;
mod observe;
mod packet;
mod records;
mod router;
mod snoop;
mod sockets;
mod subnet;
mod sys;
mod sysctl;

pub use ipnet::Ipv4Net;

pub use self::error::NetError;
pub use self::firewall::FirewallError;
pub use self::host::{Config, Host, Tap};
pub use self::mac::{BadMac, Mac};
pub use self::nic::{Attachment, HostPort, Nic, Port, Protocol, Told};
pub use self::observe::{LinkFacts, list_links};
pub use self::subnet::{Subnet, SubnetError};
