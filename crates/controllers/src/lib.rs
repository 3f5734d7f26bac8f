//! Croft's controllers: each turns intent into smaller intent, and gets a `kube::Client` and nothing more.
//!
//! These are the ones that every Kubernetes has: [`garbage_collector`], [`namespace`], [`service_account`],
//! [`token_secret`], [`orphaned_pod`], [`cluster_role_aggregation`] and [`crd_cleanup`]. They read metadata alone wherever that is enough,
//! and keep no copies of objects.
//!
//! Start reading at [`croft_reconcile`], which they all run on.

mod claims;
mod cluster_role_aggregation;
mod content;
mod crd_cleanup;
mod discovery;
mod garbage_collector;
mod namespace;
mod objects;
mod orphaned_pod;
mod schedule;
mod service_account;
mod token_secret;
mod virtual_machine;

use croft_reconcile::Tasks;
use kube::Client;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::objects::Everything;

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
    tasks.spawn(cluster_role_aggregation::run(client, stop));
    tasks.finish().await;
}
