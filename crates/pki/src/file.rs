//! Files that are there whole or not at all.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use crate::{Error, Result};

/// For private keys and everything that holds one.
pub(crate) const PRIVATE: u32 = 0o600;
pub(crate) const PUBLIC: u32 = 0o644;

/// Replaces `path` with `contents` in one step: a reader, or a start after a power cut, sees the old or the new file.
pub(crate) fn write(path: &Path, contents: &str, mode: u32) -> Result<()> {
    let failed = |action| move |source| Error::File { action, path: path.to_owned(), source };
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    // One process owns the directory, so its id is enough to be unique; a leftover of a crash is overwritten.
    let temporary = dir.join(format!(".{name}.{}.tmp", std::process::id()));

    let written = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(mode)
        .open(&temporary)
        .and_then(|mut file| file.write_all(contents.as_bytes()).and_then(|()| file.sync_all()))
        .and_then(|()| fs::rename(&temporary, path));
    if let Err(source) = written {
        let _ = fs::remove_file(&temporary);
        return Err(failed("write")(source));
    }
    // The rename itself is durable only once the directory is.
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(failed("sync the directory of"))
}

/// The text of `path`, or `None` if there is no such file.
pub(crate) fn read(path: &Path) -> Result<Option<String>> {
    match fs::read(path) {
        Ok(bytes) => match String::from_utf8(bytes) {
            Ok(text) => Ok(Some(text)),
            Err(_) => Err(damaged(path, &"it is not text")),
        },
        Err(err) if err.kind() == ErrorKind::NotFound => Ok(None),
        Err(source) => Err(Error::File { action: "read", path: path.to_owned(), source }),
    }
}

/// Makes the directory, readable by its owner only.
pub(crate) fn create_dir(path: &Path) -> Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(|source| Error::File {
        action: "create the directory",
        path: path.to_owned(),
        source,
    })
}

pub(crate) fn damaged(path: &Path, reason: &dyn fmt::Display) -> Error {
    Error::Damaged { path: path.to_owned(), reason: reason.to_string() }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn replaces_the_file_keeps_the_mode_and_leaves_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        write(&path, "one", PRIVATE).unwrap();
        write(&path, "two", PRIVATE).unwrap();
        assert_eq!(read(&path).unwrap().as_deref(), Some("two"));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn failure_names_the_file() {
        let err = write(Path::new("/nonexistent/dir/key"), "x", PRIVATE).unwrap_err();
        assert_eq!(err.to_string(), "cannot write /nonexistent/dir/key");
        assert!(read(Path::new("/nonexistent/key")).unwrap().is_none());
    }
}
