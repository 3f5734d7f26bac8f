//! `GET /v1/harvester/supportbundles/<name>/download`: the file of a support bundle that is ready.
//!
//! Once it has been sent in full, the bundle is deleted, unless `?retain=true`. Whoever may not delete it must retain it.

use std::pin::Pin;
use std::task::{Context, Poll};

use croft_api::harvester::support_bundle::{NAMESPACE, file_name};
use croft_meta::{ApiError, Chain, object};
use futures::{Stream, TryStreamExt};
use http::HeaderValue;
use http::header::{CONTENT_DISPOSITION, CONTENT_LENGTH};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use serde_json::Value;
use tokio::fs::File;
use tokio_util::io::ReaderStream;

use super::schema::Schema;
use crate::answer::{self, Answer, BoxError};
use crate::call::{Call, Target};
use crate::options::DeleteOptions;
use crate::pipeline::not_allowed;
use crate::verbs::delete::delete_one;

const CHUNK: usize = 256 << 10;

pub(super) async fn download(call: &Call, name: &str) -> Result<Answer, ApiError> {
    if call.info.verb != "get" {
        return Err(not_allowed());
    }
    let kind = Schema::find(&call.catalog, "harvesterhci.io.supportbundles").ok_or_else(ApiError::no_such_path)?;
    call.server.auth.authorize(&call.user, &kind.attributes("get", NAMESPACE, name))?;
    let is_retained = call.query.get("retain") == Some("true");
    if !is_retained {
        call.server.auth.authorize(&call.user, &kind.attributes("delete", NAMESPACE, name))?;
    }
    call.server.cache.fresh().await?;
    let target = kind.target(NAMESPACE, name);
    let found = call.server.cache.collection(target.storage_key()).get(&target.id());
    let bundle = found.ok_or_else(|| target.not_found())?.json();
    let status = &bundle["status"];
    if status["state"] != "ready" {
        let why = match status["state"].as_str().unwrap_or_default() {
            "error" => "it could not be made",
            _ => "it is still being made",
        };
        return Err(ApiError::internal(format!("support bundle {name:?} is not ready: {why}")));
    }
    let gone = |error: std::io::Error| ApiError::internal(format!("support bundle {name:?} cannot be read: {error}"));
    let path = call.server.support_bundles.join(file_name(object::uid(&bundle)));
    let file = File::open(&path).await.map_err(gone)?;
    let size = file.metadata().await.map_err(gone)?.len();
    let after = (!is_retained).then(|| Deletion::new(call, target, &bundle));
    let sending = Sending { file: ReaderStream::with_capacity(file, CHUNK), left: size, after };
    Ok(attached(sending, size, status["filename"].as_str().unwrap_or_default()))
}

fn attached(sending: Sending, size: u64, file_name: &str) -> Answer {
    let frames = sending.map_ok(Frame::data).map_err(BoxError::from);
    let mut answer = answer::bytes(200, "application/zip", "");
    *answer.body_mut() = StreamBody::new(frames).boxed_unsync();
    answer.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(size));
    // Made by us of what settings may contain: it needs no quotes.
    let named = HeaderValue::from_str(&format!("attachment; filename={file_name}"));
    let named = named.unwrap_or(HeaderValue::from_static("attachment"));
    answer.headers_mut().insert(CONTENT_DISPOSITION, named);
    answer
}

/// A file on its way to a client.
struct Sending {
    file: ReaderStream<File>,
    left: u64,
    after: Option<Deletion>,
}

impl Stream for Sending {
    type Item = std::io::Result<bytes::Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let polled = Pin::new(&mut self.file).poll_next(context);
        if let Poll::Ready(Some(Ok(chunk))) = &polled {
            self.left = self.left.saturating_sub(u64::try_from(chunk.len()).unwrap_or(u64::MAX));
        }
        polled
    }
}

impl Drop for Sending {
    /// Not sooner: a download that was cut off can be tried again.
    fn drop(&mut self) {
        if self.left == 0
            && let Some(after) = self.after.take()
        {
            after.start();
        }
    }
}

/// What becomes of a bundle that somebody has now.
struct Deletion {
    call: Call,
    target: Target,
    options: DeleteOptions,
}

impl Deletion {
    fn new(call: &Call, target: Target, bundle: &Value) -> Self {
        let options =
            DeleteOptions { precondition_uid: Some(object::uid(bundle).to_owned()), ..DeleteOptions::default() };
        Self { call: Call::for_object(call, &target, true), target, options }
    }

    fn start(self) {
        let server = self.call.server.clone();
        server.spawn(async move {
            match delete_one(&self.call, &self.target, &self.options).await {
                Ok(_) => tracing::info!(bundle = self.target.name, "a support bundle was downloaded and deleted"),
                // It expires all the same.
                Err(error) => tracing::warn!(bundle = self.target.name, error = %Chain(&error), "it was not deleted"),
            }
        });
    }
}
