//! The file system that a pool makes for itself, in a sparse file beside its directory.
//!
//! The file takes what is stored in it and no more: what is deleted inside is discarded, which punches holes into it.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::command::{self, CommandError};
use crate::durable::sync_parent;
use crate::pool::{Backing, Options, PLACES, PoolError, can_reflink, is_mounted, make_sparse, sync};

/// The smallest that `mkfs.xfs` makes is 300 MiB.
const LEAST: u64 = 320 << 20;
/// The rest is left to the host: its own file system must not fill up first.
const SHARE_PERCENT: u64 = 90;
/// A loop file that could be larger by less is left as it is.
const WORTH_GROWING_PERCENT: u64 = 110;
const MIB: u64 = 1 << 20;
const LIMIT: Duration = Duration::from_mins(2);

/// What the pool in this directory stands on, mounted; and why it cannot share extents, if that is known.
pub(super) fn prepare(dir: &Path, options: &Options) -> Result<(Backing, Option<String>), PoolError> {
    let (file, unfinished) = (beside(dir, ".img"), beside(dir, ".img.tmp"));
    if let Some(mount) = is_mounted(dir)? {
        if backing_file(&mount.source).is_some_and(|found| found == unfinished) {
            name(&unfinished, &file).map_err(PoolError::io("name", &file))?;
        }
        if !file.exists() {
            // Somebody gave the pool a disk of its own.
            return Ok((Backing::Directory, None));
        }
        if backing_file(&mount.source).is_some_and(|found| found != file) {
            return Err(PoolError::OtherMounted { at: dir.to_owned(), found: mount.source });
        }
        return Ok((grown(file, &mount.source, dir, options)?, None));
    }
    if file.exists() {
        // Everything is in there: to go on without it would look as if all volumes were lost.
        mount(&file, dir).map_err(|err| PoolError::Mount { source_path: file.clone(), at: dir.to_owned(), err })?;
        let device = is_mounted(dir)?.map(|mount| mount.source).unwrap_or_default();
        return Ok((grown(file, &device, dir, options)?, None));
    }
    if options.is_plain || can_reflink(dir).map_err(PoolError::io("probe", dir))? {
        return Ok((Backing::Directory, None));
    }
    if has_content(dir) {
        let reason = "it was started on a file system without reflinks and holds data";
        return Ok((Backing::Directory, Some(reason.to_owned())));
    }
    match make(&file, &unfinished, dir, options) {
        Ok(()) => Ok((Backing::LoopFile(file), None)),
        Err(reason) => {
            tracing::warn!(dir = %dir.display(), reason, "no file system with reflinks could be made; clones will be copies");
            Ok((Backing::Directory, Some(reason)))
        }
    }
}

/// Whether something besides the pool's own furniture is in the directory.
fn has_content(dir: &Path) -> bool {
    let places = PLACES.iter().map(|place| dir.join(place));
    places.filter_map(|place| fs::read_dir(place).ok()).any(|mut entries| entries.next().is_some())
}

/// The error says why not, in words for the user; nothing is left behind then.
fn make(file: &Path, unfinished: &Path, dir: &Path, options: &Options) -> Result<(), String> {
    let size = options.loop_size_bytes.unwrap_or_else(|| room(file, SHARE_PERCENT)) / MIB * MIB;
    if size < LEAST {
        return Err(format!("{} MiB are too little for a file system of its own", size / MIB));
    }
    // Left by a process that was ended here; nothing was ever stored in it.
    let _ = fs::remove_file(unfinished);
    let result = make_file_system(unfinished, size).and_then(|()| {
        mount(unfinished, dir).map_err(|error| text(&error))?;
        // Only a file system that could be mounted is worth keeping.
        name(unfinished, file).map_err(|error| error.to_string()).inspect_err(|_| {
            let _ = super::disk::unmount(dir);
        })
    });
    result.inspect_err(|_| {
        let _ = fs::remove_file(unfinished);
    })
}

fn beside(dir: &Path, suffix: &str) -> PathBuf {
    let mut name = dir.file_name().unwrap_or_default().to_owned();
    name.push(suffix);
    dir.with_file_name(name)
}

fn name(unfinished: &Path, file: &Path) -> io::Result<()> {
    fs::rename(unfinished, file)?;
    sync_parent(file)
}

fn make_file_system(file: &Path, size: u64) -> Result<(), String> {
    make_sparse(file, size).map_err(|error| format!("{}: {error}", file.display()))?;
    let options = ["-q", "-f", "-m", "reflink=1", "-L", "croft"].map(PathBuf::from);
    command::run("mkfs.xfs", options.iter().map(PathBuf::as_path).chain([file]), LIMIT)
        .map_err(|error| text(&error))?;
    File::open(file).and_then(|file| file.sync_all()).map_err(|error| error.to_string())
}

fn text(error: &CommandError) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

/// `mount` makes the loop device and has the kernel take it away when it is unmounted.
fn mount(file: &Path, dir: &Path) -> Result<(), CommandError> {
    let options = ["-t", "xfs", "-o", "loop,noatime,nosuid,nodev,discard"].map(Path::new);
    command::run("mount", options.into_iter().chain([file, dir]), LIMIT)?;
    if let Ok(Some(mounted)) = is_mounted(dir) {
        // Else everything would be cached twice. Some hosts' file systems cannot; then it is.
        let options = [Path::new("--direct-io=on"), &mounted.source];
        if let Err(error) = command::run("losetup", options, LIMIT) {
            tracing::debug!(device = %mounted.source.display(), %error, "no direct I/O for the loop device");
        }
    }
    Ok(())
}

/// The file behind a loop device, as its driver says.
fn backing_file(device: &Path) -> Option<PathBuf> {
    let name = device.file_name()?;
    let path = Path::new("/sys/class/block").join(name).join("loop/backing_file");
    Some(PathBuf::from(fs::read_to_string(path).ok()?.trim_end()))
}

/// What of the host's free space a file there may take.
fn room(file: &Path, percent: u64) -> u64 {
    let place = file.parent().unwrap_or(file);
    rustix::fs::statvfs(place).map_or(0, |host| host.f_bavail * host.f_frsize / 100 * percent)
}

/// Lets the file system have more, if the host has: its disk may have grown.
fn grown(file: PathBuf, device: &Path, dir: &Path, options: &Options) -> Result<Backing, PoolError> {
    let found = fs::metadata(&file).map_err(PoolError::io("measure", &file))?;
    let wanted =
        options.loop_size_bytes.unwrap_or_else(|| found.blocks() * 512 + room(&file, SHARE_PERCENT)) / MIB * MIB;
    let is_worth_it = wanted > found.len()
        && (options.loop_size_bytes.is_some() || wanted > found.len() / 100 * WORTH_GROWING_PERCENT);
    if !is_worth_it {
        return Ok(Backing::LoopFile(file));
    }
    sync(dir).map_err(PoolError::io("write back", dir))?;
    let open = OpenOptions::new().write(true).open(&file).map_err(PoolError::io("open", &file))?;
    open.set_len(wanted).and_then(|()| open.sync_all()).map_err(PoolError::io("grow", &file))?;
    command::run("losetup", [Path::new("--set-capacity"), device], LIMIT)
        .and_then(|_| command::run("xfs_growfs", [Path::new("-d"), dir], LIMIT))
        .map_err(|err| PoolError::Grow { at: dir.to_owned(), err })?;
    Ok(Backing::LoopFile(file))
}
