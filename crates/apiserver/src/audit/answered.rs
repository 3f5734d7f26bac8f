//! What the log wants to know of an answer: the object in it, and when it is over.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use serde_json::Value;

use super::event::{ResponseStatus, Stage};
use super::objects;
use super::pending::Trail;
use super::rules::Plan;
use crate::answer::{self, Answer, BoxError};

/// The object that is answered with, which stays in the answer. Null for one that is too long; `None` if it is none, or repeats
/// parts of what was sent, which may be secret.
pub(super) async fn object(answer: &mut Answer) -> Option<Value> {
    let is_json =
        answer.headers().get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"application/json"));
    if !is_json || matches!(answer.status().as_u16(), 400 | 422) {
        return None;
    }
    let length = answer.body().size_hint().exact().and_then(|length| usize::try_from(length).ok());
    let is_short = length.is_some_and(|length| length <= objects::LONGEST);
    if !is_short || answer.headers().contains_key(CONTENT_ENCODING) {
        return Some(Value::Null);
    }
    let body = std::mem::replace(answer.body_mut(), answer::full(""));
    // Most are in memory already. What comes from a node may break off, and must not look whole to the client then.
    let (body, object) = match body.collect().await {
        Ok(collected) => {
            let bytes = collected.to_bytes();
            let object = serde_json::from_slice(&bytes).ok();
            (answer::full(bytes), object)
        }
        Err(error) => (answer::broken(error), None),
    };
    *answer.body_mut() = body;
    object
}

/// Writes down that the answer has begun, and will write down that it is over.
pub(super) fn go_on(trail: &Arc<Trail>, plan: &Plan, answer: &mut Answer, status: ResponseStatus) {
    if plan.has(Stage::ResponseStarted) {
        trail.record(Stage::ResponseStarted, Some(status.clone()), None, None);
    }
    // What becomes of the connection is then no matter of HTTP any more.
    let is_upgraded = status.code == 101;
    if is_upgraded || !plan.has(Stage::ResponseComplete) {
        return;
    }
    let body = std::mem::replace(answer.body_mut(), answer::full(""));
    let end = End { trail: Arc::clone(trail), status: Some(status) };
    *answer.body_mut() = Followed { body, _end: end }.boxed_unsync();
}

struct Followed {
    body: answer::Body,
    _end: End,
}

/// Whichever way the answer ends, this goes with it.
struct End {
    trail: Arc<Trail>,
    status: Option<ResponseStatus>,
}

impl Drop for End {
    fn drop(&mut self) {
        self.trail.record(Stage::ResponseComplete, self.status.take(), None, None);
    }
}

impl Body for Followed {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        Pin::new(&mut self.get_mut().body).poll_frame(context)
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
    use futures::stream;
    use http_body_util::StreamBody;

    use super::*;

    #[tokio::test]
    async fn an_answer_that_breaks_off_goes_on_being_one() {
        let whole = answer::json(200, &serde_json::json!({"a": 1}));
        let broken = || {
            let frames = [Ok(Frame::data(Bytes::from_static(b"{\"a\":"))), Err(BoxError::from("the node went away"))];
            Limited(StreamBody::new(stream::iter(frames)))
        };
        let mut answer = whole;
        assert_eq!(object(&mut answer).await, Some(serde_json::json!({"a": 1})));
        assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), "{\"a\":1}\n");
        let mut answer = answer::json(200, &Value::Null).map(|_| broken().boxed_unsync());
        assert_eq!(object(&mut answer).await, None);
        assert_eq!(answer.into_body().collect().await.unwrap_err().to_string(), "the node went away");
    }

    /// A body that says how long it is.
    struct Limited<B>(B);

    impl<B: Body + Unpin> Body for Limited<B> {
        type Data = B::Data;
        type Error = B::Error;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
            Pin::new(&mut self.0).poll_frame(context)
        }

        fn size_hint(&self) -> SizeHint {
            SizeHint::with_exact(7)
        }
    }
}
