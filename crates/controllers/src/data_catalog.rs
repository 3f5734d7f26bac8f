//! What clients of CDI look up before they fill a disk: a StorageProfile for every storage class, which tells what claims of
//! it look like, and DataSources that say whether what they name is there.
//!
//! What they should say is worked out by `answers`; here it is written.

mod answers;

use std::sync::Arc;
use std::time::Duration;

use croft_api::cdi::{DataSource, StorageProfile};
use croft_reconcile::{Cache, Error, Key, Keys, Loop, Received, Source, Tasks, failure};
use futures::StreamExt;
use jiff::Timestamp;
use kube::api::Patch;
use kube::{Api, Client};
use tokio_util::sync::CancellationToken;

use crate::inventory::Inventory;
use crate::patch;

/// Something to look at.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Work {
    /// The profile of a class.
    Profile(String),
    Source(Key),
}

pub(crate) struct DataCatalog {
    client: Client,
    inventory: Inventory,
    profiles: Cache<StorageProfile>,
    sources: Cache<DataSource>,
    keys: Keys<Work>,
}

impl DataCatalog {
    pub(crate) fn new(client: Client, inventory: Inventory) -> (Arc<Self>, Received<Work>) {
        let (keys, received) = Keys::channel();
        let (profiles, sources) = (Cache::default(), Cache::default());
        (Arc::new(Self { client, inventory, profiles, sources, keys }), received)
    }

    /// Keeps what it has of its own up to date, for as long as the tasks run.
    pub(crate) fn follow(self: &Arc<Self>, tasks: &mut Tasks) {
        let catalog = Arc::clone(self);
        tasks.spawn(async move {
            let changes = catalog.profiles.follow(catalog.client.clone(), Source::of::<StorageProfile>());
            let mut changes = std::pin::pin!(changes);
            while let Some(change) = changes.next().await {
                catalog.keys.send(Work::Profile(change.key.name), Duration::ZERO).await;
            }
        });
        let catalog = Arc::clone(self);
        tasks.spawn(async move {
            let changes = catalog.sources.follow(catalog.client.clone(), Source::of::<DataSource>());
            let mut changes = std::pin::pin!(changes);
            while let Some(change) = changes.next().await {
                catalog.keys.send(Work::Source(change.key.clone()), Duration::ZERO).await;
                catalog.retell(|source| answers::names_source(source, &change.key)).await;
            }
        });
    }

    pub(crate) async fn run(self: Arc<Self>, received: Received<Work>, stop: CancellationToken) {
        let reconcile = |work: Work| {
            let catalog = Arc::clone(&self);
            async move {
                match work {
                    Work::Profile(class) => catalog.tell_profile(&class).await,
                    Work::Source(key) => catalog.tell_source(&key).await,
                }
            }
        };
        let ready = async {
            tokio::join!(self.inventory.synced(), self.profiles.synced(), self.sources.synced());
        };
        Loop { name: "data catalog", workers: 1, stop }.run(received, ready, reconcile).await;
    }

    pub(crate) async fn class_changed(&self, class: &Key) {
        self.keys.send(Work::Profile(class.name.clone()), Duration::ZERO).await;
    }

    /// A claim, or the DataVolume that fills it.
    pub(crate) async fn claim_changed(&self, claim: &Key) {
        self.retell(|source| answers::names_claim(source, claim)).await;
    }

    pub(crate) async fn snapshot_changed(&self, snapshot: &Key) {
        self.retell(|source| answers::names_snapshot(source, snapshot)).await;
    }

    async fn retell(&self, is_concerned: impl Fn(&DataSource) -> bool) {
        for source in self.sources.list().iter().filter(|source| is_concerned(source)) {
            self.keys.send(Work::Source(Key::of(&**source)), Duration::ZERO).await;
        }
    }

    /// The profile of a class that is gone goes with it, as what belongs to another object does.
    async fn tell_profile(&self, name: &str) -> Result<(), Error> {
        let Some(class) = self.inventory.classes.get(&Key::new("", name)) else { return Ok(()) };
        let api: Api<StorageProfile> = Api::all(self.client.clone());
        let Some(old) = self.profiles.get(&Key::new("", name)) else {
            let made = api.create(&patch::post_params(), &answers::profile(&class, None)).await;
            return match made {
                Err(error) if !failure::is_conflict(&error) => Err(error.into()),
                _ => Ok(()),
            };
        };
        let Some(change) = patch::guarded(&*old, &answers::profile(&class, Some(&old))) else { return Ok(()) };
        failure::absent_is_none(api.patch_status(name, &patch::patch_params(), &Patch::Merge(&change)).await)?;
        Ok(())
    }

    async fn tell_source(&self, key: &Key) -> Result<(), Error> {
        let Some(old) = self.sources.get(key) else { return Ok(()) };
        let new = answers::source(&old, &self.inventory.claims, &self.sources, Timestamp::now());
        let Some(change) = patch::guarded(&*old, &new) else { return Ok(()) };
        let api: Api<DataSource> = Api::namespaced(self.client.clone(), &key.namespace);
        failure::absent_is_none(api.patch_status(&key.name, &patch::patch_params(), &Patch::Merge(&change)).await)?;
        Ok(())
    }
}
