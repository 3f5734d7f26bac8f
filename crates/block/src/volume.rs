//! Volumes: raw files in a pool, each under the name that its owner gave it.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::durable::{Staged, copy_sparse, reflink, sync_parent};
use crate::pool::Pool;

const SUFFIX: &str = ".raw";
/// As long as the names of Kubernetes' objects.
const LONGEST_NAME: usize = 253 - SUFFIX.len();
/// Guests see sectors.
const SECTOR: u64 = 512;

/// A volume that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Volume {
    pub name: String,
    pub path: PathBuf,
    pub size_bytes: u64,
    /// What it takes up. Extents that it shares with others count for each of them.
    pub allocated_bytes: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum VolumeError {
    #[error("{0:?} cannot name a volume")]
    BadName(String),
    #[error("a volume cannot have {0} bytes")]
    BadSize(u64),
    #[error("volume {0} exists already")]
    Exists(String),
    #[error("there is no volume {0}")]
    NotFound(String),
    #[error("there is no snapshot {0}")]
    NoSnapshot(String),
    #[error("volume {name} has {size_bytes} bytes; it cannot shrink to {wanted_bytes}")]
    Shrinks { name: String, size_bytes: u64, wanted_bytes: u64 },
    #[error("the source has {source_bytes} bytes, which do not fit into {wanted_bytes}")]
    SourceLarger { source_bytes: u64, wanted_bytes: u64 },
    #[error("the pool is full")]
    Full,
    #[error("cannot {operation} {}", path.display())]
    Io {
        operation: &'static str,
        path: PathBuf,
        #[source]
        err: io::Error,
    },
}

impl VolumeError {
    pub(crate) fn io(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |err| match Errno::from_io_error(&err) {
            Some(Errno::NOSPC | Errno::DQUOT) => Self::Full,
            _ => Self::Io { operation, path, err },
        }
    }
}

impl Pool {
    /// Where the volume of this name is, or would be.
    pub fn volume_path(&self, name: &str) -> Result<PathBuf, VolumeError> {
        file_in(&self.volumes_dir(), name)
    }

    /// A new volume of zeroes, which takes up nothing yet.
    pub fn create(&self, name: &str, size_bytes: u64) -> Result<Volume, VolumeError> {
        self.make(name, size_bytes, |_| Ok(()))
    }

    /// A new volume with the content of a file, and zeroes after it.
    pub fn create_from(&self, name: &str, source: &Path, size_bytes: u64) -> Result<Volume, VolumeError> {
        let from = File::open(source).map_err(VolumeError::io("open", source))?;
        let source_bytes = from.metadata().map_err(VolumeError::io("measure", source))?.len();
        if source_bytes > size_bytes {
            return Err(VolumeError::SourceLarger { source_bytes, wanted_bytes: size_bytes });
        }
        self.make(name, size_bytes, |to| {
            if reflink(&from, to).map_err(VolumeError::io("share the extents of", source))? {
                return Ok(());
            }
            copy_sparse(&from, to).map_err(VolumeError::io("copy", source))
        })
    }

    fn make(
        &self,
        name: &str,
        size_bytes: u64,
        fill: impl FnOnce(&File) -> Result<(), VolumeError>,
    ) -> Result<Volume, VolumeError> {
        let path = self.volume_path(name)?;
        if size_bytes == 0 || !size_bytes.is_multiple_of(SECTOR) || i64::try_from(size_bytes).is_err() {
            return Err(VolumeError::BadSize(size_bytes));
        }
        if path.exists() {
            return Err(VolumeError::Exists(name.to_owned()));
        }
        let staged = Staged::new(&self.tmp(), name).map_err(VolumeError::io("make", &path))?;
        fill(staged.file())?;
        staged.file().set_len(size_bytes).map_err(VolumeError::io("size", staged.path()))?;
        match staged.publish(&path) {
            Ok(()) => self.volume(name),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(VolumeError::Exists(name.to_owned())),
            Err(error) => Err(VolumeError::io("make", &path)(error)),
        }
    }

    /// Puts a file that was made in [`Pool::tmp`] in the place of a volume, at the volume's size.
    pub fn replace(&self, name: &str, staged: Staged) -> Result<Volume, VolumeError> {
        let before = self.volume(name)?;
        let source_bytes = staged.file().metadata().map_err(VolumeError::io("measure", staged.path()))?.len();
        if source_bytes > before.size_bytes {
            return Err(VolumeError::SourceLarger { source_bytes, wanted_bytes: before.size_bytes });
        }
        staged.file().set_len(before.size_bytes).map_err(VolumeError::io("size", staged.path()))?;
        staged.replace(&before.path).map_err(VolumeError::io("replace", &before.path))?;
        self.volume(name)
    }

    /// Lets a volume be what a file holds, in one step, and zeroes after that up to the volume's size.
    pub fn revert(&self, name: &str, source: &Path) -> Result<Volume, VolumeError> {
        let from = File::open(source).map_err(VolumeError::io("open", source))?;
        let staged = Staged::new(&self.tmp(), name).map_err(VolumeError::io("make", source))?;
        if !reflink(&from, staged.file()).map_err(VolumeError::io("share the extents of", source))? {
            copy_sparse(&from, staged.file()).map_err(VolumeError::io("copy", source))?;
        }
        self.replace(name, staged)
    }

    /// A volume that is larger already stays as it is only if it is exactly that large: volumes do not shrink.
    pub fn grow(&self, name: &str, size_bytes: u64) -> Result<Volume, VolumeError> {
        let before = self.volume(name)?;
        if !size_bytes.is_multiple_of(SECTOR) || i64::try_from(size_bytes).is_err() {
            return Err(VolumeError::BadSize(size_bytes));
        }
        if size_bytes < before.size_bytes {
            let (name, size) = (name.to_owned(), before.size_bytes);
            return Err(VolumeError::Shrinks { name, size_bytes: size, wanted_bytes: size_bytes });
        }
        if size_bytes > before.size_bytes {
            let file =
                OpenOptions::new().write(true).open(&before.path).map_err(VolumeError::io("open", &before.path))?;
            let grown = file.set_len(size_bytes).and_then(|()| file.sync_all());
            grown.map_err(VolumeError::io("grow", &before.path))?;
        }
        self.volume(name)
    }

    /// A volume that is gone already is no error.
    pub fn delete(&self, name: &str) -> Result<(), VolumeError> {
        remove(&self.volume_path(name)?)
    }

    pub fn volume(&self, name: &str) -> Result<Volume, VolumeError> {
        let path = self.volume_path(name)?;
        match fs::symlink_metadata(&path) {
            Ok(found) if found.is_file() => Ok(Volume {
                name: name.to_owned(),
                path,
                size_bytes: found.len(),
                allocated_bytes: found.blocks() * 512,
            }),
            Ok(_) => Err(VolumeError::NotFound(name.to_owned())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(VolumeError::NotFound(name.to_owned())),
            Err(error) => Err(VolumeError::io("measure", &path)(error)),
        }
    }

    /// In the order of their names.
    pub fn volumes(&self) -> Result<Vec<Volume>, VolumeError> {
        let mut found = Vec::new();
        for name in names_in(&self.volumes_dir())? {
            match self.volume(&name) {
                Ok(volume) => found.push(volume),
                // Deleted in the meantime, or nothing of ours.
                Err(VolumeError::NotFound(_) | VolumeError::BadName(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    }
}

/// The file of this name in a directory of the pool; no name leads anywhere else.
pub(crate) fn file_in(dir: &Path, name: &str) -> Result<PathBuf, VolumeError> {
    let is_known = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'.';
    let is_good =
        !name.is_empty() && name.len() <= LONGEST_NAME && !name.starts_with('.') && name.bytes().all(is_known);
    if !is_good {
        return Err(VolumeError::BadName(name.to_owned()));
    }
    Ok(dir.join(format!("{name}{SUFFIX}")))
}

/// The names of the files in a directory of the pool, in their order.
pub(crate) fn names_in(dir: &Path) -> Result<Vec<String>, VolumeError> {
    let mut names = Vec::new();
    for entry in fs::read_dir(dir).map_err(VolumeError::io("read", dir))? {
        let name = entry.map_err(VolumeError::io("read", dir))?.file_name();
        names.extend(name.to_str().and_then(|name| name.strip_suffix(SUFFIX)).map(str::to_owned));
    }
    names.sort();
    Ok(names)
}

/// Removes a file for good; one that is gone already is no error.
pub(crate) fn remove(path: &Path) -> Result<(), VolumeError> {
    match fs::remove_file(path) {
        Ok(()) => sync_parent(path).map_err(VolumeError::io("delete", path)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(VolumeError::io("delete", path)(error)),
    }
}

#[cfg(test)]
mod tests;
