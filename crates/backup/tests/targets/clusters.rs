//! Two clusters on one target, who know nothing of each other but the locks.

use std::num::NonZeroU64;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use croft_backup::{BackupRequest, BackupStore, Directory, Entry, Error, Freed, Owner, Target, TargetError, Transfer};
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use tokio::sync::Notify;

use crate::stage::{self, BLOCK, Random, files_in, request};

const VOLUME: &str = "pvc-shared";

#[tokio::test(flavor = "multi_thread")]
async fn two_clusters_do_not_take_each_others_blocks() {
    let dir = stage::dir();
    let root = dir.path().join("target");
    std::fs::create_dir(&root).unwrap();
    let store = |owner: &str| BackupStore::new(Arc::new(Directory::new(&root)), Owner::new(owner).unwrap());
    let one = work(store("cluster-1"), dir.path().join("disk-1"), 1);
    let other = work(store("cluster-2"), dir.path().join("disk-2"), 2);
    let (one, other) = tokio::join!(one, other);
    assert!(one.0 > 0 && other.0 > 0, "neither came to anything: {one:?} {other:?}");
    assert!(one.1 + other.1 > 0, "nothing was deleted: {one:?} {other:?}");

    let store = store("cluster-3");
    for backup in store.backups(VOLUME).await.unwrap() {
        let opened = store.open(VOLUME, &backup, None).await.unwrap();
        let verified = opened.verify(&Transfer::default()).await.unwrap();
        assert!(verified.is_sound(), "{backup}: {verified:?}");
        opened.close().await;
    }
    let freed = store.clean_up(VOLUME).await.unwrap();
    assert_eq!((freed.unfinished, freed.abandoned, freed.is_partial), (0, 0, false), "{freed:?}");
    assert_eq!(store.clean_up(VOLUME).await.unwrap(), Freed::default());
}

/// Backs up and deletes, of few different contents so that what one deletes the other may be about to use. Gives how often each
/// succeeded.
async fn work(store: BackupStore, disk: std::path::PathBuf, seed: u64) -> (u32, u32) {
    let (mut random, mut done) = (Random(seed), (0, 0));
    let begun = tokio::time::Instant::now();
    while begun.elapsed() < Duration::from_secs(8) || done.0 == 0 || done.1 == 0 {
        let backups = store.backups(VOLUME).await.unwrap();
        let result = if backups.len() > 2 && random.below(2) == 0 {
            let which = usize::try_from(random.below(backups.len() as u64)).unwrap();
            store.delete_backup(VOLUME, &backups[which]).await.map(|_| done.1 += 1)
        } else {
            // Two that are new, sent slowly, between two of few that others have too: what is found there at the beginning
            // must be there at the end.
            let mut content = vec![0; 4 * BLOCK];
            for (index, block) in content.chunks_mut(BLOCK).enumerate() {
                block.fill(u8::try_from(1 + random.below(3)).unwrap());
                if index % 3 > 0 {
                    block[..8].copy_from_slice(&random.next().to_le_bytes());
                }
            }
            std::fs::write(&disk, content).unwrap();
            let name = format!("backup-{:016x}", random.next());
            let transfer = Transfer { parallel: 1, bytes_per_second: NonZeroU64::new(30_000), ..Transfer::default() };
            let request = BackupRequest { transfer, ..request(&disk, VOLUME, &name) };
            store.write(&request).await.map(|_| done.0 += 1)
        };
        match result {
            Ok(()) | Err(Error::Locked(..)) => {}
            Err(error) => panic!("{}", croft_meta::Chain(&error)),
        }
        // Nothing can be deleted while the other one writes.
        tokio::time::sleep(Duration::from_millis(random.below(300))).await;
    }
    done
}

/// A target where whoever next writes what is known of a volume is held up.
#[derive(Debug)]
struct Slow {
    directory: Directory,
    is_armed: AtomicBool,
    came: Notify,
    go: Notify,
}

impl Target for Slow {
    fn list<'a>(&'a self, dir: &'a str) -> BoxFuture<'a, Result<Vec<String>, TargetError>> {
        self.directory.list(dir)
    }
    fn walk<'a>(&'a self, dir: &'a str) -> BoxStream<'a, Result<Entry, TargetError>> {
        self.directory.walk(dir)
    }
    fn stat<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Result<Option<Entry>, TargetError>> {
        self.directory.stat(path)
    }
    fn get<'a>(&'a self, path: &'a str, limit: u64) -> BoxFuture<'a, Result<Bytes, TargetError>> {
        self.directory.get(path, limit)
    }
    fn put<'a>(&'a self, path: &'a str, data: Bytes) -> BoxFuture<'a, Result<(), TargetError>> {
        Box::pin(async move {
            if path.ends_with("volume.cfg") && self.is_armed.swap(false, Ordering::Relaxed) {
                self.came.notify_one();
                self.go.notified().await;
            }
            self.directory.put(path, data).await
        })
    }
    fn delete<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Result<(), TargetError>> {
        self.directory.delete(path)
    }
}

/// The first finds the other's backup, and is slow to tell that it is the last one now.
#[tokio::test]
async fn those_who_delete_the_last_two_at_once_leave_nothing() {
    let dir = stage::dir();
    let (root, disk) = (dir.path().join("target"), dir.path().join("disk"));
    std::fs::create_dir(&root).unwrap();
    std::fs::write(&disk, [7; 5000]).unwrap();
    let (directory, is_armed) = (Directory::new(&root), AtomicBool::new(false));
    let target = Arc::new(Slow { directory, is_armed, came: Notify::new(), go: Notify::new() });
    let store = BackupStore::new(target.clone(), Owner::new("one").unwrap());
    for backup in ["backup-1", "backup-2"] {
        store.write(&request(&disk, VOLUME, backup)).await.unwrap();
    }
    target.is_armed.store(true, Ordering::Relaxed);
    let (first, ()) = tokio::join!(store.delete_backup(VOLUME, "backup-2"), async {
        target.came.notified().await;
        store.delete_backup(VOLUME, "backup-1").await.unwrap();
        target.go.notify_one();
    });
    first.unwrap();
    assert_eq!(files_in(&root), Vec::<PathBuf>::new());
}
