//! The objects of claims and volumes, as we write them.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    CSIPersistentVolumeSource, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, ObjectReference,
    PersistentVolume, PersistentVolumeClaim, PersistentVolumeSpec, VolumeNodeAffinity,
};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Resource, ResourceExt};
use serde_json::{Value, json};

use super::{Inner, binding, plan};
use crate::MANAGER;

pub(super) const CLAIM_PROTECTION: &str = "kubernetes.io/pvc-protection";
pub(super) const VOLUME_PROTECTION: &str = "kubernetes.io/pv-protection";
const MIB: u64 = 1 << 20;

pub(super) fn params() -> PatchParams {
    PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() }
}

/// A claim's volume is called after its uid, which nobody else ever has.
pub(super) fn volume_name(claim: &PersistentVolumeClaim) -> String {
    format!("pvc-{}", claim.metadata.uid.as_deref().unwrap_or_default())
}

/// In the user's own words, if it is exactly what they asked for.
pub(super) fn size_text(size_bytes: u64, claim: &PersistentVolumeClaim) -> Quantity {
    let requests = claim.spec.as_ref().and_then(|spec| spec.resources.as_ref()).and_then(|all| all.requests.as_ref());
    match requests.and_then(|all| all.get("storage")) {
        Some(asked) if binding::bytes(asked) == size_bytes => asked.clone(),
        _ if size_bytes.is_multiple_of(MIB) => Quantity(format!("{}Mi", size_bytes / MIB)),
        _ => Quantity(size_bytes.to_string()),
    }
}

/// The object for a file that was made for a claim.
pub(super) fn new_volume(
    claim: &PersistentVolumeClaim,
    class: &StorageClass,
    plan: &plan::Plan,
    node: &str,
    pool: &str,
) -> PersistentVolume {
    let name = volume_name(claim);
    let spec = claim.spec.clone().unwrap_or_default();
    let is_block = spec.volume_mode.as_deref() == Some("Block");
    let mut attributes: BTreeMap<String, String> = class.parameters.clone().unwrap_or_default();
    attributes.insert(binding::POOL_ATTRIBUTE.to_owned(), pool.to_owned());
    let source = CSIPersistentVolumeSource {
        driver: class.provisioner.clone(),
        fs_type: (!is_block).then(|| "ext4".to_owned()),
        volume_attributes: Some(attributes),
        volume_handle: name.clone(),
        ..CSIPersistentVolumeSource::default()
    };
    let reclaim = class.reclaim_policy.clone().unwrap_or_else(|| "Delete".to_owned());
    let annotations = [("pv.kubernetes.io/provisioned-by".to_owned(), class.provisioner.clone())];
    PersistentVolume {
        metadata: ObjectMeta {
            name: Some(name),
            annotations: Some(annotations.into()),
            finalizers: Some(vec![VOLUME_PROTECTION.to_owned()]),
            ..ObjectMeta::default()
        },
        spec: Some(PersistentVolumeSpec {
            access_modes: spec.access_modes,
            capacity: Some([("storage".to_owned(), size_text(plan.size_bytes, claim))].into()),
            claim_ref: Some(reference(claim)),
            csi: Some(source),
            node_affinity: Some(only_on(node)),
            persistent_volume_reclaim_policy: Some(reclaim),
            storage_class_name: spec.storage_class_name,
            volume_mode: spec.volume_mode,
            mount_options: class.mount_options.clone(),
            ..PersistentVolumeSpec::default()
        }),
        status: None,
    }
}

fn only_on(node: &str) -> VolumeNodeAffinity {
    let requirement = NodeSelectorRequirement {
        key: "kubernetes.io/hostname".to_owned(),
        operator: "In".to_owned(),
        values: Some(vec![node.to_owned()]),
    };
    let term = NodeSelectorTerm { match_expressions: Some(vec![requirement]), match_fields: None };
    VolumeNodeAffinity { required: Some(NodeSelector { node_selector_terms: vec![term] }) }
}

pub(super) fn reference(claim: &PersistentVolumeClaim) -> ObjectReference {
    ObjectReference { field_path: None, ..claim.object_ref(&()) }
}

/// What a claim is told when it has its volume.
pub(super) fn bound_claim(claim: &PersistentVolumeClaim, volume: &PersistentVolume, is_chosen: bool) -> Value {
    let mut annotations = json!({ "pv.kubernetes.io/bind-completed": "yes" });
    if is_chosen {
        annotations["pv.kubernetes.io/bound-by-controller"] = json!("yes");
    }
    if let Some(driver) = volume.spec.as_ref().and_then(|spec| spec.csi.as_ref()).map(|source| &source.driver) {
        annotations["volume.kubernetes.io/storage-provisioner"] = json!(driver);
        annotations["volume.beta.kubernetes.io/storage-provisioner"] = json!(driver);
    }
    json!({
        "metadata": {
            "resourceVersion": claim.metadata.resource_version,
            "annotations": annotations,
            "finalizers": with_finalizer(claim, CLAIM_PROTECTION),
        },
        "spec": { "volumeName": volume.metadata.name },
    })
}

pub(super) fn with_finalizer(object: &impl Resource, name: &str) -> Vec<String> {
    let mut finalizers = object.finalizers().to_vec();
    if !finalizers.iter().any(|found| found == name) {
        finalizers.push(name.to_owned());
    }
    finalizers
}

/// A change that takes a finalizer away, if nobody was faster.
pub(super) fn without_finalizer(object: &impl Resource, name: &str) -> Value {
    let left: Vec<&String> = object.finalizers().iter().filter(|found| *found != name).collect();
    json!({ "metadata": { "resourceVersion": object.meta().resource_version, "finalizers": left } })
}

pub(super) fn has_finalizer(object: &impl Resource, name: &str) -> bool {
    object.finalizers().iter().any(|found| found == name)
}

/// Writes. What comes back is in the caches at once: whoever asks next sees it.
impl Inner {
    pub(super) fn claim_api(&self, namespace: &str) -> Api<PersistentVolumeClaim> {
        Api::namespaced(self.client.clone(), namespace)
    }

    pub(super) fn volume_api(&self) -> Api<PersistentVolume> {
        Api::all(self.client.clone())
    }

    pub(super) async fn patch_claim(
        &self,
        claim: &PersistentVolumeClaim,
        change: &Value,
    ) -> Result<PersistentVolumeClaim, kube::Error> {
        let api = self.claim_api(claim.metadata.namespace.as_deref().unwrap_or_default());
        let written = api.patch(&claim.name_any(), &params(), &Patch::Merge(change)).await?;
        self.keep_claim(&written);
        Ok(written)
    }

    pub(super) async fn patch_claim_status(
        &self,
        claim: &PersistentVolumeClaim,
        status: Value,
    ) -> Result<PersistentVolumeClaim, kube::Error> {
        let api = self.claim_api(claim.metadata.namespace.as_deref().unwrap_or_default());
        let change = Patch::Merge(json!({ "status": status }));
        let written = api.patch_status(&claim.name_any(), &params(), &change).await?;
        self.keep_claim(&written);
        Ok(written)
    }

    fn keep_claim(&self, claim: &PersistentVolumeClaim) {
        self.claims.wrote(claim.clone());
        self.changed();
    }

    fn keep_volume(&self, volume: &PersistentVolume) {
        self.volumes.wrote(volume.clone());
        self.changed();
    }

    pub(super) async fn create_volume(&self, volume: &PersistentVolume) -> Result<PersistentVolume, kube::Error> {
        let params = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
        let written = self.volume_api().create(&params, volume).await?;
        // New, so that nothing older can be meant.
        self.volumes.insert(croft_reconcile::Key::of(&written), written.clone());
        self.changed();
        Ok(written)
    }

    pub(super) async fn patch_volume(&self, name: &str, change: &Value) -> Result<PersistentVolume, kube::Error> {
        let written = self.volume_api().patch(name, &params(), &Patch::Merge(change)).await?;
        self.keep_volume(&written);
        Ok(written)
    }

    /// Says which phase a volume is in, unless it says so already.
    pub(super) async fn set_volume_phase(
        &self,
        volume: &PersistentVolume,
        phase: &str,
        reason: Option<&str>,
        message: Option<&str>,
    ) -> Result<(), kube::Error> {
        let status = volume.status.as_ref();
        let is_phase = status.and_then(|status| status.phase.as_deref()) == Some(phase);
        let is_same = is_phase
            && status.and_then(|status| status.reason.as_deref()) == reason
            && status.and_then(|status| status.message.as_deref()) == message;
        if is_same {
            return Ok(());
        }
        let mut status = json!({ "phase": phase, "reason": reason, "message": message });
        if !is_phase {
            status["lastPhaseTransitionTime"] = json!(croft_meta::time::format_seconds(Timestamp::now()));
        }
        let change = Patch::Merge(json!({ "status": status }));
        let written = self.volume_api().patch_status(&volume.name_any(), &params(), &change).await?;
        self.keep_volume(&written);
        Ok(())
    }
}
