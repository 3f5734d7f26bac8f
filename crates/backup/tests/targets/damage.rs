//! A target whose files were damaged, and those who are interrupted.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use croft_backup::{
    BackupRequest, Base, Changes, Compression, Damage, Directory, Error, Extent, Progress, Target, Transfer,
};
use tokio_util::sync::CancellationToken;

use crate::stage::{self, BLOCK, Disk, assert_restores, back_up, blocks_in, files_in, request, store};

#[tokio::test]
async fn damaged_blocks_are_named_and_a_later_backup_replaces_lost_ones() {
    for compression in [Compression::Lz4, Compression::Gzip, Compression::None] {
        let dir = stage::dir();
        let root = dir.path().join("target");
        fs::create_dir(&root).unwrap();
        let store = store(Arc::new(Directory::new(&root)));
        let disk = Disk::new(dir.path().join("disk"), 5);
        let first = BackupRequest { compression, ..request(&disk.path, "pvc-1", "backup-1") };
        store.write(&first).await.unwrap();
        let config = store.backup("pvc-1", "backup-1").await.unwrap().unwrap();
        let block = |offset: usize| {
            let mapping = config.blocks.iter().find(|block| block.offset == offset as u64).unwrap();
            let name = mapping.block_checksum.to_string();
            blocks_in(&root).into_iter().find(|path| path.to_string_lossy().contains(&name)).unwrap()
        };
        let (missing, truncated, corrupted) = (block(0), block(BLOCK), block(2 * BLOCK));
        fs::remove_file(&missing).unwrap();
        let stored = fs::read(&truncated).unwrap();
        fs::write(&truncated, &stored[..stored.len() / 2]).unwrap();
        let mut stored = fs::read(&corrupted).unwrap();
        let middle = stored.len() / 2;
        stored[middle] ^= 0x40;
        fs::write(&corrupted, stored).unwrap();

        let opened = store.open("pvc-1", "backup-1", None).await.unwrap();
        let verified = opened.verify(&Transfer::default()).await.unwrap();
        let named: Vec<_> = verified.named.iter().map(|bad| (bad.offset, bad.damage)).collect();
        let at = |index: usize| (index * BLOCK) as u64;
        assert_eq!(
            named,
            [(0, Damage::Missing), (at(1), Damage::Truncated), (at(2), Damage::Corrupted)],
            "{compression:?}"
        );
        let one_at_a_time = Transfer { parallel: 1, ..Transfer::default() };
        let refused = opened.restore(&dir.path().join("restored"), Base::Nothing, &one_at_a_time).await.unwrap_err();
        assert!(matches!(refused, Error::MissingBlock { offset: 0, .. }), "{refused}");
        assert!(matches!(opened.read_at(at(1), 1).await, Err(Error::BadBlock { .. })));
        opened.close().await;

        fs::remove_file(truncated).unwrap();
        fs::remove_file(corrupted).unwrap();
        let changes = Changes::Since { backup: "backup-1".into(), extents: vec![] };
        let healed = store.write(&BackupRequest { changes, ..request(&disk.path, "pvc-1", "backup-2") }).await.unwrap();
        assert_eq!(healed.new_blocks, 3, "{compression:?}: what was lost is sent again, and nothing else");
        assert_restores(&store, "pvc-1", "backup-2", None, &disk.content).await;
        assert_restores(&store, "pvc-1", "backup-1", None, &disk.content).await;
    }
}

#[tokio::test]
async fn what_is_cancelled_leaves_no_backup_and_goes_on_later() {
    let dir = stage::dir();
    let root = dir.path().join("target");
    fs::create_dir(&root).unwrap();
    let store = store(Arc::new(Directory::new(&root)));
    let disk = Disk::new(dir.path().join("disk"), 6);
    let cancel = CancellationToken::new();
    let (token, seen) = (cancel.clone(), Arc::new(parking_lot::Mutex::new(Vec::new())));
    let told = seen.clone();
    let progress = Arc::new(move |progress: Progress| {
        told.lock().push(progress);
        if progress.done >= 2 * BLOCK as u64 {
            token.cancel();
        }
    });
    let transfer = Transfer { parallel: 1, progress: Some(progress), cancel, ..Transfer::default() };
    let first = BackupRequest { transfer, ..request(&disk.path, "pvc-1", "backup-1") };
    assert!(matches!(store.write(&first).await, Err(Error::Cancelled)));
    let seen = seen.lock().clone();
    assert!(seen.len() >= 3 && seen.is_sorted_by_key(|progress| progress.done), "{seen:?}");
    assert!(seen.iter().all(|progress| progress.total > progress.done), "{seen:?}");
    assert!(store.backups("pvc-1").await.unwrap().is_empty(), "nothing says that it is under way");
    assert!(blocks_in(&root).len() >= 2);
    let rest = back_up(&store, &disk, "pvc-1", "backup-1").await;
    assert!(rest.new_blocks <= 4, "{rest:?}");
    assert_restores(&store, "pvc-1", "backup-1", None, &disk.content).await;
}

#[tokio::test]
async fn what_others_left_is_cleaned_up_but_not_what_they_may_need() {
    let dir = stage::dir();
    let root = dir.path().join("target");
    fs::create_dir(&root).unwrap();
    let target = Directory::new(&root);
    let store = store(Arc::new(target.clone()));
    let disk = Disk::new(dir.path().join("disk"), 7);
    back_up(&store, &disk, "pvc-1", "backup-1").await;
    back_up(&store, &Disk::new(dir.path().join("other"), 8), "pvc-1", "backup-2").await;
    let volume = files_in(&root).into_iter().find(|path| path.ends_with("volume.cfg")).unwrap();
    let volume = volume.parent().unwrap().strip_prefix(&root).unwrap().to_str().unwrap().to_owned();

    // Longhorn says so, and may still be at work.
    let under_way = r#"{"Name":"backup-9","VolumeName":"pvc-1","CreatedTime":"","CompressionMethod":"lz4"}"#;
    let path = format!("{volume}/backups/backup_backup-9.cfg");
    target.put(&path, under_way.into()).await.unwrap();
    let half = format!("{volume}/blocks/ab/cd/abcd.blk.tmp.12345");
    target.put(&half, "half a block".into()).await.unwrap();
    let freed = store.delete_backup("pvc-1", "backup-2").await.unwrap();
    assert!(freed.is_partial && freed.blocks == 0 && freed.unfinished == 1, "{freed:?}");
    assert_restores(&store, "pvc-1", "backup-1", None, &disk.content).await;

    let old = std::time::Duration::from_hours(25);
    let file = fs::File::options().write(true).open(root.join(&path)).unwrap();
    file.set_modified(file.metadata().unwrap().modified().unwrap() - old).unwrap();
    let freed = store.clean_up("pvc-1").await.unwrap();
    assert_eq!((freed.abandoned, freed.is_partial), (1, false));
    assert!(freed.blocks >= 4, "{freed:?}");
    assert_restores(&store, "pvc-1", "backup-1", None, &disk.content).await;
    assert!(files_in(&root).iter().all(|path| !path.to_string_lossy().contains(".tmp.")));
}

#[tokio::test]
async fn what_is_no_disk_is_refused() {
    let dir = stage::dir();
    let target = Directory::new(dir.path());
    let store = store(Arc::new(target.clone()));
    let disk = Disk::new(dir.path().join("disk"), 9);
    back_up(&store, &disk, "pvc-1", "backup-1").await;
    let path = files_in(dir.path()).into_iter().find(|path| path.ends_with("backup_backup-1.cfg")).unwrap();
    let config = fs::read_to_string(&path).unwrap();
    for (from, to) in [
        (r#""Offset":0,"#, r#""Offset":1,"#),
        (r#""Offset":0,"#, r#""Offset":2097152,"#),
        (r#""Offset":0,"#, r#""Offset":9223372036854775808,"#),
        (r#""CompressionMethod":"lz4""#, r#""CompressionMethod":"zstd""#),
        (r#""Parameters":null"#, r#""Parameters":{"backup-block-size":"7"}"#),
        ("{", "["),
    ] {
        let changed = config.replacen(from, to, 1);
        assert_ne!(changed, config, "{from}");
        fs::write(&path, changed).unwrap();
        assert!(store.open("pvc-1", "backup-1", None).await.is_err(), "{to}");
    }
    fs::write(&path, config).unwrap();
    for (volume, backup) in [("pvc-1", "backup-2"), ("pvc-2", "backup-1"), ("../x", "backup-1"), ("pvc-1", "..")] {
        assert!(store.open(volume, backup, None).await.is_err(), "{volume} {backup}");
    }
    let other = BackupRequest { snapshot: "another".into(), ..request(&disk.path, "pvc-1", "backup-1") };
    assert!(matches!(store.write(&other).await, Err(Error::Exists { .. })));
    let locks = files_in(dir.path()).into_iter().filter(|path| path.extension().is_some_and(|it| it == "lck"));
    assert_eq!(locks.count(), 0, "a lock was left");
}

#[tokio::test]
async fn a_disk_may_grow_and_shrink_between_backups() {
    let dir = stage::dir();
    let store = store(Arc::new(Directory::new(dir.path())));
    let mut disk = Disk::new(dir.path().join("disk"), 10);
    back_up(&store, &disk, "pvc-1", "backup-1").await;
    let first = disk.content.clone();
    for (index, size) in [13 * BLOCK, 2 * BLOCK + 100].into_iter().enumerate() {
        disk.content.resize(size, 0);
        fs::File::options().write(true).open(&disk.path).unwrap().set_len(size as u64).unwrap();
        let tail = Extent { offset: size as u64 - 10, length: 10 };
        let changes = Changes::Since { backup: format!("backup-{}", index + 1), extents: vec![tail] };
        let name = format!("backup-{}", index + 2);
        let written = store.write(&BackupRequest { changes, ..request(&disk.path, "pvc-1", &name) }).await.unwrap();
        assert!(written.is_incremental);
        assert_restores(&store, "pvc-1", &name, None, &disk.content).await;
    }
    assert_restores(&store, "pvc-1", "backup-1", None, &first).await;
}

#[tokio::test]
async fn a_restored_disk_has_holes() {
    let dir = stage::dir();
    let store = store(Arc::new(Directory::new(dir.path())));
    let disk = Disk::new(dir.path().join("disk"), 11);
    back_up(&store, &disk, "pvc-1", "backup-1").await;
    let opened = store.open("pvc-1", "backup-1", None).await.unwrap();
    let restored = dir.path().join("restored");
    opened.restore(&restored, Base::Nothing, &Transfer::default()).await.unwrap();
    opened.close().await;
    let space = |path: &Path| fs::metadata(path).unwrap().blocks() * 512;
    assert!(space(&restored) <= space(&disk.path), "{} of {}", space(&restored), space(&disk.path));
}
