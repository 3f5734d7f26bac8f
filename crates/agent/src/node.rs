//! This machine as a Node object: what it is, what it can do, what it lacks, and that it is alive.
//!
//! The object is written when something about it changes, and every few minutes besides; that the node is alive is
//! told by its Lease, which costs next to nothing. Labels, annotations and conditions of others are left alone.

mod accel;
mod cpu_models;
mod facts;
mod health;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use croft_meta::Chain;
use croft_reconcile::Backoff;
use croft_reconcile::failure::{absent_is_none, is_conflict};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::{DaemonEndpoint, Node, NodeAddress, NodeCondition, NodeDaemonEndpoints, NodeStatus};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference, Time};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::MANAGER;
pub use accel::Accelerator;
pub use facts::memory_bytes;
pub use health::{Aspect, Finding, Health};

const LEASE_NAMESPACE: &str = "kube-node-lease";
/// As Kubernetes: a node that has not renewed its lease for this long is taken for dead.
const LEASE_SECONDS: i32 = 40;
const HEARTBEAT: Duration = Duration::from_secs(10);
/// How often the object is written though nothing has changed.
const REPORT: Duration = Duration::from_mins(5);
const SERVER_ROLES: [&str; 3] = ["control-plane", "etcd", "master"];

/// Keeps the Node object of this machine.
pub(crate) struct Registration {
    pub(crate) client: Client,
    pub(crate) name: String,
    pub(crate) addresses: Vec<IpAddr>,
    /// Where the agent is to be called.
    pub(crate) port: u16,
    pub(crate) data_dir: PathBuf,
    pub(crate) accelerator: Accelerator,
    pub(crate) health: Health,
}

impl Registration {
    /// Writes the object and the lease until `stop`. What fails is tried again.
    pub(crate) async fn run(self, stop: CancellationToken) {
        tokio::select! {
            () = self.keep() => {}
            () = stop.cancelled() => {}
        }
    }

    async fn keep(&self) {
        let mut backoff = Backoff::default();
        let mut health = self.health.subscribe();
        let mut reported: Option<(NodeStatus, tokio::time::Instant)> = None;
        loop {
            health.borrow_and_update();
            let status = self.status().await;
            let is_due = reported.as_ref().is_none_or(|(last, at)| at.elapsed() >= REPORT || *last != status);
            let outcome = async {
                if is_due {
                    self.report(&status).await?;
                }
                self.renew_lease().await
            };
            match outcome.await {
                Ok(()) if is_due => reported = Some((status, tokio::time::Instant::now())),
                Ok(()) => backoff.reset(),
                Err(error) => {
                    tracing::warn!(error = %Chain(&error), "the node could not be written; trying again");
                    tokio::time::sleep(backoff.next_delay()).await;
                    continue;
                }
            }
            tokio::select! {
                () = tokio::time::sleep(HEARTBEAT) => {}
                // The sender lives as long as we do.
                _ = health.changed() => {}
            }
        }
    }

    async fn status(&self) -> NodeStatus {
        let data_dir = self.data_dir.clone();
        // Reads files of the kernel, and asks a file system that may be slow.
        let host = tokio::task::spawn_blocking(move || facts::Host::read(&data_dir)).await.unwrap_or_default();
        let addresses = self.addresses.iter().map(|ip| address("InternalIP", &ip.to_string()));
        let capacity = host.capacity(self.accelerator.has_kvm());
        NodeStatus {
            addresses: Some(addresses.chain([address("Hostname", &self.name)]).collect()),
            allocatable: Some(quantities(host.allocatable(&capacity))),
            capacity: Some(quantities(capacity)),
            conditions: Some(self.health.conditions(&host)),
            daemon_endpoints: Some(NodeDaemonEndpoints {
                kubelet_endpoint: Some(DaemonEndpoint { port: i32::from(self.port) }),
            }),
            node_info: Some(host.system),
            ..NodeStatus::default()
        }
    }

    /// Creates the object, or brings it up to date.
    async fn report(&self, status: &NodeStatus) -> Result<(), kube::Error> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let labels = self.labels();
        let metadata = json!({ "metadata": { "labels": labels, "annotations": self.annotations() } });
        let node = match absent_is_none(nodes.patch(&self.name, &params(), &Patch::Merge(&metadata)).await)? {
            Some(node) => node,
            None => nodes.create(&PostParams::default(), &self.new_node(labels)).await?,
        };
        match self.write_status(&nodes, node, status).await {
            // Somebody wrote in between; once more with what they wrote.
            Err(error) if is_conflict(&error) => {
                let node = nodes.get(&self.name).await?;
                self.write_status(&nodes, node, status).await
            }
            outcome => outcome,
        }
    }

    async fn write_status(&self, nodes: &Api<Node>, mut node: Node, status: &NodeStatus) -> Result<(), kube::Error> {
        let old = node.status.take().unwrap_or_default();
        let mut new = status.clone();
        new.conditions = Some(merged(old.conditions.unwrap_or_default(), new.conditions.unwrap_or_default()));
        // What others keep here.
        new.images = old.images;
        new.volumes_attached = old.volumes_attached;
        new.volumes_in_use = old.volumes_in_use;
        node.status = Some(new);
        nodes
            .replace_status(
                &self.name,
                &PostParams { field_manager: Some(MANAGER.into()), ..PostParams::default() },
                &node,
            )
            .await?;
        Ok(())
    }

    fn new_node(&self, labels: BTreeMap<String, String>) -> Node {
        Node {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                labels: Some(labels),
                annotations: Some(self.annotations()),
                ..ObjectMeta::default()
            },
            ..Node::default()
        }
    }

    fn labels(&self) -> BTreeMap<String, String> {
        let os = std::env::consts::OS;
        let mut labels: BTreeMap<String, String> = [
            ("kubernetes.io/hostname", self.name.as_str()),
            ("kubernetes.io/arch", facts::architecture()),
            ("kubernetes.io/os", os),
            ("beta.kubernetes.io/arch", facts::architecture()),
            ("beta.kubernetes.io/os", os),
            ("kubevirt.io/schedulable", if self.health.is_ready() { "true" } else { "false" }),
            ("harvesterhci.io/managed", "true"),
            ("network.harvesterhci.io/mgmt", "true"),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into();
        labels.extend(SERVER_ROLES.map(|role| (format!("node-role.kubernetes.io/{role}"), "true".to_owned())));
        labels.extend(self.accelerator.cpu_labels());
        labels
    }

    fn annotations(&self) -> BTreeMap<String, String> {
        let heartbeat = ("kubevirt.io/heartbeat".to_owned(), Timestamp::now().to_string());
        let address = self.addresses.first().map(|ip| ("rke2.io/internal-ip".to_owned(), ip.to_string()));
        [heartbeat].into_iter().chain(address).collect()
    }

    async fn renew_lease(&self) -> Result<(), kube::Error> {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), LEASE_NAMESPACE);
        let now = MicroTime(Timestamp::now());
        let renewed =
            json!({ "spec": { "holderIdentity": self.name, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": now } });
        if absent_is_none(leases.patch(&self.name, &params(), &Patch::Merge(&renewed)).await)?.is_some() {
            return Ok(());
        }
        let node: Node = Api::all(self.client.clone()).get(&self.name).await?;
        let owner = OwnerReference {
            api_version: "v1".to_owned(),
            kind: "Node".to_owned(),
            name: self.name.clone(),
            uid: node.uid().unwrap_or_default(),
            ..OwnerReference::default()
        };
        let lease = Lease {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                namespace: Some(LEASE_NAMESPACE.to_owned()),
                owner_references: Some(vec![owner]),
                ..ObjectMeta::default()
            },
            spec: Some(LeaseSpec {
                holder_identity: Some(self.name.clone()),
                lease_duration_seconds: Some(LEASE_SECONDS),
                renew_time: Some(now),
                ..LeaseSpec::default()
            }),
        };
        leases.create(&PostParams::default(), &lease).await.map(drop)
    }
}

fn params() -> PatchParams {
    PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() }
}

fn address(type_: &str, address: &str) -> NodeAddress {
    NodeAddress { type_: type_.to_owned(), address: address.to_owned() }
}

fn quantities(amounts: BTreeMap<String, String>) -> BTreeMap<String, Quantity> {
    amounts.into_iter().map(|(resource, amount)| (resource, Quantity(amount))).collect()
}

/// Our conditions, with the time of their last change, and those of others.
fn merged(old: Vec<NodeCondition>, new: Vec<NodeCondition>) -> Vec<NodeCondition> {
    let (ours, mut all): (Vec<_>, Vec<_>) =
        old.into_iter().partition(|old| new.iter().any(|new| new.type_ == old.type_));
    let now = Time(Timestamp::now());
    all.extend(new.into_iter().map(|mut new| {
        let since = ours.iter().find(|old| old.type_ == new.type_ && old.status == new.status);
        new.last_transition_time = since.and_then(|old| old.last_transition_time.clone()).or(Some(now.clone()));
        new.last_heartbeat_time = Some(now.clone());
        new
    }));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn condition(type_: &str, status: &str) -> NodeCondition {
        NodeCondition { type_: type_.to_owned(), status: status.to_owned(), ..NodeCondition::default() }
    }

    #[test]
    fn conditions_of_others_stay_and_ours_keep_the_time_of_their_change() {
        let before = Time("2026-01-01T00:00:00Z".parse().unwrap());
        let at = |mut condition: NodeCondition| {
            condition.last_transition_time = Some(before.clone());
            condition
        };
        let old = vec![at(condition("Drained", "True")), at(condition("Ready", "True")), at(condition("KVM", "False"))];
        let all = merged(old, vec![condition("Ready", "True"), condition("KVM", "True")]);
        let shown: Vec<_> =
            all.iter().map(|c| (c.type_.as_str(), c.last_transition_time == Some(before.clone()))).collect();
        assert_eq!(shown, [("Drained", true), ("Ready", true), ("KVM", false)]);
    }
}
