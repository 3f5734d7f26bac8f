//! The StorageClass of an image: a volume of it begins as a copy of the image.

use std::collections::BTreeMap;

use croft_api::harvester::VirtualMachineImage;
use k8s_openapi::api::storage::v1::StorageClass;
use kube::ResourceExt;
use kube::api::ObjectMeta;

use crate::volume::DRIVER;

const BACKING_IMAGE: &str = "backingImage";
const IMAGE_ID: &str = "harvesterhci.io/imageId";
const CHOSEN_CLASS: &str = "harvesterhci.io/storageClassName";

/// What a class hands down to that of an image made for it.
const INHERITED: &[&str] = &["numberOfReplicas", "staleReplicaTimeout", "nodeSelector", "diskSelector", "dataLocality"];

/// Clients compute the first; the second is Harvester's newer one, for when that is taken.
pub(super) fn names(image: &VirtualMachineImage, uid: &str) -> [String; 2] {
    [format!("longhorn-{}", image.name_any()), format!("lh-{uid}")]
}

/// The class whose parameters the image's is to have.
pub(super) fn template_of(image: &VirtualMachineImage) -> Option<String> {
    let spec = image.spec.target_storage_class_name.clone();
    spec.or_else(|| image.annotations().get(CHOSEN_CLASS).cloned()).filter(|name| !name.is_empty())
}

fn backing_image(uid: &str) -> String {
    format!("vmi-{uid}")
}

pub(super) fn belongs_to(class: &StorageClass, uid: &str) -> bool {
    class.parameters.as_ref().and_then(|all| all.get(BACKING_IMAGE)) == Some(&backing_image(uid))
}

pub(super) fn class(name: &str, image: &VirtualMachineImage, uid: &str, chosen: Option<&StorageClass>) -> StorageClass {
    let mut parameters: BTreeMap<String, String> =
        [("numberOfReplicas", "3"), ("staleReplicaTimeout", "30"), ("migratable", "true")]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into();
    let inherited = chosen.and_then(|class| class.parameters.clone()).unwrap_or_default();
    parameters.extend(inherited.into_iter().filter(|(key, _)| INHERITED.contains(&key.as_str())));
    parameters.extend(image.spec.storage_class_parameters.clone());
    parameters.insert(BACKING_IMAGE.to_owned(), backing_image(uid));
    let id = format!("{}/{}", image.namespace().unwrap_or_default(), image.name_any());
    StorageClass {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            annotations: Some([(IMAGE_ID.to_owned(), id)].into()),
            ..ObjectMeta::default()
        },
        provisioner: DRIVER.to_owned(),
        parameters: Some(parameters),
        reclaim_policy: Some("Delete".to_owned()),
        volume_binding_mode: Some("Immediate".to_owned()),
        allow_volume_expansion: Some(true),
        ..StorageClass::default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_class_names_its_image_and_inherits_what_the_chosen_one_says() {
        let image: VirtualMachineImage = serde_json::from_value(json!({
            "metadata": {"namespace": "ns", "name": "jammy", "annotations": {CHOSEN_CLASS: "two"}},
            "spec": {"displayName": "j", "sourceType": "upload", "storageClassParameters": {"dataLocality": "best-effort"}},
        }))
        .unwrap();
        let two = StorageClass {
            parameters: Some(
                [("numberOfReplicas", "2"), (BACKING_IMAGE, "x")].map(|(k, v)| (k.to_owned(), v.to_owned())).into(),
            ),
            ..StorageClass::default()
        };
        assert_eq!(template_of(&image).as_deref(), Some("two"));
        let class = class(&names(&image, "77")[0], &image, "77", Some(&two));
        assert!(belongs_to(&class, "77") && !belongs_to(&class, "78"));
        let parameters = class.parameters.unwrap();
        assert_eq!(
            (parameters["numberOfReplicas"].as_str(), parameters["dataLocality"].as_str()),
            ("2", "best-effort")
        );
        assert_eq!(class.metadata.name.as_deref(), Some("longhorn-jammy"));
    }
}
