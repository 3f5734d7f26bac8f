//! Virtual machines: how soon they run, what they cost, and what their disks and images are worth, beside QEMU alone.
//!
//! The guests have no operating system where only our own cost is meant: 64 MiB, emulated.

mod bare;
mod guests;
mod imports;
mod small_host;

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use croft_e2e::machines::{INSTANCES, MACHINES, empty, qemus};
use croft_testkit::{Call, Client, Croft, Protocol, StoreKind, eventually_within};
use http::Method;
use serde_json::Value;

use crate::Size;
use crate::report::{Report, Row, median, mib, ms, percentile, ratio};

pub(crate) use imports::noise;

const PATIENCE: Duration = Duration::from_mins(5);
/// More than a run ever sees: the times must be taken when things happen.
const EVENTS: usize = 1 << 16;

pub(crate) async fn measure(size: Size, report: &mut Report) -> Result<()> {
    let mut bare = Vec::new();
    for _ in 0..size.of(20) {
        bare.push(bare::exec_to_running().await?);
    }
    let bare_start = median(&mut bare);
    let (count, many) = (size.of(100), size.of(250));

    let croft = Croft::start_node(StoreKind::Embedded, &[]).await?;
    let client = croft.client_over(Protocol::Http1)?;
    node_is_ready(&client).await?;
    let mut phases = Phases::follow(&client).await?;

    // One at a time; the first warms what is only made once.
    let mut single = Vec::new();
    for n in 0..=size.of(20) {
        let name = format!("one-{n}");
        let took = phases.create_to_running(&client, &name).await?;
        if n > 0 {
            single.push(took);
        }
        delete(&client, &name).await?;
    }
    let one = median(&mut single);
    report.row(&Row {
        what: "one VM, created to Running (p50)",
        croft: ms(one),
        rival: format!("{} (QEMU alone, exec to running)", ms(bare_start)),
        ratio: Some(ratio(bare_start, one)),
        goal: "150 ms, 4 x QEMU".into(),
        met: one <= Duration::from_millis(150) || one <= bare_start * 4,
    });

    hundred(&croft, &client, &mut phases, count, bare_start, report).await?;
    idle(&croft, &client, report).await?;
    crowd(&croft, &client, many, report).await?;
    Ok(())
}

/// What takes a real guest: the smallest host, the time to its first words, its disks.
pub(crate) async fn measure_guests(size: Size, report: &mut Report) -> Result<()> {
    small_host::measure(report).await?;
    guests::measure(size, report).await
}

/// Where disks come from.
pub(crate) async fn measure_images(size: Size, report: &mut Report) -> Result<()> {
    imports::measure(size, report).await
}

/// Many, one every 100 ms; then what they weigh.
async fn hundred(
    croft: &Croft,
    client: &Client,
    phases: &mut Phases,
    count: usize,
    bare_start: Duration,
    report: &mut Report,
) -> Result<()> {
    tokio::time::sleep(Duration::from_secs(1)).await;
    let before = pss(croft.process().id())?;
    let mut acknowledged = Vec::new();
    let mut tick = tokio::time::interval(Duration::from_millis(100));
    for n in 0..count {
        tick.tick().await;
        let name = format!("vm-{n}");
        create(client, &name).await?;
        acknowledged.push((name, Instant::now()));
    }
    let mut took = Vec::new();
    for (name, since) in &acknowledged {
        took.push(phases.running(name).await?.saturating_duration_since(*since));
    }
    let (p50, p95) = (percentile(&mut took, 0.5), percentile(&mut took, 0.95));
    let rival = format!("{} (QEMU alone)", ms(bare_start));
    for (what, figure, limit) in [("p50", p50, 250), ("p95", p95, 600)] {
        report.row(&Row {
            what: &format!("{count} VMs, one every 100 ms: created to Running ({what})"),
            croft: ms(figure),
            rival: rival.clone(),
            ratio: Some(ratio(bare_start, figure)),
            goal: format!("{limit} ms, 5 x QEMU"),
            met: figure <= Duration::from_millis(limit) || figure <= bare_start * 5,
        });
    }

    tokio::time::sleep(Duration::from_secs(1)).await;
    let machines = u64::try_from(count)?;
    let own = pss(croft.process().id())?.saturating_sub(before) / machines;
    report.absolute("Croft's memory for each of them", kib(own), "2 MiB", own <= 2 << 20);
    let guests: u64 = qemus(croft).into_values().map(|pid| pss(pid).unwrap_or_default()).sum();
    let alone = bare::memory(count.min(10)).await?;
    let total = own + guests / machines;
    report.row(&Row {
        what: "all memory for each of them (PSS)",
        croft: mib(total),
        rival: format!("{} (QEMU alone)", mib(alone)),
        ratio: None,
        goal: "30 MiB".into(),
        met: total <= 30 << 20,
    });
    Ok(())
}

/// What Croft's own process burns while twenty guests idle.
async fn idle(croft: &Croft, client: &Client, report: &mut Report) -> Result<()> {
    let machines = list(client, MACHINES).await?;
    for name in machines.iter().skip(20) {
        delete(client, name).await?;
    }
    tokio::time::sleep(Duration::from_secs(3)).await;
    let (before, since) = (croft.process().cpu_time()?, Instant::now());
    tokio::time::sleep(Duration::from_secs(20)).await;
    let share =
        croft.process().cpu_time()?.saturating_sub(before).as_secs_f64() / since.elapsed().as_secs_f64() * 100.0;
    let count = machines.len().min(20);
    report.absolute(
        &format!("processor use with {count} idle VMs"),
        format!("{share:.2} %"),
        "1 % of a core",
        share < 1.0,
    );
    Ok(())
}

/// As many as this machine is meant to carry, and how the API feels meanwhile.
async fn crowd(croft: &Croft, client: &Client, many: usize, report: &mut Report) -> Result<()> {
    let there = list(client, MACHINES).await?.len();
    for n in there..many {
        create(client, &format!("crowd-{n}")).await?;
    }
    let running = eventually_within(PATIENCE, async || {
        let instances = client.get(INSTANCES).await.map_err(|err| err.to_string())?.json();
        let items = instances["items"].as_array().cloned().unwrap_or_default();
        let running = items.iter().filter(|item| item["status"]["phase"] == "Running").count();
        if running == many { Ok(running) } else { Err(format!("{running} of {many} run")) }
    });
    let outcome = running.await;
    let mut gets = Vec::new();
    let names = list(client, MACHINES).await?;
    for name in names.iter().cycle().take(1000) {
        let start = Instant::now();
        client.get(&format!("{MACHINES}/{name}")).await?.ok()?;
        gets.push(start.elapsed());
    }
    let p99 = percentile(&mut gets, 0.99);
    let alive = qemus(croft).len();
    report.absolute(
        &format!("{many} VMs at a time: GET p99"),
        format!("{} ({})", ms(p99), outcome.clone().map_or_else(|why| why, |count| format!("{count} run"))),
        "20 ms, none lost",
        outcome.is_ok() && alive >= many && p99 <= Duration::from_millis(20),
    );
    Ok(())
}

pub(crate) async fn node_is_ready(client: &Client) -> Result<()> {
    let ready = eventually_within(PATIENCE, async || {
        let nodes = client.get("/api/v1/nodes").await?.ok()?;
        let conditions = nodes["items"][0]["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let is_ready = |condition: &Value| condition["type"] == "Ready" && condition["status"] == "True";
        if conditions.iter().any(is_ready) { Ok(()) } else { bail!("the node is not ready: {nodes}") }
    });
    ready.await
}

async fn create(client: &Client, name: &str) -> Result<()> {
    client.post(MACHINES, &empty(name)).await?.ok()?;
    Ok(())
}

async fn delete(client: &Client, name: &str) -> Result<()> {
    client.delete(&format!("{MACHINES}/{name}")).await?.ok()?;
    eventually_within(PATIENCE, async || match client.get(&format!("{INSTANCES}/{name}")).await?.status {
        404 => Ok(()),
        status => bail!("{name} is still there: {status}"),
    })
    .await
}

async fn list(client: &Client, path: &str) -> Result<Vec<String>> {
    let list = client.get(path).await?.ok()?;
    let items = list["items"].as_array().cloned().unwrap_or_default();
    Ok(items.iter().filter_map(|item| item["metadata"]["name"].as_str().map(str::to_owned)).collect())
}

/// When instances were first seen running, by a watch.
struct Phases {
    seen: tokio::sync::mpsc::Receiver<(String, Instant)>,
    running: std::collections::HashMap<String, Instant>,
}

impl Phases {
    async fn follow(client: &Client) -> Result<Self> {
        let path = format!("{INSTANCES}?watch=1&timeoutSeconds=3600");
        let mut stream = client.open(Call::new(Method::GET, &path)).await?;
        let (send, seen) = tokio::sync::mpsc::channel(EVENTS);
        tokio::spawn(async move {
            while let Ok(Some(line)) = stream.line().await {
                let now = Instant::now();
                let Ok(event) = serde_json::from_slice::<Value>(&line) else { continue };
                let object = &event["object"];
                if object["status"]["phase"] == "Running" && event["type"] != "DELETED" {
                    let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
                    if send.send((name, now)).await.is_err() {
                        return;
                    }
                }
            }
        });
        Ok(Self { seen, running: std::collections::HashMap::new() })
    }

    async fn running(&mut self, name: &str) -> Result<Instant> {
        let wait = async {
            loop {
                if let Some(when) = self.running.get(name) {
                    return Ok(*when);
                }
                let (name, when) = self.seen.recv().await.context("the watch ended")?;
                self.running.entry(name).or_insert(when);
            }
        };
        tokio::time::timeout(PATIENCE, wait).await.with_context(|| format!("{name} does not run"))?
    }

    async fn create_to_running(&mut self, client: &Client, name: &str) -> Result<Duration> {
        create(client, name).await?;
        let since = Instant::now();
        Ok(self.running(name).await?.saturating_duration_since(since))
    }
}

/// The share of memory that is a process's own, in bytes.
pub(crate) fn pss(pid: u32) -> Result<u64> {
    let text =
        std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).with_context(|| format!("process {pid}"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:")).context("no Pss")?;
    let kib: u64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kib * 1024)
}

fn kib(bytes: u64) -> String {
    format!("{} KiB", bytes >> 10)
}
