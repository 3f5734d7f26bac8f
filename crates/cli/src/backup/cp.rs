//! Files and disks out of a backup.

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, anyhow, bail};
use clap::Args;
use croft_backup::harvester::VolumeBackup;
use croft_backup::{Base, Progress, Transfer};
use croft_files::{Copied, Disk, Extraction, FileKind, FileSystem};

use super::inside;
use super::place::Place;
use super::target::{Opened, TargetArgs};
use crate::client::ClientArgs;
use crate::{Failure, output, print, progress};

const BUFFER: usize = 1 << 20;

#[derive(Debug, Args)]
pub(super) struct CpArgs {
    /// What to copy; without a path, the whole disk
    #[arg(value_name = "BACKUP")]
    place: Place,
    /// Where to: a new file or directory, one that is there, or - for standard output
    #[arg(value_name = "LOCAL")]
    local: PathBuf,
    /// Replace files that are there
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    target: TargetArgs,
}

pub(super) async fn run(client: &ClientArgs, args: &CpArgs) -> Result<(), Failure> {
    let opened = args.target.open(client).await?;
    let backup = inside::description(&opened, &args.place.backup).await?;
    let disk = inside::disk(&backup, &args.place)?;
    let Some(path) = args.place.path.clone() else {
        if args.place.partition.is_some() {
            return Err(Failure::usage(anyhow!("say a path on the partition, or copy the whole disk")));
        }
        return whole(&opened, disk, args).await;
    };
    let (place, name) = (args.place.clone(), disk.volume_name.clone());
    if args.local.as_os_str() == "-" {
        return Ok(inside::with_disk(&opened, disk, move |disk| pour(disk, &place, &name, &path)).await?);
    }
    let (into, called) = destination(&args.local, Path::new(&path).file_name())?;
    let (force, shown) = (args.force, into.join(&called));
    let copy = move |disk: &Arc<dyn Disk>| {
        let files = inside::files(disk, &place, &name)?;
        let facts = files.facts(&files.resolve(path.as_bytes())?)?;
        let bar = progress::transfer(&path, (facts.kind == FileKind::Regular).then_some(facts.size));
        let copied = Extraction::new(&files, force, |bytes| bar.set_position(bytes));
        let copied = copied.copy(path.as_bytes(), &into, &called);
        bar.finish_and_clear();
        copied.map_err(|error| match error {
            croft_files::ExtractError::Exists(_) => anyhow::Error::new(error).context("--force replaces what is there"),
            error => error.into(),
        })
    };
    let copied: Copied = inside::with_disk(&opened, disk, copy).await?;
    report(&copied);
    print(&format!("{} with {} is copied\n", shown.display(), output::bytes(copied.bytes)))
}

fn report(copied: &Copied) {
    if copied.left_out > 0 {
        eprintln!("{} devices, pipes and sockets are left out: {}", copied.left_out, copied.named.join(", "));
    }
}

/// The directory that it is put into, and what it is called there.
fn destination(local: &Path, own_name: Option<&OsStr>) -> anyhow::Result<(PathBuf, OsString)> {
    if local.is_dir() {
        let name = own_name.with_context(|| format!("say what to call it in {}", local.display()))?;
        return Ok((local.to_owned(), name.to_owned()));
    }
    let name = local.file_name().with_context(|| format!("{} is no name of a file", local.display()))?;
    let dir = local.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Ok((dir.to_owned(), name.to_owned()))
}

/// A file to standard output.
fn pour(disk: &Arc<dyn Disk>, place: &Place, name: &str, path: &str) -> anyhow::Result<()> {
    let files: FileSystem = inside::files(disk, place, name)?;
    let found = files.resolve(path.as_bytes())?;
    if files.facts(&found)?.kind != FileKind::Regular {
        bail!("{path} is not a file: only files go to standard output");
    }
    let mut out = std::io::stdout().lock();
    files.read(&found, &mut vec![0; BUFFER], |piece| out.write_all(piece))?.context("cannot write")?;
    out.flush().context("cannot write")
}

async fn whole(opened: &Opened, disk: &VolumeBackup, args: &CpArgs) -> Result<(), Failure> {
    let name = format!("{}.raw", disk.volume_name);
    if args.local.as_os_str() == "-" {
        return Err(Failure::usage(anyhow!("a disk goes into a file: say its name")));
    }
    let (dir, called) = destination(&args.local, Some(OsStr::new(&name)))?;
    let path = dir.join(called);
    if !args.force && path.symlink_metadata().is_ok() {
        return Err(anyhow!("{} is there already; --force replaces it", path.display()).into());
    }
    let open = inside::open(opened, disk).await?;
    let bar = progress::transfer(&disk.volume_name, Some(open.size()));
    let shown = bar.clone();
    let tell = move |progress: Progress| {
        shown.set_length(progress.total);
        shown.set_position(progress.done);
    };
    let transfer = Transfer { progress: Some(Arc::new(tell)), ..Transfer::default() };
    let done = open.restore(&path, Base::Nothing, &transfer).await;
    bar.finish_and_clear();
    let size = open.size();
    open.close().await;
    if done.is_err() && path.is_file() {
        // Part of a disk looks like a whole one.
        let _ = std::fs::remove_file(&path);
    }
    done.with_context(|| format!("cannot copy disk {}", disk.volume_name))?;
    print(&format!("{} with a disk of {} is written\n", path.display(), output::bytes(size)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_copied_is_called_as_asked() {
        let dir = tempfile::tempdir().unwrap();
        let at = |local: &Path, name: Option<&str>| destination(local, name.map(OsStr::new)).ok();
        assert_eq!(at(dir.path(), Some("hosts")), Some((dir.path().to_owned(), "hosts".into())));
        assert_eq!(at(&dir.path().join("new"), Some("hosts")), Some((dir.path().to_owned(), "new".into())));
        assert_eq!(at(Path::new("new"), None), Some((PathBuf::from("."), "new".into())));
        assert_eq!(at(dir.path(), None), None, "all of a disk has no name");
    }
}
