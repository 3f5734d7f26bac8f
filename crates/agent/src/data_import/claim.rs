//! The claim of a DataVolume, and what CDI's annotations on it mean.

use std::collections::BTreeMap;

use croft_api::cdi::filling::{POD_PHASE, POPULATED_FOR, PREALLOCATED, PREALLOCATION_REQUESTED, UPLOAD_TARGET};
use croft_api::cdi::{DataVolume, StorageProfile, StorageSpec};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, PersistentVolumeClaimSpec, VolumeResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::ObjectMeta;
use kube::{Resource, ResourceExt};
use serde_json::{Value, json};

const POD_READY: &str = "cdi.kubevirt.io/storage.pod.ready";
const CONTENT_TYPE: &str = "cdi.kubevirt.io/storage.contentType";
const RUNNING: &str = "cdi.kubevirt.io/storage.condition.running";
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

pub(super) fn is_bound(claim: &PersistentVolumeClaim) -> bool {
    claim.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Bound"))
}

pub(super) fn is_archive(claim: &PersistentVolumeClaim) -> bool {
    claim.annotations().get(CONTENT_TYPE).is_some_and(|kind| kind == "archive")
}

/// Made for it, or filled for it before it was.
pub(super) fn belongs_to(claim: &PersistentVolumeClaim, volume: &DataVolume) -> bool {
    let is_owner = |owner: &OwnerReference| Some(&owner.uid) == volume.meta().uid.as_ref();
    claim.owner_references().iter().any(is_owner)
        || claim.annotations().get(POPULATED_FOR).is_some_and(|name| *name == volume.name_any())
}

/// What is said of a claim that can be uploaded into.
pub(super) fn offered() -> Value {
    json!({ "metadata": { "annotations": {
        POD_PHASE: "Running",
        POD_READY: "true",
        RUNNING: "true",
        format!("{RUNNING}.reason"): "Pod is running",
    } } })
}

/// What is said of a claim that is filled.
pub(super) fn filled(is_preallocated: bool) -> Value {
    json!({ "metadata": { "annotations": {
        POD_PHASE: "Succeeded",
        POD_READY: "false",
        RUNNING: "false",
        format!("{RUNNING}.reason"): "Completed",
        PREALLOCATED: is_preallocated.then_some("true"),
    } } })
}

pub(super) fn class_of(volume: &DataVolume) -> Option<String> {
    let spec = &volume.spec;
    let by_claim = spec.pvc.as_ref().and_then(|claim| claim.storage_class_name.clone());
    by_claim.or_else(|| spec.storage.as_ref()?.storage_class_name.clone()).filter(|name| !name.is_empty())
}

/// How a claim is filled, as far as its annotations tell.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Filling {
    pub(super) is_upload: bool,
    /// All its blocks are taken from the pool when it is filled.
    pub(super) is_preallocated: bool,
}

/// The claim that a DataVolume asks for, of the same name. `source_size` is how large what it copies is.
pub(super) fn build(
    volume: &DataVolume,
    profile: Option<&StorageProfile>,
    source_size: Option<u64>,
    filling: Filling,
) -> Result<PersistentVolumeClaim, String> {
    let mut spec = match (&volume.spec.pvc, &volume.spec.storage) {
        (Some(claim), _) => claim.clone(),
        (None, Some(storage)) => from_storage(storage, profile),
        (None, None) => return Err("the DataVolume has neither spec.pvc nor spec.storage".to_owned()),
    };
    // What fills it is our work, not the provisioner's.
    (spec.data_source, spec.data_source_ref) = (None, None);
    let requests = spec.resources.get_or_insert_default().requests.get_or_insert_default();
    if !requests.contains_key("storage") {
        let size = source_size.ok_or("the DataVolume does not say how large it is, and its source cannot be asked")?;
        requests.insert("storage".to_owned(), Quantity(size.to_string()));
    }
    let owner = volume.controller_owner_ref(&()).ok_or("the DataVolume has no uid")?;
    let metadata = ObjectMeta {
        name: volume.metadata.name.clone(),
        namespace: volume.metadata.namespace.clone(),
        labels: Some(labels(volume)),
        annotations: Some(annotations(volume, filling)),
        owner_references: Some(vec![owner]),
        ..ObjectMeta::default()
    };
    Ok(PersistentVolumeClaim { metadata, spec: Some(spec), status: None })
}

fn labels(volume: &DataVolume) -> BTreeMap<String, String> {
    let mut labels = volume.labels().clone();
    labels.insert("app".to_owned(), "containerized-data-importer".to_owned());
    labels
}

/// The DataVolume's own go along: one of them may name an image.
fn annotations(volume: &DataVolume, filling: Filling) -> BTreeMap<String, String> {
    let mut annotations = volume.annotations().clone();
    // Not what is said of claims by us.
    for own in [LAST_APPLIED, POPULATED_FOR, PREALLOCATED] {
        annotations.remove(own);
    }
    let content = volume.spec.content_type.clone().filter(|kind| !kind.is_empty());
    annotations.insert(CONTENT_TYPE.to_owned(), content.unwrap_or_else(|| "kubevirt".to_owned()));
    annotations.insert(POD_PHASE.to_owned(), "Pending".to_owned());
    if filling.is_upload {
        annotations.insert(UPLOAD_TARGET.to_owned(), String::new());
    }
    if filling.is_preallocated {
        annotations.insert(PREALLOCATION_REQUESTED.to_owned(), "true".to_owned());
    }
    annotations
}

/// What it does not say is the class's word, or what Harvester's volumes are.
fn from_storage(storage: &StorageSpec, profile: Option<&StorageProfile>) -> PersistentVolumeClaimSpec {
    let sets = profile.and_then(|profile| profile.status.as_ref()).map(|status| status.claim_property_sets.as_slice());
    let set = sets.and_then(|sets| sets.first());
    let modes = Some(storage.access_modes.clone()).filter(|modes| !modes.is_empty());
    let modes = modes.or_else(|| set.map(|set| set.access_modes.clone()).filter(|modes| !modes.is_empty()));
    let mode = storage.volume_mode.clone().or_else(|| set?.volume_mode.clone());
    PersistentVolumeClaimSpec {
        access_modes: Some(modes.unwrap_or_else(|| vec!["ReadWriteMany".to_owned()])),
        volume_mode: Some(mode.unwrap_or_else(|| "Block".to_owned())),
        resources: Some(VolumeResourceRequirements { ..storage.resources.clone() }),
        storage_class_name: storage.storage_class_name.clone(),
        volume_name: storage.volume_name.clone(),
        selector: storage.selector.clone(),
        ..PersistentVolumeClaimSpec::default()
    }
}

#[cfg(test)]
mod tests {
    use croft_api::cdi::filling::{is_being_filled, is_upload_target, wants_preallocation};

    use super::*;

    fn volume(spec: &Value) -> DataVolume {
        let metadata = json!({ "namespace": "ns", "name": "disk", "uid": "1",
            "annotations": { "harvesterhci.io/imageId": "ns/image", LAST_APPLIED: "x" } });
        serde_json::from_value(json!({ "metadata": metadata, "spec": spec })).unwrap()
    }

    #[test]
    fn what_a_data_volume_leaves_out_comes_from_the_class_or_is_as_harvester_has_it() {
        let profile: StorageProfile = serde_json::from_value(json!({ "metadata": {"name": "c"}, "spec": {},
            "status": {"claimPropertySets": [{"accessModes": ["ReadWriteOnce"], "volumeMode": "Filesystem"}]} }))
        .unwrap();
        let plain = volume(&json!({ "storage": {"resources": {"requests": {"storage": "1Gi"}}} }));
        let claim = build(&plain, None, None, Filling::default()).unwrap();
        let spec = claim.spec.clone().unwrap();
        assert_eq!(
            (spec.access_modes.unwrap().join(","), spec.volume_mode.unwrap()),
            ("ReadWriteMany".into(), "Block".into())
        );
        assert!(belongs_to(&claim, &plain) && is_being_filled(&claim) && !is_upload_target(&claim));
        assert_eq!(claim.annotations()["harvesterhci.io/imageId"], "ns/image");
        assert!(!claim.annotations().contains_key(LAST_APPLIED));
        let filling = Filling { is_upload: true, is_preallocated: true };
        let claim = build(&plain, Some(&profile), None, filling).unwrap();
        assert!(is_upload_target(&claim) && wants_preallocation(&claim));
        let spec = claim.spec.unwrap();
        assert_eq!(
            (spec.access_modes.unwrap().join(","), spec.volume_mode.unwrap()),
            ("ReadWriteOnce".into(), "Filesystem".into())
        );
    }

    #[test]
    fn the_size_may_be_that_of_the_source() {
        let volume = volume(&json!({ "storage": {} }));
        assert!(build(&volume, None, None, Filling::default()).unwrap_err().contains("how large"));
        let claim = build(&volume, None, Some(1 << 30), Filling::default()).unwrap();
        let requests = claim.spec.unwrap().resources.unwrap().requests.unwrap();
        assert_eq!(requests["storage"].0, "1073741824");
    }
}
