//! The little of a VirtualMachineInstance that volumes depend on.

use std::borrow::Cow;

use croft_api::kubevirt::VirtualMachineInstance;
use croft_reconcile::Key;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::Deserialize;

/// A machine, as far as it uses claims.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Consumer {
    metadata: ObjectMeta,
    spec: Option<Spec>,
    status: Option<Status>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Spec {
    volumes: Option<Vec<Source>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Source {
    persistent_volume_claim: Option<Claim>,
    data_volume: Option<DataVolume>,
    ephemeral: Option<Ephemeral>,
    memory_dump: Option<Claim>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Claim {
    claim_name: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct DataVolume {
    name: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Ephemeral {
    persistent_volume_claim: Option<Claim>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    phase: Option<String>,
    node_name: Option<String>,
}

impl Consumer {
    /// The claims that it names. A data volume's claim has its name.
    pub(super) fn claims(&self) -> Vec<Key> {
        let namespace = self.metadata.namespace.as_deref().unwrap_or_default();
        let volumes = self.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
        let names = volumes.flat_map(|volume| {
            let ephemeral = volume.ephemeral.as_ref().and_then(|ephemeral| ephemeral.persistent_volume_claim.as_ref());
            let claims = [volume.persistent_volume_claim.as_ref(), ephemeral, volume.memory_dump.as_ref()];
            let data_volume = volume.data_volume.as_ref().map(|source| source.name.as_str());
            claims.into_iter().flatten().map(|claim| claim.claim_name.as_str()).chain(data_volume)
        });
        names.map(|name| Key::new(namespace, name)).collect()
    }

    /// One that has ended lets go of its disks.
    pub(super) fn has_ended(&self) -> bool {
        matches!(self.phase(), "Succeeded" | "Failed")
    }

    pub(super) fn is_running(&self) -> bool {
        self.phase() == "Running"
    }

    pub(super) fn is_on(&self, node: &str) -> bool {
        self.status.as_ref().and_then(|status| status.node_name.as_deref()) == Some(node)
    }

    fn phase(&self) -> &str {
        self.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
    }
}

impl Resource for Consumer {
    type DynamicType = ();
    type Scope = kube::core::NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        VirtualMachineInstance::kind(&())
    }

    fn group((): &()) -> Cow<'_, str> {
        VirtualMachineInstance::group(&())
    }

    fn version((): &()) -> Cow<'_, str> {
        VirtualMachineInstance::version(&())
    }

    fn plural((): &()) -> Cow<'_, str> {
        VirtualMachineInstance::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_kind_of_volume_that_needs_a_claim_counts() {
        let consumer: Consumer = serde_json::from_value(json!({
            "metadata": {"namespace": "ns", "name": "vm", "creationTimestamp": null},
            "spec": {"volumes": [
                {"name": "a", "persistentVolumeClaim": {"claimName": "a"}},
                {"name": "b", "dataVolume": {"name": "b"}},
                {"name": "c", "ephemeral": {"persistentVolumeClaim": {"claimName": "c"}}},
                {"name": "d", "memoryDump": {"claimName": "d"}},
                {"name": "e", "containerDisk": {"image": "x"}},
            ]},
            "status": {"phase": "Running", "nodeName": "node"},
        }))
        .unwrap();
        let names: Vec<String> = consumer.claims().iter().map(ToString::to_string).collect();
        assert_eq!(names, ["ns/a", "ns/b", "ns/c", "ns/d"]);
        assert!(consumer.is_running() && consumer.is_on("node") && !consumer.has_ended());
        let empty: Consumer =
            serde_json::from_value(json!({"metadata": {"name": "x"}, "spec": {"volumes": null}})).unwrap();
        assert!(empty.claims().is_empty() && !empty.has_ended());
    }
}
