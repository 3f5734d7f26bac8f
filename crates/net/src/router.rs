//! IPv6 for guests: router advertisements (RFC 4861, 8106), and the addresses that guests make of them.
//!
//! Each guest is told a prefix of its own. An advertisement therefore goes to one hardware address alone, though it is
//! addressed to all nodes (RFC 6085). What guests then choose is seen when they ask whether somebody else has it. They
//! ask once, maybe while nobody listens: whoever has got a prefix and no known address is therefore asked for an echo.

use std::collections::HashMap;
use std::io;
use std::net::Ipv6Addr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Duration;

use ipnet::Ipv6Net;
use tokio::io::unix::AsyncFd;

use crate::error::NetError;
use crate::links::Link;
use crate::snoop::{self, ROUTER_SOLICITATION};
use crate::subnet::ROUTER;
use crate::sys::FilterStep;
use crate::{Mac, packet, sys};

const ROUTER_ADVERTISEMENT: u8 = 134;
const ECHO_REQUEST: u8 = 128;
const ECHO_REPLY: u8 = 129;
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
/// A guest forgets us after this long without word.
const LIFETIME: Duration = Duration::from_mins(150);
const PREFIX_LIFETIME: Duration = Duration::from_hours(24);
/// How often guests are told without asking.
const INTERVAL: Duration = Duration::from_mins(20);
/// How often a guest is asked which address it has chosen, and how many times.
const PROBE: Duration = Duration::from_secs(3);
const PROBES: u32 = 10;

/// Solicitations, neighbours' advertisements and echoes in IPv6 packets, and nothing else.
const FILTER: [FilterStep; 9] = [
    (0x30, 0, 0, 6),                          // the next header:
    (0x15, 0, 5, packet::ICMPV6 as u32),      // ICMPv6, or refuse
    (0x30, 0, 0, 40),                         // the message's type:
    (0x15, 4, 0, ROUTER_SOLICITATION as u32), // one of these four, or refuse
    (0x15, 3, 0, ECHO_REPLY as u32),
    (0x15, 2, 0, snoop::NEIGHBOUR_SOLICITATION as u32),
    (0x15, 1, 0, snoop::NEIGHBOUR_ADVERTISEMENT as u32),
    (0x06, 0, 0, 0),
    (0x06, 0, 0, 0xffff),
];

/// What a guest is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Advertisement {
    pub(crate) prefix: Ipv6Net,
    pub(crate) resolver: Option<Ipv6Addr>,
    pub(crate) domains: Vec<String>,
    pub(crate) mtu: u32,
    pub(crate) router_mac: Mac,
    /// An address of the host beyond the link.
    pub(crate) host: Ipv6Addr,
}

impl Advertisement {
    /// The whole packet.
    fn write(&self) -> Option<Vec<u8>> {
        let lifetime = u16::try_from(LIFETIME.as_secs()).ok()?;
        let prefix_lifetime = u32::try_from(PREFIX_LIFETIME.as_secs()).ok()?;
        // Hop limit 64, no flags: addresses are the guest's own choice.
        let mut message = vec![ROUTER_ADVERTISEMENT, 0, 0, 0, 64, 0];
        message.extend(lifetime.to_be_bytes());
        message.extend([0; 8]);
        message.extend([1, 1]);
        message.extend(self.router_mac.0);
        message.extend([5, 1, 0, 0]);
        message.extend(self.mtu.to_be_bytes());
        // On the link, and for addresses of one's own.
        message.extend([3, 4, self.prefix.prefix_len(), 0xc0]);
        message.extend(prefix_lifetime.to_be_bytes());
        message.extend(prefix_lifetime.to_be_bytes());
        message.extend([0; 4]);
        message.extend(self.prefix.network().octets());
        if let Some(resolver) = self.resolver {
            message.extend([25, 3, 0, 0]);
            message.extend(prefix_lifetime.to_be_bytes());
            message.extend(resolver.octets());
        }
        let search = self.search_list();
        if !search.is_empty() {
            message.extend([31, u8::try_from(1 + search.len() / 8).ok()?, 0, 0]);
            message.extend(prefix_lifetime.to_be_bytes());
            message.extend(search);
        }
        packet::icmp6(ROUTER, ALL_NODES, message)
    }

    /// Asks for an echo. The answer comes from the address that the guest would reach the host from.
    fn probe(&self) -> Option<Vec<u8>> {
        packet::icmp6(self.host, ALL_NODES, vec![ECHO_REQUEST, 0, 0, 0, 0, 0, 0, 0])
    }

    /// Domain names as DNS writes them, filled up to 8 bytes.
    fn search_list(&self) -> Vec<u8> {
        let mut list = Vec::new();
        for domain in &self.domains {
            for label in domain.split('.') {
                list.push(u8::try_from(label.len().min(63)).unwrap_or(63));
                list.extend(label.bytes().take(63));
            }
            list.push(0);
        }
        list.resize(list.len().next_multiple_of(8), 0);
        list
    }
}

/// The router on one bridge.
#[derive(Debug)]
pub(crate) struct Router {
    socket: AsyncFd<OwnedFd>,
    bridge: u32,
}

impl Router {
    pub(crate) fn open(bridge: &Link) -> Result<Router, NetError> {
        let open = || sys::watch(sys::packet_socket(bridge.index, packet::ETHERTYPE_IPV6, &FILTER)?);
        let socket = open().map_err(|error| NetError::Socket("router advertisements", error))?;
        Ok(Router { socket, bridge: bridge.index })
    }

    /// Answers and reminds until the socket fails. `guests` are those there are.
    pub(crate) async fn serve(&self, guests: &impl Guests) -> io::Error {
        // Those whose addresses are not known yet, and how often they will still be asked.
        let mut unknown: HashMap<Mac, u32> = HashMap::new();
        // The first is due at once: guests may have been there before us.
        let mut reminders = tokio::time::interval(INTERVAL);
        let mut probes = tokio::time::interval(PROBE);
        probes.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = reminders.tick() => {
                    for mac in guests.all() {
                        self.send(mac, guests.find(mac).and_then(|advertisement| advertisement.write()));
                        unknown.insert(mac, PROBES);
                    }
                }
                _ = probes.tick(), if !unknown.is_empty() => unknown.retain(|mac, left| {
                    let Some(advertisement) = guests.find(*mac).filter(|_| !guests.is_known(*mac)) else { return false };
                    self.send(*mac, advertisement.probe());
                    *left -= 1;
                    *left > 0
                }),
                received = snoop::receive(&self.socket) => match received {
                    Err(error) => return error,
                    Ok((mac, packet)) => match read(&packet) {
                        Some(Said::Solicitation) => {
                            let advertisement = guests.find(mac);
                            if advertisement.is_some() {
                                unknown.insert(mac, PROBES);
                            }
                            self.send(mac, advertisement.and_then(|advertisement| advertisement.write()));
                        }
                        Some(Said::Address(address)) => guests.seen(mac, address),
                        None => {}
                    },
                },
            }
        }
    }

    fn send(&self, mac: Mac, packet: Option<Vec<u8>>) {
        let Some(packet) = packet else { return };
        let sent = sys::send_packet(self.socket.as_fd(), self.bridge, packet::ETHERTYPE_IPV6, mac, &packet);
        if let Err(error) = sent {
            tracing::debug!(%mac, %error, "cannot advertise the router");
        }
    }
}

/// What a guest says with a packet.
#[derive(Debug, PartialEq, Eq)]
enum Said {
    Solicitation,
    Address(Ipv6Addr),
}

fn read(packet: &[u8]) -> Option<Said> {
    let (source, hops, message) = packet::read_icmp6(packet)?;
    match (message.first()?, hops) {
        (&ECHO_REPLY, _) => Some(Said::Address(source)),
        (&ROUTER_SOLICITATION, 255) => Some(Said::Solicitation),
        // What has crossed a router is no neighbour's word.
        (_, 255) => snoop::claimed6(source, message).map(Said::Address),
        _ => None,
    }
}

/// Who there is on the bridge.
pub(crate) trait Guests {
    fn all(&self) -> Vec<Mac>;
    /// What a guest is to be told.
    fn find(&self, mac: Mac) -> Option<Advertisement>;
    /// Whether an address is known that the guest has chosen.
    fn is_known(&self, mac: Mac) -> bool;
    /// Told of addresses that guests use, of all kinds.
    fn seen(&self, mac: Mac, address: Ipv6Addr);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_advertisement_says_all_that_a_guest_needs() {
        let advertisement = Advertisement {
            prefix: "fd00:1:2:3::/64".parse().unwrap(),
            resolver: Some("fd00:1:2::1".parse().unwrap()),
            domains: vec!["default.vm.croft.internal".into(), "vm.croft.internal".into()],
            mtu: 1500,
            router_mac: Mac([2, 0, 0, 0, 0, 9]),
            host: "fd00:1:2::1".parse().unwrap(),
        };
        let packet = advertisement.write().unwrap();
        let (source, hops, message) = packet::read_icmp6(&packet).unwrap();
        assert_eq!((source, hops, message[0]), (ROUTER, 255, ROUTER_ADVERTISEMENT));
        let mut options = &message[16..];
        let mut kinds = Vec::new();
        while let [kind, units, ..] = *options {
            kinds.push(kind);
            options = &options[usize::from(units) * 8..];
        }
        let probe = advertisement.probe().unwrap();
        assert_eq!(packet::read_icmp6(&probe).unwrap().0, advertisement.host);
        assert!(options.is_empty(), "the options fill the message");
        assert_eq!(kinds, [1, 5, 3, 25, 31]);
    }

    #[test]
    fn guests_are_heard_and_what_came_from_elsewhere_is_not() {
        let own: Ipv6Addr = "fd00::7".parse().unwrap();
        let from = |message: Vec<u8>| packet::icmp6(own, ROUTER, message).unwrap();
        let echo = from(vec![ECHO_REPLY, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(read(&echo), Some(Said::Address(own)));
        let mut solicitation = from(vec![ROUTER_SOLICITATION, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(read(&solicitation), Some(Said::Solicitation));
        // The hop limit.
        solicitation[7] = 254;
        assert_eq!(read(&solicitation), None);
        assert_eq!(read(&solicitation[..30]), None);
    }
}
