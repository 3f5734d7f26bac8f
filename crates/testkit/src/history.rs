//! What several clients did and were told, and whether a store that keeps its promises can have told them so.
//!
//! Held against what really happened, in the store's own words ([`History::truth`]):
//!
//! - every acknowledged write is there, at the revision that was acknowledged;
//! - a write without an answer happened once or not at all, and nothing happened that nobody asked for;
//! - revisions grow in the order in which things were acknowledged;
//! - every list is all of one moment, and no older than what was acknowledged before it was asked for;
//! - every watch saw every change after its start, once and in order;
//! - for each key there is an order of all operations that explains every answer ([`linearizability`]).

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::linearizability::object::{Object, Op, Outcome};
use crate::linearizability::{self, Operation, Verdict};

#[cfg(test)]
mod tests;

/// For each key. A history that is in order takes little more than one step for each operation.
const STEPS: u64 = 5_000_000;

/// A clock that all clients of a history share: no two moments are the same.
#[derive(Debug, Default)]
pub struct Clock(AtomicU64);

impl Clock {
    pub fn tick(&self) -> u64 {
        self.0.fetch_add(1, Ordering::SeqCst)
    }
}

/// One change of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    pub key: String,
    /// `None` for a deletion.
    pub value: Option<u64>,
    pub revision: u64,
}

/// What a list showed, of all keys that start with `prefix`.
#[derive(Debug, Clone)]
pub struct Listed {
    pub call: u64,
    pub end: u64,
    pub prefix: String,
    pub revision: u64,
    /// Value and revision by key.
    pub items: BTreeMap<String, (u64, u64)>,
}

/// What a watch showed that asked for everything after `from`.
#[derive(Debug, Clone, Default)]
pub struct Watched {
    pub name: String,
    pub from: u64,
    pub changes: Vec<Change>,
}

#[derive(Debug, Default)]
pub struct History {
    /// By key.
    pub operations: BTreeMap<String, Vec<Operation<Op>>>,
    pub lists: Vec<Listed>,
    pub watches: Vec<Watched>,
    /// Every change since before the first operation, from the store itself.
    pub truth: Vec<Change>,
}

/// What was looked at, for whoever wants to know whether it was much.
#[derive(Debug, Default, Clone, Copy)]
pub struct Figures {
    pub keys: usize,
    pub operations: usize,
    pub acknowledged: usize,
    pub unanswered: usize,
    /// Of those, the ones that did happen.
    pub unanswered_done: usize,
    pub lists: usize,
    pub watched: usize,
}

impl History {
    /// Everything that is wrong with it, in words.
    pub fn check(&self) -> Result<Figures, Vec<String>> {
        let mut wrong = Vec::new();
        let seen = self.values(&mut wrong);
        self.check_writes(&seen, &mut wrong);
        self.check_order(&mut wrong);
        self.check_lists(&mut wrong);
        self.check_watches(&mut wrong);
        self.check_keys(&seen, &mut wrong);
        if wrong.is_empty() { Ok(self.figures(&seen)) } else { Err(wrong) }
    }

    fn all(&self) -> impl Iterator<Item = (&String, &Operation<Op>)> {
        self.operations.iter().flat_map(|(key, all)| all.iter().map(move |operation| (key, operation)))
    }

    /// Each value that was ever stored, with its key and revision.
    fn values(&self, wrong: &mut Vec<String>) -> HashMap<u64, &Change> {
        let mut seen = HashMap::new();
        for change in &self.truth {
            let Some(value) = change.value else { continue };
            if let Some(before) = seen.insert(value, change) {
                wrong.push(format!("done twice: {before:?} and {change:?}"));
            }
        }
        for pair in self.truth.windows(2) {
            if pair[1].revision <= pair[0].revision {
                wrong.push(format!("the store's own history goes back: {pair:?}"));
            }
        }
        seen
    }

    fn check_writes(&self, seen: &HashMap<u64, &Change>, wrong: &mut Vec<String>) {
        let deletions: HashMap<u64, &Change> =
            self.truth.iter().filter(|change| change.value.is_none()).map(|change| (change.revision, change)).collect();
        let mut asked = HashMap::new();
        for (key, operation) in self.all() {
            let Op { action, outcome } = operation.op;
            let found = match (action.value(), outcome) {
                (Some(value), _) => {
                    asked.insert(value, (key, operation));
                    seen.get(&value)
                }
                (None, Outcome::Done { revision: Some(revision) }) => deletions.get(&revision),
                (None, _) => continue,
            };
            let is_right = match outcome {
                Outcome::Done { revision } => {
                    found.is_some_and(|c| c.key == *key && revision.is_none_or(|revision| revision == c.revision))
                }
                Outcome::Unknown { .. } => found.is_none_or(|change| change.key == *key),
                _ => found.is_none(),
            };
            if !is_right {
                wrong.push(format!("{key}: {operation:?}, but the store has {found:?}"));
            }
        }
        let unasked = seen.iter().filter(|(value, _)| !asked.contains_key(value));
        wrong.extend(unasked.map(|(_, change)| format!("nobody asked for {change:?}")));
    }

    /// What is called after something else was acknowledged has a higher revision; a list at least the same.
    fn check_order(&self, wrong: &mut Vec<String>) {
        let mut spans = Vec::new();
        for (key, operation) in self.all() {
            if let (Outcome::Done { revision: Some(revision) }, Some(end)) = (operation.op.outcome, operation.end) {
                spans.push((operation.call, end, revision, true, key.as_str()));
            }
        }
        spans.extend(self.lists.iter().map(|list| (list.call, list.end, list.revision, false, "a list")));
        let mut ends: Vec<_> = spans.iter().map(|span| (span.1, span.2, span.4)).collect();
        ends.sort_unstable();
        spans.sort_unstable();
        let mut over = ends.into_iter().peekable();
        let mut highest = (0, "nothing");
        for (call, _, revision, is_write, key) in spans {
            while let Some((_, revision, key)) = over.next_if(|(end, ..)| *end < call) {
                highest = highest.max((revision, key));
            }
            if revision < highest.0 || (is_write && revision == highest.0) {
                wrong.push(format!("{key} at {revision}, called after {} was told {}", highest.1, highest.0));
            }
        }
    }

    fn check_lists(&self, wrong: &mut Vec<String>) {
        let mut lists: Vec<&Listed> = self.lists.iter().collect();
        lists.sort_by_key(|list| list.revision);
        let mut state: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
        let mut changes = self.truth.iter().peekable();
        for list in lists {
            while let Some(change) = changes.next_if(|change| change.revision <= list.revision) {
                if let Some(value) = change.value {
                    state.insert(&change.key, (value, change.revision));
                } else {
                    state.remove(change.key.as_str());
                }
            }
            let there = state.range(list.prefix.as_str()..).take_while(|(key, _)| key.starts_with(&list.prefix));
            let there: BTreeMap<&str, (u64, u64)> = there.map(|(key, at)| (*key, *at)).collect();
            let shown: BTreeMap<&str, (u64, u64)> = list.items.iter().map(|(key, at)| (key.as_str(), *at)).collect();
            if there != shown {
                let (prefix, revision) = (&list.prefix, list.revision);
                wrong.push(format!("a list of {prefix}* at {revision} showed {shown:?}, there was {there:?}"));
            }
        }
    }

    fn check_watches(&self, wrong: &mut Vec<String>) {
        for watch in &self.watches {
            let expected = self.truth.iter().filter(|change| change.revision > watch.from);
            let mut shown = watch.changes.iter();
            let differs = expected.map(|change| (change, shown.next())).find(|(change, shown)| Some(*change) != *shown);
            if let Some((change, shown)) = differs {
                wrong.push(format!("{} from {}: {shown:?} instead of {change:?}", watch.name, watch.from));
            } else if let Some(more) = shown.next() {
                wrong.push(format!("{} from {}: {more:?}, which did not happen", watch.name, watch.from));
            }
        }
    }

    fn check_keys(&self, seen: &HashMap<u64, &Change>, wrong: &mut Vec<String>) {
        for (key, operations) in &self.operations {
            let history: Vec<Operation<Op>> = operations.iter().map(|operation| resolve(operation, seen)).collect();
            match linearizability::check(&Object, &history, STEPS) {
                Verdict::Linearizable(_) => {}
                Verdict::Undecided { steps } => {
                    wrong.push(format!("{key}: {steps} steps do not tell whether its history is linearizable"));
                }
                Verdict::Impossible { longest, stuck } => {
                    let near: Vec<&Operation<Op>> = longest.iter().rev().take(8).rev().map(|n| &history[*n]).collect();
                    wrong.push(format!("{key}: not linearizable at {:?}, after {near:?}", history[stuck]));
                }
            }
        }
    }

    fn figures(&self, seen: &HashMap<u64, &Change>) -> Figures {
        let mut figures = Figures { keys: self.operations.len(), lists: self.lists.len(), ..Figures::default() };
        for (_, operation) in self.all() {
            figures.operations += 1;
            match operation.op.outcome {
                Outcome::Done { .. } => figures.acknowledged += 1,
                Outcome::Unknown { .. } => {
                    figures.unanswered += 1;
                    let value = operation.op.action.value();
                    figures.unanswered_done += usize::from(value.is_some_and(|value| seen.contains_key(&value)));
                }
                _ => {}
            }
        }
        figures.watched = self.watches.iter().map(|watch| watch.changes.len()).sum();
        figures
    }
}

/// Tells a write without an answer where it came to be, if it did: that leaves less to search.
fn resolve(operation: &Operation<Op>, seen: &HashMap<u64, &Change>) -> Operation<Op> {
    let mut operation = operation.clone();
    if let (Outcome::Unknown { revision }, Some(value)) = (&mut operation.op.outcome, operation.op.action.value()) {
        *revision = seen.get(&value).map(|change| change.revision);
    }
    operation
}
