//! Each seed in a child of its own, as many at a time as there are processors.

use std::collections::BTreeMap;
use std::io::{PipeReader, Read, Write, pipe};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use rustix::process::{Resource, Rlimit, WaitOptions, setrlimit, wait};
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::mutation::Mutation;
use crate::run;
use crate::sys::{self, Forked};

/// A seed that needs more of the processor than this goes round in circles.
const PROCESSOR_SECONDS: u64 = 300;
/// One that takes longer waits for what never comes: every clock that it has stands still then.
const SECONDS: u32 = 600;
/// A report must fit into a pipe that nobody reads yet.
const LONGEST_REPORT: usize = 32 << 10;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub(crate) seed: u64,
    pub(crate) mutation: Option<Mutation>,
    pub(crate) is_verbose: bool,
}

impl Wanted {
    pub(crate) fn seed(seed: u64) -> Self {
        Self { seed, mutation: None, is_verbose: false }
    }
}

#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) seed: u64,
    pub(crate) steps: u64,
    pub(crate) trace: String,
    pub(crate) problems: Vec<String>,
}

pub(crate) struct Children {
    cluster: Arc<Cluster>,
    at_a_time: usize,
}

impl Children {
    pub(crate) fn new(cluster: Arc<Cluster>) -> Self {
        let at_a_time = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self { cluster, at_a_time }
    }

    /// Reports come in the order in which the seeds are done.
    pub(crate) async fn run(
        &self,
        wanted: impl IntoIterator<Item = Wanted>,
        mut told: impl FnMut(Report),
    ) -> Result<()> {
        let mut running: BTreeMap<i32, (u64, PipeReader)> = BTreeMap::new();
        for one in wanted {
            if running.len() >= self.at_a_time {
                told(next_report(&mut running)?);
            }
            let (pid, reader) = self.start(one).await?;
            running.insert(pid, (one.seed, reader));
        }
        while !running.is_empty() {
            told(next_report(&mut running)?);
        }
        Ok(())
    }

    async fn start(&self, wanted: Wanted) -> Result<(i32, PipeReader)> {
        // What is still in the buffer would be printed twice.
        std::io::stdout().flush()?;
        let (reader, mut writer) = pipe()?;
        if let Forked::Parent(pid) = sys::fork().context("no child could be made")? {
            return Ok((pid.as_raw_nonzero().get(), reader));
        }
        let limit = Rlimit { current: Some(PROCESSOR_SECONDS), maximum: Some(PROCESSOR_SECONDS + 1) };
        // Without them, a run that never ends must be ended by hand.
        let _ = setrlimit(Resource::Cpu, limit);
        // Whoever reads along may take their time.
        if !wanted.is_verbose {
            sys::end_after(SECONDS);
        }
        run::run(&self.cluster, wanted.seed, wanted.mutation, wanted.is_verbose).await;
        let (steps, trace) = self.cluster.sim.trace();
        let mut problems = self.cluster.sim.problems();
        let length = |problems: &[String]| problems.iter().map(String::len).sum::<usize>();
        while length(&problems) > LONGEST_REPORT {
            problems.pop();
        }
        let report = json!({"steps": steps, "trace": trace, "problems": problems});
        let is_told = writer.write_all(report.to_string().as_bytes()).is_ok();
        drop(writer);
        // Not by way of everything that the parent still needs, its files among it.
        std::process::exit(i32::from(!is_told));
    }
}

fn next_report(running: &mut BTreeMap<i32, (u64, PipeReader)>) -> Result<Report> {
    let Some((pid, status)) = wait(WaitOptions::empty())? else { bail!("there is no child to wait for") };
    let found = running.remove(&pid.as_raw_nonzero().get());
    let (seed, mut reader) = found.context("a child that nobody made has ended")?;
    let mut text = String::new();
    reader.read_to_string(&mut text)?;
    let told: Value = serde_json::from_str(&text).unwrap_or_default();
    let problems = match told["problems"].as_array() {
        Some(problems) => problems.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        None => vec![format!("died: {status:?}")],
    };
    let trace = told["trace"].as_str().unwrap_or_default().to_owned();
    Ok(Report { seed, steps: told["steps"].as_u64().unwrap_or(0), trace, problems })
}
