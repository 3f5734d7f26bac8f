//! How members of etcd are, and what is done for them.

use std::sync::Arc;

use croft_meta::Revision;
use croft_store::{Error, Etcd, History, Range, Store, Txn, TxnResult};

use crate::cases::{op_delete, op_put, put};
use crate::etcd_server::EtcdServer;

#[tokio::test(flavor = "multi_thread")]
async fn members_are_defragmented_one_after_the_other() {
    let mut server = EtcdServer::start_members(3).await;
    let store: Arc<dyn Store> = Etcd::connect(server.options()).await.unwrap();
    let value = "x".repeat(200 * 1024);
    let mut last = store.revision().await.unwrap();
    for number in 0..60 {
        last = put(&store, &format!("k{}", number % 3), &value).await;
    }
    // What was forgotten is gone a while later: it is waited for when it is asked for with defragmenting.
    store.compact(Revision(last.0 - 1)).await.unwrap();
    let before = store.status().await.unwrap();
    assert_eq!((before.engine.as_str(), before.revision, before.members.len()), ("etcd", last.0, 3));
    assert_eq!(before.compacted_revision, last.0 - 1);
    assert_eq!(before.members.iter().filter(|member| member.is_leader).count(), 1, "{before:?}");
    assert!(before.members.iter().all(|member| member.problems.is_empty()), "{before:?}");
    assert!(before.size_bytes > 10 << 20, "{before:?}");
    assert!(before.last_compaction.is_some(), "{before:?}");

    store.defragment(History::Forgotten).await.unwrap();
    let after = store.status().await.unwrap();
    assert!(after.members.iter().all(|member| member.size_bytes < 4 << 20), "{after:?}");
    assert_eq!(store.stats().size_bytes, after.size_bytes);
    // Another server is at it.
    server.etcdctl(&["put", "/croft-maintenance", "x"]);
    match store.defragment(History::Forgotten).await {
        Err(Error::Unavailable { reason }) => assert!(reason.contains("another server"), "{reason}"),
        other => panic!("{other:?}"),
    }
    server.etcdctl(&["del", "/croft-maintenance"]);
    assert_eq!(store.check().await.unwrap(), Vec::<String>::new());
    put(&store, "k", "still").await;

    // With one of them away the others are needed.
    server.kill_member(0);
    match store.defragment(History::Forgotten).await {
        Err(Error::Unavailable { reason }) => assert!(reason.contains("does not answer"), "{reason}"),
        other => panic!("{other:?}"),
    }
    let status = store.status().await.unwrap();
    assert_eq!(status.members[0].problems, ["it does not answer"]);
}

/// Until it is refused; how often it was not.
async fn put_until_full(store: &Arc<dyn Store>, key: impl Fn(usize) -> String) -> (usize, Error) {
    let value = "x".repeat(100 * 1024);
    for count in 0..200 {
        match store.txn(Txn { compare: Vec::new(), ops: vec![op_put(&key(count), value.clone())] }).await {
            Ok(TxnResult::Committed(_)) => {}
            Ok(other) => panic!("{other:?}"),
            Err(error) => return (count, error),
        }
    }
    panic!("it is never full");
}

/// A quota so small that it is used up at once.
#[tokio::test(flavor = "multi_thread")]
async fn an_etcd_that_is_full_takes_writes_again_once_it_is_defragmented() {
    let server = EtcdServer::start_with_quota(4 << 20).await;
    let store: Arc<dyn Store> = Etcd::connect(server.options()).await.unwrap();
    put(&store, "kept", "k").await;
    let (written, refused) = put_until_full(&store, |_| "k".to_owned()).await;
    assert!(matches!(&refused, Error::ReadOnly { reason } if reason.contains("croft store defrag")), "{refused}");
    let status = store.status().await.unwrap();
    assert_eq!(status.alarms, ["NOSPACE"], "{status:?}");
    assert!(status.read_only.is_some() && store.stats().read_only.is_some() && !status.is_damaged);
    assert!(status.members[0].problems[0].starts_with("NOSPACE"), "{status:?}");
    // Reads go on, with all that was acknowledged.
    assert_eq!(store.get("kept").await.unwrap().unwrap().value.as_ref(), b"k");
    assert_eq!(store.get("k").await.unwrap().unwrap().revision, Revision(status.revision));
    assert!(written > 20);

    store.defragment(History::Forgotten).await.unwrap();
    put(&store, "k", "v").await;
    let status = store.status().await.unwrap();
    assert!(status.alarms.is_empty() && status.read_only.is_none(), "{status:?}");

    // Full of what is needed: then it is said that there is nothing to be won.
    let mut round = 0;
    let refused = loop {
        put_until_full(&store, |count| format!("many/{round}-{count}")).await;
        match store.defragment(History::Forgotten).await {
            Ok(()) => round += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(&refused, Error::ReadOnly { reason } if reason.contains("still full")), "{refused}");
    for record in store.range(Range { prefix: "many/".to_owned(), ..Range::default() }).await.unwrap().records {
        store.txn(Txn { compare: Vec::new(), ops: vec![op_delete(&record.key)] }).await.unwrap();
    }
    store.defragment(History::Forgotten).await.unwrap();
    put(&store, "k", "after").await;
}
