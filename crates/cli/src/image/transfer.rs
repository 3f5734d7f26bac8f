//! Images on their way between files here and the server, never whole in memory.

use std::path::Path;

use anyhow::Context;
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use http::{Request, header};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use kube::client::Body;
use tokio::io::AsyncWriteExt;
use tokio_util::io::ReaderStream;

use super::Found;
use crate::client::Client;
use crate::progress;

const CHUNK: usize = 256 * 1024;
const BOUNDARY: &str = "croft-image-4f1c2d9be7";

/// Harvester's upload action: one multipart request with the file in the field `chunk`.
pub(super) async fn upload(client: &Client, name: &str, file: std::fs::File, size: u64) -> anyhow::Result<()> {
    let bar = progress::transfer(name, Some(size));
    let head = format!(
        "--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"chunk\"; filename=\"{name}\"\r\n\
         Content-Type: application/octet-stream\r\n\r\n"
    );
    let tail = format!("\r\n--{BOUNDARY}--\r\n");
    let length = u64::try_from(head.len() + tail.len()).unwrap_or(u64::MAX).saturating_add(size);
    let counted = bar.clone();
    let content = ReaderStream::with_capacity(tokio::fs::File::from_std(file), CHUNK)
        .inspect_ok(move |chunk| counted.inc(u64::try_from(chunk.len()).unwrap_or_default()));
    let parts = stream::once(async move { Ok(Bytes::from(head)) })
        .chain(content)
        .chain(stream::once(async move { Ok(Bytes::from(tail)) }));
    let uri = format!(
        "/v1/harvester/harvesterhci.io.virtualmachineimages/{}/{name}?action=upload&size={size}",
        client.namespace
    );
    let request = Request::post(uri)
        .header(header::CONTENT_TYPE, format!("multipart/form-data; boundary={BOUNDARY}"))
        .header(header::CONTENT_LENGTH, length)
        .body(StreamBody::new(parts.map_ok(Frame::data).boxed()))?;
    let sent = client.send_streamed(request).await;
    bar.finish_and_clear();
    sent.context("the image could not be uploaded")?;
    Ok(())
}

/// Written beside the file and renamed, so that a half of it is never taken for the whole.
pub(super) async fn download(client: &Client, image: &Found, file: &Path) -> anyhow::Result<()> {
    let uri = format!("/v1/harvester/harvesterhci.io.virtualmachineimages/{}/{}/download", image.namespace, image.name);
    let answer = client.send(Request::get(uri).body(Body::empty())?).await?;
    let total = answer.headers().get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    let bar = progress::transfer(&image.name, total);
    let partial = file.with_added_extension("partial");
    let saved = async {
        let mut out = tokio::fs::File::create(&partial).await?;
        let mut chunks = answer.into_body().into_data_stream();
        while let Some(chunk) =
            chunks.try_next().await.map_err(|err| anyhow::anyhow!("the download was cut off: {err}"))?
        {
            out.write_all(&chunk).await?;
            bar.inc(u64::try_from(chunk.len()).unwrap_or_default());
        }
        out.sync_all().await?;
        tokio::fs::rename(&partial, file).await?;
        anyhow::Ok(())
    };
    let saved = saved.await;
    bar.finish_and_clear();
    if saved.is_err() {
        // It may never have been there.
        let _ = tokio::fs::remove_file(&partial).await;
    }
    saved.with_context(|| format!("cannot save {}", file.display()))
}
