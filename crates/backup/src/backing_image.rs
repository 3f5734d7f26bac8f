//! Backing images in a target: what Harvester's virtual machine images are to Longhorn. All of them share their blocks.

use std::path::PathBuf;

use crate::codec::{Codec, Compression};
use crate::config::{BLOCK_SIZE, BackingImageConfig, Extension, Labels};
use crate::error::Error;
use crate::layout::{self, Pool};
use crate::lock::{Kind, Lock};
use crate::store::{BackupStore, named, now};
use crate::transfer::Transfer;
use crate::upload::{Disk, Upload, present};

#[derive(Clone, Debug)]
pub struct BackingImageRequest {
    pub name: String,
    pub file: PathBuf,
    pub compression: Compression,
    pub labels: Labels,
    pub transfer: Transfer,
}

impl BackupStore {
    /// One that is there already is left as it is: an image never changes. Gives how many bytes were sent.
    pub async fn write_backing_image(&self, request: &BackingImageRequest) -> Result<u64, Error> {
        named("a backing image", &request.name)?;
        // Unlike a volume's, the last block is as short as the file is.
        let disk = Disk::open(&request.file, BLOCK_SIZE, false).await?;
        let lock = self.lock(&Pool::BackingImages, Kind::Use, "the pool of backing images").await?;
        let written = self.write_image(request, disk, &lock).await;
        lock.release().await;
        written
    }

    async fn write_image(&self, request: &BackingImageRequest, disk: Disk, lock: &Lock) -> Result<u64, Error> {
        let path = layout::backing_image_config(&request.name);
        if let Some(existing) = self.backing_image(&request.name).await? {
            if existing.is_complete() {
                return Ok(0);
            }
            let name = existing.croft.map(|croft| croft.lock).unwrap_or_default();
            if self.is_locked_by(&Pool::BackingImages, &name, lock.target_time()).await? {
                return Err(Error::Locked(format!("backing image {}", request.name), "written"));
            }
        }
        let codec = Codec::new(request.compression, None);
        let under_way = BackingImageConfig {
            name: request.name.clone(),
            size: disk.size,
            checksum: disk.sha512().await?,
            labels: Some(request.labels.clone()),
            compression_method: codec.method().to_string(),
            created_time: now(),
            croft: Some(Extension { disk_size: disk.size, lock: lock.name().into(), encryption: None }),
            ..BackingImageConfig::default()
        };
        self.save(&path, &under_way).await?;
        let present = present(self, &Pool::BackingImages).await?;
        let offsets = disk.data().await?;
        let upload = Upload { store: self, pool: &Pool::BackingImages, codec, disk, lock, present };
        let uploaded = match upload.run(offsets, &request.transfer).await {
            Ok(uploaded) => uploaded,
            Err(error) => {
                // Nobody need wait for it; what cannot be removed is cleaned up later.
                let _ = self.hasty().delete(&path).await;
                return Err(error);
            }
        };
        let blocks: Vec<_> = uploaded.mappings().collect();
        let block_count = blocks.len() as u64;
        let config = BackingImageConfig { complete_time: now(), block_count, blocks, croft: None, ..under_way };
        lock.confirm().await?;
        self.save(&path, &config).await?;
        Ok(uploaded.bytes)
    }
}
