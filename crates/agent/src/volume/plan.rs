//! What a new volume for a claim is to be. Nothing is done here.

use std::sync::Arc;

use croft_api::harvester::{VirtualMachineImage, source_type};
use croft_reconcile::Key;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::api::storage::v1::StorageClass;

use super::binding;

pub(super) const IMAGE_ANNOTATION: &str = "harvesterhci.io/imageId";
/// As Longhorn, whose clients reckon with it.
const GRAIN: u64 = 2 << 20;

/// A volume that should be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) size_bytes: u64,
    pub(super) content: Content,
    /// What the disk's pool must be tagged with.
    pub(super) tags: Vec<String>,
}

/// What is in it from the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Content {
    Zeroes,
    /// The image of this uid.
    Image(String),
    Claim(Key),
    Snapshot(Key),
}

/// Rounded up to whole grains.
pub(super) fn rounded(size_bytes: u64) -> u64 {
    size_bytes.div_ceil(GRAIN).max(1).saturating_mul(GRAIN)
}

/// The claim that this one is to be a clone of.
pub(super) fn source_claim(claim: &PersistentVolumeClaim) -> Option<Key> {
    let spec = claim.spec.as_ref()?;
    let namespace = claim.metadata.namespace.as_deref().unwrap_or_default();
    let source = spec.data_source.as_ref()?;
    (source.kind == "PersistentVolumeClaim").then(|| Key::new(namespace, source.name.as_str()))
}

/// The snapshot that this one is to be made from.
pub(super) fn source_snapshot(claim: &PersistentVolumeClaim) -> Option<Key> {
    let spec = claim.spec.as_ref()?;
    let namespace = claim.metadata.namespace.as_deref().unwrap_or_default();
    let source = spec.data_source.as_ref()?;
    let is_snapshot =
        source.kind == "VolumeSnapshot" && source.api_group.as_deref() == Some(croft_api::snapshot::GROUP);
    is_snapshot.then(|| Key::new(namespace, source.name.as_str()))
}

/// The error is for the user to read; it is looked at again when something changes.
pub(super) fn plan(
    claim: &PersistentVolumeClaim,
    class: &StorageClass,
    images: &[Arc<VirtualMachineImage>],
) -> Result<Plan, String> {
    let parameter = |name: &str| class.parameters.as_ref().and_then(|all| all.get(name)).map(String::as_str);
    if parameter("encrypted") == Some("true") {
        return Err("volumes cannot be encrypted here; choose a class without parameters.encrypted".to_owned());
    }
    let tags = parameter("diskSelector").unwrap_or_default().split(',').map(str::trim).filter(|tag| !tag.is_empty());
    let size_bytes = rounded(binding::requested_bytes(claim));
    let tags = tags.map(str::to_owned).collect();
    let content = content(claim, parameter("backingImage"), images, size_bytes)?;
    Ok(Plan { size_bytes, content, tags })
}

/// A clone is a copy of its source, whatever image both come from.
fn content(
    claim: &PersistentVolumeClaim,
    backing_image: Option<&str>,
    images: &[Arc<VirtualMachineImage>],
    size_bytes: u64,
) -> Result<Content, String> {
    let spec = claim.spec.as_ref();
    if let Some(source) = spec.and_then(|spec| spec.data_source_ref.as_ref()) {
        let is_elsewhere =
            source.namespace.as_deref().is_some_and(|other| Some(other) != claim.metadata.namespace.as_deref());
        if is_elsewhere {
            return Err("what is in another namespace cannot be copied by a claim; use a DataVolume".to_owned());
        }
    }
    if let Some(source) = source_claim(claim) {
        return Ok(Content::Claim(source));
    }
    if let Some(source) = source_snapshot(claim) {
        return Ok(Content::Snapshot(source));
    }
    if let Some(source) = spec.and_then(|spec| spec.data_source_ref.as_ref()) {
        return Err(format!("a {} is no data source that this driver knows", source.kind));
    }
    if let Some(name) = backing_image {
        return image_content(by_backing_image(images, name).ok_or(name), size_bytes);
    }
    let annotation = claim.metadata.annotations.as_ref().and_then(|all| all.get(IMAGE_ANNOTATION));
    let Some(id) = annotation.filter(|id| !id.is_empty()) else { return Ok(Content::Zeroes) };
    let named = images.iter().find(|image| Key::of(image.as_ref()).to_string() == *id);
    image_content(named.ok_or(id.as_str()), size_bytes)
}

/// `vmi-<uid>`; older releases wrote `<namespace>-<name>`.
pub(super) fn by_backing_image<'a>(
    images: &'a [Arc<VirtualMachineImage>],
    name: &str,
) -> Option<&'a Arc<VirtualMachineImage>> {
    images.iter().find(|image| {
        let key = Key::of(image.as_ref());
        let is_uid = image.metadata.uid.as_deref().is_some_and(|uid| name.strip_prefix("vmi-") == Some(uid));
        // One that came from a backup target keeps the name that it has there.
        let url = image.spec.url.as_deref().filter(|_| image.spec.source_type == source_type::RESTORE);
        let is_restored = url.and_then(|url| url.rsplit_once("backingImage=")).is_some_and(|(_, kept)| kept == name);
        is_uid || is_restored || name == format!("{}-{}", key.namespace, key.name)
    })
}

fn image_content(image: Result<&Arc<VirtualMachineImage>, &str>, size_bytes: u64) -> Result<Content, String> {
    let image = image.map_err(|name| format!("there is no image {name}"))?;
    let key = Key::of(image.as_ref());
    let status = image.status.as_ref();
    let imported = status.and_then(|status| status.conditions.iter().find(|condition| condition.type_ == "Imported"));
    match imported {
        Some(condition) if condition.status == "True" => {}
        Some(condition) if condition.status == "False" => {
            let why = condition.message.as_deref().unwrap_or("no reason was given");
            return Err(format!("image {key} could not be imported: {why}"));
        }
        _ => return Err(format!("waiting for image {key} to be imported")),
    }
    let virtual_size =
        status.and_then(|status| status.virtual_size).and_then(|size| u64::try_from(size).ok()).unwrap_or(0);
    if virtual_size > size_bytes {
        return Err(format!("image {key} has {virtual_size} bytes, which do not fit into {size_bytes}; ask for more"));
    }
    let uid = image.metadata.uid.clone().unwrap_or_default();
    Ok(Content::Image(uid))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn image(status: &Value) -> Arc<VirtualMachineImage> {
        let image = json!({
            "metadata": {"namespace": "public", "name": "debian", "uid": "77"},
            "spec": {"displayName": "debian", "sourceType": "download"}, "status": status,
        });
        Arc::new(serde_json::from_value(image).unwrap())
    }

    fn imported(status: &str, size: i64) -> Value {
        json!({"virtualSize": size, "conditions": [{"type": "Imported", "status": status, "message": "no route"}]})
    }

    fn claim(size: &str, annotations: &Value, spec: &Value) -> PersistentVolumeClaim {
        let mut all = json!({"resources": {"requests": {"storage": size}}});
        all.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        let meta = json!({"namespace": "ns", "name": "claim", "uid": "1", "annotations": annotations});
        serde_json::from_value(json!({"metadata": meta, "spec": all})).unwrap()
    }

    fn class(parameters: &Value) -> StorageClass {
        serde_json::from_value(json!({"provisioner": super::super::DRIVER, "parameters": parameters})).unwrap()
    }

    #[test]
    fn the_content_comes_from_the_class_the_source_or_the_annotation() {
        let none = json!({});
        let ready = [image(&imported("True", 1 << 30))];
        let by_class = |name: &str| class(&json!({"backingImage": name}));
        let annotated = json!({IMAGE_ANNOTATION: "public/debian"});
        let source = json!({"kind": "PersistentVolumeClaim", "name": "old"});
        let cloned = json!({"dataSource": source, "dataSourceRef": source});
        let snapshot = json!({"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "old"});
        let kept = json!({"dataSource": snapshot, "dataSourceRef": snapshot});
        let debian = || Ok(Content::Image("77".to_owned()));
        let cases = vec![
            (claim("2Gi", &none, &none), class(&none), Ok(Content::Zeroes)),
            (claim("2Gi", &none, &none), by_class("vmi-77"), debian()),
            (claim("2Gi", &none, &none), by_class("public-debian"), debian()),
            (claim("2Gi", &annotated, &none), class(&none), debian()),
            (claim("2Gi", &none, &cloned), class(&none), Ok(Content::Claim(Key::new("ns", "old")))),
            (claim("2Gi", &annotated, &cloned), by_class("vmi-77"), Ok(Content::Claim(Key::new("ns", "old")))),
            (claim("2Gi", &none, &kept), class(&none), Ok(Content::Snapshot(Key::new("ns", "old")))),
            (claim("2Gi", &none, &none), by_class("vmi-78"), Err("no image")),
            (claim("1Mi", &none, &none), by_class("vmi-77"), Err("do not fit")),
            (claim("2Gi", &none, &none), class(&json!({"encrypted": "true"})), Err("encrypted")),
            (
                claim(
                    "2Gi",
                    &none,
                    &json!({"dataSourceRef": {"kind": "PersistentVolumeClaim", "name": "x", "namespace": "other"}}),
                ),
                class(&none),
                Err("another namespace"),
            ),
            (
                claim("2Gi", &none, &json!({"dataSourceRef": {"apiGroup": "x.io", "kind": "Snapshot", "name": "x"}})),
                class(&none),
                Err("Snapshot"),
            ),
        ];
        for (claim, class, expected) in cases {
            match (plan(&claim, &class, &ready).map(|plan| plan.content), expected) {
                (Ok(found), Ok(expected)) => assert_eq!(found, expected),
                (Err(found), Err(part)) => assert!(found.contains(part), "{found}"),
                (found, expected) => panic!("{found:?} {expected:?}"),
            }
        }
    }

    #[test]
    fn an_image_is_waited_for_and_its_failure_is_told() {
        let none = json!({});
        let class = class(&json!({"backingImage": "vmi-77"}));
        let claim = claim("2Gi", &none, &none);
        for (status, part) in
            [(json!({}), "waiting"), (imported("Unknown", 0), "waiting"), (imported("False", 0), "no route")]
        {
            let refused = plan(&claim, &class, &[image(&status)]).unwrap_err();
            assert!(refused.contains(part), "{refused}");
        }
    }

    #[test]
    fn sizes_are_rounded_up() {
        let cases = [("1", 2 << 20), ("2Mi", 2 << 20), ("3Mi", 4 << 20), ("10Gi", 10 << 30), ("1G", 1_000_341_504)];
        for (asked, expected) in cases {
            let none = json!({});
            assert_eq!(plan(&claim(asked, &none, &none), &class(&none), &[]).unwrap().size_bytes, expected, "{asked}");
        }
    }

    #[test]
    fn disks_are_chosen_by_their_tags() {
        let none = json!({});
        let plan = plan(&claim("1Gi", &none, &none), &class(&json!({"diskSelector": "fast, ssd,"})), &[]).unwrap();
        assert_eq!(plan.tags, ["fast", "ssd"]);
    }
}
