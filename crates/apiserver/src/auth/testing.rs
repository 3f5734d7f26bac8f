//! What the tests of this module share: a cache over a store in memory, keys, and small objects.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use croft_meta::{Revision, object};
use croft_pki::{Ca, TokenSigner};
use croft_store::{Error, Event, LeaseId, Range, RangeResult, Record, Result, Store, Txn, TxnResult, WatchItem};
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;

use super::{Authenticator, LoginLimits, RBAC_GROUP, ServiceAccountTokens};
use crate::cache::Cache;
use crate::encoding;

/// A cache that follows objects put by the test.
pub(crate) struct TestCache {
    store: Arc<Objects>,
    cache: Arc<Cache>,
    stop: CancellationToken,
}

impl Deref for TestCache {
    type Target = Cache;

    fn deref(&self) -> &Cache {
        &self.cache
    }
}

impl Drop for TestCache {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl TestCache {
    pub(crate) async fn new(objects: impl IntoIterator<Item = Value>) -> Self {
        let store = Arc::new(Objects { state: Mutex::default(), events: broadcast::Sender::new(64) });
        for object in objects {
            store.write(&key(&object), Some(encoding::to_stored(&object)));
        }
        let cache = Cache::load(Arc::clone(&store) as Arc<dyn Store>).await.unwrap();
        let stop = CancellationToken::new();
        tokio::spawn(Arc::clone(&cache).follow(stop.clone()));
        Self { store, cache, stop }
    }

    /// Writes an object and waits until the cache has it.
    pub(crate) async fn put(&self, object: &Value) {
        let revision = self.store.write(&key(object), Some(encoding::to_stored(object)));
        self.cache.reached(revision).await.unwrap();
    }

    /// Puts something that cannot be read in the place of `group/plural/id`.
    pub(crate) async fn lose(&self, key: &str) {
        let value = Bytes::from_static(b"\0unreadable\0damaged");
        let revision = self.store.write(&format!("{}{key}", crate::cache::ROOT), Some(value));
        self.cache.reached(revision).await.unwrap();
    }

    /// Deletes `group/plural/id`.
    pub(crate) async fn delete(&self, key: &str) {
        let revision = self.store.write(&format!("{}{key}", crate::cache::ROOT), None);
        self.cache.reached(revision).await.unwrap();
    }
}

fn key(object: &Value) -> String {
    let kind = object["kind"].as_str().unwrap();
    let group = Some(object::gvk(object).group).filter(|group| !group.is_empty()).unwrap_or_else(|| "core".to_owned());
    let id = match object::namespace(object) {
        "" => object::name(object).to_owned(),
        namespace => format!("{namespace}/{}", object::name(object)),
    };
    format!("{}{group}/{}s/{id}", crate::cache::ROOT, kind.to_lowercase())
}

/// As much of a store as a cache needs.
#[derive(Debug)]
struct Objects {
    state: Mutex<(u64, BTreeMap<String, Record>, Vec<Event>)>,
    events: broadcast::Sender<Event>,
}

impl Objects {
    fn write(&self, key: &str, value: Option<Bytes>) -> Revision {
        let mut state = self.state.lock();
        state.0 += 1;
        let revision = Revision(state.0);
        match value.clone() {
            Some(value) => drop(state.1.insert(key.to_owned(), Record { key: key.to_owned(), value, revision })),
            None => drop(state.1.remove(key)),
        }
        let event = Event { key: key.to_owned(), revision, value };
        state.2.push(event.clone());
        // Nobody may be watching yet.
        let _ = self.events.send(event);
        revision
    }
}

fn unavailable<T: Send + 'static>() -> BoxFuture<'static, Result<T>> {
    async { Err(Error::Unavailable { reason: "not in this test".to_owned() }) }.boxed()
}

impl Store for Objects {
    fn get(&self, _: &str) -> BoxFuture<'_, Result<Option<Record>>> {
        unavailable()
    }
    fn range(&self, _: Range) -> BoxFuture<'_, Result<RangeResult>> {
        let state = self.state.lock();
        let result =
            RangeResult { records: state.1.values().cloned().collect(), more: false, revision: Revision(state.0) };
        async { Ok(result) }.boxed()
    }
    fn txn(&self, _: Txn) -> BoxFuture<'_, Result<TxnResult>> {
        unavailable()
    }
    fn watch(&self, _: &str, after: Revision) -> BoxFuture<'_, Result<BoxStream<'static, Result<WatchItem>>>> {
        // Under the lock no event falls between those of the past and those to come.
        let state = self.state.lock();
        let live = self.events.subscribe();
        let past: Vec<Event> = state.2.iter().filter(|event| event.revision > after).cloned().collect();
        let live =
            futures::stream::unfold(live, |mut live| async { live.recv().await.ok().map(|event| (event, live)) });
        let events = futures::stream::iter(past).chain(live).map(|event| Ok(WatchItem::Events(vec![event])));
        async { Ok(events.boxed()) }.boxed()
    }
    fn revision(&self) -> BoxFuture<'_, Result<Revision>> {
        let revision = Revision(self.state.lock().0);
        async move { Ok(revision) }.boxed()
    }
    fn request_progress(&self) -> BoxFuture<'_, Result<()>> {
        async { Ok(()) }.boxed()
    }
    fn compact(&self, _: Revision) -> BoxFuture<'_, Result<()>> {
        unavailable()
    }
    fn lease_grant(&self, _: Duration) -> BoxFuture<'_, Result<LeaseId>> {
        unavailable()
    }
    fn lease_keep_alive(&self, _: LeaseId) -> BoxFuture<'_, Result<Duration>> {
        unavailable()
    }
    fn lease_revoke(&self, _: LeaseId) -> BoxFuture<'_, Result<()>> {
        unavailable()
    }
    fn close(&self) -> BoxFuture<'_, Result<()>> {
        async { Ok(()) }.boxed()
    }
}

/// A certificate authority and token signer of the test's own.
pub(crate) struct Keys {
    pub(crate) ca: Arc<Ca>,
    pub(crate) signer: Arc<TokenSigner>,
    _dir: tempfile::TempDir,
}

impl Keys {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let ca = Arc::new(Ca::load_or_create(dir.path(), Timestamp::now()).unwrap());
        let signer = Arc::new(TokenSigner::load_or_create(dir.path()).unwrap());
        Self { ca, signer, _dir: dir }
    }

    pub(crate) fn authenticator(&self, cache: &Cache) -> Authenticator {
        Authenticator::new(cache, Arc::clone(&self.ca), Arc::clone(&self.signer), LoginLimits::default()).unwrap()
    }

    pub(crate) fn tokens(&self, cache: &Cache) -> ServiceAccountTokens {
        ServiceAccountTokens::new(cache, &self.ca, Arc::clone(&self.signer))
    }
}

/// An object of the core group; the namespace may be empty.
pub(crate) fn object(kind: &str, namespace: &str, name: &str, uid: &str) -> Value {
    let mut object = json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "uid": uid}});
    if !namespace.is_empty() {
        object::set_meta(&mut object, "namespace", namespace);
    }
    object
}

pub(crate) fn cluster_role(name: &str, rules: Value) -> Value {
    let mut role = json!({"apiVersion": format!("{RBAC_GROUP}/v1"), "kind": "ClusterRole", "metadata": {"name": name}});
    role["rules"] = rules;
    role
}

pub(crate) fn role(namespace: &str, name: &str, rules: Value) -> Value {
    let mut role = cluster_role(name, rules);
    role["kind"] = json!("Role");
    object::set_meta(&mut role, "namespace", namespace);
    role
}

/// Subjects are (kind, name); a service account's name may be `namespace/name`.
pub(crate) fn cluster_role_binding(name: &str, role: &str, subjects: &[(&str, &str)]) -> Value {
    json!({"apiVersion": format!("{RBAC_GROUP}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": name},
        "roleRef": {"apiGroup": RBAC_GROUP, "kind": "ClusterRole", "name": role}, "subjects": subjects_of(subjects)})
}

pub(crate) fn role_binding(namespace: &str, name: &str, role: (&str, &str), subjects: &[(&str, &str)]) -> Value {
    json!({"apiVersion": format!("{RBAC_GROUP}/v1"), "kind": "RoleBinding",
        "metadata": {"namespace": namespace, "name": name},
        "roleRef": {"apiGroup": RBAC_GROUP, "kind": role.0, "name": role.1}, "subjects": subjects_of(subjects)})
}

fn subjects_of(subjects: &[(&str, &str)]) -> Value {
    subjects
        .iter()
        .map(|(kind, name)| match name.split_once('/') {
            Some((namespace, name)) => json!({"kind": kind, "namespace": namespace, "name": name}),
            None => json!({"kind": kind, "name": name}),
        })
        .collect()
}
