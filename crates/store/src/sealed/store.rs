//! The store with encrypted values: how it is opened, and what it is like.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use arc_swap::ArcSwap;
use croft_meta::Revision;
use futures::StreamExt;
use futures::future::{BoxFuture, FutureExt};
use futures::stream::BoxStream;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::key_file::{self, KeyFileError};
use super::keys::Keyring;
use super::{Counters, PAGE, SealError, SealOptions, Sealing, envelope, first_key};
use crate::{History, LeaseId, Range, RangeResult, Record, Result, Stats, Status, Store, Txn, TxnResult, WatchItem};

/// A store that encrypts what is put into it and opens what is read, and is like the one inside in all else.
#[derive(Debug)]
pub struct Sealed {
    inner: Arc<dyn Store>,
    sealing: Arc<Sealing>,
}

impl Sealed {
    /// Reads the keys, and makes the first one for a store that has nothing encrypted yet. `now` is remembered as the time at
    /// which it was made.
    pub async fn open(inner: Arc<dyn Store>, options: SealOptions, now: &str) -> Result<Arc<dyn Store>, SealError> {
        let path = options.key_file.clone();
        let read = tokio::task::spawn_blocking(move || Ok((key_file::read(&path)?, key_file::started_anew(&path))));
        let (found, started_anew) = read.await.map_err(|_| SealError::CutShort)?.map_err(SealError::KeyFile)?;
        let keys = match found {
            Some(keys) if !keys.is_empty() => {
                let keys = Keyring::new(keys);
                // As if all Secrets were gone, those that say what was revoked too: nobody wants that by mistake.
                if !started_anew && let Some(id) = encrypted_with(&*inner, &options.prefixes, &keys).await? {
                    return Err(KeyFileError::Foreign { path: options.key_file, id }.into());
                }
                keys
            }
            found => {
                // An empty file is how one says that the keys are gone.
                if found.is_none()
                    && let Some(id) = encrypted_with(&*inner, &options.prefixes, &Keyring::default()).await?
                {
                    return Err(KeyFileError::Missing { path: options.key_file, id }.into());
                }
                if options.prefixes.is_empty() { Keyring::default() } else { new_file(&options, now).await? }
            }
        };
        let is_rotating = keys.all().len() > 1;
        let sealing = Arc::new(Sealing {
            inner: Arc::clone(&inner),
            key_file: options.key_file,
            prefixes: options.prefixes,
            keys: ArcSwap::new(Arc::new(keys)),
            elsewhere: Mutex::default(),
            is_unsettled: AtomicBool::new(is_rotating),
            had_plain: AtomicBool::new(false),
            wake: Notify::new(),
            retired: Mutex::default(),
            changing: tokio::sync::Mutex::default(),
            progress: Mutex::default(),
            counters: Counters::default(),
        });
        Ok(Arc::new(Self { inner, sealing }))
    }
}

async fn new_file(options: &SealOptions, now: &str) -> Result<Keyring, SealError> {
    let (path, now) = (options.key_file.clone(), now.to_owned());
    let made = tokio::task::spawn_blocking(move || first_key(&path, &now));
    Ok(made.await.map_err(|_| SealError::CutShort)??)
}

/// A key that something is encrypted with, unless something is with one of `keys`. That a value is damaged says nothing.
///
/// What is encrypted need not be what is to be: other kinds were chosen before, or none are now. So all else is looked at too, but
/// only where nothing is found below `prefixes`. Such a start reads the values once more, which takes less than making objects of
/// them as it does next.
async fn encrypted_with(store: &dyn Store, prefixes: &[String], keys: &Keyring) -> Result<Option<String>> {
    let mut other = None;
    for prefix in prefixes.iter().map(String::as_str).chain([""]) {
        let mut range = Range { prefix: prefix.to_owned(), limit: PAGE, ..Range::default() };
        loop {
            let page = store.range(range.clone()).await?;
            for record in page.records.iter().filter(|record| envelope::is_sealed(&record.value)) {
                let id = envelope::key_id(&record.value).ok();
                if id.is_some_and(|id| keys.find(id).is_some()) {
                    return Ok(None);
                }
                other.get_or_insert_with(|| id.map(|id| id.to_string()).unwrap_or_default());
            }
            if other.is_some() && keys.all().is_empty() {
                return Ok(other);
            }
            match page.records.last() {
                Some(last) if page.more => range.after.clone_from(&last.key),
                _ => break,
            }
        }
    }
    Ok(other)
}

impl Store for Sealed {
    fn get(&self, key: &str) -> BoxFuture<'_, Result<Option<Record>>> {
        let found = self.inner.get(key);
        async move {
            let found = found.await?;
            Ok(found.map(|record| Record { value: self.sealing.open(&record.key, record.value), ..record }))
        }
        .boxed()
    }

    fn range(&self, range: Range) -> BoxFuture<'_, Result<RangeResult>> {
        let found = self.inner.range(range);
        async move {
            let mut found = found.await?;
            for record in &mut found.records {
                record.value = self.sealing.open(&record.key, std::mem::take(&mut record.value));
            }
            Ok(found)
        }
        .boxed()
    }

    fn txn(&self, txn: Txn) -> BoxFuture<'_, Result<TxnResult>> {
        if self.sealing.has_secrets(&txn) { self.sealing.commit(txn).boxed() } else { self.inner.txn(txn) }
    }

    fn watch(&self, prefix: &str, after: Revision) -> BoxFuture<'_, Result<BoxStream<'static, Result<WatchItem>>>> {
        let watching = self.inner.watch(prefix, after);
        async move {
            let sealing = Arc::clone(&self.sealing);
            let opened = move |item: Result<WatchItem>| {
                let Ok(WatchItem::Events(mut events)) = item else { return item };
                for event in &mut events {
                    event.value = event.value.take().map(|value| sealing.open(&event.key, value));
                }
                Ok(WatchItem::Events(events))
            };
            Ok(watching.await?.map(opened).boxed())
        }
        .boxed()
    }

    fn revision(&self) -> BoxFuture<'_, Result<Revision>> {
        self.inner.revision()
    }

    fn request_progress(&self) -> BoxFuture<'_, Result<()>> {
        self.inner.request_progress()
    }

    fn compact(&self, revision: Revision) -> BoxFuture<'_, Result<()>> {
        self.inner.compact(revision)
    }

    fn compacted(&self) -> Revision {
        self.inner.compacted()
    }

    fn lease_grant(&self, ttl: Duration) -> BoxFuture<'_, Result<LeaseId>> {
        self.inner.lease_grant(ttl)
    }

    fn lease_keep_alive(&self, lease: LeaseId) -> BoxFuture<'_, Result<Duration>> {
        self.inner.lease_keep_alive(lease)
    }

    fn lease_revoke(&self, lease: LeaseId) -> BoxFuture<'_, Result<()>> {
        self.inner.lease_revoke(lease)
    }

    fn close(&self) -> BoxFuture<'_, Result<()>> {
        self.inner.close()
    }

    fn plan_scrub(&self) -> BoxFuture<'_, Result<()>> {
        self.inner.plan_scrub()
    }

    fn scrub(&self) -> BoxFuture<'_, Result<()>> {
        self.inner.scrub()
    }

    fn status(&self) -> BoxFuture<'_, Result<Status>> {
        self.inner.status()
    }

    fn defragment(&self, history: History) -> BoxFuture<'_, Result<()>> {
        self.inner.defragment(history)
    }

    fn check(&self) -> BoxFuture<'_, Result<Vec<String>>> {
        self.inner.check()
    }

    fn sealing(&self) -> Option<&Arc<Sealing>> {
        Some(&self.sealing)
    }

    fn stats(&self) -> Stats {
        self.inner.stats()
    }
}
