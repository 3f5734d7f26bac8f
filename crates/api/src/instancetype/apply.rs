//! An instancetype into the spec of an instance. What both of them set is a conflict.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::conflict::{Conflict, Conflicts};
use super::topology::{Spread, Topology};
use super::{VirtualMachineInstancetypeSpec, VirtualMachinePreferenceSpec};
use crate::amount;
use crate::kubevirt::VirtualMachineInstanceSpec;

/// Where the spec stands in the object that conflicts are reported for.
struct Applying<'a> {
    base: &'a str,
    conflicts: Vec<Conflict>,
}

impl Applying<'_> {
    fn conflict(&mut self, field: &str) {
        self.conflicts.push(Conflict::at(format!("{}.{field}", self.base)));
    }
}

pub(super) fn apply(
    instancetype: &VirtualMachineInstancetypeSpec,
    preference: Option<&VirtualMachinePreferenceSpec>,
    spec: &mut VirtualMachineInstanceSpec,
    metadata: &mut ObjectMeta,
    base: &str,
) -> Result<(), Conflicts> {
    let mut applying = Applying { base, conflicts: Vec::new() };
    placement(instancetype, spec, &mut applying);
    processors(instancetype, preference, spec, &mut applying);
    memory(instancetype, spec, &mut applying);
    threads(instancetype, spec, &mut applying);
    devices(instancetype, spec, &mut applying);
    annotations(instancetype, metadata, &mut applying);
    if applying.conflicts.is_empty() { Ok(()) } else { Err(Conflicts(applying.conflicts)) }
}

fn is_set(text: Option<&String>) -> bool {
    text.is_some_and(|text| !text.is_empty())
}

fn placement(
    instancetype: &VirtualMachineInstancetypeSpec,
    spec: &mut VirtualMachineInstanceSpec,
    applying: &mut Applying<'_>,
) {
    if !instancetype.node_selector.is_empty() {
        if spec.node_selector.is_empty() {
            spec.node_selector.clone_from(&instancetype.node_selector);
        } else {
            applying.conflict("nodeSelector");
        }
    }
    if is_set(instancetype.scheduler_name.as_ref()) {
        if is_set(spec.scheduler_name.as_ref()) {
            applying.conflict("schedulerName");
        } else {
            spec.scheduler_name.clone_from(&instancetype.scheduler_name);
        }
    }
}

fn processors(
    instancetype: &VirtualMachineInstancetypeSpec,
    preference: Option<&VirtualMachinePreferenceSpec>,
    spec: &mut VirtualMachineInstanceSpec,
    applying: &mut Applying<'_>,
) {
    let from = &instancetype.cpu;
    let resources = &spec.domain.resources;
    let cpu = spec.domain.cpu.get_or_insert_default();
    let is_number = |number: Option<u32>| number.unwrap_or_default() != 0;
    let taken = [
        (resources.requests.contains_key("cpu"), "domain.resources.requests.cpu"),
        (resources.limits.contains_key("cpu"), "domain.resources.limits.cpu"),
        (is_number(cpu.sockets), "domain.cpu.sockets"),
        (is_number(cpu.cores), "domain.cpu.cores"),
        (is_number(cpu.threads), "domain.cpu.threads"),
        (is_set(cpu.model.as_ref()) && from.model.is_some(), "domain.cpu.model"),
        (
            cpu.dedicated_cpu_placement == Some(true) && from.dedicated_cpu_placement.is_some(),
            "domain.cpu.dedicatedCPUPlacement",
        ),
        (
            cpu.isolate_emulator_thread == Some(true) && from.isolate_emulator_thread.is_some(),
            "domain.cpu.isolateEmulatorThread",
        ),
        (cpu.numa.is_some() && from.numa.is_some(), "domain.cpu.numa"),
        (cpu.realtime.is_some() && from.realtime.is_some(), "domain.cpu.realtime"),
    ];
    let before = applying.conflicts.len();
    for (is_taken, field) in taken {
        if is_taken {
            applying.conflict(field);
        }
    }
    if applying.conflicts.len() > before {
        return;
    }
    let replace = |field: &mut Option<bool>, value: Option<bool>| *field = value.or(*field);
    replace(&mut cpu.dedicated_cpu_placement, from.dedicated_cpu_placement);
    replace(&mut cpu.isolate_emulator_thread, from.isolate_emulator_thread);
    cpu.model = from.model.clone().or(cpu.model.take());
    cpu.numa = from.numa.clone().or(cpu.numa.take());
    cpu.realtime = from.realtime.clone().or(cpu.realtime.take());
    cpu.max_sockets = from.max_sockets.or(cpu.max_sockets);
    let (sockets, cores, threads) = topology(from.guest, preference);
    (cpu.sockets, cpu.cores, cpu.threads) = (Some(sockets), Some(cores), Some(threads));
}

/// Sockets, cores and threads for a number of processors.
fn topology(count: u32, preference: Option<&VirtualMachinePreferenceSpec>) -> (u32, u32, u32) {
    if count == 1 {
        return (1, 1, 1);
    }
    match Topology::preferred(preference) {
        Topology::Cores => (1, count, 1),
        Topology::Threads => (1, 1, count),
        Topology::Sockets | Topology::Any => (count, 1, 1),
        Topology::Spread => match Spread::of(preference) {
            Spread::SocketsCores { ratio } => (count / ratio, ratio, 1),
            Spread::CoresThreads { ratio } => (1, count / ratio, ratio),
            Spread::SocketsCoresThreads { ratio } => (count / 2 / ratio, ratio, 2),
        },
    }
}

fn memory(
    instancetype: &VirtualMachineInstancetypeSpec,
    spec: &mut VirtualMachineInstanceSpec,
    applying: &mut Applying<'_>,
) {
    let from = &instancetype.memory;
    let resources = &mut spec.domain.resources;
    let memory = spec.domain.memory.get_or_insert_default();
    let taken = [
        (memory.guest.is_some(), "domain.memory.guest"),
        (memory.hugepages.is_some() && from.hugepages.is_some(), "domain.memory.hugepages"),
        (memory.max_guest.is_some() && from.max_guest.is_some(), "domain.memory.maxGuest"),
        (resources.requests.contains_key("memory"), "domain.resources.requests.memory"),
        (resources.limits.contains_key("memory"), "domain.resources.limits.memory"),
    ];
    // Upstream names the first only.
    if let Some((_, field)) = taken.into_iter().find(|(is_taken, _)| *is_taken) {
        applying.conflict(field);
        return;
    }
    memory.guest = Some(from.guest.clone());
    memory.hugepages = from.hugepages.clone().or(memory.hugepages.take());
    memory.max_guest = from.max_guest.clone().or(memory.max_guest.take());
    let percent = from.overcommit_percent.unwrap_or_default();
    if percent > 0 {
        resources.requests.insert("memory".to_owned(), part_of(&from.guest, 100 - percent));
    }
}

fn part_of(whole: &Quantity, percent: i64) -> Quantity {
    let part = i128::from(amount::value(whole)) * i128::from(percent.max(0)) / 100;
    amount::bytes(i64::try_from(part).unwrap_or(i64::MAX))
}

fn threads(
    instancetype: &VirtualMachineInstancetypeSpec,
    spec: &mut VirtualMachineInstanceSpec,
    applying: &mut Applying<'_>,
) {
    let domain = &mut spec.domain;
    let count = |threads: Option<&crate::kubevirt::DiskIoThreads>| {
        threads.and_then(|threads| threads.supplemental_pool_thread_count)
    };
    if let Some(wanted) = count(instancetype.io_threads.as_ref()) {
        if count(domain.io_threads.as_ref()).is_some() {
            applying.conflict("domain.ioThreads.supplementalPoolThreadCount");
        } else {
            domain.io_threads.get_or_insert_default().supplemental_pool_thread_count = Some(wanted);
        }
    }
    if instancetype.io_threads_policy.is_some() {
        if domain.io_threads_policy.is_some() {
            applying.conflict("domain.ioThreadsPolicy");
        } else {
            domain.io_threads_policy.clone_from(&instancetype.io_threads_policy);
        }
    }
    if instancetype.launch_security.is_some() {
        if domain.launch_security.is_some() {
            applying.conflict("domain.launchSecurity");
        } else {
            domain.launch_security.clone_from(&instancetype.launch_security);
        }
    }
}

fn devices(
    instancetype: &VirtualMachineInstancetypeSpec,
    spec: &mut VirtualMachineInstanceSpec,
    applying: &mut Applying<'_>,
) {
    let devices = &mut spec.domain.devices;
    if !instancetype.gpus.is_empty() {
        if devices.gpus.is_empty() {
            devices.gpus.clone_from(&instancetype.gpus);
        } else {
            applying.conflict("domain.devices.gpus");
        }
    }
    if !instancetype.host_devices.is_empty() {
        if devices.host_devices.is_empty() {
            devices.host_devices.clone_from(&instancetype.host_devices);
        } else {
            applying.conflict("domain.devices.hostDevices");
        }
    }
}

fn annotations(instancetype: &VirtualMachineInstancetypeSpec, metadata: &mut ObjectMeta, applying: &mut Applying<'_>) {
    for (key, value) in &instancetype.annotations {
        let own = metadata.annotations.get_or_insert_default().entry(key.clone()).or_insert_with(|| value.clone());
        if own != value {
            applying.conflicts.push(Conflict::at(format!("annotations.{key}")));
        }
    }
}
