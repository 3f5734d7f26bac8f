//! What one guest may do, as elements of the sets that the rules speak of. Pure.

use std::net::Ipv6Addr;

use crate::nic::{Attachment, Nic, Port, Protocol};
use crate::subnet::Subnet;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Set {
    Macs,
    Addresses4,
    Prefixes6,
    Limited4,
    Open4,
    Limited6,
    Open6,
    HostPorts,
}

pub(crate) const SETS: [Set; 8] =
    [Set::Macs, Set::Addresses4, Set::Prefixes6, Set::Limited4, Set::Open4, Set::Limited6, Set::Open6, Set::HostPorts];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    Any,
    Inet,
    Bridge,
}

impl Set {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Set::Macs => "macs",
            Set::Addresses4 => "addresses4",
            Set::Prefixes6 => "prefixes6",
            Set::Limited4 => "limited4",
            Set::Open4 => "open4",
            Set::Limited6 => "limited6",
            Set::Open6 => "open6",
            Set::HostPorts => "host_ports",
        }
    }

    pub(crate) fn family(self) -> Family {
        match self {
            Set::Macs | Set::Addresses4 | Set::Prefixes6 => Family::Bridge,
            _ => Family::Inet,
        }
    }
}

/// A key, for sets of ranges its end, for maps its value: as the kernel compares them, each part filled up to 4 bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Element {
    pub(crate) set: Set,
    pub(crate) key: Vec<u8>,
    pub(crate) key_end: Option<Vec<u8>>,
    pub(crate) value: Option<Vec<u8>>,
}

/// All elements of one interface. `index` is its number on the default network, if it is there.
pub(crate) fn of(nic: &Nic, tap: &str, index: Option<u32>, subnet: &Subnet) -> Vec<Element> {
    let tap = interface(tap);
    let mac = Element::new(Set::Macs, &[&tap, &nic.mac.0]);
    let (Some(index), Attachment::Nat { ports, host_ports }) = (index, &nic.attachment) else {
        let checked = matches!(nic.attachment, Attachment::Bridge { checks_mac: true, .. });
        return if checked { vec![mac] } else { Vec::new() };
    };
    let address = subnet.address4(index).octets();
    let prefix = subnet.prefix6(index);
    let (first, last) = (prefix.network(), prefix.broadcast());
    let range = |set, before: &[&[u8]], after: &[&[u8]]| Element::range(set, before, first, last, after);
    let mut elements = vec![mac, Element::new(Set::Addresses4, &[&tap, &address]), range(Set::Prefixes6, &[&tap], &[])];
    if !ports.is_empty() {
        for protocol in [Protocol::Tcp, Protocol::Udp, Protocol::Sctp] {
            elements.push(Element::new(Set::Limited4, &[&address, &[protocol.number()]]));
            elements.push(range(Set::Limited6, &[], &[&[protocol.number()]]));
        }
    }
    for Port { protocol, port } in ports {
        let (protocol, port) = ([protocol.number()], port.to_be_bytes());
        elements.push(Element::new(Set::Open4, &[&address, &protocol, &port]));
        elements.push(range(Set::Open6, &[], &[&protocol, &port]));
    }
    for forward in host_ports {
        let mut element =
            Element::new(Set::HostPorts, &[&[forward.protocol.number()], &forward.host_port.to_be_bytes()]);
        element.value = Some(concatenate(&[&address, &forward.guest_port.to_be_bytes()]));
        elements.push(element);
    }
    elements
}

impl Element {
    fn new(set: Set, parts: &[&[u8]]) -> Element {
        Element { set, key: concatenate(parts), key_end: None, value: None }
    }

    fn range(set: Set, before: &[&[u8]], first: Ipv6Addr, last: Ipv6Addr, after: &[&[u8]]) -> Element {
        let key = |address: Ipv6Addr| concatenate(&[before, &[&address.octets()], after].concat());
        Element { set, key: key(first), key_end: Some(key(last)), value: None }
    }
}

/// The kernel compares names of interfaces as 16 bytes.
fn interface(name: &str) -> [u8; 16] {
    let mut bytes = [0; 16];
    for (to, from) in bytes.iter_mut().zip(name.bytes().take(15)) {
        *to = from;
    }
    bytes
}

fn concatenate(parts: &[&[u8]]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for part in parts {
        bytes.extend_from_slice(part);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Mac;
    use crate::nic::HostPort;

    fn nic(attachment: Attachment) -> Nic {
        Nic {
            vmi_uid: "u".into(),
            namespace: "default".into(),
            vm_name: "a".into(),
            hostname: "a".into(),
            name: "default".into(),
            mac: Mac([2, 0, 0, 0, 0, 1]),
            attachment,
            queues: 1,
            told: crate::Told::default(),
        }
    }

    #[test]
    fn elements_have_the_bytes_that_nft_would_send() {
        let subnet = Subnet { v4: "10.52.0.0/16".parse().unwrap(), v6: "fd00:1:2::/48".parse().unwrap() };
        let ports = vec![Port { protocol: Protocol::Tcp, port: 80 }];
        let host_ports = vec![HostPort { protocol: Protocol::Tcp, host_port: 81, guest_port: 8080 }];
        let elements = of(&nic(Attachment::Nat { ports, host_ports }), "ct2", Some(4), &subnet);
        let get = |set| elements.iter().find(|element| element.set == set).unwrap();
        assert_eq!(get(Set::Macs).key, b"ct2\0\0\0\0\0\0\0\0\0\0\0\0\0\x02\0\0\0\0\x01\0\0");
        assert_eq!(get(Set::Addresses4).key, b"ct2\0\0\0\0\0\0\0\0\0\0\0\0\0\x0a\x34\0\x04");
        assert_eq!(get(Set::Open6).key, b"\xfd\0\0\x01\0\x02\0\x04\0\0\0\0\0\0\0\0\x06\0\0\0\0\x50\0\0");
        let end = get(Set::Open6).key_end.as_ref().unwrap();
        assert_eq!(end, b"\xfd\0\0\x01\0\x02\0\x04\xff\xff\xff\xff\xff\xff\xff\xff\x06\0\0\0\0\x50\0\0");
        assert_eq!(get(Set::HostPorts).key, b"\x06\0\0\0\0\x51\0\0");
        assert_eq!(get(Set::HostPorts).value.as_ref().unwrap(), b"\x0a\x34\0\x04\x1f\x90\0\0");
    }

    #[test]
    fn an_open_guest_has_no_limits_and_a_bridged_one_only_what_it_asked_for() {
        let subnet = Subnet { v4: "10.52.0.0/16".parse().unwrap(), v6: "fd00:1:2::/48".parse().unwrap() };
        let open = of(&nic(Attachment::Nat { ports: vec![], host_ports: vec![] }), "ct2", Some(4), &subnet);
        assert_eq!(
            open.iter().map(|element| element.set).collect::<Vec<_>>(),
            [Set::Macs, Set::Addresses4, Set::Prefixes6]
        );
        for (checks_mac, count) in [(true, 1), (false, 0)] {
            let bridge = Attachment::Bridge { bridge: "br0".into(), vlan: None, checks_mac, mtu: None };
            assert_eq!(of(&nic(bridge), "cm2", None, &subnet).len(), count);
        }
    }
}
