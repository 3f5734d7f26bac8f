//! The objects that machines are made of, kept at hand for all who look at them.
//!
//! One watch of each kind serves the controller of machines and the scheduler: both are told of every change after the
//! cache shows it.

use std::sync::Arc;

use croft_api::cni::NetworkAttachmentDefinition;
use croft_api::harvester::Setting;
use croft_api::kubevirt::{VirtualMachine, VirtualMachineInstance};
use croft_reconcile::{Cache, Change, Key, Source, Tasks};
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use k8s_openapi::api::core::v1::{Namespace, Node, PersistentVolume};
use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::api::storage::v1::StorageClass;
use kube::{Client, Resource};
use serde::de::DeserializeOwned;

use crate::backups::Keeper;
use crate::claims::Claims;
use crate::data_catalog::DataCatalog;
use crate::longhorn_snapshots::Mirror;
use crate::maintenance::Maintenance;
use crate::recurring::Recurring;
use crate::schedule::Scheduler;
use crate::virtual_machine::Machines;
use crate::volume_claims::VolumeClaims;

#[derive(Clone, Debug, Default)]
pub(crate) struct Inventory {
    pub(crate) machines: Cache<VirtualMachine>,
    pub(crate) instances: Cache<VirtualMachineInstance>,
    pub(crate) claims: Claims,
    pub(crate) volumes: Cache<PersistentVolume>,
    pub(crate) classes: Cache<StorageClass>,
    pub(crate) nodes: Cache<Node>,
    pub(crate) networks: Cache<NetworkAttachmentDefinition>,
    pub(crate) priorities: Cache<PriorityClass>,
    pub(crate) namespaces: Cache<Namespace>,
    pub(crate) settings: Cache<Setting>,
}

/// Those who are told of disks besides machines and the scheduler.
#[derive(Clone)]
pub(crate) struct DiskWatchers {
    pub(crate) claims: Arc<VolumeClaims>,
    pub(crate) catalog: Arc<DataCatalog>,
    pub(crate) backups: Arc<Keeper>,
    pub(crate) jobs: Arc<Recurring>,
    pub(crate) mirror: Arc<Mirror>,
}

/// Those who are told of instances besides machines and the scheduler.
#[derive(Clone)]
pub(crate) struct InstanceWatchers {
    pub(crate) maintenance: Arc<Maintenance>,
}

impl Inventory {
    /// Waits until everything that was there at the start is in.
    pub(crate) async fn synced(&self) {
        tokio::join!(
            self.machines.synced(),
            self.instances.synced(),
            self.claims.claims.synced(),
            self.claims.data_volumes.synced(),
            self.claims.snapshots.synced(),
            self.volumes.synced(),
            self.classes.synced(),
            self.nodes.synced(),
            self.networks.synced(),
            self.priorities.synced(),
            self.namespaces.synced(),
            self.settings.synced(),
        );
    }

    /// Keeps everything up to date and tells of it, for as long as the tasks run.
    pub(crate) fn follow(
        &self,
        client: &Client,
        machines: &Arc<Machines>,
        scheduler: &Arc<Scheduler>,
        disks: &DiskWatchers,
        others: &InstanceWatchers,
        tasks: &mut Tasks,
    ) {
        let all = || (client.clone(), Arc::clone(machines), Arc::clone(scheduler));
        let ((client, told, _), also_told) = (all(), disks.clone());
        tasks.spawn(each(client, self.machines.clone(), move |change| {
            let (told, also_told) = (Arc::clone(&told), also_told.clone());
            async move {
                also_told.claims.machine_changed(&change).await;
                also_told.backups.machine_changed(&change).await;
                told.machine_changed(&change).await;
            }
        }));
        let ((client, machines, scheduler), others_told) = (all(), others.clone());
        tasks.spawn(each(client, self.instances.clone(), move |change| {
            let (machines, scheduler) = (Arc::clone(&machines), Arc::clone(&scheduler));
            let others = others_told.clone();
            async move {
                scheduler.instance_changed(&change).await;
                machines.instance_changed(&change).await;
                others.maintenance.instance_changed(&change).await;
            }
        }));
        let (client, machines, scheduler) = all();
        tasks.spawn(each(client, self.claims.claims.clone(), claim_changed(machines, scheduler, disks)));
        let (client, machines, scheduler) = all();
        tasks.spawn(each(client, self.claims.data_volumes.clone(), claim_changed(machines, scheduler, disks)));
        let ((client, ..), told) = (all(), disks.clone());
        tasks.spawn(each(client, self.claims.snapshots.clone(), move |change| {
            let told = told.clone();
            async move {
                told.backups.snapshot_changed(&change).await;
                told.jobs.snapshot_changed(&change).await;
                told.mirror.snapshot_changed(&change).await;
                told.catalog.snapshot_changed(&change.key).await;
            }
        }));
        let ((client, _, told), also_told) = (all(), Arc::clone(&others.maintenance));
        tasks.spawn(each(client, self.nodes.clone(), move |change| {
            let (told, also_told) = (Arc::clone(&told), Arc::clone(&also_told));
            async move {
                told.node_changed(&change).await;
                also_told.node_changed(&change).await;
            }
        }));
        let (client, _, told) = all();
        tasks.spawn(each(client, self.namespaces.clone(), move |change| {
            told.namespace_changed(&change);
            std::future::ready(())
        }));
        let (client, _, scheduler) = all();
        tasks.spawn(each(client, self.volumes.clone(), retry(scheduler)));
        let ((client, _, told), catalog) = (all(), Arc::clone(&disks.catalog));
        tasks.spawn(each(client, self.classes.clone(), move |change| {
            let (told, catalog) = (Arc::clone(&told), Arc::clone(&catalog));
            async move {
                told.retry().await;
                catalog.class_changed(&change.key).await;
            }
        }));
        let (client, _, scheduler) = all();
        tasks.spawn(each(client, self.networks.clone(), retry(scheduler)));
        let (client, ..) = all();
        tasks.spawn(each(client, self.priorities.clone(), |_| std::future::ready(())));
        let (client, ..) = all();
        tasks.spawn(each(client, self.settings.clone(), |_| std::future::ready(())));
    }
}

fn claim_changed<K>(
    machines: Arc<Machines>,
    scheduler: Arc<Scheduler>,
    disks: &DiskWatchers,
) -> impl Fn(Change<K>) -> BoxFuture<'static, ()> + Send + use<K> {
    let disks = disks.clone();
    move |change| {
        let (machines, scheduler, key) = (Arc::clone(&machines), Arc::clone(&scheduler), change.key);
        let disks = disks.clone();
        async move {
            scheduler.retry().await;
            machines.claim_changed(&key).await;
            disks.claims.claim_changed(&key).await;
            disks.catalog.claim_changed(&key).await;
            disks.backups.claim_changed(&key).await;
        }
        .boxed()
    }
}

fn retry<K>(scheduler: Arc<Scheduler>) -> impl Fn(Change<K>) -> BoxFuture<'static, ()> + Send {
    move |_| {
        let scheduler = Arc::clone(&scheduler);
        async move { scheduler.retry().await }.boxed()
    }
}

async fn each<K, F, T>(client: Client, cache: Cache<K>, tell: F)
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Send + Sync + 'static,
    F: Fn(Change<K>) -> T + Send,
    T: Future<Output = ()> + Send,
{
    let mut changes = std::pin::pin!(cache.follow(client, Source::of::<K>()));
    while let Some(change) = changes.next().await {
        tell(change).await;
    }
}

/// The effective value of a setting, if it is there.
pub(crate) fn setting(inventory: &Inventory, name: &str) -> Option<String> {
    let setting = inventory.settings.get(&Key::new("", name))?;
    Some(setting.effective().to_owned())
}
