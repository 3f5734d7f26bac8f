//! Request bodies that nobody reads to their end.
//!
//! A request that is refused is answered before its body has come. Over HTTP/2 the rest of the body would make the stream be
//! reset, and clients, curl among them, lose the answer with it. So what still comes is read for a while and thrown away.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;

/// For the client to notice the answer. One that sends on regardless gets its stream reset.
const PATIENCE: Duration = Duration::from_secs(10);
const DISCARDED_MAX: usize = 64 << 20;

#[derive(Debug)]
pub(super) struct Unread(Option<Incoming>);

impl Unread {
    pub(super) fn new(body: Incoming) -> Self {
        Self(Some(body))
    }
}

impl Body for Unread {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let Some(body) = &mut self.0 else { return Poll::Ready(None) };
        let frame = Pin::new(body).poll_frame(cx);
        // What has ended or failed has no rest.
        if matches!(frame, Poll::Ready(None | Some(Err(_)))) {
            self.0 = None;
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.0.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.0.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
    }
}

impl Drop for Unread {
    fn drop(&mut self) {
        if let Some(body) = self.0.take().filter(|body| !body.is_end_stream()) {
            tokio::spawn(tokio::time::timeout(PATIENCE, discard(body)));
        }
    }
}

async fn discard(mut body: Incoming) {
    let mut read = 0;
    while let Some(Ok(frame)) = body.frame().await {
        read += frame.data_ref().map_or(0, Bytes::len);
        if read > DISCARDED_MAX {
            return;
        }
    }
}
