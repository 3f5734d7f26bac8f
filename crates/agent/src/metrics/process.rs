//! What the kernel counts of a machine's process, of its threads and of its taps.

use std::fs;
use std::path::Path;

/// How the kernel counts time for programs, on every architecture that we run on.
pub(super) const TICKS_PER_SECOND: f64 = 100.0;

/// The time that a thread ran, and the time that it stood in a queue for a processor, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Scheduled {
    pub(super) ran: u64,
    pub(super) queued: u64,
}

/// Seconds in user and in system mode.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct CpuTime {
    pub(super) user: f64,
    pub(super) system: f64,
}

pub(super) fn cpu_time(pid: u32) -> Option<CpuTime> {
    parse_cpu_time(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

pub(super) fn resident_bytes(pid: u32) -> Option<u64> {
    parse_kib(&fs::read_to_string(format!("/proc/{pid}/status")).ok()?, "VmRSS")
}

pub(super) fn scheduled(pid: u32, thread: i32) -> Option<Scheduled> {
    parse_scheduled(&fs::read_to_string(format!("/proc/{pid}/task/{thread}/schedstat")).ok()?)
}

/// Seconds that a thread waited; only kernels with scheduler statistics tell.
pub(super) fn waited(pid: u32, thread: i32) -> Option<f64> {
    parse_waited(&fs::read_to_string(format!("/proc/{pid}/task/{thread}/sched")).ok()?)
}

/// One of the kernel's counters of a network interface.
pub(super) fn link_counter(link: &str, counter: &str) -> Option<f64> {
    let path = Path::new("/sys/class/net").join(link).join("statistics").join(counter);
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// A line such as `MemFree:  12 kB`, in bytes.
pub(super) fn parse_kib(text: &str, key: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
    rest.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

fn parse_cpu_time(stat: &str) -> Option<CpuTime> {
    // The second field is the program's name in brackets, and may hold anything.
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut fields = after_name.split_whitespace().skip(11);
    let mut next = || Some(fields.next()?.parse::<f64>().ok()? / TICKS_PER_SECOND);
    Some(CpuTime { user: next()?, system: next()? })
}

fn parse_scheduled(schedstat: &str) -> Option<Scheduled> {
    let mut fields = schedstat.split_whitespace().map(str::parse);
    Some(Scheduled { ran: fields.next()?.ok()?, queued: fields.next()?.ok()? })
}

fn parse_waited(sched: &str) -> Option<f64> {
    let is_wanted = |key: &str| matches!(key.trim(), "wait_sum" | "se.statistics.wait_sum");
    let value = sched.lines().find_map(|line| line.split_once(':').filter(|(key, _)| is_wanted(key)))?.1;
    Some(value.trim().parse::<f64>().ok()? / 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_files_are_read() {
        let stat = "7 (qemu (x) 1) S 1 7 7 0 -1 4194560 1 0 0 0 250 50 0 0 20 0 4 0 9";
        assert_eq!(parse_cpu_time(stat), Some(CpuTime { user: 2.5, system: 0.5 }));
        assert_eq!(parse_cpu_time("7 (qemu"), None);
        assert_eq!(parse_kib("VmRSSx:\t1 kB\nVmRSS:\t  2048 kB\n", "VmRSS"), Some(2 << 20));
        assert_eq!(parse_kib("Vm: 1", "VmRSS"), None);
        assert_eq!(parse_scheduled("1500 30 4\n"), Some(Scheduled { ran: 1500, queued: 30 }));
        assert_eq!(parse_scheduled("1500\n"), None);
        for line in ["wait_sum        :      1500.25\n", "se.statistics.wait_sum : 1500.25\n"] {
            assert_eq!(parse_waited(&format!("nr_switches : 1\n{line}")), Some(1.500_25));
        }
        assert_eq!(parse_waited("nr_switches : 1\n"), None);
    }

    #[test]
    fn a_process_that_is_gone_has_no_figures() {
        // Above what the kernel gives out.
        let nobody = 1 << 30;
        assert_eq!((cpu_time(nobody), resident_bytes(nobody)), (None, None));
        assert_eq!(link_counter("no-such-link", "rx_bytes"), None);
        let us = std::process::id();
        assert!(resident_bytes(us).is_some_and(|bytes| bytes > 1 << 20) && cpu_time(us).is_some());
        assert!(link_counter("lo", "rx_bytes").is_some());
    }
}
