//! Is what a read says what was there?

use std::collections::BTreeMap;

use serde_json::Value;

use crate::client::{Answer, Client};
use crate::disk::Disk;
use crate::mutation::Mutation;
use crate::sim::Sim;
use crate::users::{text, token_of, version};

/// A read says what was there at some moment between the question and the answer.
pub(crate) fn check_read(sim: &Sim, disk: &Disk, key: &str, since: u64, answer: &Answer) {
    let until = disk.revision();
    let told = match answer {
        Answer::Done(object) => Some((version(object), token_of(object))),
        Answer::Refused(404) => None,
        Answer::Refused(..) | Answer::Unknown => return,
    };
    let was = |revision: u64| {
        let there = disk.at(key, revision);
        there.map(|(written, value)| (written, token_of(&crate::disk::parsed(&value))))
    };
    if !(since..=until).any(|revision| was(revision) == told) {
        sim.problem("read", format_args!("{key} was told as {told:?}, which it was not from {since} to {until}"));
    }
}

/// A list is of one moment, after the question, and has all that was there then, in order. Pages are of one moment, too.
/// Returns that moment.
pub(crate) async fn check_list(
    sim: &Sim,
    disk: &Disk,
    client: &Client,
    path: &str,
    prefix: &str,
    limit: u64,
) -> Option<u64> {
    let since = disk.revision();
    let (mut told, mut token, mut of) = (Vec::new(), String::new(), None);
    loop {
        let mark = if path.contains('?') { '&' } else { '?' };
        let paged = format!("{path}{mark}limit={limit}&continue={token}");
        let Answer::Done(mut list) = client.get(if limit == 0 { path } else { &paged }).await else { return None };
        let revision = version(&list);
        if *of.get_or_insert(revision) != revision {
            sim.problem("list", format_args!("{path}: a page is of {revision}, the first of {of:?}"));
            return None;
        }
        if sim.has(Mutation::ListsShortened) {
            list["items"].as_array_mut().map(Vec::pop);
        }
        told.extend(
            list["items"].as_array().into_iter().flatten().map(|item| (name_of(item), version(item), token_of(item))),
        );
        token = text(&list, "/metadata/continue");
        if token.is_empty() {
            break;
        }
    }
    let revision = of?;
    if revision < since || revision > disk.revision() {
        sim.problem("list", format_args!("{path} is of {revision}, asked for at {since}"));
    }
    let selected = Selected::of(path);
    let there = disk.state(prefix, revision).into_iter().filter(|(_, _, object)| selected.has(object));
    let there: Vec<(String, u64, String)> =
        there.map(|(_, written, object)| (name_of(&object), written, token_of(&object))).collect();
    if there != told {
        sim.problem("list", format_args!("{path} at {revision} is {told:?}, and was {there:?}"));
    }
    Some(revision)
}

pub(crate) fn name_of(object: &Value) -> String {
    format!("{}/{}", text(object, "/metadata/namespace"), text(object, "/metadata/name"))
}

/// Objects with a label, if the path says so.
#[derive(Clone, Debug)]
pub(crate) struct Selected(Option<String>);

impl Selected {
    pub(crate) fn of(path: &str) -> Self {
        let found = path.split_once("labelSelector=tier%3D");
        Self(found.map(|(_, rest)| rest.chars().take_while(char::is_ascii_alphanumeric).collect()))
    }

    pub(crate) fn has(&self, object: &Value) -> bool {
        self.0.as_ref().is_none_or(|tier| text(object, "/metadata/labels/tier") == *tier)
    }
}

/// What a watch tells of each change after a revision, by the store's own book.
pub(crate) struct Expected {
    pub(crate) prefix: String,
    pub(crate) selected: Selected,
    /// What was told last.
    pub(crate) after: u64,
    /// What is known of the objects, for a change is told as what it is to the selection.
    known: BTreeMap<String, Value>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) revision: u64,
    pub(crate) sort: String,
    pub(crate) name: String,
}

impl Expected {
    pub(crate) fn new(disk: &Disk, prefix: &str, path: &str, after: u64) -> Self {
        let known = disk.state(prefix, after).into_iter().map(|(key, _, object)| (key, object)).collect();
        Self { prefix: prefix.to_owned(), selected: Selected::of(path), after, known }
    }

    /// The next change that there is to tell, up to a revision.
    pub(crate) fn next(&mut self, disk: &Disk, until: u64) -> Option<Told> {
        while self.after < until {
            let commit = disk.commit_of(self.after + 1)?;
            self.after += 1;
            for event in commit.iter().filter(|event| event.key.starts_with(&self.prefix)) {
                let new = event.value.as_ref().map(crate::disk::parsed);
                let old = match &new {
                    Some(new) => self.known.insert(event.key.clone(), new.clone()),
                    None => self.known.remove(&event.key),
                };
                let had = old.as_ref().is_some_and(|old| self.selected.has(old));
                let has = new.as_ref().is_some_and(|new| self.selected.has(new));
                let sort = match (had, has) {
                    (false, true) => "ADDED",
                    (true, true) => "MODIFIED",
                    (true, false) => "DELETED",
                    (false, false) => continue,
                };
                // Objects of these tests are written one at a time.
                let name = new.or(old).map(|object| name_of(&object)).unwrap_or_default();
                return Some(Told { revision: self.after, sort: sort.to_owned(), name });
            }
        }
        None
    }
}
