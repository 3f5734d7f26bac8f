//! Putting an image into a file that is there already: a volume.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{FallocateFlags, SeekFrom, ioctl_ficlone, seek};
use rustix::io::Errno;

use crate::error::ImportError;
use crate::sparse::is_zero;

const BUFFER: usize = 1 << 20;

/// Fills `target` with what `source` has, sharing its blocks where the file system can. A target that is larger keeps its size,
/// and is zero from there on; one that is smaller grows. A device has the size it has.
///
/// Not atomic: whoever reads the target must know from elsewhere when it is done.
pub fn place(source: &Path, target: &Path) -> Result<(), ImportError> {
    let from = File::open(source).map_err(ImportError::file("open", source))?;
    let to = File::options().read(true).write(true).open(target).map_err(ImportError::file("open", target))?;
    let is_file = to.metadata().map_err(ImportError::file("look at", target))?.is_file();
    let (size, target_size) = (length(&from, source)?, length(&to, target)?);
    if !is_file && size > target_size {
        return Err(ImportError::TooLarge { what: "image", limit: target_size });
    }
    if is_file {
        clone_or_copy(&from, &to, size).and_then(|()| to.set_len(size.max(target_size)))
    } else {
        copy(&from, &to, size, Holes::Zero)
    }
    .and_then(|()| to.sync_all())
    .map_err(ImportError::file("write to", target))
}

/// Makes the file at least this large.
pub fn grow(path: &Path, size: u64) -> Result<(), ImportError> {
    let file = File::options().write(true).open(path).map_err(ImportError::file("open", path))?;
    if length(&file, path)? < size {
        file.set_len(size).and_then(|()| file.sync_all()).map_err(ImportError::file("grow", path))?;
    }
    Ok(())
}

/// Takes all blocks of the file at once, its own: what is written to it later cannot fail for want of space.
pub fn preallocate(path: &Path) -> Result<(), ImportError> {
    let file = File::options().write(true).open(path).map_err(ImportError::file("open", path))?;
    let size = length(&file, path)?;
    let take = |flags| rustix::fs::fallocate(&file, flags, 0, size);
    let taken = match take(FallocateFlags::UNSHARE_RANGE) {
        // A file system that shares no blocks need not know how to end it.
        Err(Errno::OPNOTSUPP | Errno::INVAL) => take(FallocateFlags::empty()),
        other => other,
    };
    let synced = taken.map_err(io::Error::from).and_then(|()| file.sync_all());
    synced.map_err(ImportError::file("take the blocks of", path))
}

fn length(file: &File, path: &Path) -> Result<u64, ImportError> {
    // The end of a device is found by going there; its metadata does not say.
    seek(file, SeekFrom::End(0)).map_err(io::Error::from).map_err(ImportError::file("measure", path))
}

fn clone_or_copy(from: &File, to: &File, size: u64) -> io::Result<()> {
    to.set_len(0)?;
    match ioctl_ficlone(to, from) {
        Ok(()) => Ok(()),
        Err(Errno::OPNOTSUPP | Errno::XDEV | Errno::INVAL | Errno::NOTTY | Errno::NOSYS) => {
            to.set_len(size)?;
            copy(from, to, size, Holes::Leave)
        }
        Err(error) => Err(error.into()),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holes {
    /// The target is all holes.
    Leave,
    /// The target has something there.
    Zero,
}

fn copy(from: &File, to: &File, size: u64, holes: Holes) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER];
    let mut position = 0;
    while position < size {
        let data = if holes == Holes::Leave { next_data(from, position, size)? } else { position };
        let Some(rest) = size.checked_sub(data).filter(|rest| *rest > 0) else { break };
        let chunk = &mut buffer[..usize::try_from(rest).unwrap_or(BUFFER).min(BUFFER)];
        from.read_exact_at(chunk, data)?;
        if holes == Holes::Zero || !is_zero(chunk) {
            to.write_all_at(chunk, data)?;
        }
        position = data + chunk.len() as u64;
    }
    Ok(())
}

/// The next byte that is not in a hole; `end` if there is none.
pub fn next_data(file: &File, position: u64, end: u64) -> io::Result<u64> {
    match seek(file, SeekFrom::Data(position)) {
        Ok(data) => Ok(data.min(end)),
        Err(Errno::NXIO) => Ok(end),
        Err(Errno::INVAL | Errno::OPNOTSUPP) => Ok(position),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn a_volume_keeps_its_size_and_gets_the_data() {
        let dir = tempfile::tempdir().unwrap();
        let (source, target) = (dir.path().join("image"), dir.path().join("volume"));
        let image = File::create(&source).unwrap();
        image.set_len(8 << 20).unwrap();
        image.write_all_at(b"data", 5 << 20).unwrap();
        for (before, after) in [(32_u64 << 20, 32_u64 << 20), (1 << 20, 8 << 20)] {
            std::fs::write(&target, "old").unwrap();
            File::options().write(true).open(&target).unwrap().set_len(before).unwrap();
            place(&source, &target).unwrap();
            let volume = File::open(&target).unwrap();
            assert_eq!(volume.metadata().unwrap().len(), after);
            let mut four = [0; 4];
            volume.read_exact_at(&mut four, 5 << 20).unwrap();
            assert_eq!(&four, b"data");
            volume.read_exact_at(&mut four, 0).unwrap();
            assert_eq!(four, [0; 4], "what was there before is gone");
            assert!(volume.metadata().unwrap().blocks() * 512 <= 2 << 20, "holes stay holes");
        }
    }
}
