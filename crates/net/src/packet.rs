//! Headers that we write and read ourselves, because the packets go to one neighbour whatever their address says.

use std::net::{Ipv4Addr, Ipv6Addr};

pub(crate) const ETHERTYPE_IPV4: u16 = 0x0800;
pub(crate) const ETHERTYPE_IPV6: u16 = 0x86dd;
pub(crate) const ETHERTYPE_ALL: u16 = 0x0003;

const UDP: u8 = 17;
pub(crate) const ICMPV6: u8 = 58;

/// The Internet checksum (RFC 1071) over parts, each of even length except the last.
fn checksum(parts: &[&[u8]]) -> u16 {
    let mut sum = 0u32;
    for part in parts {
        for pair in part.chunks(2) {
            sum += u32::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]));
        }
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    // Folded to 16 bits above.
    #[allow(clippy::cast_possible_truncation)]
    let folded = sum as u16;
    !folded
}

/// A UDP datagram over IPv4. `None` if it would be longer than a packet can be.
pub(crate) fn udp4(from: (Ipv4Addr, u16), to: (Ipv4Addr, u16), payload: &[u8]) -> Option<Vec<u8>> {
    let udp_length = u16::try_from(payload.len() + 8).ok()?;
    let length = udp_length.checked_add(20)?;
    let mut packet = vec![0x45, 0xc0];
    packet.extend(length.to_be_bytes());
    packet.extend([0, 0, 0x40, 0, 64, UDP, 0, 0]);
    packet.extend(from.0.octets());
    packet.extend(to.0.octets());
    let header = checksum(&[&packet]);
    packet[10..12].copy_from_slice(&header.to_be_bytes());

    let mut udp = Vec::with_capacity(usize::from(udp_length));
    udp.extend(from.1.to_be_bytes());
    udp.extend(to.1.to_be_bytes());
    udp.extend(udp_length.to_be_bytes());
    udp.extend([0, 0]);
    udp.extend(payload);
    let [high, low] = udp_length.to_be_bytes();
    let sum = checksum(&[&from.0.octets(), &to.0.octets(), &[0, UDP, high, low], &udp]);
    // Zero would say that there is none.
    udp[6..8].copy_from_slice(&(if sum == 0 { 0xffff } else { sum }).to_be_bytes());
    packet.extend(udp);
    Some(packet)
}

/// An ICMPv6 message that may not have crossed a router.
pub(crate) fn icmp6(from: Ipv6Addr, to: Ipv6Addr, mut message: Vec<u8>) -> Option<Vec<u8>> {
    let length = u16::try_from(message.len()).ok()?;
    let [high, low] = length.to_be_bytes();
    let sum = checksum(&[&from.octets(), &to.octets(), &[0, 0, high, low, 0, 0, 0, ICMPV6], &message]);
    message.get_mut(2..4)?.copy_from_slice(&sum.to_be_bytes());
    let mut packet = vec![0x60, 0, 0, 0, high, low, ICMPV6, 255];
    packet.extend(from.octets());
    packet.extend(to.octets());
    packet.extend(message);
    Some(packet)
}

/// Source, hop limit and message of an ICMPv6 packet without extension headers.
pub(crate) fn read_icmp6(packet: &[u8]) -> Option<(Ipv6Addr, u8, &[u8])> {
    let (header, message) = packet.split_at_checked(40)?;
    if header[0] >> 4 != 6 || header[6] != ICMPV6 {
        return None;
    }
    let length = usize::from(u16::from_be_bytes([header[4], header[5]]));
    let source: [u8; 16] = header[8..24].try_into().ok()?;
    Some((Ipv6Addr::from(source), header[7], message.get(..length)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_add_up() {
        let packet = udp4((Ipv4Addr::new(10, 52, 0, 1), 67), (Ipv4Addr::BROADCAST, 68), b"odd").unwrap();
        assert_eq!(checksum(&[&packet[..20]]), 0);
        let pseudo = [&packet[12..20], &[0, 17, 0, 11]].concat();
        assert_eq!(checksum(&[&pseudo, &packet[20..]]), 0);
    }

    #[test]
    fn what_is_written_is_read() {
        let from: Ipv6Addr = "fe80::1".parse().unwrap();
        let packet = icmp6(from, "ff02::1".parse().unwrap(), vec![134, 0, 0, 0, 1, 2]).unwrap();
        let (source, hops, message) = read_icmp6(&packet).unwrap();
        assert_eq!((source, hops, message[0], message.len()), (from, 255, 134, 6));
        assert!(read_icmp6(&packet[..39]).is_none() && read_icmp6(&packet[..44]).is_none());
    }
}
