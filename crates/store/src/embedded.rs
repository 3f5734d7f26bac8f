//! The embedded engine: SQLite in one directory, for one process.
//!
//! - [`writer`]: the one thread that writes, many transactions per flush to the disk
//! - [`watch`]: history from the file, then live changes, without a gap or a repeat
//! - [`read`]: reads on blocking threads, each in one snapshot
//! - [`compaction`]: forgetting in small steps, and at times for good; [`checkpoint`]: emptying the write-ahead log beside the writer
//! - [`inspect`]: how the file is, and what of it is damaged; [`salvage`]: what can still be read of it
//! - [`moved`]: a store whose objects are elsewhere by now
//! - [`restore`]: a new directory from what was saved elsewhere
//! - [`health`]: from writable to read-only, and back when a full disk has room again
//!
//! No values are kept in memory, nor an index of them: the lookup that a condition needs reads the very page that
//! the write is about to change.

mod apply;
mod checkpoint;
mod compaction;
mod health;
mod inspect;
mod leases;
mod lock;
mod moved;
mod queue;
mod read;
mod restore;
mod salvage;
mod schema;
mod watch;
mod writer;

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use croft_meta::Revision;
use futures::future::{BoxFuture, FutureExt};
use futures::stream::BoxStream;
use parking_lot::Mutex;
use tokio::sync::oneshot;

pub use compaction::Retention;
pub use inspect::check;
pub use lock::DirLock;
pub use moved::{Moved, mark_arrived, mark_moved, moved, origin};
pub use restore::{AHEAD, Restoring, after_restoring};
pub use salvage::{Salvaged, salvage};

use crate::stats::Counters;
use crate::txn::check_key;
use crate::{
    Error, History, LeaseId, Limits, Range, RangeResult, Record, Result, Stats, Status, Store, Txn, TxnResult,
    WatchItem,
};
use compaction::{Schedule, Sweeper};
use health::Health;
use leases::Leases;
use queue::{Command, Queue, closed};
use read::Readers;
use watch::Watchers;
use writer::Writer;

/// Room for everything that the API server writes at once, and then some.
const LIMITS: Limits = Limits { ops: 4096, bytes: 32 * 1024 * 1024 };

#[derive(Clone, Copy, Debug)]
pub struct EmbeddedOptions {
    /// How much history to keep by itself; `None` leaves compaction to the caller.
    pub retention: Option<Retention>,
    /// Transactions that a watch may be behind before it is cut off.
    pub watch_buffer: usize,
}

impl Default for EmbeddedOptions {
    fn default() -> Self {
        Self { retention: Some(Retention::default()), watch_buffer: 8192 }
    }
}

/// An open data directory.
#[derive(Debug)]
pub struct Embedded {
    shared: Arc<Shared>,
    writer: Arc<Mutex<Option<JoinHandle<()>>>>,
}

/// What the engine's threads have in common.
#[derive(Debug)]
struct Shared {
    path: PathBuf,
    queue: Queue,
    watchers: Watchers,
    readers: Readers,
    leases: Leases,
    health: Health,
    counters: Counters,
    compacted: AtomicU64,
    /// What was forgotten is to be overwritten as well.
    scrub: AtomicBool,
    /// Who waits for all free space to be given back, however little it is.
    shrink: Mutex<Vec<oneshot::Sender<Result<()>>>>,
    /// As it was last told.
    in_use_bytes: AtomicU64,
    last_compaction: Mutex<Option<String>>,
}

impl Shared {
    fn compacted(&self) -> Revision {
        Revision(self.compacted.load(Ordering::Acquire))
    }

    fn set_compacted(&self, revision: Revision) {
        self.compacted.store(revision.0, Ordering::Release);
        *self.last_compaction.lock() = Some(crate::status::now());
    }

    fn wants_shrinking(&self) -> bool {
        !self.shrink.lock().is_empty()
    }

    /// Tells all who wait for it.
    fn shrunk(&self, outcome: impl Fn() -> Result<()>) {
        for waiting in self.shrink.lock().drain(..) {
            // Who has gone away does not care.
            let _ = waiting.send(outcome());
        }
    }

    /// Of the file and its log.
    fn size_bytes(&self) -> u64 {
        let size = |path: &Path| std::fs::metadata(path).map_or(0, |meta| meta.len());
        size(&self.path) + size(&self.path.with_extension("db-wal"))
    }

    fn check_open(&self) -> Result<()> {
        if self.queue.is_closed() { Err(closed()) } else { Ok(()) }
    }
}

/// Readable by its owner only, wherever it is: it holds Secrets.
fn make_dir(dir: &Path) -> Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(|source| Error::Engine {
        context: format!("cannot make the data directory {}", dir.display()),
        source: source.into(),
    })
}

impl Embedded {
    /// Opens the store in `dir`, making both if need be. Blocks for as long as the write-ahead log takes to read.
    pub fn open(dir: &Path, options: EmbeddedOptions) -> Result<Arc<Self>> {
        let writer = Self::prepare(dir, options)?;
        let shared = Arc::clone(&writer.shared);
        let thread = std::thread::Builder::new()
            .name("store-writer".to_owned())
            .spawn(move || writer.run())
            .map_err(|err| Error::Engine { context: "cannot start a thread".to_owned(), source: err.into() })?;
        Ok(Arc::new(Self { shared, writer: Arc::new(Mutex::new(Some(thread))) }))
    }

    /// All but the thread.
    fn prepare(dir: &Path, options: EmbeddedOptions) -> Result<Writer> {
        make_dir(dir)?;
        let lock = DirLock::take(dir)?;
        moved::refuse_moved(dir)?;
        let path = dir.join(schema::FILE);
        inspect::refuse_damaged(&path)?;
        let connection = schema::open_writer(&path)?;
        schema::check_format(&connection, &path)?;
        let now = Instant::now();
        let load = || -> rusqlite::Result<_> {
            let newest = schema::newest(&connection)?;
            let scrub = schema::mark(&connection, schema::SCRUB)? > Revision::ZERO;
            if scrub {
                // It was cut short, perhaps before what is to go was forgotten.
                schema::set_mark(&connection, schema::COMPACTED, newest)?;
            }
            let marks = (schema::mark(&connection, schema::COMPACTED)?, schema::mark(&connection, schema::SWEPT)?);
            Ok((newest, marks, scrub, Leases::load(&connection, now)?))
        };
        let (revision, (compacted, swept), scrub, leases) = load().map_err(|err| schema::open_error(&path, &err))?;
        let next_expiry = leases.next_end();
        let shared = Arc::new(Shared {
            queue: Queue::new(),
            watchers: Watchers::new(revision, options.watch_buffer.max(1)),
            readers: Readers::new(&path),
            leases,
            health: Health::new(path.clone()),
            counters: Counters::default(),
            compacted: AtomicU64::new(compacted.0),
            scrub: AtomicBool::new(scrub),
            shrink: Mutex::default(),
            in_use_bytes: AtomicU64::new(0),
            last_compaction: Mutex::default(),
            path,
        });
        Ok(Writer {
            checkpointer: checkpoint::Checkpointer::start(Arc::clone(&shared), &shared.path)?,
            shared,
            connection,
            revision,
            sweeper: Sweeper::new(swept, compacted),
            schedule: options.retention.map(|policy| Schedule::new(policy, now)),
            next_expiry,
            pause: None,
            scrub_pause: None,
            vacuuming: false,
            busy_log: 0,
            _lock: lock,
        })
    }

    /// Writes a copy of the newest state and its history to `path`, which must not exist. Writers are not held up.
    pub async fn snapshot(&self, path: &Path) -> Result<()> {
        let (from, to) = (self.shared.path.clone(), path.to_owned());
        let context = format!("cannot write the snapshot {}", path.display());
        let copy = move || -> rusqlite::Result<()> {
            let connection = schema::open_reader(&from)?;
            connection.pragma_update(None, "query_only", false)?;
            connection.execute("VACUUM INTO ?1", [to.to_string_lossy()])?;
            Ok(())
        };
        let copied = tokio::task::spawn_blocking(copy).await;
        match copied {
            Ok(Ok(())) => Ok(()),
            Ok(Err(err)) => Err(Error::Engine { context, source: err.to_string().into() }),
            Err(err) => Err(Error::Engine { context, source: err.into() }),
        }
    }
}

/// Waits for the writer to finish what it has.
fn join(writer: &Mutex<Option<JoinHandle<()>>>) {
    if let Some(thread) = writer.lock().take() {
        // A panic there has been reported by the panic hook, and everyone who waited was told.
        let _ = thread.join();
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        self.shared.queue.close();
        join(&self.writer);
    }
}

impl Store for Embedded {
    fn get(&self, key: &str) -> BoxFuture<'_, Result<Option<Record>>> {
        let (shared, key) = (Arc::clone(&self.shared), key.to_owned());
        async move {
            check_key(&key)?;
            read::get(shared, key).await
        }
        .boxed()
    }

    fn range(&self, range: Range) -> BoxFuture<'_, Result<RangeResult>> {
        read::range(Arc::clone(&self.shared), range).boxed()
    }

    fn txn(&self, txn: Txn) -> BoxFuture<'_, Result<TxnResult>> {
        async move {
            txn.check(LIMITS)?;
            let size = txn.size();
            Ok(self.shared.queue.run(Command::Txn(txn), size).await?.result)
        }
        .boxed()
    }

    fn watch(&self, prefix: &str, after: Revision) -> BoxFuture<'_, Result<BoxStream<'static, Result<WatchItem>>>> {
        let opened = watch::open(Arc::clone(&self.shared), prefix.to_owned(), after);
        async move { opened }.boxed()
    }

    fn revision(&self) -> BoxFuture<'_, Result<Revision>> {
        let revision = self.shared.check_open().map(|()| self.shared.watchers.revision());
        async move { revision }.boxed()
    }

    fn request_progress(&self) -> BoxFuture<'_, Result<()>> {
        async move {
            self.shared.check_open()?;
            self.shared.watchers.send_progress();
            Ok(())
        }
        .boxed()
    }

    fn compact(&self, revision: Revision) -> BoxFuture<'_, Result<()>> {
        async move { self.shared.queue.run(Command::Compact(revision), 0).await.map(drop) }.boxed()
    }

    fn compacted(&self) -> Revision {
        self.shared.compacted()
    }

    fn plan_scrub(&self) -> BoxFuture<'_, Result<()>> {
        async move { self.shared.queue.run(Command::PlanScrub, 0).await.map(drop) }.boxed()
    }

    fn scrub(&self) -> BoxFuture<'_, Result<()>> {
        self.shared.scrub.store(true, Ordering::Release);
        // Forgets nothing more, and has the writer look.
        let compacted = self.shared.compacted();
        async move { self.shared.queue.run(Command::Compact(compacted), 0).await.map(drop) }.boxed()
    }

    fn lease_grant(&self, ttl: Duration) -> BoxFuture<'_, Result<LeaseId>> {
        async move {
            let outcome = self.shared.queue.run(Command::Grant(ttl.max(Duration::from_secs(1))), 0).await?;
            outcome.lease.ok_or_else(closed)
        }
        .boxed()
    }

    fn lease_keep_alive(&self, lease: LeaseId) -> BoxFuture<'_, Result<Duration>> {
        async move {
            self.shared.check_open()?;
            self.shared.leases.renew(lease, Instant::now())
        }
        .boxed()
    }

    fn lease_revoke(&self, lease: LeaseId) -> BoxFuture<'_, Result<()>> {
        async move { self.shared.queue.run(Command::Revoke(lease), 0).await.map(drop) }.boxed()
    }

    fn close(&self) -> BoxFuture<'_, Result<()>> {
        self.shared.queue.close();
        let writer = Arc::clone(&self.writer);
        async move {
            let joined = tokio::task::spawn_blocking(move || join(&writer)).await;
            joined.map_err(|err| Error::Engine { context: "closing was cut short".to_owned(), source: err.into() })
        }
        .boxed()
    }

    fn status(&self) -> BoxFuture<'_, Result<Status>> {
        async {
            self.shared.check_open()?;
            let status = inspect::status(Arc::clone(&self.shared), self.shared.size_bytes()).await?;
            self.shared.in_use_bytes.store(status.in_use_bytes, Ordering::Relaxed);
            Ok(status)
        }
        .boxed()
    }

    fn defragment(&self, history: History) -> BoxFuture<'_, Result<()>> {
        async move {
            let (waiting, shrunk) = oneshot::channel();
            self.shared.shrink.lock().push(waiting);
            // Has the writer look, even if it forgets nothing more.
            let until = match history {
                History::Kept => self.shared.compacted(),
                History::Forgotten => self.shared.watchers.revision(),
            };
            self.shared.queue.run(Command::Compact(until), 0).await?;
            shrunk.await.map_err(|_| closed())?
        }
        .boxed()
    }

    fn check(&self) -> BoxFuture<'_, Result<Vec<String>>> {
        async {
            self.shared.check_open()?;
            inspect::check_open(Arc::clone(&self.shared)).await
        }
        .boxed()
    }

    fn stats(&self) -> Stats {
        let (size_bytes, in_use_bytes) = (self.shared.size_bytes(), self.shared.in_use_bytes.load(Ordering::Relaxed));
        Stats {
            size_bytes,
            in_use_bytes,
            reclaimable_bytes: size_bytes.saturating_sub(in_use_bytes),
            is_damaged: self.shared.health.is_damaged(),
            watchers: u64::try_from(self.shared.watchers.count()).unwrap_or(u64::MAX),
            read_only: self.shared.health.reason(),
            ..self.shared.counters.snapshot()
        }
    }
}
