//! The objects of one kind, and what recently happened to them.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use croft_meta::Revision;
use parking_lot::RwLock;
use tokio::sync::watch;

use super::Object;

/// The ring keeps at least this many changes, if they fit into that ...
const HISTORY_MIN: usize = 128;
const HISTORY_MIN_BYTES: usize = 32 << 20;
/// ... at most this many ...
const HISTORY_MAX: usize = 8_192;
/// ... and in between as many as fit into this.
const HISTORY_BYTES: usize = 8 << 20;

/// One change of one object.
#[derive(Debug)]
pub(crate) struct Change {
    pub(crate) revision: Revision,
    /// The new state; for a deletion the last state, at the deletion's revision.
    pub(crate) object: Arc<Object>,
    /// The state before, if there was one: a selector may have matched it.
    pub(crate) previous: Option<Arc<Object>>,
    pub(crate) is_deletion: bool,
}

/// An object that is stored and cannot be read.
#[derive(Clone, Debug)]
pub(crate) struct Unreadable {
    pub(crate) revision: Revision,
    pub(crate) why: Box<str>,
}

#[derive(Debug)]
pub(crate) struct Collection {
    state: RwLock<State>,
    /// The sequence number of the next change; watchers sleep on it.
    changed: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct State {
    objects: BTreeMap<Box<str>, Arc<Object>>,
    per_namespace: HashMap<Box<str>, usize>,
    /// Nearly always empty. What is in here is in no list, and its name is taken all the same.
    unreadable: BTreeMap<Box<str>, Unreadable>,
    history: VecDeque<Arc<Change>>,
    history_bytes: usize,
    /// The sequence number of `history[0]`.
    first_sequence: u64,
    /// Changes up to here are no longer in the history.
    forgotten: Revision,
    /// The newest change.
    changed_at: Revision,
    /// How often something changed. Unlike the revision, never the same for two states.
    changes: u64,
}

/// What a transaction did to one object.
#[derive(Debug)]
pub(super) struct Stored<'a> {
    pub(super) id: &'a str,
    pub(super) revision: Revision,
    /// `None` if it was deleted.
    pub(super) value: Option<&'a [u8]>,
}

/// The collection has changed since the moment that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Newer;

/// A watcher's place in the history.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor(u64);

/// The history no longer reaches back to where the watcher is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CursorError {
    /// What the oldest change still known follows.
    pub(crate) oldest: Revision,
}

impl Collection {
    pub(super) fn new(complete_from: Revision) -> Self {
        let state = State { forgotten: complete_from, changed_at: complete_from, ..State::default() };
        Self { state: RwLock::new(state), changed: watch::Sender::new(0) }
    }

    /// Changes from here on are remembered. What was deleted before, and when, nobody knows.
    pub(super) fn start_history(&self, from: Revision) {
        let mut state = self.state.write();
        state.forgotten = from;
        state.changed_at = state.changed_at.max(from);
    }

    /// The state is what it is at `at`, without what is not `kept`, and nobody knows how it came to be: all watchers have
    /// lost their place.
    pub(super) fn start_over(&self, at: Revision, kept: impl Fn(&str) -> bool) {
        let mut state = self.state.write();
        let gone: Vec<Box<str>> = state.objects.keys().filter(|id| !kept(id)).cloned().collect();
        for id in gone {
            state.delete(&id, at);
        }
        state.unreadable.retain(|id, _| kept(id));
        // Past the place of a watcher that has seen everything.
        state.first_sequence = state.next_sequence() + 1;
        state.history.clear();
        state.history_bytes = 0;
        (state.forgotten, state.changed_at) = (at, at);
        state.changes += 1;
        let next = state.next_sequence();
        drop(state);
        self.changed.send_replace(next);
    }

    /// Takes over what one transaction did. All of it is seen at once: whoever listed only a part of it at its revision would
    /// never be told of the rest.
    pub(super) fn apply<'a>(&self, transaction: impl IntoIterator<Item = Stored<'a>>, loading: bool) {
        let mut state = self.state.write();
        let before = state.next_sequence();
        for stored in transaction {
            state.apply(&stored, loading);
        }
        state.changes += 1;
        let next = state.next_sequence();
        drop(state);
        if next != before {
            self.changed.send_replace(next);
        }
    }

    pub(crate) fn get(&self, id: &str) -> Option<Arc<Object>> {
        self.state.read().objects.get(id).cloned()
    }

    pub(crate) fn unreadable(&self, id: &str) -> Option<Unreadable> {
        self.state.read().unreadable.get(id).cloned()
    }

    /// What cannot be read of a namespace, or of all.
    pub(crate) fn all_unreadable(&self, namespace: &str) -> Vec<(Box<str>, Unreadable)> {
        let state = self.state.read();
        let is_in = |id: &str| namespace.is_empty() || id.split_once('/').is_some_and(|(of, _)| of == namespace);
        let found = state.unreadable.iter().filter(|(id, _)| is_in(id));
        found.map(|(id, lost)| (id.clone(), lost.clone())).collect()
    }

    /// When anything here last changed.
    pub(crate) fn changed_at(&self) -> Revision {
        self.state.read().changed_at
    }

    /// How often anything here has changed.
    pub(super) fn changes(&self) -> u64 {
        self.state.read().changes
    }

    /// The object, if nothing here has changed since `of`.
    pub(crate) fn get_of(&self, id: &str, of: Option<Revision>) -> Result<Option<Arc<Object>>, Newer> {
        let state = self.state.read();
        state.is_of(of)?;
        Ok(state.objects.get(id).cloned())
    }

    /// Objects of a namespace (all, if it is empty) after `after`, in key order, as long as `take` agrees; if nothing here has
    /// changed since `of`, should that matter. Returns when the collection, as it was seen, had last changed.
    pub(crate) fn scan(
        &self,
        namespace: &str,
        after: Option<&str>,
        of: Option<Revision>,
        mut take: impl FnMut(&Arc<Object>) -> bool,
    ) -> Result<Revision, Newer> {
        let state = self.state.read();
        state.is_of(of)?;
        for object in state.range(namespace, after) {
            if !take(object) {
                break;
            }
        }
        Ok(state.changed_at)
    }

    /// All objects of a namespace, or of all.
    pub(crate) fn list(&self, namespace: &str) -> Vec<Arc<Object>> {
        self.state.read().range(namespace, None).cloned().collect()
    }

    pub(crate) fn count(&self, namespace: &str) -> usize {
        let state = self.state.read();
        if namespace.is_empty() {
            state.objects.len()
        } else {
            state.per_namespace.get(namespace).copied().unwrap_or_default()
        }
    }

    /// Lets `renew` give objects that were written before `before` another form. Their revision stays: to clients they are
    /// the same object. Readers are not held up while `renew` works.
    pub(crate) fn renew(&self, before: Revision, renew: impl Fn(&Object) -> Option<Object>) {
        let old: Vec<Arc<Object>> =
            self.state.read().objects.values().filter(|o| o.revision < before).cloned().collect();
        for object in old {
            let Some(renewed) = renew(&object) else { continue };
            let mut state = self.state.write();
            if let Some(slot) = state.objects.get_mut(object.id()).filter(|slot| slot.revision == object.revision) {
                *slot = Arc::new(renewed);
            }
        }
    }

    /// A cursor at the changes after `revision`.
    pub(crate) fn cursor_after(&self, revision: Revision) -> Result<Cursor, CursorError> {
        let state = self.state.read();
        if revision < state.forgotten {
            return Err(CursorError { oldest: state.forgotten });
        }
        let skip = state.history.partition_point(|change| change.revision <= revision);
        Ok(Cursor(state.first_sequence + skip as u64))
    }

    /// The state of a namespace, and a cursor at what follows it: taken at one instant.
    pub(crate) fn snapshot(&self, namespace: &str) -> (Vec<Arc<Object>>, Cursor) {
        let state = self.state.read();
        (state.range(namespace, None).cloned().collect(), Cursor(state.next_sequence()))
    }

    /// Appends what happened since the cursor, and moves it; about `limit_bytes` of it at the most, so that a watcher that
    /// is behind holds no more than it can send. Says whether that was all.
    pub(crate) fn read(
        &self,
        cursor: &mut Cursor,
        limit_bytes: usize,
        into: &mut Vec<Arc<Change>>,
    ) -> Result<bool, CursorError> {
        let state = self.state.read();
        let Some(start) = cursor.0.checked_sub(state.first_sequence) else {
            return Err(CursorError { oldest: state.forgotten });
        };
        let start = usize::try_from(start).unwrap_or(usize::MAX);
        let mut bytes = 0;
        for change in state.history.iter().skip(start) {
            if bytes >= limit_bytes {
                return Ok(false);
            }
            bytes += change.object.size();
            into.push(Arc::clone(change));
            cursor.0 += 1;
        }
        Ok(true)
    }

    /// Wakes when the collection changes.
    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }
}

impl State {
    fn next_sequence(&self) -> u64 {
        self.first_sequence + self.history.len() as u64
    }

    fn is_of(&self, of: Option<Revision>) -> Result<(), Newer> {
        if of.is_some_and(|of| self.changed_at > of) { Err(Newer) } else { Ok(()) }
    }

    fn apply(&mut self, stored: &Stored<'_>, loading: bool) {
        let Stored { id, revision, value } = *stored;
        self.unreadable.remove(id);
        if let Some(why) = value.and_then(croft_store::sealed::unreadable) {
            self.lose(id, revision, why);
            return;
        }
        let change = match value {
            Some(stored) => Some(self.put(id, Arc::new(Object::new(id, stored, revision)))),
            None => self.delete(id, revision),
        };
        let Some(change) = change else { return };
        self.changed_at = self.changed_at.max(revision);
        if !loading {
            self.remember(change);
        }
    }

    fn range<'a>(&'a self, namespace: &'a str, after: Option<&str>) -> impl Iterator<Item = &'a Arc<Object>> + 'a {
        let prefix = if namespace.is_empty() { String::new() } else { format!("{namespace}/") };
        let start = match after {
            Some(after) if after >= prefix.as_str() => Bound::Excluded(Box::from(after)),
            _ => Bound::Included(Box::from(prefix.as_str())),
        };
        self.objects
            .range::<Box<str>, _>((start, Bound::Unbounded))
            .take_while(move |(id, _)| id.starts_with(&prefix))
            .map(|(_, object)| object)
    }

    fn put(&mut self, id: &str, object: Arc<Object>) -> Arc<Change> {
        let revision = object.revision;
        let previous = if let Some(slot) = self.objects.get_mut(id) {
            Some(std::mem::replace(slot, Arc::clone(&object)))
        } else {
            self.objects.insert(id.into(), Arc::clone(&object));
            if let Some((namespace, _)) = id.split_once('/') {
                match self.per_namespace.get_mut(namespace) {
                    Some(count) => *count += 1,
                    None => drop(self.per_namespace.insert(namespace.into(), 1)),
                }
            }
            None
        };
        Arc::new(Change { revision, object, previous, is_deletion: false })
    }

    /// `None` if there was nothing to delete.
    fn delete(&mut self, id: &str, revision: Revision) -> Option<Arc<Change>> {
        let previous = self.objects.remove(id)?;
        if let Some((namespace, _)) = id.split_once('/')
            && let Some(count) = self.per_namespace.get_mut(namespace)
        {
            *count -= 1;
            if *count == 0 {
                self.per_namespace.remove(namespace);
            }
        }
        let object = Arc::new(previous.deleted(revision));
        Some(Arc::new(Change { revision, object, previous: Some(previous), is_deletion: true }))
    }

    /// No watcher is told: it was not deleted.
    fn lose(&mut self, id: &str, revision: Revision, why: &str) {
        self.delete(id, revision);
        self.unreadable.insert(id.into(), Unreadable { revision, why: why.into() });
        self.changed_at = self.changed_at.max(revision);
    }

    fn history_is_too_long(&self) -> bool {
        match self.history.len() {
            0 | 1 => false,
            2..=HISTORY_MIN => self.history_bytes > HISTORY_MIN_BYTES,
            count => count > HISTORY_MAX || self.history_bytes > HISTORY_BYTES,
        }
    }

    fn remember(&mut self, change: Arc<Change>) {
        self.history_bytes += change.object.size();
        self.history.push_back(change);
        while self.history_is_too_long() {
            let Some(oldest) = self.history.pop_front() else { break };
            self.history_bytes -= oldest.object.size();
            self.forgotten = oldest.revision;
            self.first_sequence += 1;
        }
    }
}

#[cfg(test)]
mod tests;
