//! A block on its way: compressed as Longhorn does it, and checked when it comes back.

use std::fmt;
use std::io::{self, Read, Write};
use std::str::FromStr;

use bytes::Bytes;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use lz4_flex::frame::{BlockMode, BlockSize, FrameDecoder, FrameEncoder, FrameInfo};

use crate::layout::Checksum;
use crate::seal::{Key, OpenError};

const LZ4_MAGIC: [u8; 4] = [0x04, 0x22, 0x4d, 0x18];
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

    pub(crate) fn compress(self, data: &[u8]) -> io::Result<Vec<u8>> {
        match self {
            Self::None => Ok(data.to_vec()),
            Self::Gzip => {
                let mut encoder = GzEncoder::new(Vec::with_capacity(data.len() / 2), flate2::Compression::default());
                encoder.write_all(data)?;
                encoder.finish()
            }
            Self::Lz4 => {
                let info = FrameInfo::new()
                    .block_size(BlockSize::Max4MB)
                    .block_mode(BlockMode::Independent)
                    .content_checksum(true);
                let mut encoder = FrameEncoder::with_frame_info(info, Vec::with_capacity(data.len() / 2));
                encoder.write_all(data)?;
                encoder.finish().map_err(io::Error::other)
            }
        }
    }

    fn decompress(self, data: &[u8], limit: u64) -> io::Result<Vec<u8>> {
        // One more than there may be, so that too much is noticed.
        let mut out = Vec::new();
        match self {
            Self::None => return Ok(data.to_vec()),
            Self::Gzip => GzDecoder::new(data).take(limit + 1).read_to_end(&mut out)?,
            Self::Lz4 => FrameDecoder::new(data).take(limit + 1).read_to_end(&mut out)?,
        };
        Ok(out)
    }

    /// Blocks are shared by what is in them, so that one may have been written when the volume was compressed otherwise.
    fn found(self, data: &[u8]) -> Self {
        match self {
            Self::None => Self::None,
            _ if data.starts_with(&LZ4_MAGIC) => Self::Lz4,
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
}

impl Codec {
    pub(crate) fn new(compression: Compression, key: Option<Key>) -> Self {
        Self { compression, key }
    }

    pub(crate) fn method(&self) -> Method {
        Method { compression: self.compression, is_encrypted: self.key.is_some() }
    }

    /// With a key, names tell nothing about what is in the blocks, and yet the same block has the same name.
    pub(crate) fn checksum(&self, data: &[u8]) -> Checksum {
        self.key.as_ref().map_or_else(|| Checksum::of(data), |key| key.checksum(data))
    }

    pub(crate) fn pack(&self, checksum: &Checksum, data: &[u8]) -> io::Result<Bytes> {
        let mut packed = self.compression.compress(data)?;
        if let Some(key) = &self.key {
            packed = key.seal(checksum.to_string().as_bytes(), packed).map_err(io::Error::other)?;
        }
        Ok(packed.into())
    }

    pub(crate) fn unpack(&self, checksum: &Checksum, stored: &[u8], limit: u64) -> Result<Vec<u8>, BlockError> {
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
        let data = compression.decompress(packed, limit).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => BlockError::Truncated,
            _ => BlockError::Corrupted,
        })?;
        if self.checksum(&data) == *checksum {
            return Ok(data);
        }
        // A frame that ends where one of its blocks does, or a bare block that is cut.
        let is_short = packed.is_empty() || (data.len() as u64) < limit && compression != Compression::Gzip;
        Err(if is_short { BlockError::Truncated } else { BlockError::Corrupted })
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
                let checksum = codec.checksum(&data);
                let packed = codec.pack(&checksum, &data).unwrap();
                assert!(codec.unpack(&checksum, &packed, LIMIT).unwrap() == data, "{:?}", codec.method());
                for cut in [0, 3, packed.len() / 2, packed.len() - 1] {
                    assert!(
                        codec.unpack(&checksum, &packed[..cut], LIMIT).is_err(),
                        "cut at {cut} {:?}",
                        codec.method()
                    );
                }
                let mut flipped = packed.to_vec();
                flipped[packed.len() / 2] ^= 1;
                assert!(codec.unpack(&checksum, &flipped, LIMIT).is_err(), "{:?}", codec.method());
                assert!(codec.unpack(&Checksum::of(b"other"), &packed, LIMIT).is_err());
            }
        }
    }

    #[test]
    fn a_block_may_be_compressed_otherwise_than_its_backup_says() {
        let data = sample();
        for (said, done) in [(Compression::Gzip, Compression::Lz4), (Compression::Lz4, Compression::Gzip)] {
            let packed = done.compress(&data).unwrap();
            assert!(Codec::new(said, None).unpack(&Checksum::of(&data), &packed, LIMIT).unwrap() == data);
        }
    }

    #[test]
    fn a_bomb_goes_no_further_than_a_block() {
        let packed = Compression::Gzip.compress(&vec![0; 64 << 20]).unwrap();
        let unpacked = Compression::Gzip.decompress(&packed, LIMIT).unwrap();
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
