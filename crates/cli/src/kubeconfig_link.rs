//! The admin's kubeconfig where scripts for Harvester and RKE2 look for it.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use tracing::warn;

const PLACE: &str = "/etc/rancher/rke2/rke2.yaml";

/// Where the link goes: as asked for, or to the usual place if this is the server that was installed on this machine.
pub(crate) fn place(asked: Option<PathBuf>, is_default_data_dir: bool) -> Option<PathBuf> {
    asked.or_else(|| (is_default_data_dir && rustix::process::geteuid().is_root()).then(|| PLACE.into()))
}

/// A server without the link is as good as ever, so that failing is only told.
pub(crate) fn make(kubeconfig: &Path, place: &Path) {
    if let Err(error) = link(kubeconfig, place) {
        warn!(place = %place.display(), %error, "cannot link the kubeconfig");
    }
}

/// A link is replaced; a file that somebody wrote is not.
fn link(kubeconfig: &Path, place: &Path) -> io::Result<()> {
    let kubeconfig = std::path::absolute(kubeconfig)?;
    match fs::read_link(place) {
        Ok(target) if target == kubeconfig => return Ok(()),
        Ok(_) => fs::remove_file(place)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "a file of somebody else is there"));
        }
        Err(error) => return Err(error),
    }
    if let Some(dir) = place.parent() {
        fs::create_dir_all(dir)?;
    }
    symlink(kubeconfig, place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_made_and_replaced_but_files_stay() {
        let dir = tempfile::tempdir().unwrap();
        let (place, ours) = (dir.path().join("etc/rke2.yaml"), dir.path().join("kubeconfig"));
        for target in [Path::new("/elsewhere"), &ours, &ours] {
            link(target, &place).unwrap();
            assert_eq!(fs::read_link(&place).unwrap(), target);
        }
        fs::remove_file(&place).unwrap();
        fs::write(&place, "theirs").unwrap();
        assert_eq!(link(&ours, &place).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read_to_string(&place).unwrap(), "theirs");
    }

    #[test]
    fn only_the_installed_server_takes_the_usual_place() {
        assert_eq!(place(None, false), None);
        assert_eq!(place(Some("/there".into()), false), Some("/there".into()));
    }
}
