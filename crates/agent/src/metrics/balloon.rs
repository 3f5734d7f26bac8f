//! What the guest says of its memory, through the balloon.
//!
//! QEMU can ask the guest by a clock of its own. It asks at once when that clock is set going, so it is set going for
//! every answer, and so slowly that it does nothing between them.

use std::collections::HashMap;
use std::time::Duration;

use croft_qemu::qmp::{Qmp, QmpError};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::json;

const DEVICE: &str = "/machine/peripheral/balloon";
const POLLING: &str = "guest-stats-polling-interval";
const CLOCK: Duration = Duration::from_hours(24);
/// A guest that has a driver answers in less; older figures serve if not.
const LOOKS: u32 = 5;
const PAUSE: Duration = Duration::from_millis(20);

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub(super) struct Stats {
    #[serde(rename = "last-update")]
    updated: i64,
    stats: HashMap<String, u64>,
}

impl Stats {
    /// By QEMU's name, which is without its `stat-` here.
    pub(super) fn get(&self, name: &str) -> Option<u64> {
        // The largest number is QEMU's word for what the guest has not said.
        self.stats.get(&format!("stat-{name}")).copied().filter(|value| *value != u64::MAX)
    }
}

/// The balloon's size, and what the guest says. Nothing of a machine without a balloon.
pub(super) async fn read(qmp: &Qmp) -> (Option<u64>, Option<Stats>) {
    let Ok(size) = qmp.balloon_bytes().await else { return (None, None) };
    let stats = ask(qmp).await.ok().flatten();
    (Some(size), stats)
}

async fn ask(qmp: &Qmp) -> Result<Option<Stats>, QmpError> {
    let asked_at = Timestamp::now().as_second();
    for interval in [0, CLOCK.as_secs()] {
        qmp.run("qom-set", json!({ "path": DEVICE, "property": POLLING, "value": interval })).await?;
    }
    let mut stats = Stats::default();
    for _ in 0..LOOKS {
        stats = qmp.execute("qom-get", json!({ "path": DEVICE, "property": "guest-stats" })).await?;
        if stats.updated >= asked_at {
            break;
        }
        tokio::time::sleep(PAUSE).await;
    }
    // Zero: a guest without a driver, or that has not booted yet.
    Ok(Some(stats).filter(|stats| stats.updated > 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_guest_has_not_said_is_not_told() {
        let stats: Stats = serde_json::from_value(json!({
            "last-update": 1_700_000_000,
            "stats": { "stat-total-memory": 4096, "stat-free-memory": 0, "stat-swap-in": u64::MAX, "stat-htlb-pgfail": 1 },
        }))
        .unwrap();
        let told = ["total-memory", "free-memory", "swap-in", "disk-caches"].map(|name| stats.get(name));
        assert_eq!(told, [Some(4096), Some(0), None, None]);
    }
}
