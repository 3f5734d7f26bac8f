//! Values at rest: what is on the disk, what happens to the keys, and what is said of values that cannot be read.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use croft_meta::Revision;
use croft_store::sealed::{RotateError, SealOptions, Sealed, Sealing, unreadable};
use croft_store::{Compare, Embedded, EmbeddedOptions, Op, Range, Store, Txn, TxnResult};

const SECRETS: &str = "registry/core/secrets/";
const MARKER: &str = "hunter2-hunter2-hunter2";

fn options(dir: &Path, prefixes: &[&str]) -> SealOptions {
    SealOptions { key_file: dir.join("keys"), prefixes: prefixes.iter().map(|&prefix| prefix.to_owned()).collect() }
}

fn plain(dir: &Path) -> Arc<Embedded> {
    let options = EmbeddedOptions { retention: None, ..EmbeddedOptions::default() };
    Embedded::open(&dir.join("store"), options).unwrap()
}

async fn open(dir: &Path, prefixes: &[&str]) -> Arc<dyn Store> {
    Sealed::open(plain(dir), options(dir, prefixes), "now").await.unwrap()
}

fn sealing(store: &Arc<dyn Store>) -> Arc<Sealing> {
    Arc::clone(store.sealing().unwrap())
}

fn key(name: &str) -> String {
    format!("{SECRETS}ns/{name}")
}

fn value(name: &str) -> Bytes {
    format!("{{\"name\":\"{name}\",\"data\":\"{MARKER}\"}}").into()
}

async fn put(store: &dyn Store, key: &str, value: impl Into<Bytes>) -> Revision {
    let ops = vec![Op::Put { key: key.to_owned(), value: value.into(), lease: None }];
    match store.txn(Txn { compare: vec![], ops }).await.unwrap() {
        TxnResult::Committed(revision) => revision,
        TxnResult::Conflict(revision) => panic!("conflict at {revision}"),
    }
}

async fn read(store: &dyn Store, name: &str) -> Bytes {
    store.get(&key(name)).await.unwrap().unwrap().value
}

/// Is the text in a file of the store?
fn is_on_disk(dir: &Path, text: &str) -> bool {
    let files = std::fs::read_dir(dir.join("store")).unwrap();
    files
        .map(|file| std::fs::read(file.unwrap().path()).unwrap())
        .any(|content| content.windows(text.len()).any(|window| window == text.as_bytes()))
}

async fn eventually(what: &str, mut check: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_mins(1);
    while !check().await {
        assert!(Instant::now() < deadline, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn chosen_values_are_encrypted_and_others_are_not() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), &[SECRETS]).await;
    put(&*store, &key("a"), value("a")).await;
    assert!(!is_on_disk(dir.path(), MARKER));
    put(&*store, "registry/core/configmaps/ns/a", "{\"data\":\"hello-hello\"}").await;
    assert!(is_on_disk(dir.path(), "hello-hello"));
    assert_eq!(read(&*store, "a").await, value("a"));
    store.close().await.unwrap();
    let store = open(dir.path(), &[SECRETS]).await;
    assert_eq!(read(&*store, "a").await, value("a"));
    let tally = sealing(&store).tally().await.unwrap();
    assert_eq!((tally.keys[0].1, tally.plain, tally.unreadable_count, tally.unsettled()), (1, 0, 0, 0));
}

#[tokio::test]
async fn plain_values_are_read_then_encrypted_and_wiped() {
    let dir = tempfile::tempdir().unwrap();
    let inner = plain(dir.path());
    for at in 0..120 {
        put(&*inner, &key(&at.to_string()), value(&at.to_string())).await;
    }
    put(&*inner, &key("gone"), value("gone")).await;
    inner.txn(Txn { compare: vec![], ops: vec![Op::Delete { key: key("gone") }] }).await.unwrap();
    inner.close().await.unwrap();
    assert!(is_on_disk(dir.path(), MARKER));

    let store = open(dir.path(), &[SECRETS]).await;
    assert_eq!(read(&*store, "7").await, value("7"));
    let sealing = sealing(&store);
    sealing.unsettled().await;
    sealing.settle().await.unwrap();
    assert_eq!(read(&*store, "7").await, value("7"));
    assert_eq!(sealing.tally().await.unwrap().keys[0].1, 120);
    eventually("the file is written anew", async || !is_on_disk(dir.path(), MARKER)).await;
    assert_eq!(sealing.progress().done, 120);

    // And the other way round, for those who must go back.
    store.close().await.unwrap();
    let store = open(dir.path(), &[]).await;
    let all = store.range(Range { prefix: SECRETS.to_owned(), ..Range::default() }).await.unwrap();
    assert_eq!(all.records.len(), 120);
    store.sealing().unwrap().settle().await.unwrap();
    store.close().await.unwrap();
    let inner = plain(dir.path());
    assert_eq!(inner.get(&key("7")).await.unwrap().unwrap().value, value("7"));
}

#[tokio::test]
async fn plain_values_are_wiped_though_the_server_died_after_encrypting_them() {
    let dir = tempfile::tempdir().unwrap();
    let inner = plain(dir.path());
    for at in 0..3 {
        put(&*inner, &key(&at.to_string()), value(&at.to_string())).await;
    }
    // What a server does that dies before it has forgotten what it has encrypted.
    inner.plan_scrub().await.unwrap();
    for at in 0..3 {
        put(&*inner, &key(&at.to_string()), "sealed").await;
    }
    inner.close().await.unwrap();
    assert!(is_on_disk(dir.path(), MARKER));
    let inner = plain(dir.path());
    eventually("the file is written anew", async || !is_on_disk(dir.path(), MARKER)).await;
    // Done once and for all: history is kept again.
    let before = put(&*inner, &key("0"), "again").await;
    put(&*inner, &key("0"), "and again").await;
    inner.close().await.unwrap();
    let inner = plain(dir.path());
    let past = inner.range(Range { at: Some(before), ..Range::default() }).await.unwrap();
    assert_eq!(past.records[0].value, "again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_are_replaced_under_load_and_nothing_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), &[SECRETS]).await;
    for at in 0..300 {
        put(&*store, &key(&at.to_string()), value("0")).await;
    }
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let writers: Vec<_> = (0..4)
        .map(|writer| {
            let (store, stop) = (Arc::clone(&store), Arc::clone(&stop));
            tokio::spawn(async move {
                let name = format!("counter-{writer}");
                let mut count = 0_u32;
                let mut revision = put(&*store, &key(&name), "0").await;
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    let compare = vec![Compare { key: key(&name), revision }];
                    let next = Bytes::from((count + 1).to_string());
                    let ops = vec![Op::Put { key: key(&name), value: next, lease: None }];
                    match store.txn(Txn { compare, ops }).await.unwrap() {
                        TxnResult::Committed(at) => (count, revision) = (count + 1, at),
                        // Rewritten meanwhile: the content must be ours all the same.
                        TxnResult::Conflict(_) => {
                            let found = store.get(&key(&name)).await.unwrap().unwrap();
                            assert_eq!(found.value, count.to_string());
                            revision = found.revision;
                        }
                    }
                }
                (name, count)
            })
        })
        .collect();
    let sealing = sealing(&store);
    for _ in 0..3 {
        let before = sealing.tally().await.unwrap().keys[0].0.id();
        let new = sealing.rotate("later").await.unwrap();
        assert_ne!(before, new);
        assert!(sealing.progress().is_due, "what is asked for has not begun");
        assert!(matches!(sealing.rotate("again").await, Err(RotateError::UnderWay)));
        // Not even the file can be written that lacks the old key.
        let file = dir.path().join("keys");
        let kept = dir.path().join("kept");
        std::fs::rename(&file, &kept).unwrap();
        std::fs::create_dir(&file).unwrap();
        assert!(sealing.settle().await.is_err());
        let progress = sealing.progress();
        assert!(progress.is_due && !progress.is_running, "{progress:?}");
        assert!(progress.error.is_some_and(|error| error.starts_with("the old key was not dropped")));
        std::fs::remove_dir(&file).unwrap();
        std::fs::rename(&kept, &file).unwrap();
        sealing.settle().await.unwrap();
        let tally = sealing.tally().await.unwrap();
        assert_eq!(tally.keys.len(), 1, "the old key is gone");
        assert_eq!((tally.keys[0].0.id(), tally.keys[0].1, tally.unreadable_count), (new, 304, 0));
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    for writer in writers {
        let (name, count) = writer.await.unwrap();
        assert!(count > 0);
        assert_eq!(read(&*store, &name).await, count.to_string());
    }
    assert!(!std::fs::read_to_string(dir.path().join("keys")).unwrap().contains("\"now\""), "the first key is dropped");
}

#[tokio::test]
async fn a_rotation_that_was_cut_short_goes_on_at_the_next_start() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), &[SECRETS]).await;
    for at in 0..10 {
        put(&*store, &key(&at.to_string()), value("x")).await;
    }
    sealing(&store).rotate("later").await.unwrap();
    put(&*store, &key("3"), value("new")).await;
    store.close().await.unwrap();

    let store = open(dir.path(), &[SECRETS]).await;
    assert_eq!((read(&*store, "3").await, read(&*store, "4").await), (value("new"), value("x")));
    let sealing = sealing(&store);
    let tally = sealing.tally().await.unwrap();
    assert_eq!(tally.keys.iter().map(|(_, count)| *count).collect::<Vec<_>>(), [1, 9]);
    sealing.unsettled().await;
    sealing.settle().await.unwrap();
    let tally = sealing.tally().await.unwrap();
    assert_eq!(tally.keys.iter().map(|(_, count)| *count).collect::<Vec<_>>(), [10]);
    // Versions that were encrypted with the old key cannot be asked for any more.
    let old = store.range(Range { at: Some(Revision(3)), ..Range::default() }).await;
    assert!(matches!(old, Err(croft_store::Error::Compacted { .. })), "{old:?}");
}

#[tokio::test]
async fn what_cannot_be_read_is_told_and_stops_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), &[SECRETS]).await;
    for name in ["good", "moved", "damaged"] {
        put(&*store, &key(name), value(name)).await;
    }
    store.close().await.unwrap();
    let inner = plain(dir.path());
    let raw = |name: &'static str| {
        let inner = Arc::clone(&inner);
        async move { inner.get(&key(name)).await.unwrap().unwrap().value }
    };
    let (moved, mut damaged) = (raw("moved").await, raw("damaged").await.to_vec());
    put(&*inner, &key("elsewhere"), moved).await;
    *damaged.last_mut().unwrap() ^= 1;
    put(&*inner, &key("damaged"), damaged).await;
    inner.close().await.unwrap();

    let store = open(dir.path(), &[SECRETS]).await;
    assert_eq!((read(&*store, "good").await, read(&*store, "moved").await), (value("good"), value("moved")));
    for name in ["elsewhere", "damaged"] {
        let found = read(&*store, name).await;
        assert!(unreadable(&found).unwrap().contains("damaged, or moved here"), "{name}");
    }
    assert!(unreadable(&value("good")).is_none());
    // Its key is kept as long as something names it that may still be mended.
    let sealing = sealing(&store);
    let old = sealing.tally().await.unwrap().keys[0].0.id();
    sealing.rotate("later").await.unwrap();
    sealing.settle().await.unwrap();
    let tally = sealing.tally().await.unwrap();
    assert_eq!((tally.keys.len(), tally.keys[1].0.id(), tally.unreadable_count), (2, old, 2));
    store.txn(Txn { compare: vec![], ops: vec![Op::Delete { key: key("elsewhere") }] }).await.unwrap();
    put(&*store, &key("damaged"), value("mended")).await;
    sealing.settle().await.unwrap();
    assert_eq!(sealing.tally().await.unwrap().keys.len(), 1);
    store.close().await.unwrap();

    // Other keys, and none.
    std::fs::rename(dir.path().join("keys"), dir.path().join("kept")).unwrap();
    let missing = Sealed::open(plain(dir.path()), options(dir.path(), &[SECRETS]), "now").await.map(drop).unwrap_err();
    assert!(missing.to_string().contains("is not there, but the store has values"), "{missing}");
    std::fs::write(dir.path().join("keys"), "").unwrap();
    std::fs::set_permissions(dir.path().join("keys"), std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let store = open(dir.path(), &[SECRETS]).await;
    assert!(unreadable(&read(&*store, "good").await).unwrap().contains("is not in the key file"));
    put(&*store, &key("new"), value("new")).await;
    assert_eq!(read(&*store, "new").await, value("new"));
    store.sealing().unwrap().settle().await.unwrap();
    store.close().await.unwrap();
    std::fs::rename(dir.path().join("kept"), dir.path().join("keys")).unwrap();
    let store = open(dir.path(), &[SECRETS]).await;
    assert_eq!(read(&*store, "good").await, value("good"));
    assert!(unreadable(&read(&*store, "new").await).is_some());
    store.close().await.unwrap();
}

#[tokio::test]
async fn keys_that_open_nothing_are_refused_unless_it_was_said_that_the_others_are_gone() {
    let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for dir in [&dir, &other] {
        let store = open(dir.path(), &[SECRETS]).await;
        put(&*store, &key("one"), value("one")).await;
        store.close().await.unwrap();
    }
    let file = dir.path().join("keys");
    let own = std::fs::read(&file).unwrap();
    std::fs::write(&file, std::fs::read(other.path().join("keys")).unwrap()).unwrap();
    let engine = plain(dir.path());
    let refused = Sealed::open(Arc::clone(&engine) as _, options(dir.path(), &[SECRETS]), "now").await.map(drop);
    let said = refused.unwrap_err().to_string();
    assert!(said.contains("has none of the keys") && said.contains("install -m 600"), "{said}");
    // A value that is damaged names its key all the same.
    std::fs::write(&file, &own).unwrap();
    let mut damaged = engine.get(&key("one")).await.unwrap().unwrap().value.to_vec();
    *damaged.last_mut().unwrap() ^= 1;
    put(&*engine, &key("one"), damaged).await;
    engine.close().await.unwrap();
    open(dir.path(), &[SECRETS]).await.close().await.unwrap();

    // Nothing was encrypted with the new key before the next start, nor with the one after it.
    std::fs::write(&file, "").unwrap();
    open(dir.path(), &[SECRETS]).await.close().await.unwrap();
    let store = open(dir.path(), &[SECRETS]).await;
    assert!(unreadable(&read(&*store, "one").await).is_some());
    let sealing = sealing(&store);
    sealing.rotate("later").await.unwrap();
    sealing.settle().await.unwrap();
    assert_eq!(sealing.tally().await.unwrap().keys.len(), 1);
    store.close().await.unwrap();
    open(dir.path(), &[SECRETS]).await.close().await.unwrap();
}

#[tokio::test]
async fn the_keys_are_needed_whatever_is_to_be_encrypted() {
    const SETTINGS: &str = "registry/harvesterhci.io/settings/";
    let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for dir in [&dir, &other] {
        let store = open(dir.path(), &[SECRETS]).await;
        put(&*store, &format!("{SETTINGS}a"), "{}").await;
        put(&*store, &key("one"), value("one")).await;
        store.close().await.unwrap();
    }
    let file = dir.path().join("keys");
    let own = std::fs::read(&file).unwrap();
    let engine: Arc<dyn Store> = plain(dir.path());
    let refused = async |prefixes: &[&str]| {
        let opened = Sealed::open(Arc::clone(&engine), options(dir.path(), prefixes), "now").await;
        opened.map(drop).unwrap_err().to_string()
    };
    for prefixes in [&[][..], &[SETTINGS]] {
        std::fs::remove_file(&file).unwrap();
        let said = refused(prefixes).await;
        assert!(said.contains("is not there, but the store has values"), "{prefixes:?}: {said}");
        assert!(!file.exists(), "no other is made");
        std::fs::copy(other.path().join("keys"), &file).unwrap();
        let said = refused(prefixes).await;
        assert!(said.contains("has none of the keys"), "{prefixes:?}: {said}");
    }
    // That they are gone can be said here too.
    std::fs::write(&file, "").unwrap();
    let store = Sealed::open(Arc::clone(&engine), options(dir.path(), &[]), "now").await.unwrap();
    assert!(unreadable(&read(&*store, "one").await).is_some());
    std::fs::write(&file, own).unwrap();
    for prefixes in [&[][..], &[SETTINGS]] {
        let store = Sealed::open(Arc::clone(&engine), options(dir.path(), prefixes), "now").await.unwrap();
        assert_eq!(read(&*store, "one").await, value("one"), "{prefixes:?}");
    }
    // Without anything encrypted no file is needed.
    engine.txn(Txn { compare: vec![], ops: vec![Op::Delete { key: key("one") }] }).await.unwrap();
    std::fs::remove_file(&file).unwrap();
    Sealed::open(Arc::clone(&engine), options(dir.path(), &[]), "now").await.unwrap();
    assert!(!file.exists());
}
