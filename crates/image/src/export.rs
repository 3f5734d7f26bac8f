//! A raw file as a gzip stream.
//!
//! Disks are mostly holes. What a hole compresses to is always the same, so it is compressed once and repeated; the checksum
//! over it is combined rather than computed.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use bytes::Bytes;
use crc32fast::Hasher;
use flate2::{Compress, Compression, FlushCompress};
use futures::Stream;
use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;
use tokio::sync::mpsc;

use crate::error::ImportError;
use crate::place::next_data;

const PIECE: usize = 1 << 20;
const PIECE_U64: u64 = PIECE as u64;

/// How many pieces may wait for the reader.
const AHEAD: usize = 8;

/// No name, no time, unknown system.
const HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];

/// An empty last block.
const LAST_BLOCK: [u8; 2] = [3, 0];

/// The file, compressed, as a stream of pieces. Dropping it ends the work.
pub async fn export(path: &Path) -> Result<impl Stream<Item = io::Result<Bytes>> + Send + Unpin + use<>, ImportError> {
    let file = tokio::fs::File::open(path).await.map_err(ImportError::file("open", path))?.into_std().await;
    let (send, mut pieces) = mpsc::channel(AHEAD);
    tokio::task::spawn_blocking(move || {
        let exported = Exporter::new(&send).and_then(|exporter| exporter.run(&file));
        if let Err(error) = exported
            && error.kind() != io::ErrorKind::BrokenPipe
        {
            // The reader learns of it unless it has gone.
            let _ = send.blocking_send(Err(error));
        }
    });
    Ok(futures::stream::poll_fn(move |context| pieces.poll_recv(context)))
}

struct Exporter<'a> {
    send: &'a mpsc::Sender<io::Result<Bytes>>,
    checksum: Hasher,
    /// A piece of zeros, compressed, and its checksum.
    zeros: (Bytes, Hasher),
}

impl<'a> Exporter<'a> {
    fn new(send: &'a mpsc::Sender<io::Result<Bytes>>) -> io::Result<Self> {
        let piece = vec![0; PIECE];
        let mut checksum = Hasher::new();
        checksum.update(&piece);
        Ok(Self { send, checksum: Hasher::new(), zeros: (deflate(&piece)?, checksum) })
    }

    fn run(mut self, file: &File) -> io::Result<()> {
        let size = file.metadata()?.len();
        self.give(Bytes::from_static(&HEADER))?;
        let mut position = 0;
        while position < size {
            let data = next_data(file, position, size)?;
            self.zeros(data - position)?;
            let end = next_hole(file, data, size)?;
            self.data(file, data, end)?;
            position = end;
        }
        let mut trailer = LAST_BLOCK.to_vec();
        trailer.extend_from_slice(&self.checksum.clone().finalize().to_le_bytes());
        // Modulo 2^32, as the format has it.
        trailer.extend_from_slice(&size.to_le_bytes()[..4]);
        self.give(trailer.into())
    }

    fn zeros(&mut self, mut size: u64) -> io::Result<()> {
        while size >= PIECE_U64 {
            let (compressed, checksum) = self.zeros.clone();
            self.checksum.combine(&checksum);
            self.give(compressed)?;
            size -= PIECE_U64;
        }
        let rest = vec![0; usize::try_from(size).unwrap_or_default()];
        self.piece(&rest)
    }

    fn data(&mut self, file: &File, mut position: u64, end: u64) -> io::Result<()> {
        let mut buffer = vec![0; PIECE];
        while position < end {
            let size = usize::try_from(end - position).unwrap_or(PIECE).min(PIECE);
            file.read_exact_at(&mut buffer[..size], position)?;
            self.piece(&buffer[..size])?;
            position += size as u64;
        }
        Ok(())
    }

    fn piece(&mut self, data: &[u8]) -> io::Result<()> {
        if data.is_empty() {
            return Ok(());
        }
        self.checksum.update(data);
        self.give(deflate(data)?)
    }

    fn give(&self, piece: Bytes) -> io::Result<()> {
        self.send.blocking_send(Ok(piece)).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

fn next_hole(file: &File, position: u64, end: u64) -> io::Result<u64> {
    match seek(file, SeekFrom::Hole(position)) {
        Ok(hole) => Ok(hole.min(end)),
        Err(Errno::NXIO | Errno::INVAL | Errno::OPNOTSUPP) => Ok(end),
        Err(error) => Err(error.into()),
    }
}

/// Blocks that stand alone and end at a byte, so that they can be put one after the other.
fn deflate(data: &[u8]) -> io::Result<Bytes> {
    let mut compress = Compress::new(Compression::fast(), false);
    let mut output = Vec::with_capacity(data.len() / 2 + 1024);
    loop {
        let read = usize::try_from(compress.total_in()).unwrap_or(data.len());
        compress.compress_vec(&data[read..], &mut output, FlushCompress::Full).map_err(io::Error::other)?;
        // Room left over means that all of it has been flushed.
        if compress.total_in() == data.len() as u64 && output.len() < output.capacity() {
            return Ok(output.into());
        }
        output.reserve(64 * 1024);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use futures::StreamExt;

    use super::*;

    #[tokio::test]
    async fn what_is_exported_unpacks_to_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk");
        let file = File::create(&path).unwrap();
        let noise: Vec<u8> = (0..3_000_000_u32).map(|at| at.wrapping_mul(2_654_435_761).to_le_bytes()[3]).collect();
        file.write_all_at(&noise, 2 << 20).unwrap();
        file.set_len((64 << 20) + 512).unwrap();
        file.write_all_at(b"end", 40 << 20).unwrap();

        let pieces: Vec<Bytes> = export(&path).await.unwrap().map(Result::unwrap).collect().await;
        let packed = pieces.concat();
        let mut unpacked = Vec::new();
        flate2::read::GzDecoder::new(&packed[..]).read_to_end(&mut unpacked).unwrap();
        assert!(unpacked == std::fs::read(&path).unwrap());
        assert!(packed.len() < noise.len() + (1 << 20), "holes must cost next to nothing: {}", packed.len());
    }
}
