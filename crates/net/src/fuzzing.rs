//! The readers of what guests send, for `croft-fuzz` alone: nothing else may use them.

use std::net::{IpAddr, Ipv4Addr};

use dhcproto::{Decodable as _, Decoder, Encodable as _};
use hickory_proto::op::{Message, MessageType};

use crate::dns::{Directory, NotOurs, Verdict};
use crate::{Mac, Told, dhcp, dns, packet, snoop};

/// A DHCP message: the bytes of the answer, if there is one.
pub fn dhcp(data: &[u8]) -> Option<Vec<u8>> {
    let request = dhcproto::v4::Message::decode(&mut Decoder::new(data)).ok()?;
    dhcp::client(&request)?;
    let offer = dhcp::Offer {
        address: Ipv4Addr::new(10, 52, 0, 21),
        mask: Ipv4Addr::new(255, 255, 0, 0),
        gateway: Ipv4Addr::new(10, 52, 0, 1),
        hostname: "web".to_owned(),
        domains: dns::search_domains("default"),
        mtu: 1500,
        told: Told::default(),
    };
    let reply = dhcp::answer(&request, &offer)?;
    assert_eq!(reply.message.xid(), request.xid());
    let bytes = reply.message.to_vec().ok()?;
    let again = dhcproto::v4::Message::decode(&mut Decoder::new(&bytes)).ok()?;
    assert_eq!(again.opts().msg_type(), Some(reply.kind));
    packet::udp4((offer.gateway, 67), (*reply.to.ip(), reply.to.port()), &bytes)
}

struct Machines;

impl Directory for Machines {
    fn namespace_of(&self, _: IpAddr) -> Option<String> {
        Some("default".to_owned())
    }

    fn addresses(&self, namespace: &str, name: &str) -> Option<Vec<IpAddr>> {
        (namespace == "default" && name == "web").then(|| vec![IpAddr::from([10, 52, 0, 21])])
    }

    fn owner(&self, address: IpAddr) -> Result<Option<(String, String)>, NotOurs> {
        if address.is_ipv4() { Ok(Some(("web".to_owned(), "default".to_owned()))) } else { Err(NotOurs) }
    }

    fn host(&self) -> Vec<IpAddr> {
        vec![IpAddr::from([10, 52, 0, 1])]
    }
}

/// A question to the resolver: the bytes of the answer, if it is ours.
pub fn dns(data: &[u8]) -> Option<Vec<u8>> {
    let query = Message::from_vec(data).ok()?;
    match dns::answer(&query, IpAddr::from([10, 52, 0, 20]), &Machines) {
        Verdict::Answer(reply) => {
            assert_eq!((reply.metadata.id, reply.metadata.message_type), (query.metadata.id, MessageType::Response));
            reply.to_vec().ok()
        }
        Verdict::Forward | Verdict::Ignore => None,
    }
}

/// What a guest gets of what a resolver answers to its question.
pub fn resolved(question: &[u8], answer: &[u8]) -> Option<Vec<u8>> {
    // Passed on with another number, as every question is.
    let mut asked = question.to_vec();
    asked.get_mut(..2)?.iter_mut().for_each(|byte| *byte ^= 0x5a);
    dns::accept(answer, &asked, question)
}

/// The address that a packet claims for its sender.
pub fn claimed(packet: &[u8], mac: [u8; 6]) -> Option<IpAddr> {
    snoop::claimed(packet, Mac(mac))
}
