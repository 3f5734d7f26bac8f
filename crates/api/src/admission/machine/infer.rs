//! Instancetypes and preferences that a volume asks for by its labels.

use croft_meta::ApiError;
use serde_json::{Value, json};

use super::super::denial::refuse;
use super::super::{Admission, Lookup};
use super::MUTATOR;
use crate::view::{get, list, remove, set, text};

/// Why nothing could be inferred; some reasons may be passed over.
enum Failure {
    Ignorable(String),
    Final(String),
}

struct Search<'a> {
    lookup: &'a dyn Lookup,
    machine: &'a Value,
    namespace: &'a str,
    /// `instancetype.kubevirt.io/default-instancetype`; the kind is beside it.
    label: &'static str,
}

pub(super) fn matchers(admission: &mut Admission<'_>) -> Result<(), ApiError> {
    let labels = [
        ("instancetype", "instancetype.kubevirt.io/default-instancetype"),
        ("preference", "instancetype.kubevirt.io/default-preference"),
    ];
    for (field, label) in labels {
        let path = format!("spec.{field}");
        let Some(matcher) = get(admission.object, &path).cloned() else { continue };
        let volume = text(&matcher, "inferFromVolume");
        if volume.is_empty() {
            continue;
        }
        let may_ignore = text(&matcher, "inferFromVolumeFailurePolicy") == "Ignore";
        let namespace = text(admission.object, "metadata.namespace");
        let search = Search { lookup: admission.lookup, machine: admission.object, namespace, label };
        match search.volume(volume) {
            Ok((name, kind)) => {
                let mut matcher = json!({"name": name});
                if !kind.is_empty() {
                    matcher["kind"] = json!(kind);
                }
                set(admission.object, &path, matcher);
                if may_ignore && field == "instancetype" {
                    drop(remove(admission.object, "spec.template.spec.domain.memory"));
                }
            }
            Err(Failure::Ignorable(_)) if may_ignore => drop(remove(admission.object, &path)),
            Err(Failure::Ignorable(why) | Failure::Final(why)) => {
                return Err(refuse(MUTATOR, 400, "BadRequest", &why));
            }
        }
    }
    Ok(())
}

type Found = Result<(String, String), Failure>;

impl Search<'_> {
    fn volume(&self, name: &str) -> Found {
        let volumes = list(self.machine, "spec.template.spec.volumes");
        let Some(volume) = volumes.iter().find(|volume| text(volume, "name") == name) else {
            return Err(Failure::Final(format!("unable to find volume {name} to infer defaults")));
        };
        let claim = text(volume, "persistentVolumeClaim.claimName");
        let data_volume = text(volume, "dataVolume.name");
        if !claim.is_empty() {
            self.object("", "persistentvolumeclaims", self.namespace, claim)
        } else if !data_volume.is_empty() {
            self.data_volume(data_volume)
        } else {
            let why = format!("unable to infer defaults from volume {name} as type is not supported");
            Err(Failure::Ignorable(why))
        }
    }

    fn labels(&self, object: &Value) -> Found {
        let label = |key: &str| {
            let labels = object.pointer("/metadata/labels")?;
            labels.get(key)?.as_str().map(str::to_owned)
        };
        let missing = || Failure::Ignorable(format!("unable to find required {} label on the volume", self.label));
        let kind = label(&format!("{}-kind", self.label)).unwrap_or_default();
        Ok((label(self.label).ok_or_else(missing)?, kind))
    }

    fn object(&self, group: &str, plural: &str, namespace: &str, name: &str) -> Found {
        let Some(object) = self.lookup.get(group, plural, namespace, name) else {
            let resource = if group.is_empty() { plural.to_owned() } else { format!("{plural}.{group}") };
            return Err(Failure::Final(format!("{resource} \"{name}\" not found")));
        };
        self.labels(&object)
    }

    fn data_volume(&self, name: &str) -> Found {
        let templates = list(self.machine, "spec.dataVolumeTemplates");
        if let Some(template) = templates.iter().find(|template| text(template, "metadata.name") == name) {
            return self.source(template);
        }
        match self.lookup.get("cdi.kubevirt.io", "datavolumes", self.namespace, name) {
            Some(volume) => self.labels(&volume).or_else(|_| self.source(&volume)),
            // A finished DataVolume may be gone; its claim has the same name.
            None => self.object("", "persistentvolumeclaims", self.namespace, name),
        }
    }

    /// What a DataVolume or a DataSource copies: `spec.source` or `spec.sourceRef`.
    fn source(&self, object: &Value) -> Found {
        if let Some(pvc) = get(object, "spec.source.pvc") {
            return self.object("", "persistentvolumeclaims", text(pvc, "namespace"), text(pvc, "name"));
        }
        if let Some(snapshot) = get(object, "spec.source.snapshot") {
            let (namespace, name) = (text(snapshot, "namespace"), text(snapshot, "name"));
            return self.object("snapshot.storage.k8s.io", "volumesnapshots", namespace, name);
        }
        let Some(reference) = get(object, "spec.sourceRef") else {
            let why = "unable to infer defaults from DataVolumeSpec as DataVolumeSource is not supported";
            return Err(Failure::Ignorable(why.to_owned()));
        };
        let kind = text(reference, "kind");
        if kind != "DataSource" {
            let why = format!("unable to infer defaults from DataVolumeSourceRef as Kind {kind} is not supported");
            return Err(Failure::Ignorable(why));
        }
        let namespace = match text(reference, "namespace") {
            "" => self.namespace,
            namespace => namespace,
        };
        let name = text(reference, "name");
        let Some(source) = self.lookup.get("cdi.kubevirt.io", "datasources", namespace, name) else {
            return Err(Failure::Final(format!("datasources.cdi.kubevirt.io \"{name}\" not found")));
        };
        self.labels(&source).or_else(|_| match get(&source, "spec.source.pvc") {
            Some(pvc) => self.object("", "persistentvolumeclaims", text(pvc, "namespace"), text(pvc, "name")),
            None => Err(Failure::Ignorable(
                "unable to infer defaults from DataSource that doesn't provide DataVolumeSourcePVC or \
                 DataVolumeSourceSnapshot"
                    .to_owned(),
            )),
        })
    }
}
