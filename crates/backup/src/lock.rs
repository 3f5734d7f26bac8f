//! Longhorn's locks: files in the target that keep whoever deletes blocks away from whoever relies on them.
//!
//! There are two kinds. Any number may back up and restore at once, and any number may delete at once, but not both. Whoever
//! wants a lock writes its file, looks which others there are, and has it unless one of the other kind came first: one that is
//! acquired already, then the older by the target's clock, then the lesser name. A lock is refreshed every minute and counts for
//! nothing once it is 150 seconds old.
//!
//! Times in a target may be as coarse as a second, so that two who come at once cannot be told apart by them. Longhorn therefore
//! always waits for two seconds before it looks. We wait only if there is another when we first look: whoever comes after that
//! finds ours, waits, and then finds it acquired. For this our lock must be acquired within those two seconds, or we wait too.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use crate::error::Error;
use crate::layout::Pool;
use crate::store::{BackupStore, Owner};

const LIFETIME: Duration = Duration::from_secs(150);
const LIFETIME_IN_TARGET: SignedDuration = SignedDuration::from_secs(150);
const REFRESH: Duration = Duration::from_mins(1);
/// What is begun under a lock is ended within this.
pub(crate) const SAFE: Duration = Duration::from_mins(1);
/// Between tries when a refresh fails.
const REFRESH_AGAIN: Duration = Duration::from_secs(5);
const SETTLE: Duration = Duration::from_secs(2);
const SUFFIX: &str = ".lck";
const LARGEST: u64 = 64 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "u8", into = "u8")]
pub(crate) enum Kind {
    /// To write or read backups.
    Use,
    Delete,
    /// Whatever a later Longhorn may have: kept away from both.
    Other(u8),
}

impl From<u8> for Kind {
    fn from(number: u8) -> Self {
        match number {
            1 => Self::Use,
            2 => Self::Delete,
            other => Self::Other(other),
        }
    }
}

impl From<Kind> for u8 {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Use => 1,
            Kind::Delete => 2,
            Kind::Other(number) => number,
        }
    }
}

/// What is in the file. The owner is our own addition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct LockFile {
    name: String,
    #[serde(rename = "Type")]
    kind: Kind,
    acquired: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    owner: Option<OwnerFile>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct OwnerFile {
    name: String,
    session: String,
}

impl LockFile {
    /// Of an earlier process of the same owner, which is dead, or one that we let go ourselves.
    fn is_orphan_of(&self, owner: &Owner) -> bool {
        let is_let_go = |it: &OwnerFile| it.session != owner.session || owner.left.lock().contains(&self.name);
        self.owner.as_ref().is_some_and(|it| it.name == owner.name && is_let_go(it))
    }
}

/// Another's lock, and when it was last written.
#[derive(Debug)]
struct Other {
    path: String,
    file: LockFile,
    modified: Timestamp,
}

/// What was last known of a lock.
#[derive(Debug)]
struct Held {
    /// When a refresh that succeeded was begun.
    since: Instant,
    /// The same by the target's clock.
    modified: Timestamp,
    /// It was once too old, and whoever came may have deleted.
    has_lapsed: bool,
}

/// A lock that is ours. Dropped without [`Lock::release`], it stays in the target until it is old.
#[derive(Debug)]
pub(crate) struct Lock {
    store: BackupStore,
    path: String,
    file: LockFile,
    what: String,
    held: Arc<Mutex<Held>>,
    _refresh: AbortOnDropHandle<()>,
}

impl BackupStore {
    /// `what` is for messages.
    pub(crate) async fn lock(&self, pool: &Pool, kind: Kind, what: &str) -> Result<Lock, Error> {
        let name = format!("lock-{:016x}", getrandom::u64().map_err(Error::Random)?);
        let dir = pool.locks_dir();
        let path = format!("{dir}/{name}{SUFFIX}");
        let owner = OwnerFile { name: self.owner.name.clone(), session: self.owner.session.clone() };
        let mut file = LockFile { name, kind, acquired: false, owner: Some(owner) };
        let begun = Instant::now();
        let written = self.write_lock(&path, &file).await?;
        let acquired = self.acquire(&dir, &path, &mut file, written, begun).await;
        let modified = match acquired {
            Ok(Some(modified)) => modified,
            refused => {
                // What cannot be removed now is removed by whoever of us comes next, or is old soon.
                if self.target.delete(&path).await.is_err() {
                    self.owner.left.lock().insert(file.name);
                }
                let doing = if kind == Kind::Delete { "used" } else { "cleaned up" };
                return Err(refused.err().unwrap_or_else(|| Error::Locked(what.into(), doing)));
            }
        };
        let held = Arc::new(Mutex::new(Held { since: Instant::now(), modified, has_lapsed: false }));
        let refresh = tokio::spawn(refresh(self.clone(), path.clone(), file.clone(), held.clone()));
        let what = what.to_owned();
        Ok(Lock { store: self.clone(), path, file, what, held, _refresh: AbortOnDropHandle::new(refresh) })
    }

    /// None if somebody else has the lock.
    async fn acquire(
        &self,
        dir: &str,
        path: &str,
        file: &mut LockFile,
        mut written: Timestamp,
        begun: Instant,
    ) -> Result<Option<Timestamp>, Error> {
        let mut others = self.other_locks(dir, path, file.kind, written).await?;
        let mut has_waited = false;
        loop {
            let is_refused = others.iter().any(|other| other.file.acquired);
            if !others.is_empty() && !is_refused && !has_waited {
                tokio::time::sleep(SETTLE).await;
                has_waited = true;
                others = self.other_locks(dir, path, file.kind, written).await?;
            }
            if others.iter().any(|other| other.comes_before(file, written)) {
                return Ok(None);
            }
            file.acquired = true;
            written = self.write_lock(path, file).await?;
            if has_waited || begun.elapsed() < SETTLE {
                return Ok(Some(written));
            }
            // It took so long that whoever came meanwhile has looked already.
            file.acquired = false;
            has_waited = true;
            written = self.write_lock(path, file).await?;
            tokio::time::sleep(SETTLE).await;
            others = self.other_locks(dir, path, file.kind, written).await?;
        }
    }

    /// Gives the time by the target's clock.
    async fn write_lock(&self, path: &str, file: &LockFile) -> Result<Timestamp, Error> {
        self.save(path, file).await?;
        let gone = || Error::Content { path: path.into(), why: "it is gone right after it was written".into() };
        Ok(self.stat(path).await?.ok_or_else(gone)?.modified)
    }

    /// Those of the other kind that count. What is dead or old is removed on the way.
    async fn other_locks(&self, dir: &str, own: &str, kind: Kind, now: Timestamp) -> Result<Vec<Other>, Error> {
        let mut others = Vec::new();
        for name in self.list(dir).await?.into_iter().filter(|name| name.ends_with(SUFFIX)) {
            let path = format!("{dir}/{name}");
            if path == own {
                continue;
            }
            let Some(other) = self.other_lock(path).await? else { continue };
            let is_old = now.duration_since(other.modified) > LIFETIME_IN_TARGET;
            if is_old || other.file.is_orphan_of(&self.owner) {
                self.delete(&other.path).await?;
                self.owner.left.lock().remove(&other.file.name);
            } else if other.file.kind != kind {
                others.push(other);
            }
        }
        Ok(others)
    }

    async fn other_lock(&self, path: String) -> Result<Option<Other>, Error> {
        let Some(entry) = self.stat(&path).await? else { return Ok(None) };
        match self.get(&path, LARGEST).await {
            Ok(text) => {
                let file =
                    serde_json::from_slice(&text).map_err(|source| Error::Config { path: path.clone(), source })?;
                Ok(Some(Other { path, file, modified: entry.modified }))
            }
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether the lock of that name is there and counts.
    pub(crate) async fn is_locked_by(&self, pool: &Pool, name: &str, now: Timestamp) -> Result<bool, Error> {
        if crate::layout::check_name(name).is_err() {
            return Ok(false);
        }
        let Some(other) = self.other_lock(format!("{}/{name}{SUFFIX}", pool.locks_dir())).await? else {
            return Ok(false);
        };
        let age = now.duration_since(other.modified);
        Ok(age <= LIFETIME_IN_TARGET && !other.file.is_orphan_of(&self.owner))
    }
}

impl Other {
    fn comes_before(&self, own: &LockFile, written: Timestamp) -> bool {
        let order = |file: &LockFile, modified: Timestamp| (!file.acquired, modified, file.name.clone());
        order(&self.file, self.modified) < order(own, written)
    }
}

impl Lock {
    pub(crate) fn name(&self) -> &str {
        &self.file.name
    }

    /// When it was last written, by the target's clock.
    pub(crate) fn target_time(&self) -> Timestamp {
        self.held.lock().modified
    }

    /// Refreshes it, and makes sure that nobody else can have had it since it was acquired.
    pub(crate) async fn confirm(&self) -> Result<(), Error> {
        renew(&self.store, &self.path, &self.file, &self.held).await?;
        if self.held.lock().has_lapsed { Err(Error::LockLost(self.what.clone())) } else { Ok(()) }
    }

    /// The same without asking the target. It then holds for a minute more.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let held = self.held.lock();
        let is_sound = !held.has_lapsed && held.since.elapsed() + SAFE < LIFETIME;
        if is_sound { Ok(()) } else { Err(Error::LockLost(self.what.clone())) }
    }

    pub(crate) async fn release(self) {
        if let Err(error) = self.store.hasty().delete(&self.path).await {
            tracing::warn!(error = %croft_meta::Chain(&error), lock = self.path, "cannot remove a lock; it will be old soon");
            self.store.owner.left.lock().insert(self.file.name);
        }
    }
}

async fn refresh(store: BackupStore, path: String, file: LockFile, held: Arc<Mutex<Held>>) {
    let mut pause = REFRESH;
    loop {
        tokio::time::sleep(pause).await;
        pause = match renew(&store, &path, &file, &held).await {
            Ok(()) => REFRESH,
            Err(error) => {
                tracing::warn!(error = %croft_meta::Chain(&error), lock = path, "cannot refresh a lock");
                REFRESH_AGAIN
            }
        };
    }
}

async fn renew(store: &BackupStore, path: &str, file: &LockFile, held: &Mutex<Held>) -> Result<(), Error> {
    let begun = Instant::now();
    let is_there = store.stat(path).await?.is_some();
    let modified = store.write_lock(path, file).await?;
    let mut held = held.lock();
    // By both clocks: ours stands still while the machine sleeps. And nobody removes a lock that counts.
    let age = modified.duration_since(held.modified);
    let is_late = begun.elapsed() + begun.duration_since(held.since) > LIFETIME || age > LIFETIME_IN_TARGET;
    held.has_lapsed |= is_late || !is_there;
    held.since = begun;
    held.modified = modified;
    Ok(())
}

#[cfg(test)]
mod tests;
