//! One client that creates, changes, deletes and reads.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use anyhow::Result;
use croft_testkit::linearizability::Operation;
use croft_testkit::linearizability::object::{Action, Op, Outcome};
use croft_testkit::{Answer, Client};
use serde_json::json;

use super::{MAPS, PAUSE, Record, Rng, list, object, revision, value};

/// In each round, under new names: what is not known of a key then ends with its round.
const KEYS: u64 = 4;

pub(super) struct Writer {
    server: usize,
    client: Client,
    rng: Rng,
    /// Revisions that were seen last, by key.
    known: HashMap<String, u64>,
}

impl Writer {
    pub(super) fn new(server: usize, client: Client, rng: Rng) -> Self {
        Self { server, client, rng, known: HashMap::new() }
    }

    pub(super) async fn run(mut self, record: Arc<Record>) {
        while !record.is_over.load(Ordering::SeqCst) {
            let round = format!("r{}", record.round.load(Ordering::SeqCst));
            let is_well = if self.rng.below(100) < 8 {
                list(&record, &self.client, &round).await.is_ok()
            } else {
                self.act(&record, &round).await
            };
            if !is_well {
                self.wait_until_well(&record).await;
            }
        }
    }

    /// `false` if the server did not tell.
    async fn act(&mut self, record: &Record, round: &str) -> bool {
        let key = format!("{round}-{}", self.rng.below(KEYS));
        let value = record.values.fetch_add(1, Ordering::SeqCst);
        let known = self.known.get(&key).copied();
        let (action, is_patch) = match (self.rng.below(100), known) {
            (0..10, _) | (10..55, None) => (Action::Create { value }, false),
            (10..55, expected) => (Action::Update { value, expected }, false),
            (55..62, _) => (Action::Update { value, expected: None }, false),
            (62..70, _) => (Action::Update { value, expected: None }, true),
            (70..78, _) => (Action::Delete, false),
            _ => (Action::Get, false),
        };
        let (call, started) = (record.clock.tick(), Instant::now());
        let answer = self.send(&key, round, action, is_patch).await;
        let end = record.clock.tick();
        record.took(started);
        let outcome = match answer.map(|answer| (outcome(action, &answer), answer)) {
            Ok((Some(outcome), _)) => outcome,
            Err(_) => Outcome::Unknown { revision: None },
            Ok((None, answer)) if answer.status == 429 => return true,
            Ok((None, answer)) => {
                // A 5xx that is not about the store out of reach should not be.
                if !matches!(answer.status, 503 | 504) {
                    record.complain(format!("{action:?} of {key}: {} {}", answer.status, answer.text()));
                }
                Outcome::Unknown { revision: None }
            }
        };
        match outcome {
            Outcome::Done { revision: Some(revision) } if action != Action::Delete => {
                self.known.insert(key.clone(), revision);
            }
            Outcome::Found { revision, .. } => drop(self.known.insert(key.clone(), revision)),
            Outcome::NotFound => drop(self.known.remove(&key)),
            _ => {}
        }
        let is_known = !matches!(outcome, Outcome::Unknown { .. });
        if is_known || action != Action::Get {
            let operation = Operation { call, end: is_known.then_some(end), op: Op { action, outcome } };
            record.add(self.server, &key, operation);
        }
        is_known
    }

    async fn send(&self, key: &str, round: &str, action: Action, is_patch: bool) -> Result<Answer> {
        let path = format!("{MAPS}/{key}");
        match action {
            Action::Create { value } => self.client.post(MAPS, &object(key, round, value)).await,
            Action::Update { value, .. } if is_patch => {
                self.client.patch(&path, "merge-patch", &json!({"data": {"n": value.to_string()}})).await
            }
            Action::Update { value, expected } => {
                let mut body = object(key, round, value);
                if let Some(expected) = expected {
                    body["metadata"]["resourceVersion"] = json!(expected.to_string());
                }
                self.client.put(&path, &body).await
            }
            Action::Delete => self.client.delete(&path).await,
            Action::Get => self.client.get(&path).await,
        }
    }

    /// As a client does that was told to come back later: it looks from time to time.
    async fn wait_until_well(&self, record: &Record) {
        while !record.is_over.load(Ordering::SeqCst) {
            let answer = self.client.get(&format!("{MAPS}?limit=1")).await;
            if answer.is_ok_and(|answer| answer.status == 200) {
                return;
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// What an answer tells of the request's fate; `None` if nothing.
fn outcome(action: Action, answer: &Answer) -> Option<Outcome> {
    let body = answer.json();
    match (answer.status, body["reason"].as_str()) {
        (200, _) if action == Action::Get => {
            Some(Outcome::Found { value: value(&body).ok()?, revision: revision(&body).ok()? })
        }
        // The answer to a deletion may be a mere status.
        (200 | 201, _) => Some(Outcome::Done { revision: revision(&body).ok() }),
        (404, _) => Some(Outcome::NotFound),
        (409, Some("AlreadyExists")) => Some(Outcome::AlreadyExists),
        (409, _) => Some(Outcome::Conflict),
        _ => None,
    }
}
