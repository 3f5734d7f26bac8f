//! The addresses and ports that a Service gets when it does not ask for certain ones.
//!
//! What is taken is read off the Services themselves, so that nothing can leak. It is read when a Service is admitted, and
//! once more by the write that takes something ([`Taking`]): of two who were given the same, the later has to look again.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr};

use croft_meta::{ApiError, FieldError, FieldPath, Revision, object};
use croft_store::{Compare, Op};
use serde_json::{Value, json};

use crate::admission::quota::booking::Booking;
use crate::cache::{Cache, store_error};
use crate::call::{Call, Target};
use crate::server::ApiServer;
use crate::write::Decision;

/// Harvester's service network.
const NETWORK: [u8; 2] = [10, 53];
/// Addresses below this one in the network are for well-known services (`kubernetes` is .0.1).
const FIRST_DYNAMIC: u16 = 256;
const NODE_PORTS: std::ops::RangeInclusive<i64> = 30_000..=32_767;

/// The address of the `kubernetes` Service.
pub(crate) const KUBERNETES_IP: &str = "10.53.0.1";

const SERVICES: &str = "core/services";
/// Written by whoever takes an address or a port. It says who was the last.
const CLAIMS: &str = "allocations/services";
const OVERTAKEN: &str = "addresses and ports of Services are being taken too often; try again";

/// Addresses and ports that Services hold.
#[derive(Debug, Default)]
struct Taken {
    ips: HashSet<String>,
    node_ports: HashSet<i64>,
}

impl Taken {
    /// By all but one, if that is named.
    fn read(cache: &Cache, but: Option<&str>) -> Self {
        let mut taken = Self::default();
        for service in cache.collection(SERVICES).list("") {
            if but != Some(service.id()) {
                taken.add(&service.json());
            }
        }
        taken
    }

    fn of(service: &Value) -> Self {
        let mut taken = Self::default();
        taken.add(service);
        taken
    }

    fn add(&mut self, service: &Value) {
        let ip = service.pointer("/spec/clusterIP").and_then(Value::as_str).unwrap_or_default();
        if !matches!(ip, "" | "None") {
            self.ips.insert(ip.to_owned());
        }
        self.node_ports.extend(node_ports(service).into_iter().filter(|port| *port != 0));
    }

    fn is_apart_from(&self, other: &Self) -> bool {
        self.ips.is_disjoint(&other.ips) && self.node_ports.is_disjoint(&other.node_ports)
    }
}

/// What a write of a Service takes that the Service did not have.
#[derive(Debug)]
pub(crate) struct Taking(Taken);

impl Taking {
    /// `None` if it takes nothing.
    pub(crate) fn of(target: &Target, decision: &Decision, old: Option<&Value>) -> Option<Self> {
        let Decision::Put(new) = decision else { return None };
        if target.storage_key() != SERVICES {
            return None;
        }
        let mut taken = Taken::of(new);
        if let Some(had) = old.map(Taken::of) {
            taken.ips.retain(|ip| !had.ips.contains(ip));
            taken.node_ports.retain(|port| !had.node_ports.contains(port));
        }
        (!taken.ips.is_empty() || !taken.node_ports.is_empty()).then_some(Self(taken))
    }

    /// What the transaction has to check and to write besides; `None` if somebody else has come to have some of it. To be
    /// called with the turn that is held until the write is seen.
    pub(crate) async fn claim(&self, server: &ApiServer, id: &str) -> Result<Option<Booking>, ApiError> {
        // Read before the Services: whoever takes something after that touches it.
        let known = server.store.get(CLAIMS).await.map_err(store_error)?;
        server.cache.fresh().await?;
        if !self.0.is_apart_from(&Taken::read(&server.cache, Some(id))) {
            return Ok(None);
        }
        let revision = known.map_or(Revision::ZERO, |record| record.revision);
        Ok(Some(Booking {
            compare: vec![Compare { key: CLAIMS.to_owned(), revision }],
            ops: vec![Op::Put { key: CLAIMS.to_owned(), value: id.to_owned().into(), lease: None }],
        }))
    }
}

/// Somebody else was given the same meanwhile, and was quicker: it is to be given out anew.
pub(crate) fn overtaken() -> ApiError {
    ApiError::too_many_requests(OVERTAKEN, 1)
}

pub(crate) fn is_overtaken(error: &ApiError) -> bool {
    error.message() == OVERTAKEN
}

fn ports(service: &Value) -> impl Iterator<Item = &Value> {
    service.pointer("/spec/ports").and_then(Value::as_array).into_iter().flatten()
}

fn ports_mut(service: &mut Value) -> impl Iterator<Item = &mut Value> {
    service.pointer_mut("/spec/ports").and_then(Value::as_array_mut).into_iter().flatten()
}

/// Gives a new Service its cluster address and node ports.
pub(crate) fn allocate(call: &Call, service: &mut Value) -> Result<(), ApiError> {
    if !needs_ip(service) {
        return Ok(());
    }
    let taken = Taken::read(&call.server.cache, None);
    allocate_ip(service, &taken)?;
    if may_have_node_ports(service) {
        allocate_node_ports(service, &taken, None)?;
    }
    Ok(())
}

/// Gives a changed Service what it has come to need: an address if it was a mere name, node ports for ports without.
pub(crate) fn allocate_changed(call: &Call, service: &mut Value, old: &Value) -> Result<(), ApiError> {
    let wants_ip = needs_ip(service) && !needs_ip(old);
    let wants_ports = may_have_node_ports(service) && node_ports(service) != node_ports(old);
    if !wants_ip && !wants_ports {
        return Ok(());
    }
    let id = crate::call::id(object::namespace(old), object::name(old));
    let taken = Taken::read(&call.server.cache, Some(&id));
    if wants_ip {
        allocate_ip(service, &taken)?;
    }
    if wants_ports {
        allocate_node_ports(service, &taken, Some(old))?;
    }
    Ok(())
}

fn kind(service: &Value) -> &str {
    service.pointer("/spec/type").and_then(Value::as_str).unwrap_or("ClusterIP")
}

fn needs_ip(service: &Value) -> bool {
    service.get("spec").is_some_and(Value::is_object) && kind(service) != "ExternalName"
}

fn may_have_node_ports(service: &Value) -> bool {
    matches!(kind(service), "NodePort" | "LoadBalancer")
}

/// 0 if it has none.
fn node_port(port: &Value) -> i64 {
    port.get("nodePort").and_then(Value::as_i64).unwrap_or_default()
}

/// One per port, 0 where there is none.
fn node_ports(service: &Value) -> Vec<i64> {
    ports(service).map(node_port).collect()
}

fn allocate_ip(service: &mut Value, taken: &Taken) -> Result<(), ApiError> {
    let wanted = service.pointer("/spec/clusterIP").and_then(Value::as_str).unwrap_or_default().to_owned();
    let ip = match wanted.as_str() {
        "None" => "None".to_owned(),
        "" => free_ip(taken)?,
        asked => {
            check_asked_ip(service, asked, taken)?;
            asked.to_owned()
        }
    };
    let spec = &mut service["spec"];
    spec["clusterIP"] = json!(ip);
    spec["clusterIPs"] = json!([ip]);
    // A headless service without a selector is for endpoints of any family.
    let is_open =
        ip == "None" && spec.get("selector").is_none_or(|s| s.as_object().is_none_or(serde_json::Map::is_empty));
    if is_open
        && spec.get("ipFamilyPolicy").is_none_or(Value::is_null)
        && spec.get("ipFamilies").is_none_or(Value::is_null)
    {
        spec["ipFamilies"] = json!(["IPv4", "IPv6"]);
        spec["ipFamilyPolicy"] = json!("RequireDualStack");
    }
    if spec.get("ipFamilies").is_none_or(Value::is_null) {
        spec["ipFamilies"] = json!(["IPv4"]);
    }
    if spec.get("ipFamilyPolicy").is_none_or(Value::is_null) {
        spec["ipFamilyPolicy"] = json!("SingleStack");
    }
    Ok(())
}

fn check_asked_ip(service: &Value, asked: &str, taken: &Taken) -> Result<(), ApiError> {
    let path = FieldPath::new("spec.clusterIPs");
    // Malformed addresses are the validation's to refuse.
    let Ok(ip) = asked.parse::<IpAddr>() else { return Ok(()) };
    let family = service.pointer("/spec/ipFamilies/0").and_then(Value::as_str);
    let ip = match (ip, family) {
        (IpAddr::V6(_), Some("IPv4")) | (IpAddr::V4(_), Some("IPv6")) => {
            let family = family.unwrap_or_default();
            let why = format!("expected an {family} value as indicated by `ipFamilies[0]`");
            return Err(invalid(service, FieldError::invalid(&path.index(0), asked, why)));
        }
        (IpAddr::V6(_), None) => {
            let why = "IPv6 is not configured on this cluster";
            return Err(invalid(service, FieldError::invalid(&path.index(0), json!([asked]), why)));
        }
        (IpAddr::V6(_), Some(family)) => {
            let path = FieldPath::new("spec.ipFamilies").index(0);
            return Err(invalid(service, FieldError::invalid(&path, family, "not configured on this cluster")));
        }
        (IpAddr::V4(ip), _) => ip,
    };
    let why = match ip {
        ip if ip.octets()[..2] != NETWORK => format!(
            "failed to allocate IP {asked}: the provided IP is not in the valid range. The range of valid IPs is {}.{}.0.0/16",
            NETWORK[0], NETWORK[1]
        ),
        _ if taken.ips.contains(asked) => {
            format!("failed to allocate IP {asked}: provided IP is already allocated")
        }
        _ => return Ok(()),
    };
    Err(invalid(service, FieldError::invalid(&path, json!([asked]), why)))
}

fn invalid(service: &Value, error: FieldError) -> ApiError {
    ApiError::invalid("", "Service", object::name(service), &vec![error])
}

/// A random start, then the next free one.
fn free_ip(taken: &Taken) -> Result<String, ApiError> {
    let mut random = [0; 2];
    getrandom::fill(&mut random).map_err(ApiError::internal)?;
    let start = u16::from_be_bytes(random);
    (0..=u16::MAX)
        .map(|step| start.wrapping_add(step))
        .filter(|host| *host >= FIRST_DYNAMIC && *host != u16::MAX)
        .map(|host| {
            let [high, low] = host.to_be_bytes();
            Ipv4Addr::new(NETWORK[0], NETWORK[1], high, low).to_string()
        })
        .find(|ip| !taken.ips.contains(ip))
        .ok_or_else(|| ApiError::internal("failed to allocate a serviceIP: range is full"))
}

/// Checks the node ports that are asked for, beyond those that it held, and gives one to each port that is to have one.
fn allocate_node_ports(service: &mut Value, taken: &Taken, old: Option<&Value>) -> Result<(), ApiError> {
    let held = old.map(node_ports).unwrap_or_default();
    let mut used = taken.node_ports.clone();
    for (index, port) in node_ports(service).into_iter().enumerate().filter(|(_, port)| *port != 0) {
        let path = FieldPath::new("spec.ports").index(index).child("nodePort");
        if !NODE_PORTS.contains(&port) && !held.contains(&port) {
            let why = "provided port is not in the valid range. The range of valid ports is 30000-32767";
            return Err(invalid(service, FieldError::invalid(&path, port, why)));
        }
        if taken.node_ports.contains(&port) {
            return Err(invalid(service, FieldError::invalid(&path, port, "provided port is already allocated")));
        }
        used.insert(port);
    }
    // Then none is made up; those that are asked for are taken like any other.
    if service.pointer("/spec/allocateLoadBalancerNodePorts") == Some(&json!(false)) {
        return Ok(());
    }
    let mut random = [0; 2];
    getrandom::fill(&mut random).map_err(ApiError::internal)?;
    let count = NODE_PORTS.end() - NODE_PORTS.start() + 1;
    let start = i64::from(u16::from_be_bytes(random)) % count;
    let mut free = (0..count).map(|step| NODE_PORTS.start() + (start + step) % count);
    let mut given: Vec<Value> = ports(service).filter(|port| node_port(port) != 0).cloned().collect();
    for port in ports_mut(service).filter(|port| node_port(port) == 0) {
        // Upstream has the protocols of one port share a node port in a new Service, and not in a changed one.
        let is_twin = |other: &&Value| other["port"] == port["port"] && other["protocol"] != port["protocol"];
        let shared = given.iter().find(is_twin).filter(|_| old.is_none()).map(node_port);
        let Some(found) = shared.or_else(|| free.find(|candidate| !used.contains(candidate))) else {
            return Err(ApiError::internal("failed to allocate a nodePort: range is full"));
        };
        used.insert(found);
        port["nodePort"] = json!(found);
        given.push(port.clone());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use futures::future::join_all;
    use serde_json::{Value, json};

    use crate::testing::TestServer;

    const SERVICES: &str = "/api/v1/namespaces/default/services";

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_two_ask_for_at_once_only_one_gets() {
        let server = TestServer::start().await;
        let wanting = |name: String, ip: String, port: u16| {
            json!({"metadata": {"name": name},
                "spec": {"type": "NodePort", "clusterIP": ip, "ports": [{"port": 80, "nodePort": port}]}})
        };
        for round in 0..5_u16 {
            let one_of = |index: u16| round * 8 + index;
            let same_port = |index: u16| {
                let name = format!("port-{}", one_of(index));
                wanting(name, format!("10.53.77.{}", one_of(index)), 30_100 + round)
            };
            let same_ip = |index: u16| {
                let name = format!("ip-{}", one_of(index));
                wanting(name, format!("10.53.78.{round}"), 31_000 + one_of(index))
            };
            let at_once = [(0..8).map(same_port).collect::<Vec<_>>(), (0..8).map(same_ip).collect()];
            for services in &at_once {
                let answers = join_all(services.iter().map(|service| server.send("POST", SERVICES, service))).await;
                assert_eq!(answers.iter().filter(|(code, _)| *code == 201).count(), 1, "{answers:?}");
                let is_told =
                    |(code, why): &&(u16, Value)| *code == 422 && why.to_string().contains("already allocated");
                assert_eq!(answers.iter().filter(is_told).count(), 7, "{answers:?}");
            }
        }
        // Changes take too.
        for name in ["a", "b", "c", "d"] {
            server.post(SERVICES, &json!({"metadata": {"name": name}, "spec": {"ports": [{"port": 80}]}})).await;
        }
        let patch = json!({"spec": {"type": "NodePort", "ports": [{"port": 80, "nodePort": 32_000}]}});
        let paths = ["a", "b", "c", "d"].map(|name| format!("{SERVICES}/{name}"));
        let answers = join_all(paths.iter().map(|path| server.send("PATCH", path, &patch))).await;
        assert_eq!(answers.iter().filter(|(code, _)| *code == 200).count(), 1, "{answers:?}");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn node_ports_are_checked_where_none_are_made_up_and_shared_by_protocols() {
        let server = TestServer::start().await;
        let balancer = |name: &str, node_port: i64| {
            json!({"metadata": {"name": name}, "spec": {"type": "LoadBalancer", "allocateLoadBalancerNodePorts": false,
                "ports": [{"name": "a", "port": 80, "nodePort": node_port}, {"name": "b", "port": 81}]}})
        };
        let made = server.post(SERVICES, &balancer("first", 30_500)).await;
        assert_eq!(made["spec"]["ports"][1].get("nodePort"), None, "{made}");
        let refusals = [
            (22, "not in the valid range"),
            (-1, "valid range"),
            (70_000, "valid range"),
            (30_500, "already allocated"),
        ];
        for (port, why) in refusals {
            let (code, status) = server.send("POST", SERVICES, &balancer("second", port)).await;
            assert!(code == 422 && status.to_string().contains(why), "{status}");
            let change = json!({"spec": {"ports": [{"port": 80, "nodePort": port}]}});
            server.post(SERVICES, &balancer("second", 30_600)).await;
            let (code, status) = server.send("PATCH", &format!("{SERVICES}/second"), &change).await;
            assert!(code == 422 && status.to_string().contains(why), "{status}");
            server.send("DELETE", &format!("{SERVICES}/second"), &Value::Null).await;
        }
        let port = |name: &str, protocol: &str, port: u16| json!({"name": name, "protocol": protocol, "port": port});
        let ports = [port("web", "TCP", 80), port("dns", "TCP", 53), port("dns-udp", "UDP", 53)];
        let dns = json!({"metadata": {"name": "dns"}, "spec": {"type": "NodePort", "ports": ports}});
        let dns = server.post(SERVICES, &dns).await;
        let [web, tcp, udp] = [0, 1, 2].map(|index| &dns["spec"]["ports"][index]["nodePort"]);
        assert!(tcp == udp && web != tcp, "{dns}");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn addresses_are_of_the_family_of_the_network() {
        let server = TestServer::start().await;
        for (ip, families, why) in [
            (
                "fd00::1",
                json!(["IPv4"]),
                "spec.clusterIPs[0]: Invalid value: \"fd00::1\": expected an IPv4 value as indicated by `ipFamilies[0]`",
            ),
            ("10.53.3.1", json!(["IPv6"]), "expected an IPv6 value as indicated by `ipFamilies[0]`"),
            ("fd00::1", json!(["IPv6"]), "spec.ipFamilies[0]: Invalid value: \"IPv6\": not configured on this cluster"),
            ("fd00::1", json!(null), "IPv6 is not configured on this cluster"),
        ] {
            let spec = json!({"clusterIP": ip, "ipFamilies": families, "ports": [{"port": 80}]});
            let service = json!({"metadata": {"name": "six"}, "spec": spec});
            let (code, status) = server.send("POST", SERVICES, &service).await;
            let message = status["message"].as_str().unwrap_or_default();
            assert!(code == 422 && message.contains(why), "{message}");
        }
    }
}
