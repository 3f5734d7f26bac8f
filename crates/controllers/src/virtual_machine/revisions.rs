//! What a machine was like when its guest was started, kept as a ControllerRevision.
//!
//! Only one is kept for a machine. Its name has the generation in it, as KubeVirt's has.

use std::collections::{BTreeSet, HashMap};

use croft_api::kubevirt::{VirtualMachine, VirtualMachineSpec};
use croft_reconcile::{Event, Object, Source, failure, watch};
use futures::StreamExt;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use kube::api::{DeleteParams, ObjectMeta};
use kube::{Api, Client};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::json;

use super::view::{name, namespace, status_of, uid};
use crate::patch;

const PREFIX: &str = "revision-start-vm-";

/// The revisions of machines by the machine's uid; which generations there are.
pub(super) struct Revisions {
    client: Client,
    there: Mutex<HashMap<String, BTreeSet<i64>>>,
}

#[derive(Deserialize)]
struct Data {
    spec: VirtualMachineSpec,
}

pub(super) fn revision_name(machine: &VirtualMachine) -> String {
    format!("{PREFIX}{}-{}", uid(&machine.metadata), machine.metadata.generation.unwrap_or_default())
}

/// The uid and the generation that a name is made of.
fn parse_name(name: &str) -> Option<(&str, i64)> {
    let (uid, generation) = name.strip_prefix(PREFIX)?.rsplit_once('-')?;
    Some((uid, generation.parse().ok()?))
}

pub(super) fn owner(machine: &VirtualMachine) -> OwnerReference {
    OwnerReference {
        api_version: "kubevirt.io/v1".to_owned(),
        kind: "VirtualMachine".to_owned(),
        name: name(&machine.metadata).to_owned(),
        uid: uid(&machine.metadata).to_owned(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

impl Revisions {
    pub(super) fn new(client: Client) -> Self {
        Self { client, there: Mutex::default() }
    }

    /// Keeps up to date what there is. It has no end.
    pub(super) async fn follow(&self) {
        let mut events = watch::<Object>(self.client.clone(), Source::of::<ControllerRevision>());
        while let Some(event) = events.next().await {
            match event {
                Event::Restarted => self.there.lock().clear(),
                Event::Applied(object) => self.note(&object.metadata.name, true),
                Event::Deleted(object) => self.note(&object.metadata.name, false),
                Event::Synced => {}
            }
        }
    }

    fn note(&self, name: &str, is_there: bool) {
        let Some((uid, generation)) = parse_name(name) else { return };
        let mut there = self.there.lock();
        let generations = there.entry(uid.to_owned()).or_default();
        if is_there {
            generations.insert(generation);
        } else {
            generations.remove(&generation);
        }
        if generations.is_empty() {
            there.remove(uid);
        }
    }

    /// Keeps the machine as it is now, and forgets how it was at earlier starts.
    pub(super) async fn keep(&self, machine: &VirtualMachine) -> Result<(), kube::Error> {
        let revisions: Api<ControllerRevision> = Api::namespaced(self.client.clone(), namespace(&machine.metadata));
        let generation = machine.metadata.generation.unwrap_or_default();
        let there = self.there.lock().get(uid(&machine.metadata)).cloned().unwrap_or_default();
        for old in there.iter().filter(|old| **old != generation) {
            let name = format!("{PREFIX}{}-{old}", uid(&machine.metadata));
            failure::absent_is_none(revisions.delete(&name, &DeleteParams::default()).await)?;
        }
        if there.contains(&generation) {
            return Ok(());
        }
        let revision = ControllerRevision {
            metadata: ObjectMeta {
                name: Some(revision_name(machine)),
                owner_references: Some(vec![owner(machine)]),
                ..ObjectMeta::default()
            },
            data: Some(RawExtension(json!({"spec": spec_with_revisions(machine)}))),
            revision: generation,
        };
        match revisions.create(&patch::post_params(), &revision).await {
            Err(error) if !failure::is_conflict(&error) => Err(error),
            _ => Ok(()),
        }
    }

    /// The machine as it was when a revision was kept.
    pub(super) async fn read(&self, namespace: &str, name: &str) -> Result<Option<VirtualMachineSpec>, kube::Error> {
        let revisions: Api<ControllerRevision> = Api::namespaced(self.client.clone(), namespace);
        let Some(revision) = revisions.get_opt(name).await? else { return Ok(None) };
        let data = revision.data.and_then(|data| serde_json::from_value::<Data>(data.0).ok());
        Ok(data.map(|data| data.spec))
    }
}

/// The instancetype and preference may change or go; their revisions say what they were.
fn spec_with_revisions(machine: &VirtualMachine) -> VirtualMachineSpec {
    let mut spec = machine.spec.clone();
    let status = status_of(machine);
    let revision = |reference: Option<&croft_api::kubevirt::InstancetypeStatusRef>| {
        reference.and_then(|reference| reference.controller_revision_ref.as_ref()).and_then(|one| one.name.clone())
    };
    if let (Some(matcher), Some(name)) = (&mut spec.instancetype, revision(status.instancetype_ref.as_ref())) {
        matcher.revision_name = Some(name);
    }
    if let (Some(matcher), Some(name)) = (&mut spec.preference, revision(status.preference_ref.as_ref())) {
        matcher.revision_name = Some(name);
    }
    spec
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_the_machine_and_its_generation() {
        assert_eq!(parse_name("revision-start-vm-0d1c-22-7"), Some(("0d1c-22", 7)));
        assert_eq!(parse_name("vm-small-v1beta1-0d1c-1"), None);
        assert_eq!(parse_name("revision-start-vm-0d1c"), None);
    }
}
