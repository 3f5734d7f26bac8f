//! A directory of this machine as a target.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use futures::future::{BoxFuture, FutureExt};
use futures::stream::{self, BoxStream, StreamExt};
use jiff::Timestamp;

use crate::memory::{Memory, read_all};
use crate::target::{Entry, Fault, Target, TargetError, parent, removable_parents, unfinished_name};

/// How often a directory may vanish under us while we write into it: somebody deleted its last file.
const TRIES: u32 = 5;

/// Files of these sizes come many after another, so that memory for them is worth keeping.
const BLOCKS: std::ops::Range<usize> = 64 << 10..4 << 20;

#[derive(Clone, Debug)]
pub struct Directory {
    root: PathBuf,
    memory: Memory,
}

impl Directory {
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into(), memory: Memory::default() }
    }

    /// Runs one operation on a thread where it may wait for the disk.
    fn run<T: Send + 'static>(
        &self,
        doing: &'static str,
        path: &str,
        operation: impl FnOnce(&Path, &str) -> Result<T, TargetError> + Send + 'static,
    ) -> BoxFuture<'static, Result<T, TargetError>> {
        let (root, path) = (self.root.clone(), path.to_owned());
        async move {
            let named = path.clone();
            let done = tokio::task::spawn_blocking(move || {
                checked(doing, &path)?;
                operation(&root, &path)
            });
            done.await.map_err(|error| TargetError::new(Fault::Server, doing, &named).because(error))?
        }
        .boxed()
    }
}

impl Target for Directory {
    fn list<'a>(&'a self, dir: &'a str) -> BoxFuture<'a, Result<Vec<String>, TargetError>> {
        self.run("list", dir, |root, dir| {
            match fs::read_dir(root.join(dir)) {
                Ok(entries) => entries
                    .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
                    .collect::<io::Result<_>>(),
                Err(error) if error.kind() == ErrorKind::NotFound && !dir.is_empty() => Ok(Vec::new()),
                Err(error) => Err(error),
            }
            .map_err(failed("list", root, dir))
        })
    }

    fn walk<'a>(&'a self, dir: &'a str) -> BoxStream<'a, Result<Entry, TargetError>> {
        // One directory at a time; what waits to be looked into are only names of directories.
        let start = (vec![dir.to_owned()], Vec::new());
        stream::try_unfold(start, move |(mut dirs, mut found): (Vec<String>, Vec<Entry>)| async move {
            loop {
                if let Some(entry) = found.pop() {
                    return Ok(Some((entry, (dirs, found))));
                }
                let Some(dir) = dirs.pop() else { return Ok(None) };
                let (below, files) = self.run("list", &dir, look_into).await?;
                dirs.extend(below);
                found = files;
            }
        })
        .boxed()
    }

    fn stat<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Result<Option<Entry>, TargetError>> {
        self.run("look at", path, |root, path| match fs::metadata(root.join(path)) {
            Ok(metadata) if metadata.is_file() => {
                entry(path.to_owned(), &metadata).map(Some).map_err(failed("look at", root, path))
            }
            Ok(_) => Ok(None),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed("look at", root, path)(error)),
        })
    }

    fn get<'a>(&'a self, path: &'a str, limit: u64) -> BoxFuture<'a, Result<Bytes, TargetError>> {
        let memory = self.memory.clone();
        self.run("read", path, move |root, path| {
            let mut file = File::open(root.join(path)).map_err(failed("read", root, path))?;
            let size = file.metadata().map_err(failed("read", root, path))?.len();
            if size > limit {
                return Err(TargetError::new(Fault::TooLarge, "read", path));
            }
            // Files are replaced, never changed: it is as long as it says, or was cut by somebody.
            let size = usize::try_from(size).unwrap_or(usize::MAX);
            if !BLOCKS.contains(&size) {
                let mut data = Vec::with_capacity(size);
                file.take(limit).read_to_end(&mut data).map_err(failed("read", root, path))?;
                return Ok(data.into());
            }
            let mut data = memory.block(size);
            let read = read_all(&mut file, data.space()).map_err(failed("read", root, path))?;
            data.truncate(read);
            Ok(data.into())
        })
    }

    fn put<'a>(&'a self, path: &'a str, data: Bytes) -> BoxFuture<'a, Result<(), TargetError>> {
        self.put_all(vec![(path.to_owned(), data)])
    }

    fn put_all(&self, files: Vec<(String, Bytes)>) -> BoxFuture<'_, Result<(), TargetError>> {
        // Whichever fails: all of them are on the same disk.
        let first = files.first().map(|(path, _)| path.clone()).unwrap_or_default();
        self.run("write", &first, move |root, first| {
            files.iter().try_for_each(|(path, _)| checked("write", path))?;
            let mut tries = 1;
            loop {
                match put_all(root, &files) {
                    Err(error) if error.kind() == ErrorKind::NotFound && tries < TRIES && root.is_dir() => tries += 1,
                    other => return other.map_err(failed("write", root, first)),
                }
            }
        })
    }

    fn delete<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Result<(), TargetError>> {
        self.run("delete", path, |root, path| {
            match fs::remove_file(root.join(path)) {
                Err(error) if error.kind() == ErrorKind::NotFound && root.is_dir() => return Ok(()),
                other => other.map_err(failed("delete", root, path))?,
            }
            let kept = removable_parents(path).find(|dir| fs::remove_dir(root.join(dir)).is_err());
            let kept = root.join(kept.unwrap_or_default());
            // Durable, since what comes next may rely on it. Somebody else may have removed that directory meanwhile.
            match File::open(&kept).and_then(|dir| dir.sync_all()) {
                Err(error) if error.kind() != ErrorKind::NotFound => Err(failed("delete", root, path)(error)),
                _ => Ok(()),
            }
        })
    }
}

/// The directories and the files directly in one.
fn look_into(root: &Path, dir: &str) -> Result<(Vec<String>, Vec<Entry>), TargetError> {
    let (mut dirs, mut files) = (Vec::new(), Vec::new());
    let entries = match fs::read_dir(root.join(dir)) {
        Err(error) if error.kind() == ErrorKind::NotFound && root.is_dir() => return Ok((dirs, files)),
        other => other.map_err(failed("list", root, dir))?,
    };
    for found in entries {
        let found = found.map_err(failed("list", root, dir))?;
        let name = found.file_name().to_string_lossy().into_owned();
        let path = if dir.is_empty() { name } else { format!("{dir}/{name}") };
        match found.metadata() {
            // Deleted since it was listed.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(failed("list", root, &path)(error)),
            Ok(metadata) if metadata.is_dir() => dirs.push(path),
            Ok(metadata) if metadata.is_file() => {
                files.push(entry(path, &metadata).map_err(failed("list", root, dir))?);
            }
            Ok(_) => {}
        }
    }
    Ok((dirs, files))
}

fn entry(path: String, metadata: &fs::Metadata) -> io::Result<Entry> {
    let modified = Timestamp::try_from(metadata.modified()?).map_err(io::Error::other)?;
    Ok(Entry { path, size: metadata.len(), modified })
}

/// Every flush makes a file system write down all that was done before it, so that the second one of several has little left
/// to do: files are flushed after all are written, and directories after all have got their names.
fn put_all(root: &Path, files: &[(String, Bytes)]) -> io::Result<()> {
    let mut unfinished = Vec::with_capacity(files.len());
    let written = write_all(root, files, &mut unfinished);
    if written.is_err() {
        for path in unfinished {
            // It may never have been made, or have got its name already.
            let _ = fs::remove_file(path);
        }
    }
    written
}

fn write_all(root: &Path, files: &[(String, Bytes)], unfinished: &mut Vec<PathBuf>) -> io::Result<()> {
    let mut changed = BTreeSet::new();
    let mut written = Vec::with_capacity(files.len());
    for (path, data) in files {
        make_directories(root, parent(path), &mut changed)?;
        let beside = root.join(unfinished_name(path).map_err(io::Error::other)?);
        unfinished.push(beside.clone());
        let mut file = File::create_new(&beside)?;
        file.write_all(data)?;
        written.push(file);
    }
    for file in written {
        file.sync_data()?;
    }
    for ((path, _), beside) in files.iter().zip(unfinished) {
        fs::rename(beside, root.join(path))?;
        changed.insert(parent(path).to_owned());
    }
    changed.iter().try_for_each(|dir| File::open(root.join(dir))?.sync_all())
}

/// Makes what is missing, and tells which directories have changed. Never the root: an unmounted disk must not become a
/// directory of the system's.
fn make_directories(root: &Path, dir: &str, changed: &mut BTreeSet<String>) -> io::Result<()> {
    let path = root.join(dir);
    if dir.is_empty() || path.is_dir() {
        return Ok(());
    }
    make_directories(root, parent(dir), changed)?;
    match fs::create_dir(&path) {
        // Whoever made it may not have flushed it yet.
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
        _ => changed.insert(parent(dir).to_owned()),
    };
    Ok(())
}

/// Nothing may lead out of the directory.
fn checked(doing: &'static str, path: &str) -> Result<(), TargetError> {
    let is_inside = path.is_empty() || path.split('/').all(|part| !matches!(part, "" | "." | ".."));
    if is_inside { Ok(()) } else { Err(TargetError::new(Fault::Configuration, doing, path)) }
}

fn failed(doing: &'static str, root: &Path, path: &str) -> impl FnOnce(io::Error) -> TargetError {
    let has_root = root.is_dir();
    let path = path.to_owned();
    move |error| {
        let fault = match error.kind() {
            ErrorKind::NotFound | ErrorKind::NotADirectory if !has_root => Fault::NoTarget,
            ErrorKind::NotFound => Fault::NotFound,
            ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => Fault::Forbidden,
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Fault::Full,
            _ => Fault::Server,
        };
        TargetError::new(fault, doing, &path).because(error)
    }
}

#[cfg(test)]
mod tests {
    use futures::TryStreamExt;

    use super::*;
    use crate::target::check;

    #[tokio::test]
    async fn files_come_and_go_with_their_directories() {
        let dir = tempfile::tempdir().unwrap();
        let target = Directory::new(dir.path());
        check(&target).await.unwrap();
        let path = "backupstore/volumes/ab/cd/v/volume.cfg";
        for text in ["one", "two, longer"] {
            target.put(path, Bytes::from(text)).await.unwrap();
            assert_eq!(target.get(path, 100).await.unwrap(), text);
        }
        assert_eq!(target.stat(path).await.unwrap().unwrap().size, 11);
        assert_eq!(target.get(path, 10).await.unwrap_err().fault, Fault::TooLarge);
        assert_eq!(target.list("backupstore/volumes/ab").await.unwrap(), ["cd"]);
        let all: Vec<_> = target.walk("backupstore").map_ok(|entry| entry.path).try_collect().await.unwrap();
        assert_eq!(all, [path]);
        target.delete(path).await.unwrap();
        target.delete(path).await.unwrap();
        assert_eq!(target.stat(path).await.unwrap(), None);
        assert_eq!(target.get(path, 10).await.unwrap_err().fault, Fault::NotFound);
        assert_eq!(target.list("").await.unwrap(), ["backupstore"]);
        assert!(target.list("backupstore").await.unwrap().is_empty(), "empty directories stay");
    }

    #[tokio::test]
    async fn nothing_leads_out_and_a_missing_root_is_not_made() {
        let dir = tempfile::tempdir().unwrap();
        let target = Directory::new(dir.path());
        for path in ["../x", "a/../../x", "/etc/x", "a//b", "."] {
            assert_eq!(target.put(path, Bytes::new()).await.unwrap_err().fault, Fault::Configuration, "{path}");
        }
        let missing = Directory::new(dir.path().join("missing"));
        assert_eq!(check(&missing).await.unwrap_err().fault, Fault::NoTarget);
        assert_eq!(missing.put("a/b", Bytes::new()).await.unwrap_err().fault, Fault::NoTarget);
        assert_eq!(missing.delete("a/b").await.unwrap_err().fault, Fault::NoTarget);
        assert!(!dir.path().join("missing").exists());
    }
}
