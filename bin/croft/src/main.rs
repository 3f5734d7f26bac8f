//! The `croft` program: wiring only, everything lives in `croft-cli`.

use std::process::ExitCode;

fn main() -> ExitCode {
    croft_cli::run()
}
