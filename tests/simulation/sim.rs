//! One run: its chance, its clock, what happened so far, and what was found wrong.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use crate::mutation::Mutation;
use crate::sys;

/// How often things go wrong, in thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The store refuses a call; nothing was done.
    StoreRefuses,
    /// The store did what was asked, and its answer is lost.
    StoreAnswerLost,
    /// A watch of the store ends, lags or has lost its place.
    StoreWatchBreaks,
    /// A message is lost on the way to the server.
    RequestLost,
    /// The connection breaks while the server is at work.
    RequestCut,
    /// The server's answer is lost.
    AnswerLost,
    /// The same read arrives twice.
    RequestTwice,
    /// A client's watch breaks.
    WatchCut,
}

impl Fault {
    fn per_mille(self) -> u64 {
        match self {
            Self::StoreRefuses | Self::StoreAnswerLost | Self::RequestLost | Self::AnswerLost => 20,
            Self::StoreWatchBreaks => 10,
            Self::RequestCut | Self::RequestTwice => 15,
            Self::WatchCut => 25,
        }
    }
}

/// Shared by all actors of a run: clones are the same run.
#[derive(Clone)]
pub(crate) struct Sim(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    start: Instant,
}

struct State {
    rng: Rng,
    trace: Sha256,
    steps: u64,
    is_faulty: bool,
    is_verbose: bool,
    mutation: Option<Mutation>,
    problems: Vec<String>,
}

impl fmt::Debug for Sim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sim")
    }
}

impl Sim {
    /// Before a seed is chosen: nothing goes wrong, and nothing is written down.
    pub(crate) fn new() -> Self {
        let state = State {
            rng: Rng(1),
            trace: Sha256::new(),
            steps: 0,
            is_faulty: false,
            is_verbose: false,
            mutation: None,
            problems: Vec::new(),
        };
        Self(Arc::new(Shared { state: Mutex::new(state), start: Instant::now() }))
    }

    /// From here on the seed decides.
    pub(crate) fn begin(&self, seed: u64, mutation: Option<Mutation>, is_verbose: bool) {
        let mut state = self.0.state.lock();
        state.rng = Rng::new(seed);
        state.trace = Sha256::new();
        state.steps = 0;
        state.is_faulty = true;
        state.is_verbose = is_verbose;
        state.mutation = mutation;
        sys::set_chance(state.rng.next());
    }

    pub(crate) fn mend(&self) {
        self.0.state.lock().is_faulty = false;
    }

    pub(crate) fn is_faulty(&self) -> bool {
        self.0.state.lock().is_faulty
    }

    pub(crate) fn has(&self, mutation: Mutation) -> bool {
        self.0.state.lock().mutation == Some(mutation)
    }

    pub(crate) fn below(&self, bound: u64) -> u64 {
        self.0.state.lock().rng.next() % bound
    }

    pub(crate) fn pick<'a, T>(&self, from: &'a [T]) -> &'a T {
        let at = self.below(from.len() as u64);
        &from[usize::try_from(at).unwrap_or(0)]
    }

    pub(crate) fn percent(&self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// Whether it goes wrong this time.
    pub(crate) fn strikes(&self, fault: Fault) -> bool {
        let mut state = self.0.state.lock();
        state.is_faulty && state.rng.next() % 1000 < fault.per_mille()
    }

    /// How long a message takes: mostly a few milliseconds, now and then ages.
    pub(crate) fn latency(&self) -> Duration {
        let mut state = self.0.state.lock();
        if !state.is_faulty {
            return Duration::from_micros(200);
        }
        let draw = state.rng.next();
        let micros = match draw % 1000 {
            0..=2 => 12_000_000,
            3..=79 => 400_000,
            _ => 4_000,
        };
        Duration::from_micros(50 + (draw >> 12) % micros)
    }

    pub(crate) async fn delay(&self) {
        self.sleep(self.latency()).await;
    }

    pub(crate) async fn sleep(&self, time: Duration) {
        tokio::time::sleep(time).await;
        sys::set_elapsed(self.elapsed());
    }

    /// A time up to this one.
    pub(crate) fn within(&self, most: Duration) -> Duration {
        let millis = u64::try_from(most.as_millis()).unwrap_or(u64::MAX).max(1);
        Duration::from_millis(self.below(millis))
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.0.start.elapsed()
    }

    /// Becomes part of the trace, by which two runs are compared.
    pub(crate) fn step(&self, what: fmt::Arguments<'_>) {
        let now = self.elapsed();
        sys::set_elapsed(now);
        let mut state = self.0.state.lock();
        let line = format!("{:>12.6} {what}\n", now.as_secs_f64());
        state.trace.update(line.as_bytes());
        state.steps += 1;
        if state.is_verbose {
            print!("{line}");
        }
    }

    /// Something that must not be.
    pub(crate) fn problem(&self, invariant: &str, what: fmt::Arguments<'_>) {
        let now = self.elapsed().as_secs_f64();
        let mut state = self.0.state.lock();
        if state.is_verbose {
            println!("PROBLEM {invariant}: {what}");
        }
        // The first few tell enough.
        if state.problems.len() < 20 {
            state.problems.push(format!("{invariant}: {what} (at {now:.3} s)"));
        }
    }

    pub(crate) fn problems(&self) -> Vec<String> {
        self.0.state.lock().problems.clone()
    }

    /// How many steps there were, and the hash over all of them.
    pub(crate) fn trace(&self) -> (u64, String) {
        let state = self.0.state.lock();
        let hash = state.trace.clone().finalize();
        let start: [u8; 8] = std::array::from_fn(|at| hash[at]);
        (state.steps, format!("{:016x}", u64::from_be_bytes(start)))
    }
}

struct Rng(u64);

impl Rng {
    fn new(seed: u64) -> Self {
        let mut rng = Self(seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        // The first numbers of neighbouring seeds resemble each other.
        for _ in 0..8 {
            rng.next();
        }
        rng
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11
    }
}
