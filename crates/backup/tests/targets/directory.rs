//! A directory as a target.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use croft_backup::{Base, Directory, Error, Fault, Transfer, target};

use crate::stage::{self, Disk, again, assert_restores, back_up, blocks_in, request, store};
use crate::whole::everything;

#[tokio::test]
async fn everything_works_in_a_directory() {
    let dir = tempfile::tempdir().unwrap();
    everything(Arc::new(Directory::new(dir.path()))).await;
}

/// A file as a block device, until it is dropped.
struct Loop(String);

impl Loop {
    fn over(path: &Path) -> Self {
        let out = Command::new("losetup").args(["--find", "--show"]).arg(path).output().unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        Self(String::from_utf8(out.stdout).unwrap().trim().to_owned())
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.0]).status();
    }
}

#[tokio::test]
async fn a_device_is_backed_up_and_restored_to() {
    let dir = stage::dir();
    let root = dir.path().join("target");
    std::fs::create_dir(&root).unwrap();
    let store = store(Arc::new(Directory::new(&root)));
    let disk = Disk::new(dir.path().join("disk"), 21);
    let source = Loop::over(&disk.path);
    store.write(&request(Path::new(&source.0), "pvc-1", "backup-1")).await.unwrap();
    assert_restores(&store, "pvc-1", "backup-1", None, &disk.content).await;

    // It has something else in it everywhere, and is larger.
    let larger = dir.path().join("larger");
    let size = disk.content.len() + 4096;
    std::fs::write(&larger, vec![0xee; size]).unwrap();
    let device = Loop::over(&larger);
    let opened = store.open("pvc-1", "backup-1", None).await.unwrap();
    opened.restore(Path::new(&device.0), Base::Nothing, &Transfer::default()).await.unwrap();
    drop(device);
    let restored = std::fs::read(&larger).unwrap();
    assert!(restored[..disk.content.len()] == disk.content, "what was there shows through");

    let smaller = dir.path().join("smaller");
    std::fs::write(&smaller, vec![0; 1 << 20]).unwrap();
    let device = Loop::over(&smaller);
    let refused = opened.restore(Path::new(&device.0), Base::Nothing, &Transfer::default()).await.unwrap_err();
    assert!(matches!(refused, Error::File { .. }), "{refused}");
    opened.close().await;
}

const INSIDE: &str = "CROFT_BACKUP_TEST_MOUNTS";

/// Mounts need a namespace, so that nothing of them is left.
#[tokio::test]
async fn a_directory_may_be_read_only_full_or_gone() {
    if std::env::var_os(INSIDE).is_none() {
        let mut command = again(&["unshare", "--mount"], "directory::a_directory_may_be_read_only_full_or_gone");
        assert!(command.env(INSIDE, "1").status().unwrap().success());
        return;
    }
    let dir = stage::dir();
    let root = dir.path().join("target");
    std::fs::create_dir(&root).unwrap();
    let mount = |arguments: &[&str]| {
        assert!(Command::new("mount").args(arguments).arg(&root).status().unwrap().success());
    };
    let target = Arc::new(Directory::new(&root));
    let store = store(target.clone()).with_patience(Duration::ZERO);
    let disk = Disk::new(dir.path().join("disk"), 20);

    mount(&["-t", "tmpfs", "-o", "size=4m", "tmpfs"]);
    target::check(target.as_ref()).await.unwrap();
    let full = store.write(&request(&disk.path, "pvc-1", "backup-1")).await.unwrap_err();
    assert_eq!(full.fault(), Some(Fault::Full), "{full}");
    assert!(store.backups("pvc-1").await.unwrap().is_empty());

    mount(&["-o", "remount,size=64m", "tmpfs"]);
    let had = blocks_in(&root).len() as u64;
    let written = back_up(&store, &disk, "pvc-1", "backup-1").await;
    assert_eq!(written.new_blocks + had, 6, "what fitted is not sent again");
    assert_restores(&store, "pvc-1", "backup-1", None, &disk.content).await;

    mount(&["-o", "remount,ro", "tmpfs"]);
    let denied = store.write(&request(&disk.path, "pvc-1", "backup-2")).await.unwrap_err();
    assert_eq!(denied.fault(), Some(Fault::Forbidden), "{denied}");
    assert_eq!(target::check(target.as_ref()).await.unwrap_err().fault, Fault::Forbidden);

    assert!(Command::new("umount").arg(&root).status().unwrap().success());
    std::fs::remove_dir(&root).unwrap();
    let gone = store.write(&request(&disk.path, "pvc-1", "backup-2")).await.unwrap_err();
    assert!(matches!(&gone, Error::Target(error) if error.fault == Fault::NoTarget), "{gone}");
}
