//! What this node and its machines use over time: one sample every five seconds, ten minutes of them, and their means over
//! two minutes for a day. It is all in memory, with a bound for each machine and on their number (docs/usage.md).

mod history;
mod host;
mod machine;
mod sample;

use std::collections::BTreeMap;
use std::time::Duration;

use futures::future::join_all;
use http::Response;
use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use super::Figures;
use crate::guest::Guest;
use crate::server::answer::{Body, Failure, json_of};
pub(crate) use history::Window;
use history::{History, INTERVAL};
use sample::{MACHINE, NODE, Names, Reading, Sample};

/// Machines that are remembered at a time, those that have ended included.
const MOST_MACHINES: usize = 1_000;
/// For how long a machine that has ended is remembered.
const REMEMBERED: u64 = 600;
/// The guest is asked for its memory once in so many samples: it has to wake up for the answer.
const ASK_GUEST: u64 = 6;
/// `metrics.k8s.io` tells means over so many samples.
const MEAN_OF: usize = 6;

/// The histories of this node.
#[derive(Debug, Default)]
pub(super) struct Usage(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    node: Subject,
    /// By namespace and name: a machine that is started again goes on with its history.
    machines: BTreeMap<(String, String), Subject>,
}

#[derive(Debug, Default)]
struct Subject {
    history: History,
    /// What counts up, as it was read last, and in which run.
    last: Option<(String, Reading)>,
    capacity: Value,
}

impl Subject {
    /// Takes what was read; rates need two readings of the same run. One that is partial has not asked the guest.
    fn learn(&mut self, run: &str, now: u64, mut reading: Reading, capacity: Value, is_partial: bool) {
        let before = self.last.as_ref().filter(|(known, _)| known == run).map(|(_, reading)| reading);
        if let Some(before) = before {
            if is_partial {
                reading.keep_guest_memory(before);
            }
            self.history.add(now, Sample::between(before, &reading));
        }
        self.last = Some((run.to_owned(), reading));
        self.capacity = capacity;
    }

    fn newest(&self, names: &Names) -> Option<Value> {
        let (time, sample) = self.history.newest()?;
        Some(json!({ "time": time, "usage": sample.known(names), "capacity": self.capacity }))
    }
}

impl Figures {
    /// Looks every five seconds until `stop`.
    pub(crate) async fn follow_usage(&self, stop: CancellationToken) {
        let mut clock = tokio::time::interval(Duration::from_secs(INTERVAL));
        clock.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let mut round: u64 = 0;
        while stop.run_until_cancelled(clock.tick()).await.is_some() {
            self.sample(round).await;
            round += 1;
        }
    }

    async fn sample(&self, round: u64) {
        let guests = self.guests.all();
        let networks = self.workload.get().map(|(_, networks)| &**networks);
        let asks_guest = round.is_multiple_of(ASK_GUEST);
        let reading = guests.iter().map(|guest| machine::read(guest, networks, asks_guest));
        let (machines, pools) = tokio::join!(join_all(reading), self.pool_figures());
        let (node, capacity) = host::read(&pools);
        let now = u64::try_from(Timestamp::now().as_second()).unwrap_or_default();
        let mut known = self.usage.0.lock();
        known.node.learn("", now, node, capacity, false);
        for (guest, (reading, capacity)) in guests.iter().zip(machines) {
            known.learn(guest, now, reading, capacity, !asks_guest);
        }
        known.machines.retain(|_, machine| machine.history.newest().is_none_or(|(time, _)| now < time + REMEMBERED));
    }

    /// The newest of this node and of all its machines.
    pub(crate) fn newest_usage(&self) -> Result<Response<Body>, Failure> {
        let known = self.usage.0.lock();
        let now = u64::try_from(Timestamp::now().as_second()).unwrap_or_default();
        // One that has ended uses nothing.
        let runs = |machine: &&Subject| machine.history.newest().is_some_and(|(time, _)| now < time + 3 * INTERVAL);
        let machines =
            known.machines.iter().filter(|(_, machine)| runs(machine)).filter_map(|((namespace, name), it)| {
                let mut item = it.newest(&MACHINE)?;
                item["namespace"] = json!(namespace);
                item["name"] = json!(name);
                Some(item)
            });
        let machines: Vec<Value> = machines.collect();
        let mean = known.node.history.mean(MEAN_OF).map(|sample| sample.known(&NODE));
        json_of(&json!({ "node": known.node.newest(&NODE), "mean": mean, "machines": machines }))
    }

    /// The history of this node, or of one of its machines.
    pub(crate) fn usage_history(&self, of: Option<(&str, &str)>, window: Window) -> Result<Response<Body>, Failure> {
        let known = self.usage.0.lock();
        let empty = Subject::default();
        let (subject, names) = match of {
            None => (&known.node, &NODE),
            Some((namespace, name)) => {
                let key = (namespace.to_owned(), name.to_owned());
                (known.machines.get(&key).unwrap_or(&empty), &MACHINE)
            }
        };
        let mut answer = subject.history.tell(window, names);
        answer["capacity"] = if subject.capacity.is_null() { json!({}) } else { subject.capacity.clone() };
        json_of(&answer)
    }
}

impl Known {
    fn learn(&mut self, guest: &Guest, now: u64, reading: Reading, capacity: Value, is_partial: bool) {
        let key = (guest.namespace.clone(), guest.name.clone());
        if self.machines.len() >= MOST_MACHINES && !self.machines.contains_key(&key) {
            return;
        }
        self.machines.entry(key).or_default().learn(&guest.uid, now, reading, capacity, is_partial);
    }
}
