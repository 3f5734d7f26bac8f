//! A whole device as a pool.

use std::path::Path;
use std::time::Duration;

use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};

use crate::command;
use crate::device::{Device, Signature, inspect};
use crate::mounts;
use crate::pool::{Backing, Pool, PoolError, is_mounted, make_directory, read_marker};

const LIMIT: Duration = Duration::from_mins(10);

impl Pool {
    /// The pool on this device, mounted at `dir`: found by its id if it was made before, made if the device is blank, or
    /// `overwrite` says that what is on it may go.
    pub fn open_device(id: &str, device: &Path, dir: &Path, overwrite: bool) -> Result<Self, PoolError> {
        make_directory(dir)?;
        let dir = &std::fs::canonicalize(dir).map_err(PoolError::io("find", dir))?;
        let found = inspect(device)?;
        if let Some(mount) = is_mounted(dir)? {
            if (mount.major, mount.minor) != (found.major, found.minor) {
                return Err(PoolError::OtherMounted { at: dir.clone(), found: mount.source });
            }
            return Self::settle(id, dir, Backing::Device(found.path), None);
        }
        refuse_used(&found)?;
        if !mount_known(id, &found, dir)? {
            if let Some(signature) = found.signature.as_ref().filter(|_| !overwrite) {
                return Err(PoolError::NotBlank { path: found.path, what: signature.to_string() });
            }
            format(&found)?;
            mount(&found.path, dir, "xfs")?;
        }
        Self::settle(id, dir, Backing::Device(found.path), None).inspect_err(|_| {
            let _ = unmount(dir);
        })
    }
}

fn refuse_used(device: &Device) -> Result<(), PoolError> {
    let what = match (&device.mounts.first(), device.is_swap, device.holders.first(), device.partitions.first()) {
        (Some(at), ..) => format!("mounted at {}", at.display()),
        (_, true, ..) => "the host swaps to it".to_owned(),
        (_, _, Some(holder), _) => format!("held by {holder}"),
        (.., Some(part)) => format!("it has partitions, {part} for one"),
        _ => return Ok(()),
    };
    Err(PoolError::InUse { path: device.path.clone(), what })
}

/// True if it is mounted now, having been this very pool before.
fn mount_known(id: &str, device: &Device, dir: &Path) -> Result<bool, PoolError> {
    let kind = match &device.signature {
        Some(Signature::FileSystem { kind, .. }) if matches!(kind.as_str(), "xfs" | "btrfs") => kind,
        _ => return Ok(false),
    };
    // What cannot be mounted is not ours to use; whether it may be overwritten is asked next.
    if let Err(error) = mount(&device.path, dir, kind) {
        tracing::debug!(device = %device.path.display(), %error, "not mounted as it is");
        return Ok(false);
    }
    if read_marker(dir)?.is_some_and(|found| found == id) {
        return Ok(true);
    }
    unmount(dir)?;
    Ok(false)
}

fn format(device: &Device) -> Result<(), PoolError> {
    let options = ["-q", "-f", "-K", "-m", "reflink=1", "-L", "croft"].map(Path::new);
    let arguments = options.into_iter().chain([device.path.as_path()]);
    let made = command::run("mkfs.xfs", arguments, LIMIT);
    made.map(drop).map_err(|err| PoolError::Format { path: device.path.clone(), err })
}

fn mount(device: &Path, dir: &Path, kind: &str) -> Result<(), PoolError> {
    let flags = MountFlags::NOATIME | MountFlags::NOSUID | MountFlags::NODEV;
    let failed = PoolError::io("mount", device);
    rustix::mount::mount(device, dir, kind, flags, c"discard").map_err(|error| failed(error.into()))
}

pub(super) fn unmount(dir: &Path) -> Result<(), PoolError> {
    match rustix::mount::unmount(dir, UnmountFlags::NOFOLLOW) {
        Ok(()) => Ok(()),
        Err(Errno::INVAL) if matches!(mounts::at(dir), Ok(None)) => Ok(()),
        Err(Errno::BUSY) => Err(PoolError::InUse { path: dir.to_owned(), what: "files on it are open".to_owned() }),
        Err(error) => Err(PoolError::io("unmount", dir)(error.into())),
    }
}
