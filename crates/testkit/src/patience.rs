//! Waiting for a condition instead of for time.

use std::fmt::Display;
use std::time::{Duration, Instant};

/// How long a test waits for something that should happen "soon". A loaded machine can ask for more with
/// `CROFT_TEST_PATIENCE_MS`; a passing test never waits that long.
pub fn patience() -> Duration {
    let ms = std::env::var("CROFT_TEST_PATIENCE_MS").ok().and_then(|v| v.parse().ok()).unwrap_or(30_000);
    Duration::from_millis(ms)
}

/// Calls `attempt` until it gives a value, and panics with the last refusal when [`patience`] runs out.
pub async fn eventually<T, E, F>(what: &str, attempt: F) -> T
where
    E: Display,
    F: AsyncFnMut() -> Result<T, E>,
{
    match eventually_within(patience(), attempt).await {
        Ok(value) => value,
        Err(last) => panic!("{what}: {last}"),
    }
}

/// The same with an explicit limit and no panic: the last error comes back.
pub async fn eventually_within<T, E, F>(limit: Duration, attempt: F) -> Result<T, E>
where
    F: AsyncFnMut() -> Result<T, E>,
{
    wait(limit, Duration::from_millis(100), attempt).await
}

/// The same, looking every few milliseconds: for what is measured, such as the start of a server.
pub async fn promptly_within<T, E, F>(limit: Duration, attempt: F) -> Result<T, E>
where
    F: AsyncFnMut() -> Result<T, E>,
{
    wait(limit, Duration::from_millis(5), attempt).await
}

async fn wait<T, E, F>(limit: Duration, longest_pause: Duration, mut attempt: F) -> Result<T, E>
where
    F: AsyncFnMut() -> Result<T, E>,
{
    let start = Instant::now();
    let mut pause = Duration::from_millis(5);
    loop {
        match attempt().await {
            Ok(value) => return Ok(value),
            Err(last) if start.elapsed() >= limit => return Err(last),
            Err(_) => tokio::time::sleep(pause).await,
        }
        pause = (pause * 2).min(longest_pause);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn eventually_returns_the_first_success() {
        let mut left = 3;
        let got = eventually("counting down", async || {
            left -= 1;
            if left == 0 { Ok("done") } else { Err(format!("{left} left")) }
        })
        .await;
        assert_eq!(got, "done");
    }

    #[tokio::test]
    async fn the_last_refusal_is_reported() {
        let refused = eventually_within(Duration::from_millis(20), async || Err::<(), _>("still no")).await;
        assert_eq!(refused, Err("still no"));
    }
}
