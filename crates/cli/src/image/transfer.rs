//! Images on their way between files here and the server, never whole in memory.

use std::path::Path;

use anyhow::Context;
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use http::{Request, header};
use http_body::Frame;
use http_body_util::StreamBody;
use indicatif::ProgressBar;
use tokio_util::io::ReaderStream;

use super::Found;
use crate::client::Client;
use crate::download;

const CHUNK: usize = 256 * 1024;
const BOUNDARY: &str = "croft-image-4f1c2d9be7";

/// Harvester's upload action: one multipart request with the file in the field `chunk`.
pub(super) async fn upload(
    client: &Client,
    name: &str,
    file: std::fs::File,
    size: u64,
    bar: ProgressBar,
) -> anyhow::Result<()> {
    bar.set_length(size);
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

pub(super) async fn download(client: &Client, image: &Found, file: &Path) -> anyhow::Result<()> {
    let uri = format!("/v1/harvester/harvesterhci.io.virtualmachineimages/{}/{}/download", image.namespace, image.name);
    download::save(client, &uri, &image.name, file).await
}
