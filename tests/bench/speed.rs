//! Starting, idling, single requests and eight clients, on an empty server.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use croft_testkit::{Authority, Call, Client, Croft, Etcd, KubeApiserver, Process, Protocol, StoreKind};
use http::Method;

use crate::Size;
use crate::load::{self, Creates, MAPS, Puts, Writer};
use crate::report::{Report, Row, median, mib, ms, percentile, ratio};

const OBJECT_BYTES: usize = 2048;

/// How often writes are measured; the middle round counts.
const ROUNDS: usize = 3;

/// What durable writes took.
#[derive(Debug, Clone, Copy)]
struct Writes {
    p50: Duration,
    p99: Duration,
    per_second: f64,
}

impl Writes {
    /// Each figure's median over the rounds.
    fn middle(mut rounds: Vec<Self>) -> Self {
        let middle = rounds.len() / 2;
        let mut by = |key: fn(&Self) -> f64| {
            rounds.sort_by(|a, b| key(a).total_cmp(&key(b)));
            rounds[middle]
        };
        let p50 = by(|r| r.p50.as_secs_f64()).p50;
        let p99 = by(|r| r.p99.as_secs_f64()).p99;
        Self { p50, p99, per_second: by(|r| r.per_second).per_second }
    }
}

pub(crate) async fn measure(size: Size, report: &mut Report) -> Result<()> {
    let mut starts = Vec::new();
    for _ in 0..3 {
        starts.push(Croft::start(StoreKind::Embedded).await?.started_in());
    }
    let croft = Croft::start(StoreKind::Embedded).await?;
    starts.push(croft.started_in());
    let started = median(&mut starts);
    report.absolute("start to ready, empty", ms(started), "250 ms", started <= Duration::from_millis(250));
    let (memory, cpu) = idle(&[croft.process()]).await?;
    report.absolute("idle memory", mib(memory), "60 MiB", memory <= 60 << 20);
    report.absolute("idle processor", format!("{cpu:.2} % of a core"), "1 %", cpu <= 1.0);

    let authority = Authority::new("etcd")?;
    let rival = Etcd::start_tls(&authority).await?;
    let puts = || Client::trusting(&rival.url, &authority.cert_pem(), Protocol::Http2).map(Puts);
    let client = croft.client_over(Protocol::Http2)?;
    // In turns: whatever else the machine does hits both.
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let another = || croft.client_over(Protocol::Http2).map(Creates);
        ours.push(writes(&Creates(client.clone()), another, round, size).await?);
        theirs.push(writes(&puts()?, puts, round, size).await?);
    }
    drop(rival);
    let (ours, etcd) = (Writes::middle(ours), Writes::middle(theirs));
    let (get, watch) = reads(&client, size).await?;
    report.row(&Row {
        what: "durable create of 2 KiB, p50 (etcd: put)",
        croft: ms(ours.p50),
        rival: ms(etcd.p50),
        ratio: Some(ratio(etcd.p50, ours.p50)),
        goal: "1 ms, or as etcd".into(),
        met: ours.p50 <= Duration::from_millis(1) || ours.p50 <= etcd.p50,
    });
    report.row(&Row {
        what: "durable create of 2 KiB, p99 (etcd: put)",
        croft: ms(ours.p99),
        rival: ms(etcd.p99),
        ratio: Some(ratio(etcd.p99, ours.p99)),
        goal: "4 ms, or as etcd".into(),
        met: ours.p99 <= Duration::from_millis(4) || ours.p99 <= etcd.p99,
    });
    report.absolute("get", ms(get), "0.4 ms", get <= Duration::from_micros(400));
    report.absolute(
        "watch event after the acknowledgement (0: before it)",
        ms(watch),
        "1 ms",
        watch <= Duration::from_millis(1),
    );
    report.row(&Row {
        what: "creates per second, 8 clients (etcd: puts)",
        croft: format!("{:.0}/s", ours.per_second),
        rival: format!("{:.0}/s", etcd.per_second),
        ratio: Some(ours.per_second / etcd.per_second),
        goal: "1.0 x etcd".into(),
        met: ours.per_second >= etcd.per_second,
    });
    if KubeApiserver::program().is_some() {
        reference(size, report).await?;
    }
    Ok(())
}

/// Resident memory and the share of a core, of all processes together, over a few quiet seconds.
async fn idle(processes: &[&Process]) -> Result<(u64, f64)> {
    let cpu = || processes.iter().map(|p| p.cpu_time()).sum::<Result<Duration>>();
    // What a start leaves to be done is not idling.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let (before, start) = (cpu()?, Instant::now());
    tokio::time::sleep(Duration::from_secs(5)).await;
    let share = (cpu()?.saturating_sub(before)).as_secs_f64() / start.elapsed().as_secs_f64() * 100.0;
    let memory = processes.iter().map(|p| p.resident_bytes()).sum::<Result<u64>>()?;
    Ok((memory, share))
}

/// One round of single writes and of eight clients at once.
async fn writes<W: Writer>(writer: &W, another: impl Fn() -> Result<W>, round: usize, size: Size) -> Result<Writes> {
    load::one_by_one(writer, &format!("warm-{round}"), 20, OBJECT_BYTES).await?;
    let mut single = load::one_by_one(writer, &format!("single-{round}"), size.of(400), OBJECT_BYTES).await?;
    let writers = (0..8).map(|_| another()).collect::<Result<Vec<_>>>()?;
    let per_second = load::together(&writers, &format!("eight-{round}"), 0..size.of(4000), OBJECT_BYTES).await?;
    Ok(Writes { p50: percentile(&mut single, 0.5), p99: percentile(&mut single, 0.99), per_second })
}

/// The median of a GET and of the way of an event.
async fn reads(client: &Client, size: Size) -> Result<(Duration, Duration)> {
    let mut gets = load::gets(client, &format!("{MAPS}/single-0-000005"), size.of(1000)).await?;
    let mut watch = watch_latency(client, size.of(300)).await?;
    Ok((median(&mut gets), median(&mut watch)))
}

/// From the acknowledgement of a create to its event; nothing when the event was first.
async fn watch_latency(client: &Client, count: usize) -> Result<Vec<Duration>> {
    let list = client.get(&format!("{MAPS}?limit=1")).await?.ok()?;
    let version = list["metadata"]["resourceVersion"].as_str().context("a list has a version")?;
    let path = format!("{MAPS}?watch=1&resourceVersion={version}&timeoutSeconds=600");
    let mut stream = client.open(Call::new(Method::GET, &path)).await?;
    let (sender, mut seen) = tokio::sync::mpsc::channel(count);
    let reader = tokio::spawn(async move {
        while let Some(_event) = stream.line().await? {
            if sender.send(Instant::now()).await.is_err() {
                break;
            }
        }
        anyhow::Ok(())
    });
    let writer = Creates(client.clone());
    let mut samples = Vec::with_capacity(count);
    for i in 0..count {
        load::one_by_one(&writer, &format!("watched-{i}"), 1, OBJECT_BYTES).await?;
        let acknowledged = Instant::now();
        let seen = seen.recv().await.context("the watch ended")?;
        samples.push(seen.saturating_duration_since(acknowledged));
    }
    reader.abort();
    Ok(samples)
}

async fn reference(size: Size, report: &mut Report) -> Result<()> {
    let server = KubeApiserver::start().await?;
    report.note("kube-apiserver and etcd: start to ready", ms(server.started_in()));
    let (memory, cpu) = idle(&[&server.process, &server.etcd.process]).await?;
    report.note("kube-apiserver and etcd: idle", format!("{}, {cpu:.2} % of a core", mib(memory)));
    let client = server.client_over(Protocol::Http2)?;
    let another = || server.client_over(Protocol::Http2).map(Creates);
    let theirs = writes(&Creates(client.clone()), another, 0, size).await?;
    let (get, watch) = reads(&client, size).await?;
    report.note("kube-apiserver and etcd: create p50 / p99", format!("{} / {}", ms(theirs.p50), ms(theirs.p99)));
    report.note("kube-apiserver and etcd: get / watch event", format!("{} / {}", ms(get), ms(watch)));
    report.note("kube-apiserver and etcd: creates per second", format!("{:.0}/s", theirs.per_second));
    Ok(())
}
