//! With real loop devices, which stand for disks here.

use std::fs::OpenOptions;
use std::time::Duration;

use super::*;
use crate::pool::tests::eventually;
use crate::{Pool, PoolError, command};

/// A loop device over a file, until the end of the test.
struct Disk {
    dir: tempfile::TempDir,
    path: PathBuf,
}

impl Disk {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("disk");
        OpenOptions::new().write(true).create_new(true).open(&file).unwrap().set_len(400 << 20).unwrap();
        let arguments = [Path::new("--find"), Path::new("--show"), &file];
        let path = command::run("losetup", arguments, Duration::from_mins(1)).unwrap();
        Self { dir, path: PathBuf::from(path) }
    }

    fn pool(&self, id: &str, overwrite: bool) -> Result<Pool, PoolError> {
        Pool::open_device(id, &self.path, &self.dir.path().join("mounted"), overwrite)
    }
}

/// Another test's child process has everything open for a moment, until it is its own program.
fn close(pool: &Pool) {
    eventually("nothing uses the pool", || pool.clone().close().is_ok());
}

impl Drop for Disk {
    fn drop(&mut self) {
        let mounted = self.dir.path().join("mounted");
        if mounted.exists() {
            let limit = Duration::from_mins(1);
            eventually("nothing uses the disk", || {
                crate::mounts::at(&mounted).unwrap().is_none() || command::run("umount", [&mounted], limit).is_ok()
            });
        }
        let _ = command::run("losetup", [Path::new("-d"), &self.path], Duration::from_mins(1));
    }
}

#[test]
fn the_hosts_disks_are_listed_with_what_uses_them() {
    let found = devices().unwrap();
    for device in &found {
        assert!(device.size_bytes > 0 && device.path.exists(), "{device:?}");
        assert!(!device.name.starts_with("loop"));
    }
    let root = mounts().unwrap().into_iter().find(|mount| mount.at == Path::new("/")).unwrap();
    if let Some(device) = found.iter().find(|device| (device.major, device.minor) == (root.major, root.minor)) {
        assert!(device.is_used());
        assert!(device.signature.is_some(), "{device:?}");
    }
}

#[test]
fn a_blank_disk_becomes_a_pool_and_is_found_again() {
    let disk = Disk::new();
    let found = inspect(&disk.path).unwrap();
    assert_eq!((found.size_bytes, found.signature, found.kind), (400 << 20, None, DeviceKind::Disk));
    let pool = disk.pool("first", false).unwrap();
    assert_eq!(*pool.cloning(), crate::Cloning::Reflinks);
    pool.create("kept", 1 << 20).unwrap();
    let found = inspect(&disk.path).unwrap();
    assert!(found.is_used());
    assert!(
        matches!(found.signature, Some(Signature::FileSystem { kind, uuid, .. }) if kind == "xfs" && uuid.len() == 36)
    );
    assert_eq!(disk.pool("first", false).unwrap().volumes().unwrap().len(), 1, "still mounted");
    close(&pool);
    let again = disk.pool("first", true).unwrap();
    assert_eq!(again.volumes().unwrap().len(), 1, "overwriting is for what is not ours");
    let open = File::open(again.volume("kept").unwrap().path).unwrap();
    assert!(matches!(again.clone().close(), Err(PoolError::InUse { .. })));
    drop(open);
    close(&again);
}

#[test]
fn a_disk_with_content_is_overwritten_only_when_asked() {
    let disk = Disk::new();
    close(&disk.pool("somebody-elses", false).unwrap());
    let error = disk.pool("ours", false).unwrap_err();
    assert!(matches!(error, PoolError::NotBlank { .. }), "{error}");
    assert!(!inspect(&disk.path).unwrap().is_used(), "it is not left mounted");
    disk.pool("ours", true).unwrap();
    let other = tempfile::tempdir().unwrap();
    let error = Pool::open_device("third", &disk.path, &other.path().join("x"), true).unwrap_err();
    assert!(matches!(error, PoolError::InUse { .. }), "{error}");
}

#[test]
fn what_is_no_device_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "x").unwrap();
    assert!(matches!(inspect(&file), Err(DeviceError::NotADevice(_))));
    assert!(matches!(inspect(Path::new("/dev/null")), Err(DeviceError::NotADevice(_))));
    assert!(matches!(inspect(Path::new("/dev/none")), Err(DeviceError::Describe { .. })));
}
