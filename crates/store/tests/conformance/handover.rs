//! Watches, above all the instant where history ends and live changes begin.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use croft_meta::Revision;
use croft_store::{Error, Event, Store, WatchItem};
use futures::StreamExt;
use futures::stream::BoxStream;

use crate::cases::{commit, op_delete, op_put, put};

type S = Arc<dyn Store>;
type Stream = BoxStream<'static, Result<WatchItem, Error>>;

/// Fails rather than hangs.
async fn next(stream: &mut Stream) -> WatchItem {
    let item = tokio::time::timeout(Duration::from_mins(1), stream.next()).await.expect("no event in a minute");
    item.expect("the stream ended").unwrap()
}

pub(crate) async fn next_events(stream: &mut Stream) -> Vec<Event> {
    loop {
        if let WatchItem::Events(events) = next(stream).await {
            return events;
        }
    }
}

pub(crate) async fn a_watch_delivers_history_then_live_changes(store: S) {
    let start = store.revision().await.unwrap();
    let mut expected = Vec::new();
    for n in 0..5 {
        expected.push((put(&store, "a", &n.to_string()).await, Some(n.to_string())));
    }
    expected.push((commit(&store, vec![op_delete("a")]).await, None));
    let mut stream = store.watch("", start).await.unwrap();
    for n in 5..10 {
        expected.push((put(&store, "a", &n.to_string()).await, Some(n.to_string())));
    }
    expected.push((commit(&store, vec![op_delete("a")]).await, None));
    for (revision, value) in expected {
        let events = next_events(&mut stream).await;
        assert_eq!(events.len(), 1);
        assert_eq!((events[0].key.as_str(), events[0].revision), ("a", revision));
        assert_eq!(events[0].value.as_deref(), value.as_deref().map(str::as_bytes));
    }
}

pub(crate) async fn a_watch_sees_only_its_prefix(store: S) {
    let start = store.revision().await.unwrap();
    let mix =
        |n: u32| ["a", "a/1", "a/2", "a0", "b"].map(|key| op_put(key, n.to_string())).into_iter().collect::<Vec<_>>();
    let old = commit(&store, mix(1)).await;
    let mut stream = store.watch("a/", start).await.unwrap();
    put(&store, "b", "unseen").await;
    let new = commit(&store, mix(2)).await;
    for revision in [old, new] {
        let events = next_events(&mut stream).await;
        let seen: Vec<_> = events.iter().map(|event| (event.key.as_str(), event.revision)).collect();
        assert_eq!(seen, [("a/1", revision), ("a/2", revision)]);
    }
}

pub(crate) async fn a_transaction_arrives_whole(store: S) {
    let start = store.revision().await.unwrap();
    let txn = |round: u32| (0..100).map(|n| op_put(&format!("k/{n:03}"), vec![b'x'; 3000 + round as usize])).collect();
    commit(&store, txn(0)).await;
    commit(&store, txn(1)).await;
    let mut stream = store.watch("k/", start).await.unwrap();
    commit(&store, txn(2)).await;
    for round in 1..=3 {
        let events = next_events(&mut stream).await;
        assert_eq!(events.len(), 100);
        assert!(events.iter().all(|event| event.revision.0 == start.0 + round));
        assert!(events.is_sorted_by(|a, b| a.key < b.key));
    }
}

pub(crate) async fn a_watch_from_the_future_is_refused(store: S) {
    let newest = put(&store, "a", "1").await;
    let answer = store.watch("", Revision(newest.0 + 10)).await.map(drop);
    assert!(matches!(answer, Err(Error::Future { .. })), "{answer:?}");
}

pub(crate) async fn watches_opened_under_load_miss_and_repeat_nothing(store: S) {
    const WRITERS: usize = 4;
    const WATCHES: u64 = 20;
    let start = store.revision().await.unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..WRITERS {
        let (store, stop) = (store.clone(), stop.clone());
        writers.spawn(async move {
            let mut n = 0;
            while !stop.load(Ordering::Relaxed) {
                put(&store, &format!("k/{writer}/{}", n % 7), &n.to_string()).await;
                n += 1;
            }
        });
    }
    let mut watches = tokio::task::JoinSet::new();
    for n in 0..WATCHES {
        // Each starts while history is being made, from somewhere in it.
        let newest = put(&store, "k/mark", &n.to_string()).await;
        let after = Revision(start.0 + (newest.0 - start.0) * (n % 4) / 3);
        let after = after.min(newest);
        let mut stream = store.watch("k/", after).await.unwrap();
        watches.spawn(async move {
            let mut last = after;
            let until = newest.0 + 100;
            while last.0 < until {
                let events = next_events(&mut stream).await;
                // Every revision is one change of one key under the prefix.
                assert_eq!((events.len(), events[0].revision), (1, last.next()));
                last = events[0].revision;
            }
        });
    }
    watches.join_all().await;
    stop.store(true, Ordering::Relaxed);
    writers.join_all().await;
}

pub(crate) async fn progress_comes_when_asked_for(store: S) {
    let start = put(&store, "other", "1").await;
    let mut stream = store.watch("watched/", start).await.unwrap();
    let newest = put(&store, "other", "2").await;
    let deadline = tokio::time::Instant::now() + Duration::from_mins(1);
    loop {
        assert!(tokio::time::Instant::now() < deadline, "no progress in a minute");
        store.request_progress().await.unwrap();
        match tokio::time::timeout(Duration::from_millis(200), stream.next()).await {
            Ok(Some(Ok(WatchItem::Progress(revision)))) if revision >= newest => break,
            Ok(Some(Ok(WatchItem::Events(events)))) => panic!("{events:?}"),
            Ok(Some(Err(err))) => panic!("{err}"),
            Ok(None) => panic!("the stream ended"),
            Ok(Some(Ok(_))) | Err(_) => {}
        }
    }
}

pub(crate) async fn progress_never_runs_ahead_of_events(store: S) {
    let start = store.revision().await.unwrap();
    let mut stream = store.watch("k", start).await.unwrap();
    let writer = tokio::spawn({
        let store = store.clone();
        async move {
            for n in 0..200 {
                put(&store, "k", &n.to_string()).await;
                if n % 5 == 0 {
                    store.request_progress().await.unwrap();
                }
            }
        }
    });
    let (mut last, mut seen) = (start, 0);
    while seen < 200 {
        match next(&mut stream).await {
            WatchItem::Events(events) => {
                for event in events {
                    assert!(event.revision > last, "{} came after progress or event {last}", event.revision);
                    last = event.revision;
                    seen += 1;
                }
            }
            WatchItem::Progress(revision) => {
                assert!(revision >= last, "progress went back from {last} to {revision}");
                last = revision;
            }
        }
    }
    writer.await.unwrap();
}
