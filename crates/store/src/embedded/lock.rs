//! One process per data directory, and one that makes it.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::{Error, Result};

/// Held as long as the engine is open, or made; the kernel lets go of it when the process dies, however it dies.
#[derive(Debug)]
pub struct DirLock {
    _file: File,
}

impl DirLock {
    /// Nobody else has the store in `dir` open.
    pub fn take(dir: &Path) -> Result<Self> {
        Self::at(&dir.join("lock"), dir)
    }

    /// Nobody else makes a store for `dir`, which need not be there yet. The file stays: whoever removed it would take it from
    /// under the next one.
    pub fn beside(dir: &Path) -> Result<Self> {
        Self::at(&dir.with_added_extension("lock"), dir)
    }

    fn at(path: &Path, dir: &Path) -> Result<Self> {
        let fail = |source: std::io::Error| Error::Engine {
            context: format!("cannot lock the data directory with {}", path.display()),
            source: source.into(),
        };
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)
            .map_err(fail)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut pid = String::new();
                // Only words for the message; the lock itself is what counts.
                let _ = file.read_to_string(&mut pid);
                let pid = if pid.trim().is_empty() { "(unknown)" } else { pid.trim() };
                return Err(Error::Locked { path: dir.to_owned(), pid: pid.to_owned() });
            }
            Err(TryLockError::Error(err)) => return Err(fail(err)),
        }
        // On a full disk the pid cannot be written; the directory is locked all the same.
        let _ = file.set_len(0).and_then(|()| file.rewind()).and_then(|()| writeln!(file, "{}", std::process::id()));
        Ok(Self { _file: file })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_lock_names_the_holder() {
        let dir = tempfile::tempdir().unwrap();
        let held = DirLock::take(dir.path()).unwrap();
        match DirLock::take(dir.path()) {
            Err(Error::Locked { pid, .. }) => assert_eq!(pid, std::process::id().to_string()),
            other => panic!("{other:?}"),
        }
        drop(held);
        DirLock::take(dir.path()).unwrap();
    }
}
