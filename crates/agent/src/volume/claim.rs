//! One claim: it gets a volume, grows, and is let go when nobody uses it.

use std::sync::Arc;

use croft_api::cdi::filling::{is_being_filled, revert_to};
use croft_block::{Pool, VolumeError};
use croft_meta::Chain;
use croft_reconcile::failure::{absent_is_none, is_conflict, is_not_found};
use croft_reconcile::{Error, Key};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use serde_json::json;

use super::binding::{self, granted_bytes, requested_bytes};
use super::objects::{self, CLAIM_PROTECTION};
use super::plan::{self, Content, Plan};
use super::pools::Pools;
use super::remote::Move;
use super::{Inner, blocking, is_ours};

const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";

/// Why a claim has no volume now. It is looked at again when something changes, and now and then.
#[derive(Debug)]
pub(super) struct Refused {
    reason: &'static str,
    pub(super) message: String,
}

impl Refused {
    fn provisioning(message: impl Into<String>) -> Self {
        Self { reason: "ProvisioningFailed", message: message.into() }
    }
}

impl Inner {
    pub(super) async fn reconcile_claim(&self, key: &Key) -> Result<(), Error> {
        let claim = self.claims.get(key);
        if claim.as_ref().is_none_or(|claim| claim.metadata.deletion_timestamp.is_some()) {
            // Nobody wants what is on its way to it.
            self.moves.stop(&Move::Fetch(key.clone()));
        }
        let Some(claim) = claim else { return Ok(()) };
        if claim.metadata.deletion_timestamp.is_some() {
            return self.let_go(key, &claim).await;
        }
        let name = claim.spec.as_ref().and_then(|spec| spec.volume_name.clone()).unwrap_or_default();
        if name.is_empty() {
            return self.provide(key, &claim).await;
        }
        let volume = match self.volumes.get(&Key::new("", name.clone())) {
            Some(volume) => volume,
            // The watches of claims and of volumes do not run in step.
            None => match absent_is_none(self.volume_api().get(&name).await)? {
                Some(volume) => Arc::new(volume),
                None => return self.volume_is_missing(&claim, &name).await,
            },
        };
        if !binding::is_reachable(&volume, &self.node_name) {
            return Ok(());
        }
        self.tend(&claim, &volume).await
    }

    /// Nothing holds a claim that no machine uses.
    async fn let_go(&self, key: &Key, claim: &PersistentVolumeClaim) -> Result<(), Error> {
        if !objects::has_finalizer(claim, CLAIM_PROTECTION) || self.is_elsewhere(claim) {
            return Ok(());
        }
        if self.is_used(key) {
            tracing::debug!(claim = %key, "deleted, but still in use");
            return Ok(());
        }
        match self.patch_claim(claim, &objects::without_finalizer(claim, CLAIM_PROTECTION)).await {
            Err(error) if !is_not_found(&error) => Err(error.into()),
            _ => Ok(()),
        }
    }

    fn is_elsewhere(&self, claim: &PersistentVolumeClaim) -> bool {
        let name = claim.spec.as_ref().and_then(|spec| spec.volume_name.clone()).unwrap_or_default();
        let volume = self.volumes.get(&Key::new("", name));
        volume.is_some_and(|volume| !binding::is_reachable(&volume, &self.node_name))
    }

    fn is_used(&self, claim: &Key) -> bool {
        self.consumers.list().iter().any(|consumer| !consumer.has_ended() && consumer.claims().contains(claim))
    }

    async fn volume_is_missing(&self, claim: &PersistentVolumeClaim, name: &str) -> Result<(), Error> {
        if binding::phase(claim) != "Bound" {
            return Err(Error::NotYet(format!("volume {name} is not there yet")));
        }
        self.patch_claim_status(claim, json!({ "phase": "Lost" })).await?;
        let text = "Bound claim has lost its PersistentVolume. Data on the volume is lost!";
        self.events.warning(claim, "ClaimLost", text);
        Ok(())
    }

    /// A claim that names its volume: the binding is completed if it is not, then its size and its file are looked at.
    async fn tend(&self, claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> Result<(), Error> {
        if binding::claim_of(volume).is_some() && !binding::is_for(volume, claim) {
            let name = volume.metadata.name.as_deref().unwrap_or_default();
            let text = format!("volume \"{name}\" already bound to a different claim.");
            self.events.warning(claim, "FailedBinding", &text);
            return Err(Error::NotYet(text));
        }
        if binding::claim_of(volume).is_none() && !binding::fits(claim, volume) {
            let name = volume.metadata.name.as_deref().unwrap_or_default();
            let text = format!("Cannot bind to requested volume \"{name}\": it is not what the claim asks for");
            self.events.warning(claim, "VolumeMismatch", &text);
            return Err(Error::NotYet(text));
        }
        if !binding::is_complete(claim) || binding::claim_of(volume).is_none() {
            self.bind(claim, volume, false).await?;
        }
        let Some(handle) = binding::handle(volume) else { return Ok(()) };
        let Some((pool, file)) = self.pools.find(handle) else { return self.file_is_missing(claim, volume).await };
        if let Some(snapshot) = revert_to(claim) {
            return self.revert(claim, &pool, handle, snapshot).await;
        }
        let promised = binding::capacity_bytes(volume);
        let wanted = plan::rounded(requested_bytes(claim)).max(promised);
        if wanted > promised || file.size_bytes < promised {
            return self.expand(claim, volume, &pool, wanted).await;
        }
        // An expansion may have been cut short between its last two writes.
        if granted_bytes(claim) < promised {
            return self.tell_expanded(claim, promised).await;
        }
        Ok(())
    }

    async fn file_is_missing(&self, claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> Result<(), Error> {
        let text = format!("the volume's file is missing from pool {}", binding::pool(volume));
        tracing::error!(volume = ?volume.metadata.name, pool = binding::pool(volume), "a volume's file is missing");
        self.set_volume_phase(volume, "Bound", Some("VolumeLost"), Some(&text)).await?;
        self.events.warning(claim, "VolumeLost", &text);
        Ok(())
    }

    /// Everything that binding consists of; what is there already is left as it is. `is_chosen`: nobody asked for this
    /// very volume.
    async fn bind(
        &self,
        claim: &PersistentVolumeClaim,
        volume: &PersistentVolume,
        is_chosen: bool,
    ) -> Result<(), Error> {
        let name = volume.metadata.name.as_deref().unwrap_or_default();
        let reference = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
        let mut volume = volume.clone();
        if reference.is_none_or(|reference| reference.uid != claim.metadata.uid) {
            let mut change = json!({
                "metadata": { "resourceVersion": volume.metadata.resource_version },
                "spec": { "claimRef": objects::reference(claim) },
            });
            if is_chosen {
                change["metadata"]["annotations"] = json!({ "pv.kubernetes.io/bound-by-controller": "yes" });
            }
            volume = self.patch_volume(name, &change).await?;
        }
        let bound = self.patch_claim(claim, &objects::bound_claim(claim, &volume, is_chosen)).await?;
        let spec = volume.spec.as_ref();
        let status = json!({
            "phase": "Bound",
            "accessModes": spec.and_then(|spec| spec.access_modes.as_ref()),
            "capacity": spec.and_then(|spec| spec.capacity.as_ref()),
        });
        self.patch_claim_status(&bound, status).await?;
        self.set_volume_phase(&volume, "Bound", None, None).await?;
        Ok(())
    }

    /// A claim without a volume: one that is there, or a new one.
    async fn provide(&self, key: &Key, claim: &PersistentVolumeClaim) -> Result<(), Error> {
        let volumes = self.volumes.list();
        if let Some(volume) = binding::choose(claim, &volumes) {
            if !binding::is_reachable(volume, &self.node_name) {
                return Ok(());
            }
            // One that was made for it before we were interrupted, or one that it may have.
            let is_made = volume.metadata.name.as_deref() == Some(&objects::volume_name(claim));
            self.bind(claim, volume, true).await?;
            if is_made {
                self.tell_success(claim);
            }
            return Ok(());
        }
        match self.make(key, claim).await {
            Ok(None) => Ok(()),
            Ok(Some(volume)) => {
                self.bind(claim, &volume, true).await?;
                self.tell_success(claim);
                Ok(())
            }
            Err(Stop::Api(error)) => Err(error.into()),
            Err(Stop::Waits(message)) => {
                self.events.normal(claim, "Restoring", &message);
                Err(Error::NotYet(message))
            }
            Err(Stop::Refused(Refused { reason, message })) => {
                self.events.warning(claim, reason, &message);
                Err(Error::NotYet(message))
            }
        }
    }

    fn tell_success(&self, claim: &PersistentVolumeClaim) {
        let text = format!("Successfully provisioned volume {}", objects::volume_name(claim));
        self.events.normal(claim, "ProvisioningSucceeded", &text);
    }

    /// `None` if it is not for us, or not yet.
    async fn make(&self, key: &Key, claim: &PersistentVolumeClaim) -> Result<Option<PersistentVolume>, Stop> {
        let name = binding::class_of(claim);
        if name.is_empty() {
            let message = "no persistent volumes available for this claim and no storage class is set".to_owned();
            return Err(Stop::Refused(Refused { reason: "FailedBinding", message }));
        }
        let Some(class) = self.classes.get(&Key::new("", name)) else {
            return Err(Refused::provisioning(format!("storageclass.storage.k8s.io \"{name}\" not found")).into());
        };
        if !is_ours(&class.provisioner) || !self.is_for_this_node(key, claim, &class) {
            return Ok(None);
        }
        let plan = plan::plan(claim, &class, &self.images.list()).map_err(Refused::provisioning)?;
        let pool = self.make_file(claim, &plan).await?;
        let volume = objects::new_volume(claim, &class, &plan, &self.node_name, pool.id());
        match self.create_volume(&volume).await {
            Ok(volume) => Ok(Some(volume)),
            Err(error) if is_conflict(&error) => self.somebody_was_faster(claim).await,
            Err(error) => Err(error.into()),
        }
    }

    /// The object is there: from before, or another node was faster, whose volume it is then.
    async fn somebody_was_faster(&self, claim: &PersistentVolumeClaim) -> Result<Option<PersistentVolume>, Stop> {
        let name = objects::volume_name(claim);
        let volume = self.volume_api().get(&name).await?;
        if binding::is_local(&volume, &self.node_name) {
            return Ok(Some(volume));
        }
        let pools = self.pools.default();
        let _ = blocking(move || pools.delete(&name)).await;
        Ok(None)
    }

    /// Where a claim's volume goes is decided by its first user, if the class says so.
    fn is_for_this_node(&self, key: &Key, claim: &PersistentVolumeClaim, class: &StorageClass) -> bool {
        let selected = claim.metadata.annotations.as_ref().and_then(|all| all.get(SELECTED_NODE));
        if let Some(selected) = selected {
            return *selected == self.node_name;
        }
        if class.volume_binding_mode.as_deref() != Some("WaitForFirstConsumer") {
            return true;
        }
        let consumers = self.consumers.list();
        if consumers.iter().any(|consumer| consumer.is_on(&self.node_name) && consumer.claims().contains(key)) {
            return true;
        }
        let text = "waiting for first consumer to be created before binding";
        self.events.normal(claim, "WaitForFirstConsumer", text);
        false
    }

    /// The file, which may be there from a start that was interrupted: it is whole then.
    async fn make_file(&self, claim: &PersistentVolumeClaim, plan: &Plan) -> Result<Arc<Pool>, Stop> {
        let name = objects::volume_name(claim);
        if let Some((pool, file)) = self.pools.find(&name) {
            if file.size_bytes != plan.size_bytes {
                let (pool, size) = (Arc::clone(&pool), plan.size_bytes);
                blocking(move || pool.grow(&name, size)).await.map_err(|error| refusal(&error))?;
            }
            return Ok(pool);
        }
        if let Content::Snapshot(snapshot) = &plan.content
            && let Some(far) = self.far_away(snapshot)
        {
            check_mode(claim, snapshot, far.volume_mode.as_deref())?;
            self.moves.want(Move::Fetch(Key::of(claim))).await;
            let text = format!("backup {} of volume {} is being restored into it", far.backup, far.volume);
            return Err(Stop::Waits(text));
        }
        let source = match &plan.content {
            Content::Zeroes => None,
            Content::Image(uid) => Some(self.image_file(uid)?),
            Content::Claim(source) => Some(self.source_file(claim, source, plan.size_bytes)?),
            Content::Snapshot(source) => Some(self.restored_file(claim, source, plan.size_bytes)?),
        };
        let near = source.as_ref().map(|(pool, _)| Arc::clone(pool));
        let pool = self.choose_pool(plan, near).await?;
        let (made_in, size) = (Arc::clone(&pool), plan.size_bytes);
        let made = blocking(move || match source {
            Some((_, path)) => made_in.create_from(&name, &path, size),
            None => made_in.create(&name, size),
        });
        made.await.map_err(|error| refusal(&error))?;
        Ok(pool)
    }

    fn image_file(&self, uid: &str) -> Result<(Arc<Pool>, std::path::PathBuf), Refused> {
        let pool = self.pools.default();
        let path = pool.dir().join("images").join(format!("{uid}.raw"));
        // A uid is the API server's word, but a path it must not become.
        if uid.is_empty() || uid.contains(['/', '.']) || !path.is_file() {
            return Err(Refused::provisioning(format!("the image's file is not on node {}", self.node_name)));
        }
        Ok((pool, path))
    }

    fn source_file(
        &self,
        claim: &PersistentVolumeClaim,
        source: &Key,
        size_bytes: u64,
    ) -> Result<(Arc<Pool>, std::path::PathBuf), Refused> {
        let refused = |text: String| Err(Refused::provisioning(text));
        let Some(from) = self.claims.get(source) else {
            return refused(format!("there is no claim {source} to clone"));
        };
        if is_being_filled(&from) {
            return refused(format!("claim {source} is still being filled"));
        }
        let mode = |claim: &PersistentVolumeClaim| claim.spec.as_ref().and_then(|spec| spec.volume_mode.clone());
        if mode(&from) != mode(claim) {
            return refused(format!("claim {source} has another volumeMode"));
        }
        let name = from.spec.as_ref().and_then(|spec| spec.volume_name.clone()).unwrap_or_default();
        let volume = self.volumes.get(&Key::new("", name)).filter(|volume| binding::is_for(volume, &from));
        let Some(volume) = volume else { return refused(format!("claim {source} is not bound yet")) };
        let found = binding::handle(&volume).and_then(|handle| self.pools.find(handle));
        let Some((pool, file)) = found else {
            return refused(format!("the volume of claim {source} is not on node {}", self.node_name));
        };
        if file.size_bytes > size_bytes {
            let text = format!(
                "claim {source} has {} bytes, which do not fit into {size_bytes}; ask for more",
                file.size_bytes
            );
            return refused(text);
        }
        Ok((pool, file.path))
    }

    fn restored_file(
        &self,
        claim: &PersistentVolumeClaim,
        source: &Key,
        size_bytes: u64,
    ) -> Result<(Arc<Pool>, std::path::PathBuf), Refused> {
        let found = self.restorable(source).map_err(Refused::provisioning)?;
        check_mode(claim, source, found.volume_mode.as_deref())?;
        if found.size_bytes > size_bytes {
            let text = format!(
                "snapshot {source} has {} bytes, which do not fit into {size_bytes}; ask for more",
                found.size_bytes
            );
            return Err(Refused::provisioning(text));
        }
        Ok((found.pool, found.path))
    }

    /// The pool of what it is cloned from, if there is room; else the one with the most.
    pub(super) async fn choose_pool(&self, plan: &Plan, near: Option<Arc<Pool>>) -> Result<Arc<Pool>, Stop> {
        let mut candidates = self.pools.candidates(&plan.tags);
        if candidates.is_empty() {
            let text = format!("no disk of node {} has the tags {}", self.node_name, plan.tags.join(", "));
            return Err(Refused::provisioning(text).into());
        }
        let (percent, promised) = (self.overcommit().await?, Pools::promised(&self.volumes.list(), &self.node_name));
        let room = |pool: &Pool| {
            let capacity = pool.usage().map_or(0, |usage| usage.capacity_bytes);
            let limit = capacity / 100 * percent;
            limit.saturating_sub(promised.get(pool.id()).copied().unwrap_or_default())
        };
        let is_near = |pool: &Arc<Pool>| near.as_ref().is_some_and(|near| near.id() == pool.id());
        candidates.sort_by_key(|pool| (!is_near(pool), std::cmp::Reverse(room(pool))));
        let most = candidates.iter().map(|pool| room(pool)).max().unwrap_or(0);
        let fitting = candidates.into_iter().find(|pool| room(pool) >= plan.size_bytes);
        fitting.ok_or_else(|| {
            let text = format!(
                "insufficient storage: {} MiB are asked for, and pools of node {} may promise {} MiB more (overcommit {percent} %)",
                plan.size_bytes >> 20,
                self.node_name,
                most >> 20
            );
            Refused::provisioning(text).into()
        })
    }
}

fn check_mode(claim: &PersistentVolumeClaim, snapshot: &Key, taken: Option<&str>) -> Result<(), Refused> {
    let mode = claim.spec.as_ref().and_then(|spec| spec.volume_mode.as_deref()).unwrap_or("Filesystem");
    if taken.is_some_and(|taken| taken != mode) {
        let text = format!("snapshot {snapshot} was taken of a volume with another volumeMode");
        return Err(Refused::provisioning(text));
    }
    Ok(())
}

/// Why a volume is not made.
#[derive(Debug)]
pub(super) enum Stop {
    Api(kube::Error),
    Refused(Refused),
    /// Somebody is making it.
    Waits(String),
}

impl From<kube::Error> for Stop {
    fn from(error: kube::Error) -> Self {
        Self::Api(error)
    }
}

impl From<Refused> for Stop {
    fn from(refused: Refused) -> Self {
        Self::Refused(refused)
    }
}

fn refusal(error: &VolumeError) -> Refused {
    Refused::provisioning(Chain(error).to_string())
}
