//! The `croft` subcommands and their output.

use std::process::ExitCode;

/// Runs the program with the arguments of this process.
pub fn run() -> ExitCode {
    ExitCode::SUCCESS
}
