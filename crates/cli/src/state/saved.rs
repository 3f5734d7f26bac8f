//! Files with a saved state: made private, and read to their end before anything is done with them.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use croft_store::saved::{Head, Item, Reader};
use rustix::fs::MemfdFlags;
use serde_json::{Value, json};

/// What a file has.
#[derive(Default)]
pub(super) struct About {
    pub(super) head: Head,
    pub(super) records: u64,
    /// Objects that could not be read when it was saved, and are not in it.
    pub(super) unreadable: u64,
    /// By the names in the data directory.
    pub(super) files: BTreeMap<String, String>,
}

impl About {
    pub(super) fn words(&self) -> String {
        let Head { version, cluster, saved, revision, .. } = &self.head;
        let mut told = format!(
            "{} objects and {} files of cluster {cluster} at revision {revision}, saved {saved} by croft {version}",
            self.records,
            self.files.len()
        );
        if let Some(lack) = self.lack() {
            told = format!("{told}; {lack}");
        }
        told
    }

    /// What is to be said of one that has not all objects.
    pub(super) fn lack(&self) -> Option<String> {
        let Self { unreadable, .. } = self;
        (*unreadable > 0).then(|| format!("{unreadable} objects could not be read and are not in it"))
    }

    pub(super) fn document(&self) -> Value {
        let files: Vec<&String> = self.files.keys().collect();
        let mut document = json!({ "objects": self.records, "unreadable": self.unreadable, "files": files });
        if let (Value::Object(document), Ok(Value::Object(head))) = (&mut document, serde_json::to_value(&self.head)) {
            document.extend(head);
        }
        document
    }
}

/// Reads all of it.
pub(super) async fn check(file: &Path) -> anyhow::Result<About> {
    let path = file.to_owned();
    let read = tokio::task::spawn_blocking(move || read(&path, |_| Ok(())));
    read.await.context("the reading was cut short")?.with_context(|| format!("{} cannot be used", file.display()))
}

/// Hands over each record. Nothing is to be made of them before this has returned.
pub(super) fn read(
    path: &Path,
    mut each: impl FnMut(&croft_store::Record) -> anyhow::Result<()>,
) -> anyhow::Result<About> {
    let mut reader = Reader::open(fs::File::open(path)?)?;
    let (mut records, mut files) = (0, BTreeMap::new());
    while let Some(item) = reader.next()? {
        match item {
            Item::Record(record) => {
                records += 1;
                each(&record)?;
            }
            Item::File { name, content } => {
                if !is_plain(&name) {
                    bail!("it has a file {name:?}, which has no place in a data directory");
                }
                files.insert(name, content);
            }
        }
    }
    Ok(About { head: reader.head().clone(), records, unreadable: reader.unreadable(), files })
}

/// Directly in `pki/`.
fn is_plain(name: &str) -> bool {
    let file = name.strip_prefix("pki/").unwrap_or_default();
    let is_good = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    !file.is_empty() && !file.starts_with('.') && file.chars().all(is_good)
}

/// An empty file that only its owner can read, for what is written into it later.
pub(super) fn create_private(path: &Path) -> anyhow::Result<()> {
    let create = || {
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
        // One that was there keeps its mode otherwise.
        fs::set_permissions(path, fs::Permissions::from_mode(0o600))
    };
    create().with_context(|| format!("cannot write {}", path.display()))
}

/// A file for what is on its way, in the clear: in memory, without a name, and gone with this, however this process ends.
pub(super) struct Unnamed(OwnedFd);

impl Unnamed {
    pub(super) fn new() -> anyhow::Result<Self> {
        let made = rustix::fs::memfd_create("state", MemfdFlags::CLOEXEC);
        Ok(Self(made.context("cannot make a file in memory")?))
    }

    /// For this process alone.
    pub(super) fn path(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.0.as_raw_fd()).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_on_its_way_has_no_name() {
        let unnamed = Unnamed::new().unwrap();
        fs::write(unnamed.path(), b"more").unwrap();
        fs::write(unnamed.path(), b"it").unwrap();
        assert_eq!(fs::read(unnamed.path()).unwrap(), b"it");
        let target = fs::read_link(unnamed.path()).unwrap();
        assert!(target.starts_with("/memfd:state (deleted)"), "{}", target.display());
    }

    #[test]
    fn files_stay_where_they_belong() {
        assert!(is_plain("pki/ca.crt") && is_plain("pki/sa-retired.pub"));
        for bad in ["pki/", "pki/../x", "pki/a/b", "/etc/passwd", "pki/.x", "store/x", ""] {
            assert!(!is_plain(bad), "{bad}");
        }
    }
}
