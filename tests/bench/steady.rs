//! A client that asks a little at a time: a person or a controller, whose answers are measured while others are busy.

use std::time::{Duration, Instant};

use anyhow::Result;
use croft_testkit::Client;

/// The time of each GET, with a pause behind it, as long as `goes_on` says so of how many there were. The client must be new.
///
/// On a thread and a runtime of its own, so that it is not kept waiting by anything that this process does besides.
pub(crate) async fn gets(
    client: Client,
    path: String,
    pause: Duration,
    goes_on: impl Fn(usize) -> bool + Send + 'static,
) -> Result<Vec<Duration>> {
    let work = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async move {
            // A connection is opened once, and not what is measured.
            client.get(&path).await?.ok()?;
            let mut samples = Vec::new();
            while goes_on(samples.len()) {
                let start = Instant::now();
                client.get(&path).await?.ok()?;
                samples.push(start.elapsed());
                tokio::time::sleep(pause).await;
            }
            Ok(samples)
        })
    };
    tokio::task::spawn_blocking(work).await?
}
