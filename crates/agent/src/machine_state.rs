//! The firmware's variables and the TPM of a machine: how they are kept with its snapshots, and how a machine gets others.
//!
//! A machine's state is a directory. What is kept of it is a Secret: a few files, compressed. A machine that is to begin with
//! other state gets it before its next start, whole and once: the directory is made aside and takes the place of the old
//! one, with a mark in it that says what it was made for. Whoever is killed in between does it again.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use croft_api::kubevirt::VirtualMachine;
use croft_api::machine_state::{Origin, SECRET_TYPE, StateSource, secret_name};
use croft_reconcile::failure::{absent_is_none, is_conflict, message};
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::PostParams;
use kube::{Api, Client};
use rustix::fs::OFlags;
use tokio::sync::Mutex;

use crate::MANAGER;

/// What the directory holds, and how large that may be: nobody's guest fills a Secret without end.
const FILES: [(&str, &str, u64); 2] =
    [("nvram.fd", "nvram.fd.gz", 16 << 20), ("tpm/tpm2-00.permall", "tpm2-00.permall.gz", 1 << 20)];
/// A Secret holds a mebibyte, less what is said of it.
const PACKED_MAX: usize = 1_000_000;
/// What the directory was made for.
const MARK: &str = "made-for";
/// Machines whose state is another's, whose state is another's…
const DEPTH: usize = 8;

/// The files of a machine's state by their names in it.
pub(crate) type Files = BTreeMap<&'static str, Vec<u8>>;

#[derive(Debug, thiserror::Error)]
pub(crate) enum StateError {
    #[error("cannot read {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        err: io::Error,
    },
    #[error("{} is larger than {limit} bytes", path.display())]
    TooLarge { path: PathBuf, limit: u64 },
    #[error("the state of firmware and TPM takes {bytes} bytes even when compressed, and a Secret holds {PACKED_MAX}")]
    DoesNotFit { bytes: usize },
    #[error("cannot make the machine's state at {}", path.display())]
    Make {
        path: PathBuf,
        #[source]
        err: io::Error,
    },
    #[error("the Secret {0} for the machine's state is somebody else's")]
    NotOurs(String),
    /// It may come.
    #[error("the Secret {0} with the state that the machine is to begin with is not there")]
    NoSecret(String),
    #[error("the Secret {name} holds no state of a machine in {key}")]
    BadSecret {
        name: String,
        key: &'static str,
        #[source]
        err: io::Error,
    },
    #[error("the API server cannot be asked: {0}")]
    Api(String),
}

impl From<kube::Error> for StateError {
    fn from(error: kube::Error) -> Self {
        Self::Api(message(&error))
    }
}

/// What a machine has now. Quick: for the instant in which the machine stands still.
pub(crate) fn read(dir: &Path) -> Result<Files, StateError> {
    let mut files = Files::new();
    for (name, _, limit) in FILES {
        let path = dir.join(name);
        match read_file(&path, limit) {
            Ok(Some(bytes)) => drop(files.insert(name, bytes)),
            Ok(None) => return Err(StateError::TooLarge { path, limit }),
            Err(err) if err.kind() == io::ErrorKind::NotFound => {}
            Err(err) => return Err(StateError::Read { path, err }),
        }
    }
    Ok(files)
}

/// None if there is more than that. The TPM's directory is its own user's: neither links nor pipes are followed.
fn read_file(path: &Path, limit: u64) -> io::Result<Option<Vec<u8>>> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let flags = i32::try_from(flags.bits()).unwrap_or_default();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    read_up_to(file, limit)
}

fn read_up_to(from: impl Read, limit: u64) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    from.take(limit + 1).read_to_end(&mut bytes)?;
    Ok((bytes.len() as u64 <= limit).then_some(bytes))
}

/// As a Secret holds them.
fn pack(files: &Files) -> Result<BTreeMap<String, ByteString>, StateError> {
    let mut packed = BTreeMap::new();
    for (name, key, _) in FILES {
        let Some(bytes) = files.get(name) else { continue };
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        let done = encoder.write_all(bytes).and_then(|()| encoder.finish());
        let done = done.map_err(|err| StateError::Read { path: name.into(), err })?;
        packed.insert(key.to_owned(), ByteString(done));
    }
    let bytes = packed.values().map(|value| value.0.len()).sum();
    if bytes > PACKED_MAX {
        return Err(StateError::DoesNotFit { bytes });
    }
    Ok(packed)
}

fn unpack(name: &str, data: &BTreeMap<String, ByteString>) -> Result<Files, StateError> {
    let mut files = Files::new();
    for (file, key, limit) in FILES {
        let Some(packed) = data.get(key) else { continue };
        let bytes = read_up_to(GzDecoder::new(packed.0.as_slice()), limit)
            .and_then(|bytes| bytes.ok_or_else(|| io::Error::other("it is too large")))
            .map_err(|err| StateError::BadSecret { name: name.to_owned(), key, err })?;
        files.insert(file, bytes);
    }
    Ok(files)
}

/// Keeps the state with a set of snapshots. One that is there from an attempt that was interrupted is replaced.
pub(crate) async fn keep(
    client: &Client,
    namespace: &str,
    set: &str,
    owners: &[OwnerReference],
    files: Files,
) -> Result<(), StateError> {
    let data = blocking(move || pack(&files)).await?;
    let name = secret_name(set);
    let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let wanted = Secret {
        metadata: ObjectMeta {
            name: Some(name.clone()),
            owner_references: Some(owners.to_vec()),
            ..ObjectMeta::default()
        },
        type_: Some(SECRET_TYPE.to_owned()),
        data: Some(data),
        ..Secret::default()
    };
    let params = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
    match api.create(&params, &wanted).await {
        Err(error) if is_conflict(&error) => {}
        made => return made.map(drop).map_err(StateError::from),
    }
    let mut there = api.get(&name).await?;
    if there.metadata.owner_references != wanted.metadata.owner_references {
        return Err(StateError::NotOurs(name));
    }
    there.data = wanted.data;
    api.replace(&name, &params, &there).await?;
    Ok(())
}

/// Where the states of this node's machines are, and where one can be made aside on the same file system.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) states: PathBuf,
    pub(crate) aside: PathBuf,
}

impl Place {
    pub(crate) fn of(&self, machine_uid: &str) -> PathBuf {
        self.states.join(machine_uid)
    }
}

/// Gives a machine the state that it is to begin with, unless it has that already.
pub(crate) async fn settle(
    client: &Client,
    place: &Place,
    namespace: &str,
    machine_uid: &str,
    source: &StateSource,
) -> Result<(), StateError> {
    // A machine that starts and a snapshot of it must not both do it.
    static TURN: Mutex<()> = Mutex::const_new(());
    let _turn = TURN.lock().await;
    let dir = place.of(machine_uid);
    if is_settled(&dir, source) {
        return Ok(());
    }
    let files = find(client, place, namespace, source).await?;
    let (aside, id) = (place.aside.join(format!("state-{machine_uid}")), source.id.clone());
    blocking(move || exchange(&dir, &aside, &files, &id).map_err(|err| StateError::Make { path: dir, err })).await?;
    tracing::info!(namespace, machine_uid, id = source.id, "a machine begins with state that was kept");
    Ok(())
}

fn is_settled(dir: &Path, source: &StateSource) -> bool {
    fs::read_to_string(dir.join(MARK)).is_ok_and(|id| id == source.id)
}

/// What the source holds. The state of a machine that has not begun yet is where its own is from.
async fn find(client: &Client, place: &Place, namespace: &str, source: &StateSource) -> Result<Files, StateError> {
    let mut source = source.clone();
    for _ in 0..DEPTH {
        let name = match &source.origin {
            Origin::Secret(name) => {
                let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
                let secret = absent_is_none(api.get(name).await)?.ok_or_else(|| StateError::NoSecret(name.clone()))?;
                let (name, data) = (name.clone(), secret.data.unwrap_or_default());
                return blocking(move || unpack(&name, &data)).await;
            }
            Origin::Machine(name) => name,
        };
        let api: Api<VirtualMachine> = Api::namespaced(client.clone(), namespace);
        let Some(machine) = absent_is_none(api.get(name).await)? else {
            tracing::warn!(namespace, machine = name, "a machine whose state was to be copied is gone");
            return Ok(Files::new());
        };
        let dir = place.of(machine.metadata.uid.as_deref().unwrap_or_default());
        match StateSource::of(&machine.spec.template.metadata).filter(|other| !is_settled(&dir, other)) {
            Some(other) => source = other,
            None => return blocking(move || read(&dir)).await,
        }
    }
    Ok(Files::new())
}

/// Makes the directory aside, and puts it in the place of the old one.
fn exchange(dir: &Path, aside: &Path, files: &Files, id: &str) -> io::Result<()> {
    let (new, old) = (aside.join("new"), aside.join("old"));
    match fs::remove_dir_all(aside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    for made in [&aside.to_owned(), &new] {
        DirBuilder::new().recursive(true).mode(0o700).create(made)?;
    }
    let mark = (MARK, id.as_bytes());
    for (name, bytes) in files.iter().map(|(name, bytes)| (*name, bytes.as_slice())).chain([mark]) {
        let path = new.join(name);
        if let Some(parent) = path.parent() {
            DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        file.write_all(bytes)?;
        file.sync_all()?;
    }
    if let Some(parent) = dir.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
    }
    match fs::rename(dir, &old) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    // Killed here, it has no mark, and is made again.
    fs::rename(&new, dir)?;
    if let Some(parent) = dir.parent() {
        File::open(parent)?.sync_all()?;
    }
    fs::remove_dir_all(aside)
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StateError> + Send + 'static,
) -> Result<T, StateError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(variables: &[u8]) -> Files {
        [("nvram.fd", variables.to_vec()), ("tpm/tpm2-00.permall", b"seeds".to_vec())].into()
    }

    #[test]
    fn what_is_packed_is_unpacked() {
        let whole = files(&vec![0xff; 540_672]);
        let packed = pack(&whole).unwrap();
        assert!(packed.values().all(|value| value.0.len() < 4096), "firmware's variables are mostly empty");
        assert_eq!(unpack("s", &packed).unwrap(), whole);
        assert!(unpack("s", &BTreeMap::new()).unwrap().is_empty());
        let bad = [("nvram.fd.gz".to_owned(), ByteString(b"no".to_vec()))].into();
        assert!(matches!(unpack("s", &bad), Err(StateError::BadSecret { key: "nvram.fd.gz", .. })));
        let mut bomb = GzEncoder::new(Vec::new(), Compression::default());
        bomb.write_all(&vec![0; (1 << 20) + 1]).unwrap();
        let bomb = [("tpm2-00.permall.gz".to_owned(), ByteString(bomb.finish().unwrap()))].into();
        assert!(matches!(unpack("s", &bomb), Err(StateError::BadSecret { .. })));
        let mut noise = vec![0; 2 << 20];
        getrandom::fill(&mut noise).unwrap();
        assert!(matches!(pack(&files(&noise)), Err(StateError::DoesNotFit { .. })));
    }

    #[test]
    fn a_state_takes_the_place_of_another() {
        let pool = tempfile::tempdir().unwrap();
        let place = Place { states: pool.path().join("state"), aside: pool.path().join("tmp") };
        let (dir, aside) = (place.of("u"), place.aside.join("state-u"));
        let source = |id: &str| StateSource { id: id.into(), origin: Origin::Secret("s".into()) };
        assert!(read(&dir).unwrap().is_empty() && !is_settled(&dir, &source("1")));
        exchange(&dir, &aside, &files(b"one"), "1").unwrap();
        assert!(is_settled(&dir, &source("1")) && !is_settled(&dir, &source("2")));
        assert_eq!(read(&dir).unwrap(), files(b"one"));
        // What was left of an attempt does no harm.
        fs::create_dir_all(aside.join("new/tpm")).unwrap();
        exchange(&dir, &aside, &[("nvram.fd", b"two".to_vec())].into(), "2").unwrap();
        assert_eq!(read(&dir).unwrap(), [("nvram.fd", b"two".to_vec())].into());
        assert!(is_settled(&dir, &source("2")) && !aside.exists());
    }

    #[test]
    fn nothing_is_read_through_links_or_pipes() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("secret"), "x").unwrap();
        fs::create_dir(dir.path().join("tpm")).unwrap();
        std::os::unix::fs::symlink(dir.path().join("secret"), dir.path().join("tpm/tpm2-00.permall")).unwrap();
        assert!(matches!(read(dir.path()), Err(StateError::Read { .. })));
        fs::remove_file(dir.path().join("tpm/tpm2-00.permall")).unwrap();
        fs::create_dir(dir.path().join("nvram.fd")).unwrap();
        assert!(matches!(read(dir.path()), Err(StateError::Read { .. })));
    }
}
