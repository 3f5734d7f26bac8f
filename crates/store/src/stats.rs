//! Counters that an engine keeps and the API server publishes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Upper bounds in seconds; one more bucket takes the rest.
const BOUNDS: [f64; 14] = [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0];

/// What an engine has done since it was opened.
#[derive(Clone, Debug, Default)]
pub struct Stats {
    /// Durable commits: one may hold many transactions.
    pub commits: u64,
    /// Transactions acknowledged as committed.
    pub transactions: u64,
    /// Transactions refused because a condition did not hold.
    pub conflicts: u64,
    /// From the start of a commit to its acknowledgement.
    pub commit_seconds: Histogram,
    /// Open watches.
    pub watchers: u64,
    /// Watches cut off because they did not keep up.
    pub lagged: u64,
    /// Bytes of the database, 0 where the engine cannot tell.
    pub size_bytes: u64,
    /// What of that was in use when the engine was last asked ([`crate::Store::status`]).
    pub in_use_bytes: u64,
    /// What of it defragmenting would give back, then.
    pub reclaimable_bytes: u64,
    /// Something that was read was not as it was written.
    pub is_damaged: bool,
    /// Those of etcd, by their names.
    pub alarms: Vec<String>,
    /// Why writes are refused, when they are.
    pub read_only: Option<String>,
}

/// Cumulative counts per upper bound, as Prometheus wants them.
#[derive(Clone, Debug, Default)]
pub struct Histogram {
    /// Upper bound in seconds and how many were at or below it; the last bound is infinite.
    pub buckets: Vec<(f64, u64)>,
    pub count: u64,
    pub sum_seconds: f64,
}

/// The engines' side of [`Stats`].
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) commits: AtomicU64,
    pub(crate) transactions: AtomicU64,
    pub(crate) conflicts: AtomicU64,
    pub(crate) lagged: AtomicU64,
    pub(crate) latency: Latency,
}

impl Counters {
    pub(crate) fn add(counter: &AtomicU64, amount: u64) {
        counter.fetch_add(amount, Ordering::Relaxed);
    }

    pub(crate) fn snapshot(&self) -> Stats {
        Stats {
            commits: self.commits.load(Ordering::Relaxed),
            transactions: self.transactions.load(Ordering::Relaxed),
            conflicts: self.conflicts.load(Ordering::Relaxed),
            lagged: self.lagged.load(Ordering::Relaxed),
            commit_seconds: self.latency.snapshot(),
            ..Stats::default()
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Latency {
    counts: [AtomicU64; BOUNDS.len() + 1],
    sum_nanos: AtomicU64,
}

impl Latency {
    pub(crate) fn record(&self, elapsed: Duration) {
        let seconds = elapsed.as_secs_f64();
        let bucket = BOUNDS.iter().position(|bound| seconds <= *bound).unwrap_or(BOUNDS.len());
        self.counts[bucket].fetch_add(1, Ordering::Relaxed);
        self.sum_nanos.fetch_add(u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    fn snapshot(&self) -> Histogram {
        let mut total = 0;
        let bounds = BOUNDS.iter().copied().chain([f64::INFINITY]);
        let buckets = bounds
            .zip(&self.counts)
            .map(|(bound, count)| {
                total += count.load(Ordering::Relaxed);
                (bound, total)
            })
            .collect();
        let sum = Duration::from_nanos(self.sum_nanos.load(Ordering::Relaxed));
        Histogram { buckets, count: total, sum_seconds: sum.as_secs_f64() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_cumulative_and_the_last_takes_everything() {
        let latency = Latency::default();
        for millis in [1, 3, 3, 60_000] {
            latency.record(Duration::from_millis(millis));
        }
        let histogram = latency.snapshot();
        let at = |bound: f64| {
            let found = histogram.buckets.iter().find(|(upper, _)| upper.total_cmp(&bound).is_eq());
            found.map(|(_, count)| *count)
        };
        assert_eq!(at(0.0005), Some(0));
        assert_eq!(at(0.001), Some(1));
        assert_eq!(at(0.005), Some(3));
        assert_eq!(at(5.0), Some(3));
        assert_eq!(at(f64::INFINITY), Some(4));
        assert_eq!(histogram.count, 4);
        assert!((histogram.sum_seconds - 60.007).abs() < 1e-6);
    }
}
