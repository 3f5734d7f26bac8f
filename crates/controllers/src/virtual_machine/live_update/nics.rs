//! Network cards that are plugged in and out while the guest runs.

use croft_api::kubevirt::{Interface, Network, VirtualMachineInstance, VirtualMachineInstanceSpec};

const ABSENT: &str = "absent";

fn is_absent(interface: &Interface) -> bool {
    interface.state.as_deref() == Some(ABSENT)
}

fn named<'a>(interfaces: &'a [Interface], name: &str) -> Option<&'a Interface> {
    interfaces.iter().find(|interface| interface.name == name)
}

/// Makes the instance's cards follow the template: new ones come, states change, and those that are out are forgotten.
pub(super) fn follow(instance: &mut VirtualMachineInstance, template: &VirtualMachineInstanceSpec) {
    let in_use = names_in_use(instance);
    let spec = &mut instance.spec;
    for wanted in &template.domain.devices.interfaces {
        let there = spec.domain.devices.interfaces.iter_mut().find(|there| there.name == wanted.name);
        match there {
            Some(there) if !is_absent(there) => there.state.clone_from(&wanted.state),
            None if !is_absent(wanted) && is_pluggable(wanted) => {
                let network = template.networks.iter().find(|network| network.name == wanted.name);
                spec.networks.extend(network.cloned());
                spec.domain.devices.interfaces.push(wanted.clone());
            }
            _ => {}
        }
    }
    forget(&mut spec.domain.devices.interfaces, &mut spec.networks, |name| in_use.iter().any(|used| used == name));
}

/// Takes out of the template what is out of the instance.
pub(super) fn forget_absent(template: &mut VirtualMachineInstanceSpec, instance: Option<&VirtualMachineInstance>) {
    let in_use = instance.map(names_in_use).unwrap_or_default();
    let there = instance.map(|instance| instance.spec.domain.devices.interfaces.as_slice()).unwrap_or_default();
    let is_kept = |name: &str| in_use.iter().any(|used| used == name) || named(there, name).is_some();
    forget(&mut template.domain.devices.interfaces, &mut template.networks, is_kept);
}

fn forget(interfaces: &mut Vec<Interface>, networks: &mut Vec<Network>, is_kept: impl Fn(&str) -> bool) {
    let gone: Vec<String> = interfaces
        .iter()
        .filter(|interface| is_absent(interface) && !is_kept(&interface.name))
        .map(|interface| interface.name.clone())
        .collect();
    interfaces.retain(|interface| !gone.contains(&interface.name));
    networks.retain(|network| !gone.contains(&network.name));
}

fn names_in_use(instance: &VirtualMachineInstance) -> Vec<String> {
    let interfaces = instance.status.iter().flat_map(|status| &status.interfaces);
    interfaces.filter_map(|interface| interface.name.clone()).collect()
}

fn is_pluggable(interface: &Interface) -> bool {
    interface.bridge.is_some() || interface.sriov.is_some() || interface.masquerade.is_some()
}

/// Whether the cards that the guest has could only become the wanted ones by a restart. What the guest was started with
/// is what counts for its first cards: the instance has defaults filled in that nobody asked for.
pub(super) fn needs_restart(
    started: &VirtualMachineInstanceSpec,
    wanted: &VirtualMachineInstanceSpec,
    instance: &VirtualMachineInstance,
) -> bool {
    let there = &instance.spec.domain.devices.interfaces;
    let wanted_interfaces = &wanted.domain.devices.interfaces;
    let is_interface_same = |there: &Interface| {
        let from = named(&started.domain.devices.interfaces, &there.name).unwrap_or(there);
        let same = |wanted: &Interface| stateless(wanted) == stateless(from);
        named(wanted_interfaces, &there.name).is_some_and(same)
    };
    let is_network_same = |there: &Network| {
        let find = |networks: &[Network]| networks.iter().find(|network| network.name == there.name).cloned();
        find(&wanted.networks) == Some(find(&started.networks).unwrap_or_else(|| there.clone()))
    };
    let can_be_plugged =
        |wanted: &Interface| named(there, &wanted.name).is_some() || is_absent(wanted) || is_pluggable(wanted);
    !(there.iter().all(is_interface_same)
        && instance.spec.networks.iter().all(is_network_same)
        && wanted_interfaces.iter().all(can_be_plugged))
}

fn stateless(interface: &Interface) -> Interface {
    Interface { state: None, ..interface.clone() }
}
