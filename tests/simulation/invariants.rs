//! What must hold, whatever went wrong: checked over the whole book of the store when a run is over.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::disk::{Disk, parsed};
use crate::sim::Sim;
use crate::users::{CONFIG_MAPS, HOLD, Log, Outcome, Permission, QUOTA, text, token_of};

const NAMESPACE: &str = "registry/core/namespaces/";
const INSTANCE: &str = "registry/kubevirt.io/virtualmachineinstances/";
const MACHINE: &str = "registry/kubevirt.io/virtualmachines/";
const EVENT: &str = "registry/core/events/";
/// A quota that was made while others created may be a few objects late.
const QUOTA_NOTICE: u64 = 20;

/// The namespace of a key, for those that have one.
fn namespace_of(key: &str) -> Option<&str> {
    let parts: Vec<&str> = key.split('/').collect();
    (parts.len() == 5).then(|| parts[3])
}

fn uid(object: &Value) -> String {
    text(object, "/metadata/uid")
}

fn is_going(object: &Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
}

fn owners(object: &Value) -> Vec<String> {
    let references = object.pointer("/metadata/ownerReferences").and_then(Value::as_array);
    references.into_iter().flatten().map(|one| text(one, "/uid")).collect()
}

fn is_held(object: &Value) -> bool {
    let finalizers = object.pointer("/metadata/finalizers").and_then(Value::as_array);
    finalizers.into_iter().flatten().any(|one| one == HOLD)
}

/// The book, read from the start, with what was there at each moment.
pub(crate) struct Book<'a> {
    sim: &'a Sim,
    log: &'a Log,
    now: BTreeMap<String, Value>,
    born: BTreeMap<String, u64>,
    /// Of each uid that ever was, whose it is.
    uids: BTreeMap<String, String>,
    quotas: BTreeMap<String, u64>,
    /// Tokens that were written, and where.
    tokens: BTreeMap<String, Vec<(u64, String)>>,
}

pub(crate) fn check(sim: &Sim, disk: &Disk, log: &Log, from: u64) {
    let now: BTreeMap<String, Value> = disk.state("", from).into_iter().map(|(key, _, object)| (key, object)).collect();
    let uids = now.iter().map(|(key, object)| (uid(object), key.clone())).collect();
    let (born, quotas, tokens) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    let mut book = Book { sim, log, now, born, uids, quotas, tokens };
    for revision in from + 1..=disk.revision() {
        let Some(commit) = disk.commit_of(revision) else { continue };
        for event in commit.iter() {
            match &event.value {
                Some(value) => book.put(revision, &event.key, parsed(value)),
                None => book.delete(revision, &event.key),
            }
        }
    }
    book.check_attempts(disk);
    book.check_end();
}

impl Book<'_> {
    fn put(&mut self, revision: u64, key: &str, new: Value) {
        let old = self.now.get(key).cloned();
        if let Some(old) = &old {
            if uid(old) != uid(&new) {
                self.sim.problem("uid", format_args!("{key} became another at {revision} without going first"));
            }
            if is_going(old) && !is_going(&new) {
                self.sim.problem("finalizer", format_args!("{key} was going and is not any more at {revision}"));
            }
            if is_held(old) && !is_held(&new) && !permitted(&self.log.releases.lock(), key, revision, 0) {
                self.sim.problem("finalizer", format_args!("{key} lost its hold at {revision} and nobody asked"));
            }
        } else {
            self.born.insert(key.to_owned(), revision);
            if let Some(other) = self.uids.insert(uid(&new), key.to_owned()).filter(|_| !uid(&new).is_empty()) {
                self.sim.problem("uid", format_args!("{key} has the uid that {other} has or had, at {revision}"));
            }
            self.check_created(revision, key);
        }
        if old.as_ref().is_none_or(|old| token_of(old) != token_of(&new)) && !token_of(&new).is_empty() {
            self.tokens.entry(token_of(&new)).or_default().push((revision, key.to_owned()));
        }
        // The deletion of a child begins here if a finalizer holds it.
        if let Some(old) = old.as_ref().filter(|old| !is_going(old) && is_going(&new)) {
            self.check_collected(revision, key, old);
        }
        self.now.insert(key.to_owned(), new);
        if key.starts_with(INSTANCE) {
            self.check_instances(revision, key);
        }
    }

    fn check_created(&mut self, revision: u64, key: &str) {
        let Some(namespace) = namespace_of(key) else { return };
        if !self.now.contains_key(&format!("{NAMESPACE}{namespace}")) {
            self.sim
                .problem("namespace", format_args!("{key} was made at {revision} in a namespace that is not there"));
        }
        if key == format!("registry/core/resourcequotas/{namespace}/quota") {
            self.quotas.insert(namespace.to_owned(), revision);
        }
        let is_limited = self.quotas.get(namespace).is_some_and(|since| since + QUOTA_NOTICE < revision);
        if key.starts_with(CONFIG_MAPS) && is_limited {
            let prefix = format!("{CONFIG_MAPS}{namespace}/");
            let count = self.now.keys().filter(|key| key.starts_with(&prefix)).count() + 1;
            if count > QUOTA {
                self.sim.problem("quota", format_args!("{key} at {revision} makes {count}, of {QUOTA}"));
            }
        }
    }

    fn delete(&mut self, revision: u64, key: &str) {
        let Some(old) = self.now.remove(key) else { return };
        if is_held(&old) && !permitted(&self.log.releases.lock(), key, revision, 0) {
            self.sim.problem("finalizer", format_args!("{key} went at {revision} though it was held"));
        }
        if let Some(namespace) = key.strip_prefix(NAMESPACE) {
            let left = self.now.keys().find(|key| namespace_of(key) == Some(namespace));
            if let Some(left) = left {
                self.sim.problem("namespace", format_args!("{namespace} went at {revision} with {left} in it"));
            }
            self.quotas.remove(namespace);
        }
        if !is_going(&old) {
            self.check_collected(revision, key, &old);
        }
        self.born.remove(key);
    }

    /// Nothing goes that has an owner, unless somebody wanted it gone or its namespace is going.
    fn check_collected(&self, revision: u64, key: &str, old: &Value) {
        let its = owners(old);
        if its.is_empty() || !key.starts_with(CONFIG_MAPS) {
            return;
        }
        let namespace = namespace_of(key).unwrap_or_default();
        if self.now.get(&format!("{NAMESPACE}{namespace}")).is_none_or(is_going) {
            return;
        }
        let born = self.born.get(key).copied().unwrap_or(0);
        if permitted(&self.log.deletions.lock(), key, revision, born) {
            return;
        }
        let alive = self.now.values().any(|object| its.contains(&uid(object)) && !is_going(object));
        if alive {
            self.sim.problem("collector", format_args!("{key} went at {revision} though its owner is there"));
        }
    }

    fn check_instances(&self, revision: u64, key: &str) {
        let Some(machine) = self.now.get(key).map(owners).and_then(|owners| owners.into_iter().next()) else { return };
        let instances = self.now.iter().filter(|(key, _)| key.starts_with(INSTANCE));
        let count = instances.filter(|(_, object)| owners(object).contains(&machine)).count();
        if count > 1 {
            self.sim.problem("instance", format_args!("the machine of {key} has {count} at {revision}"));
        }
    }

    /// What was acknowledged is in the book as it was told; what was refused is not; nothing is done twice.
    fn check_attempts(&self, disk: &Disk) {
        for attempt in self.log.attempts.lock().iter() {
            let written = self.tokens.get(&attempt.token).map(Vec::as_slice).unwrap_or_default();
            let key = &attempt.key;
            match &attempt.outcome {
                Outcome::Acknowledged { revision, uid: told } => {
                    let there = disk.at(key, *revision).filter(|(written, _)| written == revision);
                    let there = there.map(|(_, value)| parsed(&value));
                    let is_it = |object: &Value| token_of(object) == attempt.token && uid(object) == *told;
                    if !there.as_ref().is_some_and(is_it) {
                        self.sim.problem("acknowledged", format_args!("{attempt:?} is not in the store"));
                    }
                    let before = disk.at(key, revision.saturating_sub(1)).map(|(written, _)| written);
                    if attempt.over.is_some() && attempt.over != before {
                        self.sim
                            .problem("acknowledged", format_args!("{attempt:?} replaced another state, of {before:?}"));
                    }
                }
                Outcome::Refused(code) if !written.is_empty() => {
                    self.sim.problem("refused", format_args!("{key} was refused with {code}, and done: {written:?}"));
                }
                Outcome::Refused(_) | Outcome::Unknown => {}
            }
            if written.len() > 1 {
                self.sim.problem("acknowledged", format_args!("{attempt:?} was done more than once: {written:?}"));
            }
        }
        let alive: BTreeSet<String> = self.now.values().map(uid).collect();
        for gone in self.log.gone.lock().iter().filter(|gone| alive.contains(*gone)) {
            self.sim.problem("acknowledged", format_args!("{gone} is there, though its end was acknowledged"));
        }
    }

    /// All has come to rest.
    fn check_end(&self) {
        let alive: BTreeSet<String> = self.now.values().map(uid).collect();
        for (key, object) in self.now.iter().filter(|(key, _)| !key.starts_with(EVENT)) {
            let its = owners(object);
            if !its.is_empty() && its.iter().all(|owner| !alive.contains(owner)) {
                self.sim.problem("orphan", format_args!("{key} is there without any of its owners"));
            }
            if is_going(object) {
                let sort = if key.starts_with(NAMESPACE) { "namespace" } else { "settled" };
                self.sim.problem(sort, format_args!("{key} is still going: {}", object["status"]));
            }
            if let Some(namespace) = namespace_of(key)
                && !self.now.contains_key(&format!("{NAMESPACE}{namespace}"))
            {
                self.sim.problem("namespace", format_args!("{key} has outlived its namespace"));
            }
            if key.starts_with(MACHINE) {
                self.check_machine(key, object);
            }
        }
    }

    fn check_machine(&self, key: &str, machine: &Value) {
        let instance = self.now.contains_key(&key.replace(MACHINE, INSTANCE));
        let has_failed = !machine.pointer("/status/startFailure").is_none_or(Value::is_null);
        match text(machine, "/spec/runStrategy").as_str() {
            "Always" if !instance && !has_failed => {
                self.sim.problem("instance", format_args!("{key} should run: {}", machine["status"]));
            }
            "Halted" if instance => self.sim.problem("instance", format_args!("{key} should not run")),
            _ => {}
        }
    }
}

/// Whether somebody who could have been heard at `revision` let it go: the object that was born at `born`.
fn permitted(given: &[Permission], key: &str, revision: u64, born: u64) -> bool {
    given.iter().any(|one| one.prefix == key && one.since <= revision && one.until.is_none_or(|until| born <= until))
}
