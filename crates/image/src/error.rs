//! Why an image could not be had, in words for the one who asked for it.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::checksum::Checksum;
use crate::format::FormatError;
use crate::unpack::Compression;

#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    #[error("{url} is not a URL that can be downloaded: {why}")]
    Url { url: String, why: String },
    #[error("cannot set up the connection: {why}")]
    Setup {
        why: &'static str,
        #[source]
        source: reqwest::Error,
    },
    #[error("cannot reach {url}")]
    Unreachable {
        url: String,
        #[source]
        source: reqwest::Error,
    },
    #[error("{url} answered {status}")]
    Refused { url: String, status: String },
    #[error("{url} was redirected from https to http, which only a checksum would make safe")]
    Downgraded { url: String },
    #[error("nothing came from {from} for {after:?}")]
    Stalled { from: String, after: Duration },
    #[error("{url} broke off after {received} bytes")]
    BrokeOff {
        url: String,
        received: u64,
        #[source]
        source: reqwest::Error,
    },
    #[error("{url} announced {announced} bytes but has {actual}")]
    Size { url: String, announced: u64, actual: u64 },
    #[error("{url} changed while it was being downloaded")]
    Changed { url: String },
    #[error("{url} breaks off and cannot be resumed: {why}")]
    NotResumable { url: String, why: String },
    #[error("{url} gave an answer that makes no sense: {why}")]
    Protocol { url: String, why: String },
    #[error("the {what} is larger than {limit} bytes, which is the limit")]
    TooLarge { what: &'static str, limit: u64 },
    #[error("the {what} has {size} bytes but there are only {available} bytes of free space")]
    NoSpace { what: &'static str, size: u64, available: u64 },
    #[error("the checksum is {actual} but should be {expected}")]
    Checksum { expected: Checksum, actual: Checksum },
    #[error("{declared} bytes were announced but {actual} were sent")]
    Declared { declared: u64, actual: u64 },
    #[error("the next piece begins at byte {expected}, not at {given}")]
    Offset { expected: u64, given: u64 },
    #[error("the file was said to have {known} bytes, not {given}")]
    Length { known: u64, given: u64 },
    #[error("the upload was interrupted after {received} bytes: {why}")]
    Interrupted { received: u64, why: String },
    #[error("the file is not valid {compression}")]
    Unpack {
        compression: Compression,
        #[source]
        source: io::Error,
    },
    #[error(transparent)]
    Format(#[from] FormatError),
    #[error("cannot put the image's data into a disk")]
    Share(#[source] io::Error),
    #[error("qemu-img could not convert the {format} image: {why}")]
    Convert { format: &'static str, why: String },
    #[error("cannot start qemu-img")]
    Start(#[source] io::Error),
    #[error("converting the image took longer than {0:?}")]
    ConvertTimeout(Duration),
    #[error("cannot {doing} {}", path.display())]
    File {
        doing: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The other half of the work failed, and says why.
    #[error("the transfer was given up")]
    GivenUp,
    #[error("a thread of the import panicked")]
    Panicked,
}

impl ImportError {
    pub(crate) fn file(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File { doing, path, source }
    }

    /// Whether trying again may help without anybody changing anything: the network and the server may get better, a file
    /// that is no image stays one.
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Unreachable { .. }
            | Self::Stalled { .. }
            | Self::BrokeOff { .. }
            | Self::Changed { .. }
            | Self::NotResumable { .. }
            | Self::Protocol { .. }
            | Self::NoSpace { .. }
            | Self::File { .. }
            | Self::Share(_)
            | Self::Start(_)
            | Self::ConvertTimeout(_)
            | Self::Interrupted { .. }
            | Self::GivenUp
            | Self::Panicked => true,
            Self::Refused { status, .. } => status.starts_with(['5']) || status.starts_with("429"),
            _ => false,
        }
    }
}
