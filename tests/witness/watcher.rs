//! One client that watches.

use std::sync::Arc;

use anyhow::Result;
use croft_testkit::history::{Change, Watched};
use croft_testkit::{Call, Client, patience};
use http::Method;
use tokio::sync::watch;

use super::{MAPS, PAUSE, Record, change, revision};

/// Watches end after this many seconds and are taken up again, as watches do.
const WATCH_SECONDS: u64 = 5;

pub(super) struct Watcher {
    client: Client,
    record: Arc<Record>,
    watched: Watched,
}

impl Watcher {
    pub(super) fn new(client: Client, record: Arc<Record>, watched: Watched) -> Self {
        Self { client, record, watched }
    }

    /// Follows all changes up to the last, over watches that end or break, without ever listing.
    pub(super) async fn run(mut self, mut until: watch::Receiver<u64>) -> Watched {
        let mut last = self.watched.from;
        loop {
            let end = *until.borrow_and_update();
            if last >= end {
                return self.watched;
            }
            tokio::select! {
                outcome = self.follow(&mut last) => {
                    if let Err(err) = outcome {
                        self.record.complain(format!("{}: {err:#}", self.watched.name));
                        return self.watched;
                    }
                }
                // The last change may have come already.
                _ = until.changed() => {}
            }
        }
    }

    /// One watch. Fails if it cannot be taken up where it was, which nothing here is a reason for.
    async fn follow(&mut self, last: &mut u64) -> Result<()> {
        let path = format!(
            "{MAPS}?watch=1&labelSelector=witness&allowWatchBookmarks=true&timeoutSeconds={WATCH_SECONDS}&resourceVersion={last}"
        );
        let opened = self.client.open(Call::new(Method::GET, &path)).await.ok();
        let status = opened.as_ref().map_or(503, |stream| stream.status);
        anyhow::ensure!(matches!(status, 200 | 503 | 504), "a watch from {last} got {status}");
        let Some(mut stream) = opened.filter(|stream| stream.status == 200) else {
            tokio::time::sleep(PAUSE).await;
            return Ok(());
        };
        // A line that was cut off comes again.
        while let Ok(Some(event)) = stream.event_within(patience() * 2).await {
            let object = &event["object"];
            match event["type"].as_str() {
                Some("BOOKMARK") => *last = revision(object)?.max(*last),
                Some("ADDED" | "MODIFIED") => self.saw(change(object, false)?, last),
                Some("DELETED") => self.saw(change(object, true)?, last),
                _ => anyhow::bail!("a watch from {last} got {event}"),
            }
        }
        Ok(())
    }

    fn saw(&mut self, change: Change, last: &mut u64) {
        *last = change.revision;
        self.watched.changes.push(change);
    }
}
