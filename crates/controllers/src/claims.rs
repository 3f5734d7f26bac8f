//! What the disks of a machine still wait for.

use croft_api::cdi::{DataVolume, DataVolumeCondition};
use croft_api::kubevirt::Volume;
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

/// The claims and data volumes that there are.
#[derive(Clone, Debug, Default)]
pub(crate) struct Claims {
    pub(crate) claims: Cache<PersistentVolumeClaim>,
    pub(crate) data_volumes: Cache<DataVolume>,
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
