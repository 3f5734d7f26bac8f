//! Deletes objects whose owners are gone, and lets owners go in the way their deletion asked for.
//!
//! - *Background*: when an object has gone, its dependants that have no other owner go too.
//! - *Foreground* (finalizer `foregroundDeletion`): the dependants go first; the owner stays until none is left that
//!   blocks it.
//! - *Orphan* (finalizer `orphan`): the dependants forget their owner, then it goes.
//!
//! The [`graph`] says what to look into; every decision is made on what the server says at that moment, and carried out
//! under preconditions. Upstream's `pkg/controller/garbagecollector` is the model for the rules.

mod collect;
mod graph;
mod orphan;
mod write;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use croft_reconcile::{Event, Keys, Loop, Tasks};
use kube::Client;
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;

use self::graph::{Graph, Uid, Work};
use crate::discovery::{Kind, Kinds};
use crate::objects::Seen;

/// Most of the time is spent waiting for the store, which commits the writes of one moment together.
const WORKERS: usize = 20;
/// A kind that cannot be listed must not keep the others waiting for longer than this.
const SYNC_TIMEOUT: Duration = Duration::from_secs(30);

struct Collector {
    client: Client,
    state: Mutex<State>,
    work: Keys<Work>,
    /// Told when kinds have been listed.
    synced: Notify,
}

#[derive(Default)]
struct State {
    graph: Graph,
    kinds: Arc<Kinds>,
    /// Kinds whose first listing is not complete.
    unlisted: HashSet<String>,
    is_first_discovery_over: bool,
    /// Work on kinds that the server does not have (yet).
    unknown: HashSet<Work>,
}

pub(crate) async fn run(client: Client, seen: mpsc::Receiver<Seen>, stop: CancellationToken) {
    let (work, received) = Keys::channel();
    let collector = Arc::new(Collector { client, state: Mutex::default(), work, synced: Notify::new() });
    let mut tasks = Tasks::default();
    tasks.spawn(Arc::clone(&collector).follow(seen));
    let gate = async {
        // Before everything is known, owners would look absent that are only not listed yet.
        drop(tokio::time::timeout(SYNC_TIMEOUT, collector.is_synced()).await);
    };
    let reconcile = |work: Work| {
        let collector = Arc::clone(&collector);
        async move {
            match work {
                Work::Collect(uid) => collector.collect(uid).await,
                Work::Orphan(uid) => collector.orphan(uid).await,
            }
        }
    };
    let work = Loop { name: "garbage collector", workers: WORKERS, stop };
    tokio::select! {
        () = work.run(received, gate, reconcile) => {}
        () = async { loop { tasks.watch_over().await } } => {}
    }
}

impl Collector {
    /// Keeps the graph up to date.
    async fn follow(self: Arc<Self>, mut seen: mpsc::Receiver<Seen>) {
        while let Some(seen) = seen.recv().await {
            let work = match seen {
                Seen::Kinds(kinds) => self.state.lock().adopt(kinds),
                Seen::Event(kind, event) => {
                    let work = self.state.lock().apply(&kind, event);
                    self.synced.notify_waiters();
                    work
                }
            };
            self.wake(work).await;
        }
    }

    async fn wake(&self, work: Vec<Work>) {
        for work in work {
            self.work.send(work, Duration::ZERO).await;
        }
    }

    async fn is_synced(&self) {
        loop {
            let changed = self.synced.notified();
            {
                let state = self.state.lock();
                if state.is_first_discovery_over && state.unlisted.is_empty() {
                    return;
                }
            }
            changed.await;
        }
    }

    /// Where objects of a type are found. Work on an unknown type is taken up again when there are new kinds.
    fn kind_of(&self, api_version: &str, kind: &str, work: Work) -> Option<Arc<Kind>> {
        let mut state = self.state.lock();
        let found = state.kinds.of(api_version, kind).cloned();
        if found.is_none() {
            state.unknown.insert(work);
        }
        found
    }

    /// An owner in the version of its kind that is watched.
    fn watched(&self, kind: &Kind) -> Option<Arc<Kind>> {
        let state = self.state.lock();
        let same = |other: &&Arc<Kind>| other.is(&kind.resource.group, &kind.resource.plural);
        state.kinds.preferred.iter().find(same).cloned()
    }
}

impl State {
    fn adopt(&mut self, kinds: Arc<Kinds>) -> Vec<Work> {
        let served: HashSet<String> = kinds.preferred.iter().map(|kind| kind.group_resource()).collect();
        if self.is_first_discovery_over {
            self.unlisted.retain(|name| served.contains(name));
        } else {
            let watched = kinds.preferred.iter().filter(|kind| crate::objects::is_watched(kind));
            self.unlisted = watched.map(|kind| kind.group_resource()).collect();
            self.is_first_discovery_over = true;
        }
        self.kinds = kinds;
        self.unknown.drain().collect()
    }

    fn apply(&mut self, kind: &Kind, event: Event<croft_reconcile::Object>) -> Vec<Work> {
        let ty = self.graph.intern(&kind.resource.api_version, &kind.resource.kind);
        match event {
            Event::Restarted => {
                self.graph.begin_listing(&ty);
                Vec::new()
            }
            Event::Applied(object) => self.graph.observe(&ty, &object.metadata),
            Event::Deleted(object) => self.graph.remove(Uid::new(&object.metadata.uid)),
            Event::Synced => {
                self.unlisted.remove(&kind.group_resource());
                self.graph.end_listing(&ty)
            }
        }
    }
}
