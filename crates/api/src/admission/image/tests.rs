use serde_json::{Value, json};

use super::super::testing::{Objects, nothing, refusal, write};
use super::*;

fn image(spec: &Value) -> Value {
    json!({"metadata": {"name": "image-1", "namespace": "a"}, "spec": spec})
}

fn download() -> Value {
    json!({"displayName": "jammy", "sourceType": "download", "url": "https://example.com/j.img", "checksum": "", "pvcName": ""})
}

fn classes() -> Objects {
    Objects::default().with(
        "storage.k8s.io",
        "storageclasses",
        json!({"metadata": {"name": "harvester-longhorn", "annotations": {DEFAULT_CLASS: "true"}}}),
    )
}

#[test]
fn a_new_image_gets_its_label_and_class() {
    let made = write(admit, image(&download()), None, &classes(), false).unwrap();
    assert_eq!(made["metadata"]["labels"][DISPLAY_NAME], "jammy");
    assert_eq!(made["metadata"]["annotations"][CLASS], "harvester-longhorn");
    assert_eq!(made["spec"]["targetStorageClassName"], "harvester-longhorn");
    assert_eq!((&made["spec"]["backend"], &made["spec"]["retry"]), (&json!("backingimage"), &json!(3)));
}

#[test]
fn images_that_cannot_be_made_are_refused() {
    let cases = [
        (json!({"displayName": "", "sourceType": "upload"}), "displayName is required"),
        (json!({"displayName": "a b", "sourceType": "upload"}), "displayName is not a valid Kubernetes label value: "),
        (json!({"displayName": "x", "sourceType": "download"}), "url is required"),
        (json!({"displayName": "x", "sourceType": "download", "url": "file:///etc/passwd"}), "url is invalid: "),
        (
            json!({"displayName": "x", "sourceType": "upload", "url": "http://x/y"}),
            "url should be empty when image source type is \"upload\"",
        ),
        (
            json!({"displayName": "x", "sourceType": "export-from-volume"}),
            "pvcNamespace is required when image source type is \"export-from-volume\"",
        ),
        (
            json!({"displayName": "x", "sourceType": "export-from-volume", "pvcNamespace": "a", "pvcName": "c"}),
            "failed to get pvc c/a, error: persistentvolumeclaims \"c\" not found",
        ),
        (
            json!({"displayName": "x", "sourceType": "clone"}),
            "sourceParameters is required when image source type is \"clone\"",
        ),
    ];
    for (spec, message) in cases {
        let error = refusal(admit, image(&spec));
        assert_eq!(error.code(), 422);
        assert!(error.message().contains(message), "{error}");
    }
}

#[test]
fn clones_are_for_encryption_alone() {
    let source = json!({"metadata": {"name": "src", "namespace": "a"}, "spec": {"displayName": "src"},
        "status": {"conditions": [{"type": "Imported", "status": "True"}]}});
    let objects = Objects::default().with("harvesterhci.io", "virtualmachineimages", source);
    let clone = |operation: &str| {
        let mut parameters = json!({"sourceImageName": "src", "sourceImageNamespace": "a"});
        if !operation.is_empty() {
            parameters["cryptoOperation"] = json!(operation);
        }
        image(&json!({"displayName": "x", "sourceType": "clone", "securityParameters": parameters}))
    };
    for (operation, message) in [
        ("", "cryptoOperation is required when image source type is \"clone\""),
        ("decrypt", "can not re-decrypt, source image a/src (src) is not encrypted"),
        ("encrypt", "encrypted images are not supported"),
    ] {
        let error = write(admit, clone(operation), None, &objects, false).unwrap_err();
        assert_eq!(error.code(), 422);
        assert!(error.message().contains(message), "{error}");
    }
}

#[test]
fn names_are_unique_in_a_namespace() {
    let other = json!({"metadata": {"name": "image-2", "namespace": "a"}, "spec": {"displayName": "jammy"}});
    let objects = Objects::default().with("harvesterhci.io", "virtualmachineimages", other);
    let error = write(admit, image(&download()), None, &objects, false).unwrap_err();
    assert_eq!((error.code(), error.reason()), (409, "Conflict"));
    assert!(error.message().ends_with("A resource with the same name exists"));
}

#[test]
fn what_an_image_is_made_from_does_not_change() {
    let old = write(admit, image(&download()), None, &classes(), false).unwrap();
    for (field, value) in
        [("url", "https://example.com/k.img"), ("displayName", "k"), ("sourceType", "upload"), ("pvcName", "c")]
    {
        let mut new = old.clone();
        new["spec"][field] = json!(value);
        let error = write(admit, new, Some(&old), &classes(), false).unwrap_err();
        assert!(error.message().ends_with(&format!("{field} cannot be modified")), "{error}");
    }
    let mut new = old.clone();
    new["spec"]["description"] = json!("new");
    new["spec"].as_object_mut().unwrap().remove("checksum");
    new["status"] = json!({"progress": 5});
    assert!(write(admit, new, Some(&old), &nothing(), true).is_ok());
}

#[test]
fn an_image_with_volumes_stays() {
    let mut made = image(&download());
    made["status"] = json!({"storageClassName": "longhorn-image-1"});
    let claim = |class: &str| {
        let claim = json!({"metadata": {"name": "c", "namespace": "b"}, "spec": {"storageClassName": class}});
        Objects::default().with("", "persistentvolumeclaims", claim)
    };
    let error = admit_delete(&made, &claim("longhorn-image-1")).unwrap_err();
    assert!(error.message().ends_with("Cannot delete image a/jammy: being used by volume b/c"), "{error}");
    assert!(admit_delete(&made, &claim("fast")).is_ok());
}
