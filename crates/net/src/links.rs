//! Links, addresses, neighbours and routes of this network namespace, over rtnetlink.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use futures::TryStreamExt as _;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use rtnetlink::packet_route::AddressFamily;
use rtnetlink::packet_route::address::{AddressAttribute, AddressFlags, AddressMessage};
use rtnetlink::packet_route::link::{
    BridgeVlanInfoFlags, InfoBridge, InfoData, InfoKind, LinkAttribute, LinkFlags, LinkInfo, LinkMessage,
};
use rtnetlink::packet_route::neighbour::{NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState};
use rtnetlink::packet_route::route::{RouteAddress, RouteAttribute, RouteProtocol};
use rtnetlink::{Handle, LinkBridge, LinkBridgePort, LinkBridgeVlan, LinkUnspec, RouteMessageBuilder};
use tokio::task::AbortHandle;

use crate::Mac;
use crate::error::NetError;

/// The number that marks our routes, so that people see whose they are (`ip route show proto 52`).
const ROUTE_PROTOCOL: RouteProtocol = RouteProtocol::Other(52);

#[derive(Debug)]
pub(crate) struct Links {
    handle: Handle,
    connection: AbortHandle,
}

impl Drop for Links {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

/// What matters of a link that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) index: u32,
    pub(crate) name: String,
    pub(crate) mtu: u32,
    pub(crate) master: Option<u32>,
    pub(crate) is_bridge: bool,
    pub(crate) is_up: bool,
    pub(crate) has_vlan_filtering: bool,
}

impl Links {
    pub(crate) fn connect() -> Result<Links, NetError> {
        let (connection, handle, _) =
            rtnetlink::new_connection().map_err(|error| NetError::Socket("rtnetlink", error))?;
        Ok(Links { handle, connection: tokio::spawn(connection).abort_handle() })
    }

    pub(crate) async fn find(&self, name: &str) -> Result<Option<Link>, NetError> {
        let mut found = Box::pin(self.handle.link().get().match_name(name).execute());
        match found.try_next().await {
            Ok(message) => Ok(message.map(|message| Link::read(&message))),
            Err(error) if code(&error) == Some(libc::ENODEV) => Ok(None),
            Err(error) => Err(failed("look for link", name, error)),
        }
    }

    pub(crate) async fn all(&self) -> Result<Vec<Link>, NetError> {
        Ok(self.messages().await?.iter().map(Link::read).collect())
    }

    pub(crate) async fn messages(&self) -> Result<Vec<LinkMessage>, NetError> {
        let messages = self.handle.link().get().execute().try_collect::<Vec<_>>().await;
        messages.map_err(|error| failed("list", "links", error))
    }

    pub(crate) async fn add_bridge(&self, name: &str, mac: Mac, mtu: u32) -> Result<Link, NetError> {
        let bridge = LinkBridge::new(name)
            .append_info_data(InfoBridge::MulticastSnooping(false))
            .address(mac.0.to_vec())
            .mtu(mtu)
            .build();
        self.handle.link().add(bridge).execute().await.map_err(|error| failed("make bridge", name, error))?;
        self.find(name).await?.ok_or_else(|| NetError::NoSuchBridge(name.to_owned()))
    }

    pub(crate) async fn set_up(&self, link: &Link) -> Result<(), NetError> {
        let message = LinkUnspec::new_with_index(link.index).up().build();
        self.handle.link().set(message).execute().await.map_err(|error| failed("start", &link.name, error))
    }

    /// Makes a link a port of a bridge, and starts it.
    pub(crate) async fn enslave(&self, port: &Link, bridge: &Link, mtu: u32) -> Result<(), NetError> {
        let message = LinkUnspec::new_with_index(port.index).controller(bridge.index).mtu(mtu).up().build();
        self.handle
            .link()
            .set(message)
            .execute()
            .await
            .map_err(|error| failed("attach to its bridge", &port.name, error))
    }

    /// Ports that are isolated reach the bridge itself and its other ports, but not each other.
    pub(crate) async fn isolate(&self, port: &Link) -> Result<(), NetError> {
        let message = LinkBridgePort::new(port.index).isolated(true).build();
        self.handle.link().set_port(message).execute().await.map_err(|error| failed("isolate", &port.name, error))
    }

    /// Puts a port into one VLAN alone, untagged.
    pub(crate) async fn set_vlan(&self, port: &Link, vlan: u16) -> Result<(), NetError> {
        // A bridge puts each new port into VLAN 1.
        if vlan != 1 {
            let message = LinkBridgeVlan::new(port.index).vlan(1, BridgeVlanInfoFlags::empty()).build();
            let removed = self.handle.link().del_with_message(message).execute().await;
            removed.or_else(absent_is_fine).map_err(|error| failed("take out of VLAN 1", &port.name, error))?;
        }
        let flags = BridgeVlanInfoFlags::Pvid | BridgeVlanInfoFlags::Untagged;
        let message = LinkBridgeVlan::new(port.index).vlan(vlan, flags).build();
        self.handle.link().set(message).execute().await.map_err(|error| failed("set the VLAN of", &port.name, error))
    }

    pub(crate) async fn delete(&self, name: &str) -> Result<(), NetError> {
        let Some(link) = self.find(name).await? else { return Ok(()) };
        let deleted = self.handle.link().del(link.index).execute().await;
        deleted.or_else(absent_is_fine).map_err(|error| failed("delete link", name, error))
    }

    /// Gives a link an address, without waiting for others to object.
    pub(crate) async fn add_address(&self, link: &Link, address: IpAddr, length: u8) -> Result<(), NetError> {
        let mut request = self.handle.address().add(link.index, address, length).replace();
        if address.is_ipv6() {
            request.message_mut().attributes.push(AddressAttribute::Flags(AddressFlags::Nodad));
        }
        request.execute().await.map_err(|error| failed("give an address to", &link.name, error))
    }

    pub(crate) async fn delete_address(&self, link: &Link, net: Ipv4Net) -> Result<(), NetError> {
        let mut message = AddressMessage::default();
        message.header.family = AddressFamily::Inet;
        message.header.prefix_len = net.prefix_len();
        message.header.index = link.index;
        message.attributes.push(AddressAttribute::Local(net.addr().into()));
        let deleted = self.handle.address().del(message).execute().await;
        deleted.or_else(absent_is_fine).map_err(|error| failed("take an address from", &link.name, error))
    }

    /// Tells the host once and for all where an address is, so that no neighbour can claim it.
    pub(crate) async fn add_neighbour(&self, link: &Link, address: IpAddr, mac: Mac) -> Result<(), NetError> {
        let request = self.handle.neighbours().add(link.index, address);
        let request = request.link_layer_address(&mac.0).state(NeighbourState::Permanent).replace();
        request.execute().await.map_err(|error| failed("add a neighbour on", &link.name, error))
    }

    pub(crate) async fn delete_neighbour(&self, link: &Link, address: IpAddr) -> Result<(), NetError> {
        let mut message = NeighbourMessage::default();
        message.header.ifindex = link.index;
        message.header.family = if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
        message.attributes.push(NeighbourAttribute::Destination(match address {
            IpAddr::V4(address) => NeighbourAddress::Inet(address),
            IpAddr::V6(address) => NeighbourAddress::Inet6(address),
        }));
        let deleted = self.handle.neighbours().del(message).execute().await;
        deleted.or_else(absent_is_fine).map_err(|error| failed("delete a neighbour on", &link.name, error))
    }

    pub(crate) async fn add_route6(&self, link: &Link, prefix: Ipv6Net, via: Ipv6Addr) -> Result<(), NetError> {
        let request = self.handle.route().add(route6(link, prefix, via)).replace();
        request.execute().await.map_err(|error| failed("add a route through", &link.name, error))
    }

    pub(crate) async fn delete_route6(&self, link: &Link, prefix: Ipv6Net, via: Ipv6Addr) -> Result<(), NetError> {
        let deleted = self.handle.route().del(route6(link, prefix, via)).execute().await;
        deleted.or_else(absent_is_fine).map_err(|error| failed("delete a route through", &link.name, error))
    }

    /// Where packets of this host go, except through one link: those subnets are taken. And the index of the link
    /// with the default route.
    pub(crate) async fn routes4(&self, except: Option<u32>) -> Result<(Vec<Ipv4Net>, Option<u32>), NetError> {
        let every = RouteMessageBuilder::<Ipv4Addr>::new().build();
        let messages = self.handle.route().get(every).execute().try_collect::<Vec<_>>().await;
        let messages = messages.map_err(|error| failed("list", "routes", error))?;
        let (mut taken, mut default) = (Vec::new(), None);
        for message in &messages {
            let through = message.attributes.iter().find_map(|attribute| match attribute {
                RouteAttribute::Oif(index) => Some(*index),
                _ => None,
            });
            if through.is_some() && through == except {
                continue;
            }
            let to = message.attributes.iter().find_map(|attribute| match attribute {
                RouteAttribute::Destination(RouteAddress::Inet(address)) => Some(*address),
                _ => None,
            });
            let length = message.header.destination_prefix_length;
            if length == 0 {
                default = default.or(through);
            }
            if let Ok(net) = Ipv4Net::new(to.unwrap_or(Ipv4Addr::UNSPECIFIED), length) {
                taken.push(net);
            }
        }
        Ok((taken, default))
    }

    pub(crate) async fn addresses(&self, link: &Link) -> Result<Vec<IpNet>, NetError> {
        let request = self.handle.address().get().set_link_index_filter(link.index);
        let messages = request.execute().try_collect::<Vec<_>>().await;
        let messages = messages.map_err(|error| failed("list the addresses of", &link.name, error))?;
        let read = |message: &AddressMessage| {
            let address = message.attributes.iter().find_map(|attribute| match attribute {
                AddressAttribute::Address(address) => Some(*address),
                _ => None,
            })?;
            IpNet::new(address, message.header.prefix_len).ok()
        };
        Ok(messages.iter().filter_map(read).collect())
    }
}

fn route6(link: &Link, prefix: Ipv6Net, via: Ipv6Addr) -> rtnetlink::packet_route::route::RouteMessage {
    RouteMessageBuilder::<Ipv6Addr>::new()
        .destination_prefix(prefix.addr(), prefix.prefix_len())
        .gateway(via)
        .output_interface(link.index)
        .protocol(ROUTE_PROTOCOL)
        .build()
}

impl Link {
    fn read(message: &LinkMessage) -> Link {
        let mut link = Link {
            index: message.header.index,
            name: String::new(),
            mtu: 0,
            master: None,
            is_bridge: false,
            is_up: message.header.flags.contains(LinkFlags::Up),
            has_vlan_filtering: false,
        };
        for attribute in &message.attributes {
            match attribute {
                LinkAttribute::IfName(name) => link.name.clone_from(name),
                LinkAttribute::Mtu(mtu) => link.mtu = *mtu,
                LinkAttribute::Controller(index) => link.master = Some(*index),
                LinkAttribute::LinkInfo(infos) => link.read_info(infos),
                _ => {}
            }
        }
        link
    }

    fn read_info(&mut self, infos: &[LinkInfo]) {
        for info in infos {
            match info {
                LinkInfo::Kind(InfoKind::Bridge) => self.is_bridge = true,
                LinkInfo::Data(InfoData::Bridge(settings)) => {
                    self.has_vlan_filtering = settings.iter().any(|one| matches!(one, InfoBridge::VlanFiltering(true)));
                }
                _ => {}
            }
        }
    }
}

/// The kernel's error number, if it was the kernel that refused.
fn code(error: &rtnetlink::Error) -> Option<i32> {
    match error {
        rtnetlink::Error::NetlinkError(message) => message.code.map(|code| code.get().abs()),
        _ => None,
    }
}

fn absent_is_fine(error: rtnetlink::Error) -> Result<(), rtnetlink::Error> {
    match code(&error) {
        Some(libc::ENODEV | libc::ENOENT | libc::ESRCH | libc::EADDRNOTAVAIL) => Ok(()),
        _ => Err(error),
    }
}

fn failed(operation: &'static str, link: &str, error: rtnetlink::Error) -> NetError {
    let source = code(&error).map_or_else(|| io::Error::other(error), io::Error::from_raw_os_error);
    NetError::Link { operation, link: link.to_owned(), source }
}
