//! What only the embedded engine has: a file, a lock, a policy, buffers.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use croft_meta::Revision;
use croft_store::{Embedded, EmbeddedOptions, Error, Op, Range, Retention, Store, Txn, TxnResult, WatchItem};
use futures::StreamExt;

fn options() -> EmbeddedOptions {
    EmbeddedOptions { retention: None, ..EmbeddedOptions::default() }
}

fn open(dir: &Path) -> Arc<Embedded> {
    Embedded::open(dir, options()).unwrap()
}

async fn put(store: &Embedded, key: &str, value: impl Into<Bytes>) -> Revision {
    let ops = vec![Op::Put { key: key.to_owned(), value: value.into(), lease: None }];
    match store.txn(Txn { compare: vec![], ops }).await.unwrap() {
        TxnResult::Committed(revision) => revision,
        TxnResult::Conflict(revision) => panic!("conflict at {revision}"),
    }
}

async fn eventually(what: &str, mut check: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_mins(1);
    while !check().await {
        assert!(Instant::now() < deadline, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn rows(dir: &Path) -> i64 {
    let connection = rusqlite::Connection::open(dir.join("store.db")).unwrap();
    connection.query_row("SELECT count(*) FROM log", [], |row| row.get(0)).unwrap()
}

#[tokio::test]
async fn a_directory_is_opened_once() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let err = Embedded::open(dir.path(), options()).unwrap_err();
    assert!(err.to_string().contains(&format!("in use by process {}", std::process::id())), "{err}");
    drop(store);
    open(dir.path());
}

#[tokio::test]
async fn everything_is_there_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    put(&store, "a", "1").await;
    let before = put(&store, "a", "2").await;
    store.compact(before).await.unwrap();
    let revision = put(&store, "b", "3").await;
    store.close().await.unwrap();
    let store = open(dir.path());
    assert_eq!(store.revision().await.unwrap(), revision);
    let all = store.range(Range::default()).await.unwrap();
    let seen: Vec<_> = all.records.iter().map(|record| (record.key.as_str(), record.revision)).collect();
    assert_eq!(seen, [("a", before), ("b", revision)]);
    assert!(matches!(store.watch("", Revision(1)).await.map(drop), Err(Error::Compacted { .. })));
    let mut stream = store.watch("", before).await.unwrap();
    assert!(stream.next().await.unwrap().is_ok());
}

#[tokio::test]
async fn a_lease_ends_after_a_restart_too() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let lease = store.lease_grant(Duration::from_secs(1)).await.unwrap();
    let ops = vec![Op::Put { key: "a".to_owned(), value: Bytes::new(), lease: Some(lease) }];
    store.txn(Txn { compare: vec![], ops }).await.unwrap();
    drop(store);
    let store = open(dir.path());
    let mut stream = store.watch("", store.revision().await.unwrap()).await.unwrap();
    eventually("the lease ends", async || store.get("a").await.unwrap().is_none()).await;
    assert!(matches!(store.lease_keep_alive(lease).await, Err(Error::NoSuchLease(_))));
    assert!(stream.next().await.unwrap().is_ok());
    let next = store.lease_grant(Duration::from_mins(1)).await.unwrap();
    assert_ne!(next, lease, "a lease's number is not used again");
}

#[tokio::test]
async fn a_lease_ends_however_many_keys_it_has() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let lease = store.lease_grant(Duration::from_hours(1)).await.unwrap();
    // More than there is room for in one revision.
    for batch in 0..17 {
        let key = |n| format!("k/{batch:02}/{n:04}");
        let ops = (0..4000).map(|n| Op::Put { key: key(n), value: Bytes::new(), lease: Some(lease) }).collect();
        store.txn(Txn { compare: vec![], ops }).await.unwrap();
    }
    let before = store.revision().await.unwrap();
    let mut stream = store.watch("k/", before).await.unwrap();
    store.lease_revoke(lease).await.unwrap();
    assert!(store.range(Range::default()).await.unwrap().records.is_empty());
    assert!(matches!(store.lease_keep_alive(lease).await, Err(Error::NoSuchLease(_))));
    let (mut deleted, mut last) = (0, before);
    while deleted < 17 * 4000 {
        let WatchItem::Events(events) = stream.next().await.unwrap().unwrap() else { continue };
        assert!(events.iter().all(|event| event.value.is_none() && event.revision == last.next()), "after {last}");
        deleted += events.len();
        last = last.next();
    }
    assert_eq!((deleted, store.revision().await.unwrap()), (17 * 4000, last));
    put(&store, "k", "1").await;
}

#[tokio::test]
async fn compaction_takes_out_the_rows_and_gives_the_space_back() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    for round in 0..25 {
        for batch in 0..2 {
            let key = |n| format!("k/{}", batch * 100 + n);
            let value = Bytes::from(vec![round; 8000]);
            let ops = (0..100).map(|n| Op::Put { key: key(n), value: value.clone(), lease: None }).collect();
            store.txn(Txn { compare: vec![], ops }).await.unwrap();
        }
    }
    let ops = (0..100).map(|n| Op::Delete { key: format!("k/{n}") }).collect();
    store.txn(Txn { compare: vec![], ops }).await.unwrap();
    assert_eq!(rows(dir.path()), 25 * 200 + 100);
    let newest = store.revision().await.unwrap();
    store.compact(newest).await.unwrap();
    eventually("the rows are gone", async || rows(dir.path()) == 100).await;
    let file = dir.path().join("store.db");
    eventually("the file shrinks", async || {
        // Writing makes checkpoints, which is when the file can be cut.
        put(&store, "more", vec![0; 100_000]).await;
        std::fs::metadata(&file).unwrap().len() < 25_000_000
    })
    .await;
    assert_eq!(store.range(Range { prefix: "k/".to_owned(), ..Range::default() }).await.unwrap().records.len(), 100);
}

#[tokio::test]
async fn compaction_goes_on_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    for n in 0..300 {
        put(&store, "k", n.to_string()).await;
    }
    let newest = store.revision().await.unwrap();
    store.compact(newest).await.unwrap();
    drop(store);
    let store = open(dir.path());
    eventually("the rows are gone", async || rows(dir.path()) == 1).await;
    assert_eq!(store.get("k").await.unwrap().unwrap().revision, newest);
}

#[tokio::test]
async fn old_history_goes_by_itself() {
    let dir = tempfile::tempdir().unwrap();
    let retention = Some(Retention { time: Duration::from_millis(300), revisions: 10 });
    let store = Embedded::open(dir.path(), EmbeddedOptions { retention, ..options() }).unwrap();
    for n in 0..100 {
        put(&store, "k", n.to_string()).await;
    }
    let newest = store.revision().await.unwrap();
    let at = |revision: u64| Range { at: Some(Revision(revision)), ..Range::default() };
    eventually("history is compacted", async || store.range(at(newest.0 - 11)).await.is_err()).await;
    store.range(at(newest.0 - 10)).await.expect("the last ten are kept");
}

#[tokio::test]
async fn a_watcher_that_stands_still_is_cut_off() {
    let dir = tempfile::tempdir().unwrap();
    let store = Embedded::open(dir.path(), EmbeddedOptions { watch_buffer: 4, ..options() }).unwrap();
    let mut slow = store.watch("", Revision::ZERO).await.unwrap();
    let mut other = store.watch("other", Revision::ZERO).await.unwrap();
    for n in 0..10 {
        put(&store, "k", n.to_string()).await;
    }
    let mut items = Vec::new();
    while let Some(item) = slow.next().await {
        items.push(item);
    }
    // Progress after the (empty) history, what fitted, and the reason.
    assert_eq!(items.len(), 6);
    assert!(matches!(items.last(), Some(Err(Error::Lagged))), "{items:?}");
    assert_eq!((store.stats().lagged, store.stats().watchers), (1, 1));
    put(&store, "other", "1").await;
    assert!(other.next().await.unwrap().is_ok());
}

#[tokio::test]
async fn a_snapshot_can_be_opened_in_place_of_the_original() {
    let (dir, copy) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let store = open(dir.path());
    put(&store, "a", "1").await;
    let revision = put(&store, "b", "2").await;
    store.snapshot(&copy.path().join("store.db")).await.unwrap();
    assert!(store.snapshot(&copy.path().join("store.db")).await.is_err(), "nothing is written over");
    put(&store, "c", "3").await;
    let copy = open(copy.path());
    assert_eq!(copy.revision().await.unwrap(), revision);
    assert_eq!(copy.range(Range::default()).await.unwrap().records.len(), 2);
    put(&copy, "d", "4").await;
}

#[tokio::test]
async fn stats_count_what_was_done() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    for n in 0..5 {
        put(&store, "k", n.to_string()).await;
    }
    let compare = vec![croft_store::Compare { key: "k".to_owned(), revision: Revision(1) }];
    store.txn(Txn { compare, ops: vec![] }).await.unwrap();
    let stats = store.stats();
    assert_eq!((stats.transactions, stats.commits, stats.conflicts, stats.commit_seconds.count), (5, 5, 1, 5));
    assert!(stats.size_bytes > 0 && stats.read_only.is_none());
}
