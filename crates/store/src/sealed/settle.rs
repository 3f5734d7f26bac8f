//! Brings what is stored to what is wanted: plain values encrypted, old keys replaced, and nothing encrypted that need not be.
//!
//! An object is rewritten only if it is still the one that was read, so that nobody's change is lost. An old key is dropped after
//! a pass has found nothing that names it, and after the store has forgotten the versions of before: nothing that can still be
//! asked for was encrypted with it. Cut short at any moment, it goes on where the keys and the values say it is.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use croft_meta::Revision;

use super::envelope::{self, NotOpened};
use super::key_file::{self, KeyFileError};
use super::keys::{Key, KeyId, Keyring};
use super::{PAGE, Sealing, is_below, sealed};
use crate::{Compare, Error, Op, Range, Record, Result, Txn, TxnResult};

/// What is rewritten in one transaction.
const BATCH_BYTES: usize = 512 << 10;
const BATCH_OPS: usize = 50;
/// After looking into so many, others that wait for the thread come first.
const BREATH: usize = 16;
/// Of values that cannot be read, so many are told by name.
const TOLD: usize = 100;

/// A batch that took longer met with something else than its own work.
const LONGEST_REST: Duration = Duration::from_millis(50);

/// How far it is.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    /// Something is not as it is wanted, as far as is known, and an attempt at it has not begun yet.
    pub is_due: bool,
    pub is_running: bool,
    /// Objects that were rewritten, of those that were found.
    pub done: u64,
    pub total: u64,
    /// Why the last attempt failed; there will be another.
    pub error: Option<String>,
}

/// A value that cannot be read.
#[derive(Clone, Debug)]
pub struct Unreadable {
    pub key: String,
    pub why: String,
}

/// What is stored.
#[derive(Debug, Default)]
pub struct Tally {
    /// The newest first.
    pub keys: Vec<(Arc<Key>, u64)>,
    /// Values that are to be encrypted and are not yet.
    pub plain: u64,
    /// Values that are encrypted and need not be.
    pub excess: u64,
    pub unreadable_count: u64,
    /// The first of them.
    pub unreadable: Vec<Unreadable>,
}

impl Tally {
    /// How many are to be rewritten.
    pub fn unsettled(&self) -> u64 {
        let old: u64 = self.keys.iter().skip(1).map(|(_, count)| count).sum();
        self.plain + self.excess + old
    }
}

#[derive(Debug, thiserror::Error)]
pub enum RotateError {
    #[error("nothing is to be encrypted: start the server without --encrypt-resources=none")]
    Off,
    #[error("objects are being encrypted at this moment; \"croft secrets status\" tells how far it is")]
    UnderWay,
    #[error(transparent)]
    KeyFile(#[from] KeyFileError),
    #[error("writing the key file was cut short")]
    CutShort,
}

/// What a value is, and what it is to become.
enum Found {
    Settled,
    Rewrite { from: Option<KeyId>, value: Bytes },
    Stuck(NotOpened),
}

/// What one pass has done.
#[derive(Default)]
struct Pass {
    rewritten: u64,
    /// Somebody else was quicker: to be looked at again.
    conflicts: u64,
    /// Keys of values that cannot be rewritten.
    needed: BTreeSet<KeyId>,
}

/// A value on its way to its new form.
struct Rewrite {
    key: String,
    revision: Revision,
    from: Option<KeyId>,
    value: Bytes,
}

impl Sealing {
    /// Waits until something is not as it is wanted.
    pub async fn unsettled(&self) {
        while !self.is_unsettled.load(Ordering::Acquire) {
            self.wake.notified().await;
        }
    }

    pub fn progress(&self) -> Progress {
        // Looked at first: an attempt says that it runs before it takes this back.
        let is_due = self.is_unsettled.load(Ordering::Acquire);
        Progress { is_due, ..self.progress.lock().clone() }
    }

    /// Makes a new key for all that is written from now on. Whatever was encrypted with the others is rewritten by
    /// [`Self::settle`], which is to be called next.
    pub async fn rotate(&self, now: &str) -> Result<KeyId, RotateError> {
        if self.prefixes.is_empty() {
            return Err(RotateError::Off);
        }
        let _turn = self.changing.lock().await;
        if self.progress.lock().is_running || self.is_unsettled.load(Ordering::Acquire) {
            return Err(RotateError::UnderWay);
        }
        let new = Arc::new(Key::generate(now.to_owned()).map_err(KeyFileError::from)?);
        let old = self.keys.load_full();
        let keys: Vec<Arc<Key>> = std::iter::once(Arc::clone(&new)).chain(old.all().iter().cloned()).collect();
        // On the disk before anything is encrypted with it.
        self.write_file(keys.clone()).await?;
        self.keys.store(Arc::new(Keyring::of(keys)));
        self.retired.lock().push(old);
        self.note_unsettled();
        tracing::info!(key = %new.id(), "a new key was made; all objects are encrypted anew");
        Ok(new.id())
    }

    async fn write_file(&self, keys: Vec<Arc<Key>>) -> Result<(), RotateError> {
        let path = self.key_file.clone();
        let written = tokio::task::spawn_blocking(move || key_file::write(&path, &keys));
        Ok(written.await.map_err(|_| RotateError::CutShort)??)
    }

    /// Rewrites what is not as it is wanted, then drops the keys that nothing needs.
    pub async fn settle(&self) -> Result<()> {
        *self.progress.lock() = Progress { is_running: true, ..Progress::default() };
        self.is_unsettled.store(false, Ordering::Release);
        let outcome = self.rewrite_all().await;
        let mut progress = self.progress.lock();
        progress.is_running = false;
        if let Err(error) = &outcome {
            progress.error = Some(croft_meta::Chain(error).to_string());
            self.is_unsettled.store(true, Ordering::Release);
        }
        outcome
    }

    async fn rewrite_all(&self) -> Result<()> {
        self.wait_for_writers().await;
        self.progress.lock().total = self.tally().await?.unsettled();
        let mut rewritten = 0;
        let (keys, needed) = loop {
            let keys = self.keys.load_full();
            let pass = self.pass(&keys).await?;
            rewritten += pass.rewritten;
            let is_clean = pass.rewritten == 0 && pass.conflicts == 0;
            if is_clean && Arc::ptr_eq(&keys, &self.keys.load()) {
                break (keys, pass.needed);
            }
            self.wait_for_writers().await;
        };
        // Of an earlier attempt as well.
        let had_plain = self.had_plain.load(Ordering::Acquire);
        if rewritten > 0 || had_plain || keys.all().len() > 1 {
            let newest = self.inner.revision().await?;
            self.inner.compact(newest).await?;
            tracing::info!(rewritten, "what is stored is encrypted as it is wanted");
        }
        if had_plain {
            self.inner.scrub().await?;
            self.had_plain.store(false, Ordering::Release);
        }
        self.drop_keys(&keys, &needed).await
    }

    /// Until whatever was encrypted with keys of before is in the store, or never will be.
    async fn wait_for_writers(&self) {
        let retired = std::mem::take(&mut *self.retired.lock());
        for ring in retired {
            ring.in_flight().close();
            ring.in_flight().wait().await;
        }
    }

    async fn drop_keys(&self, keys: &Arc<Keyring>, needed: &BTreeSet<KeyId>) -> Result<()> {
        let is_kept = |(at, key): &(usize, &Arc<Key>)| *at == 0 || needed.contains(&key.id());
        let kept: Vec<Arc<Key>> =
            keys.all().iter().enumerate().filter(is_kept).map(|(_, key)| Arc::clone(key)).collect();
        if kept.len() > 1 {
            let kept: Vec<String> = kept.iter().skip(1).map(|key| key.id().to_string()).collect();
            tracing::warn!(?kept, "old keys are kept: there are values that name them and cannot be read");
        }
        if kept.len() == keys.all().len() {
            return Ok(());
        }
        let _turn = self.changing.lock().await;
        // A rotation may just have begun: the next settling sees to it.
        if !Arc::ptr_eq(keys, &self.keys.load()) {
            return Ok(());
        }
        self.write_file(kept.clone())
            .await
            .map_err(|err| Error::Engine { context: "the old key was not dropped".to_owned(), source: err.into() })?;
        let old = self.keys.swap(Arc::new(Keyring::of(kept)));
        self.retired.lock().push(old);
        tracing::info!("the old key was dropped");
        Ok(())
    }

    async fn pass(&self, keys: &Keyring) -> Result<Pass> {
        let mut pass = Pass::default();
        for prefix in self.places() {
            let mut range = Range { prefix, limit: PAGE, ..Range::default() };
            loop {
                let page = self.inner.range(range.clone()).await?;
                let mut batch = Vec::new();
                let mut size = 0;
                for (at, record) in page.records.iter().enumerate() {
                    breathe(at).await;
                    match self.judge(keys, record)? {
                        Found::Stuck(NotOpened::Refused(id)) => {
                            pass.needed.insert(id);
                        }
                        Found::Settled | Found::Stuck(_) => {}
                        Found::Rewrite { from, value } => {
                            size += value.len();
                            batch.push(Rewrite { key: record.key.clone(), revision: record.revision, from, value });
                        }
                    }
                    if size >= BATCH_BYTES || batch.len() >= BATCH_OPS {
                        self.rewrite(std::mem::take(&mut batch), &mut pass).await?;
                        size = 0;
                    }
                }
                self.rewrite(batch, &mut pass).await?;
                match page.records.last() {
                    Some(last) if page.more => range.after.clone_from(&last.key),
                    _ => break,
                }
            }
        }
        Ok(pass)
    }

    fn places(&self) -> BTreeSet<String> {
        self.prefixes.iter().cloned().chain(self.elsewhere.lock().iter().cloned()).collect()
    }

    fn judge(&self, keys: &Keyring, record: &Record) -> Result<Found> {
        let is_wanted = is_below(&self.prefixes, &record.key);
        let (from, plain) = if envelope::is_sealed(&record.value) {
            let id = match envelope::key_id(&record.value) {
                Ok(id) => id,
                Err(why) => return Ok(Found::Stuck(why)),
            };
            match envelope::open(keys, &record.key, &record.value) {
                Ok(_) if is_wanted && keys.newest().is_some_and(|newest| newest.id() == id) => {
                    return Ok(Found::Settled);
                }
                Ok(plain) => (Some(id), plain),
                Err(why) => return Ok(Found::Stuck(why)),
            }
        } else if is_wanted {
            (None, record.value.clone())
        } else {
            return Ok(Found::Settled);
        };
        let value = sealed(keys, &self.prefixes, &record.key, &plain).map_err(|err| Error::Engine {
            context: format!("{} was not rewritten", record.key),
            source: err.into(),
        })?;
        Ok(Found::Rewrite { from, value: value.unwrap_or(plain) })
    }

    /// All of them together, or each by itself if one was changed meanwhile.
    async fn rewrite(&self, batch: Vec<Rewrite>, pass: &mut Pass) -> Result<()> {
        if batch.is_empty() {
            return Ok(());
        }
        if batch.iter().any(|one| one.from.is_none()) && !self.had_plain.load(Ordering::Acquire) {
            // Before the first of them: whenever this ends, the store knows what is left to do.
            self.inner.plan_scrub().await?;
            self.had_plain.store(true, Ordering::Release);
        }
        let begun = Instant::now();
        if batch.len() > 1 && self.put(&batch).await? {
            self.count(&batch, pass);
            // Half of the store's time is left to those who wait for an answer: nobody waits for this.
            tokio::time::sleep(begun.elapsed().min(LONGEST_REST)).await;
            return Ok(());
        }
        for one in batch {
            let one = [one];
            match self.put(&one).await {
                Ok(true) => self.count(&one, pass),
                Ok(false) => pass.conflicts += 1,
                Err(Error::TooLarge { reason }) => {
                    tracing::warn!(key = one[0].key, error = reason, "an object is too large to be encrypted");
                    pass.needed.extend(one[0].from);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn count(&self, done: &[Rewrite], pass: &mut Pass) {
        pass.rewritten += done.len() as u64;
        let mut progress = self.progress.lock();
        progress.done += done.len() as u64;
        progress.total = progress.total.max(progress.done);
    }

    async fn put(&self, batch: &[Rewrite]) -> Result<bool> {
        let compare = batch.iter().map(|one| Compare { key: one.key.clone(), revision: one.revision }).collect();
        let op = |one: &Rewrite| Op::Put { key: one.key.clone(), value: one.value.clone(), lease: None };
        let result = self.inner.txn(Txn { compare, ops: batch.iter().map(op).collect() }).await?;
        Ok(matches!(result, TxnResult::Committed(_)))
    }

    /// Reads everything that is encrypted or is to be.
    pub async fn tally(&self) -> Result<Tally> {
        let keys = self.keys.load_full();
        let mut counts: BTreeMap<KeyId, u64> = BTreeMap::new();
        let mut tally = Tally::default();
        for prefix in self.places() {
            let mut range = Range { prefix, limit: PAGE, ..Range::default() };
            loop {
                let page = self.inner.range(range.clone()).await?;
                for (at, record) in page.records.iter().enumerate() {
                    breathe(at).await;
                    self.add(&keys, record, &mut counts, &mut tally);
                }
                match page.records.last() {
                    Some(last) if page.more => range.after.clone_from(&last.key),
                    _ => break,
                }
            }
        }
        let of = |key: &Arc<Key>| (Arc::clone(key), counts.get(&key.id()).copied().unwrap_or_default());
        tally.keys = keys.all().iter().map(of).collect();
        Ok(tally)
    }

    fn add(&self, keys: &Keyring, record: &Record, counts: &mut BTreeMap<KeyId, u64>, tally: &mut Tally) {
        let is_wanted = is_below(&self.prefixes, &record.key);
        if !envelope::is_sealed(&record.value) {
            tally.plain += u64::from(is_wanted);
            return;
        }
        match envelope::open(keys, &record.key, &record.value).and_then(|_| envelope::key_id(&record.value)) {
            Ok(id) if is_wanted => *counts.entry(id).or_default() += 1,
            Ok(_) => tally.excess += 1,
            Err(why) => {
                tally.unreadable_count += 1;
                if tally.unreadable.len() < TOLD {
                    tally.unreadable.push(Unreadable { key: record.key.clone(), why: why.to_string() });
                }
            }
        }
    }
}

/// Opening and sealing takes the thread that does it, and nobody else gets on meanwhile.
async fn breathe(at: usize) {
    if at % BREATH == BREATH - 1 {
        tokio::task::yield_now().await;
    }
}
