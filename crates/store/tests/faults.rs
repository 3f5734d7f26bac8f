//! Full and damaged disks: a clear error, never a panic, and what can go on goes on.

mod rng;

use std::fs::OpenOptions;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use bytes::Bytes;
use croft_meta::Revision;
use croft_store::{Embedded, EmbeddedOptions, Error, Op, Range, Store, Txn, TxnResult, WatchItem};
use futures::StreamExt;
use rng::Rng;

const PAGE: u64 = 4096;

fn open(dir: &Path) -> Result<Arc<Embedded>, Error> {
    Embedded::open(dir, EmbeddedOptions { retention: None, ..EmbeddedOptions::default() })
}

async fn try_put(store: &Embedded, key: &str, value: Vec<u8>) -> Result<TxnResult, Error> {
    let ops = vec![Op::Put { key: key.to_owned(), value: Bytes::from(value), lease: None }];
    store.txn(Txn { compare: vec![], ops }).await
}

fn value(n: u64) -> Vec<u8> {
    vec![u8::try_from(n % 251).unwrap(); 1500]
}

fn key(n: u64) -> String {
    format!("k/{n:05}")
}

/// A small filesystem of its own, gone when dropped.
struct Mount {
    dir: tempfile::TempDir,
    at: PathBuf,
}

impl Mount {
    /// `None` where this process may not mount; the reason is printed.
    fn new(kind: &str) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().join("mount");
        std::fs::create_dir(&at).unwrap();
        let image = dir.path().join("image");
        let mut mount = Command::new("mount");
        if kind == "tmpfs" {
            mount.args(["-t", "tmpfs", "-o", "size=12m", "tmpfs"]);
        } else {
            std::fs::File::create(&image).unwrap().set_len(24 << 20).unwrap();
            let made = Command::new("mkfs.ext4").arg("-q").arg(&image).output();
            if !made.is_ok_and(|output| output.status.success()) {
                eprintln!("{kind}: no mkfs.ext4, not tested");
                return None;
            }
            mount.args(["-o", "loop"]).arg(&image);
        }
        let output = mount.arg(&at).output().unwrap();
        if !output.status.success() {
            eprintln!("{kind}: cannot mount, not tested: {}", String::from_utf8_lossy(&output.stderr));
            return None;
        }
        Some(Self { dir, at })
    }

    /// Takes all the space that is left.
    fn fill(&self) {
        let mut ballast = OpenOptions::new().create(true).append(true).open(self.at.join("ballast")).unwrap();
        for size in [1 << 16, 1 << 12, 1 << 9, 1] {
            while ballast.write_all(&vec![1; size]).is_ok() {}
        }
    }

    fn empty(&self) {
        std::fs::remove_file(self.at.join("ballast")).unwrap();
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.at).status();
        let _ = &self.dir;
    }
}

async fn full_disk(kind: &str) {
    let Some(mount) = Mount::new(kind) else { return };
    let dir = mount.at.join("store");
    let store = open(&dir).unwrap();
    let mut written = 0;
    while written < 50 {
        try_put(&store, &key(written), value(written)).await.unwrap();
        written += 1;
    }
    let start = store.revision().await.unwrap();
    let mut stream = store.watch("", start).await.unwrap();
    mount.fill();
    let refusal = loop {
        match try_put(&store, &key(written), value(written)).await {
            Ok(_) => written += 1,
            Err(err) => break err,
        }
        assert!(written < 20_000, "{kind}: the disk never got full");
    };
    assert!(matches!(&refusal, Error::ReadOnly { reason } if reason.contains("no space left")), "{kind}: {refusal}");
    assert!(store.stats().read_only.is_some());
    // Again, and reads go on.
    assert!(matches!(try_put(&store, "x", vec![0; 100_000]).await, Err(Error::ReadOnly { .. })));
    let all = store.range(Range::default()).await.unwrap();
    assert_eq!(all.records.len() as u64, written, "{kind}");
    assert_eq!(store.revision().await.unwrap().0, written);

    mount.empty();
    let answer = try_put(&store, &key(written), value(written)).await.unwrap();
    assert_eq!(answer, TxnResult::Committed(Revision(written + 1)), "{kind}: no revision was lost or used twice");
    written += 1;
    assert!(store.stats().read_only.is_none());
    // The watch has lived through it.
    let mut last = start;
    while last.0 < written {
        if let WatchItem::Events(events) = stream.next().await.unwrap().unwrap() {
            assert_eq!(events[0].revision, last.next(), "{kind}");
            last = events[0].revision;
        }
    }
    drop(stream);
    store.close().await.unwrap();
    let store = open(&dir).unwrap();
    let all = store.range(Range::default()).await.unwrap();
    assert_eq!(all.records.len() as u64, written, "{kind}");
    assert!((0..written).zip(&all.records).all(|(n, record)| record.value == value(n)));
    store.close().await.unwrap();

    // A full disk at the start is an error or a store that reads, not a panic.
    mount.fill();
    match open(&dir) {
        Ok(store) => assert_eq!(store.range(Range::default()).await.unwrap().records.len() as u64, written),
        Err(err) => assert!(err.to_string().contains("no space left on the disk"), "{kind}: {err}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_tmpfs_makes_the_store_read_only_until_there_is_room() {
    full_disk("tmpfs").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_ext4_makes_the_store_read_only_until_there_is_room() {
    full_disk("ext4").await;
}

const WRITTEN: u64 = 1000;

/// A closed store whose file holds everything.
async fn filled(dir: &Path) -> PathBuf {
    let store = open(dir).unwrap();
    for n in 0..WRITTEN {
        try_put(&store, &key(n), value(n)).await.unwrap();
    }
    store.close().await.unwrap();
    dir.join("store.db")
}

fn overwrite(path: &Path, at: u64, bytes: &[u8]) {
    let mut file = OpenOptions::new().write(true).open(path).unwrap();
    file.seek(SeekFrom::Start(at)).unwrap();
    file.write_all(bytes).unwrap();
}

#[tokio::test]
async fn a_damaged_file_is_refused_with_advice() {
    for (what, at, bytes) in [("header", 0, vec![0x55; 100]), ("first page", 0, vec![0; 4096])] {
        let dir = tempfile::tempdir().unwrap();
        let path = filled(dir.path()).await;
        overwrite(&path, at, &bytes);
        let err = open(dir.path()).map(drop).unwrap_err();
        assert!(matches!(&err, Error::Corrupt { .. }), "{what}: {err:?}");
        assert!(err.to_string().contains("croft state restore"), "{what}: {err}");
    }
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("store.db"), "not a database, by far".repeat(1000)).unwrap();
    assert!(matches!(open(dir.path()), Err(Error::Corrupt { .. })));
    let dir = tempfile::tempdir().unwrap();
    let foreign = rusqlite::Connection::open(dir.path().join("store.db")).unwrap();
    foreign.execute_batch("CREATE TABLE t (x); INSERT INTO t VALUES (1)").unwrap();
    drop(foreign);
    assert!(open(dir.path()).is_err(), "somebody else's database");
}

/// Reads everything; an error is fine, wrong data is not.
async fn is_sound(dir: &Path, what: &str) -> bool {
    let store = match open(dir) {
        Ok(store) => store,
        Err(err) => {
            assert!(matches!(err, Error::Corrupt { .. } | Error::Engine { .. }), "{what}: {err:?}");
            return false;
        }
    };
    let sound = match store.range(Range::default()).await {
        Err(err) => {
            assert!(matches!(err, Error::Corrupt { .. } | Error::Engine { .. }), "{what}: {err:?}");
            let refused = try_put(&store, "x", vec![]).await;
            assert!(matches!(refused, Err(Error::ReadOnly { .. })), "{what}: writes must stop: {refused:?}");
            false
        }
        Ok(all) => {
            for record in &all.records {
                let n: u64 = record.key.trim_start_matches("k/").parse().unwrap();
                assert!(record.value == value(n), "{what}: {} has a wrong value", record.key);
            }
            all.records.len() as u64 == WRITTEN
        }
    };
    // Whatever happens here, it is not a panic.
    let _ = try_put(&store, &key(3), value(3)).await;
    let _ = store.compact(Revision(WRITTEN / 2)).await;
    let _ = store.close().await;
    sound
}

#[tokio::test(flavor = "multi_thread")]
async fn random_damage_never_yields_wrong_data_or_a_panic() {
    let seed = Rng::seed("CROFT_FAULT_SEED");
    println!("CROFT_FAULT_SEED={seed}");
    let mut rng = Rng::new(seed);
    let good = tempfile::tempdir().unwrap();
    let path = filled(good.path()).await;
    let pages = std::fs::metadata(&path).unwrap().len() / PAGE;
    let mut noticed = 0;
    for round in 0..40 {
        let dir = tempfile::tempdir().unwrap();
        let copy = dir.path().join("store.db");
        std::fs::copy(&path, &copy).unwrap();
        let page = 1 + rng.below(pages - 1);
        let what = match rng.below(4) {
            0 => {
                OpenOptions::new().write(true).open(&copy).unwrap().set_len(page * PAGE).unwrap();
                format!("round {round}: cut after page {page}")
            }
            1 => {
                overwrite(&copy, page * PAGE, &vec![0; usize::try_from(PAGE).unwrap()]);
                format!("round {round}: page {page} zeroed")
            }
            2 => {
                let garbage: Vec<u8> = (0..PAGE).map(|_| u8::try_from(rng.below(256)).unwrap()).collect();
                overwrite(&copy, page * PAGE, &garbage);
                format!("round {round}: page {page} garbled")
            }
            _ => {
                // A single byte, as a failing disk does it.
                let at = page * PAGE + rng.below(PAGE);
                let mut file = OpenOptions::new().read(true).open(&copy).unwrap();
                file.seek(SeekFrom::Start(at)).unwrap();
                let mut byte = [0];
                file.read_exact(&mut byte).unwrap();
                overwrite(&copy, at, &[byte[0] ^ 0x40]);
                format!("round {round}: byte {at} flipped")
            }
        };
        noticed += u32::from(!is_sound(dir.path(), &what).await);
    }
    assert!(noticed > 15, "only {noticed} of 40 were noticed");
}

#[tokio::test(flavor = "multi_thread")]
async fn damage_met_while_running_stops_writes_only() {
    let dir = tempfile::tempdir().unwrap();
    let path = filled(dir.path()).await;
    let store = open(dir.path()).unwrap();
    let mut stream = store.watch("", Revision(WRITTEN)).await.unwrap();
    let pages = std::fs::metadata(&path).unwrap().len() / PAGE;
    let garbage = vec![0x5a; usize::try_from((pages - 4) * PAGE).unwrap()];
    overwrite(&path, 4 * PAGE, &garbage);
    let mut refusal = None;
    for n in 0..WRITTEN {
        if let Err(err) = try_put(&store, &key(n), value(n)).await {
            refusal = Some(err);
            break;
        }
    }
    let refusal = refusal.expect("the damage was never met");
    assert!(matches!(&refusal, Error::ReadOnly { reason } if reason.contains("damaged")), "{refusal}");
    assert!(matches!(try_put(&store, "x", vec![]).await, Err(Error::ReadOnly { .. })));
    assert!(store.stats().read_only.is_some());
    // The rest of the engine is alive.
    store.revision().await.unwrap();
    store.request_progress().await.unwrap();
    assert!(stream.next().await.unwrap().is_ok());
    let _ = store.range(Range::default()).await;
    store.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cut_log_leaves_a_whole_older_state() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).unwrap();
    for n in 0..200 {
        try_put(&store, &key(n), value(n)).await.unwrap();
    }
    let files = ["store.db", "store.db-wal"];
    let size = std::fs::metadata(dir.path().join(files[1])).unwrap().len();
    for part in 0..20 {
        let copy = tempfile::tempdir().unwrap();
        for file in files {
            std::fs::copy(dir.path().join(file), copy.path().join(file)).unwrap();
        }
        let wal = OpenOptions::new().write(true).open(copy.path().join(files[1])).unwrap();
        wal.set_len(size * part / 20 + part * 13).unwrap();
        // A cut through the very first commit leaves nothing at all, which is a new store.
        let cut = open(copy.path()).unwrap();
        let all = cut.range(Range::default()).await.unwrap();
        assert_eq!(all.records.len() as u64, all.revision.0, "part {part}");
        assert!((0..).zip(&all.records).all(|(n, record)| record.value == value(n)), "part {part}");
        try_put(&cut, "new", vec![]).await.unwrap();
    }
}
