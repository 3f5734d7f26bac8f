//! What is worked out from whole collections: made anew by the first who asks after a change, and then shared.

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use croft_meta::Revision;
use parking_lot::Mutex;

use super::{Cache, Collection, Object};

/// A `T` made of `N` collections.
#[derive(Debug)]
pub(crate) struct Derived<T, const N: usize> {
    sources: [Arc<Collection>; N],
    made: ArcSwap<Made<T, N>>,
    /// Held while it is made, so that a change is looked at once however many requests wait for it.
    making: Mutex<()>,
}

#[derive(Debug)]
struct Made<T, const N: usize> {
    value: Arc<T>,
    /// Which states of the collections; `None` if nothing was made yet. Not by revision, which a whole transaction shares.
    of: Option<[u64; N]>,
}

impl<T: Default, const N: usize> Derived<T, N> {
    pub(crate) fn of(cache: &Cache, group: &str, plurals: [&str; N]) -> Self {
        Self {
            sources: plurals.map(|plural| cache.collection(&format!("{group}/{plural}"))),
            made: ArcSwap::from_pointee(Made { value: Arc::default(), of: None }),
            making: Mutex::new(()),
        }
    }

    /// As of now. `make` gets the collections, in the order of their names, and what was made last.
    pub(crate) fn get(&self, make: impl FnOnce([&Collection; N], &T) -> T) -> Arc<T> {
        let current = self.made.load();
        if current.of == Some(self.states()) {
            return Arc::clone(&current.value);
        }
        let _making = self.making.lock();
        // Read before the objects: a change in between is then seen as one, and this is done once more.
        let of = Some(self.states());
        let previous = self.made.load();
        if previous.of == of {
            return Arc::clone(&previous.value);
        }
        let value = Arc::new(make(self.sources.each_ref().map(|collection| &**collection), &previous.value));
        self.made.store(Arc::new(Made { value: Arc::clone(&value), of }));
        value
    }

    fn states(&self) -> [u64; N] {
        self.sources.each_ref().map(|collection| collection.changes())
    }
}

/// What was read from each object of a collection, by its id. Objects that did not change are not read again.
#[derive(Debug)]
pub(crate) struct Parsed<T>(HashMap<Box<str>, (Revision, Arc<T>)>);

impl<T> Default for Parsed<T> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<T> Parsed<T> {
    pub(crate) fn of(objects: &[Arc<Object>], previous: &Self, parse: impl Fn(&Object) -> T) -> Self {
        let entry = |object: &Arc<Object>| {
            let known = previous.0.get(object.id()).filter(|(revision, _)| *revision == object.revision);
            let parsed = known.map_or_else(|| Arc::new(parse(object)), |(_, known)| Arc::clone(known));
            (Box::from(object.id()), (object.revision, parsed))
        };
        Self(objects.iter().map(entry).collect())
    }

    pub(crate) fn get(&self, id: &str) -> Option<&Arc<T>> {
        self.0.get(id).map(|(_, parsed)| parsed)
    }

    /// In the order of their ids.
    pub(crate) fn in_order(&self) -> Vec<&Arc<T>> {
        let mut entries: Vec<_> = self.0.iter().collect();
        entries.sort_unstable_by_key(|(id, _)| *id);
        entries.into_iter().map(|(_, (_, parsed))| parsed).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::collection::Stored;
    use super::*;

    #[test]
    fn half_of_a_transaction_is_not_kept() {
        let source = Arc::new(Collection::new(Revision::ZERO));
        let derived: Derived<Vec<String>, 1> = Derived {
            sources: [Arc::clone(&source)],
            made: ArcSwap::from_pointee(Made { value: Arc::default(), of: None }),
            making: Mutex::new(()),
        };
        let names = || {
            let value = derived.get(|[source], _| source.list("").iter().map(|it| it.id().to_owned()).collect());
            value.join(" ")
        };
        let value = Some(b"{}".as_slice());
        for (id, seen) in [("a", "a"), ("b", "a b")] {
            source.apply([Stored { id, revision: Revision(7), value }], false);
            assert_eq!(names(), seen);
        }
    }
}
