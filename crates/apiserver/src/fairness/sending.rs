//! Until when a list keeps its seat.
//!
//! A list is put together, encrypted and sent while its client reads it, and that is most of the work there is with it. So it
//! keeps its seat until its last byte is on its way. If that takes long, it is the line or the client that takes the time and
//! not the server: then the seat is free for others.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use parking_lot::Mutex;
use tokio::task::AbortHandle;

use super::seats::Seat;
use crate::answer::{self, Answer, BoxError};
use crate::serve::LongAnswer;

/// Time enough for a server that is busy to send what a client reads at once.
const LONGEST: Duration = Duration::from_millis(250);

/// The answer, with a seat that is given back when it is sent. It counts as a long one until then.
pub(crate) fn until_sent(answer: Answer, seat: Seat, long: Option<LongAnswer>) -> Answer {
    if answer.body().is_end_stream() {
        return answer;
    }
    let (parts, body) = answer.into_parts();
    let seat = Arc::new(Mutex::new(Some(seat)));
    let held = Arc::clone(&seat);
    let leaving = tokio::spawn(async move {
        tokio::time::sleep(LONGEST).await;
        drop(held.lock().take());
    });
    Answer::from_parts(parts, Seated { body, seat, leaving: leaving.abort_handle(), _long: long }.boxed_unsync())
}

#[derive(Debug)]
struct Seated {
    body: answer::Body,
    seat: Arc<Mutex<Option<Seat>>>,
    leaving: AbortHandle,
    _long: Option<LongAnswer>,
}

impl Body for Seated {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        if matches!(polled, Poll::Ready(None | Some(Err(_)))) {
            drop(self.seat.lock().take());
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Seated {
    /// The connection is done with it, or gone.
    fn drop(&mut self) {
        self.leaving.abort();
        drop(self.seat.lock().take());
    }
}

#[cfg(test)]
mod tests {
    use super::super::level::{Share, Waiting};
    use super::super::seats::Seats;
    use super::*;
    use crate::metrics::Flows;

    /// An answer that holds the only seat there is.
    async fn seated() -> (Arc<Seats>, Answer) {
        let seats = Arc::new(Seats::new(Flows::default()));
        let one = Share { nominal: 1, lendable: 0, borrowable: 0, waiting: Waiting { in_a_flow: 10, in_all: 10 } };
        seats.arrange([("level".into(), one)].into());
        let seat = seats.take("level", "schema", "flow", 1).await.unwrap();
        (Arc::clone(&seats), until_sent(answer::text(200, "what was asked for"), seat, None))
    }

    async fn is_free(seats: &Arc<Seats>) -> bool {
        let next = seats.take("level", "schema", "other", 1);
        tokio::time::timeout(Duration::from_millis(1), next).await.is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn the_seat_is_kept_until_the_last_byte_is_sent() {
        let (seats, answer) = seated().await;
        let mut body = answer.into_body();
        assert!(!is_free(&seats).await);
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "what was asked for");
        assert!(body.frame().await.is_none());
        assert!(is_free(&seats).await);
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_keeps_a_seat_by_reading_slowly() {
        let (seats, answer) = seated().await;
        tokio::time::sleep(Duration::from_millis(240)).await;
        assert!(!is_free(&seats).await);
        tokio::time::sleep(Duration::from_millis(10)).await;
        assert!(is_free(&seats).await);
        drop(answer);
    }

    #[tokio::test(start_paused = true)]
    async fn who_goes_away_leaves_the_seat() {
        let (seats, answer) = seated().await;
        drop(answer);
        assert!(is_free(&seats).await);
    }
}
