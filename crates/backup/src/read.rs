//! Reading a backup: into a disk, or a piece of it.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use croft_image::is_zero;
use futures::future::try_join_all;
use parking_lot::Mutex;
use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};

use crate::codec::{BlockError, Codec, Method};
use crate::config::{BLOCK_SIZE, BackingImageConfig, BackupConfig, BlockMapping, Extension};
use crate::error::Error;
use crate::layout::{Checksum, Pool};
use crate::lock::{Kind, Lock};
use crate::memory::{Block, direct};
use crate::seal::Secret;
use crate::store::BackupStore;
use crate::transfer::{Run, Transfer, on_thread};

/// Blocks that were read last, in bytes: whoever reads small pieces reads near them, and file systems in several places at once.
const CACHED: u64 = 32 << 20;
/// Holes smaller than this cost more than they save.
const HOLE: usize = 64 << 10;

/// What is in a disk before a backup is put into it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    /// Whatever it is, it is not to be there any more.
    Nothing,
    /// The backing image that the volume was on.
    BackingImage,
}

/// A backup that can be read, and is not deleted meanwhile by those who honour locks. To be closed.
#[derive(Debug)]
pub struct OpenBackup {
    pub(crate) store: BackupStore,
    pub(crate) pool: Pool,
    pub(crate) codec: Codec,
    /// By offset.
    pub(crate) blocks: Arc<Vec<BlockMapping>>,
    pub(crate) block_size: u64,
    size: u64,
    volume: String,
    backing_image: Option<String>,
    lock: Lock,
    cache: Mutex<VecDeque<(u64, Arc<Block>)>>,
}

impl BackupStore {
    pub async fn open(&self, volume: &str, backup: &str, secret: Option<&Secret>) -> Result<OpenBackup, Error> {
        crate::store::named("a volume", volume)?;
        crate::store::named("a backup", backup)?;
        let pool = Pool::Volume(volume.into());
        let lock = self.lock(&pool, Kind::Use, &format!("volume {volume}")).await?;
        let opened = async {
            let missing = || Error::NoBackup { volume: volume.into(), backup: backup.into() };
            let config: BackupConfig = self.backup(volume, backup).await?.ok_or_else(missing)?;
            let facts = self.volume(volume).await?.ok_or_else(|| Error::NoVolume(volume.into()))?;
            if !config.is_complete() {
                return Err(Error::Incomplete(backup.into()));
            }
            let content = |why: &str| Error::Content { path: format!("backup {backup}"), why: why.into() };
            let block_size =
                config.block_size().ok_or_else(|| content("its blocks have a size that is not known here"))?;
            if !config.single_file.file_path.is_empty() {
                return Err(content("it is one file, not blocks"));
            }
            let codec = codec(&config.compression_method, config.croft.as_ref(), secret, volume)?;
            let size = config.croft.map_or(facts.size, |croft| croft.disk_size);
            let backing_image = Some(facts.backing_image_name).filter(|name| !name.is_empty());
            Ok((codec, config.blocks, block_size, size, backing_image))
        }
        .await;
        self.opened(pool, lock, volume, opened).await
    }

    /// A backing image; they have no keys.
    pub async fn open_backing_image(&self, name: &str) -> Result<OpenBackup, Error> {
        crate::store::named("a backing image", name)?;
        let pool = Pool::BackingImages;
        let lock = self.lock(&pool, Kind::Use, "the pool of backing images").await?;
        let opened = async {
            let config = self.backing_image(name).await?;
            let config: BackingImageConfig = config.ok_or_else(|| Error::NoBackingImage(name.into()))?;
            if !config.is_complete() {
                return Err(Error::Incomplete(name.into()));
            }
            let codec = codec(&config.compression_method, config.croft.as_ref(), None, name)?;
            Ok((codec, config.blocks, BLOCK_SIZE, config.size, None))
        }
        .await;
        self.opened(pool, lock, name, opened).await
    }

    async fn opened(
        &self,
        pool: Pool,
        lock: Lock,
        volume: &str,
        opened: Result<Opened, Error>,
    ) -> Result<OpenBackup, Error> {
        let opened = opened.and_then(|opened| checked(volume, opened));
        let (codec, blocks, block_size, size, backing_image) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                lock.release().await;
                return Err(error);
            }
        };
        let (store, volume, cache) = (self.clone(), volume.to_owned(), Mutex::default());
        Ok(OpenBackup {
            store,
            pool,
            codec,
            blocks: blocks.into(),
            block_size,
            size,
            volume,
            backing_image,
            lock,
            cache,
        })
    }
}

type Opened = (Codec, Vec<BlockMapping>, u64, u64, Option<String>);

/// A list of blocks comes from a target, and whoever can write there can write anything.
fn checked(volume: &str, (codec, mut blocks, block_size, size, image): Opened) -> Result<Opened, Error> {
    blocks.sort_unstable_by_key(|block| block.offset);
    let is_block = |block: &BlockMapping| block.offset.is_multiple_of(block_size) && block.offset < size;
    let has_twice = blocks.windows(2).any(|pair| pair[0].offset == pair[1].offset);
    if size == 0 || has_twice || !blocks.iter().all(is_block) {
        let why = "its blocks do not make a disk of its size".into();
        return Err(Error::Content { path: format!("a backup of {volume}"), why });
    }
    Ok((codec, blocks, block_size, size, image))
}

fn codec(method: &str, croft: Option<&Extension>, secret: Option<&Secret>, volume: &str) -> Result<Codec, Error> {
    let method: Method = method.parse().map_err(Error::Method)?;
    if !method.is_encrypted {
        return Ok(Codec::new(method.compression, None));
    }
    let encryption = croft.and_then(|croft| croft.encryption.as_ref());
    let expected = encryption.map(|encryption| encryption.key_id.clone()).unwrap_or_default();
    let key = secret.ok_or_else(|| Error::KeyNeeded(expected.clone()))?.key(volume).map_err(Error::Key)?;
    if key.id() != expected {
        return Err(Error::WrongKey { expected, given: key.id().into() });
    }
    Ok(Codec::new(method.compression, Some(key)))
}

/// Where a backup is put.
#[derive(Clone)]
struct Destination {
    file: Arc<File>,
    /// The same, written past the kernel's cache: nobody may read it soon, and what is in the cache is worth more.
    direct: Option<Arc<File>>,
    path: PathBuf,
    size: u64,
    /// All holes, so that zeros need not be written.
    is_empty: bool,
}

impl OpenBackup {
    /// Of the disk, in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The image that is beneath what is in the backup.
    pub fn backing_image(&self) -> Option<&str> {
        self.backing_image.as_deref()
    }

    /// Lets go of the lock. Whoever forgets it leaves the lock until it is old.
    pub async fn close(self) {
        self.lock.release().await;
    }

    /// Puts the disk as it was into a file, which is made if it is not there, or into a device. Every block is checked. It is
    /// durable when this returns; after an error the destination is worth nothing.
    pub async fn restore(&self, path: &Path, base: Base, transfer: &Transfer) -> Result<(), Error> {
        if let Some(image) = self.backing_image.clone().filter(|_| base == Base::Nothing) {
            return Err(Error::OnBackingImage { volume: self.volume.clone(), image });
        }
        let destination = self.destination(path, base).await?;
        if base == Base::Nothing && !destination.is_empty {
            self.clear_rest(&destination, transfer).await?;
        }
        let total = self.blocks.len() as u64 * self.block_size;
        let run = Run::new(transfer, total);
        run.add(0, 0);
        let (run_ref, to) = (&run, &destination);
        let blocks = self.blocks.clone();
        run.each(&blocks, self.block_size, |blocks| async move {
            self.lock.check()?;
            let stored = self.stored_all(&blocks).await?;
            let (count, received) = (blocks.len() as u64, stored.iter().map(|(_, data)| data.len()).sum());
            run_ref.pace.take(received).await;
            let (codec, limit, to) = (self.codec.clone(), self.block_size, to.clone());
            on_thread(move || {
                for (block, unpacked) in blocks.iter().zip(codec.unpack(&stored, limit)) {
                    to.write(block.offset, &unpacked.map_err(bad(block))?)?;
                }
                Ok(())
            })
            .await?;
            run_ref.add(count * self.block_size, received);
            Ok(())
        })
        .await?;
        on_thread(move || destination.file.sync_all().map_err(Error::file("flush", &destination.path))).await
    }

    /// What is at an offset; shorter at the end of the disk.
    pub async fn read_at(&self, offset: u64, length: usize) -> Result<Vec<u8>, Error> {
        if let Some(image) = self.backing_image.clone() {
            return Err(Error::OnBackingImage { volume: self.volume.clone(), image });
        }
        let end = offset.saturating_add(length as u64).min(self.size);
        let mut out = Vec::with_capacity(usize::try_from(end.saturating_sub(offset)).unwrap_or(0));
        let mut position = offset;
        while position < end {
            let start = position - position % self.block_size;
            let upto = end.min(start + self.block_size);
            let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
            let (from, to) = (size(position - start), size(upto - start));
            let block = self.block_at(start).await?;
            let data = block.as_ref().map_or(&[][..], |block| block);
            out.extend_from_slice(&data[from.min(data.len())..to.min(data.len())]);
            // Where there is no block, and where a block is short, it is zero.
            out.resize(size(upto - offset), 0);
            position = upto;
        }
        Ok(out)
    }

    async fn block_at(&self, offset: u64) -> Result<Option<Arc<Block>>, Error> {
        let Ok(index) = self.blocks.binary_search_by_key(&offset, |block| block.offset) else { return Ok(None) };
        if let Some(data) = self.cached(offset) {
            return Ok(Some(data));
        }
        let block = self.blocks[index];
        let stored = self.stored_all(&[block]).await?;
        let (codec, limit) = (self.codec.clone(), self.block_size);
        let data = on_thread(move || codec.unpack(&stored, limit).remove(0).map_err(bad(&block)));
        let data = Arc::new(data.await?);
        let mut cache = self.cache.lock();
        let most = usize::try_from(CACHED / self.block_size).unwrap_or(1).max(1);
        cache.truncate(most - 1);
        cache.push_front((offset, data.clone()));
        Ok(Some(data))
    }

    /// Those that are used stay.
    fn cached(&self, offset: u64) -> Option<Arc<Block>> {
        let mut cache = self.cache.lock();
        let index = cache.iter().position(|(at, _)| *at == offset)?;
        let found = cache.remove(index)?;
        let data = found.1.clone();
        cache.push_front(found);
        Some(data)
    }

    /// Blocks as they are in the target, with the names that they should have.
    async fn stored_all(&self, blocks: &[BlockMapping]) -> Result<Vec<(Checksum, Bytes)>, Error> {
        let each = |block: BlockMapping| async move { Ok((block.block_checksum, self.stored(block).await?)) };
        try_join_all(blocks.iter().copied().map(each)).await
    }

    /// A block as it is in the target.
    pub(crate) async fn stored(&self, block: BlockMapping) -> Result<Bytes, Error> {
        // What cannot be compressed becomes a little larger.
        let limit = self.block_size + self.block_size / 8 + (64 << 10);
        match self.store.get(&self.pool.block(&block.block_checksum), limit).await {
            Err(error) if error.is_not_found() => {
                Err(Error::MissingBlock { checksum: block.block_checksum, offset: block.offset })
            }
            other => Ok(other?),
        }
    }

    async fn destination(&self, path: &Path, base: Base) -> Result<Destination, Error> {
        let (path, size) = (path.to_owned(), self.size);
        on_thread(move || {
            let mut options = File::options();
            let file = options.read(true).write(true).create(true).truncate(false).open(&path);
            let file = file.map_err(Error::file("open", &path))?;
            let is_file = file.metadata().map_err(Error::file("look at", &path))?.is_file();
            if is_file {
                let emptied = if base == Base::Nothing { file.set_len(0) } else { Ok(()) };
                emptied.and_then(|()| file.set_len(size)).map_err(Error::file("set the length of", &path))?;
            } else {
                let space =
                    seek(&file, SeekFrom::End(0)).map_err(io::Error::from).map_err(Error::file("measure", &path))?;
                if space < size {
                    return Err(Error::file("restore to", &path)(io::ErrorKind::FileTooLarge.into()));
                }
            }
            let direct = direct(&path, true);
            Ok(Destination { file: file.into(), direct, path, size, is_empty: is_file && base == Base::Nothing })
        })
        .await
    }

    /// Zeros where a device is to have nothing.
    async fn clear_rest(&self, to: &Destination, transfer: &Transfer) -> Result<(), Error> {
        let mut position = 0;
        let gaps = self.blocks.iter().map(|block| (block.offset, block.offset + self.block_size));
        for (start, next) in gaps.chain([(self.size, self.size)]) {
            if transfer.cancel.is_cancelled() {
                return Err(Error::Cancelled);
            }
            let (to, from) = (to.clone(), position);
            if from < start {
                on_thread(move || to.clear(from, start)).await?;
            }
            position = next;
        }
        Ok(())
    }
}

/// What to say of a block that does not unpack.
fn bad(block: &BlockMapping) -> impl FnOnce(BlockError) -> Error + use<> {
    let BlockMapping { offset, block_checksum: checksum } = *block;
    move |source| Error::BadBlock { checksum, offset, source }
}

impl Destination {
    /// The last block may go past the disk's end, with zeros.
    fn write(&self, offset: u64, block: &[u8]) -> Result<(), Error> {
        let space = usize::try_from(self.size.saturating_sub(offset)).unwrap_or(usize::MAX);
        let block = &block[..block.len().min(space)];
        // Zeros are there already where nothing is.
        let pieces: Vec<_> = block.chunks(HOLE).map(|piece| (piece.len(), !self.is_empty || !is_zero(piece))).collect();
        let mut position = 0;
        for run in pieces.chunk_by(|(_, is_wanted), (_, next)| is_wanted == next) {
            let end = position + run.iter().map(|(length, _)| length).sum::<usize>();
            if run[0].1 {
                let written = self.write_run(&block[position..end], offset + position as u64);
                written.map_err(Error::file("write to", &self.path))?;
            }
            position = end;
        }
        Ok(())
    }

    fn write_run(&self, data: &[u8], position: u64) -> io::Result<()> {
        let written = self.direct.as_ref().and_then(|direct| direct.write_at(data, position).ok()).unwrap_or(0);
        // What went wrong there, or came short, is seen here, where sizes do not matter.
        self.file.write_all_at(&data[written..], position + written as u64)
    }

    fn clear(&self, from: u64, to: u64) -> Result<(), Error> {
        if fallocate(&self.file, FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE, from, to - from).is_ok() {
            return Ok(());
        }
        let zeros = vec![0; 1 << 20];
        let mut position = from;
        while position < to {
            let length = usize::try_from(to - position).unwrap_or(usize::MAX).min(zeros.len());
            self.file.write_all_at(&zeros[..length], position).map_err(Error::file("write to", &self.path))?;
            position += length as u64;
        }
        Ok(())
    }
}
