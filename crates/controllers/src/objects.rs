//! The metadata of all objects of all kinds, as one stream; kinds come and go with their definitions.
//!
//! One set of watches serves all who must know when an object goes: the garbage collector reads everything, namespaces
//! and definitions that wait for their content listen for what is [`Gone`].

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use croft_meta::Chain;
use croft_reconcile::{Event, Object, Source, Tasks, watch};
use futures::StreamExt;
use kube::Client;
use parking_lot::Mutex;
use tokio::sync::{Notify, broadcast, mpsc};
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;

use crate::discovery::{Kind, Kinds};

/// How many deletions a listener may lag behind before it must look at everything anew.
const GONE: usize = 1024;
/// Definitions are served a moment after they appear; how often, and when, a missing one is looked for again.
const LOOK_AGAIN: [Duration; 4] =
    [Duration::from_millis(50), Duration::from_millis(250), Duration::from_secs(1), Duration::from_secs(5)];

/// Somebody saw an object go.
#[derive(Clone, Debug)]
pub(crate) struct Gone {
    pub(crate) kind: Arc<Kind>,
    pub(crate) namespace: Arc<str>,
}

#[derive(Debug)]
pub(crate) enum Seen {
    /// The kinds that there are now.
    Kinds(Arc<Kinds>),
    Event(Arc<Kind>, Event<Object>),
}

/// Watches everything.
pub(crate) struct Everything {
    client: Client,
    seen: mpsc::Sender<Seen>,
    gone: broadcast::Sender<Gone>,
    definitions: Definitions,
}

/// The definitions of custom kinds, and word of their changes.
#[derive(Debug, Default)]
struct Definitions {
    names: Mutex<HashSet<Box<str>>>,
    changed: Notify,
}

impl Definitions {
    fn note(&self, event: &Event<Object>) {
        match event {
            Event::Restarted => self.names.lock().clear(),
            Event::Applied(definition) => drop(self.names.lock().insert(definition.metadata.name.clone())),
            Event::Deleted(definition) => drop(self.names.lock().remove(&definition.metadata.name)),
            Event::Synced => {}
        }
        self.changed.notify_one();
    }

    fn are_all_in(&self, kinds: &Kinds) -> bool {
        let served: HashSet<String> = kinds.preferred.iter().map(|kind| kind.group_resource()).collect();
        self.names.lock().iter().all(|name| served.contains(&**name))
    }
}

impl Everything {
    pub(crate) fn new(client: Client, seen: mpsc::Sender<Seen>) -> (Arc<Self>, broadcast::Sender<Gone>) {
        let gone = broadcast::Sender::new(GONE);
        let everything = Self { client, seen, gone: gone.clone(), definitions: Definitions::default() };
        (Arc::new(everything), gone)
    }

    pub(crate) async fn run(self: Arc<Self>, stop: CancellationToken) {
        let mut tasks = Tasks::default();
        let mut watched: HashMap<String, (Arc<Kind>, AbortHandle)> = HashMap::new();
        let mut tries = 0;
        loop {
            let is_complete = match Kinds::discover(&self.client).await {
                Ok(kinds) => {
                    let kinds = Arc::new(kinds);
                    if self.seen.send(Seen::Kinds(Arc::clone(&kinds))).await.is_err() {
                        return;
                    }
                    self.adjust(&kinds, &mut watched, &mut tasks);
                    self.definitions.are_all_in(&kinds)
                }
                Err(error) => {
                    tracing::warn!(error = %Chain(&error), "the kinds of the server could not be read");
                    false
                }
            };
            let again = LOOK_AGAIN.get(tries).copied().filter(|_| !is_complete);
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.definitions.changed.notified() => tries = 0,
                () = tokio::time::sleep(again.unwrap_or_default()), if again.is_some() => tries += 1,
                () = tasks.watch_over() => {}
            }
        }
    }

    /// Starts and ends watches so that every kind has one.
    fn adjust(
        self: &Arc<Self>,
        kinds: &Kinds,
        watched: &mut HashMap<String, (Arc<Kind>, AbortHandle)>,
        tasks: &mut Tasks,
    ) {
        let wanted: HashMap<String, &Arc<Kind>> =
            kinds.preferred.iter().filter(|kind| is_watched(kind)).map(|kind| (kind.group_resource(), kind)).collect();
        watched.retain(|name, (kind, task)| {
            let stays = wanted.get(name).is_some_and(|wanted| **wanted == *kind);
            if !stays {
                task.abort();
            }
            stays
        });
        for (name, kind) in wanted {
            watched.entry(name).or_insert_with(|| {
                let task = tasks.spawn(Arc::clone(self).follow(Arc::clone(kind)));
                (Arc::clone(kind), task)
            });
        }
    }

    /// Ends only when nobody listens any more.
    async fn follow(self: Arc<Self>, kind: Arc<Kind>) {
        let is_definition = kind.is("apiextensions.k8s.io", "customresourcedefinitions");
        let mut events = watch::<Object>(self.client.clone(), Source::all(kind.resource.clone()));
        while let Some(event) = events.next().await {
            if is_definition {
                self.definitions.note(&event);
            }
            let namespace = match &event {
                Event::Deleted(object) => Some(Arc::from(&*object.metadata.namespace)),
                _ => None,
            };
            if self.seen.send(Seen::Event(Arc::clone(&kind), event)).await.is_err() {
                return;
            }
            if let Some(namespace) = namespace {
                // Nobody waits for anything to go: as well.
                drop(self.gone.send(Gone { kind: Arc::clone(&kind), namespace }));
            }
        }
    }
}

/// Events own nothing, are owned by nothing, and are many.
pub(crate) fn is_watched(kind: &Kind) -> bool {
    let is_event = kind.is("", "events") || kind.is("events.k8s.io", "events");
    !is_event && ["list", "watch", "delete"].iter().all(|verb| kind.supports(verb))
}
