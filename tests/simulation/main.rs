//! The API server, its watch cache and the controllers under a seeded simulator: docs/simulation.md.
//!
//! One process brings a cluster up and to rest; each seed is then a child of it that goes on from there, so that a run costs
//! only what happens in it. Store, network, time and chance are simulated; everything between them is the real thing.
//!
//! - [`sys`] has time and chance, [`sim`] the seed's decisions and the trace.
//! - [`disk`] is what survives, [`store`] a server's way to it, [`network`] a client's way to the server.
//! - [`users`], [`watcher`] and [`node`] are the actors; [`run`] is one seed, [`children`] runs many.
//! - [`reads`] and [`invariants`] say what must hold, [`mutation`] how each is shown to be able to fail.

mod children;
mod client;
mod cluster;
mod disk;
mod invariants;
mod mutation;
mod network;
mod node;
mod reads;
mod run;
mod sim;
mod store;
mod sys;
mod users;
mod watcher;

use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail, ensure};

use crate::children::{Children, Wanted};
use crate::mutation::Mutation;

/// What every test run goes through. `make simulate` goes further.
const SEEDS: u64 = 200;
const REPLAYED: u64 = 3;
/// A mutation has this many seeds to be noticed in.
const MUTATED_SEEDS: u64 = 24;

const TESTS: [&str; 4] = ["tests_are_chosen", "seeds_hold", "seeds_replay_exactly", "invariants_can_fail"];

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let chosen = chosen(&args);
    if args.iter().any(|arg| arg == "--list") {
        for test in chosen {
            println!("{test}: test");
        }
        return ExitCode::SUCCESS;
    }
    match with_cluster(&args, &chosen) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// As the harness of the compiler has it. Whoever asks for those that are ignored is told of none: cargo-nextest runs nothing
/// that it is told of then.
fn chosen(args: &[String]) -> Vec<&'static str> {
    let has = |flag: &str| args.iter().any(|arg| arg == flag);
    if has("--ignored") {
        return Vec::new();
    }
    let mut names = Vec::new();
    let mut rest = args.iter();
    while let Some(arg) = rest.next() {
        match arg.as_str() {
            "--format" | "--test-threads" | "--color" => drop(rest.next()),
            name if !name.starts_with('-') => names.push(name),
            _ => {}
        }
    }
    let is_meant = |test: &str, name: &str| if has("--exact") { test == name } else { test.contains(name) };
    TESTS.into_iter().filter(|test| names.is_empty() || names.iter().any(|name| is_meant(test, name))).collect()
}

fn text(variable: &str) -> Option<String> {
    std::env::var(variable).ok().filter(|text| !text.is_empty())
}

fn number(variable: &str) -> Result<Option<u64>> {
    let parse = |text: String| text.parse().with_context(|| format!("{variable} is not a number: {text:?}"));
    text(variable).map(parse).transpose()
}

fn with_cluster(args: &[String], chosen: &[&str]) -> Result<()> {
    let seed = number("CROFT_SIMULATION_SEED")?;
    let traces = args.iter().position(|arg| arg == "--traces");
    if chosen.is_empty() && seed.is_none() && traces.is_none() {
        return Ok(());
    }
    abort_on_panic();
    // Somebody may have installed one before; there is but one kind.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?;
    let dir = tempfile::Builder::new().prefix(&format!("simulation-{}-", std::process::id())).tempdir()?;
    runtime.block_on(async {
        let cluster = run::boot(sim::Sim::new(), dir.path()).await?;
        let children = Children::new(cluster);
        if let Some(at) = traces {
            return print_traces(&children, args.get(at + 1)).await;
        }
        if let Some(seed) = seed {
            return replay(&children, seed).await;
        }
        for test in chosen {
            match *test {
                "tests_are_chosen" => tests_are_chosen()?,
                "seeds_hold" => seeds_hold(&children).await?,
                "seeds_replay_exactly" => seeds_replay_exactly(&children).await?,
                _ => invariants_can_fail(&children).await?,
            }
            println!("test {test} ... ok");
        }
        Ok(())
    })
}

/// As in a release: whatever task panics, the whole process ends, and the seed has died. Tests are built to unwind, which would
/// look like a broken connection.
fn abort_on_panic() {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        print(panic);
        std::process::abort();
    }));
}

async fn seeds_hold(children: &Children) -> Result<()> {
    let first = number("CROFT_SIMULATION_FIRST")?.unwrap_or(0);
    let count = number("CROFT_SIMULATION_SEEDS")?.unwrap_or(SEEDS);
    let began = sys::real_elapsed();
    let (mut done, mut steps, mut failed) = (0_u64, 0_u64, Vec::new());
    let wanted = (first..first + count).map(Wanted::seed);
    children
        .run(wanted, |report| {
            done += 1;
            steps += report.steps;
            if !report.problems.is_empty() {
                println!("seed {} fails:", report.seed);
                report.problems.iter().for_each(|problem| println!("  {problem}"));
                println!("  its trace is {:?}, in a {BUILD} build", report.trace);
                println!("  again, step by step: {}", again(report.seed, &report.trace));
                failed.push(report.seed);
            }
            if done.is_multiple_of(100) {
                let rate = f64::from(u32::try_from(done).unwrap_or(u32::MAX))
                    / sys::real_elapsed().saturating_sub(began).as_secs_f64();
                println!("{done} of {count} seeds, {rate:.1} a second, {} failed", failed.len());
            }
        })
        .await?;
    let took = sys::real_elapsed().saturating_sub(began).as_secs_f64();
    println!("{count} seeds from {first}, {steps} steps, {took:.1} s; failed: {failed:?}");
    ensure!(failed.is_empty(), "{} seeds fail: {failed:?}", failed.len());
    Ok(())
}

const BUILD: &str = if cfg!(debug_assertions) { "debug" } else { "release" };

/// What runs a seed again in the same program: `make test` builds with the features of the whole workspace, `make simulate` with
/// those of this package, and another build may go another way.
fn again(seed: u64, trace: &str) -> String {
    // One that died has none.
    let trace = if trace.is_empty() { String::new() } else { format!("CROFT_SIMULATION_TRACE={trace} ") };
    if cfg!(debug_assertions) {
        format!("{trace}CROFT_SIMULATION_SEED={seed} cargo test --workspace --test simulation")
    } else {
        format!("{trace}make simulate SEED={seed}")
    }
}

/// The seed again, with all that happens. With `CROFT_SIMULATION_TRACE` it must be that run and no other.
async fn replay(children: &Children, seed: u64) -> Result<()> {
    let wanted = Wanted { is_verbose: true, ..Wanted::seed(seed) };
    let (mut problems, mut trace) = (Vec::new(), String::new());
    children
        .run([wanted], |report| {
            println!("seed {seed}: {} steps, trace {}, in a {BUILD} build", report.steps, report.trace);
            (problems, trace) = (report.problems, report.trace);
        })
        .await?;
    for problem in &problems {
        println!("  {problem}");
    }
    if let Some(expected) = text("CROFT_SIMULATION_TRACE") {
        ensure!(
            trace == expected,
            "this was another run: the trace of seed {seed} is {trace:?} in this {BUILD} build, not {expected:?}; replay it with the \
             program in which it failed"
        );
    }
    ensure!(problems.is_empty(), "seed {seed} fails");
    Ok(())
}

async fn traces(children: &Children, count: u64) -> Result<Vec<String>> {
    let mut traces = vec![String::new(); usize::try_from(count)?];
    let put = |report: children::Report| traces[usize::try_from(report.seed).unwrap_or(0)] = report.trace;
    children.run((0..count).map(Wanted::seed), put).await?;
    Ok(traces)
}

async fn print_traces(children: &Children, count: Option<&String>) -> Result<()> {
    let count = count.context("--traces needs a number")?.parse()?;
    for trace in traces(children, count).await? {
        println!("{trace}");
    }
    Ok(())
}

/// What a harness asks: for a list, for a list of those that are ignored, for one by its name.
fn tests_are_chosen() -> Result<()> {
    let all = TESTS.map(|test| format!("{test}: test\n")).concat();
    for (args, wanted) in [
        (&["--format", "terse"][..], all.as_str()),
        (&["--format", "terse", "--ignored"], ""),
        (&["--exact", "seeds_hold", "--nocapture"], "seeds_hold: test\n"),
        (&["--exact", "seeds"], ""),
        (&["seeds"], "seeds_hold: test\nseeds_replay_exactly: test\n"),
    ] {
        let output = Command::new(std::env::current_exe()?).arg("--list").args(args).output()?;
        let listed = String::from_utf8(output.stdout)?;
        ensure!(output.status.success() && listed == wanted, "--list {args:?} prints {listed:?}");
    }
    Ok(())
}

/// In one process, and in another; and one that goes another way is told.
async fn seeds_replay_exactly(children: &Children) -> Result<()> {
    let first = traces(children, REPLAYED).await?;
    let second = traces(children, REPLAYED).await?;
    ensure!(first == second, "the same seeds differ in one process: {first:?} and {second:?}");
    ensure!(first.windows(2).all(|pair| pair[0] != pair[1]), "different seeds do the same: {first:?}");
    let other = Command::new(std::env::current_exe()?).args(["--traces", &REPLAYED.to_string()]).output()?;
    let other: Vec<String> = String::from_utf8(other.stdout)?.lines().map(str::to_owned).collect();
    ensure!(first == other, "the same seeds differ in another process: {first:?} and {other:?}");
    for (trace, is_same) in [(&first[0], true), (&first[1], false)] {
        let mut again = Command::new(std::env::current_exe()?);
        again.env("CROFT_SIMULATION_SEED", "0").env("CROFT_SIMULATION_TRACE", trace);
        let output = again.output()?;
        let told = String::from_utf8_lossy(&output.stderr).contains("this was another run");
        ensure!((output.status.success(), told) == (is_same, !is_same), "seed 0, which should be {trace}: {output:?}");
    }
    Ok(())
}

/// Each deliberate fault is found, and by an invariant that it breaks.
async fn invariants_can_fail(children: &Children) -> Result<()> {
    let chosen = std::env::var("CROFT_SIMULATION_MUTATION").ok();
    let is_chosen = |mutation: Mutation| chosen.as_ref().is_none_or(|chosen| format!("{mutation:?}") == *chosen);
    for (mutation, invariants) in Mutation::ALL.into_iter().filter(|(mutation, _)| is_chosen(*mutation)) {
        let mut noticed = Vec::new();
        for seed in 0..MUTATED_SEEDS {
            let wanted = Wanted { mutation: Some(mutation), ..Wanted::seed(seed) };
            children.run([wanted], |report| noticed.extend(report.problems)).await?;
            if has_one(&noticed, invariants) {
                break;
            }
        }
        if !has_one(&noticed, invariants) {
            bail!("{mutation:?} was not noticed by {invariants:?} in {MUTATED_SEEDS} seeds; found: {noticed:#?}");
        }
    }
    Ok(())
}

fn has_one(problems: &[String], invariants: &[&str]) -> bool {
    problems.iter().any(|problem| invariants.iter().any(|one| problem.starts_with(&format!("{one}:"))))
}
