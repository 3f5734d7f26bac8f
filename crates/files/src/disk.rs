//! What is read from.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// Bytes at offsets.
pub trait Disk: Send + Sync {
    fn size(&self) -> u64;

    /// All of it, or an error.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()>;
}

impl Disk for File {
    fn size(&self) -> u64 {
        self.metadata().map_or(0, |metadata| metadata.len())
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.read_exact_at(into, offset)
    }
}

/// A piece of a disk, which nothing outside of it is read through.
#[derive(Clone)]
pub struct Part {
    disk: Arc<dyn Disk>,
    start: u64,
    size: u64,
}

impl std::fmt::Debug for Part {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Part").field("start", &self.start).field("size", &self.size).finish_non_exhaustive()
    }
}

impl Part {
    /// Cut off where the disk ends.
    pub fn new(disk: Arc<dyn Disk>, start: u64, size: u64) -> Self {
        let room = disk.size().saturating_sub(start);
        Self { disk, start, size: size.min(room) }
    }

    pub fn size(&self) -> u64 {
        self.size
    }

    pub(crate) fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let end = offset.checked_add(into.len() as u64);
        if end.is_none_or(|end| end > self.size) {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it is beyond the end of the partition"));
        }
        self.disk.read_at(self.start + offset, into)
    }

    /// The beginning, as much of it as there is.
    pub(crate) fn beginning(&self, length: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; length.min(usize::try_from(self.size).unwrap_or(usize::MAX))];
        self.read(0, &mut bytes)?;
        Ok(bytes)
    }
}
