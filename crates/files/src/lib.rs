//! Files on a guest's disk: partition tables and file systems, read without rights and without a mount.
//!
//! - A [`Disk`] is anything that bytes can be read from at an offset; only what is needed is read.
//! - [`partitions`] tells how it is divided (GPT, MBR, or not at all) and what is in each part.
//! - [`FileSystem`] reads ext2, ext3 and ext4, with what is in the journal. Others are refused, by name.
//! - [`Extraction`] copies files and directories out of one, into a directory that nothing in them can lead out of.
//!
//! A guest's disk is somebody else's data: all that is read from it is checked, sizes and depths are bounded, and
//! nothing is ever written to it. Everything here blocks.

mod disk;
mod extract;
mod file_system;
mod partition;
mod table;

pub use disk::{Disk, Part};
pub use extract::{Copied, ExtractError, Extraction};
pub use file_system::{Entry, Facts, FileKind, FileSystem, FileSystemError};
pub use partition::{Content, Partition, PartitionError, partitions};
