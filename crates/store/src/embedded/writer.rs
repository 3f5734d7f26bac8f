//! The only thread that writes.
//!
//! Whatever waits when a commit ends goes into the next one, each transaction with its own revision: under load the
//! cost of reaching the disk is shared, and alone a writer waits for nobody. Answers and events leave only after the
//! commit is on the disk.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use croft_meta::Revision;
use rusqlite::Connection;

use super::checkpoint::{self, Checkpointer};
use super::compaction::{self, Schedule, Sweeper};
use super::lock::DirLock;
use super::queue::{Command, Outcome, Queued};
use super::watch::Change;
use super::{Shared, apply, schema};
use crate::stats::Counters;
use crate::{Error, Result, TxnResult};

/// Commands in one commit; keeps the wait of the first of them short.
const BATCH: usize = 512;
/// What a commit writes besides keys and values: pages of the log and of its index.
const COMMIT_OVERHEAD_BYTES: usize = 12 * 1024;
/// How long sweeping may hold up a waiting writer, and how long it goes on when nobody waits.
const SWEEP_BUSY: Duration = Duration::from_millis(1);
const SWEEP_IDLE: Duration = Duration::from_millis(5);
/// After a failed attempt to end leases or to sweep.
const RETRY: Duration = Duration::from_secs(1);
const SCRUB_RETRY: Duration = Duration::from_millis(100);
/// After one that failed, which may have taken its time: a disk that is full stays so for a while.
const SCRUB_AGAIN: Duration = Duration::from_mins(1);
/// So often it is tried to cut the log to nothing, which readers may be in the way of.
const CUTS: u32 = 50;

pub(super) struct Writer {
    pub(super) shared: Arc<Shared>,
    pub(super) connection: Connection,
    pub(super) revision: Revision,
    pub(super) sweeper: Sweeper,
    pub(super) schedule: Option<Schedule>,
    pub(super) checkpointer: Checkpointer,
    pub(super) next_expiry: Option<Instant>,
    /// Housekeeping failed: not before this.
    pub(super) pause: Option<Instant>,
    /// The file could not be written anew: not before this.
    pub(super) scrub_pause: Option<Instant>,
    pub(super) vacuuming: bool,
    /// How often a reader was in the way of the log's end.
    pub(super) busy_log: u32,
    /// Let go of last.
    pub(super) _lock: DirLock,
}

impl Writer {
    pub(super) fn run(mut self) {
        // However this ends, nobody may be left waiting.
        let _guard = CloseOnDrop(Arc::clone(&self.shared));
        while let Some(batch) = self.shared.queue.take(BATCH, self.wake_at()) {
            if !batch.is_empty() {
                self.commit(batch);
            }
            self.end_leases();
            self.keep_retention();
            self.sweep();
            self.scrub();
            if self.checkpointer.is_nearly_done()
                && let Err(err) = checkpoint::checkpoint(&self.connection)
            {
                self.shared.health.failed(&err);
            }
        }
        self.shared.watchers.close();
        self.shared.readers.clear();
        if let Err(err) = checkpoint::checkpoint(&self.connection) {
            // Nothing is lost: the log is read at the next start.
            tracing::warn!(error = %err, "the last checkpoint failed");
        }
    }

    fn wake_at(&self) -> Option<Instant> {
        let shrink = self.shared.wants_shrinking();
        let now = Instant::now();
        let after = |pause: Option<Instant>| pause.map_or(now, |pause| pause.max(now));
        let housekeeping = (!self.sweeper.is_done() || self.vacuuming || shrink).then(|| after(self.pause));
        let scrub = self.shared.scrub.load(Ordering::Acquire);
        let scrub = scrub.then(|| after(self.pause).max(after(self.scrub_pause)));
        let schedule = self.schedule.as_ref().map(Schedule::next);
        [housekeeping, scrub, schedule, self.next_expiry].into_iter().flatten().min()
    }

    fn commit(&mut self, batch: Vec<Queued>) {
        let started = Instant::now();
        let health = &self.shared.health;
        if let Some(reason) = health.refusal() {
            for queued in batch {
                queued.answer(Err(Error::ReadOnly { reason: reason.clone() }));
            }
            return;
        }
        match self.apply_all(&batch) {
            Ok(applied) => self.acknowledge(batch, applied, started),
            Err(err) => {
                self.roll_back();
                let failure = self.shared.health.failed(&err);
                for queued in batch {
                    queued.answer(Err(failure.error()));
                }
            }
        }
    }

    /// One commit for all; on an error none of them has happened.
    fn apply_all(&self, batch: &[Queued]) -> rusqlite::Result<Applied> {
        let mut applied = Applied { outcomes: Vec::with_capacity(batch.len()), changes: Vec::new() };
        let mut revision = self.revision;
        self.connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        for queued in batch {
            let outcome = apply::apply(&self.connection, &queued.command, revision)?;
            applied.outcomes.push(outcome.map(|(outcome, changes)| {
                revision = changes.last().map_or(revision, |change| change.revision);
                applied.changes.extend(changes);
                outcome
            }));
        }
        self.connection.prepare_cached("COMMIT")?.execute([])?;
        Ok(applied)
    }

    fn acknowledge(&mut self, batch: Vec<Queued>, applied: Applied, started: Instant) {
        let counters = &self.shared.counters;
        if let Some(newest) = applied.changes.last() {
            self.revision = newest.revision;
            self.shared.health.mended();
            self.checkpointer.wrote(applied.changes.iter().map(written_bytes).sum());
            Counters::add(&counters.commits, 1);
            counters.latency.record(started.elapsed());
        }
        Counters::add(&counters.lagged, self.shared.watchers.publish(&applied.changes));
        for (queued, outcome) in batch.into_iter().zip(applied.outcomes) {
            self.take_note(&queued.command, &outcome);
            queued.answer(outcome);
        }
    }

    /// What the memory of this thread and of the engine must learn from a durable command.
    fn take_note(&mut self, command: &Command, outcome: &Result<Outcome>) {
        let counters = &self.shared.counters;
        match (command, outcome) {
            (Command::Txn(_), Ok(Outcome { result: TxnResult::Committed(_), .. })) => {
                Counters::add(&counters.transactions, 1);
            }
            (Command::Txn(_), Ok(_)) => Counters::add(&counters.conflicts, 1),
            (Command::Grant(ttl), Ok(Outcome { lease: Some(lease), .. })) => {
                let now = Instant::now();
                self.shared.leases.add(*lease, *ttl, now);
                let ends = now + *ttl;
                self.next_expiry = Some(self.next_expiry.map_or(ends, |next| next.min(ends)));
            }
            (Command::Revoke(lease), _) => self.shared.leases.remove(*lease),
            (Command::Compact(revision), Ok(_)) if *revision > self.shared.compacted() => {
                self.shared.set_compacted(*revision);
                self.sweeper.extend(*revision);
            }
            // One that was wanted before would not see what is overwritten next: whoever plans asks for it at the end.
            (Command::PlanScrub, Ok(_)) => self.shared.scrub.store(false, Ordering::Release),
            _ => {}
        }
    }

    fn roll_back(&self) {
        // SQLite has rolled back by itself after some errors.
        if !self.connection.is_autocommit()
            && let Err(err) = self.connection.execute_batch("ROLLBACK")
        {
            self.shared.health.failed(&err);
        }
    }

    fn end_leases(&mut self) {
        let now = Instant::now();
        if self.next_expiry.is_none_or(|next| next > now) {
            return;
        }
        for lease in self.shared.leases.ended(now) {
            self.commit(vec![Queued::own(Command::Revoke(lease))]);
            if self.shared.queue.has_waiting() {
                // The others are next.
                self.next_expiry = Some(now);
                return;
            }
        }
        // One that could not be ended is still there, and past its end.
        self.next_expiry = self.shared.leases.next_end().map(|next| if next <= now { now + RETRY } else { next });
    }

    fn keep_retention(&mut self) {
        let Some(schedule) = &mut self.schedule else { return };
        let Some(revision) = schedule.due(Instant::now(), self.revision) else { return };
        if revision > self.shared.compacted() {
            self.commit(vec![Queued::own(Command::Compact(revision))]);
        }
    }

    fn sweep(&mut self) {
        let shrink = self.shared.wants_shrinking();
        let idle = self.sweeper.is_done() && !self.vacuuming && !shrink;
        if let Some(reason) = self.shared.health.refusal() {
            self.shared.shrunk(|| Err(Error::ReadOnly { reason: reason.clone() }));
            return;
        }
        if idle || self.pause.is_some_and(|pause| pause > Instant::now()) {
            return;
        }
        self.pause = None;
        let busy = self.shared.queue.has_waiting();
        if let Err(err) = self.sweep_step(if busy { SWEEP_BUSY } else { SWEEP_IDLE }) {
            let failure = self.shared.health.failed(&err);
            self.shared.shrunk(|| Err(failure.error()));
            self.pause = Some(Instant::now() + RETRY);
        }
    }

    /// Once all that was forgotten is swept, the file is written anew, and the log cut to nothing. It takes a moment for each few
    /// MiB, in which nobody writes: it is asked for once, when what was stored plain has been encrypted. The mark in the file stays
    /// until it is done, so that whoever opens the file after a crash does it.
    fn scrub(&mut self) {
        let is_wanted = self.shared.scrub.load(Ordering::Acquire);
        let is_paused = [self.pause, self.scrub_pause].into_iter().flatten().any(|pause| pause > Instant::now());
        if !is_wanted || !self.sweeper.is_done() || is_paused {
            return;
        }
        match self.rewrite() {
            Ok(true) => self.shared.scrub.store(false, Ordering::Release),
            // Somebody reads the log at this moment.
            Ok(false) => self.pause = Some(Instant::now() + SCRUB_RETRY),
            Err(err) => {
                self.scrub_pause = Some(Instant::now() + SCRUB_AGAIN);
                tracing::warn!(error = %err, "what was forgotten could not be overwritten in the file; trying again");
            }
        }
    }

    fn rewrite(&self) -> rusqlite::Result<bool> {
        let is_done = compaction::rewrite(&self.connection, &self.shared.path)?;
        if is_done {
            schema::clear_mark(&self.connection, schema::SCRUB)?;
        }
        Ok(is_done)
    }

    /// Forgetting need not be durable by itself: it is not flushed, the next commit does that for it.
    fn sweep_step(&mut self, budget: Duration) -> rusqlite::Result<()> {
        self.connection.pragma_update(None, "synchronous", "NORMAL")?;
        let result = self.sweep_unflushed(budget);
        if result.is_err() {
            // Damage leaves the transaction open, and within one nothing can be said of flushing.
            self.roll_back();
        }
        if let Err(err) = self.connection.pragma_update(None, "synchronous", "FULL") {
            self.shared.health.unflushed(&err);
        }
        result
    }

    fn sweep_unflushed(&mut self, budget: Duration) -> rusqlite::Result<()> {
        if self.sweeper.is_done() {
            compaction::release_space(&self.connection)?;
            self.checkpointer.wrote(compaction::RELEASED_BYTES);
            self.vacuuming = compaction::has_much_free_space(&self.connection)?;
            if self.shared.wants_shrinking() && !compaction::has_free_space(&self.connection)? {
                self.cut_log()?;
            }
            return Ok(());
        }
        self.connection.execute_batch("BEGIN IMMEDIATE")?;
        let at = self.sweeper.step(&self.connection, budget)?;
        self.connection.execute_batch("COMMIT")?;
        self.checkpointer.wrote(COMMIT_OVERHEAD_BYTES * 4);
        self.sweeper.advance(at);
        self.vacuuming = self.sweeper.is_done() && compaction::has_much_free_space(&self.connection)?;
        Ok(())
    }

    /// The file ends where it should only when all of the log is in it.
    fn cut_log(&mut self) -> rusqlite::Result<()> {
        if compaction::cut_log(&self.connection)? || self.busy_log >= CUTS {
            self.busy_log = 0;
            self.shared.shrunk(|| Ok(()));
            return Ok(());
        }
        self.busy_log += 1;
        self.pause = Some(Instant::now() + SCRUB_RETRY);
        Ok(())
    }
}

/// What a whole commit did.
struct Applied {
    outcomes: Vec<Result<Outcome>>,
    changes: Vec<Change>,
}

fn written_bytes(change: &Change) -> usize {
    let values = change.events.iter().map(|event| event.key.len() + event.value.as_ref().map_or(0, Bytes::len));
    values.sum::<usize>() + COMMIT_OVERHEAD_BYTES
}

struct CloseOnDrop(Arc<Shared>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.queue.abandon();
        self.0.watchers.close();
    }
}

#[cfg(test)]
mod tests;
