//! What KubeVirt's and Harvester's clients expect in every cluster: storage classes, settings, and the objects that say
//! how the platform is configured. Their roles are among the default ones ([`crate::auth::bootstrap`]).

use croft_api::harvester::settings;
use serde_json::{Value, json};

use super::{Existing, Wanted};
use crate::clock;
use crate::kubevirt::about::KUBEVIRT_VERSION;

/// The name that Longhorn's driver has, whose place Croft's own volumes take.
const PROVISIONER: &str = "driver.longhorn.io";
const CDI_VERSION: &str = "v1.63.0";

/// `address` is where clients reach this server.
pub(super) fn objects(address: &str) -> Vec<Wanted> {
    let classes = ["harvester-longhorn", "longhorn", "vmstate-persistence", "longhorn-static"];
    let mut wanted: Vec<Wanted> = classes.map(storage_class).map(Wanted::kept).into();
    let reporting = [kubevirt(), cdi(), cdi_config(address)];
    wanted.extend(reporting.map(|object| Wanted { object, existing: Existing::Report }));
    let settings = settings::ALL.iter().map(|(name, default)| setting(name, default));
    wanted.extend(settings.map(|object| Wanted { object, existing: Existing::Refresh }));
    wanted
}

/// The value is the user's; what holds without one is this program's to say, and so is its version.
fn setting(name: &str, default: &str) -> Value {
    let mut setting = json!({
        "apiVersion": "harvesterhci.io/v1beta1", "kind": "Setting",
        "metadata": { "name": name },
        "default": default,
    });
    if name == settings::SERVER_VERSION {
        setting["value"] = json!(settings::COMPATIBLE_WITH);
    }
    setting
}

fn storage_class(name: &str) -> Value {
    let mut annotations = json!({});
    if name == "harvester-longhorn" {
        annotations["storageclass.kubernetes.io/is-default-class"] = json!("true");
    }
    if name != "longhorn" {
        annotations["harvesterhci.io/is-reserved-storageclass"] = json!("true");
    }
    json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
        "metadata": { "name": name, "annotations": annotations },
        "provisioner": PROVISIONER,
        "parameters": { "migratable": "true", "numberOfReplicas": "3", "staleReplicaTimeout": "30" },
        "reclaimPolicy": "Delete",
        "volumeBindingMode": "Immediate",
        "allowVolumeExpansion": true,
    })
}

/// What is switched on is what Harvester switches on.
fn kubevirt() -> Value {
    let now = clock::now_rfc3339();
    let condition = |ty: &str, status: &str, reason: &str| json!({"type": ty, "status": status, "reason": reason, "lastProbeTime": now, "lastTransitionTime": now});
    json!({
        "apiVersion": "kubevirt.io/v1", "kind": "KubeVirt",
        "metadata": { "name": "kubevirt", "namespace": "harvester-system" },
        "spec": {
            "configuration": {
                "developerConfiguration": {
                    "featureGates": ["CPUManager", "DeclarativeHotplugVolumes", "ExpandDisks", "HostDevices", "ObjectGraph"],
                },
                "network": { "defaultNetworkInterface": "bridge", "permitBridgeInterfaceOnPodNetwork": true },
                "vmRolloutStrategy": "LiveUpdate",
                "vmStateStorageClass": "vmstate-persistence",
            },
        },
        // True as soon as the server runs.
        "status": {
            "phase": "Deployed",
            "observedKubeVirtVersion": KUBEVIRT_VERSION,
            "operatorVersion": KUBEVIRT_VERSION,
            "targetKubeVirtVersion": KUBEVIRT_VERSION,
            "conditions": [
                condition("Available", "True", "AllComponentsReady"),
                condition("Progressing", "False", "AllComponentsReady"),
                condition("Degraded", "False", "AllComponentsReady"),
                condition("Created", "True", "AllResourcesCreated"),
            ],
        },
    })
}

fn cdi() -> Value {
    json!({
        "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "CDI",
        "metadata": { "name": "cdi" },
        "spec": { "cloneStrategyOverride": "copy" },
        "status": {
            "phase": "Deployed",
            "observedVersion": CDI_VERSION, "operatorVersion": CDI_VERSION, "targetVersion": CDI_VERSION,
        },
    })
}

/// Uploads go to this very server.
fn cdi_config(address: &str) -> Value {
    json!({
        "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "CDIConfig",
        "metadata": { "name": "config" },
        "spec": {},
        "status": {
            "uploadProxyURL": format!("https://{address}"),
            "filesystemOverhead": { "global": "0.06" },
            "preallocation": false,
        },
    })
}
