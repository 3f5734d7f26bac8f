//! What conversion webhooks answered, and what they are being asked right now.
//!
//! Bounded by bytes, in two generations: what was not looked at since the younger one began is forgotten with the older.

use std::collections::HashMap;
use std::sync::Arc;

use croft_meta::{ApiError, Revision};
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::cache::Object;

/// Of one generation.
const GENERATION_BYTES: usize = 16 << 20;

/// An object at a revision in a version, under one state of its definition.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    conversion: u64,
    version: Box<str>,
    id: Box<str>,
    revision: Revision,
}

impl Key {
    pub(super) fn new(conversion: u64, version: &str, object: &Object) -> Self {
        Self { conversion, version: version.into(), id: object.id().into(), revision: object.revision }
    }
}

/// How asking went; nothing while it is under way.
type Told = Option<Result<(), ApiError>>;

#[derive(Debug, Default)]
pub(crate) struct Kept(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    young: HashMap<Key, Arc<Object>>,
    old: HashMap<Key, Arc<Object>>,
    young_bytes: usize,
    under_way: HashMap<Key, watch::Receiver<Told>>,
}

/// What is to be done for a number of objects.
#[derive(Debug)]
pub(super) struct Planned<'a> {
    pub(super) found: Vec<(usize, Arc<Object>)>,
    /// To be converted by whoever planned.
    pub(super) mine: Vec<(usize, Key)>,
    pub(super) turn: Turn<'a>,
    /// Being converted by others.
    pub(super) others: Vec<Other>,
}

/// Nobody else asks about these until this is dropped.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    kept: &'a Kept,
    keys: Vec<Key>,
    told: watch::Sender<Told>,
}

impl Turn<'_> {
    /// All who wait for it hear of it, rather than asking a webhook that fails one after the other.
    pub(super) fn failed(&self, error: &ApiError) {
        self.told.send_replace(Some(Err(error.clone())));
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut state = self.kept.0.lock();
        for key in &self.keys {
            state.under_way.remove(key);
        }
    }
}

#[derive(Debug)]
pub(super) struct Other(watch::Receiver<Told>);

impl Other {
    /// Waits until whoever asks is done. If it gave up, it is as if it had never begun.
    pub(super) async fn settled(mut self) -> Result<(), ApiError> {
        match self.0.wait_for(Option::is_some).await {
            Ok(told) => told.clone().unwrap_or(Ok(())),
            Err(_) => Ok(()),
        }
    }
}

impl Kept {
    pub(super) fn plan(&self, wanted: &[(usize, Key)]) -> Planned<'_> {
        let (told, hears) = watch::channel(None);
        let (mut found, mut mine, mut others) = (Vec::new(), Vec::new(), Vec::new());
        let mut keys = Vec::new();
        let mut state = self.0.lock();
        for (index, key) in wanted {
            if let Some(object) = state.find(key) {
                found.push((*index, object));
            } else if let Some(other) = state.under_way.get(key) {
                // The same object twice in one request is asked about once.
                if !keys.contains(key) {
                    others.push(Other(other.clone()));
                }
            } else {
                state.under_way.insert(key.clone(), hears.clone());
                keys.push(key.clone());
                mine.push((*index, key.clone()));
            }
        }
        drop(state);
        Planned { found, mine, turn: Turn { kept: self, keys, told }, others }
    }

    pub(super) fn keep(&self, key: &Key, object: &Arc<Object>) {
        let mut state = self.0.lock();
        state.insert(key.clone(), Arc::clone(object));
    }
}

impl State {
    fn find(&mut self, key: &Key) -> Option<Arc<Object>> {
        if let Some(object) = self.young.get(key) {
            return Some(Arc::clone(object));
        }
        let object = self.old.remove(key)?;
        self.insert(key.clone(), Arc::clone(&object));
        Some(object)
    }

    fn insert(&mut self, key: Key, object: Arc<Object>) {
        self.young_bytes += object.size() + 256;
        self.young.insert(key, object);
        if self.young_bytes > GENERATION_BYTES {
            self.old = std::mem::take(&mut self.young);
            self.young_bytes = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(id: &str, revision: u64, size: usize) -> Arc<Object> {
        let stored = format!(r#"{{"apiVersion":"a/v1","metadata":{{}},"data":"{}"}}"#, "x".repeat(size));
        Arc::new(Object::new(id, stored.as_bytes(), Revision(revision)))
    }

    #[tokio::test]
    async fn an_object_is_asked_about_once() {
        let kept = Kept::default();
        let first = object("a", 1, 1);
        let wanted = vec![(0, Key::new(0, "v2", &first))];
        let planned = kept.plan(&wanted);
        assert_eq!(planned.mine.len(), 1);
        let other = kept.plan(&wanted);
        assert!(other.mine.is_empty() && other.others.len() == 1);
        kept.keep(&wanted[0].1, &first);
        drop(planned);
        for other in other.others {
            other.settled().await.unwrap();
        }
        assert_eq!(kept.plan(&wanted).found.len(), 1);
        // Another revision, version or definition is another thing.
        for key in [Key::new(0, "v2", &object("a", 2, 1)), Key::new(0, "v3", &first), Key::new(1, "v2", &first)] {
            assert_eq!(kept.plan(&[(0, key)]).mine.len(), 1);
        }
    }

    #[tokio::test]
    async fn a_failure_is_told_to_all_who_wait() {
        let kept = Kept::default();
        let wanted = vec![(0, Key::new(0, "v2", &object("a", 1, 1)))];
        let planned = kept.plan(&wanted);
        let other = kept.plan(&wanted).others.pop().unwrap();
        planned.turn.failed(&ApiError::new(500, "", "no"));
        drop(planned);
        assert_eq!(other.settled().await.unwrap_err().message(), "no");
        // And it may be tried again.
        assert_eq!(kept.plan(&wanted).mine.len(), 1);
    }

    #[test]
    fn what_nobody_looks_at_is_forgotten() {
        let kept = Kept::default();
        let key = |n: u64| Key::new(0, "v2", &object("a", n, 1));
        for n in 0..100 {
            kept.keep(&key(n), &object("a", n, 1 << 20));
            kept.plan(&[(0, key(0))]);
        }
        assert_eq!(kept.plan(&[(0, key(0))]).found.len(), 1);
        assert!(kept.plan(&[(0, key(50))]).found.is_empty());
        let state = kept.0.lock();
        let bytes: usize = state.young.values().chain(state.old.values()).map(|object| object.size()).sum();
        assert!(bytes <= 3 * GENERATION_BYTES, "{bytes}");
    }
}
