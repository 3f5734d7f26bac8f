//! One volume: which phase it is in, and what becomes of it when its claim is gone.

use std::sync::Arc;

use croft_meta::Chain;
use croft_reconcile::failure::{absent_is_none, is_not_found};
use croft_reconcile::{Error, Key};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::api::DeleteParams;

use super::objects::{self, VOLUME_PROTECTION};
use super::{Inner, binding};

impl Inner {
    pub(super) async fn reconcile_volume(self: &Arc<Self>, name: &str) -> Result<(), Error> {
        let Some(volume) = self.volumes.get(&Key::new("", name)) else { return Ok(()) };
        if !binding::is_reachable(&volume, &self.node_name) {
            return Ok(());
        }
        let Some(key) = binding::claim_of(&volume) else {
            return self.unclaimed(&volume).await;
        };
        let uid = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref()).and_then(|found| found.uid.as_deref());
        match self.claim_for(&key, &volume).await? {
            Some(claim) => self.claimed(&volume, &claim).await,
            None if uid.unwrap_or_default().is_empty() => self.unclaimed(&volume).await,
            None => self.released(&volume).await,
        }
    }

    /// The claim that the volume is for, if it is still there; the server is asked before it is taken for gone.
    async fn claim_for(
        &self,
        key: &Key,
        volume: &PersistentVolume,
    ) -> Result<Option<Arc<PersistentVolumeClaim>>, Error> {
        if let Some(claim) = self.claims.get(key).filter(|claim| binding::is_for(volume, claim)) {
            return Ok(Some(claim));
        }
        let claim = absent_is_none(self.claim_api(&key.namespace).get(&key.name).await)?;
        Ok(claim.filter(|claim| binding::is_for(volume, claim)).map(Arc::new))
    }

    async fn unclaimed(&self, volume: &PersistentVolume) -> Result<(), Error> {
        if volume.metadata.deletion_timestamp.is_some() {
            return self.finish(volume).await;
        }
        Ok(self.set_volume_phase(volume, "Available", None, None).await?)
    }

    async fn claimed(&self, volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> Result<(), Error> {
        let chosen = claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref()).unwrap_or_default();
        let status = volume.status.as_ref();
        let is_lost = status.and_then(|status| status.reason.as_deref()) == Some("VolumeLost");
        if Some(chosen) == volume.metadata.name.as_deref() {
            // A loss is told by whoever looks for the file.
            return if is_lost { Ok(()) } else { Ok(self.set_volume_phase(volume, "Bound", None, None).await?) };
        }
        // It took another; or it has none yet, and is looked after itself.
        if chosen.is_empty() { Ok(()) } else { self.released(volume).await }
    }

    async fn released(&self, volume: &PersistentVolume) -> Result<(), Error> {
        if volume.metadata.deletion_timestamp.is_some() {
            return self.finish(volume).await;
        }
        self.set_volume_phase(volume, "Released", None, None).await?;
        let policy = volume.spec.as_ref().and_then(|spec| spec.persistent_volume_reclaim_policy.as_deref());
        if policy != Some("Delete") {
            return Ok(());
        }
        if binding::handle(volume).is_none() {
            let text = "no provisioner here can delete this volume";
            return Ok(self.set_volume_phase(volume, "Failed", Some("VolumeFailedDelete"), Some(text)).await?);
        }
        let name = volume.metadata.name.as_deref().unwrap_or_default();
        match self.volume_api().delete(name, &DeleteParams::default()).await {
            Err(error) if !is_not_found(&error) => return Err(error.into()),
            _ => {}
        }
        // The finalizer holds it until the file is gone.
        self.finish(volume).await
    }

    /// A volume whose object is going: the file goes first, if its policy says so.
    async fn finish(&self, volume: &PersistentVolume) -> Result<(), Error> {
        let spec = volume.spec.as_ref();
        let is_deleted = spec.and_then(|spec| spec.persistent_volume_reclaim_policy.as_deref()) == Some("Delete");
        if let Some(handle) = binding::handle(volume).filter(|_| is_deleted) {
            let (pools, handle) = (self.pools.all(), handle.to_owned());
            let deleted = super::blocking(move || pools.into_iter().try_for_each(|pool| pool.delete(&handle))).await;
            if let Err(error) = deleted {
                let text = Chain(&error).to_string();
                self.set_volume_phase(volume, "Failed", Some("VolumeFailedDelete"), Some(&text)).await?;
                self.events.warning(volume, "VolumeFailedDelete", &text);
                return Err(Error::NotYet(text));
            }
        }
        let name = volume.metadata.name.as_deref().unwrap_or_default();
        let Some(current) = absent_is_none(self.volume_api().get(name).await)? else { return Ok(()) };
        // Somebody else's object of the same name is not ours to touch.
        if current.metadata.uid != volume.metadata.uid || !objects::has_finalizer(&current, VOLUME_PROTECTION) {
            return Ok(());
        }
        match self.patch_volume(name, &objects::without_finalizer(&current, VOLUME_PROTECTION)).await {
            Err(error) if !is_not_found(&error) => Err(error.into()),
            _ => Ok(()),
        }
    }
}
