//! Secrets, which are encrypted before they are stored, and another key for all of them.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use croft_testkit::{Client, Croft, Protocol, StoreKind, promptly_within};
use serde_json::json;

use crate::Size;
use crate::compare::compare;
use crate::load::{self, Creates, SECRETS, SecretCreates};
use crate::report::{Report, Row, median, ms, percentile};
use crate::steady;

const ENCRYPTION: &str = "/croft/v1/encryption";
const OBJECT_BYTES: usize = 2048;
/// Often enough for a p99, since a rotation takes moments.
const PAUSE: Duration = Duration::from_millis(1);
/// How often the key is replaced; the middle counts, and all answers of meanwhile.
const ROTATIONS: usize = 5;
const LIMIT: Duration = Duration::from_mins(5);

pub(crate) async fn measure(size: Size, report: &mut Report) -> Result<()> {
    let croft = Croft::start(StoreKind::Embedded).await?;
    let client = || croft.client_over(Protocol::Http2);
    let compared = compare(size, || client().map(SecretCreates), || client().map(Creates)).await?;
    compared.tell(report, "create of a Secret (rival: of a ConfigMap)", 1.1);
    rotation(size, report).await
}

async fn rotation(size: Size, report: &mut Report) -> Result<()> {
    let croft = Croft::start(StoreKind::Embedded).await?;
    let client = croft.client_over(Protocol::Http2)?;
    let secrets = size.of(10_000);
    let writers = (0..8).map(|_| croft.client_over(Protocol::Http2).map(SecretCreates)).collect::<Result<Vec<_>>>()?;
    let created = load::together(&writers, "sealed", 0..secrets, OBJECT_BYTES).await?;

    let path = format!("{SECRETS}/sealed-000007");
    let gets = size.of_at_least(2000, 500);
    let quiet = steady::gets(croft.client_over(Protocol::Http2)?, path.clone(), PAUSE, move |so_far| so_far < gets);
    let mut quiet = quiet.await?;

    let is_over = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&is_over);
    let goes_on = move |_| !seen.load(Ordering::Relaxed);
    let meanwhile = tokio::spawn(steady::gets(croft.client_over(Protocol::Http2)?, path, PAUSE, goes_on));
    let mut times = Vec::new();
    for _ in 0..ROTATIONS {
        times.push(rotate(&client, &croft.data_dir().join("encryption.key")).await?);
    }
    is_over.store(true, Ordering::Relaxed);
    let mut meanwhile = meanwhile.await??;
    let took = median(&mut times);

    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    let rotated = secrets as f64 / took.as_secs_f64();
    report.row(&Row {
        what: "rotation of the key with 10,000 Secrets (rival: creates of them, 8 clients)",
        croft: format!("{rotated:.0}/s"),
        rival: format!("{created:.0}/s"),
        ratio: Some(rotated / created),
        goal: "1.0 x".into(),
        met: rotated >= created,
    });
    let samples = meanwhile.len();
    let (quiet, meanwhile) = (percentile(&mut quiet, 0.99), percentile(&mut meanwhile, 0.99));
    let times = meanwhile.as_secs_f64() / quiet.as_secs_f64();
    report.row(&Row {
        what: "GET p99 of one client meanwhile (rival: quiet)",
        croft: format!("{} (of {samples})", ms(meanwhile)),
        rival: ms(quiet),
        ratio: Some(1.0 / times),
        goal: "5 x the time".into(),
        met: times < 5.0,
    });
    Ok(())
}

/// How long it took until the old key was gone. That is looked up in the key file, since the server would count all objects to tell.
async fn rotate(client: &Client, key_file: &Path) -> Result<Duration> {
    let status = client.get(ENCRYPTION).await?.ok()?;
    let old = status["keys"][0]["id"].as_str().context("a key")?;
    let start = Instant::now();
    client.post(&format!("{ENCRYPTION}/rotate"), &json!({})).await?.ok()?;
    promptly_within(LIMIT, async || {
        ensure!(!std::fs::read_to_string(key_file)?.contains(old), "the old key is still there");
        Ok(())
    })
    .await?;
    let took = start.elapsed();
    // It is told once it is over, which is a moment later.
    promptly_within(LIMIT, async || {
        let status = client.get(ENCRYPTION).await?.ok()?;
        ensure!(status["isSettled"] == true && status["plain"] == 0, "{status}");
        Ok(())
    })
    .await?;
    Ok(took)
}
