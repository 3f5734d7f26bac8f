//! The whole way of an image, from wherever it comes to one sparse raw file.

use std::fmt;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::{Stream, StreamExt};
use rustix::fs::statvfs;

use crate::checksum::{Algorithm, Checksum};
use crate::convert::{User, convert};
use crate::error::ImportError;
use crate::fetch::{Download, Record, Transport, parse};
use crate::format::{Format, Inspected, inspect};
use crate::spool::{SpoolReader, SpoolWriter};
use crate::unpack::{Compression, Unpacker, write_out};
use crate::work::{WorkFiles, create, publish};

/// How often a download is begun again from the start because the file changed or cannot be resumed.
const STARTS: u32 = 3;

/// How much came, and how much there is if that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    pub done: u64,
    pub total: Option<u64>,
}

pub type ProgressFn = Arc<dyn Fn(Progress) + Send + Sync>;

#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// As it comes, perhaps packed.
    pub source_bytes: u64,
    /// As the guest sees it. Also what may come out of unpacking.
    pub virtual_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { source_bytes: 4 << 40, virtual_bytes: 16 << 40 }
    }
}

#[derive(Clone)]
pub struct Options {
    /// Where to work: on the file system of the destination, closed to others.
    pub work_dir: PathBuf,
    /// Names this import among all others; a later one with the same goes on where this one was.
    pub key: String,
    /// Of the file as it comes.
    pub checksum: Option<Checksum>,
    pub limits: Limits,
    /// Whom conversions run as.
    pub user: User,
    pub progress: ProgressFn,
}

impl Options {
    pub fn new(work_dir: impl Into<PathBuf>, key: impl Into<String>) -> Self {
        Self {
            work_dir: work_dir.into(),
            key: key.into(),
            checksum: None,
            limits: Limits::default(),
            user: User::default(),
            progress: Arc::new(|_| {}),
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options").field("key", &self.key).field("limits", &self.limits).finish_non_exhaustive()
    }
}

/// What became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Imported {
    /// What the guest sees.
    pub virtual_size: u64,
    /// As it came.
    pub size: u64,
    pub format: Format,
    pub compression: Option<Compression>,
    /// If one was given to compare with.
    pub checksum: Option<Checksum>,
}

/// Downloads an image. When the future is dropped, or fails in a way that may pass, what came so far is kept for the next try
/// with the same key, until [`crate::forget`]; nothing else is.
pub async fn import_url(
    url: &str,
    transport: &Transport,
    destination: &Path,
    options: &Options,
) -> Result<Imported, ImportError> {
    let files = WorkFiles::new(&options.work_dir, &options.key);
    let url = parse(url)?;
    let client = transport.client(options.checksum.is_some())?;
    let mut starts = 0;
    let arrived = loop {
        let (record, offset) = Record::load(&files.record, url.as_str());
        let (mut spool, reader) = SpoolWriter::open(&files.part, offset, Some(record.on_durable())).await?;
        let download = Download {
            client: &client,
            url: &url,
            headers: transport.extra_headers()?,
            stall: transport.stall,
            max_bytes: options.limits.source_bytes,
            available_bytes: available(&options.work_dir)?.saturating_add(spool.position()),
            progress: &*options.progress,
        };
        let transfer = async {
            download.run(&mut spool, &record).await?;
            spool.finish().await
        };
        starts += 1;
        match tokio::try_join!(transfer, follow(reader, &files, options)) {
            Ok((size, behind)) => break behind.with_size(size),
            Err(ImportError::Changed { .. } | ImportError::NotResumable { .. }) if starts < STARTS => {
                files.remove_part();
            }
            Err(error) => {
                if !error.may_pass() || matches!(error, ImportError::Changed { .. }) {
                    files.remove_part();
                }
                return Err(error);
            }
        }
    };
    let imported = finish(arrived, &files, destination, options).await;
    files.remove_part();
    imported
}

/// Takes an image from a stream, such as the body of a request. `declared` is how long it must be.
pub async fn import_stream<S, E>(
    mut stream: S,
    declared: Option<u64>,
    stall: Duration,
    destination: &Path,
    options: &Options,
) -> Result<Imported, ImportError>
where
    S: Stream<Item = Result<Bytes, E>> + Unpin,
    E: fmt::Display,
{
    let files = Partless(WorkFiles::new(&options.work_dir, &options.key));
    let files = &files.0;
    check_declared(declared, options)?;
    files.remove_part();
    let (mut spool, reader) = SpoolWriter::open(&files.part, 0, None).await?;
    let transfer = async {
        loop {
            let next = tokio::time::timeout(stall, stream.next()).await;
            let next = next.map_err(|_| ImportError::Stalled { from: "the sender".to_owned(), after: stall })?;
            let Some(chunk) = next else { break };
            let received = spool.position();
            let chunk = chunk.map_err(|error| ImportError::Interrupted { received, why: error.to_string() })?;
            let done = received + chunk.len() as u64;
            if done > declared.unwrap_or(options.limits.source_bytes) {
                return Err(match declared {
                    Some(declared) => ImportError::Declared { declared, actual: done },
                    None => ImportError::TooLarge { what: "file", limit: options.limits.source_bytes },
                });
            }
            spool.write(chunk).await?;
            (options.progress)(Progress { done, total: declared });
        }
        match declared {
            Some(declared) if declared != spool.position() => {
                Err(ImportError::Declared { declared, actual: spool.position() })
            }
            _ => spool.finish().await,
        }
    };
    let (size, behind) = tokio::try_join!(transfer, follow(reader, files, options))?;
    finish(behind.with_size(size), files, destination, options).await
}

/// Takes an image from a file, which is gone afterwards. It must be in the directory of the work.
pub async fn import_file(source: &Path, destination: &Path, options: &Options) -> Result<Imported, ImportError> {
    let files = Partless(WorkFiles::new(&options.work_dir, &options.key));
    let files = &files.0;
    files.remove_part();
    std::fs::rename(source, &files.part).map_err(ImportError::file("take", source))?;
    let (spool, reader) = SpoolWriter::open(&files.part, u64::MAX, None).await?;
    let (size, behind) = tokio::try_join!(spool.finish(), follow(reader, files, options))?;
    finish(behind.with_size(size), files, destination, options).await
}

/// Keeps nothing, whatever happens.
struct Partless(WorkFiles);

impl Drop for Partless {
    fn drop(&mut self) {
        self.0.remove_part();
    }
}

pub(crate) fn check_declared(declared: Option<u64>, options: &Options) -> Result<(), ImportError> {
    let Some(size) = declared else { return Ok(()) };
    if size > options.limits.source_bytes {
        return Err(ImportError::TooLarge { what: "file", limit: options.limits.source_bytes });
    }
    let available = available(&options.work_dir)?;
    if size > available {
        return Err(ImportError::NoSpace { what: "file", size, available });
    }
    Ok(())
}

pub(crate) fn available(dir: &Path) -> Result<u64, ImportError> {
    let stat = statvfs(dir).map_err(io::Error::from).map_err(ImportError::file("look at", dir))?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// What was found out right behind the transfer.
#[derive(Debug)]
pub(crate) struct Arrived {
    size: u64,
    compression: Option<Compression>,
    checksum: Option<Checksum>,
}

impl Arrived {
    pub(crate) fn with_size(self, size: u64) -> Self {
        Self { size, ..self }
    }
}

/// Reads behind the writer, on a thread: takes the checksum and unpacks.
pub(crate) async fn follow(reader: SpoolReader, files: &WorkFiles, options: &Options) -> Result<Arrived, ImportError> {
    let algorithm = options.checksum.as_ref().map(Checksum::algorithm);
    let (unpacked, limit) = (files.unpacked.clone(), options.limits.virtual_bytes);
    let followed = tokio::task::spawn_blocking(move || follow_blocking(reader, &unpacked, limit, algorithm)).await;
    let arrived = followed.map_err(|_| ImportError::Panicked)??;
    match (&options.checksum, &arrived.checksum) {
        (Some(expected), Some(actual)) if expected != actual => {
            Err(ImportError::Checksum { expected: expected.clone(), actual: actual.clone() })
        }
        _ => Ok(arrived),
    }
}

fn follow_blocking(
    reader: SpoolReader,
    unpacked: &Path,
    limit: u64,
    algorithm: Option<Algorithm>,
) -> Result<Arrived, ImportError> {
    let unpacker = Unpacker::new(reader, algorithm).map_err(|_| ImportError::GivenUp)?;
    let compression = unpacker.compression;
    let checksum = match (compression, algorithm) {
        (None, None) => None,
        (None, Some(_)) => unpacker.read(|_| Ok(()))?.1,
        (Some(compression), _) => {
            let output = create(unpacked)?;
            unpacker.read(|input| write_out(input, output, limit, compression))?.1
        }
    };
    Ok(Arrived { size: 0, compression, checksum })
}

/// Looks at what came, converts it if it must be, and puts it where it belongs.
pub(crate) async fn finish(
    arrived: Arrived,
    files: &WorkFiles,
    destination: &Path,
    options: &Options,
) -> Result<Imported, ImportError> {
    let path = if arrived.compression.is_some() { &files.unpacked } else { &files.part };
    let (source, inspected) = look(path.clone()).await?;
    if inspected.virtual_size > options.limits.virtual_bytes {
        return Err(ImportError::TooLarge { what: "disk in the image", limit: options.limits.virtual_bytes });
    }
    let (file, from) = if inspected.format.is_raw() {
        source.set_len(inspected.virtual_size).map_err(ImportError::file("cut", path))?;
        (source, path)
    } else {
        let target = Arc::new(create(&files.raw)?);
        convert(&source, inspected, &target, options.user).await?;
        (target, &files.raw)
    };
    let (from, to) = (from.clone(), destination.to_owned());
    let published = tokio::task::spawn_blocking(move || publish(&file, &from, &to)).await;
    published.map_err(|_| ImportError::Panicked)??;
    let Arrived { size, compression, checksum } = arrived;
    let Inspected { format, virtual_size } = inspected;
    Ok(Imported { virtual_size, size, format, compression, checksum })
}

async fn look(path: PathBuf) -> Result<(Arc<File>, Inspected), ImportError> {
    let looked = tokio::task::spawn_blocking(move || {
        let file = File::options().read(true).write(true).open(&path).map_err(ImportError::file("open", &path))?;
        let inspected = inspect(&file)?;
        Ok((Arc::new(file), inspected))
    });
    looked.await.map_err(|_| ImportError::Panicked)?
}
