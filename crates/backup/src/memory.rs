//! Memory for blocks, used again and again: asked for anew each time, so much of it would cost more than what is done with it.
//! It is the kernel's own, not the allocator's, which keeps what was freed: after a backup the process would stay as large as
//! during it.

use std::alloc::{Layout, handle_alloc_error};
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::ops::Deref;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use memmap2::MmapMut;
use parking_lot::Mutex;
use rustix::fs::OFlags;

/// Keeps what was used until none of it is used any more. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Memory(Arc<Mutex<Kept>>);

#[derive(Debug, Default)]
struct Kept {
    in_use: usize,
    free: Vec<MmapMut>,
}

impl Memory {
    /// Whatever was in it before may still be there.
    pub(crate) fn block(&self, length: usize) -> Block {
        let kept = {
            let mut kept = self.0.lock();
            kept.in_use += 1;
            kept.free.pop()
        };
        let pages = kept.filter(|pages| pages.len() >= length).unwrap_or_else(|| map(length));
        Block { pages: Some(pages), length, from: self.clone() }
    }
}

/// Without memory it ends as it does for whoever else asks for some.
fn map(length: usize) -> MmapMut {
    MmapMut::map_anon(length)
        .unwrap_or_else(|_| handle_alloc_error(Layout::array::<u8>(length).unwrap_or(Layout::new::<u8>())))
}

/// Begins where a page does, as disks want it of memory that they write to themselves. Goes back to where it is from.
pub(crate) struct Block {
    /// None only while it is dropped.
    pages: Option<MmapMut>,
    length: usize,
    from: Memory,
}

impl Block {
    pub(crate) fn space(&mut self) -> &mut [u8] {
        &mut self.pages.as_deref_mut().unwrap_or_default()[..self.length]
    }

    pub(crate) fn truncate(&mut self, length: usize) {
        self.length = self.length.min(length);
    }
}

impl Deref for Block {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.pages.as_deref().unwrap_or_default()[..self.length]
    }
}

impl AsRef<[u8]> for Block {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl From<Block> for Bytes {
    /// Without copying: the memory goes back when the last of them is gone.
    fn from(block: Block) -> Self {
        Self::from_owner(block)
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let mut kept = self.from.0.lock();
        kept.in_use -= 1;
        kept.free.extend(self.pages.take());
        if kept.in_use == 0 {
            kept.free = Vec::new();
        }
    }
}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Block").field("length", &self.length).finish_non_exhaustive()
    }
}

/// Opens a file so that blocks go between it and the disk without the kernel's cache. None where a file system cannot.
pub(crate) fn direct(path: &Path, writes: bool) -> Option<Arc<File>> {
    let flags = OFlags::DIRECT.bits().cast_signed();
    File::options().read(!writes).write(writes).custom_flags(flags).open(path).ok().map(Arc::new)
}

/// As much as there is, or as there is space for.
pub(crate) fn read_all(mut from: impl Read, space: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < space.len() {
        match from.read(&mut space[filled..])? {
            0 => break,
            read => filled += read,
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_used_again_as_long_as_some_is_in_use() {
        let memory = Memory::default();
        let mut held = memory.block(1);
        held.space()[0] = 9;
        for length in [1000, 10, 5000, 5000] {
            let (mut one, mut two) = (memory.block(length), memory.block(length));
            one.space().fill(1);
            two.space().fill(2);
            two.truncate(7);
            assert!(one.iter().all(|byte| *byte == 1));
            assert!(one.as_ptr().addr().is_multiple_of(4096));
            assert_eq!(Bytes::from(two), [2_u8; 7][..]);
        }
        assert_eq!(memory.0.lock().free.len(), 2);
        assert_eq!(*held, [9]);
        drop(held);
        assert!(memory.0.lock().free.is_empty());
    }
}
