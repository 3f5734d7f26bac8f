//! A disk in a backup, opened for reading.

use std::io;
use std::sync::Arc;

use anyhow::{Context, anyhow, bail};
use croft_backup::OpenBackup;
use croft_backup::harvester::{VmBackup, VolumeBackup};
use croft_files::{Disk, FileSystem, Partition, partitions};
use tokio::runtime::Handle;

use super::place::Place;
use super::target::Opened;

/// A backup whose blocks are read when they are asked for.
struct BackupDisk {
    open: Arc<OpenBackup>,
    runtime: Handle,
}

impl Disk for BackupDisk {
    fn size(&self) -> u64 {
        self.open.size()
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let read = self.runtime.block_on(self.open.read_at(offset, into.len()));
        let read = read.map_err(|error| io::Error::other(croft_meta::Chain(&error).to_string()))?;
        if read.len() != into.len() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        into.copy_from_slice(&read);
        Ok(())
    }
}

/// What is kept of the machine.
pub(super) async fn description(opened: &Opened, backup: &str) -> anyhow::Result<VmBackup> {
    let found = opened.store.vm_backup(&opened.namespace, backup).await.context("cannot read the target")?;
    found.ok_or_else(|| anyhow!("the target has no backup {backup} of namespace {}", opened.namespace))
}

/// The disk that is meant; a backup with one disk needs no name of it.
pub(super) fn disk<'a>(backup: &'a VmBackup, place: &Place) -> anyhow::Result<&'a VolumeBackup> {
    let disks = &backup.volume_backups;
    let names = || disks.iter().map(|disk| disk.volume_name.as_str()).collect::<Vec<_>>().join(", ");
    match (&place.disk, disks.as_slice()) {
        (Some(name), _) => {
            let found = disks.iter().find(|disk| disk.volume_name == *name);
            found.ok_or_else(|| anyhow!("backup {} has no disk {name}; it has {}", place.backup, names()))
        }
        (None, [only]) => Ok(only),
        (None, []) => bail!("backup {} has no disks", place.backup),
        (None, _) => bail!("say which disk of backup {}: {}", place.backup, names()),
    }
}

pub(super) async fn open(opened: &Opened, disk: &VolumeBackup) -> anyhow::Result<OpenBackup> {
    let (Some(volume), Some(backup)) = (disk.backup_volume(), disk.longhorn_backup_name.as_deref()) else {
        bail!("the backup's description does not say where disk {} is", disk.volume_name);
    };
    let open = opened.disk(volume, backup).await;
    open.with_context(|| format!("cannot open disk {}", disk.volume_name))
}

/// Works on a disk on a thread of its own, and lets go of it in any case.
pub(super) async fn with_disk<T: Send + 'static>(
    opened: &Opened,
    disk: &VolumeBackup,
    work: impl FnOnce(&Arc<dyn Disk>) -> anyhow::Result<T> + Send + 'static,
) -> anyhow::Result<T> {
    let open = Arc::new(open(opened, disk).await?);
    let disk: Arc<dyn Disk> = Arc::new(BackupDisk { open: open.clone(), runtime: Handle::current() });
    let done = tokio::task::spawn_blocking(move || work(&disk)).await;
    if let Some(open) = Arc::into_inner(open) {
        open.close().await;
    }
    done.context("reading the disk ended unexpectedly")?
}

/// The files of the partition that is meant.
pub(super) fn files(disk: &Arc<dyn Disk>, place: &Place, name: &str) -> anyhow::Result<FileSystem> {
    let parts = partitions(disk)?;
    let part = choose(&parts, place, name)?;
    let opened = FileSystem::open(part.part(), &part.content);
    opened.with_context(|| format!("partition {} of disk {name} cannot be read", part.number))
}

fn choose<'a>(parts: &'a [Partition], place: &Place, name: &str) -> anyhow::Result<&'a Partition> {
    let there = || {
        let each = parts.iter().map(|part| format!("{name}.{} with {}", part.number, part.content));
        each.collect::<Vec<_>>().join(", ")
    };
    let instead = format!(
        "What cannot be read from here can be had whole: \"croft backup cp {}:{name} {name}.raw\", then \"losetup --find --show \
         --partscan --read-only {name}.raw\", and mount its partition",
        place.backup
    );
    if let Some(number) = place.partition {
        let found = parts.iter().find(|part| part.number == number);
        let found = found.with_context(|| format!("disk {name} has no partition {number}; there is {}", there()))?;
        if !found.content.is_readable() {
            bail!(
                "partition {number} of disk {name} holds {}; only ext2, ext3 and ext4 are read. {instead}",
                found.content
            );
        }
        return Ok(found);
    }
    let readable: Vec<&Partition> =
        parts.iter().filter(|part| part.content.is_readable() && !part.is_for_boot).collect();
    match readable.as_slice() {
        [only] => Ok(only),
        [] if parts.is_empty() => bail!("disk {name} has no partition"),
        [] => bail!("disk {name} has no ext2, ext3 or ext4 on it, but {}. {instead}", there()),
        _ => bail!("say which partition, as in {}:{name}.{}: there is {}", place.backup, readable[0].number, there()),
    }
}
