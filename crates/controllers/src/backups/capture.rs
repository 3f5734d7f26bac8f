//! What of a machine is kept. Nothing is done here.

use std::collections::BTreeMap;

use croft_api::harvester::Copied;
use croft_api::snapshot::{SnapshotSet, VolumeSnapshot, VolumeSnapshotSource, VolumeSnapshotSpec};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use serde_json::{Value, json};

/// How long a guest's file systems may take to come to rest, if nobody says otherwise.
pub(super) const FREEZE_MS: u64 = 10_000;
const LONGHORN: &str = "driver.longhorn.io";
const PROVISIONER: &str = "volume.kubernetes.io/storage-provisioner";

/// A volume of a machine that is on a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Disk {
    pub(super) volume: String,
    pub(super) claim: String,
}

/// The volumes of a template's spec that are kept: those on claims of the machine's own.
pub(super) fn disks(spec: &Value) -> Vec<Disk> {
    let volumes = spec["volumes"].as_array().map(Vec::as_slice).unwrap_or_default();
    let disk = |volume: &Value| {
        let claim =
            volume.pointer("/persistentVolumeClaim/claimName").or_else(|| volume.pointer("/dataVolume/name"))?;
        Some(Disk { volume: volume["name"].as_str()?.to_owned(), claim: claim.as_str()?.to_owned() })
    };
    volumes.iter().filter_map(disk).collect()
}

/// The places in a template's spec that name a Secret of the machine's own.
pub(super) fn secrets(spec: &mut Value) -> Vec<&mut Value> {
    const IN_VOLUME: [[&str; 3]; 6] = [
        ["cloudInitNoCloud", "secretRef", "name"],
        ["cloudInitNoCloud", "networkDataSecretRef", "name"],
        ["cloudInitConfigDrive", "secretRef", "name"],
        ["cloudInitConfigDrive", "networkDataSecretRef", "name"],
        ["secret", "secretName", ""],
        ["sysprep", "secret", "name"],
    ];
    let mut found = Vec::new();
    let Some(spec) = spec.as_object_mut() else { return found };
    for (list, value) in spec {
        let entries = value.as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut);
        match list.as_str() {
            "volumes" => {
                for (kind, source) in entries.flatten() {
                    let Some(fields) = source.as_object_mut() else { continue };
                    for (field, value) in fields {
                        let place = IN_VOLUME.iter().find(|place| place[0] == kind && place[1] == field);
                        let Some([_, _, last]) = place else { continue };
                        let value = if last.is_empty() { Some(value) } else { value.get_mut(*last) };
                        found.extend(value.filter(|value| value.is_string()));
                    }
                }
            }
            "accessCredentials" => {
                for (_, credential) in entries.flatten() {
                    let name = credential.pointer_mut("/source/secret/secretName");
                    found.extend(name.filter(|value| value.is_string()));
                }
            }
            _ => {}
        }
    }
    found
}

/// The metadata of an object that are its own, and not its state's.
pub(super) fn metadata(object: &Value) -> Value {
    let mut kept = json!({});
    for field in ["name", "namespace", "labels", "annotations", "uid", "creationTimestamp"] {
        if !object[field].is_null() {
            kept[field] = object[field].clone();
        }
    }
    kept
}

/// A claim as it is, without the volume that is its own.
pub(super) fn claim(claim: &PersistentVolumeClaim) -> Copied {
    // Objects of texts and numbers can always be written.
    let mut spec = serde_json::to_value(&claim.spec).unwrap_or_default();
    let own = serde_json::to_value(&claim.metadata).unwrap_or_default();
    if let Some(fields) = spec.as_object_mut() {
        fields.remove("volumeName");
    }
    Copied { metadata: metadata(&own), spec }
}

/// Who made a claim's volume.
pub(super) fn driver(claim: &Copied) -> &str {
    claim.metadata["annotations"][PROVISIONER].as_str().unwrap_or(LONGHORN)
}

/// The snapshot of one disk of a machine.
#[derive(Debug)]
pub(super) struct SnapshotWanted<'a> {
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
    pub(super) claim: &'a Copied,
    pub(super) owner: Option<OwnerReference>,
    pub(super) set: &'a SnapshotSet,
    /// To the backup target.
    pub(super) is_copied: bool,
}

/// What the claim was goes along, so that it can be restored without it.
pub(super) fn snapshot(wanted: &SnapshotWanted<'_>, class: String) -> VolumeSnapshot {
    let claim = wanted.claim;
    let mut annotations: BTreeMap<String, String> = [wanted.set.annotation()].into();
    annotations.insert("harvesterhci.io/storageProvisioner".to_owned(), driver(claim).to_owned());
    if let Some(class) = claim.spec["storageClassName"].as_str() {
        annotations.insert("harvesterhci.io/storageClassName".to_owned(), class.to_owned());
    }
    if let Some(image) = claim.metadata["annotations"]["harvesterhci.io/imageId"].as_str() {
        annotations.insert("harvesterhci.io/imageId".to_owned(), image.to_owned());
    }
    VolumeSnapshot {
        metadata: ObjectMeta {
            name: Some(wanted.name.to_owned()),
            namespace: Some(wanted.namespace.to_owned()),
            annotations: Some(annotations),
            owner_references: wanted.owner.clone().map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        spec: VolumeSnapshotSpec {
            source: VolumeSnapshotSource {
                persistent_volume_claim_name: claim.metadata["name"].as_str().map(str::to_owned),
                ..VolumeSnapshotSource::default()
            },
            volume_snapshot_class_name: Some(class),
        },
        status: None,
    }
}

/// As Go writes durations (`1m30s`), in milliseconds.
pub(crate) fn milliseconds(text: &str) -> Option<u64> {
    let mut total = 0.0_f64;
    let mut rest = text;
    while !rest.is_empty() {
        let (value, after) = rest.split_at(rest.find(|c: char| !c.is_ascii_digit() && c != '.')?);
        let end = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        let factor = match unit {
            "h" => 3_600_000.0,
            "m" => 60_000.0,
            "s" => 1000.0,
            "ms" => 1.0,
            _ => return None,
        };
        total += value.parse::<f64>().ok()? * factor;
        rest = after;
    }
    let whole = std::time::Duration::try_from_secs_f64(total / 1000.0).ok()?;
    u64::try_from(whole.as_millis()).ok().filter(|_| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_disk_and_every_secret_of_a_machine_is_found() {
        let mut spec = json!({
            "volumes": [
                {"name": "a", "persistentVolumeClaim": {"claimName": "one"}},
                {"name": "b", "dataVolume": {"name": "two"}},
                {"name": "c", "memoryDump": {"claimName": "no"}},
                {"name": "d", "cloudInitNoCloud": {"secretRef": {"name": "s1"}, "networkDataSecretRef": {"name": "s2"}, "userData": "x"}},
                {"name": "e", "secret": {"secretName": "s3"}},
                {"name": "f", "sysprep": {"secret": {"name": "s4"}}},
                {"name": "g", "configMap": {"name": "no"}},
            ],
            "accessCredentials": [{"sshPublicKey": {"source": {"secret": {"secretName": "s5"}}}}],
        });
        let found: Vec<(String, String)> = disks(&spec).into_iter().map(|disk| (disk.volume, disk.claim)).collect();
        assert_eq!(found, [("a".into(), "one".into()), ("b".into(), "two".into())]);
        let mut names: Vec<String> =
            secrets(&mut spec).into_iter().map(|name| name.as_str().unwrap().to_owned()).collect();
        names.sort();
        assert_eq!(names, ["s1", "s2", "s3", "s4", "s5"]);
        assert!(secrets(&mut json!({"volumes": null})).is_empty() && disks(&json!({})).is_empty());
    }

    #[test]
    fn durations_are_read_as_go_writes_them() {
        for (text, expected) in [
            ("30s", Some(30_000)),
            ("1m30s", Some(90_000)),
            ("1.5s", Some(1500)),
            ("", None),
            ("5", None),
            ("-5s", None),
        ] {
            assert_eq!(milliseconds(text), expected, "{text}");
        }
    }
}
