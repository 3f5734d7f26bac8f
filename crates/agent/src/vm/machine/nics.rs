//! Network interfaces.

use croft_api::kubevirt::{Interface, VirtualMachineInstance};
use croft_qemu::spec::{Mac, Nic, NicBackend, NicModel};
use sha2::{Digest, Sha256};

use super::{Cable, Parts, Refusal, disks, nic_id, refuse};

pub(super) fn all(vmi: &VirtualMachineInstance, parts: &Parts) -> Result<Vec<Nic>, Refusal> {
    let interfaces = &vmi.spec.domain.devices.interfaces;
    let present = interfaces.iter().filter(|interface| interface.state.as_deref() != Some("absent"));
    present
        .map(|interface| match parts.cables.get(&interface.name) {
            Some(cable) => nic(vmi, interface, cable),
            None => refuse(format!("interface {}: there is no network of that name", interface.name)),
        })
        .collect()
}

/// A guest that nobody can call by its name should know why.
pub(super) fn warnings(parts: &Parts) -> impl Iterator<Item = String> + '_ {
    let in_qemu = parts.cables.iter().filter(|(_, cable)| matches!(cable.backend, NicBackend::User { .. }));
    in_qemu.map(|(name, _)| {
        format!("interface {name}: this node cannot make taps, so it is on QEMU's own network, without name or fixed address")
    })
}

pub(in super::super) fn nic(
    vmi: &VirtualMachineInstance,
    interface: &Interface,
    cable: &Cable,
) -> Result<Nic, Refusal> {
    let name = &interface.name;
    let model = match interface.model.as_deref().unwrap_or_default() {
        "" | "virtio" => NicModel::Virtio,
        "e1000" => NicModel::E1000,
        "e1000e" => NicModel::E1000e,
        "rtl8139" => NicModel::Rtl8139,
        "pcnet" => NicModel::Pcnet,
        "ne2k_pci" => NicModel::Ne2kPci,
        other => return refuse(format!("interface {name}: there is no model {other}")),
    };
    if interface.pci_address.as_deref().is_some_and(|address| !address.is_empty()) {
        return refuse(format!("interface {name}: PCI addresses cannot be chosen"));
    }
    let acpi_index = interface.acpi_index.filter(|index| *index != 0).map(u32::try_from).transpose();
    Ok(Nic {
        id: nic_id(name),
        backend: cable.backend.clone(),
        model,
        mac: interface_mac(vmi, interface)?,
        boot_index: interface.boot_order.map(disks::boot_index).transpose()?,
        acpi_index: acpi_index.map_err(|_| Refusal(format!("interface {name}: acpiIndex is out of range")))?,
        // Only virtio can be told.
        mtu: cable.mtu.filter(|_| model == NicModel::Virtio),
    })
}

/// The address that was chosen, or one that stays the same for as long as the machine has this name.
pub(in super::super) fn interface_mac(vmi: &VirtualMachineInstance, interface: &Interface) -> Result<Mac, Refusal> {
    if let Some(text) = interface.mac_address.as_deref().filter(|text| !text.is_empty()) {
        return text.parse().map_err(|_| Refusal(format!("interface {}: {text} is no MAC address", interface.name)));
    }
    let mut hash = Sha256::new();
    let meta = &vmi.metadata;
    for part in [meta.namespace.as_deref(), meta.name.as_deref(), Some(interface.name.as_str())] {
        hash.update(part.unwrap_or_default());
        hash.update([0]);
    }
    let digest = hash.finalize();
    // Locally administered, for one receiver.
    Ok(Mac([0x02, digest[0], digest[1], digest[2], digest[3], digest[4]]))
}
