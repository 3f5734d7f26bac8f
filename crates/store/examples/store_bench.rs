//! Measures an engine: `store_bench embedded DIR` or `store_bench etcd URL`.
//!
//! Durable commits of 2 KiB by one client and by eight, then a range over 100,000 such objects in pages.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use croft_meta::Revision;
use croft_store::{Compare, Embedded, EmbeddedOptions, Etcd, EtcdOptions, Op, Range, Store, Txn};

const VALUE_BYTES: usize = 2048;
const ALONE: usize = 2000;
const CLIENTS: usize = 8;
const EACH: usize = 1000;
const OBJECTS: usize = 100_000;

type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

async fn create(store: &dyn Store, key: String) -> Outcome<Duration> {
    let started = Instant::now();
    let compare = vec![Compare { key: key.clone(), revision: Revision::ZERO }];
    let ops = vec![Op::Put { key, value: Bytes::from(vec![b'x'; VALUE_BYTES]), lease: None }];
    store.txn(Txn { compare, ops }).await?;
    Ok(started.elapsed())
}

fn report(what: &str, mut times: Vec<Duration>, total: Duration) {
    times.sort_unstable();
    let at = |percent: usize| times.get(times.len() * percent / 100).copied().unwrap_or_default();
    let rate = times.len() as u128 * 1000 / total.as_millis().max(1);
    println!("{what}: {rate}/s, p50 {:?}, p99 {:?}", at(50), at(99));
}

async fn run(store: Arc<dyn Store>) -> Outcome<()> {
    let started = Instant::now();
    let mut times = Vec::with_capacity(ALONE);
    for n in 0..ALONE {
        times.push(create(&*store, format!("one/{n:06}")).await?);
    }
    report("1 client", times, started.elapsed());

    let started = Instant::now();
    let mut clients = tokio::task::JoinSet::new();
    for client in 0..CLIENTS {
        let store = Arc::clone(&store);
        clients.spawn(async move {
            let mut times = Vec::with_capacity(EACH);
            for n in 0..EACH {
                times.push(create(&*store, format!("many/{client}/{n:06}")).await?);
            }
            Outcome::Ok(times)
        });
    }
    let mut times = Vec::new();
    while let Some(client) = clients.join_next().await {
        times.extend(client??);
    }
    report("8 clients", times, started.elapsed());

    let started = Instant::now();
    for batch in 0..OBJECTS / 100 {
        let value = Bytes::from(vec![b'x'; VALUE_BYTES]);
        let put = |n| Op::Put { key: format!("all/{:06}", batch * 100 + n), value: value.clone(), lease: None };
        store.txn(Txn { compare: vec![], ops: (0..100).map(put).collect() }).await?;
    }
    println!("fill with {OBJECTS}: {:?}", started.elapsed());

    let started = Instant::now();
    let (mut after, mut at, mut count) = (String::new(), None, 0);
    loop {
        let page = store.range(Range { prefix: "all/".to_owned(), after, limit: 1000, at }).await?;
        at = Some(page.revision);
        count += page.records.len();
        after = page.records.last().map(|record| record.key.clone()).unwrap_or_default();
        if !page.more {
            break;
        }
    }
    println!("range of {count} in pages of 1000: {:?}", started.elapsed());
    let started = Instant::now();
    let all = store.range(Range { prefix: "all/".to_owned(), ..Range::default() }).await?;
    println!("range of {} at once: {:?}", all.records.len(), started.elapsed());
    println!("{:?}", store.stats());
    store.close().await?;
    Ok(())
}

#[tokio::main]
async fn main() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1);
    match (arguments.next().as_deref(), arguments.next()) {
        (Some("embedded"), Some(dir)) => run(Embedded::open(Path::new(&dir), EmbeddedOptions::default())?).await,
        (Some("etcd"), Some(url)) => {
            run(Etcd::connect(EtcdOptions { endpoints: vec![url], ..EtcdOptions::default() }).await?).await
        }
        _ => Err("usage: store_bench embedded DIR | etcd URL".into()),
    }
}
