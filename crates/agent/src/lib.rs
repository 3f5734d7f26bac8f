//! What runs on every node: its virtual machines, their networks, volumes and images.
//!
//! [`run`] puts the parts together; each is given what it needs and nothing more:
//! - `node` shows this machine as a Node object, with what it can do and what it lacks;
//! - `workload` starts what runs guests: `vm` on [`volume`]s;
//! - [`guest`] is what is known of the guests that run, and [`console`] their serial ports;
//! - `machine_state` are the variables and TPMs of machines, as they are kept and brought back;
//! - `link_monitors` shows the links of this host;
//! - `ntp` tells the host's time daemon whom to ask;
//! - `metrics` are the figures of all this;
//! - `server` is the HTTPS interface that the API server calls for whatever needs the live machine.
//!
//! The agent may be killed at any instant. Guests run on, and the next start finds them again.
//!
//! Start reading at [`run`].

mod attendance;
mod cgroup;
mod cloud_init;
pub mod console;
pub mod container_disk;
pub mod data_import;
pub mod guest;
pub mod image;
mod iso;
mod link_monitors;
mod machine_state;
mod metrics;
pub mod network;
mod node;
mod ntp;
mod probe;
mod reset;
mod server;
mod streams;
mod vm;
pub mod volume;
mod workload;

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use croft_pki::AgentTls;
use croft_reconcile::Tasks;
use kube::Client;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::guest::Guests;

pub use node::{Accelerator, Aspect, Finding, Health, memory_bytes};
pub use reset::{ResetError, reset};

/// Who the managed fields say it was.
pub(crate) const MANAGER: &str = "croft-agent";

/// What an agent needs to start.
pub struct Config {
    pub client: Client,
    /// A DNS name; what the Node object is called.
    pub node_name: String,
    /// Where others reach this node, the preferred one first.
    pub addresses: Vec<IpAddr>,
    pub listen: Listen,
    /// Issues the certificate that the API server knows this node by.
    pub identity: Box<dyn Fn() -> croft_pki::Result<AgentTls> + Send + Sync>,
    pub data_dir: PathBuf,
    /// For sockets, whose paths must be short. What is in it does not outlive a reboot.
    pub run_dir: PathBuf,
    /// The default network's, as somebody has chosen it.
    pub vm_subnet: Option<network::Ipv4Net>,
    /// QEMU; a name is looked up in the PATH.
    pub qemu: PathBuf,
    /// Where the daemons of this host are configured; `None` if they are not this agent's to configure.
    pub etc_dir: Option<PathBuf>,
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config").field("node_name", &self.node_name).finish_non_exhaustive()
    }
}

/// Where the API server reaches the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listen {
    pub address: SocketAddr,
    /// Otherwise another port will do if this one is taken: the Node object tells which.
    pub is_required: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    #[error("cannot listen on {address} for the API server; choose another address with --node-listen")]
    Listen {
        address: SocketAddr,
        #[source]
        source: std::io::Error,
    },
    #[error("cannot prepare the directory {}", path.display())]
    Directory {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("no certificate for the node could be had")]
    Identity(#[source] croft_pki::Error),
}

/// Runs the agent until `stop`; its guests run on. What a node lacks is said in its conditions, and is no error.
pub async fn run(config: Config, stop: CancellationToken) -> Result<(), AgentError> {
    prepare_directory(&config.run_dir)?;
    let machines_dir = config.run_dir.join("vms");
    prepare_directory(&machines_dir)?;
    let listener = server::bind(config.listen).await?;
    let port = listener_port(&listener, config.listen)?;
    let tls = server::Tls::new(config.identity)?;

    let health = Health::default();
    let accelerator = Accelerator::probe(&config.qemu, &config.data_dir, health.clone());
    let guests = Guests::default();
    let lines = Arc::<workload::Lines>::default();
    let stores = Arc::<server::Stores>::default();
    let figures = metrics::Figures::new(&config.node_name, guests.clone());
    let logs = server::Logs { machines_dir: machines_dir.clone() };
    let workload = workload::Workload {
        client: config.client.clone(),
        node_name: config.node_name.clone(),
        data_dir: config.data_dir.clone(),
        machines_dir,
        vm_subnet: config.vm_subnet,
        qemu: config.qemu,
        accelerator: accelerator.clone(),
        health: health.clone(),
        guests: guests.clone(),
        lines: Arc::clone(&lines),
        stores: Arc::clone(&stores),
        figures: Arc::clone(&figures),
    };
    let link_monitors =
        link_monitors::LinkMonitors { client: config.client.clone(), node_name: config.node_name.clone() };
    let time_service =
        ntp::TimeService { client: config.client.clone(), node_name: config.node_name.clone(), etc: config.etc_dir };
    let registration = node::Registration {
        client: config.client,
        name: config.node_name,
        addresses: config.addresses,
        port,
        data_dir: config.data_dir,
        accelerator,
        health,
    };
    let sampled = Arc::clone(&figures);
    let services = server::Services { guests, reach: lines, stores, figures, logs };
    let mut tasks = Tasks::default();
    tasks.spawn(registration.run(stop.clone()));
    tasks.spawn(time_service.run(stop.clone()));
    tasks.spawn(link_monitors.run(stop.clone()));
    tasks.spawn(tls.clone().renew(stop.clone()));
    let stopped = stop.clone();
    tasks.spawn(async move { sampled.follow_usage(stopped).await });
    tasks.spawn(workload.run(stop.clone()));
    tasks.spawn(server::serve(listener, tls, services, stop));
    tasks.finish().await;
    Ok(())
}

fn listener_port(listener: &TcpListener, listen: Listen) -> Result<u16, AgentError> {
    let address = listener.local_addr();
    address.map(|a| a.port()).map_err(|source| AgentError::Listen { address: listen.address, source })
}

/// Only its owner gets in: the sockets in it are the guests' consoles.
fn prepare_directory(path: &Path) -> Result<(), AgentError> {
    use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
    let failed = |source| AgentError::Directory { path: path.to_owned(), source };
    std::fs::DirBuilder::new().recursive(true).mode(0o711).create(path).map_err(failed)?;
    // Unprivileged guests pass through it to their own directories, and can list nothing.
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o711)).map_err(failed)
}
