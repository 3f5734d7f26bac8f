//! Moving what is in the write-ahead log into the database file, beside the writer instead of in its way.
//!
//! A pass of this thread never blocks the writer, but can never quite catch up with it either. So when it has done
//! nearly all, it asks the writer for the rest: a few pages, between two commits. After that the log starts over.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use rusqlite::Connection;

use super::Shared;
use super::schema;
use crate::{Error, Result};

/// A pass is asked for each time that about this much has been written.
const EVERY_BYTES: usize = 8 * 1024 * 1024;
/// The log file is not cut below this: writing over it is cheaper than growing it.
pub(super) const WAL_KEPT_BYTES: i64 = 32 * 1024 * 1024;

/// The writer's end.
#[derive(Debug)]
pub(super) struct Checkpointer {
    /// `None` only while being dropped.
    wake: Option<SyncSender<()>>,
    nearly_done: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    written_bytes: usize,
}

impl Checkpointer {
    pub(super) fn start(shared: Arc<Shared>, path: &Path) -> Result<Self> {
        let connection = schema::open_reader(path).map_err(|err| schema::open_error(path, &err))?;
        let (wake, requests) = sync_channel(1);
        let nearly_done = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&nearly_done);
        let thread = std::thread::Builder::new()
            .name("store-checkpoint".to_owned())
            .spawn(move || run(&shared, &connection, &requests, &flag))
            .map_err(|err| Error::Engine { context: "cannot start a thread".to_owned(), source: err.into() })?;
        Ok(Self { wake: Some(wake), nearly_done, thread: Some(thread), written_bytes: 0 })
    }

    pub(super) fn wrote(&mut self, bytes: usize) {
        self.written_bytes += bytes;
        if self.written_bytes < EVERY_BYTES {
            return;
        }
        self.written_bytes = 0;
        if let Some(wake) = &self.wake {
            // Full: a pass is already asked for.
            let _ = wake.try_send(());
        }
    }

    /// True once after each pass.
    pub(super) fn is_nearly_done(&self) -> bool {
        self.nearly_done.swap(false, Ordering::AcqRel)
    }
}

impl Drop for Checkpointer {
    fn drop(&mut self) {
        self.wake.take();
        if let Some(thread) = self.thread.take() {
            // A panic there has been reported by the panic hook.
            let _ = thread.join();
        }
    }
}

fn run(shared: &Shared, connection: &Connection, requests: &Receiver<()>, nearly_done: &AtomicBool) {
    while requests.recv().is_ok() {
        for _ in 0..2 {
            if let Err(err) = checkpoint(connection) {
                shared.health.failed(&err);
                tracing::warn!(error = %err, "checkpoint failed");
            }
        }
        nearly_done.store(true, Ordering::Release);
    }
}

/// One pass that waits for nobody.
pub(super) fn checkpoint(connection: &Connection) -> rusqlite::Result<()> {
    connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))
}
