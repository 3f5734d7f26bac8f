//! Deleting backups, and only those blocks that nobody needs.
//!
//! The list of blocks goes first. Then all other lists are read, under the lock that keeps everybody away who could write one,
//! and what none of them names goes. Killed anywhere in between, what is left over is found the next time, or by
//! [`BackupStore::clean_up`].

use std::collections::HashSet;

use futures::stream::{self, StreamExt, TryStreamExt};
use jiff::{SignedDuration, Timestamp};

use crate::config::{BackingImageConfig, BackupConfig, BlockMapping, Extension, VolumeConfig};
use crate::error::Error;
use crate::layout::{self, Checksum, Pool};
use crate::lock::{Kind, Lock, SAFE};
use crate::store::{BackupStore, named};
use crate::target::{Fault, TargetError};

const AT_ONCE: usize = 8;
const TRIES: u32 = 3;
/// A backup that somebody else began and has not finished after this long is given up. Ours tell by their lock.
const GIVEN_UP: SignedDuration = SignedDuration::from_hours(24);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Freed {
    pub blocks: u64,
    /// What they took in the target.
    pub bytes: u64,
    /// Files that somebody died over.
    pub unfinished: u64,
    /// Backups that were begun and never finished.
    pub abandoned: u64,
    /// Blocks may be left that nobody needs: somebody else's backup is under way.
    pub is_partial: bool,
}

/// All lists of blocks of a pool, read.
#[derive(Default)]
struct Lists {
    names: Vec<String>,
    needed: HashSet<Checksum>,
    /// The path of what was given up.
    abandoned: Vec<String>,
    /// Somebody else may yet write one.
    is_open: bool,
    latest: Option<(String, String)>,
}

impl Lists {
    /// Neither a backup nor one that is under way.
    fn is_empty(&self) -> bool {
        self.latest.is_none() && !self.is_open
    }
}

/// What all lists have.
struct List {
    path: String,
    is_complete: bool,
    snapshot_created_at: String,
    blocks: Vec<BlockMapping>,
    croft: Option<Extension>,
}

impl BackupStore {
    /// A backup that is not there is deleted already.
    pub async fn delete_backup(&self, volume: &str, backup: &str) -> Result<Freed, Error> {
        named("a volume", volume)?;
        named("a backup", backup)?;
        let pool = Pool::Volume(volume.into());
        let what = format!("volume {volume}");
        let list = layout::backup_config(volume, backup);
        let lock = match self.lock(&pool, Kind::Delete, &what).await {
            // A list may go without the lock, which is about blocks; and then there is room for one.
            Err(error) if error.fault() == Some(Fault::Full) => {
                self.delete(&list).await?;
                self.lock(&pool, Kind::Delete, &what).await?
            }
            other => other?,
        };
        let freed = async {
            lock.confirm().await?;
            self.delete(&list).await?;
            self.collect(&pool, &lock).await
        }
        .await;
        lock.release().await;
        freed
    }

    /// All backups of a volume and everything else about it.
    pub async fn delete_volume(&self, volume: &str) -> Result<(), Error> {
        named("a volume", volume)?;
        let pool = Pool::Volume(volume.into());
        let lock = self.lock(&pool, Kind::Delete, &format!("volume {volume}")).await?;
        let deleted = async {
            // Lists before blocks: what is left when we are killed is no backup that cannot be restored.
            for dir in [layout::backups_dir(volume), pool.blocks_dir()] {
                let files = self.fold(&dir, Vec::new, |files, entry| files.push(entry.path)).await?;
                lock.confirm().await?;
                self.delete_all(files, &lock).await?;
            }
            Ok(self.delete(&layout::volume_config(volume)).await?)
        }
        .await;
        lock.release().await;
        deleted
    }

    /// Removes what was left behind: files that are not whole, backups that were given up, blocks that none needs.
    pub async fn clean_up(&self, volume: &str) -> Result<Freed, Error> {
        named("a volume", volume)?;
        self.clean_up_pool(Pool::Volume(volume.into()), &format!("volume {volume}")).await
    }

    pub async fn clean_up_backing_images(&self) -> Result<Freed, Error> {
        self.clean_up_pool(Pool::BackingImages, "the pool of backing images").await
    }

    async fn clean_up_pool(&self, pool: Pool, what: &str) -> Result<Freed, Error> {
        let lock = self.lock(&pool, Kind::Delete, what).await?;
        let freed = self.collect(&pool, &lock).await;
        lock.release().await;
        freed
    }

    pub async fn delete_backing_image(&self, name: &str) -> Result<Freed, Error> {
        named("a backing image", name)?;
        let lock = self.lock(&Pool::BackingImages, Kind::Delete, "the pool of backing images").await?;
        let freed = async {
            lock.confirm().await?;
            self.delete(&layout::backing_image_config(name)).await?;
            self.collect(&Pool::BackingImages, &lock).await
        }
        .await;
        lock.release().await;
        freed
    }

    async fn collect(&self, pool: &Pool, lock: &Lock) -> Result<Freed, Error> {
        let lists = self.lists(pool, lock.target_time()).await?;
        let mut freed = Freed { is_partial: lists.is_open, ..Freed::default() };
        freed.abandoned = lists.abandoned.len() as u64;
        lock.confirm().await?;
        self.delete_all(lists.abandoned.clone(), lock).await?;
        let mut unneeded = self.unneeded(pool, &lists, &mut freed).await?;
        if lists.is_open {
            unneeded.clear();
            (freed.blocks, freed.bytes) = (0, 0);
        }
        unneeded.extend(self.unfinished(pool, &mut freed).await?);
        // Longhorn does so too: should anybody have come in spite of the lock, their list is there by now.
        let names = self.list_names(pool).await?;
        if names.iter().any(|name| !lists.names.contains(name)) {
            return Ok(Freed { is_partial: true, ..Freed::default() });
        }
        lock.confirm().await?;
        self.delete_all(unneeded, lock).await?;
        match pool {
            // What has no backups is not there. Whoever begins one while we have the lock is refused.
            Pool::Volume(volume) if lists.is_empty() => self.delete(&layout::volume_config(volume)).await?,
            Pool::Volume(volume) => {
                self.update_volume(volume, &lists).await?;
                // Somebody else may have deleted the last one meanwhile, and this file, which we have then brought back.
                if self.list_names(pool).await?.is_empty() {
                    self.delete(&layout::volume_config(volume)).await?;
                }
            }
            Pool::BackingImages => {}
        }
        Ok(freed)
    }

    async fn list_names(&self, pool: &Pool) -> Result<Vec<String>, Error> {
        match pool {
            Pool::Volume(volume) => self.backups(volume).await,
            Pool::BackingImages => self.backing_images().await,
        }
    }

    async fn lists(&self, pool: &Pool, now: Timestamp) -> Result<Lists, Error> {
        let mut lists = Lists { names: self.list_names(pool).await?, ..Lists::default() };
        for name in lists.names.clone() {
            let Some(list) = self.one_list(pool, &name).await? else { continue };
            if list.is_complete {
                lists.needed.extend(list.blocks.iter().map(|block| block.block_checksum));
                let latest = (list.snapshot_created_at, name);
                lists.latest = lists.latest.take().max(Some(latest));
            } else if self.is_given_up(pool, &list, now).await? {
                lists.abandoned.push(list.path);
            } else {
                lists.is_open = true;
            }
        }
        Ok(lists)
    }

    async fn one_list(&self, pool: &Pool, name: &str) -> Result<Option<List>, Error> {
        Ok(match pool {
            Pool::Volume(volume) => self.backup(volume, name).await?.map(|config: BackupConfig| List {
                path: layout::backup_config(volume, name),
                is_complete: config.is_complete(),
                snapshot_created_at: config.snapshot_created_at,
                blocks: config.blocks,
                croft: config.croft,
            }),
            Pool::BackingImages => self.backing_image(name).await?.map(|config: BackingImageConfig| List {
                path: layout::backing_image_config(name),
                is_complete: config.is_complete(),
                snapshot_created_at: config.created_time,
                blocks: config.blocks,
                croft: config.croft,
            }),
        })
    }

    async fn is_given_up(&self, pool: &Pool, list: &List, now: Timestamp) -> Result<bool, Error> {
        if let Some(croft) = list.croft.as_ref().filter(|croft| !croft.lock.is_empty()) {
            // Ours is never written once its lock is old.
            return Ok(!self.is_locked_by(pool, &croft.lock, now).await?);
        }
        let entry = self.stat(&list.path).await?;
        Ok(entry.is_some_and(|entry| now.duration_since(entry.modified) > GIVEN_UP))
    }

    /// Blocks that no list names.
    async fn unneeded(&self, pool: &Pool, lists: &Lists, freed: &mut Freed) -> Result<Vec<String>, TargetError> {
        let dir = pool.blocks_dir();
        let found = self.fold(
            &dir,
            || (Vec::new(), 0),
            |(paths, bytes), entry| {
                let is_unneeded = |checksum| !lists.needed.contains(&checksum);
                if layout::block_checksum(entry.name()).is_some_and(is_unneeded) {
                    *bytes += entry.size;
                    paths.push(entry.path);
                }
            },
        );
        let (paths, bytes) = found.await?;
        (freed.blocks, freed.bytes) = (paths.len() as u64, bytes);
        Ok(paths)
    }

    /// Whoever wrote these is not there any more: they would have the lock.
    async fn unfinished(&self, pool: &Pool, freed: &mut Freed) -> Result<Vec<String>, TargetError> {
        let dirs = match pool {
            Pool::Volume(volume) => vec![layout::volume_dir(volume)],
            Pool::BackingImages => {
                vec![pool.blocks_dir(), layout::BACKING_IMAGES.into(), pool.locks_dir()]
            }
        };
        let mut paths = Vec::new();
        for dir in dirs {
            let found = self.fold(&dir, Vec::new, |paths, entry| {
                // Those who wait for a lock may be writing theirs.
                let is_lock = entry.path.contains("/locks/");
                if entry.is_unfinished() && (!is_lock || entry.is_unfinished_by_us()) {
                    paths.push(entry.path);
                }
            });
            paths.extend(found.await?);
        }
        freed.unfinished = paths.len() as u64;
        Ok(paths)
    }

    async fn delete_all(&self, paths: Vec<String>, lock: &Lock) -> Result<(), Error> {
        let delete = |path: String| self.delete_under(lock, path);
        stream::iter(paths).map(delete).buffer_unordered(AT_ONCE).try_for_each(|()| async { Ok(()) }).await
    }

    /// Never later than the lock allows: somebody else may need the block by then.
    async fn delete_under(&self, lock: &Lock, path: String) -> Result<(), Error> {
        let mut tries = 0;
        loop {
            lock.check()?;
            tries += 1;
            let late = || TargetError::new(Fault::Unreachable, "delete", &path);
            let deleted =
                tokio::time::timeout(SAFE / 2, self.target.delete(&path)).await.unwrap_or_else(|_| Err(late()));
            match deleted {
                Err(error) if error.may_pass() && tries < TRIES => {}
                other => return Ok(other?),
            }
        }
    }

    async fn update_volume(&self, volume: &str, lists: &Lists) -> Result<(), Error> {
        let Some(config) = self.volume(volume).await? else { return Ok(()) };
        let (last_backup_at, last_backup_name) = lists.latest.clone().unwrap_or_default();
        let block_count = lists.needed.len() as u64;
        let new = VolumeConfig { last_backup_name, last_backup_at, block_count, ..config.clone() };
        if new == config { Ok(()) } else { self.save(&layout::volume_config(volume), &new).await }
    }
}
