//! An object of the API, as the clients of one key see it.

use super::Model;

/// What a client asked for. Every value that is written is written once in a history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    Create {
        value: u64,
    },
    /// A PUT with or without a `resourceVersion`, or a patch.
    Update {
        value: u64,
        expected: Option<u64>,
    },
    Delete,
    /// Without a `resourceVersion`: the newest there is.
    Get,
}

impl Action {
    /// What it writes, if anything.
    pub fn value(&self) -> Option<u64> {
        match self {
            Self::Create { value } | Self::Update { value, .. } => Some(*value),
            Self::Delete | Self::Get => None,
        }
    }
}

/// What it was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The write is done, at this revision where the answer names it.
    Done {
        revision: Option<u64>,
    },
    Found {
        value: u64,
        revision: u64,
    },
    NotFound,
    AlreadyExists,
    Conflict,
    /// No answer, or one that does not tell. Where the value has been seen since, this is its revision.
    Unknown {
        revision: Option<u64>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Op {
    pub action: Action,
    pub outcome: Outcome,
}

/// The object, or that there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct State {
    pub value: Option<u64>,
    /// When it was last written or deleted.
    revision: u64,
    /// If not, it was at `revision` at the earliest: who wrote was not told.
    is_exact: bool,
}

impl State {
    fn is(&self, revision: u64) -> bool {
        if self.is_exact { revision == self.revision } else { revision >= self.revision }
    }

    /// Later writes have higher revisions.
    fn write(self, value: Option<u64>, revision: Option<u64>) -> Option<Self> {
        match revision {
            Some(revision) if revision > self.revision => Some(Self { value, revision, is_exact: true }),
            Some(_) => None,
            None => Some(Self { value, revision: self.revision + 1, is_exact: false }),
        }
    }
}

/// The rules of Kubernetes for an object that has no finalizers.
#[derive(Debug, Clone, Copy)]
pub struct Object;

impl Model for Object {
    type State = State;
    type Op = Op;

    fn start(&self) -> State {
        State { value: None, revision: 0, is_exact: true }
    }

    fn step(&self, state: &State, op: &Op) -> Option<State> {
        let exists = state.value.is_some();
        match (op.action, op.outcome) {
            (Action::Create { value }, Outcome::Done { revision }) if !exists => state.write(Some(value), revision),
            (Action::Create { value }, Outcome::Unknown { revision }) if !exists => state.write(Some(value), revision),
            (Action::Create { .. }, Outcome::AlreadyExists | Outcome::Unknown { .. }) if exists => Some(*state),
            (Action::Update { value, expected }, Outcome::Done { revision })
                if exists && expected.is_none_or(|expected| state.is(expected)) =>
            {
                state.write(Some(value), revision)
            }
            (Action::Update { value, expected }, Outcome::Unknown { revision }) => {
                if exists && expected.is_none_or(|expected| state.is(expected)) {
                    state.write(Some(value), revision)
                } else {
                    Some(*state)
                }
            }
            (Action::Update { expected, .. }, Outcome::Conflict) => {
                let is_other = expected.is_none_or(|expected| !state.is_exact || expected != state.revision);
                (exists && is_other).then_some(*state)
            }
            (Action::Delete, Outcome::Done { revision }) if exists => state.write(None, revision),
            (Action::Delete, Outcome::Unknown { .. }) => {
                if exists {
                    state.write(None, None)
                } else {
                    Some(*state)
                }
            }
            (Action::Update { .. } | Action::Delete | Action::Get, Outcome::NotFound) if !exists => Some(*state),
            (Action::Get, Outcome::Found { value, revision }) if state.value == Some(value) && state.is(revision) => {
                Some(State { revision, is_exact: true, ..*state })
            }
            (Action::Get, Outcome::Unknown { .. }) => Some(*state),
            _ => None,
        }
    }
}
