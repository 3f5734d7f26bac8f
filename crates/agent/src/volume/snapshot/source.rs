//! What a snapshot is to be taken of. Nothing is done here.

use std::path::PathBuf;
use std::sync::Arc;

use croft_api::cdi::filling::is_being_filled;
use croft_api::snapshot::{DEFAULT_CLASS, VolumeSnapshot, VolumeSnapshotClass};
use croft_block::Pool;
use croft_reconcile::Key;
use kube::ResourceExt;

use super::super::{Inner, binding, is_ours};

/// A volume that can be snapshotted.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) claim: Key,
    pub(super) class: Arc<VolumeSnapshotClass>,
    /// The volume's, which is the name of its file.
    pub(super) handle: String,
    pub(super) volume_mode: String,
    pub(super) pool: Arc<Pool>,
    pub(super) path: PathBuf,
}

/// Why there is nothing to take.
#[derive(Debug)]
pub(super) enum NotTaken {
    /// Another driver or another node looks after it.
    NotOurs,
    /// In words for the user. It may change.
    Because(String),
}

impl From<String> for NotTaken {
    fn from(why: String) -> Self {
        Self::Because(why)
    }
}

impl Inner {
    pub(super) fn source_of(&self, snapshot: &VolumeSnapshot) -> Result<Source, NotTaken> {
        let namespace = snapshot.metadata.namespace.as_deref().unwrap_or_default();
        let name = snapshot.spec.source.persistent_volume_claim_name.as_deref().unwrap_or_default();
        let class = self.class_for(snapshot)?;
        if !is_ours(&class.driver) {
            return Err(NotTaken::NotOurs);
        }
        let key = Key::new(namespace, name);
        let claim = self.claims.get(&key).ok_or_else(|| format!("there is no claim {key}"))?;
        if is_being_filled(&claim) {
            return Err(format!("claim {key} is still being filled").into());
        }
        let bound = claim.spec.as_ref().and_then(|spec| spec.volume_name.clone()).unwrap_or_default();
        let volume = self.volumes.get(&Key::new("", bound)).filter(|volume| binding::is_for(volume, &claim));
        let volume = volume.ok_or_else(|| format!("claim {key} is not bound yet"))?;
        if !binding::is_reachable(&volume, &self.node_name) {
            return Err(NotTaken::NotOurs);
        }
        let Some(handle) = binding::handle(&volume) else {
            return Err(format!("the volume of claim {key} is not in a pool: it cannot be snapshotted").into());
        };
        let Some((pool, file)) = self.pools.find(handle) else {
            return Err(format!("the file of claim {key} is missing from pool {}", binding::pool(&volume)).into());
        };
        let mode = volume.spec.as_ref().and_then(|spec| spec.volume_mode.clone());
        Ok(Source {
            claim: key,
            class,
            handle: handle.to_owned(),
            volume_mode: mode.unwrap_or_else(|| "Filesystem".to_owned()),
            pool,
            path: file.path,
        })
    }

    /// The class that it names, or the one for those that name none.
    fn class_for(&self, snapshot: &VolumeSnapshot) -> Result<Arc<VolumeSnapshotClass>, NotTaken> {
        if let Some(name) = snapshot.spec.volume_snapshot_class_name.as_deref().filter(|name| !name.is_empty()) {
            let found = self.snapshot_classes.get(&Key::new("", name));
            return found.ok_or_else(|| format!("there is no VolumeSnapshotClass {name}").into());
        }
        let classes = self.snapshot_classes.list();
        let mut chosen = classes.into_iter().filter(|class| {
            is_ours(&class.driver) && class.annotations().get(DEFAULT_CLASS).is_some_and(|value| value == "true")
        });
        match (chosen.next(), chosen.next()) {
            (Some(class), None) => Ok(class),
            (Some(_), Some(_)) => Err("there are several default VolumeSnapshotClasses: name one".to_owned().into()),
            (None, _) => Err("there is no default VolumeSnapshotClass: name one".to_owned().into()),
        }
    }
}
