//! Whose data may be copied. Croft fills disks by itself and can read them all, so whoever asks for a copy must be allowed
//! to read what it is made from.

use croft_meta::FieldPath;

use super::Admission;
use super::denial::Denial;
use crate::cdi::DataVolumeSpec;
use crate::kubevirt::VirtualMachineSpec;
use crate::view::text;

/// A disk is to begin as a copy of this image, `namespace/name`.
pub(super) fn image(denial: &mut Denial, at: &FieldPath, image: &str, admission: &Admission<'_>) {
    let Some((namespace, name)) = image.split_once('/') else { return };
    if !admission.caller_may("get", "harvesterhci.io", "virtualmachineimages", namespace, name) {
        denial.invalid(at, format!("user {} is not allowed to access image {image}", admission.user));
    }
}

/// An image is to be made of this claim.
pub(super) fn claim(denial: &mut Denial, at: &FieldPath, (namespace, name): (&str, &str), admission: &Admission<'_>) {
    if !admission.caller_may("get", "", "persistentvolumeclaims", namespace, name) {
        denial.invalid(at, format!("user has no permission to get the pvc resource {namespace}/{name}"));
    }
}

/// A DataVolume is to be a clone. As in CDI, what is in its own namespace is free, and elsewhere one of two rights opens
/// all claims: to make `datavolumes/source`, made for this, or pods, which could read them as well.
pub(super) fn clone_source(denial: &mut Denial, at: &FieldPath, spec: &DataVolumeSpec, admission: &Admission<'_>) {
    let own = text(admission.object, "metadata.namespace");
    let Some(from) = source_namespace(spec, own, admission).filter(|from| from != own) else { return };
    let may = |group, plural| admission.caller_may("create", group, plural, &from, "");
    if !may("cdi.kubevirt.io", "datavolumes/source") && !may("", "pods") {
        let user = admission.user;
        denial.invalid(at, format!("User {user} has insufficient permissions in clone source namespace {from}"));
    }
}

/// The DataVolumes that a machine brings along, which are made for it later and not by its user.
pub(super) fn templates(
    denial: &mut Denial,
    spec: &VirtualMachineSpec,
    old: Option<&VirtualMachineSpec>,
    admission: &Admission<'_>,
) {
    if old.is_some_and(|old| old.data_volume_templates == spec.data_volume_templates) {
        return;
    }
    for (index, template) in spec.data_volume_templates.iter().enumerate() {
        let at = FieldPath::new("spec.dataVolumeTemplates").index(index).child("spec.source");
        clone_source(denial, &at, &template.spec, admission);
    }
}

/// Where the cloned claim or snapshot is; a DataSource leads to it.
fn source_namespace(spec: &DataVolumeSpec, own: &str, admission: &Admission<'_>) -> Option<String> {
    if let Some(source) = &spec.source {
        let pvc = source.pvc.as_ref().map(|pvc| &pvc.namespace);
        let from = pvc.or(source.snapshot.as_ref().map(|snapshot| &snapshot.namespace))?;
        return Some(if from.is_empty() { own.to_owned() } else { from.clone() });
    }
    let reference = spec.source_ref.as_ref()?;
    let mut namespace = reference.namespace.clone().unwrap_or_else(|| own.to_owned());
    let mut name = reference.name.clone();
    // One may lead to another, and that is as far as it goes.
    for _ in 0..2 {
        let found = admission.lookup.get("cdi.kubevirt.io", "datasources", &namespace, &name)?;
        for kind in ["pvc", "snapshot"] {
            let from = text(&found, &format!("spec.source.{kind}.namespace"));
            if !from.is_empty() {
                return Some(from.to_owned());
            }
        }
        let next = (text(&found, "spec.source.dataSource.namespace"), text(&found, "spec.source.dataSource.name"));
        if next.1.is_empty() {
            return Some(namespace);
        }
        if !next.0.is_empty() {
            next.0.clone_into(&mut namespace);
        }
        next.1.clone_into(&mut name);
    }
    Some(namespace)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::testing::{Objects, nothing, write};
    use super::super::{data_volume, image, machine, storage};

    const REFUSED: &str = "User alice has insufficient permissions in clone source namespace theirs";

    fn theirs() -> Objects {
        let named = |name: &str| json!({"namespace": "theirs", "name": name, "uid": "77"});
        let class = json!({"metadata": {"name": "longhorn-debian"}, "parameters": {"backingImage": "vmi-77"}});
        let source = json!({"pvc": {"namespace": "theirs", "name": "disk"}});
        let shared = json!({"metadata": {"namespace": "mine", "name": "shared"}, "spec": {"source": source}});
        nothing()
            .with("storage.k8s.io", "storageclasses", class)
            .with("harvesterhci.io", "virtualmachineimages", json!({"metadata": named("debian")}))
            .with("", "persistentvolumeclaims", json!({"metadata": named("disk")}))
            .with("cdi.kubevirt.io", "datasources", shared)
    }

    fn of_alice() -> Objects {
        let verbs = [("get", "virtualmachineimages"), ("get", "persistentvolumeclaims")];
        let verbs = verbs.into_iter().chain([("create", "datavolumes/source"), ("create", "pods")]);
        verbs.fold(theirs(), |objects, (verb, plural)| objects.forbid(verb, plural, "theirs"))
    }

    fn claim(class: &str, annotations: &Value) -> Value {
        json!({"metadata": {"namespace": "mine", "name": "c", "annotations": annotations},
            "spec": {"storageClassName": class, "resources": {"requests": {"storage": "1Gi"}}}})
    }

    fn volume(spec: &Value) -> Value {
        let mut volume = json!({"apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume",
            "metadata": {"namespace": "mine", "name": "v"},
            "spec": {"storage": {"resources": {"requests": {"storage": "1Gi"}}}}});
        volume["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        volume
    }

    #[test]
    fn what_one_may_not_read_is_not_copied_for_one() {
        let image_refused = "user alice is not allowed to access image theirs/debian";
        let export = json!({"metadata": {"namespace": "mine", "name": "i"}, "spec": {"displayName": "i",
            "sourceType": "export-from-volume", "pvcNamespace": "theirs", "pvcName": "disk"}});
        let foreign = json!({"source": {"pvc": {"namespace": "theirs", "name": "disk"}}});
        let through = json!({"sourceRef": {"kind": "DataSource", "name": "shared"}});
        for (admit, object, expected) in [
            (storage::admit_claim as super::super::Admit, claim("longhorn-debian", &json!({})), image_refused),
            (storage::admit_claim, claim("", &json!({"harvesterhci.io/imageId": "theirs/debian"})), image_refused),
            (image::admit, export, "user has no permission to get the pvc resource theirs/disk"),
            (data_volume::admit, volume(&foreign), REFUSED),
            (data_volume::admit, volume(&through), REFUSED),
        ] {
            let refused = write(admit, object.clone(), None, &of_alice(), false).unwrap_err();
            assert!(refused.to_string().contains(expected), "{}", refused);
            write(admit, object.clone(), None, &theirs(), false).unwrap();
            write(admit, object, None, &of_alice(), true).unwrap();
        }
        let own = json!({"source": {"pvc": {"namespace": "mine", "name": "disk"}}});
        write(data_volume::admit, volume(&own), None, &of_alice(), false).unwrap();
    }

    /// One of the two rights is enough.
    #[test]
    fn whoever_may_run_pods_there_may_clone() {
        let foreign = json!({"source": {"pvc": {"namespace": "theirs", "name": "disk"}}});
        let lookup = theirs().forbid("create", "datavolumes/source", "theirs");
        write(data_volume::admit, volume(&foreign), None, &lookup, false).unwrap();
    }

    #[test]
    fn a_machine_does_not_lend_its_hand() {
        let template = json!({"metadata": {"name": "root"},
            "spec": volume(&json!({"source": {"pvc": {"namespace": "theirs", "name": "disk"}}}))["spec"]});
        let entry = json!([claim("longhorn-debian", &json!({}))]).to_string();
        let machine = |annotations: Value, templates: Value| {
            json!({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
                "metadata": {"namespace": "mine", "name": "m", "annotations": annotations},
                "spec": {"runStrategy": "Halted", "dataVolumeTemplates": templates, "template": {"spec": {
                    "domain": {"devices": {}, "memory": {"guest": "64Mi"}},
                    "volumes": [{"name": "root", "dataVolume": {"name": "root"}}]}}}})
        };
        for (machine, expected) in [
            (machine(json!({}), json!([template])), REFUSED),
            (machine(json!({"harvesterhci.io/volumeClaimTemplates": entry}), json!([])), "not allowed to access image"),
        ] {
            let refused = write(machine::admit, machine, None, &of_alice(), false).unwrap_err();
            assert!(refused.to_string().contains(expected), "{}", refused);
        }
    }
}
