//! Random operations on the embedded engine and on a model that is too simple to be wrong.

mod rng;

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use croft_meta::Revision;
use croft_store::{
    Compare, Embedded, EmbeddedOptions, Error, Event, LeaseId, Op, Range, Record, Store, Txn, TxnResult, WatchItem,
};
use futures::StreamExt;
use rng::Rng;

const RUNS: u64 = 24;
const STEPS: u64 = 250;
const KEYS: [&str; 9] = ["a", "a/1", "a/2", "a/2/x", "a0", "b", "b/1", "é", "\0"];
const PREFIXES: [&str; 6] = ["", "a", "a/", "a/2", "b/", "z"];

#[derive(Clone, Debug, PartialEq)]
struct Version {
    value: Bytes,
    revision: Revision,
    lease: Option<LeaseId>,
}

type State = BTreeMap<String, Version>;

/// The state after each revision, and what each did.
#[derive(Debug)]
struct Model {
    states: Vec<State>,
    changes: Vec<Vec<Event>>,
    compacted: u64,
    leases: Vec<LeaseId>,
}

impl Model {
    fn newest(&self) -> Revision {
        Revision(u64::try_from(self.states.len()).unwrap() - 1)
    }

    fn state(&self) -> &State {
        self.states.last().unwrap()
    }

    fn apply(&mut self, ops: &[Op]) -> Revision {
        let mut state = self.state().clone();
        let revision = self.newest().next();
        let mut events = Vec::new();
        for op in ops {
            match op {
                Op::Put { key, value, lease } => {
                    state.insert(key.clone(), Version { value: value.clone(), revision, lease: *lease });
                    events.push(Event { key: key.clone(), revision, value: Some(value.clone()) });
                }
                Op::Delete { key } => {
                    if state.remove(key).is_some() {
                        events.push(Event { key: key.clone(), revision, value: None });
                    }
                }
            }
        }
        if !events.is_empty() {
            self.states.push(state);
            self.changes.push(events);
        }
        self.newest()
    }

    fn range(&self, range: &Range, at: Revision) -> (Vec<Record>, bool) {
        let all = self.states[usize::try_from(at.0).unwrap()].iter();
        let mut records: Vec<Record> = all
            .filter(|(key, _)| key.starts_with(&range.prefix) && (range.after.is_empty() || **key > range.after))
            .map(|(key, version)| Record { key: key.clone(), value: version.value.clone(), revision: version.revision })
            .collect();
        let more = range.limit > 0 && records.len() > range.limit;
        if more {
            records.truncate(range.limit);
        }
        (records, more)
    }
}

struct Simulation {
    rng: Rng,
    model: Model,
    store: Arc<Embedded>,
}

fn open(dir: &Path) -> Arc<Embedded> {
    Embedded::open(dir, EmbeddedOptions { retention: None, ..EmbeddedOptions::default() }).unwrap()
}

impl Simulation {
    fn key(&mut self) -> String {
        KEYS[usize::try_from(self.rng.below(KEYS.len() as u64)).unwrap()].to_owned()
    }

    fn prefix(&mut self) -> String {
        PREFIXES[usize::try_from(self.rng.below(PREFIXES.len() as u64)).unwrap()].to_owned()
    }

    fn some_revision(&mut self) -> Revision {
        let newest = self.model.newest().0;
        Revision(self.rng.below(newest + 3))
    }

    fn ops(&mut self) -> Vec<Op> {
        let mut ops: HashMap<String, Op> = HashMap::new();
        for _ in 0..self.rng.below(4) {
            let key = self.key();
            let op = if self.rng.below(3) == 0 {
                Op::Delete { key: key.clone() }
            } else {
                let size = [0, 1, 100, 5000][usize::try_from(self.rng.below(4)).unwrap()];
                let fill = u8::try_from(self.rng.below(256)).unwrap();
                let lease = (self.rng.below(3) == 0 && !self.model.leases.is_empty()).then(|| {
                    self.model.leases[usize::try_from(self.rng.below(self.model.leases.len() as u64)).unwrap()]
                });
                Op::Put { key: key.clone(), value: Bytes::from(vec![fill; size]), lease }
            };
            ops.insert(key, op);
        }
        ops.into_values().collect()
    }

    async fn transaction(&mut self) {
        let mut compare = Vec::new();
        for _ in 0..self.rng.below(3) {
            let key = self.key();
            let right = self.model.state().get(&key).map_or(Revision::ZERO, |version| version.revision);
            let revision = if self.rng.below(5) == 0 { self.some_revision() } else { right };
            compare.push(Compare { key, revision });
        }
        let holds = compare.iter().all(|compare| {
            self.model.state().get(&compare.key).map_or(Revision::ZERO, |version| version.revision) == compare.revision
        });
        let ops = self.ops();
        let expected =
            if holds { TxnResult::Committed(self.model.apply(&ops)) } else { TxnResult::Conflict(self.model.newest()) };
        assert_eq!(self.store.txn(Txn { compare, ops }).await.unwrap(), expected);
    }

    async fn range(&mut self) {
        let at = (self.rng.below(2) == 0).then(|| self.some_revision());
        let after = if self.rng.below(2) == 0 { self.key() } else { String::new() };
        let limit = usize::try_from(self.rng.below(4)).unwrap();
        let range = Range { prefix: self.prefix(), after, limit, at };
        let answer = self.store.range(range.clone()).await;
        let newest = self.model.newest();
        let at = range.at.unwrap_or(newest);
        if at.0 < self.model.compacted {
            assert!(matches!(answer, Err(Error::Compacted { .. })), "{answer:?}");
        } else if at > newest {
            assert!(matches!(answer, Err(Error::Future { .. })), "{answer:?}");
        } else {
            let answer = answer.unwrap();
            assert_eq!(
                ((answer.records, answer.more), answer.revision),
                (self.model.range(&range, at), at),
                "{range:?}"
            );
        }
    }

    async fn watch(&mut self) {
        let (prefix, after) = (self.prefix(), self.some_revision());
        let opened = self.store.watch(&prefix, after).await;
        let newest = self.model.newest();
        let mut stream = match opened {
            Err(Error::Compacted { .. }) => return assert!(after.0 < self.model.compacted),
            Err(Error::Future { .. }) => return assert!(after > newest),
            opened => opened.unwrap(),
        };
        assert!(after.0 >= self.model.compacted && after <= newest);
        // Some of it is history, the rest comes live.
        for _ in 0..self.rng.below(5) {
            self.transaction().await;
        }
        let newest = self.model.newest();
        self.store.request_progress().await.unwrap();
        let mut seen = Vec::new();
        loop {
            match stream.next().await.unwrap().unwrap() {
                WatchItem::Events(events) => seen.push(events),
                WatchItem::Progress(revision) if revision >= newest => break,
                WatchItem::Progress(_) => {}
            }
        }
        let first = usize::try_from(after.0).unwrap();
        let expected: Vec<Vec<Event>> = self.model.changes[first..]
            .iter()
            .map(|events| events.iter().filter(|event| event.key.starts_with(&prefix)).cloned().collect::<Vec<_>>())
            .filter(|events| !events.is_empty())
            .collect();
        assert_eq!(seen, expected);
    }

    async fn revoke(&mut self) {
        if self.model.leases.is_empty() {
            return;
        }
        let index = usize::try_from(self.rng.below(self.model.leases.len() as u64)).unwrap();
        let lease = self.model.leases.remove(index);
        let held = self.model.state().iter().filter(|(_, version)| version.lease == Some(lease));
        let ops: Vec<Op> = held.map(|(key, _)| Op::Delete { key: key.clone() }).collect();
        self.model.apply(&ops);
        self.store.lease_revoke(lease).await.unwrap();
    }

    async fn step(&mut self, dir: &Path) {
        match self.rng.below(20) {
            0 => {
                self.store.close().await.unwrap();
                self.store = open(dir);
            }
            1 => {
                let point = Revision(self.rng.below(self.model.newest().0 + 1));
                self.store.compact(point).await.unwrap();
                self.model.compacted = self.model.compacted.max(point.0);
            }
            2 => self.model.leases.push(self.store.lease_grant(Duration::from_hours(1)).await.unwrap()),
            3 => self.revoke().await,
            4 | 5 => self.watch().await,
            6..=9 => self.range().await,
            10 => {
                let key = self.key();
                let found = self.store.get(&key).await.unwrap().map(|record| (record.value, record.revision));
                let expected = self.model.state().get(&key).map(|version| (version.value.clone(), version.revision));
                assert_eq!(found, expected);
            }
            _ => self.transaction().await,
        }
        assert_eq!(self.store.revision().await.unwrap(), self.model.newest());
    }
}

#[tokio::test]
async fn the_engine_agrees_with_the_model() {
    let first = Rng::seed("CROFT_SIMULATION_SEED");
    let runs = if std::env::var("CROFT_SIMULATION_SEED").is_ok() { 1 } else { RUNS };
    for seed in first..first + runs {
        // Shown when the test fails.
        println!("CROFT_SIMULATION_SEED={seed}");
        let dir = tempfile::tempdir().unwrap();
        let model = Model { states: vec![State::new()], changes: vec![], compacted: 0, leases: vec![] };
        let mut simulation = Simulation { rng: Rng::new(seed), model, store: open(dir.path()) };
        for _ in 0..STEPS {
            simulation.step(dir.path()).await;
        }
    }
}
