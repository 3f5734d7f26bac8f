//! What a machine gets when it asks for a claim.

use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::{fs, io};

use croft_api::cdi::filling;
use croft_api::kubevirt::PersistentVolumeClaimInfo;
use croft_reconcile::Key;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};

use super::{Inner, Volumes, binding};

/// KubeVirt's name for the disk in a volume that is a directory.
const DISK_FILE: &str = "disk.img";

/// A claim's file or device on this node.
#[derive(Clone, Debug, PartialEq)]
pub struct AttachedVolume {
    pub path: PathBuf,
    pub size_bytes: u64,
    /// Whether it is a block device of the host; else it is a raw file.
    pub is_block: bool,
    pub is_read_only: bool,
    /// Its content is still on its way: not for machines, and not to be copied.
    pub is_being_filled: bool,
    pub claim_info: PersistentVolumeClaimInfo,
}

#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// Nothing is known yet; [`Volumes::changes`] tells when to ask again.
    #[error("the volumes of this node are still being looked up")]
    NotYet,
    #[error("there is no claim {0}")]
    NotFound(Key),
    #[error("claim {0} has no volume yet")]
    NotBound(Key),
    #[error("claim {0} is being deleted")]
    Deleted(Key),
    #[error("the volume of claim {0} is on {1}")]
    ElsewhereOn(Key, String),
    /// Never made anew: what was on it is gone, and nobody should think otherwise.
    #[error("the file of volume {volume}, which claim {claim} is bound to, is missing from pool {pool}")]
    Lost { claim: Key, volume: String, pool: String },
    #[error("volume {volume} of claim {claim} is of a kind that machines cannot use")]
    Unusable { claim: Key, volume: String },
    #[error("cannot look at {}", path.display())]
    Look {
        path: PathBuf,
        #[source]
        err: io::Error,
    },
}

impl Volumes {
    /// The file or device behind a bound claim on this node.
    pub fn attach(&self, namespace: &str, claim: &str) -> Result<AttachedVolume, AttachError> {
        let (inner, key) = (&self.0, Key::new(namespace, claim));
        let Some(claim) = inner.claims.get(&key) else {
            let is_synced = inner.is_synced.load(Ordering::Acquire);
            return Err(if is_synced { AttachError::NotFound(key) } else { AttachError::NotYet });
        };
        if claim.metadata.deletion_timestamp.is_some() && !inner.is_running_with(&key) {
            return Err(AttachError::Deleted(key));
        }
        let name = claim.spec.as_ref().and_then(|spec| spec.volume_name.clone()).unwrap_or_default();
        let volume = inner.volumes.get(&Key::new("", name)).filter(|volume| binding::is_for(volume, &claim));
        let Some(volume) = volume else { return Err(AttachError::NotBound(key)) };
        if !binding::is_reachable(&volume, &inner.node_name) {
            let nodes = binding::nodes(&volume).unwrap_or_default().join(", ");
            return Err(AttachError::ElsewhereOn(key, nodes));
        }
        let (path, size_bytes, is_block) = inner.locate(&key, &volume)?;
        let modes = claim.spec.as_ref().and_then(|spec| spec.access_modes.clone()).unwrap_or_default();
        let is_read_only = !modes.is_empty() && modes.iter().all(|mode| mode == "ReadOnlyMany");
        let is_being_filled = filling::is_being_filled(&claim);
        let claim_info = info(&claim, modes);
        Ok(AttachedVolume { path, size_bytes, is_block, is_read_only, is_being_filled, claim_info })
    }
}

fn info(claim: &PersistentVolumeClaim, access_modes: Vec<String>) -> PersistentVolumeClaimInfo {
    let spec = claim.spec.as_ref();
    let requests = spec.and_then(|spec| spec.resources.as_ref()).and_then(|all| all.requests.clone());
    PersistentVolumeClaimInfo {
        claim_name: claim.metadata.name.clone(),
        access_modes,
        volume_mode: spec.and_then(|spec| spec.volume_mode.clone()),
        capacity: claim.status.as_ref().and_then(|status| status.capacity.clone()).unwrap_or_default(),
        requests: requests.unwrap_or_default(),
        filesystem_overhead: Some("0".to_owned()),
        preallocated: filling::is_preallocated(claim).then_some(true),
    }
}

impl Inner {
    pub(super) fn is_running_with(&self, claim: &Key) -> bool {
        self.consumers.list().iter().any(|consumer| consumer.is_running() && consumer.claims().contains(claim))
    }

    fn locate(&self, claim: &Key, volume: &PersistentVolume) -> Result<(PathBuf, u64, bool), AttachError> {
        let name = volume.metadata.name.clone().unwrap_or_default();
        if let Some(handle) = binding::handle(volume) {
            let Some((_, found)) = self.pools.find(handle) else {
                let pool = binding::pool(volume).to_owned();
                return Err(AttachError::Lost { claim: claim.clone(), volume: name, pool });
            };
            return Ok((found.path, found.size_bytes, false));
        }
        let spec = volume.spec.as_ref();
        let Some(path) = spec.and_then(binding::host_path) else {
            return Err(AttachError::Unusable { claim: claim.clone(), volume: name });
        };
        on_host(Path::new(path)).map_err(|err| AttachError::Look { path: PathBuf::from(path), err })
    }
}

/// A device, a file, or a directory with a disk in it.
fn on_host(path: &Path) -> io::Result<(PathBuf, u64, bool)> {
    let found = fs::metadata(path)?;
    if found.is_dir() {
        return on_host(&path.join(DISK_FILE));
    }
    if found.file_type().is_block_device() {
        let device = croft_block::inspect(path).map_err(io::Error::other)?;
        return Ok((path.to_owned(), device.size_bytes, true));
    }
    if !found.is_file() {
        return Err(io::Error::other("neither a file nor a block device"));
    }
    Ok((path.to_owned(), found.len(), false))
}
