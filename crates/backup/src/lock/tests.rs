use std::sync::Arc;

use bytes::Bytes;

use super::*;
use crate::layout::volume_dir;
use crate::target::Directory;

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
