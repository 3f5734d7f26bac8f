//! Volumes and the backup target.
//!
//! - `send` brings snapshots of classes that say so into the target;
//! - `fetch` makes the files of volumes from what is there, `backing` those of images;
//! - `target` opens the target, and says how fast and how it is written to.
//!
//! Both may take hours, so that they have a loop of their own, with few workers. Names follow from the uids of objects: whoever
//! is killed finds what was begun and goes on with it.

mod backing;
mod fetch;
mod send;
mod target;

use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use croft_api::longhorn;
use croft_api::snapshot::VolumeSnapshotContent;
use croft_backup::{Opener, Progress, ProgressFn};
use croft_meta::Chain;
use croft_reconcile::{Error, Key, Keys, Loop, Received};
use kube::ResourceExt;
use parking_lot::Mutex;
use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;

use super::{Inner, Work};

/// How many disks are on their way at a time.
const AT_ONCE: usize = 2;
/// How often it is told how far they are.
const TELL: Duration = Duration::from_secs(1);
/// On a content: the backup that it becomes.
pub(super) const BACKUP: &str = "croft.io/backup";

/// A disk that is to be moved.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Move {
    /// The content of this name.
    Send(String),
    /// For this claim.
    Fetch(Key),
}

/// What moves, or is to.
pub(super) struct Moves {
    keys: Keys<Move>,
    received: Mutex<Option<Received<Move>>>,
    /// In the loop, which comes back to what failed by itself.
    asked: Mutex<HashSet<Move>>,
    running: Mutex<HashMap<Move, CancellationToken>>,
    opener: OnceCell<Opener>,
}

impl fmt::Debug for Moves {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Moves").finish_non_exhaustive()
    }
}

impl Default for Moves {
    fn default() -> Self {
        let (keys, received) = Keys::channel();
        Self {
            keys,
            received: Mutex::new(Some(received)),
            asked: Mutex::default(),
            running: Mutex::default(),
            opener: OnceCell::new(),
        }
    }
}

impl Moves {
    /// Asking again changes nothing: what failed is not tried sooner for being looked at.
    pub(super) async fn want(&self, what: Move) {
        if self.asked.lock().insert(what.clone()) {
            self.keys.send(what, Duration::ZERO).await;
        }
    }

    fn over(&self, what: &Move) {
        self.asked.lock().remove(what);
    }

    fn begin(&self, what: Move) -> Running<'_> {
        let token = CancellationToken::new();
        self.running.lock().insert(what.clone(), token.clone());
        Running { moves: self, what, token }
    }

    /// Whether it was under way. It ends soon; until then its objects must stay.
    pub(super) fn stop(&self, what: &Move) -> bool {
        let running = self.running.lock();
        let found = running.get(what);
        if let Some(token) = found {
            token.cancel();
        }
        found.is_some()
    }
}

/// Something that is under way, until this is dropped.
struct Running<'a> {
    moves: &'a Moves,
    what: Move,
    token: CancellationToken,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.moves.running.lock().remove(&self.what);
    }
}

/// Why something was not moved.
#[derive(Debug)]
enum Stop {
    Api(kube::Error),
    /// Nobody wants it any more.
    Cancelled,
    /// In words for the user. It may pass.
    Because(String),
}

impl From<kube::Error> for Stop {
    fn from(error: kube::Error) -> Self {
        Self::Api(error)
    }
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        match error {
            Error::Api(error) => Self::Api(error),
            Error::NotYet(why) => Self::Because(why),
        }
    }
}

impl From<croft_backup::Error> for Stop {
    fn from(error: croft_backup::Error) -> Self {
        match error {
            croft_backup::Error::Cancelled => Self::Cancelled,
            error => Self::Because(Chain(&error).to_string()),
        }
    }
}

/// How far a transfer is.
#[derive(Clone, Default)]
struct Gauge(Arc<Mutex<Progress>>);

impl Gauge {
    fn hand(&self) -> ProgressFn {
        let gauge = Arc::clone(&self.0);
        Arc::new(move |now| *gauge.lock() = now)
    }

    fn now(&self) -> Progress {
        *self.0.lock()
    }

    /// Tells of it every so often, for ever. What cannot be told is told the next time.
    async fn watch<F: Future<Output = ()>>(&self, mut tell: impl FnMut(u64, u64) -> F) -> Infallible {
        let started = tokio::time::Instant::now();
        let mut told = None;
        loop {
            tokio::time::sleep(TELL).await;
            let now = self.now();
            let seconds = started.elapsed().as_secs().max(1);
            let figures = (percent(now), now.transferred / seconds);
            if told != Some(figures) {
                told = Some(figures);
                tell(figures.0, figures.1).await;
            }
        }
    }
}

fn percent(progress: Progress) -> u64 {
    let share = u128::from(progress.done) * 100 / u128::from(progress.total.max(1));
    u64::try_from(share).unwrap_or(100).min(100)
}

/// The backup that a content of ours becomes.
pub(super) fn backup_of(content: &VolumeSnapshotContent) -> Option<&str> {
    content.annotations().get(BACKUP).map(String::as_str)
}

/// The volume and the backup in the target that a content stands for.
pub(super) fn in_target(content: &VolumeSnapshotContent) -> Option<(String, String)> {
    let handle = content.status.as_ref().and_then(|status| status.snapshot_handle.as_deref());
    let handle = handle.or(content.spec.source.snapshot_handle.as_deref())?;
    longhorn::parse_handle(handle).map(|(volume, backup)| (volume.to_owned(), backup.to_owned()))
}

fn is_ready(content: &VolumeSnapshotContent) -> bool {
    content.status.as_ref().and_then(|status| status.ready_to_use) == Some(true)
}

/// Whether it is yet to be sent.
pub(super) fn waits_to_be_sent(content: &VolumeSnapshotContent) -> bool {
    backup_of(content).is_some() && !is_ready(content)
}

impl Inner {
    /// Moves disks until `stop`.
    pub(super) async fn move_disks(self: Arc<Self>, keys: Keys<Work>, stop: CancellationToken) {
        let Some(received) = self.moves.received.lock().take() else { return };
        let work = Loop { name: "backups of volumes", workers: AT_ONCE, stop };
        let moved = |what: Move| {
            let (inner, keys) = (Arc::clone(&self), keys.clone());
            async move {
                let moved = match &what {
                    Move::Send(name) => Box::pin(inner.send(name)).await,
                    Move::Fetch(key) => Box::pin(inner.fetch(key, &keys)).await,
                };
                if moved.is_ok() {
                    inner.moves.over(&what);
                }
                moved
            }
        };
        work.run(received, async {}, moved).await;
    }
}

/// What stopped it, for the loop.
fn again(stop: Stop) -> Result<(), Error> {
    match stop {
        Stop::Api(error) => Err(error.into()),
        Stop::Cancelled => Ok(()),
        Stop::Because(why) => Err(Error::NotYet(why)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_of_what_there_is_to_do() {
        let progress = |done, total| Progress { done, total, transferred: 0 };
        assert_eq!(percent(Progress::default()), 0);
        assert_eq!(percent(progress(1 << 62, 1 << 63)), 50);
        assert_eq!(percent(progress(3, 3)), 100);
    }

    #[test]
    fn what_is_under_way_can_be_stopped_and_is_forgotten() {
        let moves = Moves::default();
        let what = Move::Send("c".to_owned());
        assert!(!moves.stop(&what));
        let running = moves.begin(what.clone());
        assert!(moves.stop(&what) && running.token.is_cancelled());
        drop(running);
        assert!(!moves.stop(&what));
    }
}
