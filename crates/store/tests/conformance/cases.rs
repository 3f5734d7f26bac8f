//! Everything but watches.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use croft_meta::Revision;
use croft_store::{Compare, Error, LeaseId, Op, Range, Store, Txn, TxnResult};
use futures::StreamExt;

type S = Arc<dyn Store>;

pub(crate) fn op_put(key: &str, value: impl Into<Bytes>) -> Op {
    Op::Put { key: key.to_owned(), value: value.into(), lease: None }
}

pub(crate) fn op_delete(key: &str) -> Op {
    Op::Delete { key: key.to_owned() }
}

fn compare(key: &str, revision: Revision) -> Compare {
    Compare { key: key.to_owned(), revision }
}

pub(crate) async fn commit(store: &S, ops: Vec<Op>) -> Revision {
    match store.txn(Txn { compare: vec![], ops }).await.unwrap() {
        TxnResult::Committed(revision) => revision,
        TxnResult::Conflict(revision) => panic!("conflict at {revision} without a condition"),
    }
}

pub(crate) async fn put(store: &S, key: &str, value: &str) -> Revision {
    commit(store, vec![op_put(key, value.to_owned())]).await
}

async fn delete(store: &S, key: &str) -> Revision {
    commit(store, vec![op_delete(key)]).await
}

async fn keys(store: &S, range: Range) -> Vec<String> {
    store.range(range).await.unwrap().records.into_iter().map(|record| record.key).collect()
}

fn under(prefix: &str) -> Range {
    Range { prefix: prefix.to_owned(), ..Range::default() }
}

/// Waits until `check` holds; fails after a minute.
async fn eventually(what: &str, mut check: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_mins(1);
    while !check().await {
        assert!(Instant::now() < deadline, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

pub(crate) async fn an_empty_store_is_empty(store: S) {
    assert_eq!(store.get("a").await.unwrap(), None);
    let all = store.range(Range::default()).await.unwrap();
    assert!(all.records.is_empty() && !all.more);
    assert_eq!(all.revision, store.revision().await.unwrap());
}

pub(crate) async fn a_put_is_read_back_with_its_revision(store: S) {
    let revision = put(&store, "a", "1").await;
    let record = store.get("a").await.unwrap().unwrap();
    assert_eq!((record.key.as_str(), &record.value[..], record.revision), ("a", &b"1"[..], revision));
    assert_eq!(store.revision().await.unwrap(), revision);
    let newer = put(&store, "a", "").await;
    let record = store.get("a").await.unwrap().unwrap();
    assert_eq!((record.value.len(), record.revision), (0, newer));
    delete(&store, "a").await;
    assert_eq!(store.get("a").await.unwrap(), None);
}

pub(crate) async fn every_transaction_takes_the_next_revision(store: S) {
    let mut last = store.revision().await.unwrap();
    for n in 0..20 {
        let revision = if n % 3 == 2 { delete(&store, "a").await } else { put(&store, "a", "x").await };
        assert_eq!(revision, last.next());
        last = revision;
    }
}

pub(crate) async fn all_changes_of_a_transaction_share_its_revision(store: S) {
    put(&store, "old", "1").await;
    let ops = vec![op_put("a", "1"), op_delete("old"), op_put("b", "2")];
    let revision = commit(&store, ops).await;
    let all = store.range(Range::default()).await.unwrap();
    let seen: Vec<_> = all.records.iter().map(|record| (record.key.as_str(), record.revision)).collect();
    assert_eq!(seen, [("a", revision), ("b", revision)]);
}

pub(crate) async fn a_failed_condition_changes_nothing(store: S) {
    let first = put(&store, "a", "1").await;
    let second = put(&store, "a", "2").await;
    let txn = |condition| Txn { compare: vec![condition], ops: vec![op_put("a", "3"), op_put("b", "3")] };
    for wrong in [compare("a", first), compare("a", Revision::ZERO), compare("b", second), compare("a", Revision(999))]
    {
        assert_eq!(store.txn(txn(wrong)).await.unwrap(), TxnResult::Conflict(second));
    }
    assert_eq!(keys(&store, Range::default()).await, ["a"]);
    assert_eq!(store.revision().await.unwrap(), second);
    let right = store.txn(txn(compare("a", second))).await.unwrap();
    assert_eq!(right, TxnResult::Committed(second.next()));
    // One wrong condition among right ones is enough.
    let mixed =
        Txn { compare: vec![compare("a", second.next()), compare("b", Revision::ZERO)], ops: vec![op_delete("a")] };
    assert_eq!(store.txn(mixed).await.unwrap(), TxnResult::Conflict(second.next()));
    // Conditions alone are a question.
    let question = Txn { compare: vec![compare("a", second.next())], ops: vec![] };
    assert_eq!(store.txn(question).await.unwrap(), TxnResult::Committed(second.next()));
}

pub(crate) async fn conditions_see_deletions(store: S) {
    let created = put(&store, "a", "1").await;
    let deleted = delete(&store, "a").await;
    for wrong in [created, deleted] {
        let txn = Txn { compare: vec![compare("a", wrong)], ops: vec![op_put("a", "2")] };
        assert_eq!(store.txn(txn).await.unwrap(), TxnResult::Conflict(deleted));
    }
    let txn = Txn { compare: vec![compare("a", Revision::ZERO)], ops: vec![op_put("a", "2")] };
    assert_eq!(store.txn(txn).await.unwrap(), TxnResult::Committed(deleted.next()));
}

pub(crate) async fn a_transaction_without_effect_takes_no_revision(store: S) {
    let revision = put(&store, "a", "1").await;
    assert_eq!(delete(&store, "absent").await, revision);
    assert_eq!(commit(&store, vec![]).await, revision);
    assert_eq!(store.revision().await.unwrap(), revision);
    assert_eq!(commit(&store, vec![op_delete("absent"), op_put("a", "2")]).await, revision.next());
}

pub(crate) async fn bad_transactions_are_refused(store: S) {
    let too_many: Vec<Op> = (0..5000).map(|n| op_put(&format!("k{n}"), "v")).collect();
    let cases = [
        ("an empty key", vec![op_put("", "v")]),
        ("a key twice", vec![op_put("a", "1"), op_put("a", "2")]),
        ("a key put and deleted", vec![op_put("a", "1"), op_delete("a")]),
        ("too many operations", too_many),
    ];
    for (what, ops) in cases {
        let answer = store.txn(Txn { compare: vec![], ops }).await;
        assert!(matches!(answer, Err(Error::Invalid { .. })), "{what}: {answer:?}");
    }
    let huge = store.txn(Txn { compare: vec![], ops: vec![op_put("a", vec![0; 64 << 20])] }).await;
    assert!(matches!(huge, Err(Error::TooLarge { .. })), "{huge:?}");
    assert!(matches!(store.get("").await, Err(Error::Invalid { .. })));
    assert!(store.range(Range::default()).await.unwrap().records.is_empty());
}

pub(crate) async fn odd_keys_are_kept_apart_and_in_byte_order(store: S) {
    let mut odd =
        ["a", "a/", "a/b", "a0", "A", " ", "\0", "a\0", "a\0b", "é", "\u{10ffff}", "%", "_", "'", "a\nb", "//", "日本"]
            .map(str::to_owned)
            .to_vec();
    odd.push("k".repeat(2000));
    for key in &odd {
        put(&store, key, key).await;
    }
    odd.sort();
    assert_eq!(keys(&store, Range::default()).await, odd);
    for key in &odd {
        assert_eq!(store.get(key).await.unwrap().unwrap().value, key.as_bytes(), "{key:?}");
    }
    let expected: Vec<&String> = odd.iter().filter(|key| key.starts_with("a\0")).collect();
    assert_eq!(keys(&store, under("a\0")).await.iter().collect::<Vec<_>>(), expected);
    assert_eq!(keys(&store, under("\u{10ffff}")).await, ["\u{10ffff}"]);
}

pub(crate) async fn binary_and_large_values_come_back_unchanged(store: S) {
    let bytes: Vec<u8> = (0..=u8::MAX).cycle().take(1000).collect();
    // Just below what etcd takes unless told otherwise.
    let large: Vec<u8> = bytes.iter().copied().cycle().take(1_500_000).collect();
    for value in [vec![], vec![0], vec![0xff; 10], bytes, vec![b'x'; 4096], large] {
        let revision = commit(&store, vec![op_put("a", value.clone())]).await;
        let record = store.get("a").await.unwrap().unwrap();
        assert_eq!(record.revision, revision);
        assert!(record.value == value, "a value of {} bytes changed", value.len());
        let all = store.range(under("a")).await.unwrap();
        assert!(all.records[0].value == value);
    }
}

pub(crate) async fn a_range_stays_within_its_prefix(store: S) {
    for key in ["a", "a/1", "a/2", "a0", "b/1"] {
        put(&store, key, "").await;
    }
    assert_eq!(keys(&store, under("a/")).await, ["a/1", "a/2"]);
    assert_eq!(keys(&store, under("a")).await, ["a", "a/1", "a/2", "a0"]);
    assert!(keys(&store, under("c")).await.is_empty());
    assert_eq!(keys(&store, under("b/1")).await, ["b/1"]);
}

pub(crate) async fn a_range_goes_on_after_a_key(store: S) {
    let all: Vec<String> = (0..25).map(|n| format!("k/{n:02}")).collect();
    for key in &all {
        put(&store, key, "v").await;
    }
    put(&store, "l", "outside").await;
    delete(&store, "k/07").await;
    let at = store.revision().await.unwrap();
    let (mut seen, mut after, mut pages) = (Vec::new(), String::new(), 0);
    loop {
        let range = Range { prefix: "k/".to_owned(), after, limit: 6, at: Some(at) };
        let page = store.range(range).await.unwrap();
        pages += 1;
        assert_eq!(page.revision, at);
        seen.extend(page.records.into_iter().map(|record| record.key));
        if !page.more {
            break;
        }
        after = seen.last().unwrap().clone();
        // The pages are all of the same moment.
        put(&store, "k/07", "back").await;
        delete(&store, "k/20").await;
    }
    let expected: Vec<_> = all.iter().filter(|key| *key != "k/07").cloned().collect();
    assert_eq!((seen, pages), (expected, 4));
    let exact = Range { prefix: "k/".to_owned(), limit: 24, at: Some(at), ..Range::default() };
    assert!(!store.range(exact).await.unwrap().more);
    // `after` may be outside of the prefix, on either side.
    assert_eq!(keys(&store, Range { after: "a".to_owned(), limit: 1, ..under("k/") }).await, ["k/00"]);
    assert!(keys(&store, Range { after: "k0".to_owned(), ..under("k/") }).await.is_empty());
}

pub(crate) async fn a_range_of_the_past_shows_the_past(store: S) {
    let mut states = Vec::new();
    for n in 0..10 {
        let ops = match n % 3 {
            0 => vec![op_put("a", format!("a{n}")), op_put("c", "c")],
            1 => vec![op_put("b", format!("b{n}"))],
            _ => vec![op_delete("a"), op_put("b", format!("b{n}"))],
        };
        let revision = commit(&store, ops).await;
        let now = store.range(Range::default()).await.unwrap();
        assert_eq!(now.revision, revision);
        states.push(now);
    }
    for state in states {
        let then = store.range(Range { at: Some(state.revision), ..Range::default() }).await.unwrap();
        assert_eq!((then.records, then.revision), (state.records, state.revision));
    }
}

pub(crate) async fn a_range_of_the_future_is_refused(store: S) {
    let newest = put(&store, "a", "1").await;
    let answer = store.range(Range { at: Some(Revision(newest.0 + 5)), ..Range::default() }).await;
    assert!(
        matches!(answer, Err(Error::Future { requested, .. }) if requested == Revision(newest.0 + 5)),
        "{answer:?}"
    );
    let answer = store.compact(Revision(newest.0 + 5)).await;
    assert!(matches!(answer, Err(Error::Future { .. })), "{answer:?}");
}

pub(crate) async fn compaction_forgets_the_past_and_keeps_the_present(store: S) {
    put(&store, "kept", "1").await;
    put(&store, "gone", "1").await;
    for n in 0..50 {
        put(&store, "busy", &n.to_string()).await;
    }
    let point = delete(&store, "gone").await;
    let at_point = store.range(Range::default()).await.unwrap();
    let after = put(&store, "busy", "last").await;
    store.compact(point).await.unwrap();
    store.compact(point).await.expect("again does nothing");
    store.compact(Revision(point.0 - 3)).await.expect("further back does nothing");
    let answer = store.range(Range { at: Some(Revision(point.0 - 1)), ..Range::default() }).await;
    assert!(
        matches!(answer, Err(Error::Compacted { requested, oldest }) if requested.0 == point.0 - 1 && oldest == point),
        "{answer:?}"
    );
    let then = store.range(Range { at: Some(point), ..Range::default() }).await.unwrap();
    assert_eq!(then.records, at_point.records);
    assert_eq!(keys(&store, Range::default()).await, ["busy", "kept"]);
    assert_eq!(store.get("busy").await.unwrap().unwrap().revision, after);
    // The newest revision is known even when nothing of it is left.
    let last = delete(&store, "busy").await;
    store.compact(last).await.unwrap();
    assert_eq!(store.revision().await.unwrap(), last);
    assert_eq!(keys(&store, Range::default()).await, ["kept"]);
    let recreate = Txn { compare: vec![compare("busy", Revision::ZERO)], ops: vec![op_put("busy", "new")] };
    assert_eq!(store.txn(recreate).await.unwrap(), TxnResult::Committed(last.next()));
}

pub(crate) async fn a_watch_from_before_compaction_is_refused(store: S) {
    let mut point = put(&store, "a", "0").await;
    for n in 1..10 {
        point = put(&store, "a", &n.to_string()).await;
    }
    let live = put(&store, "a", "live").await;
    store.compact(point).await.unwrap();
    // At once, or as the stream's first item.
    let refused = match store.watch("", Revision(point.0 - 5)).await {
        Err(err) => err,
        Ok(mut stream) => stream.next().await.unwrap().unwrap_err(),
    };
    assert!(matches!(refused, Error::Compacted { oldest, .. } if oldest == point), "{refused:?}");
    let mut stream = store.watch("", point).await.unwrap();
    let events = super::handover::next_events(&mut stream).await;
    assert_eq!(events[0].revision, live);
}

pub(crate) async fn increments_with_conditions_lose_nothing(store: S) {
    const TASKS: u64 = 8;
    const EACH: u64 = 25;
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..TASKS {
        let store = store.clone();
        tasks.spawn(async move {
            let mut done = 0;
            while done < EACH {
                let found = store.get("n").await.unwrap();
                let (value, revision) = found.map_or((0, Revision::ZERO), |record| {
                    (std::str::from_utf8(&record.value).unwrap().parse::<u64>().unwrap(), record.revision)
                });
                let ops = vec![op_put("n", (value + 1).to_string())];
                let result = store.txn(Txn { compare: vec![compare("n", revision)], ops }).await.unwrap();
                done += u64::from(matches!(result, TxnResult::Committed(_)));
            }
        });
    }
    tasks.join_all().await;
    assert_eq!(store.get("n").await.unwrap().unwrap().value, (TASKS * EACH).to_string());
}

async fn put_leased(store: &S, key: &str, lease: LeaseId) -> Result<TxnResult, Error> {
    let op = Op::Put { key: key.to_owned(), value: Bytes::from_static(b"v"), lease: Some(lease) };
    store.txn(Txn { compare: vec![], ops: vec![op] }).await
}

pub(crate) async fn a_lease_takes_its_keys_with_it(store: S) {
    let lease = store.lease_grant(Duration::from_mins(10)).await.unwrap();
    let other = store.lease_grant(Duration::from_mins(10)).await.unwrap();
    assert_ne!(lease, other);
    for (key, lease) in [("a", lease), ("b", lease), ("detached", lease), ("deleted", lease), ("other", other)] {
        put_leased(&store, key, lease).await.unwrap();
    }
    put(&store, "detached", "no lease").await;
    let before = delete(&store, "deleted").await;
    let mut stream = store.watch("", before).await.unwrap();
    store.lease_revoke(lease).await.unwrap();
    let events = super::handover::next_events(&mut stream).await;
    let seen: Vec<_> = events.iter().map(|event| (event.key.as_str(), event.revision, event.value.is_none())).collect();
    assert_eq!(seen, [("a", before.next(), true), ("b", before.next(), true)]);
    assert_eq!(keys(&store, Range::default()).await, ["detached", "other"]);
    assert!(matches!(store.lease_revoke(lease).await, Err(Error::NoSuchLease(id)) if id == lease));
    assert!(matches!(store.lease_keep_alive(lease).await, Err(Error::NoSuchLease(id)) if id == lease));
}

pub(crate) async fn an_expired_lease_takes_its_keys_with_it(store: S) {
    let lease = store.lease_grant(Duration::from_secs(2)).await.unwrap();
    put_leased(&store, "a", lease).await.unwrap();
    put_leased(&store, "b", lease).await.unwrap();
    put(&store, "stays", "").await;
    let before = store.revision().await.unwrap();
    eventually("the lease ends", async || keys(&store, Range::default()).await == ["stays"]).await;
    assert_eq!(store.revision().await.unwrap(), before.next());
    assert!(matches!(put_leased(&store, "a", lease).await, Err(Error::NoSuchLease(_))));
}

pub(crate) async fn a_lease_that_is_kept_alive_stays(store: S) {
    let kept = store.lease_grant(Duration::from_secs(3)).await.unwrap();
    let left = store.lease_grant(Duration::from_secs(6)).await.unwrap();
    put_leased(&store, "kept", kept).await.unwrap();
    put_leased(&store, "left", left).await.unwrap();
    eventually("the other lease ends", async || {
        assert!(store.lease_keep_alive(kept).await.unwrap() >= Duration::from_secs(2));
        store.get("left").await.unwrap().is_none()
    })
    .await;
    assert!(store.get("kept").await.unwrap().is_some());
}

pub(crate) async fn an_unknown_lease_is_refused(store: S) {
    let unknown = LeaseId(123_456_789);
    assert!(matches!(put_leased(&store, "a", unknown).await, Err(Error::NoSuchLease(id)) if id == unknown));
    assert_eq!(store.get("a").await.unwrap(), None);
    assert!(matches!(store.lease_keep_alive(unknown).await, Err(Error::NoSuchLease(_))));
    assert!(matches!(store.lease_revoke(unknown).await, Err(Error::NoSuchLease(_))));
}

pub(crate) async fn a_closed_store_answers_nothing(store: S) {
    let newest = put(&store, "a", "1").await;
    let mut stream = store.watch("", newest).await.unwrap();
    store.close().await.unwrap();
    let end = loop {
        match stream.next().await {
            Some(Ok(_)) => {}
            end => break end,
        }
    };
    assert!(matches!(end, Some(Err(Error::Unavailable { .. })) | None), "{end:?}");
    assert!(matches!(store.get("a").await, Err(Error::Unavailable { .. })));
    assert!(matches!(store.revision().await, Err(Error::Unavailable { .. })));
    let answer = store.txn(Txn { compare: vec![], ops: vec![op_put("a", "2")] }).await;
    assert!(matches!(answer, Err(Error::Unavailable { .. })), "{answer:?}");
    assert!(store.watch("", newest).await.is_err());
    store.close().await.expect("closing twice is fine");
}
