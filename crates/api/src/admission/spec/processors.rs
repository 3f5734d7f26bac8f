//! Processors and what is booked of them.

use croft_meta::FieldPath;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::admission::denial::{Denial, below};
use crate::amount;
use crate::kubevirt::{Cpu, VirtualMachineInstanceSpec};

const POLICIES: &[&str] = &["", "force", "require", "optional", "disable", "forbid"];

pub(super) fn check(denial: &mut Denial, at: &FieldPath, spec: &VirtualMachineInstanceSpec) {
    let resources = &spec.domain.resources;
    let requests_at = below(at, "domain.resources.requests.cpu");
    let limits_at = below(at, "domain.resources.limits.cpu");
    let (request, limit) = (resources.requests.get("cpu"), resources.limits.get("cpu"));
    for (field, quantity) in [(&requests_at, request), (&limits_at, limit)] {
        if let Some(quantity) = quantity.filter(|quantity| amount::milli_value(quantity) < 0) {
            let message = format!("{field} '{}': must be greater than or equal to 0.", amount::text(quantity));
            denial.invalid(field, message);
        }
    }
    if let (Some(request), Some(limit)) = (request, limit)
        && amount::milli_value(limit) > 0
        && amount::milli_value(request) > amount::milli_value(limit)
    {
        let (request, limit) = (amount::text(request), amount::text(limit));
        denial.invalid(&requests_at, format!("{requests_at} '{request}' is greater than {limits_at} '{limit}'"));
    }
    let Some(cpu) = &spec.domain.cpu else { return };
    let count = processors(cpu);
    if count > u64::from(u16::MAX) {
        let field = below(at, "domain.cpu");
        denial.invalid(&field, format!("{field} asks for {count} processors, which no guest can have"));
    }
    if cpu.dedicated_cpu_placement == Some(true) {
        pinning(denial, at, spec, cpu);
    }
    if cpu.isolate_emulator_thread == Some(true) && cpu.dedicated_cpu_placement != Some(true) {
        let message = "IsolateEmulatorThread should be only set in combination with DedicatedCPUPlacement";
        denial.invalid(&below(at, "domain.cpu.isolateEmulatorThread"), message);
    }
    for (index, feature) in cpu.features.iter().enumerate() {
        let policy = feature.policy.as_deref().unwrap_or_default();
        if !POLICIES.contains(&policy) {
            let field = below(at, "domain.cpu.features").index(index).child("policy");
            let message = format!("CPU feature {} uses policy {policy} that is not supported.", feature.name);
            denial.not_supported(&field, message);
        }
    }
    let most = cpu.max_sockets.unwrap_or_default();
    if most != 0 && cpu.sockets.unwrap_or_default() > most {
        let message = "Number of sockets in CPU topology is greater than the maximum sockets allowed";
        denial.invalid(&below(at, "domain.cpu.sockets"), message);
    }
}

/// How many the guest sees.
fn processors(cpu: &Cpu) -> u64 {
    let given = [cpu.sockets, cpu.cores, cpu.threads].map(|number| u64::from(number.unwrap_or_default()));
    if given == [0, 0, 0] { 0 } else { given.into_iter().map(|number| number.max(1)).fold(1, u64::saturating_mul) }
}

/// Whole processors for one guest alone.
fn pinning(denial: &mut Denial, at: &FieldPath, spec: &VirtualMachineInstanceSpec, cpu: &Cpu) {
    let resources = &spec.domain.resources;
    let requests_at = below(at, "domain.resources.requests.cpu");
    let limits_at = below(at, "domain.resources.limits.cpu");
    let placement_at = below(at, "domain.cpu.dedicatedCpuPlacement");
    let is_whole = |quantity: &Quantity| amount::value(quantity).saturating_mul(1000) == amount::milli_value(quantity);
    for (field, list, name) in
        [(&requests_at, &resources.requests, "requests"), (&limits_at, &resources.limits, "limits")]
    {
        if list.get("cpu").is_some_and(|quantity| amount::value(quantity) > 0 && !is_whole(quantity)) {
            denial.invalid(field, format!("provided resources CPU {name} must be an interger"));
        }
    }
    let value =
        |list: &std::collections::BTreeMap<String, Quantity>, name: &str| list.get(name).map_or(0, amount::value);
    let memory = (value(&resources.requests, "memory"), value(&resources.limits, "memory"));
    if memory.0 > 0 && memory.1 > 0 && memory.0 != memory.1 {
        let field = below(at, "domain.resources.requests.memory");
        let other = below(at, "domain.resources.limits.memory");
        denial.invalid(&field, format!("{field} must be equal to {other}"));
    }
    let (request, limit) = (value(&resources.requests, "cpu"), value(&resources.limits, "cpu"));
    let cores_at = below(at, "domain.cpu.cores");
    let count = i64::try_from(processors(cpu)).unwrap_or(i64::MAX);
    if request == 0 && limit == 0 && count == 0 {
        let message = format!(
            "either {requests_at} or {limits_at} or {cores_at} must be provided when DedicatedCPUPlacement is true "
        );
        denial.invalid(&placement_at, message);
    }
    if request > 0 && limit > 0 && request != limit {
        let message = format!("{requests_at} or {limits_at} must be equal when DedicatedCPUPlacement is true ");
        denial.invalid(&placement_at, message);
    }
    if (request > 0 || limit > 0) && count > 0 && request != count && limit != count {
        let message = format!(
            "{requests_at} or {limits_at} must not be provided at the same time with {cores_at} when \
             DedicatedCPUPlacement is true "
        );
        denial.invalid(&placement_at, message);
    }
    let threads = cpu.threads.unwrap_or_default();
    if threads > 2 {
        let field = below(at, "domain.cpu.threads");
        let message = format!(
            "Not more than two threads must be provided at {field} (got {threads}) when DedicatedCPUPlacement is true"
        );
        denial.invalid(&placement_at, message);
    }
}
