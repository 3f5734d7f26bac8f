//! Who did what, and when: an `audit.k8s.io/v1` Event for each request that changes something (docs/audit.md).
//!
//! - [`pending`]: a request on its way, and what is learnt about it until it is answered.
//! - [`policy`]: which requests are written down. [`about`]: what they are about.
//! - [`event`], [`uri`]: how one is written, without what is secret.
//! - [`log`]: the queue and the thread that writes. [`files`]: the file, and those that it was rotated into.
//! - [`lines`], [`reader`], [`filter`], [`page`]: how it is read.

mod about;
mod event;
mod files;
mod filter;
mod lines;
mod log;
pub(crate) mod page;
mod pending;
mod policy;
mod reader;
mod uri;

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use croft_meta::ApiError;
use jiff::Timestamp;

pub(crate) use event::ObjectRef;
pub(crate) use log::Counters;
pub(crate) use pending::{Pending, Trail};

use self::files::Rotated;
use self::log::{Output, Queue};

/// Where events go, and how much of them is kept.
#[derive(Clone, Debug)]
pub struct AuditLog {
    pub to: AuditSink,
    /// A file that would become larger is rotated.
    pub max_bytes: u64,
    /// Of rotated files, this many are kept; 0 for all.
    pub max_backups: usize,
    /// Rotated files that are older are removed; zero for none.
    pub max_age: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuditSink {
    Off,
    StandardOutput,
    File(PathBuf),
}

impl AuditLog {
    /// Nothing is written down.
    pub const fn off() -> Self {
        Self { to: AuditSink::Off, max_bytes: 0, max_backups: 0, max_age: Duration::ZERO }
    }
}

/// The log of one server.
#[derive(Debug)]
pub(crate) struct Audit {
    to: AuditSink,
    queue: Option<Queue>,
}

impl Audit {
    /// Opens the log: a server that is to keep one does not run without it.
    pub(crate) fn open(config: AuditLog, counters: Counters) -> io::Result<Self> {
        let output = match &config.to {
            AuditSink::Off => None,
            AuditSink::StandardOutput => Some(Output::Standard(io::stdout())),
            AuditSink::File(path) => Some(Output::File(Rotated::open(path.clone(), &config, Timestamp::now())?)),
        };
        let queue = output.map(|output| Queue::start(output, counters)).transpose()?;
        Ok(Self { to: config.to, queue })
    }

    fn is_on(&self) -> bool {
        self.queue.is_some()
    }

    /// Waits a little if the log cannot keep up, but not for ever: what is then lost is counted.
    async fn record(&self, line: Vec<u8>) {
        if let Some(queue) = &self.queue {
            queue.send(line).await;
        }
    }

    /// The same for those who cannot wait.
    fn record_at_once(&self, line: Vec<u8>) {
        if let Some(queue) = &self.queue {
            queue.send_at_once(line);
        }
    }

    /// Waits until whatever was recorded before is in the file.
    pub(crate) async fn flush(&self) {
        if let Some(queue) = &self.queue {
            queue.flush().await;
        }
    }

    /// The file that can be read; otherwise what to do to have one.
    fn readable(&self) -> Result<&Path, ApiError> {
        let how = "start the server with --audit-log-path=<file>, or without that option";
        let why = match &self.to {
            AuditSink::File(path) => return Ok(path),
            AuditSink::StandardOutput => "the audit log goes to standard output and cannot be read here",
            AuditSink::Off => "the audit log is switched off",
        };
        Err(ApiError::new(404, "NotFound", format!("{why}: {how}")))
    }
}
