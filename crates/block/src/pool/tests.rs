//! With real file systems: these need the rights to mount.

use std::os::unix::fs::{FileExt, MetadataExt};

use super::*;

/// A directory whose pool is unmounted in the end.
pub(crate) struct Place(pub(crate) tempfile::TempDir);

impl Place {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn dir(&self) -> PathBuf {
        self.0.path().canonicalize().unwrap().join("pool")
    }

    pub(crate) fn pool(&self, size_mib: u64) -> Pool {
        Pool::open("default", &self.dir(), &sized(size_mib)).unwrap()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // Another test's child process has everything open for a moment, until it is its own program.
        eventually("nothing uses the pool", || disk::unmount(&self.dir()).is_ok());
    }
}

fn sized(mib: u64) -> Options {
    Options { loop_size_bytes: Some(mib << 20), is_plain: false }
}

fn allocated(path: &Path) -> u64 {
    fs::metadata(path).unwrap().blocks() * 512
}

#[test]
fn a_pool_makes_its_file_system_and_finds_it_again() {
    let place = Place::new();
    let pool = place.pool(400);
    assert_eq!(*pool.cloning(), Cloning::Reflinks);
    let file = place.0.path().canonicalize().unwrap().join("pool.img");
    assert_eq!(*pool.backing(), Backing::LoopFile(file.clone()));
    assert!(allocated(&file) < 100 << 20, "the file is sparse");
    pool.create("kept", 1 << 20).unwrap();
    fs::write(pool.tmp().join("half"), "made").unwrap();

    let again = place.pool(400);
    assert_eq!(again.backing(), pool.backing(), "still mounted, as after a restart of the process");
    assert_eq!(again.volumes().unwrap().len(), 1);
    assert_eq!(fs::read_dir(again.tmp()).unwrap().count(), 0, "what was half made is cleared");

    eventually("nothing uses the pool", || again.clone().close().is_ok());
    assert!(is_mounted(&place.dir()).unwrap().is_none());
    let rebooted = place.pool(400);
    assert_eq!(rebooted.volumes().unwrap()[0].name, "kept", "mounted again, as after a restart of the host");
}

#[test]
fn a_loop_file_grows_with_what_it_may_have() {
    let place = Place::new();
    let before = place.pool(400).usage().unwrap();
    let after = place.pool(800).usage().unwrap();
    assert!(after.capacity_bytes > before.capacity_bytes + (300 << 20), "{before:?} {after:?}");
    assert!(after.free_bytes > before.free_bytes + (300 << 20));
    let smaller = place.pool(400).usage().unwrap();
    assert_eq!(smaller.capacity_bytes, after.capacity_bytes, "it never shrinks");
}

#[test]
fn what_is_deleted_goes_back_to_the_host() {
    let place = Place::new();
    let pool = place.pool(600);
    let Backing::LoopFile(file) = pool.backing().clone() else { panic!("{pool:?}") };
    sync(pool.dir()).unwrap();
    let empty = allocated(&file);
    let volume = pool.create("filled", 200 << 20).unwrap();
    let open = OpenOptions::new().write(true).open(&volume.path).unwrap();
    for mib in 0..200 {
        open.write_all_at(&vec![0xa5; 1 << 20], mib << 20).unwrap();
    }
    open.sync_all().unwrap();
    let full = allocated(&file);
    assert!(full > empty + (190 << 20), "{empty} {full}");

    // As a guest's discard does.
    let flags = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&open, flags, 0, 100 << 20).unwrap();
    open.sync_all().unwrap();
    assert!(pool.volume("filled").unwrap().allocated_bytes <= 101 << 20);
    falls_to(&file, &pool, full - (90 << 20));
    drop(open);
    pool.delete("filled").unwrap();
    falls_to(&file, &pool, empty + (20 << 20));
}

/// Freed extents are discarded in the background.
fn falls_to(file: &Path, pool: &Pool, most: u64) {
    eventually("the host has its space back", || {
        sync(pool.dir()).unwrap();
        allocated(file) <= most
    });
}

#[expect(clippy::disallowed_methods, reason = "this is how it waits for the condition")]
pub(crate) fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = std::time::Instant::now() + std::time::Duration::from_mins(1);
    while !is_so() {
        assert!(std::time::Instant::now() < deadline, "never: {what}");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

#[test]
fn without_a_file_system_of_its_own_a_pool_copies_and_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { is_plain: true, ..Options::default() };
    let pool = Pool::open("default", &dir.path().join("pool"), &options).unwrap();
    if let Cloning::Copies(reason) = pool.cloning() {
        assert!(reason.contains("no reflinks"), "{reason}");
    }
    pool.create("volume", 1 << 20).unwrap();
    // Too small to be made: the same, with that reason.
    let other = tempfile::tempdir().unwrap();
    let pool = Pool::open("default", &other.path().join("pool"), &sized(10)).unwrap();
    if let Cloning::Copies(reason) = pool.cloning() {
        assert!(reason.contains("too little"), "{reason}");
    }
    assert_eq!(fs::read_dir(other.path()).unwrap().count(), 1, "no file is left beside it");
    // What is stored there is not hidden by a mount later on.
    pool.create("volume", 1 << 20).unwrap();
    let pool = Pool::open("default", &other.path().join("pool"), &sized(400)).unwrap();
    assert_eq!(pool.volumes().unwrap().len(), 1);
}

#[test]
fn a_file_system_that_was_not_finished_is_made_anew_or_completed() {
    let place = Place::new();
    let unfinished = place.dir().with_file_name("pool.img.tmp");
    fs::write(&unfinished, "not a file system").unwrap();
    let pool = place.pool(400);
    assert_eq!(*pool.cloning(), Cloning::Reflinks);
    assert!(!unfinished.exists());
    // Ended between the mount and the name.
    let file = place.dir().with_file_name("pool.img");
    fs::rename(&file, &unfinished).unwrap();
    let pool = place.pool(400);
    assert_eq!(*pool.backing(), Backing::LoopFile(file.clone()));
    assert!(file.exists() && !unfinished.exists());
}

#[test]
fn a_file_system_that_cannot_be_mounted_is_an_error_and_not_an_empty_pool() {
    let place = Place::new();
    fs::write(place.dir().with_file_name("pool.img"), vec![7; 1 << 20]).unwrap();
    let error = Pool::open("default", &place.dir(), &sized(400)).unwrap_err();
    assert!(matches!(error, PoolError::Mount { .. }), "{error}");
}

#[test]
fn another_pool_is_not_taken_for_ours() {
    let place = Place::new();
    place.pool(400);
    let error = Pool::open("other", &place.dir(), &sized(400)).unwrap_err();
    assert!(matches!(error, PoolError::OtherPool { .. }), "{error}");
}
