//! A thousand watchers of one kind, a thousand changes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use croft_testkit::{Call, Croft, Protocol, StoreKind, eventually};
use http::Method;
use serde_json::json;

use crate::Size;
use crate::load::MAPS;
use crate::report::{Report, ms, percentile};

/// Streams on one connection; servers commonly allow a hundred or more.
const STREAMS: usize = 50;
/// Changes come at this pace: a million events must also be read by this process, on the same cores.
const PACE: Duration = Duration::from_millis(20);

pub(crate) async fn measure(size: Size, report: &mut Report) -> Result<()> {
    let (watchers, changes) = (size.of(1000), size.of(1000));
    let croft = Croft::start(StoreKind::Embedded).await?;
    let client = croft.client_over(Protocol::Http2)?;
    // The namespace gets a ConfigMap of its own soon after the start; that change is not one of ours.
    let furnished = format!("{MAPS}/kube-root-ca.crt");
    eventually("the namespace is furnished", async || client.get(&furnished).await?.ok()).await;
    let mut body = json!({"metadata": {"name": "watched"}, "data": {"n": "0"}});
    let made = client.post(MAPS, &body).await?.ok()?;
    let version = made["metadata"]["resourceVersion"].as_str().context("a version")?.to_owned();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let before = croft.process().resident_bytes()?;

    // When each change was sent, in nanoseconds since the start. Its acknowledgement would be the fairer start, but
    // this process reads that only among the thousand events that it caused.
    let epoch = Instant::now();
    let sent_at: Arc<Vec<AtomicU64>> = Arc::new((0..changes).map(|_| AtomicU64::new(0)).collect());
    let path = format!("{MAPS}?watch=1&resourceVersion={version}&timeoutSeconds=600");
    let mut readers = Vec::new();
    for _ in 0..watchers.div_ceil(STREAMS) {
        let client = croft.client_over(Protocol::Http2)?;
        for _ in 0..STREAMS.min(watchers - readers.len()) {
            let mut stream = client.open(Call::new(Method::GET, &path)).await?;
            let sent_at = sent_at.clone();
            readers.push(tokio::spawn(async move {
                let mut late = Vec::with_capacity(sent_at.len());
                for sent in sent_at.iter() {
                    stream.line().await?.context("the watch ended early")?;
                    let now = u64::try_from(epoch.elapsed().as_nanos())?;
                    late.push(Duration::from_nanos(now.saturating_sub(sent.load(Ordering::Acquire))));
                }
                anyhow::Ok(late)
            }));
        }
    }
    let opened = croft.process().resident_bytes()?;

    let mut tick = tokio::time::interval(PACE);
    for (n, slot) in sent_at.iter().enumerate() {
        tick.tick().await;
        body["data"]["n"] = json!(n.to_string());
        body["data"]["m"] = json!((n + 1).to_string());
        slot.store(u64::try_from(epoch.elapsed().as_nanos())?, Ordering::Release);
        client.put(&format!("{MAPS}/watched"), &body).await?.ok()?;
    }
    let mut late = Vec::with_capacity(watchers * changes);
    for reader in readers {
        late.extend(reader.await??);
    }
    let after = croft.process().resident_bytes()?.max(opened);
    let p99 = percentile(&mut late, 0.99);
    let each = after.saturating_sub(before) / u64::try_from(watchers)?;
    report.absolute(
        "1,000 watchers, 1,000 changes: p99 from request to event",
        ms(p99),
        "50 ms",
        p99 <= Duration::from_millis(50),
    );
    report.absolute(
        "memory of a watcher",
        format!("{:.1} KiB", f64::from(u32::try_from(each)?) / 1024.0),
        "20 KiB",
        each < 20 << 10,
    );
    Ok(())
}
