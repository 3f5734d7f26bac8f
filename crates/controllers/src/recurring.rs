//! Longhorn's RecurringJobs: volumes that are kept again and again, whoever uses them.
//!
//! At its time a job makes a VolumeSnapshot of each of its volumes, a few at a time, and goes on with that until all are made or
//! its next time has come; what is beyond its number, or its age, goes when the newest is there. `plan` decides; this does it. What is
//! made has the job and the time in its name, so that whoever is killed makes none twice.

mod plan;

use std::sync::Arc;
use std::time::Duration;

use croft_api::longhorn::{self, MADE_BY_LABEL, RecurringJob, Task};
use croft_api::snapshot::VolumeSnapshot;
use croft_reconcile::failure::{absent_is_none, is_conflict, is_not_found};
use croft_reconcile::{Cache, Change, Error, Events, Key, Keys, Loop, Received, Source, Tasks};
use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::api::{DeleteParams, Patch, Preconditions};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::backups::Keeper;
use crate::inventory::Inventory;
use crate::patch::{self, as_harvester, made_by_harvester};
use crate::ticker::{self, Clock};

const WORKERS: usize = 2;

pub(crate) struct Recurring {
    client: Client,
    inventory: Inventory,
    backups: Arc<Keeper>,
    events: Events,
    clock: Clock,
    jobs: Cache<RecurringJob>,
    keys: Keys<Key>,
}

impl Recurring {
    pub(crate) fn new(
        client: Client,
        inventory: Inventory,
        backups: Arc<Keeper>,
        events: Events,
        clock: Clock,
    ) -> (Arc<Self>, Received<Key>) {
        let (keys, received) = Keys::channel();
        (Arc::new(Self { client, inventory, backups, events, clock, jobs: Cache::default(), keys }), received)
    }

    pub(crate) fn follow(self: &Arc<Self>, tasks: &mut Tasks) {
        let this = Arc::clone(self);
        tasks.spawn(async move {
            let source = Source::of::<RecurringJob>();
            let mut changes = std::pin::pin!(this.jobs.follow(this.client.clone(), source));
            while let Some(change) = changes.next().await {
                this.keys.send(change.key, Duration::ZERO).await;
            }
        });
    }

    pub(crate) async fn snapshot_changed(&self, change: &Change<VolumeSnapshot>) {
        let snapshot = change.new.as_ref().or(change.old.as_ref());
        if let Some(job) = snapshot.and_then(|snapshot| snapshot.labels().get(MADE_BY_LABEL).cloned()) {
            self.keys.send(Key::new(longhorn::NAMESPACE, job), Duration::ZERO).await;
        }
    }

    pub(crate) async fn run(self: Arc<Self>, received: Received<Key>, stop: CancellationToken) {
        let reconcile = |key: Key| {
            let this = Arc::clone(&self);
            async move { this.reconcile(&key).await }
        };
        let synced = async {
            tokio::join!(self.jobs.synced(), self.inventory.synced());
        };
        let work = Loop { name: "recurring jobs", workers: WORKERS, stop };
        let minutes = ticker::every_minute(Arc::clone(&self.clock), |now, is_all| {
            let this = Arc::clone(&self);
            async move { this.look(now, is_all).await }
        });
        tokio::select! {
            () = work.run(received, synced, reconcile) => {}
            () = minutes => {}
        }
    }

    async fn look(&self, now: Timestamp, is_all: bool) {
        for job in self.jobs.list() {
            if is_all || plan::is_due(&job, now) {
                self.keys.send(Key::of(job.as_ref()), Duration::ZERO).await;
            }
        }
    }

    async fn reconcile(&self, key: &Key) -> Result<(), Error> {
        let is_here = key.namespace == longhorn::NAMESPACE;
        let found = self.jobs.get(key).filter(|job| is_here && job.metadata.deletion_timestamp.is_none());
        let Some(job) = found else { return Ok(()) };
        // What was admitted by an older version may be none.
        let Ok(task) = Task::parse(&job.spec.task) else { return Ok(()) };
        let now = (self.clock)();
        let Some(begun) = self.begin(&job, now).await? else { return Ok(()) };
        let claims = self.claims_of(&job);
        let snapshots = self.inventory.claims.snapshots.list();
        let done = match plan::open_run(&begun) {
            Some(at) if task == Task::DeleteSnapshots => {
                let class_for = |claim: &PersistentVolumeClaim| self.backups.class_for(claim, true);
                self.delete(&plan::beyond(&begun, &claims, &snapshots, class_for)).await?;
                self.complete(&begun, at).await
            }
            Some(at) => self.go_on(&begun, task, &claims, &snapshots, at).await,
            None => Ok(()),
        };
        if task != Task::DeleteSnapshots {
            self.delete(&plan::outlived(&begun, &snapshots, now)).await?;
        }
        done
    }

    /// Says that a run has begun before anything is made for it.
    async fn begin(&self, job: &Arc<RecurringJob>, now: Timestamp) -> Result<Option<Arc<RecurringJob>>, Error> {
        let mut new = job.as_ref().clone();
        if !plan::begin(&mut new, now) {
            return Ok(Some(Arc::clone(job)));
        }
        Ok(self.write(job, &new).await?.map(Arc::new))
    }

    async fn complete(&self, job: &RecurringJob, at: Timestamp) -> Result<(), Error> {
        let mut new = job.clone();
        plan::complete(&mut new, at);
        self.write(job, &new).await.map(drop)
    }

    /// Makes what is yet to be made, as many at a time as the job says.
    async fn go_on(
        &self,
        job: &RecurringJob,
        task: Task,
        claims: &[Arc<PersistentVolumeClaim>],
        snapshots: &[Arc<VolumeSnapshot>],
        at: Timestamp,
    ) -> Result<(), Error> {
        let left = plan::left(job, claims, snapshots, at);
        if left.to_make.is_empty() && left.open == 0 {
            return self.complete(job, at).await;
        }
        let most = usize::try_from(job.spec.concurrency).unwrap_or_default().max(1);
        let mut refused = None;
        for claim in left.to_make.into_iter().take(most.saturating_sub(left.open)) {
            if let Err(why) = self.make(job, task, &claim, at).await? {
                let message = format!("{}/{}: {why}", claim.namespace().unwrap_or_default(), claim.name_any());
                self.events.warning(job, "VolumeNotKept", &message);
                refused = Some(message);
            }
        }
        refused.map_or(Ok(()), |why| Err(Error::NotYet(why)))
    }

    /// The inner error is for the user; it may pass.
    async fn make(
        &self,
        job: &RecurringJob,
        task: Task,
        claim: &PersistentVolumeClaim,
        at: Timestamp,
    ) -> Result<Result<(), String>, Error> {
        let Some(class) = self.backups.class_for(claim, task == Task::Snapshot) else {
            return Ok(Err("the setting csi-driver-config has no class for it".to_owned()));
        };
        let namespace = claim.namespace().unwrap_or_default();
        let api: Api<VolumeSnapshot> = Api::namespaced(self.client.clone(), &namespace);
        match api.create(&made_by_harvester(), &plan::snapshot(job, claim, class, at)).await {
            Err(error) if is_conflict(&error) => Ok(Ok(())),
            Err(kube::Error::Api(refused)) if (400..500).contains(&refused.code) => Ok(Err(refused.message.clone())),
            made => {
                // Counted before it is seen.
                let made = made?;
                self.inventory.claims.snapshots.wrote(made);
                Ok(Ok(()))
            }
        }
    }

    fn claims_of(&self, job: &RecurringJob) -> Vec<Arc<PersistentVolumeClaim>> {
        let name = job.name_any();
        let is_its = |claim: &Arc<PersistentVolumeClaim>| {
            let class = claim.spec.as_ref().and_then(|spec| spec.storage_class_name.clone());
            let class = class.and_then(|class| self.inventory.classes.get(&Key::new("", class)));
            let parameters = class.as_ref().and_then(|class| class.parameters.as_ref());
            // One without a class is not Longhorn's.
            plan::can_be_kept(claim)
                && self.backups.class_for(claim, true).is_some()
                && longhorn::applies(&name, &job.spec.groups, claim.metadata.labels.as_ref(), parameters)
        };
        self.inventory.claims.claims.list().into_iter().filter(is_its).collect()
    }

    async fn delete(&self, snapshots: &[Arc<VolumeSnapshot>]) -> Result<(), Error> {
        for snapshot in snapshots {
            let api: Api<VolumeSnapshot> =
                Api::namespaced(self.client.clone(), snapshot.namespace().as_deref().unwrap_or_default());
            let is_same = Preconditions { uid: snapshot.metadata.uid.clone(), resource_version: None };
            let params = DeleteParams { preconditions: Some(is_same), ..DeleteParams::default() };
            match api.delete(&snapshot.name_any(), &params).await {
                Err(error) if !is_not_found(&error) => return Err(error.into()),
                _ => {}
            }
        }
        Ok(())
    }

    async fn write(&self, old: &RecurringJob, new: &RecurringJob) -> Result<Option<RecurringJob>, Error> {
        let Some(change) = patch::guarded(old, new) else { return Ok(Some(old.clone())) };
        let api: Api<RecurringJob> = Api::namespaced(self.client.clone(), longhorn::NAMESPACE);
        let written = api.patch(&old.name_any(), &as_harvester(), &Patch::Merge(&change)).await;
        let Some(mut written) = absent_is_none(written)? else { return Ok(None) };
        if old.status != new.status {
            // A count that is lost with this process is no loss.
            let status = Patch::Merge(json!({ "status": new.status }));
            let told = api.patch_status(&old.name_any(), &as_harvester(), &status).await;
            let Some(told) = absent_is_none(told)? else { return Ok(None) };
            written = told;
        }
        self.jobs.wrote(written.clone());
        Ok(Some(written))
    }
}
