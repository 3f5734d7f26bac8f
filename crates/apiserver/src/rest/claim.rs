//! What can be done with a volume, that is with its claim.

use std::borrow::Cow;

use croft_api::cdi::filling;
use croft_meta::{ApiError, Quantity, object};
use serde::Deserialize;
use serde_json::{Value, json};

use super::acting::{Acting, name, required};
use super::actions::not_available;
use super::reply::invalid;
use super::resource::no_content;
use super::snapshot;
use super::state::Look;
use crate::answer::{self, Answer};

const CLAIMS: &str = "persistentvolumeclaims";
const IMAGES: (&str, &str) = ("harvesterhci.io", "virtualmachineimages");
const IMAGE_ID: &str = "harvesterhci.io/imageId";
const IMAGE_CLASS: &str = "harvesterhci.io/storageClassName";
const GOLDEN: &str = "harvesterhci.io/goldenImage";
/// The machines that a claim belongs to, as the controller writes it.
const OWNED_BY: &str = "harvesterhci.io/owned-by";

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Amounts<'a> {
    #[serde(borrow)]
    requests: Amount<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Amount<'a> {
    #[serde(borrow)]
    storage: Cow<'a, str>,
}

/// The actions that make sense for a claim as it is.
pub(super) fn offered(claim: &Look<'_>) -> Vec<&'static str> {
    let has = |text: &str| claim.metadata.annotations.is_some_and(|all| all.get().contains(text));
    let is_bound = claim.status.phase == "Bound" && !has(GOLDEN);
    let amounts = claim.spec.resources.and_then(|raw| serde_json::from_str::<Amounts<'_>>(raw.get()).ok());
    let capacity = claim.status.capacity.and_then(|raw| serde_json::from_str::<Amount<'_>>(raw.get()).ok());
    let is_growing = match (&amounts, &capacity) {
        (Some(wanted), Some(there)) => is_more(&wanted.requests.storage, &there.storage),
        _ => false,
    };
    let is_free = !has(OWNED_BY);
    [
        ("export", is_bound),
        ("clone", is_bound),
        ("snapshot", is_bound),
        ("cancelExpand", is_bound && is_growing && is_free),
        ("dataMigration", is_bound && is_free),
    ]
    .into_iter()
    .filter_map(|(action, is_usable)| is_usable.then_some(action))
    .collect()
}

fn is_more(wanted: &str, there: &str) -> bool {
    matches!((Quantity::parse(wanted), Quantity::parse(there)), (Ok(wanted), Ok(there)) if wanted > there)
}

pub(super) async fn act(acting: &Acting<'_>, action: &str) -> Result<Answer, ApiError> {
    let claim = acting.object().await?;
    match action {
        "export" => return export(acting, &claim).await,
        "clone" => clone(acting, &claim).await?,
        "cancelExpand" => cancel_expand(acting).await?,
        "dataMigration" => copy(acting, &claim).await?,
        "snapshot" => {
            is_whole(acting, &claim)?;
            snapshot::take(acting, &claim).await?;
        }
        "revert" => revert(acting, &claim).await?,
        other => return Err(not_available(other)),
    }
    Ok(no_content())
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Revert {
    snapshot: String,
}

/// The volume becomes what it was, in its place. Harvester has no such action: it is not offered, but can be asked for.
async fn revert(acting: &Acting<'_>, claim: &Value) -> Result<(), ApiError> {
    let asked: Revert = acting.body()?;
    let wanted = name("snapshot", &asked.snapshot)?;
    is_whole(acting, claim)?;
    let snapshot = acting.find(snapshot::GROUP, snapshot::SNAPSHOTS, acting.namespace, wanted);
    let snapshot = snapshot.ok_or_else(|| ApiError::not_found(snapshot::GROUP, snapshot::SNAPSHOTS, wanted))?;
    if snapshot["spec"]["source"]["persistentVolumeClaimName"] != acting.name {
        return Err(acting.conflict(&format!("snapshot {wanted} is of another volume: restore it to a new one")));
    }
    if snapshot["status"]["readyToUse"] != true {
        return Err(acting.conflict(&format!("snapshot {wanted} is not ready to use")));
    }
    let change = |claim: &mut Value| {
        if let Some(machine) = running_user_of(acting) {
            let why = format!("it is in use by the running VM {}/{machine}: stop that first", acting.namespace);
            return Err(acting.conflict(&why));
        }
        let annotations = &mut claim["metadata"]["annotations"];
        if !annotations.is_object() {
            *annotations = json!({});
        }
        annotations[filling::REVERT] = json!(wanted);
        for told in [filling::REVERTED, filling::REVERT_ERROR] {
            annotations.as_object_mut().map(|all| all.remove(told));
        }
        Ok(())
    };
    acting.change(change).await
}

/// An instance that has the claim, and has not ended.
fn running_user_of(acting: &Acting<'_>) -> Option<String> {
    let instances = acting.call.server.cache.collection("kubevirt.io/virtualmachineinstances").list(acting.namespace);
    let uses = |instance: &Value| {
        let volumes = instance.pointer("/spec/volumes").and_then(Value::as_array);
        let is_its = |volume: &Value| {
            [
                &volume["persistentVolumeClaim"]["claimName"],
                &volume["ephemeral"]["persistentVolumeClaim"]["claimName"],
                &volume["dataVolume"]["name"],
                &volume["memoryDump"]["claimName"],
            ]
            .into_iter()
            .any(|claim| claim == acting.name)
        };
        let has_ended = matches!(instance["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
        !has_ended && volumes.into_iter().flatten().any(is_its)
    };
    instances.iter().find(|instance| uses(&instance.json())).map(|instance| instance.name().to_owned())
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Export {
    display_name: String,
    namespace: String,
    storage_class_name: String,
}

/// An image with the volume's content; the answer is the image.
async fn export(acting: &Acting<'_>, claim: &Value) -> Result<Answer, ApiError> {
    let asked: Export = acting.body()?;
    let shown = required("displayName", &asked.display_name)?;
    let namespace = name("namespace", &asked.namespace)?;
    is_whole(acting, claim)?;
    let mut image = json!({
        "metadata": { "generateName": "image-", "namespace": namespace },
        "spec": {
            "displayName": shown, "sourceType": "export-from-volume",
            "pvcName": acting.name, "pvcNamespace": acting.namespace,
        },
    });
    if !asked.storage_class_name.is_empty() {
        image["metadata"]["annotations"] = json!({ IMAGE_CLASS: asked.storage_class_name });
    }
    let made = acting.create(IMAGES.0, IMAGES.1, namespace, image).await?;
    Ok(answer::json(200, &made))
}

/// What others are made from must have its content, and be no image's own.
fn is_whole(acting: &Acting<'_>, claim: &Value) -> Result<(), ApiError> {
    if object::deletion_timestamp(claim).is_some() {
        return Err(acting.conflict("it is being deleted"));
    }
    if claim["status"]["phase"] != "Bound" {
        return Err(acting.conflict("it is not bound yet"));
    }
    if object::annotation(claim, GOLDEN) == Some("true") {
        return Err(acting.conflict("it is the content of an image: use the image"));
    }
    Ok(())
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Clone {
    name: String,
}

async fn clone(acting: &Acting<'_>, claim: &Value) -> Result<(), ApiError> {
    let asked: Clone = acting.body()?;
    let new = name("name", &asked.name)?;
    is_whole(acting, claim)?;
    let mut wanted = json!({ "metadata": { "name": new }, "spec": {} });
    for field in ["accessModes", "resources", "volumeMode", "storageClassName"] {
        if !claim["spec"][field].is_null() {
            wanted["spec"][field] = claim["spec"][field].clone();
        }
    }
    wanted["spec"]["dataSource"] = json!({ "kind": "PersistentVolumeClaim", "name": acting.name });
    if let Some(image) = object::annotation(claim, IMAGE_ID) {
        wanted["metadata"]["annotations"] = json!({ IMAGE_ID: image });
    }
    acting.create("", CLAIMS, acting.namespace, wanted).await.map(drop)
}

/// Asks for no more than there is. Kubernetes lets a growth be taken back only in part, so that this is the platform's.
async fn cancel_expand(acting: &Acting<'_>) -> Result<(), ApiError> {
    if let Some(machine) = user_of(acting) {
        let why =
            format!("can not operate the volume which is currently attached to VM: {}/{machine}", acting.namespace);
        return Err(acting.conflict(&why));
    }
    let lowered = |claim: &mut Value| {
        let there = claim["status"]["capacity"]["storage"].as_str().unwrap_or_default().to_owned();
        let wanted = claim["spec"]["resources"]["requests"]["storage"].as_str().unwrap_or_default();
        if !is_more(wanted, &there) {
            return Err(acting.conflict("it is not being expanded"));
        }
        claim["spec"]["resources"]["requests"]["storage"] = json!(there);
        Ok(())
    };
    acting.change_as_platform("", lowered).await?;
    // They told of the growth.
    let cleared = |claim: &mut Value| {
        if let Some(status) = claim["status"].as_object_mut() {
            for field in ["conditions", "allocatedResourceStatuses"] {
                status.remove(field);
            }
        }
        Ok(())
    };
    acting.change_as_platform("status", cleared).await
}

/// A machine whose volumes name the claim.
fn user_of(acting: &Acting<'_>) -> Option<String> {
    let machines = acting.call.server.cache.collection("kubevirt.io/virtualmachines").list(acting.namespace);
    let uses = |machine: &Value| {
        let volumes = machine.pointer("/spec/template/spec/volumes").and_then(Value::as_array);
        volumes.into_iter().flatten().any(|volume| {
            volume["persistentVolumeClaim"]["claimName"] == acting.name || volume["dataVolume"]["name"] == acting.name
        })
    };
    machines.iter().find(|machine| uses(&machine.json())).map(|machine| machine.name().to_owned())
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Copy {
    target_volume_name: String,
    target_storage_class_name: String,
}

/// A copy in another class, which the machine can then be given. What nobody uses meanwhile is copied as it is.
async fn copy(acting: &Acting<'_>, claim: &Value) -> Result<(), ApiError> {
    let asked: Copy = acting.body()?;
    let new = name("targetVolumeName", &asked.target_volume_name)?;
    let class = name("targetStorageClassName", &asked.target_storage_class_name)?;
    is_whole(acting, claim)?;
    let Some(found) = acting.find("storage.k8s.io", "storageclasses", "", class) else {
        return Err(ApiError::not_found("storage.k8s.io", "storageclasses", class));
    };
    if !found["parameters"]["backingImage"].is_null() {
        return Err(invalid("InvalidBodyContent", format!("the storage class {class} belongs to an image")));
    }
    if let Some(machine) = user_of(acting) {
        let instance = acting.find("kubevirt.io", "virtualmachineinstances", acting.namespace, &machine);
        if instance.is_some_and(|one| !matches!(one["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))) {
            return Err(acting.conflict(&format!("it is in use by the running VM {}/{machine}", acting.namespace)));
        }
    }
    if acting.find("", CLAIMS, acting.namespace, new).is_some() {
        return Err(ApiError::already_exists("", CLAIMS, new));
    }
    let mut storage = json!({ "storageClassName": class });
    for field in ["accessModes", "resources", "volumeMode"] {
        if !claim["spec"][field].is_null() {
            storage[field] = claim["spec"][field].clone();
        }
    }
    let source = json!({ "pvc": { "namespace": acting.namespace, "name": acting.name } });
    let wanted = json!({ "metadata": { "name": new }, "spec": { "source": source, "storage": storage } });
    acting.create("cdi.kubevirt.io", "datavolumes", acting.namespace, wanted).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_growth_is_taken_back_under_the_eyes_of_policies() {
        const CLAIM: &str = "/api/v1/namespaces/default/persistentvolumeclaims/data";
        const ACTION: &str = "/v1/harvester/persistentvolumeclaims/default/data?action=cancelExpand";
        let server = crate::testing::TestServer::start().await;
        let storage = |size: &str| json!({"requests": {"storage": size}});
        let spec = json!({"accessModes": ["ReadWriteOnce"], "volumeName": "v", "resources": storage("1Gi")});
        let claim = json!({"metadata": {"name": "data"}, "spec": spec});
        server.post(CLAIM.trim_end_matches("/data"), &claim).await;
        let conditions = json!([{"type": "Resizing", "status": "True"}]);
        let bound = json!({"status": {"phase": "Bound", "capacity": {"storage": "1Gi"}, "conditions": conditions}});
        assert_eq!(server.send("PATCH", &format!("{CLAIM}/status"), &bound).await.0, 200);
        let grown = json!({"spec": {"resources": storage("2Gi")}});
        let (code, why) = server.send("PATCH", CLAIM, &grown).await;
        assert_eq!(code, 200, "{why}");
        let registration = "/apis/admissionregistration.k8s.io/v1";
        let policy = json!({"metadata": {"name": "p"}, "spec": {
            "matchConstraints": {"resourceRules": [{"operations": ["UPDATE"], "apiGroups": [""], "apiVersions": ["v1"],
                "resources": ["persistentvolumeclaims"]}]},
            "validations": [{"expression": "object.spec.resources.requests.storage != '1Gi'"}]}});
        server.post(&format!("{registration}/validatingadmissionpolicies"), &policy).await;
        let binding = json!({"metadata": {"name": "p"}, "spec": {"policyName": "p", "validationActions": ["Deny"]}});
        let bindings = format!("{registration}/validatingadmissionpolicybindings");
        server.post(&bindings, &binding).await;
        let (code, why) = server.send("POST", ACTION, &json!({})).await;
        assert_eq!(code, 422, "{why}");
        assert_eq!(server.send("DELETE", &format!("{bindings}/p"), &Value::Null).await.0, 200);
        let (code, why) = server.send("POST", ACTION, &json!({})).await;
        assert_eq!(code, 204, "{why}");
        let claim = server.get(CLAIM).await;
        assert_eq!(claim["spec"]["resources"], storage("1Gi"));
        assert!(claim["status"]["conditions"].is_null(), "{claim}");
    }

    #[test]
    fn actions_are_offered_when_they_can_be_used() {
        let claim = |phase: &str, wanted: &str, annotations: Value| {
            json!({
                "metadata": {"annotations": annotations},
                "spec": {"resources": {"requests": {"storage": wanted}}},
                "status": {"phase": phase, "capacity": {"storage": "1Gi"}},
            })
            .to_string()
        };
        for (claim, expected) in [
            (claim("Bound", "1Gi", json!({})), "export clone snapshot dataMigration"),
            (claim("Bound", "2Gi", json!({})), "export clone snapshot cancelExpand dataMigration"),
            (claim("Bound", "2Gi", json!({OWNED_BY: "x"})), "export clone snapshot"),
            (claim("Bound", "1Gi", json!({GOLDEN: "true"})), ""),
            (claim("Pending", "1Gi", json!({})), ""),
        ] {
            assert_eq!(offered(&Look::of(claim.as_bytes())).join(" "), expected, "{claim}");
        }
    }
}
