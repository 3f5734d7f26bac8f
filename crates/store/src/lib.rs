//! A versioned, watchable key-value store with one global order of writes.
//!
//! Two engines keep the same promises, held to by one conformance suite (`conformance`):
//! [`embedded`] (SQLite, one process) and [`etcd`] (a cluster).
//!
//! Promises:
//! - Every committed transaction gets the next [`Revision`]; all its changes share that revision.
//! - A transaction is durable before it is acknowledged, and is there whole or not at all.
//! - A watch from revision N delivers every change after N, in order, once.
//! - Revisions never go back, whatever dies.
//!
//! [`saved`] is a whole store in one file, for the day when the machine is gone. [`sealed`] is either engine with some of its
//! values encrypted.
//!
//! Only the API server uses this crate; everyone else talks to the API server.

pub mod contents;
pub mod embedded;
pub mod etcd;
pub mod saved;
pub mod sealed;
mod stats;
mod status;
mod txn;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use croft_meta::Revision;
use futures::future::{BoxFuture, FutureExt};
use futures::stream::BoxStream;

pub use embedded::{Embedded, EmbeddedOptions, Restoring, Retention};
pub use etcd::{Etcd, EtcdOptions, Gate, Passage};
pub use stats::{Histogram, Stats};
pub use status::{Member, Status};
pub use txn::Limits;

/// One key's state at some revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    pub key: String,
    pub value: Bytes,
    /// When the key was last written.
    pub revision: Revision,
}

/// Which keys, from where, how many, and as of when.
#[derive(Clone, Debug, Default)]
pub struct Range {
    pub prefix: String,
    /// Only keys strictly after this one; empty for all.
    pub after: String,
    /// 0 for all.
    pub limit: usize,
    /// `None` for now. Older than the compaction point is [`Error::Compacted`].
    pub at: Option<Revision>,
}

#[derive(Clone, Debug, Default)]
pub struct RangeResult {
    /// In key order.
    pub records: Vec<Record>,
    /// The limit cut the answer short.
    pub more: bool,
    /// The revision that the answer is of.
    pub revision: Revision,
}

/// A condition of a transaction: the key was last written at `revision`, or does not exist (`Revision::ZERO`).
#[derive(Clone, Debug)]
pub struct Compare {
    pub key: String,
    pub revision: Revision,
}

#[derive(Clone, Debug)]
pub enum Op {
    Put { key: String, value: Bytes, lease: Option<LeaseId> },
    Delete { key: String },
}

/// All operations if all conditions hold, else none.
#[derive(Clone, Debug, Default)]
pub struct Txn {
    pub compare: Vec<Compare>,
    pub ops: Vec<Op>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TxnResult {
    /// Durable, at this revision. A transaction that changed nothing (deletions of absent keys) gets no revision of
    /// its own: this is then the store's newest.
    Committed(Revision),
    /// A condition did not hold; nothing was changed. The revision is the store's at that moment.
    Conflict(Revision),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LeaseId(pub i64);

/// One change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub key: String,
    pub revision: Revision,
    /// `None` for a deletion (by request or by an expired lease).
    pub value: Option<Bytes>,
}

#[derive(Clone, Debug)]
pub enum WatchItem {
    /// All changes of one transaction under the prefix, in order.
    Events(Vec<Event>),
    /// Nothing under the prefix is missing up to here.
    Progress(Revision),
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("revision {requested} has been compacted; the oldest kept is {oldest}")]
    Compacted { requested: Revision, oldest: Revision },
    #[error("revision {requested} is in the future; the newest is {newest}")]
    Future { requested: Revision, newest: Revision },
    /// The disk is full or failing, or the data is damaged: reads go on, writes are refused until restart or repair.
    #[error("the store is read-only: {reason}")]
    ReadOnly { reason: String },
    /// The watcher did not keep up and was cut off rather than let grow.
    #[error("the watcher fell too far behind")]
    Lagged,
    #[error("lease {0:?} does not exist")]
    NoSuchLease(LeaseId),
    #[error("the store cannot be reached: {reason}")]
    Unavailable { reason: String },
    /// The caller's mistake: an empty key, the same key twice in one transaction, too many operations.
    #[error("invalid store request: {reason}")]
    Invalid { reason: String },
    /// More bytes in one transaction than the engine takes.
    #[error("the transaction is too large: {reason}")]
    TooLarge { reason: String },
    #[error("{} is in use by process {pid}; only one process may open a data directory", path.display())]
    Locked { path: PathBuf, pid: String },
    #[error(
        "the database {} is damaged: {reason}; \"croft store check\" tells what of it; move the directory {} away and restore a \
         saved state (\"croft state restore\"), or what \"croft store salvage\" can still read: see docs/store.md",
        path.display(),
        path.parent().unwrap_or(path).display()
    )]
    Corrupt { path: PathBuf, reason: String },
    #[error("{context}")]
    Engine {
        context: String,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// What becomes of what was superseded a while ago, but is still kept for those who follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum History {
    Kept,
    Forgotten,
}

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What both engines do. Object-safe: the server holds an `Arc<dyn Store>`.
pub trait Store: Send + Sync + std::fmt::Debug + 'static {
    fn get(&self, key: &str) -> BoxFuture<'_, Result<Option<Record>>>;
    fn range(&self, range: Range) -> BoxFuture<'_, Result<RangeResult>>;
    /// Dropping the future does not undo the transaction: it may still be committed.
    fn txn(&self, txn: Txn) -> BoxFuture<'_, Result<TxnResult>>;
    /// Everything after `after` under `prefix`; ends with an error when it cannot go on without a gap. `after` below
    /// the compaction point is [`Error::Compacted`], above the newest revision [`Error::Future`].
    fn watch(&self, prefix: &str, after: Revision) -> BoxFuture<'_, Result<BoxStream<'static, Result<WatchItem>>>>;
    /// The newest committed revision, linearizable: a write acknowledged before the call is at or below it.
    fn revision(&self) -> BoxFuture<'_, Result<Revision>>;
    /// Asks open watches to say how far they are ([`WatchItem::Progress`]). Best effort: a watch with a full buffer
    /// does not answer, its events say as much.
    fn request_progress(&self) -> BoxFuture<'_, Result<()>>;
    /// Forgets history before `revision`; the newest version of every key is kept.
    fn compact(&self, revision: Revision) -> BoxFuture<'_, Result<()>>;
    /// What came before this is forgotten, as far as is known without asking: it may be more.
    fn compacted(&self) -> Revision {
        Revision::ZERO
    }
    fn lease_grant(&self, ttl: Duration) -> BoxFuture<'_, Result<LeaseId>>;
    fn lease_keep_alive(&self, lease: LeaseId) -> BoxFuture<'_, Result<Duration>>;
    /// Deletes the lease's keys, all of them or none; very many of them one transaction after the other.
    fn lease_revoke(&self, lease: LeaseId) -> BoxFuture<'_, Result<()>>;
    /// Flushes and closes; later calls fail with [`Error::Unavailable`].
    fn close(&self) -> BoxFuture<'_, Result<()>>;
    /// What is overwritten from now on is to be gone for good: should [`Self::scrub`] not be asked for, nor come to its end, before
    /// the process dies, the engine does it when it is opened again.
    fn plan_scrub(&self) -> BoxFuture<'_, Result<()>> {
        async { Ok(()) }.boxed()
    }
    /// Overwrites what [`Self::compact`] has forgotten, where the engine can. It is done later, when there is nothing else to do.
    fn scrub(&self) -> BoxFuture<'_, Result<()>> {
        async { Ok(()) }.boxed()
    }
    /// How large it is, what of that is in use, and how those are who keep it; they are asked.
    fn status(&self) -> BoxFuture<'_, Result<Status>> {
        async {
            let (revision, stats) = (self.revision().await?, self.stats());
            let Stats { size_bytes, in_use_bytes, reclaimable_bytes, read_only, .. } = stats;
            let sizes = Status { size_bytes, in_use_bytes, reclaimable_bytes, ..Status::default() };
            Ok(Status { revision: revision.0, read_only, ..sizes })
        }
        .boxed()
    }
    /// Gives back the space that [`Self::compact`] has freed, while it is used, and returns when that is done. All history can be
    /// forgotten before.
    fn defragment(&self, history: History) -> BoxFuture<'_, Result<()>> {
        let _ = history;
        async { Ok(()) }.boxed()
    }
    /// Reads all of it, and tells what is damaged.
    fn check(&self) -> BoxFuture<'_, Result<Vec<String>>> {
        async { Ok(Vec::new()) }.boxed()
    }
    /// What encrypts its values, if anything does.
    fn sealing(&self) -> Option<&Arc<sealed::Sealing>> {
        None
    }
    /// Counters since the start, for the metrics page. Cheap.
    fn stats(&self) -> Stats {
        Stats::default()
    }
}
