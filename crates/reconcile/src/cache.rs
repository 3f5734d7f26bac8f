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

/// Shared: clones show the same objects. It is filled for as long as somebody polls [`Cache::follow`]. What it shows of
/// an object is everything but `managedFields`.
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
    ///
    /// For an object that is there already, [`Cache::wrote`] is safer.
    pub fn insert(&self, key: Key, object: K) {
        self.objects.write().insert(key, Arc::new(object));
    }
}

impl<K: Resource> Cache<K> {
    /// Shows what this process wrote before the watch says so. It only replaces an older state of the same object: one
    /// that is gone does not come back, and what the watch brought in the meantime stays.
    pub fn wrote(&self, mut object: K) {
        slim(&mut object);
        let mut objects = self.objects.write();
        let Some(there) = objects.get_mut(&Key::of(&object)) else { return };
        if there.meta().uid == object.meta().uid && is_newer(&object, &**there) {
            *there = Arc::new(object);
        }
    }
}

/// Who wrote which field takes more room than the fields, and no controller asks.
fn slim(object: &mut impl Resource) {
    object.meta_mut().managed_fields = None;
}

/// Versions are numbers here; whatever else they may be is not compared.
fn is_newer(one: &impl Resource, other: &impl Resource) -> bool {
    let number = |version: Option<&String>| version.and_then(|text| text.parse::<u64>().ok());
    let one = number(one.meta().resource_version.as_ref());
    one.zip(number(other.meta().resource_version.as_ref())).is_some_and(|(one, other)| one > other)
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
                Event::Applied(Whole(mut object)) => {
                    slim(&mut object);
                    let (key, new) = (Key::of(&object), Arc::new(object));
                    self.unseen.remove(&key);
                    return Some(self.apply(key, new));
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

    /// An own write ([`Cache::wrote`]) may be ahead of the watch; the watch will come to it.
    fn apply(&self, key: Key, new: Arc<K>) -> Change<K> {
        let mut objects = self.cache.objects.write();
        let ahead = objects.get(&key).filter(|there| there.meta().uid == new.meta().uid && is_newer(&***there, &*new));
        let new = ahead.cloned().unwrap_or(new);
        let old = objects.insert(key.clone(), Arc::clone(&new));
        Change { key, old, new: Some(new) }
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

    fn version(uid: &str, version: &str) -> ConfigMap {
        let metadata = ObjectMeta {
            name: Some("a".to_owned()),
            uid: Some(uid.to_owned()),
            resource_version: Some(version.to_owned()),
            ..ObjectMeta::default()
        };
        ConfigMap { metadata, ..ConfigMap::default() }
    }

    #[tokio::test]
    async fn an_own_write_is_ahead_of_the_watch_but_brings_nothing_back() {
        let cache = Cache::default();
        let (send, events) = futures::channel::mpsc::unbounded();
        let mut follower = Follower {
            cache: cache.clone(),
            events: events.boxed(),
            unseen: BTreeSet::new(),
            changes: VecDeque::new(),
        };
        let seen = |cache: &Cache<ConfigMap>| {
            cache.get(&Key::new("", "a")).and_then(|there| there.metadata.resource_version.clone())
        };
        cache.wrote(version("u", "5"));
        assert_eq!(seen(&cache), None, "it may be gone already");
        send.unbounded_send(Event::Applied(Whole(version("u", "6")))).unwrap();
        follower.next().await.unwrap();
        cache.wrote(version("u", "5"));
        assert_eq!(seen(&cache).as_deref(), Some("6"));
        cache.wrote(version("u", "8"));
        send.unbounded_send(Event::Applied(Whole(version("u", "7")))).unwrap();
        let change = follower.next().await.unwrap();
        assert_eq!(change.new.unwrap().metadata.resource_version.as_deref(), Some("8"));
        assert_eq!(seen(&cache).as_deref(), Some("8"));
        send.unbounded_send(Event::Applied(Whole(version("other", "9")))).unwrap();
        follower.next().await.unwrap();
        cache.wrote(version("u", "10"));
        assert_eq!(seen(&cache).as_deref(), Some("9"), "another object of the same name");
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
