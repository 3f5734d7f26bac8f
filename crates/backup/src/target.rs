//! Where backups are kept: few operations that a directory, NFS and S3 can all do, and can all do atomically.
//!
//! Paths are relative, with `/` between their parts, and made of checked names only ([`crate::layout`]). Whatever is put is
//! there whole and durable, or not there at all: also after the power failed. Files are small (a block, a list of blocks), so
//! that they are handled in memory; what may grow without limit, a listing, is a stream.

mod check;
mod directory;
mod nfs;
mod s3;
mod url;

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use croft_meta::Chain;
use futures::future::{BoxFuture, FutureExt};
use futures::stream::{BoxStream, FuturesUnordered, TryStreamExt};
use jiff::Timestamp;

pub use check::check;
pub use directory::Directory;
pub use nfs::Nfs;
pub use s3::{S3, S3Access};
pub use url::{BackupUrl, Location, UrlError};

/// In the names of files that are not whole yet, as Longhorn writes them too. What it stands in is nobody's once its writer is
/// gone.
pub(crate) const UNFINISHED: &str = ".tmp.";

/// Directories that are never removed, even when they are empty.
const ROOTS: [&str; 2] = ["backupstore", "harvester"];

/// A file in a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// From the root of the target.
    pub path: String,
    pub size: u64,
    /// By the clock of the target.
    pub modified: Timestamp,
}

impl Entry {
    pub fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }

    /// Whether somebody began to write it and did not come to its end.
    pub fn is_unfinished(&self) -> bool {
        self.name().contains(UNFINISHED)
    }

    /// The same of one of us, who would begin anew if it vanished. Longhorn's have a number with more digits.
    pub(crate) fn is_unfinished_by_us(&self) -> bool {
        let number = self.name().rsplit_once(UNFINISHED).map(|(_, number)| number);
        number.is_some_and(|it| it.len() == 16 && it.bytes().all(|digit| digit.is_ascii_hexdigit()))
    }
}

pub trait Target: fmt::Debug + Send + Sync {
    /// The names directly in a directory, of files and directories alike. None if there is no such directory.
    fn list<'a>(&'a self, dir: &'a str) -> BoxFuture<'a, Result<Vec<String>, TargetError>>;
    /// All files below a directory, in no order. None if there is no such directory.
    fn walk<'a>(&'a self, dir: &'a str) -> BoxStream<'a, Result<Entry, TargetError>>;
    fn stat<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Result<Option<Entry>, TargetError>>;
    /// Refuses what is larger than `limit`, without reading it.
    fn get<'a>(&'a self, path: &'a str, limit: u64) -> BoxFuture<'a, Result<Bytes, TargetError>>;
    /// Replaces what is there.
    fn put<'a>(&'a self, path: &'a str, data: Bytes) -> BoxFuture<'a, Result<(), TargetError>>;
    /// Several at once, which may cost less than one after the other. After an error some of them may be there.
    fn put_all(&self, files: Vec<(String, Bytes)>) -> BoxFuture<'_, Result<(), TargetError>> {
        let puts = files.into_iter().map(move |(path, data)| async move { self.put(&path, data).await });
        puts.collect::<FuturesUnordered<_>>().try_collect::<()>().boxed()
    }
    /// What is not there is deleted already. Directories that become empty go too.
    fn delete<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Result<(), TargetError>>;
}

/// Opens what a location names. Only S3 needs an access. Nothing is asked of the target yet: see [`check`].
pub fn open(location: &Location, access: Option<S3Access>) -> Result<Arc<dyn Target>, TargetError> {
    Ok(match location {
        Location::Directory { path } => Arc::new(Directory::new(path)),
        Location::Nfs { host, path, options } => Arc::new(Nfs::new(host, path, options)?),
        Location::S3 { bucket, region, path } => Arc::new(S3::new(bucket, region, path, access.unwrap_or_default())?),
    })
}

/// Opens what an address names, with what its Secret says of how to get there.
pub fn open_url(url: &str, secret: &BTreeMap<String, String>) -> Result<Arc<dyn Target>, TargetError> {
    let wrong = |error: UrlError| TargetError::new(Fault::Configuration, "open", url).because(error);
    let location: Location = url.parse().map_err(wrong)?;
    open(&location, Some(S3Access::from_secret(secret)))
}

/// Opens it and tries it as it will be used. The error is for whoever chose it.
pub async fn tried(url: &str, secret: &BTreeMap<String, String>, patience: Duration) -> Result<(), String> {
    let told = |error: TargetError| Chain(&error).to_string();
    let found = match open_url(url, secret) {
        Err(error) => Err(told(error)),
        Ok(opened) => match tokio::time::timeout(patience, check(opened.as_ref())).await {
            Ok(checked) => checked.map_err(told),
            Err(_) => Err(format!("it does not answer within {} s", patience.as_secs())),
        },
    };
    found.map_err(|why| format!("failed to connect to backup target, reason: {why}"))
}

/// What went wrong, as far as it matters to what is done about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nobody answers, or not in time.
    Unreachable,
    /// The credentials are wrong or not enough, or it is read-only.
    Forbidden,
    /// The bucket, export or directory itself is not there.
    NoTarget,
    NotFound,
    /// No space, or the quota is used up.
    Full,
    /// It answers that it has a problem of its own.
    Server,
    /// Larger than anything we would have written.
    TooLarge,
    /// What it was told to be cannot be.
    Configuration,
}

impl Fault {
    fn words(self) -> &'static str {
        match self {
            Self::Unreachable => "the backup target cannot be reached",
            Self::Forbidden => "the backup target denies access",
            Self::NoTarget => "the backup target does not exist",
            Self::NotFound => "it is not in the backup target",
            Self::Full => "the backup target is full",
            Self::Server => "the backup target has a problem",
            Self::TooLarge => "it is larger than it may be",
            Self::Configuration => "the backup target is not set up rightly",
        }
    }
}

#[derive(Debug, thiserror::Error)]
#[error("cannot {doing} {path}: {}", fault.words())]
pub struct TargetError {
    pub fault: Fault,
    doing: &'static str,
    path: String,
    #[source]
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl TargetError {
    pub(crate) fn new(fault: Fault, doing: &'static str, path: &str) -> Self {
        let path = if path.is_empty() { "the root".into() } else { path.into() };
        Self { fault, doing, path, source: None }
    }

    pub(crate) fn because(self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { source: Some(source.into()), ..self }
    }

    /// Whether it may be better in a moment without anybody doing anything.
    pub fn may_pass(&self) -> bool {
        matches!(self.fault, Fault::Unreachable | Fault::Server)
    }

    pub fn is_not_found(&self) -> bool {
        self.fault == Fault::NotFound
    }
}

/// The directory that a path is in.
pub(crate) fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(parent, _)| parent)
}

/// The directories above a file that go once they are empty, nearest first.
pub(crate) fn removable_parents(path: &str) -> impl Iterator<Item = &str> {
    let dirs = std::iter::successors(Some(parent(path)), |dir| Some(parent(dir)));
    dirs.take_while(|dir| !dir.is_empty() && !ROOTS.contains(dir))
}

/// A name beside the file for while it is being written; never the same twice.
pub(crate) fn unfinished_name(path: &str) -> Result<String, getrandom::Error> {
    Ok(format!("{path}{UNFINISHED}{:016x}", getrandom::u64()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_below_a_root_goes_when_it_is_empty() {
        let parents: Vec<_> = removable_parents("backupstore/volumes/ab/cd/v/volume.cfg").collect();
        assert_eq!(
            parents,
            [
                "backupstore/volumes/ab/cd/v",
                "backupstore/volumes/ab/cd",
                "backupstore/volumes/ab",
                "backupstore/volumes"
            ]
        );
        assert_eq!(removable_parents("probe").count(), 0);
    }

    #[test]
    fn an_error_says_what_was_to_be_done_and_why_it_was_not() {
        let error = TargetError::new(Fault::Full, "write", "a/b").because("disk quota exceeded");
        assert_eq!(error.to_string(), "cannot write a/b: the backup target is full");
        assert_eq!(
            croft_meta::Chain(&error).to_string(),
            "cannot write a/b: the backup target is full: disk quota exceeded"
        );
    }
}
