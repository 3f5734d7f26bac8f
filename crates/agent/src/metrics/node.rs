//! The node's own figures, by the names that node-exporter gives them, and those of its pools.

use std::fs;

use super::process::{TICKS_PER_SECOND, parse_kib};
use super::text::{Labels, Metric, Page, counter, gauge, number};
use crate::volume::PoolFigures;

const CPU: Metric = counter("node_cpu_seconds_total", "Seconds the CPUs spent in each mode.");
/// In the order of the kernel's columns.
const MODES: [&str; 8] = ["user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal"];
const LOADS: [Metric; 3] = [
    gauge("node_load1", "1m load average."),
    gauge("node_load5", "5m load average."),
    gauge("node_load15", "15m load average."),
];
const MEMORY: [(&str, Metric); 7] = [
    ("MemTotal", gauge("node_memory_MemTotal_bytes", "Memory information field MemTotal_bytes.")),
    ("MemFree", gauge("node_memory_MemFree_bytes", "Memory information field MemFree_bytes.")),
    ("MemAvailable", gauge("node_memory_MemAvailable_bytes", "Memory information field MemAvailable_bytes.")),
    ("Buffers", gauge("node_memory_Buffers_bytes", "Memory information field Buffers_bytes.")),
    ("Cached", gauge("node_memory_Cached_bytes", "Memory information field Cached_bytes.")),
    ("SwapTotal", gauge("node_memory_SwapTotal_bytes", "Memory information field SwapTotal_bytes.")),
    ("SwapFree", gauge("node_memory_SwapFree_bytes", "Memory information field SwapFree_bytes.")),
];
const CAPACITY: Metric = gauge("croft_pool_capacity_bytes", "How much the pool holds.");
const USED: Metric = gauge("croft_pool_used_bytes", "How much of the pool is taken.");
const FREE: Metric = gauge("croft_pool_free_bytes", "How much can still be written to the pool.");
const PROMISED: Metric = gauge("croft_pool_promised_bytes", "What the pool's volumes would take if they were full.");

pub(super) fn host(page: &mut Page, node: &Labels) {
    let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
    cpus(page, node, &text("/proc/stat"));
    memory(page, node, &text("/proc/meminfo"));
    for (metric, value) in LOADS.into_iter().zip(text("/proc/loadavg").split_whitespace()) {
        page.add_if_known(metric, node, value.parse().ok());
    }
}

pub(super) fn pools(page: &mut Page, node: &Labels, pools: &[PoolFigures]) {
    for pool in pools {
        let labels = node.with("pool", &pool.id);
        page.add(CAPACITY, &labels, number(pool.usage.capacity_bytes));
        page.add(USED, &labels, number(pool.usage.used_bytes()));
        page.add(FREE, &labels, number(pool.usage.free_bytes));
        page.add(PROMISED, &labels, number(pool.promised_bytes));
    }
}

fn cpus(page: &mut Page, node: &Labels, stat: &str) {
    for line in stat.lines() {
        let mut fields = line.split_whitespace();
        // The line without a number is the sum of all.
        let Some(cpu) = fields.next().and_then(|name| name.strip_prefix("cpu")).filter(|cpu| !cpu.is_empty()) else {
            continue;
        };
        let cpu = node.with("cpu", cpu);
        for (mode, ticks) in MODES.into_iter().zip(fields) {
            let value = ticks.parse::<f64>().ok().map(|ticks| ticks / TICKS_PER_SECOND);
            page.add_if_known(CPU, &cpu.with("mode", mode), value);
        }
    }
}

fn memory(page: &mut Page, node: &Labels, meminfo: &str) {
    for (field, metric) in MEMORY {
        page.add_if_known(metric, node, parse_kib(meminfo, field).map(number));
    }
}

#[cfg(test)]
mod tests {
    use croft_block::Usage;

    use super::*;

    fn samples(page: Page) -> Vec<String> {
        page.finish().lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
    }

    #[test]
    fn processors_and_memory_are_told_as_node_exporter_tells_them() {
        let node = Labels::default().with("node", "n1");
        let mut page = Page::default();
        cpus(&mut page, &node, "cpu  9 9 9 9\ncpu0 150 0 50\nintr 5\n");
        memory(&mut page, &node, "MemTotal:       4 kB\nMemAvailable:   2 kB\n");
        let expected = [
            r#"node_cpu_seconds_total{node="n1",cpu="0",mode="user"} 1.5"#,
            r#"node_cpu_seconds_total{node="n1",cpu="0",mode="nice"} 0"#,
            r#"node_cpu_seconds_total{node="n1",cpu="0",mode="system"} 0.5"#,
            r#"node_memory_MemAvailable_bytes{node="n1"} 2048"#,
            r#"node_memory_MemTotal_bytes{node="n1"} 4096"#,
        ];
        assert_eq!(samples(page), expected);
    }

    #[test]
    fn pools_are_told_with_what_they_have_promised() {
        let mut page = Page::default();
        let usage = Usage { capacity_bytes: 100, free_bytes: 30 };
        let figures = PoolFigures { id: "default".to_owned(), dir: "/pool".into(), usage, promised_bytes: 400 };
        pools(&mut page, &Labels::default().with("node", "n1"), &[figures]);
        let expected = [("capacity", 100), ("free", 30), ("promised", 400), ("used", 70)]
            .map(|(what, bytes)| format!(r#"croft_pool_{what}_bytes{{node="n1",pool="default"}} {bytes}"#));
        assert_eq!(samples(page), expected);
    }
}
