//! What waits for the writer thread: bounded by bytes, drained whole so that everything waiting shares one commit.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use croft_meta::Revision;
use parking_lot::{Condvar, Mutex};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use crate::{Error, LeaseId, Result, Txn, TxnResult};

/// One permit stands for this many bytes of a transaction.
const PERMIT_BYTES: usize = 1024;
/// 64 MiB may wait; further writers wait outside.
const PERMITS: u32 = 64 * 1024;

#[derive(Debug)]
pub(super) enum Command {
    Txn(Txn),
    Grant(Duration),
    Revoke(LeaseId),
    Compact(Revision),
    /// What is there and is overwritten from now on is to be gone from the file one day.
    PlanScrub,
}

/// What became of a command.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outcome {
    pub(super) result: TxnResult,
    /// The lease that a grant made.
    pub(super) lease: Option<LeaseId>,
}

#[derive(Debug)]
pub(super) struct Queued {
    pub(super) command: Command,
    /// `None` when nobody waits for the answer.
    pub(super) reply: Option<oneshot::Sender<Result<Outcome>>>,
    /// Its share of the bound, given back when this is dropped.
    permit: Option<OwnedSemaphorePermit>,
}

impl Queued {
    /// The writer's own work, outside the bound.
    pub(super) fn own(command: Command) -> Self {
        Self { command, reply: None, permit: None }
    }

    pub(super) fn answer(self, outcome: Result<Outcome>) {
        if let Some(reply) = self.reply {
            // A caller that has gone away does not care for the answer.
            let _ = reply.send(outcome);
        }
        drop(self.permit);
    }
}

#[derive(Debug)]
pub(super) struct Queue {
    state: Mutex<State>,
    wake: Condvar,
    room: Arc<Semaphore>,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Queued>,
    closed: bool,
}

impl Queue {
    pub(super) fn new() -> Self {
        Self { state: Mutex::default(), wake: Condvar::new(), room: Arc::new(Semaphore::new(PERMITS as usize)) }
    }

    /// Waits for room, hands the command over and waits for its outcome.
    pub(super) async fn run(&self, command: Command, size_bytes: usize) -> Result<Outcome> {
        let permits = u32::try_from(size_bytes / PERMIT_BYTES + 1).unwrap_or(PERMITS).min(PERMITS);
        let permit = Arc::clone(&self.room).acquire_many_owned(permits).await.map_err(|_| closed())?;
        let (reply, outcome) = oneshot::channel();
        {
            let mut state = self.state.lock();
            if state.closed {
                return Err(closed());
            }
            state.waiting.push_back(Queued { command, reply: Some(reply), permit: Some(permit) });
        }
        self.wake.notify_one();
        outcome.await.map_err(|_| closed())?
    }

    /// Everything that waits, at most `limit`; empty when `until` passed first; `None` once closed and drained.
    pub(super) fn take(&self, limit: usize, until: Option<Instant>) -> Option<Vec<Queued>> {
        let mut state = self.state.lock();
        while state.waiting.is_empty() {
            if state.closed {
                return None;
            }
            let Some(until) = until else {
                self.wake.wait(&mut state);
                continue;
            };
            if self.wake.wait_until(&mut state, until).timed_out() {
                break;
            }
        }
        let count = state.waiting.len().min(limit);
        Some(state.waiting.drain(..count).collect())
    }

    pub(super) fn has_waiting(&self) -> bool {
        !self.state.lock().waiting.is_empty()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.state.lock().closed
    }

    /// Forgets what waits; for a writer that cannot go on.
    pub(super) fn abandon(&self) {
        self.close();
        self.state.lock().waiting.clear();
    }

    /// Nothing gets in any more; what is in is still done.
    pub(super) fn close(&self) {
        self.state.lock().closed = true;
        self.room.close();
        self.wake.notify_all();
    }
}

pub(super) fn closed() -> Error {
    Error::Unavailable { reason: "the store has been closed".to_owned() }
}
