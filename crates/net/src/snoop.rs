//! Which addresses a guest uses, seen from what it tells its neighbours (ARP, neighbour discovery).

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd as _, OwnedFd};

use tokio::io::unix::AsyncFd;

use crate::error::NetError;
use crate::sys::FilterStep;
use crate::{Mac, packet, sys};

pub(crate) const ROUTER_SOLICITATION: u8 = 133;
pub(crate) const NEIGHBOUR_SOLICITATION: u8 = 135;
pub(crate) const NEIGHBOUR_ADVERTISEMENT: u8 = 136;

/// Where filters find what is not in the packet: its Ethernet type, and its direction.
const PROTOCOL: u32 = 0xffff_f000;
const DIRECTION: u32 = 0xffff_f004;
const OUTGOING: u32 = 4;

/// From the guest: ARP, neighbour solicitations and advertisements.
const FILTER: [FilterStep; 12] = [
    (0x20, 0, 0, DIRECTION),
    (0x15, 8, 0, OUTGOING), // to the guest: refuse
    (0x20, 0, 0, PROTOCOL),
    (0x15, 7, 0, 0x0806),                        // ARP: accept
    (0x15, 0, 5, packet::ETHERTYPE_IPV6 as u32), // neither: refuse
    (0x30, 0, 0, 6),
    (0x15, 0, 3, packet::ICMPV6 as u32),
    (0x30, 0, 0, 40),
    (0x15, 2, 0, NEIGHBOUR_SOLICITATION as u32),
    (0x15, 1, 0, NEIGHBOUR_ADVERTISEMENT as u32),
    (0x06, 0, 0, 0),
    (0x06, 0, 0, 0xffff),
];

/// Listens on one tap.
#[derive(Debug)]
pub(crate) struct Snoop(AsyncFd<OwnedFd>);

impl Snoop {
    pub(crate) fn open(tap_index: u32) -> Result<Snoop, NetError> {
        let open = || sys::watch(sys::packet_socket(tap_index, packet::ETHERTYPE_ALL, &FILTER)?);
        open().map(Snoop).map_err(|error| NetError::Socket("addresses on a tap", error))
    }

    /// Tells of addresses until the tap is gone.
    pub(crate) async fn run(&self, mac: Mac, seen: impl Fn(IpAddr)) -> io::Error {
        loop {
            match receive(&self.0).await {
                Err(error) => return error,
                Ok((from, packet)) if from == mac => {
                    if let Some(address) = claimed(&packet, mac) {
                        seen(address);
                    }
                }
                Ok(_) => {}
            }
        }
    }
}

/// The next packet that somebody else sent.
pub(crate) async fn receive(socket: &AsyncFd<OwnedFd>) -> io::Result<(Mac, Vec<u8>)> {
    let mut buffer = [0; 1600];
    loop {
        let mut ready = socket.readable().await?;
        match ready.try_io(|socket| sys::receive_packet(socket.as_fd(), &mut buffer)) {
            Ok(Ok((length, Some(mac)))) => return Ok((mac, buffer[..length].to_vec())),
            Ok(Err(error)) => return Err(error),
            Ok(Ok((_, None))) | Err(_) => {}
        }
    }
}

/// The address that a packet's sender says is its own.
pub(crate) fn claimed(packet: &[u8], mac: Mac) -> Option<IpAddr> {
    if packet.first().is_some_and(|byte| byte >> 4 == 6) {
        let (source, hops, message) = packet::read_icmp6(packet)?;
        return (hops == 255).then(|| claimed6(source, message))?.map(IpAddr::V6);
    }
    // ARP for IPv4 over Ethernet.
    let (header, rest) = packet.split_first_chunk::<8>()?;
    if header[..6] != [0, 1, 8, 0, 6, 4] || *rest.first_chunk::<6>()? != mac.0 {
        return None;
    }
    let address = Ipv4Addr::from(*rest.get(6..)?.first_chunk::<4>()?);
    let is_real = !address.is_unspecified() && !address.is_link_local() && !address.is_loopback();
    is_real.then_some(IpAddr::V4(address))
}

/// The same for neighbour discovery. Who asks without a source is about to take the address it asks for.
pub(crate) fn claimed6(source: Ipv6Addr, message: &[u8]) -> Option<Ipv6Addr> {
    let kind = *message.first()?;
    let target = Ipv6Addr::from(*message.get(8..)?.first_chunk::<16>()?);
    let address = match kind {
        NEIGHBOUR_ADVERTISEMENT => target,
        NEIGHBOUR_SOLICITATION if source.is_unspecified() => target,
        NEIGHBOUR_SOLICITATION => source,
        _ => return None,
    };
    let is_real = !address.is_unspecified() && !address.is_unicast_link_local() && !address.is_multicast();
    is_real.then_some(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: Mac = Mac([2, 0, 0, 0, 0, 1]);

    fn arp(sender: [u8; 6], address: [u8; 4]) -> Vec<u8> {
        [&[0, 1, 8, 0, 6, 4, 0, 1][..], &sender, &address, &[0; 6], &[192, 0, 2, 1]].concat()
    }

    #[test]
    fn addresses_are_learned_from_arp() {
        assert_eq!(claimed(&arp(MAC.0, [192, 0, 2, 7]), MAC), Some(IpAddr::from([192, 0, 2, 7])));
        assert_eq!(claimed(&arp(MAC.0, [0; 4]), MAC), None, "a probe");
        assert_eq!(claimed(&arp([2, 0, 0, 0, 0, 9], [192, 0, 2, 7]), MAC), None, "for somebody else");
        assert_eq!(claimed(&arp(MAC.0, [192, 0, 2, 7])[..12], MAC), None, "cut short");
    }

    #[test]
    fn addresses_are_learned_from_neighbour_discovery() {
        let (unspecified, mine): (Ipv6Addr, Ipv6Addr) = (Ipv6Addr::UNSPECIFIED, "2001:db8::7".parse().unwrap());
        let local: Ipv6Addr = "fe80::7".parse().unwrap();
        let message = |kind: u8, target: Ipv6Addr| [&[kind, 0, 0, 0, 0, 0, 0, 0][..], &target.octets()].concat();
        let table = [
            (unspecified, message(NEIGHBOUR_SOLICITATION, mine), Some(mine)),
            (mine, message(NEIGHBOUR_SOLICITATION, local), Some(mine)),
            (local, message(NEIGHBOUR_ADVERTISEMENT, mine), Some(mine)),
            (unspecified, message(NEIGHBOUR_SOLICITATION, local), None),
            (local, message(ROUTER_SOLICITATION, mine), None),
            (local, vec![NEIGHBOUR_ADVERTISEMENT], None),
        ];
        for (source, message, expected) in table {
            assert_eq!(claimed6(source, &message), expected);
        }
    }
}
