//! What the store keeps, whoever dies: every change, in order.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use croft_meta::Revision;
use croft_store::{Error, Event, LeaseId, Op, Range, RangeResult, Record, Result, Txn, TxnResult};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::mutation::Mutation;
use crate::sim::Sim;

const DEFINITIONS: &str = "registry/apiextensions.k8s.io/";

#[derive(Clone, Debug)]
struct Version {
    revision: u64,
    value: Option<Bytes>,
    lease: Option<i64>,
}

#[derive(Debug, Default)]
struct Kept {
    keys: BTreeMap<String, Vec<Version>>,
    /// That of revision n is at n - 1.
    commits: Vec<Arc<Vec<Event>>>,
    compacted: u64,
    leases: BTreeMap<i64, Instant>,
    granted: i64,
}

#[derive(Debug)]
pub(crate) struct Disk {
    sim: Sim,
    kept: Mutex<Kept>,
    /// Counts up whenever watches have something to look at.
    pub(crate) changed: watch::Sender<u64>,
    pub(crate) progress: watch::Sender<u64>,
}

impl Disk {
    pub(crate) fn new(sim: Sim) -> Arc<Self> {
        let (changed, progress) = (watch::Sender::new(0), watch::Sender::new(0));
        Arc::new(Self { sim, kept: Mutex::default(), changed, progress })
    }

    pub(crate) fn revision(&self) -> u64 {
        self.kept.lock().commits.len() as u64
    }

    pub(crate) fn compacted(&self) -> u64 {
        self.kept.lock().compacted
    }

    /// The changes of one revision.
    pub(crate) fn commit_of(&self, revision: u64) -> Option<Arc<Vec<Event>>> {
        self.kept.lock().commits.get(usize::try_from(revision.checked_sub(1)?).ok()?).cloned()
    }

    /// What a key was at a revision, and when it was written.
    pub(crate) fn at(&self, key: &str, revision: u64) -> Option<(u64, Bytes)> {
        self.kept.lock().at(key, revision).and_then(|version| Some((version.revision, version.value.clone()?)))
    }

    /// All that was there under a prefix at a revision: key, when it was written, and what it is. Without definitions: they
    /// are the largest objects by far, and nobody here changes them.
    pub(crate) fn state(&self, prefix: &str, revision: u64) -> Vec<(String, u64, Value)> {
        let kept = self.kept.lock();
        let keys = kept.keys.range(prefix.to_owned()..).take_while(|(key, _)| key.starts_with(prefix));
        let keys = keys.filter(|(key, _)| !key.starts_with(DEFINITIONS));
        let found = keys.filter_map(|(key, _)| {
            let version = kept.at(key, revision)?;
            Some((key.clone(), version.revision, parsed(version.value.as_ref()?)))
        });
        found.collect()
    }

    pub(crate) fn commit(&self, txn: &Txn) -> Result<TxnResult> {
        let mut kept = self.kept.lock();
        let newest = kept.commits.len() as u64;
        let holds = |compare: &croft_store::Compare| {
            let there = kept.at(&compare.key, u64::MAX).filter(|version| version.value.is_some());
            there.map_or(0, |version| version.revision) == compare.revision.0
        };
        let ignores = self.sim.has(Mutation::ConditionsIgnored) && self.sim.percent(50);
        if !ignores && !txn.compare.iter().all(holds) {
            return Ok(TxnResult::Conflict(Revision(newest)));
        }
        for op in &txn.ops {
            if let Op::Put { lease: Some(lease), .. } = op
                && !kept.leases.contains_key(&lease.0)
            {
                return Err(Error::NoSuchLease(*lease));
            }
        }
        let forgets = self.sim.has(Mutation::WritesForgotten) && self.sim.is_faulty() && self.sim.percent(10);
        let events = if forgets { Vec::new() } else { kept.apply(&txn.ops, newest + 1) };
        if events.is_empty() {
            // Forgotten or nothing to do: the newest revision it is.
            return Ok(TxnResult::Committed(Revision(newest)));
        }
        for event in &events {
            let size = event.value.as_ref().map_or(0, Bytes::len);
            self.sim.step(format_args!(
                "store {} {} {}",
                newest + 1,
                event.key,
                if size > 0 { "put" } else { "delete" }
            ));
        }
        kept.commits.push(Arc::new(events));
        drop(kept);
        self.changed.send_modify(|count| *count += 1);
        Ok(TxnResult::Committed(Revision(newest + 1)))
    }

    pub(crate) fn range(&self, range: &Range) -> Result<RangeResult> {
        let kept = self.kept.lock();
        let newest = kept.commits.len() as u64;
        let at = range.at.map_or(newest, |at| at.0);
        kept.reachable(at)?;
        let keys = kept.keys.range(range.prefix.clone()..).take_while(|(key, _)| key.starts_with(&range.prefix));
        let keys = keys.filter(|(key, _)| range.after.is_empty() || **key > range.after);
        let found = keys.filter_map(|(key, _)| {
            let version = kept.at(key, at)?;
            Some(Record { key: key.clone(), value: version.value.clone()?, revision: Revision(version.revision) })
        });
        let mut records: Vec<Record> =
            found.take(if range.limit == 0 { usize::MAX } else { range.limit + 1 }).collect();
        let more = range.limit > 0 && records.len() > range.limit;
        if more {
            records.truncate(range.limit);
        }
        Ok(RangeResult { records, more, revision: Revision(at) })
    }

    /// Whether a watch can start after this revision.
    pub(crate) fn reachable(&self, revision: u64) -> Result<()> {
        self.kept.lock().reachable(revision)
    }

    pub(crate) fn compact(&self, revision: u64) -> Result<()> {
        let mut kept = self.kept.lock();
        let newest = kept.commits.len() as u64;
        if revision > newest {
            return Err(Error::Future { requested: Revision(revision), newest: Revision(newest) });
        }
        kept.compacted = kept.compacted.max(revision);
        Ok(())
    }

    pub(crate) fn grant(self: &Arc<Self>, ttl: Duration) -> LeaseId {
        let mut kept = self.kept.lock();
        kept.granted += 1;
        let id = kept.granted;
        kept.leases.insert(id, Instant::now() + ttl);
        let disk = Arc::clone(self);
        tokio::spawn(async move {
            loop {
                let Some(until) = disk.kept.lock().leases.get(&id).copied() else { return };
                if until <= Instant::now() {
                    break disk.revoke(LeaseId(id));
                }
                tokio::time::sleep_until(until).await;
            }
        });
        LeaseId(id)
    }

    pub(crate) fn keep_alive(&self, lease: LeaseId, ttl: Duration) -> Result<()> {
        let mut kept = self.kept.lock();
        let until = kept.leases.get_mut(&lease.0).ok_or(Error::NoSuchLease(lease))?;
        *until = Instant::now() + ttl;
        Ok(())
    }

    pub(crate) fn leases(&self) -> Vec<LeaseId> {
        self.kept.lock().leases.keys().map(|id| LeaseId(*id)).collect()
    }

    pub(crate) fn revoke(&self, lease: LeaseId) {
        let held: Vec<Op> = {
            let mut kept = self.kept.lock();
            kept.leases.remove(&lease.0);
            let last = kept.keys.iter().filter_map(|(key, versions)| Some((key, versions.last()?)));
            let held = last.filter(|(_, version)| version.value.is_some() && version.lease == Some(lease.0));
            held.map(|(key, _)| Op::Delete { key: key.clone() }).collect()
        };
        // Without conditions it cannot be refused.
        let _ = self.commit(&Txn { compare: Vec::new(), ops: held });
    }

    /// Past all rules, for those who break things on purpose.
    pub(crate) fn put(&self, key: &str, value: &Value) {
        let op = Op::Put { key: key.to_owned(), value: Bytes::from(value.to_string()), lease: None };
        let _ = self.commit(&Txn { compare: Vec::new(), ops: vec![op] });
    }

    pub(crate) fn delete(&self, key: &str) {
        let _ = self.commit(&Txn { compare: Vec::new(), ops: vec![Op::Delete { key: key.to_owned() }] });
    }
}

impl Kept {
    fn at(&self, key: &str, revision: u64) -> Option<&Version> {
        let versions = self.keys.get(key)?;
        let after = versions.partition_point(|version| version.revision <= revision);
        versions.get(after.checked_sub(1)?)
    }

    fn reachable(&self, revision: u64) -> Result<()> {
        let newest = self.commits.len() as u64;
        if revision < self.compacted {
            return Err(Error::Compacted { requested: Revision(revision), oldest: Revision(self.compacted) });
        }
        if revision > newest {
            return Err(Error::Future { requested: Revision(revision), newest: Revision(newest) });
        }
        Ok(())
    }

    fn apply(&mut self, ops: &[Op], revision: u64) -> Vec<Event> {
        let mut events = Vec::new();
        for op in ops {
            let (key, value, lease) = match op {
                Op::Put { key, value, lease } => (key, Some(value.clone()), lease.map(|lease| lease.0)),
                Op::Delete { key } => (key, None, None),
            };
            if value.is_none() && self.at(key, u64::MAX).is_none_or(|version| version.value.is_none()) {
                continue;
            }
            self.keys.entry(key.clone()).or_default().push(Version { revision, value: value.clone(), lease });
            events.push(Event { key: key.clone(), revision: Revision(revision), value });
        }
        events
    }
}

pub(crate) fn parsed(value: &Bytes) -> Value {
    serde_json::from_slice(value).unwrap_or_default()
}
