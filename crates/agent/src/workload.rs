//! Starts what runs guests: volumes, and the machines on them.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use croft_meta::Chain;
use croft_reconcile::{Backoff, Events, Tasks};
use futures::future::BoxFuture;
use kube::Client;
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;

use crate::MANAGER;
use crate::attendance::Attendants;
use crate::cgroup::Cgroups;
use crate::guest::{Guest, Guests};
use crate::node::{Accelerator, Aspect, Finding, Health};
use crate::server::{Reach, Transport};
use crate::vm::Machines;
use crate::vm::host::{Host, ImageWanted, Images, Lacking, NicWanted, Nics, Plugged, Users};
use crate::volume::{Volumes, VolumesConfig};

pub(crate) struct Workload {
    pub(crate) client: Client,
    pub(crate) node_name: String,
    pub(crate) data_dir: PathBuf,
    pub(crate) machines_dir: PathBuf,
    pub(crate) qemu: PathBuf,
    pub(crate) accelerator: Accelerator,
    pub(crate) health: Health,
    pub(crate) guests: Guests,
    pub(crate) lease_changes: watch::Sender<u64>,
}

impl Workload {
    /// Where a guest is reached from this host: at the addresses that its object shows, in their order.
    pub(crate) fn reach(&self) -> Arc<Reach> {
        Arc::new(Box::new(|guest: &Guest, port: u16, _: Transport| {
            let object = guest.machine.as_ref().map(|machine| machine.object());
            let status = object.as_ref().and_then(|object| object.status.as_ref());
            let first = status.and_then(|status| status.interfaces.first());
            let addresses = first.map(|interface| interface.ip_addresses.as_slice()).unwrap_or_default();
            addresses.iter().filter_map(|ip| Some(SocketAddr::new(ip.parse().ok()?, port))).collect()
        }))
    }

    /// Runs guests until `stop`. A node whose pool cannot be opened says so, and tries again.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let (events, telling) = Events::channel(self.client.clone(), MANAGER);
        let mut tasks = Tasks::default();
        tasks.spawn({
            let stop = stop.clone();
            async move { _ = stop.run_until_cancelled(telling).await }
        });
        let Some(volumes) = stop.run_until_cancelled(self.open_volumes(&events)).await else { return };
        let machines = self.machines(&volumes);
        tasks.spawn(volumes.run(stop.clone()));
        tasks.spawn(async move { machines.run(stop).await });
        tasks.finish().await;
    }

    async fn open_volumes(&self, events: &Events) -> Volumes {
        let mut backoff = Backoff::default();
        let mut has_failed = false;
        loop {
            let config = VolumesConfig {
                client: self.client.clone(),
                events: events.clone(),
                node_name: self.node_name.clone(),
                data_dir: self.data_dir.clone(),
                pool: croft_block::Options::default(),
                health: self.health.clone(),
            };
            match Volumes::open(config).await {
                Ok(volumes) => {
                    if has_failed {
                        self.health.set(Aspect::Ready, Finding::good("KubeletReady", "the agent is running"));
                    }
                    return volumes;
                }
                Err(error) => {
                    has_failed = true;
                    let message = Chain(&error).to_string();
                    self.health.set(Aspect::Pool, Finding::bad("PoolFails", message.clone()));
                    self.health.set(Aspect::Ready, Finding::bad("PoolFails", message));
                    tokio::time::sleep(backoff.next_delay()).await;
                }
            }
        }
    }

    fn machines(&self, volumes: &Volumes) -> Machines {
        let attendants = Attendants {
            guests: self.guests.clone(),
            client: self.client.clone(),
            reach: self.reach(),
            leases: Arc::new(Box::new(|_| Vec::new())),
            lease_changes: self.lease_changes.subscribe(),
        };
        Machines::new(Host {
            client: self.client.clone(),
            node_name: self.node_name.clone(),
            run_dir: self.machines_dir.clone(),
            host_disks: self.data_dir.join("host-disks"),
            qemu: self.qemu.clone(),
            swtpm: PathBuf::from("swtpm"),
            accelerator: self.accelerator.clone(),
            storage: Arc::new(volumes.clone()),
            images: Arc::new(NoImages),
            nics: Arc::new(UserNetworks),
            attendance: Arc::new(attendants),
            cgroups: self.cgroups(),
            users: Users::new(rustix::process::geteuid().is_root()),
            starts: Semaphore::new(crate::vm::parallel_starts()),
        })
    }

    fn cgroups(&self) -> Option<Cgroups> {
        // The directory's name is this agent's own, of all on this host.
        let own = self.machines_dir.parent().and_then(|dir| dir.file_name()).unwrap_or_default().to_string_lossy();
        match Cgroups::new(&format!("croft-{own}")) {
            Ok(cgroups) => {
                self.health.set(Aspect::Cgroups, Finding::good("Writable", "guests are held to their limits"));
                Some(cgroups)
            }
            Err(error) => {
                let message = format!("guests are not held to their limits: {}", Chain(&error));
                self.health.set(Aspect::Cgroups, Finding::bad("NotWritable", message));
                None
            }
        }
    }
}

struct NoImages;

impl Images for NoImages {
    fn ensure<'a>(&'a self, wanted: &'a ImageWanted) -> BoxFuture<'a, Result<PathBuf, Lacking>> {
        let message = format!("image {} cannot be had: this node pulls no images", wanted.image);
        Box::pin(std::future::ready(Err(Lacking::ever(message))))
    }
}

struct UserNetworks;

impl Nics for UserNetworks {
    fn plug<'a>(&'a self, _wanted: NicWanted<'a>) -> BoxFuture<'a, Result<Plugged, Lacking>> {
        Box::pin(std::future::ready(Ok(Plugged::User { forwards: Vec::new() })))
    }

    fn unplug<'a>(&'a self, _vmi_uid: &'a str, _interface: &'a str) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn unplug_all<'a>(&'a self, _vmi_uid: &'a str) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(std::future::ready(Ok(())))
    }
}
