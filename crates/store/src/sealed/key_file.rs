//! The file that keeps the keys: for its owner alone, and always whole.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use zeroize::{Zeroize, Zeroizing};

use super::keys::{KEY_LEN, Key, NoKey};

const FORMAT: u32 = 1;
/// Room for hundreds of keys.
const LONGEST: u64 = 64 << 10;

#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    #[error("cannot read the key file {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("cannot write the key file {}", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error(
        "the key file {} can be read by others (its mode is {mode:04o}); make it private with: chmod 600 {}",
        path.display(),
        path.display()
    )]
    Readable { path: PathBuf, mode: u32 },
    #[error("the key file {} is no file", path.display())]
    NoFile { path: PathBuf },
    /// What is wrong is told without what is in it.
    #[error("the key file {} cannot be used: {why}; put a copy of it in its place", path.display())]
    Damaged { path: PathBuf, why: &'static str },
    #[error(
        "the key file {} is not there, but the store has values that are encrypted with the key {id}: put the file back, \
         or say where it is with --encryption-key-file (every server on one etcd needs a copy of the same file); if it is \
         gone for good, start with a new key by: install -m 600 /dev/null {}, and what cannot be read any more can be deleted",
        path.display(),
        path.display()
    )]
    Missing { path: PathBuf, id: String },
    #[error(
        "the key file {} has none of the keys that the store's values are encrypted with, one of which is {id}: it is of \
         another store, or a copy from before the keys were changed; put the right one in its place; if it is gone for good, \
         move this one away and start with a new key by: install -m 600 /dev/null {}, and what cannot be read any more can be \
         deleted",
        path.display(),
        path.display()
    )]
    Foreign { path: PathBuf, id: String },
    #[error(transparent)]
    NoKey(#[from] NoKey),
}

#[derive(Serialize, Deserialize)]
struct Document {
    version: u32,
    /// The newest first.
    keys: Vec<Entry>,
    /// It began as an empty file: whoever made that knows that there may be values which no key opens.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    started_anew: bool,
}

#[derive(Serialize, Deserialize)]
struct Entry {
    id: String,
    made: String,
    secret: String,
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.secret.zeroize();
    }
}

/// What is in the file; `None` without one, and no keys in an empty one.
pub(super) fn read(path: &Path) -> Result<Option<Vec<Key>>, KeyFileError> {
    let failed = |source| KeyFileError::Read { path: path.to_owned(), source };
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    // Of the file that was opened, whatever stands at its place by now.
    let about = file.metadata().map_err(failed)?;
    if !about.is_file() {
        return Err(KeyFileError::NoFile { path: path.to_owned() });
    }
    let mode = about.permissions().mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(KeyFileError::Readable { path: path.to_owned(), mode });
    }
    let mut text = Zeroizing::new(Vec::with_capacity(usize::try_from(about.len().min(LONGEST)).unwrap_or(0)));
    file.take(LONGEST).read_to_end(&mut text).map_err(failed)?;
    if text.is_empty() {
        return Ok(Some(Vec::new()));
    }
    parse(&text).map(Some).map_err(|why| KeyFileError::Damaged { path: path.to_owned(), why })
}

fn parse(text: &[u8]) -> Result<Vec<Key>, &'static str> {
    let document: Document = serde_json::from_slice(text).map_err(|_| "it is damaged, or no key file")?;
    if document.version != FORMAT {
        return Err("it was written by a newer version of the program");
    }
    let keys: Vec<Key> = document.keys.iter().map(key).collect::<Result<_, _>>()?;
    if keys.is_empty() { Err("it has no key in it") } else { Ok(keys) }
}

fn key(entry: &Entry) -> Result<Key, &'static str> {
    let damaged = "a key in it is damaged";
    let bytes = Zeroizing::new(STANDARD.decode(entry.secret.as_bytes()).map_err(|_| damaged)?);
    let secret: [u8; KEY_LEN] = bytes.as_slice().try_into().map_err(|_| damaged)?;
    let key = Key::new(Zeroizing::new(secret), entry.made.clone()).map_err(|_| damaged)?;
    // The id is a sum of the key: a letter that was changed shows here, and not as values that cannot be opened.
    if key.id().to_string() == entry.id { Ok(key) } else { Err(damaged) }
}

/// Whether values that no key opens are to be expected.
pub(super) fn started_anew(path: &Path) -> bool {
    let Ok(text) = fs::read(path).map(Zeroizing::new) else { return false };
    text.is_empty() || serde_json::from_slice::<Document>(&text).is_ok_and(|document| document.started_anew)
}

/// Replaces the file in one step, and returns when that is on the disk.
pub(super) fn write(path: &Path, keys: &[Arc<Key>]) -> Result<(), KeyFileError> {
    let entry = |key: &Arc<Key>| Entry {
        id: key.id().to_string(),
        made: key.made().to_owned(),
        secret: STANDARD.encode(key.secret()),
    };
    let started_anew = started_anew(path);
    let document = Document { version: FORMAT, keys: keys.iter().map(entry).collect(), started_anew };
    let replace = || -> io::Result<()> {
        let mut text = Zeroizing::new(serde_json::to_vec_pretty(&document)?);
        text.push(b'\n');
        replace(path, &text)
    };
    replace().map_err(|source| KeyFileError::Write { path: path.to_owned(), source })
}

fn replace(path: &Path, text: &[u8]) -> io::Result<()> {
    // A link is kept, and the file that it leads to replaced.
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let aside = dir.join(format!(".{name}.{}.tmp", std::process::id()));
    // What an earlier process of this number has left behind may have another mode.
    match fs::remove_file(&aside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let write = || {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&aside)?;
        file.write_all(text)?;
        file.sync_all()?;
        fs::rename(&aside, &path)
    };
    if let Err(error) = write() {
        let _ = fs::remove_file(&aside);
        return Err(error);
    }
    // The rename itself is durable only once the directory is.
    File::open(dir)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn keys_are_kept_in_order_and_private() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("keys");
        assert!(read(&path).unwrap().is_none());
        let keys: Vec<Arc<Key>> = ["a", "b"].map(|made| Arc::new(Key::generate(made.to_owned()).unwrap())).to_vec();
        write(&path, &keys).unwrap();
        assert_eq!(mode(&path), 0o600);
        let found = read(&path).unwrap().unwrap();
        let found: Vec<String> = found.iter().map(|key| format!("{} {}", key.id(), key.made())).collect();
        let expected: Vec<String> = keys.iter().map(|key| format!("{} {}", key.id(), key.made())).collect();
        assert_eq!(found, expected);
        write(&path, &keys[..1]).unwrap();
        assert_eq!(read(&path).unwrap().unwrap().len(), 1);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing is left behind");
    }

    #[test]
    fn files_that_cannot_be_trusted_are_refused_in_words() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("keys");
        write(&path, &[Arc::new(Key::generate(String::new()).unwrap())]).unwrap();
        let whole = fs::read_to_string(&path).unwrap();
        let set = |mode| fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        for mode in [0o640, 0o604, 0o666] {
            set(mode);
            let error = read(&path).unwrap_err().to_string();
            assert!(error.contains(&format!("its mode is {mode:04o}")) && error.contains("chmod 600 /"), "{error}");
        }
        set(0o600);
        let secret = whole.split("\"secret\": \"").nth(1).unwrap().split('"').next().unwrap();
        let other = if secret.starts_with('A') { "B" } else { "A" };
        for (text, why) in [
            ("hello".to_owned(), "no key file"),
            (whole[..whole.len() / 2].to_owned(), "no key file"),
            (whole.replacen(secret, &format!("{other}{}", &secret[1..]), 1), "damaged"),
            (whole.replacen("\"version\": 1", "\"version\": 2", 1), "newer version"),
            ("{\"version\":1,\"keys\":[]}".to_owned(), "no key in it"),
        ] {
            fs::write(&path, &text).unwrap();
            let error = read(&path).unwrap_err().to_string();
            assert!(error.contains(why), "{why}: {error}");
            assert!(!error.contains(secret), "{error}");
        }
        assert!(matches!(read(dir.path()), Err(KeyFileError::NoFile { .. } | KeyFileError::Readable { .. })));
        fs::write(&path, "").unwrap();
        assert!(read(&path).unwrap().unwrap().is_empty());
    }
}
