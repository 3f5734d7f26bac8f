//! What moving objects to and from etcd rests on: a gate that stops everybody else, and revisions that go on.

use std::sync::Arc;

use croft_meta::Revision;
use croft_store::{Compare, Error, Etcd, Gate, Passage, Range, Store, Txn, TxnResult, WatchItem};
use futures::StreamExt;
use futures::stream::BoxStream;

use crate::cases::{op_put, put};
use crate::etcd_server::EtcdServer;
use crate::handover::{self, next_events};

const BASE: Revision = Revision(5_000_000);

fn gate(passage: Passage) -> Gate {
    Gate { passage, id: "1".to_owned(), other: "/var/lib/x".to_owned(), when: "today".to_owned() }
}

async fn attempt(store: &Arc<dyn Store>, compare: Vec<Compare>) -> Result<TxnResult, Error> {
    store.txn(Txn { compare, ops: vec![op_put("a", "2".to_owned())] }).await
}

#[tokio::test(flavor = "multi_thread")]
async fn revisions_go_on_from_the_base() {
    let server = EtcdServer::start().await;
    let mover = Etcd::connect_past_gate(server.options()).await.unwrap();
    assert!(mover.set_base(None, BASE).await.unwrap());
    let store: Arc<dyn Store> = Etcd::connect(server.options()).await.unwrap();
    let first = put(&store, "a", "1").await;
    assert!(first > BASE, "{first}");
    assert_eq!(store.revision().await.unwrap(), first);
    assert_eq!(store.get("a").await.unwrap().unwrap().revision, first);
    let mut stream = store.watch("", first).await.unwrap();

    // What was known of the other store is of the past, and holds no more.
    let old = |at| Compare { key: "a".to_owned(), revision: at };
    for before in [Revision(1), Revision(BASE.0 - 1), BASE] {
        assert!(matches!(attempt(&store, vec![old(before)]).await, Ok(TxnResult::Conflict(_))), "{before}");
        let range = store.range(Range { at: Some(before), ..Range::default() }).await;
        assert!(matches!(range, Err(Error::Compacted { .. })), "{before}: {range:?}");
    }
    let watch = store.watch("", Revision(BASE.0 - 1)).await.map(drop);
    assert!(matches!(watch, Err(Error::Compacted { .. })), "{watch:?}");
    store.compact(Revision(7)).await.unwrap();

    let committed = attempt(&store, vec![old(first)]).await.unwrap();
    assert_eq!(committed, TxnResult::Committed(first.next()));
    assert_eq!(next_events(&mut stream).await[0].revision, first.next());
    let past = store.range(Range { at: Some(first), ..Range::default() }).await.unwrap();
    assert_eq!((past.records[0].value.as_ref(), past.revision), (&b"1"[..], first));
    store.compact(first.next()).await.unwrap();
    let gone = store.watch("", Revision(first.0 - 1)).await;
    let gone = match gone {
        Ok(mut stream) => stream.next().await.unwrap().map(drop),
        Err(error) => Err(error),
    };
    assert!(matches!(gone, Err(Error::Compacted { oldest, .. }) if oldest == first.next()), "{gone:?}");
    handover::progress_comes_when_asked_for(store.clone()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shut_gate_stops_writers_and_newcomers() {
    let server = EtcdServer::start().await;
    let store: Arc<dyn Store> = Etcd::connect(server.options()).await.unwrap();
    let written = put(&store, "a", "1").await;
    let mover = Etcd::connect_past_gate(server.options()).await.unwrap();
    let shut = mover.set_gate(None, Some(&gate(Passage::Leaving))).await.unwrap();
    assert!(shut.is_some());
    assert!(mover.set_gate(None, Some(&gate(Passage::Arriving))).await.unwrap().is_none(), "there is one");

    let stale = Compare { key: "a".to_owned(), revision: Revision(1) };
    let right = Compare { key: "a".to_owned(), revision: written };
    for compare in [vec![], vec![right], vec![stale]] {
        match attempt(&store, compare).await {
            Err(Error::ReadOnly { reason }) => assert!(reason.contains("being moved to /var/lib/x"), "{reason}"),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(store.get("a").await.unwrap().unwrap().value, "1");
    let refused = Etcd::connect(server.options()).await.unwrap_err();
    let words = croft_meta::Chain(&refused).to_string();
    assert!(words.contains("this etcd is not to be used: its objects are being moved"), "{words}");

    // Who moves them may write, and clear all but the gate.
    let mover: Arc<Etcd> = mover;
    mover.txn(Txn { compare: vec![], ops: vec![op_put("b", "1".to_owned())] }).await.unwrap();
    assert!(mover.clear(shut).await.unwrap());
    assert!(mover.range(Range::default()).await.unwrap().records.is_empty());
    let (seen, version) = mover.gate().await.unwrap().unwrap();
    assert_eq!((seen, Some(version)), (gate(Passage::Leaving), shut));
    assert!(mover.set_gate(Some(version + 1), None).await.unwrap().is_none(), "another was seen");
    assert!(mover.set_gate(shut, None).await.unwrap().is_some());
    put(&store, "a", "3").await;
    Etcd::connect(server.options()).await.unwrap();
    // What comes too late finds another gate, or none, though somebody else has shut it again in the same way.
    for _ in 0..2 {
        assert!(!mover.clear(shut).await.unwrap());
        assert!(!mover.set_base(shut, BASE).await.unwrap());
        mover.set_gate(None, Some(&gate(Passage::Leaving))).await.unwrap();
    }
    assert_eq!(mover.get("a").await.unwrap().unwrap().value, "3");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_counts_from_another_base_writes_nothing() {
    let server = EtcdServer::start().await;
    let mover = Etcd::connect_past_gate(server.options()).await.unwrap();
    let mut base = BASE;
    // Of those that were open before a move out of etcd and back, the first knows of no base at all.
    for _ in 0..2 {
        let store: Arc<dyn Store> = Etcd::connect(server.options()).await.unwrap();
        let written = put(&store, "a", "1").await;
        assert!(mover.set_base(None, base).await.unwrap());
        base = Revision(base.0 * 2);
        let right = Compare { key: "a".to_owned(), revision: written };
        for compare in [vec![], vec![right]] {
            match attempt(&store, compare).await {
                Err(Error::ReadOnly { reason }) => assert!(reason.contains("restart this server"), "{reason}"),
                other => panic!("{other:?}"),
            }
        }
        // The gate comes first.
        mover.set_gate(None, Some(&gate(Passage::Leaving))).await.unwrap();
        let refused = attempt(&store, vec![]).await.unwrap_err().to_string();
        assert!(refused.contains("being moved"), "{refused}");
        let (_, seen) = mover.gate().await.unwrap().unwrap();
        mover.set_gate(Some(seen), None).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_follows_what_was_here_does_not_see_it_cleared() {
    let server = EtcdServer::start().await;
    let mover = Etcd::connect_past_gate(server.options()).await.unwrap();
    // Of an attempt that was given up.
    let shut = mover.set_gate(None, Some(&gate(Passage::Arriving))).await.unwrap();
    mover.set_gate(shut, None).await.unwrap();
    for passage in [Passage::Arriving, Passage::Restoring] {
        let store: Arc<dyn Store> = Etcd::connect(server.options()).await.unwrap();
        let written = put(&store, "registry/a", "1").await;
        let mut stream = store.watch("registry/", Revision(written.0 - 1)).await.unwrap();
        assert_eq!(next_events(&mut stream).await[0].key, "registry/a");
        let later = put(&store, "registry/b", "1").await;
        assert_eq!(next_events(&mut stream).await[0].key, "registry/b", "a gate of the past stops nobody");
        // While they move away, all can be read on.
        let mut seen = mover.set_gate(None, Some(&gate(Passage::Leaving))).await.unwrap();
        seen = mover.set_gate(seen, Some(&gate(Passage::Left))).await.unwrap();
        assert_eq!(store.range(Range::default()).await.unwrap().records.len(), 2);
        seen = mover.set_gate(seen, Some(&gate(passage))).await.unwrap();
        assert!(mover.clear(seen).await.unwrap());
        let of_gate = |error: &Error| {
            let words = croft_meta::Chain(error).to_string();
            assert!(words.contains("must not be followed meanwhile: ") && words.contains("/var/lib/x"), "{words}");
        };
        of_gate(&last_word(&mut stream).await);
        // Nor from where it ended, nor what there is now.
        of_gate(&last_word(&mut store.watch("registry/", later).await.unwrap()).await);
        of_gate(&store.range(Range::default()).await.unwrap_err());
        assert!(mover.set_base(seen, later.next()).await.unwrap());
        mover.set_gate(seen, None).await.unwrap();
        let refused = store.range(Range::default()).await.unwrap_err().to_string();
        assert!(refused.contains("restart this server"), "{refused}");
        of_gate(&last_word(&mut store.watch("registry/", later).await.unwrap()).await);
    }
}

/// What a watch ends with that shows no change any more.
async fn last_word(stream: &mut BoxStream<'static, Result<WatchItem, Error>>) -> Error {
    loop {
        match stream.next().await.expect("it ends with an error") {
            Ok(WatchItem::Progress(_)) => {}
            Ok(WatchItem::Events(events)) => panic!("{events:?}"),
            Err(error) => return error,
        }
    }
}
