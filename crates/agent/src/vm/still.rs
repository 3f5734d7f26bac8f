//! A guest that is held still for an instant, so that all its disks can be kept as they are at that instant.
//!
//! If an agent in the guest answers, its file systems come to rest first. Then the processors stop, and QEMU finishes and
//! flushes what is under way: what the guest was told to be written is on the disks, and nothing is written in between.
//!
//! What we are about to do is written down first. If we are killed on the way, the next start lets the guest go on.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use croft_api::kubevirt::condition;
use croft_api::snapshot::Stillness;
use croft_meta::Chain;
use croft_qemu::qga::Agent;
use croft_qemu::qmp::QmpError;
use serde::{Deserialize, Serialize};

use super::memory;
use super::running::Running;

/// In the machine's directory, while it is held.
const RECORD: &str = "held.json";
/// How soon a guest that could not be thawed is tried again; it hangs meanwhile.
const THAW_AGAIN: Duration = Duration::from_secs(1);
const THAW_ATTEMPTS: u32 = 120;

#[derive(Debug, thiserror::Error)]
pub(crate) enum StillError {
    #[error("cannot write down that the machine is held still at {}", path.display())]
    Record {
        path: PathBuf,
        #[source]
        err: std::io::Error,
    },
    #[error("QEMU cannot hold the guest still")]
    Stop(#[source] QmpError),
    /// It is tried again by whoever finds the machine next.
    #[error("QEMU cannot let the guest go on")]
    Continue(#[source] QmpError),
}

/// What must be undone.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) is_frozen: bool,
    /// Its memory is being written, which goes on when we are gone.
    #[serde(default)]
    pub(super) is_saving: bool,
}

impl Record {
    pub(super) fn write(&self, path: &Path) -> Result<(), StillError> {
        let text = serde_json::to_vec(self).unwrap_or_default();
        std::fs::write(path, text).map_err(|err| StillError::Record { path: path.to_owned(), err })
    }
}

impl Running {
    pub(super) fn record(&self) -> PathBuf {
        self.dir().join(RECORD)
    }

    pub(super) fn has_agent(&self) -> bool {
        let is_connected = |found: &croft_api::kubevirt::VirtualMachineInstanceCondition| {
            found.type_ == condition::AGENT_CONNECTED && found.status == "True"
        };
        self.guest().conditions.iter().any(is_connected)
    }

    /// Does something while nothing is written to the machine's disks. `patience` is for the guest's file systems; if they do
    /// not come to rest in time, it goes on without. It is done to the end, even if nobody waits for it.
    pub(crate) async fn hold_still<T: Send + 'static>(
        self: Arc<Self>,
        patience: Duration,
        instant: impl FnOnce() -> T + Send + 'static,
    ) -> Result<(T, Stillness), StillError> {
        let held = tokio::spawn(async move { self.hold(patience, instant).await });
        match held.await {
            Ok(outcome) => outcome,
            // It panicked, which is a bug that must be seen; the task is not cancelled.
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }

    async fn hold<T: Send + 'static>(
        self: Arc<Self>,
        patience: Duration,
        instant: impl FnOnce() -> T + Send + 'static,
    ) -> Result<(T, Stillness), StillError> {
        let _turn = self.turn.lock().await;
        let status = self.qmp().status().await.map_err(StillError::Stop)?;
        let mut stillness = Stillness { is_running: true, has_agent: self.has_agent(), ..Stillness::default() };
        if !status.running {
            // Nothing is written by a guest that stands, and whoever stopped it lets it go on.
            stillness.is_paused = true;
            return Ok((on_a_thread(instant).await, stillness));
        }
        // Somebody else may have brought it to rest, who also lets it go.
        let is_frozen_already = self.guest().fs_freeze_status.as_deref() == Some("frozen");
        let freezes = stillness.has_agent && !is_frozen_already && !patience.is_zero();
        let path = self.record();
        Record { is_frozen: freezes, is_saving: false }.write(&path)?;
        stillness.is_frozen = is_frozen_already || (freezes && self.freeze(patience).await);
        let outcome = self.stand(instant).await;
        // One that could not be let go is found by its record.
        let done_with = (!matches!(outcome, Err(StillError::Continue(_)))).then_some(path);
        if freezes {
            thaw(Arc::clone(self.agent()), done_with).await;
        } else if let Some(path) = done_with {
            forget(&path);
        }
        let (done, pause) = outcome?;
        stillness.pause_ms = (pause.as_secs_f64() * 10_000.0).round() / 10.0;
        Ok((done, stillness))
    }

    async fn freeze(&self, patience: Duration) -> bool {
        match tokio::time::timeout(patience, self.agent().freeze()).await {
            Ok(Ok(_)) => true,
            Ok(Err(error)) => {
                tracing::warn!(machine = self.name, error = %Chain(&error), "the guest's file systems cannot come to rest");
                false
            }
            Err(_) => {
                tracing::warn!(machine = self.name, ?patience, "the guest's file systems do not come to rest in time");
                false
            }
        }
    }

    /// Stops the guest, does it, and lets the guest go on, whatever happened.
    async fn stand<T: Send + 'static>(
        &self,
        instant: impl FnOnce() -> T + Send + 'static,
    ) -> Result<(T, Duration), StillError> {
        self.is_held.store(true, Ordering::Release);
        let began = Instant::now();
        let done = match self.qmp().stop().await {
            Ok(()) => Ok(tokio::task::spawn_blocking(instant).await),
            Err(error) => Err(StillError::Stop(error)),
        };
        let went_on = self.qmp().cont().await;
        let pause = began.elapsed();
        self.is_held.store(false, Ordering::Release);
        went_on.map_err(StillError::Continue)?;
        Ok((done?.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic())), pause))
    }

    /// Whether the machine was held when we were killed, and stands still.
    pub(super) fn was_held(&self) -> bool {
        self.record().exists()
    }

    /// Undoes what was left half done.
    pub(super) async fn release(&self) -> Result<(), QmpError> {
        memory::go_on(self.qmp()).await?;
        let path = self.record();
        let record: Record = std::fs::read(&path)
            .ok()
            .and_then(|text| serde_json::from_slice(&text).ok())
            // Half written: nobody knows.
            .unwrap_or(Record { is_frozen: true, is_saving: true });
        if record.is_frozen {
            // The agent may take its time.
            tokio::spawn(thaw(Arc::clone(self.agent()), Some(path)));
        } else {
            forget(&path);
        }
        Ok(())
    }
}

/// Lets the guest's file systems go. A guest that does not hear it is told again for a while, and no one waits.
async fn thaw(agent: Arc<Agent>, record: Option<PathBuf>) {
    let done = move || record.iter().for_each(|path| forget(path));
    if agent.thaw().await.is_ok() {
        return done();
    }
    tokio::spawn(async move {
        for _ in 0..THAW_ATTEMPTS {
            tokio::time::sleep(THAW_AGAIN).await;
            if agent.thaw().await.is_ok() {
                return done();
            }
        }
        tracing::error!("a guest's file systems could not be thawed");
        done();
    });
}

pub(super) fn forget(record: &Path) {
    match std::fs::remove_file(record) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            tracing::warn!(path = %record.display(), %error, "a record of a machine that was held is left");
        }
        _ => {}
    }
}

async fn on_a_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}
