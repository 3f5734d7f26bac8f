//! LZ4's frames, as whole blocks need them.
//!
//! Ours have a fixed beginning and pieces that do not depend on each other, so that a block goes into and comes out of one in a
//! single step, without being copied. Frames that others made may be of any kind.

use std::io;

use bytes::Bytes;
use lz4_flex::block::{compress_into, decompress_into, get_maximum_output_size};
use lz4_flex::frame::FrameDecoder;

use crate::memory::{Block, Memory, read_all};

pub(crate) const MAGIC: [u8; 4] = [0x04, 0x22, 0x4d, 0x18];
/// Independent pieces of at most 4 MiB, no checksums (what is in it is checked by its name), and the checksum of these words.
const HEADER: [u8; 7] = [0x04, 0x22, 0x4d, 0x18, 0x60, 0x70, 0x73];
const PIECE: usize = 4 << 20;
/// Marks a piece that could not be compressed, and is stored as it is.
const AS_IT_IS: u32 = 1 << 31;
const END: [u8; 4] = [0; 4];
/// Where a frame says what it has, and what says that it ends with a checksum of everything.
const FLAGS: usize = 4;
const HAS_CHECKSUM: u8 = 1 << 2;

pub(crate) fn compress(data: &[u8], memory: &Memory) -> Bytes {
    let pieces = data.len().div_ceil(PIECE);
    // As long as pieces may become that do not compress, which are then stored as they are.
    let mut frame =
        memory.block(HEADER.len() + pieces * (4 + get_maximum_output_size(PIECE.min(data.len()))) + END.len());
    let space = frame.space();
    space[..HEADER.len()].copy_from_slice(&HEADER);
    let mut filled = HEADER.len();
    for piece in data.chunks(PIECE) {
        let (length, stored) = space[filled..].split_at_mut(4);
        let packed = compress_into(piece, stored).ok().filter(|packed| *packed < piece.len());
        let (packed, mark) = packed.map_or((piece.len(), AS_IT_IS), |packed| (packed, 0));
        if mark == AS_IT_IS {
            stored[..packed].copy_from_slice(piece);
        }
        // A piece is no longer than `PIECE`.
        length.copy_from_slice(&(u32::try_from(packed).unwrap_or(0) | mark).to_le_bytes());
        filled += 4 + packed;
    }
    space[filled..][..END.len()].copy_from_slice(&END);
    frame.truncate(filled + END.len());
    // What became small shall not hold the memory of a whole block.
    if frame.len() < data.len() / 4 { Bytes::copy_from_slice(&frame) } else { frame.into() }
}

/// At most `limit` bytes; one more if there is more, so that it is noticed.
pub(crate) fn decompress(frame: &[u8], limit: usize, memory: &Memory) -> io::Result<Block> {
    let mut data = memory.block(limit + 1);
    let filled = match frame.strip_prefix(&HEADER) {
        Some(pieces) => of_ours(pieces, data.space())?,
        None => of_others(frame, data.space())?,
    };
    data.truncate(filled);
    Ok(data)
}

fn of_ours(mut rest: &[u8], data: &mut [u8]) -> io::Result<usize> {
    let cut = || io::Error::from(io::ErrorKind::UnexpectedEof);
    let mut filled = 0;
    loop {
        let (length, behind) = rest.split_first_chunk().ok_or_else(cut)?;
        if *length == END {
            break;
        }
        let length = u32::from_le_bytes(*length);
        let (stored, behind) = behind.split_at_checked((length & !AS_IT_IS) as usize).ok_or_else(cut)?;
        let space = &mut data[filled..];
        if length & AS_IT_IS == 0 {
            filled +=
                decompress_into(stored, space).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        } else {
            let fits = stored.len().min(space.len());
            space[..fits].copy_from_slice(&stored[..fits]);
            filled += fits;
        }
        rest = behind;
    }
    Ok(filled)
}

fn of_others(frame: &[u8], data: &mut [u8]) -> io::Result<usize> {
    let filled = read_all(FrameDecoder::new(frame), data)?;
    // The decoder takes the end of what it is given for the end of the frame.
    let behind = if frame.get(FLAGS).is_some_and(|flags| flags & HAS_CHECKSUM != 0) { 4 } else { 0 };
    let is_whole = frame.len().checked_sub(behind).is_some_and(|end| frame[..end].ends_with(&END));
    if is_whole || filled == data.len() { Ok(filled) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use lz4_flex::frame::{BlockMode, BlockSize, FrameEncoder, FrameInfo};

    use super::*;

    const LIMIT: usize = 5 << 20;

    fn sample(length: usize, is_noise: bool) -> Vec<u8> {
        let mut state = 1_u64;
        let mut next = |at: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            if is_noise { state.to_be_bytes()[0] } else { b"some words, again and again. "[at % 29] }
        };
        (0..length).map(&mut next).collect()
    }

    #[test]
    fn our_frames_are_frames() {
        for length in [1, 100, 2 << 20, 4 << 20, 5 << 20] {
            for is_noise in [true, false] {
                let data = sample(length, is_noise);
                let frame = compress(&data, &Memory::default());
                assert!(frame.len() < if is_noise { length + 32 } else { length / 4 + 64 }, "{length} {is_noise}");
                assert!(*decompress(&frame, LIMIT, &Memory::default()).unwrap() == *data, "{length} {is_noise}");
                let mut read = Vec::new();
                FrameDecoder::new(&frame[..]).read_to_end(&mut read).unwrap();
                assert!(read == data, "{length} {is_noise}");
            }
        }
    }

    #[test]
    fn frames_of_others_are_read() {
        let data = sample(3 << 20, false);
        for (mode, size, checksum) in [
            (BlockMode::Linked, BlockSize::Max64KB, true),
            (BlockMode::Independent, BlockSize::Max4MB, true),
            (BlockMode::Independent, BlockSize::Max1MB, false),
        ] {
            let info = FrameInfo::new().block_mode(mode).block_size(size).content_checksum(checksum);
            let mut encoder = FrameEncoder::with_frame_info(info, Vec::new());
            encoder.write_all(&data).unwrap();
            let frame = encoder.finish().unwrap();
            assert!(*decompress(&frame, LIMIT, &Memory::default()).unwrap() == *data);
            for cut in [0, 5, frame.len() / 2, frame.len() - 1, frame.len() - 4] {
                assert!(
                    decompress(&frame[..cut], LIMIT, &Memory::default()).is_err(),
                    "cut at {cut} of {}",
                    frame.len()
                );
            }
        }
    }

    #[test]
    fn what_is_cut_or_too_long_is_noticed() {
        for is_noise in [true, false] {
            let frame = compress(&sample(1 << 20, is_noise), &Memory::default());
            for cut in 0..frame.len().min(1000) {
                assert!(decompress(&frame[..cut], LIMIT, &Memory::default()).is_err(), "cut at {cut}");
                assert!(
                    decompress(&frame[..frame.len() - 1 - cut], LIMIT, &Memory::default()).is_err(),
                    "cut {cut} before the end"
                );
            }
            assert!(decompress(&frame, 1000, &Memory::default()).map_or(true, |data| data.len() == 1001));
        }
    }
}
