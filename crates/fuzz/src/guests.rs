//! What guests send: packets to our DHCP and DNS, to their neighbours, and the answers of their agent.

use std::net::IpAddr;

use croft_net::fuzzing as net;
use croft_qemu::qga::answers::{ExecStatus, Filesystem, Interface, OsInfo, User};
use serde_json::Value;

/// An answer is a packet of one IP header and one message.
pub(crate) fn dhcp(data: &[u8]) {
    if let Some(packet) = net::dhcp(data) {
        assert_eq!(packet.first(), Some(&0x45));
        let length = packet.get(2..4).map(|length| usize::from(u16::from_be_bytes([length[0], length[1]])));
        assert_eq!(length, Some(packet.len()));
    }
}

/// An answer is not a question: two resolvers cannot keep each other busy.
pub(crate) fn dns(data: &[u8]) {
    if let Some(answer) = net::dns(data) {
        assert!(answer.get(2).is_some_and(|flags| flags & 0x80 != 0));
        assert_eq!(net::dns(&answer), None, "an answer is answered");
    }
}

/// Nobody claims an address that is nobody's.
pub(crate) fn neighbours(data: &[u8]) {
    let Some((mac, packet)) = data.split_first_chunk::<6>() else { return };
    match net::claimed(packet, *mac) {
        Some(IpAddr::V4(address)) => assert!(!address.is_unspecified() && !address.is_loopback()),
        Some(IpAddr::V6(address)) => assert!(!address.is_unspecified() && !address.is_multicast()),
        None => {}
    }
}

pub(crate) fn guest_agent(data: &[u8]) {
    let Ok(answer) = serde_json::from_slice::<Value>(data) else { return };
    let value = || answer["return"].clone();
    let _ = serde_json::from_value::<OsInfo>(value());
    let _ = serde_json::from_value::<Vec<Interface>>(value());
    let _ = serde_json::from_value::<Vec<User>>(value());
    let _ = serde_json::from_value::<Vec<Filesystem>>(value());
    let _ = serde_json::from_value::<ExecStatus>(value());
}
