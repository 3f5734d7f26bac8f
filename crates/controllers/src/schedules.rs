//! ScheduleVMBackups: machines that are kept again and again.
//!
//! `plan` decides, from what is there and what time it is; this does it. Each backup has its time in its name, so that
//! whoever is killed and started again makes none twice. A time that has passed for more than
//! a minute is not made up for, as in Harvester: neither after the server was down, nor behind a backup that takes longer,
//! nor when the clock is set.

mod plan;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use croft_api::harvester::{SCHEDULE_ANNOTATION, ScheduleVMBackup, VirtualMachineBackup};
use croft_reconcile::failure::{self, absent_is_none, is_conflict, is_not_found};
use croft_reconcile::{Cache, Change, Error, Events, Key, Keys, Loop, Received, Source, Tasks};
use futures::StreamExt;
use jiff::Timestamp;
use kube::api::{DeleteParams, Patch, Preconditions};
use kube::{Api, Client, ResourceExt};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use self::plan::{Runs, Step};
use crate::patch::{self, as_harvester, made_by_harvester};
use crate::ticker::{self, Clock};

const WORKERS: usize = 2;
pub(crate) struct Schedules {
    client: Client,
    events: Events,
    clock: Clock,
    known: Cache<ScheduleVMBackup>,
    backups: Cache<VirtualMachineBackup>,
    keys: Keys<Key>,
    memories: Mutex<HashMap<Key, Memory>>,
}

/// What need not survive this process.
#[derive(Clone, Debug, Default)]
struct Memory {
    /// The object; another may come to have its name.
    uid: Option<String>,
    /// The last time that a backup was made for, before the schedule says so.
    made: Option<Timestamp>,
    /// The last time that was told as missed.
    missed: Option<Timestamp>,
}

impl Schedules {
    /// `backups` is kept by somebody else, who tells of changes.
    pub(crate) fn new(
        client: Client,
        backups: Cache<VirtualMachineBackup>,
        events: Events,
        clock: Clock,
    ) -> (Arc<Self>, Received<Key>) {
        let (keys, received) = Keys::channel();
        let new = Self { client, events, clock, known: Cache::default(), backups, keys, memories: Mutex::default() };
        (Arc::new(new), received)
    }

    pub(crate) fn follow(self: &Arc<Self>, tasks: &mut Tasks) {
        let this = Arc::clone(self);
        tasks.spawn(async move {
            let source = Source::of::<ScheduleVMBackup>();
            let mut changes = std::pin::pin!(this.known.follow(this.client.clone(), source));
            while let Some(change) = changes.next().await {
                this.keys.send(change.key, Duration::ZERO).await;
            }
        });
    }

    pub(crate) async fn backup_changed(&self, change: &Change<VirtualMachineBackup>) {
        let backup = change.new.as_ref().or(change.old.as_ref());
        if let Some(schedule) = backup.and_then(|backup| schedule_of(backup)) {
            self.keys.send(schedule, Duration::ZERO).await;
        }
    }

    pub(crate) async fn run(self: Arc<Self>, received: Received<Key>, stop: CancellationToken) {
        let minutes = ticker::every_minute(Arc::clone(&self.clock), |now, is_all| {
            let this = Arc::clone(&self);
            async move { this.look(now, is_all).await }
        });
        tokio::select! {
            () = self.work(received, stop) => {}
            () = minutes => {}
        }
    }

    async fn work(self: &Arc<Self>, received: Received<Key>, stop: CancellationToken) {
        let reconcile = |key: Key| {
            let this = Arc::clone(self);
            async move { this.reconcile(&key).await }
        };
        let synced = async {
            tokio::join!(self.known.synced(), self.backups.synced());
        };
        let work = Loop { name: "schedules", workers: WORKERS, stop };
        work.run(received, synced, reconcile).await;
    }

    /// Has those worked on that are due; all of them where a minute was left out.
    async fn look(&self, now: Timestamp, is_all: bool) {
        for schedule in self.known.list() {
            if is_all || plan::due(&schedule, now).is_some() {
                self.keys.send(Key::of(schedule.as_ref()), Duration::ZERO).await;
            }
        }
    }

    async fn reconcile(&self, key: &Key) -> Result<(), Error> {
        let Some(schedule) = self.known.get(key).filter(|it| it.metadata.deletion_timestamp.is_none()) else {
            self.memories.lock().remove(key);
            return Ok(());
        };
        let now = (self.clock)();
        let runs = Runs::of(&schedule, &self.backups.list(), now);
        let memory = self.memory(key, &schedule);
        let made = memory.made.or_else(|| plan::last_made(&schedule));
        if let Some(missed) = plan::missed(&schedule, &runs, made, now).filter(|at| memory.missed != Some(*at)) {
            self.memories.lock().entry(key.clone()).or_default().missed = Some(missed);
            let message = format!("nothing was made at {missed}, and it is not made up for");
            self.events.warning(schedule.as_ref(), "MissedSchedule", &message);
        }
        let mut new = schedule.as_ref().clone();
        let done = match plan::step(&schedule, &runs, made, now) {
            Step::Make(at) => self.make(key, &schedule, at).await,
            Step::Wait { at, behind } => {
                let message = format!("the backup of {at} waits for {behind}, for a minute at the most");
                self.events.normal(schedule.as_ref(), "WaitingForBackup", &message);
                Ok(())
            }
            Step::Suspend { reason, message } => {
                plan::suspend(&mut new, reason, &message, now);
                self.events.warning(schedule.as_ref(), "Suspended", &message);
                Ok(())
            }
            Step::Resume => {
                plan::resume(&mut new, now);
                Ok(())
            }
            Step::Clear(failed) => self.delete(key, &failed).await,
            Step::Rest => Ok(()),
        };
        let made = self.memory(key, &schedule).made;
        plan::tell(&mut new, &runs, made, now);
        self.write(&schedule, &new).await?;
        done?;
        self.delete(key, &runs.surplus(schedule.spec.retain)).await
    }

    fn memory(&self, key: &Key, schedule: &ScheduleVMBackup) -> Memory {
        let mut memories = self.memories.lock();
        let memory = memories.entry(key.clone()).or_default();
        if memory.uid != schedule.metadata.uid {
            *memory = Memory { uid: schedule.metadata.uid.clone(), ..Memory::default() };
        }
        memory.clone()
    }

    async fn make(&self, key: &Key, schedule: &ScheduleVMBackup, at: Timestamp) -> Result<(), Error> {
        let api: Api<VirtualMachineBackup> = Api::namespaced(self.client.clone(), &key.namespace);
        match api.create(&made_by_harvester(), &plan::backup(schedule, at)).await {
            Err(error) if !is_conflict(&error) => {
                // It may be accepted before the minute is over.
                let why = failure::message(&error);
                self.events.warning(schedule, "BackupRefused", &why);
                return match error {
                    kube::Error::Api(refused) if (400..500).contains(&refused.code) => Err(Error::NotYet(why)),
                    error => Err(error.into()),
                };
            }
            _ => {}
        }
        self.memories.lock().entry(key.clone()).or_default().made = Some(at);
        Ok(())
    }

    /// What may not go now is tried again.
    async fn delete(&self, key: &Key, backups: &[Arc<VirtualMachineBackup>]) -> Result<(), Error> {
        let api: Api<VirtualMachineBackup> = Api::namespaced(self.client.clone(), &key.namespace);
        let mut refused = None;
        for backup in backups {
            let is_same = Preconditions { uid: backup.metadata.uid.clone(), resource_version: None };
            let params = DeleteParams { preconditions: Some(is_same), ..DeleteParams::default() };
            match api.delete(&backup.name_any(), &params).await {
                Err(error) if !is_not_found(&error) => refused = Some(error),
                _ => {}
            }
        }
        match refused {
            Some(kube::Error::Api(status)) if (400..500).contains(&status.code) => {
                Err(Error::NotYet(status.message.clone()))
            }
            Some(error) => Err(error.into()),
            None => Ok(()),
        }
    }

    async fn write(&self, old: &ScheduleVMBackup, new: &ScheduleVMBackup) -> Result<(), Error> {
        let Some(change) = patch::guarded(old, new) else { return Ok(()) };
        let namespace = old.metadata.namespace.as_deref().unwrap_or_default();
        let api: Api<ScheduleVMBackup> = Api::namespaced(self.client.clone(), namespace);
        let written = api.patch(&old.name_any(), &as_harvester(), &Patch::Merge(&change)).await;
        if let Some(written) = absent_is_none(written)? {
            self.known.wrote(written);
        }
        Ok(())
    }
}

/// The schedule that made it.
fn schedule_of(backup: &VirtualMachineBackup) -> Option<Key> {
    let (namespace, name) = backup.annotations().get(SCHEDULE_ANNOTATION)?.split_once('/')?;
    Some(Key::new(namespace, name))
}

#[cfg(test)]
mod tests;
