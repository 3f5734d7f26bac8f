//! Forgets the past: the store keeps only as much history as clients may still ask for.
//!
//! Upstream does the same every five minutes. An old page or watch from before that gets 410 and starts over. The
//! embedded store forgets by itself; for etcd nobody else would.

use std::sync::Arc;
use std::time::Duration;

use croft_meta::{Chain, Revision};

use crate::cache::REPLAYED_REVISIONS;
use crate::server::ApiServer;

/// History is kept for this long at least, and for twice as long at the most.
const KEPT: Duration = Duration::from_mins(5);

/// Runs until the server stops. Several servers on one etcd may all do it: each leaves at least [`KEPT`].
pub(crate) async fn forget(server: Arc<ApiServer>) {
    let stop = server.stopping();
    let mut then = server.cache.applied();
    loop {
        tokio::select! {
            () = tokio::time::sleep(KEPT) => {}
            () = stop.cancelled() => return,
        }
        let now = server.cache.applied();
        let until = forgettable(then, now);
        then = now;
        if let Some(until) = until
            && let Err(error) = server.store.compact(until).await
        {
            tracing::warn!(error = %Chain(&error), "the store's history could not be cut; trying again later");
        }
    }
}

/// What came before the state of a while ago, except what a restarted server replays so that clients' watches go on.
fn forgettable(then: Revision, now: Revision) -> Option<Revision> {
    Some(then.min(Revision(now.0.saturating_sub(REPLAYED_REVISIONS)))).filter(|until| *until > Revision::ZERO)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recent_and_replayed_history_is_kept() {
        let of = |then, now| forgettable(Revision(then), Revision(now)).map(|r| r.0);
        assert_eq!(of(10, 900), None);
        assert_eq!(of(10, 5_000), Some(10));
        assert_eq!(of(4_900, 5_000), Some(4_000));
    }
}
