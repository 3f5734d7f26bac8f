//! A store whose objects were moved elsewhere is not to be opened again: whoever did would go on from a state of the past.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// In the directory of a store that was left.
const MOVED: &str = "moved.json";
/// In the directory of a store that was made by moving another one.
pub(super) const ORIGIN: &str = "origin";
/// There until the other store is known to be left.
pub(super) const ARRIVING: &str = "arriving";

/// Where the objects of a store went.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Moved {
    /// Of the move.
    pub id: String,
    pub to: String,
    pub when: String,
}

/// What is said of the store in `dir`, if it was left.
pub fn moved(dir: &Path) -> Result<Option<Moved>> {
    let path = dir.join(MOVED);
    let failed = |source: Box<dyn std::error::Error + Send + Sync>| Error::Engine {
        context: format!("cannot read {}", path.display()),
        source,
    };
    match fs::read(&path) {
        Ok(text) => serde_json::from_slice(&text).map(Some).map_err(|error| failed(error.into())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed(error.into())),
    }
}

/// From now on nobody opens the store in `dir`. The caller has it open himself, so that nobody else has.
pub fn mark_moved(dir: &Path, moved: &Moved) -> Result<()> {
    let (path, aside) = (dir.join(MOVED), dir.join("moved.json.new"));
    let write = || -> std::io::Result<()> {
        let mut file = File::create(&aside)?;
        file.write_all(&serde_json::to_vec(moved)?)?;
        file.sync_all()?;
        fs::rename(&aside, &path)?;
        File::open(dir)?.sync_all()
    };
    write().map_err(|error| Error::Engine { context: format!("cannot write {}", path.display()), source: error.into() })
}

/// The move that made the store in `dir`, if one did.
pub fn origin(dir: &Path) -> Option<String> {
    fs::read_to_string(dir.join(ORIGIN)).ok()
}

/// The other store was left: from now on the one in `dir` can be opened.
pub fn mark_arrived(dir: &Path) -> Result<()> {
    let path = dir.join(ARRIVING);
    let removed = match fs::remove_file(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        done => done.and_then(|()| File::open(dir)?.sync_all()),
    };
    removed
        .map_err(|error| Error::Engine { context: format!("cannot remove {}", path.display()), source: error.into() })
}

pub(super) fn refuse_moved(dir: &Path) -> Result<()> {
    if dir.join(ARRIVING).exists() {
        return Err(Error::Engine {
            context: format!("the store in {} is not to be used yet", dir.display()),
            source: "the one that its objects come from was not left; give the same \"croft migrate-store\" again"
                .into(),
        });
    }
    let Some(moved) = moved(dir)? else { return Ok(()) };
    Err(Error::Engine {
        context: format!("the store in {} is one of the past", dir.display()),
        source: format!(
            "its objects were moved to {} at {}; use that one, or bring them back with \"croft migrate-store --to embedded\"",
            moved.to, moved.when
        )
        .into(),
    })
}
