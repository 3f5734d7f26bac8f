//! Machines that change all the time.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use croft_e2e::machines::MACHINES;
use croft_testkit::Client;
use serde_json::{Value, json};

/// Fifty a second.
const PACE: Duration = Duration::from_millis(20);
/// About as many as are on the screen.
const IN_SIGHT: usize = 20;

/// The label that is changed.
pub(super) const LABEL: &str = "changed";

#[derive(Debug)]
pub(super) struct Changes {
    client: Client,
    machines: usize,
    made: AtomicUsize,
    start: Instant,
}

impl Changes {
    pub(super) fn of(client: Client, machines: usize) -> Self {
        Self { client, machines, made: AtomicUsize::new(0), start: Instant::now() }
    }

    /// Goes on until it is dropped. Every other change is to a machine that can be seen, the rest go round.
    pub(super) async fn make(&self) -> Result<()> {
        let mut tick = tokio::time::interval(PACE);
        loop {
            tick.tick().await;
            let n = self.made.load(Ordering::Relaxed);
            let machine = if n.is_multiple_of(2) { (n / 2) % IN_SIGHT } else { (n / 2) % self.machines };
            let patch = json!({"metadata": {"labels": {LABEL: value(n)}}});
            let path = format!("{MACHINES}/{}", name(machine));
            self.client.patch(&path, "merge-patch", &patch).await?.ok()?;
            self.made.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How many there were; fails if the server could not keep up, for then less was measured than is said.
    pub(super) fn made(&self) -> Result<usize> {
        let (made, took) = (self.made.load(Ordering::Relaxed), self.start.elapsed());
        let wanted = took.as_millis() / PACE.as_millis();
        ensure!(made as u128 * 10 >= wanted * 9, "{made} of {wanted} changes were made in {took:?}");
        Ok(made)
    }
}

/// As `load::together` names them.
fn name(machine: usize) -> String {
    format!("vm-{machine:06}")
}

/// Always of the same length, so that the objects do not grow; letters, since digits are searched for in names.
pub(super) fn value(mut n: usize) -> Value {
    let mut text = String::new();
    for _ in 0..6 {
        text.push(char::from(b'a' + u8::try_from(n % 10).unwrap_or_default()));
        n /= 10;
    }
    text.into()
}
