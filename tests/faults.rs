//! Disks that fill up or rot, an etcd that hangs, dies or forgets, and signals at bad moments.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use croft_store::{Embedded, EmbeddedOptions, EtcdOptions, Op, Store, Txn};
use croft_testkit::{Call, Client, Croft, Process, ServerKind, StoreKind, Stream, eventually, patience};
use http::Method;
use rustix::process::Signal;
use serde_json::{Value, json};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Where the store has them.
const STORED: &str = "registry/core/configmaps/default/";

async fn start(store: StoreKind) -> Option<Croft> {
    let kind = if store == StoreKind::Etcd { ServerKind::Etcd } else { ServerKind::Embedded };
    if !kind.wanted() {
        return None;
    }
    Some(Croft::start(store).await.expect("croft starts"))
}

fn map(name: &str) -> Value {
    json!({"metadata": {"name": name, "labels": {"fault": "yes"}}})
}

async fn make(client: &Client, name: &str) -> Value {
    client.post(MAPS, &map(name)).await.expect("an answer").ok().expect("made")
}

async fn watch(client: &Client) -> Stream {
    let path = format!("{MAPS}?watch=1&timeoutSeconds=300&labelSelector=fault");
    client.open(Call::new(Method::GET, &path)).await.expect("a watch")
}

async fn next_name(watch: &mut Stream) -> String {
    let event = watch.event().await.expect("an event").expect("the watch goes on");
    assert_eq!(event["type"], "ADDED", "{event}");
    event["object"]["metadata"]["name"].as_str().expect("a name").to_owned()
}

fn spawn(dir: &Path) -> Process {
    let mut command = Command::new(croft_testkit::binary().expect("the program"));
    command.arg("server").arg("--data-dir").arg(dir).args(["--listen", "127.0.0.1:0"]);
    Process::spawn("croft", command, &dir.join("test.log")).expect("it starts")
}

/// Runs `croft server` on `dir`, which must end by itself; gives how it ended and what it said last.
async fn run_to_its_end(dir: &Path) -> String {
    let mut process = spawn(dir);
    eventually("it ends by itself", async || match process.check_running() {
        Ok(()) => Err("it still runs"),
        Err(ended) => Ok(ended.to_string()),
    })
    .await
}

/// etcd is there but says nothing: the worst of its faults, since no connection breaks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_etcd_is_not_waited_for_and_comes_back() {
    let Some(mut croft) = start(StoreKind::Etcd).await else { return };
    let client = croft.client().expect("a client");
    make(&client, "before").await;
    let mut watch = watch(&client).await;
    assert_eq!(next_name(&mut watch).await, "before");

    let etcd = &croft.etcd().expect("it has one").process;
    etcd.signal(Signal::STOP).expect("stopped");
    // The signal is sent; that every thread of etcd has stopped shows in its silence.
    eventually("the silence is noticed", async || {
        let ready = client.get("/readyz").await?;
        let is_noticed = ready.status == 500 && ready.text().contains("[-]store failed");
        is_noticed.then_some(()).ok_or_else(|| anyhow::anyhow!("{} {}", ready.status, ready.text()))
    })
    .await;
    let started = Instant::now();
    let path = format!("{MAPS}/before");
    let lost = map("lost");
    let (read, written) = tokio::join!(client.get(&path), client.post(MAPS, &lost));
    let took = started.elapsed();
    for answer in [read.expect("an answer"), written.expect("an answer")] {
        assert_eq!((answer.status, answer.json()["reason"].as_str()), (503, Some("ServiceUnavailable")));
    }
    assert!(took < Duration::from_secs(15), "it took {took:?}");
    assert_eq!(client.get("/livez").await.expect("an answer").status, 200, "a restart would not help");
    // What is known already can still be had by those who take it as it is.
    assert_eq!(client.get(&format!("{MAPS}?resourceVersion=0")).await.expect("an answer").status, 200);

    croft.etcd().expect("it has one").process.signal(Signal::CONT).expect("goes on");
    eventually("it is ready again", async || {
        client.get("/readyz").await?.text().eq("ok").then_some(()).ok_or_else(|| anyhow::anyhow!("no"))
    })
    .await;
    make(&client, "after").await;
    // The write without an answer may have come through.
    let next = next_name(&mut watch).await;
    if next == "lost" {
        assert_eq!(next_name(&mut watch).await, "after");
    } else {
        assert_eq!(next, "after");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_etcd_that_dies_under_load_loses_no_write_and_no_event() {
    let Some(mut croft) = start(StoreKind::Etcd).await else { return };
    let client = croft.client().expect("a client");
    let mut watch = watch(&client).await;
    let (counter, done) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let writer = {
        let (client, counter, done) = (client.clone(), Arc::clone(&counter), Arc::clone(&done));
        tokio::spawn(async move {
            let mut acknowledged = Vec::new();
            while !done.load(Ordering::Relaxed) {
                let name = format!("n{}", counter.load(Ordering::Relaxed) + acknowledged.len() as u64);
                let answer = client.post(MAPS, &map(&name)).await.expect("an answer, whatever etcd does");
                match answer.status {
                    201 => acknowledged.push(name),
                    // Of the last attempt it is not known what became of it; a new name, then.
                    _ => drop(counter.fetch_add(1, Ordering::Relaxed)),
                }
            }
            acknowledged
        })
    };
    let mut seen = Vec::new();
    for _ in 0..3 {
        for _ in 0..20 {
            seen.push(next_name(&mut watch).await);
        }
        croft.etcd().expect("it has one").restart().await.expect("etcd starts again");
    }
    for _ in 0..20 {
        seen.push(next_name(&mut watch).await);
    }
    done.store(true, Ordering::Relaxed);
    let acknowledged = writer.await.expect("the writer ends");
    let last = acknowledged.last().expect("something was written").clone();
    while seen.last() != Some(&last) {
        seen.push(next_name(&mut watch).await);
    }
    let list = client.get(&format!("{MAPS}?labelSelector=fault")).await.expect("an answer").ok().expect("a list");
    let names: Vec<&str> =
        list["items"].as_array().expect("items").iter().filter_map(|i| i["metadata"]["name"].as_str()).collect();
    for name in &acknowledged {
        assert!(names.contains(&name.as_str()), "{name} was acknowledged and is gone");
        assert_eq!(seen.iter().filter(|n| *n == name).count(), 1, "{name} must be seen once: {seen:?}");
    }
}

/// While the server was away, somebody else changed things and had etcd forget how.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_missed_and_forgotten_is_read_anew() {
    let Some(mut croft) = start(StoreKind::Etcd).await else { return };
    let client = croft.client().expect("a client");
    for name in ["kept", "gone"] {
        make(&client, name).await;
    }
    let mut watch = watch(&client).await;
    for _ in 0..2 {
        next_name(&mut watch).await;
    }
    croft.process().signal(Signal::STOP).expect("stopped");
    let etcd = croft.etcd().expect("it has one");
    // Breaks the connection, so that nothing of what follows is on its way to the server.
    etcd.restart().await.expect("etcd starts again");
    let options = EtcdOptions { endpoints: vec![etcd.url.clone()], ..EtcdOptions::default() };
    let other = croft_store::Etcd::connect(options).await.expect("a second client");
    let key = |name: &str| format!("{STORED}{name}");
    let kept = other.get(&key("kept")).await.expect("read").expect("it is there");
    let new = String::from_utf8(kept.value.to_vec()).expect("text").replace("kept", "new");
    let ops = vec![Op::Delete { key: key("gone") }, Op::Put { key: key("new"), value: Bytes::from(new), lease: None }];
    other.txn(Txn { ops, ..Txn::default() }).await.expect("written");
    let newest = other.revision().await.expect("a revision");
    other.compact(newest).await.expect("compacted");
    croft.process().signal(Signal::CONT).expect("goes on");

    let event = watch.event().await.expect("an event").expect("the reason for the end");
    assert_eq!((event["type"].as_str(), event["object"]["code"].as_u64()), (Some("ERROR"), Some(410)), "{event}");
    assert_eq!(client.get(&format!("{MAPS}/gone")).await.expect("an answer").status, 404);
    assert_eq!(client.get(&format!("{MAPS}/new")).await.expect("an answer").status, 200);
    make(&client, "later").await;
    assert_eq!(client.delete(&format!("{MAPS}/new")).await.expect("an answer").status, 200);
}

/// Damage in what is read last, when the server has nearly started.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damage_ends_the_program_with_advice_and_no_core() {
    if !ServerKind::Embedded.wanted() {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let store = Embedded::open(&dir.path().join("store"), EmbeddedOptions::default()).expect("a store");
    let put = |n: usize| {
        let key = format!("{STORED}c{n}");
        let value = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("c{n}"), "namespace": "default"}, "data": {"needle": format!("in-haystack-{n}")}});
        store.txn(Txn {
            ops: vec![Op::Put { key, value: Bytes::from(value.to_string()), lease: None }],
            ..Txn::default()
        })
    };
    futures::future::try_join_all((0..1500).map(put)).await.expect("written");
    store.close().await.expect("closed");
    let path = dir.path().join("store/store.db");
    let mut file = std::fs::read(&path).expect("the file");
    let needle = b"in-haystack-1499";
    let at = file.windows(needle.len()).position(|w| w == needle).expect("it is in the file");
    file[at] ^= 0x20;
    std::fs::write(&path, file).expect("written");

    let text = run_to_its_end(dir.path()).await;
    assert!(text.contains("ended with exit status: 1;"), "{text}");
    let last = text.lines().last().unwrap_or_default();
    assert!(last.contains("store.db is damaged") && last.contains("croft store salvage"), "{text}");
    assert!(!text.contains("panicked"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_first_start_that_fails_does_not_use_up_the_password() {
    if !ServerKind::Embedded.wanted() {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let in_the_way = dir.path().join("kubeconfig");
    std::fs::create_dir(&in_the_way).expect("made");
    let text = run_to_its_end(dir.path()).await;
    assert!(text.contains("ended with exit status: 1;"), "{text}");
    assert!(text.contains("the admin kubeconfig could not be written"), "{text}");

    std::fs::remove_dir(&in_the_way).expect("removed");
    let mut process = spawn(dir.path());
    eventually("it is ready", async || {
        process.check_running()?;
        let log = process.log_tail(100);
        if log.contains("Croft is ready") && log.contains("password") { Ok(()) } else { Err(anyhow::anyhow!(log)) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sigterm_amid_watches_and_writes_loses_nothing() {
    for store in [StoreKind::Embedded, StoreKind::Etcd] {
        let Some(mut croft) = start(store).await else { continue };
        // A connection carries 250 of them at the most.
        let mut watches = Vec::new();
        for _ in 0..5 {
            let client = croft.client().expect("a client");
            let opened = futures::future::join_all((0..100).map(|_| watch(&client))).await;
            watches.push((client, opened));
        }
        let written = Arc::new(AtomicU64::new(0));
        let writers: Vec<_> = (0..4)
            .map(|writer| {
                let (client, written) = (croft.client().expect("a client"), Arc::clone(&written));
                tokio::spawn(async move {
                    let mut names = Vec::new();
                    loop {
                        let name = format!("w{writer}-{}", names.len());
                        match client.post(MAPS, &map(&name)).await {
                            Ok(answer) if answer.status == 201 => names.push(name),
                            _ => return names,
                        }
                        written.fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        eventually("writes go on", async || {
            let done = written.load(Ordering::Relaxed);
            if done >= 40 { Ok(()) } else { Err(format!("{done} writes")) }
        })
        .await;
        // How soon is for a quiet server to show (tests/crash.rs).
        croft.terminate(patience()).await.expect("it ends cleanly");
        croft.restart().await.expect("it starts again");
        let client = croft.client().expect("a client");
        let list = client.get(&format!("{MAPS}?labelSelector=fault")).await.expect("an answer").ok().expect("a list");
        let there: std::collections::HashSet<&str> =
            list["items"].as_array().expect("items").iter().filter_map(|i| i["metadata"]["name"].as_str()).collect();
        for writer in writers {
            for name in writer.await.expect("a writer only stops when its server does") {
                assert!(there.contains(name.as_str()), "{store:?}: {name} was acknowledged and is gone");
            }
        }
    }
}
