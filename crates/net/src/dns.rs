//! DNS for guests: the names of machines are answered here, everything else is asked of the host's resolvers.
//!
//! Under the zone `croft.internal` a machine is `<vm>.<namespace>.vm.croft.internal`. A guest may also say
//! `<vm>.<namespace>`, and `<vm>` for its neighbours in its own namespace. `host.croft.internal` is the host itself.

mod forward;
mod serve;

use std::net::IpAddr;

use hickory_proto::op::{Message, MessageType, OpCode, ResponseCode};
use hickory_proto::rr::rdata::{A, AAAA, PTR, SOA};
use hickory_proto::rr::{DNSClass, Name, RData, Record, RecordType};

pub(crate) use self::forward::{Resolvers, accept};
pub(crate) use self::serve::Server;

pub(crate) const ZONE: &str = "croft.internal";
pub(crate) const MACHINES: &str = "vm.croft.internal";
/// Machines come and go.
const TTL_SECONDS: u32 = 5;

/// Who there is.
pub(crate) trait Directory: Send + Sync + 'static {
    /// The namespace of the guest that asks from an address.
    fn namespace_of(&self, address: IpAddr) -> Option<String>;
    /// The addresses of a machine; `None` if there is no such machine.
    fn addresses(&self, namespace: &str, name: &str) -> Option<Vec<IpAddr>>;
    /// Whose an address is: name and namespace. `Err` if it is not of the default network at all.
    fn owner(&self, address: IpAddr) -> Result<Option<(String, String)>, NotOurs>;
    /// The host's own addresses on the default network.
    fn host(&self) -> Vec<IpAddr>;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NotOurs;

/// What becomes of a question.
#[derive(Debug, PartialEq)]
pub(crate) enum Verdict {
    Answer(Message),
    /// For the host's resolvers.
    Forward,
    /// Not even a question.
    Ignore,
}

/// The domains in which a guest of a namespace looks for names.
pub(crate) fn search_domains(namespace: &str) -> Vec<String> {
    vec![format!("{namespace}.{MACHINES}"), MACHINES.to_owned()]
}

pub(crate) fn answer(query: &Message, from: IpAddr, directory: &dyn Directory) -> Verdict {
    if query.metadata.message_type != MessageType::Query {
        return Verdict::Ignore;
    }
    let mut reply = Message::response(query.metadata.id, query.metadata.op_code);
    reply.metadata.recursion_desired = query.metadata.recursion_desired;
    reply.metadata.recursion_available = true;
    let [question] = &query.queries[..] else {
        reply.metadata.response_code = ResponseCode::FormErr;
        return Verdict::Answer(reply);
    };
    reply.add_query(question.clone());
    if query.metadata.op_code != OpCode::Query {
        reply.metadata.response_code = ResponseCode::NotImp;
        return Verdict::Answer(reply);
    }
    if question.query_class() != DNSClass::IN {
        return Verdict::Forward;
    }
    let Some(found) = look_up(question.name(), from, directory) else { return Verdict::Forward };
    reply.metadata.authoritative = true;
    let Found { is_name, data } = found;
    if !is_name {
        reply.metadata.response_code = ResponseCode::NXDomain;
    }
    let kind = question.query_type();
    for data in data.into_iter().filter(|data| kind == RecordType::ANY || data.record_type() == kind) {
        reply.add_answer(Record::from_rdata(question.name().clone(), TTL_SECONDS, data));
    }
    if reply.answers.is_empty() {
        reply.authorities.extend(authority());
    }
    Verdict::Answer(reply)
}

struct Found {
    is_name: bool,
    data: Vec<RData>,
}

/// What is known of a name; `None` if it is not ours to know.
fn look_up(name: &Name, from: IpAddr, directory: &dyn Directory) -> Option<Found> {
    let text = name.to_ascii().trim_end_matches('.').to_ascii_lowercase();
    if text.rsplit('.').next() == Some("arpa") {
        return reverse(name, directory);
    }
    let of_machine = |namespace: &str, vm: &str| directory.addresses(namespace, vm).map(known);
    let labels: Vec<&str> = text.split('.').collect();
    if text == ZONE || text == MACHINES {
        return Some(Found { is_name: true, data: Vec::new() });
    }
    if text.strip_suffix(ZONE).is_some_and(|rest| rest.ends_with('.')) {
        let found = match labels[..] {
            ["host", _, _] => Some(known(directory.host())),
            [vm, namespace, "vm", _, _] => of_machine(namespace, vm),
            _ => None,
        };
        return Some(found.unwrap_or(Found { is_name: false, data: Vec::new() }));
    }
    // Beyond our zone only what there is: the rest may be somebody else's.
    match labels[..] {
        [vm] => of_machine(&directory.namespace_of(from)?, vm),
        [vm, namespace] => of_machine(namespace, vm),
        _ => None,
    }
}

fn known(addresses: Vec<IpAddr>) -> Found {
    let data = |address| match address {
        IpAddr::V4(address) => RData::A(A(address)),
        IpAddr::V6(address) => RData::AAAA(AAAA(address)),
    };
    Found { is_name: true, data: addresses.into_iter().map(data).collect() }
}

fn reverse(name: &Name, directory: &dyn Directory) -> Option<Found> {
    let net = name.parse_arpa_name().ok()?;
    if net.prefix_len() != net.max_prefix_len() {
        return None;
    }
    let owner = directory.owner(net.addr()).ok()?;
    let target = owner.and_then(|(vm, namespace)| Name::from_ascii(format!("{vm}.{namespace}.{MACHINES}.")).ok());
    Some(match target {
        Some(target) => Found { is_name: true, data: vec![RData::PTR(PTR(target))] },
        None => Found { is_name: false, data: Vec::new() },
    })
}

/// Tells resolvers how long a name stays unknown (RFC 2308).
fn authority() -> Option<Record> {
    let zone = Name::from_ascii(format!("{ZONE}.")).ok()?;
    let host = Name::from_ascii(format!("host.{ZONE}.")).ok()?;
    let contact = Name::from_ascii(format!("hostmaster.{ZONE}.")).ok()?;
    let soa = SOA::new(host, contact, 1, 3600, 600, 86400, TTL_SECONDS);
    Some(Record::from_rdata(zone, TTL_SECONDS, RData::SOA(soa)))
}

#[cfg(test)]
mod tests {
    use std::str::FromStr as _;

    use hickory_proto::op::Query;

    use super::*;

    struct Machines;

    impl Directory for Machines {
        fn namespace_of(&self, address: IpAddr) -> Option<String> {
            (address == IpAddr::from([10, 52, 0, 20])).then(|| "default".to_owned())
        }

        fn addresses(&self, namespace: &str, name: &str) -> Option<Vec<IpAddr>> {
            match (namespace, name) {
                ("default", "web") => Some(vec![IpAddr::from([10, 52, 0, 21]), "fd00::21".parse().unwrap()]),
                ("prod", "web") => Some(vec![IpAddr::from([10, 52, 0, 22])]),
                _ => None,
            }
        }

        fn owner(&self, address: IpAddr) -> Result<Option<(String, String)>, NotOurs> {
            match address {
                IpAddr::V4(v4) if v4.octets() == [10, 52, 0, 21] => Ok(Some(("web".into(), "default".into()))),
                IpAddr::V4(v4) if v4.octets()[..2] == [10, 52] => Ok(None),
                _ => Err(NotOurs),
            }
        }

        fn host(&self) -> Vec<IpAddr> {
            vec![IpAddr::from([10, 52, 0, 1])]
        }
    }

    fn ask(name: &str, kind: RecordType) -> Result<Vec<String>, ResponseCode> {
        let mut query = Message::query();
        query.add_query(Query::query(Name::from_str(name).unwrap(), kind));
        match answer(&query, IpAddr::from([10, 52, 0, 20]), &Machines) {
            Verdict::Answer(reply) if reply.metadata.response_code == ResponseCode::NoError => {
                // What is written can be read.
                let reply = Message::from_vec(&reply.to_vec().unwrap()).unwrap();
                Ok(reply.answers.iter().map(|record| record.data.to_string()).collect())
            }
            Verdict::Answer(reply) => Err(reply.metadata.response_code),
            Verdict::Forward => Err(ResponseCode::Refused),
            Verdict::Ignore => Err(ResponseCode::BADSIG),
        }
    }

    #[test]
    fn machines_have_names() {
        let table: [(&str, RecordType, &[&str]); 9] = [
            ("web.default.vm.croft.internal.", RecordType::A, &["10.52.0.21"]),
            ("WEB.Default.vm.croft.internal.", RecordType::AAAA, &["fd00::21"]),
            ("web.prod.vm.croft.internal.", RecordType::AAAA, &[]),
            ("web.prod.", RecordType::A, &["10.52.0.22"]),
            ("web.", RecordType::A, &["10.52.0.21"]),
            ("web.", RecordType::TXT, &[]),
            ("host.croft.internal.", RecordType::A, &["10.52.0.1"]),
            ("croft.internal.", RecordType::A, &[]),
            ("21.0.52.10.in-addr.arpa.", RecordType::PTR, &["web.default.vm.croft.internal."]),
        ];
        for (name, kind, expected) in table {
            let expected: Vec<String> = expected.iter().map(|&text| text.to_owned()).collect();
            assert_eq!(ask(name, kind), Ok(expected), "{name} {kind}");
        }
    }

    #[test]
    fn what_is_ours_and_absent_does_not_exist_and_the_rest_is_forwarded() {
        for name in ["db.default.vm.croft.internal.", "x.croft.internal.", "99.0.52.10.in-addr.arpa."] {
            assert_eq!(ask(name, RecordType::A), Err(ResponseCode::NXDomain), "{name}");
        }
        for name in ["db.", "web.example.", "example.org.", "xcroft.internal.", "1.2.0.192.in-addr.arpa.", "."] {
            assert_eq!(ask(name, RecordType::A), Err(ResponseCode::Refused), "{name}");
        }
    }

    #[test]
    fn messages_that_are_no_questions_do_not_loop() {
        let mut reply = Message::query();
        reply.metadata.message_type = MessageType::Response;
        assert_eq!(answer(&reply, IpAddr::from([10, 52, 0, 20]), &Machines), Verdict::Ignore);
        let empty = answer(&Message::query(), IpAddr::from([10, 52, 0, 20]), &Machines);
        assert!(matches!(empty, Verdict::Answer(reply) if reply.metadata.response_code == ResponseCode::FormErr));
    }
}
