use serde_json::{Value, json};

use super::super::testing::{Objects, nothing, refusal, write};
use super::*;

fn claim(size: &str) -> Value {
    json!({"metadata": {"name": "c", "namespace": "a"},
        "spec": {"storageClassName": "fast", "resources": {"requests": {"storage": size}}}})
}

fn machine(name: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": "a"}, "status": {"created": true},
        "spec": {"template": {"spec": {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}}}})
}

#[test]
fn internal_classes_are_not_for_users() {
    let mut asked = claim("1Gi");
    asked["spec"]["storageClassName"] = json!("vmstate-persistence");
    let error = refusal(admit_claim, asked.clone());
    assert!(
        error.message().ends_with("can not create volume with the reserved storage class vmstate-persistence"),
        "{error}"
    );
    assert!(write(admit_claim, asked, None, &nothing(), true).is_ok());
}

#[test]
fn a_disk_grows_under_a_guest_only_where_that_is_allowed() {
    let class = |provisioner: &str| json!({"metadata": {"name": "fast"}, "provisioner": provisioner});
    let grown = |provisioner: &str, objects: Objects| {
        let objects = objects.with("storage.k8s.io", "storageclasses", class(provisioner));
        write(admit_claim, claim("2Gi"), Some(&claim("1Gi")), &objects, false)
    };
    let used = || Objects::default().with("kubevirt.io", "virtualmachines", machine("m"));
    assert!(grown("driver.longhorn.io", used()).is_ok());
    assert!(grown("other", nothing()).is_ok());
    let error = grown("other", used()).unwrap_err();
    assert!(error.message().ends_with("PVC_EXPAND: pvc a/c is not online expandable with its provider"), "{error}");
}

#[test]
fn a_claim_in_use_stays() {
    let cases = [
        (nothing(), claim("1Gi"), ""),
        (
            Objects::default().with("kubevirt.io", "virtualmachines", machine("m")),
            claim("1Gi"),
            "can not delete the volume c which is currently attached to VM: a/m",
        ),
        (
            Objects::default().with(
                "harvesterhci.io",
                "virtualmachineimages",
                json!({"metadata": {"name": "i", "namespace": "b"},
                    "spec": {"sourceType": "export-from-volume", "pvcName": "c", "pvcNamespace": "a"}}),
            ),
            claim("1Gi"),
            "can not delete volume c which is exporting for image b/i",
        ),
        (
            Objects::default().with(
                "kubevirt.io",
                "virtualmachines",
                json!({"metadata": {"name": "o", "namespace": "a"}}),
            ),
            {
                let mut owned = claim("1Gi");
                owned["metadata"]["ownerReferences"] = json!([{"kind": "VirtualMachine", "name": "o"}]);
                owned
            },
            "can not delete the volume c which is currently owned by these VMs: o",
        ),
    ];
    for (objects, claim, message) in cases {
        let told =
            admit_claim_delete(&claim, &objects).err().map(|error| error.message().to_owned()).unwrap_or_default();
        assert!(told.ends_with(message) && told.is_empty() == message.is_empty(), "{told}");
    }
}

#[test]
fn golden_images_keep_their_mark() {
    let mut golden = claim("1Gi");
    golden["metadata"]["annotations"] = json!({GOLDEN: "true"});
    let error = write(admit_claim, claim("1Gi"), Some(&golden), &nothing(), false).unwrap_err();
    assert!(error.message().ends_with("can not remove golden image annotation from PVC a/c"), "{error}");
}

#[test]
fn classes_are_checked() {
    let class = |name: &str, parameters: Value, default: bool| {
        json!({"metadata": {"name": name, "annotations": {DEFAULT_CLASS: default.to_string()}},
            "provisioner": "driver.longhorn.io", "parameters": parameters})
    };
    let objects =
        Objects::default().with("storage.k8s.io", "storageclasses", class("harvester-longhorn", json!({}), true));
    let cases = [
        (
            class("x", json!({"dataLocality": "strict-local"}), false),
            "storage class with strict-local data locality is not allowed",
        ),
        (
            class("x", json!({"dataLocality": "near"}), false),
            "storage class with invalid data locality near, valid values: [disabled best-effort]",
        ),
        (class("x", json!({"encrypted": "true"}), false), "encrypted volumes are not supported"),
        (
            class("x", json!({}), true),
            "default storage class harvester-longhorn already exists, please reset it first before set x as default",
        ),
    ];
    for (class, message) in cases {
        let error = write(admit_class, class, None, &objects, false).unwrap_err();
        assert!(error.message().ends_with(message), "{error}");
    }
    assert!(
        write(admit_class, class("x", json!({"dataLocality": "best-effort"}), false), None, &objects, false).is_ok()
    );
    let image = json!({"metadata": {"name": "i", "namespace": "b"}, "status": {"storageClassName": "longhorn-i"}});
    let objects = Objects::default().with("harvesterhci.io", "virtualmachineimages", image);
    let error = admit_class_delete(&class("longhorn-i", json!({}), false), &objects).unwrap_err();
    assert!(error.message().ends_with("storage class longhorn-i is used by virtual machine images: b/i"), "{error}");
}

#[test]
fn reserved_classes_do_not_change_but_for_being_the_default() {
    let class = |expands: bool, default: &str| {
        json!({"metadata": {"name": "c", "annotations": {RESERVED: "true", DEFAULT_CLASS: default}},
            "provisioner": "driver.longhorn.io", "allowVolumeExpansion": expands})
    };
    let old = class(true, "true");
    let error = write(admit_class, class(false, "true"), Some(&old), &nothing(), false);
    assert!(error.unwrap_err().message().contains("can't be modified"));
    write(admit_class, class(true, "false"), Some(&old), &nothing(), false).unwrap();
}

#[test]
fn a_disk_has_one_provisioner() {
    let disk = |provisioner: Value| json!({"metadata": {"name": "d"}, "spec": {"provisioner": provisioner}});
    write(admit_disk, disk(json!({"longhorn": {}, "lvm": null})), None, &nothing(), false).unwrap();
    let error = write(admit_disk, disk(json!({"longhorn": {}, "lvm": {}})), None, &nothing(), false).unwrap_err();
    assert!(error.message().contains("should not have multiple provisioners"), "{error}");
}
