//! The addresses and ports that a Service gets when it does not ask for certain ones.
//!
//! What is taken is read off the Services themselves, so that nothing can leak.

use std::collections::HashSet;
use std::net::Ipv4Addr;

use croft_meta::{ApiError, FieldError, FieldPath, object};
use serde_json::{Value, json};

use crate::call::Call;

/// Harvester's service network.
const NETWORK: [u8; 2] = [10, 53];
/// Addresses below this one in the network are for well-known services (`kubernetes` is .0.1).
const FIRST_DYNAMIC: u16 = 256;
const NODE_PORTS: std::ops::RangeInclusive<i64> = 30_000..=32_767;

/// The address of the `kubernetes` Service.
pub(crate) const KUBERNETES_IP: &str = "10.53.0.1";

/// What other Services hold.
#[derive(Debug, Default)]
struct Taken {
    ips: HashSet<String>,
    node_ports: HashSet<i64>,
}

impl Taken {
    fn read(call: &Call, but: Option<&Value>) -> Self {
        let mut taken = Self::default();
        let id = but.map(|service| crate::call::id(object::namespace(service), object::name(service)));
        for service in call.server.cache.collection("core/services").list("") {
            if id.as_deref() == Some(service.id()) {
                continue;
            }
            let service = service.json();
            let ip = service.pointer("/spec/clusterIP").and_then(Value::as_str).unwrap_or_default();
            taken.ips.insert(ip.to_owned());
            for port in ports(&service) {
                taken.node_ports.extend(port.get("nodePort").and_then(Value::as_i64));
            }
        }
        taken
    }
}

fn ports(service: &Value) -> impl Iterator<Item = &Value> {
    service.pointer("/spec/ports").and_then(Value::as_array).into_iter().flatten()
}

/// Gives a new Service its cluster address and node ports.
pub(crate) fn allocate(call: &Call, service: &mut Value) -> Result<(), ApiError> {
    if !needs_ip(service) {
        return Ok(());
    }
    let taken = Taken::read(call, None);
    allocate_ip(service, &taken)?;
    if may_have_node_ports(service) {
        allocate_node_ports(service, &taken)?;
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
    let taken = Taken::read(call, Some(old));
    if wants_ip {
        allocate_ip(service, &taken)?;
    }
    if wants_ports {
        allocate_node_ports(service, &taken)?;
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

/// One per port, 0 where there is none.
fn node_ports(service: &Value) -> Vec<i64> {
    ports(service).map(|port| port.get("nodePort").and_then(Value::as_i64).unwrap_or_default()).collect()
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
    let Ok(ip) = asked.parse::<Ipv4Addr>() else { return Ok(()) };
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

fn allocate_node_ports(service: &mut Value, taken: &Taken) -> Result<(), ApiError> {
    if service.pointer("/spec/allocateLoadBalancerNodePorts") == Some(&json!(false)) {
        return Ok(());
    }
    let mut used = taken.node_ports.clone();
    for (index, port) in node_ports(service).into_iter().enumerate().filter(|(_, port)| *port != 0) {
        let path = FieldPath::new("spec.ports").index(index).child("nodePort");
        if !NODE_PORTS.contains(&port) {
            let why = "provided port is not in the valid range. The range of valid ports is 30000-32767";
            return Err(invalid(service, FieldError::invalid(&path, port, why)));
        }
        if taken.node_ports.contains(&port) {
            return Err(invalid(service, FieldError::invalid(&path, port, "provided port is already allocated")));
        }
        used.insert(port);
    }
    let mut random = [0; 2];
    getrandom::fill(&mut random).map_err(ApiError::internal)?;
    let count = NODE_PORTS.end() - NODE_PORTS.start() + 1;
    let start = i64::from(u16::from_be_bytes(random)) % count;
    let mut free = (0..count).map(|step| NODE_PORTS.start() + (start + step) % count);
    let Some(list) = service.pointer_mut("/spec/ports").and_then(Value::as_array_mut) else { return Ok(()) };
    for port in list.iter_mut().filter(|p| p.get("nodePort").and_then(Value::as_i64).unwrap_or_default() == 0) {
        let Some(found) = free.find(|candidate| !used.contains(candidate)) else {
            return Err(ApiError::internal("failed to allocate a nodePort: range is full"));
        };
        used.insert(found);
        port["nodePort"] = json!(found);
    }
    Ok(())
}
