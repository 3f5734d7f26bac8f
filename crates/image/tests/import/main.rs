//! Imports from real servers that behave, and from some that do not.

mod formats;
mod registry;
mod server;
mod transfers;

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use croft_image::Options;
use tempfile::TempDir;

/// A place to work in, as the agent has it.
struct Place {
    dir: TempDir,
}

impl Place {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        for name in ["imports", "images", "made"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        Self { dir }
    }

    fn options(&self) -> Options {
        Options::new(self.dir.path().join("imports"), "key")
    }

    fn destination(&self) -> PathBuf {
        self.dir.path().join("images/image.raw")
    }

    fn made(&self, name: &str) -> PathBuf {
        self.dir.path().join("made").join(name)
    }

    /// What lies around beside what tests made.
    fn left(&self) -> Vec<String> {
        let list = |name: &str| fs::read_dir(self.dir.path().join(name)).unwrap();
        let entries = list("imports").chain(list("images"));
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// A disk of some data and many holes.
    fn disk(&self) -> PathBuf {
        let path = self.made("disk.raw");
        let file = fs::File::create(&path).unwrap();
        file.set_len(DISK).unwrap();
        file.write_all_at(&noise(3 << 20), 1 << 20).unwrap();
        file.write_all_at(b"the end", DISK - 7).unwrap();
        path
    }
}

const DISK: u64 = 24 << 20;

/// The same on every call, and hard to compress.
fn noise(size: usize) -> Vec<u8> {
    let mut seed = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed.to_le_bytes()
    };
    (0..size.div_ceil(8)).flat_map(|_| next()).take(size).collect()
}

fn run(program: &str, args: &[&str]) {
    let output = Command::new(program).args(args).output().unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(output.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn same(left: &Path, right: &Path) -> bool {
    fs::read(left).unwrap() == fs::read(right).unwrap()
}
