//! A store that tells what happens in it only once somebody asks how far it is: as if another server on it had been quicker.

use std::sync::Arc;
use std::time::Duration;

use croft_meta::{Revision, object};
use croft_store::{Compare, LeaseId, Op, Range, RangeResult, Record, Result, Store, Txn, TxnResult, WatchItem};
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt as _, StreamExt as _};
use serde_json::Value;
use tokio::sync::watch;

use crate::cache::ROOT;
use crate::encoding;

#[derive(Debug)]
pub(crate) struct Lagging {
    store: Arc<dyn Store>,
    holds_back: watch::Sender<bool>,
}

impl Lagging {
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        Self { store, holds_back: watch::Sender::new(false) }
    }

    /// What another server writes, and nobody here has heard of.
    pub(crate) async fn put_elsewhere(&self, collection: &str, object: &Value) {
        let id = crate::call::id(object::namespace(object), object::name(object));
        let (key, value) = (format!("{ROOT}{collection}/{id}"), encoding::to_stored(object));
        self.write_elsewhere(&key, Revision::ZERO, Op::Put { key: key.clone(), value, lease: None }).await;
    }

    pub(crate) async fn delete_elsewhere(&self, collection: &str, id: &str) {
        let key = format!("{ROOT}{collection}/{id}");
        let revision = self.store.get(&key).await.unwrap().unwrap().revision;
        self.write_elsewhere(&key, revision, Op::Delete { key: key.clone() }).await;
    }

    async fn write_elsewhere(&self, key: &str, revision: Revision, op: Op) {
        self.holds_back.send_replace(true);
        let compare = vec![Compare { key: key.to_owned(), revision }];
        let written = self.store.txn(Txn { compare, ops: vec![op] }).await.unwrap();
        assert!(matches!(written, TxnResult::Committed(_)), "{written:?}");
    }
}

impl Store for Lagging {
    fn get(&self, key: &str) -> BoxFuture<'_, Result<Option<Record>>> {
        self.store.get(key)
    }
    fn range(&self, range: Range) -> BoxFuture<'_, Result<RangeResult>> {
        self.store.range(range)
    }
    fn txn(&self, txn: Txn) -> BoxFuture<'_, Result<TxnResult>> {
        self.store.txn(txn)
    }
    fn watch(&self, prefix: &str, after: Revision) -> BoxFuture<'_, Result<BoxStream<'static, Result<WatchItem>>>> {
        let (opened, holds_back) = (self.store.watch(prefix, after), self.holds_back.subscribe());
        async move {
            let told = opened.await?.then(move |item| {
                let mut holds_back = holds_back.clone();
                async move {
                    // It fails when the store is gone, and then there is nothing to hold back.
                    let _ = holds_back.wait_for(|holds_back| !holds_back).await;
                    item
                }
            });
            Ok(told.boxed())
        }
        .boxed()
    }
    fn revision(&self) -> BoxFuture<'_, Result<Revision>> {
        self.holds_back.send_replace(false);
        self.store.revision()
    }
    fn request_progress(&self) -> BoxFuture<'_, Result<()>> {
        self.store.request_progress()
    }
    fn compact(&self, revision: Revision) -> BoxFuture<'_, Result<()>> {
        self.store.compact(revision)
    }
    fn lease_grant(&self, ttl: Duration) -> BoxFuture<'_, Result<LeaseId>> {
        self.store.lease_grant(ttl)
    }
    fn lease_keep_alive(&self, lease: LeaseId) -> BoxFuture<'_, Result<Duration>> {
        self.store.lease_keep_alive(lease)
    }
    fn lease_revoke(&self, lease: LeaseId) -> BoxFuture<'_, Result<()>> {
        self.store.lease_revoke(lease)
    }
    fn close(&self) -> BoxFuture<'_, Result<()>> {
        self.store.close()
    }
}
