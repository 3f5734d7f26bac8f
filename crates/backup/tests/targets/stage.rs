//! What all tests use: disks with known content, stores, and this program started again.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use croft_backup::{
    BackupRequest, BackupStore, Base, Changes, Compression, Extent, Owner, Secret, Target, Transfer, Written,
};
use tempfile::TempDir;

pub(crate) const BLOCK: usize = 2 << 20;

/// In memory where there is enough: a process loses nothing that it handed to the kernel, and flushing costs nothing there.
pub(crate) fn dir() -> TempDir {
    let memory = Path::new("/dev/shm");
    let has_space = rustix::fs::statvfs(memory).is_ok_and(|it| it.f_bavail * it.f_frsize > 1 << 30);
    if has_space { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap()
}

/// Numbers that are the same for the same seed.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub(crate) fn fill(&mut self, data: &mut [u8]) {
        for piece in data.chunks_mut(8) {
            piece.copy_from_slice(&self.next().to_le_bytes()[..piece.len()]);
        }
    }
}

/// A disk in a file, with what should be in it.
pub(crate) struct Disk {
    pub(crate) path: PathBuf,
    pub(crate) content: Vec<u8>,
}

impl Disk {
    /// Ten blocks and a bit: some random, two alike, one that compresses, holes, and a tail that is no whole block.
    pub(crate) fn new(path: PathBuf, seed: u64) -> Self {
        let mut content = vec![0; 10 * BLOCK + 4096 + 512];
        let mut random = Random(seed);
        random.fill(&mut content[..3 * BLOCK]);
        content.copy_within(0..BLOCK, 4 * BLOCK);
        content[6 * BLOCK..7 * BLOCK].fill(b'x');
        content[8 * BLOCK + 77] = 1;
        random.fill(&mut content[10 * BLOCK + 4000..]);
        let file = File::create(&path).unwrap();
        file.set_len(content.len() as u64).unwrap();
        let mut disk = Self { path, content: vec![0; content.len()] };
        for (index, block) in content.chunks(BLOCK).enumerate().filter(|(_, block)| block.iter().any(|byte| *byte != 0))
        {
            disk.write(index * BLOCK, block);
        }
        disk
    }

    pub(crate) fn write(&mut self, offset: usize, data: &[u8]) -> Extent {
        self.content[offset..offset + data.len()].copy_from_slice(data);
        File::options().write(true).open(&self.path).unwrap().write_all_at(data, offset as u64).unwrap();
        Extent { offset: offset as u64, length: data.len() as u64 }
    }
}

pub(crate) fn store(target: Arc<dyn Target>) -> BackupStore {
    BackupStore::new(target, Owner::new("tests").unwrap()).with_patience(Duration::from_secs(20))
}

pub(crate) fn request(disk: &Path, volume: &str, backup: &str) -> BackupRequest {
    BackupRequest {
        volume: volume.into(),
        backup: backup.into(),
        snapshot: format!("snapshot-of-{backup}"),
        snapshot_created_at: "2026-01-02T03:04:05Z".into(),
        disk: disk.to_owned(),
        changes: Changes::All,
        compression: Compression::Lz4,
        secret: None,
        labels: [("test".to_owned(), "yes".to_owned())].into(),
        storage_class: "croft-local".into(),
        transfer: Transfer::default(),
    }
}

pub(crate) async fn back_up(store: &BackupStore, disk: &Disk, volume: &str, backup: &str) -> Written {
    store.write(&request(&disk.path, volume, backup)).await.unwrap()
}

/// Restores and compares every byte.
pub(crate) async fn assert_restores(
    store: &BackupStore,
    volume: &str,
    backup: &str,
    secret: Option<&Secret>,
    expected: &[u8],
) {
    let dir = dir();
    let path = dir.path().join("restored");
    std::fs::write(&path, "what was there before").unwrap();
    let opened = store.open(volume, backup, secret).await.unwrap();
    assert_eq!(opened.size(), expected.len() as u64);
    opened.restore(&path, Base::Nothing, &Transfer::default()).await.unwrap();
    let verified = opened.verify(&Transfer::default()).await.unwrap();
    assert!(verified.is_sound(), "{verified:?}");
    opened.close().await;
    assert!(std::fs::read(&path).unwrap() == expected, "backup {backup} of {volume} is another disk");
}

pub(crate) fn blocks_in(dir: &Path) -> Vec<PathBuf> {
    files_in(dir).into_iter().filter(|path| path.extension().is_some_and(|it| it == "blk")).collect()
}

pub(crate) fn files_in(dir: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(dir).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() { files.extend(files_in(&path)) } else { files.push(path) }
    }
    files.sort();
    files
}

/// This program once more, for the one test of that name.
pub(crate) fn again(before: &[&str], test: &str) -> Command {
    let this = std::env::current_exe().unwrap();
    let mut words = before.iter().copied().map(std::ffi::OsString::from).chain([this.into_os_string()]);
    let mut command = Command::new(words.next().unwrap());
    command.args(words).args([test, "--exact", "--nocapture", "--test-threads=1"]);
    command
}

pub(crate) fn python() -> PathBuf {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let python =
        std::env::var_os("CROFT_PYTHON").map_or_else(|| workspace.join("target/venv/bin/python"), PathBuf::from);
    assert!(python.exists(), "no Python at {}: `make test` sets it up", python.display());
    python
}

pub(crate) fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/targets/python").join(name)
}
