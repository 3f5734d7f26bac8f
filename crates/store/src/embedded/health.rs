//! Whether writes can be taken, and what an SQLite error says about that.

use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use rusqlite::ErrorCode;

use crate::Error;

/// Below this, an input/output error is put down to a full disk: some filesystems say ENOSPC only at fsync.
const FULL_BELOW_BYTES: u64 = 1024 * 1024;

#[derive(Debug)]
pub(super) struct Health {
    database: PathBuf,
    fault: Mutex<Option<Fault>>,
}

#[derive(Clone, Debug)]
struct Fault {
    reason: String,
    /// A full disk may get room again, so the next write tries; damage does not mend itself.
    passing: bool,
    is_damage: bool,
}

impl Health {
    pub(super) fn new(database: PathBuf) -> Self {
        Self { database, fault: Mutex::default() }
    }

    pub(super) fn reason(&self) -> Option<String> {
        self.fault.lock().as_ref().map(|fault| fault.reason.clone())
    }

    /// Why a write would be bound to fail, or to make things worse.
    pub(super) fn refusal(&self) -> Option<String> {
        self.fault.lock().as_ref().filter(|fault| !fault.passing).map(|fault| fault.reason.clone())
    }

    /// A write went through.
    pub(super) fn mended(&self) {
        // Damage that was found meanwhile stays.
        if let Some(fault) = self.fault.lock().take_if(|fault| fault.passing) {
            tracing::info!(reason = %fault.reason, "the store takes writes again");
        }
    }

    /// A write failed: decides whether the engine goes on, and returns what to tell each caller.
    pub(super) fn failed(&self, err: &rusqlite::Error) -> Failure {
        let Some(fault) = self.classify(err) else {
            tracing::error!(error = %err, "the store's file could not be worked on");
            return Failure { read_only: None, text: err.to_string() };
        };
        self.found(fault)
    }

    /// Commits would be acknowledged that a power cut takes back.
    pub(super) fn unflushed(&self, err: &rusqlite::Error) {
        let reason = format!(
            "writes to {} can no longer be flushed to its disk ({err}); restart the server",
            self.database.display()
        );
        self.found(Fault { reason, passing: false, is_damage: false });
    }

    fn found(&self, fault: Fault) -> Failure {
        let mut current = self.fault.lock();
        // What does not mend itself is not made up for by what does.
        if let Some(lasting) = current.as_ref().filter(|old| !old.passing && fault.passing) {
            return Failure { read_only: Some(lasting.reason.clone()), text: String::new() };
        }
        let reason = fault.reason.clone();
        if current.as_ref().is_none_or(|old| old.reason != fault.reason) {
            tracing::error!(%reason, "the store is read-only");
        }
        *current = Some(fault);
        Failure { read_only: Some(reason), text: String::new() }
    }

    fn classify(&self, err: &rusqlite::Error) -> Option<Fault> {
        let full = || Fault {
            reason: format!("no space left on the disk of {}", self.database.display()),
            passing: true,
            is_damage: false,
        };
        if is_damage(err) {
            return Some(self.damage(&err.to_string()));
        }
        match err.sqlite_error_code()? {
            _ if is_disk_full(&self.database, err) => Some(full()),
            ErrorCode::SystemIoFailure => Some(Fault {
                reason: format!(
                    "the disk of {} fails ({err}); check the kernel log, then restart the server",
                    self.database.display()
                ),
                passing: false,
                is_damage: false,
            }),
            ErrorCode::ReadOnly => Some(Fault {
                reason: format!("{} cannot be written to ({err})", self.database.display()),
                passing: true,
                is_damage: false,
            }),
            _ => None,
        }
    }

    /// Damage found by a reader stops the writer too: it could only spread.
    pub(super) fn read_failed(&self, err: &rusqlite::Error) -> Error {
        if is_damage(err) {
            return self.damaged(&err.to_string());
        }
        Error::Engine { context: "cannot read from the database".to_owned(), source: err.to_string().into() }
    }

    pub(super) fn is_damaged(&self) -> bool {
        self.fault.lock().as_ref().is_some_and(|fault| fault.is_damage)
    }

    /// Damage that was looked for and found.
    pub(super) fn damaged(&self, what: &str) -> Error {
        tracing::error!(reason = what, "the store is damaged, and read-only from now on");
        *self.fault.lock() = Some(self.damage(what));
        Error::Corrupt { path: self.database.clone(), reason: what.to_owned() }
    }

    fn damage(&self, what: &str) -> Fault {
        let reason = format!(
            "the database {} is damaged ({what}); \"croft store check\" tells what of it; save the state of this server while it runs \
             (\"croft state save\"), and restore that, or one that was saved before, into a new data directory: see docs/store.md",
            self.database.display()
        );
        Fault { reason, passing: false, is_damage: true }
    }

    /// A row whose checksum does not hold.
    pub(super) fn bad_row(&self, row: i64) -> Error {
        self.damaged(&format!("row {row} is not as it was written"))
    }
}

/// One failed commit, told to everyone who was in it.
#[derive(Debug)]
pub(super) struct Failure {
    read_only: Option<String>,
    text: String,
}

impl Failure {
    pub(super) fn error(&self) -> Error {
        match &self.read_only {
            Some(reason) => Error::ReadOnly { reason: reason.clone() },
            None => Error::Engine { context: "cannot commit".to_owned(), source: self.text.clone().into() },
        }
    }
}

/// Pages that make no sense, or a column that holds what was never written there.
fn is_damage(err: &rusqlite::Error) -> bool {
    use rusqlite::Error::{FromSqlConversionFailure, IntegralValueOutOfRange, InvalidColumnType};
    match err {
        InvalidColumnType(..) | FromSqlConversionFailure(..) | IntegralValueOutOfRange(..) => true,
        _ => matches!(err.sqlite_error_code(), Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase)),
    }
}

/// Whether an error comes of there being no room, by its own words or by the look of the disk.
pub(super) fn is_disk_full(database: &Path, err: &rusqlite::Error) -> bool {
    match err.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => true,
        Some(ErrorCode::SystemIoFailure) => free_bytes(database).is_some_and(|free| free < FULL_BELOW_BYTES),
        _ => false,
    }
}

fn free_bytes(path: &Path) -> Option<u64> {
    let stat = rustix::fs::statvfs(path).ok()?;
    Some(stat.f_bavail.saturating_mul(stat.f_frsize))
}
