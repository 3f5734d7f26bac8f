//! Could what the clients saw have happened one operation at a time, each at a moment between its call and its answer?
//!
//! The search of Wing and Gong as Lowe improved it, which Porcupine uses too: take any operation that was called before the
//! first untaken one had ended, see whether the model allows its answer, go on from there, and come back when nothing fits.
//! What was tried, as the set of operations taken and the state that they led to, is remembered and not tried again.
//!
//! An operation without an answer has no end: it may take effect at any later moment, or never.
//!
//! The search can take exponential time. It is given a number of steps, and says so when they did not suffice.

use std::collections::HashSet;
use std::hash::Hash;

pub mod object;

#[cfg(test)]
mod tests;

/// What a thing does when it is used by one client at a time.
pub trait Model {
    type State: Clone + Eq + Hash;
    type Op;

    fn start(&self) -> Self::State;

    /// The state after `op`; `None` if `op` would not have been answered so. An operation whose answer is not known does what
    /// it would have done.
    fn step(&self, state: &Self::State, op: &Self::Op) -> Option<Self::State>;
}

/// Something that a client did. Times are of one clock that all clients share.
#[derive(Debug, Clone)]
pub struct Operation<T> {
    pub call: u64,
    /// `None` if the answer is not known.
    pub end: Option<u64>,
    pub op: T,
}

/// What a search came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// In this order, for example, by their numbers in the history.
    Linearizable(Vec<usize>),
    /// No order will do. As many as `longest` could be put in order; then `stuck` should have been over and could not be.
    Impossible { longest: Vec<usize>, stuck: usize },
    /// The steps did not suffice to tell.
    Undecided { steps: u64 },
}

/// Looks for an order of `history` that `model` allows, in at most `budget` steps.
pub fn check<M: Model>(model: &M, history: &[Operation<M::Op>], budget: u64) -> Verdict {
    Search::new(model, history).run(budget)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Entry {
    /// Before the first and behind the last.
    Edge,
    Call(usize),
    End(usize),
}

const HEAD: usize = 0;

struct Search<'a, M: Model> {
    model: &'a M,
    history: &'a [Operation<M::Op>],
    /// Calls and ends by time, as a list from which operations that were taken are unlinked.
    entries: Vec<Entry>,
    next: Vec<usize>,
    previous: Vec<usize>,
    /// Where each operation's call and end are in the list.
    places: Vec<(usize, Option<usize>)>,
    taken: Vec<u64>,
    seen: HashSet<(Vec<u64>, M::State)>,
    /// What was taken, with the state before it.
    path: Vec<(usize, M::State)>,
    /// Operations with a known answer that have not been taken.
    left: usize,
    longest: Vec<usize>,
    stuck: usize,
}

impl<'a, M: Model> Search<'a, M> {
    fn new(model: &'a M, history: &'a [Operation<M::Op>]) -> Self {
        let mut timed = Vec::new();
        for (number, operation) in history.iter().enumerate() {
            timed.push((operation.call, 0, Entry::Call(number)));
            timed.extend(operation.end.map(|end| (end, 1, Entry::End(number))));
        }
        // What begins as another ends may have been before it.
        timed.sort_by_key(|(time, kind, _)| (*time, *kind));
        let inner = timed.into_iter().map(|(_, _, entry)| entry);
        let entries: Vec<Entry> = std::iter::once(Entry::Edge).chain(inner).chain([Entry::Edge]).collect();
        let mut places = vec![(HEAD, None); history.len()];
        for (place, entry) in entries.iter().enumerate() {
            match entry {
                Entry::Call(number) => places[*number].0 = place,
                Entry::End(number) => places[*number].1 = Some(place),
                Entry::Edge => {}
            }
        }
        let last = entries.len() - 1;
        Self {
            model,
            history,
            next: (0..entries.len()).map(|place| (place + 1).min(last)).collect(),
            previous: (0..entries.len()).map(|place| place.saturating_sub(1)).collect(),
            entries,
            places,
            taken: vec![0; history.len().div_ceil(64)],
            seen: HashSet::new(),
            path: Vec::new(),
            left: history.iter().filter(|operation| operation.end.is_some()).count(),
            longest: Vec::new(),
            stuck: 0,
        }
    }

    fn run(mut self, budget: u64) -> Verdict {
        let mut state = self.model.start();
        let mut place = self.next[HEAD];
        let mut steps = 0;
        // What has no answer is tried when nothing else fits: it is open for ever, and would be tried at every step.
        let mut wants_unanswered = false;
        while self.left > 0 {
            let Entry::Call(number) = self.entries[place] else {
                if !wants_unanswered {
                    wants_unanswered = true;
                    place = self.next[HEAD];
                    continue;
                }
                // Something is over by now that was not taken.
                self.remember_longest(place);
                let Some((number, before)) = self.path.pop() else {
                    return Verdict::Impossible { longest: self.longest, stuck: self.stuck };
                };
                state = before;
                self.put_back(number);
                wants_unanswered = self.is_unanswered(number);
                place = self.next[self.places[number].0];
                continue;
            };
            if self.is_unanswered(number) != wants_unanswered {
                place = self.next[place];
                continue;
            }
            steps += 1;
            if steps > budget {
                return Verdict::Undecided { steps: budget };
            }
            place = match self.try_next(number, &state) {
                Some(after) => {
                    self.path.push((number, std::mem::replace(&mut state, after)));
                    self.take(number);
                    wants_unanswered = false;
                    self.next[HEAD]
                }
                None => self.next[place],
            };
        }
        Verdict::Linearizable(self.path.into_iter().map(|(number, _)| number).collect())
    }

    fn is_unanswered(&self, number: usize) -> bool {
        self.history[number].end.is_none()
    }

    /// The state after it, if it may come next and that was not tried before.
    fn try_next(&mut self, number: usize, state: &M::State) -> Option<M::State> {
        let operation = &self.history[number];
        let after = self.model.step(state, &operation.op)?;
        // Without an answer, what changes nothing may as well not have happened.
        if self.is_unanswered(number) && after == *state {
            return None;
        }
        let mut taken = self.taken.clone();
        taken[number / 64] |= 1 << (number % 64);
        self.seen.insert((taken, after.clone())).then_some(after)
    }

    fn take(&mut self, number: usize) {
        self.taken[number / 64] |= 1 << (number % 64);
        let (call, end) = self.places[number];
        for place in std::iter::once(call).chain(end) {
            self.next[self.previous[place]] = self.next[place];
            self.previous[self.next[place]] = self.previous[place];
        }
        self.left -= usize::from(end.is_some());
    }

    /// Undoes the last [`Self::take`]: what an unlinked entry still knows of its neighbours is then true again.
    fn put_back(&mut self, number: usize) {
        self.taken[number / 64] &= !(1 << (number % 64));
        let (call, end) = self.places[number];
        for place in end.into_iter().chain([call]) {
            self.next[self.previous[place]] = place;
            self.previous[self.next[place]] = place;
        }
        self.left += usize::from(end.is_some());
    }

    fn remember_longest(&mut self, place: usize) {
        let Entry::End(stuck) = self.entries[place] else { return };
        if self.longest.is_empty() || self.path.len() > self.longest.len() {
            self.longest = self.path.iter().map(|(number, _)| *number).collect();
            self.stuck = stuck;
        }
    }
}
