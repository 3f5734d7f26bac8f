//! Request bodies that nobody reads to their end.
//!
//! A request that is refused is answered before its body has come. The rest of the body would make the stream be reset, or
//! the whole connection, and clients, curl among them, lose the answer with it. So what still comes is read for a while and
//! thrown away; but a client that waits to be asked for its body (`Expect: 100-continue`) is not asked for nothing.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http::header::EXPECT;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;

/// For the client to notice the answer. One that sends on regardless is cut off.
const PATIENCE: Duration = Duration::from_secs(10);
const DISCARDED_MAX: usize = 64 << 20;

#[derive(Debug)]
pub(super) struct Unread {
    body: Option<Incoming>,
    /// The client sends nothing before it is asked to.
    is_held: bool,
}

impl Unread {
    pub(super) fn of(request: Request<Incoming>) -> Request<Self> {
        let is_held = request.headers().contains_key(EXPECT);
        request.map(|body| Self { body: Some(body), is_held })
    }
}

impl Body for Unread {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        self.is_held = false;
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        let frame = Pin::new(body).poll_frame(cx);
        // What has ended or failed has no rest.
        if matches!(frame, Poll::Ready(None | Some(Err(_)))) {
            self.body = None;
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
    }
}

impl Drop for Unread {
    fn drop(&mut self) {
        if let Some(body) = self.body.take().filter(|body| !self.is_held && !body.is_end_stream()) {
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
