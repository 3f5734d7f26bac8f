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

    fn check(&self) -> Result<(), Error> {
        named("a cluster", &self.cluster)?;
        named("a state", &self.name)
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
        self.save(&format!("{}/{DESCRIPTION}", state.dir()), &state).await?;
        Ok(state)
    }

    /// Those that are complete, of all clusters, the oldest of each first.
    pub async fn states(&self) -> Result<Vec<State>, Error> {
        let mut found = Vec::new();
        for cluster in self.list(STATES).await? {
            for name in self.list(&format!("{STATES}/{cluster}")).await? {
                let wanted = State { cluster: cluster.clone(), name, ..State::default() };
                if wanted.check().is_err() {
                    continue;
                }
                let described: Option<State> = self.load(&format!("{}/{DESCRIPTION}", wanted.dir())).await?;
                // Where it is says what it is called.
                found.extend(described.map(|state| State { cluster: wanted.cluster, name: wanted.name, ..state }));
            }
        }
        found.sort_by(|a, b| (&a.cluster, &a.name).cmp(&(&b.cluster, &b.name)));
        Ok(found)
    }

    /// Copies a state into a file that is made for it.
    pub async fn fetch_state(&self, state: &State, file: &Path, secret: Option<&Secret>) -> Result<(), Error> {
        state.check()?;
        let key = key_of(state, secret)?;
        let failed = |doing| Error::file(doing, file);
        let mut output = File::create(file).await.map_err(failed("create"))?;
        let (mut digest, mut size) = (Context::new(&SHA256), 0);
        for index in 0..state.parts {
            let path = state.part(index);
            let mut part = self.get(&path, SEALED_BYTES).await?;
            if let Some(key) = &key {
                part = key.open(path.as_bytes(), &part).map_err(Error::Sealed)?.into();
            }
            digest.update(&part);
            size += u64::try_from(part.len()).unwrap_or_default();
            output.write_all(&part).await.map_err(failed("write"))?;
        }
        output.sync_all().await.map_err(failed("flush"))?;
        if (size, hex(digest.finish().as_ref())) != (state.size, state.sha256.clone()) {
            let why = "its parts are not what was written".to_owned();
            return Err(Error::Content { path: state.dir(), why });
        }
        Ok(())
    }

    /// The description first, so that nobody takes the rest for whole.
    pub async fn delete_state(&self, state: &State) -> Result<(), Error> {
        state.check()?;
        let dir = state.dir();
        self.delete(&format!("{dir}/{DESCRIPTION}")).await?;
        for part in self.list(&dir).await? {
            self.delete(&format!("{dir}/{part}")).await?;
        }
        Ok(())
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
}
