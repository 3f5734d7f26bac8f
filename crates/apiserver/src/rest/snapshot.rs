//! What can be done with a snapshot of a volume, and how one is asked for.

use croft_api::harvester::settings::default_of;
use croft_meta::{ApiError, object};
use serde::Deserialize;
use serde_json::{Value, json};

use super::acting::{Acting, name};
use super::actions::not_available;
use super::reply::invalid;
use super::resource::no_content;
use super::state::Look;
use crate::answer::Answer;

pub(super) const GROUP: &str = "snapshot.storage.k8s.io";
pub(super) const SNAPSHOTS: &str = "volumesnapshots";
const CLAIMS: &str = "persistentvolumeclaims";
const IMAGE_ID: &str = "harvesterhci.io/imageId";
const CLASS: &str = "harvesterhci.io/storageClassName";
const PROVISIONER: &str = "harvesterhci.io/storageProvisioner";
const BOUND_BY: &str = "volume.kubernetes.io/storage-provisioner";
const LONGHORN: &str = "driver.longhorn.io";

#[derive(Default, Deserialize)]
#[serde(default)]
struct Named {
    name: String,
}

/// A snapshot of a claim, of the class that is set for whoever made its volume. What the claim was goes along, so that it
/// can be restored without it.
pub(super) async fn take(acting: &Acting<'_>, claim: &Value) -> Result<(), ApiError> {
    let asked: Named = acting.body()?;
    let new = name("name", &asked.name)?;
    let provisioner = object::annotation(claim, BOUND_BY).unwrap_or(LONGHORN);
    let Some(class) = class_for(acting, provisioner) else {
        let why = format!("csi-driver-config has no volumeSnapshotClassName for {provisioner}");
        return Err(invalid("InvalidState", why));
    };
    let mut annotations = json!({ PROVISIONER: provisioner });
    if let Some(class) = claim["spec"]["storageClassName"].as_str() {
        annotations[CLASS] = json!(class);
    }
    if let Some(image) = object::annotation(claim, IMAGE_ID) {
        annotations[IMAGE_ID] = json!(image);
    }
    let wanted = json!({
        "metadata": { "name": new, "annotations": annotations },
        "spec": { "volumeSnapshotClassName": class, "source": { "persistentVolumeClaimName": acting.name } },
    });
    acting.create(GROUP, SNAPSHOTS, acting.namespace, wanted).await.map(drop)
}

fn class_for(acting: &Acting<'_>, provisioner: &str) -> Option<String> {
    let setting = acting.find("harvesterhci.io", "settings", "", "csi-driver-config").unwrap_or_default();
    let value = setting["value"].as_str().filter(|value| !value.is_empty());
    let value = value.or_else(|| default_of("csi-driver-config")).unwrap_or_default();
    let classes: Value = serde_json::from_str(value).unwrap_or_default();
    classes[provisioner]["volumeSnapshotClassName"].as_str().filter(|class| !class.is_empty()).map(str::to_owned)
}

pub(super) fn offered(snapshot: &Look<'_>) -> Vec<&'static str> {
    if snapshot.status.ready_to_use { vec!["restore"] } else { Vec::new() }
}

pub(super) async fn act(acting: &Acting<'_>, action: &str) -> Result<Answer, ApiError> {
    match action {
        "restore" => restore(acting, &acting.object().await?).await?,
        other => return Err(not_available(other)),
    }
    Ok(no_content())
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Restore {
    name: String,
    storage_class_name: String,
}

/// A new volume with what the snapshot holds.
async fn restore(acting: &Acting<'_>, snapshot: &Value) -> Result<(), ApiError> {
    let asked: Restore = acting.body()?;
    let new = name("name", &asked.name)?;
    if snapshot["status"]["readyToUse"] != true {
        return Err(acting.conflict("the snapshot is not ready to use"));
    }
    let bound = snapshot["status"]["boundVolumeSnapshotContentName"].as_str().unwrap_or_default();
    let content = acting.find(GROUP, "volumesnapshotcontents", "", bound).unwrap_or_default();
    let source = snapshot["spec"]["source"]["persistentVolumeClaimName"].as_str().unwrap_or_default();
    let claim = acting.find("", CLAIMS, acting.namespace, source).unwrap_or_default();
    let mut wanted = json!({
        "metadata": { "name": new },
        "spec": {
            "accessModes": if claim["spec"]["accessModes"].is_array() { claim["spec"]["accessModes"].clone() } else { json!(["ReadWriteMany"]) },
            "volumeMode": content["spec"]["sourceVolumeMode"].as_str().unwrap_or("Block"),
            "resources": { "requests": { "storage": snapshot["status"]["restoreSize"] } },
            "dataSource": { "apiGroup": GROUP, "kind": "VolumeSnapshot", "name": acting.name },
        },
    });
    let known = object::annotation(snapshot, CLASS).or_else(|| claim["spec"]["storageClassName"].as_str());
    let class = Some(asked.storage_class_name.as_str()).filter(|class| !class.is_empty()).or(known);
    if let Some(class) = class {
        wanted["spec"]["storageClassName"] = json!(class);
    }
    if let Some(image) = object::annotation(snapshot, IMAGE_ID).or_else(|| object::annotation(&claim, IMAGE_ID)) {
        wanted["metadata"]["annotations"] = json!({ IMAGE_ID: image });
    }
    acting.create("", CLAIMS, acting.namespace, wanted).await.map(drop)
}
