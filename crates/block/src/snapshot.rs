//! Snapshots: raw files that are what a volume was at one instant, and never change.
//!
//! What takes time is done before and after that instant. [`Pool::prepare_snapshot`] opens everything, [`Shot::share`] is the
//! instant and a matter of milliseconds, [`Shot::keep`] brings it to the disk and gives it its name. Several disks that
//! belong together are prepared, then shared while nobody writes, then kept.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::durable::{Staged, copy_sparse, reflink};
use crate::memory;
use crate::pool::Pool;
use crate::volume::{VolumeError, file_in, names_in, remove};

/// A snapshot that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    pub name: String,
    pub path: PathBuf,
    pub size_bytes: u64,
    /// What it would take up by itself, with the memory that belongs to it. Extents that it shares with others count for each of them.
    pub allocated_bytes: u64,
    /// In nanoseconds since 1970.
    pub taken_at_ns: i64,
}

/// A snapshot that is about to be taken. Dropped, it leaves nothing behind.
#[derive(Debug)]
pub struct Shot {
    pool: Pool,
    name: String,
    source: File,
    source_path: PathBuf,
    staged: Staged,
}

impl Pool {
    pub(crate) fn snapshot_path(&self, name: &str) -> Result<PathBuf, VolumeError> {
        file_in(&self.snapshots_dir(), name)
    }

    /// Everything but the instant itself. The source is brought to the disk as far as it is written now, and its extents are
    /// shared once for practice: at the instant only those are left that changed since. A disk in ten thousand pieces takes a
    /// quarter of a second the first time, and a few milliseconds the second.
    pub fn prepare_snapshot(&self, name: &str, source: &Path) -> Result<Shot, VolumeError> {
        let path = self.snapshot_path(name)?;
        if path.exists() {
            return Err(VolumeError::Exists(name.to_owned()));
        }
        let file = File::open(source).map_err(VolumeError::io("open", source))?;
        file.sync_data().map_err(VolumeError::io("sync", source))?;
        let staged = Staged::new(&self.tmp(), name).map_err(VolumeError::io("make", &path))?;
        // Whether that is possible here is asked again then.
        reflink(&file, staged.file()).map_err(VolumeError::io("share the extents of", source))?;
        let (pool, name) = (self.clone(), name.to_owned());
        Ok(Shot { pool, name, source: file, source_path: source.to_owned(), staged })
    }

    pub fn snapshot(&self, name: &str) -> Result<Snapshot, VolumeError> {
        let path = self.snapshot_path(name)?;
        match fs::symlink_metadata(&path) {
            Ok(found) if found.is_file() => Ok(Snapshot {
                name: name.to_owned(),
                size_bytes: found.len(),
                allocated_bytes: found.blocks() * 512 + memory::allocated(&path),
                taken_at_ns: found.mtime().saturating_mul(1_000_000_000).saturating_add(found.mtime_nsec()),
                path,
            }),
            Ok(_) => Err(VolumeError::NoSnapshot(name.to_owned())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(VolumeError::NoSnapshot(name.to_owned())),
            Err(error) => Err(VolumeError::io("measure", &path)(error)),
        }
    }

    /// In the order of their names.
    pub fn snapshots(&self) -> Result<Vec<Snapshot>, VolumeError> {
        let mut found = Vec::new();
        for name in names_in(&self.snapshots_dir())? {
            match self.snapshot(&name) {
                Ok(snapshot) => found.push(snapshot),
                // Deleted in the meantime, or nothing of ours.
                Err(VolumeError::NoSnapshot(_) | VolumeError::BadName(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    }

    /// One that is gone already is no error. Memory that belongs to it goes first, since nobody would find it by itself.
    pub fn delete_snapshot(&self, name: &str) -> Result<(), VolumeError> {
        let path = self.snapshot_path(name)?;
        remove(&memory::beside(&path))?;
        remove(&path)
    }
}

impl Shot {
    /// The instant: what was written to the source before is in, what is written after is not. `false` if the file system
    /// cannot; [`Shot::copy`] can, but is no instant.
    pub fn share(&self) -> Result<bool, VolumeError> {
        let failed = VolumeError::io("share the extents of", &self.source_path);
        reflink(&self.source, self.staged.file()).map_err(failed)
    }

    /// For a source that nobody writes meanwhile.
    pub fn copy(&self) -> Result<(), VolumeError> {
        copy_sparse(&self.source, self.staged.file()).map_err(VolumeError::io("copy", &self.source_path))
    }

    /// Brings it to the disk, and gives it its name.
    pub fn keep(self) -> Result<Snapshot, VolumeError> {
        let path = self.pool.snapshot_path(&self.name)?;
        let failed = VolumeError::io("protect", self.staged.path());
        self.staged.file().set_permissions(Permissions::from_mode(0o400)).map_err(failed)?;
        match self.staged.publish(&path) {
            Ok(()) => self.pool.snapshot(&self.name),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(VolumeError::Exists(self.name)),
            Err(error) => Err(VolumeError::io("make", &path)(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::os::unix::fs::FileExt;

    use super::*;
    use crate::Options;
    use crate::pool::tests::Place;

    fn write(path: &Path, text: &[u8], offset: u64) {
        OpenOptions::new().write(true).open(path).unwrap().write_all_at(text, offset).unwrap();
    }

    #[test]
    fn a_snapshot_is_its_own_and_outlives_its_volume() {
        let place = Place::new();
        let dir = tempfile::tempdir().unwrap();
        let options = Options { is_plain: true, ..Options::default() };
        let copying = Pool::open("default", &dir.path().join("pool"), &options).unwrap();
        for pool in [place.pool(400), copying] {
            let volume = pool.create("pvc", 4 << 20).unwrap();
            write(&volume.path, b"first", 1 << 20);
            let shot = pool.prepare_snapshot("one", &volume.path).unwrap();
            if !shot.share().unwrap() {
                shot.copy().unwrap();
            }
            write(&volume.path, b"later", 1 << 20);
            let taken = shot.keep().unwrap();
            assert_eq!((taken.size_bytes, taken.name.as_str()), (4 << 20, "one"));
            assert!(matches!(pool.prepare_snapshot("one", &volume.path), Err(VolumeError::Exists(_))));
            pool.delete("pvc").unwrap();
            let mut read = [0; 5];
            File::open(&taken.path).unwrap().read_exact_at(&mut read, 1 << 20).unwrap();
            assert_eq!(&read, b"first");
            assert_eq!(pool.snapshots().unwrap(), [taken]);
            pool.delete_snapshot("one").unwrap();
            pool.delete_snapshot("one").unwrap();
            assert!(matches!(pool.snapshot("one"), Err(VolumeError::NoSnapshot(_))));
        }
    }

    #[test]
    fn what_happens_after_the_preparation_is_in_it() {
        use rustix::fs::{FallocateFlags, fallocate};
        let place = Place::new();
        let pool = place.pool(400);
        let volume = pool.create("pvc", 4 << 20).unwrap();
        for at in 0..4 {
            write(&volume.path, &vec![1; 1 << 16], at << 20);
        }
        let shot = pool.prepare_snapshot("one", &volume.path).unwrap();
        write(&volume.path, b"changed", 1 << 20);
        write(&volume.path, b"new", (2 << 20) + (1 << 19));
        let file = OpenOptions::new().write(true).open(&volume.path).unwrap();
        fallocate(&file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 3 << 20, 1 << 16).unwrap();
        assert!(shot.share().unwrap());
        let expected = fs::read(&volume.path).unwrap();
        write(&volume.path, b"later", 0);
        let taken = shot.keep().unwrap();
        assert!(fs::read(taken.path).unwrap() == expected);
    }

    #[test]
    fn what_is_not_kept_leaves_nothing() {
        let place = Place::new();
        let pool = place.pool(400);
        let volume = pool.create("pvc", 4 << 20).unwrap();
        drop(pool.prepare_snapshot("one", &volume.path).unwrap());
        assert_eq!(fs::read_dir(pool.tmp()).unwrap().count(), 0);
        assert!(pool.snapshots().unwrap().is_empty());
        for name in ["", "../pvc", "a/b"] {
            assert!(matches!(pool.prepare_snapshot(name, &volume.path), Err(VolumeError::BadName(_))), "{name:?}");
        }
        assert!(pool.prepare_snapshot("one", &pool.dir().join("none")).is_err());
    }
}
