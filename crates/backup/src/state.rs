//! The state of a whole cluster in a target, for the day when its machines are gone. Ours: Longhorn and Harvester have none.
//!
//! ```text
//! croft/states/<cluster>/<name>/part-00000 ...
//! croft/states/<cluster>/<name>/state.cfg
//! ```
//! The description is written last and goes first: a state is complete or not there. With a key, the parts are sealed.

use std::path::Path;

use aws_lc_rs::digest::{Context, SHA256};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use tokio::fs::File;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::error::Error;
use crate::keys::Keys;
use crate::seal::{Key, Secret};
use crate::store::{BackupStore, named};

const STATES: &str = "croft/states";
const DESCRIPTION: &str = "state.cfg";
const PART_BYTES: u64 = 8 << 20;
/// What sealing adds, and more.
const SEALED_BYTES: u64 = PART_BYTES + 4096;

/// What is said of a state beside it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct State {
    pub cluster: String,
    /// Names sort by age.
    pub name: String,
    /// When it was saved.
    pub saved: String,
    /// Of the program that saved it.
    pub version: String,
    pub size: u64,
    pub parts: u64,
    pub sha256: String,
    /// Which key it was sealed with; empty if with none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub key: String,
    /// Objects that could not be read when it was saved, and are not in it.
    pub unreadable: u64,
    /// It was found on a target, and what is said of it there cannot be understood. No description says so itself.
    #[serde(skip_deserializing, skip_serializing_if = "std::ops::Not::not")]
    pub is_damaged: bool,
}

impl State {
    fn dir(&self) -> String {
        format!("{STATES}/{}/{}", self.cluster, self.name)
    }

    fn part(&self, index: u64) -> String {
        format!("{}/part-{index:05}", self.dir())
    }

    fn purpose(&self) -> String {
        format!("state {}", self.cluster)
    }

    fn description(&self) -> String {
        format!("{}/{DESCRIPTION}", self.dir())
    }

    fn check(&self) -> Result<(), Error> {
        named("a cluster", &self.cluster)?;
        named("a state", &self.name)
    }

    /// For who is going to read it.
    fn check_readable(&self) -> Result<(), Error> {
        self.check()?;
        if self.is_damaged {
            return Err(Error::Content { path: self.description(), why: "it cannot be understood".to_owned() });
        }
        Ok(())
    }
}

impl BackupStore {
    /// Copies a file into the target. What `state` says of size, parts and sum is made anew.
    pub async fn save_state(&self, state: State, file: &Path, secret: Option<&Secret>) -> Result<State, Error> {
        state.check()?;
        let key = secret.map(|secret| secret.key(&state.purpose())).transpose().map_err(Error::Key)?;
        let mut input = File::open(file).await.map_err(Error::file("open", file))?;
        let mut state = State { size: 0, parts: 0, key: key.as_ref().map(Key::id).unwrap_or_default().into(), ..state };
        let mut digest = Context::new(&SHA256);
        loop {
            let mut part = Vec::new();
            (&mut input).take(PART_BYTES).read_to_end(&mut part).await.map_err(Error::file("read", file))?;
            if part.is_empty() {
                break;
            }
            digest.update(&part);
            state.size += u64::try_from(part.len()).unwrap_or_default();
            let path = state.part(state.parts);
            if let Some(key) = &key {
                let sealed = key.seal(path.as_bytes(), part);
                part = sealed.map_err(|error| Error::Content { path: path.clone(), why: error.to_string() })?;
            }
            self.put(&path, Bytes::from(part)).await?;
            state.parts += 1;
        }
        state.sha256 = hex(digest.finish().as_ref());
        self.save(&state.description(), &state).await?;
        Ok(state)
    }

    /// Those that are complete, of all clusters, the oldest of each first. One whose description is damaged is among them, so that
    /// it can be told of and deleted, and is in the way of no other.
    pub async fn states(&self) -> Result<Vec<State>, Error> {
        let mut found = Vec::new();
        for cluster in self.list(STATES).await? {
            for name in self.list(&format!("{STATES}/{cluster}")).await? {
                let wanted = State { cluster: cluster.clone(), name, ..State::default() };
                if wanted.check().is_err() {
                    continue;
                }
                let described = match self.load::<State>(&wanted.description()).await {
                    Err(Error::Config { .. }) => Some(State { is_damaged: true, ..State::default() }),
                    described => described?,
                };
                // Where it is says what it is called.
                found.extend(described.map(|state| State { cluster: wanted.cluster, name: wanted.name, ..state }));
            }
        }
        found.sort_by(|a, b| (&a.cluster, &a.name).cmp(&(&b.cluster, &b.name)));
        Ok(found)
    }

    /// Copies a state into a file that is made for it.
    pub async fn fetch_state(&self, state: &State, file: &Path, secret: Option<&Secret>) -> Result<(), Error> {
        state.check_readable()?;
        let key = key_of(state, secret)?;
        let failed = |doing| Error::file(doing, file);
        let mut output = File::create(file).await.map_err(failed("create"))?;
        let mut sum = Sum::default();
        for index in 0..state.parts {
            let part = self.part(state, index, key.as_ref()).await?;
            sum.add(&part);
            output.write_all(&part).await.map_err(failed("write"))?;
        }
        output.sync_all().await.map_err(failed("flush"))?;
        sum.check(state)
    }

    /// Reads all of a state, with whichever key it was sealed with, and keeps nothing of it.
    pub async fn verify_state(&self, state: &State, keys: &Keys) -> Result<(), Error> {
        state.check_readable()?;
        let fits = |key: &Key| key.id() == state.key;
        let known = keys.all().filter_map(|secret| secret.key(&state.purpose()).ok()).find(fits);
        let key = if known.is_some() { known } else { key_of(state, keys.current())? };
        let mut sum = Sum::default();
        for index in 0..state.parts {
            sum.add(&self.part(state, index, key.as_ref()).await?);
        }
        sum.check(state)
    }

    async fn part(&self, state: &State, index: u64, key: Option<&Key>) -> Result<Bytes, Error> {
        let path = state.part(index);
        let part = self.get(&path, SEALED_BYTES).await?;
        let Some(key) = key else { return Ok(part) };
        Ok(key.open(path.as_bytes(), &part).map_err(Error::Sealed)?.into())
    }

    /// Deletes what is older than the newest `keep` good states of a cluster. Each that is to count is read to its end: a state
    /// that is damaged or lacks objects, or whose key is not here, takes nobody's place, and the last good one never goes.
    pub async fn retain_states(&self, cluster: &str, keep: usize, keys: &Keys) -> Result<Retained, Error> {
        let mut states = self.states().await?;
        states.retain(|state| state.cluster == cluster);
        let mut retained = Retained::default();
        for state in states.into_iter().rev() {
            if retained.good >= keep.max(1) {
                self.delete_state(&state).await?;
                retained.deleted.push(state.name);
                continue;
            }
            match self.verify_state(&state, keys).await {
                Ok(()) if state.unreadable == 0 => retained.good += 1,
                Ok(()) | Err(Error::KeyNeeded(_) | Error::WrongKey { .. }) => {}
                Err(Error::Content { .. } | Error::Sealed(_)) => retained.damaged.push(state.name),
                Err(Error::Target(error)) if error.is_not_found() => retained.damaged.push(state.name),
                Err(error) => return Err(error),
            }
        }
        Ok(retained)
    }

    /// Removes what was begun of a cluster's states and never finished, where `is_left` says of its name that nobody is at it
    /// any more. Tells which.
    pub async fn remove_unfinished_states(
        &self,
        cluster: &str,
        is_left: impl Fn(&str) -> bool,
    ) -> Result<Vec<String>, Error> {
        let mut removed = Vec::new();
        for name in self.list(&format!("{STATES}/{cluster}")).await? {
            let state = State { cluster: cluster.to_owned(), name, ..State::default() };
            if state.check().is_err() || !is_left(&state.name) {
                continue;
            }
            if self.stat(&state.description()).await?.is_none() {
                self.delete_state(&state).await?;
                removed.push(state.name);
            }
        }
        Ok(removed)
    }

    /// The description first, so that nobody takes the rest for whole.
    pub async fn delete_state(&self, state: &State) -> Result<(), Error> {
        state.check()?;
        let dir = state.dir();
        self.delete(&state.description()).await?;
        for part in self.list(&dir).await? {
            self.delete(&format!("{dir}/{part}")).await?;
        }
        Ok(())
    }
}

/// What became of the states of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Retained {
    /// Those that were read to their end, and have everything in them.
    pub good: usize,
    pub deleted: Vec<String>,
    /// Those that cannot be restored.
    pub damaged: Vec<String>,
}

/// What the parts of a state add up to.
struct Sum {
    digest: Context,
    size: u64,
}

impl Default for Sum {
    fn default() -> Self {
        Self { digest: Context::new(&SHA256), size: 0 }
    }
}

impl Sum {
    fn add(&mut self, part: &[u8]) {
        self.digest.update(part);
        self.size += u64::try_from(part.len()).unwrap_or_default();
    }

    fn check(self, state: &State) -> Result<(), Error> {
        if (self.size, hex(self.digest.finish().as_ref())) == (state.size, state.sha256.clone()) {
            return Ok(());
        }
        let why = "its parts are not what was written".to_owned();
        Err(Error::Content { path: state.dir(), why })
    }
}

fn key_of(state: &State, secret: Option<&Secret>) -> Result<Option<Key>, Error> {
    if state.key.is_empty() {
        return Ok(None);
    }
    let secret = secret.ok_or_else(|| Error::KeyNeeded(state.key.clone()))?;
    let key = secret.key(&state.purpose()).map_err(Error::Key)?;
    if key.id() != state.key {
        return Err(Error::WrongKey { expected: state.key.clone(), given: key.id().to_owned() });
    }
    Ok(Some(key))
}

fn hex(digest: &[u8]) -> String {
    format!("{:x}", Bytes::copy_from_slice(digest))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::store::Owner;
    use crate::target::Directory;

    fn state(name: &str) -> State {
        State { cluster: "c1".to_owned(), name: name.to_owned(), ..State::default() }
    }

    #[tokio::test]
    async fn a_state_comes_back_as_it_was_and_goes_without_a_trace() {
        let dir = tempfile::tempdir().unwrap();
        let store = BackupStore::new(Arc::new(Directory::new(dir.path())), Owner::new("test").unwrap());
        let (file, back) = (dir.path().join("file"), dir.path().join("back"));
        let content: Vec<u8> = (0..(9 << 20)).map(|at: u32| u8::try_from(at % 251).unwrap()).collect();
        std::fs::write(&file, &content).unwrap();
        let secret = Secret::new([7; 32]).unwrap();
        for (name, key) in [("s1", None), ("s2", Some(&secret))] {
            let saved = store.save_state(state(name), &file, key).await.unwrap();
            assert_eq!((saved.parts, saved.size), (2, 9 << 20));
            store.fetch_state(&saved, &back, key).await.unwrap();
            assert!(std::fs::read(&back).unwrap() == content, "{name}");
        }
        let all = store.states().await.unwrap();
        assert_eq!(all.iter().map(|state| state.name.as_str()).collect::<Vec<_>>(), ["s1", "s2"]);
        assert!(matches!(store.fetch_state(&all[1], &back, None).await, Err(Error::KeyNeeded(_))));
        let other = Secret::new([8; 32]).unwrap();
        assert!(matches!(store.fetch_state(&all[1], &back, Some(&other)).await, Err(Error::WrongKey { .. })));
        let sealed = std::fs::read(dir.path().join("croft/states/c1/s2/part-00000")).unwrap();
        assert!(!sealed.windows(16).any(|piece| piece == &content[..16]));

        // One that was not finished is not there, and one that was changed is not believed.
        std::fs::remove_file(dir.path().join("croft/states/c1/s2/state.cfg")).unwrap();
        assert_eq!(store.states().await.unwrap().len(), 1);
        std::fs::write(dir.path().join("croft/states/c1/s1/part-00001"), vec![0; 1 << 20]).unwrap();
        assert!(matches!(store.fetch_state(&all[0], &back, None).await, Err(Error::Content { .. })));
        for state in &all {
            store.delete_state(state).await.unwrap();
        }
        assert!(!dir.path().join("croft/states/c1").exists());
        assert!(store.save_state(state("../x"), &file, None).await.is_err());
    }

    #[tokio::test]
    async fn only_good_ones_count_and_the_last_of_them_stays() {
        let dir = tempfile::tempdir().unwrap();
        let store = BackupStore::new(Arc::new(Directory::new(dir.path())), Owner::new("test").unwrap());
        let file = dir.path().join("file");
        std::fs::write(&file, b"content").unwrap();
        let (mine, other) = (Secret::new([7; 32]).unwrap(), Secret::new([8; 32]).unwrap());
        for name in ["s1", "s2", "s3", "s4"] {
            store.save_state(state(name), &file, Some(&mine)).await.unwrap();
        }
        let at = |name: &str| dir.path().join("croft/states/c1").join(name);
        std::fs::write(at("s4").join("part-00000"), b"garbage").unwrap();
        std::fs::remove_file(at("s3").join("part-00000")).unwrap();
        let keys = Keys::only(mine);
        let retained = store.retain_states("c1", 1, &keys).await.unwrap();
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        assert_eq!(retained, Retained { good: 1, deleted: names(&["s1"]), damaged: names(&["s4", "s3"]) });

        // Whose key is not here may be good, but nobody can say so.
        store.save_state(state("s5"), &file, Some(&other)).await.unwrap();
        let retained = store.retain_states("c1", 0, &keys).await.unwrap();
        assert_eq!((retained.good, retained.deleted.len()), (1, 0));
        assert!(at("s2").exists() && at("s5").exists());
        store.save_state(state("s6"), &file, None).await.unwrap();
        let retained = store.retain_states("c1", 1, &keys).await.unwrap();
        assert_eq!(retained.deleted, names(&["s5", "s4", "s3", "s2"]));
        assert!(!at("s3").exists(), "with all that is left of it");

        // One whose description is damaged is told of, and in nobody's way.
        store.save_state(state("s7"), &file, None).await.unwrap();
        for damage in ["", "{\"parts\": 1,", "{\"isDamaged\": false, \"parts\": \"one\"}"] {
            std::fs::write(at("s7").join("state.cfg"), damage).unwrap();
            let all = store.states().await.unwrap();
            let told: Vec<(&str, bool)> = all.iter().map(|state| (state.name.as_str(), state.is_damaged)).collect();
            assert_eq!(told, [("s6", false), ("s7", true)], "{damage}");
            store.fetch_state(&all[0], &dir.path().join("back"), None).await.unwrap();
            let refused = store.fetch_state(&all[1], &dir.path().join("back"), None).await.unwrap_err();
            assert!(refused.to_string().contains("c1/s7/state.cfg is not what"), "{refused}");
            let retained = store.retain_states("c1", 1, &keys).await.unwrap();
            assert_eq!(retained, Retained { good: 1, damaged: names(&["s7"]), ..Retained::default() }, "{damage}");
        }
        store.save_state(state("s8"), &file, None).await.unwrap();
        let retained = store.retain_states("c1", 1, &keys).await.unwrap();
        assert_eq!(retained.deleted, names(&["s7", "s6"]));

        // One that lacks objects can be restored, and is not what the others go for.
        store.save_state(State { unreadable: 2, ..state("s9") }, &file, None).await.unwrap();
        let retained = store.retain_states("c1", 1, &keys).await.unwrap();
        assert_eq!(retained, Retained { good: 1, ..Retained::default() });
        assert!(at("s8").exists() && at("s9").exists());
        assert_eq!(store.states().await.unwrap()[1].unreadable, 2);
        store.save_state(state("t1"), &file, None).await.unwrap();
        let retained = store.retain_states("c1", 1, &keys).await.unwrap();
        assert_eq!(retained.deleted, names(&["s9", "s8"]));
    }

    #[tokio::test]
    async fn what_was_never_finished_goes_if_nobody_is_at_it() {
        let dir = tempfile::tempdir().unwrap();
        let store = BackupStore::new(Arc::new(Directory::new(dir.path())), Owner::new("test").unwrap());
        let file = dir.path().join("file");
        std::fs::write(&file, b"content").unwrap();
        store.save_state(state("whole"), &file, None).await.unwrap();
        for name in ["left", "busy"] {
            std::fs::create_dir_all(dir.path().join("croft/states/c1").join(name)).unwrap();
            std::fs::write(dir.path().join("croft/states/c1").join(name).join("part-00000"), b"half").unwrap();
        }
        let removed = store.remove_unfinished_states("c1", |name| name != "busy").await.unwrap();
        assert_eq!(removed, ["left"]);
        assert!(!dir.path().join("croft/states/c1/left").exists() && dir.path().join("croft/states/c1/busy").exists());
        assert_eq!(store.states().await.unwrap().len(), 1);
        assert_eq!(store.remove_unfinished_states("none", |_| true).await.unwrap(), Vec::<String>::new());
    }
}
