//! Disks: the devices, not what is behind them.

use std::collections::BTreeSet;

use croft_meta::{FieldPath, names};

use super::text;
use crate::admission::denial::{Denial, below};
use crate::kubevirt::{Disk, VirtualMachineInstanceSpec};

const BUSES: &[&str] = &["virtio", "scsi", "sata", "usb"];
const LONGEST_SERIAL: usize = 256;
const LEAST_BLOCK: u32 = 512;
const MOST_BLOCK: u32 = 2 << 20;

pub(super) fn check(denial: &mut Denial, at: &FieldPath, spec: &VirtualMachineInstanceSpec) {
    let list_at = below(at, "domain.devices.disks");
    let disks = &spec.domain.devices.disks;
    boot_orders(denial, at, spec);
    for (index, disk) in disks.iter().enumerate() {
        let own = list_at.index(index);
        behind(denial, &own, disk, spec);
        if let Some(other) = disks[..index].iter().position(|other| other.name == disk.name) {
            let message = format!("{own} and {} must not have the same Name.", list_at.index(other));
            denial.invalid(&own.child("name"), message);
        }
        for problem in names::is_dns1123_label(&disk.name) {
            denial.invalid(&own.child("name"), problem);
        }
        target(denial, &own, disk);
        options(denial, &own, disk);
        block_size(denial, &own, disk);
    }
}

/// Boot orders start at one and are different, over disks and network cards.
fn boot_orders(denial: &mut Denial, at: &FieldPath, spec: &VirtualMachineInstanceSpec) {
    let devices = &spec.domain.devices;
    let disks = devices.disks.iter().enumerate().map(|(index, disk)| ("disks", index, disk.boot_order));
    let cards = devices.interfaces.iter().enumerate().map(|(index, card)| ("interfaces", index, card.boot_order));
    let mut seen = BTreeSet::new();
    for (list, index, order) in disks.chain(cards) {
        let Some(order) = order else { continue };
        let own = below(at, "domain.devices").child(list).index(index);
        let field = own.child("bootOrder");
        if order < 1 {
            denial.invalid(&field, format!("{own} must have a boot order > 0, if supplied"));
        } else if !seen.insert(order) {
            denial.invalid(&field, format!("Boot order for {field} already set for a different device."));
        }
    }
}

/// A disk shows the volume of its name; only a CD drive may be empty.
fn behind(denial: &mut Denial, at: &FieldPath, disk: &Disk, spec: &VirtualMachineInstanceSpec) {
    let Some(volume) = spec.volumes.iter().find(|volume| volume.name == disk.name) else {
        if disk.cdrom.is_none() {
            denial.invalid(&at.child("name"), format!("{} '{}' not found.", at.child("Name"), disk.name));
        }
        return;
    };
    if disk.lun.is_some() && volume.persistent_volume_claim.is_none() && volume.data_volume.is_none() {
        let field = at.child("lun");
        let message = format!("{field} can only be mapped to a DataVolume or PersistentVolumeClaim volume.");
        denial.invalid(&field, message);
    }
    if disk.shareable == Some(true) {
        shareable(denial, at, disk);
    }
}

fn shareable(denial: &mut Denial, at: &FieldPath, disk: &Disk) {
    if !matches!(text(disk.cache.as_ref()), "" | "none") {
        let message = format!(
            "disk {} cannot be shareable: a shareable disk requires cache mode none, got {}",
            disk.name,
            text(disk.cache.as_ref())
        );
        denial.invalid(&at.child("cache"), message);
    }
}

fn bus_of(disk: &Disk) -> (&'static str, &str) {
    if let Some(target) = &disk.disk {
        ("disk", text(target.bus.as_ref()))
    } else if let Some(target) = &disk.lun {
        ("lun", text(target.bus.as_ref()))
    } else if let Some(target) = &disk.cdrom {
        ("cdrom", text(target.bus.as_ref()))
    } else {
        ("disk", "")
    }
}

fn target(denial: &mut Denial, at: &FieldPath, disk: &Disk) {
    let targets = [disk.disk.is_some(), disk.lun.is_some(), disk.cdrom.is_some()];
    if targets.into_iter().filter(|is_set| *is_set).count() > 1 {
        denial.invalid(at, format!("{at} can only have a single target type defined"));
    }
    let (kind, bus) = bus_of(disk);
    let field = at.child(kind).child("bus");
    match bus {
        "ide" => denial.invalid(&field, "IDE bus is not supported"),
        "virtio" if kind == "cdrom" => {
            denial.invalid(&field, format!("Bus type {bus} is invalid for CD-ROM device"));
        }
        "sata" if disk.disk.as_ref().is_some_and(|target| target.readonly == Some(true)) => {
            denial.invalid(&field, format!("{bus} hard-disks do not support read-only."));
        }
        bus if bus.is_empty() || BUSES.contains(&bus) => {}
        bus => {
            let buses = BUSES.join(" ");
            let message = format!("{at} is set with an unrecognized bus {bus}, must be one of: [{buses}]");
            denial.invalid(&field, message);
        }
    }
    if disk.dedicated_io_thread == Some(true) && !bus.is_empty() && bus != "virtio" {
        denial.not_supported(at, format!("IOThreads are not supported for disks on a {bus} bus"));
    }
    if disk.lun.as_ref().is_some_and(|lun| lun.reservation == Some(true)) {
        denial.invalid(&below(at, "lun.reservation"), "persistent reservation is not enabled in kubevirt config");
    }
    let has_address = disk.disk.as_ref().is_some_and(|target| !text(target.pci_address.as_ref()).is_empty());
    if has_address {
        let message = "PCI addresses of disks cannot be chosen; use serial to tell disks apart in the guest";
        denial.not_supported(&below(at, "disk.pciAddress"), message);
    }
    let tray = disk.cdrom.as_ref().map(|cdrom| text(cdrom.tray.as_ref())).unwrap_or_default();
    if !matches!(tray, "" | "open" | "closed") {
        let field = below(at, "cdrom.tray");
        denial.invalid(&field, format!("{field} has invalid value {tray}"));
    }
}

fn options(denial: &mut Denial, at: &FieldPath, disk: &Disk) {
    let serial = text(disk.serial.as_ref());
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_.+-".contains(c);
    if !serial.chars().all(is_plain) {
        let message = format!("{at} must be made up of the following characters [A-Za-z0-9_.+-], if specified");
        denial.invalid(&at.child("serial"), message);
    }
    if serial.chars().count() > LONGEST_SERIAL {
        let message = format!("{at} must be less than or equal to {LONGEST_SERIAL} in length, if specified");
        denial.invalid(&at.child("serial"), message);
    }
    let cache = text(disk.cache.as_ref());
    if !matches!(cache, "" | "none" | "writethrough" | "writeback") {
        let field = at.child("cache");
        denial.invalid(&field, format!("{field} has invalid value {cache}"));
    }
    if !matches!(text(disk.io.as_ref()), "" | "default" | "native" | "threads") {
        let message = format!("Disk IO mode for {at} is not supported. Supported modes are: native, threads.");
        denial.not_supported(&at.child("io"), message);
    }
    let policy = text(disk.error_policy.as_ref());
    if !matches!(policy, "" | "stop" | "ignore" | "report" | "enospace") {
        let field = at.child("errorPolicy");
        denial.invalid(&field, format!("{field} has invalid value \"{policy}\""));
    }
}

fn block_size(denial: &mut Denial, at: &FieldPath, disk: &Disk) {
    let Some(size) = &disk.block_size else { return };
    let Some(custom) = &size.custom else { return };
    if size.match_volume.as_ref().is_some_and(|matching| matching.enabled != Some(false)) {
        let message = "Block size matching can't be enabled together with a custom value";
        denial.invalid(&at.child("blockSize"), message);
        return;
    }
    let custom_at = below(at, "blockSize.custom");
    let (logical, physical) = (custom.logical.unwrap_or_default(), custom.physical.unwrap_or_default());
    let granularity = custom.discard_granularity.unwrap_or_default();
    if logical > physical {
        let message = format!("Logical size {logical} must be the same or less than the physical size of {physical}");
        denial.invalid(&custom_at.child("logical"), message);
    } else if bus_of(disk).1 == "sata" && logical != LEAST_BLOCK {
        let message = format!("Logical size {logical} must be {LEAST_BLOCK} for SATA devices");
        denial.invalid(&custom_at.child("logical"), message);
    } else if logical != 0 && granularity % logical != 0 {
        let message = format!("Discard granularity {granularity} must be multiples of logical size {logical}");
        denial.invalid(&custom_at.child("discardGranularity"), message);
    } else {
        for (name, size) in [("logical", logical), ("physical", physical)] {
            if let Some(problem) = block_problem(size) {
                denial.invalid(&custom_at.child(name), problem);
            }
        }
    }
}

fn block_problem(size: u32) -> Option<String> {
    if size < LEAST_BLOCK {
        return Some(format!("Provided size of {size} is less than the supported minimum size of {LEAST_BLOCK}"));
    }
    if size > MOST_BLOCK {
        return Some(format!("Provided size of {size} is greater than the supported maximum size of {MOST_BLOCK}"));
    }
    (!size.is_power_of_two()).then(|| format!("Provided size of {size} is not a power of 2"))
}
