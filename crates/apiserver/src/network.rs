//! Who stands behind an address.

use std::net::{IpAddr, Ipv6Addr};

/// The part of an IPv6 address that somebody is given as a whole.
const NETWORK: u128 = !0 << 64;

/// What is one and the same for everybody whom the address may belong to.
pub(crate) fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & NETWORK).into(),
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_has_a_network_has_one_address() {
        for (address, expected) in [
            ("192.0.2.1", "192.0.2.1"),
            ("::ffff:192.0.2.1", "192.0.2.1"),
            ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
            ("::1", "::"),
        ] {
            assert_eq!(network(address.parse().unwrap()).to_string(), expected, "{address}");
        }
    }
}
