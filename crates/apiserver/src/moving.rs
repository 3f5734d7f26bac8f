//! A body that must keep moving: one that stands still for too long ends with an error.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http_body::{Body, Frame, SizeHint};
use tokio::time::{Instant, Sleep};

use crate::answer::BoxError;

/// Large bodies may take hours, but something of them comes within this.
const STANDSTILL: Duration = Duration::from_mins(1);

#[derive(Debug)]
pub(crate) struct Moving<B> {
    body: B,
    patience: Pin<Box<Sleep>>,
}

impl<B> Moving<B> {
    pub(crate) fn new(body: B) -> Self {
        Self { body, patience: Box::pin(tokio::time::sleep(STANDSTILL)) }
    }
}

impl<B: Body<Error = BoxError> + Unpin> Body for Moving<B> {
    type Data = B::Data;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, BoxError>>> {
        let this = self.get_mut();
        if let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(cx) {
            this.patience.as_mut().reset(Instant::now() + STANDSTILL);
            return Poll::Ready(frame);
        }
        match this.patience.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Some(Err(format!("nothing came for {} s", STANDSTILL.as_secs()).into()))),
            Poll::Pending => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use futures::StreamExt;
    use http_body_util::{BodyExt, StreamBody};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn slow_bodies_pass_and_stuck_ones_end() {
        let frame = |text: &'static str| Ok::<_, BoxError>(Frame::data(Bytes::from_static(text.as_bytes())));
        let slow = futures::stream::iter(["a", "b", "c"]).then(move |text| async move {
            tokio::time::sleep(STANDSTILL * 59 / 60).await;
            frame(text)
        });
        let stuck = slow.chain(futures::stream::pending());
        let mut body = Moving::new(StreamBody::new(stuck.boxed()));
        for expected in ["a", "b", "c"] {
            assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), expected);
        }
        let error = body.frame().await.unwrap().unwrap_err();
        assert_eq!(error.to_string(), "nothing came for 60 s");
    }
}
