//! The store as a server sees it: far away, slow, and not always there.

use std::fmt;
use std::future::{Future, pending};
use std::sync::Arc;
use std::time::Duration;

use croft_meta::Revision;
use croft_store::{Error, Event, LeaseId, Range, RangeResult, Record, Result, Store, Txn, TxnResult, WatchItem};
use futures::future::{BoxFuture, FutureExt};
use futures::stream::{self, BoxStream, StreamExt};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::disk::Disk;
use crate::mutation::Mutation;
use crate::sim::{Fault, Sim};

/// One process' way to the store. When the process is dead, nothing comes back to it any more.
pub(crate) struct Handle {
    sim: Sim,
    disk: Arc<Disk>,
    dead: CancellationToken,
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Handle")
    }
}

impl Handle {
    pub(crate) fn new(sim: Sim, disk: Arc<Disk>, dead: CancellationToken) -> Self {
        Self { sim, disk, dead }
    }

    /// What is under way when the process dies goes on without it: it may still be done.
    fn call<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Arc<Disk>) -> Result<T> + Send + 'static,
    ) -> BoxFuture<'_, Result<T>> {
        let (sim, disk, dead) = (self.sim.clone(), Arc::clone(&self.disk), self.dead.clone());
        async move {
            if dead.is_cancelled() {
                return pending().await;
            }
            let call = tokio::spawn(async move {
                sim.delay().await;
                if sim.strikes(Fault::StoreRefuses) {
                    return Err(Error::Unavailable { reason: "the simulated store is away".to_owned() });
                }
                let done = work(&disk);
                if sim.strikes(Fault::StoreAnswerLost) {
                    return Err(Error::Unavailable { reason: "the simulated store's answer was lost".to_owned() });
                }
                sim.delay().await;
                done
            });
            unless(&dead, async { call.await.unwrap_or_else(|err| panic!("the simulated store: {err}")) }).await
        }
        .boxed()
    }
}

/// The dead wait for ever.
async fn unless<T>(dead: &CancellationToken, work: impl Future<Output = T>) -> T {
    tokio::select! {
        biased;
        () = dead.cancelled() => pending().await,
        done = work => done,
    }
}

impl Store for Handle {
    fn get(&self, key: &str) -> BoxFuture<'_, Result<Option<Record>>> {
        let key = key.to_owned();
        self.call(move |disk| {
            let found = disk.at(&key, u64::MAX);
            Ok(found.map(|(revision, value)| Record { key, value, revision: Revision(revision) }))
        })
    }

    fn range(&self, range: Range) -> BoxFuture<'_, Result<RangeResult>> {
        self.call(move |disk| disk.range(&range))
    }

    fn txn(&self, txn: Txn) -> BoxFuture<'_, Result<TxnResult>> {
        self.call(move |disk| disk.commit(&txn))
    }

    fn watch(&self, prefix: &str, after: Revision) -> BoxFuture<'_, Result<BoxStream<'static, Result<WatchItem>>>> {
        let (sim, prefix, dead) = (self.sim.clone(), prefix.to_owned(), self.dead.clone());
        self.call(move |disk| {
            disk.reachable(after.0)?;
            let following = Following {
                sim,
                dead,
                prefix,
                after: after.0,
                changed: disk.changed.subscribe(),
                asked: disk.progress.subscribe(),
                disk: Arc::clone(disk),
                is_over: false,
            };
            Ok(stream::unfold(following, |mut one| async move { Some((one.next().await?, one)) }).boxed())
        })
    }

    fn revision(&self) -> BoxFuture<'_, Result<Revision>> {
        self.call(|disk| Ok(Revision(disk.revision())))
    }

    fn request_progress(&self) -> BoxFuture<'_, Result<()>> {
        self.call(|disk| {
            disk.progress.send_modify(|count| *count += 1);
            Ok(())
        })
    }

    fn compact(&self, revision: Revision) -> BoxFuture<'_, Result<()>> {
        self.call(move |disk| disk.compact(revision.0))
    }

    fn lease_grant(&self, ttl: Duration) -> BoxFuture<'_, Result<LeaseId>> {
        self.call(move |disk| Ok(disk.grant(ttl)))
    }

    fn lease_keep_alive(&self, lease: LeaseId) -> BoxFuture<'_, Result<Duration>> {
        const TTL: Duration = Duration::from_mins(1);
        self.call(move |disk| disk.keep_alive(lease, TTL).map(|()| TTL))
    }

    fn lease_revoke(&self, lease: LeaseId) -> BoxFuture<'_, Result<()>> {
        self.call(move |disk| {
            disk.revoke(lease);
            Ok(())
        })
    }

    fn close(&self) -> BoxFuture<'_, Result<()>> {
        async { Ok(()) }.boxed()
    }
}

/// An open watch.
struct Following {
    sim: Sim,
    disk: Arc<Disk>,
    dead: CancellationToken,
    prefix: String,
    after: u64,
    changed: watch::Receiver<u64>,
    asked: watch::Receiver<u64>,
    is_over: bool,
}

impl Following {
    async fn next(&mut self) -> Option<Result<WatchItem>> {
        loop {
            if self.is_over {
                return None;
            }
            if self.dead.is_cancelled() {
                return pending().await;
            }
            self.changed.mark_unchanged();
            if self.after < self.disk.revision() {
                if self.sim.strikes(Fault::StoreWatchBreaks) {
                    self.is_over = true;
                    return self.end();
                }
                if let Some(events) = self.deliver().await {
                    return Some(Ok(WatchItem::Events(events)));
                }
                continue;
            }
            if self.asked.has_changed().unwrap_or(false) {
                self.asked.mark_unchanged();
                return Some(Ok(WatchItem::Progress(Revision(self.after))));
            }
            let (dead, changed, asked) = (self.dead.clone(), &mut self.changed, &mut self.asked);
            let woken = async {
                tokio::select! {
                    biased;
                    _ = changed.changed() => {}
                    _ = asked.changed() => asked.mark_changed(),
                }
            };
            unless(&dead, woken).await;
        }
    }

    fn end(&self) -> Option<Result<WatchItem>> {
        let compacted = self.disk.compacted();
        match self.sim.below(3) {
            0 => None,
            1 if self.after < compacted => {
                let (requested, oldest) = (Revision(self.after), Revision(compacted));
                Some(Err(Error::Compacted { requested, oldest }))
            }
            1 => Some(Err(Error::Lagged)),
            _ => Some(Err(Error::Unavailable { reason: "the simulated watch broke".to_owned() })),
        }
    }

    /// The next revision, if there is something of it under the prefix.
    async fn deliver(&mut self) -> Option<Vec<Event>> {
        if self.sim.is_faulty() && self.sim.percent(20) {
            let sim = self.sim.clone();
            unless(&self.dead, sim.delay()).await;
        }
        self.after += 1;
        let commit = self.disk.commit_of(self.after)?;
        let events: Vec<Event> = commit.iter().filter(|event| event.key.starts_with(&self.prefix)).cloned().collect();
        let skips = self.sim.has(Mutation::ChangesSkipped) && self.sim.is_faulty() && self.sim.percent(5);
        (!events.is_empty() && !skips).then_some(events)
    }
}
