//! The web page, in a browser: how soon it is there, how a long list feels, and what it holds while machines change.

mod browser;
mod changes;
mod list;

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use croft_testkit::{Client, Croft, Protocol, StoreKind, eventually_within};
use serde::Deserialize;

use crate::Size;
use crate::machines::node_is_ready;
use crate::nginx::Nginx;
use crate::report::{Report, Row, median, ms, ratio};
use browser::{Browser, millis};

const FULL_RUNS: usize = 9;
const MOST_BYTES: u64 = 350_000;
const LATEST: Duration = Duration::from_secs(1);
/// Figures of the host's use come every few seconds.
const PATIENCE: Duration = Duration::from_mins(1);

pub(crate) async fn measure(size: Size, report: &mut Report) -> Result<()> {
    first_load(size, report).await?;
    list::measure(size, report).await
}

/// What `load` in `ui/bench` saw, a figure for each run.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Load {
    sign_in_ms: Vec<f64>,
    dashboard_ms: Vec<f64>,
    wire: Vec<Wire>,
    rival_sign_in_ms: Vec<f64>,
}

#[derive(Debug, Deserialize)]
struct Wire {
    bytes: u64,
    requests: u64,
}

/// On a node as it comes out of the box, whose dashboard has a host to show.
async fn first_load(size: Size, report: &mut Report) -> Result<()> {
    let browser = Browser::new()?;
    let croft = Croft::start_node(StoreKind::Embedded, &[&browser.password_option()]).await?;
    let client = croft.client_over(Protocol::Http1)?;
    node_is_ready(&client).await?;
    has_usage(&client).await?;
    let dist =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../ui/dist").canonicalize().context("the page is not built")?;
    let nginx = Nginx::start_with_page(&dist).await?;

    let runs = size.of_at_least(FULL_RUNS, 3);
    let load: Load = browser.run(&croft, Some(&nginx), &["load", &runs.to_string()], PATIENCE * 5).await?;
    ensure!(load.wire.len() == runs, "{} of {runs} runs were measured", load.wire.len());
    let most = load.wire.iter().max_by_key(|wire| wire.bytes).context("a run")?;
    report.row(&Row {
        what: "first load of the page, sign-in and dashboard: over the wire",
        croft: format!("{} KB in {} answers", most.bytes.div_ceil(1000), most.requests),
        rival: format!("{} KB (the limit)", MOST_BYTES / 1000),
        ratio: Some(share(MOST_BYTES, most.bytes)),
        goal: "1 x".into(),
        met: most.bytes <= MOST_BYTES,
    });
    let [sign_in, dashboard, theirs] =
        [load.sign_in_ms, load.dashboard_ms, load.rival_sign_in_ms].map(|times| median(&mut millis(times)));
    report.row(&Row {
        what: "navigation to a sign-in page that can be used, nothing cached (p50)",
        croft: ms(sign_in),
        rival: format!("{} (the same files from nginx)", ms(theirs)),
        ratio: Some(ratio(theirs, sign_in)),
        goal: "1 s".into(),
        met: sign_in <= LATEST,
    });
    report.row(&Row {
        what: "navigation to a dashboard with its data that can be used, nothing cached (p50)",
        croft: ms(dashboard),
        rival: format!("{} (the limit)", ms(LATEST)),
        ratio: Some(ratio(LATEST, dashboard)),
        goal: "1 x".into(),
        met: dashboard <= LATEST,
    });
    Ok(())
}

/// A server that has just started has nothing yet to draw of its host, which nobody who comes later will see.
async fn has_usage(client: &Client) -> Result<()> {
    let known = eventually_within(PATIENCE, async || {
        let usage = client.get("/croft/v1/usage/nodes").await?.ok()?;
        let node = usage["items"][0]["node"].as_str().context("no figures of the node")?;
        let history = client.get(&format!("/croft/v1/usage/nodes/{node}?window=10m")).await?.ok()?;
        if history["times"].as_array().is_some_and(|times| times.len() >= 2) {
            Ok(())
        } else {
            bail!("no curve: {history}")
        }
    });
    known.await
}

#[expect(clippy::cast_precision_loss, reason = "for people to read")]
fn share(part: u64, of: u64) -> f64 {
    part as f64 / of as f64
}
