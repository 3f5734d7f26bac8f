//! What is kept of machines, in the cluster or in the backup target, and machines that are made from it again.
//!
//! - `capture` says what of a machine is kept; `rebuilt` makes a machine of that: they do nothing themselves;
//! - `backup` looks after VirtualMachineBackups: one VolumeSnapshot for each disk, all of one set, which the machine's node takes
//!   at one instant, and sends to the target if they are of the type `backup`; `remote` is about what is there;
//! - `remote_volume` does the same for single volumes, without machines;
//! - `retention` deletes those that are too many or too old;
//! - `restore` looks after VirtualMachineRestores; `fetched` brings what is in the target alone within their reach,
//!   and `foreign` has it do without what only the cluster has that it was made in;
//! - `state` is what a machine has besides its disks;
//! - `machine_snapshot`, `machine_restore` (as `restore_policy` says) and `machine_clone` do the same for KubeVirt's own kinds.

mod backup;
mod capture;
mod fetched;
mod foreign;
mod machine_clone;
mod machine_restore;
mod machine_snapshot;
mod rebuilt;
mod remote;
mod remote_volume;
mod restore;
mod restore_policy;
mod retention;
mod state;

pub(crate) use capture::milliseconds;
pub(crate) use remote::FINALIZER as HELD_BY_TARGET;
pub(crate) use remote::{is_sealed, set_sealed};

use std::sync::Arc;
use std::time::Duration;

use croft_api::harvester::{VirtualMachineBackup, VirtualMachineRestore, VolumeRemoteBackup, VolumeRemoteRestore};
use croft_api::kubevirt::{
    VirtualMachine, VirtualMachineClone, VirtualMachineRestore as KubevirtRestore, VirtualMachineSnapshot,
};
use croft_api::longhorn::Backup;
use croft_api::snapshot::VolumeSnapshot;
use croft_reconcile::{Cache, Change, Error, Events, Key, Keys, Loop, Received, Source, Tasks};
use futures::StreamExt;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::core::DynamicObject;
use kube::discovery::ApiResource;
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;

use crate::backup_target::Target;
use crate::inventory::Inventory;
use crate::schedules::Schedules;

const WORKERS: usize = 4;

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Work {
    Backup(Key),
    /// Of a volume, in the target.
    Copy(String),
    Restore(Key),
    /// Of a single volume.
    VolumeBackup(Key),
    VolumeRestore(Key),
    /// Of a machine's backups.
    Retention(Key),
    MachineSnapshot(Key),
    MachineRestore(Key),
    Clone(Key),
}

pub(crate) struct Keeper {
    client: Client,
    inventory: Inventory,
    events: Events,
    target: Target,
    copies: Cache<Backup>,
    backups: Cache<VirtualMachineBackup>,
    restores: Cache<VirtualMachineRestore>,
    volume_backups: Cache<VolumeRemoteBackup>,
    volume_restores: Cache<VolumeRemoteRestore>,
    machine_snapshots: Cache<VirtualMachineSnapshot>,
    machine_restores: Cache<KubevirtRestore>,
    clones: Cache<VirtualMachineClone>,
    snapshots: Cache<VolumeSnapshot>,
    keys: Keys<Work>,
}

impl Keeper {
    pub(crate) fn new(
        client: Client,
        inventory: Inventory,
        events: Events,
        target: Target,
    ) -> (Arc<Self>, Received<Work>) {
        let (keys, received) = Keys::channel();
        let new = Self {
            client,
            events,
            target,
            copies: Cache::default(),
            backups: Cache::default(),
            restores: Cache::default(),
            volume_backups: Cache::default(),
            volume_restores: Cache::default(),
            machine_snapshots: Cache::default(),
            machine_restores: Cache::default(),
            clones: Cache::default(),
            snapshots: inventory.claims.snapshots.clone(),
            inventory,
            keys,
        };
        (Arc::new(new), received)
    }

    /// The class for snapshots of this claim, that stay in the cluster or go to the target.
    pub(crate) fn class_for(&self, claim: &PersistentVolumeClaim, is_snapshot: bool) -> Option<String> {
        self.snapshot_class(capture::driver(&capture::claim(claim)), is_snapshot)
    }

    /// Kept up to date here, for others too.
    pub(crate) fn all(&self) -> Cache<VirtualMachineBackup> {
        self.backups.clone()
    }

    /// Keeps the objects at hand, and has worked on whatever a change concerns.
    pub(crate) fn follow(self: &Arc<Self>, schedules: &Arc<Schedules>, tasks: &mut Tasks) {
        tasks.spawn(Arc::clone(self).watch_ages());
        let (this, told) = (Arc::clone(self), Arc::clone(schedules));
        tasks.spawn(async move {
            let source = Source::of::<VirtualMachineBackup>();
            let mut changes = std::pin::pin!(this.backups.follow(this.client.clone(), source));
            while let Some(change) = changes.next().await {
                this.keys.send(Work::Backup(change.key.clone()), Duration::ZERO).await;
                if let Some(backup) = &change.new {
                    let machine = Key::new(change.key.namespace.clone(), backup.spec.source.name.clone());
                    this.keys.send(Work::Retention(machine), Duration::ZERO).await;
                }
                told.backup_changed(&change).await;
            }
        });
        let restores = |_: &Self, change: &Change<VirtualMachineRestore>| vec![Work::Restore(change.key.clone())];
        tasks.spawn(Arc::clone(self).each(self.copies.clone(), Self::after_copy));
        tasks.spawn(Arc::clone(self).each(self.restores.clone(), restores));
        let volumes = |it: &Self, change: &Change<VolumeRemoteBackup>| it.after_volume_backup(&change.key);
        tasks.spawn(Arc::clone(self).each(self.volume_backups.clone(), volumes));
        let volumes = |_: &Self, change: &Change<VolumeRemoteRestore>| vec![Work::VolumeRestore(change.key.clone())];
        tasks.spawn(Arc::clone(self).each(self.volume_restores.clone(), volumes));
        tasks.spawn(Arc::clone(self).each(self.machine_snapshots.clone(), Self::after_machine_snapshot));
        tasks.spawn(Arc::clone(self).each(self.machine_restores.clone(), Self::after_machine_restore));
        let clones = |_: &Self, change: &Change<VirtualMachineClone>| vec![Work::Clone(change.key.clone())];
        tasks.spawn(Arc::clone(self).each(self.clones.clone(), clones));
    }

    async fn each<K>(self: Arc<Self>, cache: Cache<K>, concerned: impl Fn(&Self, &Change<K>) -> Vec<Work> + Send)
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Send + Sync + 'static,
    {
        let mut changes = std::pin::pin!(cache.follow(self.client.clone(), Source::of::<K>()));
        while let Some(change) = changes.next().await {
            for work in concerned(&self, &change) {
                self.keys.send(work, Duration::ZERO).await;
            }
        }
    }

    pub(crate) async fn run(self: Arc<Self>, received: Received<Work>, stop: CancellationToken) {
        let reconcile = |work: Work| {
            let backups = Arc::clone(&self);
            async move {
                match work {
                    Work::Backup(key) => Box::pin(backups.reconcile_backup(&key)).await,
                    Work::Copy(name) => Box::pin(backups.reconcile_copy(&name)).await,
                    Work::Restore(key) => Box::pin(backups.reconcile_restore(&key)).await,
                    Work::VolumeBackup(key) => Box::pin(backups.reconcile_volume_backup(&key)).await,
                    Work::VolumeRestore(key) => Box::pin(backups.reconcile_volume_restore(&key)).await,
                    Work::Retention(key) => Box::pin(backups.retain(&key)).await,
                    Work::MachineSnapshot(key) => Box::pin(backups.reconcile_machine_snapshot(&key)).await,
                    Work::MachineRestore(key) => Box::pin(backups.reconcile_machine_restore(&key)).await,
                    Work::Clone(key) => Box::pin(backups.reconcile_clone(&key)).await,
                }
            }
        };
        let synced = async {
            tokio::join!(
                self.inventory.synced(),
                self.backups.synced(),
                self.copies.synced(),
                self.restores.synced(),
                self.volume_backups.synced(),
                self.volume_restores.synced(),
                self.machine_snapshots.synced(),
                self.machine_restores.synced(),
                self.clones.synced()
            );
        };
        let work = Loop { name: "backups", workers: WORKERS, stop };
        work.run(received, synced, reconcile).await;
    }

    /// Snapshots go with their machine; a restore waits for one to run.
    pub(crate) async fn machine_changed(&self, change: &Change<VirtualMachine>) {
        if change.new.is_none() {
            for backup in self.backups.list().iter().filter(|backup| {
                backup.metadata.namespace.as_deref() == Some(change.key.namespace.as_str())
                    && backup.spec.source.name == change.key.name
            }) {
                self.keys.send(Work::Backup(Key::of(backup.as_ref())), Duration::ZERO).await;
            }
        }
        self.keys.send(Work::Retention(change.key.clone()), Duration::ZERO).await;
        self.retry_restores(|restore| restore.spec.target.name == change.key.name).await;
    }

    pub(crate) async fn snapshot_changed(&self, change: &Change<VolumeSnapshot>) {
        for work in self.after_snapshot(change) {
            self.keys.send(work, Duration::ZERO).await;
        }
    }

    /// Restores wait for their claims.
    pub(crate) async fn claim_changed(&self, claim: &Key) {
        let is_its = |restore: &VirtualMachineRestore| {
            let status = restore.status.as_ref();
            status.is_some_and(|status| {
                status.restores.iter().any(|one| one.claim.metadata["name"] == claim.name.as_str())
            })
        };
        self.retry_restores(is_its).await;
        if self.volume_restores.get(claim).is_some() {
            self.keys.send(Work::VolumeRestore(claim.clone()), Duration::ZERO).await;
        }
    }

    async fn retry_restores(&self, concerned: impl Fn(&VirtualMachineRestore) -> bool) {
        let is_open =
            |restore: &VirtualMachineRestore| restore.status.as_ref().and_then(|status| status.complete) != Some(true);
        for restore in self.restores.list().iter().filter(|restore| is_open(restore) && concerned(restore)) {
            self.keys.send(Work::Restore(Key::of(restore.as_ref())), Duration::ZERO).await;
        }
        let open =
            |restore: &&Arc<KubevirtRestore>| restore.status.as_ref().and_then(|status| status.complete) != Some(true);
        for restore in self.machine_restores.list().iter().filter(open) {
            self.keys.send(Work::MachineRestore(Key::of(restore.as_ref())), Duration::ZERO).await;
        }
    }

    /// The backup or the machine's snapshot that it belongs to.
    fn after_snapshot(&self, change: &Change<VolumeSnapshot>) -> Vec<Work> {
        let object = change.new.as_ref().or(change.old.as_ref());
        let owners = object.iter().flat_map(|snapshot| snapshot.metadata.owner_references.iter().flatten());
        let mut work = Vec::new();
        for owner in owners {
            match owner.kind.as_str() {
                "VirtualMachineBackup" => {
                    work.push(Work::Backup(Key::new(change.key.namespace.clone(), owner.name.clone())));
                }
                "VolumeRemoteBackup" => {
                    work.push(Work::VolumeBackup(Key::new(change.key.namespace.clone(), owner.name.clone())));
                }
                "VirtualMachineSnapshotContent" => {
                    let is_its = |snapshot: &&Arc<VirtualMachineSnapshot>| {
                        let status = snapshot.status.as_ref();
                        status.and_then(|status| status.virtual_machine_snapshot_content_name.as_ref())
                            == Some(&owner.name)
                    };
                    let snapshots = self.machine_snapshots.list();
                    work.extend(snapshots.iter().find(is_its).map(|one| Work::MachineSnapshot(Key::of(one.as_ref()))));
                }
                _ => {}
            }
        }
        work
    }

    /// The snapshot, and those who wait for it.
    fn after_machine_snapshot(&self, change: &Change<VirtualMachineSnapshot>) -> Vec<Work> {
        let waits = |restore: &&Arc<KubevirtRestore>| {
            restore.metadata.namespace.as_deref() == Some(change.key.namespace.as_str())
                && restore.spec.virtual_machine_snapshot_name == change.key.name
        };
        let restores = self.machine_restores.list();
        let waiting = restores.iter().filter(waits).map(|restore| Work::MachineRestore(Key::of(restore.as_ref())));
        let clones = self.waiting_clones(&change.key.namespace);
        std::iter::once(Work::MachineSnapshot(change.key.clone())).chain(waiting).chain(clones).collect()
    }

    fn after_machine_restore(&self, change: &Change<KubevirtRestore>) -> Vec<Work> {
        let clones = self.waiting_clones(&change.key.namespace);
        std::iter::once(Work::MachineRestore(change.key.clone())).chain(clones).collect()
    }

    fn waiting_clones(&self, namespace: &str) -> Vec<Work> {
        let is_open = |clone: &&Arc<VirtualMachineClone>| {
            let phase = clone.status.as_ref().and_then(|status| status.phase.as_deref());
            clone.metadata.namespace.as_deref() == Some(namespace) && !matches!(phase, Some("Succeeded" | "Failed"))
        };
        let clones = self.clones.list();
        clones.iter().filter(is_open).map(|clone| Work::Clone(Key::of(clone.as_ref()))).collect()
    }

    /// Machines with everything in them, whatever this program knows of it.
    fn machines(&self, namespace: &str) -> Api<DynamicObject> {
        let kind = ApiResource::erase::<VirtualMachine>(&());
        Api::namespaced_with(self.client.clone(), namespace, &kind)
    }
}

/// What waits, and why.
fn not_yet(why: impl Into<String>) -> Result<(), Error> {
    Err(Error::NotYet(why.into()))
}
