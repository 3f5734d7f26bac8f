//! How much room the snapshots of each namespace take, told in Harvester's ResourceQuota.
//!
//! A snapshot counts as what it would take up by itself: blocks that it shares with its volume are somebody's too.

use std::sync::Arc;
use std::time::Duration;

use croft_api::harvester::{ResourceQuota, SnapshotQuotaStatus, SnapshotUsage};
use croft_api::snapshot::{VolumeSnapshot, VolumeSnapshotContent};
use croft_reconcile::{Cache, Error, Key, Keys, Loop, Received, Source, Tasks, failure};
use futures::StreamExt;
use kube::api::Patch;
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::inventory::Inventory;
use crate::longhorn_snapshots::Mirror;
use crate::patch;
use crate::virtual_machine::view::{claim_name, namespace};

/// As the node wrote it.
const ALLOCATED: &str = "croft.io/allocated-bytes";

pub(crate) struct SnapshotUsages {
    client: Client,
    inventory: Inventory,
    quotas: Cache<ResourceQuota>,
    contents: Cache<VolumeSnapshotContent>,
    keys: Keys<Key>,
}

impl SnapshotUsages {
    pub(crate) fn new(client: Client, inventory: Inventory) -> (Arc<Self>, Received<Key>) {
        let (keys, received) = Keys::channel();
        (Arc::new(Self { client, inventory, quotas: Cache::default(), contents: Cache::default(), keys }), received)
    }

    /// Kept up to date here, for others too.
    pub(crate) fn contents(&self) -> Cache<VolumeSnapshotContent> {
        self.contents.clone()
    }

    pub(crate) fn follow(self: &Arc<Self>, mirror: &Arc<Mirror>, tasks: &mut Tasks) {
        let usage = Arc::clone(self);
        tasks.spawn(async move {
            let source = Source::of::<ResourceQuota>();
            let mut changes = std::pin::pin!(usage.quotas.follow(usage.client.clone(), source));
            while let Some(change) = changes.next().await {
                usage.keys.send(change.key, Duration::ZERO).await;
            }
        });
        let (usage, mirror) = (Arc::clone(self), Arc::clone(mirror));
        tasks.spawn(async move {
            let source = Source::of::<VolumeSnapshotContent>();
            let mut changes = std::pin::pin!(usage.contents.follow(usage.client.clone(), source));
            while let Some(change) = changes.next().await {
                mirror.content_changed(&change).await;
                let object = change.new.or(change.old);
                let place = object.and_then(|content| content.spec.volume_snapshot_ref.namespace.clone());
                for quota in usage.quotas.list().iter().filter(|quota| quota.namespace() == place) {
                    usage.keys.send(Key::of(quota.as_ref()), Duration::ZERO).await;
                }
            }
        });
    }

    pub(crate) async fn run(self: Arc<Self>, received: Received<Key>, stop: CancellationToken) {
        let reconcile = |key: Key| {
            let usage = Arc::clone(&self);
            async move { usage.tell(&key).await }
        };
        let synced = async {
            tokio::join!(self.quotas.synced(), self.contents.synced(), self.inventory.machines.synced());
        };
        let work = Loop { name: "snapshot usage", workers: 1, stop };
        work.run(received, synced, reconcile).await;
    }

    async fn tell(&self, key: &Key) -> Result<(), Error> {
        let Some(quota) = self.quotas.get(key) else { return Ok(()) };
        let usage = self.usage(&key.namespace).await?;
        if quota.status.snapshot_limit_status == usage {
            return Ok(());
        }
        // Machines that have none any more are taken out, which a merge would not.
        let change =
            json!([{ "op": "add", "path": "/status", "value": SnapshotQuotaStatus { snapshot_limit_status: usage } }]);
        let Ok(change) = serde_json::from_value(change) else { return Ok(()) };
        let api: Api<ResourceQuota> = Api::namespaced(self.client.clone(), &key.namespace);
        let written = api.patch_status(&key.name, &patch::as_harvester(), &Patch::Json::<()>(change)).await;
        if let Some(written) = failure::absent_is_none(written)? {
            self.quotas.wrote(written);
        }
        Ok(())
    }

    async fn usage(&self, place: &str) -> Result<SnapshotUsage, Error> {
        let snapshots: Api<VolumeSnapshot> = Api::namespaced(self.client.clone(), place);
        let mut usage = SnapshotUsage::default();
        for content in self.contents.list() {
            let reference = &content.spec.volume_snapshot_ref;
            if reference.namespace.as_deref() != Some(place) {
                continue;
            }
            let size =
                content.annotations().get(ALLOCATED).and_then(|size| size.parse::<i64>().ok()).unwrap_or_default();
            let total = &mut usage.namespace_total_snapshot_size_usage;
            *total = total.saturating_add(size);
            let name = reference.name.clone().unwrap_or_default();
            let Some(snapshot) = failure::absent_is_none(snapshots.get(&name).await)? else { continue };
            if let Some(machine) = self.machine_of(place, &snapshot) {
                let total = usage.vm_total_snapshot_size_usage.entry(machine).or_default();
                *total = total.saturating_add(size);
            }
        }
        Ok(usage)
    }

    /// The machine that has the disk.
    fn machine_of(&self, place: &str, snapshot: &VolumeSnapshot) -> Option<String> {
        let claim = snapshot.spec.source.persistent_volume_claim_name.as_deref()?;
        let machines = self.inventory.machines.list();
        let has_it = |machine: &&Arc<croft_api::kubevirt::VirtualMachine>| {
            let volumes = &machine.spec.template.spec.volumes;
            namespace(&machine.metadata) == place && volumes.iter().any(|volume| claim_name(volume) == Some(claim))
        };
        machines.iter().find(has_it).map(|machine| machine.name_any())
    }
}
