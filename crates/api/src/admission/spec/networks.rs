//! Network cards and the networks they are plugged into.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use croft_meta::{FieldPath, names};

use super::text;
use crate::admission::denial::{Denial, below};
use crate::kubevirt::{Interface, Network, VirtualMachineInstanceSpec};

const MODELS: &[&str] = &["virtio", "e1000", "e1000e", "rtl8139", "pcnet", "ne2k_pci"];
const LONGEST_OPTION: usize = 255;
/// The address of the gateway that masqueraded guests see.
const RESERVED_MAC: &str = "02:00:00:00:00:00";

pub(super) fn check(denial: &mut Denial, at: &FieldPath, spec: &VirtualMachineInstanceSpec) {
    networks(denial, at, spec);
    let interfaces = &spec.domain.devices.interfaces;
    let list_at = below(at, "domain.devices.interfaces");
    for (index, network) in spec.networks.iter().enumerate() {
        if !interfaces.iter().any(|interface| interface.name == network.name) {
            let field = below(at, "networks").index(index).child("name");
            denial.required(&field, format!("{field} '{}' not found.", network.name));
        }
    }
    let mut seen = BTreeSet::new();
    for (index, interface) in interfaces.iter().enumerate() {
        let own = list_at.index(index);
        let network = spec.networks.iter().find(|network| network.name == interface.name);
        if !seen.insert(interface.name.as_str()) {
            let message = "Only one interface can be connected to one specific network";
            denial.duplicate(&own.child("name"), message);
        }
        if network.is_none() {
            let field = own.child("name");
            denial.invalid(&field, format!("{field} '{}' not found.", interface.name));
        }
        binding(denial, &own, interface, network);
        state(denial, &own, interface, network);
        fields(denial, &own, interface);
        ports(denial, &own, interface, network);
    }
}

fn networks(denial: &mut Denial, at: &FieldPath, spec: &VirtualMachineInstanceSpec) {
    let list_at = below(at, "networks");
    let pods = spec.networks.iter().filter(|network| network.pod.is_some()).count();
    let is_default = |network: &&Network| network.multus.as_ref().is_some_and(|multus| multus.default == Some(true));
    let defaults = spec.networks.iter().filter(is_default).count();
    if pods > 1 {
        let field = below(at, "interfaces");
        denial.duplicate(&field, format!("more than one interface is connected to a pod network in {field}"));
    }
    if defaults > 1 {
        denial.invalid(&list_at, "Multus CNI should only have one default network");
    }
    if pods > 0 && defaults > 0 {
        denial.invalid(&list_at, "Pod network cannot be defined when Multus default network is defined");
    }
    let mut seen = BTreeSet::new();
    for (index, network) in spec.networks.iter().enumerate() {
        let own = list_at.index(index);
        match (network.pod.is_some(), &network.multus) {
            (false, None) => denial.required(&own, "should have a network type"),
            (true, Some(_)) => denial.required(&own, "should have only one network type"),
            (false, Some(multus)) if multus.network_name.is_empty() => {
                denial.required(&own, "CNI delegating plugin must have a networkName");
            }
            _ => {}
        }
        if !seen.insert(network.name.as_str()) {
            let message =
                format!("Network with name \"{}\" already exists, every network must have a unique name", network.name);
            denial.duplicate(&own.child("name"), message);
        }
    }
}

fn binding(denial: &mut Denial, at: &FieldPath, interface: &Interface, network: Option<&Network>) {
    let bindings: Vec<&str> = interface.bindings().collect();
    for name in &bindings {
        let message = match *name {
            "slirp" => "Slirp interface support has been discontinued since v1.3",
            "passt" => "Passt network binding has been discontinued since v1.3",
            "macvtap" => "Macvtap network binding has been discontinued since v1.3",
            "sriov" => "SR-IOV is not supported: Croft gives no parts of network cards to guests",
            "passtBinding" => "passtBinding is not supported: use masquerade or bridge",
            "binding" => "binding plugins are not supported: use masquerade or bridge",
            _ => continue,
        };
        denial.invalid(&at.child(name), message);
    }
    if bindings.len() != 1 {
        let message =
            format!("logical {} interface must have exactly one binding method or binding plugin", interface.name);
        denial.invalid(at, message);
    }
    let is_on_pod = network.is_some_and(|network| network.pod.is_some());
    if interface.masquerade.is_some() {
        if !is_on_pod {
            denial.invalid(&at.child("name"), "Masquerade interface only implemented with pod network");
        }
        if text(interface.mac_address.as_ref()).eq_ignore_ascii_case(RESERVED_MAC) {
            let message = "The requested MAC address is reserved for the in-pod bridge. Please choose another one.";
            denial.invalid(&at.child("macAddress"), message);
        }
    }
}

fn state(denial: &mut Denial, at: &FieldPath, interface: &Interface, network: Option<&Network>) {
    let state = text(interface.state.as_ref());
    let name = &interface.name;
    let field = at.child("state");
    if !matches!(state, "" | "absent" | "up" | "down") {
        denial.invalid(&field, format!("logical {name} interface state value is unsupported: {state}"));
    }
    if state != "absent" {
        return;
    }
    if interface.bridge.is_none() {
        let message = format!("\"{name}\" interface's state \"absent\" is supported only for bridge binding");
        denial.invalid(&field, message);
    }
    let is_default = network.is_some_and(|network| {
        network.pod.is_some() || network.multus.as_ref().is_some_and(|multus| multus.default == Some(true))
    });
    if is_default {
        denial.invalid(&field, format!("\"{name}\" interface's state \"absent\" is not supported on default networks"));
    }
}

fn fields(denial: &mut Denial, at: &FieldPath, interface: &Interface) {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let name_at = at.child("name");
    if interface.name.is_empty() || !interface.name.chars().all(is_plain) {
        let message =
            "Network interface name can only contain alphabetical characters, numbers, dashes (-) or underscores (_)";
        denial.invalid(&name_at, message);
    }
    let model = text(interface.model.as_ref());
    if !model.is_empty() && !MODELS.contains(&model) {
        denial.not_supported(
            &at.child("model"),
            format!("interface {name_at} uses model {model} that is not supported."),
        );
    }
    let mac = text(interface.mac_address.as_ref());
    if let Some(problem) = mac_problem(mac) {
        denial.invalid(&at.child("macAddress"), format!("interface {name_at} has {problem}."));
    }
    if !text(interface.pci_address.as_ref()).is_empty() {
        let message = "PCI addresses of network cards cannot be chosen; use acpiIndex to name them";
        denial.not_supported(&at.child("pciAddress"), message);
    }
    if interface.acpi_index.is_some_and(|index| !(0..16_384).contains(&index)) {
        denial.invalid(&at.child("acpiIndex"), "acpiIndex must be in the range 0 to 16383");
    }
    let Some(options) = &interface.dhcp_options else { return };
    let mut seen = BTreeSet::new();
    for option in &options.private_options {
        if !seen.insert(option.option) {
            denial.invalid(at, "Found Duplicates: you have provided duplicate DHCPPrivateOptions");
        }
        if !(224..=254).contains(&option.option) {
            let message = "provided DHCPPrivateOptions are out of range, must be in range 224 to 254";
            denial.invalid(at, message);
        }
    }
    let named = [("bootFileName", &options.boot_file_name), ("tftpServerName", &options.tftp_server_name)];
    let named = named.into_iter().map(|(name, value)| (name, text(value.as_ref())));
    let private = options.private_options.iter().map(|option| ("privateOptions", option.value.as_str()));
    for (name, value) in named.chain(private) {
        if value.len() > LONGEST_OPTION {
            let field = below(at, "dhcpOptions").child(name);
            denial.invalid(&field, format!("{field}: a DHCP option has at most {LONGEST_OPTION} bytes"));
        }
    }
    for (index, server) in options.ntp_servers.iter().enumerate() {
        if server.parse::<Ipv4Addr>().is_err() {
            let field = below(at, "dhcpOptions.ntpServers").index(index);
            denial.invalid(&field, "NTP servers must be a list of valid IPv4 addresses.");
        }
    }
}

/// Six bytes by `:` or `-`, or three pairs by `.`; longer ones are addresses, but not of Ethernet.
fn mac_problem(mac: &str) -> Option<String> {
    if mac.is_empty() {
        return None;
    }
    let (separator, width) = if mac.contains('.') {
        ('.', 4)
    } else if mac.contains('-') {
        ('-', 2)
    } else {
        (':', 2)
    };
    let groups: Vec<&str> = mac.split(separator).collect();
    let is_hex = |group: &&str| group.len() == width && group.bytes().all(|b| b.is_ascii_hexdigit());
    let bytes = groups.len() * width / 2;
    if !groups.iter().all(is_hex) || !matches!(bytes, 6 | 8 | 20) {
        return Some(format!("malformed MAC address ({mac})"));
    }
    (bytes > 6).then(|| format!("too long MAC address ({mac})"))
}

fn ports(denial: &mut Denial, at: &FieldPath, interface: &Interface, network: Option<&Network>) {
    if !interface.port_ranges.is_empty() {
        let message = "portRanges is specified on interface but the PortRangesSpec feature gate is not enabled";
        denial.invalid(&at.child("name"), message);
    }
    if network.is_none_or(|network| network.pod.is_none()) {
        return;
    }
    let mut seen = BTreeSet::new();
    for (index, port) in interface.ports.iter().enumerate() {
        let own = at.child("ports").index(index);
        let name = text(port.name.as_ref());
        if !name.is_empty() {
            if !seen.insert(name) {
                denial.duplicate(&own.child("name"), format!("Duplicate name of the port: {name}"));
            }
            if name.len() > 15 || !names::is_dns1123_label(name).is_empty() {
                denial.invalid(&own.child("name"), format!("Invalid name of the port: {name}"));
            }
        }
        if port.port == 0 {
            denial.required(&own.child("port"), "Port field is mandatory.");
        } else if !(1..65_536).contains(&port.port) {
            denial.invalid(&own.child("port"), "Port field must be in range 0 < x < 65536.");
        }
        if !matches!(text(port.protocol.as_ref()), "" | "TCP" | "UDP") {
            denial.invalid(&own.child("protocol"), "Unknown protocol, only TCP or UDP allowed");
        }
    }
}
