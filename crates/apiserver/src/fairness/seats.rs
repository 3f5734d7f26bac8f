//! Who is worked for, who waits, and who is next.
//!
//! A level has seats of its own. What it lends and does not need, others borrow, as long as all together have no more than
//! there are and what a level does not lend stays free for it. Those who wait are served by turns: each flow has a clock that
//! runs as long as its requests are worked on, and the one whose clock is furthest behind is next.
//!
//! A request that takes one seat is done before it is noticed; one that takes several is not. A quarter of a level's seats are for the
//! former alone, so that they need not wait until one of the latter is done.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::level::Share;
use crate::metrics::Flows;

/// Why a request gets no seat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// All seats are taken, and the level lets nobody wait.
    ConcurrencyLimit,
    /// As many wait as may.
    QueueFull,
    TimeOut,
}

impl Refused {
    /// As upstream's metrics call it.
    fn name(self) -> &'static str {
        match self {
            Self::ConcurrencyLimit => "concurrency-limit",
            Self::QueueFull => "queue-full",
            Self::TimeOut => "time-out",
        }
    }
}

/// The share of new measurements in what a level's requests usually take.
const RECENT: f64 = 0.1;

#[derive(Debug)]
pub(super) struct Seats {
    room: Mutex<Room>,
    metrics: Flows,
}

#[derive(Debug, Default)]
struct Room {
    levels: HashMap<Box<str>, Level>,
    /// Seats in all, and those that are taken.
    total: usize,
    taken: usize,
    /// For the next one that waits.
    ticket: u64,
}

#[derive(Debug)]
struct Level {
    share: Share,
    taken: usize,
    /// Of those, by requests that take one.
    narrow: usize,
    waiting: usize,
    flows: HashMap<Box<str>, Flow>,
    /// Where the clocks are of flows that come anew.
    clock: f64,
    /// What its requests usually take, in seconds.
    usual: f64,
    /// Its object is gone: it goes when nobody needs it any more.
    is_gone: bool,
}

#[derive(Debug, Default)]
struct Flow {
    /// Seconds of seats that it has had.
    clock: f64,
    running: usize,
    waiting: VecDeque<Waiter>,
}

#[derive(Debug)]
struct Waiter {
    ticket: u64,
    /// The level's clock when it came.
    since: f64,
    width: usize,
    schema: Box<str>,
    wake: oneshot::Sender<Result<Seat, Refused>>,
}

/// A place for one request; free again when it is dropped.
#[derive(Debug)]
pub(crate) struct Seat {
    seats: Arc<Seats>,
    held: Option<Held>,
}

#[derive(Debug)]
struct Held {
    level: Box<str>,
    flow: Box<str>,
    schema: Box<str>,
    width: usize,
    /// What the flow's clock was put forward by when it began.
    charged: f64,
    since: Instant,
}

/// What is to be told to those who wait once the room is left.
type Calls = Vec<(oneshot::Sender<Result<Seat, Refused>>, Result<Seat, Refused>)>;

impl Seats {
    pub(super) fn new(metrics: Flows) -> Self {
        Self { room: Mutex::default(), metrics }
    }

    /// Takes over what the levels' objects say now. Whoever has a seat keeps it.
    pub(super) fn arrange(self: &Arc<Self>, shares: HashMap<Box<str>, Share>) {
        self.metrics.arranged(shares.iter().map(|(name, share)| (&**name, share.nominal)));
        let calls = {
            let mut room = self.room.lock();
            room.total = shares.values().map(|share| share.nominal).sum();
            for (name, level) in &mut room.levels {
                level.is_gone = !shares.contains_key(name);
            }
            for (name, share) in shares {
                room.levels.entry(name).or_insert_with(|| Level::new(share)).share = share;
            }
            room.levels.retain(|_, level| !level.is_gone || level.is_in_use());
            room.next(self)
        };
        call(calls);
    }

    /// A seat as soon as it is the flow's turn. Levels that are not among the arranged ones have no limit.
    pub(super) async fn take(
        self: &Arc<Self>,
        level: &str,
        schema: &str,
        flow: &str,
        width: usize,
    ) -> Result<Seat, Refused> {
        let queued = {
            let mut room = self.room.lock();
            match room.enter(self, level, schema, flow, width) {
                Entered::Seated(seat) => return Ok(seat),
                Entered::Refused(why) => return Err(why),
                Entered::Waits(queued, evicted) => {
                    drop(room);
                    call(evicted);
                    queued
                }
            }
        };
        self.metrics.waits(level, schema, 1);
        let began = Instant::now();
        let waiting = Waiting { seats: self, level, schema, flow, ticket: queued.0, is_done: false };
        let result = waiting.until(queued.1).await;
        self.metrics.waited(level, schema, began.elapsed());
        result
    }

    pub(super) fn refused(&self, level: &str, schema: &str, why: Refused) {
        self.metrics.refused(level, schema, why.name());
    }

    fn leave(self: &Arc<Self>, held: &Held) {
        let calls = {
            let mut room = self.room.lock();
            room.leave(held, held.since.elapsed());
            room.next(self)
        };
        self.metrics.runs(&held.level, &held.schema, -1);
        call(calls);
    }
}

/// Not while the room is locked: whoever no longer waits drops the seat, and it goes to the next.
fn call(calls: Calls) {
    for (wake, answer) in calls {
        let _ = wake.send(answer);
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if let Some(held) = self.held.take() {
            self.seats.leave(&held);
        }
    }
}

/// Somebody who waits, and may go away.
struct Waiting<'a> {
    seats: &'a Arc<Seats>,
    level: &'a str,
    schema: &'a str,
    flow: &'a str,
    ticket: u64,
    is_done: bool,
}

impl Waiting<'_> {
    async fn until(mut self, turn: oneshot::Receiver<Result<Seat, Refused>>) -> Result<Seat, Refused> {
        // Nobody forgets one who waits without a word.
        let result = turn.await.unwrap_or(Err(Refused::QueueFull));
        self.is_done = true;
        result
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.seats.metrics.waits(self.level, self.schema, -1);
        if !self.is_done {
            let calls = {
                let mut room = self.seats.room.lock();
                room.forget(self.level, self.flow, self.ticket);
                // It may have been in the way of others, for whom there is room.
                room.next(self.seats)
            };
            call(calls);
        }
    }
}

enum Entered {
    Seated(Seat),
    Waits((u64, oneshot::Receiver<Result<Seat, Refused>>), Calls),
    Refused(Refused),
}

impl Room {
    fn enter(&mut self, seats: &Arc<Seats>, name: &str, schema: &str, flow: &str, width: usize) -> Entered {
        let Some(level) = self.levels.get(name) else {
            return Entered::Seated(Seat { seats: Arc::clone(seats), held: None });
        };
        let width = level.fitting(width);
        let waits_already = level.waiting > 0;
        if !waits_already && (self.has_room(name, width) || level.has_narrow_seat(width)) {
            let floor = level.clock;
            return Entered::Seated(self.seat(seats, name, (schema, flow), width, floor));
        }
        self.ticket += 1;
        let ticket = self.ticket;
        // Looked up above.
        let Some(level) = self.levels.get_mut(name) else { return Entered::Refused(Refused::QueueFull) };
        if level.share.waiting.in_all == 0 {
            return Entered::Refused(Refused::ConcurrencyLimit);
        }
        let ahead = level.flows.get(flow).map_or(0, |flow| flow.waiting.len());
        if ahead >= level.share.waiting.in_a_flow {
            return Entered::Refused(Refused::QueueFull);
        }
        let mut evicted = Calls::new();
        if level.waiting >= level.share.waiting.in_all {
            let Some(last) = level.last_of_longest(ahead + 1) else { return Entered::Refused(Refused::QueueFull) };
            evicted.push((last.wake, Err(Refused::QueueFull)));
        }
        let (wake, turn) = oneshot::channel();
        let since = level.clock;
        level.flow(flow).waiting.push_back(Waiter { ticket, since, width, schema: schema.into(), wake });
        level.waiting += 1;
        // There may be a seat for it all the same.
        let mut calls = self.next(seats);
        calls.append(&mut evicted);
        Entered::Waits((ticket, turn), calls)
    }

    /// Whether a level may take so many seats more.
    fn has_room(&self, name: &str, width: usize) -> bool {
        let Some(level) = self.levels.get(name) else { return true };
        let kept_free = if width > 1 { level.free_narrow_seats() } else { 0 };
        let wanted = level.taken + kept_free + width;
        if self.taken + kept_free + width > self.total {
            // A wide request of a level that has nothing yet comes through all the same, so that it comes at all.
            return level.taken == 0 && self.taken < self.total;
        }
        if wanted <= level.share.nominal {
            return true;
        }
        let others = self.levels.iter().filter(|(other, _)| &***other != name);
        let kept: usize = others.map(|(_, other)| other.kept().saturating_sub(other.taken)).sum();
        wanted <= level.share.nominal + level.share.borrowable && self.taken + kept_free + width + kept <= self.total
    }

    /// A seat for a flow whose clock is at `floor` at the least: nobody saves up for later what they leave to others now.
    fn seat(&mut self, seats: &Arc<Seats>, name: &str, of: (&str, &str), width: usize, floor: f64) -> Seat {
        let (schema, flow) = of;
        let Some(level) = self.levels.get_mut(name) else {
            return Seat { seats: Arc::clone(seats), held: None };
        };
        self.taken += width;
        level.taken += width;
        level.narrow += usize::from(width == 1);
        let charged = level.charge(width);
        let running = level.flow(flow);
        let clock = running.clock.max(floor);
        running.clock = clock + charged;
        running.running += 1;
        level.clock = level.clock.max(clock);
        seats.metrics.runs(name, schema, 1);
        let (level, flow, schema) = (name.into(), flow.into(), schema.into());
        Seat {
            seats: Arc::clone(seats),
            held: Some(Held { level, flow, schema, width, charged, since: Instant::now() }),
        }
    }

    fn leave(&mut self, held: &Held, took: Duration) {
        self.taken -= held.width;
        let Some(level) = self.levels.get_mut(&held.level) else { return };
        level.taken -= held.width;
        level.narrow -= usize::from(held.width == 1);
        let took = took.as_secs_f64();
        level.usual += (took - level.usual) * RECENT;
        if let Some(flow) = level.flows.get_mut(&held.flow) {
            flow.clock += took * seconds_of(held.width) - held.charged;
            flow.running -= 1;
            if flow.is_idle() {
                level.flows.remove(&held.flow);
            }
        }
        if level.is_gone && !level.is_in_use() {
            self.levels.remove(&held.level);
        }
    }

    /// Seats all whose turn has come. Levels that use less than is theirs go first.
    fn next(&mut self, seats: &Arc<Seats>) -> Calls {
        let mut calls = Calls::new();
        loop {
            let waiting = self.levels.iter().filter(|(_, level)| level.waiting > 0);
            let mut names: Vec<(bool, Box<str>)> =
                waiting.map(|(name, level)| (level.taken >= level.share.nominal, name.clone())).collect();
            names.sort_unstable();
            let Some((level, flow, waiter)) = names.into_iter().find_map(|(_, name)| self.turn(name)) else { break };
            let floor = self.levels.get(&level).map_or(0.0, |level| level.earliest(&waiter));
            let seat = self.seat(seats, &level, (&waiter.schema, &flow), waiter.width, floor);
            calls.push((waiter.wake, Ok(seat)));
        }
        calls
    }

    /// The one of a level whose turn it is, if there is room.
    fn turn(&mut self, name: Box<str>) -> Option<(Box<str>, Box<str>, Waiter)> {
        let level = self.levels.get(&name)?;
        let waiting = || {
            level.flows.iter().filter_map(|(flow, state)| {
                let first = state.waiting.front()?;
                Some((state.clock.max(level.earliest(first)), first, flow))
            })
        };
        // Of those that are equally far behind, whoever came first.
        let in_turn = |(a, first, _): &(f64, &Waiter, _), (b, second, _): &(f64, &Waiter, _)| {
            a.total_cmp(b).then(first.ticket.cmp(&second.ticket))
        };
        let mut next = waiting().min_by(in_turn)?;
        if !self.has_room(&name, next.1.width) {
            next = waiting().filter(|(_, first, _)| level.has_narrow_seat(first.width)).min_by(in_turn)?;
        }
        let flow = next.2.clone();
        let level = self.levels.get_mut(&name)?;
        let state = level.flows.get_mut(&flow)?;
        let waiter = state.waiting.pop_front()?;
        level.waiting -= 1;
        Some((name, flow, waiter))
    }

    fn forget(&mut self, name: &str, flow: &str, ticket: u64) {
        let Some(level) = self.levels.get_mut(name) else { return };
        let Some(state) = level.flows.get_mut(flow) else { return };
        let before = state.waiting.len();
        state.waiting.retain(|waiter| waiter.ticket != ticket);
        level.waiting -= before - state.waiting.len();
        if state.is_idle() {
            level.flows.remove(flow);
        }
    }
}

impl Level {
    fn new(share: Share) -> Self {
        Self { share, taken: 0, narrow: 0, waiting: 0, flows: HashMap::new(), clock: 0.0, usual: 0.001, is_gone: false }
    }

    /// What it does not lend.
    fn kept(&self) -> usize {
        let kept = self.share.nominal - self.share.lendable.min(self.share.nominal);
        kept.max(self.narrow_seats())
    }

    /// Those that only requests take that take one.
    fn narrow_seats(&self) -> usize {
        if self.share.nominal > 1 { self.share.nominal.div_ceil(4) } else { 0 }
    }

    fn free_narrow_seats(&self) -> usize {
        self.narrow_seats().saturating_sub(self.narrow)
    }

    fn has_narrow_seat(&self, width: usize) -> bool {
        width == 1 && self.free_narrow_seats() > 0
    }

    /// What a request is likely to take, in seconds of seats.
    fn charge(&self, width: usize) -> f64 {
        self.usual * seconds_of(width)
    }

    /// Where the clock is at the least of a flow whose turn it is with this one: just ahead of those that were served when it came.
    fn earliest(&self, waiter: &Waiter) -> f64 {
        waiter.since - self.charge(waiter.width)
    }

    /// No request is so wide that it could never be seated.
    fn fitting(&self, width: usize) -> usize {
        width.clamp(1, (self.share.nominal - self.narrow_seats()).max(1))
    }

    fn is_in_use(&self) -> bool {
        self.taken > 0 || self.waiting > 0
    }

    /// One that was idle has saved nothing up.
    fn flow(&mut self, name: &str) -> &mut Flow {
        let clock = self.clock;
        self.flows.entry(name.into()).or_insert_with(|| Flow { clock, ..Flow::default() })
    }

    /// Takes away the last one of the flow with the most that wait, if it has more than `most`.
    fn last_of_longest(&mut self, most: usize) -> Option<Waiter> {
        let longest = self.flows.values_mut().max_by_key(|flow| flow.waiting.len())?;
        if longest.waiting.len() <= most {
            return None;
        }
        self.waiting -= 1;
        longest.waiting.pop_back()
    }
}

impl Flow {
    fn is_idle(&self) -> bool {
        self.running == 0 && self.waiting.is_empty()
    }
}

/// Seats are few.
fn seconds_of(width: usize) -> f64 {
    f64::from(u32::try_from(width).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests;
