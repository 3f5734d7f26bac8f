//! xz, gz and zst, known by their first bytes, unpacked while they arrive.

use std::fmt;
use std::fs::File;
use std::io::{self, BufReader, Read};

use flate2::read::MultiGzDecoder;
use liblzma::read::XzDecoder;
use liblzma::stream::{CONCATENATED, Stream};

use crate::checksum::{Algorithm, Checksum, Hasher};
use crate::error::ImportError;
use crate::sparse::SparseWriter;
use crate::spool::is_given_up;

/// Enough for `xz -9`, which takes 65 MiB; a header may ask for gigabytes.
const XZ_MEMORY_BYTES: u64 = 256 << 20;

/// 128 MiB, as zstd's own tool allows unless told otherwise.
const ZSTD_WINDOW_LOG: u32 = 27;

const BUFFER: usize = 1 << 20;

/// Longer than every magic below.
const MAGIC: usize = 6;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    Gzip,
    Xz,
    Zstd,
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gzip => "gzip",
            Self::Xz => "xz",
            Self::Zstd => "zstd",
        })
    }
}

impl Compression {
    pub(crate) fn of(start: &[u8]) -> Option<Self> {
        if start.starts_with(&[0x1f, 0x8b, 8]) {
            return Some(Self::Gzip);
        }
        if start.starts_with(b"\xfd7zXZ\0") {
            return Some(Self::Xz);
        }
        start.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]).then_some(Self::Zstd)
    }

    /// All of them may be made of several parts, one after the other.
    fn decoder<'a>(self, input: impl Read + Send + 'a) -> io::Result<Box<dyn Read + Send + 'a>> {
        let input = BufReader::with_capacity(BUFFER, input);
        Ok(match self {
            Self::Gzip => Box::new(MultiGzDecoder::new(input)),
            Self::Xz => {
                let stream = Stream::new_stream_decoder(XZ_MEMORY_BYTES, CONCATENATED)?;
                Box::new(XzDecoder::new_stream(input, stream))
            }
            Self::Zstd => {
                let mut decoder = zstd::Decoder::with_buffer(input)?;
                decoder.window_log_max(ZSTD_WINDOW_LOG)?;
                Box::new(decoder)
            }
        })
    }
}

/// Reads what comes, unpacked if it is packed, and takes the checksum of it as it came.
pub(crate) struct Unpacker<R> {
    input: Hashed<R>,
    start: Vec<u8>,
    pub(crate) compression: Option<Compression>,
}

impl<R: Read + Send> Unpacker<R> {
    pub(crate) fn new(input: R, algorithm: Option<Algorithm>) -> io::Result<Self> {
        let mut input = Hashed { input, hasher: algorithm.map(Hasher::new) };
        let mut start = Vec::with_capacity(MAGIC);
        input.by_ref().take(MAGIC as u64).read_to_end(&mut start)?;
        let compression = Compression::of(&start);
        Ok(Self { input, start, compression })
    }

    /// Lets `read` have the unpacked bytes, then reads the rest. Gives what it said, and the checksum.
    pub(crate) fn read<T>(
        mut self,
        read: impl FnOnce(&mut dyn Read) -> Result<T, ImportError>,
    ) -> Result<(T, Option<Checksum>), ImportError> {
        let chained = self.start.as_slice().chain(&mut self.input);
        let result = match self.compression {
            None => read(&mut BufReader::with_capacity(BUFFER, chained)),
            Some(compression) => {
                let mut decoder = compression.decoder(chained).map_err(|source| failed(compression, source))?;
                read(&mut decoder)
            }
        }?;
        io::copy(&mut self.input, &mut io::sink()).map_err(|_| ImportError::GivenUp)?;
        Ok((result, self.input.hasher.map(Hasher::finish)))
    }
}

/// Writes all that `input` gives to `output`, but no more than `limit`.
pub(crate) fn write_out(
    input: &mut dyn Read,
    output: File,
    limit: u64,
    compression: Compression,
) -> Result<u64, ImportError> {
    let writing = |source| ImportError::File { doing: "write to", path: "the unpacked image".into(), source };
    let mut writer = SparseWriter::new(output, 0).map_err(writing)?;
    let mut buffer = vec![0; BUFFER];
    loop {
        let size = input.read(&mut buffer).map_err(|source| failed(compression, source))?;
        if size == 0 {
            return writer.finish().map_err(writing);
        }
        if writer.position() + size as u64 > limit {
            return Err(ImportError::TooLarge { what: "unpacked image", limit });
        }
        writer.write(&buffer[..size]).map_err(writing)?;
    }
}

pub(crate) fn failed(compression: Compression, source: io::Error) -> ImportError {
    if is_given_up(&source) {
        return ImportError::GivenUp;
    }
    ImportError::Unpack { compression, source }
}

struct Hashed<R> {
    input: R,
    hasher: Option<Hasher>,
}

impl<R: Read> Read for Hashed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let size = self.input.read(buffer)?;
        if let Some(hasher) = &mut self.hasher {
            hasher.update(&buffer[..size]);
        }
        Ok(size)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn pack(compression: Compression, data: &[u8]) -> Vec<u8> {
        match compression {
            Compression::Gzip => {
                let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
                encoder.write_all(data).unwrap();
                encoder.finish().unwrap()
            }
            Compression::Xz => {
                let mut encoder = liblzma::write::XzEncoder::new(Vec::new(), 1);
                encoder.write_all(data).unwrap();
                encoder.finish().unwrap()
            }
            Compression::Zstd => zstd::encode_all(data, 1).unwrap(),
        }
    }

    fn unpack(packed: &[u8], limit: u64) -> Result<Vec<u8>, ImportError> {
        let unpacker = Unpacker::new(packed, Some(Algorithm::Sha256)).unwrap();
        let compression = unpacker.compression.unwrap();
        let file = tempfile::tempfile().unwrap();
        let output = file.try_clone().unwrap();
        let (size, checksum) = unpacker.read(|input| write_out(input, output, limit, compression))?;
        assert_eq!(checksum.unwrap(), crate::checksum::sha256(packed));
        let mut data = vec![0; usize::try_from(size).unwrap()];
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut data, 0).unwrap();
        Ok(data)
    }

    const ALL: [Compression; 3] = [Compression::Gzip, Compression::Xz, Compression::Zstd];

    #[test]
    fn every_compression_is_known_and_unpacked_also_in_several_parts() {
        for compression in ALL {
            let (first, second) = (vec![5; 200_000], b"the end".to_vec());
            let packed = [pack(compression, &first), pack(compression, &second)].concat();
            assert_eq!(Compression::of(&packed), Some(compression));
            assert!(unpack(&packed, 1 << 20).unwrap() == [first, second].concat(), "{compression}");
        }
    }

    #[test]
    fn a_bomb_is_defused_and_damage_is_named() {
        for compression in ALL {
            let packed = pack(compression, &vec![0; 5 << 20]);
            assert!(matches!(unpack(&packed, 1 << 20), Err(ImportError::TooLarge { .. })), "{compression}");
            let cut = &packed[..packed.len() - 9];
            assert!(matches!(unpack(cut, 1 << 30), Err(ImportError::Unpack { .. })), "{compression} cut short");
        }
    }
}
