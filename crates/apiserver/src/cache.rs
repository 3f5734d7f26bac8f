//! All objects, in memory, in the bytes that clients get.
//!
//! One task follows the store's watch and applies every change, in order, to the [`Collection`] of
//! its kind. Reads never touch the store: they wait until the cache has seen the store's newest
//! revision (at once, in the embedded case) and are then as fresh as the store itself.
//!
//! Each collection keeps the recent changes in a ring. A watcher is a cursor into that ring and owns
//! no buffer: one that falls behind the ring's tail has lost its place and is cut off, so slow
//! clients cannot make the server grow.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use croft_meta::{ApiError, Chain, Revision};
use croft_store::{Event, Range, Record, Store, WatchItem};
use futures::StreamExt;
use parking_lot::RwLock;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::conversion::Kept;

mod collection;
mod derived;
mod object;

use collection::Stored;
pub(crate) use collection::{Change, Collection, Cursor, Newer, Unreadable};
pub(crate) use derived::{Derived, Parsed};
pub(crate) use object::Object;

/// Every key of the API starts with this.
pub(crate) const ROOT: &str = "registry/";

/// How long a read waits for the cache to catch up with the store before it gives up.
const FRESH_TIMEOUT: Duration = Duration::from_secs(10);

/// How much history a restarted server replays, so that clients' watches go on where they were.
pub(crate) const REPLAYED_REVISIONS: u64 = 1_000;

/// Between attempts to follow a store that does not let us.
const RETRY: Duration = Duration::from_millis(200);

/// How many objects one page of the initial load reads.
const LOAD_PAGE: usize = 2_000;

#[derive(Debug)]
pub(crate) struct Cache {
    store: Arc<dyn Store>,
    collections: RwLock<HashMap<Box<str>, Arc<Collection>>>,
    applied: watch::Sender<Revision>,
    /// Nothing since here has been missed: where the history of a collection that is still empty starts.
    complete_from: AtomicU64,
    /// What conversion webhooks made of objects.
    pub(crate) converted: Kept,
}

impl Cache {
    /// Loads the whole store. The caller then runs [`Cache::follow`] until shutdown.
    pub(crate) async fn load(store: Arc<dyn Store>) -> croft_store::Result<Arc<Self>> {
        let cache = Arc::new(Self {
            store,
            collections: RwLock::new(HashMap::new()),
            applied: watch::Sender::new(Revision::ZERO),
            complete_from: AtomicU64::new(0),
            converted: Kept::default(),
        });
        cache.fill().await?;
        Ok(cache)
    }

    /// Reads the state as it was a little while ago, for [`Cache::follow`] to replay the changes since.
    async fn fill(&self) -> croft_store::Result<()> {
        let newest = self.store.revision().await?;
        // A store younger than that is replayed from its first change; one without any is read as it is.
        let mut at = Revision(newest.0.saturating_sub(REPLAYED_REVISIONS).max(1).min(newest.0));
        let mut after = String::new();
        loop {
            let at_revision = if at == Revision::ZERO { None } else { Some(at) };
            let range = Range { prefix: ROOT.to_owned(), after: after.clone(), limit: LOAD_PAGE, at: at_revision };
            let page = match self.store.range(range).await {
                Err(croft_store::Error::Compacted { .. }) if at != newest => {
                    at = newest;
                    after.clear();
                    self.collections.write().clear();
                    continue;
                }
                other => other?,
            };
            // Every page must be of the moment of the first.
            if at == Revision::ZERO {
                at = page.revision;
            }
            for record in &page.records {
                self.load_one(record);
            }
            match page.records.last() {
                Some(last) if page.more => after.clone_from(&last.key),
                _ => break,
            }
        }
        for collection in self.collections.read().values() {
            collection.start_history(at);
        }
        self.complete_from.store(at.0, Ordering::Release);
        self.applied.send_replace(at);
        Ok(())
    }

    /// Applies changes until shutdown. A broken watch is taken up again where it ended; when the store has forgotten
    /// that place, everything is read anew. Any other error means that the cache cannot be trusted any more.
    pub(crate) async fn follow(self: Arc<Self>, stop: CancellationToken) -> croft_store::Result<()> {
        loop {
            let from = *self.applied.borrow();
            let outcome = tokio::select! {
                () = stop.cancelled() => return Ok(()),
                outcome = self.follow_from(from) => outcome,
            };
            match outcome {
                Ok(()) | Err(croft_store::Error::Lagged) => {}
                Err(error) if is_passing(&error) => {
                    tracing::warn!(error = %Chain(&error), "the store's watch broke; trying again");
                    tokio::time::sleep(RETRY).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    async fn follow_from(&self, from: Revision) -> croft_store::Result<()> {
        match self.apply_changes_since(from).await {
            Err(error @ croft_store::Error::Compacted { .. }) => {
                tracing::warn!(error = %Chain(&error), "changes were missed; reading the whole store again");
                self.reload().await
            }
            other => other,
        }
    }

    /// Takes over the store's present state. What happened on the way there is lost, so all watches must start over.
    async fn reload(&self) -> croft_store::Result<()> {
        let mut range = Range { prefix: ROOT.to_owned(), limit: LOAD_PAGE, ..Range::default() };
        let mut stored: HashMap<String, HashSet<String>> = HashMap::new();
        let at = loop {
            let page = self.store.range(range.clone()).await?;
            for record in &page.records {
                let Some((collection, id)) = split_key(&record.key) else { continue };
                stored.entry(collection.to_owned()).or_default().insert(id.to_owned());
                self.load_one(record);
            }
            match page.records.last() {
                Some(last) if page.more => range.after.clone_from(&last.key),
                _ => break page.revision,
            }
            // Every page must be of the moment of the first.
            range.at = Some(page.revision);
        };
        // Before the collections are gone through: one that is made meanwhile must know it, too.
        self.complete_from.store(at.0, Ordering::Release);
        for (key, collection) in &*self.collections.read() {
            let kept = stored.remove(&**key).unwrap_or_default();
            collection.start_over(at, |id| kept.contains(id));
        }
        self.applied.send_replace(at);
        Ok(())
    }

    async fn apply_changes_since(&self, from: Revision) -> croft_store::Result<()> {
        let mut changes = self.store.watch(ROOT, from).await?;
        while let Some(item) = changes.next().await {
            match item? {
                WatchItem::Events(events) => {
                    let Some(revision) = events.last().map(|e| e.revision) else { continue };
                    self.apply(&events);
                    self.applied.send_replace(revision);
                }
                WatchItem::Progress(revision) => {
                    self.applied.send_if_modified(|applied| {
                        let newer = revision > *applied;
                        if newer {
                            *applied = revision;
                        }
                        newer
                    });
                }
            }
        }
        Ok(())
    }

    /// Takes over a transaction, one collection after the other.
    fn apply(&self, events: &[Event]) {
        let mut of_collections: Vec<(&str, Vec<Stored<'_>>)> = Vec::new();
        for Event { key, revision, value } in events {
            let Some((collection, id)) = parts(key) else { continue };
            let stored = Stored { id, revision: *revision, value: value.as_deref() };
            match of_collections.iter_mut().find(|(of, _)| *of == collection) {
                Some((_, all)) => all.push(stored),
                None => of_collections.push((collection, vec![stored])),
            }
        }
        for (collection, stored) in of_collections {
            self.collection(collection).apply(stored, false);
        }
    }

    fn load_one(&self, record: &Record) {
        let Some((collection, id)) = parts(&record.key) else { return };
        let stored = Stored { id, revision: record.revision, value: Some(&record.value) };
        self.collection(collection).apply([stored], true);
    }

    /// The collection of a storage key (`core/pods`), made empty if nothing is stored there yet.
    pub(crate) fn collection(&self, storage_key: &str) -> Arc<Collection> {
        if let Some(found) = self.collections.read().get(storage_key) {
            return Arc::clone(found);
        }
        let mut collections = self.collections.write();
        let made = collections
            .entry(storage_key.into())
            .or_insert_with(|| Arc::new(Collection::new(Revision(self.complete_from.load(Ordering::Acquire)))));
        Arc::clone(made)
    }

    /// How far the cache is.
    pub(crate) fn applied(&self) -> Revision {
        *self.applied.borrow()
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<Revision> {
        self.applied.subscribe()
    }

    /// Waits until everything that was acknowledged before this call is in the cache.
    pub(crate) async fn fresh(&self) -> Result<Revision, ApiError> {
        let newest = self.store.revision().await.map_err(store_error)?;
        self.reached(newest).await?;
        Ok(newest)
    }

    /// Waits until the cache has applied `revision`.
    pub(crate) async fn reached(&self, revision: Revision) -> Result<(), ApiError> {
        if *self.applied.borrow() >= revision {
            return Ok(());
        }
        self.store.request_progress().await.map_err(store_error)?;
        self.applied_up_to(revision).await
    }

    /// As [`Cache::reached`], for a revision that is known to be on its way: the server's own write.
    pub(crate) async fn applied_up_to(&self, revision: Revision) -> Result<(), ApiError> {
        if *self.applied.borrow() >= revision {
            return Ok(());
        }
        let mut applied = self.applied.subscribe();
        match tokio::time::timeout(FRESH_TIMEOUT, applied.wait_for(|seen| *seen >= revision)).await {
            Ok(Ok(_)) => Ok(()),
            _ => Err(ApiError::timeout("the server is catching up with its store; try again", 1)),
        }
    }
}

/// The store may well be as before in a moment.
fn is_passing(error: &croft_store::Error) -> bool {
    matches!(error, croft_store::Error::Unavailable { .. } | croft_store::Error::Compacted { .. })
}

/// What a failing store means to a client.
#[expect(clippy::needless_pass_by_value, reason = "used as a map_err function")]
pub(crate) fn store_error(error: croft_store::Error) -> ApiError {
    use croft_store::Error;
    let text = Chain(&error).to_string();
    match &error {
        // The request is fine and may be sent again, once somebody has seen to the store.
        Error::ReadOnly { .. } | Error::Unavailable { .. } => ApiError::unavailable(text),
        Error::Compacted { .. } => ApiError::expired(text),
        Error::Future { .. } | Error::Lagged => ApiError::timeout(text, 1),
        Error::TooLarge { reason } => ApiError::too_large(reason),
        Error::Invalid { .. } => ApiError::bad_request(text),
        // What is damaged will not be read the next time either.
        Error::Corrupt { .. } | Error::NoSuchLease(_) | Error::Locked { .. } | Error::Engine { .. } => {
            ApiError::internal(text)
        }
    }
}

fn parts(key: &str) -> Option<(&str, &str)> {
    let parts = split_key(key);
    if parts.is_none() {
        tracing::warn!(key, "a key that is not an object's was ignored");
    }
    parts
}

/// `registry/core/pods/ns/name` → (`core/pods`, `ns/name`).
pub(crate) fn split_key(key: &str) -> Option<(&str, &str)> {
    let rest = key.strip_prefix(ROOT)?;
    let group_end = rest.find('/')?;
    let plural_end = group_end + 1 + rest[group_end + 1..].find('/')?;
    Some((&rest[..plural_end], &rest[plural_end + 1..])).filter(|(_, id)| !id.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_transaction_is_seen_whole() {
        const PODS: usize = 1_000;
        let dir = tempfile::tempdir().unwrap();
        let store = croft_store::Embedded::open(dir.path(), croft_store::EmbeddedOptions::default()).unwrap();
        let cache = Cache::load(store).await.unwrap();
        let writer = std::thread::spawn({
            let cache = Arc::clone(&cache);
            move || {
                let value = Some(bytes::Bytes::from_static(b"{}"));
                for revision in (1..=100).map(Revision) {
                    let event = |n| Event { key: format!("registry/core/pods/ns/{n}"), revision, value: value.clone() };
                    let events: Vec<Event> = (0..PODS).map(event).collect();
                    cache.apply(&events);
                }
            }
        });
        let pods = cache.collection("core/pods");
        while !writer.is_finished() {
            let mut seen = Vec::new();
            let at = pods.scan("", None, None, |object| {
                seen.push(object.revision);
                true
            });
            let at = at.unwrap();
            assert!(at == Revision::ZERO || seen == [at; PODS], "half of {at} is seen");
        }
        writer.join().unwrap();
    }

    #[test]
    fn keys_split_into_collection_and_id() {
        assert_eq!(split_key("registry/core/pods/ns/a"), Some(("core/pods", "ns/a")));
        assert_eq!(split_key("registry/core/nodes/n"), Some(("core/nodes", "n")));
        assert_eq!(split_key("registry/core/nodes/"), None);
        assert_eq!(split_key("other/core/nodes/n"), None);
    }

    #[test]
    fn each_fault_of_the_store_has_its_answer() {
        use croft_store::{Error, LeaseId};
        let reason = || "why".to_owned();
        let (requested, path) = (Revision(1), std::path::PathBuf::from("/x"));
        let cases = [
            (Error::ReadOnly { reason: reason() }, 503, "the store is read-only: why"),
            (Error::Unavailable { reason: reason() }, 503, "the store cannot be reached: why"),
            (Error::Corrupt { path: path.clone(), reason: reason() }, 500, "is damaged: why"),
            (Error::Compacted { requested, oldest: Revision(2) }, 410, "has been compacted"),
            (Error::Future { requested, newest: Revision(0) }, 504, "in the future"),
            (Error::Lagged, 504, "too far behind"),
            (Error::TooLarge { reason: reason() }, 413, "Request entity too large: why"),
            (Error::Invalid { reason: reason() }, 400, "why"),
            (Error::NoSuchLease(LeaseId(7)), 500, "does not exist"),
            (Error::Locked { path, pid: reason() }, 500, "in use by process why"),
            (Error::Engine { context: "cannot commit".to_owned(), source: "why".into() }, 500, "cannot commit: why"),
        ];
        for (error, code, text) in cases {
            let shown = error.to_string();
            let answer = store_error(error);
            assert_eq!(answer.code(), code, "{shown}");
            assert!(answer.message().contains(text), "{shown}: {}", answer.message());
        }
    }
}
