//! The claims and data volumes that a machine asks for. Nothing is done here.

use std::collections::BTreeSet;

use croft_api::cdi::DataVolume;
use croft_api::kubevirt::{DataVolumeTemplateSpec, VirtualMachine};
use croft_meta::Quantity;
use croft_reconcile::Key;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, PersistentVolumeClaimSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use serde::Deserialize;

use super::owners;
use crate::virtual_machine::view::{annotation, claim_name, name, namespace, uid};

pub(super) const IMAGE_ID: &str = "harvesterhci.io/imageId";
const TEMPLATES: &str = "harvesterhci.io/volumeClaimTemplates";
/// Which machine a data volume was made for.
const CREATED_BY: &str = "kubevirt.io/created-by";

/// An entry of the list: what a claim has, and maybe `targetVolume`, which is another's.
#[derive(Debug, Deserialize)]
struct Template {
    #[serde(default)]
    metadata: ObjectMeta,
    spec: Option<PersistentVolumeClaimSpec>,
}

fn templates(machine: &VirtualMachine) -> Result<Vec<Template>, String> {
    let text = annotation(&machine.metadata, TEMPLATES).unwrap_or_default().trim();
    if text.is_empty() {
        return Ok(Vec::new());
    }
    serde_json::from_str(text).map_err(|error| format!("{TEMPLATES} cannot be read: {error}"))
}

/// The claims of the annotation, as they are to be created. The error is for the user.
pub(super) fn claims(machine: &VirtualMachine) -> Result<Vec<PersistentVolumeClaim>, String> {
    let key = Key::of(machine);
    let claim = |template: Template| {
        let mut spec = template.spec.unwrap_or_default();
        if spec.access_modes.as_ref().is_none_or(Vec::is_empty) {
            spec.access_modes = Some(vec!["ReadWriteMany".to_owned()]);
        }
        let mut annotations = template.metadata.annotations.unwrap_or_default();
        annotations.extend([owners::first(&key.to_string())]);
        PersistentVolumeClaim {
            metadata: ObjectMeta {
                name: template.metadata.name,
                // Whatever the template says: a machine has no disks elsewhere.
                namespace: Some(key.namespace.clone()),
                labels: template.metadata.labels,
                annotations: Some(annotations),
                ..ObjectMeta::default()
            },
            spec: Some(spec),
            status: None,
        }
    };
    Ok(templates(machine)?.into_iter().map(claim).collect())
}

/// The claims that a machine has to do with: those that its volumes name and those of its templates.
pub(super) fn names(machine: &VirtualMachine) -> BTreeSet<String> {
    let volumes = machine.spec.template.spec.volumes.iter().filter_map(claim_name).map(str::to_owned);
    let templates = templates(machine).unwrap_or_default().into_iter().filter_map(|template| template.metadata.name);
    volumes.chain(templates).collect()
}

pub(super) fn mentions(machine: &VirtualMachine, claim: &str) -> bool {
    let in_templates = || {
        // Cheaper than reading the list, and no name is part of it by chance without being looked at then.
        let text = annotation(&machine.metadata, TEMPLATES).unwrap_or_default();
        text.contains(claim) && names(machine).contains(claim)
    };
    let data_volumes = &machine.spec.data_volume_templates;
    machine.spec.template.spec.volumes.iter().any(|volume| claim_name(volume) == Some(claim))
        || data_volumes.iter().any(|template| name(&template.metadata) == claim)
        || in_templates()
}

fn request(claim: &PersistentVolumeClaim) -> Option<(&Text, Quantity)> {
    let text = claim.spec.as_ref()?.resources.as_ref()?.requests.as_ref()?.get("storage")?;
    Some((text, Quantity::parse(&text.0).ok()?))
}

/// The size that a claim should ask for, if that is more than it does. One that is not bound cannot change.
pub(super) fn growth(claim: &PersistentVolumeClaim, template: &PersistentVolumeClaim) -> Option<Text> {
    let is_bound = claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Bound");
    let ((_, has), (text, wants)) = (request(claim)?, request(template)?);
    (is_bound && wants > has).then(|| text.clone())
}

/// The data volume of a template, which goes with the machine.
pub(super) fn data_volume(machine: &VirtualMachine, template: &DataVolumeTemplateSpec) -> DataVolume {
    let mut labels = template.metadata.labels.clone().unwrap_or_default();
    labels.insert(CREATED_BY.to_owned(), uid(&machine.metadata).to_owned());
    DataVolume {
        metadata: ObjectMeta {
            name: template.metadata.name.clone(),
            namespace: Some(namespace(&machine.metadata).to_owned()),
            labels: Some(labels),
            annotations: template.metadata.annotations.clone(),
            owner_references: Some(vec![owner(machine)]),
            ..ObjectMeta::default()
        },
        spec: template.spec.clone(),
        status: None,
    }
}

fn owner(machine: &VirtualMachine) -> OwnerReference {
    OwnerReference {
        api_version: "kubevirt.io/v1".to_owned(),
        kind: "VirtualMachine".to_owned(),
        name: name(&machine.metadata).to_owned(),
        uid: uid(&machine.metadata).to_owned(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn machine(templates: &str) -> VirtualMachine {
        let spec = json!({
            "template": {"spec": {"domain": {"devices": {}}, "volumes": [
                {"name": "root", "persistentVolumeClaim": {"claimName": "root"}},
                {"name": "data", "dataVolume": {"name": "data"}},
            ]}},
            "dataVolumeTemplates": [{"metadata": {"name": "data", "labels": {"a": "b"}}, "spec": {"source": {"blank": {}}}}],
        });
        let meta = json!({"namespace": "ns", "name": "vm", "uid": "7", "annotations": {TEMPLATES: templates}});
        serde_json::from_value(json!({"metadata": meta, "spec": spec})).unwrap()
    }

    fn list(entries: &Value) -> String {
        entries.to_string()
    }

    #[test]
    fn claims_are_made_as_the_list_says_and_tell_their_owner() {
        let entry = json!([{
            "metadata": {"name": "extra", "namespace": "elsewhere", "annotations": {IMAGE_ID: "ns/image"}, "creationTimestamp": null},
            "spec": {"resources": {"requests": {"storage": "10Gi"}}, "volumeMode": "Block"}, "status": {}, "targetVolume": "x",
        }]);
        let machine = machine(&list(&entry));
        let claims = claims(&machine).unwrap();
        let claim = &claims[0];
        assert_eq!(claim.metadata.namespace.as_deref(), Some("ns"));
        assert_eq!(claim.spec.as_ref().unwrap().access_modes.as_ref().unwrap(), &["ReadWriteMany"]);
        assert_eq!(owners::of(&claim.metadata), ["ns/vm"]);
        assert_eq!(annotation(&claim.metadata, IMAGE_ID), Some("ns/image"));
        assert_eq!(names(&machine).into_iter().collect::<Vec<_>>(), ["data", "extra", "root"]);
        assert!(mentions(&machine, "extra") && mentions(&machine, "data") && !mentions(&machine, "extr"));
    }

    #[test]
    fn a_list_that_cannot_be_read_is_an_error_and_none_is_none() {
        assert!(claims(&machine("{")).unwrap_err().contains(TEMPLATES));
        assert!(claims(&machine("[{}, 1]")).is_err());
        assert!(claims(&machine("")).unwrap().is_empty());
        assert!(claims(&machine(" [] ")).unwrap().is_empty());
    }

    #[test]
    fn claims_grow_and_never_shrink() {
        let claim = |size: &str, phase: &str| -> PersistentVolumeClaim {
            let spec = json!({"resources": {"requests": {"storage": size}}});
            serde_json::from_value(json!({"spec": spec, "status": {"phase": phase}})).unwrap()
        };
        let cases = [
            ("1Gi", "2Gi", "Bound", Some("2Gi")),
            ("2Gi", "1Gi", "Bound", None),
            ("1024Mi", "1Gi", "Bound", None),
            ("1Gi", "2Gi", "Pending", None),
        ];
        for (has, wants, phase, expected) in cases {
            let size = growth(&claim(has, phase), &claim(wants, ""));
            assert_eq!(size.map(|size| size.0).as_deref(), expected, "{has} {wants} {phase}");
        }
    }

    #[test]
    fn data_volumes_belong_to_their_machine() {
        let machine = machine("");
        let made = data_volume(&machine, &machine.spec.data_volume_templates[0]);
        let owner = &made.metadata.owner_references.as_ref().unwrap()[0];
        assert_eq!((owner.uid.as_str(), owner.controller), ("7", Some(true)));
        assert_eq!(made.metadata.labels.as_ref().unwrap()[CREATED_BY], "7");
        assert_eq!(made.metadata.labels.as_ref().unwrap()["a"], "b");
        assert!(made.spec.source.unwrap().blank.is_some());
    }
}
