//! Memory for the bodies of requests while they come.
//!
//! A body is in memory from its first byte until its request is answered, and clients may take a minute to send the last one; some
//! would open thousands of requests and never do. So what is not there at once takes its [`Shares`] of a room before it is
//! read. Nobody has proven who they are before they have logged in: they have a small room of their own, shared by address.

use std::borrow::Cow;
use std::net::IpAddr;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use croft_meta::ApiError;
use http_body::Body as _;

use crate::answer::{self, Body};
use crate::auth::ANONYMOUS;
use crate::network::network;
use crate::shares::{Share, Shares};

/// Upstream's limit for request bodies.
const LONGEST: usize = 3 << 20;
/// So much takes no room if it is there at once, as it nearly always is.
const SHORT: usize = 4 << 10;
/// It is there at once even if it comes so long after its head: over HTTP/2 it is sent apart.
const AT_ONCE: Duration = Duration::from_millis(50);
/// What the room is counted in: the least that a request takes whose body is still to come, with its head.
const UNIT: usize = 32 << 10;
/// Sixteen of the longest bodies, eight of them of one user.
const FOR_USERS: usize = 16 * LONGEST / UNIT;
const FOR_ANONYMOUS: usize = (8 << 20) / UNIT;
/// So many of one user wait for room with their bodies unread; more are refused.
const LINE: usize = 32;

#[derive(Debug)]
pub(crate) struct BodyRoom {
    users: Room,
    anonymous: Room,
}

#[derive(Debug)]
struct Room {
    space: Shares,
    line: Shares,
}

impl Room {
    fn of(units: usize) -> Self {
        Self { space: Shares::of(units), line: Shares::at_most(LINE, units) }
    }

    async fn take(&self, who: &str, bytes: usize) -> Result<Share, ApiError> {
        let units = bytes.div_ceil(UNIT).max(1);
        if let Some(share) = self.space.take_now(who, units) {
            return Ok(share);
        }
        let _waits = self.line.take_now(who, 1).ok_or_else(|| {
            ApiError::too_many_requests("too many requests wait for room for their bodies; send fewer at a time", 1)
        })?;
        self.space.take(who, units).await.map_err(ApiError::internal)
    }
}

impl BodyRoom {
    pub(crate) fn new() -> Self {
        Self { users: Room::of(FOR_USERS), anonymous: Room::of(FOR_ANONYMOUS) }
    }

    /// Reads the body of a request, and gives the room that it has for as long as it is in memory. What comes from no address
    /// comes from this process, and was in memory before.
    pub(crate) async fn read(
        &self,
        user: &str,
        address: Option<IpAddr>,
        body: Body,
    ) -> Result<(Bytes, Option<Share>), ApiError> {
        let announced = body.size_hint();
        let bytes = announced.upper().and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or(LONGEST);
        let mut reading = pin!(answer::read_body(body, LONGEST));
        let (is_refused, is_short) = (announced.lower() > LONGEST as u64, bytes <= SHORT);
        if (is_refused || is_short || address.is_none())
            && let Poll::Ready(body) = futures::poll!(&mut reading)
        {
            return Ok((body?, None));
        }
        if is_short && let Ok(body) = tokio::time::timeout(AT_ONCE, &mut reading).await {
            return Ok((body?, None));
        }
        let (room, who) = match address {
            Some(address) if user == ANONYMOUS => (&self.anonymous, Cow::Owned(network(address).to_string())),
            _ => (&self.users, Cow::Borrowed(user)),
        };
        let share = room.take(&who, bytes).await?;
        Ok((reading.await?, Some(share)))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures::{FutureExt, StreamExt, stream};
    use http_body::Frame;
    use http_body_util::{BodyExt, Limited, StreamBody};

    use super::*;
    use crate::answer::BoxError;

    /// Some of a body, of which the rest does not come.
    fn half() -> Body {
        let frame = Ok::<_, BoxError>(Frame::data(Bytes::from_static(b"{")));
        StreamBody::new(stream::iter([frame]).chain(stream::pending())).boxed_unsync()
    }

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[tokio::test]
    async fn what_is_there_takes_no_room_and_what_is_to_come_does() {
        let room = Arc::new(BodyRoom::new());
        let mut reading = Vec::new();
        let read = |user: &'static str, from: Option<IpAddr>, body: Body| {
            let room = Arc::clone(&room);
            async move { room.read(user, from, body).await }.boxed()
        };
        let whole = async |user, from, size: usize| {
            let (body, share) = read(user, from, answer::full("x".repeat(size))).now_or_never()?.unwrap();
            assert_eq!(body.len(), size);
            Some(share.is_some())
        };
        // As nobody says how long they are, they count as long ones: one of an address is read, more wait, then they are refused.
        for _ in 0..=LINE {
            let mut one = read(ANONYMOUS, Some(address("2001:db8::1")), half());
            assert!(futures::poll!(&mut one).is_pending());
            reading.push(one);
        }
        let refused = read(ANONYMOUS, Some(address("2001:db8::2")), half()).await.unwrap_err();
        assert_eq!((refused.code(), refused.reason()), (429, "TooManyRequests"));
        // A short one is not kept from coming in, and others are not held up at all.
        assert_eq!(whole(ANONYMOUS, Some(address("2001:db8::3")), SHORT).await, Some(false));
        assert_eq!(whole(ANONYMOUS, Some(address("192.0.2.1")), SHORT + 1).await, Some(true));
        for _ in 0..8 {
            let mut one = read("jane", Some(address("2001:db8::1")), half());
            assert!(futures::poll!(&mut one).is_pending());
            reading.push(one);
        }
        let from = Some(address("192.0.2.1"));
        assert_eq!(whole("jane", from, SHORT + 1).await, None);
        assert_eq!(whole("bob", from, LONGEST).await, Some(true));
        assert_eq!(whole("jane", None, LONGEST).await, Some(false));
        drop(reading);
        assert_eq!(whole("jane", from, LONGEST).await, Some(true));
    }

    #[tokio::test(start_paused = true)]
    async fn a_short_body_may_come_a_moment_after_its_head() {
        for (late, expected) in [(AT_ONCE / 2, false), (AT_ONCE * 2, true)] {
            let frame = async move {
                tokio::time::sleep(late).await;
                Ok::<_, BoxError>(Frame::data(Bytes::from_static(b"{}")))
            };
            let body = Limited::new(StreamBody::new(stream::once(frame)), SHORT).boxed_unsync();
            let (body, share) = BodyRoom::new().read("jane", Some(address("192.0.2.1")), body).await.unwrap();
            assert_eq!((&*body, share.is_some()), (&b"{}"[..], expected), "{late:?}");
        }
    }

    #[tokio::test]
    async fn what_is_too_long_is_refused_at_once() {
        let body = answer::full("x".repeat(LONGEST + 1));
        assert_eq!(BodyRoom::new().read("jane", Some(address("192.0.2.1")), body).await.unwrap_err().code(), 413);
    }
}
