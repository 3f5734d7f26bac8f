//! Files from the server, piece by piece.

use std::fs::File;
use std::path::Path;

use anyhow::Context;
use futures::TryStreamExt;
use http::{Request, Response, header};
use http_body_util::BodyExt;
use kube::client::Body;
use tokio::io::AsyncWriteExt;

use crate::client::Client;
use crate::progress;

/// Written beside the file and renamed, so that a half of it is never taken for the whole.
pub(crate) async fn save(client: &Client, uri: &str, what: &str, file: &Path) -> anyhow::Result<()> {
    let answer = client.send(Request::get(uri).body(Body::empty())?).await?;
    let partial = file.with_added_extension("partial");
    let saved = async {
        let mut out = tokio::fs::File::create(&partial).await?;
        pour(answer, what, &mut out).await?;
        out.sync_all().await?;
        tokio::fs::rename(&partial, file).await?;
        keep_name(file)
    };
    let saved = saved.await;
    if saved.is_err() {
        // It may never have been there.
        let _ = tokio::fs::remove_file(&partial).await;
    }
    saved.with_context(|| format!("cannot save {}", file.display()))
}

/// Into a file that is open.
pub(crate) async fn into(client: &Client, uri: &str, what: &str, out: &mut tokio::fs::File) -> anyhow::Result<()> {
    pour(client.send(Request::get(uri).body(Body::empty())?).await?, what, out).await
}

async fn pour(answer: Response<Body>, what: &str, out: &mut tokio::fs::File) -> anyhow::Result<()> {
    let total = answer.headers().get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    let bar = progress::transfer(what, total);
    let written = async {
        let mut chunks = answer.into_body().into_data_stream();
        while let Some(chunk) =
            chunks.try_next().await.map_err(|err| anyhow::anyhow!("the download was cut off: {err}"))?
        {
            out.write_all(&chunk).await?;
            bar.inc(u64::try_from(chunk.len()).unwrap_or_default());
        }
        Ok(out.flush().await?)
    };
    let written = written.await;
    bar.finish_and_clear();
    written
}

/// A name must survive a power cut as the contents do.
pub(crate) fn keep_name(file: &Path) -> anyhow::Result<()> {
    let dir = file.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let flushed = File::open(dir).and_then(|dir| dir.sync_all());
    flushed.with_context(|| format!("cannot flush the directory {}", dir.display()))
}
