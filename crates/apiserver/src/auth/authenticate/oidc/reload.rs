//! Reads the file again when it changes. A version that is no good changes nothing.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use croft_meta::field::join_errors;
use croft_meta::{Chain, FieldError, FieldPath};
use tokio_util::sync::CancellationToken;

use super::Issuers;
use super::config::{AuthenticationConfig, AuthenticationConfigError, ConfigFile};

const LOOK: Duration = Duration::from_secs(1);

/// What changes with the content of a file: the file itself where it is replaced, its times and its length where it is written.
type Mark = (u64, u64, i64, i64, u64);

fn mark(path: &Path) -> Option<Mark> {
    let file = std::fs::metadata(path).ok()?;
    Some((file.dev(), file.ino(), file.mtime(), file.mtime_nsec(), file.len()))
}

/// Until `stop`.
pub(super) async fn follow(issuers: Arc<Issuers>, file: ConfigFile, stop: CancellationToken) {
    let ConfigFile { path, mut text } = file;
    // What it was before it was read is not known: the first look reads it.
    let mut seen = None;
    loop {
        tokio::select! {
            () = tokio::time::sleep(LOOK) => {}
            () = stop.cancelled() => return,
        }
        let place = path.clone();
        let now = tokio::task::spawn_blocking(move || mark(&place)).await.ok().flatten();
        if seen == Some(now) {
            continue;
        }
        let place = path.clone();
        let read = tokio::task::spawn_blocking(move || super::config_file::text(&place)).await;
        seen = Some(now);
        let outcome = match read {
            // A panic is reported by itself.
            Err(_) => continue,
            Ok(Ok(new)) if new == text => continue,
            Ok(Ok(new)) => {
                text = new;
                reload(&issuers, &text)
            }
            Ok(Err(error)) => Err(error),
        };
        issuers.metrics.reloaded(outcome.is_ok().then_some(text.as_str()));
        match outcome {
            Ok(count) => {
                tracing::info!(file = %path.display(), issuers = count, "read the authentication configuration again");
            }
            Err(error) => tracing::error!(
                file = %path.display(),
                reason = %Chain(&error),
                "the authentication configuration has changed and cannot be used; the one before stays"
            ),
        }
    }
}

fn reload(issuers: &Arc<Issuers>, text: &str) -> Result<usize, AuthenticationConfigError> {
    let config = AuthenticationConfig::parse(text)?;
    if config.anonymous != issuers.anonymous {
        // Upstream's rule: who needs no credentials is not to change under a running server.
        let error = FieldError::forbidden(&FieldPath::new("anonymous"), "changed from initial configuration file");
        return Err(AuthenticationConfigError::Fields(join_errors(&[error])));
    }
    let count = config.issuers.len();
    issuers.replace(&config).map_err(|error| AuthenticationConfigError::Fields(Chain(&error).to_string()))?;
    Ok(count)
}
