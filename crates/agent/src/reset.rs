//! Takes everything off the host that a node put there and that outlives it: guests, interfaces, the packet filter,
//! control groups, mounts. The data stays, and the next start makes all of it anew.

use std::path::{Path, PathBuf};

use croft_qemu::process;

use crate::cgroup::{CgroupError, Cgroups};
use crate::network;

#[derive(Debug, thiserror::Error)]
pub enum ResetError {
    #[error("the guests in {} could not be ended", path.display())]
    Guests {
        path: PathBuf,
        #[source]
        source: process::ProcessError,
    },
    #[error("the control groups of guests could not be removed")]
    Cgroups(#[source] CgroupError),
    #[error("the default network could not be removed")]
    Network(#[source] croft_net::NetError),
    #[error("the pool could not be unmounted")]
    Pool(#[source] croft_block::PoolError),
    #[error("{} could not be removed", path.display())]
    RunDir {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
}

/// For a server that does not run. Each step can be repeated.
pub async fn reset(data_dir: &Path, run_dir: &Path) -> Result<(), ResetError> {
    let vms = run_dir.join("vms");
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| ResetError::Guests { path, source }
    };
    if vms.is_dir() {
        for left in process::leftovers(&vms).await.map_err(failed(&vms))? {
            process::kill_all(&left.dir).await.map_err(failed(&left.dir))?;
        }
    }
    if let Ok(cgroups) = Cgroups::new(&Cgroups::name_for(run_dir)) {
        cgroups.remove_all().await.map_err(ResetError::Cgroups)?;
    }
    network::remove_all(data_dir).await.map_err(ResetError::Network)?;
    let pools = pools(data_dir);
    let unmounted = tokio::task::spawn_blocking(move || pools.iter().try_for_each(|pool| croft_block::unmount(pool)));
    unmounted.await.unwrap_or(Ok(())).map_err(ResetError::Pool)?;
    match tokio::fs::remove_dir_all(run_dir).await {
        Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
            Err(ResetError::RunDir { path: run_dir.to_owned(), source })
        }
        _ => Ok(()),
    }
}

/// The node's own pool, and those on disks that were added.
fn pools(data_dir: &Path) -> Vec<PathBuf> {
    let added = std::fs::read_dir(data_dir.join("disks")).into_iter().flatten().flatten().map(|entry| entry.path());
    added.chain([data_dir.join("pool")]).filter(|pool| pool.is_dir()).collect()
}
