//! Where log lines go and what they look like.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

use crate::options::LogFormat;

/// Logs to standard error: for people on a terminal, else as JSON, unless told otherwise. `RUST_LOG` chooses what.
pub(crate) fn start(format: Option<LogFormat>) -> anyhow::Result<()> {
    let terminal = std::io::stderr().is_terminal();
    let filter = match std::env::var("RUST_LOG") {
        Ok(directives) if !directives.is_empty() => {
            EnvFilter::try_new(&directives).map_err(|err| anyhow::anyhow!("RUST_LOG={directives:?}: {err}"))?
        }
        _ => EnvFilter::new("info"),
    };
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let default = if terminal { LogFormat::Human } else { LogFormat::Json };
    let started = match format.unwrap_or(default) {
        LogFormat::Human => builder.with_ansi(terminal).with_target(false).try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
    started.map_err(|err| anyhow::anyhow!("cannot start logging: {err}"))
}
