//! How a disk is divided, and what is in each part of it.

use std::fmt;
use std::io;
use std::sync::Arc;

use croft_block::{Signature, signature};

use crate::disk::{Disk, Part};
use crate::table;

#[derive(Debug, thiserror::Error)]
pub enum PartitionError {
    #[error("cannot read the partition table")]
    Read(#[source] io::Error),
    #[error("cannot read the beginning of partition {number}")]
    Beginning {
        number: u32,
        #[source]
        source: io::Error,
    },
}

/// What a partition holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// Only zeros at its beginning.
    Nothing,
    Known(Signature),
}

impl Content {
    /// Whether [`crate::FileSystem`] reads it.
    pub fn is_readable(&self) -> bool {
        matches!(self.kind(), "ext2" | "ext3" | "ext4")
    }

    /// In one word.
    pub fn kind(&self) -> &str {
        match self {
            Self::Nothing => "empty",
            Self::Known(Signature::FileSystem { kind, .. }) => kind,
            Self::Known(Signature::PartitionTable { kind } | Signature::Member { kind }) => kind,
            Self::Known(Signature::Unknown) => "unknown",
        }
    }

    pub fn label(&self) -> &str {
        match self {
            Self::Known(Signature::FileSystem { label, .. }) => label,
            _ => "",
        }
    }
}

impl fmt::Display for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("nothing"),
            Self::Known(signature) => signature.fmt(f),
        }
    }
}

#[derive(Clone, Debug)]
pub struct Partition {
    /// As Linux counts them; 0 is a disk that is not divided.
    pub number: u32,
    pub start: u64,
    pub size: u64,
    /// For the firmware, or nothing that anybody keeps files in.
    pub is_for_boot: bool,
    pub content: Content,
    part: Part,
}

impl Partition {
    pub fn part(&self) -> Part {
        self.part.clone()
    }
}

/// In the order of the table. A disk without a table is one part.
pub fn partitions(disk: &Arc<dyn Disk>) -> Result<Vec<Partition>, PartitionError> {
    let whole = Part::new(disk.clone(), 0, u64::MAX);
    let beginning = whole.beginning(signature::LENGTH).map_err(PartitionError::Read)?;
    let content = content(&beginning);
    if !matches!(content, Content::Known(Signature::PartitionTable { .. } | Signature::Unknown)) {
        let size = whole.size();
        return Ok(vec![Partition { number: 0, start: 0, size, is_for_boot: false, content, part: whole }]);
    }
    let slots = table::slots(&whole).map_err(PartitionError::Read)?;
    slots.into_iter().map(|slot| partition(disk, &slot)).collect()
}

fn partition(disk: &Arc<dyn Disk>, slot: &table::Slot) -> Result<Partition, PartitionError> {
    let number = slot.number;
    let part = Part::new(disk.clone(), slot.start, slot.size);
    let beginning = part.beginning(signature::LENGTH).map_err(|source| PartitionError::Beginning { number, source })?;
    Ok(Partition {
        number,
        start: slot.start,
        size: part.size(),
        is_for_boot: slot.is_for_boot,
        content: content(&beginning),
        part,
    })
}

fn content(beginning: &[u8]) -> Content {
    signature::find(beginning).map_or(Content::Nothing, Content::Known)
}
