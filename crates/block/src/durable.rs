//! Files that are whole or not there: written aside, brought to the disk, then given their name.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags};
use rustix::io::Errno;

/// What one read moves when a file is copied the slow way.
const CHUNK: usize = 1 << 20;
/// Smallest run of zeroes that is worth a hole.
const HOLE: usize = 4096;

/// A file on its way to its name. It goes away with this, unless it was published.
#[derive(Debug)]
pub struct Staged {
    file: File,
    path: PathBuf,
    is_published: bool,
}

impl Staged {
    /// A new empty file in a directory, which must be on the file system where the file will end up.
    pub fn new(directory: &Path, label: &str) -> io::Result<Self> {
        let mut random = [0_u8; 8];
        getrandom::fill(&mut random).map_err(io::Error::other)?;
        let path = directory.join(format!("{label}.{:016x}", u64::from_ne_bytes(random)));
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
        Ok(Self { file, path, is_published: false })
    }

    pub fn file(&self) -> &File {
        &self.file
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Gives the file its name, for good. A file that has that name already is an error and stays.
    pub fn publish(self, path: &Path) -> io::Result<()> {
        self.finish(path, RenameFlags::NOREPLACE)
    }

    /// Gives the file its name, whoever had it before.
    pub fn replace(self, path: &Path) -> io::Result<()> {
        self.finish(path, RenameFlags::empty())
    }

    fn finish(mut self, path: &Path, flags: RenameFlags) -> io::Result<()> {
        self.file.sync_all()?;
        rustix::fs::renameat_with(CWD, &self.path, CWD, path, flags)?;
        self.is_published = true;
        sync_parent(path)
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        if !self.is_published {
            // Whatever is left is cleared when the pool is opened again.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Makes a name's appearance or disappearance last.
pub(crate) fn sync_parent(path: &Path) -> io::Result<()> {
    let parent = path.parent().ok_or_else(|| io::Error::other("the path has no directory"))?;
    File::open(parent)?.sync_all()
}

/// Lets one file share another's extents. `false` if this file system, or this pair of files, cannot.
pub fn reflink(from: &File, to: &File) -> io::Result<bool> {
    match rustix::fs::ioctl_ficlone(to, from) {
        Ok(()) => Ok(true),
        Err(Errno::OPNOTSUPP | Errno::XDEV | Errno::INVAL | Errno::NOTTY | Errno::NOSYS | Errno::TXTBSY) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Copies what there is of a sparse file; holes stay holes.
pub fn copy_sparse(from: &File, to: &File) -> io::Result<()> {
    let size = from.metadata()?.len();
    to.set_len(size)?;
    let mut offset = 0;
    while offset < size {
        let Some((start, end)) = data_after(from, offset, size)? else { return Ok(()) };
        copy_range(from, to, start, end)?;
        offset = end;
    }
    Ok(())
}

/// The next stretch that is not a hole. A file system that cannot tell has none: all is data.
fn data_after(file: &File, offset: u64, size: u64) -> io::Result<Option<(u64, u64)>> {
    let start = match rustix::fs::seek(file, rustix::fs::SeekFrom::Data(offset)) {
        Ok(start) => start,
        Err(Errno::NXIO) => return Ok(None),
        Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(Some((offset, size))),
        Err(error) => return Err(error.into()),
    };
    let end = rustix::fs::seek(file, rustix::fs::SeekFrom::Hole(start))?;
    Ok(Some((start, end.min(size))))
}

fn copy_range(mut from: &File, to: &File, start: u64, end: u64) -> io::Result<()> {
    let mut buffer = vec![0_u8; CHUNK];
    let mut offset = start;
    from.seek(SeekFrom::Start(start))?;
    while offset < end {
        let wanted = usize::try_from(end - offset).map_or(CHUNK, |left| left.min(CHUNK));
        let read = from.read(&mut buffer[..wanted])?;
        if read == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the file shrank while it was copied"));
        }
        write_sparse(to, &buffer[..read], offset)?;
        offset += read as u64;
    }
    Ok(())
}

/// Zeroes are left out: the file was made as one hole.
fn write_sparse(to: &File, data: &[u8], offset: u64) -> io::Result<()> {
    let mut at = offset;
    for piece in data.chunks(HOLE) {
        if piece.iter().any(|byte| *byte != 0) {
            to.write_all_at(piece, at)?;
        }
        at += piece.len() as u64;
    }
    Ok(())
}

/// Writes a small file in one step.
pub(crate) fn write_whole(directory: &Path, path: &Path, content: &[u8]) -> io::Result<()> {
    let staged = Staged::new(directory, "small")?;
    staged.file().write_all(content)?;
    staged.replace(path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn a_staged_file_leaves_nothing_behind_unless_it_is_published() {
        let dir = tempfile::tempdir().unwrap();
        let (first, second) = (dir.path().join("first"), dir.path().join("second"));
        drop(Staged::new(dir.path(), "dropped").unwrap());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        let staged = Staged::new(dir.path(), "kept").unwrap();
        staged.file().write_all(b"one").unwrap();
        staged.publish(&first).unwrap();
        let error = Staged::new(dir.path(), "late").unwrap().publish(&first).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read(&first).unwrap(), b"one", "what was there first stays");
        Staged::new(dir.path(), "new").unwrap().replace(&first).unwrap();
        assert_eq!(fs::read(&first).unwrap(), b"");
        Staged::new(dir.path(), "new").unwrap().replace(&second).unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    }

    #[test]
    fn holes_stay_holes_and_bytes_stay_bytes() {
        let dir = tempfile::tempdir().unwrap();
        let from = OpenOptions::new().read(true).write(true).create_new(true).open(dir.path().join("a")).unwrap();
        from.set_len(64 << 20).unwrap();
        from.write_all_at(b"begin", 0).unwrap();
        from.write_all_at(&[7; 10_000], (32 << 20) + 3).unwrap();
        from.write_all_at(b"end", (64 << 20) - 3).unwrap();
        let to = OpenOptions::new().read(true).write(true).create_new(true).open(dir.path().join("b")).unwrap();
        copy_sparse(&from, &to).unwrap();
        assert_eq!(fs::read(dir.path().join("a")).unwrap(), fs::read(dir.path().join("b")).unwrap());
        to.sync_all().unwrap();
        assert!(to.metadata().unwrap().blocks() * 512 < 1 << 20, "{}", to.metadata().unwrap().blocks());
    }
}
