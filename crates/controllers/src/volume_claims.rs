//! The disks that come with a machine: claims of Harvester's annotation, data volumes of KubeVirt's templates.
//!
//! `harvesterhci.io/volumeClaimTemplates` lists claims: those that are missing are made, those that are smaller than the
//! list says grow, none ever shrinks. A claim tells by an annotation which machines it belongs to. When a machine goes,
//! the claims that `harvesterhci.io/removedPersistentVolumeClaims` names go with it, and all others stay. Data volumes of
//! templates belong to the machine as objects do, so that the garbage collector takes them.
//!
//! What to do is worked out by `wanted` and `owners`; here it is done.

mod owners;
mod wanted;

use std::sync::Arc;
use std::time::Duration;

use croft_api::cdi::DataVolume;
use croft_api::harvester::VirtualMachineImage;
use croft_api::kubevirt::VirtualMachine;
use croft_reconcile::failure::{self, absent_is_none, is_conflict};
use croft_reconcile::{Change, Error, Events, Key, Keys, Loop, Received};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::MANAGER;
use crate::inventory::Inventory;
use crate::virtual_machine::view::{annotation, is_being_deleted, name, namespace};

const WORKERS: usize = 8;
/// Names, separated by commas.
const REMOVED: &str = "harvesterhci.io/removedPersistentVolumeClaims";
/// The content of an image: no machine's own.
const GOLDEN_IMAGE: &str = "harvesterhci.io/goldenImage";

/// Something to look at.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Work {
    Machine(Key),
    /// A claim of a machine that is gone.
    Leftover(Key),
}

pub(crate) struct VolumeClaims {
    client: Client,
    inventory: Inventory,
    events: Events,
    keys: Keys<Work>,
}

impl VolumeClaims {
    pub(crate) fn new(client: Client, inventory: Inventory, events: Events) -> (Arc<Self>, Received<Work>) {
        let (keys, received) = Keys::channel();
        (Arc::new(Self { client, inventory, events, keys }), received)
    }

    pub(crate) async fn run(self: Arc<Self>, received: Received<Work>, stop: CancellationToken) {
        let reconcile = |work: Work| {
            let claims = Arc::clone(&self);
            async move { claims.reconcile(work).await }
        };
        let work = Loop { name: "volume claims", workers: WORKERS, stop };
        work.run(received, self.inventory.synced(), reconcile).await;
    }

    pub(crate) async fn machine_changed(&self, change: &Change<VirtualMachine>) {
        let (Some(old), None) = (&change.old, &change.new) else {
            self.keys.send(Work::Machine(change.key.clone()), Duration::ZERO).await;
            return;
        };
        // Whatever could not be let go while the machine was there.
        let owned = self.owned_by(&change.key).into_iter().map(|claim| Key::of(&*claim));
        let removed = removed(old).into_iter().map(|name| Key::new(change.key.namespace.clone(), name));
        for key in owned.chain(removed.filter(|key| self.inventory.claims.claims.get(key).is_some())) {
            self.keys.send(Work::Leftover(key), Duration::ZERO).await;
        }
    }

    /// One that is bound may grow, one that is gone is missed, one that should be gone may have been forgotten.
    pub(crate) async fn claim_changed(&self, claim: &Key) {
        let there = self.inventory.claims.claims.get(claim);
        if there.is_some_and(|there| annotation(&there.metadata, TO_BE_REMOVED).is_some()) {
            self.keys.send(Work::Leftover(claim.clone()), Duration::ZERO).await;
        }
        for machine in self.inventory.machines.list() {
            let is_its = namespace(&machine.metadata) == claim.namespace && wanted::mentions(&machine, &claim.name);
            if is_its {
                self.keys.send(Work::Machine(Key::of(&*machine)), Duration::ZERO).await;
            }
        }
    }

    async fn reconcile(&self, work: Work) -> Result<(), Error> {
        match work {
            Work::Leftover(key) => self.disown_gone(&key).await,
            Work::Machine(key) => match self.inventory.machines.get(&key) {
                Some(machine) if is_being_deleted(&machine.metadata) => Ok(()),
                Some(machine) => Box::pin(self.provide(&key, &machine)).await,
                None => Ok(()),
            },
        }
    }

    async fn provide(&self, key: &Key, machine: &VirtualMachine) -> Result<(), Error> {
        for template in &machine.spec.data_volume_templates {
            let there = Key::new(key.namespace.clone(), name(&template.metadata));
            let claims = &self.inventory.claims;
            if claims.data_volumes.get(&there).is_none() && claims.claims.get(&there).is_none() {
                self.create_data_volume(machine, wanted::data_volume(machine, template)).await?;
            }
        }
        let templates = match wanted::claims(machine) {
            Ok(templates) => templates,
            Err(message) => {
                self.events.warning(machine, "InvalidVolumeClaimTemplates", &message);
                return Ok(());
            }
        };
        let mut waiting = None;
        for template in templates {
            if let Err(Error::NotYet(why)) = self.provide_claim(key, machine, template).await? {
                waiting = Some(why);
            }
        }
        self.own(key, machine).await?;
        waiting.map_or(Ok(()), |why| Err(Error::NotYet(why)))
    }

    /// The inner error is about this one claim; the others go on.
    async fn provide_claim(
        &self,
        key: &Key,
        machine: &VirtualMachine,
        mut template: PersistentVolumeClaim,
    ) -> Result<Result<(), Error>, Error> {
        let there = Key::new(key.namespace.clone(), name(&template.metadata));
        if let Some(claim) = self.inventory.claims.claims.get(&there) {
            self.grow(&claim, &template).await?;
            return Ok(Ok(()));
        }
        if let Err(why) = self.choose_class(&mut template).await? {
            self.events.warning(machine, "ImageNotReady", &why);
            return Ok(Err(Error::NotYet(why)));
        }
        let api: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), &key.namespace);
        match api.create(&params(), &template).await {
            Ok(created) => {
                self.inventory.claims.claims.insert(there, created);
                Ok(Ok(()))
            }
            Err(error) if is_conflict(&error) => Ok(Ok(())),
            Err(error) if is_refusal(&error) => {
                let why = format!("claim {}: {}", name(&template.metadata), failure::message(&error));
                self.events.warning(machine, "FailedCreate", &why);
                Ok(Err(Error::NotYet(why)))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// A claim of an image has the image's class, unless it names one. The inner error says what is missing.
    async fn choose_class(&self, claim: &mut PersistentVolumeClaim) -> Result<Result<(), String>, Error> {
        let Some(id) = annotation(&claim.metadata, wanted::IMAGE_ID).filter(|id| !id.is_empty()) else {
            return Ok(Ok(()));
        };
        let Some((namespace, image)) = id.split_once('/') else {
            return Ok(Err(format!("{id:?} names no image; it should be <namespace>/<name>")));
        };
        let api: Api<VirtualMachineImage> = Api::namespaced(self.client.clone(), namespace);
        let Some(image) = absent_is_none(api.get(image).await)? else {
            return Ok(Err(format!("there is no image {id}")));
        };
        let spec = claim.spec.get_or_insert_default();
        if spec.storage_class_name.as_deref().unwrap_or_default().is_empty() {
            let class = image.status.and_then(|status| status.storage_class_name);
            let Some(class) = class else { return Ok(Err(format!("image {id} has no storage class yet"))) };
            spec.storage_class_name = Some(class);
        }
        Ok(Ok(()))
    }

    async fn grow(&self, claim: &PersistentVolumeClaim, template: &PersistentVolumeClaim) -> Result<(), Error> {
        let Some(size) = wanted::growth(claim, template) else { return Ok(()) };
        let change = json!({ "spec": { "resources": { "requests": { "storage": size } } } });
        match self.patch_claim(claim, &change).await {
            Err(error) if is_refusal(&error) => {
                self.events.warning(claim, "VolumeResizeFailed", &failure::message(&error));
                Ok(())
            }
            other => Ok(other?),
        }
    }

    async fn create_data_volume(&self, machine: &VirtualMachine, data_volume: DataVolume) -> Result<(), Error> {
        let api: Api<DataVolume> = Api::namespaced(self.client.clone(), namespace(&machine.metadata));
        let key = Key::new(namespace(&machine.metadata), name(&data_volume.metadata));
        match api.create(&params(), &data_volume).await {
            Ok(created) => {
                self.events.normal(machine, "SuccessfulDataVolumeCreate", &format!("Created DataVolume {}", key.name));
                self.inventory.claims.data_volumes.insert(key, created);
                Ok(())
            }
            Err(error) if is_conflict(&error) => Ok(()),
            Err(error) => {
                let text = format!("Error creating DataVolume {}: {}", key.name, failure::message(&error));
                self.events.warning(machine, "FailedDataVolumeCreate", &text);
                Err(error.into())
            }
        }
    }

    fn owned_by(&self, machine: &Key) -> Vec<Arc<PersistentVolumeClaim>> {
        let claims = self.inventory.claims.claims.list();
        claims.into_iter().filter(|claim| owners::of(&claim.metadata).contains(&machine.to_string())).collect()
    }

    /// The claims say whose they are: those that the machine uses do, those that it used to use do no longer.
    async fn own(&self, key: &Key, machine: &VirtualMachine) -> Result<(), Error> {
        let owned = self.owned_by(key);
        let lost = owned.iter().filter(|claim| !wanted::mentions(machine, name(&claim.metadata)));
        for claim in lost {
            self.patch_claim(claim, &owners::without(&claim.metadata, &key.to_string())).await?;
        }
        for name in wanted::names(machine) {
            let Some(claim) = self.inventory.claims.claims.get(&Key::new(key.namespace.clone(), name)) else {
                continue;
            };
            if !owners::of(&claim.metadata).contains(&key.to_string()) && !is_being_deleted(&claim.metadata) {
                self.patch_claim(&claim, &owners::with(&claim.metadata, &key.to_string())).await?;
            }
        }
        Ok(())
    }

    async fn patch_claim(&self, claim: &PersistentVolumeClaim, change: &Value) -> Result<(), kube::Error> {
        let api: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), namespace(&claim.metadata));
        let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        let patched = api.patch(name(&claim.metadata), &params, &Patch::Merge(change)).await;
        if let Some(patched) = absent_is_none(patched)? {
            self.inventory.claims.claims.wrote(patched);
        }
        Ok(())
    }

    /// A claim whose machine is gone belongs to nobody then, and goes if the machine asked for that.
    async fn disown_gone(&self, key: &Key) -> Result<(), Error> {
        let Some(claim) = self.inventory.claims.claims.get(key) else { return Ok(()) };
        for owner in owners::of(&claim.metadata) {
            let machine = owner.split_once('/').map(|(namespace, name)| Key::new(namespace, name));
            if machine.is_none_or(|machine| self.inventory.machines.get(&machine).is_none()) {
                self.patch_claim(&claim, &owners::without(&claim.metadata, &owner)).await?;
            }
        }
        if annotation(&claim.metadata, TO_BE_REMOVED).is_none() || is_being_deleted(&claim.metadata) {
            return Ok(());
        }
        match delete(&self.client, &claim).await {
            Err(error) if is_refusal(&error) => Err(Error::NotYet(failure::message(&error))),
            other => Ok(other?),
        }
    }
}

/// The claim outlives its machine by a moment only.
const TO_BE_REMOVED: &str = "croft.io/removed-with-machine";

/// Lets go of a machine's claims, just before the machine goes: what it asked to be removed is deleted. A claim that may
/// not be deleted while the machine is there is marked, and deleted when it is gone.
pub(crate) async fn release(
    client: &Client,
    inventory: &Inventory,
    machine: &VirtualMachine,
) -> Result<(), kube::Error> {
    let machine_key = Key::of(machine);
    for name in removed(machine) {
        let Some(claim) = inventory.claims.claims.get(&Key::new(machine_key.namespace.clone(), name)) else { continue };
        if annotation(&claim.metadata, GOLDEN_IMAGE) == Some("true") || is_being_deleted(&claim.metadata) {
            continue;
        }
        let api: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), &machine_key.namespace);
        let mut change = owners::without(&claim.metadata, &machine_key.to_string());
        change["metadata"]["annotations"][TO_BE_REMOVED] = json!(machine.metadata.uid);
        let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        let patched = api.patch(self::name(&claim.metadata), &params, &Patch::Merge(&change)).await;
        let Some(patched) = absent_is_none(patched)? else { continue };
        let result = delete(client, &patched).await;
        inventory.claims.claims.wrote(patched);
        match result {
            Err(error) if is_refusal(&error) => {
                tracing::debug!(claim = name, error = %croft_meta::Chain(&error), "deleted once the machine is gone");
            }
            other => other?,
        }
    }
    Ok(())
}

async fn delete(client: &Client, claim: &PersistentVolumeClaim) -> Result<(), kube::Error> {
    let api: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), namespace(&claim.metadata));
    let same = kube::api::Preconditions { uid: claim.metadata.uid.clone(), resource_version: None };
    let params = DeleteParams { preconditions: Some(same), ..DeleteParams::default() };
    absent_is_none(api.delete(name(&claim.metadata), &params).await).map(drop)
}

fn removed(machine: &VirtualMachine) -> Vec<&str> {
    let list = annotation(&machine.metadata, REMOVED).unwrap_or_default();
    list.split(',').map(str::trim).filter(|name| !name.is_empty()).collect()
}

fn params() -> PostParams {
    PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() }
}

/// The server understood, and will not; trying again at once changes nothing.
fn is_refusal(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if (400..500).contains(&status.code) && status.code != 429)
}

#[cfg(test)]
mod tests;
