//! What a guest does with a NoCloud or ConfigDrive seed: a small part of cloud-init, enough for tests.
//! What it cannot do it says on the standard error, and never ignores in silence.

pub mod accounts;
pub mod files;
pub mod network;
pub mod seed;

use std::io::Write;
use std::process::{Command, Stdio};

/// Runs a program, and says so when it fails; the guest then goes on with what it can do.
pub fn execute(program: &str, arguments: &[&str]) -> bool {
    match Command::new(program).args(arguments).stdin(Stdio::null()).status() {
        Ok(status) if status.success() => true,
        Ok(status) => {
            eprintln!("cloud-config: {program} {}: {status}", arguments.join(" "));
            false
        }
        Err(error) => {
            eprintln!("cloud-config: {program}: {error}");
            false
        }
    }
}

/// Runs a program with text on its standard input.
pub fn execute_with(program: &str, arguments: &[&str], input: &str) {
    let child = Command::new(program).args(arguments).stdin(Stdio::piped()).spawn();
    let done = child.and_then(|mut child| {
        if let Some(mut stdin) = child.stdin.take() {
            stdin.write_all(input.as_bytes())?;
        }
        child.wait()
    });
    match done {
        Ok(status) if status.success() => {}
        Ok(status) => eprintln!("cloud-config: {program}: {status}"),
        Err(error) => eprintln!("cloud-config: {program}: {error}"),
    }
}

/// Says what failed, if it failed.
pub fn report(what: &str, result: std::io::Result<()>) {
    if let Err(error) = result {
        eprintln!("cloud-config: {what}: {error}");
    }
}
