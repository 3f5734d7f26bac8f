//! VlanConfigs on their way out.
//!
//! Clients delete one and only then open the watch that is to tell them of its end (Terraform's provider does): an
//! object that is gone at once would never be seen to go. Harvester takes a moment to take the uplink down; here the
//! moment is all there is.

use std::sync::Arc;
use std::time::Duration;

use croft_api::harvester::{VLAN_CONFIG_FINALIZER, VlanConfig};
use croft_reconcile::{Cache, Error, Key, Keys, Loop, Source, Tasks, failure};
use futures::StreamExt;
use kube::api::Patch;
use kube::{Api, Client};
use tokio_util::sync::CancellationToken;

use crate::patch;

/// From the deletion to the end.
const MOMENT: Duration = Duration::from_secs(2);

pub(crate) async fn run(client: Client, stop: CancellationToken) {
    let (keys, received) = Keys::channel();
    let cache: Cache<VlanConfig> = Cache::default();
    let mut tasks = Tasks::default();
    let (followed, source) = (cache.clone(), client.clone());
    tasks.spawn(async move {
        let mut changes = std::pin::pin!(followed.follow(source, Source::of::<VlanConfig>()));
        while let Some(change) = changes.next().await {
            // Only the deletion starts the clock.
            if change.new.is_some_and(|config| config.metadata.deletion_timestamp.is_some()) {
                keys.send(change.key, MOMENT).await;
            }
        }
    });
    let shared = Arc::new(client);
    let reconcile = |key: Key| {
        let (client, cache) = (Arc::clone(&shared), cache.clone());
        async move { let_go(&client, &cache, &key).await }
    };
    let work = Loop { name: "VLAN configuration", workers: 1, stop };
    tokio::select! {
        () = work.run(received, cache.synced(), reconcile) => {}
        () = async { loop { tasks.watch_over().await } } => {}
    }
}

async fn let_go(client: &Client, cache: &Cache<VlanConfig>, key: &Key) -> Result<(), Error> {
    let Some(old) = cache.get(key).filter(|config| config.metadata.deletion_timestamp.is_some()) else { return Ok(()) };
    let mut new = (*old).clone();
    if let Some(finalizers) = &mut new.metadata.finalizers {
        finalizers.retain(|finalizer| finalizer != VLAN_CONFIG_FINALIZER);
    }
    let Some(change) = patch::guarded(&*old, &new) else { return Ok(()) };
    let api: Api<VlanConfig> = Api::all(client.clone());
    let written = api.patch(&key.name, &patch::as_harvester(), &Patch::Merge(&change)).await;
    failure::absent_is_none(written)?;
    Ok(())
}
