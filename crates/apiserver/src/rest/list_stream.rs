//! The body of a collection: its objects are dressed as the client reads, a chunk at a time.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::Response;
use http_body::{Body, Frame};
use http_body_util::BodyExt;

use super::dress::Dresser;
use crate::answer::{self, Answer, BoxError};
use crate::cache::Object;

const CHUNK: usize = 128 << 10;

pub(super) struct ListStream {
    /// All of the collection up to its first object.
    start: Vec<u8>,
    dresser: Dresser,
    objects: std::vec::IntoIter<Arc<Object>>,
    is_first: bool,
    is_over: bool,
}

impl ListStream {
    /// `start` ends with the `[` of the data.
    pub(super) fn new(start: String, dresser: Dresser, objects: Vec<Arc<Object>>) -> Self {
        Self { start: start.into_bytes(), dresser, objects: objects.into_iter(), is_first: true, is_over: false }
    }

    pub(super) fn into_answer(self) -> Answer {
        let template = answer::bytes(200, "application/json", Bytes::new());
        let mut answer = Response::new(self.boxed_unsync());
        *answer.headers_mut() = template.headers().clone();
        answer
    }

    fn next_chunk(&mut self) -> Option<Bytes> {
        if self.is_over {
            return None;
        }
        let mut out = Vec::with_capacity(CHUNK + (16 << 10));
        out.append(&mut self.start);
        while out.len() < CHUNK {
            let Some(object) = self.objects.next() else {
                out.extend_from_slice(b"]}\n");
                self.is_over = true;
                break;
            };
            if !std::mem::take(&mut self.is_first) {
                out.push(b',');
            }
            self.dresser.write(&object, &mut out);
        }
        Some(out.into())
    }
}

impl Body for ListStream {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        Poll::Ready(self.get_mut().next_chunk().map(|chunk| Ok(Frame::data(chunk))))
    }

    fn is_end_stream(&self) -> bool {
        self.is_over
    }
}
