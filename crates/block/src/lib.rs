//! Pools and volumes on this host's disks.
//!
//! A [`Pool`] is a directory on a file system that can share extents between files (XFS, Btrfs), so that a disk cloned from
//! an image of any size is there in milliseconds. Where the directory has no such file system, the pool makes one: XFS on
//! a sparse loop file beside it. Without the rights for that it copies, and says so ([`Cloning::Copies`]).
//!
//! A volume is one raw file in a pool. It appears under its name only when it is whole and on the disk, so that whatever
//! is listed after a crash can be used; what was half made lies in `tmp` and is cleared when the pool is opened.
//!
//! A snapshot is a file that shares what a volume had at one instant. It depends on nothing: the volume may go, and hundreds
//! of them slow no reads, since there is no chain.
//!
//! What changed between two snapshots is told by where their blocks are ([`changed`]), without reading them.
//!
//! [`Device`] is one of the host's disks or partitions as the kernel shows it; [`Pool::open_device`] formats and mounts one
//! as a further pool.
//!
//! Everything here blocks: callers on an asynchronous runtime use its threads for that. Start reading at `pool.rs`.

mod command;
mod device;
mod durable;
mod extents;
mod memory;
mod mounts;
mod pool;
mod room;
mod snapshot;
mod volume;

pub use command::CommandError;
pub use device::{Controller, Device, DeviceError, DeviceKind, DriveKind, Signature, devices, inspect, signature};
pub use durable::{Staged, copy_sparse, reflink};
pub use extents::{ExtentsError, Range, changed};
pub use mounts::Mount;
pub use pool::{Backing, Cloning, Options, Pool, PoolError, Usage, unmount};
pub use room::room;
pub use snapshot::{Shot, Snapshot};
pub use volume::{Volume, VolumeError};
