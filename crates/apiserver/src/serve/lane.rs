//! Two lanes: long answers are made and sent by threads that give way to all others.
//!
//! A list of some hundred objects is put together, encrypted and handed to the kernel in one go, which takes a thread about a
//! millisecond; a table of them takes longer. Seats bound how many are under way at a time, and say nothing about who has
//! the processor meanwhile: on the same threads, a short answer waits behind all of them. So a connection on which a long answer is
//! under way changes to threads with a lower priority, from which the kernel takes the processor as soon as somebody else has
//! work for it. It changes back when that is sent.
//!
//! What belongs to a connection changes with it: of HTTP/2, the task that it is and one for each of its requests.

use std::io;
use std::panic::resume_unwind;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::runtime::{Builder, Handle, Runtime};

/// How much lower the priority is: a third of the processor where others want all of it.
const NICENESS: i32 = 5;
/// From so many bytes on, an answer is a long one, whatever it is.
const LONG_BYTES: u64 = 64 << 10;
/// What was given out last may still be on its way through the connection.
const AFTERWARDS: Duration = Duration::from_millis(20);

/// The threads for long answers.
#[derive(Debug)]
pub(crate) struct SlowThreads {
    /// Only taken when they end.
    runtime: Option<Runtime>,
}

impl SlowThreads {
    pub(crate) fn start() -> io::Result<Self> {
        let runtime =
            Builder::new_multi_thread().thread_name("croft-long").on_thread_start(give_way).enable_all().build()?;
        Ok(Self { runtime: Some(runtime) })
    }

    /// For a new connection.
    pub(super) fn lane(&self) -> Lane {
        let slow = self.runtime.as_ref().map(|runtime| runtime.handle().clone());
        Lane { slow, state: Arc::default() }
    }
}

impl Drop for SlowThreads {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // Tasks may end a runtime only like this.
            runtime.shutdown_background();
        }
    }
}

/// Of the thread that calls it.
fn give_way() {
    if let Err(error) = rustix::process::setpriority_process(None, NICENESS) {
        tracing::debug!(%error, "a thread for long answers keeps its priority");
    }
}

/// Where what belongs to a connection is done.
#[derive(Clone, Debug)]
pub(crate) struct Lane {
    slow: Option<Handle>,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    /// Long answers that are under way.
    long: usize,
    ended: Option<Instant>,
}

/// A long answer that is under way, until it is dropped.
#[derive(Debug)]
pub(crate) struct LongAnswer(Lane);

impl Lane {
    pub(crate) fn long_answer(&self) -> LongAnswer {
        self.state.lock().long += 1;
        LongAnswer(self.clone())
    }

    /// The same, if an answer of that size is a long one.
    pub(super) fn long_answer_of(&self, bytes: u64) -> Option<LongAnswer> {
        (bytes >= LONG_BYTES).then(|| self.long_answer())
    }

    fn is_slow(&self) -> bool {
        let state = self.state.lock();
        self.slow.is_some() && (state.long > 0 || state.ended.is_some_and(|ended| ended.elapsed() < AFTERWARDS))
    }

    /// Does some of the connection's work, on the threads of this runtime and on the slow ones as it comes. `None` if those have
    /// ended meanwhile.
    pub(super) async fn run<F>(self, work: F) -> Option<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send,
    {
        let mut work = Box::pin(work);
        loop {
            if let Some(output) = Stretch::of(&self, false, &mut work).await {
                return Some(output);
            }
            let (lane, slow) = (self.clone(), self.slow.as_ref()?);
            let stretch = slow.spawn(async move {
                let output = Stretch::of(&lane, true, &mut work).await;
                (output, work)
            });
            match stretch.await {
                Ok((Some(output), _)) => return Some(output),
                Ok((None, rest)) => work = rest,
                Err(error) => match error.try_into_panic() {
                    Ok(panic) => resume_unwind(panic),
                    Err(_) => return None,
                },
            }
        }
    }
}

impl Drop for LongAnswer {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.long -= 1;
        state.ended = Some(Instant::now());
    }
}

/// Work between two changes of the lane: ends with `None` when there is one to be made.
struct Stretch<'a, F> {
    lane: &'a Lane,
    is_slow: bool,
    work: &'a mut Pin<Box<F>>,
}

impl<'a, F> Stretch<'a, F> {
    fn of(lane: &'a Lane, is_slow: bool, work: &'a mut Pin<Box<F>>) -> Self {
        Self { lane, is_slow, work }
    }
}

impl<F: Future> Future for Stretch<'_, F> {
    type Output = Option<F::Output>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        if this.lane.is_slow() != this.is_slow {
            return Poll::Ready(None);
        }
        match this.work.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            // Nothing is lost if there was nobody to wake: it is polled again at once, in the other lane.
            Poll::Pending if this.lane.is_slow() != this.is_slow => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_on_slow_threads() -> bool {
        std::thread::current().name().is_some_and(|name| name.starts_with("croft-long"))
    }

    /// Comes back on the other threads, if they are to be changed.
    async fn change() {
        tokio::task::yield_now().await;
    }

    #[tokio::test]
    async fn work_changes_for_long_answers_and_back() {
        let threads = SlowThreads::start().unwrap();
        let lane = threads.lane();
        let own = lane.clone();
        let work = async move {
            let mut seen = vec![is_on_slow_threads()];
            let (first, second) = (own.long_answer(), own.long_answer());
            change().await;
            seen.push(is_on_slow_threads());
            drop(first);
            change().await;
            seen.push(is_on_slow_threads());
            drop(second);
            while is_on_slow_threads() {
                change().await;
            }
            seen
        };
        assert_eq!(lane.run(work).await.unwrap(), [false, true, true]);
    }

    #[tokio::test]
    async fn everything_of_a_connection_changes() {
        let threads = SlowThreads::start().unwrap();
        let lane = threads.lane();
        let long = lane.long_answer();
        assert!(lane.clone().run(async { is_on_slow_threads() }).await.unwrap());
        assert!(!threads.lane().run(async { is_on_slow_threads() }).await.unwrap(), "another connection");
        drop(long);
    }

    #[tokio::test]
    async fn only_what_is_large_is_long() {
        let threads = SlowThreads::start().unwrap();
        let lane = threads.lane();
        assert!(lane.long_answer_of(LONG_BYTES - 1).is_none());
        assert!(!lane.is_slow());
        let _long = lane.long_answer_of(LONG_BYTES);
        assert!(lane.is_slow());
    }

    #[tokio::test]
    async fn without_the_threads_the_work_ends() {
        let threads = SlowThreads::start().unwrap();
        let lane = threads.lane();
        let _long = lane.long_answer();
        let (started, mut wait) = tokio::sync::mpsc::channel::<()>(1);
        let work = tokio::spawn(lane.run(async move {
            drop(started);
            std::future::pending::<()>().await;
        }));
        assert!(wait.recv().await.is_none());
        drop(threads);
        assert!(work.await.unwrap().is_none());
    }

    #[tokio::test]
    #[should_panic(expected = "on the way")]
    async fn a_panic_is_one_on_all_threads() {
        let threads = SlowThreads::start().unwrap();
        let lane = threads.lane();
        let _long = lane.long_answer();
        lane.run(async { panic!("on the way") }).await;
    }
}
