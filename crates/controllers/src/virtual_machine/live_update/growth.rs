//! Processors and memory that are added while the guest runs.

use croft_api::kubevirt::{Cpu, ResourceRequirements, VirtualMachineInstance, VirtualMachineInstanceSpec, condition};
use croft_meta::quantity::{Notation, Quantity};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;

use crate::virtual_machine::view::{condition as view_condition, has_condition, is_migrating};

/// How many virtual processors share a real one, unless the machine says how much it wants.
pub(crate) const CPU_ALLOCATION_RATIO: i64 = 10;
/// Memory is added in blocks of this size.
const BLOCK_BYTES: i64 = 2 << 20;

/// Why a change was not made. The texts are KubeVirt's.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Obstacle {
    Restart(String),
    /// It can be made later.
    NotNow(&'static str),
}

fn restart(why: &str) -> Obstacle {
    Obstacle::Restart(why.to_owned())
}

pub(crate) fn vcpus(cpu: &Cpu) -> i64 {
    let count = |field: Option<u32>| i64::from(field.filter(|count| *count > 0).unwrap_or(1));
    count(cpu.sockets) * count(cpu.cores) * count(cpu.threads)
}

/// Makes the instance's sockets follow the template.
pub(super) fn follow_cpu(
    instance: &mut VirtualMachineInstance,
    template: &VirtualMachineInstanceSpec,
) -> Result<(), Obstacle> {
    let (Some(wanted), Some(there)) = (&template.domain.cpu, &instance.spec.domain.cpu) else { return Ok(()) };
    let sockets = |cpu: &Cpu| cpu.sockets.unwrap_or(1);
    if sockets(wanted) == sockets(there) {
        return Ok(());
    }
    if has_condition(instance, condition::HOT_VCPU_CHANGE, "True") {
        return Err(Obstacle::NotNow("another CPU hotplug is in progress"));
    }
    if is_migrating(instance) {
        return Err(Obstacle::NotNow("CPU hotplug is not allowed while VMI is migrating"));
    }
    if let Some(fixed) = view_condition(instance, condition::HOT_VCPU_CHANGE).filter(|found| found.status == "False") {
        let why = fixed.message.as_deref().unwrap_or_default();
        return Err(restart(&format!(
            "CPU sockets updated in template spec. CPU-hotplug is not available for this VM configuration: {why}"
        )));
    }
    if sockets(wanted) > there.max_sockets.unwrap_or_else(|| sockets(there)) {
        return Err(restart("CPU sockets updated in template spec to a value higher than what's available"));
    }
    if sockets(wanted) < sockets(there) {
        return Err(restart("Reduction of CPU socket count requires a restart"));
    }
    if template.architecture.as_deref() == Some("arm64") {
        return Err(restart("ARM doesn't support CPU hotplug"));
    }
    let more_milli = (vcpus(wanted) - vcpus(there)) * 1000 / CPU_ALLOCATION_RATIO;
    let sockets = wanted.sockets;
    let domain = &mut instance.spec.domain;
    if let Some(cpu) = &mut domain.cpu {
        cpu.sockets = sockets;
    }
    add(&mut domain.resources, "cpu", &Quantity::from_milli(more_milli, Notation::Decimal));
    Ok(())
}

/// Requests and limits that are there grow with the guest.
fn add(resources: &mut ResourceRequirements, name: &str, more: &Quantity) {
    for amounts in [&mut resources.requests, &mut resources.limits] {
        let Some(amount) = amounts.get_mut(name) else { continue };
        let Some(old) = Quantity::parse(&amount.0).ok().filter(|old| !old.is_zero()) else { continue };
        *amount = Text((&old + more).to_string());
    }
}

/// Makes the instance's memory follow the template.
pub(super) fn follow_memory(
    instance: &mut VirtualMachineInstance,
    template: &VirtualMachineInstanceSpec,
) -> Result<(), Obstacle> {
    let guest = |spec: &VirtualMachineInstanceSpec| {
        let text = spec.domain.memory.as_ref()?.guest.clone()?;
        Some((Quantity::parse(&text.0).ok()?, text))
    };
    let (Some((wanted, text)), Some((there, _))) = (guest(template), guest(&instance.spec)) else { return Ok(()) };
    if has_condition(instance, condition::HOT_MEMORY_CHANGE, "False") {
        let why =
            "memory updated in template spec. Memory-hotplug failed and is not available for this VM configuration";
        return Err(restart(why));
    }
    if wanted == there {
        return Ok(());
    }
    let parse = |text: &Text| Quantity::parse(&text.0).ok();
    let most = instance.spec.domain.memory.as_ref().and_then(|memory| memory.max_guest.as_ref()).and_then(parse);
    let Some(most) = most else {
        return Err(restart(
            "memory updated in template spec. Memory-hotplug is not available for this VM configuration",
        ));
    };
    if has_condition(instance, condition::HOT_MEMORY_CHANGE, "True") {
        return Err(Obstacle::NotNow("another memory hotplug is in progress"));
    }
    if is_migrating(instance) {
        return Err(Obstacle::NotNow("memory hotplug is not allowed while VMI is migrating"));
    }
    let memory = instance.status.as_ref().and_then(|status| status.memory.as_ref());
    let at_boot = memory.and_then(|memory| memory.guest_at_boot.as_ref()).and_then(parse);
    if at_boot.is_some_and(|at_boot| wanted < at_boot) {
        return Err(restart("memory updated in template spec to a value lower than what the VM started with"));
    }
    if wanted > most {
        return Err(restart("memory updated in template spec to a value higher than what's available"));
    }
    if wanted.value() % BLOCK_BYTES != 0 {
        return Err(restart("memory hotplug not supported, Guest memory must be 2Mi aligned"));
    }
    let domain = &mut instance.spec.domain;
    if let Some(memory) = &mut domain.memory {
        memory.guest = Some(text);
    }
    add(&mut domain.resources, "memory", &(&wanted - &there));
    Ok(())
}
