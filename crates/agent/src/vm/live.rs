//! A machine while it runs: what QEMU says, what its object asks for, and how it ends.
//!
//! QEMU's events are the truth about whether the guest runs. A guest that has powered off leaves QEMU waiting
//! (`shutdown=pause`), so that one who was not listening still learns of it.

mod cpus;
mod disks;
mod dump;
mod nics;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use croft_api::kubevirt::{VirtualMachineInstance, phase};
use croft_api::machine_state::MemorySource;
use croft_meta::Chain;
use croft_qemu::process::{self, Exit, Process};
use croft_qemu::qga::Shutdown;
use croft_qemu::qmp::{Event, EventError, Events, Qmp};
use tokio::time::{Instant, sleep_until, timeout};

use super::actor::{Actor, Connected, ended};
use super::machine;
use super::memory;
use super::prepare::limits;
use super::running::{Parts, Running};
use super::status::{PAUSED_BY_USER, PAUSED_IO_ERROR, View, Why};
use super::volume::claim_of;

/// What clients that ask for nothing else get; KubeVirt's own default.
const DEFAULT_GRACE: i64 = 30;
/// A guest that has not seen the power button is shown it again.
const PRESS_AGAIN: Duration = Duration::from_secs(10);
/// A guest that does nothing about the button may have an agent.
const ASK_AGENT: Duration = Duration::from_secs(5);
const QUIT_PATIENCE: Duration = Duration::from_secs(10);
/// How often a full pool is looked at.
const LOOK_FOR_ROOM: Duration = Duration::from_secs(1);
/// What a guest that was stopped for want of space needs to be let go on.
const ROOM_BYTES: u64 = 32 << 20;
/// How soon what could not be plugged is tried again.
const TRY_AGAIN: Duration = Duration::from_secs(2);
const TEND_LOG: Duration = Duration::from_mins(1);
const WRITE_AGAIN: Duration = Duration::from_millis(500);

/// Why a machine is not served any more.
pub(super) enum Outcome {
    Ended(Box<View>),
    /// The control connection is gone, though QEMU is not.
    Lost,
}

pub(super) struct Live<'a> {
    actor: &'a mut Actor,
    process: Process,
    qmp: Qmp,
    events: Events,
    view: View,
    running: Arc<Running>,
    stop: Option<Stop>,
    /// Stopped for want of space, not for another error.
    is_full: bool,
    /// When to look at the devices again.
    reconcile_at: Option<Instant>,
    room_at: Option<Instant>,
    log_at: Instant,
    write_at: Option<Instant>,
    devices: nics::Links,
}

/// A guest that was asked to power off.
struct Stop {
    since: Instant,
    next_press: Instant,
    has_asked_agent: bool,
}

impl<'a> Live<'a> {
    pub(super) fn new(actor: &'a mut Actor, connected: Connected) -> Live<'a> {
        let Connected { process, qmp, events, view } = connected;
        let group = actor.host.cgroups.as_ref().map(|cgroups| cgroups.group(&actor.uid));
        let running = Arc::new(Running::new(Parts {
            dir: process.dir().to_owned(),
            pid: process.pid(),
            qmp: qmp.clone(),
            group,
            object: actor.object.subscribe(),
        }));
        let log_at = Instant::now() + TEND_LOG;
        Live {
            actor,
            process,
            qmp,
            events,
            view,
            running,
            stop: None,
            is_full: false,
            reconcile_at: None,
            room_at: None,
            log_at,
            write_at: None,
            devices: nics::Links::default(),
        }
    }

    pub(super) async fn serve(mut self) -> Outcome {
        self.actor.host.attendance.arrive(&self.running).await;
        let outcome = match self.begin().await {
            Some(outcome) => outcome,
            None => self.follow().await,
        };
        self.actor.host.attendance.leave(&self.running);
        outcome
    }

    /// Lets a new guest run, or finds out how an older one stands.
    async fn begin(&mut self) -> Option<Outcome> {
        let vmi = self.actor.object.get();
        let is_new = vmi.status.as_ref().and_then(|status| status.phase.as_deref()) != Some(phase::RUNNING);
        let wants_pause = vmi.spec.start_strategy.as_deref() == Some("Paused");
        let mut status = match self.qmp.status().await {
            Ok(status) => status.status,
            Err(error) => {
                let message = Chain(&error).to_string();
                return Some(self.disconnected(&message).await);
            }
        };
        if self.running.was_held() {
            // We were killed while it was held for a snapshot.
            if let Err(error) = self.running.release().await {
                tracing::error!(error = %Chain(&error), "a guest that was held for a snapshot could not be let go on");
            }
            status = self.qmp.status().await.map(|status| status.status).unwrap_or(status);
        }
        if status == "prelaunch" {
            if let Some(message) = self.missing_features(&vmi).await {
                return Some(self.give_up("FailedStart", &message).await);
            }
            self.open_trays(&vmi).await;
        }
        // With memory that was kept it has been stopped rather than not begun.
        let is_resuming = is_new && status == "paused" && MemorySource::of(&vmi.metadata).is_some();
        if (status == "prelaunch" || is_resuming) && !wants_pause {
            if let Err(error) = self.qmp.cont().await {
                let message = Chain(&error).to_string();
                return Some(self.give_up("FailedStart", &message).await);
            }
            if is_resuming {
                tokio::spawn(memory::set_clock(Arc::clone(&self.running)));
            }
        } else if let Some(outcome) = self.observe(&status).await {
            return Some(outcome);
        }
        self.resize_group(&vmi);
        self.flush().await;
        if is_new {
            self.actor.events.normal(&*vmi, "Started", "VirtualMachineInstance started.");
        }
        // A machine as it was started is as its object asks, but for disks that were not there yet.
        self.reconcile_at = Some(Instant::now());
        None
    }

    async fn follow(&mut self) -> Outcome {
        let mut changes = self.actor.host.storage.changes();
        loop {
            if self.actor.object.is_ending() && self.stop.is_none() {
                self.begin_stop().await;
            }
            self.flush().await;
            let next = self.next_step();
            let outcome = tokio::select! {
                exit = self.process.wait() => Some(self.exited(exit).await),
                event = self.events.next() => self.on_event(event).await,
                () = self.actor.object.changed() => {
                    self.reconcile_at = Some(Instant::now());
                    None
                }
                () = self.running.changed.notified() => self.on_word().await,
                _ = changes.changed() => {
                    self.grow().await;
                    self.reconcile_at = Some(Instant::now());
                    None
                }
                () = sleep_until(next) => self.step().await,
            };
            if let Some(outcome) = outcome {
                return outcome;
            }
        }
    }

    /// When something is due by itself.
    fn next_step(&self) -> Instant {
        let stop = self.stop.as_ref().map(|stop| {
            let agent = (!stop.has_asked_agent).then(|| stop.since + ASK_AGENT);
            agent.into_iter().chain([stop.next_press, self.deadline(stop)]).min().unwrap_or(stop.next_press)
        });
        let due = [Some(self.log_at), self.reconcile_at, self.room_at, self.write_at, stop];
        due.into_iter().flatten().min().unwrap_or(self.log_at)
    }

    async fn step(&mut self) -> Option<Outcome> {
        let now = Instant::now();
        let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        if self.log_at <= now {
            self.log_at = now + TEND_LOG;
            if let Err(error) = process::trim_log(self.process.dir()).await {
                tracing::debug!(error = %Chain(&error), "a machine's log could not be trimmed");
            }
        }
        if is_due(self.room_at) {
            self.look_for_room().await;
        }
        if is_due(self.reconcile_at) {
            self.reconcile_at = None;
            self.reconcile().await;
        }
        if is_due(self.write_at) {
            self.write_at = None;
        }
        self.press_on(now).await
    }

    /// Tells the API what is new.
    async fn flush(&mut self) {
        if self.write_at.is_some() {
            return;
        }
        self.view.guest = Some(self.running.guest());
        let view = self.view.clone();
        if !self.actor.write(&view).await {
            self.write_at = Some(Instant::now() + WRITE_AGAIN);
        }
    }

    async fn on_event(&mut self, event: Result<Event, EventError>) -> Option<Outcome> {
        let event = match event {
            Ok(event) => event,
            Err(EventError::Lagged(_)) => {
                self.reconcile_at = Some(Instant::now());
                return self.look().await;
            }
            Err(EventError::Disconnected) => return Some(self.disconnected("QEMU has closed the connection").await),
        };
        match event.name.as_str() {
            "STOP" => self.look().await,
            "RESUME" => {
                self.view.paused = None;
                self.room_at = None;
                None
            }
            "SHUTDOWN" => self.powered_off(event.data["reason"].as_str().unwrap_or_default()).await,
            "GUEST_PANICKED" => Some(self.panicked().await),
            "BLOCK_IO_ERROR" => {
                self.is_full = event.data["nospace"].as_bool().unwrap_or_default();
                None
            }
            "DEVICE_DELETED" => {
                if let Some(id) = event.data["device"].as_str() {
                    self.device_gone(id).await;
                }
                self.reconcile_at = Some(Instant::now());
                None
            }
            "DUMP_COMPLETED" => {
                self.dumped(&event.data["result"], event.data["error"].as_str());
                None
            }
            _ => None,
        }
    }

    async fn look(&mut self) -> Option<Outcome> {
        match self.qmp.status().await {
            Ok(status) => self.observe(&status.status).await,
            // If it matters, the connection's end says so.
            Err(_) => None,
        }
    }

    /// What QEMU's word for the guest's state means.
    async fn observe(&mut self, status: &str) -> Option<Outcome> {
        match status {
            // For an instant only.
            "paused" if self.running.is_held.load(Ordering::Acquire) => {}
            "paused" | "prelaunch" => {
                self.view.paused = Some(Why::new(PAUSED_BY_USER, "VMI was paused by user"));
            }
            "io-error" => {
                let message = if self.is_full {
                    "VMI was paused, the storage is full: it goes on when there is room"
                } else {
                    "VMI was paused, low-level IO error detected"
                };
                if self.view.paused.is_none() {
                    self.actor.events.warning(&*self.actor.object.get(), "IOerror", message);
                }
                self.view.paused = Some(Why::new(PAUSED_IO_ERROR, message));
                // After a restart of ours nobody knows what the error was; trying again harms nothing.
                self.room_at = Some(Instant::now() + LOOK_FOR_ROOM);
            }
            "running" => self.view.paused = None,
            "shutdown" => return self.powered_off("guest-shutdown").await,
            "guest-panicked" => return Some(self.panicked().await),
            "internal-error" => return Some(self.give_up("Crashed", "QEMU: internal error").await),
            // Passing states: a memory dump, the end of a migration.
            _ => {}
        }
        None
    }

    /// Lets a guest go on that was stopped for want of space, once there is some.
    async fn look_for_room(&mut self) {
        self.room_at = None;
        let is_waiting = self.view.paused.as_ref().is_some_and(|why| why.reason == PAUSED_IO_ERROR);
        if !is_waiting {
            return;
        }
        let _turn = self.running.take_turn().await;
        if self.has_room()
            && let Err(error) = self.qmp.cont().await
        {
            tracing::warn!(error = %Chain(&error), "a guest could not be let go on");
        }
        self.room_at = Some(Instant::now() + LOOK_FOR_ROOM);
    }

    fn has_room(&self) -> bool {
        let vmi = self.actor.object.get();
        let namespace = vmi.metadata.namespace.as_deref().unwrap_or_default();
        let storage = &self.actor.host.storage;
        let claims = vmi.spec.volumes.iter().filter_map(claim_of);
        let attached = claims.filter_map(|claim| storage.attach(namespace, claim).ok()).filter(|one| !one.is_block);
        let paths = attached.map(|attached| attached.path).chain([storage.scratch()]);
        // What cannot be asked is tried.
        paths.into_iter().all(|path| croft_block::room(&path).map_or(true, |bytes| bytes >= ROOM_BYTES))
    }

    /// Something was said through [`Running`].
    async fn on_word(&mut self) -> Option<Outcome> {
        let failure = self.running.failure.lock().take()?;
        Some(self.give_up("Unhealthy", &failure).await)
    }

    async fn begin_stop(&mut self) {
        let vmi = self.actor.object.get();
        self.actor.events.normal(&*vmi, "ShuttingDown", "Signaled Graceful Shutdown");
        let now = Instant::now();
        self.stop = Some(Stop { since: now, next_press: now, has_asked_agent: false });
        let _turn = self.running.take_turn().await;
        // A guest that stands still cannot shut down; one that never ran has nothing to shut down.
        let status = self.qmp.status().await.map(|status| status.status).unwrap_or_default();
        if status == "paused" {
            let _ = self.qmp.cont().await;
        }
    }

    fn deadline(&self, stop: &Stop) -> Instant {
        let vmi = self.actor.object.get();
        // Nobody waits for a guest whose object is gone.
        let seconds = if self.actor.object.is_gone() {
            0
        } else {
            vmi.spec.termination_grace_period_seconds.unwrap_or(DEFAULT_GRACE)
        };
        stop.since + Duration::from_secs(u64::try_from(seconds).unwrap_or_default())
    }

    /// The next means to have the guest shut down, or the end of patience.
    async fn press_on(&mut self, now: Instant) -> Option<Outcome> {
        let stop = self.stop.as_ref()?;
        let is_unborn = self.qmp.status().await.is_ok_and(|status| status.status == "prelaunch");
        if is_unborn || self.deadline(stop) <= now {
            return Some(self.end(phase::SUCCEEDED, None).await);
        }
        let has_acpi = has_acpi(&self.actor.object.get());
        let stop = self.stop.as_mut()?;
        if stop.next_press <= now {
            stop.next_press = now + PRESS_AGAIN;
            if has_acpi {
                // The end of the connection is noticed elsewhere.
                let _ = self.qmp.system_powerdown().await;
            }
        }
        if !stop.has_asked_agent && (!has_acpi || stop.since + ASK_AGENT <= now) {
            stop.has_asked_agent = true;
            let running = Arc::clone(&self.running);
            // An absent agent takes seconds to find out, and nothing waits for it.
            tokio::spawn(async move {
                let _ = running.agent().shutdown(Shutdown::PowerDown).await;
            });
        }
        None
    }

    async fn powered_off(&mut self, reason: &str) -> Option<Outcome> {
        match reason {
            // Our own doing: the process's end follows.
            "host-qmp-quit" | "host-qmp-system-reset" | "snapshot-load" => None,
            "guest-panic" => Some(self.panicked().await),
            _ if self.running.is_rebooting.swap(false, Ordering::AcqRel) && self.stop.is_none() => {
                let again = async {
                    self.qmp.system_reset().await?;
                    self.qmp.cont().await
                };
                match again.await {
                    Ok(()) => None,
                    Err(error) => {
                        let message = Chain(&error).to_string();
                        Some(self.give_up("FailedStart", &message).await)
                    }
                }
            }
            "host-signal" if self.stop.is_none() => Some(self.give_up("Stopped", "QEMU was told to end").await),
            _ => {
                let vmi = self.actor.object.get();
                self.actor.events.normal(&*vmi, "Stopped", "The VirtualMachineInstance was shut down.");
                Some(self.end(phase::SUCCEEDED, None).await)
            }
        }
    }

    async fn panicked(&mut self) -> Outcome {
        self.give_up("GuestPanicked", "The guest's kernel has panicked.").await
    }

    async fn exited(&mut self, exit: Exit) -> Outcome {
        if self.stop.is_some() {
            return Outcome::Ended(Box::new(ended(phase::SUCCEEDED, None)));
        }
        let said = process::log_tail(self.process.dir()).await;
        let how = match (exit.code, exit.signal) {
            (Some(code), _) => format!("QEMU has ended with code {code}"),
            (None, Some(signal)) => format!("QEMU was killed by signal {signal}"),
            (None, None) => "QEMU has ended".to_owned(),
        };
        let message = if said.is_empty() { how } else { format!("{how}: {said}") };
        let view = self.actor.failed("Crashed", &format!("The VirtualMachineInstance crashed. {message}"));
        Outcome::Ended(Box::new(view))
    }

    async fn give_up(&mut self, reason: &str, message: &str) -> Outcome {
        let view = self.actor.failed(reason, message);
        self.quit().await;
        Outcome::Ended(Box::new(view))
    }

    async fn end(&mut self, phase: &'static str, why: Option<Why>) -> Outcome {
        self.quit().await;
        Outcome::Ended(Box::new(ended(phase, why)))
    }

    /// Ends QEMU, which writes out what it holds; one that does not answer is killed.
    async fn quit(&mut self) {
        let quit = async {
            let _ = self.qmp.quit().await;
            self.process.wait().await;
        };
        if timeout(QUIT_PATIENCE, quit).await.is_err() {
            self.process.kill();
            self.process.wait().await;
        }
    }

    /// QEMU's end is the ordinary reason. Otherwise it is found again, or given up.
    async fn disconnected(&mut self, message: &str) -> Outcome {
        if let Ok(exit) = timeout(QUIT_PATIENCE, self.process.wait()).await {
            return self.exited(exit).await;
        }
        tracing::warn!(error = message, pid = self.process.pid(), "the connection to QEMU was lost");
        Outcome::Lost
    }

    /// Makes the machine what its object asks for, as far as that is possible while it runs.
    async fn reconcile(&mut self) {
        if self.stop.is_some() {
            return;
        }
        let vmi = self.actor.object.get();
        let mut problems = Vec::new();
        let devices = match self.qmp.devices().await {
            Ok(devices) => devices,
            Err(error) => {
                tracing::warn!(error = %Chain(&error), "QEMU's devices could not be listed");
                return;
            }
        };
        problems.extend(self.reconcile_disks(&vmi, &devices).await);
        problems.extend(self.reconcile_nics(&vmi, &devices).await);
        problems.extend(self.reconcile_processors(&vmi).await);
        problems.extend(self.reconcile_memory(&vmi).await);
        problems.extend(self.reconcile_dump(&vmi).await);
        let why = (!problems.is_empty()).then(|| Why::new("Synchronizing", problems.join("; ")));
        if let Some(why) = why.as_ref().filter(|why| self.view.not_synchronized.as_ref() != Some(why)) {
            self.actor.events.warning(&*vmi, "SyncFailed", &why.message);
        }
        self.view.not_synchronized = why;
        if !problems.is_empty() || !self.view.detaching.is_empty() {
            self.reconcile_at = Some(Instant::now() + TRY_AGAIN);
        }
    }

    /// What the machine may take, once it runs and whenever it has become larger.
    fn resize_group(&self, vmi: &VirtualMachineInstance) {
        let Some(cgroups) = &self.actor.host.cgroups else { return };
        let memory = self.view.memory_bytes.unwrap_or_default();
        let overhead = self.view.overhead_bytes.unwrap_or_default();
        let accel = croft_qemu::accel::Accel::Kvm;
        let Ok(limits) = limits(vmi, accel, memory) else { return };
        let limits = crate::cgroup::Limits { memory_bytes: Some(memory + overhead), ..limits };
        if let Err(error) = cgroups.group(&self.actor.uid).set(limits) {
            tracing::warn!(error = %Chain(&error), "a machine's limits could not be changed");
        }
    }
}

fn has_acpi(vmi: &VirtualMachineInstance) -> bool {
    vmi.spec.domain.features.as_ref().is_none_or(|features| features.acpi.enabled != Some(false))
}

fn can_hotplug(vmi: &VirtualMachineInstance) -> bool {
    machine::can_hotplug(&vmi.spec)
}
