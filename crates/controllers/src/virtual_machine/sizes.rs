//! The instancetype and preference of a machine, and the revisions that they are kept in.
//!
//! A machine keeps the size that it was made with: what it names is copied into a ControllerRevision the first time,
//! and read from there ever after.

use croft_api::instancetype::{
    Chosen, VirtualMachineClusterInstancetype, VirtualMachineClusterPreference, VirtualMachineInstancetype,
    VirtualMachineInstancetypeSpec, VirtualMachinePreference, VirtualMachinePreferenceSpec,
};
use croft_api::kubevirt::{
    ControllerRevisionRef, InstancetypeMatcher, InstancetypeStatusRef, VirtualMachine, VirtualMachineSpec,
};
use croft_reconcile::failure;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use kube::api::ObjectMeta;
use kube::{Api, Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::conditions::Failure;
use super::revisions::owner;
use super::view::{name, namespace, status_of, uid};
use crate::patch;

const VERSION: &str = "v1beta1";
const LABELS: &str = "instancetype.kubevirt.io/";

/// What a machine refers to, and what its status should say of it.
#[derive(Clone, Debug, Default)]
pub(super) struct Sizes {
    instancetype: Option<VirtualMachineInstancetypeSpec>,
    preference: Option<VirtualMachinePreferenceSpec>,
    pub(super) instancetype_ref: Option<InstancetypeStatusRef>,
    pub(super) preference_ref: Option<InstancetypeStatusRef>,
}

impl Sizes {
    pub(super) fn chosen(&self) -> Chosen<'_> {
        Chosen { instancetype: self.instancetype.as_ref(), preference: self.preference.as_ref() }
    }
}

/// What could not be found or kept.
pub(super) enum SizeError {
    Api(kube::Error),
    Failure(Failure),
}

impl From<kube::Error> for SizeError {
    fn from(error: kube::Error) -> Self {
        Self::Api(error)
    }
}

/// An instancetype or a preference, in a namespace or in the cluster.
struct Family {
    /// How a matcher names the kinds, in lower case.
    names: [&'static str; 2],
    reason: &'static str,
}

const INSTANCETYPES: Family = Family {
    names: ["virtualmachineinstancetype", "virtualmachineclusterinstancetype"],
    reason: "FailedFindInstancetype",
};
const PREFERENCES: Family =
    Family { names: ["virtualmachinepreference", "virtualmachineclusterpreference"], reason: "FailedFindPreference" };

/// Finds what the machine refers to and sees to it that it is kept.
pub(super) async fn find(client: &Client, machine: &VirtualMachine) -> Result<Sizes, SizeError> {
    let mut sizes = Sizes::default();
    let status = status_of(machine);
    if let Some(matcher) = &machine.spec.instancetype {
        let mut reference = renewed(status.instancetype_ref.as_ref(), matcher);
        let spec = keep::<VirtualMachineInstancetype, VirtualMachineClusterInstancetype>(
            client,
            machine,
            &INSTANCETYPES,
            &mut reference,
        );
        sizes.instancetype = Some(parse(spec.await?, &INSTANCETYPES)?);
        sizes.instancetype_ref = Some(reference);
    }
    if let Some(matcher) = &machine.spec.preference {
        let matcher = InstancetypeMatcher {
            name: matcher.name.clone(),
            kind: matcher.kind.clone(),
            revision_name: matcher.revision_name.clone(),
            infer_from_volume: matcher.infer_from_volume.clone(),
            infer_from_volume_failure_policy: matcher.infer_from_volume_failure_policy.clone(),
        };
        let mut reference = renewed(status.preference_ref.as_ref(), &matcher);
        let spec = keep::<VirtualMachinePreference, VirtualMachineClusterPreference>(
            client,
            machine,
            &PREFERENCES,
            &mut reference,
        );
        sizes.preference = Some(parse(spec.await?, &PREFERENCES)?);
        sizes.preference_ref = Some(reference);
    }
    Ok(sizes)
}

/// The same for a machine as it was at its start; nothing is kept anew.
pub(super) async fn find_started(
    client: &Client,
    machine_namespace: &str,
    spec: &VirtualMachineSpec,
) -> Result<Option<Sizes>, kube::Error> {
    let mut sizes = Sizes::default();
    let revision = |name: Option<&String>| name.filter(|name| !name.is_empty()).cloned();
    if let Some(matcher) = &spec.instancetype {
        let Some(name) = revision(matcher.revision_name.as_ref()) else { return Ok(None) };
        let Some(spec) = read(client, machine_namespace, &name).await? else { return Ok(None) };
        sizes.instancetype = serde_json::from_value(spec).ok();
    }
    if let Some(matcher) = &spec.preference {
        let Some(name) = revision(matcher.revision_name.as_ref()) else { return Ok(None) };
        let Some(spec) = read(client, machine_namespace, &name).await? else { return Ok(None) };
        sizes.preference = serde_json::from_value(spec).ok();
    }
    Ok(Some(sizes))
}

fn parse<T: DeserializeOwned>(spec: Value, family: &Family) -> Result<T, SizeError> {
    serde_json::from_value(spec).map_err(|error| SizeError::Failure(Failure::new(family.reason, error.to_string())))
}

/// What the status says, brought in line with the matcher: another name, kind or volume needs another revision.
fn renewed(before: Option<&InstancetypeStatusRef>, matcher: &InstancetypeMatcher) -> InstancetypeStatusRef {
    let mut reference = before.cloned().unwrap_or_default();
    let given = |field: &Option<String>| field.clone().filter(|text| !text.is_empty());
    let fields = [
        (given(&matcher.name), &mut reference.name),
        (given(&matcher.kind), &mut reference.kind),
        (given(&matcher.infer_from_volume), &mut reference.infer_from_volume),
    ];
    let mut is_other = false;
    for (wanted, there) in fields {
        if wanted.is_some() && wanted != *there {
            *there = wanted;
            is_other = true;
        }
    }
    if is_other {
        reference.controller_revision_ref = None;
    }
    if let Some(policy) = given(&matcher.infer_from_volume_failure_policy) {
        reference.infer_from_volume_failure_policy = Some(policy);
    }
    if let Some(name) = given(&matcher.revision_name) {
        reference.controller_revision_ref = Some(ControllerRevisionRef { name: Some(name) });
    }
    reference
}

/// The spec, from the revision that the reference names, or else from the object itself, which is then kept.
async fn keep<N, C>(
    client: &Client,
    machine: &VirtualMachine,
    family: &Family,
    reference: &mut InstancetypeStatusRef,
) -> Result<Value, SizeError>
where
    N: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + DeserializeOwned
        + Serialize
        + std::fmt::Debug,
    C: Resource<DynamicType = ()> + Clone + DeserializeOwned + Serialize + std::fmt::Debug,
{
    let not_found = |what: String| SizeError::Failure(Failure::new(family.reason, what));
    let machine_namespace = namespace(&machine.metadata);
    let revision = reference.controller_revision_ref.as_ref().and_then(|one| one.name.clone());
    if let Some(revision) = revision {
        let spec = read(client, machine_namespace, &revision).await?;
        return spec.ok_or_else(|| not_found(format!("controllerrevisions.apps \"{revision}\" not found")));
    }
    let wanted = reference.name.clone().unwrap_or_default();
    let kind = reference.kind.as_deref().unwrap_or_default().to_lowercase();
    let kind = kind.strip_suffix('s').unwrap_or(&kind);
    let object = if kind == family.names[0] {
        let found = Api::<N>::namespaced(client.clone(), machine_namespace).get_opt(&wanted).await?;
        found.map(|found| written(&found))
    } else if kind == family.names[1] || kind.is_empty() {
        let found = Api::<C>::all(client.clone()).get_opt(&wanted).await?;
        found.map(|found| written(&found))
    } else {
        return Err(not_found(format!("got unexpected kind in matcher: {kind}")));
    };
    let plural = if kind == family.names[0] { N::plural(&()) } else { C::plural(&()) };
    let Some(object) = object else {
        return Err(not_found(format!("{plural}.instancetype.kubevirt.io \"{wanted}\" not found")));
    };
    let name = store(client, machine, &object).await?;
    reference.controller_revision_ref = Some(ControllerRevisionRef { name: Some(name) });
    Ok(object["spec"].clone())
}

fn written(object: &impl Serialize) -> Value {
    // A struct that was just read from JSON.
    serde_json::to_value(object).unwrap_or_default()
}

async fn read(client: &Client, machine_namespace: &str, name: &str) -> Result<Option<Value>, kube::Error> {
    let revisions: Api<ControllerRevision> = Api::namespaced(client.clone(), machine_namespace);
    let revision = revisions.get_opt(name).await?;
    Ok(revision.and_then(|revision| revision.data).map(|data| data.0["spec"].clone()))
}

/// Keeps a copy of the object for this machine. Its name says which state of which object it is, so one that is there
/// already is the same.
async fn store(client: &Client, machine: &VirtualMachine, object: &Value) -> Result<String, kube::Error> {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (object_name, object_uid, kind) = (text("/metadata/name"), text("/metadata/uid"), text("/kind"));
    let generation = object.pointer("/metadata/generation").and_then(Value::as_i64).unwrap_or_default();
    let revision_name = format!("{}-{object_name}-{VERSION}-{object_uid}-{generation}", name(&machine.metadata));
    let labels = [
        ("object-generation", generation.to_string()),
        ("object-kind", kind.clone()),
        ("object-name", object_name.clone()),
        ("object-uid", object_uid.clone()),
        ("object-version", VERSION.to_owned()),
    ];
    let metadata = json!({"name": object_name, "uid": object_uid, "generation": generation,
        "namespace": object.pointer("/metadata/namespace")});
    let copy = json!({"apiVersion": object["apiVersion"], "kind": kind, "metadata": metadata, "spec": object["spec"]});
    let revision = ControllerRevision {
        metadata: ObjectMeta {
            name: Some(revision_name.clone()),
            labels: Some(labels.into_iter().map(|(key, value)| (format!("{LABELS}{key}"), value)).collect()),
            owner_references: Some(vec![owner(machine)]),
            ..ObjectMeta::default()
        },
        data: Some(RawExtension(copy)),
        revision: 0,
    };
    debug_assert!(!uid(&machine.metadata).is_empty(), "the machine has been stored");
    let revisions: Api<ControllerRevision> = Api::namespaced(client.clone(), namespace(&machine.metadata));
    match revisions.create(&patch::post_params(), &revision).await {
        Err(error) if !failure::is_conflict(&error) => Err(error),
        _ => Ok(revision_name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_matcher_needs_another_revision() {
        let reference = InstancetypeStatusRef {
            name: Some("small".to_owned()),
            kind: Some("VirtualMachineClusterInstancetype".to_owned()),
            controller_revision_ref: Some(ControllerRevisionRef { name: Some("r1".to_owned()) }),
            ..InstancetypeStatusRef::default()
        };
        let revision = |matcher: Value| {
            let renewed = renewed(Some(&reference), &serde_json::from_value(matcher).unwrap());
            renewed.controller_revision_ref.and_then(|one| one.name)
        };
        assert_eq!(revision(json!({"name": "small"})).as_deref(), Some("r1"));
        assert_eq!(revision(json!({"name": "large"})), None);
        assert_eq!(revision(json!({"name": "small", "kind": "VirtualMachineInstancetype"})), None);
        assert_eq!(revision(json!({"name": "large", "revisionName": "r2"})).as_deref(), Some("r2"));
    }
}
