//! A claim that asks for more than it has: the file grows, then the objects say so.

use std::sync::Arc;

use croft_block::Pool;
use croft_meta::Chain;
use croft_reconcile::failure::absent_is_none;
use croft_reconcile::{Error, Key};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use serde_json::json;

use super::pools::Pools;
use super::{Inner, binding, blocking, objects};

/// Harvester's own default.
const DEFAULT_OVERCOMMIT: u64 = 200;

impl Inner {
    /// How much more than it has a pool may promise, in percent of its size.
    pub(super) async fn overcommit(&self) -> Result<u64, kube::Error> {
        let settings: kube::Api<croft_api::harvester::Setting> = kube::Api::all(self.client.clone());
        let setting = absent_is_none(settings.get("overcommit-config").await)?;
        let setting = setting.as_ref().map(croft_api::harvester::Setting::effective).unwrap_or_default();
        let value: Option<serde_json::Value> = serde_json::from_str(setting).ok();
        Ok(value.and_then(|value| value.get("storage")?.as_u64()).unwrap_or(DEFAULT_OVERCOMMIT))
    }

    /// The file first: what the objects promise is there.
    pub(super) async fn expand(
        &self,
        claim: &PersistentVolumeClaim,
        volume: &PersistentVolume,
        pool: &Arc<Pool>,
        wanted: u64,
    ) -> Result<(), Error> {
        if let Some(refused) = self.cannot_expand(claim, volume, pool, wanted).await? {
            self.resize_failed(claim, &refused).await?;
            return Err(Error::NotYet(refused));
        }
        let handle = binding::handle(volume).unwrap_or_default().to_owned();
        let grows = Arc::clone(pool);
        if let Err(error) = blocking(move || grows.grow(&handle, wanted)).await {
            let text = Chain(&error).to_string();
            self.resize_failed(claim, &text).await?;
            return Err(Error::NotYet(text));
        }
        let size = objects::size_text(wanted, claim);
        let name = volume.metadata.name.as_deref().unwrap_or_default();
        self.patch_volume(name, &json!({ "spec": { "capacity": { "storage": size } } })).await?;
        self.tell_expanded(claim, wanted).await
    }

    /// The last step of an expansion. What comes before it is not done again if this fails.
    pub(super) async fn tell_expanded(&self, claim: &PersistentVolumeClaim, size_bytes: u64) -> Result<(), Error> {
        let size = objects::size_text(size_bytes, claim);
        let status = json!({ "capacity": { "storage": size }, "allocatedResources": { "storage": size }, "conditions": null, "allocatedResourceStatuses": null });
        self.patch_claim_status(claim, status).await?;
        let text = format!("the volume has {} now", size.0);
        self.events.normal(claim, "VolumeResizeSuccessful", &text);
        Ok(())
    }

    async fn cannot_expand(
        &self,
        claim: &PersistentVolumeClaim,
        volume: &PersistentVolume,
        pool: &Pool,
        wanted: u64,
    ) -> Result<Option<String>, Error> {
        let class = self.classes.get(&Key::new("", binding::class_of(claim)));
        if class.as_ref().and_then(|class| class.allow_volume_expansion) != Some(true) {
            return Ok(Some("the claim's storage class does not allow expansion".to_owned()));
        }
        let growth = wanted.saturating_sub(binding::capacity_bytes(volume));
        let capacity = pool.usage().map_or(0, |usage| usage.capacity_bytes);
        let promised = Pools::promised(&self.volumes.list(), &self.node_name);
        let promised = promised.get(pool.id()).copied().unwrap_or_default();
        let percent = self.overcommit().await?;
        let limit = capacity / 100 * percent;
        Ok((promised + growth > limit).then(|| {
            let left = limit.saturating_sub(promised) >> 20;
            format!("insufficient storage: pool {} may promise {left} MiB more (overcommit {percent} %)", pool.id())
        }))
    }

    async fn resize_failed(&self, claim: &PersistentVolumeClaim, text: &str) -> Result<(), Error> {
        self.events.warning(claim, "VolumeResizeFailed", text);
        let conditions = claim.status.as_ref().and_then(|status| status.conditions.as_ref());
        let is_told = conditions.is_some_and(|all| all.iter().any(|found| found.message.as_deref() == Some(text)));
        if !is_told {
            let now = croft_meta::time::format_seconds(jiff::Timestamp::now());
            let condition = json!({ "type": "Resizing", "status": "True", "reason": "VolumeResizeFailed", "message": text, "lastTransitionTime": now });
            self.patch_claim_status(claim, json!({ "conditions": [condition] })).await?;
        }
        Ok(())
    }
}
