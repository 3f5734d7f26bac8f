//! Board, processors, memory, firmware's identity and clock.

use croft_api::kubevirt::{Cpu as CpuSpec, CpuTopology, VirtualMachineInstanceSpec};
use croft_qemu::accel::Accel;
use croft_qemu::spec::{
    Chipset, Clock, ClockBase, Cpu, CpuModel, Firmware, Machine, MemoryBacking, MemoryHotplug, Smbios, SmbiosChassis,
};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use super::{Parts, Refusal, bytes, parse, refuse};

const PAGE: u64 = 4096;
/// How often memory can be added to a running guest.
const MEMORY_SLOTS: u16 = 16;
const MIB: u64 = 1 << 20;

pub(super) fn apply(machine: &mut Machine, spec: &VirtualMachineInstanceSpec, parts: &Parts) -> Result<(), Refusal> {
    if let Some(architecture) = spec.architecture.as_deref().filter(|architecture| *architecture != "amd64") {
        return refuse(format!("this node runs amd64 guests, not {architecture}"));
    }
    machine.chipset = chipset(spec)?;
    machine.cpu = cpu(spec, parts.accel)?;
    machine.memory.hotplug = max_memory(spec)?.map(|max_bytes| MemoryHotplug { max_bytes, slots: MEMORY_SLOTS });
    machine.memory.backing = backing(spec)?;
    machine.firmware = parts.firmware.clone();
    machine.kernel.clone_from(&parts.kernel);
    machine.smbios = smbios(spec);
    machine.clock = clock(spec, parts.now)?;
    if let Some(firmware) = &spec.domain.firmware {
        if firmware.acpi.is_some() {
            return refuse("domain.firmware.acpi: additional ACPI tables are not offered");
        }
        if firmware.bootloader.as_ref().and_then(|loader| loader.bios.as_ref()).and_then(|bios| bios.use_serial)
            == Some(true)
        {
            return refuse(
                "domain.firmware.bootloader.bios.useSerial: the firmware's own serial output is not offered",
            );
        }
    }
    match spec.domain.reboot_policy.as_deref() {
        None | Some("" | "Reboot") => {}
        Some("Terminate") => machine.is_reboot_power_off = true,
        Some(other) => return refuse(format!("domain.rebootPolicy: {other} is not known")),
    }
    if spec.domain.launch_security.is_some() {
        return refuse("domain.launchSecurity: encrypted guests are not offered");
    }
    Ok(())
}

fn chipset(spec: &VirtualMachineInstanceSpec) -> Result<Chipset, Refusal> {
    let name = spec.domain.machine.as_ref().and_then(|machine| machine.type_.as_deref()).unwrap_or_default();
    let version = |text: &str| Some(text.to_owned());
    Ok(match name {
        "" | "q35" => Chipset::Q35 { version: None },
        "pc" => Chipset::I440fx { version: None },
        _ => match (name.strip_prefix("pc-q35-"), name.strip_prefix("pc-i440fx-")) {
            (Some(text), _) => Chipset::Q35 { version: version(text) },
            (_, Some(text)) => Chipset::I440fx { version: version(text) },
            _ => return refuse(format!("domain.machine.type: {name} is not a board of this node's QEMU")),
        },
    })
}

fn count(what: &str, number: Option<u32>) -> Result<u16, Refusal> {
    let number = number.unwrap_or(1).max(1);
    u16::try_from(number).map_err(|_| Refusal(format!("domain.cpu.{what}: {number} is too many")))
}

/// The processors that the guest starts with.
pub(in super::super) fn topology(spec: &VirtualMachineInstanceSpec) -> CpuTopology {
    let cpu = spec.domain.cpu.as_ref();
    let at_least_one = |number: Option<u32>| Some(number.unwrap_or(1).max(1));
    CpuTopology {
        sockets: at_least_one(cpu.and_then(|cpu| cpu.sockets)),
        cores: at_least_one(cpu.and_then(|cpu| cpu.cores)),
        threads: at_least_one(cpu.and_then(|cpu| cpu.threads)),
    }
}

pub(in super::super) fn vcpus(spec: &VirtualMachineInstanceSpec) -> u64 {
    let topology = topology(spec);
    [topology.sockets, topology.cores, topology.threads].into_iter().flatten().map(u64::from).product()
}

pub(in super::super) fn sockets(spec: &VirtualMachineInstanceSpec) -> u32 {
    topology(spec).sockets.unwrap_or(1)
}

fn cpu(spec: &VirtualMachineInstanceSpec, accel: Accel) -> Result<Cpu, Refusal> {
    let default = CpuSpec::default();
    let cpu = spec.domain.cpu.as_ref().unwrap_or(&default);
    if cpu.dedicated_cpu_placement == Some(true) || cpu.isolate_emulator_thread == Some(true) {
        return refuse("domain.cpu.dedicatedCpuPlacement: this node gives no processors to one guest alone");
    }
    if cpu.numa.as_ref().is_some_and(|numa| numa.guest_mapping_passthrough.is_some()) {
        return refuse("domain.cpu.numa: the host's memory nodes are not shown to guests");
    }
    if cpu.realtime.is_some() {
        return refuse("domain.cpu.realtime: real-time guests are not offered");
    }
    let sockets = count("sockets", cpu.sockets)?;
    let mut features = Vec::new();
    for feature in &cpu.features {
        let is_on = match feature.policy.as_deref() {
            // Also what is optional: QEMU leaves out what the host lacks.
            None | Some("" | "force" | "require" | "optional") => true,
            Some("disable" | "forbid") => false,
            Some(other) => return refuse(format!("domain.cpu.features: {other} is not a policy")),
        };
        features.push((feature.name.clone(), is_on));
    }
    features::kvm(spec, accel, &mut features);
    Ok(Cpu {
        model: match cpu.model.as_deref() {
            None | Some("" | "host-model" | "host-passthrough") => CpuModel::Host,
            Some(model) => CpuModel::Named(model.to_owned()),
        },
        features,
        sockets,
        cores: count("cores", cpu.cores)?,
        threads: count("threads", cpu.threads)?,
        max_sockets: match cpu.max_sockets {
            // QEMU can add processors to a running guest in whole sockets.
            Some(most) if super::can_hotplug(spec) => count("maxSockets", Some(most))?.max(sockets),
            _ => sockets,
        },
    })
}

mod features {
    use super::{Accel, VirtualMachineInstanceSpec};

    /// What KVM tells or hides of itself. Emulation has nothing of the kind.
    pub(super) fn kvm(spec: &VirtualMachineInstanceSpec, accel: Accel, features: &mut Vec<(String, bool)>) {
        if accel != Accel::Kvm {
            return;
        }
        let mut set = |name: &str, is_on: bool| features.push((name.to_owned(), is_on));
        if let Some(wanted) = &spec.domain.features {
            if wanted.kvm.as_ref().and_then(|kvm| kvm.hidden) == Some(true) {
                set("kvm", false);
            }
            if let Some(state) = &wanted.pvspinlock {
                set("kvm-pv-unhalt", state.enabled != Some(false));
            }
            if wanted.apic.as_ref().and_then(|apic| apic.end_of_interrupt) == Some(true) {
                set("kvm-pv-eoi", true);
            }
        }
        let timer = spec.domain.clock.as_ref().and_then(|clock| clock.timer.as_ref());
        if timer.and_then(|timer| timer.kvm.as_ref()).and_then(|kvm| kvm.present) == Some(false) {
            set("kvmclock", false);
        }
    }
}

/// What the guest boots with.
pub(in super::super) fn guest_memory(spec: &VirtualMachineInstanceSpec) -> Result<u64, Refusal> {
    let guest = spec.domain.memory.as_ref().and_then(|memory| memory.guest.as_ref());
    let resources = &spec.domain.resources;
    let written = guest.or_else(|| resources.requests.get("memory")).or_else(|| resources.limits.get("memory"));
    let Some(written) = written else { return refuse("domain.memory.guest: how much memory is not said") };
    let wanted = bytes("domain.memory.guest", written)?;
    // As KubeVirt: what is not a whole page is left out.
    match wanted / PAGE * PAGE {
        0 => refuse("domain.memory.guest: less than a page"),
        whole => Ok(whole),
    }
}

/// What the guest may grow to, if more than it boots with.
pub(in super::super) fn max_memory(spec: &VirtualMachineInstanceSpec) -> Result<Option<u64>, Refusal> {
    let Some(written) = spec.domain.memory.as_ref().and_then(|memory| memory.max_guest.as_ref()) else {
        return Ok(None);
    };
    let most = bytes("domain.memory.maxGuest", written)? / PAGE * PAGE;
    Ok((super::can_hotplug(spec) && most > guest_memory(spec)?).then_some(most))
}

fn backing(spec: &VirtualMachineInstanceSpec) -> Result<MemoryBacking, Refusal> {
    let hugepages = spec.domain.memory.as_ref().and_then(|memory| memory.hugepages.as_ref());
    let Some(size) = hugepages.and_then(|hugepages| hugepages.page_size.as_deref()) else {
        return Ok(MemoryBacking::Anonymous);
    };
    let written = k8s_openapi::apimachinery::pkg::api::resource::Quantity(size.to_owned());
    let page_bytes = bytes("domain.memory.hugepages.pageSize", &written)?;
    if page_bytes == 0 || guest_memory(spec)? % page_bytes != 0 {
        return refuse(format!("domain.memory.hugepages: the guest's memory is not a number of pages of {size}"));
    }
    Ok(MemoryBacking::Hugepages { page_bytes })
}

/// What QEMU needs beside the guest's memory: itself, its threads, its tables, the screen, and translated code when
/// it emulates. Generous, since what goes past the limit is killed.
pub(in super::super) fn overhead(spec: &VirtualMachineInstanceSpec, accel: Accel) -> Result<u64, Refusal> {
    let memory = guest_memory(spec)?.max(max_memory(spec)?.unwrap_or_default());
    let translation = match accel {
        Accel::Kvm => 0,
        Accel::Tcg { cache_mib } => u64::from(cache_mib.unwrap_or(1024)) * MIB,
    };
    let mut total = 192 * MIB + memory / 512 + 8 * MIB * vcpus(spec) + translation;
    if super::has_graphics(spec) {
        total += 48 * MIB;
    }
    if super::has_tpm(spec) {
        total += 64 * MIB;
    }
    if super::efi(spec).is_some() {
        total += 16 * MIB;
    }
    let added = spec.domain.memory.as_ref().and_then(|memory| memory.reserved_overhead.as_ref());
    if let Some(added) = added.and_then(|reserved| reserved.added_overhead.as_ref()) {
        total += u64::try_from(parse("domain.memory.reservedOverhead", added)?.value()).unwrap_or_default();
    }
    Ok(total)
}

/// As KubeVirt tells its guests, so that what looks for KubeVirt inside a guest finds it.
fn smbios(spec: &VirtualMachineInstanceSpec) -> Smbios {
    let chassis = spec.domain.chassis.clone().unwrap_or_default();
    Smbios {
        manufacturer: Some("KubeVirt".into()),
        product: Some("None".into()),
        family: Some("KubeVirt".into()),
        serial: spec.domain.firmware.as_ref().and_then(|firmware| firmware.serial.clone()),
        chassis: SmbiosChassis {
            manufacturer: chassis.manufacturer,
            version: chassis.version,
            serial: chassis.serial,
            asset: chassis.asset,
            sku: chassis.sku,
        },
        ..Smbios::default()
    }
}

fn clock(spec: &VirtualMachineInstanceSpec, now: Timestamp) -> Result<Clock, Refusal> {
    let Some(wanted) = &spec.domain.clock else { return Ok(Clock::default()) };
    let offset = wanted.utc.as_ref().and_then(|utc| utc.offset_seconds).filter(|seconds| *seconds != 0);
    let base = match (offset, wanted.timezone.as_deref().filter(|name| !name.is_empty())) {
        (_, Some(name)) => {
            let zone = TimeZone::get(name).map_err(|error| Refusal(format!("domain.clock.timezone: {error}")))?;
            ClockBase::At(local(now, i64::from(zone.to_offset(now).seconds()))?)
        }
        (Some(seconds), None) => ClockBase::At(local(now, seconds)?),
        (None, None) => ClockBase::Utc,
    };
    let timer = wanted.timer.clone().unwrap_or_default();
    if timer.pit.as_ref().and_then(|pit| pit.present) == Some(false) {
        return refuse("domain.clock.timer.pit: the board's timer cannot be taken away");
    }
    if let Some(policy) = timer.pit.and_then(|pit| pit.tick_policy).filter(|policy| policy != "delay") {
        return refuse(format!("domain.clock.timer.pit.tickPolicy: {policy} is not offered, only delay"));
    }
    let hpet = timer.hpet.as_ref().and_then(|hpet| hpet.tick_policy.as_deref());
    if let Some(policy) = hpet.filter(|policy| !matches!(*policy, "" | "delay")) {
        return refuse(format!("domain.clock.timer.hpet.tickPolicy: {policy} is not offered, only delay"));
    }
    let rtc = timer.rtc.unwrap_or_default();
    let catches_up = match rtc.tick_policy.as_deref() {
        Some("catchup") => true,
        None | Some("" | "delay") => false,
        Some(other) => return refuse(format!("domain.clock.timer.rtc.tickPolicy: {other} is not offered")),
    };
    Ok(Clock {
        base,
        has_hpet: timer.hpet.is_some_and(|hpet| hpet.present != Some(false)),
        follows_guest: rtc.track.as_deref() == Some("guest"),
        catches_up,
    })
}

/// What a clock shows that is this much ahead of UTC.
fn local(now: Timestamp, ahead_seconds: i64) -> Result<String, Refusal> {
    let shown = now.checked_add(SignedDuration::from_secs(ahead_seconds));
    let shown = shown.map_err(|_| Refusal("domain.clock.utc.offsetSeconds: too far away".into()))?;
    Ok(shown.strftime("%Y-%m-%dT%H:%M:%S").to_string())
}

/// Whether Secure Boot is on, which it is unless said otherwise.
pub(super) fn has_secure_boot(machine: &Machine) -> bool {
    matches!(machine.firmware, Firmware::Uefi { has_secure_boot: true, .. })
}
