//! How blocks are moved: how many at once, how fast, who is told, and who may stop it.

use std::fmt;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::stream::{self, StreamExt, TryStreamExt};
use tokio_util::sync::CancellationToken;

use crate::error::Error;
use crate::pace::Pace;

/// All blocks in work together, as they are on the disk. Packed they are held once more, and sealed for a moment a third time.
const MEMORY: u64 = 32 << 20;
/// At most so many go through together, since so many are hashed side by side.
const BATCH: u64 = croft_sha512::LANES as u64;

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
        Self { parallel: 16, bytes_per_second: None, progress: None, cancel: CancellationToken::new() }
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

    /// Works on all items, some together and several such at once, until one fails or it is cancelled.
    pub(crate) async fn each<T: Clone, F>(
        &self,
        items: &[T],
        block_size: u64,
        work: impl Fn(Vec<T>) -> F,
    ) -> Result<(), Error>
    where
        F: Future<Output = Result<(), Error>>,
    {
        let blocks = self.transfer.parallel.clamp(1, (MEMORY / block_size.max(1)).max(1));
        // While some are packed, others are read or sent. Who is slowed down shall not send in bursts.
        let together = if self.transfer.bytes_per_second.is_some() { 1 } else { (blocks / 2).clamp(1, BATCH) };
        let at_once = blocks / together;
        let size = |count: u64| usize::try_from(count).unwrap_or(1);
        let batches: Vec<Vec<T>> = items.chunks(size(together)).map(<[T]>::to_vec).collect();
        let all = stream::iter(batches).map(work).buffer_unordered(size(at_once));
        let all = all.try_for_each(|()| async { Ok(()) });
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
