//! The files in a partition.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use ext4_view::{Ext4, Ext4Error, Ext4Read, FileType, Metadata, Timestamp as Time};
use jiff::Timestamp;

use crate::disk::Part;
use crate::partition::Content;

/// A directory of more than this is not read: it would be shown to nobody.
const MOST_ENTRIES: usize = 1_000_000;

#[derive(Debug, thiserror::Error)]
pub enum FileSystemError {
    #[error("it holds {0}, whose files cannot be read from here")]
    Unreadable(String),
    #[error("cannot read its file system")]
    Open(#[source] Ext4Error),
    #[error("there is no {path}")]
    NotFound { path: String },
    #[error("{path} is encrypted by the guest")]
    Encrypted { path: String },
    #[error("{path} has more than {MOST_ENTRIES} entries")]
    TooMany { path: String },
    #[error("cannot read {path}")]
    Read {
        path: String,
        #[source]
        source: Ext4Error,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    Regular,
    Directory,
    Symlink,
    /// A device, a pipe or a socket.
    Special,
}

/// What is known of a file without reading it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    pub kind: FileKind,
    pub size: u64,
    /// Permissions alone.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub accessed: Option<Timestamp>,
    pub modified: Option<Timestamp>,
}

/// A name in a directory.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Whatever the guest wrote.
    pub name: OsString,
    pub facts: Facts,
}

/// One that can be read. It stays on the thread that opened it.
#[derive(Debug)]
pub struct FileSystem(Ext4);

struct Reader(Part);

impl Ext4Read for Reader {
    fn read(&mut self, start: u64, into: &mut [u8]) -> Result<(), Box<dyn std::error::Error + Send + Sync + 'static>> {
        Ok(self.0.read(start, into)?)
    }
}

impl FileSystem {
    pub fn open(part: Part, content: &Content) -> Result<Self, FileSystemError> {
        if !content.is_readable() {
            return Err(FileSystemError::Unreadable(content.to_string()));
        }
        Ext4::load(Box::new(Reader(part))).map(Self).map_err(FileSystemError::Open)
    }

    /// Of the path itself if it is a link.
    pub fn facts(&self, path: &[u8]) -> Result<Facts, FileSystemError> {
        self.0.symlink_metadata(path).map(|metadata| facts(&metadata)).map_err(failed(path))
    }

    /// Where a path leads to, within this file system.
    pub fn resolve(&self, path: &[u8]) -> Result<Vec<u8>, FileSystemError> {
        let found = self.0.canonicalize(path).map_err(failed(path))?;
        Ok(AsRef::<[u8]>::as_ref(&found).to_vec())
    }

    /// Without `.` and `..`, by name.
    pub fn entries(&self, path: &[u8]) -> Result<Vec<Entry>, FileSystemError> {
        let mut entries = Vec::new();
        for entry in self.0.read_dir(path).map_err(failed(path))? {
            let entry = entry.map_err(failed(path))?;
            let name = entry.file_name();
            let bytes: &[u8] = name.as_ref();
            if bytes == b"." || bytes == b".." {
                continue;
            }
            if entries.len() == MOST_ENTRIES {
                return Err(FileSystemError::TooMany { path: lossy(path) });
            }
            let metadata = entry.metadata().map_err(failed(bytes))?;
            entries.push(Entry { name: OsStr::from_bytes(bytes).to_owned(), facts: facts(&metadata) });
        }
        entries.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        Ok(entries)
    }

    pub fn link(&self, path: &[u8]) -> Result<OsString, FileSystemError> {
        let target = self.0.read_link(path).map_err(failed(path))?;
        Ok(OsString::from_vec(AsRef::<[u8]>::as_ref(&target).to_vec()))
    }

    /// Hands over the content, piece by piece. The outer error is of reading.
    pub fn read<E>(
        &self,
        path: &[u8],
        buffer: &mut [u8],
        mut take: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<Result<(), E>, FileSystemError> {
        let mut file = self.0.open(path).map_err(failed(path))?;
        loop {
            let mut filled = 0;
            // It reads no further than to the end of a block.
            while filled < buffer.len() {
                match file.read_bytes(&mut buffer[filled..]).map_err(failed(path))? {
                    0 => break,
                    count => filled += count,
                }
            }
            if filled == 0 {
                return Ok(Ok(()));
            }
            if let Err(error) = take(&buffer[..filled]) {
                return Ok(Err(error));
            }
        }
    }
}

fn failed(path: &[u8]) -> impl FnOnce(Ext4Error) -> FileSystemError {
    let path = lossy(path);
    move |source| match source {
        Ext4Error::NotFound => FileSystemError::NotFound { path },
        Ext4Error::Encrypted => FileSystemError::Encrypted { path },
        source => FileSystemError::Read { path, source },
    }
}

/// For people: what would move their cursor is shown and not done.
pub(crate) fn lossy(path: &[u8]) -> String {
    let text = String::from_utf8_lossy(path);
    text.chars().flat_map(|it| if it.is_control() { it.escape_default().collect() } else { vec![it] }).collect()
}

fn facts(metadata: &Metadata) -> Facts {
    let kind = match metadata.file_type() {
        FileType::Regular => FileKind::Regular,
        FileType::Directory => FileKind::Directory,
        FileType::Symlink => FileKind::Symlink,
        _ => FileKind::Special,
    };
    Facts {
        kind,
        size: metadata.len(),
        mode: u32::from(metadata.mode()) & 0o7777,
        uid: metadata.uid(),
        gid: metadata.gid(),
        accessed: timestamp(metadata.accessed()),
        modified: timestamp(metadata.modified()),
    }
}

fn timestamp(time: Time) -> Option<Timestamp> {
    Timestamp::new(time.seconds(), i32::try_from(time.nanoseconds()).ok()?).ok()
}

impl FileSystemError {
    /// What the disk said, if that is what went wrong.
    pub fn disk(&self) -> Option<&(dyn std::error::Error + Send + Sync + 'static)> {
        match self {
            Self::Open(source) | Self::Read { source, .. } => source.as_io(),
            _ => None,
        }
    }
}
