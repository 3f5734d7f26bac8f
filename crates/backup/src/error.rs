//! Why something about backups was not done, in words for the one who asked for it.

use std::io;
use std::path::{Path, PathBuf};

use crate::codec::{BlockError, MethodError};
use crate::layout::{Checksum, NameError};
use crate::seal::{KeyError, OpenError};
use crate::target::{Fault, TargetError};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Target(#[from] TargetError),
    #[error("{what} has no such name")]
    Name {
        what: &'static str,
        #[source]
        source: NameError,
    },
    #[error("there is no backup {backup} of volume {volume}")]
    NoBackup { volume: String, backup: String },
    #[error("there are no backups of volume {0}")]
    NoVolume(String),
    #[error("there is no backup of backing image {0}")]
    NoBackingImage(String),
    #[error("backup {0} is not complete")]
    Incomplete(String),
    #[error("there is a backup {backup} of volume {volume} already, of another snapshot")]
    Exists { volume: String, backup: String },
    #[error(
        "volume {volume} was backed up on top of backing image {image}, which this backup does not have beneath it"
    )]
    OnBackingImage { volume: String, image: String },
    #[error("{path} is not what a backup target should have there")]
    Config {
        path: String,
        #[source]
        source: serde_json::Error,
    },
    #[error("{path} is not what a backup target should have there: {why}")]
    Content { path: String, why: String },
    #[error("the backup is stored in a way that is not known here")]
    Method(#[source] MethodError),
    #[error("the backup is encrypted with key {0}: the key is needed")]
    KeyNeeded(String),
    #[error("the backup is encrypted with key {expected}, and this is key {given}")]
    WrongKey { expected: String, given: String },
    #[error("the secrets of the machine are encrypted with a key that is not here")]
    SecretsSealed,
    #[error("the key cannot be used")]
    Key(#[source] KeyError),
    #[error("what is sealed beside the backup cannot be opened")]
    Sealed(#[source] OpenError),
    #[error("block {checksum} at offset {offset} is missing")]
    MissingBlock { checksum: Checksum, offset: u64 },
    #[error("block {checksum} at offset {offset} is bad")]
    BadBlock {
        checksum: Checksum,
        offset: u64,
        #[source]
        source: BlockError,
    },
    #[error("{0} is being {1} by somebody else")]
    Locked(String, &'static str),
    #[error("the lock on {0} was lost: the target could not be reached for too long")]
    LockLost(String),
    #[error("cannot {doing} {}", path.display())]
    File {
        doing: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("it was cancelled")]
    Cancelled,
    #[error("no random numbers: {0}")]
    Random(getrandom::Error),
    #[error("a thread of the work panicked")]
    Panicked,
}

impl Error {
    pub(crate) fn file(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File { doing, path, source }
    }

    /// What is wrong with the target, if that is it.
    pub fn fault(&self) -> Option<Fault> {
        match self {
            Self::Target(error) => Some(error.fault),
            _ => None,
        }
    }

    /// Whether the same may succeed later without anybody changing anything about what was asked.
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Target(error) => !matches!(error.fault, Fault::TooLarge | Fault::NotFound),
            Self::Locked(..) | Self::LockLost(_) | Self::File { .. } | Self::Panicked | Self::Random(_) => true,
            _ => false,
        }
    }
}
