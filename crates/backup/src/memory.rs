//! Memory for blocks, used again and again: asked for anew each time, so much of it would cost more than what is done with it,
//! and a process would keep far more than it uses.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::ops::Deref;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use rustix::fs::OFlags;

/// What disks want of memory that they write to themselves.
const ALIGNMENT: usize = 4096;

/// Keeps what was used until none of it is used any more. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Memory(Arc<Mutex<Kept>>);

#[derive(Debug, Default)]
struct Kept {
    in_use: usize,
    free: Vec<Vec<u8>>,
}

impl Memory {
    /// Whatever was in it before may still be there.
    pub(crate) fn block(&self, length: usize) -> Block {
        let mut bytes = {
            let mut kept = self.0.lock();
            kept.in_use += 1;
            kept.free.pop().unwrap_or_default()
        };
        if bytes.len() < length + ALIGNMENT {
            bytes = vec![0; length + ALIGNMENT];
        }
        let start = bytes.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        Block { bytes, start, length, from: self.clone() }
    }
}

/// Begins where a page does. Goes back to where it is from.
pub(crate) struct Block {
    bytes: Vec<u8>,
    start: usize,
    length: usize,
    from: Memory,
}

impl Block {
    pub(crate) fn space(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..][..self.length]
    }

    pub(crate) fn truncate(&mut self, length: usize) {
        self.length = self.length.min(length);
    }
}

impl Deref for Block {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[self.start..][..self.length]
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
        kept.free.push(std::mem::take(&mut self.bytes));
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
            assert!(one.as_ptr().addr().is_multiple_of(ALIGNMENT));
            assert_eq!(Bytes::from(two), [2_u8; 7][..]);
        }
        assert_eq!(memory.0.lock().free.len(), 2);
        assert_eq!(*held, [9]);
        drop(held);
        assert!(memory.0.lock().free.is_empty());
    }
}
