//! Answers over HTTP/2 that their client does not take.
//!
//! A client says how much of each answer it is ready for. One that says "nothing" and goes on talking otherwise would keep its
//! answers, and its connection, for ever: there is nothing to be written that could fail. So an answer of which something was
//! handed out, and nothing more asked for since, waits for its client. It is given up when that takes too long, and until then
//! its connection is no better than one that is quiet.
//!
//! Only what waits costs anything: an answer that is taken at once has no clock. Nor has one that was handed out as a whole,
//! whatever its client takes of it: what lies with a connection is bounded in bytes ([`super::sending`]).

use std::cell::Cell;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use tokio::time::{Instant, Sleep};

use super::crowd::{Place, Waiting};
use super::{Lane, WRITE_TIMEOUT};

/// What became of the last question to a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    HandedOut,
    /// The body itself has nothing yet.
    Awaited,
}

thread_local! {
    /// Of the answer that this thread works on now: bodies tell, and [`unless_left`], which polls them, looks.
    static STEP: Cell<Option<Step>> = const { Cell::new(None) };
}

/// Told by a body each time it is asked for more.
pub(super) fn told<T>(frame: &Poll<Option<T>>) {
    STEP.set(match frame {
        Poll::Ready(Some(_)) => Some(Step::HandedOut),
        Poll::Ready(None) => None,
        Poll::Pending => Some(Step::Awaited),
    });
}

/// For what belongs to an HTTP/2 connection: a task for each of its requests.
#[derive(Clone, Debug)]
pub(super) struct Requests {
    pub(super) lane: Lane,
    pub(super) place: Arc<Place>,
}

impl<F> hyper::rt::Executor<F> for Requests
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, work: F) {
        tokio::spawn(self.lane.clone().run(unless_left(Arc::clone(&self.place), work)));
    }
}

/// Makes and sends an answer. Drops it, which resets its stream, when the client leaves it lying.
async fn unless_left(place: Arc<Place>, work: impl Future<Output = ()>) {
    let mut work = pin!(work);
    let mut waiting: Option<Waiting> = None;
    let mut patience = pin!(None::<Sleep>);
    std::future::poll_fn(|cx| {
        STEP.set(None);
        if work.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        match STEP.take() {
            Some(Step::HandedOut) => {
                waiting.get_or_insert_with(|| place.waiting());
                match patience.as_mut().as_pin_mut() {
                    Some(patience) => patience.reset(Instant::now() + WRITE_TIMEOUT),
                    None => patience.set(Some(tokio::time::sleep(WRITE_TIMEOUT))),
                }
            }
            Some(Step::Awaited) => {
                waiting = None;
                patience.set(None);
            }
            // It was not asked for more.
            None => {}
        }
        match patience.as_mut().as_pin_mut() {
            Some(patience) => patience.poll(cx),
            None => Poll::Pending,
        }
    })
    .await;
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};
    use std::time::Duration;

    use super::super::Crowd;
    use super::*;
    use crate::config::Limits;
    use crate::metrics::Connections;

    fn place() -> Arc<Place> {
        let crowd = Crowd::new(Limits::default(), Connections::default());
        crowd.enter(IpAddr::V4(Ipv4Addr::LOCALHOST), std::time::Instant::now()).unwrap()
    }

    /// Asks a body that always has something, each time after so long.
    async fn taking(pauses: &[Duration]) {
        for pause in pauses {
            told(&Poll::Ready(Some(())));
            tokio::time::sleep(*pause).await;
        }
    }

    async fn took(work: impl Future<Output = ()>) -> Duration {
        let start = Instant::now();
        unless_left(place(), work).await;
        start.elapsed().min(WRITE_TIMEOUT * 10)
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_left_lying_is_given_up() {
        let slow = WRITE_TIMEOUT * 59 / 60;
        assert_eq!(took(taking(&[slow; 3])).await.as_secs(), slow.as_secs() * 3);
        assert_eq!(took(taking(&[slow, WRITE_TIMEOUT * 100])).await.as_secs(), (slow + WRITE_TIMEOUT).as_secs());
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_has_nothing_has_all_the_time_there_is() {
        let work = async {
            taking(&[WRITE_TIMEOUT / 2]).await;
            told::<()>(&Poll::Pending);
            tokio::time::sleep(WRITE_TIMEOUT * 5).await;
        };
        assert_eq!(took(work).await, WRITE_TIMEOUT * 11 / 2);
        // So has one that is still being made.
        assert_eq!(took(tokio::time::sleep(WRITE_TIMEOUT * 2)).await, WRITE_TIMEOUT * 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_in_use_as_long_as_its_answers_are_taken() {
        let place = place();
        let busy = place.busy();
        let own = Arc::clone(&place);
        let waits = || place.are_all_waiting();
        let work = tokio::spawn(unless_left(own, async {
            taking(&[Duration::from_secs(1)]).await;
            told::<()>(&Poll::Pending);
            tokio::time::sleep(Duration::from_secs(1)).await;
        }));
        assert!(!waits());
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert!(waits());
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(!waits(), "nothing is there for it to be taken");
        work.await.unwrap();
        drop(busy);
    }
}
