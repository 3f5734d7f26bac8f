//! What only a store at the other end of a connection has to get right.

use std::sync::Arc;
use std::time::Duration;

use croft_store::{Error, Etcd, EtcdOptions, Range, Store, Txn};

use crate::cases::{self, commit, op_put, put};
use crate::etcd_server::EtcdServer;
use crate::handover::{self, next_events};

/// Writes until it is taken: right after a failure etcd may need a moment for its election.
async fn put_patiently(store: &Arc<dyn Store>, key: &str, value: &str) {
    for _ in 0..300 {
        let ops = vec![op_put(key, value.to_owned())];
        match store.txn(Txn { compare: vec![], ops }).await {
            Ok(_) => return,
            Err(Error::Unavailable { .. }) => tokio::time::sleep(Duration::from_millis(100)).await,
            Err(err) => panic!("{err}"),
        }
    }
    panic!("etcd did not come back");
}

#[tokio::test(flavor = "multi_thread")]
async fn it_works_with_tls_and_users() {
    let server = EtcdServer::start_guarded().await;
    let store: Arc<dyn Store> = Etcd::connect(server.options()).await.unwrap();
    handover::a_watch_delivers_history_then_live_changes(store.clone()).await;
    handover::progress_comes_when_asked_for(store.clone()).await;
    cases::a_lease_takes_its_keys_with_it(store.clone()).await;
    store.compact(store.revision().await.unwrap()).await.unwrap();

    let wrong = EtcdOptions { password: Some("wrong".to_owned()), ..server.options() };
    let err = Etcd::connect(wrong).await.unwrap_err();
    let source = std::error::Error::source(&err).map(ToString::to_string).unwrap_or_default();
    assert!(source.contains("invalid user ID or password"), "{err}: {source}");
    let nobody = EtcdOptions { username: None, password: None, ..server.options() };
    assert!(Etcd::connect(nobody).await.is_err());
    let elsewhere = EtcdOptions { prefix: "/other".to_owned(), ..server.options() };
    assert!(Etcd::connect(elsewhere).await.is_err(), "the user may only use /croft");
    let uncertified = EtcdOptions { cert: None, key: None, ..server.options() };
    assert!(Etcd::connect(uncertified).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_etcd_has_forgotten_is_renewed() {
    let mut server = EtcdServer::start_guarded().await;
    let store: Arc<dyn Store> = Etcd::connect(server.options()).await.unwrap();
    let before = put(&store, "a", "1").await;
    let mut stream = store.watch("", before).await.unwrap();
    put(&store, "a", "2").await;
    assert_eq!(next_events(&mut stream).await[0].revision, before.next());
    // Simple tokens live in the server's memory.
    server.kill_member(0);
    server.start_member(0);
    put_patiently(&store, "a", "3").await;
    assert_eq!(store.get("a").await.unwrap().unwrap().value, "3");
    assert_eq!(next_events(&mut stream).await[0].value.as_deref(), Some(&b"3"[..]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_goes_on_over_a_restart_without_gap_or_repeat() {
    let mut server = EtcdServer::start().await;
    let store: Arc<dyn Store> = Etcd::connect(server.options()).await.unwrap();
    let start = store.revision().await.unwrap();
    let mut stream = store.watch("", start).await.unwrap();
    let mut last = start;
    for round in 0..3 {
        for n in 0..20 {
            put_patiently(&store, "k", &format!("{round}/{n}")).await;
            if n == 10 {
                server.kill_member(0);
                server.start_member(0);
            }
        }
        while last < store.revision().await.unwrap() {
            let events = next_events(&mut stream).await;
            assert_eq!((events.len(), events[0].revision), (1, last.next()));
            last = events[0].revision;
        }
    }
    assert!(last.0 >= start.0 + 60);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_survives_the_loss_of_the_member_in_use() {
    let mut server = EtcdServer::start_members(3).await;
    let store: Arc<dyn Store> = Etcd::connect(server.options()).await.unwrap();
    let start = put(&store, "k", "start").await;
    let mut stream = store.watch("", start).await.unwrap();
    put(&store, "k", "seen").await;
    assert_eq!(next_events(&mut stream).await[0].revision, start.next());
    // The first endpoint is the one in use.
    server.kill_member(0);
    assert_eq!(store.get("k").await.unwrap().unwrap().value, "seen");
    put_patiently(&store, "k", "after").await;
    assert_eq!(next_events(&mut stream).await[0].value.as_deref(), Some(&b"after"[..]));
    // And at a new start the dead one is passed over.
    let again = Etcd::connect(server.options()).await.unwrap();
    assert_eq!(again.get("k").await.unwrap().unwrap().value, "after");
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_wait_for_the_election_of_a_new_leader() {
    let mut server = EtcdServer::start_members(3).await;
    let store: Arc<dyn Store> = Etcd::connect(server.options()).await.unwrap();
    put(&store, "k", "there").await;
    // One of them leads.
    for number in 0..3 {
        server.kill_member(number);
        let writer = Arc::clone(&store);
        let written = tokio::spawn(async move { put_patiently(&writer, "w", "done").await });
        while !written.is_finished() {
            assert_eq!(store.get("k").await.unwrap().unwrap().value, "there", "member {number} is gone");
        }
        written.await.unwrap();
        server.start_member(number);
        server.wait_for_member(number).await;
    }
}

/// No connection breaks: that it does not answer must be noticed, and by all who use it.
#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_falls_silent_is_left_by_reads_writes_and_watches() {
    let mut server = EtcdServer::start_members(3).await;
    let store: Arc<dyn Store> = Etcd::connect(server.options()).await.unwrap();
    let start = put(&store, "k", "start").await;
    let mut stream = store.watch("", start).await.unwrap();
    put(&store, "k", "seen").await;
    assert_eq!(next_events(&mut stream).await[0].revision, start.next());
    let begun = std::time::Instant::now();
    // The first endpoint is the one in use.
    server.freeze_member(0);
    assert_eq!(store.get("k").await.unwrap().unwrap().value, "seen");
    put_patiently(&store, "k", "after").await;
    assert_eq!(next_events(&mut stream).await[0].value.as_deref(), Some(&b"after"[..]));
    // Keepalives alone would find the watch out after fifteen.
    assert!(begun.elapsed() < Duration::from_secs(12), "it took {:?}", begun.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn stores_with_different_prefixes_do_not_see_each_other() {
    let server = EtcdServer::start().await;
    let with = |prefix: &str| EtcdOptions { prefix: prefix.to_owned(), ..server.options() };
    let one: Arc<dyn Store> = Etcd::connect(with("/croft")).await.unwrap();
    let two: Arc<dyn Store> = Etcd::connect(with("/croft2")).await.unwrap();
    let start = one.revision().await.unwrap();
    put(&two, "k", "two").await;
    two.request_progress().await.unwrap();
    put(&one, "k", "one").await;
    let seen = one.range(Range::default()).await.unwrap().records;
    assert_eq!((seen.len(), &seen[0].value[..]), (1, &b"one"[..]));
    let mut stream = one.watch("", start).await.unwrap();
    assert_eq!(next_events(&mut stream).await[0].value.as_deref(), Some(&b"one"[..]));
}

#[tokio::test(flavor = "multi_thread")]
async fn big_ranges_come_in_pages_and_big_transactions_are_refused_clearly() {
    let server = EtcdServer::start().await;
    let store: Arc<dyn Store> = Etcd::connect(server.options()).await.unwrap();
    for batch in 0..11 {
        let ops = (0..100).map(|n| op_put(&format!("k/{:04}", batch * 100 + n), vec![b'x'; 2000])).collect();
        commit(&store, ops).await;
    }
    let all = store.range(Range::default()).await.unwrap();
    assert_eq!((all.records.len(), all.more), (1100, false));
    assert!(all.records.is_sorted_by(|a, b| a.key < b.key));
    let some = store.range(Range { limit: 700, ..Range::default() }).await.unwrap();
    assert_eq!((some.records.len(), some.more), (700, true));

    let ops = (0..200).map(|n| op_put(&format!("k{n}"), "v")).collect();
    let answer = store.txn(Txn { compare: vec![], ops }).await;
    assert!(matches!(&answer, Err(Error::Invalid { reason }) if reason.contains("too many operations")), "{answer:?}");
    for size in [1_600_000, 4_000_000] {
        let answer = store.txn(Txn { compare: vec![], ops: vec![op_put("k", vec![0; size])] }).await;
        assert!(matches!(answer, Err(Error::TooLarge { .. })), "{size}: {answer:?}");
    }
}

#[tokio::test]
async fn an_etcd_that_is_not_there_is_reported() {
    let options = EtcdOptions { endpoints: vec!["http://127.0.0.1:1".to_owned()], ..EtcdOptions::default() };
    let err = Etcd::connect(options).await.unwrap_err();
    assert!(matches!(err, Error::Unavailable { .. }), "{err:?}");
    let https = EtcdOptions { endpoints: vec!["https://127.0.0.1:1".to_owned()], ..EtcdOptions::default() };
    assert!(Etcd::connect(https).await.is_err());
    let none = EtcdOptions { endpoints: vec![], ..EtcdOptions::default() };
    assert!(matches!(Etcd::connect(none).await, Err(Error::Invalid { .. })));
}
