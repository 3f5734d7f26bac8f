//! A file that shrinks while it is used, and one that is damaged: what is said of it, and what can be saved out of it.

use std::collections::BTreeSet;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use croft_meta::Revision;
use croft_store::embedded::{check, salvage};
use croft_store::{Embedded, EmbeddedOptions, Error, History, Op, Range, Store, Txn, TxnResult};

const PAGE: u64 = 4096;

fn open(dir: &Path) -> Arc<Embedded> {
    Embedded::open(dir, EmbeddedOptions { retention: None, ..EmbeddedOptions::default() }).unwrap()
}

async fn commit(store: &Embedded, op: Op) -> Revision {
    match store.txn(Txn { compare: vec![], ops: vec![op] }).await.unwrap() {
        TxnResult::Committed(revision) => revision,
        TxnResult::Conflict(_) => panic!("there is no condition"),
    }
}

fn put(key: &str, value: Vec<u8>) -> Op {
    Op::Put { key: key.to_owned(), value: Bytes::from(value), lease: None }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_shrinks_while_it_is_written_to() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let mut last = Revision::ZERO;
    for number in 0..600 {
        last = commit(&store, put(&format!("k{}", number % 5), vec![7; 8 << 10])).await;
    }
    let before = store.status().await.unwrap();
    assert_eq!((before.engine.as_str(), before.revision), ("embedded", last.0));
    store.compact(last).await.unwrap();
    let writing = tokio::spawn({
        let store = Arc::clone(&store);
        async move {
            for number in 0..50 {
                commit(&store, put("busy", vec![number; 100])).await;
            }
        }
    });
    store.defragment(History::Kept).await.unwrap();
    writing.await.unwrap();
    store.defragment(History::Kept).await.unwrap();
    let after = store.status().await.unwrap();
    let file = std::fs::metadata(dir.path().join("store.db")).unwrap().len();
    assert!(file < before.size_bytes / 8, "{file} of {}", before.size_bytes);
    assert!(after.size_bytes == file && after.reclaimable_bytes == 0, "the log is cut as well: {after:?}");
    assert_eq!(after.compacted_revision, last.0);
    assert_eq!(store.get("k4").await.unwrap().unwrap().value.len(), 8 << 10);
    assert_eq!(store.check().await.unwrap(), Vec::<String>::new());
    store.close().await.unwrap();
}

/// Many small objects and some that fill pages of their own.
async fn filled(dir: &Path) -> BTreeSet<String> {
    let store = open(dir);
    for number in 0..400_usize {
        let size = if number % 20 == 0 { 9000 } else { 150 };
        commit(&store, put(&format!("registry/{number:03}"), vec![b'v'; size])).await;
    }
    for number in (0..400).step_by(10) {
        commit(&store, put(&format!("registry/{number:03}"), format!("newer {number}").into_bytes())).await;
    }
    commit(&store, Op::Delete { key: "registry/399".to_owned() }).await;
    store.close().await.unwrap();
    (0..399).map(|number| format!("registry/{number:03}")).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_can_be_read_is_saved_and_the_rest_is_named() {
    let place = tempfile::tempdir().unwrap();
    let whole = place.path().join("whole");
    let keys = filled(&whole).await;
    assert_eq!(check(&whole).unwrap(), Vec::<String>::new());
    let saved = salvage(&whole).unwrap();
    assert_eq!(saved.records.iter().map(|record| record.key.clone()).collect::<BTreeSet<_>>(), keys);
    assert!(saved.lost.is_empty() && saved.stale.is_empty() && !saved.has_gaps, "{:?} {:?}", saved.lost, saved.stale);
    assert_eq!(saved.revision, Revision(441));

    let file = std::fs::read(whole.join("store.db")).unwrap();
    let pages = file.len() as u64 / PAGE;
    let damaged = place.path().join("damaged");
    std::fs::create_dir(&damaged).unwrap();
    let mut losses = 0;
    for page in 0..pages {
        std::fs::write(damaged.join("store.db"), &file).unwrap();
        for beside in ["store.db-wal", "store.db-shm"] {
            let _ = std::fs::remove_file(damaged.join(beside));
        }
        let broken = std::fs::OpenOptions::new().write(true).open(damaged.join("store.db")).unwrap();
        // What says what the file is goes as well.
        let at = if page == 0 { 0 } else { page * PAGE + 500 };
        broken.write_all_at(&[0x5a; 3000], at).unwrap();
        let before = std::fs::read(damaged.join("store.db")).unwrap();
        let said = check(&damaged).unwrap();
        let found = salvage(&damaged).unwrap_or_else(|error| panic!("page {page}: {error}"));
        assert!(std::fs::read(damaged.join("store.db")).unwrap() == before, "page {page}: it was written to");
        assert!(!place.path().join("damaged.salvaging").exists());
        assert_eq!(found.lost_first_page, page == 0);
        if page == 0 {
            assert!(!said.is_empty() && found.lost.is_empty() && found.stale.is_empty(), "{said:?} {:?}", found.lost);
            assert_eq!(found.revision, Revision(441));
        }
        let read: BTreeSet<String> = found.records.iter().map(|record| record.key.clone()).collect();
        let lost: BTreeSet<String> = found.lost.iter().cloned().collect();
        for record in &found.records {
            let number: usize = record.key["registry/".len()..].parse().unwrap();
            let is_newest = record.value.starts_with(b"newer") == number.is_multiple_of(10);
            assert!(
                is_newest || found.stale.contains(&record.key),
                "page {page}: {} is old, and nobody says so",
                record.key
            );
        }
        let missing: Vec<_> = keys.difference(&read).filter(|key| !lost.contains(*key)).collect();
        assert!(missing.is_empty() || found.has_gaps, "page {page}: {missing:?} are gone without a word");
        if !lost.is_empty() || !found.stale.is_empty() {
            losses += 1;
            assert!(!said.is_empty(), "page {page}: {lost:?} are lost and the check finds nothing");
            assert!(lost.len() < 60, "page {page}: {} are lost", lost.len());
        }
    }
    assert!(losses > 5, "only {losses} of {pages} pages matter");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damage_that_a_check_finds_stops_the_writer() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path()).await;
    let path = dir.path().join("store.db");
    let file = std::fs::read(&path).unwrap();
    // In a page that is nothing but a part of a value: elsewhere there may be copies that nobody reads any more.
    let at = file.windows(3000).position(|window| window.iter().all(|byte| *byte == b'v')).unwrap() as u64 + 1500;
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().write_all_at(b"w", at).unwrap();
    let store = open(dir.path());
    let busy = check(dir.path()).unwrap_err();
    assert!(matches!(busy, Error::Locked { .. }), "{busy}");
    let said = store.check().await.unwrap();
    assert!(said.iter().any(|line| line.contains("is not as it was written")), "{said:?}");
    match store.txn(Txn { compare: vec![], ops: vec![put("a", vec![1])] }).await {
        Err(Error::ReadOnly { reason }) => assert!(reason.contains("croft state save"), "{reason}"),
        other => panic!("{other:?}"),
    }
    let status = store.status().await.unwrap();
    assert!(status.read_only.is_some() && status.is_damaged && store.stats().is_damaged);
    // What is asked for next is told the same, and does not wait for ever.
    assert!(matches!(store.defragment(History::Kept).await, Err(Error::ReadOnly { .. })));
    store.close().await.unwrap();
}

/// Whatever byte of a file is wrong: it is refused, untouched, or it does not matter.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_file_is_refused_untouched_or_gives_what_was_written() {
    let place = tempfile::tempdir().unwrap();
    let whole = place.path().join("whole");
    filled(&whole).await;
    let store = open(&whole);
    let expected = store.range(Range::default()).await.unwrap();
    store.close().await.unwrap();
    let file = std::fs::read(whole.join("store.db")).unwrap();
    let damaged = place.path().join("damaged");
    std::fs::create_dir(&damaged).unwrap();
    let path = damaged.join("store.db");
    let mut refused = [0, 0, 0];
    for page in 0..file.len() / 4096 {
        for (kind, refused) in refused.iter_mut().enumerate() {
            let mut bytes = file.clone();
            let at = page * 4096;
            match kind {
                // The head of a page says how much is on it and where; the rest is spread over the pages.
                0 => bytes[at + if page == 0 { 103 } else { 3 } + page % 3] ^= 0x04,
                1 => bytes[at + (page * 977) % 4096] ^= 0x40,
                _ => bytes[at + 100..at + 4096].fill(0),
            }
            let _ = std::fs::remove_dir_all(&damaged);
            std::fs::create_dir(&damaged).unwrap();
            std::fs::write(&path, &bytes).unwrap();
            let options = EmbeddedOptions { retention: None, ..EmbeddedOptions::default() };
            let what = format!("page {page}, kind {kind}");
            let store = match Embedded::open(&damaged, options) {
                Ok(store) => store,
                Err(error) => {
                    assert!(error.to_string().contains("store.db"), "{what}: {error}");
                    assert!(std::fs::read(&path).unwrap() == bytes, "{what}: it was written to");
                    *refused += 1;
                    continue;
                }
            };
            match store.range(Range::default()).await {
                Ok(found) => assert!(found.records == expected.records, "{what}: it serves something else"),
                Err(Error::Corrupt { .. }) => {
                    let written = store.txn(Txn { compare: vec![], ops: vec![put("a", vec![1])] }).await;
                    assert!(matches!(written, Err(Error::ReadOnly { .. })), "{what}: {written:?}");
                    *refused += 1;
                }
                Err(error) => panic!("{what}: {error}"),
            }
            store.close().await.unwrap();
        }
    }
    println!("refused: {refused:?} of {} pages", file.len() / 4096);
    assert!(refused.iter().all(|count| *count > 20), "{refused:?}");
}
