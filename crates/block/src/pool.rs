//! A pool: a directory that holds volumes and images, if it can on a file system that shares extents between files.

mod disk;
mod loop_file;

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::{fmt, io};

use serde::{Deserialize, Serialize};

use crate::command::CommandError;
use crate::device::DeviceError;
use crate::durable::{Staged, reflink, write_whole};
use crate::mounts;

/// Programs of other users may pass through, to a file that they were given; they may not look around.
const MODE: u32 = 0o711;
const VOLUMES: &str = "volumes";
const SNAPSHOTS: &str = "snapshots";
const TMP: &str = "tmp";
const PLACES: [&str; 7] = [VOLUMES, SNAPSHOTS, "images", "container-disks", "scratch", "state", TMP];
/// Says whose pool this is.
const MARKER: &str = "pool.json";

/// How a pool is made.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// How large a loop file may become; most of what is free if not said. An existing one grows up to this.
    pub loop_size_bytes: Option<u64>,
    /// Nothing is mounted: the directory is used as it is.
    pub is_plain: bool,
}

/// What the pool stands on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Backing {
    /// The directory's own file system.
    Directory,
    /// A file system in this file.
    LoopFile(PathBuf),
    /// A file system on this device.
    Device(PathBuf),
}

/// How a clone comes about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cloning {
    /// Clones share what they have in common; any size takes milliseconds.
    Reflinks,
    /// Every clone is a copy, for this reason.
    Copies(String),
}

impl fmt::Display for Cloning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reflinks => f.write_str("clones share their extents"),
            Self::Copies(reason) => write!(f, "clones are copies: {reason}"),
        }
    }
}

/// How full a pool is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    pub capacity_bytes: u64,
    /// What can be written still. A loop file's host may have less left than the file system inside believes.
    pub free_bytes: u64,
}

impl Usage {
    pub fn used_bytes(&self) -> u64 {
        self.capacity_bytes.saturating_sub(self.free_bytes)
    }
}

#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    #[error("cannot {operation} {}", path.display())]
    Io {
        operation: &'static str,
        path: PathBuf,
        #[source]
        err: io::Error,
    },
    #[error("cannot mount {} at {}", source_path.display(), at.display())]
    Mount {
        source_path: PathBuf,
        at: PathBuf,
        #[source]
        err: CommandError,
    },
    #[error("something else is mounted at {}: {}", at.display(), found.display())]
    OtherMounted { at: PathBuf, found: PathBuf },
    #[error("cannot make a file system on {}", path.display())]
    Format {
        path: PathBuf,
        #[source]
        err: CommandError,
    },
    #[error("cannot grow the file system at {}", at.display())]
    Grow {
        at: PathBuf,
        #[source]
        err: CommandError,
    },
    #[error("cannot use the device")]
    Device(#[from] DeviceError),
    #[error("{} is in use: {what}", path.display())]
    InUse { path: PathBuf, what: String },
    #[error("{} holds {what} already; it is overwritten only when that is asked for", path.display())]
    NotBlank { path: PathBuf, what: String },
    #[error("the pool at {} is {found}, not {wanted}", path.display())]
    OtherPool { path: PathBuf, found: String, wanted: String },
}

impl PoolError {
    fn io(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |err| Self::Io { operation, path, err }
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct Marker {
    id: String,
}

/// Open for as long as the process lives; a mounted one stays mounted after it, since guests run on.
#[derive(Clone, Debug)]
pub struct Pool {
    id: String,
    dir: PathBuf,
    backing: Backing,
    cloning: Cloning,
}

impl Pool {
    /// The pool in this directory: found again, mounted again, or made. See [`Options`].
    pub fn open(id: &str, dir: &Path, options: &Options) -> Result<Self, PoolError> {
        make_directory(dir)?;
        let dir = &fs::canonicalize(dir).map_err(PoolError::io("find", dir))?;
        let (backing, reason) = loop_file::prepare(dir, options)?;
        Self::settle(id, dir, backing, reason)
    }

    /// Everything a pool has in it, once its file system is there.
    fn settle(id: &str, dir: &Path, backing: Backing, reason: Option<String>) -> Result<Self, PoolError> {
        for place in PLACES {
            make_directory(&dir.join(place))?;
        }
        let tmp = dir.join(TMP);
        clear(&tmp)?;
        mark(id, dir, &tmp)?;
        let cloning = match (can_reflink(&tmp).map_err(PoolError::io("probe", &tmp))?, reason) {
            (true, _) => Cloning::Reflinks,
            (false, Some(reason)) => Cloning::Copies(reason),
            (false, None) => Cloning::Copies("the file system has no reflinks".to_owned()),
        };
        Ok(Self { id: id.to_owned(), dir: dir.to_owned(), backing, cloning })
    }

    pub fn id(&self) -> &str {
        &self.id
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn backing(&self) -> &Backing {
        &self.backing
    }

    pub fn cloning(&self) -> &Cloning {
        &self.cloning
    }

    pub(crate) fn volumes_dir(&self) -> PathBuf {
        self.dir.join(VOLUMES)
    }

    pub(crate) fn snapshots_dir(&self) -> PathBuf {
        self.dir.join(SNAPSHOTS)
    }

    /// Where files are made before they get their name. Cleared when the pool is opened.
    pub fn tmp(&self) -> PathBuf {
        self.dir.join(TMP)
    }

    pub fn usage(&self) -> Result<Usage, PoolError> {
        let read = |path: &Path| {
            let failed = PoolError::io("measure", path);
            rustix::fs::statvfs(path).map_err(|err| failed(err.into()))
        };
        let inside = read(&self.dir)?;
        let (total, mut free) = (inside.f_blocks * inside.f_frsize, inside.f_bavail * inside.f_frsize);
        let used = total.saturating_sub(inside.f_bfree * inside.f_frsize);
        if let Backing::LoopFile(file) = &self.backing {
            let host = read(file)?;
            free = free.min(host.f_bavail * host.f_frsize);
        }
        Ok(Usage { capacity_bytes: used + free, free_bytes: free })
    }

    /// Takes the pool off the host: what was mounted is unmounted, nothing is deleted. Fails while something is in use.
    pub fn close(self) -> Result<(), PoolError> {
        if self.backing == Backing::Directory {
            return Ok(());
        }
        disk::unmount(&self.dir)
    }
}

/// Takes a pool off the host that no process of ours has open; one that is not mounted is left as it is.
pub fn unmount(dir: &Path) -> Result<(), PoolError> {
    disk::unmount(dir)
}

fn make_directory(path: &Path) -> Result<(), PoolError> {
    DirBuilder::new().recursive(true).mode(MODE).create(path).map_err(PoolError::io("make", path))
}

/// What a process left half made when it ended.
fn clear(tmp: &Path) -> Result<(), PoolError> {
    for entry in fs::read_dir(tmp).map_err(PoolError::io("read", tmp))? {
        let path = entry.map_err(PoolError::io("read", tmp))?.path();
        let is_directory = path.symlink_metadata().is_ok_and(|found| found.is_dir());
        let removed = if is_directory { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        removed.map_err(PoolError::io("clear", &path))?;
    }
    Ok(())
}

/// A disk that was moved here from elsewhere must not be taken for ours.
fn mark(id: &str, dir: &Path, tmp: &Path) -> Result<(), PoolError> {
    let path = dir.join(MARKER);
    if let Some(found) = read_marker(dir)? {
        if found == id {
            return Ok(());
        }
        return Err(PoolError::OtherPool { path: dir.to_owned(), found, wanted: id.to_owned() });
    }
    let marker =
        serde_json::to_vec(&Marker { id: id.to_owned() }).map_err(|err| PoolError::io("write", &path)(err.into()))?;
    write_whole(tmp, &path, &marker).map_err(PoolError::io("write", &path))
}

fn read_marker(dir: &Path) -> Result<Option<String>, PoolError> {
    let path = dir.join(MARKER);
    match fs::read(&path) {
        Ok(bytes) => {
            let marker: Marker =
                serde_json::from_slice(&bytes).map_err(|err| PoolError::io("understand", &path)(err.into()))?;
            Ok(Some(marker.id))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(PoolError::io("read", &path)(error)),
    }
}

/// Tried, not looked up: what a file system is called says little.
fn can_reflink(dir: &Path) -> io::Result<bool> {
    let (from, to) = (Staged::new(dir, "probe")?, Staged::new(dir, "probe")?);
    rustix::io::write(from.file(), &[1; 4096])?;
    reflink(from.file(), to.file())
}

/// The file system that a directory lives on, brought to the disk.
fn sync(path: &Path) -> io::Result<()> {
    let directory = File::open(path)?;
    Ok(rustix::fs::syncfs(&directory)?)
}

/// A sparse file of this size.
fn make_sparse(path: &Path, size_bytes: u64) -> io::Result<()> {
    let file = OpenOptions::new().write(true).create_new(true).open(path)?;
    rustix::fs::fchmod(&file, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR)?;
    file.set_len(size_bytes)
}

fn is_mounted(dir: &Path) -> Result<Option<mounts::Mount>, PoolError> {
    mounts::at(dir).map_err(PoolError::io("look for a mount at", dir))
}

#[cfg(test)]
pub(crate) mod tests;
