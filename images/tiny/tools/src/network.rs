//! Network configuration: cloud-init's versions 1 and 2 and OpenStack's `network_data.json`, for one interface at a time.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::net::IpAddr;

use serde_json::Value;

use crate::seed::{text, texts};
use crate::{execute, report};

#[derive(Debug, Default, PartialEq)]
pub struct Interface {
    /// The name that other interfaces know it by; the system's, unless it is found by its address.
    pub id: String,
    pub mac: Option<String>,
    pub rename: Option<String>,
    pub mtu: Option<String>,
    pub dhcp: bool,
    pub addresses: Vec<String>,
    /// Destination and gateway.
    pub routes: Vec<(String, String)>,
    pub servers: Vec<String>,
    pub search: Vec<String>,
    /// For a VLAN: the interface below, and its number.
    pub vlan: Option<(String, String)>,
}

/// All interfaces that a configuration describes, and what in it cannot be done here.
pub fn parse(config: &Value) -> (Vec<Interface>, Vec<String>) {
    let config = config.get("network").unwrap_or(config);
    if config.get("links").is_some() {
        return openstack(config);
    }
    match config.get("version").and_then(text).as_deref() {
        Some("1") => version_1(config),
        Some("2") => version_2(config),
        Some(other) => (Vec::new(), vec![format!("version {other}")]),
        None => (Vec::new(), Vec::new()),
    }
}

fn items(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn is_true(value: Option<&Value>) -> bool {
    value.and_then(text).is_some_and(|text| matches!(text.as_str(), "true" | "yes" | "on" | "True"))
}

fn field(value: &Value, name: &str) -> Option<String> {
    value.get(name).and_then(text)
}

fn version_2(config: &Value) -> (Vec<Interface>, Vec<String>) {
    let mut found = Vec::new();
    let mut unknown = Vec::new();
    for (kind, members) in config.as_object().into_iter().flatten() {
        let is_vlan = kind == "vlans";
        if !is_vlan && kind != "ethernets" {
            if !matches!(kind.as_str(), "version" | "renderer") {
                unknown.push(kind.clone());
            }
            continue;
        }
        for (id, spec) in members.as_object().into_iter().flatten() {
            let matches = spec.get("match").unwrap_or(&Value::Null);
            let mut interface = Interface {
                id: field(matches, "name").unwrap_or_else(|| id.clone()),
                mac: field(matches, "macaddress"),
                rename: field(spec, "set-name"),
                mtu: field(spec, "mtu"),
                dhcp: is_true(spec.get("dhcp4")),
                addresses: texts(spec.get("addresses")),
                ..Interface::default()
            };
            if is_vlan {
                interface.vlan = field(spec, "link").zip(field(spec, "id"));
            }
            for gateway in ["gateway4", "gateway6"].iter().filter_map(|name| field(spec, name)) {
                interface.routes.push(("default".to_owned(), gateway));
            }
            interface.routes.extend(
                items(spec.get("routes")).iter().filter_map(|route| field(route, "to").zip(field(route, "via"))),
            );
            if let Some(names) = spec.get("nameservers") {
                interface.servers = texts(names.get("addresses"));
                interface.search = texts(names.get("search"));
            }
            found.push(interface);
        }
    }
    (found, unknown)
}

fn version_1(config: &Value) -> (Vec<Interface>, Vec<String>) {
    let mut found: Vec<Interface> = Vec::new();
    let mut unknown = Vec::new();
    let mut servers = Vec::new();
    let mut search = Vec::new();
    for item in items(config.get("config")) {
        let kind = field(item, "type").unwrap_or_default();
        match kind.as_str() {
            "nameserver" => {
                servers.extend(texts(item.get("address")));
                search.extend(texts(item.get("search")));
            }
            "physical" | "vlan" => {
                let mut interface = Interface {
                    id: field(item, "name").unwrap_or_default(),
                    mac: field(item, "mac_address"),
                    mtu: field(item, "mtu"),
                    ..Interface::default()
                };
                if kind == "vlan" {
                    interface.mac = None;
                    interface.vlan = field(item, "vlan_link").zip(field(item, "vlan_id"));
                }
                for subnet in items(item.get("subnets")) {
                    add_subnet(&mut interface, subnet, &mut unknown);
                }
                found.push(interface);
            }
            other => unknown.push(format!("type {other}")),
        }
    }
    // Servers of their own belong to no interface: any will do.
    if let Some(first) = found.first_mut() {
        first.servers.extend(servers);
        first.search.extend(search);
    }
    (found, unknown)
}

fn add_subnet(interface: &mut Interface, subnet: &Value, unknown: &mut Vec<String>) {
    match field(subnet, "type").as_deref() {
        Some("dhcp" | "dhcp4") => interface.dhcp = true,
        Some("static" | "static6") => {
            let Some(address) = field(subnet, "address") else { return };
            interface.addresses.push(with_prefix(&address, field(subnet, "netmask").as_deref()));
        }
        // The kernel listens to routers by itself.
        Some("ipv6_slaac" | "manual") => {}
        other => unknown.push(format!("subnet type {}", other.unwrap_or("(none)"))),
    }
    if let Some(gateway) = field(subnet, "gateway") {
        interface.routes.push(("default".to_owned(), gateway));
    }
    interface.routes.extend(items(subnet.get("routes")).iter().filter_map(route));
    interface.servers.extend(texts(subnet.get("dns_nameservers")));
    interface.search.extend(texts(subnet.get("dns_search")));
}

/// `network`, `netmask` and `gateway`, as version 1 and OpenStack have them.
fn route(route: &Value) -> Option<(String, String)> {
    let to = field(route, "network").or_else(|| field(route, "destination"))?;
    Some((with_prefix(&to, field(route, "netmask").as_deref()), field(route, "gateway")?))
}

fn openstack(config: &Value) -> (Vec<Interface>, Vec<String>) {
    let mut unknown = Vec::new();
    let servers: Vec<String> =
        items(config.get("services")).iter().filter_map(|service| field(service, "address")).collect();
    let mut found = Vec::new();
    for link in items(config.get("links")) {
        let id = field(link, "id").unwrap_or_default();
        if matches!(field(link, "type").as_deref(), Some("bond" | "vlan")) {
            unknown.push(format!("link {id}"));
            continue;
        }
        let mut interface = Interface {
            mac: field(link, "ethernet_mac_address"),
            mtu: field(link, "mtu"),
            servers: servers.clone(),
            ..Interface::default()
        };
        for network in
            items(config.get("networks")).iter().filter(|network| field(network, "link").as_deref() == Some(&id))
        {
            match field(network, "type").as_deref() {
                Some("ipv4_dhcp") => interface.dhcp = true,
                Some("ipv4" | "ipv6") => {
                    let address = field(network, "ip_address").unwrap_or_default();
                    interface.addresses.push(with_prefix(&address, field(network, "netmask").as_deref()));
                }
                Some("ipv6_slaac") => {}
                other => unknown.push(format!("network type {}", other.unwrap_or("(none)"))),
            }
            interface.routes.extend(items(network.get("routes")).iter().filter_map(route));
            interface.servers.extend(texts(network.get("dns_nameservers")));
        }
        interface.id = id;
        found.push(interface);
    }
    (found, unknown)
}

/// An address with the length of its prefix, which may be a mask, a length, or there already.
fn with_prefix(address: &str, mask: Option<&str>) -> String {
    if address.contains('/') {
        return address.to_owned();
    }
    let length = match mask.map(str::parse::<IpAddr>) {
        Some(Ok(IpAddr::V4(mask))) => u32::from(mask).count_ones(),
        Some(Ok(IpAddr::V6(mask))) => u128::from(mask).count_ones(),
        Some(Err(_)) => mask.and_then(|length| length.parse().ok()).unwrap_or(0),
        None if address.contains(':') => 64,
        None => 24,
    };
    format!("{address}/{length}")
}

/// How an interface got its configuration.
#[derive(Debug, PartialEq, Eq)]
pub enum Method {
    Static,
    Dhcp,
}

/// Configures one interface of the system, with the VLANs above it. Interfaces that nobody described use DHCP.
pub fn configure(config: &Value, name: &str) -> Method {
    let (interfaces, unknown) = parse(config);
    for what in unknown {
        eprintln!("cloud-config: network configuration: {what} is not supported by this guest");
    }
    let mac = fs::read_to_string(format!("/sys/class/net/{name}/address")).unwrap_or_default();
    let Some(interface) = interfaces.iter().find(|interface| describes(interface, name, mac.trim())) else {
        return Method::Dhcp;
    };
    if interface.rename.as_ref().is_some_and(|wanted| wanted != name) {
        eprintln!("cloud-config: network configuration: set-name is not supported by this guest");
    }
    apply(interface, name);
    for vlan in &interfaces {
        let Some((link, number)) = &vlan.vlan else { continue };
        if *link == interface.id || link == name {
            execute("ip", &["link", "add", "link", name, "name", &vlan.id, "type", "vlan", "id", number]);
            apply(vlan, &vlan.id);
        }
    }
    if interface.dhcp { Method::Dhcp } else { Method::Static }
}

fn describes(interface: &Interface, name: &str, mac: &str) -> bool {
    if interface.vlan.is_some() {
        return false;
    }
    match (&interface.mac, interface.id.strip_suffix('*')) {
        (Some(wanted), _) => wanted.eq_ignore_ascii_case(mac),
        (None, Some(prefix)) => name.starts_with(prefix),
        (None, None) => interface.id == name,
    }
}

fn apply(interface: &Interface, name: &str) {
    if let Some(mtu) = &interface.mtu {
        execute("ip", &["link", "set", name, "mtu", mtu]);
    }
    execute("ip", &["link", "set", name, "up"]);
    for address in &interface.addresses {
        execute("ip", &["addr", "add", &with_prefix(address, None), "dev", name]);
    }
    for (to, gateway) in &interface.routes {
        let family = if gateway.contains(':') { "-6" } else { "-4" };
        let to = if matches!(to.as_str(), "0.0.0.0/0" | "::/0") { "default" } else { to };
        execute("ip", &[family, "route", "add", to, "via", gateway, "dev", name]);
    }
    let mut lines = String::new();
    if !interface.search.is_empty() {
        lines += &format!("search {}\n", interface.search.join(" "));
    }
    for server in &interface.servers {
        lines += &format!("nameserver {server}\n");
    }
    let file = OpenOptions::new().append(true).create(true).open("/etc/resolv.conf");
    report("/etc/resolv.conf", file.and_then(|mut file| file.write_all(lines.as_bytes())));
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_format_says_the_same_in_its_own_way() {
        let v2 = json!({"version": 2, "ethernets": {"n": {
            "match": {"macaddress": "52:54:00:00:00:01"}, "addresses": ["10.0.0.2/16"], "gateway4": "10.0.0.1",
            "nameservers": {"addresses": ["10.0.0.3"]}}}});
        let v1 = json!({"network": {"version": 1, "config": [
            {"type": "physical", "name": "n", "mac_address": "52:54:00:00:00:01", "subnets": [
                {"type": "static", "address": "10.0.0.2", "netmask": "255.255.0.0", "gateway": "10.0.0.1"}]},
            {"type": "nameserver", "address": ["10.0.0.3"]}]}});
        let openstack = json!({"links": [{"id": "n", "type": "phy", "ethernet_mac_address": "52:54:00:00:00:01"}],
            "networks": [{"link": "n", "type": "ipv4", "ip_address": "10.0.0.2", "netmask": "255.255.0.0",
                "routes": [{"network": "0.0.0.0", "netmask": "0.0.0.0", "gateway": "10.0.0.1"}]}],
            "services": [{"type": "dns", "address": "10.0.0.3"}]});
        for config in [v2, v1, openstack] {
            let (interfaces, unknown) = parse(&config);
            assert!(unknown.is_empty(), "{unknown:?}");
            let [one] = interfaces.as_slice() else { panic!("{interfaces:?}") };
            assert!(describes(one, "eth0", "52:54:00:00:00:01"));
            assert!(!describes(one, "eth0", "52:54:00:00:00:02"));
            assert_eq!(one.addresses, ["10.0.0.2/16"]);
            assert_eq!(one.routes[0].1, "10.0.0.1");
            assert_eq!(one.servers, ["10.0.0.3"]);
            assert!(!one.dhcp);
        }
    }

    #[test]
    fn names_may_end_in_a_star() {
        let interface = Interface { id: "e*".into(), ..Interface::default() };
        assert!(describes(&interface, "eth0", ""));
        assert!(!describes(&interface, "wlan0", ""));
    }

    #[test]
    fn says_what_it_cannot_do() {
        assert_eq!(parse(&json!({"version": 2, "bonds": {}})).1, ["bonds"]);
        assert_eq!(parse(&json!({"version": 1, "config": [{"type": "bond"}]})).1, ["type bond"]);
        assert_eq!(parse(&json!({"version": 3})).1, ["version 3"]);
    }
}
