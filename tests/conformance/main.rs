//! Sends the corpus to Croft and to the reference server and shows where the answers differ.
//!
//! `conformance` compares both live; `conformance record` renews the stored expectations from the reference.
//! Both need `KUBE_APISERVER=<binary>` and etcd (a recent one in `KUBE_ETCD` if Debian's is too old for the binary).
//! `conformance probes <program>` runs the Go probes against Croft on both stores, and against the reference if
//! there is one.

use anyhow::{Context, Result, bail};
use croft_e2e::runner::{self, KnownDifferences, Played, Scenario, diff};
use croft_testkit::{Server, ServerKind};
use futures::StreamExt as _;
use serde_json::Value;

#[tokio::main]
async fn main() -> Result<()> {
    match std::env::args().nth(1).as_deref() {
        None | Some("compare") => compare().await,
        Some("record") => record().await,
        Some("probes") => probes(&std::env::args().nth(2).context("which program?")?).await,
        Some(other) => bail!("unknown command {other:?}: compare, record or probes"),
    }
}

async fn record() -> Result<()> {
    let server = Server::start(ServerKind::Reference).await?;
    let scenarios = runner::load_corpus()?;
    if scenarios.iter().any(|s| s.controllers) && !server.has_controllers() {
        bail!("some scenarios need kube-controller-manager (KUBE_CONTROLLER_MANAGER)");
    }
    for (scenario, played) in play_all(&server, &scenarios).await? {
        runner::save_expected(scenario, &played)?;
        println!("{}: {} answers", scenario.name, played.steps.len());
    }
    Ok(())
}

async fn probes(program: &str) -> Result<()> {
    let mut failed = Vec::new();
    for kind in [ServerKind::Embedded, ServerKind::Etcd, ServerKind::Reference] {
        if !kind.wanted() {
            continue;
        }
        println!("{kind:?}:");
        let server = Server::start(kind).await?;
        let mut command = tokio::process::Command::new(program);
        command.arg("--kubeconfig").arg(&server.kubeconfig);
        if !command.status().await.with_context(|| format!("run {program}"))?.success() {
            failed.push(kind);
        }
    }
    if !failed.is_empty() {
        bail!("probes failed on {failed:?}");
    }
    Ok(())
}

async fn compare() -> Result<()> {
    let known = KnownDifferences::load()?;
    let reference = Server::start(ServerKind::Reference).await.context("the reference")?;
    let croft = Server::start(ServerKind::Embedded).await.context("croft")?;
    let mut scenarios = runner::load_corpus()?;
    scenarios.retain(|s| reference.has_controllers() || !s.controllers);
    let (expected, actual) = tokio::join!(play_all(&reference, &scenarios), play_all(&croft, &scenarios));
    let (mut steps, mut differing, mut explained) = (0, 0, 0);
    for ((scenario, expected), (_, actual)) in expected?.into_iter().zip(actual?) {
        for step in &scenario.steps {
            steps += 1;
            let (all, unexplained) = step_differences(&known, scenario, &step.name, &expected, &actual);
            explained += usize::from(all > 0 && unexplained.is_empty());
            differing += usize::from(!unexplained.is_empty());
            for difference in unexplained {
                println!("{} / {}\n    {difference}", scenario.name, step.name);
            }
        }
    }
    println!("{steps} answers compared: {differing} differ, {explained} differ as explained");
    if differing > 0 {
        bail!("{differing} unexplained differences");
    }
    Ok(())
}

/// How many differences there are, and those that nobody has explained.
fn step_differences(
    known: &KnownDifferences,
    scenario: &Scenario,
    step: &str,
    expected: &Played,
    actual: &Played,
) -> (usize, Vec<runner::Difference>) {
    let nothing = Value::Null;
    let pick = |played: &Played| played.steps.get(step).cloned();
    let mut all = diff(&pick(expected).unwrap_or_default(), &pick(actual).unwrap_or(nothing));
    let count = all.len();
    all.retain(|difference| !known.explains(&scenario.name, step, difference));
    (count, all)
}

/// A scenario that cannot be played to its end counts as having answered nothing.
async fn play_all<'a>(server: &Server, scenarios: &'a [Scenario]) -> Result<Vec<(&'a Scenario, Played)>> {
    let played = futures::stream::iter(scenarios).map(|scenario| async move {
        let played = runner::play(server, scenario).await.unwrap_or_else(|error| {
            eprintln!("{}: {error:#}", scenario.name);
            Played::default()
        });
        (scenario, played)
    });
    Ok(played.buffered(4).collect().await)
}
