//! By which name a disk was asked for, and when last.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::ContainerDisk;

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Wanted {
    pub(super) image: String,
    pub(super) path: Option<String>,
    pub(super) is_disk: bool,
}

impl Wanted {
    /// A name for files.
    pub(super) fn id(&self) -> String {
        short_hash(&format!("{}\n{}\n{}", self.image, self.path.as_deref().unwrap_or_default(), self.is_disk))
    }
}

fn short_hash(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().take(16).fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Record {
    wanted: Wanted,
    digest: String,
    /// In the directory.
    file: String,
    used: Timestamp,
}

impl Record {
    pub(super) fn new(wanted: &Wanted, digest: &str) -> Self {
        // A digest is `<algorithm>:<hex>`; it was checked, and is made sure of again before it becomes a file's name.
        let hex = digest.rsplit(':').next().unwrap_or_default();
        let hex: String = hex.chars().filter(char::is_ascii_hexdigit).collect();
        let file = match (&wanted.path, wanted.is_disk) {
            (None, _) => format!("{hex}.raw"),
            (Some(path), true) => format!("{hex}-{}.raw", short_hash(path)),
            (Some(path), false) => format!("{hex}-{}.file", short_hash(path)),
        };
        Self { wanted: wanted.clone(), digest: digest.to_owned(), file, used: Timestamp::now() }
    }

    pub(super) fn path(&self, dir: &Path) -> PathBuf {
        dir.join(&self.file)
    }

    /// None if it is not there.
    pub(super) fn disk(&self, dir: &Path) -> Option<ContainerDisk> {
        let path = self.path(dir);
        let size_bytes = fs::metadata(&path).ok().filter(fs::Metadata::is_file)?.len();
        Some(ContainerDisk { path, digest: self.digest.clone(), size_bytes })
    }

    pub(super) fn load(dir: &Path, id: &str) -> Option<Self> {
        serde_json::from_slice(&fs::read(file(dir, id)).ok()?).ok()
    }

    /// As used now. Losing it costs another question to the registry, no more.
    pub(super) fn save(&self, dir: &Path, id: &str) {
        let record = Self { used: Timestamp::now(), ..self.clone() };
        let staged = dir.join("work").join(format!("{id}.json"));
        let written = serde_json::to_vec(&record).map_err(io::Error::from);
        let written =
            written.and_then(|bytes| fs::write(&staged, bytes)).and_then(|()| fs::rename(&staged, file(dir, id)));
        if let Err(error) = written {
            tracing::warn!(%error, "a container disk cannot be noted");
        }
    }
}

fn file(dir: &Path, id: &str) -> PathBuf {
    dir.join(format!("{id}.json"))
}

/// Removes records that nobody used for `keep`, and disks without a record.
pub(super) fn sweep(dir: &Path, used: &HashSet<String>, keep: Duration, now: Timestamp) -> io::Result<()> {
    let mut kept = HashSet::new();
    let mut disks = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            continue;
        }
        if path.extension().is_none_or(|ending| ending != "json") {
            disks.push(path);
            continue;
        }
        let record: Option<Record> = fs::read(&path).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
        let is_kept = |record: &Record| {
            let age = Duration::try_from(now.duration_since(record.used)).unwrap_or_default();
            used.contains(&record.wanted.image) || age < keep
        };
        match record.filter(is_kept) {
            Some(record) => drop(kept.insert(record.file)),
            None => fs::remove_file(&path)?,
        }
    }
    for path in disks {
        let is_kept = path.file_name().and_then(|name| name.to_str()).is_some_and(|name| kept.contains(name));
        if !is_kept {
            tracing::info!(path = %path.display(), "removing a container disk that nobody uses");
            fs::remove_file(&path)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_or_was_lately_is_kept_with_its_disk() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("work")).unwrap();
        let digest = |digit: &str| format!("sha256:{}", digit.repeat(64));
        for (image, digit) in [("a", "1"), ("b", "2"), ("c", "2")] {
            let wanted = Wanted { image: image.to_owned(), path: None, is_disk: true };
            let record = Record::new(&wanted, &digest(digit));
            fs::write(record.path(dir.path()), "disk").unwrap();
            record.save(dir.path(), &wanted.id());
            assert_eq!(Record::load(dir.path(), &wanted.id()).unwrap().disk(dir.path()).unwrap().digest, digest(digit));
        }
        fs::write(dir.path().join("left-over.raw"), "disk").unwrap();
        let disks = || {
            let names =
                fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
            names.filter(|name| name.contains(".raw")).count()
        };
        let now = Timestamp::now();
        sweep(dir.path(), &HashSet::new(), Duration::from_mins(1), now).unwrap();
        assert_eq!(disks(), 2, "only the one without a record is gone");
        let used = HashSet::from(["c".to_owned()]);
        sweep(dir.path(), &used, Duration::ZERO, now + Duration::from_secs(1)).unwrap();
        assert_eq!(disks(), 1, "the one that two names share stays for the one that is used");
    }
}
