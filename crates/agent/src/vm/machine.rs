//! From a VirtualMachineInstance to the machine that QEMU is told to be. Pure: what stands behind disks and interfaces is
//! passed in. A field that cannot be honoured is a [`Refusal`], never a shrug; what the accelerator cannot do, and the
//! guest can live without, is a warning.

mod devices;
mod disks;
mod features;
mod nics;
mod system;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use croft_api::kubevirt::{Efi, VirtualMachineInstance, VirtualMachineInstanceSpec};
use croft_meta::Quantity;
use croft_qemu::accel::Accel;
use croft_qemu::spec::{Firmware, Id, Kernel, Listener, Machine, NicBackend, Source, TpmSocket, Vsock};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Written;
use sha2::{Digest, Sha256};
use uuid::Uuid;

pub(super) use disks::{bus_of, disk, targets};
pub(super) use nics::{interface_mac, nic};
pub(super) use system::{guest_memory, overhead, sockets, topology, vcpus};

/// Free ports for disks and interfaces that are plugged while the guest runs.
const HOTPLUG_PORTS: u8 = 4;
/// KubeVirt's number of USB devices that a client may lend.
const USB_REDIRECTIONS: usize = 4;

/// Why a machine cannot be made as its object asks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct Refusal(pub(super) String);

pub(super) fn refuse<T>(message: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal(message.into()))
}

/// What is behind a disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Medium {
    pub(super) source: Source,
    pub(super) is_block: bool,
    pub(super) is_read_only: bool,
    /// Whether the host's page cache can be gone past.
    pub(super) is_direct: bool,
    /// The least that the storage reads and writes, where it says so.
    pub(super) block_bytes: Option<u32>,
    /// Whether QEMU can use io_uring on this node.
    pub(super) has_io_uring: bool,
    /// Its blocks were taken from the pool at once; the guest does not give them back.
    pub(super) is_preallocated: bool,
}

/// What is behind an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Cable {
    pub(super) backend: NicBackend,
    pub(super) mtu: Option<u16>,
}

/// Everything that the object does not say itself.
#[derive(Debug, Clone)]
pub(super) struct Parts {
    pub(super) accel: Accel,
    pub(super) now: Timestamp,
    /// By the volume's name.
    pub(super) media: BTreeMap<String, Medium>,
    /// By the interface's name.
    pub(super) cables: BTreeMap<String, Cable>,
    pub(super) firmware: Firmware,
    pub(super) kernel: Option<Kernel>,
    pub(super) serial: Option<Listener>,
    pub(super) agent: Option<Listener>,
    pub(super) usb_redirections: Vec<Listener>,
    pub(super) tpm: Option<TpmSocket>,
    pub(super) vsock: Option<Vsock>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Translated {
    pub(super) machine: Machine,
    pub(super) warnings: Vec<String>,
}

pub(super) fn translate(vmi: &VirtualMachineInstance, parts: &Parts) -> Result<Translated, Refusal> {
    let spec = &vmi.spec;
    let mut warnings = Vec::new();
    let name = format!(
        "{}/{}",
        vmi.metadata.namespace.as_deref().unwrap_or_default(),
        vmi.metadata.name.as_deref().unwrap_or_default()
    );
    let mut machine = Machine::new(&name, machine_uuid(vmi), guest_memory(spec)?);
    system::apply(&mut machine, spec, parts)?;
    features::apply(&mut machine, spec, parts.accel, &mut warnings)?;
    devices::apply(&mut machine, spec, parts)?;
    machine.disks = disks::all(spec, parts, &mut machine.iothreads)?;
    machine.nics = nics::all(vmi, parts)?;
    boot_order(&mut machine, spec);
    if can_hotplug(spec) {
        machine.has_scsi = true;
        machine.hotplug_ports = HOTPLUG_PORTS;
    }
    warnings.extend(nics::warnings(parts));
    Ok(Translated { machine, warnings })
}

/// Devices with an order boot in that order and no others do; if none has one, disks boot as they are listed.
fn boot_order(machine: &mut Machine, spec: &VirtualMachineInstanceSpec) {
    let devices = &spec.domain.devices;
    let is_given = devices.disks.iter().any(|disk| disk.boot_order.is_some())
        || devices.interfaces.iter().any(|interface| interface.boot_order.is_some());
    if is_given || machine.kernel.is_some() {
        return;
    }
    let bootable = machine.disks.iter_mut().filter(|disk| disk.source.is_some());
    for (index, disk) in (1..).zip(bootable) {
        disk.boot_index = Some(index);
    }
}

pub(super) fn can_hotplug(spec: &VirtualMachineInstanceSpec) -> bool {
    spec.domain.devices.disable_hotplug != Some(true)
}

/// Where devices can be plugged while the guest runs.
pub(super) fn hotplug_buses(spec: &VirtualMachineInstanceSpec) -> Vec<String> {
    let board = spec.domain.machine.as_ref().and_then(|machine| machine.type_.as_deref()).unwrap_or_default();
    if board == "pc" || board.starts_with("pc-i440fx") {
        return vec!["pci.0".to_owned()];
    }
    (0..HOTPLUG_PORTS).map(|index| format!("spare{index}")).collect()
}

/// What the guest knows itself by. It stays over restarts, since the VM's own object has it.
pub(super) fn machine_uuid(vmi: &VirtualMachineInstance) -> Uuid {
    let written = vmi.spec.domain.firmware.as_ref().and_then(|firmware| firmware.uuid.as_deref());
    let fallback = || vmi.metadata.uid.as_deref().and_then(|uid| uid.parse().ok());
    written.and_then(|uuid| uuid.parse().ok()).or_else(fallback).unwrap_or_default()
}

/// UEFI, if the machine is to have it.
pub(super) fn efi(spec: &VirtualMachineInstanceSpec) -> Option<&Efi> {
    spec.domain.firmware.as_ref()?.bootloader.as_ref()?.efi.as_ref()
}

pub(super) fn has_tpm(spec: &VirtualMachineInstanceSpec) -> bool {
    spec.domain.devices.tpm.as_ref().is_some_and(|tpm| tpm.enabled != Some(false))
}

pub(super) fn has_serial(spec: &VirtualMachineInstanceSpec) -> bool {
    spec.domain.devices.autoattach_serial_console != Some(false)
}

pub(super) fn has_graphics(spec: &VirtualMachineInstanceSpec) -> bool {
    spec.domain.devices.autoattach_graphics_device != Some(false)
}

pub(super) fn usb_redirections(spec: &VirtualMachineInstanceSpec) -> usize {
    if spec.domain.devices.client_passthrough.is_some() { USB_REDIRECTIONS } else { 0 }
}

/// The id of a volume's device and of its block node.
pub(super) fn disk_id(volume: &str) -> Id {
    id("d-", volume)
}

/// The id of an interface's device.
pub(super) fn nic_id(interface: &str) -> Id {
    id("n-", interface)
}

/// A name that QEMU takes. Ours may be longer and hold other characters; then a hash keeps them apart.
fn id(prefix: &str, name: &str) -> Id {
    // What begins with a hash's mark could be mistaken for a hash.
    if !name.contains('.')
        && let Ok(id) = Id::new(&format!("{prefix}{name}"))
    {
        return id;
    }
    let hash =
        Sha256::digest(name.as_bytes()).iter().take(12).fold(String::new(), |text, byte| format!("{text}{byte:02x}"));
    // A prefix, a mark and 24 digits are 27 characters of QEMU's alphabet.
    #[expect(clippy::expect_used, reason = "the parts are fixed")]
    Id::new(&format!("{prefix}.{hash}")).expect("a valid id")
}

/// A quantity as a number of bytes.
pub(super) fn bytes(what: &str, written: &Written) -> Result<u64, Refusal> {
    let quantity = parse(what, written)?;
    u64::try_from(quantity.value()).map_err(|_| Refusal(format!("{what}: {} is negative", written.0)))
}

fn parse(what: &str, written: &Written) -> Result<Quantity, Refusal> {
    Quantity::parse(&written.0).map_err(|error| Refusal(format!("{what}: {}: {error}", written.0)))
}
