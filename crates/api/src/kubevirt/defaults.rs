//! What KubeVirt fills in where an instance says nothing.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::{
    ClusterConfig, CpuFeature, CpuTopology, Disk, FeatureHyperv, FeatureState, Interface, MemoryStatus, Network,
    PodNetwork, Probe, VirtualMachineInstance, VirtualMachineInstanceSpec,
};
use crate::Marker;
use crate::amount;

/// Guests with more processors than this do not start.
const MOST_PROCESSORS: u32 = 512;
/// Memory is plugged in blocks of this size.
const MEMORY_BLOCK: i64 = 2 << 20;
const HUGE_MEMORY_BLOCK: i64 = 1 << 30;
/// Below this a guest cannot take more memory while it runs.
const LEAST_GROWING_MEMORY: i64 = 1 << 30;
/// QEMU's user in KubeVirt's images, which clients look for.
const RUNTIME_USER: u64 = 107;

impl VirtualMachineInstance {
    /// Fills in everything that is still open, status included. `uuid` is used if the firmware has none.
    pub fn fill_defaults(&mut self, config: &ClusterConfig, uuid: &str) {
        self.spec.fill_defaults(config);
        fill_devices(&mut self.spec);
        fill_features(&mut self.spec);
        let firmware = self.spec.domain.firmware.get_or_insert_default();
        fill_text(&mut firmware.uuid, uuid);
        fill_text(&mut self.spec.domain.cpu.get_or_insert_default().model, &config.cpu_model);
        for probe in [&mut self.spec.readiness_probe, &mut self.spec.liveness_probe].into_iter().flatten() {
            fill_probe(probe);
        }
        if config.live_update && self.spec.architecture.as_deref() == Some("amd64") {
            leave_room_for_sockets(&mut self.spec, config);
            leave_room_for_memory(&mut self.spec, config);
        }
        self.fill_status();
    }

    fn fill_status(&mut self) {
        let status = self.status.get_or_insert_default();
        status.runtime_user = Some(RUNTIME_USER);
        if let Some(guest) = self.spec.domain.memory.as_ref().and_then(|memory| memory.guest.clone()) {
            status.memory = Some(MemoryStatus {
                guest_at_boot: Some(guest.clone()),
                guest_current: Some(guest.clone()),
                guest_requested: Some(guest),
                ..MemoryStatus::default()
            });
        }
        if let (Some(cpu), None) = (&self.spec.domain.cpu, &status.current_cpu_topology) {
            let topology = CpuTopology { cores: cpu.cores, sockets: cpu.sockets, threads: cpu.threads };
            status.current_cpu_topology = Some(topology);
        }
    }
}

impl VirtualMachineInstanceSpec {
    /// The part of the defaults that `expand-spec` shows too.
    pub(crate) fn fill_defaults(&mut self, config: &ClusterConfig) {
        fill_text(&mut self.architecture, config.architecture);
        fill_text(&mut self.domain.machine.get_or_insert_default().type_, &config.machine_type);
        request_limits(self);
        fill_memory(self);
        fill_topology(self);
        for volume in &mut self.volumes {
            if let Some(disk) = &mut volume.container_disk {
                let is_moving = disk.image.ends_with(":latest") || !disk.image.contains([':', '@']);
                fill_text(&mut disk.image_pull_policy, if is_moving { "Always" } else { "IfNotPresent" });
            }
        }
        if self.eviction_strategy.is_none() {
            self.eviction_strategy.clone_from(&config.eviction_strategy);
        }
        self.add_default_network();
        self.add_missing_disks();
    }

    /// A machine that says nothing about networks gets a card on the default one.
    pub(crate) fn add_default_network(&mut self) {
        let devices = &mut self.domain.devices;
        let is_open = self.networks.is_empty() && devices.interfaces.is_empty();
        if !is_open || devices.autoattach_pod_interface == Some(false) {
            return;
        }
        let name = "default".to_owned();
        devices.interfaces =
            vec![Interface { name: name.clone(), masquerade: Some(Marker {}), ..Interface::default() }];
        self.networks = vec![Network { name, pod: Some(PodNetwork::default()), ..Network::default() }];
    }

    /// A volume that no disk and no file system shows gets a disk.
    pub(crate) fn add_missing_disks(&mut self) {
        let devices = &mut self.domain.devices;
        for volume in &self.volumes {
            let is_shown = devices.disks.iter().any(|disk| disk.name == volume.name)
                || devices.filesystems.iter().any(|filesystem| filesystem.name == volume.name);
            if !is_shown {
                devices.disks.push(Disk { name: volume.name.clone(), ..Disk::default() });
            }
        }
    }
}

/// An empty text is an open one.
fn fill_text(field: &mut Option<String>, value: &str) {
    if field.as_deref().unwrap_or_default().is_empty() {
        *field = Some(value.to_owned());
    }
}

fn request_limits(spec: &mut VirtualMachineInstanceSpec) {
    let resources = &mut spec.domain.resources;
    if let (Some(limit), true) = (resources.limits.get("cpu"), amount::is_zero(resources.requests.get("cpu"))) {
        resources.requests.insert("cpu".to_owned(), limit.clone());
    }
}

fn fill_memory(spec: &mut VirtualMachineInstanceSpec) {
    let resources = &spec.domain.resources;
    let memory = spec.domain.memory.get_or_insert_default();
    if memory.guest.is_some() {
        return;
    }
    let given = |list: &std::collections::BTreeMap<String, Quantity>| {
        list.get("memory").filter(|quantity| !amount::is_zero(Some(quantity))).cloned()
    };
    let page = || memory.hugepages.as_ref().and_then(|pages| pages.page_size.clone()).map(Quantity);
    memory.guest = given(&resources.requests).or_else(|| given(&resources.limits)).or_else(page);
}

fn fill_topology(spec: &mut VirtualMachineInstanceSpec) {
    let resources = &spec.domain.resources;
    let cpu = spec.domain.cpu.get_or_insert_default();
    let is_open = |number: Option<u32>| number.unwrap_or_default() == 0;
    if !(is_open(cpu.cores) && is_open(cpu.sockets) && is_open(cpu.threads)) {
        // Upstream leaves a partial topology to what starts the guest, where a missing number is one.
        for number in [&mut cpu.cores, &mut cpu.sockets, &mut cpu.threads] {
            if is_open(*number) {
                *number = Some(1);
            }
        }
        return;
    }
    let given = resources.limits.get("cpu").or(resources.requests.get("cpu"));
    let sockets = given.map_or(1, |quantity| u32::try_from(amount::value(quantity)).unwrap_or(1));
    (cpu.sockets, cpu.cores, cpu.threads) = (Some(sockets.max(1)), Some(1), Some(1));
}

fn fill_devices(spec: &mut VirtualMachineInstanceSpec) {
    let bus = if spec.architecture.as_deref() == Some("arm64") { "virtio" } else { "sata" };
    let devices = &mut spec.domain.devices;
    for disk in &mut devices.disks {
        if let Some(cdrom) = &mut disk.cdrom {
            fill_text(&mut cdrom.bus, if bus == "virtio" { "scsi" } else { bus });
            cdrom.readonly.get_or_insert(true);
            fill_text(&mut cdrom.tray, "closed");
        } else if let Some(lun) = &mut disk.lun {
            fill_text(&mut lun.bus, bus);
        } else {
            fill_text(&mut disk.disk.get_or_insert_default().bus, bus);
        }
    }
    for input in &mut devices.inputs {
        fill_text(&mut input.bus, "usb");
        if input.type_.is_empty() {
            "tablet".clone_into(&mut input.type_);
        }
    }
    if let Some(watchdog) = devices.watchdog.as_mut().filter(|watchdog| watchdog.diag288.is_none()) {
        fill_text(&mut watchdog.i6300esb.get_or_insert_default().action, "reset");
    }
}

fn fill_probe(probe: &mut Probe) {
    let at_least = |field: &mut Option<i32>, value: i32| {
        if field.unwrap_or_default() < 1 {
            *field = Some(value);
        }
    };
    at_least(&mut probe.timeout_seconds, 1);
    at_least(&mut probe.period_seconds, 10);
    at_least(&mut probe.success_threshold, 1);
    at_least(&mut probe.failure_threshold, 3);
}

fn fill_features(spec: &mut VirtualMachineInstanceSpec) {
    let features = spec.domain.features.get_or_insert_default();
    features.acpi.enabled.get_or_insert(true);
    for state in [&mut features.smm, &mut features.pvspinlock].into_iter().flatten() {
        state.enabled.get_or_insert(true);
    }
    if let Some(apic) = &mut features.apic {
        apic.enabled.get_or_insert(true);
    }
    let needs_vmx = features.hyperv.as_mut().is_some_and(|hyperv| {
        fill_hyperv(hyperv);
        is_on(hyperv.evmcs.as_ref())
    });
    if needs_vmx {
        require_feature(spec, "vmx");
    }
    let Some(timer) = spec.domain.clock.as_mut().and_then(|clock| clock.timer.as_mut()) else { return };
    let present = [
        timer.hpet.as_mut().map(|timer| &mut timer.present),
        timer.kvm.as_mut().map(|timer| &mut timer.present),
        timer.pit.as_mut().map(|timer| &mut timer.present),
        timer.rtc.as_mut().map(|timer| &mut timer.present),
        timer.hyperv.as_mut().map(|timer| &mut timer.present),
    ];
    for present in present.into_iter().flatten() {
        present.get_or_insert(true);
    }
}

fn is_on(state: Option<&FeatureState>) -> bool {
    state.is_some_and(|state| state.enabled != Some(false))
}

/// Features are on unless they are turned off, and bring along what they need if it is open.
fn fill_hyperv(hyperv: &mut FeatureHyperv) {
    let states = [
        &mut hyperv.relaxed,
        &mut hyperv.vapic,
        &mut hyperv.vpindex,
        &mut hyperv.runtime,
        &mut hyperv.synic,
        &mut hyperv.reset,
        &mut hyperv.frequencies,
        &mut hyperv.reenlightenment,
        &mut hyperv.ipi,
        &mut hyperv.evmcs,
    ];
    for state in states.into_iter().flatten() {
        state.enabled.get_or_insert(true);
    }
    if let Some(spinlocks) = &mut hyperv.spinlocks
        && *spinlocks.enabled.get_or_insert(true)
    {
        spinlocks.spinlocks.get_or_insert(4096);
    }
    if let Some(timer) = &mut hyperv.synictimer {
        timer.enabled.get_or_insert(true);
        if let Some(direct) = &mut timer.direct {
            direct.enabled.get_or_insert(true);
        }
    }
    if let Some(vendor) = &mut hyperv.vendorid {
        vendor.enabled.get_or_insert(true);
    }
    if let Some(flush) = &mut hyperv.tlbflush {
        flush.enabled.get_or_insert(true);
    }
    let on = || Some(FeatureState { enabled: Some(true) });
    if is_on(hyperv.evmcs.as_ref()) && hyperv.vapic.is_none() {
        hyperv.vapic = on();
    }
    let has_timer = hyperv.synictimer.as_ref().is_some_and(|timer| timer.enabled != Some(false));
    if has_timer && hyperv.synic.is_none() {
        hyperv.synic = on();
    }
    let flushes = hyperv.tlbflush.as_ref().is_some_and(|flush| flush.enabled != Some(false));
    if (is_on(hyperv.ipi.as_ref()) || flushes || is_on(hyperv.synic.as_ref())) && hyperv.vpindex.is_none() {
        hyperv.vpindex = on();
    }
}

fn require_feature(spec: &mut VirtualMachineInstanceSpec, name: &str) {
    let features = &mut spec.domain.cpu.get_or_insert_default().features;
    let policy = Some("require".to_owned());
    match features.iter_mut().find(|feature| feature.name == name) {
        Some(feature) => feature.policy = policy,
        None => features.push(CpuFeature { name: name.to_owned(), policy }),
    }
}

fn leave_room_for_sockets(spec: &mut VirtualMachineInstanceSpec, config: &ClusterConfig) {
    let cpu = spec.domain.cpu.get_or_insert_default();
    if cpu.max_sockets.unwrap_or_default() != 0 {
        return;
    }
    let [sockets, cores, threads] = [cpu.sockets, cpu.cores, cpu.threads].map(|number| number.unwrap_or(1).max(1));
    if let Some(most) = config.max_cpu_sockets.filter(|most| *most != 0) {
        cpu.max_sockets = Some(most.max(sockets));
        return;
    }
    let wanted = sockets.saturating_mul(config.max_hotplug_ratio);
    let per_socket = cores.saturating_mul(threads);
    let fits = MOST_PROCESSORS / per_socket;
    cpu.max_sockets = Some(wanted.min(fits).max(sockets));
}

fn leave_room_for_memory(spec: &mut VirtualMachineInstanceSpec, config: &ClusterConfig) {
    let is_fixed = spec.domain.launch_security.is_some()
        || spec.domain.cpu.as_ref().is_some_and(|cpu| {
            cpu.realtime.is_some() || cpu.numa.as_ref().is_some_and(|numa| numa.guest_mapping_passthrough.is_some())
        });
    let Some(memory) = spec.domain.memory.as_mut().filter(|memory| memory.max_guest.is_none()) else { return };
    let Some(guest) = memory.guest.as_ref().map(amount::value) else { return };
    let most = config
        .max_guest
        .as_ref()
        .map_or_else(|| guest.saturating_mul(i64::from(config.max_hotplug_ratio)), amount::value);
    let is_huge = memory.hugepages.as_ref().is_some_and(|pages| pages.page_size.as_deref() == Some("1Gi"));
    let block = if is_huge { HUGE_MEMORY_BLOCK } else { MEMORY_BLOCK };
    let can_grow = guest >= LEAST_GROWING_MEMORY && guest <= most && guest % block == 0 && most % block == 0;
    if can_grow && !is_fixed {
        memory.max_guest = Some(amount::bytes(most));
    }
}

#[cfg(test)]
mod tests;
