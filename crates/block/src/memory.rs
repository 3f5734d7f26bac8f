//! The memory of a machine, kept beside the snapshot of its first disk. It counts as a part of that, and goes with it.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::durable::Staged;
use crate::pool::Pool;
use crate::volume::VolumeError;

impl Pool {
    /// Where the memory that belongs to a snapshot is, if there is any.
    pub fn memory_path(&self, snapshot: &str) -> Result<PathBuf, VolumeError> {
        Ok(beside(&self.snapshot_path(snapshot)?))
    }

    /// A file that memory is written to. Dropped, it leaves nothing behind.
    pub fn stage_memory(&self, snapshot: &str) -> Result<Staged, VolumeError> {
        let path = self.memory_path(snapshot)?;
        Staged::new(&self.tmp(), snapshot).map_err(VolumeError::io("make", &path))
    }

    /// Keeps the memory for a snapshot that is about to be kept.
    pub fn keep_memory(&self, snapshot: &str, staged: Staged) -> Result<(), VolumeError> {
        let path = self.memory_path(snapshot)?;
        staged.replace(&path).map_err(VolumeError::io("make", &path))
    }
}

pub(crate) fn beside(snapshot: &Path) -> PathBuf {
    snapshot.with_extension("memory")
}

/// What it takes up.
pub(crate) fn allocated(snapshot: &Path) -> u64 {
    fs::symlink_metadata(beside(snapshot)).map_or(0, |found| found.blocks() * 512)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::pool::tests::Place;

    #[test]
    fn memory_counts_as_a_part_of_its_snapshot_and_goes_with_it() {
        let place = Place::new();
        let pool = place.pool(400);
        let volume = pool.create("pvc", 4 << 20).unwrap();
        let staged = pool.stage_memory("snapshot-1").unwrap();
        staged.file().write_all(&vec![7; 1 << 20]).unwrap();
        pool.keep_memory("snapshot-1", staged).unwrap();
        drop(pool.stage_memory("snapshot-2").unwrap());
        let shot = pool.prepare_snapshot("snapshot-1", &volume.path).unwrap();
        assert!(shot.share().unwrap());
        let kept = shot.keep().unwrap();
        assert!(kept.allocated_bytes >= 1 << 20, "{kept:?}");
        assert_eq!(pool.snapshots().unwrap(), [kept]);
        pool.delete_snapshot("snapshot-1").unwrap();
        assert!(!pool.memory_path("snapshot-1").unwrap().exists());
        assert!(fs::read_dir(pool.tmp()).unwrap().next().is_none());
    }
}
