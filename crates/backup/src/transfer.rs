//! How blocks are moved: how many at once, how fast, who is told, and who may stop it.

use std::fmt;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::stream::{self, StreamExt, TryStreamExt};
use tokio_util::sync::CancellationToken;

use crate::error::Error;
use crate::pace::Pace;

/// All blocks in work together, in each of the forms in which they are held (as they are, packed, sealed).
const MEMORY: u64 = 48 << 20;
const FORMS: u64 = 3;
const MOST_AT_ONCE: u64 = 16;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Of the disk, in bytes: what is done with, and what there is to do.
    pub done: u64,
    pub total: u64,
    /// What went over the wire, after compression.
    pub transferred: u64,
}

pub type ProgressFn = Arc<dyn Fn(Progress) + Send + Sync>;

#[derive(Clone)]
pub struct Transfer {
    /// How many blocks at once; fewer if they are so large that it would take too much memory.
    pub parallel: u64,
    pub bytes_per_second: Option<NonZeroU64>,
    /// Called after every block: it must not wait for anything.
    pub progress: Option<ProgressFn>,
    pub cancel: CancellationToken,
}

impl Default for Transfer {
    fn default() -> Self {
        Self { parallel: 4, bytes_per_second: None, progress: None, cancel: CancellationToken::new() }
    }
}

impl fmt::Debug for Transfer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Transfer");
        shown
            .field("parallel", &self.parallel)
            .field("bytes_per_second", &self.bytes_per_second)
            .finish_non_exhaustive()
    }
}

/// A transfer under way.
pub(crate) struct Run<'a> {
    transfer: &'a Transfer,
    pub(crate) pace: Pace,
    total: u64,
    done: AtomicU64,
    transferred: AtomicU64,
}

impl<'a> Run<'a> {
    pub(crate) fn new(transfer: &'a Transfer, total: u64) -> Self {
        let (done, transferred) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { transfer, pace: Pace::new(transfer.bytes_per_second), total, done, transferred }
    }

    /// Works on all items, several at once, until one fails or it is cancelled.
    pub(crate) async fn each<T, F>(
        &self,
        items: impl IntoIterator<Item = T>,
        block_size: u64,
        work: impl Fn(T) -> F,
    ) -> Result<(), Error>
    where
        F: Future<Output = Result<(), Error>>,
    {
        let most = (MEMORY / FORMS / block_size.max(1)).clamp(1, MOST_AT_ONCE);
        let at_once = usize::try_from(self.transfer.parallel.clamp(1, most)).unwrap_or(1);
        let all = stream::iter(items).map(work).buffer_unordered(at_once).try_for_each(|()| async { Ok(()) });
        tokio::select! {
            biased;
            () = self.transfer.cancel.cancelled() => Err(Error::Cancelled),
            done = all => done,
        }
    }

    pub(crate) fn add(&self, done: u64, transferred: usize) {
        let transferred = transferred as u64;
        let done = self.done.fetch_add(done, Ordering::Relaxed) + done;
        let transferred = self.transferred.fetch_add(transferred, Ordering::Relaxed) + transferred;
        if let Some(progress) = &self.transfer.progress {
            progress(Progress { done, total: self.total, transferred });
        }
    }

    pub(crate) fn transferred(&self) -> u64 {
        self.transferred.load(Ordering::Relaxed)
    }
}

/// Runs what waits for a disk or a processor on a thread of its own.
pub(crate) async fn on_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    tokio::task::spawn_blocking(work).await.unwrap_or(Err(Error::Panicked))
}
