//! Killed at any moment and ended politely: nothing acknowledged is lost, nothing goes back, and every answer fits in one order.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use croft_e2e::witness::{self, Rng, Witnesses};
use croft_meta::Revision;
use croft_store::{Embedded, EmbeddedOptions, Store as _, WatchItem};
use croft_testkit::history::Change;
use croft_testkit::{Client, Croft, ServerKind, StoreKind, eventually, patience};
use futures::StreamExt as _;
use serde_json::{Value, json};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// How many changes a start replays.
const REPLAYED: u64 = 1_000;
/// By then the definitions are written, which come first.
const FIRST: u64 = 12;

fn revision(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().and_then(|v| v.parse().ok()).expect("a numeric resourceVersion")
}

async fn list(client: &Client) -> Value {
    client.get(&format!("{MAPS}?labelSelector=crash")).await.expect("an answer").ok().expect("a list")
}

/// What one writer was told: the value of each object, or that it may be either of two.
#[derive(Default)]
struct Ledger {
    acknowledged: BTreeMap<String, String>,
    /// Sent, but the answer was lost with the server.
    in_doubt: BTreeMap<String, String>,
}

/// Creates and changes objects of its own until a request fails.
async fn write_until_it_fails(client: Client, writer: usize, counter: Arc<AtomicU64>, mut ledger: Ledger) -> Ledger {
    ledger.in_doubt.clear();
    loop {
        let n = counter.fetch_add(1, Ordering::Relaxed);
        let (name, value) = (format!("w{writer}-{}", n % 7), n.to_string());
        let exists = ledger.acknowledged.contains_key(&name);
        let body = json!({"metadata": {"name": name, "labels": {"crash": "yes"}}, "data": {"n": value}});
        let answer =
            if exists { client.put(&format!("{MAPS}/{name}"), &body).await } else { client.post(MAPS, &body).await };
        match answer {
            Ok(answer) if (200..300).contains(&answer.status) => {
                ledger.acknowledged.insert(name, value);
            }
            // A create in doubt from the last round did happen: take it as it is.
            Ok(answer) if answer.status == 409 && !exists => {
                ledger.acknowledged.insert(name, String::new());
            }
            Ok(answer) => panic!("{}: {}", answer.status, answer.text()),
            Err(_) => {
                ledger.in_doubt.insert(name, value);
                return ledger;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledged_writes_survive_being_killed() {
    if !ServerKind::Embedded.wanted() {
        return;
    }
    let rounds: u64 = std::env::var("CROFT_CRASH_ROUNDS").ok().and_then(|v| v.parse().ok()).unwrap_or(20);
    let mut croft = Croft::start(StoreKind::Embedded).await.expect("croft starts");
    let counter = Arc::new(AtomicU64::new(0));
    let mut ledgers: Vec<Ledger> = (0..4).map(|_| Ledger::default()).collect();
    let mut highest = 0;
    for round in 0..rounds {
        let writers = ledgers.drain(..).enumerate().map(|(writer, ledger)| {
            let client = croft.client().expect("a client");
            tokio::spawn(write_until_it_fails(client, writer, counter.clone(), ledger))
        });
        let writers: Vec<_> = writers.collect();
        // A different moment each round; how many writes are under way decides, not the clock.
        let (start, wanted) = (counter.load(Ordering::Relaxed), 3 + (round * 37) % 101);
        eventually("writes go on", async || {
            let done = counter.load(Ordering::Relaxed) - start;
            if done >= wanted { Ok(()) } else { Err(format!("{done} of {wanted}")) }
        })
        .await;
        croft.kill().expect("killed");
        for writer in writers {
            ledgers.push(writer.await.expect("a writer only stops when its server does"));
        }
        croft.restart().await.expect("it starts again");

        let list = list(&croft.client().expect("a client")).await;
        assert!(revision(&list) >= highest, "round {round}: the revision went back from {highest}");
        highest = revision(&list);
        let items = list["items"].as_array().expect("items");
        let value = |name: &str| {
            let item = items.iter().find(|i| i["metadata"]["name"] == name)?;
            assert!(revision(item) <= highest, "an object newer than its list");
            item["data"]["n"].as_str().map(str::to_owned)
        };
        for ledger in &mut ledgers {
            for (name, acknowledged) in &mut ledger.acknowledged {
                let found = value(name);
                let doubted = ledger.in_doubt.get(name);
                let right = found.as_ref() == Some(acknowledged) || (found.is_some() && found.as_ref() == doubted);
                assert!(
                    right || acknowledged.is_empty(),
                    "round {round}: {name} should be {acknowledged}, is {found:?}"
                );
                *acknowledged = found.expect("it is there");
            }
        }
    }
}

/// Everything that happened, as the file of a server has it that was killed.
async fn truth(croft: &Croft, from: u64, until: u64) -> Vec<Change> {
    const STORED: &str = "registry/core/configmaps/default/";
    let options = EmbeddedOptions { retention: None, ..EmbeddedOptions::default() };
    let store = Embedded::open(&croft.data_dir().join("store"), options).expect("nobody has it open");
    let mut changes = store.watch(STORED, Revision(from)).await.expect("a watch");
    let mut truth: Vec<Change> = Vec::new();
    while truth.last().is_none_or(|change| change.revision < until) {
        let item =
            tokio::time::timeout(croft_testkit::patience(), changes.next()).await.expect("the last change comes");
        let WatchItem::Events(events) = item.expect("it goes on").expect("nothing is missing") else { continue };
        for event in events {
            let key = event.key.strip_prefix(STORED).expect("what was asked for").to_owned();
            if !witness::is_ours(&key) {
                continue;
            }
            let value = event.value.map(|value| serde_json::from_slice::<Value>(&value).expect("JSON"));
            let value = value.map(|object| witness::value(&object).expect("what a witness wrote"));
            truth.push(Change { key, value, revision: event.revision.0 });
        }
    }
    store.close().await.expect("closed");
    truth
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_answer_fits_in_one_order_however_often_it_is_killed() {
    if !ServerKind::Embedded.wanted() {
        return;
    }
    let seed = witness::seed();
    let mut rng = Rng::new(seed);
    let mut croft = Croft::start(StoreKind::Embedded).await.expect("croft starts");
    let witnesses = Witnesses::start(seed, &[&croft]).await.expect("they start");
    for _ in 0..6 * witness::rounds() {
        witnesses.next_round();
        let writes = usize::try_from(10 + rng.below(40)).expect("a small number");
        witnesses.progress(writes).await.expect("writes go on");
        croft.kill().expect("killed");
        croft.restart().await.expect("it starts again");
    }
    witnesses.progress(10).await.expect("writes go on");
    let mut testimony = witnesses.finish().await.expect("all is well in the end");
    croft.kill().expect("killed");
    testimony.history.truth = truth(&croft, testimony.from, testimony.until).await;
    assert!(testimony.complaints.is_empty(), "{:#?}", testimony.complaints);
    let figures = testimony.history.check().unwrap_or_else(|wrong| panic!("{wrong:#?}"));
    eprintln!("{figures:?}");
}

/// A start takes the state of a thousand changes ago and replays the rest. When that moment is before the definitions of all
/// kinds were made, the server must have caught up with them before it looks for what it has of these kinds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_that_replays_the_definitions_knows_their_kinds() {
    if !ServerKind::Embedded.wanted() {
        return;
    }
    let mut croft = Croft::start(StoreKind::Embedded).await.expect("croft starts");
    let client = croft.client().expect("a client");
    let map = client.post(MAPS, &json!({"metadata": {"name": "many"}})).await.expect("an answer").ok().expect("made");
    let mut newest = revision(&map);
    assert!(newest < REPLAYED, "the first start writes more than is replayed: {newest}");
    while newest <= REPLAYED + FIRST {
        if newest > REPLAYED {
            croft.kill().expect("killed");
            croft.restart().await.unwrap_or_else(|err| panic!("it starts again at revision {newest}: {err:#}"));
        }
        let change = json!({"data": {"n": newest.to_string()}});
        let changed = croft.client().expect("a client").patch(&format!("{MAPS}/many"), "merge-patch", &change).await;
        newest = revision(&changed.expect("an answer").ok().expect("changed"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sigterm_ends_it_within_five_seconds_even_with_watchers() {
    for (kind, store) in [(ServerKind::Embedded, StoreKind::Embedded), (ServerKind::Etcd, StoreKind::Etcd)] {
        if !kind.wanted() {
            continue;
        }
        let mut croft = Croft::start(store).await.expect("croft starts");
        let made = json!({"metadata": {"name": "kept", "labels": {"crash": "yes"}}});
        let made = croft.client().expect("a client").post(MAPS, &made).await.expect("an answer").ok().expect("made");
        // A machine that is busy with something else may take its time once, but not each time.
        let mut took: Vec<Duration> = Vec::new();
        while took.len() < 5 && took.iter().all(|took| *took >= Duration::from_secs(5)) {
            let call = croft_testkit::Call::new(http::Method::GET, &format!("{MAPS}?watch=1&timeoutSeconds=300"));
            let mut watch = croft.client().expect("a client").open(call).await.expect("a watch");
            assert!(watch.event().await.expect("an event").is_some());
            took.push(croft.terminate(patience()).await.expect("it ends cleanly"));
            croft.restart().await.expect("it starts again");
            let again = croft.client().expect("a client").get(&format!("{MAPS}/kept")).await.expect("an answer");
            assert_eq!(again.ok().expect("kept"), made, "{store:?}: the same object to the last byte");
        }
        assert!(took.last().is_some_and(|took| *took < Duration::from_secs(5)), "{store:?}: it took {took:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_resumes_where_it_was_after_a_restart() {
    for (kind, store) in [(ServerKind::Embedded, StoreKind::Embedded), (ServerKind::Etcd, StoreKind::Etcd)] {
        if !kind.wanted() {
            continue;
        }
        let mut croft = Croft::start(store).await.expect("croft starts");
        let make = async |client: &Client, name: &str| {
            let body = json!({"metadata": {"name": name, "labels": {"crash": "yes"}}});
            revision(&client.post(MAPS, &body).await.expect("an answer").ok().expect("made"))
        };
        let client = croft.client().expect("a client");
        let before = make(&client, "before").await;
        let missed = make(&client, "missed").await;
        assert!(missed > before);
        croft.restart().await.expect("it starts again");
        let client = croft.client().expect("a client");
        let path = format!("{MAPS}?watch=1&resourceVersion={before}&labelSelector=crash&timeoutSeconds=60");
        let mut watch = client.open(croft_testkit::Call::new(http::Method::GET, &path)).await.expect("a watch");
        let after = make(&client, "after").await;
        assert!(after > missed, "{store:?}: revisions go on");
        for wanted in ["missed", "after"] {
            let event = watch.event().await.expect("an event").expect("the watch goes on");
            assert_eq!(event["object"]["metadata"]["name"], wanted, "{store:?}: {event}");
        }
    }
}
