//! The links of this host as they are, for people to look at.

use rtnetlink::packet_route::link::{InfoKind, LinkAttribute, LinkFlags, LinkInfo, LinkMessage, State};

use crate::error::NetError;
use crate::links::Links;
use crate::mac::Mac;

/// One link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkFacts {
    pub index: u32,
    pub name: String,
    /// As the kernel calls it: `bridge`, `bond`, `vlan`, `veth`, `tun`; `device` for a card.
    pub kind: String,
    pub mac: Option<Mac>,
    pub is_promiscuous: bool,
    /// Whether something is at the other end of the wire; `None` if the kernel cannot tell.
    pub is_up: Option<bool>,
    /// The index of the bridge or bond that it is part of.
    pub master: Option<u32>,
}

/// All links of this network namespace but the loopback one.
pub async fn list_links() -> Result<Vec<LinkFacts>, NetError> {
    let messages = Links::connect()?.messages().await?;
    let is_outside = |message: &&LinkMessage| !message.header.flags.contains(LinkFlags::Loopback);
    Ok(messages.iter().filter(is_outside).map(read).collect())
}

fn read(message: &LinkMessage) -> LinkFacts {
    let flags = message.header.flags;
    let mut facts = LinkFacts {
        index: message.header.index,
        name: String::new(),
        kind: "device".to_owned(),
        mac: None,
        is_promiscuous: flags.contains(LinkFlags::Promisc),
        is_up: None,
        master: None,
    };
    for attribute in &message.attributes {
        match attribute {
            LinkAttribute::IfName(name) => facts.name.clone_from(name),
            LinkAttribute::Address(bytes) => facts.mac = <[u8; 6]>::try_from(bytes.as_slice()).ok().map(Mac),
            LinkAttribute::Controller(index) => facts.master = Some(*index),
            LinkAttribute::OperState(State::Up) => facts.is_up = Some(true),
            LinkAttribute::OperState(State::Down | State::LowerLayerDown | State::NotPresent | State::Dormant) => {
                facts.is_up = Some(false);
            }
            LinkAttribute::LinkInfo(infos) => {
                let kind = infos.iter().find_map(|info| match info {
                    LinkInfo::Kind(kind) => Some(kind_name(kind)),
                    _ => None,
                });
                facts.kind = kind.unwrap_or(facts.kind);
            }
            _ => {}
        }
    }
    facts
}

fn kind_name(kind: &InfoKind) -> String {
    kind.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(flags: LinkFlags, attributes: Vec<LinkAttribute>) -> LinkMessage {
        let mut message = LinkMessage::default();
        message.header.index = 7;
        message.header.flags = flags;
        message.attributes = attributes;
        message
    }

    #[test]
    fn a_message_of_the_kernel_is_understood() {
        let port = message(
            LinkFlags::Up | LinkFlags::Promisc,
            vec![
                LinkAttribute::IfName("ens3".to_owned()),
                LinkAttribute::Address(vec![2, 0, 0, 0, 0, 1]),
                LinkAttribute::Controller(9),
                LinkAttribute::OperState(State::Up),
            ],
        );
        let expected = LinkFacts {
            index: 7,
            name: "ens3".to_owned(),
            kind: "device".to_owned(),
            mac: Some(Mac([2, 0, 0, 0, 0, 1])),
            is_promiscuous: true,
            is_up: Some(true),
            master: Some(9),
        };
        assert_eq!(read(&port), expected);
        for (kind, name) in [(InfoKind::Bridge, "bridge"), (InfoKind::Bond, "bond"), (InfoKind::Veth, "veth")] {
            let info = LinkAttribute::LinkInfo(vec![LinkInfo::Kind(kind)]);
            let link = message(LinkFlags::empty(), vec![info, LinkAttribute::OperState(State::Unknown)]);
            let facts = read(&link);
            assert_eq!((facts.kind.as_str(), facts.is_up, facts.master), (name, None, None));
        }
    }

    #[tokio::test]
    async fn the_kernel_answers() {
        let links = list_links().await.unwrap();
        assert!(links.iter().all(|link| link.name != "lo" && link.index > 0), "{links:?}");
    }
}
