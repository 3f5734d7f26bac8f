//! Nodes in maintenance mode: what runs there is shut down, and started again when its label says so.
//!
//! The Node says what is wanted ([`croft_api::harvester::maintenance`]) and how far it is. Machines that are to come back
//! carry the node's name until they do, so that nobody has to remember them.

mod plan;

use std::sync::Arc;
use std::time::Duration;

use croft_api::harvester::maintenance::{DRAIN_REQUESTED, DRAINED, STATUS, STOPPED_FOR};
use croft_api::kubevirt::{VirtualMachine, VirtualMachineInstance, run_strategy};
use croft_reconcile::{Change, Error, Events, Key, Keys, Loop, Received, failure};
use k8s_openapi::api::core::v1::Node;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Api, Client};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use self::plan::{Fate, fate, started, stopped};
use crate::inventory::Inventory;
use crate::patch;
use crate::virtual_machine::view::{
    annotation, controller, is_being_deleted, is_final, name, namespace, node_of, this_second,
};

pub(crate) struct Maintenance {
    client: Client,
    inventory: Inventory,
    events: Events,
    keys: Keys<Key>,
}

impl Maintenance {
    pub(crate) fn new(client: Client, inventory: Inventory, events: Events) -> (Arc<Self>, Received<Key>) {
        let (keys, received) = Keys::channel();
        (Arc::new(Self { client, inventory, events, keys }), received)
    }

    pub(crate) async fn run(self: Arc<Self>, received: Received<Key>, stop: CancellationToken) {
        let reconcile = |key: Key| {
            let maintenance = Arc::clone(&self);
            async move { maintenance.look_at(&key).await }
        };
        let work = Loop { name: "node maintenance", workers: 1, stop };
        work.run(received, self.inventory.synced(), reconcile).await;
    }

    pub(crate) async fn node_changed(&self, change: &Change<Node>) {
        let mode = |node: &Option<Arc<Node>>| node.as_ref().and_then(|node| status(node).map(str::to_owned));
        // A node at rest that was at rest before is the rule, every few seconds.
        if change.old.is_none() || mode(&change.old).is_some() || mode(&change.new).is_some() {
            self.keys.send(change.key.clone(), Duration::ZERO).await;
        }
    }

    pub(crate) async fn instance_changed(&self, change: &Change<VirtualMachineInstance>) {
        let node = [&change.new, &change.old].into_iter().flatten().find_map(|instance| node_of(instance));
        let Some(node) = node.map(|node| Key::new("", node)) else { return };
        if self.inventory.nodes.get(&node).is_some_and(|node| status(&node).is_some()) {
            self.keys.send(node, Duration::ZERO).await;
        }
    }

    async fn look_at(&self, key: &Key) -> Result<(), Error> {
        let Some(node) = self.inventory.nodes.get(key) else { return Ok(()) };
        match status(&node) {
            Some("running") => self.empty(&node).await,
            Some(_) => self.start_machines(&node, |fate| fate == Fate::RestartElsewhere).await,
            None => {
                self.tell_drained(&node, false).await?;
                self.start_machines(&node, |_| true).await
            }
        }
    }

    /// Shuts down what runs there; what has ended wakes us again.
    async fn empty(&self, node: &Node) -> Result<(), Error> {
        let there = self.inventory.instances.list();
        let left: Vec<_> =
            there.iter().filter(|one| node_of(one) == Some(name(&node.metadata)) && !is_final(one)).collect();
        for instance in &left {
            match self.machine_of(instance) {
                Some(machine) => self.stop(node, &machine).await?,
                None if is_being_deleted(&instance.metadata) => {}
                None => self.delete(instance).await?,
            }
        }
        if !left.is_empty() {
            return Ok(());
        }
        let nodes: Api<Node> = Api::all(self.client.clone());
        let done = json!({ "metadata": { "annotations": { STATUS: "completed", DRAIN_REQUESTED: null } } });
        failure::absent_is_none(nodes.patch(name(&node.metadata), &patch::as_harvester(), &Patch::Merge(&done)).await)?;
        self.events.normal(node, "MaintenanceCompleted", "nothing runs on the node any more");
        self.tell_drained(node, true).await
    }

    async fn stop(&self, node: &Node, machine: &VirtualMachine) -> Result<(), Error> {
        let Some(new) = stopped(machine, name(&node.metadata)) else { return Ok(()) };
        let why = format!("node {} is in maintenance mode", name(&node.metadata));
        self.events.normal(machine, "StoppedForMaintenance", &why);
        self.write(machine, &new).await
    }

    /// Starts the machines that the node's maintenance stopped and whose fate is the wanted one.
    async fn start_machines(&self, node: &Node, is_due: impl Fn(Fate) -> bool) -> Result<(), Error> {
        let node = name(&node.metadata);
        for machine in self.inventory.machines.list() {
            if annotation(&machine.metadata, STOPPED_FOR) != Some(node) || !is_due(fate(&machine)) {
                continue;
            }
            let new = started(&machine);
            self.write(&machine, &new).await?;
            let is_manual = new.spec.run_strategy.as_deref() == Some(run_strategy::MANUAL);
            if is_manual && new.spec != machine.spec {
                self.start_by_hand(&machine).await?;
            }
        }
        Ok(())
    }

    /// A machine of the strategy Manual runs because somebody has said so.
    async fn start_by_hand(&self, machine: &VirtualMachine) -> Result<(), Error> {
        let (namespace, name) = (namespace(&machine.metadata), name(&machine.metadata));
        let path = format!("/apis/subresources.kubevirt.io/v1/namespaces/{namespace}/virtualmachines/{name}/start");
        let request = http::Request::put(path).header(http::header::CONTENT_TYPE, "application/json");
        let request = request.body(b"{}".to_vec()).map_err(kube::Error::HttpError)?;
        match self.client.request_text(request).await {
            Err(error) if failure::is_conflict(&error) || failure::is_not_found(&error) => Ok(()),
            other => Ok(other.map(drop)?),
        }
    }

    /// An instance that no machine starts again.
    async fn delete(&self, instance: &VirtualMachineInstance) -> Result<(), Error> {
        let api: Api<VirtualMachineInstance> = Api::namespaced(self.client.clone(), namespace(&instance.metadata));
        let this = Preconditions { uid: instance.metadata.uid.clone(), ..Preconditions::default() };
        let params = DeleteParams { preconditions: Some(this), ..DeleteParams::default() };
        match api.delete(name(&instance.metadata), &params).await {
            Err(error) if failure::is_conflict(&error) || failure::is_not_found(&error) => Ok(()),
            other => Ok(other.map(drop)?),
        }
    }

    async fn write(&self, old: &VirtualMachine, new: &VirtualMachine) -> Result<(), Error> {
        let Some(change) = patch::guarded(old, new) else { return Ok(()) };
        let api: Api<VirtualMachine> = Api::namespaced(self.client.clone(), namespace(&old.metadata));
        let written = api.patch(name(&old.metadata), &patch::as_harvester(), &Patch::Merge(&change)).await;
        if let Some(written) = failure::absent_is_none(written)? {
            self.inventory.machines.wrote(written);
        }
        Ok(())
    }

    /// The condition `Drained`, unless it says so already; a node that never was drained has none.
    async fn tell_drained(&self, node: &Node, is_drained: bool) -> Result<(), Error> {
        let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
        let told = conditions.filter(|one| one.type_ == DRAINED).map(|one| one.status == "True").next();
        if told.unwrap_or(false) == is_drained {
            return Ok(());
        }
        let reason = if is_drained { "HarvesterNodeIsDrained" } else { "HarvesterNodeIsInUse" };
        let now = this_second().to_string();
        let condition = json!({
            "type": DRAINED, "status": if is_drained { "True" } else { "False" }, "reason": reason,
            "message": "", "lastHeartbeatTime": now, "lastTransitionTime": now,
        });
        let change = json!({ "status": { "conditions": [condition] } });
        let nodes: Api<Node> = Api::all(self.client.clone());
        let params = PatchParams::default();
        failure::absent_is_none(nodes.patch_status(name(&node.metadata), &params, &Patch::Strategic(&change)).await)?;
        Ok(())
    }

    fn machine_of(&self, instance: &VirtualMachineInstance) -> Option<Arc<VirtualMachine>> {
        let owner = controller(&instance.metadata).filter(|owner| owner.kind == "VirtualMachine")?;
        let machine = self.inventory.machines.get(&Key::new(namespace(&instance.metadata), &owner.name))?;
        (machine.metadata.uid.as_deref() == Some(owner.uid.as_str())).then_some(machine)
    }
}

fn status(node: &Node) -> Option<&str> {
    annotation(&node.metadata, STATUS)
}
