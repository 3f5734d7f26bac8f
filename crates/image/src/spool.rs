//! A file that is written as bytes arrive and read by a thread right behind.
//!
//! The file is a whole prefix of what came at every instant, so its length says where to go on after we were killed.

use std::fs::File;
use std::io::{self, Read};
use std::num::NonZeroU64;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};
use rustix::fs::{Advice, FlockOperation, fadvise, flock};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::error::ImportError;
use crate::sparse::SparseWriter;

/// How many chunks may wait for the disk.
const CHUNKS: usize = 64;

/// After this much more the disk is made to have what came, so that a power cut costs no more than this.
const CHECKPOINT_BYTES: u64 = 256 << 20;

/// After this much more the kernel is told to begin with writing: else it waits for seconds, and the flush at the end for all of it.
const WRITE_BACK_BYTES: u64 = 8 << 20;

/// Told how many bytes would survive a power cut.
pub(crate) type OnDurable = Arc<dyn Fn(u64) + Send + Sync>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Open,
    Complete,
    GivenUp,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<(u64, End)>,
    changed: Condvar,
}

impl Shared {
    fn update(&self, change: impl FnOnce(&mut (u64, End))) {
        change(&mut self.state.lock());
        self.changed.notify_all();
    }
}

/// The end where bytes go in. If it is dropped before [`SpoolWriter::finish`], the reader fails and the file stays.
#[derive(Debug)]
pub(crate) struct SpoolWriter {
    path: PathBuf,
    position: u64,
    chunks: Option<mpsc::Sender<Bytes>>,
    thread: Option<JoinHandle<io::Result<()>>>,
    shared: Arc<Shared>,
}

impl SpoolWriter {
    /// Goes on with the file at `offset`, or its end if that is nearer. Waits until an earlier writer let go of it.
    pub(crate) async fn open(
        path: &Path,
        offset: u64,
        on_durable: Option<OnDurable>,
    ) -> Result<(Self, SpoolReader), ImportError> {
        let opening = path.to_owned();
        let opened = tokio::task::spawn_blocking(move || open(&opening, offset)).await;
        let opened = opened.map_err(|_| ImportError::Panicked)?;
        let (writer, read) = opened.map_err(ImportError::file("open", path))?;
        let position = writer.position();
        let shared = Arc::new(Shared { state: Mutex::new((position, End::Open)), changed: Condvar::new() });
        let (chunks, received) = mpsc::channel(CHUNKS);
        let reader = SpoolReader { file: read, position: 0, shared: Arc::clone(&shared) };
        let thread = Thread { writer, received, shared: Arc::clone(&shared), on_durable, handle: Handle::current() };
        let thread = tokio::task::spawn_blocking(move || thread.run());
        let path = path.to_owned();
        Ok((Self { path, position, chunks: Some(chunks), thread: Some(thread), shared }, reader))
    }

    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    pub(crate) async fn write(&mut self, data: Bytes) -> Result<(), ImportError> {
        let size = data.len() as u64;
        let Some(chunks) = &self.chunks else { return Err(ImportError::GivenUp) };
        if chunks.send(data).await.is_ok() {
            self.position += size;
            return Ok(());
        }
        // The thread ends early for one reason.
        self.join().await?;
        Err(ImportError::GivenUp)
    }

    /// Everything is written (though not yet durable) and the reader may come to its end.
    pub(crate) async fn finish(mut self) -> Result<u64, ImportError> {
        self.join().await?;
        self.shared.update(|state| state.1 = End::Complete);
        Ok(self.position)
    }

    async fn join(&mut self) -> Result<(), ImportError> {
        self.chunks = None;
        let Some(thread) = self.thread.take() else { return Ok(()) };
        let ended = thread.await.map_err(|_| ImportError::Panicked)?;
        ended.map_err(ImportError::file("write to", &self.path))
    }
}

impl Drop for SpoolWriter {
    fn drop(&mut self) {
        self.shared.update(|state| {
            if state.1 == End::Open {
                state.1 = End::GivenUp;
            }
        });
    }
}

fn open(path: &Path, offset: u64) -> io::Result<(SparseWriter, File)> {
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    let file = options.open(path)?;
    flock(&file, FlockOperation::LockExclusive)?;
    let offset = offset.min(file.metadata()?.len());
    Ok((SparseWriter::new(file, offset)?, File::open(path)?))
}

struct Thread {
    writer: SparseWriter,
    received: mpsc::Receiver<Bytes>,
    shared: Arc<Shared>,
    on_durable: Option<OnDurable>,
    handle: Handle,
}

impl Thread {
    fn run(mut self) -> io::Result<()> {
        let mut checkpoint = self.writer.position() + CHECKPOINT_BYTES;
        let mut begun = self.writer.written();
        let is_syncing = Arc::new(AtomicBool::new(false));
        while let Some(chunk) = self.received.blocking_recv() {
            self.writer.write(&chunk)?;
            let written = self.writer.written();
            self.shared.update(|state| state.0 = written);
            if written - begun >= WRITE_BACK_BYTES {
                begin_write_back(self.writer.file(), begun, written);
                begun = written;
            }
            if written >= checkpoint && !is_syncing.load(Ordering::Acquire) {
                checkpoint = written + CHECKPOINT_BYTES;
                self.sync(written, Arc::clone(&is_syncing))?;
            }
        }
        let written = self.writer.finish()?;
        self.shared.update(|state| state.0 = written);
        Ok(())
    }

    /// On another thread, so that the transfer goes on.
    fn sync(&self, written: u64, is_syncing: Arc<AtomicBool>) -> io::Result<()> {
        let Some(on_durable) = self.on_durable.clone() else { return Ok(()) };
        let file = self.writer.file().try_clone()?;
        is_syncing.store(true, Ordering::Release);
        self.handle.spawn_blocking(move || {
            if file.sync_data().is_ok() {
                on_durable(written);
            }
            is_syncing.store(false, Ordering::Release);
        });
        Ok(())
    }
}

/// What is not on the disk yet is not dropped by this, only begun to be written.
fn begin_write_back(file: &File, from: u64, to: u64) {
    // Only a hint: whoever needs it durable flushes.
    let _ = fadvise(file, from, NonZeroU64::new(to - from), Advice::DontNeed);
}

/// Reads from the beginning, and waits for more until the writer has finished.
#[derive(Debug)]
pub(crate) struct SpoolReader {
    file: File,
    position: u64,
    shared: Arc<Shared>,
}

impl Read for SpoolReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut state = self.shared.state.lock();
        while state.0 <= self.position && state.1 == End::Open {
            self.shared.changed.wait(&mut state);
        }
        let (available, end) = *state;
        drop(state);
        if end == End::GivenUp {
            return Err(io::Error::other(GivenUp));
        }
        let rest = usize::try_from(available - self.position).unwrap_or(usize::MAX);
        let size = buffer.len().min(rest);
        let size = self.file.read_at(&mut buffer[..size], self.position)?;
        self.position += size as u64;
        Ok(size)
    }
}

/// Marks the error that a reader gets when its writer went away.
#[derive(Debug, thiserror::Error)]
#[error("the transfer was given up")]
pub(crate) struct GivenUp;

pub(crate) fn is_given_up(error: &io::Error) -> bool {
    error.get_ref().is_some_and(<dyn std::error::Error + Send + Sync>::is::<GivenUp>)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read_all(mut reader: SpoolReader) -> io::Result<Vec<u8>> {
        let read = move || {
            let mut all = Vec::new();
            reader.read_to_end(&mut all).map(|_| all)
        };
        tokio::task::spawn_blocking(read).await.unwrap()
    }

    #[tokio::test]
    async fn the_reader_sees_everything_also_after_it_went_on() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("part");
        let (mut writer, reader) = SpoolWriter::open(&path, 0, None).await.unwrap();
        let first = tokio::spawn(read_all(reader));
        writer.write(Bytes::from_static(b"hello ")).await.unwrap();
        drop(writer);
        assert!(is_given_up(&first.await.unwrap().unwrap_err()));

        let (mut writer, reader) = SpoolWriter::open(&path, u64::MAX, None).await.unwrap();
        assert_eq!(writer.position(), 6);
        let all = tokio::spawn(read_all(reader));
        writer.write(Bytes::from_static(b"world")).await.unwrap();
        assert_eq!(writer.finish().await.unwrap(), 11);
        assert_eq!(all.await.unwrap().unwrap(), b"hello world");
    }
}
