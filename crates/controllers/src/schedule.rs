//! Which node runs which instance, and what becomes of instances that no node looks after.
//!
//! Whether and where a guest fits is worked out by [`cluster`], which holds all that is needed in memory; a decision
//! costs one write. Placements count from the moment they are decided. What does not fit is told why, and tried again
//! whenever a node, an instance, a claim or a network changes, those of higher priority first. Nothing that runs is
//! stopped to make room.

mod amounts;
mod binding;
mod cluster;
mod demand;
mod guest;
mod host;
mod neighbours;
mod readiness;
mod refusal;
mod score;
mod selectors;
mod spread;

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use croft_api::kubevirt::VirtualMachineInstance;
use croft_reconcile::{Change, Error, Events, Key, Keys, Loop, Received, failure};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Namespace, Node, PersistentVolumeClaim};
use kube::api::{DeleteParams, Patch, Preconditions};
use kube::{Api, Client};
use parking_lot::Mutex;
use serde_json::json;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::cluster::Cluster;
use self::guest::Guest;
use self::host::Host;
use self::readiness::{Readiness, guest_of, readiness};
use crate::inventory::Inventory;
use crate::patch;
use crate::virtual_machine::view::{
    controller, is_being_deleted, is_final, is_unscheduled, name, namespace, node_of, this_second, uid,
};

const WORKERS: usize = 32;
/// Claims and networks are often made together with the machine that uses them.
const GRACE: Duration = Duration::from_secs(1);
/// A node that is gone may come back: its agent registers it again.
const NODE_GRACE: Duration = Duration::from_secs(40);
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// Smaller ones have a meaning of their own.
const FIRST_CID: u32 = 3;

pub(crate) struct Scheduler {
    client: Client,
    inventory: Inventory,
    cluster: Mutex<Cluster>,
    /// Nodes that instances are on and that are not there, since when.
    absent: Mutex<HashMap<String, Instant>>,
    /// Instances that a taint will drive out, by their uid, since when.
    driven: Mutex<HashMap<String, Instant>>,
    /// VSOCK addresses that were given and may not show yet, by the instance's uid.
    cids: Mutex<HashMap<String, u32>>,
    events: Events,
    keys: Keys<Key>,
}

impl Scheduler {
    pub(crate) fn new(client: Client, inventory: Inventory, events: Events) -> (Arc<Self>, Received<Key>) {
        let (keys, received) = Keys::channel();
        let scheduler = Self {
            client,
            inventory,
            cluster: Mutex::default(),
            absent: Mutex::default(),
            driven: Mutex::default(),
            cids: Mutex::default(),
            events,
            keys,
        };
        (Arc::new(scheduler), received)
    }

    pub(crate) async fn run(self: Arc<Self>, received: Received<Key>, stop: CancellationToken) {
        let reconcile = |key: Key| {
            let scheduler = Arc::clone(&self);
            async move { scheduler.reconcile(key).await }
        };
        let work = Loop { name: "schedule", workers: WORKERS, stop };
        work.run(received, self.inventory.synced(), reconcile).await;
    }

    pub(crate) async fn instance_changed(&self, change: &Change<VirtualMachineInstance>) {
        let mut is_room_free = false;
        if let Some(old) = change.old.as_ref() {
            let is_same = change.new.as_ref().is_some_and(|new| uid(&new.metadata) == uid(&old.metadata));
            if !is_same {
                is_room_free |= self.forget(uid(&old.metadata));
            }
        }
        if let Some(new) = &change.new {
            match node_of(new) {
                Some(_) if is_final(new) => is_room_free |= self.forget(uid(&new.metadata)),
                Some(node) => self.note(change.old.as_deref(), new, node),
                None => {}
            }
            if needs_a_look(new) || self.is_absent(new) || self.is_driven_out(new).is_some() {
                self.keys.send(change.key.clone(), Duration::ZERO).await;
            }
        }
        if is_room_free {
            self.retry().await;
        }
    }

    fn forget(&self, uid: &str) -> bool {
        self.driven.lock().remove(uid);
        self.cids.lock().remove(uid);
        self.cluster.lock().remove(uid)
    }

    /// Counts the instance on its node.
    fn note(&self, old: Option<&VirtualMachineInstance>, new: &VirtualMachineInstance, node: &str) {
        let is_known = self.cluster.lock().host_of(uid(&new.metadata)) == Some(node);
        let is_same = old.is_some_and(|old| old.spec == new.spec && old.metadata.labels == new.metadata.labels);
        if !is_known || !is_same {
            let guest = guest_of(new, &self.inventory);
            self.cluster.lock().place(guest, node.to_owned());
        }
    }

    fn is_absent(&self, instance: &VirtualMachineInstance) -> bool {
        node_of(instance).is_some_and(|node| !self.cluster.lock().has_host(node))
    }

    pub(crate) async fn node_changed(&self, change: &Change<Node>) {
        let Some(node) = &change.new else {
            self.cluster.lock().remove_host(&change.key.name);
            let there = self.inventory.instances.list();
            for instance in there.iter().filter(|one| node_of(one) == Some(&change.key.name)) {
                self.keys.send(Key::of(&**instance), Duration::ZERO).await;
            }
            return;
        };
        self.absent.lock().remove(&change.key.name);
        if !self.cluster.lock().set_host(Host::of(node)) {
            return;
        }
        let there = self.inventory.instances.list();
        for instance in there.iter().filter(|one| node_of(one) == Some(&change.key.name)) {
            match self.is_driven_out(instance) {
                Some(_) => self.keys.send(Key::of(&**instance), Duration::ZERO).await,
                None => drop(self.driven.lock().remove(uid(&instance.metadata))),
            }
        }
        self.retry().await;
    }

    /// The taint of its node that an instance must leave for, and how long it may still stay.
    fn is_driven_out(&self, instance: &VirtualMachineInstance) -> Option<(String, Duration)> {
        if is_final(instance) || is_being_deleted(&instance.metadata) {
            return None;
        }
        let cluster = self.cluster.lock();
        let (taint, stay) = cluster.host(node_of(instance)?)?.driving_taint(&instance.spec.tolerations)?;
        Some((taint.key.clone(), stay.unwrap_or_default()))
    }

    pub(crate) fn namespace_changed(&self, change: &Change<Namespace>) {
        let labels = change.new.as_ref().map(|new| new.metadata.labels.clone().unwrap_or_default());
        self.cluster.lock().set_namespace(change.key.name.clone(), labels);
    }

    /// Has everything that waits for a node looked at again, the most important first.
    pub(crate) async fn retry(&self) {
        let mut waiting: Vec<Arc<VirtualMachineInstance>> = self.inventory.instances.list();
        waiting.retain(|instance| is_unscheduled(instance));
        waiting.sort_by_cached_key(|instance| {
            let created = instance.metadata.creation_timestamp.as_ref().map(|time| time.0);
            (Reverse(self.priority(instance)), created)
        });
        for instance in waiting {
            self.keys.send(Key::of(&*instance), Duration::ZERO).await;
        }
    }

    fn priority(&self, instance: &VirtualMachineInstance) -> i32 {
        let class = instance.spec.priority_class_name.as_deref().filter(|name| !name.is_empty());
        let class = class.and_then(|name| self.inventory.priorities.get(&Key::new("", name)));
        class.map(|class| class.value).unwrap_or_default()
    }

    async fn reconcile(&self, key: Key) -> Result<(), Error> {
        let Some(instance) = self.inventory.instances.get(&key) else { return Ok(()) };
        if is_final(&instance) {
            return self.release(&instance).await;
        }
        match node_of(&instance) {
            Some(node) => self.watch_node(&key, &instance, node).await,
            None if is_being_deleted(&instance.metadata) => {
                let message = "the instance was deleted before it was given a node";
                self.fail(&instance, "Deleted", message).await
            }
            None if is_unscheduled(&instance) => self.schedule(&key, &instance).await,
            None => Ok(()),
        }
    }

    async fn schedule(&self, key: &Key, instance: &VirtualMachineInstance) -> Result<(), Error> {
        // Decided already; the watch has not shown it yet.
        if self.cluster.lock().host_of(uid(&instance.metadata)).is_some() {
            return Ok(());
        }
        let (guest, unbound) = match readiness(instance, &self.inventory) {
            Readiness::Ready(guest, unbound) => (*guest, unbound),
            Readiness::Waiting(why) => {
                tracing::debug!(instance = %key, why, "waits for a node");
                let waiting = binding::waiting(instance, &why, this_second());
                return Ok(self.write(instance, &waiting).await?);
            }
            Readiness::Missing { reason, message } => return self.tell_missing(key, instance, reason, &message).await,
        };
        let guest_uid = guest.uid.clone();
        let node = match self.decide(guest) {
            Ok(node) => node,
            Err(message) => return self.tell_unschedulable(instance, &message).await,
        };
        let bound = self.bind(instance, &node, &unbound).await;
        if bound.is_err() {
            self.forget(&guest_uid);
        }
        Ok(bound?)
    }

    /// The node for a guest, which is counted on it from now on.
    fn decide(&self, guest: Guest) -> Result<String, String> {
        let mut cluster = self.cluster.lock();
        let node = cluster.fit(&guest).map_err(|refusal| refusal.to_string())?;
        cluster.place(guest, node.clone());
        Ok(node)
    }

    async fn bind(&self, instance: &VirtualMachineInstance, node: &str, unbound: &[String]) -> Result<(), kube::Error> {
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), namespace(&instance.metadata));
        for claim in unbound {
            let patch = json!({"metadata": {"annotations": {SELECTED_NODE: node}}});
            failure::absent_is_none(claims.patch(claim, &patch::patch_params(), &Patch::Merge(&patch)).await)?;
        }
        let labels = self.inventory.nodes.get(&Key::new("", node));
        let labels = labels.and_then(|node| node.metadata.labels.clone()).unwrap_or_default();
        let cid = (instance.spec.domain.devices.autoattach_vsock == Some(true)).then(|| self.cid(instance));
        let bound = binding::bound(instance, node, &labels, cid, this_second());
        self.write(instance, &bound).await
    }

    /// A VSOCK address that no other instance has: guests keep theirs when they move to another node.
    fn cid(&self, instance: &VirtualMachineInstance) -> u32 {
        let mut given = self.cids.lock();
        let there = self.inventory.instances.list();
        let shown = there.iter().filter(|one| !is_final(one)).filter_map(|one| one.status.as_ref()?.vsock_cid);
        let used: HashSet<u32> = shown.chain(given.values().copied()).collect();
        let cid = (FIRST_CID..u32::MAX).find(|cid| !used.contains(cid)).unwrap_or(FIRST_CID);
        given.insert(uid(&instance.metadata).to_owned(), cid);
        cid
    }

    async fn tell_unschedulable(&self, instance: &VirtualMachineInstance, message: &str) -> Result<(), Error> {
        let waiting = binding::unschedulable(instance, message, this_second());
        if waiting == *instance {
            return Ok(());
        }
        self.events.warning(instance, "FailedScheduling", message);
        Ok(self.write(instance, &waiting).await?)
    }

    async fn tell_missing(
        &self,
        key: &Key,
        instance: &VirtualMachineInstance,
        reason: &'static str,
        message: &str,
    ) -> Result<(), Error> {
        let created = instance.metadata.creation_timestamp.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0);
        // Creation times are cut to seconds, so this is a second at least.
        let age = Duration::try_from(Timestamp::now().duration_since(created)).unwrap_or_default();
        if let Some(left) = (2 * GRACE).checked_sub(age).filter(|left| !left.is_zero()) {
            self.keys.send(key.clone(), left).await;
            return Ok(());
        }
        let waiting = binding::missing(instance, reason, message, this_second());
        if waiting == *instance {
            return Ok(());
        }
        self.events.warning(instance, reason, message);
        Ok(self.write(instance, &waiting).await?)
    }

    /// A guest whose node stays away cannot be running any more, as far as anybody can tell.
    async fn watch_node(&self, key: &Key, instance: &VirtualMachineInstance, node: &str) -> Result<(), Error> {
        if self.inventory.nodes.get(&Key::new("", node)).is_some() {
            return self.drive_out(key, instance).await;
        }
        let since = *self.absent.lock().entry(node.to_owned()).or_insert_with(Instant::now);
        if let Some(left) = NODE_GRACE.checked_sub(since.elapsed()).filter(|left| !left.is_zero()) {
            self.keys.send(key.clone(), left).await;
            return Ok(());
        }
        self.fail(instance, "NodeGone", &format!("node {node} is gone")).await
    }

    /// Ends an instance whose node has a taint that it does not tolerate, or not any longer. Its machine starts it again
    /// where it may be.
    async fn drive_out(&self, key: &Key, instance: &VirtualMachineInstance) -> Result<(), Error> {
        let Some((taint, stay)) = self.is_driven_out(instance) else { return Ok(()) };
        let since = *self.driven.lock().entry(uid(&instance.metadata).to_owned()).or_insert_with(Instant::now);
        if let Some(left) = stay.checked_sub(since.elapsed()).filter(|left| !left.is_zero()) {
            self.keys.send(key.clone(), left).await;
            return Ok(());
        }
        self.events.warning(instance, "TaintManagerEviction", &format!("the node's taint {taint} is not tolerated"));
        let api: Api<VirtualMachineInstance> = Api::namespaced(self.client.clone(), namespace(&instance.metadata));
        let this = Preconditions { uid: instance.metadata.uid.clone(), ..Preconditions::default() };
        let params = DeleteParams { preconditions: Some(this), ..DeleteParams::default() };
        let ended = api.delete(name(&instance.metadata), &params).await;
        match ended {
            // Another of that name is not ours to end.
            Err(error) if failure::is_conflict(&error) || failure::is_not_found(&error) => Ok(()),
            other => Ok(other.map(drop)?),
        }
    }

    async fn fail(&self, instance: &VirtualMachineInstance, reason: &str, message: &str) -> Result<(), Error> {
        if !is_being_deleted(&instance.metadata) {
            self.events.warning(instance, reason, message);
        }
        let failed = binding::failed(instance, reason, message, this_second());
        let failed = binding::released(&failed, false, self.has_machine(instance));
        Ok(self.write(instance, &failed).await?)
    }

    /// Whether the machine that made the instance is there to take note of its end.
    fn has_machine(&self, instance: &VirtualMachineInstance) -> bool {
        let Some(owner) = controller(&instance.metadata) else { return false };
        let key = Key::new(namespace(&instance.metadata), &owner.name);
        let machine = self.inventory.machines.get(&key);
        owner.kind != "VirtualMachine" || machine.is_some_and(|machine| uid(&machine.metadata) == owner.uid)
    }

    /// An instance that ended keeps the finalizers of those who still have work to do on it.
    async fn release(&self, instance: &VirtualMachineInstance) -> Result<(), Error> {
        let node = node_of(instance).and_then(|node| self.inventory.nodes.get(&Key::new("", node)));
        let released = binding::released(instance, node.is_some(), self.has_machine(instance));
        Ok(self.write(instance, &released).await?)
    }

    async fn write(&self, old: &VirtualMachineInstance, new: &VirtualMachineInstance) -> Result<(), kube::Error> {
        let Some(patch) = patch::guarded(old, new) else { return Ok(()) };
        let api: Api<VirtualMachineInstance> = Api::namespaced(self.client.clone(), namespace(&old.metadata));
        let patched = api.patch(name(&old.metadata), &patch::patch_params(), &Patch::Merge(&patch)).await;
        if let Some(patched) = failure::absent_is_none(patched)? {
            self.inventory.instances.wrote(patched);
        }
        Ok(())
    }
}

/// Whether there may be something to do about an instance.
fn needs_a_look(instance: &VirtualMachineInstance) -> bool {
    let has_finalizers = instance.metadata.finalizers.as_ref().is_some_and(|list| !list.is_empty());
    is_unscheduled(instance) || (is_final(instance) && has_finalizers)
}
