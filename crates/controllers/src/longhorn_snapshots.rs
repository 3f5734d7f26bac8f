//! Longhorn's Snapshots: each shows a snapshot of a volume that is in the cluster.
//!
//! Those that Croft makes follow the VolumeSnapshots; one that a user makes becomes a VolumeSnapshot. Deleted, it takes the
//! VolumeSnapshot along; a finalizer holds it until that is gone.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use croft_api::longhorn::{self, SHOWN_AS, SHOWS, Snapshot, SnapshotSpec, SnapshotStatus};
use croft_api::snapshot::{VolumeSnapshot, VolumeSnapshotContent, VolumeSnapshotSource, VolumeSnapshotSpec};
use croft_reconcile::failure::{absent_is_none, is_conflict, is_not_found};
use croft_reconcile::{Cache, Change, Error, Key, Keys, Loop, Received, Source, Tasks};
use futures::StreamExt;
use jiff::Timestamp;
use kube::api::{DeleteParams, ObjectMeta, Patch};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::backups::Keeper;
use crate::inventory::Inventory;
use crate::patch::{as_harvester, made_by_harvester};

const WORKERS: usize = 2;
/// As the node wrote it.
const ALLOCATED: &str = "croft.io/allocated-bytes";
/// A content that goes to the target: Longhorn shows it as a Backup.
const GOES_TO_TARGET: &str = "croft.io/backup";

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Work {
    /// A VolumeSnapshot, which is to be shown.
    Show(Key),
    Snapshot(String),
}

pub(crate) struct Mirror {
    client: Client,
    inventory: Inventory,
    backups: Arc<Keeper>,
    contents: Cache<VolumeSnapshotContent>,
    known: Cache<Snapshot>,
    keys: Keys<Work>,
}

impl Mirror {
    /// `contents` is kept by somebody else, who tells of changes.
    pub(crate) fn new(
        client: Client,
        inventory: Inventory,
        backups: Arc<Keeper>,
        contents: Cache<VolumeSnapshotContent>,
    ) -> (Arc<Self>, Received<Work>) {
        let (keys, received) = Keys::channel();
        (Arc::new(Self { client, inventory, backups, contents, known: Cache::default(), keys }), received)
    }

    pub(crate) fn follow(self: &Arc<Self>, tasks: &mut Tasks) {
        let this = Arc::clone(self);
        tasks.spawn(async move {
            let source = Source::of::<Snapshot>();
            let mut changes = std::pin::pin!(this.known.follow(this.client.clone(), source));
            while let Some(change) = changes.next().await {
                this.keys.send(Work::Snapshot(change.key.name), Duration::ZERO).await;
            }
        });
    }

    pub(crate) async fn content_changed(&self, change: &Change<VolumeSnapshotContent>) {
        if let Some(content) = change.new.as_ref().or(change.old.as_ref()) {
            self.keys.send(Work::Show(shown_by(content)), Duration::ZERO).await;
        }
    }

    pub(crate) async fn snapshot_changed(&self, change: &Change<VolumeSnapshot>) {
        self.keys.send(Work::Show(change.key.clone()), Duration::ZERO).await;
        let of = change.key.to_string();
        let shows = |snapshot: &&Arc<Snapshot>| snapshot.annotations().get(SHOWS) == Some(&of);
        for snapshot in self.known.list().iter().filter(shows) {
            self.keys.send(Work::Snapshot(snapshot.name_any()), Duration::ZERO).await;
        }
    }

    pub(crate) async fn run(self: Arc<Self>, received: Received<Work>, stop: CancellationToken) {
        let reconcile = |work: Work| {
            let this = Arc::clone(&self);
            async move {
                match work {
                    Work::Show(key) => this.show(&key).await,
                    Work::Snapshot(name) => this.reconcile(&name).await,
                }
            }
        };
        let synced = async {
            tokio::join!(self.inventory.synced(), self.contents.synced(), self.known.synced());
        };
        let work = Loop { name: "longhorn snapshots", workers: WORKERS, stop };
        work.run(received, synced, reconcile).await;
    }

    fn api(&self) -> Api<Snapshot> {
        Api::namespaced(self.client.clone(), longhorn::NAMESPACE)
    }

    /// What is there of a VolumeSnapshot becomes a Snapshot.
    async fn show(&self, key: &Key) -> Result<(), Error> {
        let found = self.inventory.claims.snapshots.get(key);
        let Some(found) = found.filter(|one| one.metadata.deletion_timestamp.is_none()) else { return Ok(()) };
        let bound = found.status.as_ref().and_then(|status| status.bound_volume_snapshot_content_name.clone());
        let content = bound.and_then(|name| self.contents.get(&Key::new("", name)));
        let status = match &content {
            Some(content) if content.annotations().contains_key(GOES_TO_TARGET) => return Ok(()),
            Some(content) => status(content),
            None => SnapshotStatus { error: found.error().unwrap_or_default().to_owned(), ..SnapshotStatus::default() },
        };
        let name = found.annotations().get(SHOWN_AS).cloned();
        let name = name.unwrap_or_else(|| format!("snapshot-{}", found.metadata.uid.as_deref().unwrap_or_default()));
        let known = self.known.get(&Key::new(longhorn::NAMESPACE, name.clone()));
        let known = match (known, content) {
            (Some(known), _) => known.as_ref().clone(),
            (None, None) => return Ok(()),
            (None, Some(content)) => match self.api().create(&made_by_harvester(), &object(&name, key, &content)).await
            {
                Err(error) if is_conflict(&error) => self.api().get(&name).await?,
                made => made?,
            },
        };
        if known.status.as_ref() == Some(&status) || known.metadata.deletion_timestamp.is_some() {
            return Ok(());
        }
        let change = Patch::Merge(json!({ "status": status }));
        if let Some(written) = absent_is_none(self.api().patch_status(&name, &as_harvester(), &change).await)? {
            self.known.wrote(written);
        }
        Ok(())
    }

    async fn reconcile(&self, name: &str) -> Result<(), Error> {
        let Some(snapshot) = self.known.get(&Key::new(longhorn::NAMESPACE, name)) else { return Ok(()) };
        let is_deleted = snapshot.metadata.deletion_timestamp.is_some();
        let shown = snapshot.annotations().get(SHOWS).and_then(|text| text.split_once('/'));
        let Some((namespace, of)) = shown else {
            return if is_deleted { self.release(&snapshot).await } else { self.take(&snapshot).await };
        };
        let api: Api<VolumeSnapshot> = Api::namespaced(self.client.clone(), namespace);
        let found = absent_is_none(api.get(of).await)?;
        match (found, is_deleted) {
            (None, true) => self.release(&snapshot).await,
            (None, false) => {
                let gone = self.api().delete(name, &DeleteParams::default()).await;
                absent_is_none(gone).map(drop).map_err(Error::from)
            }
            (Some(found), true) if found.metadata.deletion_timestamp.is_none() => {
                match api.delete(of, &DeleteParams::default()).await {
                    Err(error) if !is_not_found(&error) => Err(error.into()),
                    _ => Ok(()),
                }
            }
            (Some(_), _) => Ok(()),
        }
    }

    /// A user's wish becomes a VolumeSnapshot beside the claim.
    async fn take(&self, snapshot: &Snapshot) -> Result<(), Error> {
        let (name, volume) = (snapshot.name_any(), &snapshot.spec.volume);
        let found = self.inventory.volumes.get(&Key::new("", volume.clone()));
        let claim = found.and_then(|volume| {
            let claim = volume.spec.as_ref()?.claim_ref.clone()?;
            self.inventory.claims.claims.get(&Key::new(claim.namespace?, claim.name?))
        });
        let Some(claim) = claim.filter(|_| snapshot.spec.create_snapshot) else {
            return self.fail(snapshot, &format!("there is no claim for volume {volume}")).await;
        };
        let Some(class) = self.backups.class_for(&claim, true) else {
            return self.fail(snapshot, "the setting csi-driver-config has no class for it").await;
        };
        let namespace = claim.namespace().unwrap_or_default();
        let mut finalizers = snapshot.finalizers().to_vec();
        finalizers.push(longhorn::FINALIZER.to_owned());
        let change = json!({ "metadata": { "resourceVersion": snapshot.metadata.resource_version, "finalizers": finalizers,
            "annotations": { SHOWS: format!("{namespace}/{name}") } } });
        let wanted = VolumeSnapshot {
            metadata: ObjectMeta {
                name: Some(name.clone()),
                namespace: Some(namespace.clone()),
                annotations: Some(BTreeMap::from([(SHOWN_AS.to_owned(), name.clone())])),
                labels: Some(snapshot.spec.labels.clone()).filter(|labels| !labels.is_empty()),
                ..ObjectMeta::default()
            },
            spec: VolumeSnapshotSpec {
                source: VolumeSnapshotSource {
                    persistent_volume_claim_name: claim.metadata.name.clone(),
                    ..VolumeSnapshotSource::default()
                },
                volume_snapshot_class_name: Some(class),
            },
            status: None,
        };
        let api: Api<VolumeSnapshot> = Api::namespaced(self.client.clone(), &namespace);
        match api.create(&made_by_harvester(), &wanted).await {
            Err(error) if is_conflict(&error) => {
                let there = api.get(&name).await?;
                if there.annotations().get(SHOWN_AS) != Some(&name) {
                    let why = format!("VolumeSnapshot {namespace}/{name} is there already");
                    return self.fail(snapshot, &why).await;
                }
            }
            Err(kube::Error::Api(refused)) if (400..500).contains(&refused.code) => {
                return self.fail(snapshot, &refused.message).await;
            }
            made => drop(made?),
        }
        let written = self.api().patch(&name, &as_harvester(), &Patch::Merge(&change)).await;
        if let Some(written) = absent_is_none(written)? {
            self.known.wrote(written);
        }
        self.keys.send(Work::Show(Key::new(namespace, name)), Duration::ZERO).await;
        Ok(())
    }

    async fn fail(&self, snapshot: &Snapshot, why: &str) -> Result<(), Error> {
        if snapshot.status.as_ref().map(|status| status.error.as_str()) != Some(why) {
            let status = SnapshotStatus { error: why.to_owned(), ..SnapshotStatus::default() };
            let change = Patch::Merge(json!({ "status": status }));
            absent_is_none(self.api().patch_status(&snapshot.name_any(), &as_harvester(), &change).await)?;
        }
        Err(Error::NotYet(why.to_owned()))
    }

    async fn release(&self, snapshot: &Snapshot) -> Result<(), Error> {
        let finalizers: Vec<&String> = snapshot.finalizers().iter().filter(|one| *one != longhorn::FINALIZER).collect();
        if finalizers.len() == snapshot.finalizers().len() {
            return Ok(());
        }
        let change =
            json!({ "metadata": { "resourceVersion": snapshot.metadata.resource_version, "finalizers": finalizers } });
        absent_is_none(self.api().patch(&snapshot.name_any(), &as_harvester(), &Patch::Merge(&change)).await)?;
        Ok(())
    }
}

/// The VolumeSnapshot that a content is for.
fn shown_by(content: &VolumeSnapshotContent) -> Key {
    let of = &content.spec.volume_snapshot_ref;
    Key::new(of.namespace.as_deref().unwrap_or_default(), of.name.as_deref().unwrap_or_default())
}

fn object(name: &str, of: &Key, content: &VolumeSnapshotContent) -> Snapshot {
    let source = &content.spec.source;
    let given = source.snapshot_handle.as_deref().and_then(|handle| handle.strip_prefix("snap://")?.split_once('/'));
    let volume = source.volume_handle.clone().or_else(|| given.map(|(volume, _)| volume.to_owned()));
    let volume = volume.unwrap_or_default();
    Snapshot {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some(longhorn::NAMESPACE.to_owned()),
            annotations: Some(BTreeMap::from([(SHOWS.to_owned(), of.to_string())])),
            labels: Some(BTreeMap::from([("longhornvolume".to_owned(), volume.clone())])),
            finalizers: Some(vec![longhorn::FINALIZER.to_owned()]),
            ..ObjectMeta::default()
        },
        spec: SnapshotSpec { volume, create_snapshot: true, ..SnapshotSpec::default() },
        status: None,
    }
}

fn status(content: &VolumeSnapshotContent) -> SnapshotStatus {
    let there = content.status.clone().unwrap_or_default();
    let taken_at = there.creation_time.and_then(|at| Timestamp::from_nanosecond(at.into()).ok());
    let size = content.annotations().get(ALLOCATED).and_then(|size| size.parse().ok());
    SnapshotStatus {
        creation_time: taken_at.map(croft_meta::time::format_seconds).unwrap_or_default(),
        ready_to_use: there.ready_to_use.unwrap_or_default(),
        restore_size: there.restore_size.unwrap_or_default(),
        size: size.unwrap_or_default(),
        user_created: true,
        error: there.error.and_then(|error| error.message).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_of_a_snapshot_is_shown() {
        let content: VolumeSnapshotContent = serde_json::from_value(json!({
            "metadata": {"name": "c", "annotations": {ALLOCATED: "4096"}},
            "spec": {"driver": "driver.longhorn.io", "deletionPolicy": "Delete", "source": {"volumeHandle": "pvc-1"},
                "volumeSnapshotRef": {"namespace": "n", "name": "s"}},
            "status": {"creationTime": 1_700_000_000_000_000_000_i64, "restoreSize": 8192, "readyToUse": true},
        }))
        .unwrap();
        let shown = object("snapshot-1", &shown_by(&content), &content);
        assert_eq!((shown.spec.volume.as_str(), shown.annotations()[SHOWS].as_str()), ("pvc-1", "n/s"));
        let status = status(&content);
        assert_eq!((status.size, status.restore_size, status.ready_to_use), (4096, 8192, true));
        assert_eq!(status.creation_time, "2023-11-14T22:13:20Z");
    }
}
