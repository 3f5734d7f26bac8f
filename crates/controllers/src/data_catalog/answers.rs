//! What profiles and sources should say, in CDI's words. Nothing is done here.

use croft_api::cdi::{
    ClaimPropertySet, DataSource, DataSourceCondition, DataSourceSource, DataSourceStatus, StorageProfile,
    StorageProfileStatus,
};
use croft_reconcile::{Cache, Key};
use jiff::Timestamp;
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};

use crate::claims::Claims;
use crate::virtual_machine::view::{name, uid};

/// One DataSource may name another.
const DEEPEST: usize = 4;
/// Both volume modes and all access modes give the same kind of disk; the first set is what is taken if nothing is said.
const PROPERTIES: [(&str, &str); 4] = [
    ("ReadWriteMany", "Block"),
    ("ReadWriteOnce", "Block"),
    ("ReadWriteMany", "Filesystem"),
    ("ReadWriteOnce", "Filesystem"),
];
const OURS: [&str; 2] = ["driver.longhorn.io", "local.croft.io"];

/// What a user has written in the spec counts more than what is known of the class.
pub(super) fn profile(class: &StorageClass, old: Option<&StorageProfile>) -> StorageProfile {
    let mut profile = old.cloned().unwrap_or_else(|| new_profile(class));
    let spec = &profile.spec;
    let sets = if spec.claim_property_sets.is_empty() { known(class) } else { spec.claim_property_sets.clone() };
    profile.status = Some(StorageProfileStatus {
        storage_class: Some(name(&class.metadata).to_owned()),
        provisioner: Some(class.provisioner.clone()),
        clone_strategy: spec.clone_strategy.clone().or_else(|| Some("copy".to_owned())),
        claim_property_sets: sets,
        data_import_cron_source_format: spec.data_import_cron_source_format.clone().or_else(|| Some("pvc".to_owned())),
        snapshot_class: spec.snapshot_class.clone(),
        conditions: profile.status.map(|status| status.conditions).unwrap_or_default(),
    });
    profile
}

fn new_profile(class: &StorageClass) -> StorageProfile {
    let owner = OwnerReference {
        api_version: "storage.k8s.io/v1".to_owned(),
        kind: "StorageClass".to_owned(),
        name: name(&class.metadata).to_owned(),
        uid: uid(&class.metadata).to_owned(),
        ..OwnerReference::default()
    };
    let label = ("app".to_owned(), "containerized-data-importer".to_owned());
    StorageProfile {
        metadata: ObjectMeta {
            name: class.metadata.name.clone(),
            labels: Some([label].into()),
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        },
        ..StorageProfile::default()
    }
}

/// Of classes that others serve nothing is known.
fn known(class: &StorageClass) -> Vec<ClaimPropertySet> {
    if !OURS.contains(&class.provisioner.as_str()) {
        return Vec::new();
    }
    let set = |(access, mode): (&str, &str)| ClaimPropertySet {
        access_modes: vec![access.to_owned()],
        volume_mode: Some(mode.to_owned()),
    };
    PROPERTIES.into_iter().map(set).collect()
}

pub(super) fn names_claim(source: &DataSource, claim: &Key) -> bool {
    let shown = source.status.as_ref().and_then(|status| status.source.pvc.as_ref());
    let named = [source.spec.source.pvc.as_ref(), shown];
    named.into_iter().flatten().any(|one| one.namespace == claim.namespace && one.name == claim.name)
}

pub(super) fn names_snapshot(source: &DataSource, snapshot: &Key) -> bool {
    let shown = source.status.as_ref().and_then(|status| status.source.snapshot.as_ref());
    let named = [source.spec.source.snapshot.as_ref(), shown];
    named.into_iter().flatten().any(|one| one.namespace == snapshot.namespace && one.name == snapshot.name)
}

pub(super) fn names_source(source: &DataSource, other: &Key) -> bool {
    let named = source.spec.source.data_source.as_ref();
    named.is_some_and(|one| one.namespace == other.namespace && one.name == other.name)
}

/// The source with its status.
pub(super) fn source(source: &DataSource, claims: &Claims, sources: &Cache<DataSource>, now: Timestamp) -> DataSource {
    let mut told = source.clone();
    let (found, outcome) = match resolve(source, sources) {
        Err(why) => (DataSourceSource::default(), Err(why)),
        Ok(found) => {
            let outcome = readiness(&found, claims);
            (found, outcome)
        }
    };
    let (status, reason, message) = match outcome {
        Ok(()) => ("True", "Ready", "DataSource is ready to be consumed".to_owned()),
        Err((reason, message)) => ("False", reason, message),
    };
    let known = told.status.take().unwrap_or_default().conditions;
    let before = known.into_iter().find(|condition| condition.type_ == "Ready");
    let mut ready = DataSourceCondition {
        type_: "Ready".to_owned(),
        status: status.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message),
        last_transition_time: Some(Time(now)),
        last_heartbeat_time: Some(Time(now)),
    };
    if let Some(before) = before.filter(|before| before.status == ready.status) {
        ready.last_transition_time = before.last_transition_time;
        // What says the same as before is the same.
        if (&before.reason, &before.message) == (&ready.reason, &ready.message) {
            ready.last_heartbeat_time = before.last_heartbeat_time;
        }
    }
    told.status = Some(DataSourceStatus { source: found, conditions: vec![ready] });
    told
}

type Why = (&'static str, String);

/// What a source names, through others if need be.
fn resolve(source: &DataSource, sources: &Cache<DataSource>) -> Result<DataSourceSource, Why> {
    let mut found = source.spec.source.clone();
    for _ in 0..DEEPEST {
        let Some(next) = found.data_source.take() else { return Ok(found) };
        let key = Key::new(next.namespace, next.name);
        let Some(next) = sources.get(&key) else { return Err(("NotFound", format!("there is no DataSource {key}"))) };
        found = next.spec.source.clone();
    }
    Err(("MaxReferenceDepthReached", "DataSources name each other, and in the end nothing".to_owned()))
}

fn readiness(source: &DataSourceSource, claims: &Claims) -> Result<(), Why> {
    if let Some(snapshot) = &source.snapshot {
        let key = Key::new(snapshot.namespace.clone(), snapshot.name.clone());
        return match claims.snapshots.get(&key) {
            None => Err(("NotFound", format!("VolumeSnapshot {key} was not found"))),
            Some(snapshot) if !snapshot.is_ready() => {
                Err(("SnapshotNotReady", format!("VolumeSnapshot {key} is not ready")))
            }
            Some(_) => Ok(()),
        };
    }
    let Some(claim) = &source.pvc else { return Err(("NoSource", "No source PVC set".to_owned())) };
    let key = Key::new(claim.namespace.clone(), claim.name.clone());
    let volume = claims.data_volumes.get(&key);
    let phase = volume.as_ref().and_then(|volume| volume.status.as_ref()?.phase.clone()).unwrap_or_default();
    if volume.is_some() && phase != "Succeeded" {
        return Err(("ImportInProgress", format!("DataVolume {key} is {phase}")));
    }
    match claims.claims.get(&key) {
        None => Err(("NotFound", format!("PVC {key} was not found"))),
        Some(claim) if croft_api::cdi::filling::is_being_filled(&claim) => {
            Err(("ImportInProgress", format!("PVC {key} is being filled")))
        }
        Some(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn class(provisioner: &str) -> StorageClass {
        serde_json::from_value(json!({"metadata": {"name": "c", "uid": "u"}, "provisioner": provisioner})).unwrap()
    }

    #[test]
    fn a_profile_tells_what_is_known_unless_a_user_says_otherwise() {
        let mut told = profile(&class("driver.longhorn.io"), None);
        let sets = told.status.clone().unwrap().claim_property_sets;
        assert_eq!(
            (sets[0].access_modes[0].as_str(), sets[0].volume_mode.as_deref()),
            ("ReadWriteMany", Some("Block"))
        );
        assert_eq!(profile(&class("driver.longhorn.io"), Some(&told)), told, "the same again");
        told.spec.claim_property_sets = vec![sets[3].clone()];
        assert_eq!(profile(&class("driver.longhorn.io"), Some(&told)).status.unwrap().claim_property_sets, sets[3..]);
        assert!(profile(&class("other"), None).status.unwrap().claim_property_sets.is_empty());
    }

    fn data_source(name: &str, source: &Value) -> DataSource {
        let source = json!({"metadata": {"name": name, "namespace": "ns"}, "spec": {"source": source}});
        serde_json::from_value(source).unwrap()
    }

    #[test]
    fn a_source_is_ready_when_what_it_names_is_full() {
        let (claims, sources) = (Claims::default(), Cache::default());
        let key = Key::new("ns", "disk");
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let pvc = data_source("golden", &json!({"pvc": {"namespace": "ns", "name": "disk"}}));
        let alias = data_source("alias", &json!({"dataSource": {"namespace": "ns", "name": "golden"}}));
        let round = data_source("round", &json!({"dataSource": {"namespace": "ns", "name": "round"}}));
        for one in [&pvc, &alias, &round] {
            sources.insert(Key::of(one), one.clone());
        }
        let reason = |one: &DataSource| {
            let told = source(one, &claims, &sources, now).status.unwrap().conditions.remove(0);
            told.reason.unwrap()
        };
        assert_eq!(reason(&pvc), "NotFound");
        assert_eq!(reason(&round), "MaxReferenceDepthReached");
        assert_eq!(reason(&data_source("none", &json!({}))), "NoSource");
        let kept = data_source("kept", &json!({"snapshot": {"namespace": "ns", "name": "disk"}}));
        assert_eq!(reason(&kept), "NotFound");
        for (is_ready, expected) in [(false, "SnapshotNotReady"), (true, "Ready")] {
            let snapshot = json!({"metadata": {"name": "disk", "namespace": "ns"}, "spec": {"source": {}}, "status": {"readyToUse": is_ready}});
            claims.snapshots.insert(key.clone(), serde_json::from_value(snapshot).unwrap());
            assert_eq!(reason(&kept), expected);
        }
        let claim = |phase: &str| {
            let annotations = json!({"cdi.kubevirt.io/storage.pod.phase": phase});
            let claim = json!({"metadata": {"name": "disk", "namespace": "ns", "annotations": annotations}});
            serde_json::from_value(claim).unwrap()
        };
        claims.claims.insert(key.clone(), claim("Pending"));
        assert_eq!(reason(&pvc), "ImportInProgress");
        claims.claims.insert(key.clone(), claim("Succeeded"));
        assert_eq!((reason(&pvc).as_str(), reason(&alias).as_str()), ("Ready", "Ready"));
        assert!(names_claim(&source(&alias, &claims, &sources, now), &key), "by what it was resolved to");
    }
}
