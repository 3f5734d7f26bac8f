//! The figures of one machine, by the names and labels that KubeVirt gives them.
//!
//! What the host knows of it is read from files. The rest QEMU is asked for; one that does not answer costs its own
//! figures and nobody else's.

use std::collections::HashMap;
use std::time::Duration;

use croft_api::kubevirt::{
    ANNOTATION_CLUSTER_INSTANCETYPE, ANNOTATION_CLUSTER_PREFERENCE, ANNOTATION_INSTANCETYPE, ANNOTATION_PREFERENCE,
    VirtualMachineInstance, phase,
};
use croft_qemu::qmp::Qmp;
use croft_qemu::qmp::commands::{BlockStats, Counters, VirtualCpu};
use serde::Deserialize;
use serde_json::json;

use super::balloon::{self, Stats};
use super::process;
use super::text::{Labels, Metric, Page, counter, gauge, number, seconds};
use crate::guest::Guest;
use crate::network::Networks;
use crate::vm::Running;

/// For QEMU's answers, which are asked for at the same time.
const ANSWER: Duration = Duration::from_secs(1);
/// KubeVirt's word for what an object does not say.
const NONE: &str = "<none>";

const INFO: Metric = gauge("kubevirt_vmi_info", "Information about VirtualMachineInstances.");
const CPU_USAGE: Metric = counter(
    "kubevirt_vmi_cpu_usage_seconds_total",
    "Total CPU time spent in all modes (sum of both vcpu and hypervisor usage).",
);
const CPU_USER: Metric = counter("kubevirt_vmi_cpu_user_usage_seconds_total", "Total CPU time spent in user mode.");
const CPU_SYSTEM: Metric =
    counter("kubevirt_vmi_cpu_system_usage_seconds_total", "Total CPU time spent in system mode.");
const VCPU: Metric = counter("kubevirt_vmi_vcpu_seconds_total", "Total amount of time spent by each vcpu.");
const VCPU_WAIT: Metric =
    counter("kubevirt_vmi_vcpu_wait_seconds_total", "Amount of time spent by each vcpu while waiting on I/O.");
const VCPU_DELAY: Metric = counter(
    "kubevirt_vmi_vcpu_delay_seconds_total",
    "Amount of time spent by each vcpu waiting in the queue instead of running.",
);
const RESIDENT: Metric =
    gauge("kubevirt_vmi_memory_resident_bytes", "Resident set size of the process running the domain.");
const DOMAIN: Metric = gauge("kubevirt_vmi_memory_domain_bytes", "The amount of memory allocated to the domain.");
const BALLOON: Metric = gauge("kubevirt_vmi_memory_actual_balloon_bytes", "Current balloon size in bytes.");

type OfDrive = fn(&Counters) -> f64;
const STORAGE: [(Metric, OfDrive); 8] = [
    (counter("kubevirt_vmi_storage_read_traffic_bytes_total", "Total number of bytes read from storage."), |drive| {
        number(drive.rd_bytes)
    }),
    (counter("kubevirt_vmi_storage_write_traffic_bytes_total", "Total number of written bytes."), |drive| {
        number(drive.wr_bytes)
    }),
    (counter("kubevirt_vmi_storage_iops_read_total", "Total number of I/O read operations."), |drive| {
        number(drive.rd_operations)
    }),
    (counter("kubevirt_vmi_storage_iops_write_total", "Total number of I/O write operations."), |drive| {
        number(drive.wr_operations)
    }),
    (counter("kubevirt_vmi_storage_read_times_seconds_total", "Total time spent on read operations."), |drive| {
        seconds(drive.rd_total_time_ns)
    }),
    (counter("kubevirt_vmi_storage_write_times_seconds_total", "Total time spent on write operations."), |drive| {
        seconds(drive.wr_total_time_ns)
    }),
    (counter("kubevirt_vmi_storage_flush_requests_total", "Total storage flush requests."), |drive| {
        number(drive.flush_operations)
    }),
    (counter("kubevirt_vmi_storage_flush_times_seconds_total", "Total time spent on cache flushing."), |drive| {
        seconds(drive.flush_total_time_ns)
    }),
];

/// With the tap's own counters, which see the guest's wire from its other end.
const NETWORK: [(Metric, &str); 8] = [
    (counter("kubevirt_vmi_network_receive_bytes_total", "Total network traffic received in bytes."), "tx_bytes"),
    (counter("kubevirt_vmi_network_receive_packets_total", "Total network traffic received packets."), "tx_packets"),
    (counter("kubevirt_vmi_network_receive_errors_total", "Total network received error packets."), "tx_errors"),
    (counter("kubevirt_vmi_network_receive_packets_dropped_total", "Total received packets dropped."), "tx_dropped"),
    (counter("kubevirt_vmi_network_transmit_bytes_total", "Total network traffic transmitted in bytes."), "rx_bytes"),
    (
        counter("kubevirt_vmi_network_transmit_packets_total", "Total network traffic transmitted packets."),
        "rx_packets",
    ),
    (counter("kubevirt_vmi_network_transmit_errors_total", "Total network transmitted error packets."), "rx_errors"),
    (
        counter("kubevirt_vmi_network_transmit_packets_dropped_total", "Total transmitted packets dropped."),
        "rx_dropped",
    ),
];

/// With the balloon's names for them.
const MEMORY: [(Metric, &str); 8] = [
    (gauge("kubevirt_vmi_memory_available_bytes", "Amount of usable memory as seen by the domain."), "total-memory"),
    (gauge("kubevirt_vmi_memory_unused_bytes", "The amount of memory left completely unused."), "free-memory"),
    (gauge("kubevirt_vmi_memory_usable_bytes", "What can be had without swapping."), "available-memory"),
    (gauge("kubevirt_vmi_memory_cached_bytes", "The memory that is being used to cache I/O."), "disk-caches"),
    (gauge("kubevirt_vmi_memory_swap_in_traffic_bytes", "The total amount of data read from swap space."), "swap-in"),
    (gauge("kubevirt_vmi_memory_swap_out_traffic_bytes", "The total amount written to swap space."), "swap-out"),
    (counter("kubevirt_vmi_memory_pgmajfault_total", "The page faults when disk IO was required."), "major-faults"),
    (counter("kubevirt_vmi_memory_pgminfault_total", "The page faults without disk IO."), "minor-faults"),
];

/// What one machine's object is counted under.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Kind(Vec<(&'static str, String)>);

impl Kind {
    pub(super) fn of(vmi: &VirtualMachineInstance) -> Kind {
        let annotation = |names: &[&str]| {
            let annotations = vmi.metadata.annotations.as_ref();
            let found = names.iter().find_map(|name| annotations?.get(*name).filter(|value| !value.is_empty()));
            found.cloned().unwrap_or_else(|| NONE.to_owned())
        };
        let status = vmi.status.clone().unwrap_or_default();
        let os = status.guest_os_info;
        Kind(vec![
            // A machine whose object says nothing yet is here because it runs.
            ("phase", status.phase.as_deref().unwrap_or(phase::RUNNING).to_ascii_lowercase()),
            ("os", annotation(&["vm.kubevirt.io/os"])),
            ("workload", annotation(&["vm.kubevirt.io/workload"])),
            ("flavor", annotation(&["vm.kubevirt.io/flavor"])),
            ("instance_type", annotation(&[ANNOTATION_INSTANCETYPE, ANNOTATION_CLUSTER_INSTANCETYPE])),
            ("preference", annotation(&[ANNOTATION_PREFERENCE, ANNOTATION_CLUSTER_PREFERENCE])),
            ("guest_os_kernel_release", os.kernel_release.unwrap_or_default()),
            ("guest_os_machine", os.machine.unwrap_or_default()),
            ("guest_os_name", os.name.unwrap_or_default()),
            ("guest_os_version_id", os.version_id.unwrap_or_default()),
        ])
    }

    pub(super) fn label(&self, labels: &Labels) -> Labels {
        self.0.iter().fold(labels.clone(), |labels, (name, value)| labels.with(name, value))
    }
}

/// All figures of a guest.
pub(super) async fn collect(guest: &Guest, kind: &Kind, node: &Labels, networks: Option<&Networks>) -> Page {
    let labels = node.with("namespace", &guest.namespace).with("name", &guest.name);
    let mut page = Page::default();
    page.add(INFO, &kind.label(&labels), 1.0);
    let machine = guest.machine.as_deref();
    let times = process::cpu_time(guest.pid);
    let in_group = machine.and_then(Running::usage).map(|usage| usage.cpu.as_secs_f64());
    page.add_if_known(CPU_USAGE, &labels, in_group.or_else(|| times.map(|times| times.user + times.system)));
    page.add_if_known(CPU_USER, &labels, times.map(|times| times.user));
    page.add_if_known(CPU_SYSTEM, &labels, times.map(|times| times.system));
    page.add_if_known(RESIDENT, &labels, process::resident_bytes(guest.pid).map(number));
    for interface in machine.map(Running::interface_names).unwrap_or_default() {
        if let Some(tap) = networks.and_then(|networks| networks.tap(&guest.uid, &interface)) {
            network(&mut page, &labels.with("interface", &interface), &tap);
        }
    }
    let qmp = guest.qmp.with_timeout(ANSWER);
    let balloon = tokio::time::timeout(ANSWER, balloon::read(&qmp));
    let (cpus, drives, domain, balloon) = tokio::join!(qmp.cpus(), qmp.block_stats(), domain_bytes(&qmp), balloon);
    let (balloon, stats) = balloon.unwrap_or_default();
    vcpus(&mut page, &labels, guest.pid, &cpus.unwrap_or_default());
    let names = machine.map(Running::disk_names).unwrap_or_default();
    storage(&mut page, &labels, &drives.unwrap_or_default(), &names);
    page.add_if_known(DOMAIN, &labels, domain.map(number));
    page.add_if_known(BALLOON, &labels, balloon.map(number));
    if let Some(stats) = stats {
        memory(&mut page, &labels, &stats);
    }
    page
}

fn network(page: &mut Page, labels: &Labels, tap: &str) {
    for (metric, file) in NETWORK {
        page.add_if_known(metric, labels, process::link_counter(tap, file));
    }
}

fn vcpus(page: &mut Page, labels: &Labels, pid: u32, cpus: &[VirtualCpu]) {
    for cpu in cpus {
        let labels = labels.with("id", &cpu.index.to_string());
        let scheduled = process::scheduled(pid, cpu.thread_id);
        let running = labels.with("state", "RUNNING");
        page.add_if_known(VCPU, &running, scheduled.map(|scheduled| seconds(scheduled.ran)));
        page.add_if_known(VCPU_DELAY, &labels, scheduled.map(|scheduled| seconds(scheduled.queued)));
        page.add_if_known(VCPU_WAIT, &labels, process::waited(pid, cpu.thread_id));
    }
}

/// `names` are the object's, by QEMU's. Firmware and the like have none, and are not told.
fn storage(page: &mut Page, labels: &Labels, drives: &[BlockStats], names: &HashMap<String, String>) {
    for drive in drives {
        let path = drive.qdev.as_deref().and_then(|path| path.strip_prefix("/machine/peripheral/"));
        let Some(id) = path.and_then(|path| path.split('/').next()) else { continue };
        let labels = labels.with("drive", names.get(id).map_or(id, String::as_str));
        for (metric, of) in STORAGE {
            page.add(metric, &labels, of(&drive.stats));
        }
    }
}

fn memory(page: &mut Page, labels: &Labels, stats: &Stats) {
    for (metric, name) in MEMORY {
        page.add_if_known(metric, labels, stats.get(name).map(number));
    }
}

/// What the machine has, with what was plugged in later.
async fn domain_bytes(qmp: &Qmp) -> Option<u64> {
    #[derive(Deserialize)]
    #[serde(rename_all = "kebab-case")]
    struct Summary {
        base_memory: u64,
        #[serde(default)]
        plugged_memory: u64,
    }
    let summary: Summary = qmp.execute("query-memory-size-summary", json!({})).await.ok()?;
    Some(summary.base_memory.saturating_add(summary.plugged_memory))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(page: Page) -> Vec<String> {
        page.finish().lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
    }

    #[test]
    fn drives_have_the_names_of_their_objects() {
        let drives: Vec<BlockStats> = serde_json::from_value(json!([
            { "qdev": "/machine/peripheral/d-.0a/virtio-backend", "node-name": "d-.0a",
              "stats": { "rd_bytes": 512, "wr_bytes": 1024, "rd_operations": 1, "wr_operations": 2,
                         "rd_total_time_ns": 1_500_000_000u64 } },
            { "qdev": "/machine/peripheral/d-cd", "stats": {} },
            { "qdev": "/machine/system.flash0", "stats": { "rd_bytes": 9 } },
            { "node-name": "loose", "stats": {} },
        ]))
        .unwrap();
        let names = HashMap::from([("d-.0a".to_owned(), "root.disk".to_owned())]);
        let mut page = Page::default();
        storage(&mut page, &Labels::default().with("name", "vm"), &drives, &names);
        let lines = lines(page);
        assert_eq!(lines.len(), 2 * STORAGE.len(), "{lines:#?}");
        for expected in [
            r#"kubevirt_vmi_storage_read_traffic_bytes_total{name="vm",drive="root.disk"} 512"#,
            r#"kubevirt_vmi_storage_write_traffic_bytes_total{name="vm",drive="root.disk"} 1024"#,
            r#"kubevirt_vmi_storage_iops_write_total{name="vm",drive="root.disk"} 2"#,
            r#"kubevirt_vmi_storage_read_times_seconds_total{name="vm",drive="root.disk"} 1.5"#,
            r#"kubevirt_vmi_storage_iops_read_total{name="vm",drive="d-cd"} 0"#,
        ] {
            assert!(lines.iter().any(|line| line == expected), "no {expected} in {lines:#?}");
        }
    }

    #[test]
    fn what_a_machine_is_comes_from_its_object() {
        let vmi: VirtualMachineInstance = serde_json::from_value(json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
            "metadata": { "annotations": { "vm.kubevirt.io/os": "linux",
                                           "kubevirt.io/cluster-instancetype-name": "small" } },
            "spec": { "domain": { "devices": {} } },
            "status": { "phase": "Running", "guestOSInfo": { "name": "Debian", "versionId": "12" } },
        }))
        .unwrap();
        let mut page = Page::default();
        page.add(INFO, &Kind::of(&vmi).label(&Labels::default()), 1.0);
        assert_eq!(
            lines(page),
            [
                r#"kubevirt_vmi_info{phase="running",os="linux",workload="<none>",flavor="<none>",instance_type="small",preference="<none>",guest_os_kernel_release="",guest_os_machine="",guest_os_name="Debian",guest_os_version_id="12"} 1"#
            ]
        );
    }

    #[test]
    fn what_the_guest_receives_is_what_its_tap_sends() {
        for (metric, file) in NETWORK {
            assert_eq!(metric.name.contains("_receive_"), file.starts_with("tx_"), "{}", metric.name);
        }
        // A link that every host has: its counters are numbers.
        let mut page = Page::default();
        network(&mut page, &Labels::default().with("interface", "default"), "lo");
        assert_eq!(lines(page).len(), NETWORK.len());
    }
}
