//! Memory for answers that are large and made as a whole: tables, YAML, other versions of many objects.
//!
//! Plain lists are made while the client reads them ([`crate::list_body`]) and cost next to nothing. These others are in memory
//! from the moment they are made until the client has read them, and clients may be in no hurry. So each takes its share of a
//! room first, and waits while there is none. Nobody has more than half of the room: one who asks for much and reads nothing is in
//! nobody's way but their own.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use croft_meta::ApiError;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::AbortHandle;

use crate::answer::{Answer, BoxError};

/// Smaller ones are not worth the trouble.
const SMALL: usize = 64 << 10;
/// What making an answer takes, for each byte of the objects that it is made of: they are parsed, and written again.
const COST: usize = 8;
/// How long an answer waits for room.
const PATIENCE: Duration = Duration::from_secs(15);
/// How long a client may take to read an answer. HTTP/2 lets it keep the connection alive and read nothing for ever.
const READ_TIMEOUT: Duration = Duration::from_mins(2);
/// So much is handed out at a time: what is handed out is the connection's, and no longer counted.
const PIECE: usize = 64 << 10;
/// A permit of the semaphores.
const UNIT: usize = 1 << 10;

#[derive(Debug)]
pub(crate) struct AnswerRoom {
    all: Arc<Semaphore>,
    of_users: Mutex<HashMap<String, Arc<Semaphore>>>,
    /// What one user may have, in units.
    share: usize,
}

/// A part of the room.
#[derive(Debug)]
pub(crate) struct Reserved {
    /// Of the user's share, and of all.
    permits: [OwnedSemaphorePermit; 2],
}

impl AnswerRoom {
    pub(crate) fn new(bytes: usize) -> Self {
        let units = (bytes / UNIT).clamp(2, Semaphore::MAX_PERMITS);
        Self { all: Arc::new(Semaphore::new(units)), of_users: Mutex::default(), share: units / 2 }
    }

    /// Waits for room for an answer that is made of so many bytes of objects; `None` if it is too small to matter.
    pub(crate) async fn reserve(&self, user: &str, bytes: usize) -> Result<Option<Reserved>, ApiError> {
        if bytes < SMALL {
            return Ok(None);
        }
        let units = (bytes.saturating_mul(COST) / UNIT).min(self.share);
        let units = u32::try_from(units).unwrap_or(u32::MAX);
        let own = self.of_user(user);
        let waiting = async {
            let of_user = own.acquire_many_owned(units).await?;
            let of_all = Arc::clone(&self.all).acquire_many_owned(units).await?;
            Ok::<_, tokio::sync::AcquireError>(Reserved { permits: [of_user, of_all] })
        };
        match tokio::time::timeout(PATIENCE, waiting).await {
            Ok(reserved) => reserved.map(Some).map_err(ApiError::internal),
            Err(_) => Err(ApiError::too_many_requests(
                "there is no memory for another large answer; read those that were asked for, or ask for pages (limit)",
                1,
            )),
        }
    }

    fn of_user(&self, user: &str) -> Arc<Semaphore> {
        let mut of_users = self.of_users.lock();
        if let Some(own) = of_users.get(user) {
            return Arc::clone(own);
        }
        // Whoever has nothing in the room is forgotten.
        of_users.retain(|_, own| Arc::strong_count(own) > 1);
        let own = Arc::new(Semaphore::new(self.share));
        of_users.insert(user.to_owned(), Arc::clone(&own));
        own
    }
}

impl Reserved {
    fn units(&self) -> usize {
        self.permits[0].num_permits()
    }

    fn shrink_to(&mut self, bytes: usize) {
        let surplus = self.units().saturating_sub(bytes.div_ceil(UNIT));
        for permit in &mut self.permits {
            drop(permit.split(surplus));
        }
    }

    /// The answer, which has this room until it is read.
    pub(crate) async fn keep(mut self, answer: Answer) -> Result<Answer, ApiError> {
        let (parts, body) = answer.into_parts();
        let whole = body.collect().await.map_err(ApiError::internal)?.to_bytes();
        self.shrink_to(whole.len());
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
