//! `GET /croft/v1/state`: everything that this server knows, at one moment, as one file.
//!
//! All objects but Events, which would be forgotten within the hour, and the keys and certificates of `pki/`. It has every
//! secret of the cluster, opened, so that it can be brought back without the keys of this machine: only those may have it who
//! may do anything. The path is in no role but `cluster-admin`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use croft_meta::time::format_seconds;
use croft_meta::{ApiError, Chain, Revision};
use croft_store::saved::{FORMAT, Head, Writer};
use croft_store::{Range, Record, Store};
use futures::{TryStreamExt, stream};
use http::HeaderValue;
use http::header::CONTENT_DISPOSITION;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use jiff::Timestamp;

use crate::answer::{self, Answer, BoxError};
use crate::cache::{ROOT, store_error};
use crate::call::Call;

pub(crate) const PATH: &str = "/croft/v1/state";
const EVENTS: &str = "registry/core/events/";
const PAGE: usize = 200;
/// No file in `pki/` is nearly as long.
const LONGEST_FILE: u64 = 1 << 20;

pub(crate) async fn answer(call: &Call) -> Result<Answer, ApiError> {
    let store = Arc::clone(&call.server.store);
    let revision = store.revision().await.map_err(store_error)?;
    let dir = call.server.pki_dir.clone();
    let files = tokio::task::spawn_blocking(move || files(&dir)).await.map_err(ApiError::internal)??;
    let namespace = call.server.cache.collection("core/namespaces").get("kube-system");
    let cluster = namespace.map(|found| found.json()["metadata"]["uid"].as_str().unwrap_or_default().to_owned());
    let now = Timestamp::now();
    let head = Head {
        format: FORMAT,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        cluster: cluster.unwrap_or_default(),
        saved: format_seconds(now),
        revision: revision.0,
    };
    tracing::info!(user = call.user.name, %revision, "the state is being saved");
    let mut writer = Writer::new(head).map_err(ApiError::internal)?;
    for (name, content) in &files {
        writer.file(name, content).map_err(ApiError::internal)?;
    }
    let saving = Saving { store, writer, revision, after: String::new() };
    let pieces = stream::try_unfold(Some(saving), |saving| async {
        match saving {
            Some(saving) => saving.page().await.map(Some),
            None => Ok(None),
        }
    });
    let frames = pieces.map_ok(Frame::data).inspect_err(|error| {
        tracing::warn!(error = %Chain(&**error), "the state could not be saved to its end");
    });
    let mut answer = answer::bytes(200, "application/gzip", "");
    *answer.body_mut() = StreamBody::new(frames).boxed_unsync();
    let name = format!("attachment; filename=croft-state-{}.gz", now.strftime("%Y%m%dT%H%M%SZ"));
    if let Ok(name) = HeaderValue::from_str(&name) {
        answer.headers_mut().insert(CONTENT_DISPOSITION, name);
    }
    Ok(answer)
}

struct Saving {
    store: Arc<dyn Store>,
    writer: Writer,
    revision: Revision,
    after: String,
}

impl Saving {
    /// The next piece of the file, and what comes after it.
    async fn page(self) -> Result<(Bytes, Option<Self>), BoxError> {
        let range = Range { prefix: ROOT.to_owned(), after: self.after.clone(), limit: PAGE, at: Some(self.revision) };
        let page = self.store.range(range).await?;
        let last = page.records.last().filter(|_| page.more).map(|last| last.key.clone());
        // Compressing takes long enough to be kept off the workers.
        let added = tokio::task::spawn_blocking(move || add(self.writer, &page.records).map(|writer| (writer, last)));
        let (mut writer, last) = added.await??;
        let Some(after) = last else { return Ok((writer.finish()?, None)) };
        let piece = writer.take();
        Ok((piece, Some(Self { store: self.store, writer, revision: self.revision, after })))
    }
}

fn add(mut writer: Writer, records: &[Record]) -> Result<Writer, croft_store::saved::SavedError> {
    for record in records.iter().filter(|record| !record.key.starts_with(EVENTS)) {
        // As it would be in a list: what cannot be read cannot be brought back either.
        if let Some(why) = croft_store::sealed::unreadable(&record.value) {
            tracing::warn!(key = record.key, error = why, "a value that cannot be read is not in the saved state");
            writer.unreadable();
            continue;
        }
        writer.record(record)?;
    }
    Ok(writer)
}

/// The keys and certificates, by their names in the data directory.
fn files(dir: &Path) -> Result<Vec<(String, String)>, ApiError> {
    let failed =
        |path: &Path, error: std::io::Error| ApiError::internal(format!("cannot read {}: {error}", path.display()));
    let entries = std::fs::read_dir(dir).map_err(|error| failed(dir, error))?;
    let mut paths: Vec<PathBuf> = entries
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()
        .map_err(|error| failed(dir, error))?;
    paths.sort();
    let mut found = Vec::new();
    for path in paths {
        let about = std::fs::symlink_metadata(&path).map_err(|error| failed(&path, error))?;
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        // What begins with a dot is half written.
        if !about.is_file() || about.len() > LONGEST_FILE || name.starts_with('.') {
            continue;
        }
        let content = std::fs::read_to_string(&path).map_err(|error| failed(&path, error))?;
        found.push((format!("pki/{name}"), content));
    }
    Ok(found)
}
