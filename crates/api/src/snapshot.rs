//! snapshot.storage.k8s.io/v1: states of volumes that are kept.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::kind::{kind, nullable};

pub const GROUP: &str = "snapshot.storage.k8s.io";

/// The class that is taken by those who name none.
pub const DEFAULT_CLASS: &str = "snapshot.storage.kubernetes.io/is-default-class";
/// On a content: a claim of another volume mode may be made from it.
pub const MODE_MAY_CHANGE: &str = "snapshot.storage.kubernetes.io/allow-volume-mode-change";

kind! {
    /// Somebody's wish for a snapshot of a claim, or for one that is there.
    VolumeSnapshot, "snapshot.storage.k8s.io", "v1", "volumesnapshots", NamespaceResourceScope {
        spec: VolumeSnapshotSpec,
        #[serde(skip_serializing_if = "Option::is_none")]
        status: Option<VolumeSnapshotStatus>,
    }
}

kind! {
    /// The snapshot itself.
    VolumeSnapshotContent, "snapshot.storage.k8s.io", "v1", "volumesnapshotcontents", ClusterResourceScope {
        spec: VolumeSnapshotContentSpec,
        #[serde(skip_serializing_if = "Option::is_none")]
        status: Option<VolumeSnapshotContentStatus>,
    }
}

kind! {
    /// Who takes snapshots, and what becomes of them.
    VolumeSnapshotClass, "snapshot.storage.k8s.io", "v1", "volumesnapshotclasses", ClusterResourceScope {
        driver: String,
        deletion_policy: String,
        #[serde(default, deserialize_with = "nullable")]
        parameters: BTreeMap<String, String>,
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VolumeSnapshotSpec {
    pub source: VolumeSnapshotSource,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_snapshot_class_name: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VolumeSnapshotSource {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub persistent_volume_claim_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_snapshot_content_name: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VolumeSnapshotStatus {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bound_volume_snapshot_content_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub creation_time: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_to_use: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restore_size: Option<Quantity>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<SnapshotError>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotError {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<Time>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VolumeSnapshotContentSpec {
    /// The snapshot that it is for.
    pub volume_snapshot_ref: ObjectReference,
    /// `Delete` or `Retain`.
    pub deletion_policy: String,
    pub driver: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_snapshot_class_name: Option<String>,
    pub source: VolumeSnapshotContentSource,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_volume_mode: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VolumeSnapshotContentSource {
    /// The volume that it is to be taken of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_handle: Option<String>,
    /// One that was there before its object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot_handle: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VolumeSnapshotContentStatus {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot_handle: Option<String>,
    /// In nanoseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub creation_time: Option<i64>,
    /// In bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restore_size: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_to_use: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<SnapshotError>,
}

impl VolumeSnapshot {
    pub fn is_ready(&self) -> bool {
        self.status.as_ref().and_then(|status| status.ready_to_use) == Some(true)
    }

    pub fn error(&self) -> Option<&str> {
        self.status.as_ref()?.error.as_ref()?.message.as_deref()
    }
}

/// Snapshots that are taken together, of all disks of a machine at one instant. Each of them says so in an annotation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotSet {
    /// What tells this set from others of its namespace.
    pub id: String,
    /// The names of all snapshots of the set.
    pub members: Vec<String>,
    /// The machine whose disks they are.
    pub machine: String,
    /// How long the guest's file systems may take to come to rest, in milliseconds.
    pub freeze_ms: u64,
    /// The guest's memory is kept too, if it runs.
    #[serde(default)]
    pub with_memory: bool,
}

impl SnapshotSet {
    const ANNOTATION: &str = "croft.io/snapshot-set";

    pub fn of(metadata: &ObjectMeta) -> Option<Self> {
        let text = metadata.annotations.as_ref()?.get(Self::ANNOTATION)?;
        serde_json::from_str(text).ok()
    }

    /// The annotation's name and value.
    pub fn annotation(&self) -> (String, String) {
        // A struct of texts and numbers can always be written.
        (Self::ANNOTATION.to_owned(), serde_json::to_string(self).unwrap_or_default())
    }
}

/// How a machine was when its disks were snapshotted, as an annotation tells it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Stillness {
    pub is_running: bool,
    pub is_paused: bool,
    pub has_agent: bool,
    /// The guest's file systems were at rest.
    pub is_frozen: bool,
    /// The guest's memory is kept with the first of its disks.
    #[serde(default)]
    pub has_memory: bool,
    /// How long the guest stood still for it.
    pub pause_ms: f64,
}

impl Stillness {
    pub const ANNOTATION: &str = "croft.io/snapshot-guest";

    pub fn of(metadata: &ObjectMeta) -> Option<Self> {
        let text = metadata.annotations.as_ref()?.get(Self::ANNOTATION)?;
        serde_json::from_str(text).ok()
    }

    /// What it means, in KubeVirt's words.
    pub fn indications(&self) -> Vec<&'static str> {
        if !self.is_running {
            return Vec::new();
        }
        if self.has_memory {
            // Nothing is missing that would be in the memory.
            return vec!["Online"];
        }
        let agent = match (self.has_agent, self.is_frozen) {
            (true, true) => "GuestAgent",
            (true, false) if !self.is_paused => "QuiesceFailed",
            _ => "NoGuestAgent",
        };
        let paused = self.is_paused.then_some("Paused");
        ["Online", agent].into_iter().chain(paused).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_is_read_back_and_nonsense_is_none() {
        let set = SnapshotSet {
            id: "1".into(),
            members: vec!["a".into()],
            machine: "vm".into(),
            freeze_ms: 5,
            with_memory: true,
        };
        let annotations =
            |pair: (String, String)| ObjectMeta { annotations: Some([pair].into()), ..ObjectMeta::default() };
        assert_eq!(SnapshotSet::of(&annotations(set.annotation())), Some(set));
        assert_eq!(SnapshotSet::of(&annotations((SnapshotSet::ANNOTATION.into(), "[".into()))), None);
        assert_eq!(SnapshotSet::of(&ObjectMeta::default()), None);
    }

    #[test]
    fn indications_say_how_the_guest_was() {
        let guest = Stillness { is_running: true, ..Stillness::default() };
        let cases = [
            (Stillness::default(), ""),
            (guest.clone(), "Online NoGuestAgent"),
            (Stillness { has_agent: true, is_frozen: true, ..guest.clone() }, "Online GuestAgent"),
            (Stillness { has_agent: true, ..guest.clone() }, "Online QuiesceFailed"),
            (Stillness { has_agent: true, has_memory: true, ..guest.clone() }, "Online"),
            (Stillness { is_paused: true, has_agent: true, ..guest }, "Online NoGuestAgent Paused"),
        ];
        for (guest, expected) in cases {
            assert_eq!(guest.indications().join(" "), expected);
        }
    }
}
