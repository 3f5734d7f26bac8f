//! Killed at any instant under load, two hundred times on one directory.
//!
//! The child is this test binary again, told by its environment where to write. It says on its standard output what
//! has been acknowledged; the parent kills it and looks at what is there.

mod rng;

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use croft_meta::Revision;
use croft_store::{Embedded, EmbeddedOptions, Op, Range, Retention, Store, Txn, TxnResult};
use rng::Rng;

const ROUNDS: u32 = 200;
const TASKS: u64 = 4;
const DIR: &str = "CROFT_CRASH_TEST_DIR";

fn open(dir: &Path) -> Arc<Embedded> {
    // History goes quickly, so that compaction is also caught in the act.
    let retention = Some(Retention { time: Duration::from_millis(100), revisions: 50 });
    Embedded::open(dir, EmbeddedOptions { retention, ..EmbeddedOptions::default() }).unwrap()
}

async fn number(store: &Embedded, key: &str) -> u64 {
    let found = store.get(key).await.unwrap();
    found.map_or(0, |record| std::str::from_utf8(&record.value).unwrap().trim_end().parse().unwrap())
}

/// Two keys that always change together, and one that comes and goes.
async fn write(store: &Embedded, task: u64, n: u64) -> Revision {
    let padding = usize::try_from(n * 37 % 6000).unwrap();
    let put = |key: String, padding: usize| Op::Put {
        key,
        value: Bytes::from(format!("{n}{}", " ".repeat(padding))),
        lease: None,
    };
    let mut ops = vec![put(format!("{task}/a"), 0), put(format!("{task}/b"), padding)];
    let other = format!("{task}/log/{}", n % 20);
    ops.push(if n.is_multiple_of(3) { Op::Delete { key: other } } else { put(other, 0) });
    match store.txn(Txn { compare: vec![], ops }).await.unwrap() {
        TxnResult::Committed(revision) => revision,
        TxnResult::Conflict(revision) => panic!("conflict at {revision}"),
    }
}

/// Does nothing unless it is the child.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child() {
    let Ok(dir) = std::env::var(DIR) else { return };
    let store = open(Path::new(&dir));
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..TASKS {
        let store = store.clone();
        tasks.spawn(async move {
            let mut n = number(&store, &format!("{task}/a")).await;
            loop {
                n += 1;
                let revision = write(&store, task, n).await;
                let line = format!("\nack {task} {n} {revision}\n");
                // One write, so that lines stay whole. The parent may be gone.
                if std::io::stdout().write_all(line.as_bytes()).and_then(|()| std::io::stdout().flush()).is_err() {
                    return;
                }
            }
        });
    }
    tasks.join_all().await;
}

#[derive(Default)]
struct Acknowledged {
    newest: HashMap<u64, u64>,
    revision: u64,
    count: u64,
}

impl Acknowledged {
    fn take(&mut self, line: &str) {
        let mut words = line.strip_prefix("ack ").unwrap_or_default().split(' ').map(str::parse::<u64>);
        // The last line may have been cut.
        if let (Some(Ok(task)), Some(Ok(n)), Some(Ok(revision))) = (words.next(), words.next(), words.next()) {
            self.newest.insert(task, n);
            self.revision = self.revision.max(revision);
            self.count += 1;
        }
    }
}

fn run_and_kill(dir: &Path, rng: &mut Rng) -> Acknowledged {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--nocapture"])
        .env(DIR, dir)
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).split(b'\n');
    let mut acknowledged = Acknowledged::default();
    // Killed after some acknowledgements and then some microseconds: in any phase of a commit.
    let wanted = rng.below(120);
    while acknowledged.count < wanted {
        let line = lines.next().expect("the child ended by itself").unwrap();
        acknowledged.take(&String::from_utf8_lossy(&line));
    }
    let instant = std::time::Instant::now() + Duration::from_micros(rng.below(1500));
    while std::time::Instant::now() < instant {
        std::hint::spin_loop();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    for line in lines {
        acknowledged.take(&String::from_utf8_lossy(&line.unwrap()));
    }
    acknowledged
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_acknowledged_write_survives_two_hundred_kills() {
    let seed = Rng::seed("CROFT_CRASH_SEED");
    println!("CROFT_CRASH_SEED={seed}");
    let mut rng = Rng::new(seed);
    let dir = tempfile::tempdir().unwrap();
    let (mut last, mut total) = (Revision::ZERO, 0);
    for round in 0..ROUNDS {
        let acknowledged = run_and_kill(dir.path(), &mut rng);
        total += acknowledged.count;
        let store = open(dir.path());
        let revision = store.revision().await.unwrap();
        assert!(revision >= last, "round {round}: the revision went back from {last} to {revision}");
        assert!(revision.0 >= acknowledged.revision, "round {round}: {revision} is before an acknowledged write");
        for task in 0..TASKS {
            let (a, b) = (number(&store, &format!("{task}/a")).await, number(&store, &format!("{task}/b")).await);
            assert_eq!(a, b, "round {round}: half a transaction of task {task}");
            let Some(newest) = acknowledged.newest.get(&task).copied() else { continue };
            // The write after the last acknowledged one may have made it to the disk.
            assert!(a == newest || a == newest + 1, "round {round}: task {task} has {a}, acknowledged was {newest}");
            let third = store.get(&format!("{task}/log/{}", a % 20)).await.unwrap();
            assert_eq!(third.is_some(), a % 3 != 0, "round {round}: half a transaction of task {task}");
        }
        // Every row can be read, and its checksum holds.
        store.range(Range::default()).await.unwrap();
        last = revision;
        store.close().await.unwrap();
    }
    println!("{total} acknowledged writes, {last} revisions");
    assert!(total > u64::from(ROUNDS), "the child hardly wrote");
}
