//! Croft's controllers: each turns intent into smaller intent, and gets a `kube::Client` and nothing more.
//!
//! These are the ones that every Kubernetes has: [`garbage_collector`], [`namespace`], [`service_account`],
//! [`token_secret`], [`orphaned_pod`], [`cluster_role_aggregation`] and [`crd_cleanup`]. They read metadata alone wherever that is enough,
//! and keep no copies of objects.
//!
//! Virtual machines have [`virtual_machine`] (machines become instances) and [`schedule`] (instances get a node), their disks
//! [`volume_claims`] and [`data_catalog`], what is kept of them [`backups`], [`backup_target`], [`schedules`], [`recurring`],
//! [`longhorn_snapshots`] and
//! [`snapshot_usage`], their nodes [`maintenance`]. What users choose
//! from has [`key_pairs`], [`templates`], [`settings`], [`addons`] and [`vlan_configs`]. They decide in pure functions from
//! the copies in [`inventory`].
//!
//! Start reading at [`croft_reconcile`], which they all run on.

mod addons;
mod backup_target;
mod backups;
mod claims;
mod cluster_role_aggregation;
mod content;
mod crd_cleanup;
mod data_catalog;
mod discovery;
mod garbage_collector;
mod inventory;
mod key_pairs;
mod longhorn_snapshots;
mod maintenance;
mod namespace;
mod objects;
mod one_kind;
mod orphaned_pod;
mod patch;
mod recurring;
mod schedule;
mod schedules;
mod service_account;
mod settings;
mod snapshot_usage;
mod templates;
#[cfg(test)]
mod testing;
mod ticker;
mod token_secret;
mod virtual_machine;
mod vlan_configs;
mod volume_claims;

use std::sync::Arc;

use croft_reconcile::{Events, Tasks};
use kube::Client;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::backup_target::Target;
use crate::backups::Keeper;
use crate::data_catalog::DataCatalog;
use crate::inventory::{DiskWatchers, InstanceWatchers, Inventory};
use crate::longhorn_snapshots::Mirror;
use crate::maintenance::Maintenance;
use crate::objects::Everything;
use crate::recurring::Recurring;
use crate::schedule::Scheduler;
use crate::schedules::Schedules;
use crate::snapshot_usage::SnapshotUsages;
use crate::virtual_machine::Machines;
use crate::volume_claims::VolumeClaims;

/// Who the managed fields say it was; tools know to look past it.
const MANAGER: &str = "kube-controller-manager";

/// How many events may wait for the garbage collector; watches wait when it is full.
const EVENTS: usize = 1024;

/// Runs all controllers until `stop`. `ca_pem` is the certificate that clients inside the cluster trust the server by.
pub async fn run(client: Client, ca_pem: String, stop: CancellationToken) {
    let mut tasks = Tasks::default();
    let (send, seen) = mpsc::channel(EVENTS);
    let (everything, gone) = Everything::new(client.clone(), send);
    tasks.spawn(namespace::run(client.clone(), gone.subscribe(), stop.clone()));
    tasks.spawn(crd_cleanup::run(client.clone(), gone.subscribe(), stop.clone()));
    tasks.spawn(garbage_collector::run(client.clone(), seen, stop.clone()));
    tasks.spawn(everything.run(stop.clone()));
    tasks.spawn(service_account::run(client.clone(), ca_pem, stop.clone()));
    tasks.spawn(token_secret::run(client.clone(), stop.clone()));
    tasks.spawn(orphaned_pod::run(client.clone(), stop.clone()));
    tasks.spawn(key_pairs::run(client.clone(), stop.clone()));
    tasks.spawn(templates::run(client.clone(), stop.clone()));
    let target = Target::new(client.clone());
    tasks.spawn(settings::run(client.clone(), target.clone(), stop.clone()));
    tasks.spawn(target.clone().run(stop.clone()));
    tasks.spawn(target.clone().sweep(stop.clone()));
    tasks.spawn(addons::run(client.clone(), stop.clone()));
    tasks.spawn(vlan_configs::run(client.clone(), stop.clone()));
    start_machines(&client, target, &stop, &mut tasks);
    tasks.spawn(cluster_role_aggregation::run(client, stop));
    tasks.finish().await;
}

/// Starts what brings virtual machines to life: all of it looks at the same objects, so they are watched once.
fn start_machines(client: &Client, target: Target, stop: &CancellationToken, tasks: &mut Tasks) {
    let inventory = Inventory::default();
    let (events, told) = Events::channel(client.clone(), "virtualmachine-controller");
    let (machines, machine_keys) = Machines::new(client.clone(), inventory.clone(), events.clone());
    let (scheduler, instance_keys) = Scheduler::new(client.clone(), inventory.clone(), events.clone());
    let (maintenance, node_keys) = Maintenance::new(client.clone(), inventory.clone(), events.clone());
    let (claims, claim_keys) = VolumeClaims::new(client.clone(), inventory.clone(), events.clone());
    let (backups, backup_keys) = Keeper::new(client.clone(), inventory.clone(), events, target);
    let (schedule_events, schedule_told) = Events::channel(client.clone(), "schedule-vm-backup-controller");
    let (schedules, schedule_keys) =
        Schedules::new(client.clone(), backups.all(), schedule_events, Arc::new(jiff::Timestamp::now));
    let (job_events, job_told) = Events::channel(client.clone(), "longhorn-recurring-job-controller");
    let clock = Arc::new(jiff::Timestamp::now);
    let (jobs, job_keys) = Recurring::new(client.clone(), inventory.clone(), Arc::clone(&backups), job_events, clock);
    let (room, room_keys) = SnapshotUsages::new(client.clone(), inventory.clone());
    let (mirror, mirror_keys) = Mirror::new(client.clone(), inventory.clone(), Arc::clone(&backups), room.contents());
    let (catalog, catalog_keys) = DataCatalog::new(client.clone(), inventory.clone());
    let mut watches = Tasks::default();
    catalog.follow(&mut watches);
    schedules.follow(&mut watches);
    backups.follow(&schedules, &mut watches);
    jobs.follow(&mut watches);
    mirror.follow(&mut watches);
    room.follow(&mirror, &mut watches);
    let told_of_disks = DiskWatchers {
        claims: Arc::clone(&claims),
        catalog: Arc::clone(&catalog),
        backups: Arc::clone(&backups),
        jobs: Arc::clone(&jobs),
        mirror: Arc::clone(&mirror),
    };
    let told_of_instances = InstanceWatchers { maintenance: Arc::clone(&maintenance) };
    inventory.follow(client, &machines, &scheduler, &told_of_disks, &told_of_instances, &mut watches);
    watches.spawn(told);
    watches.spawn(schedule_told);
    watches.spawn(job_told);
    let stopped = stop.clone();
    tasks.spawn(async move {
        let watch = async {
            loop {
                watches.watch_over().await;
            }
        };
        tokio::select! {
            () = stopped.cancelled() => {}
            () = watch => {}
        }
    });
    tasks.spawn(machines.run(machine_keys, stop.clone()));
    tasks.spawn(scheduler.run(instance_keys, stop.clone()));
    tasks.spawn(claims.run(claim_keys, stop.clone()));
    tasks.spawn(backups.run(backup_keys, stop.clone()));
    tasks.spawn(schedules.run(schedule_keys, stop.clone()));
    tasks.spawn(jobs.run(job_keys, stop.clone()));
    tasks.spawn(mirror.run(mirror_keys, stop.clone()));
    tasks.spawn(room.run(room_keys, stop.clone()));
    tasks.spawn(maintenance.run(node_keys, stop.clone()));
    tasks.spawn(catalog.run(catalog_keys, stop.clone()));
}
