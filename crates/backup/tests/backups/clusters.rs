//! Two clusters on one target, who know nothing of each other but the locks.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use croft_backup::{BackupRequest, BackupStore, Directory, Error, Freed, Owner, Transfer};

use crate::stage::{self, BLOCK, Random, request};

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
    while begun.elapsed() < Duration::from_secs(8) || done.0 == 0 {
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
        tokio::time::sleep(Duration::from_millis(random.below(50))).await;
    }
    done
}
