//! A body that is cut off when something ends: a credential, or the server.
//!
//! Whoever reads it must be able to tell: what merely stopped coming would look like the whole of it, and half an image would
//! be kept for an image. Only watches end as if nothing were amiss, since they have no end and their readers go on elsewhere.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use http_body::{Body, Frame, SizeHint};
use tokio_util::sync::CancellationToken;

use crate::answer::BoxError;

/// How a body ends that is cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    Clean,
    Broken,
}

impl Ending {
    pub(crate) fn of(verb: &str) -> Self {
        if verb == "watch" { Self::Clean } else { Self::Broken }
    }
}

pub(crate) struct Cut<B, E> {
    body: B,
    /// When this is over, so is the body. It says why.
    until: Pin<Box<E>>,
    ending: Ending,
    is_over: bool,
}

impl<B, E> Cut<B, E> {
    pub(crate) fn new(body: B, ending: Ending, until: E) -> Self {
        Self { body, until: Box::pin(until), ending, is_over: false }
    }
}

/// When the server stops.
pub(crate) async fn stopped(stop: CancellationToken) -> &'static str {
    stop.cancelled().await;
    "the server stops"
}

impl<B: fmt::Debug, E> fmt::Debug for Cut<B, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cut").field("body", &self.body).field("ending", &self.ending).finish_non_exhaustive()
    }
}

impl<B, E> Body for Cut<B, E>
where
    B: Body<Error: Into<BoxError>> + Unpin,
    E: Future<Output = &'static str>,
{
    type Data = B::Data;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, BoxError>>> {
        let this = self.get_mut();
        if this.is_over {
            return Poll::Ready(None);
        }
        if let Poll::Ready(why) = this.until.as_mut().poll(cx) {
            this.is_over = true;
            return Poll::Ready(match this.ending {
                Ending::Clean => None,
                Ending::Broken => Some(Err(why.into())),
            });
        }
        let frame = std::task::ready!(Pin::new(&mut this.body).poll_frame(cx));
        this.is_over = frame.is_none();
        Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        self.is_over || self.body.is_end_stream()
    }

    /// Whatever the body says of itself: less of it may come.
    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use futures::{StreamExt, stream};
    use http_body_util::{BodyExt, StreamBody};

    use super::*;

    /// What is read of a body of one frame, which then has an end or goes on.
    async fn read(ending: Ending, is_whole: bool) -> (String, Result<(), String>) {
        let frame = Ok::<_, BoxError>(Frame::data(Bytes::from_static(b"some")));
        let first = stream::iter([frame]);
        let frames = if is_whole { first.boxed() } else { first.chain(stream::pending()).boxed() };
        let stop = CancellationToken::new();
        let mut body = Cut::new(StreamBody::new(frames), ending, stopped(stop.clone()));
        let mut seen = String::new();
        loop {
            let frame = match futures::poll!(body.frame()) {
                Poll::Ready(frame) => frame,
                Poll::Pending => {
                    stop.cancel();
                    body.frame().await
                }
            };
            match frame {
                Some(Ok(frame)) => seen.push_str(std::str::from_utf8(&frame.into_data().unwrap()).unwrap()),
                Some(Err(error)) => return (seen, Err(error.to_string())),
                None => return (seen, Ok(())),
            }
        }
    }

    #[tokio::test]
    async fn what_is_cut_off_does_not_look_whole() {
        let some = || "some".to_owned();
        assert_eq!(read(Ending::Broken, true).await, (some(), Ok(())));
        assert_eq!(read(Ending::Broken, false).await, (some(), Err("the server stops".to_owned())));
        assert_eq!(read(Ending::Clean, false).await, (some(), Ok(())));
        assert_eq!((Ending::of("watch"), Ending::of("get")), (Ending::Clean, Ending::Broken));
    }
}
