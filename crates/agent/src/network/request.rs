//! What an interface of a guest's description asks of the host. Pure.

use std::net::Ipv4Addr;

use croft_api::kubevirt::{Interface, Network, VirtualMachineInstance};
use croft_net::{Attachment, HostPort, Mac, Nic, Port, Protocol, Told};
use croft_qemu::spec::{self, PortForward};

use crate::vm::host::{Lacking, NicWanted};

/// Ports of the node that lead to the guest's interface on the default network: `2222:22, 5353:53/udp`.
pub(super) const HOST_PORTS: &str = "croft.io/host-ports";
/// As many ports may be listed, each of a range counted.
const PORT_LIMIT: usize = 4096;

/// The network that an interface is in.
pub(super) fn network_of<'a>(vmi: &'a VirtualMachineInstance, interface: &str) -> Result<&'a Network, Lacking> {
    let found = vmi.spec.networks.iter().find(|network| network.name == interface);
    found.ok_or_else(|| Lacking::ever(format!("interface {interface} has no network of that name")))
}

/// An interface on the default network.
pub(super) fn nat(vmi: &VirtualMachineInstance, interface: &Interface) -> Result<Attachment, Lacking> {
    let mut ports = Vec::new();
    for port in &interface.ports {
        ports.push(Port { protocol: protocol(port.protocol.as_deref())?, port: number(port.port)? });
    }
    for range in &interface.port_ranges {
        let (protocol, start, end) = (protocol(Some(&range.protocol))?, number(range.start)?, number(range.end)?);
        if usize::from(end.saturating_sub(start)) >= PORT_LIMIT {
            return Err(too_many(interface));
        }
        ports.extend((start..=end).map(|port| Port { protocol, port }));
    }
    if ports.len() > PORT_LIMIT {
        return Err(too_many(interface));
    }
    let annotations = vmi.metadata.annotations.as_ref();
    let wanted = annotations.and_then(|annotations| annotations.get(HOST_PORTS));
    let host_ports = wanted.map(|text| host_ports(text)).transpose()?.unwrap_or_default();
    Ok(Attachment::Nat { ports, host_ports })
}

pub(super) fn nic(wanted: &NicWanted<'_>, attachment: Attachment) -> Nic {
    let metadata = &wanted.vmi.metadata;
    let vm_name = metadata.name.clone().unwrap_or_default();
    Nic {
        vmi_uid: metadata.uid.clone().unwrap_or_default(),
        namespace: metadata.namespace.clone().unwrap_or_default(),
        hostname: wanted.vmi.spec.hostname.clone().filter(|name| !name.is_empty()).unwrap_or_else(|| vm_name.clone()),
        vm_name,
        name: wanted.interface.name.clone(),
        mac: Mac(wanted.mac),
        attachment,
        queues: wanted.queues,
        told: told(wanted.vmi, wanted.interface),
    }
}

/// What the guest is to be told by DHCP. Admission has seen to it that it can be.
fn told(vmi: &VirtualMachineInstance, interface: &Interface) -> Told {
    let dns = vmi.spec.dns_config.clone().unwrap_or_default();
    let addresses = |list: Vec<String>| list.iter().filter_map(|address| address.parse().ok()).collect();
    let options = interface.dhcp_options.clone().unwrap_or_default();
    let private = options.private_options.into_iter();
    Told {
        boot_file: options.boot_file_name.filter(|name| !name.is_empty()),
        tftp_server: options.tftp_server_name.filter(|name| !name.is_empty()),
        ntp_servers: addresses(options.ntp_servers),
        others: private.filter_map(|option| Some((u8::try_from(option.option).ok()?, option.value))).collect(),
        resolvers: addresses(dns.nameservers.unwrap_or_default()),
        domains: dns.searches.unwrap_or_default(),
        is_without_host_names: vmi.spec.dns_policy.as_deref() == Some("None"),
    }
}

/// What QEMU's own network can do of it: the node's ports, but no limits, as nobody else reaches the guest.
pub(super) fn user_forwards(nic: &Nic) -> Result<Vec<PortForward>, Lacking> {
    let Attachment::Nat { host_ports, .. } = &nic.attachment else { return Ok(Vec::new()) };
    let forward = |port: &HostPort| {
        let protocol = match port.protocol {
            Protocol::Tcp => spec::Protocol::Tcp,
            Protocol::Udp => spec::Protocol::Udp,
            Protocol::Sctp => return Err(Lacking::ever(format!("{HOST_PORTS}: SCTP needs a tap"))),
        };
        let HostPort { host_port, guest_port, .. } = *port;
        Ok(PortForward { protocol, host_address: Ipv4Addr::UNSPECIFIED, host_port, guest_port })
    };
    host_ports.iter().map(forward).collect()
}

fn host_ports(text: &str) -> Result<Vec<HostPort>, Lacking> {
    let wrong = |part: &str| {
        Lacking::ever(format!(
            "annotation {HOST_PORTS}: {part:?} is not of the form <node port>:<guest port>[/tcp|/udp]"
        ))
    };
    let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
    let read = |part: &str| {
        let (ports, transport) = part.split_once('/').unwrap_or((part, "tcp"));
        let (host, guest) = ports.split_once(':').ok_or_else(|| wrong(part))?;
        let port = |text: &str| text.parse().ok().filter(|port| *port > 0).ok_or_else(|| wrong(part));
        let protocol = protocol(Some(transport)).map_err(|_| wrong(part))?;
        Ok(HostPort { protocol, host_port: port(host)?, guest_port: port(guest)? })
    };
    parts.map(read).collect()
}

fn protocol(word: Option<&str>) -> Result<Protocol, Lacking> {
    match word.unwrap_or_default().to_ascii_lowercase().as_str() {
        "" | "tcp" => Ok(Protocol::Tcp),
        "udp" => Ok(Protocol::Udp),
        "sctp" => Ok(Protocol::Sctp),
        other => Err(Lacking::ever(format!("{other:?} is no protocol with ports"))),
    }
}

fn number(port: i32) -> Result<u16, Lacking> {
    u16::try_from(port).ok().filter(|port| *port > 0).ok_or_else(|| Lacking::ever(format!("{port} is no port")))
}

fn too_many(interface: &Interface) -> Lacking {
    Lacking::ever(format!("interface {} lists more than {PORT_LIMIT} ports", interface.name))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn vmi(host_ports: &str) -> VirtualMachineInstance {
        serde_json::from_value(json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
            "metadata": {"name": "web", "namespace": "default", "uid": "u", "annotations": {HOST_PORTS: host_ports}},
            "spec": {"domain": {"devices": {}}, "networks": [{"name": "default", "pod": {}}]},
        }))
        .unwrap()
    }

    fn interface(fields: serde_json::Value) -> Interface {
        let mut interface = fields;
        interface["name"] = json!("default");
        serde_json::from_value(interface).unwrap()
    }

    #[test]
    fn listed_ports_and_ranges_are_asked_for() {
        let interface = interface(json!({
            "masquerade": {}, "ports": [{"port": 80}, {"port": 53, "protocol": "UDP"}],
            "portRanges": [{"protocol": "TCP", "start": 8000, "end": 8001}],
        }));
        let Attachment::Nat { ports, host_ports } = nat(&vmi("2222:22, 5353:53/udp"), &interface).unwrap() else {
            panic!("the default network");
        };
        let ports: Vec<_> = ports.iter().map(|port| (port.protocol, port.port)).collect();
        assert_eq!(ports, [(Protocol::Tcp, 80), (Protocol::Udp, 53), (Protocol::Tcp, 8000), (Protocol::Tcp, 8001)]);
        let host_ports: Vec<_> =
            host_ports.iter().map(|port| (port.protocol, port.host_port, port.guest_port)).collect();
        assert_eq!(host_ports, [(Protocol::Tcp, 2222, 22), (Protocol::Udp, 5353, 53)]);
    }

    #[test]
    fn nonsense_is_refused() {
        let plain = interface(json!({"masquerade": {}}));
        for text in ["22", "0:22", "a:b", "22:22/icmp", "70000:1"] {
            assert!(nat(&vmi(text), &plain).is_err(), "{text}");
        }
        for fields in [
            json!({"ports": [{"port": 0}]}),
            json!({"ports": [{"port": 70000}]}),
            json!({"ports": [{"port": 1, "protocol": "icmp"}]}),
            json!({"portRanges": [{"protocol": "TCP", "start": 1, "end": 65535}]}),
        ] {
            assert!(nat(&vmi(""), &interface(fields.clone())).is_err(), "{fields}");
        }
        assert!(network_of(&vmi(""), "other").is_err());
    }
}
