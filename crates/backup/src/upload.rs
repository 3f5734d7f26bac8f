//! The blocks of a disk on their way into a target: read, named, left out if they are zero or there already, packed, put.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use croft_image::{is_zero, next_data};
use parking_lot::Mutex;
use rustix::fs::{SeekFrom, seek};

use crate::codec::Codec;
use crate::config::BlockMapping;
use crate::error::Error;
use crate::layout::{self, Checksum, Pool};
use crate::lock::Lock;
use crate::memory::{Block, Memory, direct};
use crate::store::BackupStore;
use crate::transfer::{Run, Transfer, on_thread};

/// A piece of a disk, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    pub offset: u64,
    pub length: u64,
}

/// A disk to be read: a file or a device.
#[derive(Clone, Debug)]
pub(crate) struct Disk {
    file: Arc<File>,
    /// The same, read past the kernel's cache: nobody will read this again, and what is in the cache is worth more.
    direct: Option<Arc<File>>,
    path: PathBuf,
    pub(crate) size: u64,
    block_size: u64,
    /// Whether the last block is filled up with zeros.
    is_padded: bool,
}

impl Disk {
    pub(crate) async fn open(path: &Path, block_size: u64, is_padded: bool) -> Result<Self, Error> {
        let path = path.to_owned();
        on_thread(move || {
            let file = File::open(&path).map_err(Error::file("open", &path))?;
            // The end of a device is found by going there; its metadata does not say.
            let size = seek(&file, SeekFrom::End(0)).map_err(io::Error::from).map_err(Error::file("measure", &path))?;
            let direct = direct(&path, false);
            Ok(Self { file: file.into(), direct, path, size, block_size, is_padded })
        })
        .await
    }

    /// Where the blocks are that are not holes.
    pub(crate) async fn data(&self) -> Result<Vec<u64>, Error> {
        let disk = self.clone();
        on_thread(move || {
            let (mut blocks, mut position) = (Vec::new(), 0);
            while position < disk.size {
                let data = next_data(&disk.file, position, disk.size).map_err(Error::file("read", &disk.path))?;
                if data >= disk.size {
                    break;
                }
                let block = data - data % disk.block_size;
                blocks.push(block);
                position = block + disk.block_size;
            }
            Ok(blocks)
        })
        .await
    }

    /// The blocks that the extents touch, in order. What is past the disk's end is nothing.
    pub(crate) fn touched(&self, extents: &[Extent]) -> Vec<u64> {
        let mut blocks = Vec::new();
        for extent in extents.iter().filter(|extent| extent.length > 0 && extent.offset < self.size) {
            let end = extent.offset.saturating_add(extent.length).min(self.size);
            let first = extent.offset - extent.offset % self.block_size;
            let step = usize::try_from(self.block_size).unwrap_or(usize::MAX);
            blocks.extend((first..end).step_by(step));
        }
        blocks.sort_unstable();
        blocks.dedup();
        blocks
    }

    /// Of all of it, in hexadecimal digits.
    pub(crate) async fn sha512(&self) -> Result<String, Error> {
        let disk = self.clone();
        on_thread(move || {
            let mut digest = aws_lc_rs::digest::Context::new(&aws_lc_rs::digest::SHA512);
            let mut buffer = vec![0; 1 << 20];
            let mut position = 0;
            loop {
                let read = disk.file.read_at(&mut buffer, position).map_err(Error::file("read", &disk.path))?;
                if read == 0 {
                    break;
                }
                digest.update(&buffer[..read]);
                position += read as u64;
            }
            let mut text = String::new();
            for byte in digest.finish().as_ref() {
                // A text takes whatever is written into it.
                let _ = write!(text, "{byte:02x}");
            }
            Ok(text)
        })
        .await
    }

    pub(crate) fn length_at(&self, offset: u64) -> u64 {
        self.block_size.min(self.size.saturating_sub(offset))
    }

    /// None if it is all zeros.
    fn read(&self, offset: u64, memory: &Memory) -> Result<Option<Block>, Error> {
        let failed = || Error::file("read", &self.path);
        let length = self.length_at(offset);
        let end = offset + length;
        if next_data(&self.file, offset, end).map_err(failed())? >= end {
            return Ok(None);
        }
        let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        let mut block = memory.block(size(self.block_size));
        let read = self.direct.as_ref().and_then(|direct| direct.read_at(block.space(), offset).ok());
        // What went wrong there, or came short, is seen here, where sizes do not matter.
        if read.is_none_or(|read| read < size(length)) {
            self.file.read_exact_at(&mut block.space()[..size(length)], offset).map_err(failed())?;
        }
        block.space()[size(length)..].fill(0);
        if !self.is_padded {
            block.truncate(size(length));
        }
        Ok(Some(block).filter(|block| !is_zero(block)))
    }
}

/// The blocks that a pool has. Those that are empty are what a power failure left, and are not counted.
pub(crate) async fn present(store: &BackupStore, pool: &Pool) -> Result<HashSet<Checksum>, Error> {
    let dir = pool.blocks_dir();
    let present = store.fold(&dir, HashSet::new, |present, entry| {
        if entry.size > 0
            && let Some(checksum) = layout::block_checksum(entry.name())
        {
            present.insert(checksum);
        }
    });
    Ok(present.await?)
}

pub(crate) struct Upload<'a> {
    pub(crate) store: &'a BackupStore,
    pub(crate) pool: &'a Pool,
    pub(crate) codec: Codec,
    pub(crate) disk: Disk,
    pub(crate) lock: &'a Lock,
    pub(crate) present: HashSet<Checksum>,
}

/// What came of it.
#[derive(Debug)]
pub(crate) struct Uploaded {
    /// In order; blocks that are zero have no checksum.
    pub(crate) blocks: Vec<(u64, Option<Checksum>)>,
    pub(crate) new_blocks: u64,
    pub(crate) bytes: u64,
}

impl Uploaded {
    pub(crate) fn mappings(&self) -> impl Iterator<Item = BlockMapping> {
        let mapping = |(offset, checksum): &(u64, Option<Checksum>)| {
            checksum.map(|block_checksum| BlockMapping { offset: *offset, block_checksum })
        };
        self.blocks.iter().filter_map(mapping)
    }
}

impl Upload<'_> {
    pub(crate) async fn run(self, offsets: Vec<u64>, transfer: &Transfer) -> Result<Uploaded, Error> {
        let total = offsets.iter().map(|offset| self.disk.length_at(*offset)).sum();
        let run = Run::new(transfer, total);
        run.add(0, 0);
        let present = Arc::new(Mutex::new(self.present));
        let (blocks, new_blocks) = (Mutex::new(Vec::with_capacity(offsets.len())), AtomicU64::new(0));
        let (store, pool, codec, disk, lock) = (self.store, self.pool, &self.codec, &self.disk, self.lock);
        let (run_ref, present, blocks_ref, new_ref) = (&run, &present, &blocks, &new_blocks);
        run.each(&offsets, disk.block_size, |offsets| async move {
            lock.check()?;
            let (disk, codec, present) = (disk.clone(), codec.clone(), present.clone());
            let done = offsets.iter().map(|offset| disk.length_at(*offset)).sum();
            let packed = on_thread(move || pack(&disk, &offsets, &codec, &present)).await?;
            let new = packed.iter().filter_map(|packed| Some((pool.block(&packed.checksum?), packed.new.clone()?)));
            let new: Vec<(String, Bytes)> = new.collect();
            let (count, sent) = (new.len() as u64, new.iter().map(|(_, data)| data.len()).sum());
            run_ref.pace.take(sent).await;
            store.put_all(new).await?;
            new_ref.fetch_add(count, Ordering::Relaxed);
            blocks_ref.lock().extend(packed.iter().map(|packed| (packed.offset, packed.checksum)));
            run_ref.add(done, sent);
            Ok(())
        })
        .await?;
        let bytes = run.transferred();
        let mut blocks = blocks.into_inner();
        blocks.sort_unstable_by_key(|(offset, _)| *offset);
        Ok(Uploaded { blocks, new_blocks: new_blocks.into_inner(), bytes })
    }
}

/// A block that was read.
struct Packed {
    offset: u64,
    /// None if it is zero.
    checksum: Option<Checksum>,
    /// None if it is there already or on its way. Should that way fail, so does all of the backup.
    new: Option<Bytes>,
}

fn pack(disk: &Disk, offsets: &[u64], codec: &Codec, present: &Mutex<HashSet<Checksum>>) -> Result<Vec<Packed>, Error> {
    let blocks: Vec<_> = offsets.iter().map(|offset| disk.read(*offset, codec.memory())).collect::<Result<_, _>>()?;
    let data: Vec<&[u8]> = blocks.iter().flatten().map(|block| &**block).collect();
    let mut checksums = codec.checksums(&data).into_iter();
    let mut packed = Vec::with_capacity(blocks.len());
    for (block, offset) in blocks.into_iter().zip(offsets.iter().copied()) {
        let named = block.and_then(|block| Some((block, checksums.next()?)));
        let checksum = named.as_ref().map(|(_, checksum)| *checksum);
        let new = match named {
            Some((block, checksum)) if present.lock().insert(checksum) => {
                let new = codec.pack(&checksum, &block);
                Some(new.map_err(Error::file("compress a block of", &disk.path))?)
            }
            _ => None,
        };
        packed.push(Packed { offset, checksum, new });
    }
    Ok(packed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn extents_touch_whole_blocks_within_the_disk() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(10_000).unwrap();
        let disk = Disk::open(file.path(), 1000, true).await.unwrap();
        let extent = |offset, length| Extent { offset, length };
        assert_eq!(disk.touched(&[extent(1500, 1)]), [1000]);
        assert_eq!(disk.touched(&[extent(1999, 2), extent(0, 1), extent(1000, 1)]), [0, 1000, 2000]);
        assert_eq!(disk.touched(&[extent(9500, u64::MAX)]), [9000]);
        assert!(disk.touched(&[extent(10_000, 5), extent(3, 0)]).is_empty());
        assert!(disk.data().await.unwrap().is_empty(), "nothing but a hole");
        file.as_file().write_all_at(b"x", 4321).unwrap();
        assert!(disk.data().await.unwrap().contains(&4000));
    }
}
