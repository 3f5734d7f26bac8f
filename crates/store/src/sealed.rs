//! A store with some of its values encrypted, on top of either engine.
//!
//! [`Sealed`] is the one place where values are encrypted and opened: whatever the API server writes or reads goes through it,
//! lists of the past and watches included. Which values is a matter of their prefix. What is stored plain, by an earlier version
//! or before a kind was chosen, is read as it is and encrypted when there is time ([`settle`]); the other way round as well.
//!
//! - [`store`]: the store itself. [`envelope`]: one value. [`keys`], [`key_file`]: the keys, and where they are kept.
//! - [`settle`]: brings what is stored to what is wanted, and lets go of keys that nothing needs any more.
//!
//! A value that cannot be opened stops nobody: in its place readers get bytes that [`unreadable`] tells from any object, with
//! the reason in them. See docs/adr/0010-secrets-at-rest.md.

mod envelope;
mod key_file;
mod keys;
mod settle;
mod store;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::task::task_tracker::TaskTrackerToken;

pub use envelope::NotSealed;
pub use key_file::KeyFileError;
pub use keys::{Key, KeyId, NoKey};
pub use settle::{Progress, RotateError, Tally, Unreadable};
pub use store::Sealed;

use crate::{Error, Op, Record, Result, Store, Txn, TxnResult};
use envelope::NotOpened;
use keys::Keyring;

/// Begins what stands for a value that cannot be opened.
const UNREADABLE: &[u8] = b"\0unreadable\0";
/// A transaction without an answer may be committed for this long: twice what etcd is given to answer.
const UNCERTAIN: Duration = Duration::from_secs(30);
/// So many values that cannot be read are in the log by name.
const TOLD: u64 = 100;
/// Records that are looked at together.
const PAGE: usize = 200;

/// What to encrypt, and where the keys are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SealOptions {
    pub key_file: PathBuf,
    /// Values under these are encrypted, all others are not.
    pub prefixes: Vec<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum SealError {
    #[error(transparent)]
    KeyFile(#[from] KeyFileError),
    #[error("cannot see what is encrypted in the store")]
    Store(#[from] Error),
    #[error("reading the key file was cut short")]
    CutShort,
}

/// Why a value cannot be read, if it stands for one.
pub fn unreadable(value: &[u8]) -> Option<&str> {
    // A value that nobody tried to open cannot be read either.
    if envelope::is_sealed(value) {
        return Some("it is encrypted, and this server was started without encryption");
    }
    value.strip_prefix(UNREADABLE).map(|why| std::str::from_utf8(why).unwrap_or_default())
}

/// Keys for values that are written without an open store: those of a saved state.
#[derive(Debug)]
pub struct Sealer {
    keys: Keyring,
    prefixes: Vec<String>,
}

impl Sealer {
    /// Makes the key file if there is none. `now` is remembered as the time at which a new key was made.
    pub fn open(options: &SealOptions, now: &str) -> Result<Self, KeyFileError> {
        let found = key_file::read(&options.key_file)?.unwrap_or_default();
        let keys = if found.is_empty() && !options.prefixes.is_empty() {
            first_key(&options.key_file, now)?
        } else {
            Keyring::new(found)
        };
        Ok(Self { keys, prefixes: options.prefixes.clone() })
    }

    /// As it was before it was encrypted, or why that cannot be told.
    pub fn unseal(&self, record: &Record) -> Result<Record, String> {
        if !envelope::is_sealed(&record.value) {
            return Ok(record.clone());
        }
        let value = envelope::open(&self.keys, &record.key, &record.value).map_err(|why| why.to_string())?;
        Ok(Record { value, ..record.clone() })
    }

    pub fn seal(&self, record: &Record) -> Result<Record, NotSealed> {
        let value = sealed(&self.keys, &self.prefixes, &record.key, &record.value)?;
        Ok(Record { value: value.unwrap_or_else(|| record.value.clone()), ..record.clone() })
    }
}

/// `None` for what is not to be encrypted.
fn sealed(keys: &Keyring, prefixes: &[String], key: &str, value: &[u8]) -> Result<Option<Bytes>, NotSealed> {
    if !is_below(prefixes, key) {
        return Ok(None);
    }
    // Where something is to be encrypted, there is a key.
    let newest = keys.newest().ok_or(NotSealed)?;
    envelope::seal(newest, key, value).map(Some)
}

fn is_below(prefixes: &[String], key: &str) -> bool {
    prefixes.iter().any(|prefix| key.starts_with(prefix.as_str()))
}

fn first_key(path: &Path, now: &str) -> Result<Keyring, KeyFileError> {
    let keys = Keyring::new(vec![Key::generate(now.to_owned())?]);
    key_file::write(path, keys.all())?;
    tracing::info!(path = %path.display(), "a key to encrypt Secrets with was made; keep a copy of it");
    Ok(keys)
}

/// What encrypts and opens the values of one store.
#[derive(Debug)]
pub struct Sealing {
    inner: Arc<dyn Store>,
    key_file: PathBuf,
    prefixes: Vec<String>,
    keys: ArcSwap<Keyring>,
    /// Where encrypted values were seen, beside the prefixes.
    elsewhere: Mutex<BTreeSet<String>>,
    /// Something was seen that is not as it is wanted.
    is_unsettled: AtomicBool,
    /// Plain values were encrypted, and may still be found in the store's files.
    had_plain: AtomicBool,
    wake: Notify,
    /// Rings of before, which transactions may still be on their way with.
    retired: Mutex<Vec<Arc<Keyring>>>,
    /// Held while the key file is changed.
    changing: tokio::sync::Mutex<()>,
    progress: Mutex<Progress>,
    counters: Counters,
}

#[derive(Debug, Default)]
struct Counters {
    sealed: AtomicU64,
    opened: AtomicU64,
    refused: AtomicU64,
}

/// How often values were encrypted, opened, and could not be opened.
#[derive(Clone, Copy, Debug)]
pub struct Counts {
    pub sealed: u64,
    pub opened: u64,
    pub refused: u64,
}

impl Sealing {
    pub fn key_file(&self) -> &Path {
        &self.key_file
    }

    pub fn prefixes(&self) -> &[String] {
        &self.prefixes
    }

    pub fn counts(&self) -> Counts {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counts {
            sealed: of(&self.counters.sealed),
            opened: of(&self.counters.opened),
            refused: of(&self.counters.refused),
        }
    }

    /// The value that a reader gets.
    fn open(&self, key: &str, value: Bytes) -> Bytes {
        let is_wanted = is_below(&self.prefixes, key);
        if !envelope::is_sealed(&value) {
            if is_wanted {
                self.note_unsettled();
            }
            return value;
        }
        if !is_wanted {
            self.note_elsewhere(key);
        }
        let keys = self.keys.load();
        match envelope::open(&keys, key, &value) {
            Ok(opened) => {
                self.counters.opened.fetch_add(1, Ordering::Relaxed);
                let is_newest = envelope::key_id(&value).ok() == keys.newest().map(|newest| newest.id());
                if !is_wanted || !is_newest {
                    self.note_unsettled();
                }
                opened
            }
            Err(why) => self.refuse(key, why),
        }
    }

    fn refuse(&self, key: &str, why: NotOpened) -> Bytes {
        // With the wrong key there may be very many.
        if self.counters.refused.fetch_add(1, Ordering::Relaxed) < TOLD {
            tracing::warn!(key, error = %why, "a value of the store cannot be read");
        }
        [UNREADABLE, why.to_string().as_bytes()].concat().into()
    }

    fn note_unsettled(&self) {
        if !self.is_unsettled.swap(true, Ordering::AcqRel) {
            self.wake.notify_one();
        }
    }

    fn note_elsewhere(&self, key: &str) {
        let collection: String = key.split_inclusive('/').take(3).collect();
        let mut elsewhere = self.elsewhere.lock();
        if !elsewhere.contains(&collection) {
            elsewhere.insert(collection);
        }
    }

    /// The present keys, and what keeps them from being dropped while a transaction is on its way.
    fn hold_keys(&self) -> (Arc<Keyring>, TaskTrackerToken) {
        loop {
            let keys = self.keys.load_full();
            let token = keys.in_flight().token();
            // Whoever replaces the ring waits for the tokens that were there before; a later one does not count.
            if Arc::ptr_eq(&keys, &self.keys.load()) {
                return (keys, token);
            }
        }
    }

    fn seal_all(&self, keys: &Keyring, mut txn: Txn) -> Result<Txn, NotSealed> {
        for op in &mut txn.ops {
            if let Op::Put { key, value, .. } = op
                && let Some(sealed) = sealed(keys, &self.prefixes, key, value)?
            {
                *value = sealed;
                self.counters.sealed.fetch_add(1, Ordering::Relaxed);
            }
        }
        Ok(txn)
    }

    fn has_secrets(&self, txn: &Txn) -> bool {
        txn.ops.iter().any(|op| matches!(op, Op::Put { key, .. } if is_below(&self.prefixes, key)))
    }

    async fn commit(&self, txn: Txn) -> Result<TxnResult> {
        let (keys, token) = self.hold_keys();
        let txn = self
            .seal_all(&keys, txn)
            .map_err(|err| Error::Engine { context: "nothing was written".to_owned(), source: err.into() })?;
        let inner = Arc::clone(&self.inner);
        // By itself: if the caller goes away, the transaction may still be committed, and its key must not be dropped before.
        let committing = tokio::spawn(async move {
            let result = inner.txn(txn).await;
            if matches!(result, Err(Error::Unavailable { .. } | Error::Engine { .. })) {
                tokio::spawn(async move {
                    tokio::time::sleep(UNCERTAIN).await;
                    drop(token);
                });
            }
            result
        });
        let cut_short =
            |err| Error::Engine { context: "the transaction was cut short".to_owned(), source: Box::new(err) };
        committing.await.map_err(cut_short)?
    }
}
