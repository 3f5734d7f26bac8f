//! Which of the nodes that could take a guest is best. Weights are kube-scheduler's.

use super::amounts::Amounts;

const MOST: i64 = 100;

/// What speaks for a node; more is better.
#[derive(Clone, Debug)]
pub(super) struct Points<'a> {
    pub(super) name: &'a str,
    pub(super) node_affinity: i64,
    pub(super) taints: i64,
    pub(super) neighbours: i64,
    pub(super) spread: i64,
    /// Already in percent.
    pub(super) free: i64,
}

/// How much of the node would be left, in percent: the mean over CPU and memory.
pub(super) fn free_percent(total: &Amounts, used: &Amounts) -> i64 {
    let percent = |total: i64, used: i64| {
        if total <= 0 { 0 } else { i128::from(total.saturating_sub(used).max(0)) * 100 / i128::from(total) }
    };
    let sum = percent(total.cpu_milli, used.cpu_milli) + percent(total.memory_bytes, used.memory_bytes);
    i64::try_from(sum / 2).unwrap_or_default()
}

/// The name of the best; of equals the first by name.
pub(super) fn best<'a>(nodes: &[Points<'a>]) -> Option<&'a str> {
    let column = |of: fn(&Points<'_>) -> i64| normalised(&nodes.iter().map(of).collect::<Vec<i64>>());
    let node_affinity = column(|points| points.node_affinity);
    let taints = column(|points| points.taints);
    let neighbours = column(|points| points.neighbours);
    let spread = column(|points| points.spread);
    let rows = node_affinity.iter().zip(&taints).zip(&neighbours).zip(&spread);
    let totals = nodes.iter().zip(rows).map(|(points, (((affinity, taints), neighbours), spread))| {
        let total = 2 * affinity + 3 * taints + 2 * neighbours + 2 * spread + points.free;
        (points.name, total)
    });
    let least = totals.min_by_key(|(name, total)| (std::cmp::Reverse(*total), *name));
    least.map(|(name, _)| name)
}

/// From nothing for the worst to [`MOST`] for the best; nothing for all when they are equal.
fn normalised(column: &[i64]) -> Vec<i64> {
    let (Some(least), Some(most)) = (column.iter().min(), column.iter().max()) else { return Vec::new() };
    let range = i128::from(*most) - i128::from(*least);
    let scale = |value: &i64| match range {
        0 => 0,
        range => i64::try_from((i128::from(*value) - i128::from(*least)) * i128::from(MOST) / range).unwrap_or(MOST),
    };
    column.iter().map(scale).collect()
}
