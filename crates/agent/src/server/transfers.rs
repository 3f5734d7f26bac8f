//! Files of users: into images and claims, and out of images. As long as they move, they may take their time.

use std::future::ready;
use std::pin::Pin;
use std::sync::OnceLock;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use croft_meta::Chain;
use futures::{Stream, StreamExt, TryStreamExt};
use http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use http::{HeaderValue, Response, StatusCode};
use http_body_util::{BodyDataStream, BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use serde_json::json;

use super::answer::{self, Body, BoxError, Failure};
use super::route::{Subject, Transfer};
use crate::data_import::DataImports;
use crate::image::{Images, TransferError};

/// For the sender of a file to notice that it was refused.
const PATIENCE: Duration = Duration::from_secs(10);

/// What can be filled and read, once the node's pool is open.
#[derive(Debug, Default)]
pub(crate) struct Stores(OnceLock<(Images, DataImports)>);

impl Stores {
    /// The first word counts.
    pub(crate) fn open(&self, images: Images, imports: DataImports) {
        let _ = self.0.set((images, imports));
    }
}

pub(super) async fn run(
    stores: &Stores,
    subject: &Subject,
    transfer: Transfer,
    body: Incoming,
) -> Result<Response<Body>, Failure> {
    let not_yet = || Failure::new(StatusCode::SERVICE_UNAVAILABLE, "the node's pool is not open yet");
    let (images, imports) = stores.0.get().ok_or_else(not_yet)?;
    let Subject { namespace, name } = subject;
    match transfer {
        Transfer::IntoImage { size } => {
            let mut file = Upload::of(body);
            let taken = images.upload_image(namespace, name, size, &mut file).await;
            file.answered(taken)
        }
        Transfer::IntoClaim => {
            let mut file = Upload::of(body);
            let taken = imports.upload_claim(namespace, name, None, &mut file).await;
            file.answered(taken)
        }
        Transfer::Piece { offset, length } => {
            let mut file = Upload::of(body);
            match images.upload_piece((namespace, name), (offset, length), &mut file).await {
                Ok(reached) => answer::json_of(&json!({ "offset": reached, "length": length })),
                Err(error) => file.answered(Err::<(), _>(error)),
            }
        }
        Transfer::Pieces => {
            let here = images.pieces_of(namespace, name).await.map_err(|error| refused(&error))?;
            let length = here.map(|here| here.length);
            answer::json_of(&json!({ "offset": here.map_or(0, |here| here.offset), "length": length }))
        }
        Transfer::ForgetPieces => {
            images.forget_pieces(namespace, name).await.map_err(|error| refused(&error))?;
            Ok(answer::empty())
        }
        Transfer::FromImage => {
            let (file_name, chunks) = images.download_image(namespace, name).await.map_err(|error| refused(&error))?;
            let frames = chunks.map_ok(Frame::data).map_err(BoxError::from);
            let mut response = Response::new(BodyExt::boxed_unsync(StreamBody::new(frames)));
            let headers = response.headers_mut();
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/gzip"));
            headers.insert(CONTENT_DISPOSITION, attachment(&file_name));
            Ok(response)
        }
    }
}

/// A user's file on its way in. Its sender waits to be asked for it, so that a refusal comes before the file; but a file
/// that is refused half-way is read on for a while: to close the connection would lose the answer with it.
struct Upload {
    chunks: BodyDataStream<Incoming>,
    is_begun: bool,
}

impl Upload {
    fn of(body: Incoming) -> Self {
        Self { chunks: body.into_data_stream(), is_begun: false }
    }

    fn answered<T>(self, taken: Result<T, TransferError>) -> Result<Response<Body>, Failure> {
        let Err(error) = taken else { return Ok(answer::empty()) };
        if self.is_begun {
            let rest = self.chunks.take_while(|chunk| ready(chunk.is_ok())).for_each(|_| ready(()));
            tokio::spawn(tokio::time::timeout(PATIENCE, rest));
        }
        Err(refused(&error))
    }
}

impl Stream for Upload {
    type Item = Result<Bytes, hyper::Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.is_begun = true;
        self.chunks.poll_next_unpin(cx)
    }
}

fn refused(error: &TransferError) -> Failure {
    let code = StatusCode::from_u16(error.code()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    Failure::new(code, Chain(error).to_string())
}

/// Users name their images as they like; in a header go only names that need no quotes.
fn attachment(file_name: &str) -> HeaderValue {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    let named = Some(file_name).filter(|name| !name.starts_with('.') && name.chars().all(is_plain));
    let value = named.and_then(|name| HeaderValue::from_str(&format!("attachment; filename={name}")).ok());
    value.unwrap_or(HeaderValue::from_static("attachment"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_names_are_not_given_to_files() {
        for (name, expected) in [
            ("debian-12.qcow2.gz", "attachment; filename=debian-12.qcow2.gz"),
            ("../x.gz", "attachment"),
            ("a b.gz", "attachment"),
            ("x\r\ny.gz", "attachment"),
        ] {
            assert_eq!(attachment(name), expected, "{name:?}");
        }
    }

    #[test]
    fn failures_keep_their_code() {
        for (error, code) in [
            (TransferError::NotFound("image ns/a".to_owned()), 404),
            (TransferError::Conflict("running".to_owned()), 409),
            (TransferError::BadRequest("wrong".to_owned()), 400),
        ] {
            assert_eq!(refused(&error).code, code);
        }
    }
}
