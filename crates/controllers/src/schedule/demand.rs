//! How much of a node an instance takes up.

use croft_api::kubevirt::{VirtualMachineInstance, VirtualMachineInstanceSpec};
use croft_meta::quantity::Quantity;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;

use super::amounts::Amounts;
use crate::virtual_machine::{CPU_ALLOCATION_RATIO, vcpus};

const MIB: i64 = 1 << 20;
/// KubeVirt's figures for what QEMU needs beside the guest's memory. Its launcher, monitor and libvirt do not run here,
/// so they are left out.
const QEMU: i64 = 50 * MIB;
const PER_VCPU: i64 = 8 * MIB;
const IO_THREAD: i64 = 8 * MIB;
const VIDEO: i64 = 32 * MIB;
const TPM: i64 = 53 * MIB;
const PASSTHROUGH: i64 = 1024 * MIB;
const ARM_FLASH: i64 = 128 * MIB;
/// One byte of page tables for this much memory.
const PAGE_TABLES: i64 = 512;

/// `overhead_ratio` is Harvester's setting: what is added to the guest's memory is multiplied by it.
pub(crate) fn demand(instance: &VirtualMachineInstance, overhead_ratio: f64) -> Amounts {
    let spec = &instance.spec;
    let requests = &spec.domain.resources.requests;
    let mut amounts = Amounts { cpu_milli: cpu_milli(spec), ..Amounts::default() };
    let memory = memory_bytes(spec);
    let hugepages = spec.domain.memory.as_ref().and_then(|memory| memory.hugepages.as_ref());
    match hugepages.and_then(|pages| pages.page_size.as_deref()) {
        Some(size) => drop(amounts.others.insert(format!("hugepages-{size}"), guest_bytes(spec).unwrap_or(memory))),
        None => amounts.memory_bytes = memory,
    }
    if spec.domain.resources.overcommit_guest_overhead != Some(true) {
        amounts.memory_bytes = amounts.memory_bytes.saturating_add(overhead_bytes(spec, memory, overhead_ratio));
    }
    let devices = &spec.domain.devices;
    let names = devices.host_devices.iter().map(|device| &device.device_name);
    for name in names.chain(devices.gpus.iter().map(|gpu| &gpu.device_name)).flatten() {
        *amounts.others.entry(name.clone()).or_default() += 1;
    }
    let others = requests.iter().filter(|(name, _)| !matches!(name.as_str(), "cpu" | "memory"));
    for (name, amount) in others {
        amounts.others.insert(name.clone(), value(amount).unwrap_or_default());
    }
    amounts
}

fn value(text: &Text) -> Option<i64> {
    Quantity::parse(&text.0).ok().map(|quantity| quantity.value())
}

fn processors(spec: &VirtualMachineInstanceSpec) -> i64 {
    let named = |name: &str| {
        let resources = &spec.domain.resources;
        resources.limits.get(name).or_else(|| resources.requests.get(name)).and_then(value)
    };
    spec.domain.cpu.as_ref().map(vcpus).or_else(|| named("cpu")).unwrap_or(1).max(1)
}

fn cpu_milli(spec: &VirtualMachineInstanceSpec) -> i64 {
    let cpu = spec.domain.cpu.as_ref();
    let is = |field: fn(&croft_api::kubevirt::Cpu) -> Option<bool>| cpu.and_then(field) == Some(true);
    if is(|cpu| cpu.dedicated_cpu_placement) {
        let emulator = i64::from(is(|cpu| cpu.isolate_emulator_thread));
        return (processors(spec) + emulator) * 1000;
    }
    let asked = spec.domain.resources.requests.get("cpu").and_then(|text| Quantity::parse(&text.0).ok());
    asked.map_or(processors(spec) * 1000 / CPU_ALLOCATION_RATIO, |asked| asked.milli_value())
}

fn guest_bytes(spec: &VirtualMachineInstanceSpec) -> Option<i64> {
    spec.domain.memory.as_ref().and_then(|memory| memory.guest.as_ref()).and_then(value)
}

fn memory_bytes(spec: &VirtualMachineInstanceSpec) -> i64 {
    let resources = &spec.domain.resources;
    let asked = resources.requests.get("memory").and_then(value);
    asked.or_else(|| guest_bytes(spec)).or_else(|| resources.limits.get("memory").and_then(value)).unwrap_or_default()
}

fn overhead_bytes(spec: &VirtualMachineInstanceSpec, memory: i64, ratio: f64) -> i64 {
    let devices = &spec.domain.devices;
    let mut bytes = memory / PAGE_TABLES + QEMU + PER_VCPU * processors(spec) + IO_THREAD;
    if devices.autoattach_graphics_device != Some(false) {
        bytes += VIDEO;
    }
    if devices.tpm.as_ref().is_some_and(|tpm| tpm.enabled != Some(false)) {
        bytes += TPM;
    }
    if !devices.host_devices.is_empty() || !devices.gpus.is_empty() {
        bytes += PASSTHROUGH;
    }
    if spec.architecture.as_deref() == Some("arm64") {
        bytes += ARM_FLASH;
    }
    let reserved = spec.domain.memory.as_ref().and_then(|memory| memory.reserved_overhead.as_ref());
    bytes += reserved.and_then(|reserved| reserved.added_overhead.as_ref()).and_then(value).unwrap_or_default();
    multiplied(bytes, ratio)
}

/// In thousandths, so that nothing but the ratio itself is a float.
fn multiplied(bytes: i64, ratio: f64) -> i64 {
    let text = format!("{ratio:.3}");
    let milli = Quantity::parse(&text).map_or(1000, |ratio| ratio.milli_value());
    i64::try_from(i128::from(bytes) * i128::from(milli.max(1000)) / 1000).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn instance(domain: Value) -> VirtualMachineInstance {
        let mut domain = domain;
        domain.as_object_mut().unwrap().entry("devices").or_insert(json!({}));
        serde_json::from_value(json!({"spec": {"domain": domain}})).unwrap()
    }

    #[test]
    fn processors_are_shared_unless_they_are_dedicated_or_asked_for() {
        let cases = [
            (json!({}), 100),
            (json!({"cpu": {"sockets": 2, "cores": 4}}), 800),
            (json!({"cpu": {"cores": 4}, "resources": {"requests": {"cpu": "250m"}}}), 250),
            (json!({"cpu": {"cores": 4, "dedicatedCpuPlacement": true}}), 4000),
            (json!({"cpu": {"cores": 1, "dedicatedCpuPlacement": true, "isolateEmulatorThread": true}}), 2000),
        ];
        for (domain, expected) in cases {
            assert_eq!(demand(&instance(domain.clone()), 1.0).cpu_milli, expected, "{domain}");
        }
    }

    #[test]
    fn memory_is_what_is_asked_for_and_what_qemu_needs() {
        let gib = 1024 * MIB;
        let base = 2 * MIB + QEMU + PER_VCPU + IO_THREAD;
        let headless = json!({"autoattachGraphicsDevice": false});
        let cases = [
            (json!({"memory": {"guest": "1Gi"}}), 1.0, gib + base + VIDEO),
            (json!({"memory": {"guest": "1Gi"}, "devices": headless}), 1.0, gib + base),
            (json!({"memory": {"guest": "1Gi"}, "devices": headless}), 1.5, gib + base * 3 / 2),
            (json!({"memory": {"guest": "1Gi"}, "devices": headless}), 0.5, gib + base),
            (
                json!({"memory": {"guest": "2Gi"}, "resources": {"requests": {"memory": "1Gi"}}, "devices": headless}),
                1.0,
                gib + base,
            ),
            (json!({"resources": {"requests": {"memory": "64Mi"}, "overcommitGuestOverhead": true}}), 1.5, 64 * MIB),
        ];
        for (domain, ratio, expected) in cases {
            assert_eq!(demand(&instance(domain.clone()), ratio).memory_bytes, expected, "{domain}");
        }
    }

    #[test]
    fn huge_pages_and_devices_are_counted_by_name() {
        let amounts = demand(
            &instance(json!({
                "memory": {"guest": "1Gi", "hugepages": {"pageSize": "2Mi"}},
                "devices": {
                    "hostDevices": [{"name": "a", "deviceName": "vendor.io/nic"}, {"name": "b", "deviceName": "vendor.io/nic"}],
                    "gpus": [{"name": "g", "deviceName": "vendor.io/gpu"}],
                },
            })),
            1.0,
        );
        let expected = [("hugepages-2Mi", 1024 * MIB), ("vendor.io/gpu", 1), ("vendor.io/nic", 2)];
        assert_eq!(amounts.others, expected.map(|(name, amount)| (name.to_owned(), amount)).into());
        assert_eq!(amounts.memory_bytes, 2 * MIB + QEMU + PER_VCPU + IO_THREAD + VIDEO + PASSTHROUGH);
    }
}
