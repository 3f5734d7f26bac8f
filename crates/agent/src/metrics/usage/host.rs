//! One look at this node: processors, memory, disks and links, from the kernel's files.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::sample::Reading;
use crate::metrics::process::{TICKS_PER_SECOND, link_counter, parse_kib};
use crate::metrics::text::number;
use crate::volume::PoolFigures;

/// The kernel counts what disks move in these, whatever theirs are.
const SECTOR: f64 = 512.0;

pub(super) fn read(pools: &[PoolFigures]) -> (Reading, Value) {
    let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let (stat, meminfo) = (text("/proc/stat"), text("/proc/meminfo"));
    let total = parse_kib(&meminfo, "MemTotal");
    let used = total.and_then(|total| total.checked_sub(parse_kib(&meminfo, "MemAvailable")?));
    let [reads, read_bytes, writes, write_bytes] = disks(&text("/proc/diskstats"), is_disk);
    let links = links();
    let moved = |counter: &str| links.iter().filter_map(|link| link_counter(link, counter)).reduce(|a, b| a + b);
    let pool_bytes = pools.iter().map(|pool| pool.usage.used_bytes()).sum::<u64>();
    let reading = Reading {
        at: clock(),
        levels: [used.map(number), (!pools.is_empty()).then(|| number(pool_bytes))],
        counters: [
            busy_seconds(&stat),
            Some(read_bytes),
            Some(write_bytes),
            Some(reads),
            Some(writes),
            moved("rx_bytes"),
            moved("tx_bytes"),
        ],
    };
    let mut capacity = json!({ "cpuCores": processors(&stat), "memoryBytes": total });
    if !pools.is_empty() {
        capacity["storageBytes"] = json!(pools.iter().map(|pool| pool.usage.capacity_bytes).sum::<u64>());
    }
    (reading, capacity)
}

/// Seconds since the machine was started, which no administrator sets.
pub(super) fn clock() -> f64 {
    let uptime = fs::read_to_string("/proc/uptime").unwrap_or_default();
    uptime.split_whitespace().next().and_then(|seconds| seconds.parse().ok()).unwrap_or_default()
}

/// In all modes but those of waiting: idle and for disks.
fn busy_seconds(stat: &str) -> Option<f64> {
    let all = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    // user, nice, system, idle, iowait, irq, softirq, steal; what guests take is in the first two.
    let columns: Vec<f64> = all.split_whitespace().take(8).filter_map(|ticks| ticks.parse().ok()).collect();
    let waiting: f64 = columns.get(3..5)?.iter().sum();
    Some((columns.iter().sum::<f64>() - waiting) / TICKS_PER_SECOND)
}

fn processors(stat: &str) -> usize {
    let is_one =
        |line: &&str| line.strip_prefix("cpu").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    stat.lines().filter(is_one).count()
}

/// Reads, bytes read, writes and bytes written, of all disks together.
fn disks(diskstats: &str, is_disk: impl Fn(&str) -> bool) -> [f64; 4] {
    let mut sums = [0.0; 4];
    for line in diskstats.lines() {
        let fields: Vec<&str> = line.split_whitespace().collect();
        if !fields.get(2).is_some_and(|name| is_disk(name)) {
            continue;
        }
        let field = |index: usize| fields.get(index).and_then(|text| text.parse::<f64>().ok()).unwrap_or_default();
        for (sum, value) in sums.iter_mut().zip([field(3), field(5) * SECTOR, field(7), field(9) * SECTOR]) {
            *sum += value;
        }
    }
    sums
}

/// A whole disk, not a part of one and not one that is made of files or of other disks.
fn is_disk(name: &str) -> bool {
    let made_up = ["loop", "ram", "dm-", "md", "zram", "nbd", "sr"];
    !made_up.iter().any(|prefix| name.starts_with(prefix)) && Path::new("/sys/block").join(name).exists()
}

/// The links to the world outside: neither the guests' nor those between others.
fn links() -> Vec<String> {
    let Ok(entries) = fs::read_dir("/sys/class/net") else { return Vec::new() };
    let names: Vec<String> = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
    let has = |link: &str, file: &str| Path::new("/sys/class/net").join(link).join(file).exists();
    let hardware: Vec<String> = names.iter().filter(|link| has(link, "device")).cloned().collect();
    if !hardware.is_empty() {
        return hardware;
    }
    // In a container the way out is a pair of virtual ends.
    let is_inner = |link: &str| link == "lo" || has(link, "tun_flags") || has(link, "bridge") || has(link, "brport");
    names.into_iter().filter(|link| !is_inner(link)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_files_are_read() {
        let stat = "cpu  100 0 50 900 50 10 0 40 30 0\ncpu0 1 2 3\ncpu1 1 2 3\nintr 5\n";
        assert_eq!((busy_seconds(stat), processors(stat)), (Some(2.0), 2));
        assert_eq!(busy_seconds("cpu"), None);
        let diskstats = "   8  0 sda 10 0 200 5 20 0 400 9 0 1 2\n   8  1 sda1 10 0 200 5 20 0 400 9 0 1 2\n junk\n";
        let sums = disks(diskstats, |name| name == "sda").map(|sum| format!("{sum}"));
        assert_eq!(sums, ["10", "102400", "20", "204800"]);
    }

    #[test]
    fn this_very_machine_has_figures() {
        let (reading, capacity) = read(&[]);
        assert!(reading.at > 0.0 && reading.levels[0].is_some_and(|used| used > 0.0), "{reading:?}");
        assert!(reading.counters[0].is_some() && reading.levels[1].is_none(), "{reading:?}");
        assert!(capacity["cpuCores"].as_u64().is_some_and(|count| count > 0), "{capacity}");
        assert!(capacity.get("storageBytes").is_none());
    }
}
