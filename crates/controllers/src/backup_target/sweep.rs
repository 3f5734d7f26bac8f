//! What was left behind in the target: by whoever died while writing there, here or in another cluster.
//!
//! Done when a target is new to this process and once a day. Locks keep it away from those who are at work; and volumes of which
//! a backup is to be made here are left alone, so that it goes on with what was sent before.

use std::collections::BTreeSet;
use std::time::Duration;

use croft_api::longhorn::{self, Backup};
use croft_backup::{Error, Freed};
use croft_meta::Chain;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use tokio_util::sync::CancellationToken;

use super::{Open, PATIENCE, Target};

const EVERY: Duration = Duration::from_hours(24);

pub(super) async fn run(target: Target, stop: CancellationToken) {
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = target.0.is_new.notified() => {}
            () = tokio::time::sleep(EVERY) => {}
        }
        // One that is away is told of elsewhere.
        let Ok(Ok(open)) = target.open().await else { continue };
        let swept = stop.run_until_cancelled(sweep(&target.0.client, &open)).await;
        if let Some(Err(error)) = swept {
            tracing::warn!(error = %Chain(&error), "it cannot be said what is on its way to the backup target");
        }
    }
}

async fn sweep(client: &Client, open: &Open) -> Result<(), kube::Error> {
    let store = open.store.clone().with_patience(PATIENCE);
    let volumes = match store.volumes().await {
        Ok(volumes) => volumes,
        Err(error) => {
            tracing::warn!(error = %Chain(&error), "the backup target cannot be cleaned up");
            return Ok(());
        }
    };
    for volume in volumes {
        // Asked for each: it may take long, and backups are begun meanwhile.
        if awaited(client).await?.contains(&volume) {
            continue;
        }
        match store.clean_up(&volume).await {
            Ok(Freed { blocks: 0, unfinished: 0, abandoned: 0, .. }) => {}
            Ok(freed) => tracing::info!(volume, ?freed, "what was left behind is removed from the backup target"),
            Err(Error::Locked(..)) => tracing::debug!(volume, "backups of it are at work"),
            Err(error) => {
                tracing::warn!(volume, error = %Chain(&error), "a volume in the backup target cannot be cleaned up");
            }
        }
    }
    Ok(())
}

/// The volumes whose backups are on their way.
async fn awaited(client: &Client) -> Result<BTreeSet<String>, kube::Error> {
    let api: Api<Backup> = Api::namespaced(client.clone(), longhorn::NAMESPACE);
    let backups = api.list(&ListParams::default()).await?;
    let open = backups.items.iter().filter(|backup| backup.state() != longhorn::COMPLETED);
    Ok(open.filter_map(|backup| backup.labels().get(longhorn::VOLUME_LABEL).cloned()).collect())
}
