//! Objects and the ways of sending them that all measurements share.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use bytes::{BufMut as _, Bytes, BytesMut};
use croft_testkit::{Call, Client};
use http::Method;

pub(crate) const MAPS: &str = "/api/v1/namespaces/default/configmaps";
pub(crate) const SECRETS: &str = "/api/v1/namespaces/default/secrets";

/// A ConfigMap of about `size` bytes; one in a hundred carries the label `pick`.
pub(crate) fn object(name: &str, size: usize) -> Bytes {
    object_of("ConfigMap", name, size)
}

/// A Secret of the same size.
pub(crate) fn secret(name: &str, size: usize) -> Bytes {
    object_of("Secret", name, size)
}

fn object_of(kind: &str, name: &str, size: usize) -> Bytes {
    let pick = if name.ends_with("00") { r#","pick":"yes""# } else { "" };
    let head = format!(
        r#"{{"apiVersion":"v1","kind":"{kind}","metadata":{{"name":"{name}","labels":{{"bench":"yes"{pick}}}}},"data":{{"k":""#
    );
    // A whole number of groups of four is Base64, which Secrets must have.
    let filler = "x".repeat(size.saturating_sub(head.len() + 3) / 4 * 4);
    format!(r#"{head}{filler}"}}}}"#).into()
}

/// Something that can store one value durably.
pub(crate) trait Writer: Clone + Send + Sync + 'static {
    fn write(&self, name: &str, size: usize) -> impl Future<Output = Result<()>> + Send;
}

/// Creates objects through the Kubernetes API.
#[derive(Debug, Clone)]
pub(crate) struct Creates(pub(crate) Client);

impl Writer for Creates {
    async fn write(&self, name: &str, size: usize) -> Result<()> {
        create(&self.0, MAPS, object(name, size)).await
    }
}

/// The same with Secrets.
#[derive(Debug, Clone)]
pub(crate) struct SecretCreates(pub(crate) Client);

impl Writer for SecretCreates {
    async fn write(&self, name: &str, size: usize) -> Result<()> {
        create(&self.0, SECRETS, secret(name, size)).await
    }
}

pub(crate) async fn create(client: &Client, path: &str, object: Bytes) -> Result<()> {
    let answer = client.send(Call::new(Method::POST, path).body("application/json", object)).await?;
    ensure!(answer.status == 201, "{}: {}", answer.status, answer.text());
    Ok(())
}

/// Puts values into etcd: one gRPC call each, written out by hand so that the client is the same.
#[derive(Debug, Clone)]
pub(crate) struct Puts(pub(crate) Client);

impl Writer for Puts {
    async fn write(&self, name: &str, size: usize) -> Result<()> {
        self.put(&format!("/registry/configmaps/default/{name}"), &object(name, size)).await
    }
}

impl Puts {
    pub(crate) async fn put(&self, key: &str, value: &[u8]) -> Result<()> {
        let mut message = BytesMut::new();
        for (tag, bytes) in [(0x0a, key.as_bytes()), (0x12, value)] {
            message.put_u8(tag);
            varint(&mut message, bytes.len());
            message.put_slice(bytes);
        }
        let mut body = BytesMut::with_capacity(message.len() + 5);
        body.put_u8(0);
        body.put_u32(u32::try_from(message.len())?);
        body.put_slice(&message);
        let call = Call::new(Method::POST, "/etcdserverpb.KV/Put").header("te", "trailers");
        let answer = self.0.send(call.body("application/grpc", body.freeze())).await?;
        // A refusal has no message, only trailers.
        ensure!(answer.status == 200 && answer.body.len() > 5, "etcd refused: {answer:?}");
        Ok(())
    }
}

fn varint(out: &mut BytesMut, mut value: usize) {
    while value >= 0x80 {
        out.put_u8(u8::try_from(value & 0x7f).unwrap_or_default() | 0x80);
        value >>= 7;
    }
    out.put_u8(u8::try_from(value).unwrap_or_default());
}

/// The time of each of `count` writes, one after the other.
pub(crate) async fn one_by_one(writer: &impl Writer, prefix: &str, count: usize, size: usize) -> Result<Vec<Duration>> {
    let mut samples = Vec::with_capacity(count);
    for i in 0..count {
        let name = format!("{prefix}-{i:06}");
        let start = Instant::now();
        writer.write(&name, size).await?;
        samples.push(start.elapsed());
    }
    Ok(samples)
}

/// Writes `count` values with `clients` at a time; gives values per second.
pub(crate) async fn together<W: Writer>(
    writers: &[W],
    prefix: &str,
    range: std::ops::Range<usize>,
    size: usize,
) -> Result<f64> {
    let next = Arc::new(AtomicUsize::new(range.start));
    let start = Instant::now();
    let count = range.len();
    let tasks = writers.iter().cloned().map(|writer| {
        let (next, prefix, end) = (next.clone(), prefix.to_owned(), range.end);
        tokio::spawn(async move {
            loop {
                let i = next.fetch_add(1, Ordering::Relaxed);
                if i >= end {
                    return anyhow::Ok(());
                }
                writer.write(&format!("{prefix}-{i:06}"), size).await?;
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await??;
    }
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    Ok(count as f64 / start.elapsed().as_secs_f64())
}

/// The time of each of `count` GETs of the same path.
pub(crate) async fn gets(client: &Client, path: &str, count: usize) -> Result<Vec<Duration>> {
    let mut samples = Vec::with_capacity(count);
    for _ in 0..count {
        let start = Instant::now();
        let answer = client.get(path).await?;
        samples.push(start.elapsed());
        ensure!(answer.status == 200, "{}: {}", answer.status, answer.text());
    }
    Ok(samples)
}
