//! What the disks of a machine still wait for.

use croft_api::cdi::filling::is_being_filled;
use croft_api::cdi::{DataVolume, DataVolumeCondition};
use croft_api::kubevirt::{DataVolumeTemplateSpec, Volume};
use croft_api::snapshot::VolumeSnapshot;
use croft_reconcile::{Cache, Key};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;

use crate::virtual_machine::view::{claim_name, controller};

/// How far the disk behind a claim is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Disk {
    /// Bound to the volume of this name, and filled.
    Ready(String),
    /// No volume yet; whoever provides it may wait to hear which node needs it.
    Unbound,
    /// Being downloaded, copied or uploaded.
    Filling,
    Failed(String),
    Missing,
}

/// The claims and data volumes that there are, and what was kept of them.
#[derive(Clone, Debug, Default)]
#[expect(clippy::struct_field_names, reason = "most of what it holds has its name")]
pub(crate) struct Claims {
    pub(crate) claims: Cache<PersistentVolumeClaim>,
    pub(crate) data_volumes: Cache<DataVolume>,
    pub(crate) snapshots: Cache<VolumeSnapshot>,
}

/// All disks of a machine together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Disks {
    pub(crate) failed: Option<String>,
    pub(crate) is_filling: bool,
    pub(crate) is_unbound: bool,
    pub(crate) missing: Option<String>,
}

impl Claims {
    /// Nothing for a volume that needs no claim.
    pub(crate) fn disk(&self, namespace: &str, volume: &Volume) -> Option<Disk> {
        let name = claim_name(volume)?;
        let key = Key::new(namespace, name);
        let claim = self.claims.get(&key);
        let owner = claim.as_ref().and_then(|claim| controller(&claim.metadata));
        let is_data_volume = volume.data_volume.is_some() || owner.is_some_and(|owner| owner.kind == "DataVolume");
        let data_volume = if is_data_volume { self.data_volumes.get(&key) } else { None };
        Some(state(claim.as_deref(), data_volume.as_deref()))
    }

    pub(crate) fn disks<'a>(&self, namespace: &str, volumes: impl Iterator<Item = &'a Volume>) -> Disks {
        let mut disks = Disks::default();
        for volume in volumes {
            match self.disk(namespace, volume) {
                None | Some(Disk::Ready(_)) => {}
                Some(Disk::Unbound) => disks.is_unbound = true,
                Some(Disk::Filling) => disks.is_filling = true,
                Some(Disk::Failed(why)) => disks.failed = Some(why),
                Some(Disk::Missing) => disks.missing = claim_name(volume).map(str::to_owned),
            }
        }
        disks
    }
}

/// What the data volumes of a machine's templates wait for before it can start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Templates {
    Ready,
    Waiting,
    Failed(String),
}

impl Claims {
    pub(crate) fn templates(&self, namespace: &str, templates: &[DataVolumeTemplateSpec]) -> Templates {
        let mut answer = Templates::Ready;
        for template in templates {
            let name = template.metadata.name.as_deref().unwrap_or_default();
            let key = Key::new(namespace, name);
            let data_volume = self.data_volumes.get(&key);
            let phase = data_volume.as_ref().and_then(|one| one.status.as_ref()).and_then(|one| one.phase.as_deref());
            match phase {
                Some("Succeeded" | "WaitForFirstConsumer" | "PendingPopulation") => {}
                Some("Failed") => return Templates::Failed(format!("DataVolume {name} failed to import disk image")),
                // Whoever filled the claim before may have forgotten its data volume.
                None if data_volume.is_none() && self.is_bound(&key) => {}
                _ => answer = Templates::Waiting,
            }
        }
        answer
    }

    fn is_bound(&self, key: &Key) -> bool {
        self.claims.get(key).is_some_and(|claim| matches!(state(Some(&claim), None), Disk::Ready(_)))
    }
}

fn state(claim: Option<&PersistentVolumeClaim>, data_volume: Option<&DataVolume>) -> Disk {
    if let Some(data_volume) = data_volume {
        let name = data_volume.metadata.name.as_deref().unwrap_or_default();
        let status = data_volume.status.as_ref();
        let phase = status.and_then(|status| status.phase.as_deref()).unwrap_or_default();
        if phase == "Failed" {
            return Disk::Failed(format!("DataVolume {name} is in Failed phase"));
        }
        if let Some(stopped) = status.into_iter().flat_map(|status| &status.conditions).find(|one| is_stopped(one)) {
            let message = stopped.message.as_deref().unwrap_or_default();
            return Disk::Failed(format!("DataVolume {name} importer has stopped running due to an error: {message}"));
        }
        match phase {
            "Succeeded" => {}
            "WaitForFirstConsumer" | "PendingPopulation" => return Disk::Unbound,
            _ => return Disk::Filling,
        }
    }
    let Some(claim) = claim else { return Disk::Missing };
    let phase = claim.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default();
    let volume = claim.spec.as_ref().and_then(|spec| spec.volume_name.clone());
    match (phase, volume) {
        ("Bound", Some(_)) if is_being_filled(claim) => Disk::Filling,
        ("Bound", Some(volume)) => Disk::Ready(volume),
        ("Lost", _) => {
            Disk::Failed(format!("the volume of claim {} is lost", claim.metadata.name.as_deref().unwrap_or_default()))
        }
        _ => Disk::Unbound,
    }
}

fn is_stopped(condition: &DataVolumeCondition) -> bool {
    condition.type_ == "Running"
        && condition.status == "False"
        && matches!(condition.reason.as_deref(), Some("Error" | "ImagePullFailed"))
}

#[cfg(test)]
#[expect(clippy::needless_pass_by_value, reason = "tables read better without references")]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn claim(phase: &str) -> Value {
        let volume = if phase == "Bound" { json!("pv") } else { Value::Null };
        json!({"metadata": {"name": "c"}, "spec": {"volumeName": volume}, "status": {"phase": phase}})
    }

    fn data_volume(phase: &str, conditions: Value) -> Value {
        json!({"metadata": {"name": "c"}, "spec": {}, "status": {"phase": phase, "conditions": conditions}})
    }

    #[test]
    fn a_disk_is_ready_when_its_claim_is_bound_and_filled() {
        let stopped = json!([{"type": "Running", "status": "False", "reason": "Error", "message": "404"}]);
        let error = "DataVolume c importer has stopped running due to an error: 404";
        let cases = [
            (Some(claim("Bound")), None, Disk::Ready("pv".to_owned())),
            (Some(claim("Pending")), None, Disk::Unbound),
            (Some(claim("Lost")), None, Disk::Failed("the volume of claim c is lost".to_owned())),
            (None, None, Disk::Missing),
            (Some(claim("Bound")), Some(data_volume("Succeeded", json!([]))), Disk::Ready("pv".to_owned())),
            (Some(claim("Bound")), Some(data_volume("ImportInProgress", json!([]))), Disk::Filling),
            (Some(claim("Bound")), Some(data_volume("", json!([]))), Disk::Filling),
            (Some(claim("Pending")), Some(data_volume("WaitForFirstConsumer", json!([]))), Disk::Unbound),
            (Some(claim("Bound")), Some(data_volume("ImportInProgress", stopped)), Disk::Failed(error.to_owned())),
            (
                Some(claim("Bound")),
                Some(data_volume("Failed", json!([]))),
                Disk::Failed("DataVolume c is in Failed phase".to_owned()),
            ),
            (None, Some(data_volume("Succeeded", json!([]))), Disk::Missing),
        ];
        for (claim, data_volume, expected) in cases {
            let claim = claim.map(|value| serde_json::from_value(value).unwrap());
            let data_volume = data_volume.map(|value| serde_json::from_value(value).unwrap());
            assert_eq!(state(claim.as_ref(), data_volume.as_ref()), expected);
        }
    }

    #[test]
    fn a_machine_waits_for_the_data_volumes_of_its_templates() {
        let templates: Vec<DataVolumeTemplateSpec> =
            serde_json::from_value(json!([{"metadata": {"name": "c"}, "spec": {}}])).unwrap();
        let told = |phase: Option<&str>, is_bound: bool| {
            let claims = Claims::default();
            if let Some(phase) = phase {
                let object = data_volume(phase, json!([]));
                claims.data_volumes.insert(Key::new("ns", "c"), serde_json::from_value(object).unwrap());
            }
            if is_bound {
                claims.claims.insert(Key::new("ns", "c"), serde_json::from_value(claim("Bound")).unwrap());
            }
            claims.templates("ns", &templates)
        };
        assert_eq!(told(None, false), Templates::Waiting);
        assert_eq!(told(None, true), Templates::Ready, "the data volume is not needed any more");
        assert_eq!(told(Some("ImportInProgress"), true), Templates::Waiting);
        assert_eq!(told(Some("Succeeded"), true), Templates::Ready);
        assert_eq!(told(Some("WaitForFirstConsumer"), false), Templates::Ready);
        assert!(matches!(told(Some("Failed"), false), Templates::Failed(_)));
    }

    #[test]
    fn a_claim_that_a_data_volume_owns_waits_for_it_too() {
        let claims = Claims::default();
        let mut owned = claim("Bound");
        let owner = json!({"apiVersion": "v1", "kind": "DataVolume", "name": "c", "uid": "u", "controller": true});
        owned["metadata"]["ownerReferences"] = json!([owner]);
        claims.claims.insert(Key::new("ns", "c"), serde_json::from_value(owned).unwrap());
        let filling = data_volume("ImportInProgress", json!([]));
        claims.data_volumes.insert(Key::new("ns", "c"), serde_json::from_value(filling).unwrap());
        let volume: Volume =
            serde_json::from_value(json!({"name": "d", "persistentVolumeClaim": {"claimName": "c"}})).unwrap();
        assert_eq!(claims.disk("ns", &volume), Some(Disk::Filling));
        assert_eq!(claims.disk("other", &volume), Some(Disk::Missing));
        let none: Volume = serde_json::from_value(json!({"name": "d", "emptyDisk": {"capacity": "1Gi"}})).unwrap();
        assert_eq!(claims.disk("ns", &none), None);
    }
}
