//! The body of a LIST answer: the cached bytes of its objects, put together as the client reads.
//!
//! Nothing is serialised and nothing is held twice: a list of many MiB costs the server one chunk.

use std::io::Write;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{BufMut, Bytes, BytesMut};
use flate2::Compression;
use flate2::write::GzEncoder;
use http::header::{CONTENT_ENCODING, VARY};
use http::{HeaderValue, Response};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use serde_json::Value;

use crate::answer::{self, Answer, BoxError};
use crate::cache::Object;
use crate::call::Target;
use crate::encoding::Head;
use crate::write::storage_gvk;

const CHUNK: usize = 128 << 10;
/// Below this compression is not worth it; upstream's threshold.
const GZIP_FROM: u64 = 128 << 10;
const TAIL: &[u8] = b"]}\n";

#[derive(Debug)]
pub(crate) struct ListBody {
    start: Bytes,
    head: Head,
    objects: std::vec::IntoIter<Arc<Object>>,
    is_first: bool,
    remaining: u64,
    gzip: Option<GzEncoder<Vec<u8>>>,
}

impl ListBody {
    pub(crate) fn new(target: &Target, metadata: &Value, objects: Vec<Arc<Object>>) -> Self {
        let resource = &target.served.resource;
        let api_version = target.gvk().api_version();
        let start = format!(
            "{{\"kind\":\"{}\",\"apiVersion\":\"{api_version}\",\"metadata\":{metadata},\"items\":[",
            resource.names.list_kind
        );
        // Lists of built-in kinds name the type once, for the list; custom resources repeat it in each item.
        let item_version = resource.is_custom.then_some(api_version.as_str());
        let head = Head::new(&storage_gvk(target).api_version(), item_version, &resource.names.kind);
        let commas = objects.len().saturating_sub(1);
        let size: usize = objects
            .iter()
            .map(|o| {
                let (first, rest) = head.pieces(&o.bytes);
                first.len() + rest.len()
            })
            .sum();
        let remaining = (start.len() + commas + size + TAIL.len()) as u64;
        Self { start: start.into(), head, objects: objects.into_iter(), is_first: true, remaining, gzip: None }
    }

    pub(crate) fn into_answer(mut self, accepts_gzip: bool) -> Answer {
        let packed = accepts_gzip && self.remaining >= GZIP_FROM;
        if packed {
            self.gzip = Some(GzEncoder::new(Vec::with_capacity(CHUNK), Compression::new(1)));
        }
        let template = answer::bytes(200, "application/json", Bytes::new());
        let mut answer = Response::new(self.boxed_unsync());
        *answer.headers_mut() = template.headers().clone();
        if packed {
            answer.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            answer.headers_mut().insert(VARY, HeaderValue::from_static("Accept-Encoding"));
        }
        answer
    }

    /// The next piece of plain JSON; empty at the end.
    fn next_plain(&mut self) -> Bytes {
        if self.remaining == 0 {
            return Bytes::new();
        }
        let mut out = BytesMut::with_capacity(CHUNK.min(usize::try_from(self.remaining).unwrap_or(CHUNK)));
        out.put_slice(&std::mem::take(&mut self.start));
        while out.len() < CHUNK - TAIL.len() {
            let Some(object) = self.objects.next() else {
                out.put_slice(TAIL);
                break;
            };
            if !self.is_first {
                out.put_u8(b',');
            }
            self.is_first = false;
            let (first, rest) = self.head.pieces(&object.bytes);
            out.put_slice(first);
            out.put_slice(rest);
        }
        self.remaining = self.remaining.saturating_sub(out.len() as u64);
        out.freeze()
    }

    fn next_packed(&mut self) -> Result<Bytes, std::io::Error> {
        while let Some(encoder) = self.gzip.as_mut() {
            if encoder.get_ref().len() >= CHUNK / 2 {
                return Ok(std::mem::take(encoder.get_mut()).into());
            }
            let plain = self.next_plain();
            let Some(encoder) = self.gzip.as_mut() else { break };
            if plain.is_empty() {
                return match self.gzip.take() {
                    Some(encoder) => Ok(encoder.finish()?.into()),
                    None => Ok(Bytes::new()),
                };
            }
            encoder.write_all(&plain)?;
        }
        Ok(Bytes::new())
    }
}

impl Body for ListBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        let chunk = if this.gzip.is_some() { this.next_packed()? } else { this.next_plain() };
        Poll::Ready(if chunk.is_empty() { None } else { Some(Ok(Frame::data(chunk))) })
    }

    fn is_end_stream(&self) -> bool {
        self.gzip.is_none() && self.remaining == 0
    }

    fn size_hint(&self) -> SizeHint {
        if self.gzip.is_some() { SizeHint::default() } else { SizeHint::with_exact(self.remaining) }
    }
}
