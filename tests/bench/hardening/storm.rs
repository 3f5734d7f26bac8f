//! All watches come back at once, to a server that has just been started again and has little memory.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use croft_testkit::{Call, Client, Croft, MemoryLimit, Protocol, StoreKind};
use http::Method;
use serde_json::json;
use tokio::task::JoinSet;

use crate::Size;
use crate::load::{Creates, MAPS, Writer as _};
use crate::report::{Report, Row, mib, ratio, seconds};

const LIMIT: u64 = 448 << 20;
const WATCHES: usize = 1000;
/// Watches on one connection, as an informer factory has them.
const STREAMS: usize = 10;
/// One in so many has lost its place, and begins with all that there is.
const ANEW: usize = 15;
/// 12 MB of objects.
const OBJECTS: usize = 300;
const OBJECT_BYTES: usize = 40 << 10;
const PATIENCE: Duration = Duration::from_mins(5);

/// What a storm took, and the most that was resident of the server, its program among it.
#[derive(Debug, Clone, Copy)]
struct Storm {
    took: Duration,
    resident: u64,
}

pub(crate) async fn measure(size: Size, report: &mut Report) -> Result<()> {
    let watches = size.of(WATCHES);
    let unlimited = storm(watches, &[]).await?;
    let limit = MemoryLimit::new("bench-storm", LIMIT)?;
    let limited = storm(watches, &limit.wrapper()).await?;
    let better = ratio(unlimited.took, limited.took);
    report.row(&Row {
        what: "1,000 watches come back after a restart within 448 MiB, until all have what they missed (rival: without the limit)",
        croft: seconds(limited.took),
        rival: seconds(unlimited.took),
        ratio: Some(better),
        goal: "1.25 x the time".into(),
        met: better * 1.25 >= 1.0,
    });
    // What the kernel holds against the limit, from the first start on. What is resident may be more: a program that others run as
    // well is not counted again.
    let peak = limit.peak_bytes()?;
    #[expect(clippy::cast_precision_loss, reason = "a ratio")]
    let room = LIMIT as f64 / peak as f64;
    report.row(&Row {
        what: "memory of the server at its peak, until then (rival: the limit)",
        croft: format!("{} ({} resident)", mib(peak), mib(limited.resident)),
        rival: mib(LIMIT),
        ratio: Some(room),
        goal: "0.75 x the limit".into(),
        met: room * 0.75 >= 1.0,
    });
    Ok(())
}

async fn storm(watches: usize, wrapper: &[String]) -> Result<Storm> {
    let wrapper: Vec<&str> = wrapper.iter().map(String::as_str).collect();
    let mut croft = Croft::start_under(StoreKind::Embedded, &wrapper, &[]).await?;
    let client = croft.client_over(Protocol::Http2)?;
    for number in 0..OBJECTS {
        Creates(client.clone()).write(&format!("large-{number}"), OBJECT_BYTES).await?;
    }
    let list = client.get(&format!("{MAPS}?limit=1")).await?.ok()?;
    let seen = list["metadata"]["resourceVersion"].as_str().context("a version")?;
    client.post(MAPS, &json!({"metadata": {"name": "missed"}})).await?.ok()?;
    croft.restart().await?;

    let paths = [
        format!("{MAPS}?watch=1&resourceVersion={seen}"),
        format!("{MAPS}?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"),
    ];
    let clients =
        (0..watches.div_ceil(STREAMS)).map(|_| croft.client_over(Protocol::Http2)).collect::<Result<Vec<_>>>()?;
    let start = Instant::now();
    let mut storm = JoinSet::new();
    for number in 0..watches {
        let path = paths[usize::from(number % ANEW == 0)].clone();
        storm.spawn(until_missed(clients[number / STREAMS].clone(), path));
    }
    let mut open = Vec::with_capacity(watches);
    while let Some(watch) = tokio::time::timeout(PATIENCE, storm.join_next()).await.context("a watch saw nothing")? {
        // They stay open until all have come.
        open.push(watch??);
    }
    let took = start.elapsed();
    croft.client()?.get(&format!("{MAPS}/missed")).await?.ok()?;
    Ok(Storm { took, resident: croft.process().peak_resident_bytes()? })
}

/// Reads until the object comes that was made while nobody watched.
async fn until_missed(client: Client, path: String) -> Result<croft_testkit::Stream> {
    let mut watch = client.open(Call::new(Method::GET, &path)).await?;
    ensure!(watch.status == 200, "{}", watch.status);
    loop {
        let line = watch.line().await?.context("the watch ended")?;
        let event = line.get(..line.len().min(512)).unwrap_or_default();
        let has = |text: &[u8]| event.windows(text.len()).any(|window| window == text);
        ensure!(!has(b"\"type\":\"ERROR\""), "{}", String::from_utf8_lossy(event));
        if has(b"\"name\":\"missed\"") {
            return Ok(watch);
        }
    }
}
