//! The files of an import that is under way.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use crate::error::ImportError;

const ENDINGS: [&str; 5] = ["part", "record", "record-new", "unpacked", "raw"];

/// All names begin with the key, so that whatever is left of an import can be found.
#[derive(Debug)]
pub(crate) struct WorkFiles {
    /// What came so far, and what is known about it. They outlive us when an import is interrupted.
    pub(crate) part: PathBuf,
    pub(crate) record: PathBuf,
    pub(crate) new_record: PathBuf,
    /// What was unpacked, and the converted image.
    pub(crate) unpacked: PathBuf,
    pub(crate) raw: PathBuf,
}

impl WorkFiles {
    pub(crate) fn new(dir: &Path, key: &str) -> Self {
        let [part, record, new_record, unpacked, raw] = ENDINGS.map(|ending| dir.join(format!("{key}.{ending}")));
        Self { part, record, new_record, unpacked, raw }
    }

    /// Forgets what came so far.
    pub(crate) fn remove_part(&self) {
        remove(&self.record);
        remove(&self.new_record);
        remove(&self.part);
    }
}

impl Drop for WorkFiles {
    fn drop(&mut self) {
        remove(&self.unpacked);
        remove(&self.raw);
    }
}

/// A new, empty file that only we can open; one of that name from before is gone.
pub(crate) fn create(path: &Path) -> Result<File, ImportError> {
    use std::os::unix::fs::OpenOptionsExt;
    remove(path);
    let mut options = File::options();
    options.read(true).write(true).create_new(true).mode(0o600);
    options.open(path).map_err(ImportError::file("create", path))
}

pub(crate) fn remove(path: &Path) {
    if let Err(error) = fs::remove_file(path)
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!(path = %path.display(), %error, "cannot remove a file of an import");
    }
}

/// Makes the file durable and then gives it its name, also durably.
pub(crate) fn publish(file: &File, from: &Path, to: &Path) -> Result<(), ImportError> {
    file.sync_all().map_err(ImportError::file("flush", from))?;
    fs::rename(from, to).map_err(ImportError::file("move the image to", to))?;
    let dir = to.parent().unwrap_or(Path::new("/"));
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(ImportError::file("flush", dir))
}

/// Removes whatever an interrupted import with this key left in `dir`.
pub fn forget(dir: &Path, key: &str) {
    let files = WorkFiles::new(dir, key);
    files.remove_part();
}

/// Removes what was left by imports that are not known any more.
pub fn sweep(dir: &Path, is_known: impl Fn(&str) -> bool) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let key = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        let is_ours = path.extension().and_then(|ending| ending.to_str()).is_some_and(|it| ENDINGS.contains(&it));
        if is_ours && !is_known(key) {
            tracing::info!(path = %path.display(), "removing what is left of an import");
            remove(&path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_nobody_knows_is_swept() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["a.part", "a.record", "b.part", "b.record", "b.raw", "keep.me"] {
            fs::write(dir.path().join(name), "x").unwrap();
        }
        sweep(dir.path(), |key| key == "a").unwrap();
        let mut left: Vec<_> =
            fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        left.sort();
        assert_eq!(left, ["a.part", "a.record", "keep.me"]);
    }
}
