//! What scripts for Harvester look for before they do anything else: the management network, the address to reach the
//! cluster at, the classes that snapshots are asked for with, and the settings of its storage.

use serde_json::{Value, json};

use super::{Existing, Wanted};
use crate::clock;

const LONGHORN: &str = "driver.longhorn.io";

/// Settings of Longhorn that clients read, as they hold here: volumes have one copy, on the disk of their node.
const LONGHORN_SETTINGS: &[(&str, &str)] = &[
    // Ours: bytes in a second for each disk, as a quantity; 0 is without a limit.
    ("backup-bandwidth-limit", "0"),
    ("backup-compression-method", "lz4"),
    ("backup-concurrent-limit", "16"),
    ("backup-target", ""),
    ("backup-target-credential-secret", ""),
    ("data-engine-hugepage-enabled", "false"),
    ("data-engine-memory-size", "2048"),
    ("default-replica-count", "3"),
    ("guaranteed-instance-manager-cpu", "0"),
    ("priority-class", ""),
    ("replica-replenishment-wait-interval", "600"),
    ("restore-concurrent-limit", "16"),
    ("storage-minimal-available-percentage", "0"),
    ("storage-network", ""),
    ("storage-over-provisioning-percentage", "100"),
    ("storage-reserved-percentage-for-default-disk", "0"),
    ("taint-toleration", ""),
    ("v1-data-engine", "true"),
    ("v2-data-engine", "false"),
];

/// `address` is where clients reach this server.
pub(super) fn objects(address: &str) -> Vec<Wanted> {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host).trim_matches(['[', ']']);
    let reporting = [management_network(), deployment(), ingress(host)];
    let mut wanted: Vec<Wanted> =
        reporting.map(|object| Wanted { object, existing: Existing::Report }).into_iter().collect();
    wanted.push(Wanted::kept(virtual_ip(host)));
    let monitors = [("nic", "device", ""), ("mgmt", "", "mgmt(-br|-bo)")];
    wanted.extend(monitors.map(|(name, kinds, names)| Wanted::kept(link_monitor(name, kinds, names))));
    let classes = [("longhorn-snapshot", "snap"), ("longhorn", "bak")];
    wanted.extend(classes.map(|(name, ty)| Wanted::kept(snapshot_class(name, ty))));
    wanted.extend(LONGHORN_SETTINGS.iter().map(|(name, value)| Wanted::kept(longhorn_setting(name, value))));
    wanted
}

/// The network that every node is reached by.
fn management_network() -> Value {
    let now = clock::now_rfc3339();
    json!({
        "apiVersion": "network.harvesterhci.io/v1beta1", "kind": "ClusterNetwork",
        "metadata": { "name": "mgmt" },
        "status": { "conditions": [
            { "type": "ready", "status": "True", "lastUpdateTime": now, "lastTransitionTime": now },
        ]},
    })
}

/// Cluster API asks whether it is available. It stands for this server, which is: it answers.
fn deployment() -> Value {
    let now = clock::now_rfc3339();
    let labels = json!({ "app.kubernetes.io/name": "harvester", "app.kubernetes.io/component": "apiserver" });
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": { "name": "harvester", "namespace": "harvester-system", "labels": labels },
        "spec": {
            "replicas": 1,
            "selector": { "matchLabels": labels },
            "template": {
                "metadata": { "labels": labels },
                "spec": { "containers": [{ "name": "apiserver", "image": "croft" }] },
            },
        },
        "status": {
            "observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "readyReplicas": 1, "availableReplicas": 1,
            "conditions": [
                { "type": "Available", "status": "True", "reason": "MinimumReplicasAvailable",
                  "message": "The server answers.", "lastUpdateTime": now, "lastTransitionTime": now },
            ],
        },
    })
}

/// Where the cluster is reached from outside, for those who read it from kube-vip's service.
fn ingress(host: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {
            "name": "ingress-expose", "namespace": "kube-system",
            "annotations": { "kube-vip.io/loadbalancerIPs": host },
        },
        "spec": {
            "type": "LoadBalancer",
            "allocateLoadBalancerNodePorts": false,
            "ports": [{ "name": "https-internal", "port": 443, "protocol": "TCP", "targetPort": 443 }],
        },
        "status": { "loadBalancer": ingress_status(host) },
    })
}

/// An address is said to be one, a name to be a name.
fn ingress_status(host: &str) -> Value {
    match host.parse::<std::net::IpAddr>() {
        Ok(_) => json!({ "ingress": [{ "ip": host }] }),
        Err(_) => json!({ "ingress": [{ "hostname": host }] }),
    }
}

fn virtual_ip(host: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": "vip", "namespace": "harvester-system" },
        "data": {
            "enabled": "true", "serviceType": "LoadBalancer", "mode": "static", "hwAddress": "",
            "ip": host, "loadBalancerIP": host,
        },
    })
}

/// Which links the nodes show: their cards, and what the management network stands on.
fn link_monitor(name: &str, kinds: &str, names: &str) -> Value {
    json!({
        "apiVersion": "network.harvesterhci.io/v1beta1", "kind": "LinkMonitor",
        "metadata": { "name": name },
        "spec": { "targetLinkRule": { "typeRule": kinds, "nameRule": names } },
    })
}

fn snapshot_class(name: &str, ty: &str) -> Value {
    // Whoever names no class gets a snapshot in the pool.
    let is_default = (ty == "snap").to_string();
    json!({
        "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotClass",
        "metadata": { "name": name, "annotations": { croft_api::snapshot::DEFAULT_CLASS: is_default } },
        "driver": LONGHORN,
        "deletionPolicy": "Delete",
        "parameters": { "type": ty },
    })
}

fn longhorn_setting(name: &str, value: &str) -> Value {
    json!({
        "apiVersion": "longhorn.io/v1beta2", "kind": "Setting",
        "metadata": { "name": name, "namespace": "longhorn-system" },
        "value": value,
    })
}
