//! Starts what runs guests: volumes, networks, and the machines on them.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use croft_meta::Chain;
use croft_qemu::qmp::Qmp;
use croft_qemu::spec::Mac;
use croft_reconcile::{Backoff, Events, Tasks};
use futures::future::BoxFuture;
use kube::Client;
use serde_json::json;
use tokio::sync::Semaphore;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::MANAGER;
use crate::attendance::Attendants;
use crate::cgroup::Cgroups;
use crate::container_disk::ContainerDisks;
use crate::data_import::DataImports;
use crate::guest::{Guest, Guests};
use crate::image::Images;
use crate::metrics::Figures;
use crate::network::{self, Dial, Networks};
use crate::node::{Accelerator, Aspect, Finding, Health};
use crate::server::{Reach, Reached, Stores, Transport};
use crate::vm::Machines;
use crate::vm::host::{Host, Users};
use crate::volume::{Volumes, VolumesConfig};

pub(crate) struct Workload {
    pub(crate) client: Client,
    pub(crate) node_name: String,
    pub(crate) data_dir: PathBuf,
    pub(crate) machines_dir: PathBuf,
    pub(crate) vm_subnet: Option<network::Ipv4Net>,
    pub(crate) qemu: PathBuf,
    pub(crate) accelerator: Accelerator,
    pub(crate) health: Health,
    pub(crate) guests: Guests,
    pub(crate) lines: Arc<Lines>,
    pub(crate) stores: Arc<Stores>,
    pub(crate) figures: Arc<Figures>,
}

impl Workload {
    /// Runs guests until `stop`. A node whose pool cannot be opened says so, and tries again.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let (events, telling) = Events::channel(self.client.clone(), MANAGER);
        let mut tasks = Tasks::default();
        tasks.spawn({
            let stop = stop.clone();
            async move { _ = stop.run_until_cancelled(telling).await }
        });
        let starting = async {
            let networks = Networks::start(self.client.clone(), &self.data_dir, self.vm_subnet, &self.health);
            tokio::join!(self.open_volumes(&events), networks)
        };
        let Some((volumes, networks)) = stop.run_until_cancelled(starting).await else { return };
        let networks = Arc::new(networks);
        // Set once, here.
        let _ = self.lines.0.set(Arc::clone(&networks));
        self.figures.include(volumes.clone(), Arc::clone(&networks));
        let images = Images::new(self.client.clone(), events.clone(), volumes.clone());
        let imports = DataImports::new(self.client.clone(), events, volumes.clone(), images.clone());
        self.stores.open(images.clone(), imports.clone());
        let disks = ContainerDisks::new(self.client.clone(), images.clone(), &volumes);
        let machines = self.machines(&volumes, networks, disks.clone());
        tasks.spawn(images.run(stop.clone()));
        tasks.spawn(imports.run(stop.clone()));
        tasks.spawn(disks.run(stop.clone()));
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
                guests: self.guests.clone(),
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

    fn machines(&self, volumes: &Volumes, networks: Arc<Networks>, disks: ContainerDisks) -> Machines {
        let leases = Arc::clone(&networks);
        let attendants = Attendants {
            guests: self.guests.clone(),
            client: self.client.clone(),
            reach: self.lines.clone(),
            leases: Arc::new(Box::new(move |mac| {
                mac.parse::<Mac>().map(|mac| leases.addresses(mac.0)).unwrap_or_default()
            })),
            lease_changes: networks.changes(),
        };
        Machines::new(Host {
            phases: self.figures.phases(),
            client: self.client.clone(),
            node_name: self.node_name.clone(),
            run_dir: self.machines_dir.clone(),
            disk_root: self.data_dir.join("host-disks"),
            qemu: self.qemu.clone(),
            swtpm: PathBuf::from("swtpm"),
            accelerator: self.accelerator.clone(),
            storage: Arc::new(volumes.clone()),
            images: Arc::new(disks),
            nics: networks,
            attendance: Arc::new(attendants),
            cgroups: self.cgroups(),
            users: Users::new(rustix::process::geteuid().is_root()),
            starts: Semaphore::new(crate::vm::parallel_starts()),
        })
    }

    fn cgroups(&self) -> Option<Cgroups> {
        // The directory is this agent's own, of all on this host.
        let own = self.machines_dir.parent().unwrap_or(&self.machines_dir);
        match Cgroups::new(&Cgroups::name_for(own)) {
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

/// The node's networks, once they are there.
#[derive(Debug, Default)]
pub(crate) struct Lines(OnceLock<Arc<Networks>>);

impl Reach for Lines {
    fn reach<'a>(
        &'a self,
        guest: &'a Guest,
        port: u16,
        transport: Transport,
    ) -> BoxFuture<'a, Result<Reached, String>> {
        Box::pin(async move {
            let networks = self.0.get().ok_or("the node's networks are not ready yet")?;
            let machine = guest.machine.as_ref().ok_or("the machine is not known")?;
            let transport = match transport {
                Transport::Tcp => network::Transport::Tcp,
                Transport::Udp => network::Transport::Udp,
            };
            let dial = networks.dial_address(&machine.object(), port, transport);
            match dial.map_err(|error| Chain(&error).to_string())? {
                Dial::Direct(address) => Ok(Reached { address, _way: None }),
                Dial::ThroughQemu { address, addition, removal } => {
                    let backend = machine.first_backend().ok_or("the machine has no interface")?;
                    let way = through_qemu(&guest.qmp, &backend, &addition, &removal).await?;
                    Ok(Reached { address, _way: Some(way) })
                }
            }
        })
    }
}

/// Has QEMU listen on a port for its guest, until the answer is dropped. All words are names and numbers of our own.
async fn through_qemu(qmp: &Qmp, backend: &str, addition: &str, removal: &str) -> Result<DropGuard, String> {
    let command = |words: String| json!({ "command-line": words });
    let add = command(format!("hostfwd_add {backend} {addition}"));
    let said: String = qmp.execute("human-monitor-command", add).await.map_err(|error| error.to_string())?;
    // Silence is success.
    if !said.trim().is_empty() {
        return Err(said.trim().to_owned());
    }
    let over = CancellationToken::new();
    let (qmp, remove, ended) = (qmp.clone(), command(format!("hostfwd_remove {backend} {removal}")), over.clone());
    tokio::spawn(async move {
        ended.cancelled().await;
        let _ = qmp.execute::<String>("human-monitor-command", remove).await;
    });
    Ok(over.drop_guard())
}
