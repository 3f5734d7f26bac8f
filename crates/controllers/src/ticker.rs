//! The minutes that schedules live by.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

const MINUTE: SignedDuration = SignedDuration::from_secs(60);
/// The clock may be set while this waits for the next minute.
const LOOK: Duration = Duration::from_secs(10);

/// What time it is.
pub(crate) type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// Calls in every minute, whatever becomes of the clock, and says whether a minute was left out before.
pub(crate) async fn every_minute<T: Future<Output = ()>>(clock: Clock, look: impl Fn(Timestamp, bool) -> T) {
    let mut looked_at = None;
    loop {
        let now = clock();
        if looked_at != Some(minute(now)) {
            let has_jumped = looked_at.is_some_and(|before| minute(now) != minute_after(before));
            looked_at = Some(minute(now));
            look(now, has_jumped).await;
        }
        tokio::time::sleep(until_next_minute(clock()).min(LOOK)).await;
    }
}

pub(crate) fn minute(time: Timestamp) -> Timestamp {
    // What is earlier than a time that exists exists, but for the very first minute.
    Timestamp::from_second(time.as_second().div_euclid(60) * 60).unwrap_or(Timestamp::MIN)
}

pub(crate) fn minute_after(time: Timestamp) -> Timestamp {
    minute(time).saturating_add(MINUTE).unwrap_or(Timestamp::MAX)
}

fn until_next_minute(time: Timestamp) -> Duration {
    Duration::try_from(time.duration_until(minute_after(time))).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minutes_are_whole() {
        let time = |text: &str| -> Timestamp { text.parse().unwrap() };
        assert_eq!(minute(time("2026-11-16T12:00:59.999Z")), time("2026-11-16T12:00:00Z"));
        assert_eq!(until_next_minute(time("2026-11-16T12:00:59Z")), Duration::from_secs(1));
        assert_eq!(until_next_minute(time("2026-11-16T12:00:00Z")), Duration::from_mins(1));
        assert_eq!(until_next_minute(Timestamp::MAX).as_secs(), 0);
    }
}
