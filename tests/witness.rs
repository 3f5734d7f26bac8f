//! Clients that write, read, list and watch at the same time, and keep a record of what they were told.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use croft_testkit::history::{Change, Clock, History, Listed, Watched};
use croft_testkit::linearizability::Operation;
use croft_testkit::linearizability::object::{Action, Op, Outcome};
use croft_testkit::{Client, Endpoint, eventually_within, patience};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;

mod watcher;
mod writer;

use watcher::Watcher;
use writer::Writer;

pub const MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// Those of one server. All servers' clients fight for the same keys.
const CLIENTS: usize = 3;
/// Before a client asks again that was told to come back later.
const PAUSE: Duration = Duration::from_millis(50);
const LAST: &str = "last";

/// Where a seed for a run is taken from, else it is a random one. It is printed: with it, a run does the same again as far as the
/// clock lets it.
pub fn seed() -> u64 {
    let given = std::env::var("CROFT_FAULTS_SEED").ok().map(|seed| seed.parse().expect("a seed is a number"));
    // The standard library's hash keys are random.
    let seed = given.unwrap_or_else(|| std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 0) >> 32);
    eprintln!("CROFT_FAULTS_SEED={seed}");
    seed
}

/// How often a test goes through its faults: `CROFT_FAULTS_ROUNDS`, or once.
pub fn rounds() -> u64 {
    std::env::var("CROFT_FAULTS_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(1)
}

/// Seeded randomness.
#[derive(Debug)]
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) % bound
    }
}

#[derive(Debug, Default)]
struct Record {
    clock: Clock,
    values: AtomicU64,
    round: AtomicU64,
    is_over: AtomicBool,
    operations: Mutex<BTreeMap<String, Vec<Operation<Op>>>>,
    lists: Mutex<Vec<Listed>>,
    /// Which server acknowledged writes that were called when.
    acknowledged: Mutex<Vec<(usize, u64)>>,
    /// Answers that no client should get, whatever happens.
    complaints: Mutex<Vec<String>>,
    slowest: Mutex<Duration>,
}

const LOCK: &str = "nobody panics with it";

impl Record {
    fn complain(&self, what: String) {
        self.complaints.lock().expect(LOCK).push(what);
    }

    fn add(&self, server: usize, key: &str, operation: Operation<Op>) {
        if let (Outcome::Done { .. }, Action::Create { .. } | Action::Update { .. }) =
            (operation.op.outcome, operation.op.action)
        {
            self.acknowledged.lock().expect(LOCK).push((server, operation.call));
        }
        self.operations.lock().expect(LOCK).entry(key.to_owned()).or_default().push(operation);
    }

    fn took(&self, started: Instant) {
        let mut slowest = self.slowest.lock().expect(LOCK);
        *slowest = started.elapsed().max(*slowest);
    }
}

/// What all of them saw.
#[derive(Debug)]
pub struct Testimony {
    pub history: History,
    /// Before the first and at the last write.
    pub from: u64,
    pub until: u64,
    pub complaints: Vec<String>,
    /// The longest that any request took.
    pub slowest: Duration,
}

/// Dropping it leaves them running: see [`Self::finish`].
#[derive(Debug)]
pub struct Witnesses {
    record: Arc<Record>,
    servers: Vec<Client>,
    clients: Vec<JoinHandle<()>>,
    watchers: Vec<JoinHandle<Watched>>,
    until: watch::Sender<u64>,
    from: u64,
}

impl Witnesses {
    pub async fn start(seed: u64, servers: &[&Endpoint]) -> Result<Self> {
        let record = Arc::new(Record::default());
        let clients: Vec<Client> = servers.iter().map(|server| server.client()).collect::<Result<_>>()?;
        let from = newest(&clients[0]).await?;
        let until = watch::Sender::new(u64::MAX);
        let mut witnesses = Self { record, servers: clients, clients: vec![], watchers: vec![], until, from };
        for (number, server) in servers.iter().enumerate() {
            for client in 0..CLIENTS {
                let rng = Rng::new(seed ^ (((number * CLIENTS + client) as u64) << 48));
                let writer = Writer::new(number, server.client()?, rng);
                witnesses.clients.push(tokio::spawn(writer.run(Arc::clone(&witnesses.record))));
            }
            let watched = Watched { name: format!("the watch of server {number}"), from, changes: Vec::new() };
            let watcher = Watcher::new(server.client()?, Arc::clone(&witnesses.record), watched);
            witnesses.watchers.push(tokio::spawn(watcher.run(witnesses.until.subscribe())));
        }
        Ok(witnesses)
    }

    /// Before the first write.
    pub fn from(&self) -> u64 {
        self.from
    }

    /// Where the store is by now.
    pub async fn newest(&self) -> Result<u64> {
        newest(&self.servers[0]).await
    }

    /// From now on they use new names.
    pub fn next_round(&self) {
        self.record.round.fetch_add(1, Ordering::SeqCst);
    }

    /// Until each server has acknowledged as many writes that are sent from now on.
    pub async fn progress(&self, writes: usize) -> Result<()> {
        let now = self.record.clock.tick();
        let servers = 0..self.servers.len();
        eventually_within(patience(), async || {
            let acknowledged = self.record.acknowledged.lock().expect(LOCK);
            for server in servers.clone() {
                let done = acknowledged.iter().filter(|(by, call)| *by == server && *call > now).count();
                anyhow::ensure!(done >= writes, "server {server} has acknowledged {done} of {writes} writes");
            }
            Ok(())
        })
        .await
    }

    /// Lets them finish, when all is well again.
    pub async fn finish(self) -> Result<Testimony> {
        self.record.is_over.store(true, Ordering::SeqCst);
        for client in self.clients {
            client.await?;
        }
        let until = write_last(&self.record, &self.servers[0]).await?;
        for (number, server) in self.servers.iter().enumerate() {
            list(&self.record, server, "").await.with_context(|| format!("the last list of server {number}"))?;
        }
        self.until.send_replace(until);
        let mut watches = Vec::new();
        for watcher in self.watchers {
            watches.push(watcher.await?);
        }
        let take = |lists: &Mutex<Vec<Listed>>| std::mem::take(&mut *lists.lock().expect(LOCK));
        let history = History {
            operations: std::mem::take(&mut *self.record.operations.lock().expect(LOCK)),
            lists: take(&self.record.lists),
            watches,
            truth: Vec::new(),
        };
        let complaints = std::mem::take(&mut *self.record.complaints.lock().expect(LOCK));
        let slowest = *self.record.slowest.lock().expect(LOCK);
        Ok(Testimony { history, from: self.from, until, complaints, slowest })
    }
}

/// One more write, which every watch and the store's own history end with.
async fn write_last(record: &Record, client: &Client) -> Result<u64> {
    let value = record.values.fetch_add(1, Ordering::SeqCst);
    let call = record.clock.tick();
    let made = client.post(MAPS, &object(LAST, "last", value)).await?.ok()?;
    let revision = revision(&made)?;
    let op = Op { action: Action::Create { value }, outcome: Outcome::Done { revision: Some(revision) } };
    record.add(0, LAST, Operation { call, end: Some(record.clock.tick()), op });
    Ok(revision)
}

async fn list(record: &Record, client: &Client, round: &str) -> Result<()> {
    let selector = if round.is_empty() { "witness".to_owned() } else { format!("witness={round}") };
    let (call, started) = (record.clock.tick(), Instant::now());
    let answer = client.get(&format!("{MAPS}?labelSelector={selector}")).await;
    let end = record.clock.tick();
    record.took(started);
    let list = answer?.ok()?;
    let mut items = BTreeMap::new();
    for item in list["items"].as_array().context("a list has items")? {
        let Change { key, value, revision } = change(item, false)?;
        items.insert(key, (value.context("it has a value")?, revision));
    }
    let prefix = if round.is_empty() { String::new() } else { format!("{round}-") };
    let listed = Listed { call, end, prefix, revision: revision(&list)?, items };
    record.lists.lock().expect(LOCK).push(listed);
    Ok(())
}

fn object(name: &str, round: &str, value: u64) -> Value {
    json!({"metadata": {"name": name, "labels": {"witness": round}}, "data": {"n": value.to_string()}})
}

fn revision(object: &Value) -> Result<u64> {
    let text = object["metadata"]["resourceVersion"].as_str().context("no resourceVersion")?;
    Ok(text.parse()?)
}

/// Where the store is that a server has.
async fn newest(server: &Client) -> Result<u64> {
    revision(&server.get(&format!("{MAPS}?labelSelector=witness")).await?.ok()?)
}

/// What an object as the API shows it says of its key.
pub fn change(object: &Value, is_deleted: bool) -> Result<Change> {
    let key = object["metadata"]["name"].as_str().context("no name")?.to_owned();
    let value = if is_deleted { None } else { Some(value(object)?) };
    Ok(Change { key, value, revision: revision(object)? })
}

/// What a witness wrote into an object.
pub fn value(object: &Value) -> Result<u64> {
    let text = object["data"]["n"].as_str().with_context(|| format!("no value in {object}"))?;
    Ok(text.parse()?)
}

/// Whether a witness uses that key. A namespace has objects of its own.
pub fn is_ours(key: &str) -> bool {
    key == LAST || key.strip_prefix('r').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}
