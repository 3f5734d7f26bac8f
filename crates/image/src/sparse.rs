//! Writing a file in order, with holes where it is zero.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Holes smaller than this cost more in extents than they save.
pub(crate) const BLOCK: usize = 64 * 1024;
const BLOCK_U64: u64 = BLOCK as u64;

static ZEROS: [u8; BLOCK] = [0; BLOCK];

/// Whether there is nothing but zeros in it.
pub fn is_zero(data: &[u8]) -> bool {
    data.chunks(BLOCK).all(|chunk| chunk == &ZEROS[..chunk.len()])
}

/// Writes from the start or from where an earlier one ended. What it skips must be a hole already.
#[derive(Debug)]
pub(crate) struct SparseWriter {
    file: File,
    /// Where the next written byte goes; what is pending comes after it.
    written: u64,
    /// The beginning of a block.
    pending: Vec<u8>,
}

impl SparseWriter {
    /// Everything from `offset` on is dropped from the file.
    pub(crate) fn new(file: File, offset: u64) -> io::Result<Self> {
        file.set_len(offset)?;
        Ok(Self { file, written: offset, pending: Vec::with_capacity(BLOCK) })
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// How much can be read back: the rest is pending.
    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    pub(crate) fn position(&self) -> u64 {
        self.written + self.pending.len() as u64
    }

    pub(crate) fn write(&mut self, mut data: &[u8]) -> io::Result<()> {
        let into_block = usize::try_from(self.position() % BLOCK_U64).unwrap_or(0);
        if into_block > 0 {
            let (head, rest) = data.split_at(data.len().min(BLOCK - into_block));
            self.pending.extend_from_slice(head);
            data = rest;
            if into_block + head.len() < BLOCK {
                return Ok(());
            }
            self.write_pending()?;
        }
        let (blocks, tail) = data.split_at(data.len() / BLOCK * BLOCK);
        self.write_blocks(blocks)?;
        self.pending.extend_from_slice(tail);
        Ok(())
    }

    /// Writes what is pending and sets the length. Gives the length.
    pub(crate) fn finish(&mut self) -> io::Result<u64> {
        self.write_pending()?;
        self.file.set_len(self.written)?;
        Ok(self.written)
    }

    fn write_pending(&mut self) -> io::Result<()> {
        if !is_zero(&self.pending) {
            self.file.write_all_at(&self.pending, self.written)?;
        }
        self.written += self.pending.len() as u64;
        self.pending.clear();
        Ok(())
    }

    /// Neighbours that are not zero are written together.
    fn write_blocks(&mut self, mut blocks: &[u8]) -> io::Result<()> {
        while !blocks.is_empty() {
            let zeros = blocks.chunks(BLOCK).take_while(|block| is_zero(block)).count() * BLOCK;
            self.written += zeros as u64;
            blocks = &blocks[zeros..];
            let data = blocks.chunks(BLOCK).take_while(|block| !is_zero(block)).count() * BLOCK;
            self.file.write_all_at(&blocks[..data], self.written)?;
            self.written += data as u64;
            blocks = &blocks[data..];
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    fn sample() -> Vec<u8> {
        let mut data = vec![0; 40 * BLOCK + 777];
        data[3] = 1;
        data[10 * BLOCK..14 * BLOCK].fill(7);
        *data.last_mut().unwrap() = 0;
        data
    }

    #[test]
    fn what_is_written_in_any_pieces_is_read_back_and_zeros_are_holes() {
        for piece in [1000, BLOCK, BLOCK + 1, 3 * BLOCK - 5, usize::MAX] {
            let data = sample();
            let file = tempfile::tempfile().unwrap();
            let mut writer = SparseWriter::new(file.try_clone().unwrap(), 0).unwrap();
            for part in data.chunks(piece.min(data.len())) {
                writer.write(part).unwrap();
            }
            assert_eq!(writer.finish().unwrap(), data.len() as u64);
            let mut back = vec![1; data.len()];
            file.read_exact_at(&mut back, 0).unwrap();
            assert!(back == data, "pieces of {piece}");
            assert!(file.metadata().unwrap().blocks() * 512 <= 6 * BLOCK_U64, "zeros take space");
        }
    }

    #[test]
    fn writing_goes_on_in_the_middle_of_a_block_and_drops_what_was_after_it() {
        let data = sample();
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&vec![9; data.len() + 5], 0).unwrap();
        let cut = 10 * BLOCK + 100;
        file.write_all_at(&data[..cut], 0).unwrap();
        let mut writer = SparseWriter::new(file.try_clone().unwrap(), cut as u64).unwrap();
        for part in data[cut..].chunks(5000) {
            writer.write(part).unwrap();
        }
        writer.finish().unwrap();
        let mut back = vec![1; data.len()];
        file.read_exact_at(&mut back, 0).unwrap();
        assert!(back == data);
        assert_eq!(file.metadata().unwrap().len(), data.len() as u64);
    }
}
