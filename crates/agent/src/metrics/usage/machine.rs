//! One look at a machine: the kernel's word for its process and taps, QEMU's for its drives, the guest's for its memory.

use std::time::Duration;

use croft_qemu::qmp::commands::{BlockStats, Counters};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::host::clock;
use super::sample::Reading;
use crate::guest::Guest;
use crate::metrics::balloon;
use crate::metrics::process::{self, link_counter};
use crate::metrics::text::number;
use crate::network::Networks;
use crate::vm::Running;

/// For QEMU's answers. One that does not answer is without those figures, and holds nobody up.
const ANSWER: Duration = Duration::from_secs(1);

/// Without `asks_guest`, what the guest says is left out.
pub(super) async fn read(guest: &Guest, networks: Option<&Networks>, asks_guest: bool) -> (Reading, Value) {
    let machine = guest.machine.as_deref();
    let qmp = guest.qmp.with_timeout(ANSWER);
    let memory = async {
        if !asks_guest {
            return None;
        }
        let told = timeout(ANSWER, balloon::read(&qmp)).await.ok().and_then(|(_, stats)| stats);
        told.and_then(|stats| stats.get("total-memory")?.checked_sub(stats.get("available-memory")?))
    };
    let (drives, used) = tokio::join!(qmp.block_stats(), memory);
    let times = process::cpu_time(guest.pid).map(|times| times.user + times.system);
    let in_group = machine.and_then(Running::usage).map(|usage| usage.cpu.as_secs_f64());
    let taps: Vec<String> = machine
        .map(Running::interface_names)
        .unwrap_or_default()
        .iter()
        .filter_map(|interface| networks?.tap(&guest.uid, interface))
        .collect();
    let drives = drives.ok();
    let drives = |of: fn(&Counters) -> u64| drives.as_deref().map(|drives| sum(drives, of));
    // The tap sees the guest's wire from its other end.
    let links = |counter: &str| taps.iter().filter_map(|tap| link_counter(tap, counter)).reduce(|a, b| a + b);
    let reading = Reading {
        at: clock(),
        levels: [process::resident_bytes(guest.pid).map(number), used.map(number)],
        counters: [
            in_group.or(times),
            drives(|drive| drive.rd_bytes),
            drives(|drive| drive.wr_bytes),
            drives(|drive| drive.rd_operations),
            drives(|drive| drive.wr_operations),
            links("tx_bytes"),
            links("rx_bytes"),
        ],
    };
    (reading, capacity(machine))
}

fn capacity(machine: Option<&Running>) -> Value {
    let Some((processors, memory_bytes)) = machine.map(Running::size) else { return json!({}) };
    json!({ "cpuCores": processors, "memoryBytes": memory_bytes })
}

/// Of the drives that have a place in the machine; firmware and the like have none.
fn sum(drives: &[BlockStats], of: fn(&Counters) -> u64) -> f64 {
    let own = drives.iter().filter(|drive| drive.qdev.as_deref().is_some_and(|path| path.contains("/peripheral/")));
    number(own.map(|drive| of(&drive.stats)).sum())
}
