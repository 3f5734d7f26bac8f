//! Making a backup.
//!
//! In this order, so that it can be killed anywhere: the lock; `volume.cfg`, if there is none; a list of blocks that says the backup
//! is under way; the blocks; the lock once more, since a target that was away for long may have been cleaned up meanwhile; the
//! list of blocks; what the volume's last backup is. The blocks that are there already are asked for once, so that a backup goes
//! on where an earlier try ended, and blocks of the previous backup that were lost are sent again.

use std::collections::HashSet;
use std::path::PathBuf;

use crate::codec::{Codec, Compression, Method};
use crate::config::{BLOCK_SIZE, BackupConfig, BlockMapping, Encryption, Extension, Labels, VolumeConfig};
use crate::error::Error;
use crate::layout::{self, Checksum, Pool};
use crate::lock::{Kind, Lock};
use crate::seal::{CIPHER, Key, Secret};
use crate::store::{BackupStore, named, now};
use crate::target::Fault;
use crate::transfer::Transfer;
use crate::upload::{Disk, Extent, Upload, present};

/// What is to be read of the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Changes {
    All,
    /// Only what changed since that backup. Everything, if the backup is not there or cannot be built on.
    Since {
        backup: String,
        extents: Vec<Extent>,
    },
}

#[derive(Clone, Debug)]
pub struct BackupRequest {
    pub volume: String,
    /// Of the backup, unique in its volume. One of the same snapshot that is complete is left as it is.
    pub backup: String,
    pub snapshot: String,
    /// As RFC 3339 has it.
    pub snapshot_created_at: String,
    /// A file or a device that nobody writes to.
    pub disk: PathBuf,
    pub changes: Changes,
    /// For the volume's first backup; later ones are compressed like it.
    pub compression: Compression,
    /// With it, only those who have it can read the backup.
    pub secret: Option<Secret>,
    pub labels: Labels,
    pub storage_class: String,
    pub transfer: Transfer,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    pub is_incremental: bool,
    /// Of the disk, in bytes; the rest of it was known.
    pub read: u64,
    /// All blocks of the backup together.
    pub size: u64,
    pub new_blocks: u64,
    /// What was sent, after compression.
    pub uploaded: u64,
    pub method: Method,
}

impl BackupStore {
    pub async fn write(&self, request: &BackupRequest) -> Result<Written, Error> {
        named("a volume", &request.volume)?;
        named("a backup", &request.backup)?;
        let key = request.secret.as_ref().map(|secret| secret.key(&request.volume)).transpose().map_err(Error::Key)?;
        let disk = Disk::open(&request.disk, BLOCK_SIZE, true).await?;
        let pool = Pool::Volume(request.volume.clone());
        let lock = self.lock(&pool, Kind::Use, &format!("volume {}", request.volume)).await?;
        let writing = Writing { store: self, request, pool, lock, key, disk };
        let written = writing.run().await;
        if written.is_err() {
            writing.give_up().await;
        }
        writing.lock.release().await;
        if written.as_ref().is_err_and(|error| error.fault() == Some(Fault::Full)) {
            self.make_room(&request.volume).await;
        }
        written
    }

    /// What was sent of a backup that does not fit keeps everybody else from writing, even from deleting: that takes a lock.
    async fn make_room(&self, volume: &str) {
        if let Err(error) = self.hasty().clean_up(volume).await {
            tracing::warn!(volume, error = %croft_meta::Chain(&error), "cannot remove what did not fit into the backup target");
        }
    }
}

struct Writing<'a> {
    store: &'a BackupStore,
    request: &'a BackupRequest,
    pool: Pool,
    lock: Lock,
    key: Option<Key>,
    disk: Disk,
}

impl Writing<'_> {
    async fn run(&self) -> Result<Written, Error> {
        let request = self.request;
        if let Some(done) = self.existing().await? {
            return Ok(done);
        }
        let codec = self.volume().await?;
        let path = layout::backup_config(&request.volume, &request.backup);
        self.store.save(&path, &self.under_way(&codec)).await?;

        // In this order: the text of a long list is gone again before there is another.
        let previous = self.previous(&codec).await?;
        let present = present(self.store, &self.pool).await?;
        let offsets = self.offsets(previous.as_deref(), &present).await?;
        let (pool, disk) = (&self.pool, self.disk.clone());
        let upload = Upload { store: self.store, pool, codec: codec.clone(), disk, lock: &self.lock, present };
        let read = offsets.iter().map(|offset| self.disk.length_at(*offset)).sum();
        let uploaded = upload.run(offsets, &request.transfer).await?;

        let is_incremental = previous.is_some();
        let mut blocks: Vec<_> = previous.unwrap_or_default();
        let is_new = |offset: u64| uploaded.blocks.binary_search_by_key(&offset, |(offset, _)| *offset).is_ok();
        blocks.retain(|block| block.offset < self.disk.size && !is_new(block.offset));
        blocks.extend(uploaded.mappings());
        blocks.sort_unstable_by_key(|block| block.offset);
        let (size, new_blocks, bytes) = (blocks.len() as u64 * BLOCK_SIZE, uploaded.new_blocks, uploaded.bytes);
        drop(uploaded);
        let config = BackupConfig {
            snapshot_name: request.snapshot.clone(),
            snapshot_created_at: request.snapshot_created_at.clone(),
            created_time: now(),
            size,
            labels: Some(request.labels.clone()),
            is_incremental,
            newly_uploaded_data_size: bytes,
            blocks,
            croft: Some(Extension { lock: String::new(), ..self.extension() }),
            ..self.under_way(&codec)
        };
        self.lock.confirm().await?;
        self.store.save(&path, &config).await?;
        if let Err(lost) = self.lock.check() {
            // It took so long that its blocks may have been deleted.
            self.store.delete(&path).await?;
            return Err(lost);
        }
        self.update_volume(&codec, new_blocks).await?;
        Ok(Written { is_incremental, read, size, new_blocks, uploaded: bytes, method: codec.method() })
    }

    /// The same backup, if it was completed before; an error if another has its name.
    async fn existing(&self) -> Result<Option<Written>, Error> {
        let (volume, backup) = (&self.request.volume, &self.request.backup);
        let Some(config) = self.store.backup(volume, backup).await? else { return Ok(None) };
        if !config.is_complete() {
            let lock = config.croft.map(|croft| croft.lock).unwrap_or_default();
            let is_live = self.store.is_locked_by(&self.pool, &lock, self.lock.target_time()).await?;
            return if is_live { Err(Error::Locked(format!("backup {backup}"), "written")) } else { Ok(None) };
        }
        if config.snapshot_name != self.request.snapshot {
            return Err(Error::Exists { volume: volume.clone(), backup: backup.clone() });
        }
        let method = config.compression_method.parse().map_err(Error::Method)?;
        let (is_incremental, size) = (config.is_incremental, config.size);
        Ok(Some(Written { is_incremental, read: 0, size, new_blocks: 0, uploaded: 0, method }))
    }

    /// Makes sure that there is a `volume.cfg`; what it says about compression holds.
    async fn volume(&self) -> Result<Codec, Error> {
        let request = self.request;
        let Some(volume) = self.store.volume(&request.volume).await? else {
            let codec = Codec::new(request.compression, self.key.clone());
            let volume = VolumeConfig {
                name: request.volume.clone(),
                created_time: now(),
                data_engine: "v1".into(),
                ..self.described(VolumeConfig::default(), &codec)
            };
            self.store.save(&layout::volume_config(&request.volume), &volume).await?;
            return Ok(codec);
        };
        if !volume.backing_image_name.is_empty() {
            // What is zero here would show the image there.
            return Err(Error::OnBackingImage { volume: volume.name, image: volume.backing_image_name });
        }
        let method: Method = volume.compression_method.parse().map_err(Error::Method)?;
        Ok(Codec::new(method.compression, self.key.clone()))
    }

    fn described(&self, volume: VolumeConfig, codec: &Codec) -> VolumeConfig {
        VolumeConfig {
            size: self.disk.size.next_multiple_of(BLOCK_SIZE),
            labels: Some(self.request.labels.clone()),
            compression_method: codec.method().to_string(),
            storage_class_name: self.request.storage_class.clone(),
            ..volume
        }
    }

    async fn update_volume(&self, codec: &Codec, new_blocks: u64) -> Result<(), Error> {
        let request = self.request;
        let volume = self.store.volume(&request.volume).await?;
        let volume = volume.ok_or_else(|| Error::NoVolume(request.volume.clone()))?;
        let volume = VolumeConfig {
            last_backup_name: request.backup.clone(),
            last_backup_at: request.snapshot_created_at.clone(),
            block_count: volume.block_count + new_blocks,
            ..self.described(volume, codec)
        };
        self.store.save(&layout::volume_config(&request.volume), &volume).await
    }

    fn extension(&self) -> Extension {
        let encryption = |key: &Key| Encryption { cipher: CIPHER.into(), key_id: key.id().into() };
        Extension {
            disk_size: self.disk.size,
            lock: self.lock.name().into(),
            encryption: self.key.as_ref().map(encryption),
        }
    }

    fn under_way(&self, codec: &Codec) -> BackupConfig {
        BackupConfig {
            name: self.request.backup.clone(),
            volume_name: self.request.volume.clone(),
            compression_method: codec.method().to_string(),
            croft: Some(self.extension()),
            ..BackupConfig::default()
        }
    }

    /// The blocks of the backup that this one builds on, if it can.
    async fn previous(&self, codec: &Codec) -> Result<Option<Vec<BlockMapping>>, Error> {
        let Changes::Since { backup, .. } = &self.request.changes else { return Ok(None) };
        let Some(config) = self.store.backup(&self.request.volume, backup).await? else { return Ok(None) };
        let is_alike = config
            .compression_method
            .parse()
            .is_ok_and(|method: Method| method.is_encrypted == codec.method().is_encrypted);
        let has_key = config.key_id() == self.key.as_ref().map(Key::id);
        let is_usable = config.is_complete() && is_alike && has_key && config.block_size() == Some(BLOCK_SIZE);
        if !is_usable {
            tracing::info!(volume = self.request.volume, backup, "cannot build on the previous backup; reading all");
        }
        Ok(is_usable.then_some(config.blocks))
    }

    /// What is to be read: what changed, and what the target has lost.
    async fn offsets(&self, previous: Option<&[BlockMapping]>, present: &HashSet<Checksum>) -> Result<Vec<u64>, Error> {
        let (Some(previous), Changes::Since { extents, .. }) = (previous, &self.request.changes) else {
            return self.disk.data().await;
        };
        let mut offsets = self.disk.touched(extents);
        let lost =
            previous.iter().filter(|block| block.offset < self.disk.size && !present.contains(&block.block_checksum));
        offsets.extend(lost.map(|block| block.offset));
        offsets.sort_unstable();
        offsets.dedup();
        Ok(offsets)
    }

    /// Nobody need wait for a backup that will not come. Its blocks stay for the next try, or until the volume is cleaned up.
    async fn give_up(&self) {
        let path = layout::backup_config(&self.request.volume, &self.request.backup);
        let store = self.store.hasty();
        let is_ours = store.load::<BackupConfig>(&path).await.is_ok_and(|config| {
            let lock = config.filter(|it| !it.is_complete()).and_then(|it| it.croft).map(|croft| croft.lock);
            lock.as_deref() == Some(self.lock.name())
        });
        if is_ours && let Err(error) = store.delete(&path).await {
            tracing::warn!(error = %croft_meta::Chain(&error), path, "cannot remove what says that a backup is under way");
        }
    }
}
