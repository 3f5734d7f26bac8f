//! Which addresses the default network has. Pure.
//!
//! A guest is a number, its index. It gets the address of that number out of one IPv4 subnet, and a whole IPv6
//! prefix of its own, so that it may form as many addresses as it likes without asking and without meeting another.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{Ipv4Net, Ipv6Net};
use serde::{Deserialize, Serialize};

/// Where the router lives on the link, as guests see it.
pub(crate) const ROUTER: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);

/// The addresses below this index stay free for the host.
const FIRST_INDEX: u32 = 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subnet {
    pub v4: Ipv4Net,
    /// Of length 48; each guest has the /64 of its index.
    pub v6: Ipv6Net,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubnetError {
    #[error("the subnet {0} is not usable: its length must be between 16 and 28")]
    Length(Ipv4Net),
    #[error("the subnet {0} is not usable: it must be of addresses that hosts may have")]
    Range(Ipv4Net),
    #[error("every private range from 10.52.0.0/16 on is already routed on this host: configure a subnet")]
    AllTaken,
}

impl Subnet {
    /// A subnet that meets none of those in use. `random` makes the IPv6 prefix unique (RFC 4193).
    pub fn choose(wanted: Option<Ipv4Net>, taken: &[Ipv4Net], random: [u8; 5]) -> Result<Subnet, SubnetError> {
        let v4 = match wanted {
            Some(wanted) => Subnet::check(wanted)?,
            None => candidates().find(|candidate| is_free(*candidate, taken)).ok_or(SubnetError::AllTaken)?,
        };
        let mut prefix = [0; 16];
        prefix[0] = 0xfd;
        prefix[1..6].copy_from_slice(&random);
        let v6 = Ipv6Net::new_assert(Ipv6Addr::from(prefix), 48);
        Ok(Subnet { v4, v6 })
    }

    /// A subnet as somebody has written it, if it can be the default network's.
    pub fn check(wanted: Ipv4Net) -> Result<Ipv4Net, SubnetError> {
        let first = wanted.network();
        let is_reserved = first.octets()[0] == 0 || first.octets()[0] >= 240;
        if is_reserved || first.is_loopback() || first.is_link_local() || first.is_multicast() {
            return Err(SubnetError::Range(wanted));
        }
        let is_fitting = (16..=28).contains(&wanted.prefix_len());
        if is_fitting { Ok(wanted.trunc()) } else { Err(SubnetError::Length(wanted)) }
    }

    pub fn gateway4(&self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.v4.network().to_bits() | 1)
    }

    pub fn gateway6(&self) -> Ipv6Addr {
        Ipv6Addr::from_bits(self.v6.network().to_bits() | 1)
    }

    /// Indexes that may be given to guests.
    pub fn indexes(&self) -> std::ops::Range<u32> {
        let hosts = 1u32 << (32 - self.v4.prefix_len());
        FIRST_INDEX.min(hosts / 4)..hosts - 1
    }

    /// Some old systems take an address that ends in 0 or 255 for a broadcast.
    pub fn is_usable(&self, index: u32) -> bool {
        self.indexes().contains(&index) && !matches!(index & 0xff, 0 | 0xff)
    }

    pub fn address4(&self, index: u32) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.v4.network().to_bits() | index)
    }

    pub fn prefix6(&self, index: u32) -> Ipv6Net {
        let bits = self.v6.network().to_bits() | (u128::from(index) << 64);
        Ipv6Net::new_assert(Ipv6Addr::from_bits(bits), 64)
    }

    /// Stands for the guest in the host's routes. No guest has this address: the host knows by heart whose it is, so
    /// nobody can claim it.
    pub fn next_hop6(index: u32) -> Ipv6Addr {
        Ipv6Addr::from_bits(ROUTER.to_bits() & (u128::MAX << 64) | 0xc0_0000_0000_0000 | u128::from(index) << 8)
    }

    /// The index of the guest that an address belongs to.
    pub fn index_of(&self, address: IpAddr) -> Option<u32> {
        let index = match address {
            IpAddr::V4(address) if self.v4.contains(&address) => address.to_bits() & self.v4.hostmask().to_bits(),
            // 16 bits are left of what the mask lets through.
            #[allow(clippy::cast_possible_truncation)]
            IpAddr::V6(address) if self.v6.contains(&address) => (address.to_bits() >> 64) as u32 & 0xffff,
            _ => return None,
        };
        self.is_usable(index).then_some(index)
    }
}

fn candidates() -> impl Iterator<Item = Ipv4Net> {
    let ten = (52..=251).map(|second| Ipv4Addr::new(10, second, 0, 0));
    let rest = (16..=31).map(|second| Ipv4Addr::new(172, second, 0, 0));
    ten.chain(rest).map(|address| Ipv4Net::new_assert(address, 16))
}

fn is_free(candidate: Ipv4Net, taken: &[Ipv4Net]) -> bool {
    // A default route covers everything and takes nothing.
    let real = taken.iter().filter(|net| net.prefix_len() > 0);
    !real.into_iter().any(|net| net.contains(&candidate) || candidate.contains(net))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choose(taken: &[&str]) -> Result<Subnet, SubnetError> {
        let taken: Vec<Ipv4Net> = taken.iter().map(|net| net.parse().unwrap()).collect();
        Subnet::choose(None, &taken, [1, 2, 3, 4, 5])
    }

    #[test]
    fn the_first_range_that_meets_no_route_is_chosen() {
        let table: [(&[&str], &str); 5] = [
            (&[], "10.52.0.0/16"),
            (&["0.0.0.0/0", "192.168.1.0/24"], "10.52.0.0/16"),
            (&["10.52.7.0/24"], "10.53.0.0/16"),
            (&["10.52.0.0/14"], "10.56.0.0/16"),
            (&["10.0.0.0/8"], "172.16.0.0/16"),
        ];
        for (taken, expected) in table {
            assert_eq!(choose(taken).unwrap().v4.to_string(), expected, "{taken:?}");
        }
        assert_eq!(choose(&["10.0.0.0/8", "172.16.0.0/12"]), Err(SubnetError::AllTaken));
    }

    #[test]
    fn a_configured_subnet_is_taken_as_it_is() {
        let chosen = Subnet::choose(Some("192.168.77.5/24".parse().unwrap()), &[], [0; 5]).unwrap();
        assert_eq!(chosen.v4.to_string(), "192.168.77.0/24");
        for wrong in ["10.0.0.0/8", "10.0.0.0/30", "127.0.0.0/16", "0.0.0.0/16", "224.1.0.0/24", "169.254.0.0/16"] {
            assert!(Subnet::choose(Some(wrong.parse().unwrap()), &[], [0; 5]).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_guest_has_an_address_and_a_prefix_that_lead_back_to_it() {
        let subnet = choose(&[]).unwrap();
        assert_eq!(subnet.gateway4().to_string(), "10.52.0.1");
        assert_eq!(subnet.gateway6().to_string(), "fd01:203:405::1");
        assert_eq!(subnet.address4(0x1234).to_string(), "10.52.18.52");
        assert_eq!(subnet.prefix6(0x1234).to_string(), "fd01:203:405:1234::/64");
        assert_eq!(subnet.index_of("10.52.18.52".parse().unwrap()), Some(0x1234));
        assert_eq!(subnet.index_of("fd01:203:405:1234:5054:ff:fe00:1".parse().unwrap()), Some(0x1234));
        assert_eq!(subnet.index_of("10.52.0.1".parse().unwrap()), None);
        assert_eq!(subnet.index_of("10.53.0.20".parse().unwrap()), None);
        assert_ne!(Subnet::next_hop6(10), Subnet::next_hop6(11));
    }

    #[test]
    fn addresses_that_look_like_broadcasts_are_not_given() {
        let subnet = choose(&[]).unwrap();
        for index in [0, 1, 9, 0x100, 0x1ff, 0xffff] {
            assert!(!subnet.is_usable(index), "{index:#x}");
        }
        assert!(subnet.is_usable(10) && subnet.is_usable(0xfffe));
    }
}
