//! The list of ten thousand machines: scrolled and searched, at rest and while they change; and what the page holds.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use croft_e2e::machines::MACHINES;
use croft_testkit::{Call, Client, Croft, Protocol, StoreKind};
use http::Method;
use serde::Deserialize;

use super::browser::{Browser, millis};
use super::changes::{Changes, LABEL, value};
use crate::Size;
use crate::harvester::{CREATORS, have_status, machine};
use crate::load::{self, Writer};
use crate::report::{Report, Row, mib, ms, percentile, ratio, seconds};

const FULL_MACHINES: usize = 10_000;
/// With so few, what remains is what browser and machine need for any page.
const FEW: usize = 100;
const LATEST: Duration = Duration::from_millis(100);
/// After the first minute.
const FULL_SECONDS: usize = 540;
/// What a collected heap differs by from one time to the next.
const GROWTH: f64 = 1.05;
const PATIENCE: Duration = Duration::from_mins(5);

/// What `list` in `ui/bench` saw.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(clippy::struct_field_names, reason = "a number needs its unit")]
struct List {
    opened_ms: f64,
    keys_ms: Vec<f64>,
    wheel_ms: Vec<f64>,
}

/// What `memory` saw, at one moment.
#[derive(Debug, Deserialize)]
struct Held {
    seconds: u64,
    bytes: u64,
    nodes: u64,
    drawn: u64,
}

pub(super) async fn measure(size: Size, report: &mut Report) -> Result<()> {
    let count = size.of(FULL_MACHINES);
    let browser = Browser::new()?;
    let croft = Croft::start_with(StoreKind::Embedded, &[&browser.password_option()]).await?;
    let client = croft.client_over(Protocol::Http2)?;
    let list = async |count: usize| browser.run::<List>(&croft, None, &["list", &count.to_string()], PATIENCE).await;

    fill(&croft, 0..FEW).await?;
    let few = list(FEW).await?;
    fill(&croft, FEW..count).await?;
    let many = list(count).await?;
    report.note(
        &format!("the page's list of {count} machines, from signing in to the last row (no rival)"),
        seconds(Duration::from_secs_f64(many.opened_ms / 1000.0)),
    );
    rows(&format!("list of {count} machines"), &many, &few, report);

    let changes = Changes::of(client.clone(), count);
    let moving = tokio::select! {
        ended = changes.make() => return ended,
        seen = list(count) => seen?,
    };
    changes.made()?;
    rows(&format!("list of {count} machines, 50 of them changing each second"), &moving, &few, report);
    memory(size, &croft, &browser, count, report).await
}

fn rows(what: &str, many: &List, few: &List, report: &mut Report) {
    for (act, ours, theirs) in [
        ("key in the search field to the rows", &many.keys_ms, &few.keys_ms),
        ("step of the wheel to the rows", &many.wheel_ms, &few.wheel_ms),
    ] {
        let [ours, theirs] = [ours, theirs].map(|samples| percentile(&mut millis(samples.clone()), 0.95));
        report.row(&Row {
            what: &format!("{what}: {act} (p95)"),
            croft: ms(ours),
            rival: format!("{} (with {FEW} machines)", ms(theirs)),
            ratio: Some(ratio(theirs, ours)),
            goal: ms(LATEST),
            met: ours < LATEST,
        });
    }
}

/// The rival is the page itself, after the first minute.
async fn memory(size: Size, croft: &Croft, browser: &Browser, count: usize, report: &mut Report) -> Result<()> {
    let (machines, duration) = (count.to_string(), size.of(FULL_SECONDS).to_string());
    let limit = PATIENCE * 2 + Duration::from_secs(duration.parse()?);
    let args = ["memory", &machines, &duration];
    let changes = Changes::of(croft.client_over(Protocol::Http2)?, count);
    let held: Vec<Held> = tokio::select! {
        ended = changes.make() => return ended,
        seen = browser.run(croft, None, &args, limit) => seen?,
    };
    let made = changes.made()?;
    let (first, last) = (held.first().context("a sample")?, held.last().context("a sample")?);
    ensure!(last.drawn > first.drawn, "the page showed no changes: {held:?}");
    let figure = |held: &Held| format!("{} and {} nodes after {} s", mib(held.bytes), held.nodes, held.seconds);
    let growth = super::share(last.bytes, first.bytes);
    report.row(&Row {
        what: &format!("what the page holds of {count} machines after {made} changes, 50 a second"),
        croft: figure(last),
        rival: figure(first),
        ratio: Some(1.0 / growth),
        goal: format!("{GROWTH} x the first"),
        met: growth <= GROWTH,
    });
    Ok(())
}

async fn fill(croft: &Croft, range: std::ops::Range<usize>) -> Result<()> {
    let end = range.end;
    let writers =
        (0..CREATORS).map(|_| croft.client_over(Protocol::Http2).map(Labelled)).collect::<Result<Vec<_>>>()?;
    load::together(&writers, "vm", range, 0).await?;
    have_status(&croft.client_over(Protocol::Http2)?, end).await
}

/// Creates machines that have the label which is going to change.
#[derive(Debug, Clone)]
struct Labelled(Client);

impl Writer for Labelled {
    async fn write(&self, name: &str, _: usize) -> Result<()> {
        let mut machine = machine(name);
        machine["metadata"]["labels"][LABEL] = value(0);
        let body = Bytes::from(machine.to_string());
        let answer = self.0.send(Call::new(Method::POST, MACHINES).body("application/json", body)).await?;
        ensure!(answer.status == 201, "{}: {}", answer.status, answer.text());
        Ok(())
    }
}
