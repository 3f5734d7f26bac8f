//! The objects of one kind, kept at hand by a watch.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::sync::Arc;

use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt};
use kube::{Client, Resource};
use parking_lot::RwLock;
use serde::de::DeserializeOwned;
use tokio::sync::watch;

use crate::watch::{Event, Source, Whole, watch_whole};

/// A namespace (empty for what has none) and a name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    pub namespace: String,
    pub name: String,
}

impl Key {
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }

    pub fn of(object: &impl Resource) -> Self {
        let meta = object.meta();
        Self::new(meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default())
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() { f.write_str(&self.name) } else { write!(f, "{}/{}", self.namespace, self.name) }
    }
}

/// An object came (no `old`), changed, or went (no `new`). The cache says so already.
#[derive(Clone, Debug)]
pub struct Change<K> {
    pub key: Key,
    pub old: Option<Arc<K>>,
    pub new: Option<Arc<K>>,
}

/// Shared: clones show the same objects. It is filled for as long as somebody polls [`Cache::follow`].
#[derive(Debug)]
pub struct Cache<K> {
    objects: Arc<RwLock<BTreeMap<Key, Arc<K>>>>,
    is_synced: watch::Sender<bool>,
}

impl<K> Clone for Cache<K> {
    fn clone(&self) -> Self {
        Self { objects: Arc::clone(&self.objects), is_synced: self.is_synced.clone() }
    }
}

impl<K> Default for Cache<K> {
    fn default() -> Self {
        Self { objects: Arc::default(), is_synced: watch::Sender::new(false) }
    }
}

impl<K> Cache<K> {
    pub fn get(&self, key: &Key) -> Option<Arc<K>> {
        self.objects.read().get(key).cloned()
    }

    /// In the order of their keys.
    pub fn list(&self) -> Vec<Arc<K>> {
        self.objects.read().values().cloned().collect()
    }

    /// Waits until everything that was there at the start is in.
    pub async fn synced(&self) {
        // The sender is ours: it cannot be gone.
        let _ = self.is_synced.subscribe().wait_for(|is_synced| *is_synced).await;
    }

    /// For a reader that wrote an object and must see its own write before the watch says so. An older one than what is
    /// there is left out by the watch's next word, not by this.
    pub fn insert(&self, key: Key, object: K) {
        self.objects.write().insert(key, Arc::new(object));
    }
}

impl<K> Cache<K>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Send + Sync + 'static,
{
    /// Keeps the cache up to date while it is polled, and tells of every change. It has no end.
    pub fn follow(&self, client: Client, source: Source) -> impl Stream<Item = Change<K>> + Send + use<K> {
        let follower = Follower {
            cache: self.clone(),
            events: watch_whole(client, source).boxed(),
            unseen: BTreeSet::new(),
            changes: VecDeque::new(),
        };
        stream::unfold(follower, |mut follower| async move {
            let change = follower.next().await?;
            Some((change, follower))
        })
    }
}

struct Follower<K> {
    cache: Cache<K>,
    events: BoxStream<'static, Event<Whole<K>>>,
    /// What was known before the watch started over, and has not been seen since.
    unseen: BTreeSet<Key>,
    changes: VecDeque<Change<K>>,
}

impl<K: Resource> Follower<K> {
    async fn next(&mut self) -> Option<Change<K>> {
        loop {
            if let Some(change) = self.changes.pop_front() {
                return Some(change);
            }
            match self.events.next().await? {
                Event::Restarted => self.unseen = self.cache.objects.read().keys().cloned().collect(),
                Event::Applied(Whole(object)) => {
                    let (key, new) = (Key::of(&object), Arc::new(object));
                    self.unseen.remove(&key);
                    let old = self.cache.objects.write().insert(key.clone(), Arc::clone(&new));
                    return Some(Change { key, old, new: Some(new) });
                }
                Event::Deleted(Whole(object)) => self.remove(Key::of(&object)),
                Event::Synced => {
                    for key in std::mem::take(&mut self.unseen) {
                        self.remove(key);
                    }
                    self.cache.is_synced.send_replace(true);
                }
            }
        }
    }

    fn remove(&mut self, key: Key) {
        if let Some(old) = self.cache.objects.write().remove(&key) {
            self.changes.push_back(Change { key, old: Some(old), new: None });
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::stream;
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::core::ObjectMeta;

    use super::*;

    fn object(name: &str) -> Whole<ConfigMap> {
        let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
        Whole(ConfigMap { metadata, ..ConfigMap::default() })
    }

    #[tokio::test]
    async fn what_went_while_nobody_watched_is_told_as_gone() {
        let cache = Cache::default();
        let events = vec![
            Event::Restarted,
            Event::Applied(object("a")),
            Event::Applied(object("b")),
            Event::Synced,
            Event::Restarted,
            Event::Applied(object("b")),
            Event::Synced,
        ];
        let mut follower = Follower {
            cache: cache.clone(),
            events: stream::iter(events).boxed(),
            unseen: BTreeSet::new(),
            changes: VecDeque::new(),
        };
        let mut told = Vec::new();
        while let Some(change) = follower.next().await {
            told.push((change.key.to_string(), change.old.is_some(), change.new.is_some()));
        }
        let expected = [("a", false, true), ("b", false, true), ("b", true, true), ("a", true, false)];
        assert_eq!(told, expected.map(|(name, old, new)| (name.to_owned(), old, new)));
        cache.synced().await;
        assert_eq!(cache.list().len(), 1);
        assert!(cache.get(&Key::new("", "b")).is_some());
    }
}
