//! A volume that becomes again what it was, in its place.
//!
//! An annotation of the claim asks for it, and keeps machines from the volume until it is done. The new file shares the snapshot's
//! blocks and takes the old one's name in one step: whoever is killed finds the one or the other, and does it again.

use std::sync::Arc;

use croft_api::cdi::filling;
use croft_block::Pool;
use croft_meta::Chain;
use croft_reconcile::{Error, Key};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::Api;
use kube::api::ListParams;
use serde_json::json;

use super::consumer::Consumer;
use super::snapshot::volume_of;
use super::{Inner, blocking};

impl Inner {
    /// Done or refused, the request goes, and what became of it is told.
    pub(super) async fn revert(
        &self,
        claim: &PersistentVolumeClaim,
        pool: &Arc<Pool>,
        handle: &str,
        snapshot: &str,
    ) -> Result<(), Error> {
        let why = self.put_back(claim, pool, handle, snapshot).await?.err();
        let annotations = json!({
            filling::REVERT: null,
            filling::REVERTED: why.is_none().then_some(snapshot),
            filling::REVERT_ERROR: why,
        });
        let change = json!({ "metadata": { "annotations": annotations,
            "resourceVersion": claim.metadata.resource_version } });
        self.patch_claim(claim, &change).await?;
        match why {
            Some(why) => self.events.warning(claim, "VolumeNotReverted", &why),
            None => {
                self.events.normal(claim, "VolumeReverted", &format!("the volume is what snapshot {snapshot} holds"));
            }
        }
        Ok(())
    }

    /// The inner error is for the user.
    async fn put_back(
        &self,
        claim: &PersistentVolumeClaim,
        pool: &Arc<Pool>,
        handle: &str,
        snapshot: &str,
    ) -> Result<Result<(), String>, Error> {
        let own = Key::of(claim);
        if let Some(machine) = self.user_of(&own).await? {
            return Ok(Err(format!("machine {machine} uses it")));
        }
        let key = Key::new(own.namespace.clone(), snapshot);
        let content = match self.ready_content(&key) {
            Ok(content) => content,
            Err(why) => return Ok(Err(why)),
        };
        if volume_of(&content).as_deref() != Some(handle) {
            return Ok(Err(format!("snapshot {snapshot} is of another volume; make a new volume of it")));
        }
        let source = match self.restorable(&key) {
            Ok(source) => source.path,
            Err(why) => return Ok(Err(why)),
        };
        let (pool, name) = (Arc::clone(pool), handle.to_owned());
        let done = blocking(move || pool.revert(&name, &source)).await;
        Ok(done.map(drop).map_err(|error| Chain(&error).to_string()))
    }

    /// The server is asked: one that has just begun may not be known here yet. Whoever begins later sees the request.
    async fn user_of(&self, claim: &Key) -> Result<Option<String>, Error> {
        let api: Api<Consumer> = Api::namespaced(self.client.clone(), &claim.namespace);
        let there = api.list(&ListParams::default()).await?;
        let uses = |consumer: &&Consumer| !consumer.has_ended() && consumer.claims().contains(claim);
        Ok(there.items.iter().find(uses).map(kube::ResourceExt::name_any))
    }
}
