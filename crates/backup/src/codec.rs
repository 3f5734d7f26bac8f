//! A block on its way: compressed as Longhorn does it, and checked when it comes back.

use std::fmt;
use std::io::{self, Write};
use std::str::FromStr;

use bytes::Bytes;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;

use crate::layout::Checksum;
use crate::lz4;
use crate::memory::{Block, Memory, read_all};
use crate::seal::{Key, OpenError};

const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    None,
    /// What backups were before Longhorn let one choose, and so what a file without a word about it means.
    Gzip,
    /// As frames, not bare blocks.
    #[default]
    Lz4,
}

impl Compression {
    fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Gzip => "gzip",
            Self::Lz4 => "lz4",
        }
    }

    pub(crate) fn compress(self, data: &[u8], memory: &Memory) -> io::Result<Bytes> {
        match self {
            Self::None => Ok(Bytes::copy_from_slice(data)),
            Self::Gzip => {
                let mut encoder = GzEncoder::new(Vec::with_capacity(data.len() / 2), flate2::Compression::default());
                encoder.write_all(data)?;
                Ok(encoder.finish()?.into())
            }
            Self::Lz4 => Ok(lz4::compress(data, memory)),
        }
    }

    /// At most `limit` bytes; one more if there is more, so that it is noticed.
    fn decompress(self, data: &[u8], limit: usize, memory: &Memory) -> io::Result<Block> {
        if self == Self::Lz4 {
            return lz4::decompress(data, limit, memory);
        }
        let mut out = memory.block(limit + 1);
        let filled = match self {
            Self::Gzip => read_all(GzDecoder::new(data), out.space())?,
            _ => read_all(data, out.space())?,
        };
        out.truncate(filled);
        Ok(out)
    }

    /// Blocks are shared by what is in them, so that one may have been written when the volume was compressed otherwise.
    fn found(self, data: &[u8]) -> Self {
        match self {
            Self::None => Self::None,
            _ if data.starts_with(&lz4::MAGIC) => Self::Lz4,
            _ if data.starts_with(&GZIP_MAGIC) => Self::Gzip,
            other => other,
        }
    }
}

/// How the blocks of a backup are stored: the field `CompressionMethod`. One that is encrypted names a method that Longhorn does
/// not know, so that it refuses the backup instead of restoring rubbish.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Method {
    pub compression: Compression,
    pub is_encrypted: bool,
}

const ENCRYPTED: &str = "croft-aes256gcm+";

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a way to compress that is known: lz4, gzip or none")]
pub struct MethodError(String);

impl FromStr for Method {
    type Err = MethodError;

    fn from_str(text: &str) -> Result<Self, MethodError> {
        let (rest, is_encrypted) = text.strip_prefix(ENCRYPTED).map_or((text, false), |rest| (rest, true));
        let compression = match rest {
            "none" => Compression::None,
            "gzip" | "" => Compression::Gzip,
            "lz4" => Compression::Lz4,
            _ => return Err(MethodError(text.into())),
        };
        Ok(Self { compression, is_encrypted })
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", if self.is_encrypted { ENCRYPTED } else { "" }, self.compression.name())
    }
}

/// What is wrong with a block that came back.
#[derive(Debug, thiserror::Error)]
pub enum BlockError {
    #[error("it is truncated")]
    Truncated,
    #[error("its content does not match its checksum")]
    Corrupted,
    #[error("it does not open with this key")]
    Sealed(#[source] OpenError),
}

/// Names, packs and unpacks the blocks of one backup.
#[derive(Clone, Debug)]
pub(crate) struct Codec {
    compression: Compression,
    key: Option<Key>,
    memory: Memory,
}

impl Codec {
    pub(crate) fn new(compression: Compression, key: Option<Key>) -> Self {
        Self { compression, key, memory: Memory::default() }
    }

    /// Where its blocks are unpacked to, and come from.
    pub(crate) fn memory(&self) -> &Memory {
        &self.memory
    }

    pub(crate) fn method(&self) -> Method {
        Method { compression: self.compression, is_encrypted: self.key.is_some() }
    }

    /// With a key, names tell nothing about what is in the blocks, and yet the same block has the same name.
    pub(crate) fn checksums(&self, blocks: &[&[u8]]) -> Vec<Checksum> {
        match &self.key {
            None => croft_sha512::digests(blocks).iter().map(|digest| Checksum::first_half(digest)).collect(),
            Some(key) => blocks.iter().map(|block| key.checksum(block)).collect(),
        }
    }

    pub(crate) fn pack(&self, checksum: &Checksum, data: &[u8]) -> io::Result<Bytes> {
        let packed = self.compression.compress(data, &self.memory)?;
        let Some(key) = &self.key else { return Ok(packed) };
        let sealed = key.seal(checksum.to_string().as_bytes(), packed.into()).map_err(io::Error::other)?;
        Ok(sealed.into())
    }

    /// Blocks as they are in the target, each with the name that it should have.
    pub(crate) fn unpack(&self, stored: &[(Checksum, Bytes)], limit: u64) -> Vec<Result<Block, BlockError>> {
        let opened: Vec<_> = stored.iter().map(|(checksum, stored)| self.opened(checksum, stored, limit)).collect();
        let readable: Vec<&[u8]> = opened.iter().flatten().map(|(data, _)| &**data).collect();
        let mut found = self.checksums(&readable).into_iter();
        let check = |(opened, (checksum, _)): (Result<(Block, bool), _>, &(Checksum, Bytes))| {
            let (data, may_be_cut) = opened?;
            match found.next() {
                Some(found) if found == *checksum => Ok(data),
                _ if may_be_cut => Err(BlockError::Truncated),
                _ => Err(BlockError::Corrupted),
            }
        };
        opened.into_iter().zip(stored).map(check).collect()
    }

    /// What is in a stored block, not checked yet, and whether it may be only its beginning.
    fn opened(&self, checksum: &Checksum, stored: &[u8], limit: u64) -> Result<(Block, bool), BlockError> {
        let opened;
        let packed = match &self.key {
            None => stored,
            Some(key) => {
                opened = key.open(checksum.to_string().as_bytes(), stored).map_err(|error| match error {
                    OpenError::Truncated => BlockError::Truncated,
                    other => BlockError::Sealed(other),
                })?;
                &opened
            }
        };
        let compression = self.compression.found(packed);
        let data = compression.decompress(packed, usize::try_from(limit).unwrap_or(usize::MAX), &self.memory).map_err(
            |error| match error.kind() {
                io::ErrorKind::UnexpectedEof => BlockError::Truncated,
                _ => BlockError::Corrupted,
            },
        )?;
        let may_be_cut = packed.is_empty() || (data.len() as u64) < limit && compression != Compression::Gzip;
        Ok((data, may_be_cut))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: u64 = 2 << 20;

    fn sample() -> Vec<u8> {
        (0..LIMIT).map(|i| u8::try_from((i * i / 1000) % 251).unwrap()).collect()
    }

    #[test]
    fn what_is_packed_comes_back_and_damage_is_found() {
        let data = sample();
        for compression in [Compression::None, Compression::Gzip, Compression::Lz4] {
            for key in [None, Some(Key::new(&[7; 32], "pvc-1").unwrap())] {
                let codec = Codec::new(compression, key);
                let checksum = codec.checksums(&[&data])[0];
                let packed = codec.pack(&checksum, &data).unwrap();
                let unpack = |checksum: Checksum, stored: &[u8]| {
                    let stored = Bytes::copy_from_slice(stored);
                    codec.unpack(&[(checksum, stored)], LIMIT).remove(0)
                };
                assert!(*unpack(checksum, &packed).unwrap() == *data, "{:?}", codec.method());
                for cut in [0, 3, packed.len() / 2, packed.len() - 1] {
                    assert!(unpack(checksum, &packed[..cut]).is_err(), "cut at {cut} {:?}", codec.method());
                }
                let mut flipped = packed.to_vec();
                flipped[packed.len() / 2] ^= 1;
                assert!(unpack(checksum, &flipped).is_err(), "{:?}", codec.method());
                assert!(unpack(Checksum::of(b"other"), &packed).is_err());
            }
        }
    }

    #[test]
    fn a_block_may_be_compressed_otherwise_than_its_backup_says() {
        let data = sample();
        for (said, done) in [(Compression::Gzip, Compression::Lz4), (Compression::Lz4, Compression::Gzip)] {
            let stored = [(Checksum::of(&data), done.compress(&data, &Memory::default()).unwrap())];
            assert!(Codec::new(said, None).unpack(&stored, LIMIT).remove(0).unwrap()[..] == data);
        }
    }

    #[test]
    fn a_bad_block_among_good_ones_is_the_bad_one() {
        let (data, codec) = (sample(), Codec::new(Compression::Lz4, None));
        let blocks: Vec<Vec<u8>> = (0..6).map(|first| [&[first], &data[1..]].concat()).collect();
        let mut stored: Vec<(Checksum, Bytes)> = blocks
            .iter()
            .map(|block| (Checksum::of(block), codec.compression.compress(block, &codec.memory).unwrap()))
            .collect();
        stored[1].1.truncate(1000);
        stored[4].1 = stored[5].1.clone();
        let unpacked = codec.unpack(&stored, LIMIT);
        for (at, (unpacked, block)) in unpacked.into_iter().zip(&blocks).enumerate() {
            match unpacked {
                Ok(data) => assert!(*data == **block && at != 1 && at != 4, "{at}"),
                Err(BlockError::Truncated) => assert_eq!(at, 1),
                Err(error) => assert!(at == 4 && matches!(error, BlockError::Corrupted), "{at}: {error}"),
            }
        }
    }

    #[test]
    fn a_bomb_goes_no_further_than_a_block() {
        let packed = Compression::Gzip.compress(&vec![0; 64 << 20], &Memory::default()).unwrap();
        let unpacked = Compression::Gzip.decompress(&packed, 2 << 20, &Memory::default()).unwrap();
        assert_eq!(unpacked.len() as u64, LIMIT + 1);
    }

    #[test]
    fn an_encrypted_method_is_one_that_nobody_else_knows() {
        let method: Method = "croft-aes256gcm+lz4".parse().unwrap();
        assert!(method.is_encrypted && method.compression == Compression::Lz4);
        assert_eq!(method.to_string(), "croft-aes256gcm+lz4");
        assert_eq!("".parse::<Method>().unwrap().compression, Compression::Gzip, "as before there was a choice");
        assert!("zstd".parse::<Method>().is_err());
    }
}
