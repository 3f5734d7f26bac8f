//! DHCP for IPv4 (RFC 2131). The answer to a message is pure; sockets are at the end.
//!
//! There is nothing to negotiate: a guest has one address, chosen before it starts. Whatever it asks for, it is offered
//! that; a request for another is refused, so that it asks again.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsFd as _, OwnedFd};
use std::str::FromStr as _;

use dhcproto::v4::{DhcpOption, Message, MessageType, Opcode, OptionCode, UnknownOption};
use dhcproto::{Decodable as _, Decoder, Encodable as _};
use hickory_proto::rr::Name;
use tokio::net::UdpSocket;

use crate::error::NetError;
use crate::links::Link;
use crate::nic::Told;
use crate::{Mac, packet, sockets, sys};

const SERVER_PORT: u16 = 67;
const CLIENT_PORT: u16 = 68;
/// Guests ask again after half of it. An address only changes with the guest's record, so this could be forever.
const LEASE_SECONDS: u32 = 24 * 3600;
/// Clients may expect at least this much (RFC 1542).
const SMALLEST_REPLY: usize = 300;

/// What a guest is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Offer {
    pub(crate) address: Ipv4Addr,
    pub(crate) mask: Ipv4Addr,
    pub(crate) gateway: Ipv4Addr,
    pub(crate) hostname: String,
    /// Where names are looked for; the first is the guest's own domain.
    pub(crate) domains: Vec<String>,
    pub(crate) mtu: u16,
    pub(crate) told: Told,
}

#[derive(Debug, PartialEq)]
pub(crate) struct Reply {
    pub(crate) message: Message,
    pub(crate) kind: MessageType,
    pub(crate) to: SocketAddrV4,
}

/// The hardware address that a message speaks for.
pub(crate) fn client(message: &Message) -> Option<Mac> {
    if message.opcode() != Opcode::BootRequest || message.hlen() != 6 {
        return None;
    }
    message.chaddr().try_into().ok().map(Mac)
}

/// The answer to a message from the guest that the offer is for; `None` where silence is right.
pub(crate) fn answer(request: &Message, offer: &Offer) -> Option<Reply> {
    let option = |code| request.opts().get(code);
    if let Some(DhcpOption::ServerIdentifier(server)) = option(OptionCode::ServerIdentifier)
        && *server != offer.gateway
    {
        return None;
    }
    let asked = match option(OptionCode::RequestedIpAddress) {
        Some(DhcpOption::RequestedIpAddress(address)) => *address,
        _ => request.ciaddr(),
    };
    let kind = match request.opts().msg_type()? {
        MessageType::Discover => MessageType::Offer,
        MessageType::Request if asked == offer.address => MessageType::Ack,
        MessageType::Request => MessageType::Nak,
        MessageType::Inform => MessageType::Ack,
        // The address stays the guest's, whether it releases or even declines it.
        _ => return None,
    };
    let is_inform = request.opts().msg_type() == Some(MessageType::Inform);
    let mut reply = Message::new(
        Ipv4Addr::UNSPECIFIED,
        Ipv4Addr::UNSPECIFIED,
        Ipv4Addr::UNSPECIFIED,
        request.giaddr(),
        request.chaddr(),
    );
    reply.set_opcode(Opcode::BootReply).set_xid(request.xid()).set_flags(request.flags());
    let options = reply.opts_mut();
    options.insert(DhcpOption::MessageType(kind));
    options.insert(DhcpOption::ServerIdentifier(offer.gateway));
    // RFC 6842: a client may tell its answers by it.
    if let Some(identifier) = option(OptionCode::ClientIdentifier) {
        options.insert(identifier.clone());
    }
    if kind != MessageType::Nak {
        if !is_inform {
            options.insert(DhcpOption::AddressLeaseTime(LEASE_SECONDS));
        }
        offer.describe(options);
        reply.set_siaddr(offer.gateway);
        reply.set_ciaddr(request.ciaddr());
        if !is_inform {
            reply.set_yiaddr(offer.address);
        }
    }
    let is_broadcast = kind == MessageType::Nak || request.flags().broadcast();
    let to = match request.ciaddr() {
        _ if is_broadcast => Ipv4Addr::BROADCAST,
        Ipv4Addr::UNSPECIFIED => offer.address,
        known => known,
    };
    Some(Reply { message: reply, kind, to: SocketAddrV4::new(to, CLIENT_PORT) })
}

impl Offer {
    fn describe(&self, options: &mut dhcproto::v4::DhcpOptions) {
        options.insert(DhcpOption::SubnetMask(self.mask));
        options.insert(DhcpOption::BroadcastAddr(self.address | !self.mask));
        options.insert(DhcpOption::Router(vec![self.gateway]));
        let own = (!self.told.is_without_host_names).then_some(self.gateway);
        let resolvers: Vec<Ipv4Addr> = own.into_iter().chain(self.told.resolvers.iter().copied()).collect();
        if !resolvers.is_empty() {
            options.insert(DhcpOption::DomainNameServer(resolvers));
        }
        options.insert(DhcpOption::InterfaceMtu(self.mtu));
        if !self.hostname.is_empty() {
            options.insert(DhcpOption::Hostname(self.hostname.clone()));
        }
        if let Some(domain) = self.domains.first() {
            options.insert(DhcpOption::DomainName(domain.clone()));
        }
        let names: Vec<Name> = self.domains.iter().filter_map(|domain| Name::from_str(domain).ok()).collect();
        if !names.is_empty() {
            options.insert(DhcpOption::DomainSearch(names));
        }
        self.boot(options);
    }

    /// What only some guests are told, since their objects ask for it.
    fn boot(&self, options: &mut dhcproto::v4::DhcpOptions) {
        let told = &self.told;
        if let Some(file) = &told.boot_file {
            options.insert(DhcpOption::BootfileName(file.clone().into_bytes()));
        }
        if let Some(server) = &told.tftp_server {
            options.insert(DhcpOption::TFTPServerName(server.clone().into_bytes()));
        }
        if !told.ntp_servers.is_empty() {
            options.insert(DhcpOption::NtpServers(told.ntp_servers.clone()));
        }
        for (code, text) in &told.others {
            let option = UnknownOption::new(OptionCode::from(*code), text.clone().into_bytes());
            options.insert(DhcpOption::Unknown(option));
        }
    }
}

/// The server on one bridge. Answers go straight to the hardware address that asked, so no other guest sees them.
#[derive(Debug)]
pub(crate) struct Server {
    requests: UdpSocket,
    replies: OwnedFd,
    bridge: u32,
}

impl Server {
    pub(crate) fn open(bridge: &Link) -> Result<Server, NetError> {
        let failed = |error: io::Error| NetError::Socket("DHCP", error);
        let requests = sockets::udp(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, SERVER_PORT).into(), &bridge.name);
        // A filter that lets nothing through: this one only sends.
        let replies = sys::packet_socket(bridge.index, packet::ETHERTYPE_IPV4, &[(0x06, 0, 0, 0)]);
        Ok(Server { requests: requests.map_err(failed)?, replies: replies.map_err(failed)?, bridge: bridge.index })
    }

    /// Answers until the socket fails, as it does when the bridge goes. `find` knows the guests; `bound` is told who
    /// has taken its address.
    pub(crate) async fn serve(&self, find: impl Fn(Mac) -> Option<Offer>, bound: impl Fn(Ipv4Addr)) -> io::Error {
        let mut buffer = vec![0; 4096];
        loop {
            let length = match self.requests.recv_from(&mut buffer).await {
                Ok((length, _)) => length,
                Err(error) => return error,
            };
            let Ok(request) = Message::decode(&mut Decoder::new(&buffer[..length])) else { continue };
            let Some(mac) = client(&request) else { continue };
            let Some(offer) = find(mac) else { continue };
            let Some(reply) = answer(&request, &offer) else { continue };
            if let Err(error) = self.send(mac, &reply, offer.gateway) {
                tracing::warn!(%mac, %error, "cannot answer a guest's DHCP request");
                continue;
            }
            if reply.kind == MessageType::Ack {
                bound(offer.address);
            }
        }
    }

    fn send(&self, mac: Mac, reply: &Reply, gateway: Ipv4Addr) -> io::Result<()> {
        let mut bytes = reply.message.to_vec().map_err(io::Error::other)?;
        bytes.resize(bytes.len().max(SMALLEST_REPLY), 0);
        let to = (*reply.to.ip(), reply.to.port());
        let packet = packet::udp4((gateway, SERVER_PORT), to, &bytes).ok_or(io::ErrorKind::InvalidData)?;
        sys::send_packet(self.replies.as_fd(), self.bridge, packet::ETHERTYPE_IPV4, mac, &packet)
    }
}

#[cfg(test)]
mod tests {
    use dhcproto::v4::Flags;

    use super::*;

    const GUEST: Ipv4Addr = Ipv4Addr::new(10, 52, 1, 7);
    const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 52, 0, 1);

    fn offer() -> Offer {
        Offer {
            address: GUEST,
            mask: Ipv4Addr::new(255, 255, 0, 0),
            gateway: GATEWAY,
            hostname: "web".into(),
            domains: vec!["default.vm.croft.internal".into()],
            mtu: 1500,
            told: Told::default(),
        }
    }

    #[test]
    fn guests_are_told_what_their_objects_ask_for() {
        let told = Told {
            boot_file: Some("pxelinux.0".into()),
            tftp_server: Some("tftp.example".into()),
            ntp_servers: vec![Ipv4Addr::new(10, 0, 0, 9)],
            others: vec![(240, "private".into())],
            resolvers: vec![Ipv4Addr::new(10, 0, 0, 8)],
            ..Told::default()
        };
        let resolvers = |offer: &Offer| {
            let reply = answer(&request(MessageType::Discover, vec![]), offer).unwrap().message;
            // Through the wire, as the guest has it.
            let bytes = dhcproto::Encodable::to_vec(&reply).unwrap();
            let reply: Message = dhcproto::Decodable::from_bytes(&bytes).unwrap();
            let found = reply.opts().get(OptionCode::DomainNameServer).cloned();
            (reply, found)
        };
        let (reply, found) = resolvers(&Offer { told: told.clone(), ..offer() });
        assert_eq!(found, Some(DhcpOption::DomainNameServer(vec![GATEWAY, Ipv4Addr::new(10, 0, 0, 8)])));
        let option = |code: u8| reply.opts().get(OptionCode::from(code)).cloned();
        assert_eq!(option(67), Some(DhcpOption::BootfileName(b"pxelinux.0".to_vec())));
        assert_eq!(option(66), Some(DhcpOption::TFTPServerName(b"tftp.example".to_vec())));
        assert_eq!(option(42), Some(DhcpOption::NtpServers(vec![Ipv4Addr::new(10, 0, 0, 9)])));
        let private = UnknownOption::new(OptionCode::from(240), b"private".to_vec());
        assert_eq!(option(240), Some(DhcpOption::Unknown(private)));
        let alone = Told { is_without_host_names: true, ..told };
        let (_, found) = resolvers(&Offer { told: alone, domains: Vec::new(), ..offer() });
        assert_eq!(found, Some(DhcpOption::DomainNameServer(vec![Ipv4Addr::new(10, 0, 0, 8)])));
    }

    fn request(kind: MessageType, options: Vec<DhcpOption>) -> Message {
        let mut message = Message::default();
        message.set_chaddr(&[2, 0, 0, 0, 0, 1]).set_xid(7);
        message.opts_mut().insert(DhcpOption::MessageType(kind));
        for option in options {
            message.opts_mut().insert(option);
        }
        message
    }

    #[test]
    fn messages_get_the_answers_of_the_protocol() {
        use DhcpOption::{RequestedIpAddress, ServerIdentifier};
        let other = Ipv4Addr::new(192, 168, 0, 9);
        let table = [
            ("discover", MessageType::Discover, vec![], Some((MessageType::Offer, GUEST))),
            (
                "discover with a wish",
                MessageType::Discover,
                vec![RequestedIpAddress(other)],
                Some((MessageType::Offer, GUEST)),
            ),
            (
                "select",
                MessageType::Request,
                vec![RequestedIpAddress(GUEST), ServerIdentifier(GATEWAY)],
                Some((MessageType::Ack, GUEST)),
            ),
            (
                "reboot elsewhere",
                MessageType::Request,
                vec![RequestedIpAddress(other)],
                Some((MessageType::Nak, Ipv4Addr::BROADCAST)),
            ),
            (
                "another server was chosen",
                MessageType::Request,
                vec![RequestedIpAddress(GUEST), ServerIdentifier(other)],
                None,
            ),
            ("inform", MessageType::Inform, vec![], Some((MessageType::Ack, GUEST))),
            ("release", MessageType::Release, vec![], None),
            ("decline", MessageType::Decline, vec![RequestedIpAddress(GUEST)], None),
        ];
        for (name, kind, options, expected) in table {
            let got = answer(&request(kind, options), &offer()).map(|reply| (reply.kind, *reply.to.ip()));
            assert_eq!(got, expected, "{name}");
        }
    }

    #[test]
    fn a_renewal_is_answered_where_the_guest_already_is() {
        let mut renewal = request(MessageType::Request, vec![]);
        renewal.set_ciaddr(GUEST);
        let reply = answer(&renewal, &offer()).unwrap();
        assert_eq!((reply.kind, *reply.to.ip(), reply.message.yiaddr()), (MessageType::Ack, GUEST, GUEST));
    }

    #[test]
    fn an_answer_says_all_that_a_guest_needs_and_fits_the_wire() {
        let identifier = DhcpOption::ClientIdentifier(vec![1, 2, 3]);
        let mut discover = request(MessageType::Discover, vec![identifier.clone()]);
        discover.set_flags(Flags::default().set_broadcast());
        let reply = answer(&discover, &offer()).unwrap();
        assert_eq!(*reply.to.ip(), Ipv4Addr::BROADCAST, "as it asked to be");
        let bytes = reply.message.to_vec().unwrap();
        let read = Message::decode(&mut Decoder::new(&bytes)).unwrap();
        assert_eq!((read.xid(), read.yiaddr()), (7, GUEST));
        for expected in [
            identifier,
            DhcpOption::SubnetMask(Ipv4Addr::new(255, 255, 0, 0)),
            DhcpOption::Router(vec![GATEWAY]),
            DhcpOption::DomainNameServer(vec![GATEWAY]),
            DhcpOption::Hostname("web".into()),
            DhcpOption::InterfaceMtu(1500),
            DhcpOption::AddressLeaseTime(LEASE_SECONDS),
        ] {
            let code = OptionCode::from(&expected);
            assert_eq!(read.opts().get(code), Some(&expected));
        }
    }

    #[test]
    fn answers_and_strange_hardware_are_no_requests() {
        let mut reply = request(MessageType::Discover, vec![]);
        reply.set_opcode(Opcode::BootReply);
        assert_eq!(client(&reply), None);
        assert_eq!(client(&request(MessageType::Discover, vec![])), Some(Mac([2, 0, 0, 0, 0, 1])));
    }
}
