//! What is known of a guest from inside, and how the status of its object shows it.

use std::net::IpAddr;

use croft_api::kubevirt::{
    VirtualMachineInstanceCondition, VirtualMachineInstanceGuestOsInfo, VirtualMachineInstanceNetworkInterface,
    condition,
};
use croft_qemu::qga::answers::{Interface, OsInfo};

use crate::vm::GuestFacts;

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
    /// Whether the agent's channel has been looked at. Until then nothing here is news.
    pub is_known: bool,
    pub is_agent_connected: bool,
    /// What the agent cannot do and should.
    pub agent_lack: Option<&'static str>,
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
    /// As the object's writer wants it. `leases` are what the host itself knows of the interfaces: their MAC addresses,
    /// and the addresses that they were given.
    pub(crate) fn told(&self, leases: &[(String, Vec<IpAddr>)]) -> GuestFacts {
        GuestFacts {
            conditions: self.conditions(),
            os: self.os.as_ref().map(os_info).unwrap_or_default(),
            interfaces: self.interfaces(leases),
            readiness: self.readiness.as_ref().map(|readiness| match readiness {
                Readiness::Ready => Ok(()),
                Readiness::NotReady(why) => Err(why.clone()),
            }),
            fs_freeze_status: self.is_frozen.then(|| "frozen".to_owned()),
        }
    }

    fn conditions(&self) -> Vec<VirtualMachineInstanceCondition> {
        let condition = |type_: &str, is_true: bool, message: Option<&String>| VirtualMachineInstanceCondition {
            type_: type_.to_owned(),
            status: if is_true { "True" } else { "False" }.to_owned(),
            message: message.cloned(),
            ..VirtualMachineInstanceCondition::default()
        };
        let connected = self.is_agent_connected.then(|| condition(condition::AGENT_CONNECTED, true, None));
        let credentials = self.credentials.as_ref().map(|outcome| {
            condition(condition::ACCESS_CREDENTIALS_SYNCHRONIZED, outcome.is_ok(), outcome.as_ref().err())
        });
        let unsupported = self.agent_lack.filter(|_| self.is_agent_connected).map(|reason| {
            let reason = Some(reason.to_owned());
            VirtualMachineInstanceCondition { reason, ..condition(condition::AGENT_VERSION_NOT_SUPPORTED, true, None) }
        });
        connected.into_iter().chain(unsupported).chain(credentials).collect()
    }

    /// One for each lease, with what the guest says of it; then those that only the guest knows.
    fn interfaces(&self, leases: &[(String, Vec<IpAddr>)]) -> Vec<VirtualMachineInstanceNetworkInterface> {
        let mut shown = Vec::new();
        for (mac, addresses) in leases {
            let inside = self.interfaces.iter().find(|inside| inside.hardware_address.eq_ignore_ascii_case(mac));
            let mut interface = VirtualMachineInstanceNetworkInterface {
                mac: Some(mac.clone()),
                interface_name: inside.map(|inside| short(&inside.name)),
                info_source: Some(if inside.is_some() { FROM_BOTH } else { FROM_HOST }.to_owned()),
                ..VirtualMachineInstanceNetworkInterface::default()
            };
            let known = addresses.iter().map(ToString::to_string).collect();
            set_addresses(&mut interface, inside.map(self::addresses).unwrap_or_default(), known);
            shown.push(interface);
        }
        let is_shown =
            |inside: &Interface| leases.iter().any(|(mac, _)| mac.eq_ignore_ascii_case(&inside.hardware_address));
        let others =
            self.interfaces.iter().take(MAX_INTERFACES).filter(|inside| inside.name != "lo" && !is_shown(inside));
        shown.extend(others.map(guest_only));
        shown
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

/// The useful ones first: IPv4 before IPv6, and those that hold on one link alone last. What is known of a guest comes
/// before what it says of itself, which need not be true.
fn set_addresses(interface: &mut VirtualMachineInstanceNetworkInterface, inside: Vec<String>, known: Vec<String>) {
    let mut all: Vec<String> = known;
    for address in inside {
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

    #[test]
    fn interfaces_of_the_machine_come_first_and_the_guests_own_follow() {
        let mut facts = Facts {
            interfaces: vec![
                inside("lo", "00:00:00:00:00:00", &["127.0.0.1"]),
                inside("docker0", "02:42:00:00:00:01", &["172.17.0.1"]),
                inside("eth0", "52:54:00:AA:00:01", &["fe80::1", "fd00::5", "10.0.2.7", "10.0.2.15", "nonsense"]),
            ],
            ..Facts::default()
        };
        let lease = |mac: &str, addresses: &[&str]| {
            (mac.to_owned(), addresses.iter().map(|address| address.parse().unwrap()).collect::<Vec<IpAddr>>())
        };
        let leases =
            [lease("52:54:00:aa:00:01", &["10.0.2.15", "10.0.2.99"]), lease("52:54:00:aa:00:02", &["10.9.9.9"])];
        let told = facts.told(&leases).interfaces;
        let shown: Vec<_> = told
            .iter()
            .map(|i| (i.interface_name.as_deref(), i.info_source.as_deref().unwrap(), i.ip_addresses.join(" ")))
            .collect();
        assert_eq!(
            shown,
            [
                (Some("eth0"), "domain, guest-agent", "10.0.2.15 10.0.2.99 10.0.2.7 fd00::5 fe80::1".to_owned()),
                (None, "domain", "10.9.9.9".to_owned()),
                (Some("docker0"), "guest-agent", "172.17.0.1".to_owned()),
            ]
        );
        assert_eq!(told[0].ip_address.as_deref(), Some("10.0.2.15"));
        // Without its agent, the guest's own interfaces are no longer known.
        facts.interfaces.clear();
        let told = facts.told(&leases).interfaces;
        assert_eq!(told.len(), 2);
        assert_eq!(told[0].info_source.as_deref(), Some("domain"));
    }

    #[test]
    fn conditions_are_there_when_there_is_something_to_say() {
        let mut facts = Facts { is_agent_connected: true, ..Facts::default() };
        facts.credentials = Some(Err("no such user".to_owned()));
        let shown: Vec<_> = facts.told(&[]).conditions.into_iter().map(|c| (c.type_, c.status, c.message)).collect();
        assert_eq!(
            shown,
            [
                ("AgentConnected".to_owned(), "True".to_owned(), None),
                ("AccessCredentialsSynchronized".to_owned(), "False".to_owned(), Some("no such user".to_owned())),
            ]
        );
        assert_eq!(Facts::default().told(&[]).conditions, []);
        let old = Facts { is_agent_connected: true, agent_lack: Some("too old"), ..Facts::default() };
        let shown: Vec<_> = old.told(&[]).conditions.into_iter().map(|c| (c.type_, c.status, c.reason)).collect();
        assert_eq!(shown[1], ("AgentVersionNotSupported".into(), "True".into(), Some("too old".into())));
    }

    #[test]
    fn what_a_guest_says_is_cut_short() {
        let os = OsInfo { name: "x\u{1b}[31m".repeat(1000), ..OsInfo::default() };
        let shown = os_info(&os).name.unwrap();
        assert!(shown.len() <= MAX_TEXT && !shown.contains('\u{1b}'));
    }
}
