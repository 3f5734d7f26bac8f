//! How much memory a backup takes, whatever the disk's size.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use croft_backup::{BackupRequest, Base, Directory, Transfer};

use crate::stage::{self, BLOCK, again, request, store};

const INSIDE: &str = "CROFT_BACKUP_TEST_MEMORY";
const LIMIT_KIB: u64 = 200 << 10;

/// In a process of its own, since the peak is the process's.
#[tokio::test(flavor = "multi_thread")]
async fn memory_is_bounded() {
    if std::env::var_os(INSIDE).is_none() {
        assert!(again(&[], "memory::memory_is_bounded").env(INSIDE, "1").status().unwrap().success());
        return;
    }
    let dir = stage::dir();
    let root = dir.path().join("target");
    std::fs::create_dir(&root).unwrap();
    let disk = dir.path().join("disk");
    let file = File::create(&disk).unwrap();
    // A terabyte that is mostly holes, with 200 different blocks in it.
    file.set_len(1 << 40).unwrap();
    let mut block = vec![0; BLOCK];
    for index in 0..200_u64 {
        block[..8].copy_from_slice(&(index + 1).to_le_bytes());
        file.write_all_at(&block[..4096], index * (5 << 30)).unwrap();
    }
    let store = store(Arc::new(Directory::new(&root)));
    let transfer = Transfer { parallel: 1000, ..Transfer::default() };
    let first = BackupRequest { transfer: transfer.clone(), ..request(&disk, "pvc-1", "backup-1") };
    assert_eq!(store.write(&first).await.unwrap().new_blocks, 200);
    let opened = store.open("pvc-1", "backup-1", None).await.unwrap();
    opened.restore(&dir.path().join("restored"), Base::Nothing, &transfer).await.unwrap();
    assert!(opened.verify(&transfer).await.unwrap().is_sound());
    opened.close().await;
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let peak: u64 = peak.trim().strip_suffix(" kB").unwrap().parse().unwrap();
    println!("peak {peak} KiB");
    assert!(peak < LIMIT_KIB, "{peak} KiB");
}
