//! Copying files out of a file system, into a directory that nothing in them can lead out of.
//!
//! Every name is made relative to a directory that is held open, and no link is followed on the way: a guest that calls its
//! files `..` or puts a link where a directory was gets an error, not a file elsewhere.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;

use jiff::Timestamp;
use rustix::fs::{
    AtFlags, CWD, Mode, OFlags, Timespec, Timestamps, UTIME_OMIT, fchmod, futimens, mkdirat, openat, symlinkat,
    unlinkat, utimensat,
};

use crate::file_system::{Entry, Facts, FileKind, FileSystem, FileSystemError, lossy};

const BUFFER: usize = 1 << 20;
/// Pieces that are all zero are left out of the copy, as holes.
const HOLE: usize = 64 << 10;
/// Directories within directories; each holds a file open.
const DEEPEST: usize = 200;
/// Without what would let others act as the owner.
const PERMISSIONS: u32 = 0o777;
/// How many files that were left out are named.
const MOST_NAMED: usize = 20;

#[derive(Debug, thiserror::Error)]
pub enum ExtractError {
    #[error(transparent)]
    Source(#[from] FileSystemError),
    #[error("{0} is there already")]
    Exists(String),
    #[error("a file is called {0:?}, which is no name")]
    Name(String),
    #[error("{0} is more than {DEEPEST} directories deep")]
    Deep(String),
    #[error("cannot {what} {name}")]
    Write {
        what: &'static str,
        name: String,
        #[source]
        source: io::Error,
    },
}

/// What was done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Copied {
    pub files: u64,
    pub directories: u64,
    pub links: u64,
    pub bytes: u64,
    /// Devices, pipes and sockets.
    pub left_out: u64,
    pub named: Vec<String>,
}

pub struct Extraction<'a> {
    from: &'a FileSystem,
    /// What is there already is replaced.
    is_replacing: bool,
    /// Told of all bytes so far.
    progress: Box<dyn FnMut(u64) + 'a>,
    buffer: Vec<u8>,
    copied: Copied,
}

impl std::fmt::Debug for Extraction<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Extraction").field("copied", &self.copied).finish_non_exhaustive()
    }
}

impl<'a> Extraction<'a> {
    pub fn new(from: &'a FileSystem, is_replacing: bool, progress: impl FnMut(u64) + 'a) -> Self {
        Self { from, is_replacing, progress: Box::new(progress), buffer: vec![0; BUFFER], copied: Copied::default() }
    }

    /// What a path leads to becomes `name` in a directory. Links within it stay links.
    pub fn copy(mut self, path: &[u8], into: &Path, name: &OsStr) -> Result<Copied, ExtractError> {
        let path = self.from.resolve(path)?;
        let facts = self.from.facts(&path)?;
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let dir = openat(CWD, into, flags, Mode::empty()).map_err(failed("open", into.as_os_str()))?;
        self.any(dir.as_fd(), name, &path, &facts, 0)?;
        Ok(self.copied)
    }

    fn any(
        &mut self,
        dir: BorrowedFd<'_>,
        name: &OsStr,
        path: &[u8],
        facts: &Facts,
        depth: usize,
    ) -> Result<(), ExtractError> {
        let bytes = name.as_bytes();
        if bytes.is_empty() || bytes == b"." || bytes == b".." || bytes.iter().any(|byte| matches!(byte, b'/' | 0)) {
            return Err(ExtractError::Name(lossy(bytes)));
        }
        match facts.kind {
            FileKind::Regular => self.file(dir, name, path, facts),
            FileKind::Directory if depth >= DEEPEST => Err(ExtractError::Deep(lossy(path))),
            FileKind::Directory => self.directory(dir, name, path, facts, depth),
            FileKind::Symlink => self.link(dir, name, path, facts),
            FileKind::Special => {
                self.copied.left_out += 1;
                if self.copied.named.len() < MOST_NAMED {
                    self.copied.named.push(lossy(path));
                }
                Ok(())
            }
        }
    }

    fn directory(
        &mut self,
        dir: BorrowedFd<'_>,
        name: &OsStr,
        path: &[u8],
        facts: &Facts,
        depth: usize,
    ) -> Result<(), ExtractError> {
        match mkdirat(dir, name, Mode::RWXU) {
            Err(rustix::io::Errno::EXIST) if self.is_replacing => {}
            made => made.map_err(failed("make", name))?,
        }
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::RDONLY | OFlags::CLOEXEC;
        let made = openat(dir, name, flags, Mode::empty()).map_err(failed("open", name))?;
        // One that was there may be closed to its owner.
        fchmod(&made, Mode::RWXU).map_err(failed("open", name))?;
        for Entry { name, facts } in self.from.entries(path)? {
            let path = [path.strip_suffix(b"/").unwrap_or(path), b"/", name.as_bytes()].concat();
            self.any(made.as_fd(), &name, &path, &facts, depth + 1)?;
        }
        self.copied.directories += 1;
        finish(&made, name, facts)
    }

    fn file(&mut self, dir: BorrowedFd<'_>, name: &OsStr, path: &[u8], facts: &Facts) -> Result<(), ExtractError> {
        self.make_room(dir, name)?;
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::WRONLY | OFlags::CLOEXEC;
        let made = openat(dir, name, flags, Mode::RUSR | Mode::WUSR).map_err(failed("make", name))?;
        let made = File::from(made);
        let written = self.content(&made, name, path).and_then(|()| finish(&made, name, facts));
        if written.is_err() {
            // Half a file is worth nothing, and looks like a whole one.
            let _ = unlinkat(dir, name, AtFlags::empty());
        }
        self.copied.files += 1;
        written
    }

    fn content(&mut self, into: &File, name: &OsStr, path: &[u8]) -> Result<(), ExtractError> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let (copied, progress, mut position) = (&mut self.copied, &mut self.progress, 0);
        let read = self.from.read(path, &mut buffer, |piece| {
            for chunk in piece.chunks(HOLE) {
                if chunk.iter().any(|byte| *byte != 0) {
                    into.write_all_at(chunk, position)?;
                }
                position += chunk.len() as u64;
            }
            copied.bytes += piece.len() as u64;
            progress(copied.bytes);
            Ok(())
        });
        self.buffer = buffer;
        let written = read?.and_then(|()| into.set_len(position));
        written.map_err(|source| ExtractError::Write { what: "write", name: lossy(name.as_bytes()), source })
    }

    fn link(&mut self, dir: BorrowedFd<'_>, name: &OsStr, path: &[u8], facts: &Facts) -> Result<(), ExtractError> {
        let target = self.from.link(path)?;
        self.make_room(dir, name)?;
        symlinkat(target.as_os_str(), dir, name).map_err(failed("make", name))?;
        utimensat(dir, name, &times(facts), AtFlags::SYMLINK_NOFOLLOW).map_err(failed("set the time of", name))?;
        self.copied.links += 1;
        Ok(())
    }

    fn make_room(&self, dir: BorrowedFd<'_>, name: &OsStr) -> Result<(), ExtractError> {
        if !self.is_replacing {
            return Ok(());
        }
        match unlinkat(dir, name, AtFlags::empty()) {
            Ok(()) | Err(rustix::io::Errno::NOENT) => Ok(()),
            Err(error) => Err(failed("replace", name)(error)),
        }
    }
}

fn failed(what: &'static str, name: &OsStr) -> impl FnOnce(rustix::io::Errno) -> ExtractError {
    let name = lossy(name.as_bytes());
    move |error| match error {
        rustix::io::Errno::EXIST => ExtractError::Exists(name),
        error => ExtractError::Write { what, name, source: error.into() },
    }
}

/// What it was allowed and when it was changed, last: a directory may be closed to its owner too.
fn finish(made: &impl AsFd, name: &OsStr, facts: &Facts) -> Result<(), ExtractError> {
    fchmod(made, Mode::from_raw_mode(facts.mode & PERMISSIONS)).map_err(failed("set the permissions of", name))?;
    futimens(made, &times(facts)).map_err(failed("set the time of", name))
}

fn times(facts: &Facts) -> Timestamps {
    let time = |time: Option<Timestamp>| match time {
        Some(time) => {
            let nanoseconds = time.as_nanosecond().rem_euclid(1_000_000_000);
            let whole = time.as_nanosecond().div_euclid(1_000_000_000);
            // Both are in range: the one by the division, the other because it is a time.
            Timespec { tv_sec: i64::try_from(whole).unwrap_or(0), tv_nsec: i64::try_from(nanoseconds).unwrap_or(0) }
        }
        None => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
    };
    Timestamps { last_access: time(facts.accessed), last_modification: time(facts.modified) }
}

#[cfg(test)]
mod tests;
