//! The body of a collection: its objects are dressed as the client reads, a chunk at a time.

use std::io::Write as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::header::{CONTENT_ENCODING, VARY};
use http::{HeaderValue, Response};
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
    gzip: Option<GzEncoder<Vec<u8>>>,
}

impl ListStream {
    /// `start` ends with the `[` of the data.
    pub(super) fn new(start: String, dresser: Dresser, objects: Vec<Arc<Object>>) -> Self {
        Self {
            start: start.into_bytes(),
            dresser,
            objects: objects.into_iter(),
            is_first: true,
            is_over: false,
            gzip: None,
        }
    }

    /// Long lists are packed for clients that can read that.
    pub(super) fn into_answer(mut self, accepts_gzip: bool) -> Answer {
        let size: usize = self.objects.as_slice().iter().map(|object| object.bytes.len()).sum();
        let is_packed = accepts_gzip && size >= answer::GZIP_FROM;
        if is_packed {
            self.gzip = Some(GzEncoder::new(Vec::with_capacity(CHUNK), Compression::new(1)));
        }
        let template = answer::bytes(200, "application/json", Bytes::new());
        let mut answer = Response::new(self.boxed_unsync());
        *answer.headers_mut() = template.headers().clone();
        if is_packed {
            answer.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            answer.headers_mut().insert(VARY, HeaderValue::from_static("Accept-Encoding"));
        }
        answer
    }

    fn next_packed(&mut self) -> Option<Result<Bytes, std::io::Error>> {
        loop {
            let encoder = self.gzip.as_mut()?;
            if encoder.get_ref().len() >= CHUNK / 2 {
                return Some(Ok(std::mem::take(encoder.get_mut()).into()));
            }
            let Some(plain) = self.next_chunk() else {
                return self.gzip.take().map(|encoder| encoder.finish().map(Bytes::from));
            };
            if let Err(error) = self.gzip.as_mut()?.write_all(&plain) {
                return Some(Err(error));
            }
        }
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
        let this = self.get_mut();
        if this.gzip.is_some() {
            return Poll::Ready(this.next_packed().map(|chunk| Ok(Frame::data(chunk?))));
        }
        Poll::Ready(this.next_chunk().map(|chunk| Ok(Frame::data(chunk))))
    }

    fn is_end_stream(&self) -> bool {
        self.is_over && self.gzip.is_none()
    }
}
