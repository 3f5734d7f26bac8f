//! Backups of disks on S3, NFS or in a directory, in Longhorn's layout. It knows no Kubernetes.
//!
//! - A [`Target`] keeps files: few operations, each atomic and durable ([`target`]).
//! - A [`BackupStore`] is a target with Longhorn's directories in it ([`layout`], [`config`]).
//! - [`BackupStore::write`] cuts a disk, or what changed of it, into blocks of 2 MiB, leaves out those that are zero or there
//!   already, and writes the list of blocks last: a backup is complete or not there.
//! - [`BackupStore::open`] reads one back: into a disk, for a check of every block, or a piece of it.
//! - [`BackupStore::delete_backup`] removes the list first and then the blocks that no other list names.
//! - [`BackupStore::clean_up`] removes what those who died left behind.
//! - Longhorn's locks keep whoever deletes away from whoever writes, on this cluster or another ([`lock`]).
//! - [`BackupStore::save_state`] keeps the state of a whole cluster, as one file.
//! - [`harvester`] has what Harvester keeps beside it: what a virtual machine was, and its images.
//!
//! Invariants: no list of blocks is written before all of its blocks are; no block is deleted while a list names it or somebody
//! may be about to write one that does. Memory is bounded by the blocks in work and one list of blocks, whatever the disk's size.
//!
//! Start reading at [`write`](crate::write).

mod backing_image;
mod codec;
pub mod config;
mod delete;
mod error;
#[doc(hidden)]
pub mod fuzzing;
pub mod harvester;
mod keys;
mod layout;
mod lock;
mod lz4;
mod memory;
mod opener;
mod pace;
mod read;
mod seal;
mod state;
mod store;
pub mod target;
mod transfer;
mod upload;
mod verify;
mod write;

pub use backing_image::BackingImageRequest;
pub use codec::{BlockError, Compression, Method, MethodError};
pub use delete::Freed;
pub use error::Error;
pub use keys::Keys;
pub use layout::{Checksum, NameError};
pub use opener::Opener;
pub use read::{Base, OpenBackup};
pub use seal::{KeyError, OpenError, Secret};
pub use state::{Retained, State};
pub use store::{BackupStore, Owner};
pub use target::{BackupUrl, Directory, Entry, Fault, Location, Nfs, S3, S3Access, Target, TargetError, UrlError};
pub use transfer::{Progress, ProgressFn, Transfer};
pub use upload::Extent;
pub use verify::{BadBlock, Damage, Verified};
pub use write::{BackupRequest, Changes, Written};
