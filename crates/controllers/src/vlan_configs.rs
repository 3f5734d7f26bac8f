//! VlanConfigs on their way out.
//!
//! Clients delete one and only then open the watch that is to tell them of its end (Terraform's provider does): an
//! object that is gone at once would never be seen to go. Harvester takes a moment to take the uplink down; here the
//! moment is all there is.

use std::time::Duration;

use croft_api::harvester::{VLAN_CONFIG_FINALIZER, VlanConfig};
use croft_reconcile::{Cache, Change, Error, Key, failure};
use kube::api::Patch;
use kube::{Api, Client};
use tokio_util::sync::CancellationToken;

use crate::{one_kind, patch};

/// From the deletion to the end.
const MOMENT: Duration = Duration::from_secs(2);

pub(crate) async fn run(client: Client, stop: CancellationToken) {
    one_kind::run("VLAN configuration", client, stop, since_deletion, let_go).await;
}

/// Only the deletion starts the clock.
fn since_deletion(change: &Change<VlanConfig>) -> Option<Duration> {
    let is_going = change.new.as_ref().is_some_and(|config| config.metadata.deletion_timestamp.is_some());
    is_going.then_some(MOMENT)
}

async fn let_go(client: Client, cache: Cache<VlanConfig>, key: Key) -> Result<(), Error> {
    let Some(old) = cache.get(&key).filter(|config| config.metadata.deletion_timestamp.is_some()) else {
        return Ok(());
    };
    let mut new = (*old).clone();
    if let Some(finalizers) = &mut new.metadata.finalizers {
        finalizers.retain(|finalizer| finalizer != VLAN_CONFIG_FINALIZER);
    }
    let Some(change) = patch::guarded(&*old, &new) else { return Ok(()) };
    let api: Api<VlanConfig> = Api::all(client);
    let written = api.patch(&key.name, &patch::as_harvester(), &Patch::Merge(&change)).await;
    failure::absent_is_none(written)?;
    Ok(())
}
