//! One task for each machine: it is found or started, served while it runs, and taken away.
//!
//! The task is the only one that writes the machine's object. It may be dropped at any instant, with the process or
//! without: the machine runs on, and the next task finds it by its directory.

use std::sync::Arc;
use std::time::Duration;

use croft_api::kubevirt::{VirtualMachineInstance, phase};
use croft_api::machine_state::MemorySource;
use croft_meta::Chain;
use croft_qemu::process::{self, Launch, Process, ProcessError};
use croft_qemu::qmp::{Events as QmpEvents, Qmp};
use croft_reconcile::{Backoff, Events};
use jiff::Timestamp;
use tokio::sync::watch;
use tokio::time::sleep;

use super::host::{Host, Lacking, Lease};
use super::live::{Live, Outcome};
use super::machine;
use super::memory::{self, Description};
use super::object::Object;
use super::prepare::{self, Prepared, Resumption};
use super::status::{View, Why, render};
use super::{adopt, cleanup, firmware};

/// How often what is missing is looked for, beside being told.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// How often a machine that does not answer is asked, before it is given up.
const ADOPTIONS: u32 = 3;
const ADOPT_AGAIN: Duration = Duration::from_millis(300);

pub(super) struct Actor {
    pub(super) host: Arc<Host>,
    pub(super) events: Events,
    pub(super) object: Object,
    pub(super) uid: String,
    /// Given back when nothing of the machine is left.
    pub(super) user: Option<Lease>,
}

/// A QEMU that we are connected to.
pub(super) struct Connected {
    pub(super) process: Process,
    pub(super) qmp: Qmp,
    pub(super) events: QmpEvents,
    pub(super) view: View,
}

impl Actor {
    pub(super) fn new(
        host: Arc<Host>,
        events: Events,
        vmi: Arc<VirtualMachineInstance>,
        seen: watch::Receiver<Option<Arc<VirtualMachineInstance>>>,
    ) -> Actor {
        let uid = vmi.metadata.uid.clone().unwrap_or_default();
        let object = Object::new(&host.client, vmi, seen);
        Actor { host, events, object, uid, user: None }
    }

    pub(super) async fn run(mut self) {
        let ended = self.live().await;
        self.clean().await;
        if !self.object.is_ending()
            && let Some(view) = &ended
        {
            self.write(view).await;
        }
        while !self.object.is_ending() {
            self.object.changed().await;
        }
        self.forget_state().await;
        let vmi = self.object.get();
        let status = ended.map(|view| render(&vmi, &view, &self.host.node_name, Timestamp::now()));
        self.object.release(status.as_ref()).await;
        tracing::info!(vmi = %machine_name(&vmi), "machine gone");
    }

    /// From wherever the machine stands to its end; how it ended, unless that was known before.
    async fn live(&mut self) -> Option<View> {
        loop {
            let known = self.object.get().status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_default();
            if matches!(known.as_str(), phase::SUCCEEDED | phase::FAILED) {
                return None;
            }
            let connected = match self.find().await {
                Ok(Some(connected)) => connected,
                // Nothing was started, or it has ended while nobody looked, as after a reboot of the host.
                Ok(None) if self.object.is_ending() => return Some(ended(phase::SUCCEEDED, None)),
                Ok(None) if known == phase::RUNNING => {
                    let message = "the machine was not there any more when the node came back";
                    return Some(self.failed("NodeRestarted", message));
                }
                Ok(None) => match self.start().await {
                    Ok(connected) => connected,
                    Err(view) => return Some(view),
                },
                Err(view) => return Some(view),
            };
            match Live::new(self, connected).serve().await {
                Outcome::Ended(view) => return Some(*view),
                Outcome::Lost => {}
            }
        }
    }

    /// The QEMU that an earlier task has started.
    async fn find(&mut self) -> Result<Option<Connected>, View> {
        let vmi = self.object.get();
        let dir = self.host.machine_dir(&self.uid);
        let mut adopted = Process::adopt(&dir, machine::machine_uuid(&vmi)).await;
        for _ in 0..ADOPTIONS {
            // One that is just dying answers no more, and is gone in a moment.
            if !matches!(adopted, Err(ProcessError::Adopt { .. } | ProcessError::Follow { .. })) {
                break;
            }
            sleep(ADOPT_AGAIN).await;
            adopted = Process::adopt(&dir, machine::machine_uuid(&vmi)).await;
        }
        match adopted {
            Ok((process, qmp, _)) if self.is_half_resumed(&qmp).await => {
                process.kill();
                process.wait().await;
                self.clean().await;
                Ok(None)
            }
            Ok((process, qmp, events)) => {
                tracing::info!(vmi = %machine_name(&vmi), pid = process.pid(), "machine adopted");
                if self.user.is_none() {
                    self.user = adopt::user(&self.host, process.pid());
                }
                let view = adopt::view(&self.host, &vmi, &qmp, self.user.as_ref()).await;
                Ok(Some(Connected { process, qmp, events, view }))
            }
            Err(ProcessError::NotRunning { .. }) => Ok(None),
            Err(error) => Err(self.failed("Unreachable", &Chain(&error).to_string())),
        }
    }

    /// Prepares and starts the machine. The error is how it ended instead.
    async fn start(&mut self) -> Result<Connected, View> {
        let prepared = self.prepared().await?;
        for warning in &prepared.warnings {
            self.events.warning(&*self.object.get(), "NotHonoured", warning);
        }
        let mut prepared = prepared;
        let memory = prepared.memory.take();
        let (machine, accel) = (prepared.machine.clone(), prepared.accel);
        let connected = match self.launch(prepared).await {
            Ok(connected) => connected,
            Err(error) => return Err(self.failed("FailedStart", &Chain(&error).to_string())),
        };
        let described = Description::of(&machine, accel, &connected.qmp).await;
        let outcome = match (described, memory) {
            (Ok(described), memory) => {
                if let Err(error) = described.write(connected.process.dir()) {
                    tracing::warn!(error = %Chain(&error), "what a machine was started with could not be written down");
                }
                match memory {
                    Some(memory) => self.resume(&connected, &described, memory).await,
                    None => Ok(()),
                }
            }
            (Err(error), Some(_)) => Err(Chain(&error).to_string()),
            (Err(error), None) => {
                tracing::warn!(error = %Chain(&error), "what a machine was started with is not known");
                Ok(())
            }
        };
        let Err(why) = outcome else { return Ok(connected) };
        connected.process.kill();
        connected.process.wait().await;
        if self.object.is_ending() {
            return Err(ended(phase::SUCCEEDED, None));
        }
        let annotation = MemorySource::ANNOTATION;
        let message = format!(
            "The guest cannot go on from the memory that was kept: {why}. Without the annotation {annotation} of its template the machine boots from its disks."
        );
        Err(self.failed("MemoryNotRestored", &message))
    }

    /// Has the guest go on from memory that was kept. The error is why it cannot.
    async fn resume(
        &mut self,
        connected: &Connected,
        described: &Description,
        memory: Resumption,
    ) -> Result<(), String> {
        if let Some(why) = described.differs_from(&memory.kept.description) {
            return Err(why);
        }
        let loaded = tokio::select! {
            loaded = memory.kept.load(&connected.qmp) => loaded,
            () = until_ending(&mut self.object) => return Err("the machine is being stopped".to_owned()),
        };
        if let Err(error) = loaded {
            let said = process::log_tail(connected.process.dir()).await;
            return Err(format!("{}: {said}", Chain(&error)));
        }
        let state = firmware::state_dir(&self.host, &self.object.get());
        memory::mark_resumed(&state, &memory.source).map_err(|error| Chain(&error).to_string())?;
        let vmi = self.object.get();
        self.events.normal(&*vmi, "Resumed", "The guest goes on from the memory that was kept.");
        Ok(())
    }

    /// Whether we were killed before a guest had all of its memory. It has not run, and is started again.
    async fn is_half_resumed(&self, qmp: &Qmp) -> bool {
        let vmi = self.object.get();
        let Some(source) = MemorySource::of(&vmi.metadata) else { return false };
        let is_new = vmi.status.as_ref().and_then(|status| status.phase.as_deref()) != Some(phase::RUNNING);
        let status = qmp.status().await.map(|status| status.status).unwrap_or_default();
        is_new
            && matches!(status.as_str(), "inmigrate" | "paused" | "prelaunch")
            && !memory::is_resumed(&firmware::state_dir(&self.host, &vmi), &source)
    }

    /// Waits until everything is there, or the machine is not wanted any more.
    async fn prepared(&mut self) -> Result<Prepared, View> {
        let mut changes = self.host.storage.changes();
        let mut backoff = Backoff::default();
        loop {
            if self.object.is_ending() {
                return Err(ended(phase::SUCCEEDED, None));
            }
            changes.borrow_and_update();
            let (host, vmi) = (Arc::clone(&self.host), self.object.get());
            let outcome = tokio::select! {
                outcome = prepare::prepare(&host, &vmi) => outcome,
                // What was begun is taken away with the machine.
                () = until_ending(&mut self.object) => return Err(ended(phase::SUCCEEDED, None)),
            };
            let (reason, message) = match outcome {
                Ok(prepared) => return Ok(prepared),
                Err(Lacking::Ever { message }) => return Err(self.failed("FailedCreate", &message)),
                Err(Lacking::Yet { reason, message }) => (reason, message),
            };
            self.events.warning(&*vmi, reason, &message);
            let view = View {
                phase: phase::SCHEDULED,
                not_ready: Some(Why::new("GuestNotRunning", "Guest VM is not reported as running")),
                not_synchronized: Some(Why::new(reason, message)),
                ..View::default()
            };
            self.write(&view).await;
            tokio::select! {
                () = self.object.changed() => {}
                _ = changes.changed() => {}
                () = sleep(backoff.next_delay().min(LOOK_AGAIN)) => {}
            }
        }
    }

    async fn launch(&mut self, prepared: Prepared) -> Result<Connected, ProcessError> {
        // Closed only when the whole agent is.
        let _permit = self.host.starts.acquire().await.ok();
        self.user = prepared.user;
        let vmi = self.object.get();
        let dir = self.host.machine_dir(&self.uid);
        let launch = Launch {
            binary: &self.host.qemu,
            dir: &dir,
            machine: &prepared.machine,
            accel: prepared.accel,
            fds: prepared.fds,
            confinement: &prepared.confinement,
        };
        let (process, qmp, events) = Process::start(launch).await?;
        let view = View {
            phase: phase::RUNNING,
            volumes: prepared.volumes,
            sockets: Some(machine::sockets(&vmi.spec)),
            fixed_processors: adopt::fixed_processors(&vmi, prepared.accel),
            memory_bytes: Some(prepared.machine.memory.bytes),
            overhead_bytes: machine::overhead(&vmi.spec, prepared.accel).ok(),
            user: self.user.as_ref().map(|lease| lease.user.uid),
            machine_type: adopt::machine_type(&vmi),
            ..View::default()
        };
        tracing::info!(vmi = %machine_name(&vmi), pid = process.pid(), "machine started");
        Ok(Connected { process, qmp, events, view })
    }

    pub(super) async fn write(&mut self, view: &View) -> bool {
        let vmi = self.object.get();
        let status = render(&vmi, view, &self.host.node_name, Timestamp::now());
        self.object.write(&status).await
    }

    /// A machine that ends badly, as its object says it.
    pub(super) fn failed(&self, reason: &str, message: &str) -> View {
        let vmi = self.object.get();
        tracing::warn!(vmi = %machine_name(&vmi), reason, message, "machine failed");
        self.events.warning(&*vmi, reason, message);
        ended(phase::FAILED, Some(Why::new(reason, message)))
    }

    /// Tries until nothing is left; what is left holds the object.
    async fn clean(&mut self) {
        let mut backoff = Backoff::default();
        while !cleanup::machine(&self.host, &self.uid).await {
            sleep(backoff.next_delay()).await;
        }
    }

    /// What a machine keeps over its runs goes with the last of them.
    async fn forget_state(&mut self) {
        let vmi = self.object.get();
        if let Err(error) = super::state::forget_if_orphaned(&self.host, &vmi).await {
            tracing::debug!(vmi = %machine_name(&vmi), error, "kept a machine's state for now");
        }
    }
}

async fn until_ending(object: &mut Object) {
    while !object.is_ending() {
        object.changed().await;
    }
}

pub(super) fn ended(phase: &'static str, why: Option<Why>) -> View {
    let not_ready = Why::new("GuestNotRunning", "Guest VM is not reported as running");
    View {
        phase,
        reason: why.as_ref().map(|why| why.reason.clone()),
        not_ready: Some(not_ready),
        not_synchronized: why,
        ..View::default()
    }
}

pub(super) fn machine_name(vmi: &VirtualMachineInstance) -> String {
    let meta = &vmi.metadata;
    format!("{}/{}", meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default())
}
