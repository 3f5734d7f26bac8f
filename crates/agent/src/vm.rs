//! The machines of this node: each VirtualMachineInstance that the scheduler has given us is one QEMU.
//!
//! - `machine` turns the object into what QEMU is told to be; it is pure.
//! - `prepare` gathers what that needs: disks (`volume`, `seed`), firmware, interfaces, user and control group.
//! - `actor` is the one task of each machine, `live` its work while the machine runs, `status` what it tells the API.
//! - [`Running`] is a machine as consoles, guest agents and figures see it; `still` holds one still for an instant,
//!   `memory` writes down all that it has in mind, and has one go on from there.
//! - `host` names what all this asks of the rest of the agent, and who is told of the machines that run.
//!
//! QEMU outlives us. Its directory below the agent's run directory is named after the object's uid, and that is all that
//! is needed to find it again; nothing else is written down.

mod actor;
mod adopt;
mod cleanup;
mod firmware;
pub(crate) mod host;
mod live;
mod machine;
mod memory;
mod object;
mod prepare;
mod running;
mod seed;
mod state;
mod status;
mod still;
mod storage;
#[cfg(test)]
mod tests;
mod volume;

use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use croft_api::kubevirt::{LABEL_NODE_NAME, VirtualMachineInstance};
use croft_meta::Chain;
use croft_qemu::process;
use croft_reconcile::{Cache, Change, Events, Source, Tasks};
use futures::StreamExt;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use actor::Actor;
use host::Host;

pub(crate) use firmware::owner_uid;
pub(crate) use running::{GuestFacts, Running};

/// How often the state of machines that are no more is looked for.
const SWEEP: Duration = Duration::from_hours(1);
/// How many machines start at a time, for each of the host's processors.
const STARTS_PER_CPU: usize = 4;

/// All machines of this node.
#[derive(Debug)]
pub(crate) struct Machines {
    host: Arc<Host>,
}

/// How many machines may start at a time.
pub(crate) fn parallel_starts() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get) * STARTS_PER_CPU
}

type Seen = watch::Sender<Option<Arc<VirtualMachineInstance>>>;

impl Machines {
    pub(crate) fn new(host: Host) -> Machines {
        Machines { host: Arc::new(host) }
    }

    /// Runs the machines that this node is given, until `stop`. They run on afterwards.
    pub(crate) async fn run(&self, stop: CancellationToken) {
        let (events, telling) = Events::channel(self.host.client.clone(), crate::MANAGER);
        let cache: Cache<VirtualMachineInstance> = Cache::default();
        let labels = Some(format!("{LABEL_NODE_NAME}={}", self.host.node_name));
        let source = Source { labels, ..Source::of::<VirtualMachineInstance>() };
        let mut changes = std::pin::pin!(cache.follow(self.host.client.clone(), source));
        let mut tasks = Tasks::default();
        tasks.spawn(telling);
        let mut machines: HashMap<String, Seen> = HashMap::new();
        let mut synced = std::pin::pin!(cache.synced());
        let mut is_synced = false;
        let mut sweep = tokio::time::interval(SWEEP);
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                change = changes.next() => match change {
                    Some(change) => {
                        // What was there before us has been counted before.
                        if let Some(new) = change.new.as_deref().filter(|_| is_synced) {
                            self.host.phases.changed(change.old.as_deref(), new);
                        }
                        self.take_in(change, &mut machines, &mut tasks, &events);
                    }
                    None => return,
                },
                () = &mut synced, if !is_synced => {
                    is_synced = true;
                    let known = machines.keys().cloned().collect();
                    let host = Arc::clone(&self.host);
                    tasks.spawn(async move { clear_strangers(&host, known).await });
                }
                _ = sweep.tick(), if is_synced => {
                    let host = Arc::clone(&self.host);
                    tasks.spawn(async move {
                        if let Err(error) = state::sweep(&host).await {
                            tracing::debug!(error, "the state of machines that are gone is kept for now");
                        }
                    });
                }
                () = tasks.watch_over() => {}
            }
        }
    }

    /// Tells a machine's task of its object, and starts the task of a new one.
    fn take_in(
        &self,
        change: Change<VirtualMachineInstance>,
        machines: &mut HashMap<String, Seen>,
        tasks: &mut Tasks,
        events: &Events,
    ) {
        let uid = |vmi: &VirtualMachineInstance| vmi.metadata.uid.clone().unwrap_or_default();
        let new_uid = change.new.as_deref().map(uid);
        // An object of the same name may be another one, if the watch has missed the moment between them.
        if let Some(old) = change.old.as_deref().map(uid).filter(|old| new_uid.as_ref() != Some(old))
            && let Some(seen) = machines.remove(&old)
        {
            seen.send_replace(None);
        }
        let (Some(vmi), Some(uid)) = (change.new, new_uid) else { return };
        if let Some(seen) = machines.get(&uid).filter(|seen| !seen.is_closed()) {
            seen.send_replace(Some(vmi));
            return;
        }
        // One that has ended and only waits for others' finalizers needs nothing any more.
        if machines.contains_key(&uid) {
            return;
        }
        let (sender, receiver) = watch::channel(None);
        machines.insert(uid, sender);
        let actor = Actor::new(Arc::clone(&self.host), events.clone(), vmi, receiver);
        tasks.spawn(actor.run());
    }
}

/// Takes away what belongs to no machine of this node: their objects went while nobody looked.
async fn clear_strangers(host: &Host, known: BTreeSet<String>) {
    let mut strangers: BTreeSet<String> = BTreeSet::new();
    match process::leftovers(&host.run_dir).await {
        Ok(left) => strangers.extend(left.iter().filter_map(|left| name_of(&left.dir))),
        Err(error) => tracing::warn!(error = %Chain(&error), "machines of an earlier run could not be looked for"),
    }
    if let Some(cgroups) = &host.cgroups {
        strangers.extend(cgroups.ids());
    }
    if let Ok(entries) = std::fs::read_dir(host.storage.scratch()) {
        strangers.extend(entries.flatten().filter_map(|entry| name_of(&entry.path())));
    }
    // Interfaces are written down elsewhere, and outlast a reboot.
    if let Err(error) = host.nics.retain(&known).await {
        tracing::warn!(error, "interfaces of machines that are gone could not be taken away");
    }
    for uid in strangers.difference(&known) {
        tracing::info!(uid, "taking away a machine whose object is gone");
        cleanup::machine(host, uid).await;
    }
}

fn name_of(path: &Path) -> Option<String> {
    Some(path.file_name()?.to_str()?.to_owned())
}
