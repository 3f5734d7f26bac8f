//! How much can still be written, as far as anybody can tell beforehand.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The bytes that files in the file system of `path` can still take. One that is in a loop file promises more than the
/// host's own file system may have left: the smaller number counts.
pub fn room(path: &Path) -> io::Result<u64> {
    let inside = free(path)?;
    let Some(file) = loop_file(path)? else { return Ok(inside) };
    Ok(inside.min(free(&file)?))
}

fn free(path: &Path) -> io::Result<u64> {
    let stat = rustix::fs::statvfs(path)?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// The file behind the file system, if there is one.
fn loop_file(path: &Path) -> io::Result<Option<PathBuf>> {
    let device = fs::metadata(path)?.dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    match fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/loop/backing_file")) {
        Ok(file) => Ok(Some(PathBuf::from(file.trim_end()))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command;
    use crate::pool::{Backing, Options, Pool, unmount};

    const MIB: u64 = 1 << 20;

    /// A small host: everything in it is gone with it.
    struct Host(tempfile::TempDir);

    impl Host {
        fn new(size: &str) -> Self {
            let dir = tempfile::tempdir().unwrap();
            let size = format!("size={size}");
            let dir_text = dir.path().to_str().unwrap().to_owned();
            let arguments = ["-t", "tmpfs", "-o", &size, "croft-test", &dir_text].map(str::to_owned);
            command::run("mount", arguments, std::time::Duration::from_secs(30)).unwrap();
            Self(dir)
        }
    }

    impl Drop for Host {
        fn drop(&mut self) {
            let _ = unmount(&self.0.path().join("pool"));
            let _ = command::run("umount", [self.0.path()], std::time::Duration::from_secs(30));
        }
    }

    #[test]
    fn a_loop_file_has_no_more_room_than_its_host() {
        let host = Host::new("420m");
        let dir = host.0.path().canonicalize().unwrap().join("pool");
        let options = Options { loop_size_bytes: Some(400 * MIB), is_plain: false };
        let pool = Pool::open("default", &dir, &options).unwrap();
        assert!(matches!(pool.backing(), Backing::LoopFile(_)), "{pool:?}");
        let volume = pool.create("v", MIB).unwrap();
        assert!(room(&dir).unwrap() > 200 * MIB);
        // Somebody else takes what the host has.
        let left = free(host.0.path()).unwrap();
        fs::write(host.0.path().join("filler"), vec![1; usize::try_from(left - 8 * MIB).unwrap()]).unwrap();
        assert!(free(&dir).unwrap() > 200 * MIB, "inside, nothing is known of it");
        // A file is as good as a directory to ask by.
        for path in [&dir, &volume.path] {
            assert!(room(path).unwrap() <= 16 * MIB, "{}", room(path).unwrap());
        }
    }
}
