//! Open watches: history from the file, then what the writer hands over, with nothing lost or repeated between.
//!
//! The writer publishes under the same lock that a watch registers under. At that instant the newest published
//! revision splits the two: everything up to it is in the file, everything after it comes through the buffer.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use croft_meta::Revision;
use futures::stream::{self, BoxStream, StreamExt};
use parking_lot::Mutex;
use tokio::sync::mpsc;

use super::Shared;
use super::queue::closed;
use crate::{Error, Event, Result, WatchItem};

/// Values are shared with the other watchers, but a watcher that stands still keeps them alive.
const BUFFER_BYTES: usize = 64 * 1024 * 1024;

/// The changes of one committed transaction.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) revision: Revision,
    pub(super) events: Vec<Event>,
}

#[derive(Debug)]
pub(super) struct Watchers {
    /// `None` once closed.
    open: Mutex<Option<Vec<Watcher>>>,
    revision: AtomicU64,
    buffer: usize,
}

#[derive(Debug)]
struct Watcher {
    prefix: String,
    items: mpsc::Sender<WatchItem>,
    backlog: Arc<Backlog>,
}

/// How much a watcher has not read yet.
#[derive(Debug, Default)]
struct Backlog {
    bytes: AtomicUsize,
    overflown: AtomicBool,
}

impl Watchers {
    pub(super) fn new(revision: Revision, buffer: usize) -> Self {
        Self { open: Mutex::new(Some(Vec::new())), revision: AtomicU64::new(revision.0), buffer }
    }

    pub(super) fn revision(&self) -> Revision {
        Revision(self.revision.load(Ordering::Acquire))
    }

    pub(super) fn count(&self) -> usize {
        self.open.lock().as_ref().map_or(0, |open| open.iter().filter(|watcher| !watcher.items.is_closed()).count())
    }

    pub(super) fn close(&self) {
        self.open.lock().take();
    }

    /// Makes commits visible: to `revision`, and to every watch. Returns how many watches were cut off.
    pub(super) fn publish(&self, changes: &[Change]) -> u64 {
        let Some(newest) = changes.last() else { return 0 };
        let mut cut = 0;
        let mut open = self.open.lock();
        self.revision.store(newest.revision.0, Ordering::Release);
        let Some(open) = open.as_mut() else { return 0 };
        open.retain(|watcher| {
            let kept = changes.iter().all(|change| watcher.offer(change));
            cut += u64::from(watcher.backlog.overflown.load(Ordering::Relaxed));
            kept
        });
        cut
    }

    pub(super) fn send_progress(&self) {
        let mut open = self.open.lock();
        let Some(open) = open.as_mut() else { return };
        let progress = WatchItem::Progress(self.revision());
        open.retain(|watcher| {
            !matches!(watcher.items.try_send(progress.clone()), Err(mpsc::error::TrySendError::Closed(_)))
        });
    }

    fn register(&self, prefix: &str, after: Revision) -> Result<(Live, Revision)> {
        let mut open = self.open.lock();
        let open = open.as_mut().ok_or_else(closed)?;
        let newest = self.revision();
        if after > newest {
            return Err(Error::Future { requested: after, newest });
        }
        open.retain(|watcher| !watcher.items.is_closed());
        let (sender, items) = mpsc::channel(self.buffer);
        let backlog = Arc::new(Backlog::default());
        open.push(Watcher { prefix: prefix.to_owned(), items: sender, backlog: Arc::clone(&backlog) });
        Ok((Live { items, backlog }, newest))
    }
}

impl Watcher {
    /// False when this watch is over.
    fn offer(&self, change: &Change) -> bool {
        let events: Vec<Event> =
            change.events.iter().filter(|event| event.key.starts_with(&self.prefix)).cloned().collect();
        if events.is_empty() {
            return true;
        }
        let size = size_of_events(&events);
        let waiting = self.backlog.bytes.fetch_add(size, Ordering::Relaxed);
        let is_full = waiting > 0 && waiting + size > BUFFER_BYTES;
        if !is_full {
            match self.items.try_send(WatchItem::Events(events)) {
                Ok(()) => return true,
                Err(mpsc::error::TrySendError::Closed(_)) => return false,
                Err(mpsc::error::TrySendError::Full(_)) => {}
            }
        }
        self.backlog.overflown.store(true, Ordering::Relaxed);
        false
    }
}

fn size_of_events(events: &[Event]) -> usize {
    events.iter().map(|event| event.key.len() + event.value.as_ref().map_or(0, bytes::Bytes::len)).sum()
}

#[derive(Debug)]
struct Live {
    items: mpsc::Receiver<WatchItem>,
    backlog: Arc<Backlog>,
}

impl Live {
    async fn next(&mut self) -> Result<WatchItem> {
        let Some(item) = self.items.recv().await else {
            let overflown = self.backlog.overflown.load(Ordering::Relaxed);
            return Err(if overflown { Error::Lagged } else { closed() });
        };
        if let WatchItem::Events(events) = &item {
            self.backlog.bytes.fetch_sub(size_of_events(events), Ordering::Relaxed);
        }
        Ok(item)
    }
}

/// Where a stream is.
#[derive(Debug)]
enum Stage {
    /// Reading the file, page by page, up to and including `until`.
    History {
        page: VecDeque<WatchItem>,
        at: Revision,
        until: Revision,
    },
    Live,
    Over,
}

struct Stream {
    shared: Arc<Shared>,
    prefix: String,
    live: Live,
    stage: Stage,
}

pub(super) fn open(
    shared: Arc<Shared>,
    prefix: String,
    after: Revision,
) -> Result<BoxStream<'static, Result<WatchItem>>> {
    let (live, until) = shared.watchers.register(&prefix, after)?;
    let oldest = shared.compacted();
    if after < oldest {
        return Err(Error::Compacted { requested: after, oldest });
    }
    let stage = Stage::History { page: VecDeque::new(), at: after, until };
    let stream = Stream { shared, prefix, live, stage };
    Ok(stream::unfold(stream, |mut stream| async move {
        let item = stream.next().await?;
        Some((item, stream))
    })
    .boxed())
}

impl Stream {
    async fn next(&mut self) -> Option<Result<WatchItem>> {
        let item = loop {
            match &mut self.stage {
                Stage::Over => return None,
                Stage::Live => break self.live.next().await,
                Stage::History { page, at, until } => {
                    if let Some(item) = page.pop_front() {
                        break Ok(item);
                    }
                    if at >= until {
                        let until = *until;
                        self.stage = Stage::Live;
                        break Ok(WatchItem::Progress(until));
                    }
                    let (shared, prefix) = (Arc::clone(&self.shared), self.prefix.clone());
                    match super::read::history(shared, prefix, *at, *until).await {
                        Ok(read) => (*page, *at) = (read.items, read.reached),
                        Err(err) => break Err(err),
                    }
                }
            }
        };
        if item.is_err() {
            self.stage = Stage::Over;
        }
        Some(item)
    }
}
