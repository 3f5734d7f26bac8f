//! How a machine is to be restored, in KubeVirt's words: what is waited for, what disks are called, what is changed. Nothing
//! is done here.

use croft_api::kubevirt::{
    KeptVolume, VirtualMachineRestore as KubevirtRestore, VirtualMachineRestoreSpec, VolumeRestoreOverride,
};
use croft_apply::json_patch;
use croft_meta::{names, object};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

/// How long a machine that runs is waited for, if nobody says otherwise.
const PATIENCE: SignedDuration = SignedDuration::from_mins(5);
/// Says of a claim which restore it is for.
pub(super) const RESTORE_NAME: &str = "restore.kubevirt.io/name";
pub(super) const RESTORE_UID: &str = "croft.io/restore-uid";

/// What is to be done about a machine that runs.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Readiness {
    Wait(&'static str),
    Stop,
    Fail(&'static str),
}

pub(super) fn readiness(restore: &KubevirtRestore, now: Timestamp) -> Readiness {
    const WAIT: &str =
        "Waiting for target VM to be powered off. Please stop the restore target to proceed with restore";
    match restore.spec.target_readiness_policy.as_deref() {
        Some("StopTarget") => Readiness::Stop,
        Some("WaitEventually") => Readiness::Wait(WAIT),
        Some("FailImmediate") => Readiness::Fail("Restore target VMI still exists"),
        _ => {
            let begun = restore.metadata.creation_timestamp.as_ref();
            let is_late = begun.is_some_and(|Time(begun)| now.duration_since(*begun) > PATIENCE);
            if is_late {
                Readiness::Fail("Restore target failed to be ready within 5m0s")
            } else {
                Readiness::Wait(WAIT)
            }
        }
    }
}

pub(super) fn is_in_place(spec: &VirtualMachineRestoreSpec) -> bool {
    spec.volume_restore_policy.as_deref() == Some("InPlace")
}

/// Whether the disks go with the machine.
pub(super) fn owns_disks(spec: &VirtualMachineRestoreSpec) -> bool {
    spec.volume_ownership_policy.as_deref() != Some("None")
}

/// What is asked for and cannot be done is not left out.
pub(super) fn refusal(spec: &VirtualMachineRestoreSpec, kept: &[KeptVolume]) -> Option<String> {
    let policies = [
        (
            "targetReadinessPolicy",
            &spec.target_readiness_policy,
            ["StopTarget", "WaitGracePeriod", "FailImmediate", "WaitEventually"].as_slice(),
        ),
        (
            "volumeRestorePolicy",
            &spec.volume_restore_policy,
            ["RandomizeNames", "InPlace", "PrefixTargetName"].as_slice(),
        ),
        ("volumeOwnershipPolicy", &spec.volume_ownership_policy, ["Vm", "None"].as_slice()),
    ];
    for (name, asked, known) in policies {
        let asked = asked.as_deref().unwrap_or_default();
        if !asked.is_empty() && !known.contains(&asked) {
            return Some(format!("{name} {asked} is none of {}", known.join(", ")));
        }
    }
    for wanted in &spec.volume_restore_overrides {
        if !kept.iter().any(|volume| volume.volume_name == wanted.volume_name) {
            return Some(format!("volumeRestoreOverrides: the snapshot has no volume {:?}", wanted.volume_name));
        }
        let name = wanted.restore_name.as_deref().unwrap_or_default();
        if !name.is_empty() && !names::is_dns1123_subdomain(name).is_empty() {
            return Some(format!("volumeRestoreOverrides: {name:?} is no name for a claim"));
        }
    }
    None
}

/// What the claim of a restored disk is, besides its content.
pub(super) fn claim_metadata(restore: &KubevirtRestore, volume: &KeptVolume) -> Value {
    let (spec, uid) = (&restore.spec, restore.metadata.uid.as_deref().unwrap_or_default());
    let its = |wanted: &&VolumeRestoreOverride| wanted.volume_name == volume.volume_name;
    let wanted = spec.volume_restore_overrides.iter().find(its).cloned().unwrap_or_default();
    let old = volume.persistent_volume_claim.metadata["name"].as_str().unwrap_or_default();
    let usual = match spec.volume_restore_policy.as_deref() {
        Some("InPlace") => old.to_owned(),
        Some("PrefixTargetName") => format!("{}-{}", spec.target.name, volume.volume_name),
        _ => format!("restore-{uid}-{}", volume.volume_name),
    };
    let name = wanted.restore_name.filter(|name| !name.is_empty()).unwrap_or(usual);
    let mut metadata = json!({ "name": name, "annotations": wanted.annotations, "labels": wanted.labels });
    metadata["annotations"][RESTORE_NAME] = json!(restore.metadata.name);
    metadata["annotations"][RESTORE_UID] = json!(uid);
    metadata
}

/// The machine as it is asked to differ. Each patch is one operation, or a list of them.
pub(super) fn patched(machine: Value, patches: &[String]) -> Result<Value, String> {
    let (name, namespace) = (object::name(&machine).to_owned(), object::namespace(&machine).to_owned());
    let mut machine = machine;
    for patch in patches {
        let operation: Value = serde_json::from_str(patch).map_err(|error| format!("patches: {patch}: {error}"))?;
        let list = if operation.is_array() { operation } else { json!([operation]) };
        let applied = json_patch::apply(&machine, list.to_string().as_bytes());
        machine = applied.map_err(|error| format!("patches: {patch}: {error}"))?;
    }
    if machine["spec"]["template"].is_null() || !machine["metadata"].is_object() {
        return Err("patches: what they make is no machine".to_owned());
    }
    // What it is called is said elsewhere.
    machine["metadata"]["name"] = json!(name);
    machine["metadata"]["namespace"] = json!(namespace);
    Ok(machine)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn restore(change: &Value) -> KubevirtRestore {
        let mut object = json!({"metadata": {"name": "r", "uid": "7", "creationTimestamp": "2026-11-16T12:00:00Z"},
            "spec": {"target": {"kind": "VirtualMachine", "name": "vm"}, "virtualMachineSnapshotName": "s"}});
        for (key, value) in change.as_object().unwrap() {
            object["spec"][key] = value.clone();
        }
        serde_json::from_value(object).unwrap()
    }

    fn volume() -> KeptVolume {
        serde_json::from_value(
            json!({"volumeName": "disk", "persistentVolumeClaim": {"metadata": {"name": "old"}, "spec": {}}}),
        )
        .unwrap()
    }

    #[test]
    fn a_machine_that_runs_is_waited_for_as_asked() {
        let begun: Timestamp = "2026-11-16T12:00:00Z".parse().unwrap();
        let (soon, late) = (begun + SignedDuration::from_secs(10), begun + SignedDuration::from_secs(301));
        let policy = |name: &str, now| readiness(&restore(&json!({"targetReadinessPolicy": name})), now);
        assert!(matches!(readiness(&restore(&json!({})), soon), Readiness::Wait(_)));
        assert!(matches!(readiness(&restore(&json!({})), late), Readiness::Fail(_)));
        assert!(matches!(policy("WaitEventually", late), Readiness::Wait(_)));
        assert!(matches!(policy("FailImmediate", soon), Readiness::Fail(_)));
        assert_eq!(policy("StopTarget", late), Readiness::Stop);
    }

    #[test]
    fn claims_are_called_as_asked() {
        let name = |change: Value| claim_metadata(&restore(&change), &volume())["name"].clone();
        assert_eq!(name(json!({})), "restore-7-disk");
        assert_eq!(name(json!({"volumeRestorePolicy": "InPlace"})), "old");
        assert_eq!(name(json!({"volumeRestorePolicy": "PrefixTargetName"})), "vm-disk");
        let own = json!({"volumeRestoreOverrides": [{"volumeName": "disk", "restoreName": "mine", "labels": {"a": "b"},
            "annotations": {"c": "d"}}]});
        let metadata = claim_metadata(&restore(&own), &volume());
        let annotations = json!({"c": "d", RESTORE_NAME: "r", RESTORE_UID: "7"});
        assert_eq!(metadata, json!({"name": "mine", "labels": {"a": "b"}, "annotations": annotations}));
    }

    #[test]
    fn what_cannot_be_done_is_refused() {
        let why = |change: Value| refusal(&restore(&change).spec, &[volume()]);
        assert_eq!(why(json!({"volumeRestorePolicy": "InPlace", "targetReadinessPolicy": "StopTarget"})), None);
        assert!(
            why(json!({"volumeRestorePolicy": "Sideways"})).is_some_and(|why| why.contains("RandomizeNames, InPlace"))
        );
        assert!(why(json!({"volumeRestoreOverrides": [{"volumeName": "none"}]})).is_some());
        assert!(why(json!({"volumeRestoreOverrides": [{"volumeName": "disk", "restoreName": "No!"}]})).is_some());
    }

    #[test]
    fn a_machine_is_patched_but_for_its_name() {
        let machine = json!({"metadata": {"name": "vm", "namespace": "n"}, "spec": {"template": {"spec": {"a": 1}}}});
        let patches = [
            r#"{"op": "replace", "path": "/spec/template/spec/a", "value": 2}"#.to_owned(),
            r#"[{"op": "add", "path": "/metadata/labels", "value": {"x": "y"}}, {"op": "replace", "path": "/metadata/name", "value": "z"}]"#.to_owned(),
        ];
        let done = patched(machine.clone(), &patches).unwrap();
        assert_eq!(
            (&done["spec"]["template"]["spec"]["a"], &done["metadata"]["labels"]["x"]),
            (&json!(2), &json!("y"))
        );
        assert_eq!(done["metadata"]["name"], "vm");
        for bad in ["{", r#"{"op": "remove", "path": "/spec/none"}"#, r#"{"op": "remove", "path": "/spec/template"}"#] {
            assert!(patched(machine.clone(), &[bad.to_owned()]).is_err(), "{bad}");
        }
    }
}
