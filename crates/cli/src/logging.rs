//! Where log lines go and what they look like.

use std::fmt;
use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::writer::MakeWriterExt;
use tracing_subscriber::reload::Handle;

use crate::options::LogFormat;
use crate::recent_log::RecentLog;

/// What is logged, which may be changed while the program runs.
pub(crate) struct Filter {
    /// What the start chose.
    directives: String,
    change: Box<dyn Fn(EnvFilter) -> Result<(), String> + Send + Sync>,
}

impl fmt::Debug for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Filter").field("directives", &self.directives).finish_non_exhaustive()
    }
}

impl Filter {
    fn new<S: 'static>(directives: String, handle: Handle<EnvFilter, S>) -> Self {
        let change = move |filter| handle.reload(filter).map_err(|error| error.to_string());
        Self { directives, change: Box::new(change) }
    }

    /// A level by Harvester's name; without one, what the start chose.
    pub(crate) fn choose(&self, level: &str) -> Result<(), String> {
        let directives = directives(level).unwrap_or(&self.directives);
        let filter = EnvFilter::try_new(directives).map_err(|error| error.to_string())?;
        (self.change)(filter)
    }
}

/// Nothing here is worse than an error.
fn directives(level: &str) -> Option<&str> {
    match level {
        "panic" | "fatal" | "error" => Some("error"),
        "warn" | "info" | "debug" | "trace" => Some(level),
        _ => None,
    }
}

/// Logs to standard error: for people on a terminal, else as JSON, unless told otherwise. `RUST_LOG` chooses what. The
/// last of it is kept in `recent` too.
pub(crate) fn start(format: Option<LogFormat>, recent: &RecentLog) -> anyhow::Result<Filter> {
    let terminal = std::io::stderr().is_terminal();
    let chosen = std::env::var("RUST_LOG").ok().filter(|directives| !directives.is_empty());
    let directives = chosen.unwrap_or_else(|| "info".to_owned());
    let filter = EnvFilter::try_new(&directives).map_err(|err| anyhow::anyhow!("RUST_LOG={directives:?}: {err}"))?;
    let kept = recent.clone();
    let writer = std::io::stderr.and(move || kept.clone());
    // A line that cannot be written, since the disk of the log is full, is lost; complaining on standard error would panic.
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer).log_internal_errors(false);
    let default = if terminal { LogFormat::Human } else { LogFormat::Json };
    let (started, filter) = match format.unwrap_or(default) {
        LogFormat::Human => {
            let builder = builder.with_ansi(terminal).with_target(false).with_filter_reloading();
            let filter = Filter::new(directives, builder.reload_handle());
            (builder.try_init(), filter)
        }
        LogFormat::Json => {
            let builder = builder.json().flatten_event(true).with_filter_reloading();
            let filter = Filter::new(directives, builder.reload_handle());
            (builder.try_init(), filter)
        }
    };
    started.map_err(|err| anyhow::anyhow!("cannot start logging: {err}"))?;
    Ok(filter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn harvesters_levels_are_known() {
        for (level, expected) in [("panic", Some("error")), ("trace", Some("trace")), ("", None), ("loud", None)] {
            assert_eq!(directives(level), expected, "{level}");
        }
    }
}
