//! Where sockets go: a short path that belongs to one data directory.

use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::bail;
use sha2::{Digest, Sha256};

/// The kernel takes 107 bytes; below this directory come `/vms/<uid>/` and a socket's name.
const MAX: usize = 48;

/// The same for the same data directory, so that guests are found again; another for another, so that two servers on one
/// machine do not meet.
pub(crate) fn of(data_dir: &Path) -> PathBuf {
    let whole = std::path::absolute(data_dir).unwrap_or_else(|_| data_dir.to_owned());
    let hash = Sha256::digest(whole.as_os_str().as_bytes());
    let mut name = String::new();
    for byte in &hash[..4] {
        // Writing to a String cannot fail.
        let _ = write!(name, "{byte:02x}");
    }
    base().join(name)
}

fn base() -> PathBuf {
    if rustix::process::geteuid().is_root() {
        return PathBuf::from("/run/croft");
    }
    match std::env::var_os("XDG_RUNTIME_DIR").filter(|dir| !dir.is_empty()) {
        Some(dir) => Path::new(&dir).join("croft"),
        None => PathBuf::from(format!("/tmp/croft-{}", rustix::process::geteuid().as_raw())),
    }
}

pub(crate) fn check(dir: &Path) -> anyhow::Result<()> {
    if !dir.is_absolute() {
        bail!("--run-dir: {} is not an absolute path", dir.display());
    }
    if dir.as_os_str().len() > MAX {
        bail!("--run-dir: {} is too long for the sockets in it: {MAX} characters at most", dir.display());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_directory_for_each_data_directory() {
        let first = of(Path::new("/var/lib/croft"));
        assert_eq!(first, of(Path::new("/var/lib/croft")));
        assert_ne!(first, of(Path::new("/srv/croft")));
        check(&first).unwrap();
    }
}
