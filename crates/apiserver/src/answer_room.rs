//! Memory for answers that are large and made as a whole: tables, YAML, other versions of many objects, and lists of a past
//! moment, whose objects nobody else has in memory.
//!
//! Plain lists are made while the client reads them ([`crate::list_body`]) and cost next to nothing. These others are in memory
//! from the moment they are made until the client has read them, and clients may be in no hurry. So each takes its [`Shares`]
//! of a room first. A request that waits for room keeps its seat meanwhile ([`crate::fairness`]), so that it waits for moments,
//! and for what its own user has not at all: whoever has filled their half would keep everybody else of their level waiting.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use croft_meta::ApiError;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use parking_lot::Mutex;
use tokio::task::AbortHandle;

use crate::answer::{self, Answer, BoxError};
use crate::shares::{Share, Shares};

/// Smaller ones are not worth the trouble.
const SMALL: usize = 64 << 10;
/// What making an answer takes, for each byte of the objects that it is made of: they are parsed, and written again.
const COST: usize = 8;
/// What a list of objects takes that are read for it: as the store gives them, as they are served, and in the answer.
const COPIES: usize = 3;
/// How long an answer waits for room: for those that are read at once.
const PATIENCE: Duration = Duration::from_millis(250);
/// How long a client may take to read an answer. HTTP/2 lets it keep the connection alive and read nothing for ever.
const READ_TIMEOUT: Duration = Duration::from_mins(2);
/// So much is handed out at a time: what is handed out is the connection's, and counted there.
const PIECE: usize = 64 << 10;
/// What the room is counted in.
const UNIT: usize = 1 << 10;

#[derive(Debug)]
pub(crate) struct AnswerRoom(Shares);

/// A part of the room.
#[derive(Debug)]
pub(crate) struct Reserved(Share);

impl AnswerRoom {
    pub(crate) fn new(bytes: usize) -> Self {
        Self(Shares::of(bytes / UNIT))
    }

    /// Waits for room for an answer that is made of so many bytes of objects, some of which it may have already; for none if it
    /// is too small to matter.
    pub(crate) async fn reserve(
        &self,
        user: &str,
        has: Option<Reserved>,
        bytes: usize,
    ) -> Result<Option<Reserved>, ApiError> {
        self.reserve_for(user, has, bytes, COST).await
    }

    /// The same for objects that nobody else has in memory.
    pub(crate) async fn reserve_copies(
        &self,
        user: &str,
        has: Option<Reserved>,
        bytes: usize,
    ) -> Result<Option<Reserved>, ApiError> {
        self.reserve_for(user, has, bytes, COPIES).await
    }

    async fn reserve_for(
        &self,
        user: &str,
        has: Option<Reserved>,
        bytes: usize,
        cost: usize,
    ) -> Result<Option<Reserved>, ApiError> {
        if bytes < SMALL {
            return Ok(has);
        }
        let waiting = self.0.grow(user, has.map(|has| has.0), bytes.saturating_mul(cost) / UNIT);
        let share = tokio::time::timeout(PATIENCE, waiting).await.ok().flatten().ok_or_else(|| {
            ApiError::too_many_requests(
                "there is no memory for another large answer; read those that were asked for, or ask for pages (limit)",
                1,
            )
        })?;
        Ok(Some(Reserved(share)))
    }
}

impl Reserved {
    /// The answer, which has this room until it is read.
    pub(crate) async fn keep(mut self, answer: Answer) -> Result<Answer, ApiError> {
        let (parts, body) = answer.into_parts();
        let whole = whole(body).await.map_err(ApiError::internal)?;
        self.0.shrink_to(whole.len().div_ceil(UNIT));
        let size = whole.len() as u64;
        let shelf = Arc::new(Mutex::new(Some((whole, self))));
        let forgotten = Arc::clone(&shelf);
        let forgetting = tokio::spawn(async move {
            tokio::time::sleep(READ_TIMEOUT).await;
            drop(forgotten.lock().take());
        });
        let kept = Kept { shelf, remaining: size, forgetting: forgetting.abort_handle() };
        Ok(Answer::from_parts(parts, kept.boxed_unsync()))
    }
}

/// All of it. Others come to their turn between its pieces.
async fn whole(mut body: answer::Body) -> Result<Bytes, BoxError> {
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else { continue };
        if whole.is_empty() {
            if body.is_end_stream() {
                return Ok(data);
            }
            whole.reserve(data.len() + usize::try_from(body.size_hint().lower()).unwrap_or_default());
        }
        whole.extend_from_slice(&data);
        tokio::task::yield_now().await;
    }
    Ok(whole.freeze())
}

#[derive(Debug)]
struct Kept {
    /// What is still to be read. Empty once it took too long.
    shelf: Arc<Mutex<Option<(Bytes, Reserved)>>>,
    remaining: u64,
    forgetting: AbortHandle,
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.forgetting.abort();
    }
}

impl Body for Kept {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        if this.remaining == 0 {
            return Poll::Ready(None);
        }
        let mut shelf = this.shelf.lock();
        let Some((rest, _)) = shelf.as_mut() else {
            return Poll::Ready(Some(Err(format!("the answer was not read in {} s", READ_TIMEOUT.as_secs()).into())));
        };
        // Copied: a slice would keep the whole in memory for as long as the connection has not sent it.
        let piece = Bytes::copy_from_slice(&rest.split_to(rest.len().min(PIECE)));
        this.remaining = rest.len() as u64;
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.remaining == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.remaining)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn nobody_keeps_a_seat_for_long_while_they_wait_for_room() {
        let room = AnswerRoom::new(4 * SMALL * COST);
        let start = Instant::now();
        let own =
            [room.reserve("greedy", None, SMALL).await.unwrap(), room.reserve("greedy", None, SMALL).await.unwrap()];
        let refused = room.reserve("greedy", None, SMALL).await.unwrap_err();
        assert_eq!((refused.code(), start.elapsed()), (429, Duration::ZERO), "there is nothing to be waited for");
        let others =
            [room.reserve("other", None, SMALL).await.unwrap(), room.reserve("other", None, SMALL).await.unwrap()];
        assert_eq!(room.reserve("third", None, SMALL).await.unwrap_err().code(), 429);
        assert_eq!(start.elapsed(), PATIENCE);
        let waiting = room.reserve("third", None, SMALL);
        let read = async { drop(others) };
        let (third, ()) = tokio::join!(waiting, read);
        assert!(third.unwrap().is_some() && start.elapsed() == PATIENCE);
        drop(own);
    }
}
