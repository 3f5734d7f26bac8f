//! Machines and the instances that they run as.
//!
//! A machine is looked at whenever it, its instance or one of its claims changes. What to do is worked out by pure
//! functions (`run_strategy`, `live_update`, `status`, `printable`, …) from what the caches show; `turn` does it, with as
//! few writes as possible: a start is one round of three writes side by side, and then the status.

mod back_off;
mod conditions;
mod expectations;
mod live_update;
mod memory_dump;
mod printable;
mod revisions;
mod run_strategy;
mod sizes;
mod status;
mod turn;
pub(crate) mod view;

use std::sync::Arc;
use std::time::Duration;

use croft_api::kubevirt::{VirtualMachine, VirtualMachineInstance};
use croft_reconcile::{Change, Error, Events, Key, Keys, Loop, Received, Tasks};
use kube::Client;
use tokio_util::sync::CancellationToken;

use self::expectations::Expectations;
use self::revisions::Revisions;
use self::view::{claim_name, is_being_deleted, is_final};
use crate::inventory::Inventory;

pub(crate) use self::live_update::{CPU_ALLOCATION_RATIO, vcpus};

/// How many machines are looked at side by side.
const WORKERS: usize = 32;
/// An instance changes several times in a row as it starts; its machine follows a moment later.
const SETTLE: Duration = Duration::from_millis(2);

/// The controller of machines.
pub(crate) struct Machines {
    client: Client,
    inventory: Inventory,
    expectations: Expectations,
    revisions: Revisions,
    events: Events,
    keys: Keys<Key>,
}

impl Machines {
    pub(crate) fn new(client: Client, inventory: Inventory, events: Events) -> (Arc<Self>, Received<Key>) {
        let (keys, received) = Keys::channel();
        let revisions = Revisions::new(client.clone());
        let machines = Self { client, inventory, expectations: Expectations::default(), revisions, events, keys };
        (Arc::new(machines), received)
    }

    pub(crate) async fn run(self: Arc<Self>, received: Received<Key>, stop: CancellationToken) {
        let mut tasks = Tasks::default();
        let followed = Arc::clone(&self);
        tasks.spawn(async move { followed.revisions.follow().await });
        let reconcile = |key: Key| {
            let machines = Arc::clone(&self);
            async move { machines.reconcile(key).await }
        };
        let work = Loop { name: "virtual machine", workers: WORKERS, stop };
        tokio::select! {
            () = work.run(received, self.inventory.synced(), reconcile) => {}
            () = async { loop { tasks.watch_over().await } } => {}
        }
    }

    pub(crate) async fn machine_changed(&self, change: &Change<VirtualMachine>) {
        self.keys.send(change.key.clone(), Duration::ZERO).await;
    }

    /// A machine and its instance have the same name.
    pub(crate) async fn instance_changed(&self, change: &Change<VirtualMachineInstance>) {
        self.expectations.observe(change);
        let is_urgent = change.new.as_ref().is_none_or(|new| is_final(new) || is_being_deleted(&new.metadata));
        self.keys.send(change.key.clone(), if is_urgent { Duration::ZERO } else { SETTLE }).await;
    }

    /// A claim, or a data volume of the same name.
    pub(crate) async fn claim_changed(&self, claim: &Key) {
        for machine in self.inventory.machines.list() {
            let key = Key::of(&*machine);
            let volumes = &machine.spec.template.spec.volumes;
            let templates = machine.spec.data_volume_templates.iter();
            let is_its = volumes.iter().any(|volume| claim_name(volume) == Some(&claim.name))
                || templates.into_iter().any(|template| template.metadata.name.as_ref() == Some(&claim.name));
            if key.namespace == claim.namespace && is_its {
                self.keys.send(key, Duration::ZERO).await;
            }
        }
    }

    async fn reconcile(&self, key: Key) -> Result<(), Error> {
        let Some(machine) = self.inventory.machines.get(&key) else {
            self.expectations.forget(&key);
            return Ok(());
        };
        // A machine is a large object, and there is one on every step of the way.
        Box::pin(turn::take(self, key, &machine)).await
    }
}
