//! What is known of a guest from inside, and how the status of its object shows it.

use croft_api::kubevirt::{
    VirtualMachineInstanceCondition, VirtualMachineInstanceGuestOsInfo, VirtualMachineInstanceNetworkInterface,
    VirtualMachineInstanceStatus,
};
use croft_qemu::qga::answers::{Interface, OsInfo};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

const AGENT_CONNECTED: &str = "AgentConnected";
const CREDENTIALS: &str = "AccessCredentialsSynchronized";
/// What KubeVirt says of an interface, by who knows it.
const FROM_HOST: &str = "domain";
const FROM_BOTH: &str = "domain, guest-agent";
const FROM_GUEST: &str = "guest-agent";
/// A guest may claim any number of interfaces and addresses; no real one has more.
const MAX_INTERFACES: usize = 64;
const MAX_ADDRESSES: usize = 32;
/// The longest text of the guest's that is shown.
const MAX_TEXT: usize = 256;

/// What is known of a guest from inside.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Facts {
    pub is_agent_connected: bool,
    pub os: Option<OsInfo>,
    pub interfaces: Vec<Interface>,
    /// Only while they are frozen.
    pub is_frozen: bool,
    /// None if the guest is to be given none; else how that went.
    pub credentials: Option<Result<(), String>>,
    /// None without a readiness probe.
    pub readiness: Option<Readiness>,
}

/// What the readiness probe says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Readiness {
    Ready,
    /// Not yet, or no longer, and why.
    NotReady(String),
}

impl Facts {
    /// Puts into a status what is known from inside. Its interfaces must be those of the spec, in the spec's order, with
    /// the addresses that the host knows; conditions that have no reason to be there are removed.
    pub fn show(&self, status: &mut VirtualMachineInstanceStatus) {
        self.show_conditions(status);
        status.guest_os_info = self.os.as_ref().map(os_info).unwrap_or_default();
        status.fs_freeze_status = self.is_frozen.then(|| "frozen".to_owned());
        self.show_interfaces(&mut status.interfaces);
    }

    fn show_conditions(&self, status: &mut VirtualMachineInstanceStatus) {
        let connected = self.is_agent_connected.then_some(("True", None, None));
        set_condition(status, AGENT_CONNECTED, connected);
        let credentials = self.credentials.as_ref().map(|outcome| match outcome {
            Ok(()) => ("True", None, None),
            Err(message) => ("False", None, Some(message.as_str())),
        });
        set_condition(status, CREDENTIALS, credentials);
    }

    fn show_interfaces(&self, shown: &mut Vec<VirtualMachineInstanceNetworkInterface>) {
        shown.retain(|interface| interface.name.is_some());
        for interface in shown.iter_mut() {
            let mac = interface.mac.as_deref().unwrap_or_default();
            let inside = self.interfaces.iter().find(|inside| inside.hardware_address.eq_ignore_ascii_case(mac));
            let Some(inside) = inside.filter(|_| !mac.is_empty()) else {
                interface.info_source = Some(FROM_HOST.to_owned());
                interface.interface_name = None;
                continue;
            };
            interface.interface_name = Some(short(&inside.name));
            interface.info_source = Some(FROM_BOTH.to_owned());
            let known = std::mem::take(&mut interface.ip_addresses);
            set_addresses(interface, addresses(inside), known);
        }
        let is_shown =
            |mac: &str| shown.iter().any(|one| one.mac.as_deref().is_some_and(|m| m.eq_ignore_ascii_case(mac)));
        let others: Vec<_> = self
            .interfaces
            .iter()
            .take(MAX_INTERFACES)
            .filter(|inside| inside.name != "lo" && !is_shown(&inside.hardware_address))
            .map(guest_only)
            .collect();
        shown.extend(others);
    }
}

/// Bridges of containers and the like: they have no name in the spec.
fn guest_only(inside: &Interface) -> VirtualMachineInstanceNetworkInterface {
    let mut interface = VirtualMachineInstanceNetworkInterface {
        mac: Some(short(&inside.hardware_address)).filter(|mac| !mac.is_empty()),
        interface_name: Some(short(&inside.name)),
        info_source: Some(FROM_GUEST.to_owned()),
        ..VirtualMachineInstanceNetworkInterface::default()
    };
    set_addresses(&mut interface, addresses(inside), Vec::new());
    interface
}

fn addresses(inside: &Interface) -> Vec<String> {
    let texts = inside.ip_addresses.iter().take(MAX_ADDRESSES).map(|address| address.ip_address.as_str());
    // Whatever the guest calls an address must be one.
    texts.filter_map(|text| text.parse::<std::net::IpAddr>().ok()).map(|ip| ip.to_string()).collect()
}

/// The useful ones first: IPv4 before IPv6, and those that hold on one link alone last.
fn set_addresses(interface: &mut VirtualMachineInstanceNetworkInterface, inside: Vec<String>, known: Vec<String>) {
    let mut all: Vec<String> = inside;
    for address in known {
        if !all.contains(&address) {
            all.push(address);
        }
    }
    all.sort_by_key(|address| {
        let is_local = address.starts_with("169.254.") || address.to_ascii_lowercase().starts_with("fe80:");
        (is_local, address.contains(':'))
    });
    interface.ip_address = all.first().cloned();
    interface.ip_addresses = all;
}

fn os_info(os: &OsInfo) -> VirtualMachineInstanceGuestOsInfo {
    let text = |text: &String| Some(short(text)).filter(|text| !text.is_empty());
    VirtualMachineInstanceGuestOsInfo {
        name: text(&os.name),
        kernel_release: text(&os.kernel_release),
        version: text(&os.version),
        pretty_name: text(&os.pretty_name),
        version_id: text(&os.version_id),
        kernel_version: text(&os.kernel_version),
        machine: text(&os.machine),
        id: text(&os.id),
    }
}

fn short(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(MAX_TEXT).collect()
}

/// Sets, changes or removes a condition; the time of its last change is kept if it has not changed.
pub(crate) fn set_condition(
    status: &mut VirtualMachineInstanceStatus,
    type_: &str,
    wanted: Option<(&str, Option<&str>, Option<&str>)>,
) {
    let Some((value, reason, message)) = wanted else {
        status.conditions.retain(|condition| condition.type_ != type_);
        return;
    };
    let there = status.conditions.iter().position(|condition| condition.type_ == type_);
    let mut condition = there.map(|index| status.conditions[index].clone()).unwrap_or_default();
    if condition.status != value {
        condition.last_transition_time = Some(Time(Timestamp::now()));
    }
    let condition = VirtualMachineInstanceCondition {
        type_: type_.to_owned(),
        status: value.to_owned(),
        reason: reason.map(str::to_owned),
        message: message.map(str::to_owned),
        ..condition
    };
    match there {
        Some(index) => status.conditions[index] = condition,
        None => status.conditions.push(condition),
    }
}

#[cfg(test)]
mod tests {
    use croft_qemu::qga::answers::IpAddress;

    use super::*;

    fn inside(name: &str, mac: &str, addresses: &[&str]) -> Interface {
        let ip_addresses = addresses
            .iter()
            .map(|a| IpAddress { ip_address: (*a).to_owned(), ip_address_type: String::new(), prefix: 24 })
            .collect();
        Interface { name: name.to_owned(), hardware_address: mac.to_owned(), ip_addresses }
    }

    fn of_spec(name: &str, mac: &str, addresses: &[&str]) -> VirtualMachineInstanceNetworkInterface {
        VirtualMachineInstanceNetworkInterface {
            name: Some(name.to_owned()),
            mac: Some(mac.to_owned()),
            ip_addresses: addresses.iter().map(ToString::to_string).collect(),
            ..VirtualMachineInstanceNetworkInterface::default()
        }
    }

    #[test]
    fn interfaces_of_the_spec_come_first_and_the_guests_own_follow() {
        let facts = Facts {
            interfaces: vec![
                inside("lo", "00:00:00:00:00:00", &["127.0.0.1"]),
                inside("docker0", "02:42:00:00:00:01", &["172.17.0.1"]),
                inside("eth0", "52:54:00:AA:00:01", &["fe80::1", "fd00::5", "10.0.2.15", "nonsense"]),
            ],
            ..Facts::default()
        };
        let mut status = VirtualMachineInstanceStatus {
            interfaces: vec![
                of_spec("default", "52:54:00:aa:00:01", &["10.0.2.15", "10.0.2.99"]),
                of_spec("second", "52:54:00:aa:00:02", &["10.9.9.9"]),
            ],
            ..VirtualMachineInstanceStatus::default()
        };
        for _ in 0..2 {
            facts.show(&mut status);
            let shown: Vec<_> = status
                .interfaces
                .iter()
                .map(|i| {
                    (
                        i.name.as_deref(),
                        i.interface_name.as_deref(),
                        i.info_source.as_deref().unwrap(),
                        i.ip_addresses.join(" "),
                    )
                })
                .collect();
            assert_eq!(
                shown,
                [
                    (
                        Some("default"),
                        Some("eth0"),
                        "domain, guest-agent",
                        "10.0.2.15 10.0.2.99 fd00::5 fe80::1".to_owned()
                    ),
                    (Some("second"), None, "domain", "10.9.9.9".to_owned()),
                    (None, Some("docker0"), "guest-agent", "172.17.0.1".to_owned()),
                ]
            );
        }
        assert_eq!(status.interfaces[0].ip_address.as_deref(), Some("10.0.2.15"));
        // Without its agent, the guest's own interfaces are no longer known.
        Facts::default().show(&mut status);
        assert_eq!(status.interfaces.len(), 2);
        assert_eq!(status.interfaces[0].info_source.as_deref(), Some("domain"));
    }

    #[test]
    fn conditions_come_go_and_keep_their_time() {
        let mut status = VirtualMachineInstanceStatus::default();
        let mut facts = Facts { is_agent_connected: true, ..Facts::default() };
        facts.show(&mut status);
        let first = status.conditions[0].clone();
        assert_eq!((first.type_.as_str(), first.status.as_str()), ("AgentConnected", "True"));
        facts.credentials = Some(Err("no such user".to_owned()));
        facts.show(&mut status);
        assert_eq!(status.conditions[0], first);
        assert_eq!(status.conditions[1].message.as_deref(), Some("no such user"));
        Facts::default().show(&mut status);
        assert_eq!(status.conditions, []);
    }

    #[test]
    fn what_a_guest_says_is_cut_short() {
        let os = OsInfo { name: "x\u{1b}[31m".repeat(1000), ..OsInfo::default() };
        let shown = os_info(&os).name.unwrap();
        assert!(shown.len() <= MAX_TEXT && !shown.contains('\u{1b}'));
    }
}
