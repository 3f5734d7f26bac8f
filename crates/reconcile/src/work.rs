//! The loop that every controller runs: keys come in, each is worked on by one task at a time, failures come back later.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt::Debug;
use std::future::Future;
use std::hash::Hash;
use std::time::Duration;

use croft_meta::Chain;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::backoff::Backoff;

/// How many keys may wait to be looked at; senders wait when it is full.
const KEYS: usize = 1024;

/// What waits for something to happen is looked at no sooner than this.
const WAIT: Duration = Duration::from_secs(1);

/// Where keys go in.
#[derive(Debug)]
pub struct Keys<K>(mpsc::Sender<(K, Duration)>);

/// Where they come out.
pub type Received<K> = mpsc::Receiver<(K, Duration)>;

impl<K> Clone for Keys<K> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K> Keys<K> {
    pub fn channel() -> (Self, Received<K>) {
        let (keys, received) = mpsc::channel(KEYS);
        (Self(keys), received)
    }

    /// Has the key worked on, after a while at the latest. Does nothing once the loop has ended.
    pub async fn send(&self, key: K, wait: Duration) {
        if self.0.send((key, wait)).await.is_err() {
            tracing::trace!("work came after the end");
        }
    }
}

/// A failure that is tried again, ever more slowly.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the API server refused")]
    Api(#[from] kube::Error),
    /// Not a failure: something must happen first, and whoever sees it happen sends the key. Looked at again now and then
    /// all the same.
    #[error("{0}")]
    NotYet(String),
}

/// What names a piece of work.
pub trait Key: Clone + Debug + Eq + Hash + Ord + Send + 'static {}

impl<K: Clone + Debug + Eq + Hash + Ord + Send + 'static> Key for K {}

/// How the loop runs.
#[derive(Debug)]
pub struct Loop {
    pub name: &'static str,
    /// How many keys are worked on at a time.
    pub workers: usize,
    pub stop: CancellationToken,
}

impl Loop {
    /// Runs until the token stops it, or nobody can send keys any more. A key comes with how long it can wait: if it
    /// comes again in the meantime, that counts as one. Work starts when `gate` resolves. A key that arrives while it is
    /// being worked on is worked on once more.
    pub async fn run<K, F, W>(self, mut keys: Received<K>, gate: impl Future<Output = ()>, reconcile: F)
    where
        K: Key,
        F: Fn(K) -> W,
        W: Future<Output = Result<(), Error>>,
    {
        let mut queue = Queue::default();
        let mut running = FuturesUnordered::new();
        let mut is_open = false;
        tokio::pin!(gate);
        loop {
            let next = queue.earliest();
            let has_room = is_open && running.len() < self.workers;
            tokio::select! {
                () = self.stop.cancelled() => return,
                () = &mut gate, if !is_open => is_open = true,
                key = keys.recv() => match key {
                    Some((key, wait)) => queue.add(key, Instant::now() + wait),
                    None => return,
                },
                Some((key, result)) = running.next() => self.finish(&mut queue, key, result),
                () = sleep_until(next), if has_room => {
                    if let Some(key) = queue.take(Instant::now()) {
                        let work = reconcile(key.clone());
                        running.push(async move { (key, work.await) });
                    }
                }
            }
        }
    }

    fn finish<K: Key>(&self, queue: &mut Queue<K>, key: K, result: Result<(), Error>) {
        let retry = match result {
            Ok(()) => {
                queue.finish(key, None);
                return;
            }
            Err(error) => error,
        };
        let mut delay = queue.delay(&key);
        if matches!(retry, Error::NotYet(_)) {
            delay = delay.max(WAIT);
        }
        let controller = self.name;
        if matches!(&retry, Error::Api(error) if !crate::failure::is_conflict(error)) {
            tracing::warn!(controller, ?key, error = %Chain(&retry), ?delay, "will be tried again");
        } else {
            tracing::debug!(controller, ?key, error = %Chain(&retry), ?delay, "will be tried again");
        }
        queue.finish(key, Some(Instant::now() + delay));
    }
}

async fn sleep_until(when: Option<Instant>) {
    match when {
        Some(when) => tokio::time::sleep_until(when).await,
        None => std::future::pending().await,
    }
}

/// Keys and when they are due. Each is there once.
#[derive(Debug)]
struct Queue<K> {
    due: BTreeSet<(Instant, K)>,
    when: HashMap<K, Instant>,
    running: HashSet<K>,
    /// Arrived while being worked on.
    again: HashMap<K, Instant>,
    backoffs: HashMap<K, Backoff>,
}

impl<K> Default for Queue<K> {
    fn default() -> Self {
        Self {
            due: BTreeSet::new(),
            when: HashMap::new(),
            running: HashSet::new(),
            again: HashMap::new(),
            backoffs: HashMap::new(),
        }
    }
}

impl<K: Key> Queue<K> {
    /// The earlier of two times counts.
    fn add(&mut self, key: K, at: Instant) {
        if self.running.contains(&key) {
            let again = self.again.entry(key).or_insert(at);
            *again = at.min(*again);
            return;
        }
        if let Some(earlier) = self.when.get(&key) {
            if *earlier <= at {
                return;
            }
            self.due.remove(&(*earlier, key.clone()));
        }
        self.when.insert(key.clone(), at);
        self.due.insert((at, key));
    }

    fn earliest(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at)
    }

    fn take(&mut self, now: Instant) -> Option<K> {
        if self.earliest()? > now {
            return None;
        }
        let (_, key) = self.due.pop_first()?;
        self.when.remove(&key);
        self.running.insert(key.clone());
        Some(key)
    }

    fn delay(&mut self, key: &K) -> Duration {
        self.backoffs.entry(key.clone()).or_default().next_delay()
    }

    /// Without `retry` the work is done, and the next failure counts as the first.
    fn finish(&mut self, key: K, retry: Option<Instant>) {
        self.running.remove(&key);
        if retry.is_none() {
            self.backoffs.remove(&key);
        }
        let again = self.again.remove(&key);
        if let Some(at) = again.into_iter().chain(retry).min() {
            self.add(key, at);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn a_key_waits_once_and_its_earliest_time_counts() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut queue = Queue::default();
        queue.add("a", at(50));
        queue.add("a", at(10));
        queue.add("a", at(90));
        queue.add("b", at(20));
        assert_eq!(queue.take(at(5)), None);
        assert_eq!(queue.take(at(60)), Some("a"));
        assert_eq!(queue.take(at(60)), Some("b"));
        assert_eq!(queue.take(at(100)), None);
    }

    #[test]
    fn a_key_that_is_worked_on_comes_back_afterwards() {
        let now = Instant::now();
        let mut queue = Queue::default();
        queue.add("a", now);
        assert_eq!(queue.take(now), Some("a"));
        queue.add("a", now);
        assert_eq!(queue.take(now), None, "one task at a time");
        queue.finish("a", None);
        assert_eq!(queue.take(now), Some("a"));
        queue.finish("a", None);
        assert_eq!(queue.take(now), None);
    }

    #[test]
    fn failures_wait_longer_until_one_succeeds() {
        let now = Instant::now();
        let mut queue = Queue::default();
        let first = queue.delay(&"a");
        assert!(queue.delay(&"a") > first);
        queue.finish("a", None);
        assert_eq!(queue.delay(&"a"), first);
        queue.add("a", now);
    }

    #[tokio::test(start_paused = true)]
    async fn failed_work_is_tried_again_and_the_token_ends_it() {
        let (send, keys) = Keys::channel();
        let stop = CancellationToken::new();
        let tries = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&tries);
        let ends = stop.clone();
        let work = Loop { name: "test", workers: 2, stop: stop.clone() };
        send.send("key", Duration::ZERO).await;
        work.run(keys, std::future::ready(()), |_| {
            let (counted, ends) = (Arc::clone(&counted), ends.clone());
            async move {
                if counted.fetch_add(1, Ordering::Relaxed) < 3 {
                    return Err(Error::NotYet("not yet".to_owned()));
                }
                ends.cancel();
                Ok(())
            }
        })
        .await;
        assert_eq!(tries.load(Ordering::Relaxed), 4);
    }
}
