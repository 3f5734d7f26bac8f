//! Starting, idling, single requests and eight clients, on an empty server.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use croft_testkit::{Authority, Call, Client, Croft, Etcd, KubeApiserver, Process, Protocol, StoreKind};
use http::Method;

use crate::Size;
use crate::load::{self, Creates, MAPS, Puts};
use crate::report::{Report, Row, median, mib, ms, percentile, ratio};

const OBJECT_BYTES: usize = 2048;

/// What a Kubernetes API server did.
struct Figures {
    create_p50: Duration,
    create_p99: Duration,
    get: Duration,
    watch: Duration,
    creates_per_second: f64,
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

    let ours = figures(&croft.client_over(Protocol::Http2)?, || croft.client_over(Protocol::Http2), size).await?;
    drop(croft);
    let etcd = etcd_figures(size).await?;
    report.row(&Row {
        what: "durable create of 2 KiB, p50 (etcd: put)",
        croft: ms(ours.create_p50),
        rival: ms(etcd.0),
        ratio: Some(ratio(etcd.0, ours.create_p50)),
        goal: "1 ms".into(),
        met: ours.create_p50 <= Duration::from_millis(1) || ours.create_p50 <= etcd.0,
    });
    report.row(&Row {
        what: "durable create of 2 KiB, p99 (etcd: put)",
        croft: ms(ours.create_p99),
        rival: ms(etcd.1),
        ratio: Some(ratio(etcd.1, ours.create_p99)),
        goal: "4 ms".into(),
        met: ours.create_p99 <= Duration::from_millis(4) || ours.create_p99 <= etcd.1,
    });
    report.absolute("get", ms(ours.get), "0.4 ms", ours.get <= Duration::from_micros(400));
    report.absolute(
        "watch event after the acknowledgement",
        ms(ours.watch),
        "1 ms",
        ours.watch <= Duration::from_millis(1),
    );
    report.row(&Row {
        what: "creates per second, 8 clients (etcd: puts)",
        croft: format!("{:.0}/s", ours.creates_per_second),
        rival: format!("{:.0}/s", etcd.2),
        ratio: Some(ours.creates_per_second / etcd.2),
        goal: "1.0 x etcd".into(),
        met: ours.creates_per_second >= etcd.2,
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

async fn figures(client: &Client, another: impl Fn() -> Result<Client>, size: Size) -> Result<Figures> {
    let writer = Creates(client.clone());
    load::one_by_one(&writer, "warm", 50, OBJECT_BYTES).await?;
    let mut creates = load::one_by_one(&writer, "single", size.of(1000), OBJECT_BYTES).await?;
    let mut gets = load::gets(client, &format!("{MAPS}/single-000005"), size.of(1000)).await?;
    let mut watch = watch_latency(client, size.of(300)).await?;
    let writers = (0..8).map(|_| another().map(Creates)).collect::<Result<Vec<_>>>()?;
    let creates_per_second = load::together(&writers, "eight", 0..size.of(10_000), OBJECT_BYTES).await?;
    Ok(Figures {
        create_p50: percentile(&mut creates, 0.5),
        create_p99: percentile(&mut creates, 0.99),
        get: median(&mut gets),
        watch: median(&mut watch),
        creates_per_second,
    })
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

/// Put p50, p99 and puts per second.
async fn etcd_figures(size: Size) -> Result<(Duration, Duration, f64)> {
    let authority = Authority::new("etcd")?;
    let etcd = Etcd::start_tls(&authority).await?;
    let client = || Client::trusting(&etcd.url, &authority.cert_pem(), Protocol::Http2).map(Puts);
    let one = client()?;
    load::one_by_one(&one, "warm", 50, OBJECT_BYTES).await?;
    let mut puts = load::one_by_one(&one, "single", size.of(1000), OBJECT_BYTES).await?;
    let writers = (0..8).map(|_| client()).collect::<Result<Vec<_>>>()?;
    let rate = load::together(&writers, "eight", 0..size.of(10_000), OBJECT_BYTES).await?;
    Ok((percentile(&mut puts, 0.5), percentile(&mut puts, 0.99), rate))
}

async fn reference(size: Size, report: &mut Report) -> Result<()> {
    let server = KubeApiserver::start().await?;
    report.note("kube-apiserver and etcd: start to ready", ms(server.started_in()));
    let (memory, cpu) = idle(&[&server.process, &server.etcd.process]).await?;
    report.note("kube-apiserver and etcd: idle", format!("{}, {cpu:.2} % of a core", mib(memory)));
    let theirs = figures(&server.client_over(Protocol::Http2)?, || server.client_over(Protocol::Http2), size).await?;
    let single = format!("{} / {}", ms(theirs.create_p50), ms(theirs.create_p99));
    report.note("kube-apiserver and etcd: create p50 / p99", single);
    report.note("kube-apiserver and etcd: get / watch event", format!("{} / {}", ms(theirs.get), ms(theirs.watch)));
    report.note("kube-apiserver and etcd: creates per second", format!("{:.0}/s", theirs.creates_per_second));
    Ok(())
}
