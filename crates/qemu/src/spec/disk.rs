//! Disks and CD-ROMs.

use std::path::PathBuf;

use super::Id;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disk {
    /// The device's id and its block node's name.
    pub id: Id,
    /// None is an empty CD-ROM drive.
    pub source: Option<Source>,
    pub format: Format,
    pub kind: DiskKind,
    pub bus: Bus,
    pub cache: Cache,
    pub aio: Aio,
    pub is_read_only: bool,
    /// Other machines may write to it at the same time.
    pub is_shareable: bool,
    pub serial: Option<String>,
    /// The lowest boots first; None is not booted from.
    pub boot_index: Option<u16>,
    pub block_size: Option<BlockSize>,
    /// One of the machine's threads; for virtio and SCSI.
    pub iothread: Option<u16>,
    /// Queues for virtio; QEMU's choice if None.
    pub queues: Option<u16>,
    /// Passes the guest's discards on to the storage.
    pub has_discard: bool,
    pub on_error: ErrorPolicy,
}

impl Disk {
    /// A writable virtio disk on a raw file or block device, past the host's page cache.
    pub fn new(id: Id, source: Source) -> Disk {
        Disk {
            id,
            source: Some(source),
            format: Format::Raw,
            kind: DiskKind::Disk,
            bus: Bus::Virtio,
            cache: Cache::None,
            aio: Aio::Threads,
            is_read_only: false,
            is_shareable: false,
            serial: None,
            boot_index: None,
            block_size: None,
            iothread: None,
            queues: None,
            has_discard: true,
            on_error: ErrorPolicy::Stop,
        }
    }

    /// A CD-ROM drive, with or without a medium.
    pub fn cdrom(id: Id, source: Option<Source>) -> Disk {
        let base = Disk::new(id, Source::File(PathBuf::new()));
        Disk {
            source,
            kind: DiskKind::Cdrom,
            bus: Bus::Sata,
            cache: Cache::Writeback,
            is_read_only: true,
            has_discard: false,
            on_error: ErrorPolicy::Report,
            ..base
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    File(PathBuf),
    /// A block device of the host.
    HostDevice(PathBuf),
    /// A set of descriptors that QEMU has been given at its start or with `add-fd`; QEMU needs no right to the path.
    FdSet {
        set: u32,
        /// A block device of the host, not a file.
        is_device: bool,
    },
    /// A Network Block Device server on a unix socket.
    Nbd {
        socket: PathBuf,
        export: String,
    },
}

/// Never guessed: a guest could write a header into its raw disk and have the host read other files through it. For the
/// same reason a qcow2 file's own word on its backing file is not followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Raw,
    Qcow2,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskKind {
    Disk,
    Cdrom,
    /// A SCSI device of the host, which the guest commands itself.
    Lun,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bus {
    Virtio,
    Scsi,
    Sata,
    Usb,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cache {
    /// Past the host's page cache; the guest's flushes reach the disk.
    None,
    /// Through the page cache; the guest's flushes reach the disk.
    Writeback,
    /// Through the page cache, and every write reaches the disk before it is acknowledged.
    Writethrough,
    /// Flushes are ignored: for data that may be lost.
    Unsafe,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Aio {
    Threads,
    /// The kernel's asynchronous I/O; needs a cache of [`Cache::None`].
    Native,
    IoUring,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockSize {
    pub logical: u32,
    pub physical: u32,
    /// The least that can be given back.
    pub discard: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorPolicy {
    /// The guest gets the error.
    Report,
    /// The machine stops (status `io-error`) and tries again when it is continued.
    Stop,
    /// Stops for want of space; the guest gets all other errors.
    StopWhenFull,
    Ignore,
}
