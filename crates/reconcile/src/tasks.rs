//! Tasks that nobody may lose sight of.

use std::future::Future;

use tokio::task::{AbortHandle, JoinError, JoinSet};

/// A set of tasks. They end with it. One that panics takes the process with it: going on without a controller would be
/// worse, as nobody would notice.
#[derive(Debug, Default)]
pub struct Tasks(JoinSet<()>);

impl Tasks {
    pub fn spawn(&mut self, task: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        self.0.spawn(task)
    }

    /// Waits until a task has ended; forever if there is none. Cancel-safe.
    pub async fn watch_over(&mut self) {
        match self.0.join_next().await {
            Some(ended) => check(ended),
            None => std::future::pending().await,
        }
    }

    /// Waits until all have ended.
    pub async fn finish(mut self) {
        while let Some(ended) = self.0.join_next().await {
            check(ended);
        }
    }
}

fn check(ended: Result<(), JoinError>) {
    let Err(error) = ended else { return };
    if error.is_panic() {
        tracing::error!(%error, "a controller panicked; stopping");
        std::process::abort();
    }
}
