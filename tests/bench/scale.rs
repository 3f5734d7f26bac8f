//! Many objects: lists, memory, restarts, and whether the hundred-thousandth costs more than the first.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use croft_testkit::{Client, Croft, Protocol, StoreKind};
use serde_json::Value;

use crate::Size;
use crate::load::{self, Creates, MAPS};
use crate::nginx::Nginx;
use crate::report::{Report, Row, median, mib, ms};

const LOADERS: usize = 8;

pub(crate) async fn measure(size: Size, report: &mut Report) -> Result<()> {
    lists(size, report).await?;
    hundred_thousand(size, report).await
}

async fn fill(croft: &Croft, prefix: &str, range: std::ops::Range<usize>, bytes: usize) -> Result<()> {
    let writers = (0..LOADERS).map(|_| croft.client_over(Protocol::Http2).map(Creates)).collect::<Result<Vec<_>>>()?;
    load::together(&writers, prefix, range, bytes).await.map(drop)
}

/// 10,000 objects of 4 KiB, then 3,600 small ones.
async fn lists(size: Size, report: &mut Report) -> Result<()> {
    let count = size.of(10_000);
    let mut croft = Croft::start(StoreKind::Embedded).await?;
    fill(&croft, "big", 0..count, 4096).await?;
    let client = croft.client_over(Protocol::Http2)?;
    let body = client.get(MAPS).await?.body;
    let nginx = Nginx::start(&body).await?;
    // Taken in turns, so that what else the machine does hits both.
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..7 {
        ours.extend(load::gets(&client, MAPS, 1).await?);
        theirs.extend(load::gets(&nginx.client, "/file", 1).await?);
    }
    let (ours, theirs) = (median(&mut ours), median(&mut theirs));
    #[expect(clippy::cast_precision_loss, reason = "for people to read")]
    let rate = |time: Duration| format!("{} ({:.0} MB/s)", ms(time), body.len() as f64 / 1e6 / time.as_secs_f64());
    let share = theirs.as_secs_f64() / ours.as_secs_f64();
    report.row(&Row {
        what: "LIST of 10,000 objects of 4 KiB (nginx: the same bytes)",
        croft: rate(ours),
        rival: rate(theirs),
        ratio: Some(share),
        goal: "0.5 x nginx".into(),
        met: share >= 0.5,
    });
    by_label(&client, &body, report).await?;

    fill(&croft, "small", 0..size.of(3600), 1024).await?;
    let memory = croft.process().resident_bytes()?;
    report.absolute("memory with 13,600 objects", mib(memory), "200 MiB", memory <= 200 << 20);
    let mut restarts = Vec::new();
    for _ in 0..3 {
        croft.restart().await?;
        restarts.push(croft.started_in());
    }
    let restart = median(&mut restarts);
    report.absolute("start to ready, 13,600 objects", ms(restart), "1 s", restart <= Duration::from_secs(1));
    Ok(())
}

/// One object in a hundred by its label, against a scan of the parsed list in this process and one small GET.
async fn by_label(client: &Client, body: &[u8], report: &mut Report) -> Result<()> {
    let path = format!("{MAPS}?labelSelector=pick%3Dyes");
    let mut ours = load::gets(client, &path, 21).await?;
    let list: Value = serde_json::from_slice(body)?;
    let items = list["items"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut scans = Vec::new();
    for _ in 0..21 {
        let start = Instant::now();
        let picked: Vec<&Value> = items.iter().filter(|item| item["metadata"]["labels"]["pick"] == "yes").collect();
        let encoded = serde_json::to_vec(&picked)?;
        scans.push(start.elapsed());
        ensure!(!encoded.is_empty() && !picked.is_empty(), "nothing was picked");
    }
    let mut trips = load::gets(client, "/version", 101).await?;
    let (ours, scan) = (median(&mut ours), median(&mut scans) + median(&mut trips));
    report.row(&Row {
        what: "LIST by label (rival: a scan in memory and a round trip)",
        croft: ms(ours),
        rival: ms(scan),
        ratio: Some(scan.as_secs_f64() / ours.as_secs_f64()),
        goal: "2 x the scan".into(),
        met: ours <= scan * 2,
    });
    Ok(())
}

/// What single requests cost: the best of a few medians, since anything else that the machine does only adds.
async fn costs(client: &Client, label: &str) -> Result<[Duration; 3]> {
    let mut best = [Duration::MAX; 3];
    for round in 0..5 {
        let mut gets = load::gets(client, &format!("{MAPS}/many-000007"), 300).await?;
        let mut pages = load::gets(client, &format!("{MAPS}?limit=500"), 21).await?;
        let writer = Creates(client.clone());
        let mut creates = load::one_by_one(&writer, &format!("{label}-{round}"), 100, 2048).await?;
        for (best, samples) in best.iter_mut().zip([&mut gets, &mut pages, &mut creates]) {
            *best = median(samples).min(*best);
        }
    }
    Ok(best)
}

async fn hundred_thousand(size: Size, report: &mut Report) -> Result<()> {
    let (few, many) = (1000, size.of(100_000));
    let mut croft = Croft::start(StoreKind::Embedded).await?;
    let client = croft.client_over(Protocol::Http2)?;
    fill(&croft, "many", 0..few, 2048).await?;
    let at_few = costs(&client, "early").await?;
    fill(&croft, "many", few..many, 2048).await?;
    let at_many = costs(&client, "late").await?;
    let memory = croft.process().resident_bytes()?;
    let json = client.get(MAPS).await?.body.len() as u64;
    for (what, few, many) in
        [("GET", 0), ("LIST page of 500", 1), ("create", 2)].map(|(what, i)| (what, at_few[i], at_many[i]))
    {
        report.row(&Row {
            what: &format!("{what} with 100,000 objects (rival: with 1,000)"),
            croft: ms(many),
            rival: ms(few),
            ratio: Some(few.as_secs_f64() / many.as_secs_f64()),
            goal: "2 x".into(),
            met: many <= few * 2,
        });
    }
    let what = format!("memory with 100,000 objects ({} of JSON)", mib(json));
    report.absolute(&what, mib(memory), "3 x their JSON", memory < 3 * json);
    croft.restart().await?;
    let restart = croft.started_in();
    report.absolute("restart with 100,000 objects", ms(restart), "5 s", restart <= Duration::from_secs(5));
    Ok(())
}
