use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use futures::future::{BoxFuture, FutureExt};
use futures::stream::BoxStream;

use super::*;
use crate::layout::volume_dir;
use crate::target::{Directory, Entry, Fault, Target, TargetError};

/// A target that is away when something is to be deleted.
#[derive(Debug)]
struct Away(Directory, AtomicBool);

impl Target for Away {
    fn list<'a>(&'a self, dir: &'a str) -> BoxFuture<'a, Result<Vec<String>, TargetError>> {
        self.0.list(dir)
    }
    fn walk<'a>(&'a self, dir: &'a str) -> BoxStream<'a, Result<Entry, TargetError>> {
        self.0.walk(dir)
    }
    fn stat<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Result<Option<Entry>, TargetError>> {
        self.0.stat(path)
    }
    fn get<'a>(&'a self, path: &'a str, limit: u64) -> BoxFuture<'a, Result<Bytes, TargetError>> {
        self.0.get(path, limit)
    }
    fn put<'a>(&'a self, path: &'a str, data: Bytes) -> BoxFuture<'a, Result<(), TargetError>> {
        self.0.put(path, data)
    }
    fn delete<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Result<(), TargetError>> {
        if self.1.load(Ordering::Relaxed) {
            return async move { Err(TargetError::new(Fault::Unreachable, "delete", path)) }.boxed();
        }
        self.0.delete(path)
    }
}

#[tokio::test]
async fn what_we_let_go_while_the_target_was_away_is_in_nobodys_way_here() {
    let dir = tempfile::tempdir().unwrap();
    let target = Arc::new(Away(Directory::new(dir.path()), AtomicBool::new(true)));
    let store = BackupStore::new(target.clone(), Owner::new("one").unwrap()).with_patience(Duration::ZERO);
    let held = store.lock(&pool(), Kind::Use, "x").await.unwrap();
    store.lock(&pool(), Kind::Use, "x").await.unwrap().release().await;
    let left = store.list(&pool().locks_dir()).await.unwrap();
    assert_eq!(left.len(), 2, "{left:?}");
    target.1.store(false, Ordering::Relaxed);
    assert!(store.lock(&pool(), Kind::Delete, "x").await.is_err(), "one is held");
    held.release().await;
    store.lock(&pool(), Kind::Delete, "x").await.unwrap().release().await;
    assert!(store.list(&pool().locks_dir()).await.unwrap().is_empty());
    assert!(store.owner.left.lock().is_empty(), "nothing is remembered for ever");
}

fn store(dir: &std::path::Path, owner: &str) -> BackupStore {
    BackupStore::new(Arc::new(Directory::new(dir)), Owner::new(owner).unwrap()).with_patience(Duration::ZERO)
}

fn pool() -> Pool {
    Pool::Volume("vol".into())
}

/// As Longhorn writes it.
async fn foreign(store: &BackupStore, name: &str, kind: u8, acquired: bool) {
    let text = format!(r#"{{"Name":"{name}","Type":{kind},"Acquired":{acquired}}}"#);
    let path = format!("{}/locks/{name}.lck", volume_dir("vol"));
    store.target.put(&path, Bytes::from(text)).await.unwrap();
}

#[tokio::test]
async fn many_may_use_and_many_may_delete_but_not_both() {
    let dir = tempfile::tempdir().unwrap();
    let (one, other) = (store(dir.path(), "one"), store(dir.path(), "other"));
    let first = one.lock(&pool(), Kind::Use, "x").await.unwrap();
    let second = other.lock(&pool(), Kind::Use, "x").await.unwrap();
    let refused = other.lock(&pool(), Kind::Delete, "x").await.unwrap_err();
    assert!(matches!(refused, Error::Locked(..)), "{refused}");
    first.release().await;
    second.release().await;
    let deletes = other.lock(&pool(), Kind::Delete, "x").await.unwrap();
    other.lock(&pool(), Kind::Delete, "x").await.unwrap().release().await;
    assert!(one.lock(&pool(), Kind::Use, "x").await.is_err());
    deletes.release().await;
    assert!(one.list("").await.unwrap().iter().all(|name| name == "backupstore"), "nothing is left");
    assert!(one.list(&pool().locks_dir()).await.unwrap().is_empty());
}

#[tokio::test]
async fn of_two_at_once_one_has_it() {
    let dir = tempfile::tempdir().unwrap();
    for _ in 0..2 {
        let (one, other) = (store(dir.path(), "one"), store(dir.path(), "other"));
        let (pool_one, pool_other) = (pool(), pool());
        let (using, deleting) =
            tokio::join!(one.lock(&pool_one, Kind::Use, "x"), other.lock(&pool_other, Kind::Delete, "x"));
        assert!(using.is_ok() != deleting.is_ok(), "{using:?} {deleting:?}");
        for lock in [using, deleting].into_iter().flatten() {
            lock.release().await;
        }
    }
}

#[tokio::test]
async fn longhorns_locks_are_honoured_until_they_are_old() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path(), "one");
    foreign(&store, "lock-1", 2, true).await;
    assert!(store.lock(&pool(), Kind::Use, "x").await.is_err());
    let path = dir.path().join(format!("{}/locks/lock-1.lck", volume_dir("vol")));
    let old = std::time::Duration::from_secs(151);
    let modified = std::fs::metadata(&path).unwrap().modified().unwrap();
    std::fs::File::options().write(true).open(&path).unwrap().set_modified(modified - old).unwrap();
    store.lock(&pool(), Kind::Use, "x").await.unwrap().release().await;
    assert!(!path.exists(), "old locks go");
}

#[tokio::test]
async fn what_a_dead_process_of_ours_held_is_broken_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let dead = store(dir.path(), "node-1");
    let lock = dead.lock(&pool(), Kind::Use, "x").await.unwrap();
    // Not released, as if it were killed.
    drop(lock);
    assert!(store(dir.path(), "node-2").lock(&pool(), Kind::Delete, "x").await.is_err());
    store(dir.path(), "node-1").lock(&pool(), Kind::Delete, "x").await.unwrap().release().await;
}

#[tokio::test]
async fn a_lock_that_somebody_removed_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path(), "one");
    let lock = store.lock(&pool(), Kind::Use, "x").await.unwrap();
    lock.confirm().await.unwrap();
    store.delete(&lock.path).await.unwrap();
    assert!(matches!(lock.confirm().await, Err(Error::LockLost(_))));
    assert!(lock.check().is_err(), "and stays lost");
}
