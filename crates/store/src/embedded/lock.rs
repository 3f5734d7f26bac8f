//! One process per data directory.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::Path;

use crate::{Error, Result};

/// Held as long as the engine is open; the kernel lets go of it when the process dies, however it dies.
#[derive(Debug)]
pub(super) struct DirLock {
    _file: File,
}

impl DirLock {
    pub(super) fn take(dir: &Path) -> Result<Self> {
        let path = dir.join("lock");
        let fail = |source: std::io::Error| Error::Engine {
            context: format!("cannot lock the data directory with {}", path.display()),
            source: source.into(),
        };
        let mut file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path).map_err(fail)?;
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
