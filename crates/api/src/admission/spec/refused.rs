//! What Croft cannot honour. It is in the schema, and said here rather than left undone.

use croft_meta::FieldPath;

use super::text;
use crate::admission::denial::{Denial, below};
use crate::kubevirt::VirtualMachineInstanceSpec;

pub(super) fn check(denial: &mut Denial, at: &FieldPath, spec: &VirtualMachineInstanceSpec) {
    let domain = &spec.domain;
    let cpu = domain.cpu.as_ref();
    let firmware = domain.firmware.as_ref();
    let bios = firmware.and_then(|firmware| firmware.bootloader.as_ref()?.bios.as_ref());
    let apic = domain.features.as_ref().and_then(|features| features.apic.as_ref());
    let timer = domain.clock.as_ref().and_then(|clock| clock.timer.as_ref());
    let pit = timer.and_then(|timer| timer.pit.as_ref());
    let rtc = timer.and_then(|timer| timer.rtc.as_ref());
    let hpet = timer.and_then(|timer| timer.hpet.as_ref());
    let scheduler = text(spec.scheduler_name.as_ref());
    let refused = [
        (domain.launch_security.is_some(), "domain.launchSecurity", "encrypted guests are not supported"),
        (cpu.is_some_and(|cpu| cpu.realtime.is_some()), "domain.cpu.realtime", "real-time guests are not supported"),
        (
            cpu.is_some_and(|cpu| cpu.numa.as_ref().is_some_and(|numa| numa.guest_mapping_passthrough.is_some())),
            "domain.cpu.numa.guestMappingPassthrough",
            "the NUMA nodes of the host cannot be shown to guests",
        ),
        (
            domain.memory.as_ref().is_some_and(|memory| memory.reserved_overhead.is_some()),
            "domain.memory.reservedOverhead",
            "the overhead of guests cannot be chosen",
        ),
        (
            firmware.is_some_and(|firmware| firmware.acpi.is_some()),
            "domain.firmware.acpi",
            "additional ACPI tables are not supported",
        ),
        (
            bios.is_some_and(|bios| bios.use_serial == Some(true)),
            "domain.firmware.bootloader.bios.useSerial",
            "the output of the BIOS on the serial console is not supported",
        ),
        (
            apic.is_some_and(|apic| apic.enabled == Some(false)),
            "domain.features.apic",
            "the interrupt controller cannot be taken away",
        ),
        (
            pit.is_some_and(|pit| pit.present == Some(false)),
            "domain.clock.timer.pit",
            "the timer of the board cannot be taken away",
        ),
        (
            rtc.is_some_and(|rtc| rtc.present == Some(false)),
            "domain.clock.timer.rtc",
            "the clock of the board cannot be taken away",
        ),
        (
            !matches!(text(rtc.and_then(|rtc| rtc.tick_policy.as_ref())), "" | "delay" | "catchup"),
            "domain.clock.timer.rtc.tickPolicy",
            "only delay and catchup are supported",
        ),
        (
            !matches!(text(pit.and_then(|pit| pit.tick_policy.as_ref())), "" | "delay"),
            "domain.clock.timer.pit.tickPolicy",
            "only delay is supported",
        ),
        (
            !matches!(text(hpet.and_then(|hpet| hpet.tick_policy.as_ref())), "" | "delay"),
            "domain.clock.timer.hpet.tickPolicy",
            "only delay is supported",
        ),
        (domain.devices.panic_devices.len() > 1, "domain.devices.panicDevices", "one is all that a guest can use"),
        (
            domain.devices.panic_devices.iter().any(|device| text(device.model.as_ref()) == "hyperv"),
            "domain.devices.panicDevices.model",
            "hyperv is not supported: use isa or pvpanic",
        ),
        (
            !domain.devices.filesystems.is_empty(),
            "domain.devices.filesystems",
            "shared directories (virtiofs) are not supported",
        ),
        (
            domain.devices.downward_metrics.is_some(),
            "domain.devices.downwardMetrics",
            "downward metrics are not supported",
        ),
        (
            domain.devices.use_virtio_transitional == Some(true),
            "domain.devices.useVirtioTransitional",
            "virtio devices of the old standard are not supported",
        ),
        (!spec.resource_claims.is_empty(), "resourceClaims", "resource claims are not supported"),
        (!spec.utility_volumes.is_empty(), "utilityVolumes", "utility volumes are not supported"),
        (
            !matches!(scheduler, "" | "default-scheduler"),
            "schedulerName",
            "other schedulers are not supported: Croft places instances itself",
        ),
    ];
    for (is_asked_for, field, why) in refused {
        if is_asked_for {
            let field = below(at, field);
            denial.not_supported(&field, format!("{field}: {why}"));
        }
    }
    disks(denial, at, spec);
    for (index, volume) in spec.volumes.iter().enumerate() {
        for (is_set, name) in
            [(volume.downward_metrics.is_some(), "downwardMetrics"), (volume.container_path.is_some(), "containerPath")]
        {
            if is_set {
                let field = below(at, "volumes").index(index).child(name);
                denial.not_supported(&field, format!("{field}: volumes of this kind are not supported"));
            }
        }
    }
    for (index, network) in spec.networks.iter().enumerate() {
        let pod = network.pod.clone().unwrap_or_default();
        for (written, name) in [(pod.vm_network_cidr, "vmNetworkCIDR"), (pod.vm_ipv6_network_cidr, "vmIPv6NetworkCIDR")]
        {
            if !text(written.as_ref()).is_empty() {
                let field = below(at, "networks").index(index).child("pod").child(name);
                let why = "the addresses of the default network are the node's to give";
                denial.not_supported(&field, format!("{field}: {why}"));
            }
        }
        if network.resource_claim.is_some() {
            let field = below(at, "networks").index(index).child("resourceClaim");
            denial.not_supported(&field, format!("{field}: resource claims are not supported"));
        }
    }
}

fn disks(denial: &mut Denial, at: &FieldPath, spec: &VirtualMachineInstanceSpec) {
    let list_at = below(at, "domain.devices.disks");
    for (index, disk) in spec.domain.devices.disks.iter().enumerate() {
        if disk.changed_block_tracking == Some(true) {
            let field = list_at.index(index).child("changedBlockTracking");
            denial.not_supported(&field, format!("{field}: the blocks that a guest changes are not tracked"));
        }
        // What a tag names must be found by something that the guest sees.
        if !text(disk.tag.as_ref()).is_empty() && text(disk.serial.as_ref()).is_empty() {
            let field = list_at.index(index).child("tag");
            denial.not_supported(&field, format!("{field}: a tagged disk is found by its serial, which is not set"));
        }
    }
}
