//! No faster than one is told.

use std::num::NonZeroU64;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

#[derive(Debug)]
pub(crate) struct Pace {
    bytes_per_second: Option<NonZeroU64>,
    /// When the next may begin.
    next: Mutex<Instant>,
}

impl Pace {
    pub(crate) fn new(bytes_per_second: Option<NonZeroU64>) -> Self {
        Self { bytes_per_second, next: Mutex::new(Instant::now()) }
    }

    /// Waits until this many bytes may go.
    pub(crate) async fn take(&self, bytes: usize) {
        let Some(rate) = self.bytes_per_second else { return };
        let milliseconds = (bytes as u64).saturating_mul(1000) / rate;
        let begin = {
            let mut next = self.next.lock();
            let begin = (*next).max(Instant::now());
            *next = begin + Duration::from_millis(milliseconds);
            begin
        };
        tokio::time::sleep_until(begin).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_limit_is_kept_by_all_together() {
        let pace = Pace::new(NonZeroU64::new(1 << 20));
        let begun = Instant::now();
        futures::future::join_all((0..6).map(|_| pace.take(100 << 10))).await;
        assert!(begun.elapsed() >= Duration::from_millis(480), "the last begins when five have gone");
        // At any limit at all this would not end.
        Pace::new(None).take(usize::MAX).await;
    }
}
