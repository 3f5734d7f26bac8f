//! Checks that cargo cannot make by itself: `cargo xtask check`, or one of them by name.

use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};

mod conformance;
mod layers;
mod text;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(err) => {
            eprintln!("xtask: {err:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let problems = match std::env::args().nth(1).as_deref() {
        Some("check") => [layers::check()?, text::check()?, conformance::check()?].concat(),
        Some("check-layers") => layers::check()?,
        Some("check-text") => text::check()?,
        Some("check-conformance") => conformance::check()?,
        Some("conformance") => conformance::write()?,
        _ => bail!("usage: cargo xtask check | check-layers | check-text | check-conformance | conformance"),
    };
    for problem in &problems {
        println!("{problem}");
    }
    if !problems.is_empty() {
        bail!("{} problems", problems.len());
    }
    Ok(())
}

/// Standard output of a program that must succeed.
fn output(program: &str, args: &[&str]) -> Result<String> {
    let output = Command::new(program).args(args).output().with_context(|| format!("cannot run {program}"))?;
    if !output.status.success() {
        bail!("{program} {}: {}", args.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    String::from_utf8(output.stdout).with_context(|| format!("{program} printed something that is not text"))
}
