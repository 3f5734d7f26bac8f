//! What a preference demands of the size of a machine.

use super::conflict::{Conflict, Conflicts};
use super::topology::{Spread, Topology};
use super::{VirtualMachineInstancetypeSpec, VirtualMachinePreferenceSpec};
use crate::amount;
use crate::kubevirt::VirtualMachineInstanceSpec;

const SOCKETS: &str = "spec.template.spec.domain.cpu.sockets";
const CORES: &str = "spec.template.spec.domain.cpu.cores";
const THREADS: &str = "spec.template.spec.domain.cpu.threads";

/// `spec` is the machine's own, before or after the instancetype is applied.
pub fn check_requirements(
    instancetype: Option<&VirtualMachineInstancetypeSpec>,
    preference: &VirtualMachinePreferenceSpec,
    spec: &VirtualMachineInstanceSpec,
) -> Result<(), Conflicts> {
    let Some(requirements) = &preference.requirements else { return Ok(()) };
    if let Some(cpu) = &requirements.cpu {
        processors(instancetype, preference, spec, cpu.guest)?;
    }
    if let Some(memory) = &requirements.memory {
        check_memory(instancetype, spec, &memory.guest)?;
    }
    if let Some(wanted) = &requirements.architecture {
        let found = spec.architecture.as_deref().unwrap_or_default();
        if found != wanted {
            let message = format!("preference requires architecture {wanted} but {found} is being requested");
            return Err(refused(&["spec.template.spec.architecture"], &message));
        }
    }
    Ok(())
}

fn refused(fields: &[&str], message: &str) -> Conflicts {
    let conflict = |field: &&str| Conflict { field: (*field).to_owned(), message: Some(message.to_owned()) };
    Conflicts(fields.iter().map(conflict).collect())
}

fn processors(
    instancetype: Option<&VirtualMachineInstancetypeSpec>,
    preference: &VirtualMachinePreferenceSpec,
    spec: &VirtualMachineInstanceSpec,
    wanted: u32,
) -> Result<(), Conflicts> {
    if let Some(instancetype) = instancetype {
        let provided = instancetype.cpu.guest;
        if provided >= wanted {
            return Ok(());
        }
        let message = format!(
            "insufficient CPU resources of {provided} vCPU provided by instance type, preference requires {wanted} vCPU"
        );
        return Err(refused(&["spec.instancetype"], &message));
    }
    let Some(cpu) = &spec.domain.cpu else {
        let message = format!("no CPU resources provided by VirtualMachine, preference requires {wanted} vCPU");
        return Err(refused(&["spec.template.spec.domain.cpu"], &message));
    };
    let [sockets, cores, threads] = [cpu.sockets, cpu.cores, cpu.threads].map(Option::unwrap_or_default);
    let product = |numbers: &[u32]| numbers.iter().fold(1_u32, |all, number| all.saturating_mul(*number));
    let (provided, fields, how): (u32, &[&str], &str) = match Topology::preferred(Some(preference)) {
        Topology::Threads => (threads, &[THREADS], "threads"),
        Topology::Cores => (cores, &[CORES], "cores"),
        Topology::Sockets => (sockets, &[SOCKETS], "sockets"),
        Topology::Any => {
            (product(&[cores, sockets, threads]), &[CORES, SOCKETS, THREADS], "cores, sockets and threads")
        }
        Topology::Spread => {
            let spread = Spread::of(Some(preference));
            let (provided, fields): (u32, &[&str]) = match spread {
                Spread::SocketsCores { .. } => (product(&[sockets, cores]), &[SOCKETS, CORES]),
                Spread::CoresThreads { .. } => (product(&[cores, threads]), &[CORES, THREADS]),
                Spread::SocketsCoresThreads { .. } => (product(&[sockets, cores, threads]), &[SOCKETS, CORES, THREADS]),
            };
            (provided, fields, spread.name())
        }
    };
    if provided >= wanted {
        return Ok(());
    }
    let message = format!(
        "insufficient CPU resources of {provided} vCPU provided by VirtualMachine, preference requires {wanted} vCPU \
         provided as {how}"
    );
    Err(refused(fields, &message))
}

fn check_memory(
    instancetype: Option<&VirtualMachineInstancetypeSpec>,
    spec: &VirtualMachineInstanceSpec,
    wanted: &k8s_openapi::apimachinery::pkg::api::resource::Quantity,
) -> Result<(), Conflicts> {
    let own = spec.domain.memory.as_ref().and_then(|memory| memory.guest.clone());
    let (field, by, provided) = match instancetype {
        Some(instancetype) => ("spec.instancetype", "instance type", own.unwrap_or(instancetype.memory.guest.clone())),
        None => ("spec.template.spec.domain.memory", "VirtualMachine", own.unwrap_or_default()),
    };
    if amount::compare(&provided, wanted).is_ge() {
        return Ok(());
    }
    let provided = if provided.0.is_empty() { "0".to_owned() } else { amount::text(&provided) };
    let wanted = amount::text(wanted);
    let message = format!("insufficient Memory resources of {provided} provided by {by}, preference requires {wanted}");
    Err(refused(&[field], &message))
}
