//! Who did what, and when: an `audit.k8s.io/v1` Event for each request that changes something (docs/audit.md).
//!
//! - [`pending`]: a request on its way, and what is learnt about it until it is answered.
//! - [`policy`]: which requests are written down, unless a file says so: [`rules`], [`policy_file`]. [`about`]: what they are about.
//! - [`event`], [`uri`], [`objects`], [`answered`]: how one is written, without what is secret.
//! - [`log`]: the queue and the thread that writes. [`files`]: the file, and those that it was rotated into.
//! - [`webhook`], [`webhook_config`]: sending them elsewhere.
//! - [`lines`], [`reader`], [`filter`], [`page`]: how it is read.

mod about;
mod answered;
mod event;
mod files;
mod filter;
pub(crate) mod fuzzing;
mod lines;
mod log;
mod objects;
pub(crate) mod page;
mod pending;
mod policy;
mod policy_file;
mod reader;
mod rules;
mod uri;
mod webhook;
mod webhook_config;

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use croft_meta::ApiError;
use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

pub(crate) use event::ObjectRef;
pub(crate) use log::Counters;
pub(crate) use pending::{Pending, Trail};
pub use policy_file::PolicyError;
pub use rules::Rules as AuditPolicy;
pub(crate) use webhook::Lost;
pub use webhook_config::{AuditBatch, AuditWebhook, WebhookError};

use self::files::Rotated;
use self::log::{Output, Queue};
use self::webhook::Webhook;

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
    /// Which requests are written down, and how much of them; `None` for Croft's own choice.
    pub policy: Option<AuditPolicy>,
    /// Where events are sent as well.
    pub webhook: Option<AuditWebhook>,
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
        let (policy, webhook) = (None, None);
        Self { to: AuditSink::Off, max_bytes: 0, max_backups: 0, max_age: Duration::ZERO, policy, webhook }
    }
}

/// The log of one server.
#[derive(Debug)]
pub(crate) struct Audit {
    to: AuditSink,
    queue: Option<Queue>,
    webhook: Option<Webhook>,
    rules: Option<AuditPolicy>,
    counters: Counters,
}

impl Audit {
    /// Opens the log: a server that is to keep one does not run without it. Also gives what sends events elsewhere, which is to
    /// be run beside the server.
    pub(crate) fn open(
        config: AuditLog,
        counters: Counters,
        stop: CancellationToken,
    ) -> io::Result<(Self, Option<impl Future<Output = ()> + Send + use<>>)> {
        let output = match &config.to {
            AuditSink::Off => None,
            AuditSink::StandardOutput => Some(Output::Standard(io::stdout())),
            AuditSink::File(path) => Some(Output::File(Rotated::open(path.clone(), &config, Timestamp::now())?)),
        };
        let queue = output.map(|output| Queue::start(output, counters.clone())).transpose()?;
        let webhook = config.webhook.map(|webhook| Webhook::new(webhook, counters.lost.clone(), stop));
        let (webhook, sending) = webhook.unzip();
        Ok((Self { to: config.to, queue, webhook, rules: config.policy, counters }, sending))
    }

    fn is_on(&self) -> bool {
        self.queue.is_some() || self.webhook.is_some()
    }

    /// Has it sent, and counted where no log counts it.
    fn send(&self, line: &[u8]) {
        if self.queue.is_none() {
            self.counters.events.inc();
        }
        if let Some(webhook) = &self.webhook {
            webhook.offer(line);
        }
    }

    /// Waits a little if the log cannot keep up, but not for ever: what is then lost is counted.
    async fn record(&self, line: Vec<u8>) {
        self.send(&line);
        if let Some(queue) = &self.queue {
            queue.send(line).await;
        }
    }

    /// The same for those who cannot wait.
    fn record_at_once(&self, line: Vec<u8>) {
        self.send(&line);
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
